//! `create`: from a bundle to a process that waits for `start`.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_spec::runtime::{LinuxNamespaceType as Kind, Spec};
use rustix::process::{WaitOptions, waitpid};

use super::bundle::Bundle;
use super::cgroup::{Cgroup, Request};
use super::channel::{Channel, Door, Tag};
use super::hooks::{self, Place, Point};
use super::namespaces::Namespaces;
use super::notify::{self, Notify};
use super::policy::{Fence, Policy};
use super::process::{Around, Program};
use super::rootfs::{self, Surroundings};
use super::runtime::Runtime;
use super::state::{self, Container, EXEC, Lock, Record, START, Status};
use super::sys::process::{self as sys, Process};
use super::{Context, Error, Result, init, lifecycle, listener, mapping, netdevices};

/// Commands that may wait for the launcher at once; more wait in connect(2).
const WAITING: i32 = 128;

/// What `create` and `run` are told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The container's name.
    pub id: String,
    /// The directory of the bundle.
    pub bundle: PathBuf,
    /// The document, where it is not in the bundle.
    pub config: Option<PathBuf>,
    /// Where to write the number of the init process.
    pub pid_file: Option<PathBuf>,
    /// The socket that gets the terminal.
    pub console_socket: Option<PathBuf>,
    /// Do not pivot.
    pub no_pivot: bool,
    /// Keep the caller's session keyring.
    pub no_new_keyring: bool,
    /// Descriptors from 3 on that the program keeps.
    pub preserve_fds: u32,
}

/// A container that was created.
pub struct Created {
    /// The right to change it.
    pub lock: Lock,
    /// Its directory.
    pub container: Container,
    /// What is known of it.
    pub record: Record,
    /// Its init process.
    pub init: Process,
    /// Where it waits for the runtime to say start, see [`create`].
    pub channel: Channel,
    /// Where its program says that it is ready, if somebody waits for it and it is started already.
    pub notify: Option<Notify>,
}

/// Undoes what was done, unless it is disarmed.
struct Undo<'a> {
    runtime: &'a Runtime<'a>,
    container: Container,
    cgroup: Option<Cgroup>,
    init: Option<Process>,
    /// What is known of it, once hooks ran for it: then others have to.
    hooked: Option<Record>,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // What is left of it, `delete --force` takes away.
        if let Some(init) = &self.init {
            hooks::kill(&init.pidfd);
            let _reaped = waitpid(Some(init.pid), WaitOptions::empty());
        }
        if let Some(cgroup) = &self.cgroup {
            let _empty_by_then = cgroup.signal(rustix::process::Signal::KILL.as_raw());
            let _stays = cgroup.remove();
        }
        let _stays = self.container.remove();
        if let Some(record) = &self.hooked {
            lifecycle::poststop(self.runtime, record);
        }
    }
}

