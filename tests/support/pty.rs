//! Programs on a terminal of their own.

use super::{Bed, PATIENCE, probe, runner, wait};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Instant;

/// A program on a terminal of its own.
pub struct Terminal {
    /// The near side of the terminal.
    pub near: OwnedFd,
    child: Child,
    seen: String,
}

impl Terminal {
    /// Starts the program; the sandbox is up to it.
    pub fn start(bed: &Bed, program: &[&str]) -> Terminal {
        let near =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
        grantpt(&near).and_then(|()| unlockpt(&near)).expect("its other side");
        let path = ptsname(&near, Vec::new()).expect("its name").into_string().expect("utf-8");
        let mut command = bed.command(&probe());
        command.arg("@spawn").arg(format!("tty={path}")).arg("--");
        command.args(program.iter().map(|a| bed.fill(a)));
        command.env("PS1", "prompt> ").env("TERM", "dumb");
        let child = command.spawn().expect("spawn");
        Terminal { near, child, seen: String::new() }
    }

    /// Starts a shell script in a sandbox.
    pub fn sandboxed(bed: &Bed, script: &str) -> Terminal {
        Terminal::boxed(bed, &["/bin/sh", "-c", script])
    }

    /// Starts a program in a sandbox.
    pub fn boxed(bed: &Bed, program: &[&str]) -> Terminal {
        let policy = bed.policy(&json!({"filesystem": {"allowWrite": ["{in}"]}}));
        let policy = policy.display().to_string();
        let runner = runner();
        let mut command: Vec<&str> = runner.iter().map(String::as_str).collect();
        command.extend(["-p", &policy, "--"]);
        command.extend(program);
        Terminal::start(bed, &command)
    }

    /// Types.
    pub fn write(&self, text: &str) {
        assert_eq!(rustix::io::write(&self.near, text.as_bytes()), Ok(text.len()));
    }

    /// Reads until `text` has come since the last call, and forgets what came up to it.
    pub fn expect(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            self.more(text, until);
        }
        let at = self.seen.find(text).expect("seen");
        self.seen.drain(..at + text.len());
    }

    /// Reads what comes next, on the way to `text`.
    fn more(&mut self, text: &str, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let limit = left.try_into().expect("a timeout");
        let mut fds = [PollFd::new(&self.near, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&limit)).expect("poll");
        let mut buffer = [0; 4096];
        let size =
            if ready == 0 { 0 } else { rustix::io::read(&self.near, &mut buffer).unwrap_or(0) };
        assert!(size > 0, "no {text:?} after {:?}", self.seen);
        self.seen += &String::from_utf8_lossy(&buffer[..size]);
    }

    /// The rest of the line.
    pub fn line(&mut self) -> String {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains('\n') {
            self.more("a line", until);
        }
        let at = self.seen.find('\n').expect("seen");
        self.seen.drain(..=at).collect()
    }

    /// Takes the terminal away.
    pub fn hang_up(&mut self) {
        // A pipe's end in its place: whoever writes to it is told that nobody reads.
        let (reader, _) = rustix::pipe::pipe().expect("a pipe");
        self.near = reader;
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a pid"), signal).expect("kill");
    }

    /// The program ends.
    pub fn ends(&mut self) {
        wait(&mut self.child, PATIENCE).expect("an end");
    }

    /// The program ends with this status; what it printed meanwhile.
    pub fn rest(&mut self, code: i32) -> String {
        let mut buffer = [0; 4096];
        // Until nobody has the other side any more, which is EIO.
        while let Ok(size) = rustix::io::read(&self.near, &mut buffer)
            && size > 0
        {
            self.seen += &String::from_utf8_lossy(&buffer[..size]);
        }
        self.ends_with(code);
        std::mem::take(&mut self.seen)
    }

    /// The program ends with this status.
    pub fn ends_with(&mut self, code: i32) {
        let status = wait(&mut self.child, PATIENCE).expect("an end");
        assert_eq!(status.code(), Some(code), "{status:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
