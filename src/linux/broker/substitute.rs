//! The target's sockets: a copy, or where a container forbids pidfd_getfd(2), one of the broker's own.
//!
//! There the broker makes the stream sockets, and keeps a copy of each until it is connected or listens.
//!
//! What it did not make (datagram sockets, and those from outside), or made too long ago, gives way to a
//! new one when it is connected or bound, under every number that the process has for it, so the target
//! goes on with that. What is lost then is what the target did with its socket before: options other
//! than `O_NONBLOCK` and close-on-exec, and registrations with epoll(7). Other processes that share the
//! old one keep that.

use super::task::Task;
use super::{Answer, Broker, Errno};
use crate::trap::Operation;
use rustix::fs::{FileType, OFlags};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bound sockets that are kept until they listen or connect, and so many that are not bound yet. Older
/// ones are let go.
const KEPT: usize = 64;
/// So many of which are remembered, so that none is taken for one that was never bound.
const LET_GO: usize = 16 * 1024;

/// Sockets of the broker's own that the target has, by inode.
#[derive(Default)]
pub struct Kept(Mutex<Sockets>);

#[derive(Default)]
struct Sockets {
    /// Neither bound nor connected yet.
    fresh: VecDeque<(u64, OwnedFd)>,
    /// Bound.
    kept: VecDeque<(u64, OwnedFd)>,
    let_go: VecDeque<u64>,
}

/// What is known of a socket.
enum Known {
    /// Here it is, and nothing was done with it yet.
    Fresh(OwnedFd),
    /// Here it is, bound.
    Kept(OwnedFd),
    /// It was let go: it stays bound, and nothing more can be done with it.
    LetGo,
    /// It was neither made nor bound here.
    Not,
}

impl Kept {
    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, inode: u64) -> Result<Known, Errno> {
        let sockets = self.sockets();
        let find = |all: &VecDeque<(u64, OwnedFd)>| {
            let found = all.iter().find(|(other, _)| *other == inode);
            found.map(|(_, fd)| rustix::io::fcntl_dupfd_cloexec(fd, 3)).transpose()
        };
        if let Some(fd) = find(&sockets.fresh)? {
            return Ok(Known::Fresh(fd));
        }
        Ok(match find(&sockets.kept)? {
            Some(fd) => Known::Kept(fd),
            None if sockets.let_go.contains(&inode) => Known::LetGo,
            None => Known::Not,
        })
    }

    /// Keeps a copy of a new socket.
    ///
    /// # Errors
    ///
    /// `EMFILE`.
    pub fn made(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let inode = rustix::fs::fstat(fd)?.st_ino;
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
        let mut sockets = self.sockets();
        // Whoever had this inode is gone.
        sockets.let_go.retain(|other| *other != inode);
        sockets.fresh.push_front((inode, copy));
        sockets.fresh.truncate(KEPT);
        Ok(())
    }

    fn keep(&self, fd: &OwnedFd) {
        let Ok(stat) = rustix::fs::fstat(fd) else { return };
        let mut sockets = self.sockets();
        sockets.fresh.retain(|(other, _)| *other != stat.st_ino);
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3);
        let old = match copy {
            Ok(copy) => {
                sockets.kept.push_front((stat.st_ino, copy));
                let most = KEPT.min(sockets.kept.len());
                sockets.kept.drain(most..).map(|(inode, _)| inode).collect()
            }
            Err(_) => vec![stat.st_ino],
        };
        sockets.let_go.extend(old);
        let over = sockets.let_go.len().saturating_sub(LET_GO);
        sockets.let_go.drain(..over);
    }

    /// A socket that listens or is connected is the target's alone: it ends when that closes it.
    fn forget(&self, inode: u64) {
        let mut sockets = self.sockets();
        sockets.fresh.retain(|(other, _)| *other != inode);
        sockets.kept.retain(|(other, _)| *other != inode);
    }
}

/// What a call makes of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// connect(2).
    Connected,
    /// bind(2).
    Bound,
    /// listen(2).
    Listens,
}

/// A socket to act on.
pub struct Socket {
    /// The target's own, or the one that takes its place.
    pub fd: OwnedFd,
    whose: Whose,
}

