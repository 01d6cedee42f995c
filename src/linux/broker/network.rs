//! Socket calls.
//!
//! An address is in memory, and a descriptor number can be made to mean another socket, so nothing
//! here is continued: the broker takes a copy of the socket and does the call on that.

use super::report::Refusal;
use super::resolve::{Last, fd_name, file_type};
use super::task::Task;
use super::{Answer, Errno};
use crate::linux::sys::{memory, socket};
use crate::policy::Access;
use crate::trap::{Grant, Operation};
use rustix::fs::{AtFlags, FileType, ResolveFlags, StatxFlags};
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, listen};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Most addresses that a run may have bound.
const LIMIT: usize = 16 * 1024;
/// `sizeof(struct sockaddr_storage)`, the longest address the kernel takes.
const ADDRESS_MAX: u64 = 128;

/// Unix sockets that the run bound.
#[derive(Default)]
pub struct Bound(Mutex<HashSet<Name>>);

#[derive(PartialEq, Eq, Hash)]
enum Name {
    /// Device, inode and time of birth: an inode number alone may come back.
    Inode(u64, u64, i64, u32),
    Abstract(Vec<u8>),
}

impl Bound {
    fn contains(&self, name: &Name) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn insert(&self, name: Name) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() >= LIMIT
    }
}

