//! The network namespace of a run: where its internet sockets are made.
//!
//! The program itself stays in the namespaces that it was started in. An ordinary user could enter a network
//! namespace only together with a user namespace, in which every file of root's would be nobody's: ssh(1)
//! refuses its configuration then, and groups cannot be told. So socket(2) is answered with a socket that a
//! process of ours makes in there: a socket stays in the namespace that made it, whoever has it.

use super::net::{Offer, Role, confine, relay};
use super::sys::netns::{make_socket, start_maker};
use super::sys::socket::namespace_cookie;
use super::sys::{Errno, datagram, probe};
use crate::cli::error::Failure;
use crate::plan::NamespaceSupport;
use crate::policy::{Located, Network};
use crate::trap::{Code, errno};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A namespace in which nothing is but `lo`, which is up. It ends with the last socket in it, and the maker
/// with this value and its copies in other processes.
pub struct Namespace {
    maker: Mutex<OwnedFd>,
    cookie: u64,
}

/// Connections that wait to be accepted: as many as the kernel lets.
const BACKLOG: i32 = 4096;

/// A namespace, and what was made with it.
pub struct Made {
    /// The namespace.
    pub namespace: Namespace,
    /// A second way to ask for sockets in it.
    pub maker: OwnedFd,
    /// The sockets in it that questions about names arrive on, if they are to be answered.
    pub names: Vec<OwnedFd>,
}

/// Makes a namespace where a policy with the section `network` has a use for one.
///
/// One that closes the network as a whole has none: no socket is connected then, in whatever namespace, and the
/// namespace would cost half a launch.
pub fn for_policy(network: &Network) -> (Option<Made>, NamespaceSupport) {
    if !network.opens_loopback() && !network.lists_hosts() {
        return (None, NamespaceSupport::Unasked);
    }
    match Namespace::make(network.lists_hosts()) {
        Ok(made) => (Some(made), NamespaceSupport::Available),
        Err(errno) => {
            let name = errno::name(errno.raw_os_error()).unwrap_or("an unknown error");
            (None, NamespaceSupport::Refused(name))
        }
    }
}

/// The port of name servers.
const NAMES: u16 = 53;

impl Namespace {
    /// Makes one, in which questions about names can be answered where `names` says so: every address is local
    /// there, so whichever name server a program asks, it is asked in there. To be called before the process
    /// is restricted.
    ///
    /// # Errors
    ///
    /// As unshare(2) where there can be none. `EPERM` also where pidfd_open(2) or pidfd_getfd(2) is forbidden: then a
    /// program's sockets cannot be used from here.
    pub fn make(names: bool) -> Result<Made, Errno> {
        probe::may_copy_descriptors()?;
        let [first, maker] = start_maker(names, confine::ruleset()?.as_fd())?;
        let (namespace, socket) = Namespace::of(first)?;
        let names = if names { namespace.name_sockets(socket)? } else { Vec::new() };
        Ok(Made { namespace, maker, names })
    }

    /// The one in which `maker` makes sockets, and a datagram socket in it.
    ///
    /// # Errors
    ///
    /// As socket(2); `EPIPE` when the maker is gone.
    pub fn of(maker: OwnedFd) -> Result<(Namespace, OwnedFd), Errno> {
        let request = [libc::AF_INET, libc::SOCK_DGRAM, 0].map(i32::cast_unsigned);
        let socket = make_socket(maker.as_fd(), request)?;
        let cookie = namespace_cookie(&socket)?;
        Ok((Namespace { maker: Mutex::new(maker), cookie }, socket))
    }

