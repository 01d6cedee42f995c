//! The direct launch: a program on the host's own root, under a policy.
//!
//! Everything that can fail or allocate happens before the new process exists; it only applies, see
//! [`spawn::spawn`]. The order matters, and each constraint stands where it binds.

use super::broker::{self, Broker, Config, Desk, Given, Learner, Queries, Reporter};
use super::filter::{self, Options};
use super::limits::Ceilings;
use super::namespace::Namespace;
use super::net::container::Outside;
use super::oom::Score;
use super::supervise::{Ending, Signals};
use super::sys::seccomp::Instruction;
use super::sys::spawn::{self, CStrings, Launch, Step};
use super::sys::{Errno, identity, probe, signals};
use super::tmpdir::TemporaryDirectory;
use super::{cgroup, host, inherited, landlock, namespace, net};
use crate::cli::TrapFd;
use crate::cli::error::{Error, Failure};
use crate::learn::Notes;
use crate::plan::controls::{self, Guarded};
use crate::plan::{self, HostSupport, Plan, SCOPED_ABI, Writing, mounts};
use crate::policy::{
    Access, Decider, Effect, Endpoints, Hosts, Origin, Pattern, ResolvedPolicy, Rule,
};
use crate::trap::{Adviser, Code, Mechanism, Style, errno};
use rustix::fs::{FileType, Mode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What to run, and under what.
pub struct Job {
    /// The program, as to be looked up in `PATH`, and its arguments.
    pub args: Vec<OsString>,
    /// The environment, `NAME=value`.
    pub env: Vec<OsString>,
    /// The policy. Its `cwd` is where the program starts.
    pub policy: ResolvedPolicy,
    /// Names of the shortfalls that are accepted.
    pub accept: Vec<String>,
    /// Descriptors that the program keeps beside the first three.
    pub inherit: Vec<i32>,
    /// Where denials stream to.
    pub traps: Option<TrapFd>,
    /// How long a query waits for its answer; nothing is asked where that is no time at all, or where
    /// `traps` is no connected stream socket.
    pub query_timeout: Duration,
    /// How the denials are written to standard error at the end.
    pub style: Style,
    /// Not at all.
    pub quiet: bool,
    /// What to learn from the run, if anything.
    pub learn: Option<Learning>,
    /// What a program of a container has besides.
    pub inside: Option<Inside>,
}

/// A program of a container, whose process the launcher stands in for.
pub struct Inside {
    /// The program's file, looked up already.
    pub path: OsString,
    /// The container's own filter and its flags: it is for the program and not for the launcher.
    pub profile: Option<(Vec<Instruction>, u32)>,
    /// The container has a pid namespace of its own.
    pub own_pids: bool,
    /// Where commands come in that are executed beside the program: a listening socket.
    pub door: Option<OwnedFd>,
    /// What serves its network from outside.
    pub outside: Option<Outside>,
    /// Called when the program runs.
    pub started: Box<dyn FnOnce()>,
}

/// How a run is learned from. Its policy then has to let everything be written, see
/// [`OPEN`](crate::learn::OPEN).
pub struct Learning {
    /// The policy that allows what needs no learning.
    pub base: ResolvedPolicy,
    /// Where the rest is written down.
    pub notes: Arc<Mutex<Notes>>,
}

/// Capabilities that root keeps, as bits: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID,
/// NET_BIND_SERVICE. None of them reaches the kernel, a device, or another mount.
const KEEP: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10;

/// What is kept of the capabilities `permitted`. Without CAP_KILL we could not end a process that has
/// changed its user, so it may not.
#[must_use]
pub fn kept(permitted: u64) -> u64 {
    const KILL: u64 = 1 << 5;
    const IDENTITY: u64 = 1 << 6 | 1 << 7;
    let keep = permitted & KEEP;
    if keep & KILL == 0 { keep & !IDENTITY } else { keep }
}

/// Runs the job and returns the program's exit code.
///
/// # Errors
///
/// When the program did not start, or could not be supervised to its end.
pub fn run(mut job: Job) -> Result<u8, Error> {
    signals::can_wait().map_err(|e| setup(Mechanism::Seccomp, "rt_sigtimedwait", e))?;
    let signals = Signals::block(job.inside.is_some());
    let ignored = signals::ignore();
    let path = match &job.inside {
        Some(inside) => inside.path.clone(),
        None => look_up(&job.args[0], &job.env, &job.policy.cwd)?,
    };
    // Made before the host is asked: inside another run, asking gives up the outer broker's help.
    let temporary = match make_temporary(&job.env) {
        Ok(made) => Some(Temporary(made)),
        // A container need not have a place for one.
        Err(_) if job.inside.is_some() => None,
        Err(failure) => return Err(failure.into()),
    };
    let temporary_path = temporary.as_ref().map(|temporary| temporary.0.path());
    // The cgroups too: they are removed when this is dropped, and with them what they hold.
    let ceilings = Ceilings::new(job.policy.limits.clone());
    // Before the host is asked, for the same reason. Whoever can answer queries can allow any address,
    // which is in no namespace but the host's; where hosts are listed, the proxy is the way to it.
    let asked = job.traps.as_ref().filter(|_| !job.query_timeout.is_zero());
    let answers = asked.and_then(TrapFd::answers);
    let by_proxy = job.policy.network.lists_hosts();
    let unbound = answers.is_some() && !by_proxy || job.learn.is_some() || job.inside.is_some();
    let (namespace, namespace_support) = match unbound {
        true => Default::default(),
        false => namespace::for_policy(&job.policy.network),
    };
    let support =
        HostSupport { limits: ceilings.support(), namespace: namespace_support, ..host::support() };
    let env = with_temporary(job.env, temporary_path.as_deref());
    let mut policy = without_disks(job.policy);
    let which = if job.learn.is_some() { Guarded::Cgroups } else { Guarded::All };
    add_mounts(&mut policy, support, which)?;
    if ceilings.in_cgroups() {
        cgroup::guard(&mut policy.rules);
    }
    let mut plan = plan::plan(policy, temporary_path.as_deref(), &host::HostView, support);
    refuse_shortfalls(&plan, &job.accept)?;
    let own_pids = job.inside.as_ref().is_some_and(|inside| inside.own_pids);
    let door = job.inside.as_mut().and_then(|inside| inside.door.take());
    if own_pids {
        plan.in_own_pids();
    }
    let queries = answers
        .filter(|_| plan.broker)
        .map(|socket| Queries::new(socket, job.query_timeout))
        .transpose()
        .map_err(|e| setup(Mechanism::Seccomp, "eventfd", e))?;
    if queries.is_some() {
        plan.answerable();
    }
    if plan.broker && plan.network && job.inside.is_none() {
        namespace::check_proxies(&plan.policy.network)?;
    }
    let made = namespace.filter(|_| plan.namespace);
    let outside = job.inside.as_mut().and_then(|inside| inside.outside.take());
    let own_network = outside.as_ref().map_or(Ok(None), Outside::left_for)?;
    let outside = outside.filter(|_| plan.broker && plan.network);
    let served = outside.map_or(Ok(None), |outside| outside.serve(&plan.policy.network))?;
    let (namespace, network) = match served {
        // In a container where the operator opens no host: what else may list some reaches what that does.
        None => serve_network(&plan, made, &env, queries.is_some())?,
        served => (None, served),
    };
    if let Some(network) = &network {
        plan.outer.ports.extend(network.control().ports());
    }
    let proxy = network.as_ref().and_then(|network| told_of(&plan, network));
    let env = net::environment::with_proxy(env, proxy);
    let learn = job.learn.is_some();
    let learner = job.learn.map(|learning| learner(learning, &mut plan, temporary_path.as_deref()));
    let learner = learner.transpose()?;

    // Root keeps the capabilities that work on files and processes of its own.
    let (_, permitted) =
        identity::capabilities().map_err(|e| setup(Mechanism::Seccomp, "capget", e))?;
    let keep = kept(permitted);
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let inherited = inherited::files(plan.reads, &plan.decider, &streams);
    let mut inner = plan.inner.clone();
    inner.grants.extend(inherited.iter().map(|(grant, _)| grant.clone()));
    let ruleset = |layer| {
        landlock::ruleset(layer, support.landlock_abi)
            .map_err(|f| Failure::setup(Mechanism::Landlock, f.0))
    };
    let reporter = Arc::new(Reporter::new(job.traps));
    let inner = ruleset(&inner)?;
    let options = Options {
        broker: plan.broker,
        reads: plan.reads,
        network: plan.network,
        unix_sockets: plan.unix_sockets,
        identity: keep != 0,
        learn,
        makes_sockets: plan.broker && !plan.namespace && !copies_descriptors(&inner),
        namespace: plan.namespace,
    };
    let broker = if plan.broker {
        let reporter = Arc::clone(&reporter);
        let mut config = config(&plan, &inherited, permitted, options, reporter, queries, learner);
        config.profile = job.inside.as_ref().is_some_and(|inside| inside.profile.is_some());
        config.namespace = namespace;
        config.own_network = own_network;
        config.network = network.as_ref().map(|network| Arc::clone(network.control()));
        let broker = Broker::new(config).map_err(|e| setup(Mechanism::Seccomp, "/proc", e))?;
        Some(Arc::new(broker))
    } else {
        None
    };
    let shell = [OsString::from("/bin/sh"), path.clone()];
    let shell: Vec<_> = shell.iter().chain(job.args.iter().skip(1)).cloned().collect();
    let shell = CStrings::new(c_strings(&shell)?);
    let filter = filter::build(options);
    let program = Launch {
        path: &c_string(path.as_bytes())?,
        argv: &CStrings::new(c_strings(&job.args)?),
        // An engine is told that the file is no program.
        shell: job.inside.is_none().then_some(&shell),
        envp: &CStrings::new(c_strings(&env)?),
        cwd: &c_string(plan.policy.cwd.as_bytes())?,
        inherit: &job.inherit,
        keep_capabilities: (permitted != 0).then_some(keep),
        entrances: &ceilings.entrances().map_err(|e| setup(Mechanism::Cgroup, "entering", e))?,
        process_limits: &ceilings.process_limits(),
        ruleset: inner.as_fd(),
        filter: &filter,
        listener: plan.broker,
        profile: job.inside.as_ref().and_then(|inside| {
            inside.profile.as_ref().map(|(filter, flags)| (filter.as_slice(), *flags))
        }),
        announce: None,
        ignored,
        mask: signals.before(),
    };

    // Who executes something in a container is received out here.
    if let (Some(door), Some(broker)) = (door, &broker) {
        let parent = temporary.as_ref().map(|temporary| temporary.0.place().0.try_clone_to_owned());
        let desk = Desk {
            door,
            ruleset: inner.try_clone().map_err(|error| no_broker_yet(&error))?,
            filter: filter.clone(),
            given: Given { temporary: temporary_path.clone(), proxy },
            parent: parent.transpose().map_err(|error| no_broker_yet(&error))?,
        };
        desk.open(broker).map_err(|error| no_broker_yet(&error))?;
    }
    let scoped = support.landlock_abi >= SCOPED_ABI;
    let score = Score::raise();
    // From here on this process is restricted, too.
    let mut outer = plan.outer.clone();
    outer.grants.extend(ceilings.places().map(|place| plan::Grant {
        path: place.to_owned(),
        read: false,
        write: Writing::Directories,
    }));
    let temporary_directory = temporary.as_ref().map(|temporary| &temporary.0);
    let ending = if own_pids {
        Ending::inside(ruleset(&outer)?, ceilings.time())?
    } else {
        Ending::enter(ruleset(&outer)?, scoped, temporary_directory, ceilings.time())?
    };
    if let (Some(broker), Some(watcher)) = (&broker, ending.watcher()) {
        broker.keep_from(watcher);
    }
    let follower = match &broker {
        Some(broker) => broker::follow(broker).map_err(|error| no_broker_yet(&error))?,
        None => None,
    };
    // execve(2) is notified where reads are restricted: then somebody has to serve before it is over.
    let result = match &broker {
        Some(broker) if plan.reads => start_served(broker, program),
        broker => start(broker.as_ref(), &program),
    };
    score.restore();
    let result = match result {
        Ok(pid) => {
            if let Some(inside) = job.inside {
                (inside.started)();
            }
            raise_own_limits();
            ceilings.watch(&reporter);
            signals.supervise(pid, ending.deadline())
        }
        Err(NotStarted::Setup(failure)) => Err(failure.into()),
        Err(NotStarted::Step(step, errno)) => Err(launch_failure(step, errno, &path)),
    };
    // Nobody is left to be served, and it is a child, too.
    drop(network);
    if let Some(follower) = follower {
        // It ends with the helper, and what that still had to say is written down by then.
        let _ = follower.join();
    }
    ending.end_all();
    if let Some(broker) = &broker {
        broker.clean_up();
    }
    let late = result.as_ref().is_ok_and(|end| end.late);
    let mut out: Box<dyn io::Write> =
        if job.quiet { Box::new(io::sink()) } else { Box::new(io::stderr().lock()) };
    ceilings.report(late, &reporter, &mut out, job.style);
    reporter.finish(&mut out, job.style);
    drop((temporary, ceilings));
    // The process ends with the run: giving back each string of the policy would only delay that.
    std::mem::forget(plan);
    result.map(|end| end.code)
}

/// Who learns from a run with this plan. The kernel is relied upon for nothing then: what it decides
/// by itself, nobody hears of.
fn learner(
    learning: Learning,
    plan: &mut Plan,
    temporary: Option<&str>,
) -> Result<Learner, Failure> {
    if !plan.broker {
        let message =
            "nothing can be learned inside another sandbox, which hears of each call first";
        return Err(Failure::new(Code::SandboxSetupFailed, message));
    }
    plan.kernel_write.clear();
    // Whatever a policy attached to the program narrows, what was learned is to be written afterwards.
    plan.answerable();
    let base = match temporary {
        Some(temporary) => plan::with_temporary(learning.base, temporary),
        None => learning.base,
    };
    Ok(Learner::new(Decider::new(&base), learning.notes))
}

/// What the launcher does for a program that raised its soft limits falls under the launcher's.
fn raise_own_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for resource in [Resource::Fsize, Resource::Nofile] {
        let limit = getrlimit(resource);
        // Raising a soft limit to the hard one is everybody's right.
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Why there is no program, or nobody to serve it.
enum NotStarted {
    Setup(Failure),
    Step(Step, Errno),
}

/// Starts the program, and then the broker's first worker. Returns the program's pid.
fn start(broker: Option<&Arc<Broker>>, program: &Launch<'_>) -> Result<i32, NotStarted> {
    let started = spawn::spawn(program).map_err(|(step, errno)| NotStarted::Step(step, errno))?;
    if let (Some(broker), Some(listener)) = (broker, started.listener) {
        broker::serve(broker, listener).map_err(no_broker)?;
    }
    Ok(started.pid)
}

/// The same with a worker that is there before the program, and is told of the listener.
fn start_served(broker: &Arc<Broker>, program: Launch<'_>) -> Result<i32, NotStarted> {
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

fn no_broker_yet(error: &io::Error) -> Failure {
    Failure::setup(Mechanism::Seccomp, format!("cannot start the broker: {error}"))
}

/// Starts the helper for what the policy offers and for its lists of hosts, where there are such. With
/// `asks`, what those refuse is asked about. The namespace is given back.
fn serve_network(
    plan: &Plan,
    made: Option<namespace::Made>,
    env: &[OsString],
    asks: bool,
) -> Result<(Option<Namespace>, Option<net::Network>), Failure> {
    let (mut offers, mut maker) = (Vec::new(), None);
    let namespace = match made {
        Some(made) => {
            offers = made.namespace.offers(&plan.policy.network)?;
            let names = made.names.into_iter();
            offers.extend(names.map(|socket| net::Offer { socket, role: net::Role::Names }));
            maker = Some(made.maker).filter(|_| !plan.policy.network.expose.is_empty());
            Some(made.namespace)
        }
        None => None,
    };
    let hosts = Hosts::new(&plan.policy.network).filter(|_| plan.broker && plan.network);
    let domains = hosts.map(|hosts| net::Domains::new(hosts, env, asks)).transpose()?;
    if domains.is_some() {
        offers.extend(net::proxy_offers(|family| match &namespace {
            Some(namespace) => namespace.socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP),
            None => socket_with(
                AddressFamily::from_raw(family as u16),
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            ),
        })?);
    }
    if offers.is_empty() {
        return Ok((namespace, None));
    }
    let network = net::Network::start(offers, maker, domains)?;
    Ok((namespace, Some(network)))
}

/// The port of the proxy that programs are told of, if they are told of one.
fn told_of(plan: &Plan, network: &net::Network) -> Option<u16> {
    let policy = &plan.policy.network;
    let told = policy.proxy_environment.as_ref().is_none_or(|told| told.value);
    Some(network.control().port()).filter(|port| told && *port != 0 && policy.lists_hosts())
}

/// The private temporary directory; removed when dropped.
struct Temporary(TemporaryDirectory);

impl Drop for Temporary {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Adds what follows from what is mounted where: denials for the other names of what they deny, and
/// around controls of the kernel.
///
/// # Errors
///
/// When the kernel does not say what is mounted.
pub fn add_mounts(
    policy: &mut ResolvedPolicy,
    support: HostSupport,
    which: Guarded,
) -> Result<(), Failure> {
    // What is allowed anyway is devices one by one.
    if policy.rules.iter().all(|rule| rule.origin.is_built_in()) {
        return Ok(());
    }
    // Its size is not told: read(2) without room for it would take many calls.
    let mut mounts = Vec::with_capacity(16 << 10);
    let read =
        File::open("/proc/self/mountinfo").and_then(|mut file| file.read_to_end(&mut mounts));
    read.map_err(|error| {
        Failure::new(Code::SandboxSetupFailed, format!("cannot read /proc/self/mountinfo: {error}"))
    })?;
    let mounts = mounts::parse(&mounts);
    let aliases = mounts::aliases(&policy.rules, &mounts);
    policy.rules.extend(aliases);
    // Inside another run there is nobody to open what is beside them: that run guards them.
    if !support.nested {
        controls::guard(&mut policy.rules, &mounts, which);
    }
    Ok(())
}

/// Adds that no disk may be read where anything may not be. A rule that names one re-opens it.
fn without_disks(mut policy: ResolvedPolicy) -> ResolvedPolicy {
    if policy.restricts_reading() {
        policy.rules.extend(host::readable_disks().into_iter().map(|path| Rule {
            access: Access::Read,
            effect: Effect::Deny,
            always: false,
            text: path.clone(),
            pattern: Pattern::Subtree(path),
            origin: Origin::built_in("disks"),
        }));
    }
    policy
}

pub(super) fn make_temporary(env: &[OsString]) -> Result<TemporaryDirectory, Failure> {
    let own = env
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(b"TMPDIR="))
        .and_then(|v| std::str::from_utf8(v).ok().filter(|path| path.starts_with('/')));
    let parents = own.into_iter().chain(["/tmp", "/var/tmp", "/dev/shm"]);
    TemporaryDirectory::make(parents).map_err(|errno| {
        let message =
            format!("cannot make a temporary directory in TMPDIR, /tmp or /var/tmp: {errno}");
        Failure::new(Code::SandboxSetupFailed, message)
    })
}

/// `env` with the run's temporary directory, where there is one.
pub fn with_temporary(mut env: Vec<OsString>, path: Option<&str>) -> Vec<OsString> {
    if let Some(path) = path {
        env.retain(|variable| !variable.as_bytes().starts_with(b"TMPDIR="));
        env.push(format!("TMPDIR={path}").into());
    }
    env
}

/// Refuses a plan with a shortfall that `accept` does not name.
///
/// # Errors
///
/// `POLICY_SHORTFALL` with the line of the policy, where one is about it.
pub fn refuse_shortfalls(plan: &Plan, accept: &[String]) -> Result<(), Failure> {
    let refused =
        |s: &&plan::Shortfall| !(s.acceptable && accept.iter().any(|name| name == s.name));
    let Some(shortfall) = plan.shortfalls.iter().find(refused) else {
        return Ok(());
    };
    let mut message = shortfall.message.clone();
    if shortfall.acceptable {
        message.push_str(&format!(" (to run without it: --accept {})", shortfall.name));
    }
    let failure = Failure::new(Code::ShortfallRefused, message);
    Err(match &shortfall.origin {
        None => failure,
        Some(origin) => Failure {
            file: Some(origin.file.clone()),
            line: Some(origin.line),
            key: Some(origin.key.clone()),
            ..failure
        },
    })
}

fn config(
    plan: &Plan,
    inherited: &[inherited::Inherited],
    permitted: u64,
    options: Options,
    reporter: Arc<Reporter>,
    queries: Option<Queries>,
    learner: Option<Learner>,
) -> Config {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    let linked = plan.policy.linked.iter().filter_map(|linked| {
        let stat = rustix::fs::lstat(linked.path.as_str()).ok()?;
        let rule = deny_rule(plan, linked.access, &linked.path)?;
        Some((stat.st_dev, stat.st_ino, linked.access, rule.clone()))
    });
    Config {
        decider: Arc::clone(&plan.decider),
        cwd: plan.policy.cwd.clone(),
        kernel_write: plan.kernel_write.clone(),
        kernel_read: plan.kernel_read.clone(),
        reads: plan.reads,
        endpoints: Endpoints::new(&plan.policy.network, crate::cli::resolve::daemons()),
        namespace: None,
        own_network: None,
        network: None,
        linked: linked.collect(),
        inherited: inherited.iter().map(|(_, file)| *file).collect(),
        umask: umask.as_raw_mode(),
        capabilities: kept(permitted) | permitted & broker::ALWAYS,
        profile: false,
        reporter,
        queries,
        learner,
        adviser: Adviser::new(&plan.policy, &host::HostView),
        options,
    }
}

/// Whether this process may copy descriptors of others: a container's own filter may forbid that.
fn copies_descriptors(any: &impl std::os::fd::AsRawFd) -> bool {
    let copied = probe::copy_descriptor(rustix::process::getpid().as_raw_nonzero().get(), any);
    !matches!(copied, Err(Errno::PERM | Errno::NOSYS))
}

/// The rule that denies it; none where another one wins.
fn deny_rule<'a>(plan: &'a Plan, access: Access, path: &str) -> Option<&'a Rule> {
    let verdict = plan.decider.decide(access, path.as_bytes());
    verdict.rule().filter(|_| !verdict.is_allowed())
}

