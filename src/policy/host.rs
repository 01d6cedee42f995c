//! Host patterns: which hosts a network rule names.
//!
//! `example.com` is that host, `*.example.com` every host below it, an address itself; `:443` at
//! the end limits the pattern to a port. Names are ASCII letters, digits and hyphens (RFC 1123;
//! write internationalized names in their `xn--` form) and their last label starts with a letter,
//! so that spellings of addresses such as `127.1` or `0x7f.1` are no names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Checks a pattern and puts it into lower case.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn check(text: &str) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("{} {why}", super::node::shown(text)));
    if text.contains("://") || text.contains('/') {
        return refuse("is not a host: schemes and paths cannot be filtered");
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return refuse(&format!("is an IPv6 address, which stands in brackets: [{text}]"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    if let Some(text) = port.filter(|text| self::port(text).is_none()) {
        let port = super::node::shown(text);
        return refuse(&format!("ends in {port}, which is not a port; ports are 1 to 65535"));
    }
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').map(str::parse::<Ipv6Addr>);
        return match address {
            Some(Ok(_)) => Ok(text.to_ascii_lowercase()),
            _ => refuse("is not an IPv6 address"),
        };
    }
    if host.parse::<Ipv4Addr>().is_ok() {
        return Ok(text.to_owned());
    }
    let (name, wild) = match host.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (host, false),
    };
    if name.contains('*') {
        return refuse("is too wide: a `*` can only stand for all labels before `.name`");
    }
    if wild && !name.contains('.') {
        return refuse("is too wide: at least two labels must follow `*.`");
    }
    let last_is_name = name
        .rsplit('.')
        .next()
        .is_some_and(|label| label.starts_with(|c: char| c.is_ascii_alphabetic()));
    if name.len() > 253 || !name.split('.').all(is_label) || !last_is_name {
        return refuse("is not a host name or address");
    }
    Ok(text.to_ascii_lowercase())
}

/// The address and port of a host that was checked, as far as they are known: `localhost` is 127.0.0.1
/// (RFC 6761), another name none.
pub(crate) fn address(checked: &str) -> (Option<IpAddr>, Option<u16>) {
    let (host, port) = split(checked);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let local = host == "localhost" || host.ends_with(".localhost");
    (if local { Some(Ipv4Addr::LOCALHOST.into()) } else { bare.parse().ok() }, port)
}

/// The host and the port of a pattern that was checked.
pub(crate) fn split(checked: &str) -> (&str, Option<u16>) {
    match checked.rsplit_once(':') {
        Some((host, text)) if !text.ends_with(']') => (host, port(text)),
        _ => (checked, None),
    }
}

/// The one meaning of a port's text: 1 to 65535 in decimal digits, without a sign or a zero before them.
pub(crate) fn port(text: &str) -> Option<u16> {
    let is_plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Whether every host that `narrow` names is also named by `wide`; both have been checked.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    let ((wide, wide_port), (narrow, narrow_port)) = (split(wide), split(narrow));
    let host = match wide.strip_prefix('*') {
        // `*.a.b` covers `*.a.b` and whatever ends in `.a.b`.
        Some(ending) => narrow.ends_with(ending),
        None => wide == narrow,
    };
    host && (wide_port.is_none() || wide_port == narrow_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_checked() {
        for text in [
            "localhost",
            "example.com",
            "Example.COM",
            "*.example.com",
            "a.b:443",
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "xn--bcher-kva.example",
        ] {
            assert_eq!(check(text), Ok(text.to_ascii_lowercase()));
        }
        for text in [
            "",
            "*",
            "*.com",
            "a.*.com",
            "*a.example.com",
            "https://example.com",
            "example.com/x",
            "example.com.",
            ".example.com",
            "a..b",
            "-a.com",
            "a_b.com",
            "127.1",
            "0x7f.0.0.1",
            "1.2.3.4.5",
            "::1",
            "[::1%lo]",
            "[1]",
            "a.com:0",
            "a.com:70000",
            "a.com:080",
            "a.com:+80",
            "a.com:-80",
            "a.com: 80",
            "a.com:",
            "bücher.example",
            "evil\0.google.com",
            "a b.com",
        ] {
            assert!(check(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_and_ports_are_told_apart() {
        for (text, address, port) in [
            ("localhost", Some("127.0.0.1"), None),
            ("a.localhost:80", Some("127.0.0.1"), Some(80)),
            ("[::1]", Some("::1"), None),
            ("[::1]:8080", Some("::1"), Some(8080)),
            ("1.2.3.4:1", Some("1.2.3.4"), Some(1)),
            ("example.com:443", None, Some(443)),
            ("example.com", None, None),
        ] {
            let expected = (address.map(|address| address.parse().unwrap()), port);
            assert_eq!(super::address(text), expected, "{text}");
        }
    }

    #[test]
    fn wide_patterns_cover_narrow_ones() {
        for (wide, narrow, expected) in [
            ("a.com", "a.com", true),
            ("a.com", "b.a.com", false),
            ("*.a.com", "b.a.com", true),
            ("*.a.com", "*.b.a.com", true),
            ("*.a.com", "*.a.com", true),
            ("*.a.com", "a.com", false),
            ("*.a.com", "ba.com", false),
            ("b.a.com", "*.a.com", false),
            ("a.com", "a.com:443", true),
            ("a.com:443", "a.com", false),
            ("a.com:443", "a.com:443", true),
            ("[::1]", "[::1]:80", true),
        ] {
            assert_eq!(covers(wide, narrow), expected, "{wide} {narrow}");
        }
    }
}
