//! Freezing, see "Core Interface Files" in the kernel's cgroup-v2.rst and its freezer-subsystem.rst.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file;
use super::place::Place;
use crate::oci::{Error, Result};

/// A process that the kernel holds in an uninterruptible wait keeps a cgroup from freezing this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// What freezes a container.
#[derive(Clone, Copy)]
pub enum Freezer<'a> {
    /// The cgroup of version 2: what it holds can still be killed.
    Unified(&'a Path),
    /// That of version 1's controller.
    Separate(&'a Path),
}

impl<'a> Freezer<'a> {
    /// The one to use: on a host with both, that of version 2.
    pub fn of(places: &'a [Place]) -> Option<Freezer<'a>> {
        let unified = places.iter().find(|p| p.unified && p.dir.join("cgroup.freeze").exists());
        let separate = || places.iter().find(|place| place.has("freezer"));
        match unified {
            Some(place) => Some(Freezer::Unified(&place.dir)),
            None => separate().map(|place| Freezer::Separate(&place.dir)),
        }
    }

    /// Whether it is frozen, or on the way.
    pub fn is_frozen(&self) -> bool {
        match self {
            Freezer::Unified(dir) => {
                file::read(dir, "cgroup.freeze").is_ok_and(|state| state.as_deref() == Some("1"))
            }
            Freezer::Separate(dir) => file::read(dir, "freezer.state")
                .is_ok_and(|state| state.is_some_and(|state| state != "THAWED")),
        }
    }

    /// Freezes or thaws, and waits for it. What does not freeze in time is thawed again.
    ///
    /// # Errors
    ///
    /// As write(2), or that the time is over.
    pub fn set(&self, frozen: bool) -> Result<()> {
        let result = match self {
            Freezer::Unified(dir) => set_unified(dir, frozen),
            Freezer::Separate(dir) => set_separate(dir, frozen),
        };
        if result.is_err() && frozen {
            let _ = match self {
                Freezer::Unified(dir) => file::write(dir, "cgroup.freeze", "0"),
                Freezer::Separate(dir) => file::write(dir, "freezer.state", "THAWED"),
            };
        }
        result
    }
}

fn late(dir: &Path) -> Error {
    Error::new(format!("{}: not frozen in {} seconds", dir.display(), PATIENCE.as_secs()))
}

fn set_unified(dir: &Path, frozen: bool) -> Result<()> {
    let name = "cgroup.freeze";
    file::write(dir, name, if frozen { "1" } else { "0" })
        .map_err(|errno| Error::new(format!("{}: {errno}", dir.join(name).display())))?;
    let state = u64::from(frozen);
    match wait_event(dir, "frozen", state, Instant::now() + PATIENCE) {
        Ok(true) => Ok(()),
        Ok(false) => Err(late(dir)),
        Err(errno) => Err(Error::new(format!("{}: {errno}", dir.display()))),
    }
}

/// Waits until `key` in `cgroup.events` has the value, or the cgroup is gone; false when time is over.
///
/// # Errors
///
/// As open(2).
pub fn wait_event(
    dir: &Path,
    key: &str,
    value: u64,
    until: Instant,
) -> std::result::Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let events = match rustix::fs::open(dir.join("cgroup.events"), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NODEV) => return Ok(true),
        events => events?,
    };
    loop {
        // Reading arms the next wake-up.
        let mut text = [0; 256];
        let length = match rustix::io::pread(&events, &mut text, 0) {
            Err(Errno::NODEV) => return Ok(true),
            length => length?,
        };
        let text = String::from_utf8_lossy(&text[..length]);
        if file::value(&text, key).is_none_or(|now| now == value) {
            return Ok(true);
        }
        if !wait(&mut [PollFd::new(&events, PollFlags::PRI)], until)? {
            return Ok(false);
        }
    }
}

/// poll(2) until something is there; false when time is over.
///
/// # Errors
///
/// As poll(2).
pub fn wait(fds: &mut [PollFd<'_>], until: Instant) -> std::result::Result<bool, Errno> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match rustix::event::poll(fds, Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

fn set_separate(dir: &Path, frozen: bool) -> Result<()> {
    let name = "freezer.state";
    let wanted = if frozen { "FROZEN" } else { "THAWED" };
    let until = Instant::now() + PATIENCE;
    loop {
        // Written again each time: a process that was forked meanwhile is only found by that.
        file::write(dir, name, wanted)
            .map_err(|errno| Error::new(format!("{}: {errno}", dir.join(name).display())))?;
        match file::read(dir, name)? {
            None => return Err(Error::new(format!("{}: the cgroup is gone", dir.display()))),
            Some(state) if state == wanted => return Ok(()),
            Some(_) if Instant::now() > until => return Err(late(dir)),
            // The kernel wakes nobody who waits for this file.
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
