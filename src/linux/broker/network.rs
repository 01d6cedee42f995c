//! Socket calls.
//!
//! An address is in memory, and a descriptor number can be made to mean another socket, so nothing
//! here is continued: the broker takes a copy of the socket and does the call on that.

use super::substitute::Done;
use super::task::Task;
use super::unix::{UnixAddress, unix_address};
use super::{Answer, Errno};
use crate::linux::filter::{TYPE, allows_socket};
use crate::linux::sys::socket;
use crate::policy::endpoint::Line;
use crate::policy::{Closed, Passage, Use};
use crate::trap::Operation;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, listen, socket_with};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

/// `sizeof(struct sockaddr_storage)`, the longest address the kernel takes.
const ADDRESS_MAX: usize = 128;

/// A socket address, copied out of the target once.
pub struct Address {
    bytes: [u8; ADDRESS_MAX],
    length: usize,
}

impl Address {
    /// The address as the target wrote it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The address family; -1 where there is none.
    pub fn family(&self) -> i32 {
        let family = self.bytes().first_chunk().map(|&bytes| u16::from_ne_bytes(bytes));
        family.map_or(-1, i32::from)
    }

    /// The internet address and port, where it is one and as long as the kernel wants it.
    pub fn internet(&self) -> Option<SocketAddr> {
        let bytes = self.bytes();
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        match self.family() {
            // sizeof(struct sockaddr_in); SIN6_LEN_RFC2133, without the scope.
            libc::AF_INET if bytes.len() >= 16 => {
                let octets: [u8; 4] = bytes[4..8].try_into().ok()?;
                Some((Ipv4Addr::from(octets), port).into())
            }
            libc::AF_INET6 if bytes.len() >= 24 => {
                let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
                // What lies on one interface is another address on another one.
                let scope = bytes.get(24..28).and_then(|scope| scope.try_into().ok());
                let scope = scope.map_or(0, u32::from_ne_bytes);
                Some(SocketAddrV6::new(octets.into(), port, 0, scope).into())
            }
            _ => None,
        }
    }

    /// The address for a reader: `1.2.3.4:80`, `[::1]:80`, a path, or `@abstract`.
    pub fn describe(&self) -> String {
        match (self.internet(), self.family()) {
            (Some(address), _) => address.to_string(),
            (None, libc::AF_UNIX) => match unix_address(self.bytes()) {
                UnixAddress::Unnamed => "an unnamed socket".to_owned(),
                UnixAddress::Abstract(name) => format!("@{}", String::from_utf8_lossy(&name[1..])),
                UnixAddress::Path(path) => String::from_utf8_lossy(path).into_owned(),
            },
            (None, other) => format!("address family {other}"),
        }
    }
}

/// Why datagrams are refused where not everything is allowed.
const DATAGRAMS: &str = "a datagram names where it goes in memory that nobody can look at before the \
    kernel does, so";
/// What follows for Unix sockets.
const UNIX_DATAGRAMS: &str = "datagram sockets are open with network.allowAllUnixSockets only";
/// Why other families are refused.
const FAMILY: &str = "sockets of this family are not open in any run";
/// Why raw sockets are, which no policy changes.
const RAW: &str = "raw sockets need CAP_NET_RAW, which no program of a run has";
const NETLINK: &str = "of netlink, routes alone can be asked about without network.allowNetwork";

