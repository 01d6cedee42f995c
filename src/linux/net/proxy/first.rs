//! Which host the first bytes of a connection name: a TLS ClientHello (RFC 8446, RFC 6066) or an HTTP/1
//! request.

/// What they are.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// Too few to tell.
    More,
    /// They name no host.
    Nothing,
    /// They name this one.
    Names(String),
    /// They are made to be read in two ways, or are cut where nobody cuts.
    Bad(&'static str),
}

/// The most that is looked at, in bytes.
pub const MOST: usize = 64 << 10;
/// The longest first line of a request, in bytes.
const LINE: usize = 16 << 10;
/// The longest method of a request, in bytes.
const METHOD: usize = 32;

/// Looks at what a client has said so far.
pub fn look(bytes: &[u8]) -> First {
    match bytes {
        [] | [22] => First::More,
        [22, 3, ..] => hello(bytes),
        // Servers pass over an alert, say, and read on.
        [20..=24, 3, ..] => First::Bad("it is TLS, and begins with no hello"),
        _ => request(bytes),
    }
}

/// Looks at what a client has said where it says no more.
pub fn look_at_all(bytes: &[u8]) -> First {
    match look(bytes) {
        // Some servers take a head that ends like this. A first line that does is none.
        First::More if bytes.first() == Some(&22) || bytes.contains(&b'\n') => {
            First::Bad("its first bytes are cut")
        }
        First::More => First::Nothing,
        settled => settled,
    }
}

fn hello(bytes: &[u8]) -> First {
    const BAD: First = First::Bad("its first bytes are like those of TLS, and are none");
    let mut message = Vec::new();
    let mut rest = bytes;
    while let [kind, 3, _, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != 22 || length == 0 || length > 1 << 14 {
            return BAD;
        }
        message.extend_from_slice(&after[..length.min(after.len())]);
        if after.len() < length {
            break;
        }
        rest = &after[length..];
        if whole(&message).is_some() {
            break;
        }
    }
    match message.first() {
        Some(1) | None => {}
        Some(_) => return BAD,
    }
    let Some(body) = whole(&message) else {
        // A record that is none follows, or there is no end to it.
        let broken = rest.len() >= 2 && rest[..2] != [22, 3] || bytes.len() >= MOST;
        return if broken { BAD } else { First::More };
    };
    server_name(body).unwrap_or(BAD)
}

/// The body of a handshake message that is complete.
fn whole(message: &[u8]) -> Option<&[u8]> {
    let [_, length @ ..] = message.first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes([0, length[0], length[1], length[2]])).ok()?;
    message.get(4..4 + length)
}

/// What the body of a ClientHello names; none where it is malformed.
fn server_name(body: &[u8]) -> Option<First> {
    let mut rest = body.get(2 + 32..)?;
    // Session, cipher suites, compression.
    for width in [1, 2, 1] {
        take(&mut rest, width)?;
    }
    if rest.is_empty() {
        return Some(First::Nothing);
    }
    let mut extensions = take(&mut rest, 2)?;
    if !rest.is_empty() {
        return None;
    }
    let mut found = First::Nothing;
    while !extensions.is_empty() {
        let (kind, after) = extensions.split_at_checked(2)?;
        extensions = after;
        let mut extension = take(&mut extensions, 2)?;
        if kind != [0, 0] {
            continue;
        }
        let mut list = take(&mut extension, 2)?;
        let (0, after) = list.split_first().map(|(kind, after)| (*kind, after))? else {
            return None;
        };
        list = after;
        let name = take(&mut list, 2)?;
        // One name, said once.
        if !list.is_empty() || !extension.is_empty() || found != First::Nothing {
            return None;
        }
        found = First::Names(std::str::from_utf8(name).ok()?.to_owned());
    }
    Some(found)
}

/// Takes bytes that have their length before them, in `width` bytes.
fn take<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let (length, after) = rest.split_at_checked(width)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (taken, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn request(bytes: &[u8]) -> First {
    let end = bytes.iter().take(LINE).position(|byte| *byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len().min(LINE))];
    if !is_like_request(line) {
        return First::Nothing;
    }
    match end {
        None if bytes.len() >= LINE => return First::Bad("its first line has no end"),
        None => return First::More,
        // In any case and of any version: servers differ in what they take.
        Some(_) if line.trim_ascii_end() == b"PRI * HTTP/2.0" => return First::Nothing,
        Some(_) => {
            let is_version =
                |part: &[u8]| is_blank(&part[0]) && part[1..].eq_ignore_ascii_case(b"HTTP/");
            if !line.windows(6).any(is_version) {
                return First::Nothing;
            }
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < MOST => return First::More,
        Ok(httparse::Status::Complete(_)) => {}
        _ => return First::Bad("it is like a request of HTTP, and is none"),
    }
    let target = request.path.unwrap_or_default();
    let named = target
        .split_once("://")
        .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default().as_bytes());
    let said = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let mut said = said.map(|header| header.value).chain(named);
    let Some(first) = said.next() else { return First::Nothing };
    if said.any(|other| !other.eq_ignore_ascii_case(first)) {
        return First::Bad("the request names two hosts");
    }
    match std::str::from_utf8(first) {
        Ok(name) => First::Names(without_port(name).to_owned()),
        Err(_) => First::Bad("the request names a host that is not text"),
    }
}

