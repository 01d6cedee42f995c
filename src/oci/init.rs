//! The process that becomes the container's program: from clone3(2) to execve(2).

use std::os::fd::{AsFd, OwnedFd, RawFd};

use oci_spec::runtime::{LinuxNamespaceType as Kind, Spec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Gid, Uid, setsid};

use super::channel::{Channel, Door, Tag};
use super::hooks::{self, Place, Point};
use super::namespaces::Namespaces;
use super::policy::Fence;
use super::process::{Program, Settled, own_stdio};
use super::rootfs::{self, Prepared, Surroundings};
use super::state::{Record, Status};
use super::sys::{self, process};
use super::{Context, Error, Result, console, netdevices};

/// Everything that the process needs, which has a copy of the runtime's memory.
pub struct Job<'a> {
    /// The document.
    pub spec: &'a Spec,
    /// The program.
    pub program: &'a Program,
    /// The namespaces.
    pub namespaces: Namespaces,
    /// What the mounts depend on.
    pub around: Surroundings<'a>,
    /// The sources of the mounts.
    pub prepared: Prepared,
    /// The network devices that it gets.
    pub devices: &'a [netdevices::Device],
    /// What is known of the container.
    pub record: &'a Record,
    /// Files that take this process into its cgroups, when it writes `0` to them.
    pub entrances: Vec<OwnedFd>,
    /// Where the terminal goes.
    pub console: Option<OwnedFd>,
    /// Where to wait for `start`; without, the runtime says it.
    pub door: Option<Door>,
    /// The name of the new session keyring.
    pub keyring: Option<std::ffi::CString>,
    /// Descriptors that the program keeps.
    pub preserved: &'a [RawFd],
    /// The policy, and what holding it takes.
    pub fence: Option<Fence<'a>>,
}

/// Becomes the program, or says why not and ends.
pub fn run(job: Job<'_>, channel: Channel) -> ! {
    // Until `start` errors are those of `create`, and then of `start`.
    let (program, spec, record, preserved) = (job.program, job.spec, job.record, job.preserved);
    let mut job = job;
    let fence = job.fence.take();
    let (settled, door) = match create(job, &channel) {
        Ok(done) => done,
        Err(error) => channel.fail(&error),
    };
    let channel = match door {
        None => channel,
        Some(door) => {
            drop(channel);
            match door.open() {
                Ok(channel) => channel,
                Err(_nobody_to_tell) => process::exit(1),
            }
        }
    };
    let error = match (start(spec, record, &channel), fence) {
        (Err(error), _) => error,
        (Ok(()), None) => program.execute(&settled),
        (Ok(()), Some(fence)) => fence.launch(program, &settled, preserved, channel),
    };
    channel.fail(&error)
}

/// Waits until the runtime says to go on.
fn wait(channel: &Channel) -> Result<()> {
    channel.expect(Tag::Go).map(|_| ())
}

fn create(job: Job<'_>, channel: &Channel) -> Result<(Settled, Option<Door>)> {
    process::default_signals();
    for entrance in &job.entrances {
        rustix::io::write(entrance, b"0").context("enter the cgroup")?;
    }
    // With the mappings.
    wait(channel)?;
    let spec = job.spec;
    job.namespaces.time(spec)?;
    if job.namespaces.has_user() {
        become_root()?;
    }
    // A new session: signals of the caller's terminal are not for the container.
    match setsid() {
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).context("setsid"),
    }
    if let Some(name) = &job.keyring {
        join_keyring(name)?;
    }
    job.namespaces.cgroup()?;
    if job.namespaces.is_new(Kind::Network) {
        loopback()?;
    }
    netdevices::settle(job.devices)?;
    if let Some(name) = spec.hostname().as_ref().filter(|name| !name.is_empty()) {
        rustix::system::sethostname(name.as_bytes()).context("hostname")?;
    }
    if let Some(name) = spec.domainname().as_ref().filter(|name| !name.is_empty()) {
        rustix::system::setdomainname(name.as_bytes()).context("domainname")?;
    }
    let label = job.program.open_label()?;
    let built = job.prepared.build(&job.around)?;
    channel.send(Tag::Built, &[])?;
    wait(channel)?;
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let hooks = spec.hooks().as_ref();
    let state = job.record.view(Status::Creating, own);
    hooks::run(
        Point::CreateContainer,
        Point::CreateContainer.of(hooks),
        &state,
        Place { dir: Some(&job.record.bundle), env: None },
    )?;
    built.enter(&job.around)?;
    job.program.make_cwd();
    if let (Some(socket), Some(given)) = (&job.console, spec.process()) {
        let console = console::make(given)?;
        rootfs::console(console.slave.as_fd())?;
        console.take(socket.as_fd())?;
    }
    built.finish(&job.around)?;
    own_stdio(job.program.uid(), job.program.gid());
    // From here on the container's own processes could look at this one, if they shared its user.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("PR_SET_DUMPABLE")?;
    let announce = |number: i32| channel.send(Tag::Listener, &number.to_ne_bytes());
    let announce: Option<&dyn Fn(i32) -> Result<()>> =
        if job.program.listens() { Some(&announce) } else { None };
    let settled = job.program.settle(label, job.preserved, announce)?;
    channel.send(Tag::Ready, &[])?;
    wait(channel)?;
    // What is left of the job goes here: while this waits for `start`, it holds nothing open of the host's.
    Ok((settled, job.door))
}

/// What comes after `start` and before the program.
fn start(spec: &Spec, record: &Record, channel: &Channel) -> Result<()> {
    channel.send(Tag::Go, &[])?;
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let state = record.view(Status::Created, own);
    let hooks = Point::StartContainer.of(spec.hooks().as_ref());
    let env = spec.process().as_ref().and_then(|process| process.env().as_deref());
    hooks::run(Point::StartContainer, hooks, &state, Place { dir: None, env })
}

/// Root of the user namespace that was just entered: until then, this process was a user of the host's.
///
/// # Errors
///
/// As setresuid(2).
pub fn become_root() -> Result<()> {
    match rustix::thread::set_thread_groups(&[]) {
        // It is denied where the mapping took no privileges.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).context("setgroups"),
    }
    // Where 0 is not mapped, the capabilities of the namespace have to do.
    match rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT) {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno).context("setresgid"),
    }
    match rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno).context("setresuid"),
    }
}

/// Joins a new session keyring: the caller's keys are not for the container.
///
/// # Errors
///
/// As keyctl(2).
pub fn join_keyring(name: &std::ffi::CStr) -> Result<()> {
    match process::join_keyring(name) {
        // A kernel without keys has none to hide; a filter around us may keep us from them.
        Ok(()) | Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno).context("session keyring"),
    }
}

fn loopback() -> Result<()> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .context("socket")?;
    sys::net::loopback_up(socket.as_fd())
        .map_err(|errno| Error::new(format!("bring up lo: {errno}")))
}
