//! A greeting of TLS.

use super::{First, MOST};

/// What begins like a record of TLS (RFC 8446, 5.1), of whatever version.
pub fn record(bytes: &[u8]) -> First {
    match bytes {
        [22, 3, ..] => hello(bytes),
        // Servers pass over an alert, say, and read on.
        [_, 3, ..] => First::Bad("it is TLS, and begins with no hello"),
        // Go takes a first record of any version below 16, s2n of any at all. Other protocols begin with a length
        // that looks like this, so what is in the record tells: a byte of a message, or another record.
        [kind, _, _, high, low, first, ..] => {
            let is_record = match (kind, [high, low], first) {
                (_, [0, 0], next) => (20..=24).contains(next),
                (20 | 22, _, message) => *message == 1,
                (21, _, level) => (1..=2).contains(level),
                _ => false,
            };
            if is_record { First::Bad("it is TLS of no known version") } else { First::Nothing }
        }
        _ => First::More,
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
