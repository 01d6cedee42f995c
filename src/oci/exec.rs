//! `exec`: one more process in a running container.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;

use oci_spec::runtime::{LinuxNamespaceType as Kind, Process, Spec};
use rustix::io::Errno;
use rustix::process::setsid;
use serde_json::{Value, json};

use super::cgroup::Below;
use super::channel::{Channel, Door, Tag, connect_stream};
use super::create::{preserved, said, write_pid};
use super::landlock::{IN_CONFIG, IN_PROCESS, Landlock};
use super::namespaces::{flag, follow};
use super::policy::{Fence, Policy};
use super::process::{Around, Program, own_stdio};
use super::runtime::Runtime;
use super::state::{EXEC, Record, Status};
use super::sys::process as sys;
use super::{Context, Error, Result, bundle, console, init, listener, schedule};
use crate::linux::Guest;

/// What `exec` is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The container's name.
    pub id: String,
    /// The document of the process; the other words are ignored then.
    pub process: Option<PathBuf>,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// It gets a terminal.
    pub tty: bool,
    /// The socket that gets the terminal.
    pub console_socket: Option<PathBuf>,
    /// Where to write the number of the process.
    pub pid_file: Option<PathBuf>,
    /// The directory to start in.
    pub cwd: Option<String>,
    /// Variables besides those of the container.
    pub env: Vec<String>,
    /// `UID[:GID]`.
    pub user: Option<String>,
    /// Groups besides.
    pub groups: Vec<u32>,
    /// Capabilities besides those of the container.
    pub capabilities: Vec<String>,
    /// Set no_new_privs.
    pub no_new_privileges: bool,
    /// The AppArmor profile.
    pub apparmor: Option<String>,
    /// The SELinux label.
    pub label: Option<String>,
    /// Descriptors from 3 on that the program keeps.
    pub preserve_fds: u32,
    /// Start it in a container that is paused, too.
    pub ignore_paused: bool,
    /// Cgroups below the container's, `[CONTROLLER,...:]PATH`.
    pub cgroups: Vec<String>,
}

/// The document of the new process, and its own Landlock domain, where it is given one.
fn document(
    options: &Options,
    spec: &Spec,
    runtime: &Runtime<'_>,
) -> Result<(Process, Option<Landlock>)> {
    if let Some(path) = &options.process {
        let text = bundle::bytes(path).context("--process")?;
        let (process, warnings) = bundle::parse_process(&text).context(path.display())?;
        for warning in warnings {
            runtime.warn(warning);
        }
        let mut process = process;
        if options.tty {
            process.set_terminal(Some(true));
        }
        let landlock = Landlock::of(&text, IN_PROCESS).context(path.display())?;
        return Ok((process, landlock));
    }
    let mut process = spec.process().clone().ok_or_else(|| Error::new("process: is missing"))?;
    process.set_args(Some(options.args.clone()));
    process.set_terminal(Some(options.tty));
    process.set_console_size(None);
    if let Some(cwd) = &options.cwd {
        process.set_cwd(cwd.into());
    }
    let mut env = process.env().clone().unwrap_or_default();
    for entry in &options.env {
        let name = entry.split('=').next().unwrap_or_default();
        if name.is_empty() || !entry.contains('=') {
            return Err(Error::new(format!("--env: {entry:?} is not NAME=VALUE")));
        }
        env.retain(|known| known.split('=').next() != Some(name));
        env.push(entry.clone());
    }
    process.set_env(Some(env));
    if let Some(user) = &options.user {
        let (uid, gid) = numbers(user)?;
        process.user_mut().set_uid(uid);
        process.user_mut().set_gid(gid);
        process.user_mut().set_additional_gids(None);
    }
    if !options.groups.is_empty() {
        let mut groups = process.user().additional_gids().clone().unwrap_or_default();
        groups.extend_from_slice(&options.groups);
        process.user_mut().set_additional_gids(Some(groups));
    }
    if options.no_new_privileges {
        process.set_no_new_privileges(Some(true));
    }
    if options.apparmor.is_some() {
        process.set_apparmor_profile(options.apparmor.clone());
    }
    if options.label.is_some() {
        process.set_selinux_label(options.label.clone());
    }
    add_capabilities(process, &options.capabilities).map(|process| (process, None))
}

/// Reads `UID[:GID]`, numbers alone: names are the engine's to look up. Without a group, it is 0.
fn numbers(user: &str) -> Result<(u32, u32)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // The last number is no user, setresuid(2).
        text.parse::<u32>().ok().filter(|number| digits && *number != u32::MAX)
    };
    let (uid, gid) = user.split_once(':').unwrap_or((user, "0"));
    match (number(uid), number(gid)) {
        (Some(uid), Some(gid)) => Ok((uid, gid)),
        _ => Err(Error::new(format!("--user: {user:?} is not UID[:GID], in numbers"))),
    }
}

