//! The network helper: a process of ours that serves sockets of a run from outside of its sandbox.
//!
//! It is forked before the launcher enters its outer domain, so that it can reach what the launcher
//! cannot, and gives up everything else: no file, no capability, nothing that the launcher has open. The
//! sockets are made, bound and listening before: in the host's network namespace, or in one of the run.
//! It is started where a policy needs it only.
//!
//! Whatever ends it closes every connection, and no new one is accepted: the program is left without.

mod confine;
mod relay;
mod serve;

use super::sys::{Errno, helper};
use crate::cli::error::Failure;
use crate::trap::Code;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What is done with what arrives on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A listening TCP socket: each connection is joined with one to this port of the host's loopback,
    /// whatever goes over it.
    Host(u16),
    /// The same with this port of loopback in the run's network namespace.
    Run(u16),
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
    helper: helper::Helper,
    /// The other end of the helper's channel: it ends with this.
    _control: OwnedFd,
}

impl Network {
    /// Starts the helper, to be called while this process has one thread and is not restricted. `maker` makes
    /// sockets in the run's network namespace, see [`Namespace::make`](super::namespace::Namespace::make).
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED`, as socketpair(2) and fork(2).
    pub fn start(offers: Vec<Offer>, maker: Option<OwnedFd>) -> Result<Network, Failure> {
        let failed = |what: &str, errno: Errno| {
            let text = format!("the network helper: {what}: {}", io::Error::from(errno));
            Failure::new(Code::SandboxSetupFailed, text)
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|errno| failed("socketpair", errno))?;
        let work = || {
            let sockets = offers.iter().map(|offer| offer.socket.as_fd());
            let others = [Some(theirs.as_fd()), maker.as_ref().map(AsFd::as_fd)];
            let keep: Vec<_> = sockets.chain(others.into_iter().flatten()).collect();
            // Whatever fails, nothing is served then.
            if confine::confine(&keep).is_ok() {
                let _ = serve::serve(offers, maker, theirs);
            }
        };
        let helper = helper::fork(c"network", work).map_err(|errno| failed("fork", errno))?;
        Ok(Network { helper, _control: ours })
    }

    /// The helper's pid.
    pub fn pid(&self) -> i32 {
        self.helper.pid()
    }
}
