//! `run`: a program, or a bundle, under a policy.

use super::args::{RunArgs, What};
use super::error::{Error, Failure};
use super::resolve::resolved;
use super::{HostFiles, TrapFd, stderr_style};
use crate::trap::Code;

/// Runs it and returns its exit code; `traps` is the descriptor of `--trap-fd`.
///
/// # Errors
///
/// An error when the program did not run, or could not be supervised.
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
