//! Hooks: programs of the engine's that are run at points of a container's life, config.md.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oci_spec::runtime::{Hook, Hooks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::state::View;
use super::{Context, Error, Result};

/// The most bytes of what a hook wrote that an error repeats.
const OUTPUT: u64 = 2048;

/// The point at which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// In the runtime's namespaces, before the container's root is entered. Deprecated.
    Prestart,
    /// As `Prestart`, and after it.
    CreateRuntime,
    /// In the container's namespaces, before its root is entered.
    CreateContainer,
    /// In the container, before the program.
    StartContainer,
    /// In the runtime's namespaces, when the program runs.
    Poststart,
    /// In the runtime's namespaces, when the container is gone.
    Poststop,
}

impl Point {
    /// The name of the hooks in the document.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Point::Prestart => "prestart",
            Point::CreateRuntime => "createRuntime",
            Point::CreateContainer => "createContainer",
            Point::StartContainer => "startContainer",
            Point::Poststart => "poststart",
            Point::Poststop => "poststop",
        }
    }

    /// The hooks of this point.
    #[must_use]
    #[allow(deprecated, reason = "engines still use `prestart`")]
    pub fn of(self, hooks: Option<&Hooks>) -> &[Hook] {
        let Some(hooks) = hooks else { return &[] };
        let list = match self {
            Point::Prestart => hooks.prestart(),
            Point::CreateRuntime => hooks.create_runtime(),
            Point::CreateContainer => hooks.create_container(),
            Point::StartContainer => hooks.start_container(),
            Point::Poststart => hooks.poststart(),
            Point::Poststop => hooks.poststop(),
        };
        list.as_deref().unwrap_or_default()
    }
}

/// Where a hook runs.
#[derive(Clone, Copy, Default)]
pub struct Place<'a> {
    /// The directory it starts in, if not ours.
    pub dir: Option<&'a Path>,
    /// The environment of hooks that have none of their own, if not ours: the specification leaves it open, and
    /// other runtimes let those in the runtime's namespaces inherit theirs, and those in the container the
    /// program's.
    pub env: Option<&'a [String]>,
}

/// Runs hooks one after the other, each with the state on standard input, and stops at the first that fails.
///
/// # Errors
///
/// The hook that could not be run, failed, or took longer than its timeout.
pub fn run(point: Point, hooks: &[Hook], state: &View<'_>, place: Place<'_>) -> Result<()> {
    if hooks.is_empty() {
        return Ok(());
    }
    let state = serde_json::to_vec(state).context("state")?;
    for (at, hook) in hooks.iter().enumerate() {
        one(hook, &state, place).context(format!(
            "hooks.{}[{at}]: {}",
            point.name(),
            hook.path().display()
        ))?;
    }
    Ok(())
}

/// Files in memory instead of pipes: a hook that reads nothing, or leaves a child behind that holds its
/// standard output, holds nobody up.
fn memory(name: &str) -> Result<File> {
    memfd_create(name, MemfdFlags::CLOEXEC).map(File::from).context("memfd_create")
}

fn one(hook: &Hook, state: &[u8], place: Place<'_>) -> Result<()> {
    let mut input = memory("state")?;
    input.write_all(state).and_then(|()| input.seek(SeekFrom::Start(0))).context("state")?;
    let mut output = memory("output")?;
    let copy = || output.try_clone().map(Stdio::from).context("dup");

    let mut command = Command::new(hook.path());
    if let Some((name, args)) = hook.args().as_deref().and_then(<[String]>::split_first) {
        command.arg0(name).args(args);
    }
    let env = hook.env().as_deref().or(place.env);
    if env.is_some() {
        command.env_clear();
    }
    for entry in env.unwrap_or_default() {
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        if name.is_empty() || entry.contains('\0') {
            return Err(Error::new(format!("env: {entry:?} is no variable")));
        }
        command.env(name, value);
    }
    if let Some(dir) = place.dir {
        command.current_dir(dir);
    }
    command.stdin(input).stdout(copy()?).stderr(copy()?).process_group(0);
    let mut child = command.spawn().context("run")?;
    let ended = wait(child.id(), hook.timeout());
    if !matches!(ended, Ok(true))
        && let Some(group) = Pid::from_raw(child.id().cast_signed())
    {
        // With what it started itself.
        let _may_have_ended = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().context("wait")?;
    if !ended? {
        return Err(Error::new(format!("took longer than {} s", hook.timeout().unwrap_or(0))));
    }
    if status.success() {
        return Ok(());
    }
    let what = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    };
    let mut text = Vec::new();
    let _nothing_said =
        output.seek(SeekFrom::Start(0)).and_then(|_| output.take(OUTPUT).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let text = text.trim();
    Err(Error::new(if text.is_empty() { what } else { format!("{what}: {text}") }))
}

/// Whether the process ends in time. It is a child that nobody has reaped.
fn wait(pid: u32, timeout: Option<i64>) -> Result<bool> {
    let Some(seconds) = timeout.and_then(|seconds| u64::try_from(seconds).ok()) else {
        return Ok(true);
    };
    let pid = Pid::from_raw(pid.cast_signed()).ok_or_else(|| Error::new("no pid"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    ends(&pidfd, Some(Duration::from_secs(seconds)))
}

/// Whether a process ends in time; without a limit it is waited for.
///
/// # Errors
///
/// As poll(2).
pub fn ends(pidfd: &std::os::fd::OwnedFd, limit: Option<Duration>) -> Result<bool> {
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            result => return result.map(|ready| ready > 0).context("poll"),
        }
    }
}

/// Kills a process by its descriptor; one that has ended is no error.
pub fn kill(pidfd: &std::os::fd::OwnedFd) {
    let _ended = pidfd_send_signal(pidfd, Signal::KILL);
}
