//! Traps: what the sandbox reports, as JSON for programs and as text for people.
//!
//! A *trap* is one event: a denial, or a failure that kept the program from running. This module
//! is pure. It turns an event into bytes and hands them to any [`std::io::Write`]; who denied what,
//! where the bytes go and what time it is are the caller's business.
//!
//! - [`Trap`] and [`Denial`] are the records, [`Code`] their closed list of codes.
//! - [`Adviser`] works out the [`Grant`] that would allow what was denied, or why none would.
//! - [`Sink`] streams records to a descriptor that may be slow or gone.
//! - [`LimitReached`] is the record of a ceiling on the run.
//! - [`parse_answer`] reads what comes back about a query; what is no answer is a [`Trap::Control`].
//! - [`Summary`] keeps distinct denials within a fixed amount of memory for the end of a run.
//!
//! `config/trap.schema.json` describes every record.

mod advice;
mod answer;
mod code;
mod denial;
pub mod errno;
mod grant;
mod json;
mod limit;
mod sink;
mod summary;
mod text;

use std::time::SystemTime;

pub use advice::{Adviser, Denied, Obstacle};
pub use answer::{Action, Lines, Mistake, Scope, parse as parse_answer};
pub use code::{Code, Mechanism};
pub use denial::{Denial, Kind, Operation, Process, Reason, RuleRef};
pub use grant::{Grant, GrantValue};
pub use limit::{LimitReached, Resource};
pub use sink::{Sent, Sink};
pub use summary::Summary;
pub use text::printable;

/// The JSON Schema (draft 2020-12) of every record.
pub const SCHEMA: &str = include_str!("../../config/trap.schema.json");

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "a trap lives for one write, and is never stored")]
pub enum Trap {
    /// The policy denied an operation of the program.
    Denial(Denial),
    /// The run reached a ceiling.
    Limit(LimitReached),
    /// The sandbox was in place, but the program did not start.
    Launch {
        /// The program as it was looked up.
        program: String,
        /// Symbolic error name, where the platform has one.
        errno: Option<&'static str>,
        /// The system's text.
        message: String,
    },
    /// A line that came as an answer to a query was none.
    Control {
        /// The query that it names; that is denied then.
        query_id: Option<u64>,
        /// What is wrong with it.
        message: String,
    },
    /// The command line was rejected.
    Usage {
        /// What is wrong with it.
        message: String,
    },
    /// Everything else that fails before, or instead of, running the program.
    Internal {
        /// The stage that failed.
        code: Code,
        /// The layer that could not be installed.
        mechanism: Option<Mechanism>,
        /// What went wrong.
        message: String,
        /// The policy at fault, as named on the command line.
        file: Option<String>,
        /// The line of `file`, from 1.
        line: Option<u32>,
        /// The key path within `file`, for example `filesystem.denyWrite[0]`.
        key: Option<String>,
    },
}

/// Whether a denial only informs, or holds its system call until somebody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// For information; the policy was applied.
    #[default]
    Info,
    /// A query: the operation waits for the answer that carries the same `query_id`.
    Query,
}

impl State {
    /// The state as records spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Info => "info",
            State::Query => "query",
        }
    }
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One JSON object a line, for programs.
    Json,
    /// One line of text, for a person at a terminal.
    Text,
}

impl Trap {
    /// The code of this event.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Trap::Denial(denial) => denial.kind.code(),
            Trap::Limit(limit) => limit.resource.code(),
            Trap::Launch { .. } => Code::LaunchFailed,
            Trap::Control { .. } => Code::ControlIgnored,
            Trap::Usage { .. } => Code::UsageError,
            Trap::Internal { code, .. } => *code,
        }
    }

    /// The record as one line of JSON, newline included.
    ///
    /// `ts` becomes seconds since the epoch, to the microsecond. `state` and `query_id` appear in
    /// denials alone; `query_id` is 0 where nothing is asked.
    #[must_use]
    pub fn json_line(&self, ts: SystemTime, state: State, query_id: u64) -> String {
        json::trap_line(self, ts, state, query_id)
    }

    /// The record as a line of text, newline included, safe to print on a terminal. A usage error
    /// may have several lines.
    #[must_use]
    pub fn text(&self) -> String {
        text::trap_line(self)
    }
}

#[cfg(test)]
mod tests;
