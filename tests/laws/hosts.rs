//! Laws of hosts: what is one, and which of them a policy opens, against an oracle of regular expressions and
//! loops.

use crate::arbitrary::{cases, place};
use landstrip::policy::{
    Format, Host, Hosts, MemoryTree, Reachable, Unreachable, merge, parse, resolve,
};
use proptest::prelude::*;
use regex::Regex;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

static NAME: LazyLock<Regex> = LazyLock::new(|| {
    let label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
    Regex::new(&format!(r"^({label}\.)*[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?$")).expect("a pattern")
});
static FOUR: LazyLock<Regex> = LazyLock::new(|| {
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    Regex::new(&format!(r"^{byte}(\.{byte}){{3}}$")).expect("a pattern")
});
static PORT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[1-9][0-9]{0,4}$").expect("a pattern"));

/// What a request may call a host, in the one way that it is written down; none for anything else.
fn oracle(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    if FOUR.is_match(&lower) || NAME.is_match(&lower) && lower.len() <= 253 {
        return Some(lower);
    }
    let bare = match (lower.starts_with('['), lower.ends_with(']')) {
        (true, true) => &lower[1..lower.len() - 1],
        (false, false) => &lower,
        _ => return None,
    };
    let six: Ipv6Addr = bare.parse().ok()?;
    Some(match IpAddr::from(six).to_canonical() {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => format!("[{six}]"),
    })
}

/// An entry of a list, in parts: `*` or not, the host or the end of it, the port.
fn oracle_of_entries(text: &str) -> Option<(bool, String, Option<u16>)> {
    let lower = text.to_ascii_lowercase();
    let (host, port) = match lower.rfind(':') {
        Some(at) if !lower[at..].contains(']') => (&lower[..at], Some(&lower[at + 1..])),
        _ => (lower.as_str(), None),
    };
    let port = match port {
        None => None,
        Some(port) if PORT.is_match(port) => Some(port.parse().ok()?),
        Some(_) => return None,
    };
    if let Some(below) = host.strip_prefix("*.") {
        let name = NAME.is_match(below) && below.len() <= 253 && below.contains('.');
        return name.then(|| (true, below.to_owned(), port));
    }
    // Without brackets, an address of IPv6 looks like one with a port.
    let plain = !host.contains(':') || host.starts_with('[');
    let host = oracle(host).filter(|_| plain)?;
    Some((false, host, port))
}

/// Whether such an entry names the host, which is as [`oracle`] writes it.
fn names((wild, named, _): &(bool, String, Option<u16>), host: &str) -> bool {
    let local = named == "localhost" || named.ends_with(".localhost");
    match wild {
        true => host.len() > named.len() + 1 && host.ends_with(&format!(".{named}")),
        false => named == host || local && ["127.0.0.1", "[::1]"].contains(&host),
    }
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "com", "xn--bcher-kva", "localhost", "x-1"]).prop_map(str::to_owned),
        1 => "[a-zA-Z0-9-]{1,3}",
        1 => (61..66_usize).prop_map(|length| "l".repeat(length)),
    ]
}

fn host() -> impl Strategy<Value = String> {
    let name = prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."));
    let long =
        prop::collection::vec(Just("l".repeat(62)), 3..6).prop_map(|labels| labels.join("."));
    let number = prop_oneof![
        (0..300_u32).prop_map(|n| n.to_string()),
        (0..300_u32).prop_map(|n| format!("0{n:o}")),
        (0..300_u32).prop_map(|n| format!("0x{n:x}")),
        any::<u32>().prop_map(|n| n.to_string()),
    ];
    let four = prop::collection::vec(number, 1..6).prop_map(|numbers| numbers.join("."));
    let address = prop::sample::select(vec![
        "127.0.0.1",
        "1.2.3.4",
        "[::1]",
        "::1",
        "[2001:db8::1]",
        "::ffff:1.2.3.4",
        "[::ffff:7f00:1]",
        "[fe80::1%lo]",
        "[1.2.3.4]",
        "0::1",
    ]);
    prop_oneof![6 => name, 1 => long, 2 => four, 3 => address.prop_map(str::to_owned)]
}