/// Adds capabilities to the sets that execve(2) keeps: none becomes inheritable.
fn add_capabilities(process: Process, names: &[String]) -> Result<Process> {
    if names.is_empty() {
        return Ok(process);
    }
    let mut value: Value = serde_json::to_value(&process).context("process")?;
    let sets = &mut value["capabilities"];
    for set in ["bounding", "effective", "permitted"] {
        let list = &mut sets[set];
        if !list.is_array() {
            *list = json!([]);
        }
        for name in names {
            let name = name.to_ascii_uppercase();
            let name = if name.starts_with("CAP_") { name } else { format!("CAP_{name}") };
            if let Some(list) = list.as_array_mut() {
                list.push(Value::String(name));
            }
        }
    }
    serde_json::from_value(value).context("--cap")
}

/// Starts the process, and returns when it runs its program.
///
/// # Errors
///
/// The container does not run; what the new process says went wrong.
pub fn exec(
    runtime: &Runtime<'_>,
    options: &Options,
    terminal: Option<OwnedFd>,
) -> Result<sys::Process> {
    let container = runtime.root.container(&options.id)?;
    let record = container.complete(&options.id)?;
    let status = container.status(&record);
    match status {
        Status::Running | Status::Created => {}
        Status::Paused if options.ignore_paused => {}
        Status::Paused => {
            return Err(Error::new(format!("cannot exec in a paused container {:?}", options.id)));
        }
        _ => return Err(Error::new(format!("container {:?} is not running", options.id))),
    }
    let leader = record
        .init()
        .ok_or_else(|| Error::new(format!("container {:?} is not running", options.id)))?;
    let config = container.config()?;
    let (spec, _known) = bundle::parse(&config).context("config.json")?;
    let (process, landlock) = document(options, &spec, runtime)?;
    let around = Around { linux: spec.linux().as_ref(), annotations: spec.annotations().as_ref() };
    let mut program = Program::prepare(&process, &around)?;
    // Engines that do not know the key give it to no other process; what holds the program holds them.
    program.landlock = match landlock {
        Some(landlock) => Some(landlock),
        None => Landlock::of(&config, IN_CONFIG).context("config.json")?,
    };
    let preserved = preserved(options.preserve_fds, &mut program);
    let console = match (process.terminal().unwrap_or(false), terminal, &options.console_socket) {
        (false, _, Some(_)) => {
            return Err(Error::new("--console-socket: the process has no terminal"));
        }
        (false, ..) => None,
        (true, Some(terminal), _) => Some(terminal),
        (true, None, Some(path)) => Some(connect_stream(path).context("--console-socket")?),
        (true, None, None) => return Err(Error::new("a terminal needs --console-socket to go to")),
    };
    let policy = Policy::of(&container)?;
    if record.fenced && policy.is_none() {
        return Err(Error::new("the policy that the container was created with is gone"));
    }
    let traps = match &policy {
        Some(policy) => {
            Policy::check(&program)?;
            Some(policy.open_traps(&container)?)
        }
        None => None,
    };
    let served = policy.is_some() && record.leads && status != Status::Created;
    let guest = match served && is_covered(&spec, &program, &around)? {
        // Where nobody waits, it has a launcher of its own.
        true => Door::knock(container.dir(), EXEC)?.map(Guest::new),
        false => None,
    };
    let fence = match policy.as_ref().zip(traps) {
        Some((policy, traps)) => {
            let outside = policy.serve_network()?;
            Some(Fence { policy, traps, own_pids: record.leads, door: None, outside, guest })
        }
        None => None,
    };
    let agent = listener::Agent::of(&spec, &program)?;
    let keyring = (!record.callers_keyring)
        .then(|| CString::new(format!("_ses.{}", options.id)).context("id"))
        .transpose()?;

    let (ours, theirs) = Channel::pair()?;
    let kinds = record.namespaces;
    let given = || {
        let desk = if served { Door::knock(container.dir(), EXEC)? } else { None };
        let given = desk.map(crate::linux::namespaces).transpose();
        given.map_err(|message| Error::new(format!("policy: {message}")))
    };
    let Some(made) = follow(&leader, kinds, &given, &ours, &theirs)? else {
        drop(ours);
        let job = Job {
            program: &program,
            process: &process,
            console: console.as_ref(),
            keyring: keyring.as_ref(),
            preserved: &preserved,
            user_namespace: kinds & flag(Kind::User) != 0,
        };
        run(&job, fence, theirs)
    };
    drop((theirs, console, fence));
    let result = drive(&record, &program, &process, agent.as_ref(), options, &made, &ours);
    if let Err(error) = result {
        super::hooks::kill(&made.pidfd);
        let _reaped =
            rustix::process::waitpid(Some(made.pid), rustix::process::WaitOptions::empty());
        return Err(error);
    }
    Ok(made)
}

