//! What is made ready before the plan: the temporary directory, and rules that follow from the host.

use crate::cli::error::Failure;
use crate::linux::host;
use crate::linux::tmpdir::TemporaryDirectory;
use crate::plan::controls::{self, Guarded};
use crate::plan::{self, HostSupport, Plan, mounts};
use crate::policy::{Access, Effect, Origin, Pattern, ResolvedPolicy, Rule};
use crate::trap::Code;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// The private temporary directory; removed when dropped.
pub struct Temporary(pub TemporaryDirectory);

impl Drop for Temporary {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Adds what follows from what is mounted where: denials for the other names of what they deny, and
/// around controls of the kernel.
///
/// # Errors
///
/// When the kernel does not say what is mounted.
pub fn add_mounts(
    policy: &mut ResolvedPolicy,
    support: HostSupport,
    which: Guarded,
) -> Result<(), Failure> {
    // What is allowed anyway is devices one by one.
    if policy.rules.iter().all(|rule| rule.origin.is_built_in()) {
        return Ok(());
    }
    // Its size is not told: read(2) without room for it would take many calls.
    let mut mounts = Vec::with_capacity(16 << 10);
    let read =
        File::open("/proc/self/mountinfo").and_then(|mut file| file.read_to_end(&mut mounts));
    read.map_err(|error| {
        Failure::new(Code::SandboxSetupFailed, format!("cannot read /proc/self/mountinfo: {error}"))
    })?;
    let mounts = mounts::parse(&mounts);
    let aliases = mounts::aliases(&policy.rules, &mounts);
    policy.rules.extend(aliases);
    // Inside another run there is nobody to open what is beside them: that run guards them.
    if !support.nested {
        controls::guard(&mut policy.rules, &mounts, which);
    }
    Ok(())
}

/// Adds that no disk may be read where anything may not be. A rule that names one re-opens it.
pub fn without_disks(mut policy: ResolvedPolicy) -> ResolvedPolicy {
    if policy.restricts_reading() {
        policy.rules.extend(host::readable_disks().into_iter().map(|path| Rule {
            access: Access::Read,
            effect: Effect::Deny,
            always: false,
            text: path.clone(),
            pattern: Pattern::Subtree(path),
            origin: Origin::built_in("disks"),
        }));
    }
    policy
}

pub fn make_temporary(env: &[OsString]) -> Result<TemporaryDirectory, Failure> {
    let own = env
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(b"TMPDIR="))
        .and_then(|v| std::str::from_utf8(v).ok().filter(|path| path.starts_with('/')));
    let parents = own.into_iter().chain(["/tmp", "/var/tmp", "/dev/shm"]);
    TemporaryDirectory::make(parents).map_err(|errno| {
        let message =
            format!("cannot make a temporary directory in TMPDIR, /tmp or /var/tmp: {errno}");
        Failure::new(Code::SandboxSetupFailed, message)
    })
}

/// `env` with the run's temporary directory, where there is one.
pub fn with_temporary(mut env: Vec<OsString>, path: Option<&str>) -> Vec<OsString> {
    if let Some(path) = path {
        env.retain(|variable| !variable.as_bytes().starts_with(b"TMPDIR="));
        env.push(format!("TMPDIR={path}").into());
    }
    env
}

/// Refuses a plan with a shortfall that `accept` does not name.
///
/// # Errors
///
/// `POLICY_SHORTFALL` with the line of the policy, where one is about it.
pub fn refuse_shortfalls(plan: &Plan, accept: &[String]) -> Result<(), Failure> {
    let refused =
        |s: &&plan::Shortfall| !(s.acceptable && accept.iter().any(|name| name == s.name));
    let Some(shortfall) = plan.shortfalls.iter().find(refused) else {
        return Ok(());
    };
    let mut message = shortfall.message.clone();
    if shortfall.acceptable {
        message.push_str(&format!(" (to run without it: --accept {})", shortfall.name));
    }
    let failure = Failure::new(Code::ShortfallRefused, message);
    Err(match &shortfall.origin {
        None => failure,
        Some(origin) => Failure {
            file: Some(origin.file.clone()),
            line: Some(origin.line),
            key: Some(origin.key.clone()),
            ..failure
        },
    })
}
