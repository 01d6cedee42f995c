//! Cgroups that hold the ceilings of a run.
//!
//! One cgroup a hierarchy, below the one that this process is in, so that whatever limits us limits
//! the run too. The launcher and its broker stay outside: what exhausts the run must not starve them.
//!
//! Each is locked, flock(2), for as long as its launcher lives. A later run removes what it finds
//! unlocked; no process ids are compared, which are used again.

pub mod find;
pub mod unified;

use super::sys::Errno;
use crate::plan::limits::cpu_quota;
use crate::plan::{Ceiling, LimitSupport};
use crate::policy::{Access, Effect, Limits, Origin, Pattern, Rule};
use find::Hierarchy;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a name of ours starts with; sixteen hexadecimal digits follow.
const PREFIX: &str = "landstrip-run-";

/// A controller, for a ceiling that a policy can state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Memory and swap.
    Memory,
    /// Tasks.
    Pids,
    /// Processor time.
    Cpu,
}

impl Controller {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Cpu => "cpu",
        }
    }
}

/// A ceiling that is wanted.
type Want = (Controller, u64);

/// A cgroup of our own.
#[derive(Debug)]
struct Cgroup {
    parent: OwnedFd,
    parent_path: String,
    name: String,
    /// Open and locked.
    dir: OwnedFd,
    unified: bool,
    /// Where `1` kills all in it, on version 2. Opened early: by the time that it is needed, this
    /// process may not open it any more.
    kill: Option<OwnedFd>,
}

/// The cgroups of a run, removed when dropped: after its last process has ended.
#[derive(Debug, Default)]
pub struct Cgroups {
    support: LimitSupport,
    held: Vec<(Cgroup, Vec<Controller>)>,
    aside: Option<unified::Aside>,
}

impl Cgroups {
    /// Makes cgroups for what `limits` states, as far as this host lets us; [`Cgroups::support`] says
    /// how far that is.
    pub fn make(limits: &Limits) -> Cgroups {
        let mut made = Cgroups::default();
        let amount = |limit: &Option<crate::policy::Located<u64>>| limit.as_ref().map(|l| l.value);
        let wanted: Vec<Want> = [
            (Controller::Memory, amount(&limits.memory)),
            (Controller::Pids, amount(&limits.pids)),
            (Controller::Cpu, amount(&limits.cpu)),
        ]
        .into_iter()
        .filter_map(|(controller, amount)| Some((controller, amount?)))
        .collect();
        if wanted.is_empty() {
            return made;
        }
        let mut found = mounted();
        found.retain(|hierarchy| hierarchy.own.is_some());
        let mut left = wanted;
        for hierarchy in found.iter().filter(|hierarchy| hierarchy.unified) {
            let theirs = unified::offered(hierarchy, &left);
            left.retain(|want| !theirs.contains(want));
            made.make_unified(hierarchy, &theirs);
        }
        for hierarchy in found.iter().filter(|hierarchy| !hierarchy.unified) {
            let theirs: Vec<Want> =
                left.iter().copied().filter(|want| has(hierarchy, want.0)).collect();
            // The same hierarchy can be mounted more than once.
            if theirs.is_empty() {
                continue;
            }
            left.retain(|want| !theirs.contains(want));
            made.make_separate(hierarchy, &theirs);
        }
        for (controller, _) in left {
            made.note(controller, Ceiling::Absent);
        }
        made
    }

    /// What holds which ceiling.
    pub fn support(&self) -> LimitSupport {
        self.support
    }

    /// Files of which each takes the process that writes `0` to it into one of the cgroups.
    ///
    /// # Errors
    ///
    /// As openat(2).
    pub fn entrances(&self) -> Result<Vec<OwnedFd>, Errno> {
        let entrance = |(cgroup, _): &(Cgroup, _)| {
            // Of version 1, `tasks` takes one thread, which spares the kernel the wait that moving a
            // whole process costs it, up to 20 ms. The target has one thread.
            let name = if cgroup.unified { "cgroup.procs" } else { "tasks" };
            open_at(cgroup.dir.as_fd(), name, OFlags::WRONLY)
        };
        self.held.iter().map(entrance).collect()
    }

