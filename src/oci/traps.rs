//! Reading the traps of a container while it runs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::io::Errno;

use super::{Context, Result};

/// A file that traps are appended to, a line each.
pub struct Follower {
    file: BufReader<File>,
    line: Vec<u8>,
    changes: OwnedFd,
}

impl Follower {
    /// Reads from the beginning of the file.
    ///
    /// # Errors
    ///
    /// As open(2) and inotify_init(2).
    pub fn open(path: &Path) -> Result<Follower> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let changes = inotify::init(flags).context("inotify")?;
        inotify::add_watch(&changes, path, inotify::WatchFlags::MODIFY).context(path.display())?;
        let file = BufReader::new(File::open(path).context(path.display())?);
        Ok(Follower { file, line: Vec::new(), changes })
    }

    /// The next whole line, if there is one.
    ///
    /// # Errors
    ///
    /// As read(2).
    pub fn line(&mut self) -> Result<Option<String>> {
        self.file.read_until(b'\n', &mut self.line).context("traps")?;
        if self.line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        Ok(Some(line))
    }

    /// Waits until there may be another line, or the process ends.
    ///
    /// # Errors
    ///
    /// As poll(2).
    pub fn wait(&mut self, process: &OwnedFd) -> Result<()> {
        let mut fds =
            [PollFd::new(&self.changes, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("poll"),
        }
        // What changed is found in the file.
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.changes, &mut buffer);
        while events.next().is_ok() {}
        Ok(())
    }
}
