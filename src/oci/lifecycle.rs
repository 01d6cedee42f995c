//! Commands on a container that exists: `start`, `kill`, `delete`, `pause`, `resume`, `update`.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use oci_spec::runtime::LinuxResources;
use rustix::io::Errno;
use rustix::process::Pid;

use super::channel::{Channel, Door, Tag};
use super::hooks::{self, Place, Point};
use super::notify::Notify;
use super::runtime::Runtime;
use super::state::{self, Container, Record, START, Status};
use super::sys::process;
use super::{Context, Error, Result, bundle, cgroup};

/// How long a process that was killed may take to end.
const DYING: Duration = Duration::from_secs(10);
/// How long it takes, if nothing is in its way.
const SOON: Duration = Duration::from_millis(100);
/// SIGKILL.
const KILL: i32 = 9;

fn not(id: &str, status: Status, wanted: &str) -> Error {
    Error::new(format!("container {id:?} is not {wanted}: it is {status}"))
}

/// `start`: lets the program of a created container run.
///
/// # Errors
///
/// The container is in another state; what its process says went wrong.
pub fn start(runtime: &Runtime<'_>, id: &str) -> Result<()> {
    let container = runtime.root.container(id)?;
    let lock = container.lock(id)?;
    let record = container.complete(id)?;
    match container.status(&record) {
        Status::Created => {}
        status => return Err(not(id, status, "created")),
    }
    let notify = Notify::listen(container.dir())?;
    let Some(socket) = Door::knock(container.dir(), START)? else {
        // Its process started, and `start` did not live to say so; or it ended just now.
        container.started()?;
        return Err(not(id, container.status(&record), "created"));
    };
    let result = started(&Channel::from(socket));
    container.started()?;
    result?;
    poststart(runtime, &container, &record)?;
    // It may take long, and be ended meanwhile.
    drop(lock);
    match (notify, record.init()) {
        (Some(notify), Some(init)) => notify.wait(&init),
        _ => Ok(()),
    }
}

/// Waits until the process, which was told to start, runs the program.
///
/// # Errors
///
/// What it says went wrong.
pub fn started(channel: &Channel) -> Result<()> {
    channel.expect(Tag::Go)?;
    // Execve(2) closes its end.
    match channel.receive()? {
        None => Ok(()),
        Some((tag, _)) => Err(Error::new(format!("message: {tag:?} where none was expected"))),
    }
}

/// Runs the hooks that come after the start.
///
/// # Errors
///
/// The hook that failed. The container is gone then, as runtime.md has it.
pub fn poststart(runtime: &Runtime<'_>, container: &Container, record: &Record) -> Result<()> {
    let state = record.view(Status::Running, record.pid.unwrap_or(0));
    let place = Place { dir: Some(&record.bundle), env: None };
    hooks::run(Point::Poststart, &record.poststart, &state, place).inspect_err(|_| {
        remove(runtime, container, record).unwrap_or_else(|other| runtime.warn(other));
    })
}

/// Runs the hooks that come when a container is gone. One that fails is logged, and the others run, runtime.md.
pub fn poststop(runtime: &Runtime<'_>, record: &Record) {
    let state = record.view(Status::Stopped, 0);
    let place = Place { dir: Some(&record.bundle), env: None };
    for hook in &record.poststop {
        if let Err(error) = hooks::run(Point::Poststop, std::slice::from_ref(hook), &state, place) {
            runtime.warn(error);
        }
    }
}

/// `kill`: sends a signal to the init process, or with `all` to every process.
///
/// # Errors
///
/// The container does not run.
pub fn kill(runtime: &Runtime<'_>, id: &str, signal: i32, all: bool) -> Result<()> {
    let container = runtime.root.container(id)?;
    let record = container.complete(id)?;
    if all && let Some(cgroup) = &record.cgroup {
        match cgroup.signal(signal) {
            // Without a cgroup: the kernel ends everything in a pid namespace with its init.
            Err(_) if signal == KILL && record.leads => {}
            result => return result,
        }
    }
    let gone = || Error::new(format!("container {id:?} is not running"));
    let init = record.init().ok_or_else(gone)?;
    match process::signal(init.as_fd(), signal) {
        Err(Errno::SRCH) => return Err(gone()),
        result => result.context("kill")?,
    }
    // A frozen process cannot die, and without a pid namespace of its own its children would not.
    if signal == KILL
        && let Some(cgroup) = &record.cgroup
        && cgroup.frozen()
    {
        cgroup.freeze(false)?;
    }
    Ok(())
}

