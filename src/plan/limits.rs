//! The ceilings of a run: what holds each of them, and what is missing where nothing does.

use super::HostSupport;
use super::lines::{Holder, Line, Shortfall};
use crate::policy::{Limits, Located, Origin};
use serde::Serialize;

/// What holds a ceiling on the run as a whole, or why nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ceiling {
    /// A cgroup of version 2.
    CgroupV2,
    /// A cgroup of version 1.
    CgroupV1,
    /// No cgroup hierarchy that can be seen has the controller.
    Absent,
    /// This user may not make a cgroup with the controller.
    Refused,
    /// The controller cannot be given to a cgroup, since other processes are where it would hang:
    /// "no internal processes" in the kernel's cgroup-v2.rst.
    Busy,
    /// The kernel has another objection.
    Failed,
}

impl Ceiling {
    /// Who holds it; `None` where nobody does.
    #[must_use]
    pub const fn holder(self) -> Option<Holder> {
        match self {
            Ceiling::CgroupV2 => Some(Holder::CgroupV2),
            Ceiling::CgroupV1 => Some(Holder::CgroupV1),
            Ceiling::Absent | Ceiling::Refused | Ceiling::Busy | Ceiling::Failed => None,
        }
    }

    /// What keeps `controller` from being used, to follow "cannot be held: ".
    #[must_use]
    pub fn reason(self, controller: &str) -> String {
        match self {
            Ceiling::CgroupV2 | Ceiling::CgroupV1 => format!("`{controller}` is held"),
            Ceiling::Absent => {
                format!("no cgroup hierarchy here has the controller `{controller}`")
            }
            Ceiling::Refused => format!(
                "this user may not make a cgroup with the controller `{controller}` (systemd \
                 delegates one: systemd-run --user --scope -p Delegate=yes landstrip run ...)"
            ),
            Ceiling::Busy => format!(
                "the controller `{controller}` cannot be handed down, since other processes are in \
                 the cgroup that this one is in"
            ),
            Ceiling::Failed => format!("the kernel takes no ceiling on `{controller}` here"),
        }
    }
}

/// What holds the ceilings on a run, as tried out on the host for those that the policy states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitSupport {
    /// Memory; `None` where it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Ceiling>,
    /// Tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Ceiling>,
    /// Processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Ceiling>,
}

/// A ceiling that a cgroup holds, if anything does.
struct Asked<'a> {
    /// What the policy states.
    limit: &'a Located<u64>,
    controller: &'static str,
    ceiling: Ceiling,
    /// What is left where it is accepted that no cgroup holds it.
    left: &'static str,
}

/// The ceilings in `limits` that are a cgroup's matter. One that the host was not asked about is not
/// held.
fn of_cgroups(limits: &Limits, host: LimitSupport) -> impl Iterator<Item = Asked<'_>> {
    const MEMORY: &str = "each process by itself would be held to that much private memory \
        (RLIMIT_DATA), their number and what they share would not";
    const PIDS: &str = "processes of this user outside the run would count (RLIMIT_NPROC), and root \
        would not be held at all";
    const CPU: &str = "nothing would hold it";
    [
        (&limits.memory, "memory", host.memory, MEMORY),
        (&limits.pids, "pids", host.pids, PIDS),
        (&limits.cpu, "cpu", host.cpu, CPU),
    ]
    .into_iter()
    .filter_map(|(limit, controller, ceiling, left)| {
        let ceiling = ceiling.unwrap_or(Ceiling::Absent);
        limit.as_ref().map(|limit| Asked { limit, controller, ceiling, left })
    })
}

/// What nothing holds.
pub(super) fn shortfalls(limits: &Limits, host: HostSupport) -> Vec<Shortfall> {
    of_cgroups(limits, host.limits)
        .filter(|asked| asked.ceiling.holder().is_none())
        .map(|Asked { limit, controller, ceiling, left }| {
            let reason = ceiling.reason(controller);
            Shortfall {
                name: "limits",
                message: format!("this ceiling cannot be held: {reason}; if accepted, {left}"),
                origin: Some(limit.origin.clone()),
                acceptable: true,
            }
        })
        .collect()
}

/// Who holds which ceiling; those that nothing holds are not listed.
pub(super) fn lines(limits: &Limits, host: HostSupport) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |origin: &Origin, text: String, held_by| {
        lines.push(Line { origin: origin.clone(), text, held_by, note: None });
    };
    for Asked { limit, ceiling, .. } in of_cgroups(limits, host.limits) {
        if let Some(holder) = ceiling.holder() {
            add(&limit.origin, limit.typed(), holder);
        }
    }
    if let Some(time) = &limits.time {
        add(&time.origin, time.typed(), Holder::Launcher);
    }
    lines
}

/// Processor time per period, both in microseconds, for thousandths of one CPU.
///
/// The kernel takes quotas from 1 ms and periods up to 1 s. It hands the quota out at once, so a long
/// period makes long pauses: it is only used where a short one leaves too little.
#[must_use]
pub const fn cpu_quota(thousandths: u64) -> (u64, u64) {
    const SHORT: u64 = 100_000;
    const LONG: u64 = 1_000_000;
    const LEAST: u64 = 1_000;
    let period = if thousandths * (SHORT / 1000) < LEAST { LONG } else { SHORT };
    (thousandths * (period / 1000), period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        let at = |value, line| {
            Some(Located::new(value, Origin { file: "p".into(), line, key: "limits".into() }))
        };
        Limits { memory: at(1 << 20, 1), pids: at(9, 2), cpu: at(1500, 3), time: at(60, 4) }
    }

    #[test]
    fn what_no_cgroup_holds_is_a_shortfall_of_its_line() {
        let support = LimitSupport {
            memory: Some(Ceiling::CgroupV1),
            pids: Some(Ceiling::Refused),
            cpu: None,
        };
        let host = HostSupport { limits: support, ..HostSupport::default() };
        let found = shortfalls(&limits(), host);
        let lines: Vec<_> = found.iter().map(|s| s.origin.as_ref().unwrap().line).collect();
        assert_eq!(lines, [2, 3]);
        assert!(found[0].message.contains("may not make"), "{}", found[0].message);
        assert!(found[1].message.contains("has the controller `cpu`"), "{}", found[1].message);
        assert!(found.iter().all(|s| s.acceptable && s.name == "limits"));
        let held: Vec<_> =
            super::lines(&limits(), host).into_iter().map(|l| (l.text, l.held_by)).collect();
        let expected = [("1048576", Holder::CgroupV1), ("60", Holder::Launcher)];
        assert_eq!(held, expected.map(|(text, holder)| (text.to_owned(), holder)));
        assert_eq!(shortfalls(&Limits::default(), HostSupport::default()), []);
    }

    #[test]
    fn quotas_are_what_the_kernel_takes() {
        for thousandths in [1, 9, 10, 250, 1000, 64_000, 1_000_000] {
            let (quota, period) = cpu_quota(thousandths);
            assert_eq!(quota * 1000, thousandths * period, "{thousandths}");
            assert!(quota >= 1000 && (100_000..=1_000_000).contains(&period), "{thousandths}");
        }
    }
}
