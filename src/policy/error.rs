//! Why a policy was refused.

use std::fmt;

use super::rule::Origin;

/// The document is not well formed, not of the right shape, or too large.
pub const PARSE_FAILED: &str = "POLICY_PARSE_FAILED";
/// A path entry is the empty string.
pub const EMPTY_PATH: &str = "POLICY_EMPTY_PATH";
/// A port is outside 1-65535.
pub const INVALID_PORT: &str = "POLICY_INVALID_PORT";
/// An entry starts with `~` and there is no home directory.
pub const HOME_UNAVAILABLE: &str = "POLICY_HOME_UNAVAILABLE";
/// A policy could not be read.
pub const IO_FAILED: &str = "POLICY_IO_FAILED";
/// A path goes through more than 40 symbolic links (path_resolution(7)).
pub const TRAVERSAL_DEPTH: &str = "POLICY_TRAVERSAL_DEPTH";
/// A number is larger than its field can hold.
pub const INTEGER_TOO_LARGE: &str = "INTEGER_TOO_LARGE";
/// A policy that may only tighten another one would widen it.
pub const NOT_TIGHTER: &str = "POLICY_NOT_TIGHTER";

/// Every code that this module gives.
pub const ALL: &[&str] = &[
    PARSE_FAILED,
    EMPTY_PATH,
    INVALID_PORT,
    HOME_UNAVAILABLE,
    IO_FAILED,
    TRAVERSAL_DEPTH,
    INTEGER_TOO_LARGE,
    NOT_TIGHTER,
];

/// A refused policy: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// One of the constants of this module.
    pub code: &'static str,
    /// The file, as the caller named it to [`parse`](super::parse()).
    pub file: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<u32>,
    /// The key path, like `filesystem.denyWrite[0]`.
    pub key: Option<String>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl PolicyError {
    /// An error without a place.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, file: None, line: None, key: None, message: message.into() }
    }

    /// An error at one entry of a policy.
    pub fn at(code: &'static str, origin: &Origin, message: impl Into<String>) -> Self {
        Self {
            code,
            file: Some(origin.file.clone()),
            line: (origin.line > 0).then_some(origin.line),
            key: (!origin.key.is_empty()).then(|| origin.key.clone()),
            message: message.into(),
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            f.write_str(file)?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for PolicyError {}
