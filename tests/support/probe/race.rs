//! Attackers that change what a name means while another thread uses it.
//!
//! Each reports `tries won`: how often the call succeeded, and, for calls that give a descriptor,
//! how often that descriptor was the forbidden file. Whether a call without a descriptor hit the
//! forbidden file is for the test to see in the tree.

use crate::args::{Call, fill, leak, number};
use crate::{Outcome, Vars};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// `race-string N ALLOWED FORBIDDEN CALL ...RACE...`: one thread rewrites the path in memory
/// between the two names, which have the same length, while another makes the call.
pub fn string(rest: &str, vars: &Vars) -> Outcome {
    let [count, allowed, forbidden, op] = split(rest);
    let (allowed, forbidden) = (fill(allowed, vars), fill(forbidden, vars));
    assert_eq!(allowed.len(), forbidden.len(), "both names need one length");
    let mut size = 0;
    let pointer = leak(format!("{allowed}\0").into_bytes(), &mut size);
    // SAFETY: the buffer is leaked, and both threads touch it through atomics only; the kernel
    // reads it whenever it likes, which is the point.
    let shared = unsafe { std::slice::from_raw_parts(pointer as *const AtomicU8, size) };
    let swap = |turn: bool| {
        let text = if turn { &forbidden } else { &allowed };
        for (to, from) in shared.iter().zip(text.bytes()) {
            to.store(from, Ordering::Relaxed);
        }
    };
    race(number(count, vars), op, vars, Some(pointer), &forbidden, swap)
}

/// `race-new N ALLOWED FORBIDDEN CALL ...RACE...`: as `race-string`, and ALLOWED is removed at each
/// turn, so that the call keeps on finding nothing there.
pub fn new(rest: &str, vars: &Vars) -> Outcome {
    let [count, allowed, forbidden, op] = split(rest);
    let (allowed, forbidden) = (fill(allowed, vars), fill(forbidden, vars));
    assert_eq!(allowed.len(), forbidden.len(), "both names need one length");
    let mut size = 0;
    let pointer = leak(format!("{allowed}\0").into_bytes(), &mut size);
    // SAFETY: as in `string`.
    let shared = unsafe { std::slice::from_raw_parts(pointer as *const AtomicU8, size) };
    let swap = |turn: bool| {
        let text = if turn { &forbidden } else { &allowed };
        for (to, from) in shared.iter().zip(text.bytes()) {
            to.store(from, Ordering::Relaxed);
        }
        if turn {
            let _ = std::fs::remove_file(&allowed);
        }
    };
    race(number(count, vars), op, vars, Some(pointer), &forbidden, swap)
}

/// `race-how N FLAGS OTHER FILE`: openat2 of FILE, while another thread changes the flags in the
/// `struct open_how` between the two sets.
pub fn how(rest: &str, vars: &Vars) -> Outcome {
    let [count, flags, other, file] = split(rest);
    let (flags, other) = (number(flags, vars) as u64, number(other, vars) as u64);
    let pointer = leak(vec![0; 24], &mut 0);
    // SAFETY: as in `string`; an allocation of 24 bytes is aligned for its words here.
    let word = unsafe { &*(pointer as *const std::sync::atomic::AtomicU64) };
    word.store(flags, Ordering::Relaxed);
    let op = format!("openat2 AT_FDCWD \"{file} RACE 24");
    let swap = |turn: bool| word.store(if turn { other } else { flags }, Ordering::Relaxed);
    race(number(count, vars), &op, vars, Some(pointer), file, swap)
}

