//! Limits, scheduling and the like of a container's process.

use oci_spec::runtime::{
    IOPriorityClass, Linux, LinuxPersonalityDomain, LinuxSchedulerFlag, LinuxSchedulerPolicy,
    MemoryPolicyFlagType, MemoryPolicyModeType, PosixRlimitType, Process, Scheduler,
};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustix::thread::CpuSet;

use super::sys::process::{self, Scheduling};
use super::{Context, Error, Result};

/// What the runtime applies to the process with its own rights, which the process may not have.
pub struct Outside {
    limits: Vec<(PosixRlimitType, Rlimit)>,
    oom_score: Option<i32>,
    io_priority: Option<(u32, u32)>,
    scheduling: Option<Scheduling>,
}

/// What only the process itself can apply.
pub struct Own {
    personality: Option<u32>,
    memory: Option<(i32, Vec<u64>)>,
}

impl Outside {
    /// Reads the process of a document.
    ///
    /// # Errors
    ///
    /// The key that is out of range.
    pub fn of(given: &Process) -> Result<Outside> {
        let limit = |value: u64| (value != u64::MAX).then_some(value);
        let limits = given
            .rlimits()
            .iter()
            .flatten()
            .map(|l| (l.typ(), Rlimit { current: limit(l.soft()), maximum: limit(l.hard()) }));
        let io_priority = given.io_priority().as_ref().map(|io| {
            let class = match io.class() {
                IOPriorityClass::IoprioClassRt => 1,
                IOPriorityClass::IoprioClassBe => 2,
                IOPriorityClass::IoprioClassIdle => 3,
            };
            (class, u32::try_from(io.priority()).unwrap_or(0))
        });
        Ok(Outside {
            limits: limits.collect(),
            oom_score: given.oom_score_adj(),
            io_priority,
            scheduling: given.scheduler().as_ref().map(scheduling).transpose()?,
        })
    }

    /// Applies it to process `pid`.
    ///
    /// # Errors
    ///
    /// The key that the kernel refuses.
    pub fn apply(&self, pid: Pid) -> Result<()> {
        for (kind, limit) in &self.limits {
            prlimit(Some(pid), resource(*kind), *limit)
                .context(format!("process.rlimits: {kind}"))?;
        }
        if let Some(score) = self.oom_score {
            std::fs::write(
                format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()),
                score.to_string(),
            )
            .context("process.oomScoreAdj")?;
        }
        if let Some((class, level)) = self.io_priority {
            process::io_priority(pid, class, level).context("process.ioPriority")?;
        }
        if let Some(scheduling) = self.scheduling {
            process::schedule(pid, scheduling).map_err(|errno| {
                let real_time = matches!(scheduling.policy, FIFO | RR);
                let hint = match errno == Errno::PERM && real_time {
                    true => " (has its cgroup no linux.resources.cpu.realtimeRuntime?)",
                    false => "",
                };
                Error::new(format!("process.scheduler: sched_setattr: {errno}{hint}"))
            })?;
        }
        Ok(())
    }
}

fn resource(kind: PosixRlimitType) -> Resource {
    match kind {
        PosixRlimitType::RlimitCpu => Resource::Cpu,
        PosixRlimitType::RlimitFsize => Resource::Fsize,
        PosixRlimitType::RlimitData => Resource::Data,
        PosixRlimitType::RlimitStack => Resource::Stack,
        PosixRlimitType::RlimitCore => Resource::Core,
        PosixRlimitType::RlimitRss => Resource::Rss,
        PosixRlimitType::RlimitNproc => Resource::Nproc,
        PosixRlimitType::RlimitNofile => Resource::Nofile,
        PosixRlimitType::RlimitMemlock => Resource::Memlock,
        PosixRlimitType::RlimitAs => Resource::As,
        PosixRlimitType::RlimitLocks => Resource::Locks,
        PosixRlimitType::RlimitSigpending => Resource::Sigpending,
        PosixRlimitType::RlimitMsgqueue => Resource::Msgqueue,
        PosixRlimitType::RlimitNice => Resource::Nice,
        PosixRlimitType::RlimitRtprio => Resource::Rtprio,
        PosixRlimitType::RlimitRttime => Resource::Rttime,
    }
}

