//! The ceilings of one run: held by cgroups, the clock, or what was accepted in their place.

use super::broker::Reporter;
use super::cgroup::{Cgroups, Controller, Counter};
use super::sys::Errno;
use crate::plan::{Ceiling, LimitSupport};
use crate::policy::{Limits, Located};
use crate::trap::{LimitReached, Resource, RuleRef, Style};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Stack of the thread that waits for the kernel's word.
const STACK: usize = 128 * 1024;

/// How often the counts are looked at where the kernel wakes nobody, in nanoseconds.
const LOOK_AGAIN: i64 = 200_000_000;

/// The ceilings of a run, and what holds them.
#[derive(Debug)]
pub struct Ceilings {
    limits: Limits,
    cgroups: Cgroups,
    told: Arc<Told>,
}

/// Which ceilings the trap descriptor has heard of: the first time of each counts.
#[derive(Debug, Default)]
struct Told {
    memory: AtomicBool,
    pids: AtomicBool,
    time: AtomicBool,
}

impl Told {
    /// Sends `reached` to the trap descriptor, once for each resource.
    fn tell(&self, reached: &LimitReached, reporter: &Reporter) {
        let told = match reached.resource {
            Resource::Memory => &self.memory,
            Resource::Pids => &self.pids,
            Resource::Time => &self.time,
        };
        if !told.swap(true, Ordering::Relaxed) {
            reporter.stream(&reached.json_line(SystemTime::now()));
        }
    }
}

impl Ceilings {
    /// Prepares what holds `limits` here. Without limits, nothing is asked or made.
    pub fn new(limits: Limits) -> Ceilings {
        Ceilings { cgroups: Cgroups::make(&limits), limits, told: Arc::default() }
    }

    /// What holds which.
    pub fn support(&self) -> LimitSupport {
        self.cgroups.support()
    }

    /// Whether a cgroup holds one.
    pub fn in_cgroups(&self) -> bool {
        let LimitSupport { memory, pids, cpu } = self.support();
        [memory, pids, cpu].into_iter().flatten().any(|ceiling| ceiling.holder().is_some())
    }

    /// See [`Cgroups::entrances`].
    ///
    /// # Errors
    ///
    /// As openat(2).
    pub fn entrances(&self) -> Result<Vec<OwnedFd>, Errno> {
        self.cgroups.entrances()
    }

    /// See [`Cgroups::places`].
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.cgroups.places()
    }

    /// How long the run may take.
    pub fn time(&self) -> Option<Duration> {
        self.limits.time.as_ref().map(|time| Duration::from_secs(time.value))
    }

    /// What is left where it was accepted that no cgroup holds a ceiling: limits of the single process,
    /// as setrlimit(2) takes them.
    pub fn process_limits(&self) -> Vec<(i32, u64)> {
        let missing = |limit: &Option<Located<u64>>, ceiling: Option<Ceiling>| {
            let held = ceiling.and_then(Ceiling::holder).is_some();
            limit.as_ref().filter(|_| !held).map(|limit| limit.value)
        };
        let mut limits: Vec<(i32, u64)> = Vec::new();
        if let Some(memory) = missing(&self.limits.memory, self.support().memory) {
            // RLIMIT_AS would also count what is only reserved, gigabytes in some runtimes.
            limits.push((libc::RLIMIT_DATA as _, memory));
        }
        if let Some(pids) = missing(&self.limits.pids, self.support().pids) {
            limits.push((libc::RLIMIT_NPROC as _, tasks_of_this_user().saturating_add(pids)));
        }
        limits
    }

    /// Streams the first time that a ceiling is reached, as it happens, or soon after where the kernel
    /// wakes nobody.
    pub fn watch(&self, reporter: &Arc<Reporter>) {
        let mut counters = self.counted();
        if counters.is_empty() {
            return;
        }
        let (told, reporter) = (Arc::clone(&self.told), Arc::clone(reporter));
        let pause = match counters.iter().all(|(_, _, counter)| counter.wakes()) {
            true => None,
            false => Some(Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN }),
        };
        let wait = move || {
            while !counters.is_empty() {
                counters.retain(|(resource, limit, counter)| match counter.read() {
                    Some(0) => true,
                    Some(count) => {
                        told.tell(&reached(*resource, limit, count), &reporter);
                        false
                    }
                    None => false,
                });
                let mut fds: Vec<_> =
                    counters.iter().map(|(_, _, c)| PollFd::new(c, PollFlags::PRI)).collect();
                if !fds.is_empty()
                    && poll(&mut fds, pause.as_ref()).is_err_and(|e| e != Errno::INTR)
                {
                    return;
                }
            }
        };
        // Without the thread the end tells what there was.
        let _ = thread::Builder::new().stack_size(STACK).spawn(wait);
    }

    /// Writes to `out` which ceilings were reached, and streams those that were not yet. `late` says
    /// whether the time was up.
    pub fn report(&self, late: bool, reporter: &Reporter, out: &mut dyn Write, style: Style) {
        let counts = self.counted().into_iter().filter_map(|(resource, limit, counter)| {
            Some((resource, limit, counter.read().filter(|&count| count > 0)?))
        });
        let time = self.limits.time.clone().filter(|_| late);
        let time = time.map(|limit| (Resource::Time, limit, 1));
        for (resource, limit, count) in counts.chain(time) {
            let reached = reached(resource, &limit, count);
            let line = match style {
                Style::Json => reached.json_line(SystemTime::now()),
                Style::Text => reached.text(),
            };
            // Standard error may be closed; there is nobody to tell then.
            let _ = out.write_all(line.as_bytes());
            self.told.tell(&reached, reporter);
        }
    }

    fn counted(&self) -> Vec<(Resource, Located<u64>, Counter)> {
        let both = [
            (Resource::Memory, &self.limits.memory, Controller::Memory),
            (Resource::Pids, &self.limits.pids, Controller::Pids),
        ];
        both.into_iter()
            .filter_map(|(resource, limit, controller)| {
                Some((resource, limit.clone()?, self.cgroups.counter(controller)?))
            })
            .collect()
    }
}

fn reached(resource: Resource, limit: &Located<u64>, count: u64) -> LimitReached {
    LimitReached {
        resource,
        value: limit.value,
        rule: RuleRef {
            file: limit.origin.file.clone(),
            line: limit.origin.line,
            key: limit.origin.key.clone(),
            text: limit.typed(),
        },
        count,
    }
}

/// Tasks that count against this user's RLIMIT_NPROC now.
fn tasks_of_this_user() -> u64 {
    let own = rustix::process::getuid().as_raw().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let tasks = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()
        };
        (field("Uid:")? == own).then(|| field("Threads:")?.parse::<u64>().ok()).flatten()
    };
    processes.flatten().filter_map(tasks).sum()
}
