//! `doctor` on macOS: the real thing, tried in a child.

use std::process::Command;

use serde::Serialize;

use super::sys;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this program.
    pub version: &'static str,
    /// Whether a policy is enforced here.
    pub healthy: bool,
    /// What the sandbox said.
    pub message: String,
}

/// Has a child read a file that its profile denies, and one that it allows.
#[must_use]
pub fn examine() -> Report {
    let reads = |path: &str| {
        let profile =
            c"(version 1)(allow default)(deny file-read* (literal \"/private/etc/hosts\"))";
        let (_, report) = std::io::pipe()?;
        let mut command = Command::new("/bin/cat");
        command.arg(path).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = sys::spawn(&mut command, profile.to_owned(), None, &report)?;
        Ok::<_, std::io::Error>(child.wait()?.success())
    };
    let (healthy, message) = match (reads("/private/etc/hosts"), reads("/private/etc/passwd")) {
        (Ok(false), Ok(true)) => (true, "a denied file could not be read".to_owned()),
        (Ok(true), _) => (false, "a denied file could be read".to_owned()),
        (_, Ok(false)) => (false, "an allowed file could not be read".to_owned()),
        (Err(error), _) | (_, Err(error)) => (false, format!("the sandbox: {error}")),
    };
    Report { version: env!("CARGO_PKG_VERSION"), healthy, message }
}