/// `race-connect N OWN OUTSIDE`: one thread rewrites the socket address in memory between the two
/// paths, which have the same length, while another connects. Prints how many connections came, and
/// how many of them went elsewhere than to the socket that is bound as OWN, by its last component.
pub fn connect(rest: &str, vars: &Vars) -> Outcome {
    let mut words = rest.split(' ');
    let [count, own, outside] = [(); 3].map(|()| words.next().unwrap_or_default());
    assert_eq!(own.len(), outside.len(), "both paths need one length");
    let mut size = 0;
    let pointer = crate::args::value(&format!("un:{own}"), vars, &mut size);
    // SAFETY: as in `string`.
    let shared = unsafe { std::slice::from_raw_parts((pointer + 2) as *const AtomicU8, own.len()) };
    let done = AtomicBool::new(false);
    let (mut connected, mut elsewhere) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = false;
            while !done.load(Ordering::Relaxed) {
                turn = !turn;
                for (to, from) in shared.iter().zip(if turn { outside } else { own }.bytes()) {
                    to.store(from, Ordering::Relaxed);
                }
                for _ in 0..pause(turn) {
                    std::hint::spin_loop();
                }
            }
        });
        for _ in 0..number(count, vars) {
            // SAFETY: plain calls on a descriptor and a buffer of our own.
            unsafe {
                let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
                let fd = libc::socket(libc::AF_UNIX, kind, 0);
                if libc::connect(fd, pointer as *const _, size as u32) == 0 {
                    let mut peer: libc::sockaddr_un = std::mem::zeroed();
                    let mut length = size_of_val(&peer) as u32;
                    libc::getpeername(fd, (&raw mut peer).cast(), &raw mut length);
                    let name: Vec<u8> = peer.sun_path.iter().map(|c| *c as u8).collect();
                    connected += 1;
                    let name = String::from_utf8_lossy(&name);
                    let last =
                        name.trim_end_matches('\0').rsplit('/').next() == own.rsplit('/').next();
                    elsewhere += i64::from(!last);
                }
                libc::close(fd);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    Ok(format!("{connected} {elsewhere}"))
}

/// `race-link N LINK ALLOWED FORBIDDEN CALL ...`: one thread replaces the symbolic link LINK,
/// pointing it to one and the other target, while another makes the call through it.
pub fn link(rest: &str, vars: &Vars) -> Outcome {
    let (count, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (link, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let [allowed, forbidden, seen, op] = split(rest);
    let temporary = format!("{link}.new");
    let swap = |turn: bool| {
        let target = if turn { forbidden } else { allowed };
        let _ = std::fs::remove_file(&temporary);
        let _ = std::os::unix::fs::symlink(target, &temporary);
        let _ = std::fs::rename(&temporary, link);
    };
    race(number(count, vars), op, vars, None, seen, swap)
}

/// `race-exchange N A B SEEN CALL ...`: one thread exchanges A and B with `RENAME_EXCHANGE`.
/// SEEN is the forbidden file by a name that does not change.
pub fn exchange(rest: &str, vars: &Vars) -> Outcome {
    let (count, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let [a, b, seen, op] = split(rest);
    let call = format!("AT_FDCWD \"{a} AT_FDCWD \"{b} RENAME_EXCHANGE");
    let call = Call::parse("renameat2", &call, vars);
    race(number(count, vars), op, vars, None, seen, |_| {
        let _ = call.make();
    })
}

/// `race-move N A B TO`: one thread exchanges A, a file, and B, a directory; another moves A to TO, and
/// back if it is the file. Gives how often it moved the file, and whether it ever moved the directory.
pub fn moving(rest: &str, vars: &Vars) -> Outcome {
    let (count, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut names = rest.splitn(3, ' ');
    let [a, b, to] =
        [(); 3].map(|()| names.next().unwrap_or_else(|| crate::args::fail("race: too few words")));
    let call = format!("AT_FDCWD \"{a} AT_FDCWD \"{b} RENAME_EXCHANGE");
    let exchange = Call::parse("renameat2", &call, vars);
    let (mut files, mut won) = (0, 0);
    let swap = |_| {
        let _ = exchange.make();
    };
    against(swap, |_| {
        for _ in 0..number(count, vars) {
            if std::fs::rename(a, to).is_err() {
                continue;
            }
            if std::fs::metadata(to).is_ok_and(|moved| moved.is_dir()) {
                won = 1;
                break;
            }
            files += 1;
            let _ = std::fs::rename(to, a);
        }
    });
    Ok(format!("{files} {won}"))
}

fn split(rest: &str) -> [&str; 4] {
    let mut parts = rest.splitn(4, ' ');
    [(); 4].map(|()| parts.next().unwrap_or_else(|| crate::args::fail("race: too few words")))
}

fn race(
    count: i64,
    op: &str,
    vars: &Vars,
    pointer: Option<i64>,
    forbidden: &str,
    swap: impl Fn(bool) + Sync,
) -> Outcome {
    let (word, rest) = op.split_once(' ').unwrap_or((op, ""));
    let call = Call::parse_with(word, rest, vars, pointer);
    let opens = ["open", "openat", "openat2", "creat"].contains(&word);
    let identity = |path: &str| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let wanted = identity(forbidden);
    let (mut succeeded, mut reached) = (0, 0);
    against(swap, |_| {
        for _ in 0..count {
            let Ok(value) = call.make() else { continue };
            succeeded += 1;
            if opens {
                let there = identity(&format!("/proc/self/fd/{value}"));
                reached += i64::from(there.is_some() && there == wanted);
                // SAFETY: a descriptor that the call above just gave us.
                unsafe { libc::close(value as i32) };
            }
        }
    });
    Ok(if opens { format!("{succeeded} {reached}") } else { format!("{succeeded}") })
}

/// Runs `body` while another thread turns `swap` over and over. `body` sees the number of turns.
pub fn against(swap: impl Fn(bool) + Sync, body: impl FnOnce(&AtomicU32)) {
    let (done, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = false;
            while !done.load(Ordering::Relaxed) {
                turn = !turn;
                swap(turn);
                turns.fetch_add(1, Ordering::Relaxed);
                for _ in 0..pause(turn) {
                    std::hint::spin_loop();
                }
            }
            swap(false);
        });
        body(&turns);
        done.store(true, Ordering::Relaxed);
    });
}

/// A pause of varying length, so that the swap meets every phase of the call.
fn pause(turn: bool) -> u32 {
    use std::cell::Cell;
    thread_local!(static SEED: Cell<u32> = const { Cell::new(0x9e37_79b9) });
    SEED.with(|seed| {
        let mut x = seed.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        seed.set(x);
        x % if turn { 4000 } else { 1000 }
    })
}
