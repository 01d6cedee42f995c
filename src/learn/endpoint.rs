//! Socket addresses of Linux, and what the use of one needs of a policy.

use super::Why;
use crate::policy::Daemons;
use crate::policy::endpoint::{Reach, reach};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a `struct sockaddr` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An internet address and a port.
    Internet(SocketAddr),
    /// A Unix socket by its path, as written: relative, through links, or not UTF-8.
    Path(Vec<u8>),
    /// A Unix socket by an abstract name, without the NUL in front.
    Abstract(Vec<u8>),
    /// Nothing: an unnamed Unix socket, or the end of an association.
    Unnamed,
    /// Another family, by its number, or -1 for an address too short to have one.
    Other(i32),
}

/// Address families, bits/socket.h: the same on every architecture.
const AF_UNSPEC: u16 = 0;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl Endpoint {
    /// Reads an address as the kernel does: unix(7), ip(7), ipv6(7).
    #[must_use]
    pub fn decode(address: &[u8]) -> Endpoint {
        let Some((family, rest)) = address.split_first_chunk() else {
            return Endpoint::Other(-1);
        };
        let family = u16::from_ne_bytes(*family);
        match (family, rest) {
            (AF_UNSPEC, _) | (AF_UNIX, []) => Endpoint::Unnamed,
            (AF_UNIX, [0, name @ ..]) => Endpoint::Abstract(name.to_vec()),
            (AF_UNIX, path) => {
                let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
                Endpoint::Path(path[..end].to_vec())
            }
            // Port and address in network order.
            (AF_INET, &[p, q, a, b, c, d, ..]) => {
                Endpoint::Internet((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q])).into())
            }
            // Port, four bytes of flow, address.
            (AF_INET6, rest) if rest.len() >= 22 => {
                let octets: [u8; 16] = rest[6..22].try_into().expect("sixteen bytes");
                let port = u16::from_be_bytes([rest[0], rest[1]]);
                Endpoint::Internet((Ipv6Addr::from(octets), port).into())
            }
            _ => Endpoint::Other(i32::from(family)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Internet(address) => write!(f, "{address}"),
            Endpoint::Path(path) => f.write_str(&String::from_utf8_lossy(path)),
            Endpoint::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
            Endpoint::Unnamed => f.write_str("an unnamed socket"),
            Endpoint::Other(family) => write!(f, "address family {family}"),
        }
    }
}

/// A use of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// It was connected, or something was sent there.
    Connect(Endpoint),
    /// It was bound.
    Bind(Endpoint),
    /// A datagram socket was connected, bound, or sent from: an internet address.
    Datagram(SocketAddr),
    /// A Unix datagram socket was made: whom it sends to shows later, and may change each time.
    UnixDatagram,
}

/// What the use needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// No rule.
    Nothing,
    /// A switch of `network`, by its key.
    Switch(&'static str),
    /// The server at this address of loopback: the run's own, or the host's.
    Local(SocketAddr),
    /// The server at this address of another host.
    Host(SocketAddr),
    /// An entry of `network.allowUnixSockets`.
    Path(&'a str),
    /// Something that is never granted.
    Refused(Why),
}

impl Socket {
    /// What this use needs of a policy. The one table of it. `daemons` are never granted.
    #[must_use]
    pub fn need(&self, daemons: &Daemons) -> Need<'_> {
        use Socket::{Bind, Connect, Datagram, UnixDatagram};
        match self {
            Connect(Endpoint::Internet(address)) if is_local(address.ip()) => Need::Local(*address),
            Connect(Endpoint::Internet(address)) => Need::Host(*address),
            Bind(Endpoint::Internet(address)) if is_local(address.ip()) => {
                Need::Switch("allowLocalBinding")
            }
            Bind(Endpoint::Internet(_)) => Need::Switch("allowNetwork"),
            Connect(Endpoint::Path(path)) => match std::str::from_utf8(path) {
                Err(_) => Need::Refused(Why::Name),
                Ok(path) if daemons.contains(path.as_bytes()) => Need::Refused(Why::Service),
                Ok(path) => Need::Path(path),
            },
            Connect(Endpoint::Abstract(_)) => Need::Refused(Why::Abstract),
            // Loopback alone opens no datagram sockets, and all of the network is more than was used.
            Datagram(address) if is_local(address.ip()) => Need::Refused(Why::Datagrams),
            Datagram(_) => Need::Switch("allowNetwork"),
            UnixDatagram => Need::Refused(Why::AllSockets),
            // A file that binding makes is a write.
            Bind(Endpoint::Path(_) | Endpoint::Abstract(_)) => Need::Nothing,
            Connect(Endpoint::Unnamed | Endpoint::Other(_))
            | Bind(Endpoint::Unnamed | Endpoint::Other(_)) => Need::Nothing,
        }
    }
}

