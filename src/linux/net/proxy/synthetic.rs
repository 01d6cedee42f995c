//! Addresses that stand for names, for programs that know no proxy.
//!
//! A name is looked up when it is connected to, and by the proxy. Before that a program is told addresses
//! which mean nothing but the name, in this run alone.

use crate::policy::hosts::{at_place, synthetic};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most names that have addresses at a time; then the oldest one loses its own. A multiple of what a program
/// has in use, and less than there are addresses of IPv4.
const MOST: u32 = 1 << 14;

/// Which name has which addresses.
#[derive(Default)]
pub struct Synthetic(Mutex<Known>);

#[derive(Default)]
struct Known {
    places: HashMap<Arc<str>, u32>,
    names: HashMap<u32, Arc<str>>,
    last: u32,
}

impl Synthetic {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of `name`, of IPv4 and of IPv6: those that it has already, or else new ones, of which
    /// `is_taken` says no. None where all are taken.
    pub fn addresses(&self, name: &str, is_taken: impl Fn(IpAddr) -> bool) -> Option<[IpAddr; 2]> {
        let mut known = self.known();
        if let Some(place) = known.places.get(name) {
            return Some(at_place(*place));
        }
        let next = |after: &u32| Some(after % MOST + 1);
        let mut places = std::iter::successors(next(&known.last), next).take(MOST as usize);
        let place = places.find(|place| !at_place(*place).into_iter().any(&is_taken))?;
        let name = Arc::from(name);
        if let Some(before) = known.names.insert(place, Arc::clone(&name)) {
            known.places.remove(&before);
        }
        known.places.insert(name, place);
        known.last = place;
        Some(at_place(place))
    }

    /// The name that has this address.
    pub fn name(&self, address: IpAddr) -> Option<String> {
        let place = synthetic(address)?;
        self.known().names.get(&place).map(|name| name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_until_there_are_too_many() {
        let names = Synthetic::default();
        let of = |name: &str| names.addresses(name, |_| false).unwrap();
        let first = of("a.example");
        assert_eq!(first, of("a.example"));
        assert_eq!(first.map(|ip| ip.to_string()), ["198.18.0.1", "fd00:6c61:6e64:7374::1"]);
        for address in first {
            assert_eq!(names.name(address).as_deref(), Some("a.example"));
        }
        assert_eq!(names.name("::ffff:198.18.0.1".parse().unwrap()).as_deref(), Some("a.example"));
        for address in ["198.18.0.2", "198.17.255.255", "fd00:6c61:6e64:7374::2", "::1"] {
            assert_eq!(names.name(address.parse().unwrap()), None, "{address}");
        }
        for other in 0..MOST {
            assert_ne!(of(&format!("{other}.example")), [first[1], first[0]]);
        }
        assert_eq!(names.name(first[0]).as_deref(), Some(&*format!("{}.example", MOST - 1)));
        assert_ne!(of("a.example"), first);
        let known = names.known();
        assert_eq!((known.names.len(), known.places.len()), (MOST as usize, MOST as usize));
    }

    #[test]
    fn addresses_that_a_policy_names_are_left_out() {
        let names = Synthetic::default();
        let taken = ["198.18.0.1".parse().unwrap(), "fd00:6c61:6e64:7374::2".parse().unwrap()];
        let found = names.addresses("a.example", |ip| taken.contains(&ip)).unwrap();
        assert_eq!(found[0].to_string(), "198.18.0.3");
        assert_eq!(names.addresses("b.example", |_| true), None);
    }
}
