//! The policy of a container: where it comes from, and how a process gets under it.
//!
//! Policies are files of the host, and the runtime reads them (`sources`). What they say is about the paths of the
//! container, so they are resolved in its root, by the process that becomes its program. That process stays: it
//! starts the program as `run` does on the host ([`launch`]), as its child, and is its launcher and broker until it
//! ends. It has the program's user, capabilities and namespaces, so that it can do nothing for the program that
//! the program could not; and a Landlock domain keeps the program from reaching it. It serves commands that are
//! executed in the container as well ([`Guest`]), where it can act for their user.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use oci_spec::runtime::{LinuxResources, Spec};
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cgroup::Cgroup;
use super::channel::Channel;
use super::process::{Program, Settled};
use super::runtime::Runtime;
use super::sources::{self, Sources, in_words};
use super::state::Container;
use super::sys::process;
use super::traps::{self, TRAPS};
use super::{Context, Error, Result};
use crate::cli::{TrapFd, resolve, tool};
use crate::linux::Guest;
use crate::linux::host::HostView;
use crate::linux::launch::{self, Inside};
use crate::linux::namespace;
use crate::linux::net::container::Outside;
use crate::linux::net::environment;
use crate::policy::{FsView, Limits, Place, ResolvedPolicy};
use crate::trap::Style;

/// The annotation that nobody is believed.
const ACCEPT: &str = "dev.landstrip.accept";
/// The annotations that there are for a container.
pub const ANNOTATIONS: [&str; 3] = [sources::POLICY, TRAPS, ACCEPT];
/// The name of the file that keeps it beside the state.
const KEPT: &str = "policy.json";
/// How the launcher is seen in the container.
const LAUNCHER: &[u8] = b"landstrip-oci";
/// The most bytes of traps in a file of ours.
const MOST_TRAPS: u64 = 16 << 20;
/// The tasks of the launcher, which are in the container's cgroup as well.
const OWN_TASKS: u64 = 16;

/// The policy of one container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    sources: Sources,
    /// Where relative paths start: `process.cwd` of the container.
    cwd: String,
    accept: Vec<String>,
    traps: traps::Place,
}

impl Policy {
    /// The policy that the caller, the host and the document ask for; none where nobody asks for any.
    ///
    /// # Errors
    ///
    /// A policy that cannot be read or is refused; what a document cannot say.
    pub fn gather(runtime: &Runtime<'_>, spec: &Spec) -> Result<Option<Policy>> {
        let annotation = |name: &str| {
            spec.annotations().as_ref().and_then(|all| all.get(name)).map(String::as_str)
        };
        let Some(sources) = Sources::gather(runtime, spec)? else {
            for name in [TRAPS, ACCEPT].into_iter().filter(|name| annotation(name).is_some()) {
                runtime.warn(format!("annotations.{name}: there is no policy"));
            }
            return Ok(None);
        };
        if annotation(ACCEPT).is_some() {
            let what = "is not taken from a document, which may hold what an image says: the caller accepts \
                shortfalls, by --accept before the command";
            return Err(Error::new(format!("annotations.{ACCEPT}: {what}")));
        }
        let cwd = spec.process().as_ref().map(|process| process.cwd().clone()).unwrap_or_default();
        let cwd = cwd.to_str().ok_or_else(|| Error::new("process.cwd: is not UTF-8"))?.to_owned();
        let traps =
            traps::Place::of(runtime.traps.as_deref(), annotation(TRAPS), runtime.rootless)?;
        Ok(Some(Policy { sources, cwd, accept: runtime.accept.clone(), traps }))
    }

    /// Keeps it for the later commands on `container`, and opens the place of the traps.
    ///
    /// # Errors
    ///
    /// As write(2), and as [`Policy::open_traps`].
    pub fn keep(&self, container: &Container) -> Result<TrapFd> {
        container.keep(KEPT, &serde_json::to_vec(self).context(KEPT)?)?;
        self.open_traps(container)
    }