/// Makes a container. With `wait` its program waits on a socket for a later `start`; without, until the
/// runtime says so on the channel, which is quicker.
///
/// # Errors
///
/// The step that failed, the container's own among them. Nothing is left behind then.
pub fn create(
    runtime: &Runtime<'_>,
    options: &Options,
    console: Option<OwnedFd>,
    wait: bool,
) -> Result<Created> {
    state::check_id(&options.id)?;
    let mut bundle = Bundle::read(&options.bundle, options.config.as_deref())?;
    let state = runtime.root.container(&options.id)?;
    let notifies = notify::weave(&mut bundle.spec, state.dir());
    let bundle = bundle;
    for warning in &bundle.warnings {
        runtime.warn(warning);
    }
    let spec = &bundle.spec;
    let process = bundle.process()?;
    let around = Around { linux: spec.linux().as_ref(), annotations: spec.annotations().as_ref() };
    let mut program = Program::prepare(process, &around)?;
    program.landlock = bundle.landlock.clone();
    let preserved = preserved(options.preserve_fds, &mut program);
    let console = console_for(process.terminal().unwrap_or(false), options, console)?;
    let namespaces = Namespaces::of(spec)?;
    let policy = Policy::gather(runtime, spec)?;
    if let Some(policy) = &policy {
        Policy::check(&program)?;
        policy.warn(runtime, notifies)?;
    }
    let agent = listener::Agent::of(spec, &program)?;
    let devices = netdevices::find(spec)?;

    let (container, lock) = runtime.root.claim(&options.id)?;
    let mut undo = Undo { runtime, container, cgroup: None, init: None, hooked: None, armed: true };
    let mut record = Record::new(&options.id, &bundle, runtime.manager);
    record.rootless = runtime.rootless;
    record.fenced = policy.is_some();
    record.callers_keyring = options.no_new_keyring;
    record.namespaces = namespaces.all();
    record.leads = namespaces.is_new(Kind::Pid);
    undo.container.keep_config(&bundle.text)?;
    if notifies {
        notify::make(undo.container.dir())?;
    }
    let traps = policy.as_ref().map(|policy| policy.keep(&undo.container)).transpose()?;

    let mut warn = |text: String| runtime.warn(text);
    let request =
        Request { id: &options.id, spec, manager: runtime.manager, rootless: runtime.rootless };
    let cgroup = Cgroup::create(&request, &mut warn)?;
    undo.cgroup = Some(cgroup.clone());
    record.cgroup = Some(cgroup.clone());
    undo.container.write(&record)?;

    let view = if mounts_cgroups(spec) { cgroup.view()? } else { super::cgroup::View::default() };
    let surroundings = || Surroundings {
        spec,
        bundle: &bundle.dir,
        rootfs: &bundle.rootfs,
        user_namespace: namespaces.has_user(),
        cgroup: &view,
        no_pivot: options.no_pivot,
    };
    let prepared = rootfs::prepare(&surroundings())?;
    let door = wait.then(|| Door::make(undo.container.dir(), START, 1)).transpose()?;
    let fence = match (&policy, traps) {
        (Some(policy), Some(traps)) => {
            let desk = record.leads.then(|| Door::make(undo.container.dir(), EXEC, WAITING));
            let door = desk.transpose()?.map(OwnedFd::from);
            policy.check_proxies()?;
            let outside = policy.serve_network()?;
            Some(Fence { policy, traps, own_pids: record.leads, door, outside, guest: None })
        }
        _ => None,
    };
    let keyring = (!options.no_new_keyring)
        .then(|| CString::new(format!("_ses.{}", options.id)).context("id"))
        .transpose()?;
    let (ours, theirs) = Channel::pair()?;
    // The process goes into its cgroups itself, which costs less than to be moved.
    let birthplace = if namespaces.takes_two() { None } else { cgroup.birthplace() };
    let entrances = cgroup.entrances(birthplace.is_some())?;
    let born = birthplace.as_ref().map(AsFd::as_fd);
    let Some(made) = namespaces.spawn(born, &ours, &theirs)? else {
        // The lock is held as long as any copy of its descriptor is open.
        drop((ours, lock, agent, birthplace));
        let around = surroundings();
        let job = init::Job {
            spec,
            program: &program,
            namespaces,
            around,
            prepared,
            devices: &devices,
            record: &record,
            entrances,
            console,
            door,
            keyring,
            preserved: &preserved,
            fence,
        };
        init::run(job, theirs)
    };
    drop((theirs, door, prepared, console, entrances, birthplace, fence));
    let pid = made.pid;
    let made = undo.init.insert(made);
    record.start_time = state::start_time(pid.as_raw_nonzero().get())?;
    if namespaces.is_new(Kind::User) {
        mapping::write(spec, pid)?;
    }
    cgroup.enter_first(pid)?;
    netdevices::give(&devices, pid)?;
    go(&ours, made)?;

    said(&ours, Tag::Built, made).map_err(|error| namespaces.explain(error))?;
    if let Some(resources) = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref()) {
        cgroup.apply(resources, &mut warn)?;
    }
    if let Some(policy) = &policy {
        policy.limit(&cgroup, spec)?;
    }
    program.apply_outside(pid)?;
    record.pid = Some(pid.as_raw_nonzero().get());
    let number = pid.as_raw_nonzero().get();
    let creating = record.view(Status::Creating, number);
    for point in [Point::Prestart, Point::CreateRuntime] {
        let hooks = point.of(spec.hooks().as_ref());
        if !hooks.is_empty() {
            // A hook may ask for the state.
            undo.container.write(&record)?;
        }
        undo.hooked = Some(record.clone()).filter(|record| !record.poststop.is_empty());
        hooks::run(point, hooks, &creating, Place { dir: Some(&bundle.dir), env: None })?;
    }
    go(&ours, made)?;

    if let Some(agent) = &agent {
        let listening = said(&ours, Tag::Listener, made)?;
        agent.hand_over(&listening, made, &record.view(Status::Creating, number))?;
    }
    said(&ours, Tag::Ready, made)?;
    record.ready = true;
    undo.container.write(&record)?;
    if let Some(path) = &options.pid_file {
        write_pid(path, number)?;
    }
    let notify = if wait { None } else { Notify::listen(undo.container.dir())? };
    go(&ours, made)?;
    undo.armed = false;
    let Some(init) = undo.init.take() else { return Err(Error::new("no process")) };
    let container = runtime.root.container(&options.id)?;
    Ok(Created { lock, container, record, init, channel: ours, notify })
}