/// Policies of sched(7).
const FIFO: u32 = 1;
const RR: u32 = 2;
const DEADLINE: u32 = 6;

fn scheduling(given: &Scheduler) -> Result<Scheduling> {
    let read = policy(given)?;
    if read.policy == DEADLINE {
        check_deadline(given).map_err(|error| {
            Error::new(format!("process.scheduler: sched_setattr: `SCHED_DEADLINE` {error}"))
        })?;
    }
    Ok(read)
}

/// Says what sched(7) wants of the times, where the kernel would just say `EINVAL`.
fn check_deadline(given: &Scheduler) -> Result<()> {
    /// The least and the most of each, in nanoseconds.
    const LEAST: u64 = 1 << 10;
    const MOST: u64 = (1 << 63) - 1;
    let need = |key: &str, value: &Option<u64>| {
        value.ok_or_else(|| Error::new(format!("requires `{key}`")))
    };
    let runtime = need("runtime", given.runtime())?;
    let deadline = need("deadline", given.deadline())?;
    if runtime == 0 {
        return Err(Error::new("runtime must be greater than 0"));
    }
    if !(LEAST..=MOST).contains(&runtime) {
        return Err(Error::new(format!("runtime {runtime} must be between {LEAST} and {MOST}")));
    }
    if runtime > deadline {
        return Err(Error::new(format!("runtime {runtime} must be <= deadline {deadline}")));
    }
    // Without a period, it is the deadline.
    match given.period().filter(|period| *period != 0) {
        Some(period) if deadline > period => {
            Err(Error::new(format!("deadline {deadline} must be <= period {period}")))
        }
        _ => Ok(()),
    }
}

fn policy(given: &Scheduler) -> Result<Scheduling> {
    // sched(7); SCHED_ISO is reserved, and no kernel has it.
    let policy = match given.policy() {
        LinuxSchedulerPolicy::SchedOther => 0,
        LinuxSchedulerPolicy::SchedFifo => FIFO,
        LinuxSchedulerPolicy::SchedRr => RR,
        LinuxSchedulerPolicy::SchedBatch => 3,
        LinuxSchedulerPolicy::SchedIso => {
            return Err(Error::new("process.scheduler.policy: no kernel has SCHED_ISO"));
        }
        LinuxSchedulerPolicy::SchedIdle => 5,
        LinuxSchedulerPolicy::SchedDeadline => DEADLINE,
    };
    let flag = |flag: &LinuxSchedulerFlag| match flag {
        LinuxSchedulerFlag::SchedResetOnFork => 0x01,
        LinuxSchedulerFlag::SchedFlagReclaim => 0x02,
        LinuxSchedulerFlag::SchedFlagDLOverrun => 0x04,
        LinuxSchedulerFlag::SchedFlagKeepPolicy => 0x08,
        LinuxSchedulerFlag::SchedFlagKeepParams => 0x10,
        LinuxSchedulerFlag::SchedFlagUtilClampMin => 0x20,
        LinuxSchedulerFlag::SchedFlagUtilClampMax => 0x40,
    };
    let priority = given.priority().unwrap_or(0);
    Ok(Scheduling {
        policy,
        flags: given.flags().iter().flatten().map(flag).fold(0, |all, one| all | one),
        nice: given.nice().unwrap_or(0),
        priority: u32::try_from(priority)
            .map_err(|_| Error::new("process.scheduler.priority: is negative"))?,
        runtime: given.runtime().unwrap_or(0),
        deadline: given.deadline().unwrap_or(0),
        period: given.period().unwrap_or(0),
        ..Scheduling::default()
    })
}