    /// Sockets at the port of name servers, `four` and one of IPv6 where there is such a thing.
    fn name_sockets(&self, four: OwnedFd) -> Result<Vec<OwnedFd>, Errno> {
        datagram::by_destination(four.as_fd(), false)?;
        bind(&four, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, NAMES)))?;
        let six = || {
            let six = self.socket(libc::AF_INET6, libc::SOCK_DGRAM, 0)?;
            sockopt::set_ipv6_v6only(&six, true)?;
            datagram::by_destination(six.as_fd(), true)?;
            bind(&six, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, NAMES)))?;
            Ok(six)
        };
        match six() {
            Ok(six) => Ok(vec![four, six]),
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => Ok(vec![four]),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a socket in it, as socket(2).
    ///
    /// # Errors
    ///
    /// As socket(2); `EPIPE` when the maker is gone.
    pub fn socket(&self, family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, Errno> {
        let maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        let request = [family, kind, protocol].map(i32::cast_unsigned);
        make_socket(maker.as_fd(), request)
    }

    /// Whether `socket` is in it. One that the run was given is not.
    pub fn has(&self, socket: &OwnedFd) -> bool {
        namespace_cookie(socket) == Ok(self.cookie)
    }

    /// Sockets for what `network` offers: ports of the host's loopback in here, and ports of the run on the
    /// host's loopback.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED` with the line whose port cannot be served, as bind(2).
    pub fn offers(&self, network: &Network) -> Result<Vec<Offer>, Failure> {
        let mut offers = Vec::new();
        let mut offer = |port: &Located<u16>, made: Result<Vec<OwnedFd>, Errno>, role| {
            let sockets = made.map_err(|errno| {
                let error = io::Error::from(errno);
                at(port, format!("port {} cannot be served: {error}", port.value))
            })?;
            offers.extend(sockets.into_iter().map(|socket| Offer { socket, role }));
            Ok::<(), Failure>(())
        };
        let inside = |family| {
            self.socket(family, libc::SOCK_STREAM, ipproto::TCP.as_raw().get().cast_signed())
        };
        let mut served = Vec::new();
        for port in network.host_ports() {
            if !served.contains(&port.value) {
                served.push(port.value);
                offer(port, listen_on(port.value, inside), Role::Host(port.value))?;
            }
        }
        for port in &network.expose {
            let outside = |family: i32| {
                let family = AddressFamily::from_raw(family as u16);
                socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            };
            offer(port, listen_on(port.value, outside), Role::Run(port.value))?;
        }
        Ok(offers)
    }
}

/// Checks that somebody listens at the ports of proxies that `network` names.
///
/// # Errors
///
/// `SANDBOX_SETUP_FAILED` with the line that names a port where nobody does.
pub fn check_proxies(network: &Network) -> Result<(), Failure> {
    for port in network.proxies() {
        let reached = LOOPBACK.map(|ip| SocketAddr::new(ip, port.value)).into_iter().map(|to| {
            // It is this host's: who does not answer at once is stopped, or flooded.
            TcpStream::connect_timeout(&to, Duration::from_secs(1)).map(|_| ())
        });
        if let Err(error) = reached.reduce(|first, second| first.or(second)).unwrap_or(Ok(())) {
            let message =
                format!("no proxy is reached at port {} of loopback: {error}", port.value);
            return Err(at(port, message));
        }
    }
    Ok(())
}

/// The addresses of loopback, the one that has to be there first.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn at(port: &Located<u16>, message: String) -> Failure {
    Failure {
        file: Some(port.origin.file.clone()),
        line: Some(port.origin.line),
        key: Some(port.origin.key.clone()),
        ..Failure::new(Code::SandboxSetupFailed, message)
    }
}

/// Sockets from `make`, for a family, that listen on `port` of loopback for the relay: of IPv4, and of IPv6 where there
/// is such a thing. Until a connection is joined and all is said, whatever ends it is no end, that of the helper
/// included: it is born with the option, before anybody accepts it.
fn listen_on(
    port: u16,
    make: impl Fn(i32) -> Result<OwnedFd, Errno>,
) -> Result<Vec<OwnedFd>, Errno> {
    let listen = |ip: IpAddr| {
        let socket = make(if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 })?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::new(ip, port))?;
        relay::reset(&socket);
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let mut made = vec![listen(LOOPBACK[0])?];
    match listen(LOOPBACK[1]) {
        Ok(socket) => made.push(socket),
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {}
        Err(errno) => return Err(errno),
    }
    Ok(made)
}