/// Whose socket it is.
enum Whose {
    /// A copy of the target's.
    Copy,
    /// One that the broker made for it, by inode.
    Made(u64),
    /// One that took its place before, by inode.
    Placed(u64),
    /// A new one for this number, closed on exec or not, in the place of the one with this inode.
    New { number: i32, cloexec: bool, old: u64 },
}

impl Socket {
    /// Adds to `answer`, if something came of the call, that the socket takes its place.
    pub fn answer(self, broker: &Broker, answer: Answer, done: Done) -> Answer {
        let result = match answer {
            Answer::Value(0) => Ok(()),
            Answer::Error(Errno::INPROGRESS) => Err(Errno::INPROGRESS),
            Answer::Error(Errno::INTR | Errno::AGAIN) => return answer,
            other => {
                // Few try again with the same socket. Others close it, and may rely on epoll(7) to
                // forget what is closed.
                if let (Whose::Made(inode), Answer::Error(_)) = (&self.whose, &other)
                    && done == Done::Connected
                {
                    broker.kept.forget(*inode);
                }
                return other;
            }
        };
        match self.whose {
            Whose::Copy => answer,
            Whose::Made(_) if done == Done::Bound => {
                broker.kept.keep(&self.fd);
                answer
            }
            Whose::Made(inode) | Whose::Placed(inode) => {
                if done != Done::Bound {
                    broker.kept.forget(inode);
                }
                answer
            }
            Whose::New { number, cloexec, old } => {
                if done == Done::Bound {
                    broker.kept.keep(&self.fd);
                }
                Answer::Replaced { fd: self.fd, number, cloexec, old, result }
            }
        }
    }
}

impl Task<'_> {
    /// The socket in register 0, for a call that makes `done` of it.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTSOCK`; `EPERM` for a kind of socket that cannot be made anew. Of a socket that takes
    /// no such call any more what the kernel says; for listen(2) `EALREADY`, where it succeeds again.
    pub(super) fn own_socket(&self, done: Done) -> Result<Socket, Errno> {
        match self.own_copy() {
            Ok(fd) => {
                if self.broker.queries.is_some() {
                    self.note(&rustix::fs::fstat(&fd)?.st_ino.to_ne_bytes());
                }
                Ok(Socket { fd, whose: Whose::Copy })
            }
            // In a network namespace of the run's another one would have to be told from the target's, and where
            // none can be copied, there is no such namespace.
            Err(Errno::PERM | Errno::NOSYS) if self.broker.namespace.is_none() => {
                self.substitute(done)
            }
            Err(errno) => Err(errno),
        }
    }

    fn substitute(&self, done: Done) -> Result<Socket, Errno> {
        let number = self.int(0);
        let theirs = self.descriptor(number)?;
        let stat = rustix::fs::fstat(&theirs)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        let flags = OFlags::from_bits_retain(self.flags_of(number)?);
        self.still_waits()?;
        self.note(&stat.st_ino.to_ne_bytes());
        match self.broker.kept.find(stat.st_ino)? {
            Known::Fresh(fd) => return Ok(Socket { fd, whose: Whose::Made(stat.st_ino) }),
            Known::Kept(fd) => return Ok(Socket { fd, whose: Whose::Placed(stat.st_ino) }),
            Known::LetGo if done == Done::Bound => return Err(Errno::INVAL),
            Known::LetGo => return Err(self.refuse_let_go(done)),
            Known::Not => {}
        }
        let (family, kind, protocol) = self.broker.kind(&theirs, stat.st_ino, done)?;
        let mut make = SocketFlags::CLOEXEC;
        make.set(SocketFlags::NONBLOCK, flags.contains(OFlags::NONBLOCK));
        let fd = socket_with(family, kind, make, protocol)?;
        if family == AddressFamily::INET || family == AddressFamily::INET6 {
            // Servers ask for it before they bind, which cannot be seen; without it, none could be
            // started again within a minute.
            set_socket_reuseaddr(&fd, true)?;
        }
        let cloexec = flags.contains(OFlags::CLOEXEC);
        Ok(Socket { fd, whose: Whose::New { number, cloexec, old: stat.st_ino } })
    }

    /// Writes down that a bound socket cannot be used any more; the error that says so.
    fn refuse_let_go(&self, done: Done) -> Errno {
        let operation = if done == Done::Listens { Operation::Listen } else { Operation::Connect };
        let why =
            format!("more than {KEPT} sockets were bound after this one, and could not be copied");
        let target = "a bound socket".to_owned();
        self.refuse_network(operation, target, (Err(why.into()), None), None, None);
        Errno::NOBUFS
    }

    /// The numbers that the process has for the socket with this inode, but for `number`, and which of
    /// them are closed on exec.
    pub(super) fn other_numbers(&self, inode: u64, number: i32) -> Vec<(i32, bool)> {
        let link = format!("socket:[{inode}]");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("{}/fd", self.tid());
        let mode = rustix::fs::Mode::empty();
        let Ok(table) = rustix::fs::openat(&self.broker.proc, path, flags, mode) else {
            return Vec::new();
        };
        let Ok(entries) = rustix::fs::Dir::read_from(&table) else { return Vec::new() };
        let is_it = |name: &str| {
            rustix::fs::readlinkat(&table, name, Vec::new())
                .is_ok_and(|text| text.as_bytes() == link.as_bytes())
        };
        let numbers = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().to_str().ok()?;
            let other = name.parse().ok().filter(|other| *other != number)?;
            is_it(name).then_some(other)
        });
        let cloexec = OFlags::CLOEXEC.bits();
        numbers
            .filter_map(|other| Some((other, self.flags_of(other).ok()? & cloexec != 0)))
            .collect()
    }
}

