//! `spec`: the OCI config.json that `run` would launch.

use super::args::SpecArgs;
use super::error::{Error, Failure};
use crate::trap::Code;

/// Prints it.
///
/// # Errors
///
/// An error when the policy cannot be lowered, or standard output cannot be written.
pub fn spec(_args: &SpecArgs) -> Result<u8, Error> {
    Err(Failure::new(Code::PlatformUnsupported, "`spec` is not available in this build").into())
}
