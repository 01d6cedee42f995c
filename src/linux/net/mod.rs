//! The network helper: a process of ours that serves sockets of a run from outside of its sandbox.
//!
//! It is forked before the launcher enters its outer domain, so that it can reach what the launcher
//! cannot, and gives up everything else: no file, no capability, nothing that the launcher has open. The
//! sockets are made, bound and listening before: in the host's network namespace, or in one of the run.
//! It is started where a policy needs it only.
//!
//! Whatever ends it closes every connection, and no new one is accepted: the program is left without.

pub mod channel;
pub(super) mod confine;
pub mod container;
pub mod environment;
pub mod proxy;
pub(super) mod relay;
mod serve;

use super::sys::{Errno, helper};
use crate::cli::error::Failure;
use crate::policy::Hosts;
use crate::trap::Code;
use channel::Control;
use proxy::{Places, Resolver, Upstream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socketpair};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What is done with what arrives on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A listening TCP socket: each connection is joined with one to this port of the host's loopback,
    /// whatever goes over it.
    Host(u16),
    /// The same with this port of loopback in the run's network namespace.
    Run(u16),
    /// A listening TCP socket: the domain proxy, for connections that the broker announced.
    Proxy,
    /// A UDP socket that questions about names arrive on.
    Names,
}

/// What becomes of a host that no entry is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlisted {
    /// It is refused.
    #[default]
    Refused,
    /// Somebody is asked about it.
    Asked,
    /// It is reached, at whatever address, and told of.
    Learned,
}

/// What the domain proxy holds and works from; by default, it opens nothing.
#[derive(Default)]
pub struct Domains {
    /// The lists of hosts.
    pub hosts: Hosts,
    /// How names are looked up.
    pub resolver: Resolver,
    /// Addresses that stand for names which the lists allow: a program that looks names up in hosts(5) connects to
    /// those.
    pub places: Places,
    /// How connections go out.
    pub upstream: Upstream,
    /// What becomes of hosts that they do not name.
    pub unlisted: Unlisted,
    /// Ports of this process's loopback that the broker may lead connections to.
    pub ports: Vec<u16>,
}

impl Domains {
    /// For the lists `hosts`, in the environment `env` of the launcher: what is there of name servers and
    /// proxies is read now.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED` where the environment names a proxy that cannot be used: going out without it
    /// is not what was asked for.
    pub fn new(hosts: Hosts, env: &[OsString]) -> Result<Domains, Failure> {
        let variable = |name: &str| {
            let start = format!("{name}=");
            let found = env.iter().find_map(|v| v.as_bytes().strip_prefix(start.as_bytes()))?;
            Some(String::from_utf8_lossy(found).into_owned())
        };
        let upstream = Upstream::new(variable).map_err(|why| {
            Failure::new(Code::SandboxSetupFailed, format!("the proxy to go out by: {why}"))
        })?;
        let resolver = Resolver::of_host();
        let places = resolver.places(&hosts);
        Ok(Domains { hosts, resolver, places, upstream, ..Domains::default() })
    }
}

/// Sockets of loopback that the domain proxy can listen on, made by `make` for an address family: of IPv4, and
/// of IPv6 where there is one.
///
/// # Errors
///
/// `SANDBOX_SETUP_FAILED`, as bind(2).
pub fn proxy_offers(make: impl Fn(i32) -> Result<OwnedFd, Errno>) -> Result<Vec<Offer>, Failure> {
    let listening = |family, ip: IpAddr| -> Result<OwnedFd, Errno> {
        let socket = make(family)?;
        bind(&socket, &SocketAddr::new(ip, 0))?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let four = listening(libc::AF_INET, Ipv4Addr::LOCALHOST.into())
        .map_err(|errno| failed("a socket for the proxy (socket, bind, listen)", errno))?;
    let six = listening(libc::AF_INET6, Ipv6Addr::LOCALHOST.into()).ok();
    let offer = |socket| Offer { socket, role: Role::Proxy };
    Ok([Some(four), six].into_iter().flatten().map(offer).collect())
}

/// Connections that wait to be accepted: as many as the kernel lets.
const BACKLOG: i32 = 4096;

fn failed(what: &str, errno: Errno) -> Failure {
    let text = format!("the network helper: {what}: {}", io::Error::from(errno));
    Failure::new(Code::SandboxSetupFailed, text)
}

/// A socket to serve.
#[derive(Debug)]
pub struct Offer {
    /// The socket: bound, and listening where it is a stream.
    pub socket: OwnedFd,
    /// What it is for.
    pub role: Role,
}

/// The helper of a run. Dropping it ends the process.
pub struct Network {
    /// The other end of the helper's channel: it ends with this.
    control: Arc<Control>,
}

impl Network {
    /// Starts the helper, to be called while this process has one thread and is not restricted. `maker` makes
    /// sockets in the run's network namespace, see [`Namespace::make`](super::namespace::Namespace::make).
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED`, as socketpair(2) and fork(2).
    pub fn start(
        offers: Vec<Offer>,
        maker: Option<OwnedFd>,
        domains: Option<Domains>,
    ) -> Result<Network, Failure> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| failed("socketpair", errno))?;
        rustix::io::ioctl_fionbio(&theirs, true).map_err(|errno| failed("ioctl", errno))?;
        let places = domains.iter().flat_map(|domains| domains.places.keys().copied()).collect();
        let control = Control::new(ours, held(&offers)?, Vec::new(), places);
        let work = || {
            let sockets = offers.iter().map(|offer| offer.socket.as_fd());
            let others = [Some(theirs.as_fd()), maker.as_ref().map(AsFd::as_fd)];
            let keep: Vec<_> = sockets.chain(others.into_iter().flatten()).collect();
            // Whatever fails, nothing is served then.
            if confine::confine(&keep).is_ok() {
                let _ = serve::serve(offers, maker, domains, theirs);
            }
        };
        helper::fork(c"network", helper::Life::Parent, work)
            .map_err(|errno| failed("fork", errno))?;
        Ok(Network { control: Arc::new(control) })
    }

    /// Ends the helper; whether it says when it has nothing more to say.
    pub fn end(self) -> bool {
        self.control.finish()
    }

    /// The launcher's end of the channel.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }
}

/// Copies of the sockets that the proxy listens on, for the launcher: nobody else is to have such a port, whatever
/// becomes of the helper.
fn held(offers: &[Offer]) -> Result<Vec<OwnedFd>, Failure> {
    let proxies = offers.iter().filter(|offer| offer.role == Role::Proxy);
    let held = proxies.map(|offer| rustix::io::fcntl_dupfd_cloexec(&offer.socket, 3));
    held.collect::<Result<_, Errno>>().map_err(|errno| failed("dup", errno))
}

impl Drop for Network {
    fn drop(&mut self) {
        self.control.finish();
    }
}