fn inode(directory: impl AsFd, name: &[u8]) -> Result<Name, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(directory, name, flags, StatxFlags::INO | StatxFlags::BTIME)?;
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    Ok(Name::Inode(device, stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

/// An address of the Unix family.
enum UnixAddress<'a> {
    Path(&'a [u8]),
    Abstract(&'a [u8]),
    Unnamed,
}

fn unix_address(address: &[u8]) -> UnixAddress<'_> {
    match address.get(2..) {
        None | Some([]) => UnixAddress::Unnamed,
        Some(name @ [0, ..]) => UnixAddress::Abstract(name),
        Some(path) => {
            let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
            UnixAddress::Path(&path[..end])
        }
    }
}

impl Task<'_> {
    /// socket(2) and socketpair(2): the filter notifies only what is refused.
    pub(super) fn socket(&self) -> Result<Answer, Errno> {
        let (family, kind) = (self.int(0), self.int(1) & 0xf);
        let family_name = match family {
            libc::AF_UNIX => "unix".to_owned(),
            libc::AF_INET => "inet".to_owned(),
            libc::AF_INET6 => "inet6".to_owned(),
            libc::AF_NETLINK => "netlink".to_owned(),
            libc::AF_PACKET => "packet".to_owned(),
            libc::AF_VSOCK => "vsock".to_owned(),
            other => format!("family {other}"),
        };
        let kind_name = match kind {
            libc::SOCK_STREAM => "stream".to_owned(),
            libc::SOCK_DGRAM => "datagram".to_owned(),
            libc::SOCK_RAW => "raw".to_owned(),
            libc::SOCK_SEQPACKET => "seqpacket".to_owned(),
            other => format!("type {other}"),
        };
        let grant = match family {
            libc::AF_UNIX => Some(Grant::switch("allowAllUnixSockets")),
            libc::AF_INET | libc::AF_INET6 => Some(Grant::switch("allowNetwork")),
            _ => None,
        };
        let target = format!("{family_name} {kind_name} socket");
        Ok(self.refuse_network(Operation::Socket, target, grant, None))
    }

    /// A copy of the task's descriptor in register 0.
    pub(super) fn own_copy(&self) -> Result<OwnedFd, Errno> {
        let tid = Pid::from_raw(self.tid()).ok_or(Errno::SRCH)?;
        // A thread that leads no group: PIDFD_THREAD (Linux 6.9), or its group's leader.
        let thread = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
        let pidfd = match pidfd_open(tid, PidfdFlags::empty()).or_else(|_| pidfd_open(tid, thread))
        {
            Ok(pidfd) => pidfd,
            Err(_) => {
                let leader = Pid::from_raw(self.status()?.tgid).ok_or(Errno::SRCH)?;
                pidfd_open(leader, PidfdFlags::empty())?
            }
        };
        let copy = pidfd_getfd(pidfd, self.int(0), PidfdGetfdFlags::empty())?;
        self.still_waits()?;
        Ok(copy)
    }

    fn address(&self) -> Result<Vec<u8>, Errno> {
        let length = self.call.arg(2) as u32;
        if u64::from(length) > ADDRESS_MAX {
            return Err(Errno::INVAL);
        }
        let mut address = vec![0; length as usize];
        if length > 0 && memory::read(self.tid(), self.call.arg(1), &mut address)? < address.len() {
            return Err(Errno::FAULT);
        }
        Ok(address)
    }

    /// The copy and the address of connect(2) and bind(2), or the refusal when there is no copy.
    fn endpoint(&self, operation: Operation) -> Result<Result<(OwnedFd, Vec<u8>), Answer>, Errno> {
        let address = self.address()?;
        match self.own_copy() {
            Ok(copy) => Ok(Ok((copy, address))),
            Err(Errno::PERM | Errno::NOSYS) => {
                self.still_waits()?;
                let why = "sockets of the target cannot be reached here (pidfd_getfd is refused)";
                Ok(Err(self.refuse_network(operation, describe(&address), None, Some(why))))
            }
            Err(errno) => Err(errno),
        }
    }

    /// connect(2).
    pub(super) fn connect(&self) -> Result<Answer, Errno> {
        let (copy, address) = match self.endpoint(Operation::Connect)? {
            Ok(endpoint) => endpoint,
            Err(refusal) => return Ok(refusal),
        };
        let domain = socket_domain(&copy)?;
        if domain == AddressFamily::UNIX {
            return self.connect_unix(&copy, &address);
        }
        let internet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
        if internet && self.broker.network && family(&address) != libc::AF_UNSPEC {
            let grant = Some(Grant::switch("allowNetwork"));
            return Ok(self.refuse_network(Operation::Connect, describe(&address), grant, None));
        }
        if internet {
            self.may_act()?;
        }
        Ok(socket::connect(&copy, &address).into())
    }

    fn connect_unix(&self, copy: &OwnedFd, address: &[u8]) -> Result<Answer, Errno> {
        let broker = self.broker;
        let grant = Some(Grant::switch("allowAllUnixSockets"));
        match unix_address(address) {
            UnixAddress::Unnamed => Ok(socket::connect(copy, address).into()),
            UnixAddress::Abstract(name) => {
                if broker.unix_sockets && !broker.sockets.contains(&Name::Abstract(name.to_vec())) {
                    let target = describe(address);
                    return Ok(self.refuse_network(Operation::Connect, target, grant, None));
                }
                Ok(socket::connect(copy, address).into())
            }
            UnixAddress::Path(path) => {
                let object = self.object(libc::AT_FDCWD, path, true, ResolveFlags::empty())?;
                if file_type(&rustix::fs::fstat(&object.fd)?) != FileType::Socket {
                    return Err(Errno::CONNREFUSED);
                }
                let ours = || inode(&object.fd, b"").map(|name| broker.sockets.contains(&name));
                if broker.unix_sockets && !ours()? {
                    let target = String::from_utf8_lossy(&object.path).into_owned();
                    return Ok(self.refuse_network(Operation::Connect, target, grant, None));
                }
                let pinned = format!("/proc/self/fd/{}", fd_name(object.fd.as_fd()));
                Ok(socket::connect(copy, &to_unix(pinned.as_bytes())).into())
            }
        }
    }

    /// bind(2).
    pub(super) fn bind(&self) -> Result<Answer, Errno> {
        let (copy, address) = match self.endpoint(Operation::Bind)? {
            Ok(endpoint) => endpoint,
            Err(refusal) => return Ok(refusal),
        };
        let domain = socket_domain(&copy)?;
        if domain == AddressFamily::UNIX && family(&address) == libc::AF_UNIX {
            return self.bind_unix(&copy, &address);
        }
        let internet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
        if internet && self.broker.network {
            let grant = Some(Grant::switch("allowNetwork"));
            return Ok(self.refuse_network(Operation::Bind, describe(&address), grant, None));
        }
        if internet {
            self.may_act()?;
        }
        Ok(socket::bind(&copy, &address).into())
    }

    fn bind_unix(&self, copy: &OwnedFd, address: &[u8]) -> Result<Answer, Errno> {
        let broker = self.broker;
        if broker.sockets.is_full() {
            return Err(Errno::NOBUFS);
        }
        match unix_address(address) {
            UnixAddress::Unnamed => {
                // The kernel picks an abstract name.
                socket::bind(copy, address)?;
                if let Ok(Some(name)) = socket::own_abstract_name(copy) {
                    broker.sockets.insert(Name::Abstract(name));
                }
                Ok(Answer::Value(0))
            }
            UnixAddress::Abstract(name) => {
                socket::bind(copy, address)?;
                broker.sockets.insert(Name::Abstract(name.to_vec()));
                Ok(Answer::Value(0))
            }
            UnixAddress::Path(path) => {
                let Last::Spot(spot) = self.spot(libc::AT_FDCWD, path, ResolveFlags::empty())?
                else {
                    return Err(Errno::ADDRINUSE);
                };
                let full = spot.path();
                let verdict = broker.decide_change(&full);
                let refusal = Refusal::of(&verdict, Access::Write, &full, path).or_else(|| {
                    let rule = broker.decider.directory_name(&full)?;
                    Some(Refusal::new(Access::Write, &full, path, Some(rule)))
                });
                if let Some(mut refusal) = refusal {
                    if spot.stat().is_ok() {
                        return Err(Errno::ADDRINUSE);
                    }
                    refusal.message = Some("binding makes a socket file there".to_owned());
                    return Ok(self.refuse(refusal));
                }
                self.may_act()?;
                self.assume_umask()?;
                // The directory is pinned; its own path would be looked up again, and may be too
                // long. Each worker has a working directory of its own.
                rustix::process::fchdir(&spot.dir)?;
                socket::bind(copy, &to_unix(&spot.name))?;
                broker.sockets.insert(inode(&spot.dir, spot.bare_name())?);
                Ok(Answer::Value(0))
            }
        }
    }

    /// listen(2), notified where the network is fenced: an internet socket would take a free port.
    pub(super) fn listen(&self) -> Result<Answer, Errno> {
        let copy = match self.own_copy() {
            Ok(copy) => copy,
            Err(Errno::PERM | Errno::NOSYS) => {
                let why = "sockets of the target cannot be reached here (pidfd_getfd is refused)";
                let target = "a socket".to_owned();
                return Ok(self.refuse_network(Operation::Listen, target, None, Some(why)));
            }
            Err(errno) => return Err(errno),
        };
        let domain = socket_domain(&copy)?;
        if domain == AddressFamily::INET || domain == AddressFamily::INET6 {
            let grant = Some(Grant::switch("allowNetwork"));
            let target = "a free port".to_owned();
            return Ok(self.refuse_network(Operation::Listen, target, grant, None));
        }
        Ok(listen(&copy, self.int(1)).into())
    }
}

fn family(address: &[u8]) -> i32 {
    address.first_chunk().map_or(-1, |&bytes| i32::from(u16::from_ne_bytes(bytes)))
}

/// `path`, at most 107 bytes, as a Unix socket address.
fn to_unix(path: &[u8]) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend_from_slice(path);
    address.push(0);
    address
}

