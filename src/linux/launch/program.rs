//! The program: where it is, its start, and why there was none.

use crate::cli::error::{Error, Failure};
use crate::linux::broker::{self, Broker};
use crate::linux::sys::spawn::{self, Launch, Step};
use crate::linux::sys::{Errno, needs};
use crate::trap::{Code, Mechanism, errno};
use rustix::fs::FileType;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Why there is no program, or nobody to serve it.
pub enum NotStarted {
    Setup(Failure),
    Step(Step, Errno),
}

/// Starts the program, and then the broker's first worker. Returns the program's pid.
pub fn start(broker: Option<&Arc<Broker>>, program: &Launch<'_>) -> Result<i32, NotStarted> {
    let started = spawn::spawn(program).map_err(|(step, errno)| NotStarted::Step(step, errno))?;
    if let (Some(broker), Some(listener)) = (broker, started.listener) {
        broker::serve(broker, listener).map_err(no_broker)?;
    }
    Ok(started.pid)
}

/// The same with a worker that is there before the program, and is told of the listener.
pub fn start_served(broker: &Arc<Broker>, program: Launch<'_>) -> Result<i32, NotStarted> {
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| {
            let message = format!("pipe: {}", io::Error::from(errno));
            NotStarted::Setup(Failure::new(Code::SandboxSetupFailed, message))
        })?;
    broker::serve_announced(broker, reader).map_err(no_broker)?;
    start(None, &Launch { announce: Some(writer.as_fd()), ..program })
}

fn no_broker(error: io::Error) -> NotStarted {
    NotStarted::Setup(no_broker_yet(&error))
}

pub fn no_broker_yet(error: &io::Error) -> Failure {
    Failure::setup(Mechanism::Seccomp, format!("cannot start the broker: {error}"))
}

pub fn launch_failure(step: Step, errno: Errno, path: &OsStr) -> Error {
    let name = errno::name(errno.raw_os_error());
    let error = io::Error::from_raw_os_error(errno.raw_os_error());
    let text = error.to_string();
    let what = match step {
        Step::Exec => {
            let program = path.to_string_lossy().into_owned();
            let message = crate::cli::tool::refused_by_kernel(&error);
            return Error::Launch { program, errno: name, message };
        }
        Step::Directory => {
            return Failure::new(
                Code::LaunchFailed,
                format!("cannot start in the directory (chdir): {text}"),
            )
            .into();
        }
        Step::Cgroup => {
            return setup(Mechanism::Cgroup, "entering the cgroup of the run", errno).into();
        }
        Step::Clone => "clone",
        Step::Death => "prctl(PR_SET_PDEATHSIG)",
        Step::Limits => "setting limits of the process (setrlimit)",
        Step::Descriptors => "closing descriptors (close_range, fcntl)",
        Step::Capabilities => "dropping capabilities (capset)",
        Step::Landlock => {
            return setup(
                Mechanism::Landlock,
                "restricting the program (landlock_restrict_self)",
                errno,
            )
            .into();
        }
        Step::Seccomp if errno == Errno::BUSY => {
            let message =
                "an outer sandbox has a seccomp listener already, and there can be only one";
            return Failure::setup(Mechanism::Seccomp, message).into();
        }
        Step::Seccomp => "installing the filter (seccomp; Linux 5.19 or later is needed)",
        Step::Announce => "announcing the listener",
        Step::Profile => "installing the container's own filter (seccomp)",
    };
    setup(Mechanism::Seccomp, what, errno).into()
}

pub fn setup(mechanism: Mechanism, what: &str, errno: Errno) -> Failure {
    let text = io::Error::from_raw_os_error(errno.raw_os_error());
    Failure::setup(mechanism, format!("{what}: {text}"))
}

/// Refuses to run under a filter, of a container or of another sandbox, that takes from us what no run does without.
///
/// # Errors
///
/// `SANDBOX_SETUP_FAILED` with the name of the call.
pub fn refuse_outer_filter() -> Result<(), Failure> {
    needs::check_all().map_err(|(call, errno)| {
        let error = io::Error::from(errno);
        let message = format!(
            "{call}: {error}: a seccomp filter that is in force already refuses this system call, and no run does \
            without it"
        );
        Failure::setup(Mechanism::Seccomp, message)
    })
}

pub fn c_string(bytes: &[u8]) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| {
        Failure::new(Code::LaunchFailed, "an argument or a variable contains a NUL character")
    })
}

pub fn c_strings(strings: &[OsString]) -> Result<Vec<CString>, Failure> {
    strings.iter().map(|s| c_string(s.as_bytes())).collect()
}

/// Finds the program as execvp(3) does in `cwd`: a name without a slash along `PATH`.
///
/// # Errors
///
/// ENOENT when it is nowhere, EACCES when what was found cannot be executed.
pub fn look_up(program: &OsStr, env: &[OsString], cwd: &str) -> Result<OsString, Error> {
    let name = program.as_bytes();
    let fail = |errno: Errno| launch_failure(Step::Exec, errno, program);
    if name.is_empty() {
        return Err(fail(Errno::NOENT));
    }
    if name.contains(&b'/') {
        return Ok(program.to_owned());
    }
    let path = env.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
    let mut last = Errno::NOENT;
    // execvp(3)'s default where PATH is not set.
    for directory in path.unwrap_or(b"/bin:/usr/bin").split(|&byte| byte == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        let candidate = [directory, b"/", name].concat();
        // The program starts there, not here.
        let place = match candidate.starts_with(b"/") {
            true => candidate.clone(),
            false => [cwd.as_bytes(), b"/", &candidate].concat(),
        };
        match rustix::fs::access(place.as_slice(), rustix::fs::Access::EXEC_OK) {
            Ok(()) if is_file(&place) => return Ok(OsString::from_vec(candidate)),
            Ok(()) | Err(Errno::ACCESS) => last = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(fail(last))
}

fn is_file(path: &[u8]) -> bool {
    rustix::fs::stat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}
