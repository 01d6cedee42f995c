//! The profile as a filter needs it: checked, with actions as the kernel's values.

use super::Error;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg, LinuxSeccompOperator as Operator,
    LinuxSyscall,
};

/// `SECCOMP_RET_USER_NOTIF`.
pub(super) const NOTIFY: u32 = 0x7fc0_0000;
/// `SECCOMP_RET_ERRNO` with `ENOSYS`.
pub(super) const ENOSYS: u32 = 0x0005_0000 | 38;
/// What calls of an architecture that is not listed get, from libseccomp and so from runc and crun:
/// `SECCOMP_RET_KILL_THREAD`.
pub(super) const OTHER_ARCHITECTURE: u32 = 0;

/// The largest error number (`MAX_ERRNO` of the kernel, which cuts larger ones to this).
const MAX_ERRNO: u32 = 4095;
/// What `SECCOMP_RET_DATA` holds.
const MAX_DATA: u32 = 0xffff;
/// A system call has six arguments.
const ARGUMENTS: usize = 6;

/// How an argument is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A condition on one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) argument: u32,
    pub(super) comparison: Comparison,
    /// The bits that are compared; all, unless it compares for equality.
    pub(super) mask: u64,
    /// What they are compared with.
    pub(super) value: u64,
}

/// One entry of `syscalls`, of which any of `alternatives` may hold.
#[derive(Debug)]
pub(super) struct Rule {
    /// `SECCOMP_RET_*` with its data.
    pub(super) action: u32,
    /// Conditions that must hold together. None at all always hold.
    pub(super) alternatives: Vec<Vec<Condition>>,
}

impl Rule {
    /// Reads entry `index` of `syscalls`.
    pub(super) fn read(index: usize, entry: &LinuxSyscall) -> Result<Rule, Error> {
        let field = |name: &str| format!("syscalls[{index}].{name}");
        if let Some(at) = entry.names().iter().position(String::is_empty) {
            return Err(Error::new(field(&format!("names[{at}]")), "the name is empty"));
        }
        let action = action(entry.action(), entry.errno_ret(), || field("errnoRet"))?;
        // What tells the broker about its listener must not wait for the broker.
        if action == NOTIFY
            && let Some(at) = entry.names().iter().position(|name| name == "write")
        {
            return Err(Error::new(field(&format!("names[{at}]")), "write cannot be notified"));
        }
        let mut conditions = Vec::new();
        for (at, arg) in entry.args().iter().flatten().enumerate() {
            let condition = Condition::read(arg);
            conditions.push(condition.map_err(|e| Error::new(field(&format!("args[{at}]")), e))?);
        }
        Ok(Rule { action, alternatives: alternatives(conditions) })
    }
}

/// One alternative, of all conditions. Where two of them are about the same argument each is an
/// alternative of its own: so it was before conditions could be joined, and runc and crun kept it.
fn alternatives(conditions: Vec<Condition>) -> Vec<Vec<Condition>> {
    let mut seen = [false; ARGUMENTS];
    let twice = |c: &Condition| std::mem::replace(&mut seen[c.argument as usize], true);
    if conditions.iter().any(twice) {
        conditions.into_iter().map(|condition| vec![condition]).collect()
    } else {
        vec![conditions]
    }
}

impl Condition {
    fn read(arg: &LinuxSeccompArg) -> Result<Condition, String> {
        if arg.index() >= ARGUMENTS {
            return Err(format!("index {}: the arguments are 0 to {}", arg.index(), ARGUMENTS - 1));
        }
        let (comparison, mask, value) = match arg.op() {
            Operator::ScmpCmpEq => (Comparison::Equal, u64::MAX, arg.value()),
            Operator::ScmpCmpNe => (Comparison::NotEqual, u64::MAX, arg.value()),
            Operator::ScmpCmpLt => (Comparison::Less, u64::MAX, arg.value()),
            Operator::ScmpCmpLe => (Comparison::LessOrEqual, u64::MAX, arg.value()),
            Operator::ScmpCmpGt => (Comparison::Greater, u64::MAX, arg.value()),
            Operator::ScmpCmpGe => (Comparison::GreaterOrEqual, u64::MAX, arg.value()),
            // Here `value` is the mask.
            Operator::ScmpCmpMaskedEq => {
                let mask = arg.value();
                (Comparison::Equal, mask, arg.value_two().unwrap_or(0) & mask)
            }
        };
        Ok(Condition { argument: arg.index() as u32, comparison, mask, value })
    }

    /// Whether it compares nothing.
    pub(super) fn always_holds(&self, wide: bool) -> bool {
        self.mask & if wide { u64::MAX } else { u64::from(u32::MAX) } == 0
    }
}

/// The action for what no rule matches.
pub(super) fn default_action(profile: &LinuxSeccomp) -> Result<u32, Error> {
    if profile.default_action() == Action::ScmpActNotify {
        return Err(Error::new("defaultAction", "not every call can be notified"));
    }
    let field = || "defaultErrnoRet".to_owned();
    action(profile.default_action(), profile.default_errno_ret(), field)
}

fn action(action: Action, data: Option<u32>, field: impl Fn() -> String) -> Result<u32, Error> {
    let (largest, what) = match action {
        Action::ScmpActErrno => (MAX_ERRNO, "an error number"),
        Action::ScmpActTrace => (MAX_DATA, "what a tracer is told"),
        _ if data.is_some() => {
            return Err(Error::new(field(), format!("{action} returns no error")));
        }
        _ => return Ok(action.as_u32(None)),
    };
    match data {
        Some(data) if data > largest => {
            Err(Error::new(field(), format!("{data}: {what} is at most {largest}")))
        }
        data => Ok(action.as_u32(data)),
    }
}

/// Whether calls that are newer than the profile are left to this action too. Under any other they
/// are told that the kernel does not know them, and C libraries fall back to older ones.
pub(super) fn lets_through(action: u32) -> bool {
    const TRACE: u32 = 0x7ff0_0000;
    severity(action) >= severity(TRACE)
}

/// Orders actions as the kernel does between several filters: the smallest is obeyed
/// (`SECCOMP_RET_ACTION_FULL`, compared as a signed number).
pub(super) fn severity(action: u32) -> i32 {
    (action & 0xffff_0000) as i32
}