impl Task<'_> {
    /// socket(2). Where the broker can copy no socket, it makes those that connect and listen, and keeps a
    /// copy; else the filter notifies only what is refused.
    pub(super) fn socket(&self) -> Result<Answer, Errno> {
        if let Some(answer) = self.socket_in_namespace()? {
            return Ok(answer);
        }
        if !allows_socket(self.broker.options, [0, 1, 2, 3, 4, 5].map(|at| self.call.arg(at))) {
            return self.refuse_socket();
        }
        let flags = SocketFlags::from_bits_retain(self.int(1) as u32 & !TYPE);
        let kind = SocketType::from_raw(self.int(1) as u32 & TYPE);
        let family = AddressFamily::from_raw(self.int(0) as u16);
        let protocol = NonZeroU32::new(self.int(2) as u32).map(Protocol::from_raw);
        let fd = socket_with(family, kind, flags | SocketFlags::CLOEXEC, protocol)?;
        self.broker.kept.made(&fd)?;
        Ok(Answer::Descriptor(fd, flags.contains(SocketFlags::CLOEXEC)))
    }

    /// A socket in a network namespace of the run's, if it has one and this is of a kind that is made there.
    fn socket_in_namespace(&self) -> Result<Option<Answer>, Errno> {
        let (family, kind) = (self.int(0), self.int(1));
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Ok(None);
        }
        let udp = self.broker.endpoints.is_local() || self.broker.answers_names();
        let protocol = match (kind & TYPE as i32, self.int(2)) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => libc::IPPROTO_TCP,
            // In there it goes nowhere else, wherever a datagram says that it goes.
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) if udp => libc::IPPROTO_UDP,
            _ => return Ok(None),
        };
        let of_udp = protocol == libc::IPPROTO_UDP;
        let Some(namespace) = self.broker.namespace_of(of_udp) else { return Ok(None) };
        self.may_act()?;
        let socket = namespace.socket(family, kind, protocol)?;
        Ok(Some(Answer::Descriptor(socket, kind & libc::SOCK_CLOEXEC != 0)))
    }

    /// Refuses socket(2) and socketpair(2).
    pub(super) fn refuse_socket(&self) -> Result<Answer, Errno> {
        let (family, kind) = (self.int(0), self.int(1) & TYPE as i32);
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
        let internet = matches!(family, libc::AF_INET | libc::AF_INET6);
        let target = format!("{family_name} {kind_name} socket");
        let (adviser, endpoints) = (&self.broker.adviser, &self.broker.endpoints);
        let line = endpoints.network_line().filter(|_| internet);
        let udp =
            internet && kind == libc::SOCK_DGRAM && matches!(self.int(2), 0 | libc::IPPROTO_UDP);
        let grant = match family {
            libc::AF_UNIX => adviser.unix_datagrams().map_err(|obstacle| obstacle.why()),
            _ if internet && kind == libc::SOCK_RAW => Err(RAW.into()),
            _ if udp => Err(adviser.udp(line).why()),
            _ if internet => adviser.beyond_tcp(line).map_err(|obstacle| obstacle.why()),
            libc::AF_NETLINK => Err(NETLINK.into()),
            _ => Err(FAMILY.into()),
        };
        let message = match family {
            _ if kind != libc::SOCK_DGRAM => None,
            libc::AF_UNIX => Some(format!("{DATAGRAMS} {UNIX_DATAGRAMS}")),
            _ => None,
        };
        // A kind of socket is no endpoint, and what it would reach is not known yet.
        Ok(self.refuse_network(Operation::Socket, target, (grant, None), line, message.as_deref()))
    }

    /// A copy of the task's descriptor in register 0.
    pub(super) fn own_copy(&self) -> Result<OwnedFd, Errno> {
        if self.int(0) < 0 {
            return Err(Errno::BADF);
        }
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

    /// The address in registers 1 and 2 of connect(2) and bind(2).
    fn address(&self) -> Result<Address, Errno> {
        let length = self.call.arg(2) as u32 as usize;
        if length > ADDRESS_MAX {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0; ADDRESS_MAX];
        let want = &mut bytes[..length];
        if length > 0 && self.read(self.call.arg(1), want)? < length {
            return Err(Errno::FAULT);
        }
        Ok(Address { bytes, length })
    }

    /// Refuses `operation` on a closed endpoint, unless somebody can be asked about it.
    fn refuse_endpoint(
        &self,
        operation: Operation,
        target: String,
        (closed, line): (Closed, Option<Line<'_>>),
        endpoint: (Use, &[u8]),
    ) -> Answer {
        let grant = self.broker.adviser.endpoint((endpoint.0, closed), line, &target);
        let grant = grant.map_err(|obstacle| obstacle.why());
        let (message, endpoint) = match closed {
            Closed::Daemon => (None, None),
            Closed::Loopback if operation != Operation::Connect => {
                (Some("it would be bound to loopback alone"), Some(endpoint))
            }
            // Of the run's own namespace, which has no such address.
            Closed::Network if self.broker.namespace.is_some() => (None, None),
            // Without a path that a record can name.
            Closed::Unlisted if target.contains('\u{fffd}') => (None, None),
            _ => (None, Some(endpoint)),
        };
        self.refuse_network(operation, target, (grant, endpoint), line, message)
    }

    /// connect(2).
    pub(super) fn connect(&self) -> Result<Answer, Errno> {
        let address = self.address()?;
        let socket = self.own_socket(Done::Connected)?;
        let fd = &socket.fd;
        let answer = match socket_domain(fd)? {
            AddressFamily::UNIX => self.connect_unix(fd, address.bytes()),
            AddressFamily::INET | AddressFamily::INET6 => self.connect_internet(fd, &address),
            AddressFamily::NETLINK => Ok(socket::connect(fd, address.bytes()).into()),
            _ => Ok(self.refuse_family(Operation::Connect, &address)),
        };
        Ok(socket.answer(self.broker, answer.into(), Done::Connected))
    }

    /// Connects `copy`, which may take as long as the other end lets it.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, as from a full backlog or without a free port, when too many others wait: the broker
    /// would have no worker left for whoever is to accept them.
    pub(super) fn connect_waiting(&self, copy: &OwnedFd, address: &[u8]) -> Result<Answer, Errno> {
        let waits = !fcntl_getfl(copy)?.contains(OFlags::NONBLOCK);
        let place = waits.then(|| self.broker.pool.place_to_wait(self.helped));
        let _place = place.transpose().map_err(|_| Errno::AGAIN)?;
        Ok(socket::connect(copy, address).into())
    }

    /// bind(2).
    pub(super) fn bind(&self) -> Result<Answer, Errno> {
        let address = self.address()?;
        let socket = self.own_socket(Done::Bound)?;
        let fd = &socket.fd;
        let answer = match socket_domain(fd)? {
            AddressFamily::UNIX => self.bind_unix(fd, address.bytes()),
            AddressFamily::INET | AddressFamily::INET6 => self.bind_internet(fd, &address),
            AddressFamily::NETLINK => Ok(socket::bind(fd, address.bytes()).into()),
            _ => Ok(self.refuse_family(Operation::Bind, &address)),
        };
        Ok(socket.answer(self.broker, answer.into(), Done::Bound))
    }

    /// listen(2), notified where the network is fenced: an internet socket would take a free port on
    /// every address.
    pub(super) fn listen(&self) -> Result<Answer, Errno> {
        let socket = match self.own_socket(Done::Listens) {
            // It does, and how many may wait is a hint that cannot be given twice.
            Err(Errno::ALREADY) => return Ok(Answer::Value(0)),
            result => result?,
        };
        let fd = &socket.fd;
        let answer = match socket_domain(fd)? {
            AddressFamily::UNIX => Ok(listen(fd, self.int(1)).into()),
            AddressFamily::INET | AddressFamily::INET6 => self.listen_internet(fd),
            // No other family listens for what this run may reach.
            _ => Err(Errno::OPNOTSUPP),
        };
        Ok(socket.answer(self.broker, answer.into(), Done::Listens))
    }

    /// A socket of a family that no run can make was given to this one, or changed its family
    /// (`TCP_ULP`).
    fn refuse_family(&self, operation: Operation, address: &Address) -> Answer {
        self.refuse_network(operation, address.describe(), (Err(FAMILY.into()), None), None, None)
    }

    /// The refusal that `passage` is, if it is one and no answer opens the endpoint. That is known by its
    /// text, `target`, and for a file by `identity` as well.
    pub(super) fn refused_endpoint(
        &self,
        (operation, using): (Operation, Use),
        passage: Passage<'_>,
        target: impl FnOnce() -> String,
        identity: &[u8],
    ) -> Option<Answer> {
        let Passage::Closed(closed, line) = passage else { return None };
        let target = target();
        let endpoint = [target.as_bytes(), b"\0", identity].concat();
        if closed != Closed::Daemon && self.is_opened(using, &endpoint) {
            return None;
        }
        Some(self.refuse_endpoint(operation, target, (closed, line), (using, &endpoint)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_well() {
        let unix = |name: &[u8]| [&1u16.to_ne_bytes()[..], name].concat();
        let mut four = [&2u16.to_ne_bytes()[..], &[0, 80, 1, 2, 3, 4]].concat();
        four.extend([0; 8]);
        let mut six = [&10u16.to_ne_bytes()[..], &[1, 187, 0, 0, 0, 0]].concat();
        six.extend([0; 15]);
        six.push(1);
        for (address, want) in [
            (&four[..], "1.2.3.4:80"),
            (&six, "[::1]:443"),
            (&unix(b"/a\0x"), "/a"),
            (&unix(b"\0a"), "@a"),
            (&unix(b""), "an unnamed socket"),
            (&[2, 0], "address family 2"),
            // As long as the kernel wants it, or not at all.
            (&four[..15], "address family 2"),
            (&six[..23], "address family 10"),
            (&[], "address family -1"),
        ] {
            let mut bytes = [0; ADDRESS_MAX];
            bytes[..address.len()].copy_from_slice(address);
            assert_eq!(Address { bytes, length: address.len() }.describe(), want);
        }
    }
}
