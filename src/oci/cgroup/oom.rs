//! Being told that the kernel ran out of a container's memory, for `events`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file;
use super::freeze::wait;
use super::place::Place;
use crate::oci::{Context, Error, Result};

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Memory ran out: a process was ended, or all wait where the killer is off.
    OutOfMemory,
    /// No process is left, or no cgroup.
    Gone,
    /// The time is over.
    Late,
}

/// A container's memory, watched.
pub struct Watch {
    dir: PathBuf,
    source: Source,
}

enum Source {
    /// An eventfd(2) that the kernel counts up, see "OOM Control" in its memory.rst of version 1. It is
    /// counted up once more when the cgroup is removed.
    Counter(OwnedFd),
    /// `memory.events` and `cgroup.events` of version 2, and how many were killed so far.
    Files { memory: OwnedFd, cgroup: OwnedFd, killed: u64 },
}

impl Watch {
    /// Starts to watch.
    ///
    /// # Errors
    ///
    /// Without a memory controller.
    pub fn new(places: &[Place]) -> Result<Watch> {
        if let Some(place) = places.iter().find(|place| place.has("memory")) {
            return Watch::separate(place);
        }
        match places.iter().find(|p| p.unified && p.dir.join("memory.events").exists()) {
            Some(place) => Watch::unified(place),
            None => Err(Error::new("no memory controller tells when the container runs out of it")),
        }
    }

    fn separate(place: &Place) -> Result<Watch> {
        let control = open(place, "memory.oom_control")?;
        let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).context("eventfd")?;
        let number = |fd: &OwnedFd| std::os::fd::AsRawFd::as_raw_fd(fd);
        let line = format!("{} {}", number(&counter), number(&control));
        let name = "cgroup.event_control";
        file::write(&place.dir, name, &line).context(place.dir.join(name).display())?;
        Ok(Watch { dir: place.dir.clone(), source: Source::Counter(counter) })
    }

    fn unified(place: &Place) -> Result<Watch> {
        let memory = open(place, "memory.events")?;
        let cgroup = open(place, "cgroup.events")?;
        let killed = count(&memory, "oom_kill").unwrap_or(0);
        Ok(Watch { dir: place.dir.clone(), source: Source::Files { memory, cgroup, killed } })
    }

    /// Waits for what is next. The end of the process whose pidfd is `first` is that of the container.
    ///
    /// # Errors
    ///
    /// As poll(2).
    pub fn wait(&mut self, until: Instant, first: &OwnedFd) -> Result<Event> {
        self.next(until, first).context(self.dir.display())
    }

    fn next(&mut self, until: Instant, first: &OwnedFd) -> std::result::Result<Event, Errno> {
        loop {
            let found = match &mut self.source {
                Source::Counter(counter) => {
                    if !self.dir.join("memory.oom_control").exists() {
                        return Ok(Event::Gone);
                    }
                    let mut fds =
                        [PollFd::new(counter, PollFlags::IN), PollFd::new(first, PollFlags::IN)];
                    if !wait(&mut fds, until)? {
                        return Ok(Event::Late);
                    }
                    if fds[0].revents().is_empty() {
                        return Ok(Event::Gone);
                    }
                    rustix::io::read(&*counter, &mut [0; 8])?;
                    let there = self.dir.join("memory.oom_control").exists();
                    Some(if there { Event::OutOfMemory } else { Event::Gone })
                }
                Source::Files { memory, cgroup, killed } => {
                    // Reading arms the next wake-up; so it comes before waiting.
                    let now = count(memory, "oom_kill");
                    let populated = count(cgroup, "populated");
                    match (now, populated) {
                        (Some(now), _) if now > *killed => {
                            *killed = now;
                            Some(Event::OutOfMemory)
                        }
                        (None, _) | (_, None | Some(0)) => Some(Event::Gone),
                        _ => {
                            let mut fds = [
                                PollFd::new(memory, PollFlags::PRI),
                                PollFd::new(cgroup, PollFlags::PRI),
                                PollFd::new(first, PollFlags::IN),
                            ];
                            match wait(&mut fds, until)? {
                                false => Some(Event::Late),
                                true if fds[2].revents().is_empty() => None,
                                true => Some(Event::Gone),
                            }
                        }
                    }
                }
            };
            if let Some(event) = found {
                return Ok(event);
            }
        }
    }
}

fn open(place: &Place, name: &str) -> Result<OwnedFd> {
    let path = place.dir.join(name);
    rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context(path.display())
}

/// A count in an open file; `None` where the cgroup is gone.
fn count(fd: &OwnedFd, key: &str) -> Option<u64> {
    let mut text = [0; 1024];
    let length = rustix::io::pread(fd, &mut text, 0).ok()?;
    file::value(std::str::from_utf8(&text[..length]).ok()?, key)
}
