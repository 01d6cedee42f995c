//! A container in the foreground: its signals, its terminal, its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, write};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::process::{WaitOptions, waitpid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::sys::process::{self, Process, Signals};
use super::{Context, Error, Result, hooks};

/// What has to be there before the process is: signals that come meanwhile are kept.
pub struct Attached {
    signals: Signals,
    terminal: Option<OwnedFd>,
}

impl Attached {
    /// Blocks signals; with `terminal`, gives the socket that the container's terminal goes to.
    ///
    /// # Errors
    ///
    /// As signalfd(2) and socketpair(2).
    pub fn prepare(terminal: bool) -> Result<(Attached, Option<OwnedFd>)> {
        let signals = Signals::block().context("signalfd")?;
        if !terminal {
            return Ok((Attached { signals, terminal: None }, None));
        }
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .context("socketpair")?;
        Ok((Attached { signals, terminal: Some(ours) }, Some(theirs)))
    }

    /// Passes signals on to the process, and between its terminal and ours what is typed and written, until
    /// it ends. Returns its exit code, or 128 and the number of the signal that ended it.
    ///
    /// # Errors
    ///
    /// As poll(2).
    pub fn follow(self, child: &Process) -> Result<i32> {
        let master = self.terminal.as_ref().map(receive).transpose()?;
        let _raw = master.as_ref().map(|_| Raw::set());
        let mut typed: Vec<u8> = Vec::new();
        let mut open = true;
        if let Some(master) = &master {
            let flags = fcntl_getfl(master).context("fcntl")?;
            fcntl_setfl(master, flags | OFlags::NONBLOCK).context("fcntl")?;
            resize(master);
        }
        loop {
            let stdin = rustix::stdio::stdin();
            let mut fds = vec![
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&child.pidfd, PollFlags::IN),
            ];
            if let Some(master) = &master {
                let out = if typed.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                fds.push(PollFd::new(master, PollFlags::IN | out));
                if open && typed.is_empty() {
                    fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
                }
            }
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                result => result.context("poll")?,
            };
            let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            drop(fds);
            if !ready[0].is_empty() {
                self.signal(child, master.as_ref())?;
            }
            if let Some(master) = &master {
                if !ready[2].is_empty() {
                    print(master.as_fd());
                }
                if ready.get(3).is_some_and(|events| !events.is_empty()) {
                    let mut buffer = [0; 4096];
                    match read(stdin, &mut buffer) {
                        Ok(0) | Err(_) => open = false,
                        Ok(length) => typed.extend_from_slice(&buffer[..length]),
                    }
                }
                if !typed.is_empty()
                    && let Ok(length) = write(master, &typed)
                {
                    typed.drain(..length);
                }
            }
            if !ready[1].is_empty() {
                if let Some(master) = &master {
                    print(master.as_fd());
                }
                return code(child);
            }
        }
    }

    fn signal(&self, child: &Process, master: Option<&OwnedFd>) -> Result<()> {
        let Some(number) = self.signals.next().context("signalfd")? else { return Ok(()) };
        match (number, master) {
            (Signals::CHILD, _) => {}
            (Signals::WINDOW, Some(master)) => resize(master),
            (number, _) => {
                let _ended = process::signal(child.pidfd.as_fd(), number);
            }
        }
        Ok(())
    }
}

/// Whether a process ends within `limit`.
///
/// # Errors
///
/// As poll(2).
pub fn ends(pidfd: &OwnedFd, limit: Duration) -> Result<bool> {
    hooks::ends(pidfd, Some(limit))
}

/// Waits for the end of a child.
fn code(child: &Process) -> Result<i32> {
    let _ends = hooks::ends(&child.pidfd, Some(Duration::from_secs(1)))?;
    let status = waitpid(Some(child.pid), WaitOptions::empty()).context("waitpid")?;
    let (_, status) = status.ok_or_else(|| Error::new("waitpid: no status"))?;
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    Ok(status.exit_status().or(signal).unwrap_or(1))
}

/// Takes the terminal out of the message that came for it.
fn receive(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 64];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).context("terminal")?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| Error::new("terminal: none came"))
}

/// Copies what is there to standard output.
fn print(master: BorrowedFd<'_>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = read(master, &mut buffer) {
        let mut rest = &buffer[..length];
        while let Ok(written @ 1..) = write(rustix::stdio::stdout(), rest) {
            rest = &rest[written..];
            if rest.is_empty() {
                break;
            }
        }
    }
}

fn resize(master: &OwnedFd) {
    if let Ok(size) = tcgetwinsize(rustix::stdio::stdin()) {
        let _it_stays_as_it_was = tcsetwinsize(master, size);
    }
}

/// Our own terminal passes on what is typed as it is, until this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn set() -> Raw {
        let before = tcgetattr(rustix::stdio::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            let _stays_cooked = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw);
        }
        Raw(before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _stays_raw = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, before);
        }
    }
}