fn launch_failure(step: Step, errno: Errno, path: &OsStr) -> Error {
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
                format!("cannot start in the directory: {text}"),
            )
            .into();
        }
        Step::Cgroup => {
            return setup(Mechanism::Cgroup, "entering the cgroup of the run", errno).into();
        }
        Step::Clone => "clone",
        Step::Limits => "setting limits of the process",
        Step::Descriptors => "closing descriptors",
        Step::Capabilities => "dropping capabilities",
        Step::Landlock => {
            return setup(Mechanism::Landlock, "restricting the program", errno).into();
        }
        Step::Seccomp if errno == Errno::BUSY => {
            let message =
                "an outer sandbox has a seccomp listener already, and there can be only one";
            return Failure::setup(Mechanism::Seccomp, message).into();
        }
        Step::Seccomp => "installing the filter (Linux 5.19 or later is needed)",
        Step::Announce => "announcing the listener",
        Step::Profile => "installing the container's own filter",
    };
    setup(Mechanism::Seccomp, what, errno).into()
}

fn setup(mechanism: Mechanism, what: &str, errno: Errno) -> Failure {
    let text = io::Error::from_raw_os_error(errno.raw_os_error());
    Failure::setup(mechanism, format!("{what}: {text}"))
}

fn c_string(bytes: &[u8]) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| {
        Failure::new(Code::LaunchFailed, "an argument or a variable contains a NUL character")
    })
}

fn c_strings(strings: &[OsString]) -> Result<Vec<CString>, Failure> {
    strings.iter().map(|s| c_string(s.as_bytes())).collect()
}

/// Finds the program as execvp(3) does in `cwd`: a name without a slash along `PATH`.
///
/// # Errors
///
/// ENOENT when it is nowhere, EACCES when what was found cannot be executed.
fn look_up(program: &OsStr, env: &[OsString], cwd: &str) -> Result<OsString, Error> {
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
