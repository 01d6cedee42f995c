//! What can go wrong, and the exit code of each.

use crate::trap::{Code, Mechanism, Trap};

/// Why a command did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The command line is wrong.
    Usage(String),
    /// The sandbox was in place, but the program did not start.
    Launch {
        /// The program as it was looked up.
        program: String,
        /// Symbolic error name, where the platform has one.
        errno: Option<&'static str>,
        /// The system's text.
        message: String,
    },
    /// A policy is refused.
    Policy(Failure),
    /// Anything else.
    Failure(Failure),
}

/// A failure other than of the command line or of the program's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stage that failed.
    pub code: Code,
    /// What went wrong.
    pub message: String,
    /// The layer that could not be installed.
    pub mechanism: Option<Mechanism>,
    /// The policy at fault, as named on the command line.
    pub file: Option<String>,
    /// The line of `file`, from 1.
    pub line: Option<u32>,
    /// The key path within `file`.
    pub key: Option<String>,
}

impl Failure {
    /// A failure that has nothing to do with one policy or mechanism.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { code, message, mechanism: None, file: None, line: None, key: None }
    }

    /// A failure to install `mechanism`.
    pub fn setup(mechanism: Mechanism, message: impl Into<String>) -> Failure {
        let failure = Failure::new(Code::SandboxSetupFailed, message);
        Failure { mechanism: Some(mechanism), ..failure }
    }

    /// The same failure, at fault being the policy named `file`.
    #[must_use]
    pub fn in_file(self, file: impl Into<String>) -> Failure {
        Failure { file: Some(file.into()), ..self }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Failure(failure)
    }
}

impl Error {
    /// The exit code: 2 for usage; for a program that did not start, what a shell uses, 127 where
    /// it was not found and 126 where it could not be executed; 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Launch { errno: Some("ENOENT" | "ENOTDIR"), .. } => 127,
            Error::Launch { .. } => 126,
            Error::Policy(_) | Error::Failure(_) => 1,
        }
    }

    /// The record of this error.
    #[must_use]
    pub fn into_trap(self) -> Trap {
        match self {
            Error::Usage(message) => Trap::Usage { message },
            Error::Launch { program, errno, message } => Trap::Launch { program, errno, message },
            Error::Policy(failure) | Error::Failure(failure) => {
                let Failure { code, message, mechanism, file, line, key } = failure;
                Trap::Internal { code, mechanism, message, file, line, key }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes() {
        let launch = |errno| Error::Launch { program: "x".into(), errno, message: "m".into() };
        for (error, expected) in [
            (Error::Usage("m".into()), 2),
            (launch(Some("ENOENT")), 127),
            (launch(Some("ENOTDIR")), 127),
            (launch(Some("EACCES")), 126),
            (launch(Some("ENOEXEC")), 126),
            (launch(None), 126),
            (Failure::new(Code::InternalError, "m").into(), 1),
        ] {
            assert_eq!(error.exit_code(), expected, "{error:?}");
        }
    }
}
