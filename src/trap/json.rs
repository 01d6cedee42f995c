//! Records as JSON lines. Field order is the documentation's, so that lines read alike.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use super::{Code, Denial, Grant, Kind, LimitReached, Mechanism, Operation, Process, Reason};
use super::{Resource, RuleRef, State, Trap};

/// `filesystem`, `network` and `ipc` records.
#[derive(Serialize)]
struct DenialRecord<'a> {
    kind: Kind,
    code: Code,
    state: &'static str,
    query_id: String,
    operation: Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    syscall: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    flags: &'a [&'static str],
    #[serde(skip_serializing_if = "Arguments::is_empty")]
    arguments: Arguments<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggested_grant: Option<&'a Grant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a RuleRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    mechanism: Mechanism,
    process: &'a Process,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    ts: f64,
}

/// Arguments of a call by name: an object.
struct Arguments<'a>(&'a [(&'static str, String)]);

impl Arguments<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// `control` records.
#[derive(Serialize)]
struct ControlRecord<'a> {
    kind: &'static str,
    code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_id: Option<String>,
    message: &'a str,
    ts: f64,
}

/// `limit` records.
#[derive(Serialize)]
struct LimitRecord<'a> {
    kind: &'static str,
    code: Code,
    resource: Resource,
    value: u64,
    rule: &'a RuleRef,
    message: String,
    count: u64,
    ts: f64,
}

/// `launch` and `usage` records.
#[derive(Serialize)]
struct FailureRecord<'a> {
    kind: &'static str,
    code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<&'static str>,
    message: &'a str,
    ts: f64,
}

/// `internal` records.
#[derive(Serialize)]
struct InternalRecord<'a> {
    kind: &'static str,
    code: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    mechanism: Option<Mechanism>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    ts: f64,
}

/// The `summary` record that closes a report.
#[derive(Serialize)]
struct OmittedRecord {
    kind: &'static str,
    code: Code,
    count: u64,
    ts: f64,
}

pub(super) fn trap_line(trap: &Trap, ts: SystemTime, state: State, query_id: u64) -> String {
    let at = seconds(ts);
    match trap {
        Trap::Denial(denial) => denial_line(denial, ts, state, query_id),
        Trap::Limit(limit) => limit_line(limit, ts),
        Trap::Launch { program, errno, message } => line(&FailureRecord {
            kind: "launch",
            code: trap.code(),
            program: Some(program),
            errno: *errno,
            message,
            ts: at,
        }),
        Trap::Control { query_id, message } => line(&ControlRecord {
            kind: "control",
            code: trap.code(),
            query_id: query_id.map(|id| id.to_string()),
            message,
            ts: at,
        }),
        Trap::Usage { message } => line(&FailureRecord {
            kind: "usage",
            code: trap.code(),
            program: None,
            errno: None,
            message,
            ts: at,
        }),
        Trap::Internal { code, mechanism, message, file, line: number, key } => {
            line(&InternalRecord {
                kind: "internal",
                code: *code,
                mechanism: *mechanism,
                message,
                file: file.as_deref(),
                line: *number,
                key: key.as_deref(),
                ts: at,
            })
        }
    }
}

/// One denial, as it happens.
pub(super) fn denial_line(d: &Denial, ts: SystemTime, state: State, query_id: u64) -> String {
    line(&denial_record(d, seconds(ts), state, query_id, None))
}

/// A ceiling that was reached.
pub(super) fn limit_line(limit: &LimitReached, ts: SystemTime) -> String {
    line(&LimitRecord {
        kind: "limit",
        code: limit.resource.code(),
        resource: limit.resource,
        value: limit.value,
        rule: &limit.rule,
        message: limit.resource.message(limit.count),
        count: limit.count,
        ts: seconds(ts),
    })
}

/// A denial that happened `count` times, first at `ts`.
pub(super) fn counted_line(denial: &Denial, count: u64, ts: SystemTime) -> String {
    line(&denial_record(denial, seconds(ts), State::Info, 0, Some(count)))
}

/// The record that counts the denials which a report leaves out, the last of them at `ts`.
pub(super) fn omitted_line(count: u64, ts: SystemTime) -> String {
    let (kind, code, ts) = ("summary", Code::DenialsOmitted, seconds(ts));
    line(&OmittedRecord { kind, code, count, ts })
}

fn denial_record(
    denial: &Denial,
    ts: f64,
    state: State,
    query_id: u64,
    count: Option<u64>,
) -> DenialRecord<'_> {
    DenialRecord {
        kind: denial.kind,
        code: denial.kind.code(),
        state: state.as_str(),
        query_id: query_id.to_string(),
        operation: denial.operation,
        path: denial.path.as_deref(),
        requested_path: denial.requested_path.as_deref(),
        old_path: denial.old_path.as_deref(),
        new_path: denial.new_path.as_deref(),
        target: denial.target.as_deref(),
        syscall: denial.syscall,
        errno: denial.errno,
        flags: &denial.flags,
        arguments: Arguments(&denial.arguments),
        reason: denial.reason,
        suggested_grant: denial.suggested_grant.as_ref(),
        rule: denial.rule.as_ref(),
        message: denial.message.as_deref(),
        // The layers that tell of each denial: one knows the call, one the error, and one neither.
        mechanism: match (denial.syscall, denial.errno) {
            (Some(_), _) => Mechanism::Seccomp,
            (None, Some(_)) => Mechanism::Seatbelt,
            (None, None) => Mechanism::Proxy,
        },
        process: &denial.process,
        count,
        ts,
    }
}

/// Seconds since the epoch, to the microsecond; negative before it.
#[allow(clippy::cast_precision_loss, reason = "microseconds stay below 2^53 until the year 2255")]
fn seconds(ts: SystemTime) -> f64 {
    let micros = match ts.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_micros() as f64,
        Err(before) => -(before.duration().as_micros() as f64),
    };
    micros / 1e6
}

fn line<T: Serialize>(record: &T) -> String {
    // Strings, numbers and fixed keys only: there is nothing in a record that can fail.
    let mut line = serde_json::to_string(record).unwrap_or_default();
    line.push('\n');
    line
}