/// `delete`: takes away what is left of a container.
///
/// # Errors
///
/// It still runs, and `force` is not given; what could not be removed.
pub fn delete(runtime: &Runtime<'_>, id: &str, force: bool) -> Result<()> {
    let container = runtime.root.container(id)?;
    let _lock = match container.lock(id) {
        Ok(lock) => lock,
        // What is forced to be gone may be gone.
        Err(_) if force && !container.dir().exists() => return Ok(()),
        Err(error) => return Err(error),
    };
    let record = match container.record(id) {
        Ok(record) => record,
        Err(error) if !force => return Err(error),
        Err(error) => {
            runtime.warn(error);
            None
        }
    };
    let Some(record) = record else {
        if !force {
            return Err(Error::new(format!("container {id:?} is half created: use --force")));
        }
        return remove_half(runtime, &container, id);
    };
    if !force {
        match container.status(&record) {
            // runtime.md wants one that is created refused. Engines delete what they never started without
            // force, for other runtimes end it then.
            Status::Stopped | Status::Created => {}
            status => return Err(not(id, status, "stopped")),
        }
    }
    remove(runtime, &container, &record)
}

/// Removes what a `create` left that did not come to keep what it made. Its cgroups are where they would be
/// made again; those that hold processes are somebody's.
fn remove_half(runtime: &Runtime<'_>, container: &Container, id: &str) -> Result<()> {
    if let Ok((spec, _)) = container.config().and_then(|text| bundle::parse(&text)) {
        let Runtime { manager, rootless, .. } = *runtime;
        let request = cgroup::Request { id, spec: &spec, manager, rootless };
        let made = cgroup::Cgroup::create(&request, &mut |_| ());
        if let Err(error) = made.and_then(|cgroup| cgroup.remove()) {
            runtime.warn(error);
        }
    }
    container.remove()
}

/// Ends what still runs of a container, and removes it.
///
/// # Errors
///
/// What could not be removed.
pub fn remove(runtime: &Runtime<'_>, container: &Container, record: &Record) -> Result<()> {
    if let Some(init) = record.init() {
        process::signal(init.as_fd(), KILL)
            .or_else(|errno| if errno == Errno::SRCH { Ok(()) } else { Err(errno) })
            .context("kill")?;
        if let Some(cgroup) = record.cgroup.as_ref().filter(|cgroup| cgroup.frozen()) {
            cgroup.freeze(false)?;
        }
        if !ends(record, &init)? {
            return Err(Error::new(format!("container {:?}: its process does not end", record.id)));
        }
    }
    if let Some(cgroup) = &record.cgroup {
        // With the init of a pid namespace, the kernel ends everything in it. Otherwise the cgroup alone knows
        // what is left, where there is one.
        if !record.leads
            && let Err(error) = cgroup.signal(KILL)
        {
            runtime.warn(error);
        }
        cgroup.remove()?;
    }
    container.remove()?;
    poststop(runtime, record);
    Ok(())
}

/// Waits until the init process, which was killed, has ended, or has left all it had: that of a pid namespace
/// stays as long as a process of the namespace waits to be reaped, by whoever executed it.
fn ends(record: &Record, init: &OwnedFd) -> Result<bool> {
    if hooks::ends(init, Some(SOON))? {
        return Ok(true);
    }
    let (Some(cgroup), Some(pid)) = (&record.cgroup, record.pid) else {
        return hooks::ends(init, Some(DYING));
    };
    if let Some(pid) = Pid::from_raw(pid) {
        cgroup.take_back(pid);
    }
    let until = Instant::now() + DYING;
    while Instant::now() < until {
        if hooks::ends(init, Some(SOON))? {
            return Ok(true);
        }
        // Cgroups are left last.
        if state::is_ending(pid) && cgroup.processes().is_ok_and(|all| all.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `pause` and `resume`.
///
/// # Errors
///
/// The container is in another state; there is no freezer.
pub fn freeze(runtime: &Runtime<'_>, id: &str, frozen: bool) -> Result<()> {
    let container = runtime.root.container(id)?;
    let _lock = container.lock(id)?;
    let record = container.complete(id)?;
    match (container.status(&record), frozen) {
        (Status::Running | Status::Created, true) | (Status::Paused, false) => {}
        (status, true) => return Err(not(id, status, "running")),
        (status, false) => return Err(not(id, status, "paused")),
    }
    let none = || Error::new(format!("container {id:?} has no cgroup"));
    record.cgroup.as_ref().ok_or_else(none)?.freeze(frozen)
}

/// `update`: changes the limits of a container.
///
/// # Errors
///
/// The container has ended; the resource that could not be applied.
pub fn update(runtime: &Runtime<'_>, id: &str, resources: &LinuxResources) -> Result<()> {
    let container = runtime.root.container(id)?;
    let _lock = container.lock(id)?;
    let record = container.complete(id)?;
    if container.status(&record) == Status::Stopped {
        return Err(not(id, Status::Stopped, "running"));
    }
    let none = || Error::new(format!("container {id:?} has no cgroup"));
    let cgroup = record.cgroup.as_ref().ok_or_else(none)?;
    cgroup.apply(resources, &mut |text| runtime.warn(text))
}
