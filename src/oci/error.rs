//! What went wrong, in the words that engines look for.

use std::fmt;

/// Why a command of the runtime failed: one line of text, the cause last.
///
/// Engines tell errors apart by their text: podman maps `permission denied` and `operation not
/// permitted` to exit code 126, `executable file not found in` and `no such file or directory` to 127.
/// So the system's own words stay in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

/// The result of a step of the runtime.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Says what was being done when something failed.
pub trait Context<T> {
    /// Puts `what` and a colon before the cause.
    ///
    /// # Errors
    ///
    /// When `self` is one.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error(format!("{what}: {error}")))
    }
}
