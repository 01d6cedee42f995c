//! Which host the first bytes of a connection name: a TLS ClientHello (RFC 8446, RFC 6066) or an HTTP/1
//! request.

mod hello;
mod request;

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

/// Looks at what a client has said so far.
pub fn look(bytes: &[u8]) -> First {
    match bytes {
        [] => First::More,
        [20..=24, ..] => hello::record(bytes),
        _ => request::request(bytes),
    }
}

/// Looks at what a client has said where it says no more.
pub fn look_at_all(bytes: &[u8]) -> First {
    match look(bytes) {
        // Some servers take a head that ends like this. A first line that does is none.
        First::More if bytes.first() == Some(&22) || bytes.contains(&b'\n') => {
            First::Bad("its first bytes are cut")
        }
        // Others take one without any end.
        First::More => match look(&[bytes, b"\n\n"].concat()) {
            First::More => First::Nothing,
            settled => settled,
        },
        settled => settled,
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
    fn a_hello_of_another_version_is_none_that_passes() {
        let hello = client_hello(&["a.example"], 16384);
        for version in [[2, 1], [4, 1], [15, 255], [0, 0], [16, 0], [254, 253], [255, 255]] {
            let other = [&[22][..], &version, &hello[3..]].concat();
            assert_eq!(look(&other[..5]), First::More);
            let [major, minor] = version;
            let alert = [21, major, minor, 0, 2, 1, 90];
            let change = [20, major, minor, 0, 1, 1];
            let empty = [&[22, major, minor, 0, 0], &hello[..]].concat();
            for bytes in [&other[..], &alert, &change, &empty] {
                assert!(matches!(look(bytes), First::Bad(_)), "{bytes:?}");
            }
        }
        for bytes in [[20].as_slice(), &[21], &[22], &[22, 3]] {
            assert_eq!(look(bytes), First::More);
        }
        // A login of MySQL, a message of MongoDB, what has its length before it.
        for bytes in [[22, 1, 0, 1, 0x85, 0xa6], [22, 1, 0, 0, 1, 0], [21, 0, 0, 0, b'h', b'i']] {
            assert_eq!(look(&bytes), First::Nothing, "{bytes:?}");
        }
    }

    #[test]
    fn what_ends_early_is_cut_or_names_nothing() {
        for text in ["", "PING", "GET / HTTP/1.1"] {
            assert_eq!(look_at_all(text.as_bytes()), First::Nothing, "{text}");
        }
        for text in ["GET / HTTP/1.1\r\nHost: a.b", "GET / HTTP/1.1\n", "\x16\x03", "GET /x"] {
            assert!(matches!(look_at_all(text.as_bytes()), First::Bad(_)), "{text}");
        }
        let whole = b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n";
        assert_eq!(look_at_all(whole), First::Names("a.b".into()));
        assert_eq!(look_at_all(b"GET http://a.b/ HTTP/1.0"), First::Names("a.b".into()));
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
            ("GET /?next=http://c.d/ HTTP/1.1\r\nHost: a.b\r\n\r\n", First::Names("a.b".into())),
            ("CONNECT a.b:443 HTTP/1.1\r\nHost: a.B\r\n\r\n", First::Names("a.B".into())),
            ("DESCRIBE rtsp://a.b/x RTSP/1.0\r\nCSeq: 1\r\n\r\n", First::Names("a.b".into())),
            ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", First::Nothing),
            (" \r\n", First::More),
            (" GET", First::More),
            ("GET /\0", First::More),
            (&"G".repeat(999), First::More),
            ("PRI * HTTP/2.0\r\n\r\n", First::More),
            ("get key\r\n", First::Nothing),
            ("CONNECT\naccept-version:1.2\nhost:c.d\n\n\0", First::Nothing),
            ("CONNECT {\"verbose\":false}\r\n", First::Nothing),
            ("REGISTER sip:a.b SIP/2.0\r\nTo: x\r\n y\r\n\r\n", First::Nothing),
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
            " GET / HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "\x0bGET / HTTP/1.1\r\nHost: a.b\r\n\r\n",
            " \r\nGET / HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "GET /\0 HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "GET /\x7f HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "GET /\r\n",
            "GET x\n",
            "POST /\r\n",
            "GET http://a.b/ x\r\n",
            "GET a.b HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "GET http:a.b HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "CONNECT c.d:443 HTTP/1.1\r\nHost: a.b\r\n\r\n",
            "PRI * HTTP/2.0\r\nHost: a.b\r\n\r\n",
            "GET / rtsp/1.0\r\nHost: a.b\r\n\r\n",
            &(" ".repeat(16 << 10)),
            &("GET /".to_owned() + &"x".repeat(16 << 10)),
            "\x15\x03\x01\0\x02\x01\x5a",
        ] {
            assert!(matches!(look(text.as_bytes()), First::Bad(_)), "{text}");
        }
    }

    proptest! {
        /// Whatever comes: an answer, and the same one for more of the same.
        #[test]
        fn nothing_that_was_settled_changes(bytes in prop::collection::vec(any::<u8>(), 0..300),
            cut in 0..300_usize, like in 0..6_usize) {
            let start: &[u8] = [&b""[..], &[22, 3, 1], b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x00\x20\x01", b"\x15", b" PRI * HTTP"][like];
            let bytes = [start, &bytes].concat();
            let early = look(&bytes[..cut.min(bytes.len())]);
            if early != First::More {
                prop_assert_eq!(early, look(&bytes));
            }
        }
    }
}
