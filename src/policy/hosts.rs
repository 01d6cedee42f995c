//! The one meaning of `allowedDomains` and `deniedDomains`.
//!
//! Whatever names a host (a URL, a CONNECT, a SOCKS request, a question to DNS) goes through
//! [`Host::parse`] and [`Hosts::decide`], and every address that a name turns out to have through
//! [`Hosts::address`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host;
use super::resolved::Network;
use super::rule::Located;

/// A host as requests name one: by a name or by an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name, checked and in lower case.
    Name(String),
    /// An address; one of IPv4 is never in the form of IPv6.
    Address(IpAddr),
}

impl Host {
    /// Reads a host without a port: a name, an IPv4 address in four decimal numbers, or an IPv6 address
    /// with or without brackets.
    ///
    /// # Errors
    ///
    /// Why it is none. Refused is all that another reader could take for something else: other spellings
    /// of addresses, zones, escapes, a dot at the end, letters outside of ASCII.
    pub fn parse(text: &str) -> Result<Host, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(six) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
            return Ok(Host::Address(IpAddr::V6(six).to_canonical()));
        }
        let checked = host::check(text)?;
        if checked.contains([':', '*', '[']) {
            return Err(format!("{} is not a host", super::node::shown(text)));
        }
        Ok(match checked.parse::<Ipv4Addr>() {
            Ok(four) => Host::Address(four.into()),
            Err(_) => Host::Name(checked),
        })
    }

    /// Whether it is this host itself by name: `localhost` and what is below (RFC 6761).
    #[must_use]
    pub fn is_local_name(&self) -> bool {
        matches!(self, Host::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }

    /// With `port`, as URLs and policies write it.
    #[must_use]
    pub fn with_port(&self, port: u16) -> String {
        format!("{self}:{port}")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V6(six)) => write!(f, "[{six}]"),
            Host::Address(four) => four.fmt(f),
        }
    }
}

/// What a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Host(Host),
    /// Every host below: `.example.com`.
    Below(String),
}

/// One entry of a list.
#[derive(Clone, Debug)]
struct Rule {
    named: Named,
    port: Option<u16>,
    entry: Located<String>,
}

impl Rule {
    /// From an entry that was checked.
    fn new(entry: &Located<String>) -> Rule {
        let (text, port) = host::split(&entry.value);
        let named = match text.strip_prefix('*') {
            Some(ending) => Named::Below(ending.to_owned()),
            None => Named::Host(Host::parse(text).unwrap_or(Host::Name(text.to_owned()))),
        };
        Rule { named, port, entry: entry.clone() }
    }

    /// Whether it names `host`. `localhost` is also the addresses that it stands for.
    fn names(&self, host: &Host) -> bool {
        match (&self.named, host) {
            (Named::Host(named), Host::Address(address)) if named.is_local_name() => {
                LOCALHOST.contains(address)
            }
            (Named::Host(named), host) => named == host,
            (Named::Below(ending), Host::Name(name)) => name.ends_with(ending.as_str()),
            (Named::Below(_), Host::Address(_)) => false,
        }
    }

    fn is_for(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// What `localhost` stands for.
pub const LOCALHOST: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The addresses that programs without a proxy are told instead of a host's own: those for benchmarks
/// (RFC 2544), and a network of the kind that nobody else has (RFC 4193).
pub const SYNTHETIC: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 0, 0), Ipv6Addr::new(0xfd00, 0x6c61, 0x6e64, 0x7374, 0, 0, 0, 0));

/// The place of an address among the [`SYNTHETIC`] ones, if it is one.
#[must_use]
pub fn synthetic(address: IpAddr) -> Option<u32> {
    let (four, six) = SYNTHETIC;
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let place = address.to_bits() ^ four.to_bits();
            (place >> 17 == 0).then_some(place)
        }
        IpAddr::V6(address) => u32::try_from(address.to_bits() ^ six.to_bits()).ok(),
    }
}

/// The [`SYNTHETIC`] addresses at a place, which is less than 2^17.
#[must_use]
pub fn at_place(place: u32) -> [IpAddr; 2] {
    let (four, six) = SYNTHETIC;
    let four = Ipv4Addr::from_bits(four.to_bits() | place & 0x1_ffff);
    [four.into(), Ipv6Addr::from_bits(six.to_bits() | u128::from(place)).into()]
}