    /// The policy that `container` was created with, if any.
    ///
    /// # Errors
    ///
    /// Where what was kept cannot be read.
    pub fn of(container: &Container) -> Result<Option<Policy>> {
        match container.kept(KEPT)? {
            Some(text) => serde_json::from_slice(&text).context(KEPT).map(Some),
            None => Ok(None),
        }
    }

    /// Where its traps can be read again; none where they went to a socket.
    #[must_use]
    pub fn trap_file(&self, container: &Container) -> Option<PathBuf> {
        Some(self.traps.path(container.dir())).filter(|path| path.is_file())
    }

    /// Opens the place of the traps, which is the host's.
    ///
    /// # Errors
    ///
    /// As [`traps::Place::open`].
    pub fn open_traps(&self, container: &Container) -> Result<TrapFd> {
        Ok(TrapFd::new(self.traps.open(container.dir())?, MOST_TRAPS))
    }

    /// What the caller should know of the policy; `notifies`: it waits until the program says that it is ready.
    ///
    /// # Errors
    ///
    /// As [`Policy::gather`].
    pub fn warn(&self, runtime: &Runtime<'_>, notifies: bool) -> Result<()> {
        if notifies && !self.sources.opens_all_unix_sockets()? {
            let what = "the program cannot say that it is ready: datagrams to Unix sockets take \
                network.allowAllUnixSockets in the policy";
            runtime.warn(format!("NOTIFY_SOCKET: {what}"));
        }
        Ok(())
    }

    /// Checks that the program can be put under a policy.
    ///
    /// # Errors
    ///
    /// A filter with a listener of its own: a process has one at most, seccomp(2).
    pub fn check(program: &Program) -> Result<()> {
        if program.listens() {
            let what = "SCMP_ACT_NOTIFY cannot be had beside a policy: a process has one listener, \
                and the policy takes it";
            return Err(Error::new(format!("linux.seccomp: {what}")));
        }
        Ok(())
    }

    /// Sets the limits of the policy, where the document has no lower ones.
    ///
    /// # Errors
    ///
    /// The limit that cannot be set.
    pub fn limit(&self, cgroup: &Cgroup, spec: &Spec) -> Result<()> {
        let limits = self.sources.limits()?;
        let given = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        let lower = |limit: u64, given: Option<i64>| match given {
            Some(given) if given > 0 => limit.min(given.cast_unsigned()),
            _ => limit,
        };
        let mut resources = json!({});
        let mut keys = Vec::new();
        if let Some(memory) = limits.memory {
            let given = given.and_then(|all| all.memory().as_ref()).and_then(|m| m.limit());
            resources["memory"] = json!({"limit": lower(memory.value, given)});
            keys.push("limits.memory");
        }
        if let Some(pids) = limits.pids {
            let given = given.and_then(|all| all.pids().as_ref()).map(|pids| pids.limit());
            resources["pids"] = json!({"limit": lower(pids.value + OWN_TASKS, given)});
            keys.push("limits.pids");
        }
        if let Some(cpu) = limits.cpu {
            const PERIOD: u64 = 100_000;
            let quota = cpu.value * (PERIOD / 1000);
            let given = given.and_then(|all| all.cpu().as_ref()).and_then(|cpu| {
                let period = cpu.period().unwrap_or(PERIOD).max(1);
                Some(cpu.quota()?.saturating_mul(PERIOD.cast_signed()) / period.cast_signed())
            });
            resources["cpu"] = json!({"quota": lower(quota, given), "period": PERIOD});
            keys.push("limits.cpu");
        }
        if keys.is_empty() {
            return Ok(());
        }
        let resources: LinuxResources = serde_json::from_value(resources).context("limits")?;
        let mut missed = None;
        let applied = cgroup.apply_more(&resources, &mut |text| missed = Some(text));
        let keys = keys.join(", ");
        applied.context(format!("policy: {keys}"))?;
        match missed {
            Some(text) => Err(Error::new(format!("policy: {keys}: {text}"))),
            None => Ok(()),
        }
    }

