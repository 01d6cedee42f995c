//! The helper that serves the run's network from outside.

use crate::cli::error::Failure;
use crate::linux::namespace::{self, Namespace};
use crate::linux::net::{self, Unlisted};
use crate::plan::Plan;
use crate::policy::Hosts;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::OsString;

/// Starts the helper for what the policy offers and for its lists of hosts, where there are such; `unlisted` is what
/// becomes of other hosts. Where those are learned, and nothing is listed, it lists nothing. The namespace is given back.
pub fn serve_network(
    plan: &Plan,
    made: Option<namespace::Made>,
    env: &[OsString],
    unlisted: Unlisted,
) -> Result<(Option<Namespace>, Option<net::Network>), Failure> {
    let (mut offers, mut maker) = (Vec::new(), None);
    let namespace = match made {
        Some(made) => {
            offers = made.namespace.offers(&plan.policy.network)?;
            let names = made.names.into_iter();
            offers.extend(names.map(|socket| net::Offer { socket, role: net::Role::Names }));
            maker = Some(made.maker).filter(|_| !plan.policy.network.expose.is_empty());
            Some(made.namespace)
        }
        None => None,
    };
    let hosts = Hosts::new(&plan.policy.network).filter(|_| plan.network);
    let hosts = match unlisted {
        Unlisted::Learned => Some(Hosts::default()),
        _ => hosts,
    };
    let hosts = hosts.filter(|_| plan.broker);
    let domains = match hosts.map(|hosts| net::Domains::new(hosts, env)).transpose() {
        // What the program then connects to by address is learned.
        Err(_) if unlisted == Unlisted::Learned => None,
        domains => domains?.map(|domains| net::Domains { unlisted, ..domains }),
    };
    if domains.is_some() {
        offers.extend(net::proxy_offers(|family| match &namespace {
            Some(namespace) => namespace.socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP),
            None => socket_with(
                AddressFamily::from_raw(family as u16),
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            ),
        })?);
    }
    if offers.is_empty() {
        return Ok((namespace, None));
    }
    let network = net::Network::start(offers, maker, domains)?;
    Ok((namespace, Some(network)))
}

/// The port of the proxy that programs are told of, if they are told of one.
pub fn told_of(plan: &Plan, network: &net::Network, learn: bool) -> Option<u16> {
    let policy = &plan.policy.network;
    let told = policy.proxy_environment.as_ref().is_none_or(|told| told.value);
    let told = told && (learn || policy.lists_hosts());
    Some(network.control().port()).filter(|port| told && *port != 0)
}