    /// The directories that the cgroups are in, out of which they are to be removed.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.held.iter().map(|(cgroup, _)| cgroup.parent_path.as_str())
    }

    /// What counts how often the ceiling was reached; `None` where no cgroup holds it, and for
    /// processor time, which only slows down.
    pub fn counter(&self, controller: Controller) -> Option<Counter> {
        let (cgroup, _) = self.held.iter().find(|(_, held)| held.contains(&controller))?;
        let (file, word) = match (controller, cgroup.unified) {
            (Controller::Memory, true) => ("memory.events", "oom_kill"),
            (Controller::Memory, false) => ("memory.oom_control", "oom_kill"),
            (Controller::Pids, _) => ("pids.events", "max"),
            (Controller::Cpu, _) => return None,
        };
        let wakes = cgroup.unified;
        let file = open_at(cgroup.dir.as_fd(), file, OFlags::RDONLY).ok()?;
        Some(Counter { file, word, wakes })
    }

    fn make_separate(&mut self, hierarchy: &Hierarchy, wanted: &[Want]) {
        let own = hierarchy.own.as_deref().unwrap_or_default();
        let made = Cgroup::make_in(&format!("{}{own}", hierarchy.top), false);
        let made = made.and_then(|cgroup| match limit(&cgroup, wanted) {
            Ok(()) => Ok(cgroup),
            Err(errno) => {
                cgroup.remove();
                Err(errno)
            }
        });
        let ceiling = match &made {
            Ok(_) => Ceiling::CgroupV1,
            Err(errno) => ceiling_of(*errno),
        };
        self.hold(made.ok(), wanted, ceiling);
    }

    fn make_unified(&mut self, hierarchy: &Hierarchy, wanted: &[Want]) {
        // One process is in one cgroup of version 2: where it cannot have all, it has what is most.
        let mut reason = Ceiling::Absent;
        for some in parts(wanted) {
            match unified::make(hierarchy, &some) {
                Ok((cgroup, aside)) => {
                    self.hold(Some(cgroup), &some, Ceiling::CgroupV2);
                    self.aside = aside;
                    let lost: Vec<Want> =
                        wanted.iter().copied().filter(|want| !some.contains(want)).collect();
                    return self.hold(None, &lost, reason);
                }
                Err(why) if reason == Ceiling::Absent => reason = why,
                Err(_) => {}
            }
        }
        self.hold(None, wanted, reason);
    }

    fn hold(&mut self, cgroup: Option<Cgroup>, wanted: &[Want], ceiling: Ceiling) {
        for (controller, _) in wanted {
            self.note(*controller, ceiling);
        }
        if let Some(cgroup) = cgroup {
            self.held.push((cgroup, wanted.iter().map(|want| want.0).collect()));
        }
    }

    fn note(&mut self, controller: Controller, ceiling: Ceiling) {
        let slot = match controller {
            Controller::Memory => &mut self.support.memory,
            Controller::Pids => &mut self.support.pids,
            Controller::Cpu => &mut self.support.cpu,
        };
        *slot = Some(ceiling);
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for (cgroup, _) in &self.held {
            cgroup.remove();
        }
        self.aside.take();
    }
}

/// A count in a file of a cgroup.
#[derive(Debug)]
pub struct Counter {
    file: OwnedFd,
    word: &'static str,
    wakes: bool,
}

impl Counter {
    /// Whether the kernel wakes who polls it: it does for version 2.
    pub fn wakes(&self) -> bool {
        self.wakes
    }

    /// The count now; `None` where the file is gone. Arms the next wake-up of poll(2).
    pub fn read(&self) -> Option<u64> {
        let mut text = [0; 512];
        let length = rustix::io::pread(&self.file, &mut text, 0).ok()?;
        count_in(std::str::from_utf8(&text[..length]).ok()?, self.word)
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn count_in(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.parse().ok())
}

/// Keeps the run from changing cgroups by their files where one of them holds a ceiling: nothing re-opens
/// them then. Elsewhere they are controls like others.
pub fn guard(rules: &mut Vec<Rule>) {
    rules.extend(mounted().into_iter().map(|hierarchy| Rule {
        access: Access::Write,
        effect: Effect::Deny,
        always: true,
        text: hierarchy.top.clone(),
        pattern: Pattern::Subtree(hierarchy.top),
        origin: Origin::built_in("cgroups"),
    }));
}

/// The hierarchies that this process sees.
fn mounted() -> Vec<Hierarchy> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    find::hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

/// Whether a hierarchy of version 1 has the controller.
fn has(hierarchy: &Hierarchy, controller: Controller) -> bool {
    hierarchy.controllers.iter().any(|name| name == controller.name())
}

/// Every part of `all` but the empty one, larger ones first, and of two the one with the first.
fn parts(all: &[Want]) -> Vec<Vec<Want>> {
    let mut parts: Vec<Vec<Want>> = (1..1usize << all.len())
        .rev()
        .map(|bits| {
            let count = all.len();
            let taken = |at: &usize| bits >> (count - 1 - at) & 1 == 1;
            (0..count).filter(taken).map(|at| all[at]).collect()
        })
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts
}

fn ceiling_of(errno: Errno) -> Ceiling {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Ceiling::Refused,
        Errno::BUSY => Ceiling::Busy,
        Errno::NOENT => Ceiling::Absent,
        _ => Ceiling::Failed,
    }
}