    /// Checks that the proxies are there that the container is led to.
    ///
    /// # Errors
    ///
    /// The line that names a port of this host's loopback where nobody listens.
    pub fn check_proxies(&self) -> Result<()> {
        let network = self.sources.network()?.unwrap_or_default();
        namespace::check_proxies(&network).map_err(|failure| in_words(failure.into()))
    }

    /// Starts what serves the network of a container, or of a command in it, from outside.
    ///
    /// # Errors
    ///
    /// As [`Outside::start`].
    pub fn serve_network(&self) -> Result<Outside> {
        let network = self.sources.network()?.unwrap_or_default();
        // The variables of the runtime: what the document says, the image may have said.
        let env = crate::cli::environment();
        Outside::start(&network, &env).map_err(|failure| in_words(failure.into()))
    }

    fn run(
        &self,
        program: &Program,
        preserved: &[RawFd],
        traps: TrapFd,
        inside: Inside,
    ) -> Result<u8> {
        launch::refuse_outer_filter().map_err(|failure| in_words(failure.into()))?;
        check_procfs()?;
        process::show_as(LAUNCHER).context("/proc/self/stat")?;
        // Who has just become another user can only be looked at with it. What it reaches ends at the domain
        // that the broker's threads are in.
        let look =
            if program.changes_user() { CapabilitySet::SYS_PTRACE } else { CapabilitySet::empty() };
        program.set_capabilities(look)?;
        let (args, env) = program.words();
        let cwd = rustix::process::getcwd(Vec::new()).context("process.cwd: getcwd")?;
        let cwd = cwd.into_string().context("process.cwd")?;
        let policy = self.resolved(&args[0], &env, cwd)?;
        let job = launch::Job {
            args,
            env,
            policy,
            accept: self.accept.clone(),
            inherit: preserved.to_vec(),
            traps: Some(traps),
            // Nobody may be there to answer.
            query_timeout: Duration::ZERO,
            style: Style::Json,
            quiet: true,
            learn: None,
            inside: Some(inside),
        };
        launch::run(job).map_err(in_words)
    }

    /// The policy in this process's root, for a program that starts in `cwd`.
    fn resolved(
        &self,
        program: &OsString,
        env: &[OsString],
        cwd: String,
    ) -> Result<ResolvedPolicy> {
        let environment = resolve::Environment::of(env);
        let base = std::fs::canonicalize(&self.cwd).context("process.cwd")?;
        let base = base.to_str().ok_or_else(|| Error::new("process.cwd: is not UTF-8"))?;
        let view: &dyn FsView = &HostView;
        let place = Place { cwd: base, home: environment.home.as_deref(), view };
        let resolved = self.sources.resolve(&place)?;
        let mut tightened =
            resolve::tightened(resolved, program, &environment, view).map_err(in_words)?;
        tightened.cwd = cwd;
        // The others are the cgroup's.
        tightened.limits = Limits { time: tightened.limits.time, ..Limits::default() };
        Ok(tightened)
    }
}

/// What puts a process under a policy.
pub struct Fence<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Where its traps go.
    pub traps: TrapFd,
    /// The container has a pid namespace of its own.
    pub own_pids: bool,
    /// Where the launcher waits for commands that are executed beside the program.
    pub door: Option<OwnedFd>,
    /// What serves the network from outside of the container.
    pub outside: Outside,
    /// The connection of such a command to the launcher that serves it; without, it has a launcher of its own.
    pub guest: Option<Guest>,
}

