//! Attackers that change where a socket call goes while another thread makes it.

use crate::args::{self, Call, errno, fail, number};
use crate::race::against;
use crate::{Outcome, Vars};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, Ordering};

/// Turns that a contest lasts at least: the other thread may be slow to start.
const TURNS: u32 = 200;

/// The address of a socket, or of its peer: `1.2.3.4:5`, `[::1]:5`, a path, `@name`, or nothing.
pub fn name(fd: i64, peer: bool) -> Outcome {
    let mut bytes = [0_u8; 128];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the buffer holds as much as its length says.
    let result = unsafe {
        let (fd, to, length) = (fd as i32, bytes.as_mut_ptr().cast(), &raw mut length);
        if peer { libc::getpeername(fd, to, length) } else { libc::getsockname(fd, to, length) }
    };
    if result == -1 {
        return Err(errno());
    }
    let bytes = &bytes[..length as usize];
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    Ok(match (i32::from(family), ip(bytes)) {
        (_, Some(ip)) => {
            let port = u16::from_be_bytes([bytes[2], bytes[3]]);
            std::net::SocketAddr::new(ip, port).to_string()
        }
        (libc::AF_UNIX, None) => {
            let text = String::from_utf8_lossy(&bytes[2..]).into_owned();
            match text.strip_prefix('\0') {
                Some(name) => format!("@{name}"),
                None => text.trim_end_matches('\0').to_owned(),
            }
        }
        (other, None) => format!("family {other}"),
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(u16::from_ne_bytes(*bytes.first_chunk()?)) {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?).into()),
        _ => None,
    }
}

/// Runs `attempt` at least `count` times while another thread turns `swap` over and over. Reports how often it
/// succeeded, and how often it went where it must not.
fn contest(count: i64, swap: impl Fn(bool) + Sync, attempt: impl Fn() -> Option<bool>) -> Outcome {
    let (mut succeeded, mut elsewhere) = (0, 0);
    against(swap, |turns| {
        for tries in 0.. {
            if tries >= count && turns.load(Ordering::Relaxed) >= TURNS {
                break;
            }
            if let Some(strayed) = attempt() {
                succeeded += 1;
                elsewhere += i64::from(strayed);
            }
        }
    });
    Ok(format!("{succeeded} {elsewhere}"))
}

/// `race-address N connect|bind LOOPBACK OUTSIDE`: the address in memory changes between the two, of
/// one family. Counts successes, and those that were not on loopback.
pub fn address(rest: &str, vars: &Vars) -> Outcome {
    let mut words = rest.split(' ');
    let [count, call, inside, outside] = [(); 4].map(|()| words.next().unwrap_or_default());
    let mut size = 0;
    let pointer = args::value(&format!("in:{inside}"), vars, &mut size);
    let texts = [inside, outside].map(|text| {
        let address = args::value(&format!("in:{text}"), vars, &mut size);
        // SAFETY: just leaked, `size` bytes long, and written by nobody.
        unsafe { std::slice::from_raw_parts(address as *const u8, size) }
    });
    // SAFETY: the buffer is leaked, and both threads touch it through atomics only; the kernel reads it
    // whenever it likes, which is the point.
    let shared = unsafe { std::slice::from_raw_parts(pointer as *const AtomicU8, size) };
    let swap = |turn: bool| {
        for (to, from) in shared.iter().zip(texts[usize::from(turn)]) {
            to.store(*from, Ordering::Relaxed);
        }
    };
    let family = i64::from(texts[0][0]);
    let connects = call == "connect";
    let call = |fd: i64| Call::parse(call, &format!("{fd} {pointer} {size}"), vars).make();
    contest(number(count, vars), swap, || {
        let fd = Call::parse("socket", &format!("{family} SOCK_STREAM 0"), vars).make().ok()?;
        let named = call(fd).ok().and_then(|_| name(fd, connects).ok());
        // SAFETY: a descriptor that was just made.
        unsafe { libc::close(fd as i32) };
        let ip = named?.parse::<std::net::SocketAddr>().ok()?.ip().to_canonical();
        Some(!ip.is_loopback())
    })
}

/// `race-way N LINK OWN OUTSIDE`: connects to the Unix socket behind the symbolic link LINK, which
/// another thread points to one and the other. Counts connections, and those to OUTSIDE.
pub fn way(rest: &str, vars: &Vars) -> Outcome {
    let mut words = rest.split(' ');
    let [count, link, own, outside] = [(); 4].map(|()| words.next().unwrap_or_default());
    let temporary = format!("{link}.new");
    let swap = |turn: bool| {
        let _ = std::fs::remove_file(&temporary);
        let _ = std::os::unix::fs::symlink(if turn { outside } else { own }, &temporary);
        let _ = std::fs::rename(&temporary, link);
    };
    swap(false);
    let connect = |fd: i64| Call::parse("connect", &format!("{fd} un:{link} #"), vars).make();
    contest(number(count, vars), swap, || {
        let kind = "AF_UNIX SOCK_STREAM|SOCK_NONBLOCK 0";
        let fd = Call::parse("socket", kind, vars).make().ok()?;
        let named = connect(fd).ok().and_then(|_| name(fd, true).ok());
        // SAFETY: a descriptor that was just made.
        unsafe { libc::close(fd as i32) };
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        Some(last(&named?) == last(outside))
    })
}

/// `race-bind N NAME OUTSIDE`: binds NAME over and over, while another thread moves OUTSIDE there and
/// back. Counts binds, and those after which OUTSIDE answers by either name.
pub fn bind(rest: &str, vars: &Vars) -> Outcome {
    let mut words = rest.split(' ');
    let [count, name, outside] = [(); 3].map(|()| words.next().unwrap_or_default());
    let swap = |turn: bool| {
        let (from, to) = if turn { (outside, name) } else { (name, outside) };
        let _ = std::fs::rename(from, to);
    };
    let on_socket = |call: &str, path: &str| {
        let kind = "AF_UNIX SOCK_STREAM|SOCK_NONBLOCK 0";
        let fd = Call::parse("socket", kind, vars).make().ok()?;
        let done = Call::parse(call, &format!("{fd} un:{path} #"), vars).make();
        // SAFETY: a descriptor that was just made.
        unsafe { libc::close(fd as i32) };
        done.ok()
    };
    contest(number(count, vars), swap, || {
        on_socket("bind", name)?;
        // What was bound does not listen.
        Some([outside, name].iter().any(|path| on_socket("connect", path).is_some()))
    })
}

/// `race-fd N A B X CALL ...`: the number X means A and B in turn, while another thread makes the call.
/// Counts successes.
pub fn descriptor(rest: &str, vars: &Vars) -> Outcome {
    let mut words = rest.splitn(6, ' ');
    let [count, a, b, x, call, rest] =
        [(); 6].map(|()| words.next().unwrap_or_else(|| fail("race-fd: too few words")));
    let [count, a, b, x] = [count, a, b, x].map(|word| number(word, vars));
    let swap = |turn: bool| {
        // SAFETY: the script gives X away for this.
        unsafe { libc::dup2(if turn { b } else { a } as i32, x as i32) };
    };
    let call = Call::parse(call, rest, vars);
    contest(count, swap, || call.make().ok().map(|_| false))
}
