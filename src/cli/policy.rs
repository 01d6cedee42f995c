//! `policy`: look into policies without running anything.

use super::args::{PolicyCommand, SchemaArgs, SchemaName};
use super::error::{Error, Failure};
use super::output;
use crate::trap::{self, Code};

/// Does what `command` says.
///
/// # Errors
///
/// An error when a policy cannot be read, or standard output cannot be written.
pub fn policy(command: &PolicyCommand) -> Result<u8, Error> {
    match command {
        PolicyCommand::Schema(args) => schema(*args),
        _ => Err(Failure::new(Code::PlatformUnsupported, "not available in this build").into()),
    }
}

fn schema(args: SchemaArgs) -> Result<u8, Error> {
    match args.name {
        SchemaName::Trap | SchemaName::Policy => output::bytes(trap::SCHEMA.as_bytes())?,
    }
    Ok(0)
}