/// Why a host may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No entry names it.
    Unlisted,
    /// An entry of `deniedDomains` does.
    Denied,
    /// A name that is listed has an address that is not, and that names are not to have.
    Special(Special),
}

/// A kind of address that has to be listed itself: whoever answers for a name could lead a connection
/// there, to what trusts this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// This host.
    Loopback,
    /// The network that this host is on, by addresses that mean nothing elsewhere.
    LinkLocal,
    /// Where clouds tell a machine its credentials.
    Metadata,
    /// No host: unspecified, multicast, reserved.
    NoHost,
}

impl Special {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Special::Loopback => "a loopback address",
            Special::LinkLocal => "a link-local address",
            Special::Metadata => "the address of a metadata service",
            Special::NoHost => "an address of no host",
        }
    }
}

/// Metadata services that are not at a link-local address: Alibaba, Azure, Oracle, and by IPv6 Google, Oracle,
/// Scaleway, Akamai (Linode), Alibaba.
const METADATA: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200)),
];
/// The network of what AWS answers an instance by IPv6: metadata at `::254`, the Pod Identity Agent at `::23`.
const AWS: u32 = 0xfd00_0ec2;

/// What kind of special address this is, if one. Private networks are none: a listed name in an intranet
/// has such an address.
#[must_use]
pub fn special(address: IpAddr) -> Option<Special> {
    let address = address.to_canonical();
    if METADATA.contains(&address) {
        return Some(Special::Metadata);
    }
    match address {
        IpAddr::V4(four) => special_four(four),
        IpAddr::V6(six) => special_six(six),
    }
}

fn special_six(six: Ipv6Addr) -> Option<Special> {
    let bits = six.to_bits();
    let [high, _, _, _, marker, tunnel, ..] = six.segments();
    // The low 32 bits are an address of IPv4.
    let embedded = |bits: u128| special_four(Ipv4Addr::from_bits(bits as u32));
    match high {
        _ if bits == 1 => Some(Special::Loopback),
        // Compatible addresses, which no host has.
        _ if bits >> 32 == 0 => Some(Special::NoHost),
        // Translated: stateless (RFC 2765), by the prefix for all (RFC 6052), and by those of a network (RFC 8215).
        _ if bits >> 32 == 0xffff_0000 => embedded(bits),
        _ if bits >> 32 == 0x64_ff9b << 64 => embedded(bits),
        _ if bits >> 80 == 0x64_ff9b_0001 => special_within(six),
        // Tunnelled: 6to4 (RFC 3056), Teredo (RFC 4380, with the client's address inverted), ISATAP (RFC 5214).
        0x2002 => embedded(bits >> 80),
        _ if bits >> 96 == 0x2001_0000 => embedded(!bits),
        _ if high & 0xffc0 == 0xfe80 => Some(Special::LinkLocal),
        _ if marker & !0x200 == 0 && tunnel == 0x5efe => embedded(bits),
        _ if high & 0xff00 == 0xff00 => Some(Special::NoHost),
        _ if bits >> 96 == u128::from(AWS) => Some(Special::Metadata),
        _ if synthetic(six.into()).is_some() => Some(Special::NoHost),
        _ => None,
    }
}

/// The same of an address that a network translates with a prefix of its own, whose length nobody knows: what
/// is special as one of RFC 6052, 2.2 reads it. Where the address is not, there are zeros, which are no host.
fn special_within(six: Ipv6Addr) -> Option<Special> {
    let octets = six.octets();
    [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]]
        .into_iter()
        .filter_map(|places| special_four(places.map(|place| octets[place]).into()))
        .find(|special| *special != Special::NoHost)
}

fn special_four(four: Ipv4Addr) -> Option<Special> {
    if METADATA.contains(&four.into()) {
        return Some(Special::Metadata);
    }
    match four.octets() {
        [127, ..] => Some(Special::Loopback),
        [169, 254, 169, 254] => Some(Special::Metadata),
        [169, 254, ..] => Some(Special::LinkLocal),
        [0 | 224.., ..] => Some(Special::NoHost),
        _ if synthetic(four.into()).is_some() => Some(Special::NoHost),
        _ => None,
    }
}