/// Whether this can be the first line of a request, or the start of one: a method, and text.
fn is_like_request(line: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_text = |byte: &u8| is_blank(byte) || *byte > b' ' && *byte != 0x7f;
    let (method, rest) = line.split_at(line.iter().position(is_blank).unwrap_or(line.len()));
    (1..=METHOD).contains(&method.len()) && method.iter().all(is_token) && rest.iter().all(is_text)
}

/// What servers take for a blank between the words of that line (RFC 9112, 3), Python's among them.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b'\t' | 0x0b | 0x0c | b'\r' | b' ' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// The host in an authority.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A ClientHello with these server names, in records of at most `cut` bytes.
    fn client_hello(names: &[&str], cut: usize) -> Vec<u8> {
        let long = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
        let entry = |name: &&str| [vec![0], long(name.as_bytes().to_vec())].concat();
        let list: Vec<u8> = names.iter().flat_map(entry).collect();
        let mut extensions = [vec![0, 43], long(vec![2, 3, 4])].concat();
        if !names.is_empty() {
            extensions.extend([vec![0, 0], long(long(list))].concat());
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(long(extensions));
        let length = (body.len() as u32).to_be_bytes();
        let message = [&[1], &length[1..], &body].concat();
        let record = |part: &[u8]| [&[22, 3, 1][..], &long(part.to_vec())].concat();
        message.chunks(cut).flat_map(record).collect()
    }

    #[test]
    fn a_hello_names_its_server_once_it_is_whole() {
        for cut in [16384, 50, 7] {
            let hello = client_hello(&["a.example"], cut);
            for length in 0..hello.len() {
                assert_eq!(look(&hello[..length]), First::More, "{cut} {length}");
            }
            assert_eq!(look(&hello), First::Names("a.example".into()));
            assert_eq!(look(&[&hello[..], b"more"].concat()), First::Names("a.example".into()));
        }
        assert_eq!(look(&client_hello(&[], 16384)), First::Nothing);
        assert!(matches!(look(&client_hello(&["a.b", "c.d"], 16384)), First::Bad(_)));
        assert!(matches!(look(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), First::Bad(_)));
        assert!(matches!(look(&[22, 3, 1, 0xff, 0xff, 1]), First::Bad(_)));
    }

    #[test]
    fn what_ends_early_is_cut_or_names_nothing() {
        for text in ["", "PING", "GET / HTTP/1.1"] {
            assert_eq!(look_at_all(text.as_bytes()), First::Nothing, "{text}");
        }
        for text in ["GET / HTTP/1.1\r\nHost: a.b", "GET / HTTP/1.1\n", "\x16\x03"] {
            assert!(matches!(look_at_all(text.as_bytes()), First::Bad(_)), "{text}");
        }
        let whole = b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n";
        assert_eq!(look_at_all(whole), First::Names("a.b".into()));
    }

    #[test]
    fn a_request_names_its_host() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", First::Names("a.b".into())),
            ("GET / HTTP/1.1\r\nhOsT: a.b:8080\r\n\r\nbody", First::Names("a.b".into())),
            ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", First::Names("[::1]".into())),
            ("GET http://a.b/x HTTP/1.1\r\nHost: a.b\r\n\r\n", First::Names("a.b".into())),
            ("GET / HTTP/1.0\r\n\r\n", First::Nothing),
            ("GET / HTTP/1.1\r\nHost: a", First::More),
            ("GET", First::More),
            ("GET / HT", First::More),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", First::Nothing),
            ("SSH-2.0-x\r\n", First::Nothing),
            ("EHLO me\r\n", First::Nothing),
            ("get / HTTP/1.1 ", First::More),
            ("get / HTTP/1.1\r\nHost: a.b\r\n\r\n", First::Names("a.b".into())),
            ("GET / HTTP/1.1\nHost: a.b\n\n", First::Names("a.b".into())),
            ("GET /", First::More),
            ("0032git-upload-pack /a.git\0host=a.b\0", First::Nothing),
            ("*1\r\n$4\r\nPING\r\n", First::Nothing),
            ("\0\0\0\x08\x04\0\x16/", First::Nothing),
        ] {
            assert_eq!(look(text.as_bytes()), expected, "{text}");
        }
        for text in [
            "GET / HTTP/1.1\r\nHost: a.b\r\nHost: c.d\r\n\r\n",
            "GET http://c.d/ HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.b\r\n c.d\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a.b\r\n\r\n",
            "GET / HTTP/1.1\r\nHo\0st: a.b\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: a.b\r\n\r\n",
            "GET / http/1.1\r\nHost: a.b\r\n\r\n",
            "GET / HTTP/1.1 x\r\nHost: a.b\r\n\r\n",
            "GET\x0b/\x0bHTTP/1.1\r\nHost: a.b\r\n\r\n",
            &("GET /".to_owned() + &"x".repeat(LINE)),
            "\x15\x03\x01\0\x02\x01\x5a",
        ] {
            assert!(matches!(look(text.as_bytes()), First::Bad(_)), "{text}");
        }
    }

    proptest! {
        /// Whatever comes: an answer, and the same one for more of the same.
        #[test]
        fn nothing_that_was_settled_changes(bytes in prop::collection::vec(any::<u8>(), 0..300),
            cut in 0..300_usize, like in 0..4_usize) {
            let start: &[u8] = [&b""[..], &[22, 3, 1], b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x00\x20\x01"][like];
            let bytes = [start, &bytes].concat();
            let early = look(&bytes[..cut.min(bytes.len())]);
            if early != First::More {
                prop_assert_eq!(early, look(&bytes));
            }
        }
    }
}
