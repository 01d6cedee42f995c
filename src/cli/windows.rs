//! `windows`: restricted-user execution, on Windows alone.

use super::args::WindowsCommand;
use super::error::{Error, Failure};
use crate::trap::Code;

/// Does what `command` says.
///
/// # Errors
///
/// `PLATFORM_UNSUPPORTED` on any other platform.
pub fn windows(command: WindowsCommand) -> Result<u8, Error> {
    let name = match command {
        WindowsCommand::Install => "install",
        WindowsCommand::Status => "status",
        WindowsCommand::Uninstall => "uninstall",
    };
    let message = format!("`windows {name}` is available in Windows builds only");
    Err(Failure::new(Code::PlatformUnsupported, message).into())
}
