//! `doctor` on Windows: the real thing, tried with a program of the system.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::cli::Error;
use crate::lower::Run;
use crate::lower::appcontainer::path;
use crate::policy::{Access, Effect, Origin, Pattern, ResolvedPolicy, Rule};

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this program.
    pub version: &'static str,
    /// What holds policies here.
    pub implementation: &'static str,
    /// Whether a policy is enforced here.
    pub healthy: bool,
    /// What was tried, and what came of it.
    pub message: String,
}

/// Has a program look for a file in a directory that its policy opens, and in one that it does not.
#[must_use]
pub fn examine() -> Report {
    let (healthy, message) = match tried() {
        Ok((true, false)) => {
            (true, "a closed file could not be read, and an open one could".to_owned())
        }
        Ok((_, true)) => (false, "a closed file could be read".to_owned()),
        Ok((false, false)) => (false, "an open file could not be read".to_owned()),
        Err(message) => (false, message),
    };
    Report { version: env!("CARGO_PKG_VERSION"), implementation: "appcontainer", healthy, message }
}

/// Whether the open file could be read, and the closed one.
fn tried() -> Result<(bool, bool), String> {
    let directory = std::env::temp_dir().join(format!("landstrip-doctor-{}", std::process::id()));
    let result = reads(&directory);
    // What cannot be removed stays.
    let _ = fs::remove_dir_all(&directory);
    result
}

fn reads(directory: &Path) -> Result<(bool, bool), String> {
    let made = |error: io::Error| format!("{}: {error}", directory.display());
    for name in ["open", "closed"] {
        fs::create_dir_all(directory.join(name)).map_err(made)?;
        fs::write(directory.join(name).join("file"), "text\r\n").map_err(made)?;
    }
    let directory = directory.canonicalize().map_err(made)?;
    let path = directory.to_str().and_then(path::internal);
    let path = path.ok_or_else(|| format!("{} is on no drive", directory.display()))?;
    let read = |name: &str| {
        let file = path::shown(&format!("{path}/{name}/file")).unwrap_or_default();
        // It prints the names of the files in which it finds something.
        let args = ["findstr.exe", "/m", ".", &file].map(OsString::from).to_vec();
        let run =
            Run { args, env: crate::cli::environment(), policy: policy(&path), accept: Vec::new() };
        match super::launch::silently(run) {
            Ok(code) => Ok(code == 0),
            Err(Error::Launch { message, .. } | Error::Usage(message)) => Err(message),
            Err(Error::Policy(failure) | Error::Failure(failure)) => Err(failure.message),
        }
    };
    Ok((read("open")?, read("closed")?))
}

/// Reading is closed but for one directory below `directory`.
fn policy(directory: &str) -> ResolvedPolicy {
    let rule = |effect, path: &str| Rule {
        access: Access::Read,
        effect,
        always: false,
        pattern: Pattern::Subtree(path.to_owned()),
        text: path.to_owned(),
        origin: Origin::built_in("doctor"),
    };
    let open = format!("{directory}/open");
    let rules = vec![rule(Effect::Deny, "/"), rule(Effect::Allow, &open)];
    ResolvedPolicy { cwd: open, rules, ..ResolvedPolicy::default() }
}
