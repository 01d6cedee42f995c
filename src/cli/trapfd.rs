//! The trap descriptor: opened by whoever called us, read at its own pace.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, SocketType, sockopt};

use super::error::Error;
use super::sys;

/// A writer over the descriptor of `--trap-fd` that never waits.
///
/// The descriptor's flags are shared with other processes, so it is not made non-blocking: a socket is
/// told not to wait with each message; for anything else poll(2) comes before each write, and no write
/// exceeds `PIPE_BUF`.
#[derive(Debug)]
pub struct TrapFd {
    file: File,
    /// The most bytes that a regular file may have.
    most: u64,
    /// It is a socket of this type, which takes or refuses each message without waiting.
    socket: Option<SocketType>,
}

/// What a pipe that polls writable takes without waiting, pipe(7).
const PIPE_BUF: usize = 4096;

impl TrapFd {
    /// Takes a duplicate of the inherited descriptor `fd`, which stays open.
    ///
    /// # Errors
    ///
    /// A usage error when it is not open.
    pub fn inherit(fd: i32) -> Result<TrapFd, Error> {
        match sys::duplicate(fd) {
            Ok(duplicate) => Ok(TrapFd::new(duplicate, u64::MAX)),
            Err(error) => Err(not_open("--trap-fd", fd, &error)),
        }
    }

    /// Takes `fd`. A regular file is not written to once it has `most` bytes.
    pub fn new(fd: OwnedFd, most: u64) -> TrapFd {
        let socket = sockopt::socket_type(&fd).ok();
        TrapFd { file: fd.into(), most, socket }
    }

    /// Where answers to queries come from: the same socket, if it is a connected stream.
    pub fn answers(&self) -> Option<OwnedFd> {
        let connected = || rustix::net::getpeername(&self.file).is_ok();
        if self.socket != Some(SocketType::STREAM) || !connected() {
            return None;
        }
        self.file.try_clone().ok().map(OwnedFd::from)
    }
}

/// The usage error of an `option` whose descriptor cannot be duplicated.
pub fn not_open(option: &str, fd: i32, error: &io::Error) -> Error {
    const EBADF: i32 = 9;
    Error::Usage(match error.raw_os_error() {
        Some(EBADF) => format!(
            "{option} {fd}: descriptor {fd} is not open; in a shell, `{fd}>FILE` after the command \
                opens it"
        ),
        _ => format!("{option} {fd}: {error}"),
    })
}

impl AsFd for TrapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for &TrapFd {
    /// Writes what fits at once; `WouldBlock` where nothing does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.socket.is_some() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            return Ok(rustix::net::send(&self.file, bytes, flags)?);
        }
        if self.most < u64::MAX {
            let found = self.file.metadata()?;
            if found.is_file() && found.len() >= self.most {
                return Err(ErrorKind::FileTooLarge.into());
            }
        }
        let mut fds = [PollFd::new(&self.file, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&now))? == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        (&self.file).write(&bytes[..bytes.len().min(PIPE_BUF)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trap::{Sent, Sink};
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_stalled_pipe_drops_lines_and_never_waits() {
        let (mut reader, writer) = io::pipe().unwrap();
        let trap_fd = TrapFd::inherit(writer.as_raw_fd()).unwrap();
        drop(writer);
        let mut sink = Sink::new(&trap_fd);
        let line = format!("{}\n", "x".repeat(4_999));
        let sent = (0..1_000).filter(|_| sink.send(&line) == Sent::Yes).count();
        assert!(sent > 10 && sink.dropped() > 0, "{sent} {}", sink.dropped());
        let mut text = Vec::new();
        while sink.is_pending() {
            let mut part = [0; 65_536];
            let read = reader.read(&mut part).unwrap();
            text.extend_from_slice(&part[..read]);
            sink.flush();
        }
        drop(sink);
        drop(trap_fd);
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), sent * line.len());
    }

    #[test]
    fn a_closed_pipe_is_closed() {
        let (reader, writer) = io::pipe().unwrap();
        let trap_fd = TrapFd::inherit(writer.as_raw_fd()).unwrap();
        drop((reader, writer));
        assert_eq!(Sink::new(&trap_fd).send("x\n"), Sent::Closed);
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_a_usage_error() {
        let error = TrapFd::inherit(1_000_000_000).unwrap_err();
        assert!(matches!(&error, Error::Usage(text) if text.contains("1000000000")), "{error:?}");
    }
}