/// An address for a reader: `1.2.3.4:80`, `[::1]:80`, a path, or `@abstract`.
fn describe(address: &[u8]) -> String {
    let port = || address.get(2..4).map_or(0, |p| u16::from_be_bytes([p[0], p[1]]));
    match family(address) {
        libc::AF_INET if address.len() >= 8 => {
            let octets: [u8; 4] = address[4..8].try_into().expect("four bytes");
            SocketAddr::from((Ipv4Addr::from(octets), port())).to_string()
        }
        libc::AF_INET6 if address.len() >= 24 => {
            let octets: [u8; 16] = address[8..24].try_into().expect("sixteen bytes");
            SocketAddr::from((Ipv6Addr::from(octets), port())).to_string()
        }
        libc::AF_UNIX => match unix_address(address) {
            UnixAddress::Unnamed => "an unnamed socket".to_owned(),
            UnixAddress::Abstract(name) => format!("@{}", String::from_utf8_lossy(&name[1..])),
            UnixAddress::Path(path) => String::from_utf8_lossy(path).into_owned(),
        },
        other => format!("address family {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn addresses_read_well() {
        let unix = |name: &[u8]| [&1u16.to_ne_bytes()[..], name].concat();
        let four = [&2u16.to_ne_bytes()[..], &[0, 80, 1, 2, 3, 4]].concat();
        let mut six = [&10u16.to_ne_bytes()[..], &[1, 187, 0, 0, 0, 0]].concat();
        six.extend([0; 15]);
        six.push(1);
        for (address, want) in [
            (four, "1.2.3.4:80"),
            (six, "[::1]:443"),
            (unix(b"/a\0x"), "/a"),
            (unix(b"\0a"), "@a"),
            (unix(b""), "an unnamed socket"),
            (vec![2, 0], "address family 2"),
            (vec![], "address family -1"),
        ] {
            assert_eq!(describe(&address), want);
        }
    }
}
