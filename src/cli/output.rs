//! Printing to standard output, where the reader may be gone.

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;

use super::args::OutputFormat;
use super::error::{Error, Failure};
use crate::trap::Code;

/// Prints `document` as JSON, or what `text` returns where a person reads.
///
/// # Errors
///
/// Returns a failure when standard output cannot be written. A reader that has left is none.
pub fn document<T: Serialize>(
    format: Option<OutputFormat>,
    document: &T,
    text: impl FnOnce() -> String,
) -> Result<(), Error> {
    let default = || match io::stdout().is_terminal() {
        true => OutputFormat::Text,
        false => OutputFormat::Json,
    };
    match format.unwrap_or_else(default) {
        OutputFormat::Text => bytes(text().as_bytes()),
        OutputFormat::Json => json(document),
    }
}

/// Prints `document` as JSON.
///
/// # Errors
///
/// As [`document`].
pub fn json<T: Serialize>(document: &T) -> Result<(), Error> {
    let mut text = serde_json::to_vec_pretty(document)
        .map_err(|error| Failure::new(Code::InternalError, error.to_string()))?;
    text.push(b'\n');
    bytes(&text)
}

/// Prints `bytes` as they are.
///
/// # Errors
///
/// As [`document`].
pub fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let message = format!("cannot write to standard output: {error}");
            Err(Failure::new(Code::InternalError, message).into())
        }
        _ => Ok(()),
    }
}
