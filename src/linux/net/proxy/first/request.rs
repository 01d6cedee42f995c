//! A request of HTTP/1, as any server may take one.

use super::{First, MOST};
use crate::policy::host::port;

/// The longest first line, in bytes.
const LINE: usize = 16 << 10;
/// How HTTP/2 begins where both ends know of it (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The versions that servers of HTTP take; Node reads what RTSP and Icecast say as well.
const VERSIONS: [&[u8]; 3] = [b"HTTP/", b"RTSP/", b"ICE/"];
/// What is to be read in one way, and is not.
const NO_REQUEST: First = First::Bad("it is like a request of HTTP, and is none");

/// Looks at what is no TLS.
pub fn request(bytes: &[u8]) -> First {
    if bytes.starts_with(PREFACE) {
        return First::Nothing;
    }
    let blanks = bytes.iter().take_while(|byte| is_blank(byte) || **byte == b'\n').count();
    let end = bytes.iter().take(LINE).skip(blanks).position(|byte| *byte == b'\n');
    let end = end.map(|end| blanks + end);
    let line = &bytes[blanks.min(LINE)..end.unwrap_or(bytes.len().min(LINE))];
    if !is_like_request(line) {
        return First::Nothing;
    }
    let Some(end) = end else {
        let is_endless = bytes.len() >= LINE;
        return if is_endless { First::Bad("its first line has no end") } else { First::More };
    };
    if PREFACE.starts_with(bytes) {
        return First::More;
    }
    if !has_version(line) {
        let is_request = is_without_version(line);
        return if is_request { First::Bad("a request needs a version") } else { First::Nothing };
    }
    let Some(named) = named(line).filter(|_| blanks == 0) else { return NO_REQUEST };
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let headers = match httparse::parse_headers(&bytes[end + 1..], &mut headers) {
        Ok(httparse::Status::Partial) if bytes.len() < MOST => return First::More,
        Ok(httparse::Status::Complete((_, headers))) => headers,
        _ => return NO_REQUEST,
    };
    let said = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let said = said.map(|header| header.value).chain(named.map(str::as_bytes));
    let mut said = said.map(|value| std::str::from_utf8(value).ok().map(without_port));
    match said.next() {
        None => First::Nothing,
        Some(None) => First::Bad("the request names a host that is not text"),
        Some(Some(host)) => {
            let is_same =
                |other: Option<&str>| other.is_some_and(|it| it.eq_ignore_ascii_case(host));
            match said.all(is_same) {
                true => First::Names(host.to_owned()),
                false => First::Bad("the request names two hosts"),
            }
        }
    }
}

/// Whether this can be the first line of a request, or the start of one: a method, and text. Python takes any
/// byte in a target; a method is a word there, unlike what begins with a length.
fn is_like_request(line: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_text = |byte: &u8| is_blank(byte) || *byte > b' ' && *byte != 0x7f;
    let (method, rest) = line.split_at(line.iter().position(is_blank).unwrap_or(line.len()));
    let is_word = matches!(method, [first, _, ..] if first.is_ascii_alphabetic());
    method.iter().all(is_token) && (is_word || rest.iter().all(is_text))
}

/// Whether a line says a version, in any case and wherever it stands: servers differ in what they take.
fn has_version(line: &[u8]) -> bool {
    line.iter().enumerate().filter(|(_, byte)| is_blank(byte)).any(|(at, _)| {
        let word = &line[at + 1..];
        VERSIONS.iter().any(|version| {
            word.get(..version.len()).is_some_and(|start| start.eq_ignore_ascii_case(version))
        })
    })
}

/// Whether a line without a version is a request (HTTP/0.9): Node and Python read headers after it, and nginx a
/// host in the target. None of them takes a method in lower case, nor does Python take another than GET.
fn is_without_version(line: &[u8]) -> bool {
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return false };
    let is_target =
        matches!(target, [b'/', ..] | b"*") || target.windows(3).any(|part| part == b"://");
    !method.iter().any(u8::is_ascii_lowercase) && (method == b"GET" || is_target)
}

/// What the target in a line names besides a path, if anything; none where not all servers read the line in one
/// way.
fn named(line: &[u8]) -> Option<Option<&str>> {
    let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_known = matches!(version, "HTTP/1.0" | "HTTP/1.1" | "RTSP/1.0" | "RTSP/2.0" | "ICE/1.0");
    let is_plain = !target.contains(|c: char| c.is_control() || c.is_whitespace());
    if words.next().is_some() || !is_known || !is_plain {
        return None;
    }
    match target.split_once("://") {
        _ if target.starts_with('/') || target == "*" => Some(None),
        Some((_, rest)) => Some(rest.split(['/', '?', '#']).next()),
        None => (method == "CONNECT").then_some(Some(target)),
    }
}

/// What servers take for a blank between the words of that line (RFC 9112, 3), Python's among them.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b'\t' | 0x0b | 0x0c | b'\r' | b' ' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// The host in an authority.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, text))
            if port(text).is_some() && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_in_one_way() {
        for (authority, host) in [
            ("a.b:8080", "a.b"),
            ("[::1]:80", "[::1]"),
            ("a.b:+80", "a.b:+80"),
            ("a.b:080", "a.b:080"),
            ("a.b:", "a.b:"),
            ("a.b:99999", "a.b:99999"),
            ("fd00::1:80", "fd00::1:80"),
        ] {
            assert_eq!(without_port(authority), host);
        }
    }
}