/// Whether the launcher of the container's own program can act for this one.
fn is_covered(spec: &Spec, program: &Program, around: &Around<'_>) -> Result<bool> {
    let own = spec.process().as_ref().map(|own| Program::prepare(own, around)).transpose()?;
    Ok(own.is_some_and(|own| own.covers(program)))
}

/// The runtime's part, from the new process to its program.
fn drive(
    record: &Record,
    program: &Program,
    process: &Process,
    agent: Option<&listener::Agent>,
    options: &Options,
    made: &sys::Process,
    channel: &Channel,
) -> Result<()> {
    let affinity = process.exec_cpu_affinity().as_ref();
    if let Some(list) = affinity.and_then(|affinity| affinity.initial().as_deref()) {
        schedule::affinity(made.pid, list)?;
    }
    let below: Vec<Below> =
        options.cgroups.iter().map(|text| Below::parse(text)).collect::<Result<_>>()?;
    match &record.cgroup {
        Some(cgroup) => cgroup.enter_at(made.pid, &below)?,
        None if below.is_empty() => {}
        None => return Err(Error::new("--cgroup: the container has no cgroup")),
    }
    if let Some(list) = affinity.and_then(|affinity| affinity.cpu_affinity_final().as_deref()) {
        schedule::affinity(made.pid, list)?;
    }
    program.apply_outside(made.pid)?;
    channel.send(Tag::Go, &[])?;
    if let Some(agent) = agent {
        let listening = said(channel, Tag::Listener, made)?;
        let state = record.view(Status::Running, record.pid.unwrap_or(0));
        agent.hand_over(&listening, made, &state)?;
    }
    said(channel, Tag::Ready, made)?;
    if let Some(path) = &options.pid_file {
        write_pid(path, made.pid.as_raw_nonzero().get())?;
    }
    channel.send(Tag::Go, &[])?;
    // Execve(2) closes its end.
    match channel.receive()? {
        None => Ok(()),
        Some((tag, _)) => Err(Error::new(format!("message: {tag:?} where none was expected"))),
    }
}

/// What the new process needs.
struct Job<'a> {
    program: &'a Program,
    process: &'a Process,
    console: Option<&'a OwnedFd>,
    keyring: Option<&'a CString>,
    preserved: &'a [RawFd],
    user_namespace: bool,
}

fn run(job: &Job<'_>, fence: Option<Fence<'_>>, channel: Channel) -> ! {
    let error = match (prepare(job, &channel), fence) {
        (Err(error), _) => error,
        (Ok(settled), None) => job.program.execute(&settled),
        (Ok(settled), Some(fence)) => fence.launch(job.program, &settled, job.preserved, channel),
    };
    channel.fail(&error)
}

fn prepare(job: &Job<'_>, channel: &Channel) -> Result<super::process::Settled> {
    sys::default_signals();
    channel.expect(Tag::Go)?;
    if job.user_namespace {
        init::become_root()?;
    }
    match setsid() {
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).context("setsid"),
    }
    if let Some(name) = job.keyring {
        init::join_keyring(name)?;
    }
    let label = job.program.open_label()?;
    if let Some(socket) = job.console {
        console::make(job.process)?.take(socket.as_fd())?;
    }
    own_stdio(job.program.uid(), job.program.gid());
    let announce = |number: i32| channel.send(Tag::Listener, &number.to_ne_bytes());
    let announce: Option<&dyn Fn(i32) -> Result<()>> =
        if job.program.listens() { Some(&announce) } else { None };
    let settled = job.program.settle(label, job.preserved, announce)?;
    channel.send(Tag::Ready, &[])?;
    channel.expect(Tag::Go)?;
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers() {
        assert_eq!(numbers("7"), Ok((7, 0)));
        assert_eq!(numbers("7:8"), Ok((7, 8)));
        for bad in ["", ":", "root", "7:", ":8", "+7", "-1", "4294967295", "7:8:9", " 7"] {
            assert!(numbers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn capabilities_are_added_to_what_execve_keeps() {
        let process = Process::default();
        let process = add_capabilities(process, &["net_admin".to_owned()]).unwrap();
        let sets = process.capabilities().as_ref().unwrap();
        let added = oci_spec::runtime::Capability::NetAdmin;
        assert!(sets.bounding().as_ref().unwrap().contains(&added));
        assert!(!sets.inheritable().as_ref().unwrap().contains(&added));
        assert!(add_capabilities(Process::default(), &["nonsense".to_owned()]).is_err());
    }
}
