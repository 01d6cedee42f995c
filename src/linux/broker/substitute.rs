//! The target's sockets: a copy, or where a container forbids pidfd_getfd(2), one of the broker's own.
//!
//! The broker's own takes the place of the target's when it is connected or bound, so the target goes
//! on with that. What is lost is what the target did with its socket before: options other than
//! `O_NONBLOCK` and close-on-exec, registrations with epoll(7), and other descriptors of it.

use super::task::Task;
use super::{Answer, Broker, Errno};
use rustix::fs::{FileType, OFlags};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Bound sockets that are kept until they listen or connect. Older ones are let go: they stay bound,
/// and fail to listen.
const KEPT: usize = 64;

/// Sockets of the broker's own that the target has bound, by inode.
#[derive(Default)]
pub struct Kept(Mutex<VecDeque<(u64, OwnedFd)>>);

impl Kept {
    fn take(&self, inode: u64) -> Option<OwnedFd> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(other, _)| *other == inode)?;
        kept.remove(at).map(|(_, fd)| fd)
    }

    fn keep(&self, fd: &OwnedFd) {
        let (Ok(stat), Ok(copy)) = (rustix::fs::fstat(fd), rustix::io::fcntl_dupfd_cloexec(fd, 3))
        else {
            return;
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.push_front((stat.st_ino, copy));
    }
}

/// A socket to act on.
pub struct Socket {
    /// The target's own, or the one that takes its place.
    pub fd: OwnedFd,
    /// The number whose place it takes, and whether that is closed on exec.
    place: Option<(i32, bool)>,
}

impl Socket {
    /// Adds to `answer`, if something came of the call, that the socket takes its place.
    pub fn answer(self, broker: &Broker, answer: Answer, bound: bool) -> Answer {
        let result = match answer {
            Answer::Value(0) => Ok(()),
            Answer::Error(Errno::INPROGRESS) => Err(Errno::INPROGRESS),
            other => return other,
        };
        let Some((number, cloexec)) = self.place else {
            return answer;
        };
        if bound {
            broker.kept.keep(&self.fd);
        }
        Answer::Replaced { fd: self.fd, number, cloexec, result }
    }
}

impl Task<'_> {
    /// The socket in register 0.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTSOCK`; `EPERM` for a kind of socket that cannot be made anew.
    pub(super) fn own_socket(&self) -> Result<Socket, Errno> {
        match self.own_copy() {
            Ok(fd) => Ok(Socket { fd, place: None }),
            Err(Errno::PERM | Errno::NOSYS) => self.substitute(),
            Err(errno) => Err(errno),
        }
    }

    fn substitute(&self) -> Result<Socket, Errno> {
        let number = self.int(0);
        let theirs = self.descriptor(number)?;
        let stat = rustix::fs::fstat(&theirs)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        let flags = OFlags::from_bits_retain(self.flags_of(number)?);
        self.still_waits()?;
        if let Some(fd) = self.broker.kept.take(stat.st_ino) {
            return Ok(Socket { fd, place: None });
        }
        let (family, kind, protocol) = self.broker.kind(&theirs, stat.st_ino)?;
        let mut make = SocketFlags::CLOEXEC;
        make.set(SocketFlags::NONBLOCK, flags.contains(OFlags::NONBLOCK));
        let fd = socket_with(family, kind, make, protocol)?;
        if family == AddressFamily::INET || family == AddressFamily::INET6 {
            // Servers ask for it before they bind, which cannot be seen; without it, none could be
            // started again within a minute.
            set_socket_reuseaddr(&fd, true)?;
        }
        Ok(Socket { fd, place: Some((number, flags.contains(OFlags::CLOEXEC))) })
    }
}

type Kind = (AddressFamily, SocketType, Option<rustix::net::Protocol>);

impl Broker {
    /// What kind of socket `theirs` is, a fresh one.
    fn kind(&self, theirs: &OwnedFd, inode: u64) -> Result<Kind, Errno> {
        const FOUR: AddressFamily = AddressFamily::INET;
        const SIX: AddressFamily = AddressFamily::INET6;
        // The name of the protocol in the kernel, as lsof(8) reads it.
        let path = format!("/proc/self/fd/{}", super::resolve::fd_name(theirs.as_fd()));
        let mut name = [0; 32];
        let length = rustix::fs::getxattr(path, "system.sockprotoname", &mut name)?;
        let name = name[..length].strip_suffix(b"\0").unwrap_or(&name[..length]);
        Ok(match name {
            b"TCP" | b"MPTCP" | b"TCPv6" | b"MPTCPv6" => {
                let family = if name.ends_with(b"v6") { SIX } else { FOUR };
                let table = if family == SIX { "self/net/tcp6" } else { "self/net/tcp" };
                self.is_fresh(table, inode, 9, 3, "07")?;
                let multipath = name.starts_with(b"M").then_some(ipproto::MPTCP);
                (family, SocketType::STREAM, multipath)
            }
            b"UDP" => (FOUR, SocketType::DGRAM, None),
            b"UDPv6" => (SIX, SocketType::DGRAM, None),
            // NETLINK_ROUTE, which is protocol 0: no other one can be made.
            b"NETLINK" => (AddressFamily::NETLINK, SocketType::RAW, None),
            [b'U', b'N', b'I', b'X', ..] => {
                let kind = self.is_fresh("self/net/unix", inode, 6, 5, "01")?;
                let kind = match kind.as_deref().and_then(|line| line.split_whitespace().nth(4)) {
                    Some("0002") => SocketType::DGRAM,
                    Some("0005") => SocketType::SEQPACKET,
                    _ => SocketType::STREAM,
                };
                (AddressFamily::UNIX, kind, None)
            }
            _ => return Err(Errno::PERM),
        })
    }

    /// The line about socket `inode` in a table of procfs, proc_pid_net(5), if there is one: its number
    /// is in column `at`, its state in column `state`.
    ///
    /// # Errors
    ///
    /// `EISCONN` and `EALREADY` for a socket that is no longer in the state `fresh`.
    fn is_fresh(
        &self,
        table: &str,
        inode: u64,
        at: usize,
        state: usize,
        fresh: &str,
    ) -> Result<Option<String>, Errno> {
        let inode = inode.to_string();
        let line = self.find_line(table, |line| line.split_whitespace().nth(at) == Some(&inode))?;
        // SYN_SENT is 02 in both tables of TCP; a Unix socket is never on its way.
        match line.as_deref().and_then(|line| line.split_whitespace().nth(state)) {
            None => Ok(None),
            Some(found) if found == fresh => Ok(line),
            Some("02") => Err(Errno::ALREADY),
            Some(_) => Err(Errno::ISCONN),
        }
    }
}