impl Own {
    /// Reads `linux` of a document.
    ///
    /// # Errors
    ///
    /// The key that is out of range.
    pub fn of(linux: Option<&Linux>) -> Result<Own> {
        let personality = linux.and_then(|linux| linux.personality().as_ref());
        if personality.is_some_and(|p| p.flags().as_ref().is_some_and(|flags| !flags.is_empty())) {
            // config-linux.md knows none, and config.md has an error for values that are not supported.
            return Err(Error::new("linux.personality.flags: none is known"));
        }
        let personality = personality.map(|personality| match personality.domain() {
            LinuxPersonalityDomain::PerLinux => 0,
            LinuxPersonalityDomain::PerLinux32 => 8,
        });
        let memory = linux.and_then(|linux| linux.memory_policy().as_ref());
        let memory = memory.map(|policy| {
            // set_mempolicy(2)
            let mode = match policy.mode() {
                MemoryPolicyModeType::MpolDefault => 0,
                MemoryPolicyModeType::MpolPreferred => 1,
                MemoryPolicyModeType::MpolBind => 2,
                MemoryPolicyModeType::MpolInterleave => 3,
                MemoryPolicyModeType::MpolLocal => 4,
                MemoryPolicyModeType::MpolPreferredMany => 5,
                MemoryPolicyModeType::MpolWeightedInterleave => 6,
            };
            let flag = |flag: &MemoryPolicyFlagType| match flag {
                MemoryPolicyFlagType::MpolFNumaBalancing => 1 << 13,
                MemoryPolicyFlagType::MpolFRelativeNodes => 1 << 14,
                MemoryPolicyFlagType::MpolFStaticNodes => 1 << 15,
            };
            let mode = policy.flags().iter().flatten().map(flag).fold(mode, |all, one| all | one);
            let nodes = policy.nodes().as_deref().unwrap_or_default();
            mask(nodes).context("linux.memoryPolicy.nodes").map(|nodes| (mode, nodes))
        });
        Ok(Own { personality, memory: memory.transpose()? })
    }

    /// Applies it to this process.
    ///
    /// # Errors
    ///
    /// The key that the kernel refuses.
    pub fn apply(&self) -> Result<()> {
        if let Some(value) = self.personality {
            process::personality(value).context("linux.personality")?;
        }
        if let Some((mode, nodes)) = &self.memory {
            process::memory_policy(*mode, nodes).context("linux.memoryPolicy")?;
        }
        Ok(())
    }
}

/// The highest number in a list of processors or nodes.
const HIGHEST: usize = 1023;

/// The numbers of a list like `0-3,7`, cpuset(7).
fn numbers(list: &str) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    let list = list.trim();
    for part in list.split(',').map(str::trim).filter(|_| !list.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let read =
            |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number <= HIGHEST);
        match (read(first), read(last)) {
            (Some(first), Some(last)) if first <= last => numbers.extend(first..=last),
            _ => return Err(Error::new(format!("{part:?} is no number or range up to {HIGHEST}"))),
        }
    }
    Ok(numbers)
}

fn mask(list: &str) -> Result<Vec<u64>> {
    let numbers = numbers(list)?;
    let words = numbers.iter().max().map_or(0, |highest| highest / 64 + 1);
    let mut mask = vec![0; words];
    for number in numbers {
        mask[number / 64] |= 1 << (number % 64);
    }
    Ok(mask)
}

/// Lets process `pid` run on the processors of `list` only.
///
/// # Errors
///
/// A list that is none, or names no processor of this machine.
pub fn affinity(pid: Pid, list: &str) -> Result<()> {
    let mut set = CpuSet::new();
    for number in numbers(list).context("process.execCPUAffinity")? {
        set.set(number);
    }
    rustix::thread::sched_setaffinity(Some(pid), &set).context("process.execCPUAffinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(numbers("0-2,5"), Ok(vec![0, 1, 2, 5]));
        assert_eq!(mask("0,65"), Ok(vec![1, 2]));
        assert_eq!(mask(""), Ok(Vec::new()));
        for bad in ["a", "3-1", "1,,2", "-1", "99999"] {
            assert!(numbers(bad).is_err(), "{bad}");
        }
    }
}
