//! Cgroups of version 2, where a controller has to be handed down from level to level, and only a
//! cgroup without processes of its own may hand it down: see "Organizing Processes and Threads" in
//! the kernel's cgroup-v2.rst.

use super::find::Hierarchy;
use super::{Cgroup, Want, ceiling_of, limit, open_at, write_at};
use crate::linux::sys::Errno;
use crate::plan::Ceiling;
use rustix::fs::OFlags;
use std::os::fd::{AsFd, OwnedFd};

/// Files that limit a cgroup, and what each says where it does not: its first word.
const FREE: [(&str, &str); 7] = [
    ("memory.max", "max"),
    ("memory.high", "max"),
    ("memory.swap.max", "max"),
    ("pids.max", "max"),
    ("cpu.max", "max"),
    ("cpuset.cpus", ""),
    ("io.max", ""),
];

/// Which of `wanted` the hierarchy has a controller for. In a hybrid of both versions each controller
/// belongs to one of them.
pub(super) fn offered(hierarchy: &Hierarchy, wanted: &[Want]) -> Vec<Want> {
    let names = words(format!("{}/cgroup.controllers", hierarchy.top));
    wanted.iter().copied().filter(|want| names.iter().any(|name| name == want.0.name())).collect()
}

/// Makes a cgroup with the ceilings `wanted` in the nearest place that takes one: the cgroup that this
/// process is in, or one above, but none above one that is itself limited: the run must not escape
/// what limits us.
pub(super) fn make(
    hierarchy: &Hierarchy,
    wanted: &[Want],
) -> Result<(Cgroup, Option<Aside>), Ceiling> {
    let mut own = hierarchy.own.as_deref().ok_or(Ceiling::Refused)?;
    let mut reason = Ceiling::Absent;
    loop {
        let place = format!("{}{own}", hierarchy.top);
        match make_in(&place, wanted) {
            Ok(made) => return Ok(made),
            // The nearest place that has the controllers is the one to be told about.
            Err(why) if reason == Ceiling::Absent => reason = why,
            Err(_) => {}
        }
        match own.rfind('/') {
            Some(at) if !is_limited(&place) => own = &own[..at],
            _ => return Err(reason),
        }
    }
}

fn make_in(place: &str, wanted: &[Want]) -> Result<(Cgroup, Option<Aside>), Ceiling> {
    let offered = words(format!("{place}/cgroup.controllers"));
    if !wanted.iter().all(|want| offered.iter().any(|name| name == want.0.name())) {
        return Err(Ceiling::Absent);
    }
    // The kernel asks for this right when a process moves from here, or from below, to below.
    let procs = format!("{place}/cgroup.procs");
    rustix::fs::access(&procs, rustix::fs::Access::WRITE_OK).map_err(ceiling_of)?;
    // Some controllers can be handed down beside processes, and then only to threads of those. The root
    // of the hierarchy is free of this; it alone has no type.
    let held_up = rustix::fs::access(format!("{place}/cgroup.type"), rustix::fs::Access::EXISTS)
        .is_ok()
        && !words(&procs).is_empty();
    let aside = match held_up {
        true if is_alone(&procs) => Some(Aside::step(place, wanted)?),
        true => return Err(Ceiling::Busy),
        false => {
            give(place, wanted).map_err(ceiling_of)?;
            None
        }
    };
    let cgroup = Cgroup::make_in(place, true).map_err(ceiling_of)?;
    match limit(&cgroup, wanted) {
        Ok(()) => Ok((cgroup, aside)),
        Err(errno) => {
            cgroup.remove();
            Err(ceiling_of(errno))
        }
    }
}

fn give(place: &str, wanted: &[Want]) -> Result<(), Errno> {
    hand_down(place, wanted.iter().map(|want| want.0.name()))
}

/// Gives the controllers to the cgroups in `place`. What was given is left: others may rely on it.
///
/// # Errors
///
/// As write(2) on `cgroup.subtree_control`: `EBUSY` where `place` holds processes, `ENOENT` where it does
/// not have a controller itself.
pub fn hand_down<'a>(place: &str, controllers: impl Iterator<Item = &'a str>) -> Result<(), Errno> {
    let given = words(format!("{place}/cgroup.subtree_control"));
    let missing: Vec<String> = controllers
        .filter(|wanted| !given.iter().any(|name| name == wanted))
        .map(|name| format!("+{name}"))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => write_at(open(place)?.as_fd(), "cgroup.subtree_control", &missing.join(" ")),
    }
}

/// Whether this is the only process that `procs` lists.
fn is_alone(procs: &str) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    words(procs) == [own]
}

fn is_limited(place: &str) -> bool {
    FREE.iter().any(|(file, free)| {
        std::fs::read_to_string(format!("{place}/{file}"))
            .is_ok_and(|text| text.split_ascii_whitespace().next().unwrap_or_default() != *free)
    })
}

/// This process has stepped aside, into a cgroup beside that of the run, so that the one which it was
/// alone in may hand controllers down. It steps back when this is dropped.
#[derive(Debug)]
pub(super) struct Aside {
    leaf: Cgroup,
    given: String,
    /// Files of the one stepped out of, opened early as in [`Cgroup`].
    control: OwnedFd,
    procs: OwnedFd,
}

impl Aside {
    fn step(place: &str, wanted: &[Want]) -> Result<Aside, Ceiling> {
        let home = open(place).map_err(ceiling_of)?;
        let leaf = Cgroup::make_in(place, true).map_err(ceiling_of)?;
        let names: Vec<_> = wanted.iter().map(|want| format!("-{}", want.0.name())).collect();
        let file = |name| open_at(home.as_fd(), name, OFlags::WRONLY).map_err(ceiling_of);
        let (control, procs) = (file("cgroup.subtree_control")?, file("cgroup.procs")?);
        let aside = Aside { leaf, given: names.join(" "), control, procs };
        write_at(aside.leaf.dir.as_fd(), "cgroup.procs", "0").map_err(ceiling_of)?;
        give(place, wanted).map_err(ceiling_of)?;
        Ok(aside)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Where this fails, the leaf stays and we stay in it; a later run removes it.
        let _ = rustix::io::write(&self.control, self.given.as_bytes());
        if rustix::io::write(&self.procs, b"0").is_ok() {
            self.leaf.remove();
        }
    }
}

fn open(place: &str) -> Result<OwnedFd, Errno> {
    open_at(rustix::fs::CWD, place, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The words of a file; none where it cannot be read.
pub fn words(path: impl AsRef<std::path::Path>) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}
