//! The helper of a container: a process outside of it, for a launcher inside.
//!
//! The runtime forks it, in its own namespaces and cgroup, before the container has a process, and ends while the
//! container lives on. Until then it knows the policy, and nothing to serve: the sockets are made by the launcher, in
//! the container's network namespace, where they stay wherever they are held. With them comes what the policy is
//! in there, which one that is attached to the program may have narrowed. More than the runtime has read, nobody inside
//! can open.
//!
//! Questions about names are datagrams, and in the container's network namespace one goes anywhere: what is sent
//! names its address in memory. So the helper makes a namespace for them, as a run has one, and gives the launcher
//! what makes sockets in there.

use super::channel::Control;
use super::proxy::Local;
use super::{Domains, Network as Helper, Offer, Role, confine, failed, held, proxy_offers, serve};
use crate::cli::error::Failure;
use crate::linux::namespace::{Made, Namespace};
use crate::linux::sys::{Errno, helper, netns, probe, socket::namespace_cookie};
use crate::policy::{Hosts, Network};
use crate::trap::Code;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socket_with,
    socketpair,
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The most bytes in one message of what the policy says.
const PART: usize = 8192;
/// The most bytes of it at all: its lists are as long as a policy may be, and each entry knows where it stood.
const LONGEST: usize = 64 << 20;
/// The sockets of the proxy: of IPv4, and of IPv6.
const SOCKETS: usize = 2;

/// What a launcher in a container has of the world outside.
pub struct Outside {
    /// Its end of the channel to the helper, where the policy needs one. When it closes, the helper ends.
    helper: Option<OwnedFd>,
    /// The helper answers questions about names.
    names: bool,
    /// Addresses that stand for names to it, see [`Domains::places`].
    places: HashSet<IpAddr>,
    /// The runtime's network namespace.
    namespace: u64,
}

/// What the launcher says of the container.
#[derive(Serialize, Deserialize)]
struct Inside {
    /// The section of the policy in there.
    network: Network,
    /// What names are made of in there. It tells which questions are no refusals, and opens nothing.
    local: Local,
}

/// What serves the network of a container.
pub struct Served {
    /// The helper.
    pub network: Helper,
    /// Where sockets are made that ask about names, if such questions are answered.
    pub names: Option<Namespace>,
}

impl Outside {
    /// Starts the helper for the section `network`, if that has a use for one, with the proxies of the environment
    /// `env` to go out by. To be called by the runtime, while it has one thread.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED`, as fork(2); and as [`Domains::new`].
    pub fn start(network: &Network, env: &[OsString]) -> Result<Outside, Failure> {
        let hosts = Hosts::new(network);
        let ports: Vec<u16> = network.host_ports().map(|port| port.value).collect();
        let needed = !network.allow_network && (hosts.is_some() || !ports.is_empty());
        let names = hosts.is_some();
        let domains = || -> Result<Domains, Failure> {
            let domains = hosts.map(|hosts| Domains::new(hosts, env)).transpose()?;
            Ok(Domains { ports, ..domains.unwrap_or_default() })
        };
        let domains = needed.then(domains).transpose()?;
        let places = domains.iter().flat_map(|domains| domains.places.keys().copied()).collect();
        let helper = domains.map(|domains| fork(domains, names)).transpose()?;
        Ok(Outside { helper, names, places, namespace: own_namespace()? })
    }

    /// The network namespace of this process, by its cookie, where that is not the runtime's: loopback in there is
    /// not the host's.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED`, as getsockopt(2).
    pub fn left_for(&self) -> Result<Option<u64>, Failure> {
        own_namespace().map(|own| Some(own).filter(|own| *own != self.namespace))
    }

