//! `run`: a program, or a bundle, under a policy.

use super::TrapFd;
use super::args::{RunArgs, What};
use super::error::{Error, Failure};
use crate::trap::Code;

/// Runs it and returns its exit code; `traps` is the descriptor of `--trap-fd`.
///
/// # Errors
///
/// An error when the program did not run, or could not be supervised.
pub fn run(_args: &RunArgs, _what: What<'_>, _traps: Option<&TrapFd>) -> Result<u8, Error> {
    Err(Failure::new(
        Code::PlatformUnsupported,
        "`run` is not available in this build",
    )
    .into())
}
