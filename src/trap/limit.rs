//! The record of a ceiling that was reached.

use std::time::SystemTime;

use serde::Serialize;

use super::{Code, RuleRef, json, text};

/// A ceiling on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Memory, in bytes.
    Memory,
    /// Processes and threads.
    Pids,
    /// Time since the start of the program, in seconds.
    Time,
}

impl Resource {
    /// The code of its record.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Resource::Memory => Code::MemoryLimitReached,
            Resource::Pids => Code::PidsLimitReached,
            Resource::Time => Code::TimeLimitReached,
        }
    }

    /// What became of the run.
    #[must_use]
    pub fn message(self, count: u64) -> String {
        match (self, count) {
            (Resource::Memory, 1) => "the kernel killed a process for want of memory".to_owned(),
            (Resource::Memory, _) => {
                format!("the kernel killed {count} processes for want of memory")
            }
            (Resource::Pids, 1) => "a process or thread could not be started".to_owned(),
            (Resource::Pids, _) => format!("{count} processes or threads could not be started"),
            (Resource::Time, _) => "the run was ended".to_owned(),
        }
    }
}

/// A run has reached one of its ceilings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// Which one.
    pub resource: Resource,
    /// The ceiling, in the unit of the resource.
    pub value: u64,
    /// The line of the policy.
    pub rule: RuleRef,
    /// How often so far.
    pub count: u64,
}

impl LimitReached {
    /// The record as one line of JSON; see [`super::Trap::json_line`].
    #[must_use]
    pub fn json_line(&self, ts: SystemTime) -> String {
        json::limit_line(self, ts)
    }

    /// The record as one line of text; see [`super::Trap::text`].
    #[must_use]
    pub fn text(&self) -> String {
        text::limit_line(self)
    }
}