/// The port of name servers.
const NAMES: u16 = 53;

impl Socket {
    /// Whether a name is looked up by this: what is connected to afterwards is known by its address alone. A
    /// name server is asked, or a service of this host that asks one (nscd, systemd-resolved).
    #[must_use]
    pub fn asks_for_names(&self) -> bool {
        match self {
            Socket::Datagram(to) | Socket::Connect(Endpoint::Internet(to)) => to.port() == NAMES,
            Socket::Connect(Endpoint::Path(path)) => {
                path.ends_with(b"/nscd/socket") || path.starts_with(b"/run/systemd/resolve/")
            }
            _ => false,
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Socket::Connect(endpoint) => write!(f, "{endpoint}"),
            Socket::Bind(endpoint) => write!(f, "bind {endpoint}"),
            Socket::Datagram(address) => write!(f, "UDP {address}"),
            Socket::UnixDatagram => f.write_str("a Unix datagram socket"),
        }
    }
}

/// Whether an address is of this host alone; the one that stands for all counts, since it can be bound
/// for loopback alone.
pub(super) fn is_local(address: IpAddr) -> bool {
    reach(address) != Reach::Outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_the_kernel_reads_them() {
        let of = |family: u16, rest: &[u8]| [&family.to_ne_bytes()[..], rest].concat();
        let six = [&[1, 187, 0, 0, 0, 0][..], &[0; 15], &[1, 9, 9, 9, 9]].concat();
        for (address, want) in [
            (of(2, &[0, 80, 1, 2, 3, 4]), "1.2.3.4:80"),
            (of(2, &[0, 80, 1, 2, 3]), "address family 2"),
            (of(10, &six), "[::1]:443"),
            (of(10, &six[..21]), "address family 10"),
            (of(1, b"/a\0x"), "/a"),
            (of(1, b"\0a"), "@a"),
            (of(1, b""), "an unnamed socket"),
            (of(0, &[1, 2]), "an unnamed socket"),
            (vec![2], "address family -1"),
        ] {
            assert_eq!(Endpoint::decode(&address).to_string(), want);
        }
    }

    #[test]
    fn each_use_needs_what_the_table_says() {
        let internet = |text: &str| Endpoint::Internet(text.parse().unwrap());
        let path = |text: &str| Endpoint::Path(text.into());
        let local = Need::Switch("allowLocalBinding");
        let network = Need::Switch("allowNetwork");
        for (socket, want) in [
            (Socket::Connect(internet("127.9.9.9:1")), Need::Local("127.9.9.9:1".parse().unwrap())),
            (
                Socket::Connect(internet("[::ffff:127.0.0.1]:1")),
                Need::Local("[::ffff:127.0.0.1]:1".parse().unwrap()),
            ),
            (Socket::Bind(internet("0.0.0.0:0")), local),
            (Socket::Bind(internet("[::]:0")), local),
            (Socket::Datagram("127.0.0.53:53".parse().unwrap()), Need::Refused(Why::Datagrams)),
            (Socket::Datagram("[::1]:53".parse().unwrap()), Need::Refused(Why::Datagrams)),
            (Socket::Datagram("1.1.1.1:53".parse().unwrap()), network),
            (Socket::Bind(internet("10.0.0.1:80")), network),
            (Socket::Connect(internet("1.1.1.1:53")), Need::Host("1.1.1.1:53".parse().unwrap())),
            (Socket::Connect(path("/run/pg/s")), Need::Path("/run/pg/s")),
            (Socket::Connect(path("/var/run/docker.sock")), Need::Refused(Why::Service)),
            (Socket::Connect(path("/run/user/7/bus")), Need::Refused(Why::Service)),
            (Socket::Connect(path("/run/user/7/busy")), Need::Path("/run/user/7/busy")),
            (Socket::Connect(path("/run/dbus/system_bus_socket")), Need::Refused(Why::Service)),
            (Socket::Connect(Endpoint::Abstract(vec![1])), Need::Refused(Why::Abstract)),
            (Socket::Bind(Endpoint::Abstract(vec![1])), Need::Nothing),
            (Socket::UnixDatagram, Need::Refused(Why::AllSockets)),
        ] {
            assert_eq!(socket.need(&Daemons::default()), want, "{socket}");
        }
    }
}