fn go(channel: &Channel, init: &Process) -> Result<()> {
    channel.send(Tag::Go, &[]).map_err(|error| match channel.receive() {
        // It said why it ended.
        Err(said) => said,
        Ok(_) => ended(init, &error),
    })
}

/// Waits for a message of the new process.
///
/// # Errors
///
/// What it says went wrong; how it ended, where it says nothing.
pub fn said(channel: &Channel, tag: Tag, init: &Process) -> Result<Vec<u8>> {
    match channel.receive()? {
        Some((got, content)) if got == tag => Ok(content),
        Some((got, _)) => Err(Error::new(format!("message: {got:?} instead of {tag:?}"))),
        None => Err(ended(init, &Error::new("it said nothing"))),
    }
}

/// How a new process ended that did not say it.
fn ended(init: &Process, otherwise: &Error) -> Error {
    let _ends = hooks::ends(&init.pidfd, Some(Duration::from_secs(1)));
    let status = waitpid(Some(init.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED);
    let how = match status {
        Ok(Some((_, status))) => match (status.exit_status(), status.terminating_signal()) {
            (_, Some(signal)) => format!("signal {signal}"),
            (Some(code), _) => format!("exit status {code}"),
            _ => "unknown".to_owned(),
        },
        _ => otherwise.to_string(),
    };
    Error::new(format!("the container's process ended before its time: {how}"))
}

/// Whether the document mounts cgroups.
fn mounts_cgroups(spec: &Spec) -> bool {
    let mounts = spec.mounts().iter().flatten();
    mounts.into_iter().any(|mount| matches!(mount.typ().as_deref(), Some("cgroup" | "cgroup2")))
}

/// The number of descriptors of socket activation.
pub(super) fn listening() -> u32 {
    let number = std::env::var("LISTEN_FDS").ok();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The descriptors that are kept: those that are open of the ones asked for, and of socket activation's,
/// sd_listen_fds(3).
pub fn preserved(asked: u32, program: &mut Program) -> Vec<RawFd> {
    let listening = listening();
    if listening > 0 {
        program.set_variable("LISTEN_FDS", &listening.to_string());
        program.set_variable("LISTEN_PID", "1");
    }
    let all = asked.saturating_add(listening).min(1 << 20).cast_signed();
    (3..3 + all).filter(|fd| sys::is_inherited(*fd)).collect()
}

/// The socket that gets the terminal, if there is to be one.
fn console_for(
    terminal: bool,
    options: &Options,
    given: Option<OwnedFd>,
) -> Result<Option<OwnedFd>> {
    match (terminal, given, &options.console_socket) {
        (true, Some(given), _) => Ok(Some(given)),
        (true, None, Some(path)) => {
            super::channel::connect_stream(path).context("--console-socket").map(Some)
        }
        (true, None, None) => {
            Err(Error::new("process.terminal: a terminal needs --console-socket to go to"))
        }
        (false, _, Some(_)) => {
            Err(Error::new("--console-socket: the process has no terminal (process.terminal)"))
        }
        (false, _, None) => Ok(None),
    }
}

/// Writes the pid file, as a whole.
///
/// # Errors
///
/// As open(2) and rename(2).
pub fn write_pid(path: &Path, pid: i32) -> Result<()> {
    state::replace(path, pid.to_string().as_bytes(), 0o644).context("--pid-file")
}