type Kind = (AddressFamily, SocketType, Option<rustix::net::Protocol>);

impl Broker {
    /// What kind of socket `theirs` is, if a call that makes `done` of it can start with a fresh one.
    fn kind(&self, theirs: &OwnedFd, inode: u64, done: Done) -> Result<Kind, Errno> {
        const FOUR: AddressFamily = AddressFamily::INET;
        const SIX: AddressFamily = AddressFamily::INET6;
        Ok(match self.protocol(theirs)?.as_slice() {
            name @ (b"TCP" | b"MPTCP" | b"TCPv6" | b"MPTCPv6") => {
                let family = if name.ends_with(b"v6") { SIX } else { FOUR };
                let multipath = name.starts_with(b"M");
                let table = if family == SIX { "self/net/tcp6" } else { "self/net/tcp" };
                // Only what listens or is connected has a line there.
                if let Some(line) = self.line_of(table, 9, inode)? {
                    return Err(used(tcp_state(&line), done));
                }
                let multipath = multipath.then_some(ipproto::MPTCP);
                (family, SocketType::STREAM, multipath)
            }
            b"UDP" | b"UDPv6" if self.names.is_some() => return Err(Errno::PERM),
            b"UDP" => (FOUR, SocketType::DGRAM, None),
            b"UDPv6" => (SIX, SocketType::DGRAM, None),
            // NETLINK_ROUTE, which is protocol 0: no other one can be made.
            b"NETLINK" => (AddressFamily::NETLINK, SocketType::RAW, None),
            [b'U', b'N', b'I', b'X', ..] => {
                let line = self.line_of("self/net/unix", 6, inode)?.unwrap_or_default();
                match unix_state(&line) {
                    Some(State::Bound) if done == Done::Connected => {
                        // Bound before it came here.
                        return Err(Errno::PERM);
                    }
                    Some(State::Listening) if done == Done::Connected => return Err(Errno::INVAL),
                    Some(state) => return Err(used(state, done)),
                    None if done == Done::Listens => return Err(Errno::INVAL),
                    None => {}
                }
                let kind = match line.split_whitespace().nth(4) {
                    Some("0002") => SocketType::DGRAM,
                    Some("0005") => SocketType::SEQPACKET,
                    _ => SocketType::STREAM,
                };
                (AddressFamily::UNIX, kind, None)
            }
            _ => return Err(Errno::PERM),
        })
    }

    /// The name of a socket's protocol in the kernel, as lsof(8) reads it: `TCP`, `UDPv6`, `UNIX-STREAM`.
    pub(super) fn protocol(&self, socket: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let path = format!("/proc/self/fd/{}", super::resolve::fd_name(socket.as_fd()));
        let mut name = [0; 32];
        let length = rustix::fs::getxattr(path, "system.sockprotoname", &mut name)?;
        Ok(name[..length].strip_suffix(b"\0").unwrap_or(&name[..length]).to_vec())
    }

