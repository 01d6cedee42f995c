//! `run`: a program, or a bundle, under a policy.

use super::TrapFd;
use super::args::{RunArgs, What};
use super::error::{Error, Failure};
#[cfg(target_os = "linux")]
use super::{HostFiles, resolve::resolved, stderr_style};
use crate::trap::Code;

/// Runs it and returns its exit code; `traps` is the descriptor of `--trap-fd`.
///
/// # Errors
///
/// An error when the program did not run, or could not be supervised.
#[cfg(target_os = "linux")]
pub fn run(args: &RunArgs, what: What<'_>, _traps: Option<&TrapFd>) -> Result<u8, Error> {
    let What::Program { program, args: rest } = what else {
        return Err(Failure::new(Code::PlatformUnsupported, "bundles are not available").into());
    };
    let policy = resolved(&args.policy, Some(program), &HostFiles)?;
    let job = crate::linux::launch::Job {
        args: std::iter::once(program).chain(rest).cloned().collect(),
        env: std::env::vars_os()
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                name
            })
            .collect(),
        policy,
        accept: args.accept.clone(),
        inherit: args.inherit.clone(),
        traps: args.trap_fd.map(TrapFd::inherit).transpose()?,
        style: stderr_style(),
    };
    crate::linux::launch::run(job)
}

/// Says that this platform runs nothing yet.
///
/// # Errors
///
/// `PLATFORM_UNSUPPORTED`, always.
#[cfg(not(target_os = "linux"))]
pub fn run(_: &RunArgs, _: What<'_>, _: Option<&TrapFd>) -> Result<u8, Error> {
    Err(Failure::new(Code::PlatformUnsupported, "`run` is not available on this platform").into())
}
