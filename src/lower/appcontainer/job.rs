//! What a job object holds of `limits`.

use serde::Serialize;

use crate::policy::{Limits, Located};

/// The ceilings of a job: of all processes of a run together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Committed memory, in bytes (`JobMemoryLimit`).
    pub memory: Option<u64>,
    /// Processes at a time (`ActiveProcessLimit`). Threads are not counted.
    pub processes: Option<u32>,
    /// Processor time, in hundredths of a percent of all processors (`CpuRate`, a hard cap).
    pub cpu_rate: Option<u32>,
    /// How long the run may take, in seconds. The launcher holds this one.
    pub seconds: Option<u64>,
}

impl Job {
    /// The ceilings on a machine with so many processors. What a field cannot hold is no less than what
    /// there can be.
    #[must_use]
    pub fn of(limits: &Limits, processors: u32) -> Job {
        let value = |limit: &Option<Located<u64>>| limit.as_ref().map(|limit| limit.value);
        let rate = |thousandths: u64| {
            let all = u64::from(processors.max(1)) * 1000;
            u32::try_from((thousandths.saturating_mul(10_000) / all).clamp(1, 10_000)).unwrap_or(1)
        };
        Job {
            memory: value(&limits.memory),
            processes: value(&limits.pids).map(|pids| u32::try_from(pids).unwrap_or(u32::MAX)),
            cpu_rate: value(&limits.cpu).map(rate),
            seconds: value(&limits.time),
        }
    }
}
