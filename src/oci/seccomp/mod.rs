//! `linux.seccomp` of a container's `config.json`, compiled to classic BPF.
//!
//! [`compile`] is a pure function. What it leaves to whoever installs the filter is in [`Filter`]:
//! the flags for seccomp(2), and which calls are notified.
//!
//! Stages: `rule` reads the profile, `abi` knows system call numbers, `search` decides what each
//! number gets, `emit` writes instructions.
//!
//! What a profile means, where the specification leaves it open, is what runc and crun have made of it
//! through libseccomp:
//!
//! - Names that no kernel known here has are ignored. A rule with the default action says nothing.
//! - The first rule for a call that has no conditions decides, whatever the rules with conditions say.
//! - Calls with a number behind the last one that the profile names fail with `ENOSYS`, unless the
//!   default lets calls through: a C library then tries an older call, and gives up on `EPERM`.
//! - Of the arguments of 32-bit ABIs the low half is compared, and with the low half of the value.
//! - Calls of an ABI that the profile does not list kill the thread.
//!
//! Two things are stricter than there:
//!
//! - Where rules with conditions overlap, the action that the kernel would take among several filters
//!   is taken. libseccomp's choice depends on the order of its tree.
//! - 32-bit x86 reaches socket and System V IPC calls through `socketcall` and `ipc`, too, where the
//!   filter sees none of their arguments. A rule applies there if it has no conditions; with
//!   conditions it applies as if they held if it is stricter than the default, and else not at all.

mod abi;
mod calls;
mod emit;
mod rule;
mod search;
#[cfg(test)]
mod tests;

pub use abi::{Abi, number};
pub use emit::Instruction;

/// Every system call of this architecture, by name and number.
#[cfg(test)]
pub(crate) fn native_calls() -> impl Iterator<Item = (&'static str, u32)> {
    calls::CALLS.iter().filter_map(|call| Some((call.text(), call.number(Abi::NATIVE)?)))
}

use abi::{Call, multiplexer};
use emit::{ARCHITECTURE, Emitter, IF_EQUAL, NUMBER};
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompFilterFlag as Flag};
use rule::{Comparison, Condition, NOTIFY, OTHER_ARCHITECTURE, Rule, severity};
use search::Numbers;
use std::fmt;

/// The most instructions that the kernel takes (`BPF_MAXINSNS`).
pub const LIMIT: usize = 4096;

