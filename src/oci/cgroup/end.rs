//! The processes of a container: listing, signalling, and removing what held them.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use super::file;
use super::freeze::{Freezer, wait, wait_event};
use super::place::{Place, processes_in};
use crate::oci::sys::signal;
use crate::oci::{Error, Result};

/// How long processes that are ending may take until their cgroup is removed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every process in the container's cgroups and below, each once.
pub fn processes(places: &[Place]) -> Vec<Pid> {
    // A process is in a cgroup of every hierarchy: one of them is enough, if nobody took it out there.
    let place = places.iter().find(|place| place.unified).or(places.first());
    let Some(place) = place else { return Vec::new() };
    let mut pids: Vec<i32> = Vec::new();
    for dir in file::tree(&place.dir) {
        pids.extend(processes_in(&dir));
    }
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

/// Sends a signal to every process.
///
/// # Errors
///
/// The first process that could not get it, after all others got it.
pub fn signal_all(places: &[Place], number: i32) -> Result<()> {
    if number == libc::SIGKILL && kill_at_once(places) {
        return Ok(());
    }
    let freezer = Freezer::of(places);
    let was_frozen = freezer.is_some_and(|freezer| freezer.is_frozen());
    // While they are frozen none is made and none ends. Without a freezer, and for a kill, they are listed
    // until there is no new one.
    let held = match freezer {
        Some(freezer) if !was_frozen => freezer.set(true).is_ok(),
        _ => was_frozen,
    };
    let result = signal_each(places, number, held);
    if let Some(freezer) = freezer
        && held
        && (!was_frozen || number == libc::SIGKILL)
    {
        // A process that version 1 froze takes no signal, not even this one.
        freezer.set(false)?;
    }
    result
}

fn signal_each(places: &[Place], number: i32, held: bool) -> Result<()> {
    let mut done: Vec<Pid> = Vec::new();
    let mut refusal = None;
    loop {
        let new: Vec<Pid> =
            processes(places).into_iter().filter(|pid| !done.contains(pid)).collect();
        for pid in &new {
            match signal::kill(*pid, number) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => {
                    let pid = pid.as_raw_nonzero();
                    refusal.get_or_insert(Error::new(format!("signalling {pid}: {errno}")));
                }
            }
        }
        if held || new.is_empty() {
            return refusal.map_or(Ok(()), Err);
        }
        done.extend(new);
    }
}

/// `cgroup.kill` (Linux 5.14) ends all there is and all that is being made. False where it cannot.
fn kill_at_once(places: &[Place]) -> bool {
    let Some(place) = places.iter().find(|place| place.unified) else { return false };
    match file::write(&place.dir, "cgroup.kill", "1") {
        Ok(()) | Err(Errno::NODEV) => {}
        Err(Errno::NOENT) if !place.dir.exists() => {}
        Err(_) => return false,
    }
    // What another freezer holds would not die.
    for place in places.iter().filter(|place| place.has("freezer")) {
        let _ = file::write(&place.dir, "freezer.state", "THAWED");
    }
    true
}

/// Removes the cgroups, and those that the container made below.
///
/// # Errors
///
/// The first that stays, after all others are gone.
pub fn remove(places: &[Place]) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut refusal = None;
    for place in places {
        if let Err(errno) = remove_tree(&place.dir, place.unified, until) {
            let text = format!("removing {}: {errno}", place.dir.display());
            refusal.get_or_insert(Error::new(text));
        }
    }
    refusal.map_or(Ok(()), Err)
}

fn remove_tree(dir: &Path, unified: bool, until: Instant) -> std::result::Result<(), Errno> {
    for pass in 0.. {
        match rustix::fs::rmdir(dir) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno),
        }
        for below in file::children(dir) {
            remove_tree(&below, unified, until)?;
        }
        let there = match unified {
            true => wait_event(dir, "populated", 0, until)?,
            false => wait_processes(dir, until)?,
        };
        if !there || Instant::now() > until {
            return Err(Errno::BUSY);
        }
        if pass > 0 {
            // Empty by what its files say, and still not free.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Err(Errno::BUSY)
}

/// Waits until one of the processes in a cgroup of version 1 has ended: its files wake nobody.
fn wait_processes(dir: &Path, until: Instant) -> std::result::Result<bool, Errno> {
    let open = |pid: i32| {
        Pid::from_raw(pid).and_then(|p| rustix::process::pidfd_open(p, PidfdFlags::empty()).ok())
    };
    let ends: Vec<OwnedFd> = processes_in(dir).into_iter().filter_map(open).collect();
    if ends.is_empty() {
        // The last of them is just leaving.
        std::thread::sleep(Duration::from_millis(1));
        return Ok(true);
    }
    let mut fds: Vec<PollFd<'_>> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
    wait(&mut fds, until)
}