/// The answer about a host, and the entry that gave it, if any did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reachable<'a> {
    /// It may be reached.
    Yes(&'a Located<String>),
    /// It may not.
    No(Unreachable, Option<&'a Located<String>>),
}

/// Answers what a policy says about hosts; by default, that none may be reached.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    allowed: Vec<Rule>,
    denied: Vec<Rule>,
    /// Lists that have to allow it as well.
    bound: Option<Box<Hosts>>,
}

impl Hosts {
    /// For the section `network`; none where it says nothing about hosts.
    #[must_use]
    pub fn new(network: &Network) -> Option<Hosts> {
        let (allowed, denied) = (&network.allowed_domains, &network.denied_domains);
        if allowed.is_none() && denied.is_none() {
            return None;
        }
        let rules = |list: &Option<Vec<_>>| list.iter().flatten().map(Rule::new).collect();
        Some(Hosts { allowed: rules(allowed), denied: rules(denied), bound: None })
    }

    /// These lists, which allow no more than `bound` does.
    #[must_use]
    pub fn within(self, bound: Hosts) -> Hosts {
        Hosts { bound: Some(Box::new(bound)), ..self }
    }

    /// Whether `host` may be reached at `port`; without one, at any.
    #[must_use]
    pub fn decide(&self, host: &Host, port: Option<u16>) -> Reachable<'_> {
        // A denial for one port leaves others.
        let denies = |rule: &&Rule| {
            rule.names(host) && port.map_or(rule.port.is_none(), |port| rule.is_for(port))
        };
        if let Some(rule) = self.denied.iter().find(denies) {
            return Reachable::No(Unreachable::Denied, Some(&rule.entry));
        }
        let allows = |rule: &&Rule| rule.names(host) && port.is_none_or(|port| rule.is_for(port));
        let Some(rule) = self.allowed.iter().find(allows) else {
            return Reachable::No(Unreachable::Unlisted, None);
        };
        match self.bound.as_ref().map(|bound| bound.decide(host, port)) {
            Some(closed @ Reachable::No(..)) => closed,
            _ => Reachable::Yes(&rule.entry),
        }
    }

    /// The ports at which `host` may be reached, in order; none where there is an entry for every port, or none
    /// at all.
    #[must_use]
    pub fn ports(&self, host: &Host) -> Vec<u16> {
        let naming = || self.allowed.iter().filter(|rule| rule.names(host));
        if naming().any(|rule| rule.port.is_none()) {
            return Vec::new();
        }
        let mut ports: Vec<u16> = naming().filter_map(|rule| rule.port).collect();
        ports.retain(|port| matches!(self.decide(host, Some(*port)), Reachable::Yes(_)));
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Whether a connection to `host`, which may be reached at `port`, may go to `address`, which `host`
    /// is said to have; the entry is then the one about the host.
    #[must_use]
    pub fn address<'a>(
        &'a self,
        host: &Host,
        port: u16,
        entry: &'a Located<String>,
        address: IpAddr,
    ) -> Reachable<'a> {
        let address = address.to_canonical();
        match self.decide(&Host::Address(address), Some(port)) {
            Reachable::No(Unreachable::Unlisted, _) => {}
            listed => return listed,
        }
        let bound = self.bound.as_ref().map(|bound| bound.address(host, port, entry, address));
        if let Some(closed @ Reachable::No(..)) = bound {
            return closed;
        }
        match special(address) {
            Some(Special::Loopback) if host.is_local_name() => Reachable::Yes(entry),
            Some(special) => Reachable::No(Unreachable::Special(special), None),
            None => Reachable::Yes(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::Origin;
    use super::*;

    fn hosts(allowed: &[&str], denied: &[&str]) -> Hosts {
        let list = |texts: &[&str]| {
            let entry = |text: &&str| Located::new(host::check(text).unwrap(), Origin::default());
            Some(texts.iter().map(entry).collect())
        };
        let network = Network {
            allowed_domains: list(allowed),
            denied_domains: list(denied),
            ..Network::default()
        };
        Hosts::new(&network).unwrap()
    }

    /// The entry that decided, with a `!` where it is "no"; `-` for the default.
    fn said(reachable: Reachable<'_>) -> String {
        match reachable {
            Reachable::Yes(entry) => entry.value.clone(),
            Reachable::No(Unreachable::Special(special), _) => special.as_str().to_owned(),
            Reachable::No(_, entry) => entry.map_or("-".to_owned(), |e| format!("!{}", e.value)),
        }
    }

    #[test]
    fn hosts_are_read_in_one_way() {
        let address = |text: &str| Ok(Host::Address(text.parse().unwrap()));
        let name = |text: &str| Ok(Host::Name(text.to_owned()));
        for (text, expected) in [
            ("Example.COM", name("example.com")),
            ("127.0.0.1", address("127.0.0.1")),
            ("::1", address("::1")),
            ("[::1]", address("::1")),
            ("[::ffff:1.2.3.4]", address("1.2.3.4")),
            ("xn--bcher-kva.example", name("xn--bcher-kva.example")),
        ] {
            assert_eq!(Host::parse(text), expected, "{text}");
        }
        for text in [
            "",
            "*",
            "*.a.com",
            "a.com.",
            "a.com:80",
            "127.1",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "1.2.3.4.",
            "[::1",
            "::1]",
            "[::1%lo]",
            "fe80::1%2",
            "[1.2.3.4]",
            "a%2ecom",
            "evil\0.a.com",
            "bücher.example",
            "a..b",
            "a_b.com",
            "a b",
            "a.com\r\n",
            "user@a.com",
            "127。0。0。1",
        ] {
            assert!(Host::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn denied_wins_and_ports_count() {
        let hosts = hosts(
            &[
                "example.com",
                "*.example.com",
                "a.org:443",
                "[::1]:8080",
                "localhost:9000",
                "1.2.3.4",
            ],
            &["bad.example.com", "*.bad.example.com", "example.com:22"],
        );
        for (host, port, expected) in [
            ("example.com", Some(443), "example.com"),
            ("example.com", Some(22), "!example.com:22"),
            ("example.com", None, "example.com"),
            ("a.b.example.com", Some(1), "*.example.com"),
            ("badexample.com", Some(443), "-"),
            ("bad.example.com", None, "!bad.example.com"),
            ("x.bad.example.com", Some(80), "!*.bad.example.com"),
            ("a.org", Some(443), "a.org:443"),
            ("a.org", Some(80), "-"),
            ("a.org", None, "a.org:443"),
            ("b.a.org", Some(443), "-"),
            ("::1", Some(8080), "[::1]:8080"),
            ("::1", Some(9000), "localhost:9000"),
            ("127.0.0.1", Some(9000), "localhost:9000"),
            ("127.0.0.2", Some(9000), "-"),
            ("127.0.0.1", Some(8080), "-"),
            ("::ffff:1.2.3.4", Some(5), "1.2.3.4"),
        ] {
            let host = Host::parse(host).unwrap();
            assert_eq!(said(hosts.decide(&host, port)), expected, "{host} {port:?}");
        }
        let none = super::tests::hosts(&[], &[]);
        assert_eq!(said(none.decide(&Host::Name("a.com".into()), None)), "-");
    }

    #[test]
    fn a_host_has_the_ports_of_its_entries() {
        let hosts =
            hosts(&["a.org:443", "*.a.org:80", "a.org:22", "b.com:1", "b.com"], &["a.org:22"]);
        for (host, ports) in
            [("a.org", &[443][..]), ("x.a.org", &[80]), ("b.com", &[]), ("c.com", &[])]
        {
            assert_eq!(hosts.ports(&Host::parse(host).unwrap()), ports, "{host}");
        }
    }

    #[test]
    fn lists_within_others_only_narrow() {
        let bound = || hosts(&["*.a.com", "c.com"], &["bad.a.com", "9.9.9.9"]);
        let own = hosts(&["x.a.com", "bad.a.com", "b.com", "9.9.9.9"], &["c.com"]).within(bound());
        for (host, expected) in
            [("x.a.com", "x.a.com"), ("y.a.com", "-"), ("bad.a.com", "!bad.a.com"), ("b.com", "-")]
        {
            let host = Host::parse(host).unwrap();
            assert_eq!(said(own.decide(&host, Some(1))), expected, "{host}");
        }
        let (host, entry) =
            (Host::Name("x.a.com".into()), Located::new(String::new(), Origin::default()));
        for (address, expected) in
            [("9.9.9.9", "!9.9.9.9"), ("8.8.8.8", ""), ("::1", "a loopback address")]
        {
            let address = own.address(&host, 1, &entry, address.parse().unwrap());
            assert_eq!(said(address), expected);
        }
        // Whatever lists say that nobody bounds.
        let none = hosts(&["b.com"], &[]).within(Hosts::default());
        assert_eq!(said(none.decide(&Host::Name("b.com".into()), None)), "-");
    }

    #[test]
    fn names_lead_to_no_special_address_that_is_not_listed() {
        let hosts = hosts(&["a.com", "localhost", "169.254.1.1"], &["9.9.9.9"]);
        for (host, address, expected) in [
            ("a.com", "1.2.3.4", "a.com"),
            ("a.com", "10.0.0.1", "a.com"),
            ("a.com", "fd12::1", "a.com"),
            ("a.com", "9.9.9.9", "!9.9.9.9"),
            ("a.com", "::ffff:9.9.9.9", "!9.9.9.9"),
            ("a.com", "127.0.0.1", "localhost"),
            ("a.com", "127.0.0.2", "a loopback address"),
            ("localhost", "127.0.0.2", "localhost"),
            ("a.com", "::ffff:127.0.0.2", "a loopback address"),
            ("a.com", "64:ff9b::7f00:2", "a loopback address"),
            ("a.com", "2002:7f00:2::", "a loopback address"),
            ("a.com", "169.254.1.1", "169.254.1.1"),
            ("a.com", "169.254.1.2", "a link-local address"),
            ("a.com", "169.254.169.254", "the address of a metadata service"),
            ("a.com", "64:ff9b::a9fe:a9fe", "the address of a metadata service"),
            ("a.com", "64:ff9b::a83f:8110", "the address of a metadata service"),
            ("a.com", "64:ff9b::102:304", "a.com"),
            ("a.com", "::ffff:0:7f00:2", "a loopback address"),
            ("a.com", "64:ff9b:1:7f00:0:200::", "a loopback address"),
            ("a.com", "64:ff9b:1:a9:fe:a9fe::", "the address of a metadata service"),
            ("a.com", "64:ff9b:1:5:7f:0:200:0", "a loopback address"),
            ("a.com", "64:ff9b:1:5::6464:64c8", "the address of a metadata service"),
            ("a.com", "64:ff9b:1:5::a00:1", "a.com"),
            ("a.com", "2001::1:2:3:80ff:fffd", "a loopback address"),
            ("a.com", "2001::1:2:3:7f00:2", "a.com"),
            ("a.com", "2001:db8::5efe:7f00:2", "a loopback address"),
            ("a.com", "2001:db8::200:5efe:a9fe:a9fe", "the address of a metadata service"),
            ("a.com", "2001:db8::5efe:a00:1", "a.com"),
            ("a.com", "100.100.100.200", "the address of a metadata service"),
            ("a.com", "168.63.129.16", "the address of a metadata service"),
            ("a.com", "192.0.0.192", "the address of a metadata service"),
            ("a.com", "fd00:ec2::254", "the address of a metadata service"),
            ("a.com", "fd00:ec2::23", "the address of a metadata service"),
            ("a.com", "fd00:ec3::23", "a.com"),
            ("a.com", "fd20:ce::254", "the address of a metadata service"),
            ("a.com", "fd00:c1::a9fe:a9fe", "the address of a metadata service"),
            ("a.com", "fd00:42::42", "the address of a metadata service"),
            ("a.com", "fd00:a9fe:a9fe::1", "the address of a metadata service"),
            ("a.com", "fd00:100::100:200", "the address of a metadata service"),
            ("a.com", "fe80::1", "a link-local address"),
            ("a.com", "0.0.0.0", "an address of no host"),
            ("a.com", "::", "an address of no host"),
            ("a.com", "::127.0.0.2", "an address of no host"),
            ("a.com", "255.255.255.255", "an address of no host"),
            ("a.com", "224.0.0.1", "an address of no host"),
            ("a.com", "ff02::1", "an address of no host"),
            ("a.com", "198.19.255.255", "an address of no host"),
            ("a.com", "198.20.0.0", "a.com"),
            ("a.com", "fd00:6c61:6e64:7374::5", "an address of no host"),
            ("a.com", "fd00:6c61:6e64:7375::5", "a.com"),
        ] {
            let host = Host::parse(host).unwrap();
            let Reachable::Yes(entry) = hosts.decide(&host, Some(80)) else { panic!("{host}") };
            let reachable = hosts.address(&host, 80, entry, address.parse().unwrap());
            assert_eq!(said(reachable), expected, "{host} {address}");
        }
    }
}
