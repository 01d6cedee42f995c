//! The listener of a container's own notifications, and the agent that gets it: config-linux.md,
//! "The Container Process State".

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use oci_spec::runtime::Spec;
use serde::Serialize;

use super::channel::{connect_stream, send_descriptor};
use super::process::Program;
use super::state::View;
use super::sys::process::{self, Process};
use super::{Context, Error, Result, hooks};

/// How often to look whether the filter is installed.
const PAUSE: Duration = Duration::from_micros(200);

/// The connection to the agent.
pub struct Agent {
    socket: OwnedFd,
    metadata: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessState<'a> {
    oci_version: &'a str,
    fds: [&'static str; 1],
    pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a str>,
    state: &'a View<'a>,
}

impl Agent {
    /// Connects to `linux.seccomp.listenerPath`, where the program's filter notifies.
    ///
    /// # Errors
    ///
    /// Where nobody listens there.
    pub fn of(spec: &Spec, program: &Program) -> Result<Option<Agent>> {
        let profile = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        let Some(profile) = profile.filter(|_| program.listens()) else { return Ok(None) };
        let path = profile.listener_path().as_ref();
        let path = path.ok_or_else(|| Error::new("linux.seccomp.listenerPath: is missing"))?;
        let socket = connect_stream(path).context("linux.seccomp.listenerPath")?;
        Ok(Some(Agent { socket, metadata: profile.listener_metadata().clone() }))
    }

    /// Takes the listener out of the new process, which announced its number, and hands it over. The process
    /// makes no call meanwhile, for whatever it calls may be notified.
    ///
    /// # Errors
    ///
    /// Where the process has ended instead, or the agent is gone.
    pub fn hand_over(&self, announced: &[u8], from: &Process, state: &View<'_>) -> Result<()> {
        let number = announced.try_into().map(i32::from_ne_bytes);
        let number = number.map_err(|_| Error::new("message: no descriptor"))?;
        let listener = loop {
            let taken = process::take_descriptor(from.pidfd.as_fd(), number);
            match taken.context("linux.seccomp: pidfd_getfd")? {
                Some(listener) => break listener,
                None if hooks::ends(&from.pidfd, Some(PAUSE))? => {
                    return Err(Error::new("linux.seccomp: the process ended"));
                }
                None => {}
            }
        };
        let message = ProcessState {
            oci_version: state.oci_version,
            fds: ["seccompFd"],
            pid: from.pid.as_raw_nonzero().get(),
            metadata: self.metadata.as_deref(),
            state,
        };
        let text = serde_json::to_vec(&message).context("state")?;
        send_descriptor(self.socket.as_fd(), &text, listener.as_fd())
            .context("linux.seccomp.listenerPath")
    }
}
