//! `doctor`: what this host can enforce, tried out.

use super::args::DoctorArgs;
use super::error::{Error, Failure};
use crate::trap::Code;

/// Prints the report; the exit code is 1 where the host is unhealthy.
///
/// # Errors
///
/// An error when standard output cannot be written.
pub fn doctor(_args: &DoctorArgs) -> Result<u8, Error> {
    Err(Failure::new(Code::PlatformUnsupported, "`doctor` is not available in this build").into())
}