/// What others take for an end, for another letter or for nothing.
fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "\0", ".", "%2e", "%00", "%lo", "\u{3002}", "\u{fc}", "\u{200d}", "\u{212a}", ":", "[",
            "]", "@", " ", "_", "-", "*", "*.", "/", "\\", "\r\n", "\t", "#", "?", "0x7f", ":80",
            ":0", ":080", ":65536", ":+1",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ]
}

/// A text that is a host, or was one.
fn text() -> impl Strategy<Value = String> {
    let spoilt =
        (host(), nasty(), any::<prop::sample::Index>()).prop_map(|(mut host, what, at)| {
            let mut at = at.index(host.len() + 1);
            while !host.is_char_boundary(at) {
                at -= 1;
            }
            host.insert_str(at, &what);
            host
        });
    prop_oneof![2 => host(), 3 => spoilt]
}

fn entry() -> impl Strategy<Value = String> {
    let port =
        prop_oneof![3 => Just(String::new()), 1 => (1..4_u16).prop_map(|port| format!(":{port}"))];
    let wild = prop_oneof![3 => Just(""), 1 => Just("*.")];
    (wild, host(), port).prop_map(|(wild, host, port)| format!("{wild}{host}{port}"))
}

/// A list of entries that may stand in one.
fn entries() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(entry(), 0..5).prop_map(|mut entries| {
        entries.retain(|entry| oracle_of_entries(entry).is_some());
        entries
    })
}

/// What a policy with this section says about hosts; none where it is refused.
fn hosts(network: Value) -> Option<Hosts> {
    let text = json!({ "network": network }).to_string();
    let document = parse("p", text.as_bytes(), Format::Json).ok()?;
    let policy = resolve(&merge(vec![document]), &place(&MemoryTree::new())).ok()?;
    Hosts::new(&policy.network)
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_host_is_what_the_oracle_says(text in text()) {
        let host = Host::parse(&text).ok();
        prop_assert_eq!(host.as_ref().map(Host::to_string), oracle(&text), "{:?}", text);
        if let Some(host) = host {
            // Written down and read again, and by whatever case, it is the same one.
            prop_assert_eq!(&Host::parse(&host.to_string()), &Ok(host.clone()));
            prop_assert_eq!(&Host::parse(&text.to_ascii_uppercase()), &Ok(host));
        }
    }

    #[test]
    fn an_entry_is_what_the_oracle_says(entry in prop_oneof![entry(), text()]) {
        let taken = hosts(json!({"allowedDomains": [entry]})).is_some();
        prop_assert_eq!(taken, oracle_of_entries(&entry).is_some(), "{:?}", entry);
    }

    #[test]
    fn denied_wins_and_what_is_not_listed_is_closed(
        allowed in entries(), denied in entries(), host in host(), port in 1..4_u16,
    ) {
        let Some(said) = oracle(&host) else { return Ok(()) };
        let Some(hosts) = hosts(json!({"allowedDomains": allowed, "deniedDomains": denied})) else {
            return Err(TestCaseError::fail("the lists are refused"));
        };
        let any = |list: &[String]| {
            list.iter().filter_map(|entry| oracle_of_entries(entry)).any(|entry| {
                names(&entry, &said) && entry.2.is_none_or(|own| own == port)
            })
        };
        let parsed = Host::parse(&host).expect("a host");
        let expected = match (any(&denied), any(&allowed)) {
            (true, _) => Some(Unreachable::Denied),
            (false, false) => Some(Unreachable::Unlisted),
            (false, true) => None,
        };
        let decided = match hosts.decide(&parsed, Some(port)) {
            Reachable::Yes(_) => None,
            Reachable::No(why, _) => Some(why),
        };
        prop_assert_eq!(decided, expected, "{:?} {:?} {} {}", allowed, denied, host, port);
    }

    #[test]
    fn an_empty_list_is_no_host(denied in entries(), host in host(), port in 1..4_u16) {
        let Ok(host) = Host::parse(&host) else { return Ok(()) };
        for network in [json!({"allowedDomains": []}), json!({"allowedDomains": [], "deniedDomains": denied}),
            json!({"deniedDomains": denied})] {
            let hosts = hosts(network).expect("lists");
            prop_assert!(matches!(hosts.decide(&host, Some(port)), Reachable::No(..)), "{host}");
        }
    }
}
