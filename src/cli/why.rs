//! `why`: whether a policy allows a path or a host, and which rule decides.

use super::args::WhyArgs;
use super::error::{Error, Failure};
use crate::trap::Code;

/// Prints the verdict.
///
/// # Errors
///
/// An error when the policy cannot be resolved, or standard output cannot be written.
pub fn why(_args: &WhyArgs) -> Result<u8, Error> {
    Err(Failure::new(Code::PlatformUnsupported, "`why` is not available in this build").into())
}
