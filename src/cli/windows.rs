//! `windows`: restricted-user execution, on Windows alone.

use super::args::WindowsCommand;
use super::error::{Error, Failure};
use crate::trap::Code;

/// Does what `command` says.
///
/// # Errors
///
/// `PLATFORM_UNSUPPORTED`, always: there is no other implementation than AppContainer yet.
pub fn windows(command: WindowsCommand) -> Result<u8, Error> {
    let name = match command {
        WindowsCommand::Install => "install",
        WindowsCommand::Status => "status",
        WindowsCommand::Uninstall => "uninstall",
    };
    let message = match cfg!(windows) {
        true => format!(
            "`windows {name}`: programs run in AppContainers; there are no restricted users yet"
        ),
        false => format!("`windows {name}` is available in Windows builds only"),
    };
    Err(Failure::new(Code::PlatformUnsupported, message).into())
}