/// Writes the ceilings into the files of a cgroup.
fn limit(cgroup: &Cgroup, wanted: &[Want]) -> Result<(), Errno> {
    let set = |name: &str, text: &str| write_at(cgroup.dir.as_fd(), name, text);
    // A kernel without swap accounting has no such file; nothing more can be had there.
    let perhaps = |name: &str, text: &str| match set(name, text) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    };
    for &(controller, amount) in wanted {
        let (quota, period) = cpu_quota(amount);
        match (controller, cgroup.unified) {
            (Controller::Memory, true) => {
                set("memory.max", &amount.to_string())?;
                perhaps("memory.swap.max", "0")?;
            }
            (Controller::Memory, false) => {
                set("memory.limit_in_bytes", &amount.to_string())?;
                perhaps("memory.memsw.limit_in_bytes", &amount.to_string())?;
            }
            (Controller::Pids, _) => set("pids.max", &amount.to_string())?,
            (Controller::Cpu, true) => set("cpu.max", &format!("{quota} {period}"))?,
            (Controller::Cpu, false) => {
                set("cpu.cfs_period_us", &period.to_string())?;
                match set("cpu.cfs_quota_us", &quota.to_string()) {
                    // More than a cgroup around this one has: that one is the ceiling then. Quota
                    // and period by themselves are in range, see `cpu_quota`.
                    Err(Errno::INVAL) => {}
                    result => result?,
                }
            }
        }
    }
    Ok(())
}

impl Cgroup {
    /// Makes one in the directory `parent`, and removes what dead launchers left there.
    fn make_in(parent_path: &str, unified: bool) -> Result<Cgroup, Errno> {
        const TRIES: u32 = 16;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent_path, flags, Mode::empty())?;
        remove_stale(&parent);
        for _ in 0..TRIES {
            let mut random = [0u8; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
            match rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno),
            }
            // Until it is locked, another launcher may take it for an orphan and remove it.
            if let Some(dir) = locked(&parent, &name)? {
                let kill = open_at(dir.as_fd(), "cgroup.kill", OFlags::WRONLY).ok();
                let parent_path = parent_path.to_owned();
                return Ok(Cgroup { parent, parent_path, name, dir, unified, kill });
            }
        }
        Err(Errno::AGAIN)
    }

    /// Removes it. One that still holds a process stays, for a later run to remove.
    fn remove(&self) {
        if let Some(kill) = &self.kill {
            // Nothing is left by now but where Landlock could not end everything at once.
            let _ = rustix::io::write(kill, b"1");
        }
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Opens and locks the cgroup `name`; `None` where another process has it or has removed it.
fn locked(parent: &OwnedFd, name: &str) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let dir = match open_at(parent.as_fd(), name, flags) {
        Err(Errno::NOENT | Errno::NODEV) => return Ok(None),
        dir => dir?,
    };
    match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        result => result?,
    }
    let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let same = there.is_ok_and(|there| {
        rustix::fs::fstat(&dir)
            .is_ok_and(|dir| (dir.st_dev, dir.st_ino) == (there.st_dev, there.st_ino))
    });
    Ok(same.then_some(dir))
}

/// Removes the cgroups of launchers that are gone.
fn remove_stale(parent: &OwnedFd) {
    let Ok(entries) = Dir::read_from(parent) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let digits = name.strip_prefix(PREFIX).filter(|rest| rest.len() == 16);
        if !digits.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit())) {
            continue;
        }
        if let Ok(Some(dir)) = locked(parent, name) {
            let _ = write_at(dir.as_fd(), "cgroup.kill", "1");
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

fn open_at(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())
}

fn write_at(dir: BorrowedFd<'_>, name: &str, text: &str) -> Result<(), Errno> {
    let file = open_at(dir, name, OFlags::WRONLY)?;
    rustix::io::write(&file, text.as_bytes()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_comes_first() {
        let all = [(Controller::Memory, 1), (Controller::Pids, 2), (Controller::Cpu, 3)];
        let parts: Vec<_> =
            parts(&all).iter().map(|p| p.iter().map(|w| w.1).collect::<Vec<_>>()).collect();
        let expected: [&[u64]; 7] = [&[1, 2, 3], &[1, 2], &[1, 3], &[2, 3], &[1], &[2], &[3]];
        assert_eq!(parts, expected);
    }

    #[test]
    fn counts_are_found_by_their_whole_word() {
        let text = "low 0\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(count_in(text, "oom_kill"), Some(2));
        assert_eq!(count_in(text, "oom"), Some(3));
        assert_eq!(count_in(text, "max"), None);
    }
}