impl Fence<'_> {
    /// Becomes the program, or its launcher, and ends with it. The channel closes when the program runs, or says
    /// why it does not.
    pub fn launch(
        mut self,
        program: &Program,
        settled: &Settled,
        preserved: &[RawFd],
        channel: Channel,
    ) -> ! {
        match (self.guest.take(), is_attached(settled)) {
            (_, Err(error)) => channel.fail(&error),
            // From beside a Landlock domain, nobody looks into it: then it has a launcher of its own inside.
            (Some(guest), Ok(false)) if !settled.has_landlock() => {
                channel.fail(&join(guest, program, settled))
            }
            _ => self.stay(program, settled, preserved, channel),
        }
    }

    /// Stays as the launcher.
    fn stay(
        self,
        program: &Program,
        settled: &Settled,
        preserved: &[RawFd],
        channel: Channel,
    ) -> ! {
        let channel = Rc::new(Cell::new(Some(channel)));
        let started = {
            let channel = Rc::clone(&channel);
            move || {
                drop(channel.take());
                let_go_of_streams();
            }
        };
        let profile = program.filter().map(|filter| (process::raw(&filter.program), filter.flags));
        let inside = Inside {
            path: settled.path().to_owned(),
            profile,
            own_pids: self.own_pids,
            door: self.door,
            outside: Some(self.outside),
            started: Box::new(started),
        };
        // The launcher acts for the program, and is in the same domain.
        let held = rustix::thread::set_no_new_privs(true)
            .context("no_new_privs")
            .and_then(|()| settled.enter_landlock());
        let run = || self.policy.run(program, preserved, self.traps, inside);
        let error = match held.and_then(|()| run()) {
            Ok(code) => process::exit(code.into()),
            Err(error) => error,
        };
        match channel.take() {
            Some(channel) => channel.fail(&error),
            None => process::exit(1),
        }
    }
}

/// Closes the launcher's copies of the standard streams, which are the program's: who reads them waits for their end.
/// Something else has the numbers, that nobody can read or write.
fn let_go_of_streams() {
    let nothing = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    for number in 0..3 {
        // Where it fails, they stay open, as long as the container is there.
        let _stays = nothing.as_ref().map(|fd| process::become_standard(fd.as_fd(), number));
    }
}

/// Becomes the program, served by the launcher of the container's. Returns only on failure.
fn join(guest: Guest, program: &Program, settled: &Settled) -> Error {
    let enter = || -> Result<Vec<OsString>> {
        check_procfs()?;
        program.set_capabilities(CapabilitySet::empty())?;
        let held = rustix::thread::capabilities(None).context("capget")?.permitted;
        let (_, env) = program.words();
        let given = guest.enter(launch::kept(held.bits()), program.filter().is_some());
        let given = given.map_err(|message| Error::new(format!("policy: {message}")))?;
        // It is the user's that the program was started as.
        let usable = |path: &String| {
            rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        };
        let temporary = given.temporary.filter(|path| usable(path).is_ok());
        let env = launch::with_temporary(env, temporary.as_deref());
        Ok(environment::with_proxy(env, given.proxy, true))
    };
    match enter() {
        Ok(env) => program.execute_under_policy(settled, env),
        Err(error) => error,
    }
}

/// Whether the program's file has a policy of its own, which tightens the container's for it alone.
fn is_attached(settled: &Settled) -> Result<bool> {
    let cwd = rustix::process::getcwd(Vec::new()).context("process.cwd: getcwd")?;
    let cwd = Path::new(OsStr::from_bytes(cwd.as_bytes()));
    let attached = tool::policy(settled.path(), OsStr::new(""), cwd);
    Ok(attached.map_err(in_words)?.is_some())
}

/// Checks that `/proc` is the procfs of this process's pid namespace: the broker learns from it what a call is
/// about, and an image can bring files of these names.
fn check_procfs() -> Result<()> {
    let is_procfs =
        rustix::fs::statfs("/proc").is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC);
    let own = rustix::fs::readlink("/proc/self", Vec::new());
    let pid = std::process::id().to_string();
    if is_procfs && own.is_ok_and(|own| own.as_bytes() == pid.as_bytes()) {
        return Ok(());
    }
    let what = "it takes the procfs of the container's pid namespace at /proc (mounts)";
    Err(Error::new(format!("policy: {what}")))
}