/// `SECCOMP_FILTER_FLAG_LOG`.
const FLAG_LOG: u32 = 1 << 1;
/// `SECCOMP_FILTER_FLAG_SPEC_ALLOW`.
const FLAG_SPEC_ALLOW: u32 = 1 << 2;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const FLAG_NEW_LISTENER: u32 = 1 << 3;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`.
const FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;

/// A compiled profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What the kernel runs, at most [`LIMIT`] instructions.
    pub program: Vec<Instruction>,
    /// Flags for `seccomp(SECCOMP_SET_MODE_FILTER)`. `NEW_LISTENER` is among them when calls are
    /// notified; `WAIT_KILLABLE_RECV` only then, as the kernel wants it. `TSYNC` never is: the
    /// filter is installed by a process of one thread.
    pub flags: u32,
    /// The calls that may be notified, sorted and each once. Empty: there is no listener.
    pub notified: Vec<Notified>,
}

/// A call that a profile notifies, as `seccomp_data` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notified {
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// The number.
    pub nr: u32,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The field, below `linux.seccomp`. Empty: the profile as a whole.
    pub field: String,
    /// What is wrong with it.
    pub cause: String,
}

impl Error {
    fn new(field: impl Into<String>, cause: impl Into<String>) -> Error {
        Error { field: field.into(), cause: cause.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.field.is_empty() { "" } else { "." };
        write!(f, "linux.seccomp{dot}{}: {}", self.field, self.cause)
    }
}

impl std::error::Error for Error {}

/// Compiles a profile for a machine whose own ABI is `native` ([`Abi::NATIVE`] for this one). The
/// native ABI is always filtered, whether or not the profile lists it.
///
/// # Errors
///
/// A field that is out of range, notifications that nobody would answer, more than [`LIMIT`]
/// instructions.
pub fn compile(profile: &LinuxSeccomp, native: Abi) -> Result<Filter, Error> {
    let default = rule::default_action(profile)?;
    let entries = profile.syscalls().iter().flatten();
    let rules: Vec<Rule> =
        entries.clone().enumerate().map(|(at, e)| Rule::read(at, e)).collect::<Result<_, _>>()?;
    check_listener(profile, &rules)?;

    let listed = profile.architectures().as_deref().unwrap_or_default();
    let mut abis: Vec<Numbers<'_>> = native.among(listed).into_iter().map(Numbers::new).collect();
    for (entry, rule) in entries.zip(&rules) {
        for name in entry.names() {
            let Some(call) = Call::named(name) else { continue };
            for abi in &mut abis {
                add(abi, call, name, rule, default);
            }
        }
    }
    let notified = notified(&abis);
    let program = program(abis, default);
    if program.len() > LIMIT {
        let cause = format!("{} instructions: the kernel takes {LIMIT}", program.len());
        return Err(Error::new("", cause));
    }
    let flags = flags(profile, !notified.is_empty());
    Ok(Filter { program, flags, notified })
}

/// Adds what `rule` says of `call` on one ABI.
fn add<'a>(abi: &mut Numbers<'a>, call: &Call, name: &str, rule: &'a Rule, default: u32) {
    let number = call.number(abi.abi);
    if let Some(number) = number {
        abi.name(number);
    }
    if rule.action == default {
        return;
    }
    if let Some(number) = number {
        abi.add(number, rule);
    }
    let Some(other) = multiplexer(name, abi.abi) else { return };
    let unconditional = rule.alternatives.iter().any(Vec::is_empty);
    if unconditional || severity(rule.action) < severity(default) {
        let operation = Condition {
            argument: 0,
            comparison: Comparison::Equal,
            mask: other.mask,
            value: other.operation,
        };
        abi.add_operation(other.number, rule.action, operation);
    }
}

fn check_listener(profile: &LinuxSeccomp, rules: &[Rule]) -> Result<(), Error> {
    if profile.listener_path().is_none() {
        if let Some(at) = rules.iter().position(|rule| rule.action == NOTIFY) {
            let field = format!("syscalls[{at}].action");
            return Err(Error::new(field, "SCMP_ACT_NOTIFY needs a listenerPath"));
        }
        if profile.listener_metadata().as_ref().is_some_and(|data| !data.is_empty()) {
            return Err(Error::new("listenerMetadata", "there is no listenerPath to send it to"));
        }
    }
    Ok(())
}

/// Everything that some rule would notify, whether or not a stricter one comes first.
fn notified(abis: &[Numbers<'_>]) -> Vec<Notified> {
    let mut notified = Vec::new();
    for numbers in abis {
        let entries = numbers.entries.iter().filter(|entry| entry.action == NOTIFY);
        let arch = numbers.abi.audit();
        notified.extend(entries.map(|entry| Notified { arch, nr: entry.number }));
    }
    notified.sort_unstable();
    notified.dedup();
    notified
}

fn flags(profile: &LinuxSeccomp, listens: bool) -> u32 {
    let asked = profile.flags().iter().flatten().map(|flag| match flag {
        Flag::SeccompFilterFlagLog => FLAG_LOG,
        Flag::SeccompFilterFlagSpecAllow => FLAG_SPEC_ALLOW,
        Flag::SeccompFilterFlagWaitKillableRecv if listens => FLAG_WAIT_KILLABLE_RECV,
        Flag::SeccompFilterFlagWaitKillableRecv | Flag::SeccompFilterFlagTsync => 0,
    });
    asked.fold(if listens { FLAG_NEW_LISTENER } else { 0 }, |all, flag| all | flag)
}

/// Writes the program, from its end to its start: for each `AUDIT_ARCH` the search, then the choice
/// among them.
fn program(mut abis: Vec<Numbers<'_>>, default: u32) -> Vec<Instruction> {
    let newer = !rule::lets_through(default);
    let mut out = Emitter::with_capacity(1024);
    // x32 has to stand right behind x86-64, whose numbers its own follow.
    abis.sort_by_key(|numbers| numbers.abi);
    let mut machines = Vec::new();
    for abis in abis.chunk_by_mut(|a, b| a.abi.audit() == b.abi.audit()) {
        let audit = abis[0].abi.audit();
        let found = search::write(&mut out, abis, default, newer);
        out.reach(found);
        machines.push((audit, out.load(NUMBER)));
    }
    let mut next = out.answer(OTHER_ARCHITECTURE);
    // The native one is tried first.
    for (audit, place) in machines.into_iter().rev() {
        next = out.branch(IF_EQUAL, audit, place, next);
    }
    out.reach(next);
    out.load(ARCHITECTURE);
    out.finish()
}
