//! The helper of a container: a process outside of it, for a launcher inside.
//!
//! The runtime forks it, in its own namespaces and cgroup, before the container has a process, and ends while the
//! container lives on. Until then it knows the policy, and nothing to serve: the sockets are made by the launcher, in
//! the container's network namespace, where they stay wherever they are held. With them comes what the policy is
//! in there, which one that is attached to the program may have narrowed. More than the runtime has read, nobody inside
//! can open.

use super::channel::Control;
use super::{Domains, Network as Helper, Offer, Role, confine, failed, held, proxy_offers, serve};
use crate::cli::error::Failure;
use crate::linux::sys::{Errno, helper, socket::namespace_cookie};
use crate::policy::{Hosts, Network};
use crate::trap::Code;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socket_with,
    socketpair,
};
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
    /// Addresses that stand for names to it, see [`Domains::places`].
    places: HashSet<IpAddr>,
    /// The runtime's network namespace.
    namespace: u64,
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
        let domains = || -> Result<Domains, Failure> {
            let domains = hosts.map(|hosts| Domains::new(hosts, env, false)).transpose()?;
            Ok(Domains { ports, ..domains.unwrap_or_default() })
        };
        let domains = needed.then(domains).transpose()?;
        let places = domains.iter().flat_map(|domains| domains.places.keys().copied()).collect();
        let helper = domains.map(fork).transpose()?;
        Ok(Outside { helper, places, namespace: own_namespace()? })
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
    pub fn serve(self, network: &Network) -> Result<Option<Helper>, Failure> {
        // The loopback of the runtime is reached without it.
        let ports: Vec<u16> = match self.left_for()? {
            Some(_) => network.host_ports().map(|port| port.value).collect(),
            None => Vec::new(),
        };
        let needed = network.lists_hosts() || !ports.is_empty();
        let Some(channel) = self.helper.filter(|_| needed) else { return Ok(None) };
        let offers = proxy_offers(|family| {
            let family = AddressFamily::from_raw(family as u16);
            socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        })?;
        let network = Network { allow_unix_sockets: Vec::new(), ..network.clone() };
        let text = serde_json::to_vec(&network).map_err(|error| {
            Failure::new(Code::SandboxSetupFailed, format!("the network helper: {error}"))
        })?;
        hand_over(channel.as_fd(), &text, &offers).map_err(|errno| failed("it is gone", errno))?;
        let control = Control::new(channel, held(&offers)?, ports, self.places);
        Ok(Some(Helper { control: Arc::new(control) }))
    }
}

fn own_namespace() -> Result<u64, Failure> {
    let flags = SocketFlags::CLOEXEC;
    let cookie = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| namespace_cookie(&socket));
    cookie.map_err(|errno| failed("SO_NETNS_COOKIE", errno))
}

fn fork(domains: Domains) -> Result<OwnedFd, Failure> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| failed("socketpair", errno))?;
    let work = || {
        // Whatever fails, nothing is served then.
        let _ = wait_and_serve(domains, theirs);
    };
    helper::fork(c"network", helper::Life::Work, work).map_err(|errno| failed("fork", errno))?;
    Ok(ours)
}

/// Serves what the launcher hands over, if it ever does.
fn wait_and_serve(domains: Domains, channel: OwnedFd) -> Result<(), Errno> {
    confine::confine(&[channel.as_fd()])?;
    let (text, sockets) = receive(channel.as_fd())?;
    let inside: Network = serde_json::from_slice(&text).map_err(|_| Errno::BADMSG)?;
    let listed = |port: &u16| inside.host_ports().any(|listed| listed.value == *port);
    let domains = Domains {
        hosts: Hosts::new(&inside).unwrap_or_default().within(domains.hosts),
        ports: domains.ports.into_iter().filter(listed).collect(),
        ..domains
    };
    let offers = sockets.into_iter().map(|socket| Offer { socket, role: Role::Proxy });
    rustix::io::ioctl_fionbio(&channel, true)?;
    serve::serve(offers.collect(), None, Some(domains), channel).map_err(|_| Errno::IO)
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
