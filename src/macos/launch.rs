//! The launch: a private temporary directory, the profile, the program, its end.

use std::collections::hash_map::RandomState;
use std::ffi::{CString, OsString};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::denials::Log;
use super::sys;
use crate::cli::{self, Error, Failure, HostFiles, tool};
use crate::lower::seatbelt::log::Reader;
use crate::lower::{Run, seatbelt};
use crate::trap::{Code, Mechanism, errno};

/// Runs the program under the policy, and returns its exit code; 128 and the number of a signal that ended
/// it. Unless it is to be `quiet`, what was denied is told of at the end, where the policy has a tag for it.
///
/// # Errors
///
/// An error when the program did not run.
pub fn run(run: Run, quiet: bool) -> Result<u8, Error> {
    let Run { args, env, policy, accept } = run;
    super::refuse(&policy, &accept)?;
    let temporary = Temporary::make()?;
    let terminal = sys::terminal();
    // Other runs have the same tag.
    let random = RandomState::new().build_hasher().finish();
    let tag = policy.macos.log_tag.as_ref().map(|tag| format!("{}.{random:016x}", tag.value));
    let log = tag.as_ref().filter(|_| !quiet).and_then(|tag| {
        Log::begin(tag).map_err(|error| untold(&format!("the unified log: {error}"))).ok()
    });
    let described = seatbelt::Run {
        temporary: temporary.0.to_str(),
        terminal: terminal.as_ref().and_then(|(_, path)| path.to_str().ok()),
        tag: tag.as_deref(),
    };
    let profile = CString::new(seatbelt::profile(&policy, described))
        .map_err(|_| Failure::setup(Mechanism::Seatbelt, "a NUL in the profile"))?;

    let paths = variable(&env, "PATH").unwrap_or_default();
    let program = tool::find(&args[0], &paths, Path::new(&policy.cwd))
        .map_err(|error| launch_error(&args[0], &error))?;
    let mut command = Command::new(program);
    command.arg0(&args[0]).args(&args[1..]).current_dir(&policy.cwd).env_clear().process_group(0);
    command.envs(env.iter().filter_map(|variable| split(variable)));
    command.env("TMPDIR", &temporary.0);

    let (mut reader, report) = io::pipe().map_err(|error| setup(&error))?;
    let signals = sys::Signals::block();
    let child = sys::spawn(&mut command, profile, terminal.as_ref().map(|(fd, _)| *fd), &report);
    // The program's side of the pipe closes when it starts.
    drop(report);
    let child = child.map_err(|error| {
        let mut message = String::new();
        match reader.read_to_string(&mut message) {
            Ok(length) if length > 0 => Failure::setup(Mechanism::Seatbelt, message).into(),
            _ => launch_error(&args[0], &error),
        }
    })?;
    // Only now is there another thread.
    let log = log.map(|log| log.follow(Reader::new(&policy, &HostFiles)));
    let code = signals.supervise(child, terminal.map(|(fd, _)| fd));
    if let Some(log) = log {
        let (denied, complete) = log.finish();
        cli::denials(&denied);
        if !complete {
            untold("the unified log is late");
        }
    }
    Ok(code)
}

/// Says that denials are not told of, or not all of them.
fn untold(why: &str) {
    let message = format!("denials by `macos.logTag` are not all told: {why}");
    cli::warn(Failure {
        mechanism: Some(Mechanism::Seatbelt),
        ..Failure::new(Code::SuperviseFailed, message)
    });
}

fn setup(error: &io::Error) -> Failure {
    Failure::new(Code::SandboxSetupFailed, error.to_string())
}

fn launch_error(program: &OsString, error: &io::Error) -> Error {
    Error::Launch {
        program: program.to_string_lossy().into_owned(),
        errno: match error.kind() {
            io::ErrorKind::NotFound => Some("ENOENT"),
            io::ErrorKind::PermissionDenied => Some("EACCES"),
            _ => error.raw_os_error().and_then(errno::name),
        },
        message: error.to_string(),
    }
}

fn split(variable: &OsString) -> Option<(&std::ffi::OsStr, &std::ffi::OsStr)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=')?;
    Some((std::ffi::OsStr::from_bytes(&bytes[..at]), std::ffi::OsStr::from_bytes(&bytes[at + 1..])))
}

fn variable(env: &[OsString], name: &str) -> Option<OsString> {
    env.iter().filter_map(split).find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

/// The run's private temporary directory, removed when this is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn make() -> Result<Temporary, Failure> {
        let parent = std::env::temp_dir().canonicalize().map_err(|error| setup(&error))?;
        loop {
            let random = RandomState::new().build_hasher().finish();
            let path = parent.join(format!("landstrip-{random:016x}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Temporary(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(setup(&error)),
            }
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed stays; links in it are removed, not followed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