    /// The line about socket `inode` in a table of procfs, proc_pid_net(5), if there is one: its number
    /// is in column `at`.
    fn line_of(&self, table: &str, at: usize, inode: u64) -> Result<Option<String>, Errno> {
        let inode = inode.to_string();
        self.find_line(table, |line| line.split_whitespace().nth(at) == Some(&inode))
    }
}

/// What a socket that is no longer fresh is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Bound,
    Listening,
    Connecting,
    Connected,
}

/// What the kernel says to a call on such a socket.
fn used(state: State, done: Done) -> Errno {
    match (state, done) {
        (State::Listening, Done::Listens) => Errno::ALREADY,
        (_, Done::Bound | Done::Listens) => Errno::INVAL,
        (State::Connecting, Done::Connected) => Errno::ALREADY,
        (_, Done::Connected) => Errno::ISCONN,
    }
}

/// The state in a line of `/proc/net/tcp`, see include/net/tcp_states.h.
fn tcp_state(line: &str) -> State {
    match line.split_whitespace().nth(3) {
        Some("0A") => State::Listening,
        Some("02" | "03") => State::Connecting,
        _ => State::Connected,
    }
}

/// The state in a line of `/proc/net/unix`; none of a fresh socket. The fourth column are flags, of which
/// one says that it listens (`__SO_ACCEPTCON`), the sixth is `SS_UNCONNECTED` or later, and the eighth is
/// the address, if it has one.
fn unix_state(line: &str) -> Option<State> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    match columns.as_slice() {
        [_, _, _, "00010000", ..] => Some(State::Listening),
        [_, _, _, _, _, "01", _] | [] => None,
        [_, _, _, _, _, "01", ..] => Some(State::Bound),
        _ => Some(State::Connected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_say_what_a_socket_is() {
        let tcp =
            |state: &str| format!("   0: 0100007F:1F90 00000000:0000 {state} 0:0 0:0 0 0 0 7 1");
        assert_eq!(tcp_state(&tcp("0A")), State::Listening);
        assert_eq!(tcp_state(&tcp("02")), State::Connecting);
        assert_eq!(tcp_state(&tcp("01")), State::Connected);
        for (line, want) in [
            ("ffff: 00000002 00000000 00000000 0001 01 77", None),
            ("ffff: 00000002 00000000 00000000 0001 01 77 /a b", Some(State::Bound)),
            ("ffff: 00000002 00000000 00010000 0001 01 77 @x", Some(State::Listening)),
            ("ffff: 00000003 00000000 00000000 0001 03 77", Some(State::Connected)),
            ("ffff: 00000003 00000000 00000000 0001 03 77 /a", Some(State::Connected)),
            ("", None),
        ] {
            assert_eq!(unix_state(line), want, "{line}");
        }
    }

    #[test]
    fn a_socket_that_was_let_go_is_remembered() {
        let make = || rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let kept = Kept::default();
        let sockets: Vec<OwnedFd> = (0..=KEPT).map(|_| make()).collect();
        sockets.iter().for_each(|fd| kept.keep(fd));
        assert!(matches!(kept.find(inode(&sockets[0])), Ok(Known::LetGo)));
        assert!(matches!(kept.find(inode(&sockets[1])), Ok(Known::Kept(_))));
        assert!(matches!(kept.find(inode(&make())), Ok(Known::Not)));
        kept.forget(inode(&sockets[1]));
        assert!(matches!(kept.find(inode(&sockets[1])), Ok(Known::Not)));
        // One that is made is at hand, until so many more are made.
        sockets[..KEPT].iter().for_each(|fd| kept.made(fd).unwrap());
        assert!(matches!(kept.find(inode(&sockets[0])), Ok(Known::Fresh(_))));
        kept.keep(&sockets[0]);
        assert!(matches!(kept.find(inode(&sockets[0])), Ok(Known::Kept(_))));
        sockets[..KEPT].iter().for_each(|fd| kept.made(fd).unwrap());
        assert!(matches!(kept.find(inode(&sockets[1])), Ok(Known::Fresh(_))));
        kept.made(&sockets[KEPT]).unwrap();
        kept.forget(inode(&sockets[1]));
        assert!(matches!(kept.find(inode(&sockets[1])), Ok(Known::Not)));
    }
}