    /// Has the helper serve this process's network namespace under the section `network`, which may say less than
    /// the one that it was started for; none where that needs no helper. To be called before this process is
    /// restricted.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED`: there are no sockets to be had, or the helper is gone.
    pub fn serve(self, network: &Network) -> Result<Option<Served>, Failure> {
        // The loopback of the runtime is reached without it.
        let ports: Vec<u16> = match self.left_for()? {
            Some(_) => network.host_ports().map(|port| port.value).collect(),
            None => Vec::new(),
        };
        let needed = network.lists_hosts() || !ports.is_empty();
        let Some(channel) = self.helper.filter(|_| needed) else { return Ok(None) };
        let gone = |errno| failed("it is gone", errno);
        let made = match self.names {
            true => netns::receive(channel.as_fd()).map_err(gone)?.1,
            false => None,
        };
        // A socket that is made in there is one of the program's, and used from here.
        let usable = network.lists_hosts() && probe::may_copy_descriptors().is_ok();
        let names = made.filter(|_| usable).map(Namespace::of).transpose().map_err(gone)?;
        let offers = proxy_offers(|family| {
            let family = AddressFamily::from_raw(family as u16);
            socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        })?;
        let network = Network { allow_unix_sockets: Vec::new(), ..network.clone() };
        let inside = Inside { network, local: Local::inside() };
        let text = serde_json::to_vec(&inside).map_err(|error| {
            Failure::new(Code::SandboxSetupFailed, format!("the network helper: {error}"))
        })?;
        hand_over(channel.as_fd(), &text, &offers).map_err(gone)?;
        let control = Control::new(channel, held(&offers)?, ports, self.places);
        let network = Helper { control: Arc::new(control) };
        Ok(Some(Served { network, names: names.map(|(names, _)| names) }))
    }
}

fn own_namespace() -> Result<u64, Failure> {
    let flags = SocketFlags::CLOEXEC;
    let cookie = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| namespace_cookie(&socket));
    cookie.map_err(|errno| failed("SO_NETNS_COOKIE", errno))
}

fn fork(domains: Domains, names: bool) -> Result<OwnedFd, Failure> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| failed("socketpair", errno))?;
    let work = || {
        // Whatever fails, nothing is served then.
        let _ = wait_and_serve(domains, names, theirs);
    };
    helper::fork(c"network", helper::Life::Work, work).map_err(|errno| failed("fork", errno))?;
    Ok(ours)
}

/// Serves what the launcher hands over, if it ever does, and questions about names if `names` says so.
fn wait_and_serve(domains: Domains, names: bool, channel: OwnedFd) -> Result<(), Errno> {
    let names = if names { answer_names(channel.as_fd())? } else { Vec::new() };
    let keep: Vec<_> = names.iter().map(AsFd::as_fd).chain([channel.as_fd()]).collect();
    confine::confine(&keep)?;
    let (text, sockets) = receive(channel.as_fd())?;
    let Inside { network: inside, local } =
        serde_json::from_slice(&text).map_err(|_| Errno::BADMSG)?;
    let listed = |port: &u16| inside.host_ports().any(|listed| listed.value == *port);
    let domains = Domains {
        hosts: Hosts::new(&inside).unwrap_or_default().within(domains.hosts),
        ports: domains.ports.into_iter().filter(listed).collect(),
        resolver: domains.resolver.for_programs(local),
        ..domains
    };
    let offer = |role| move |socket| Offer { socket, role };
    let offers = sockets.into_iter().map(offer(Role::Proxy));
    let offers = offers.chain(names.into_iter().map(offer(Role::Names)));
    rustix::io::ioctl_fionbio(&channel, true)?;
    serve::serve(offers.collect(), None, Some(domains), channel).map_err(|_| Errno::IO)
}

/// Makes the namespace in which questions about names are asked, and gives the launcher what makes sockets in there, or
/// says why there is none; what the questions arrive on.
fn answer_names(channel: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, Errno> {
    match Namespace::make(true) {
        Ok(Made { maker, names, .. }) => {
            netns::tell(channel, None, Some(maker.as_fd()))?;
            Ok(names)
        }
        Err(errno) => netns::tell(channel, Some(errno), None).map(|()| Vec::new()),
    }
}

/// Sends what the policy says, and then the sockets.
fn hand_over(channel: BorrowedFd<'_>, text: &[u8], offers: &[Offer]) -> Result<(), Errno> {
    for part in text.chunks(PART) {
        send(channel, part, SendFlags::NOSIGNAL)?;
    }
    let sockets: Vec<_> = offers.iter().map(|offer| offer.socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(channel, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// The other side of [`hand_over`].
fn receive(channel: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let (mut text, mut part) = (Vec::new(), [0; PART]);
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut part)];
        let length = recvmsg(channel, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        let sockets = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
            _ => Vec::new(),
        });
        let sockets: Vec<OwnedFd> = sockets.collect();
        match length {
            _ if !sockets.is_empty() => return Ok((text, sockets)),
            // The launcher is gone, or has no use for this process.
            0 => return Err(Errno::PIPE),
            _ if text.len() > LONGEST => return Err(Errno::MSGSIZE),
            _ => text.extend_from_slice(&part[..length]),
        }
    }
}
