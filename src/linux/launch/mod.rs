//! The direct launch: a program on the host's own root, under a policy.
//!
//! Everything that can fail or allocate happens before the new process exists; it only applies, see
//! [`spawn`](super::sys::spawn::spawn). The order matters, and each constraint stands where it binds.

mod network;
mod prepare;
mod program;

use super::broker::{self, Broker, Config, Desk, Given, Learner, Queries, Reporter};
use super::filter::{self, Options};
use super::limits::Ceilings;
use super::net::container::{Outside, Served};
use super::net::{self, Unlisted};
use super::oom::Score;
use super::supervise::{Ending, Signals};
use super::sys::seccomp::Instruction;
use super::sys::spawn::{CStrings, Launch};
use super::sys::{identity, signals};
use super::{cgroup, host, inherited, landlock, namespace};
use crate::cli::TrapFd;
use crate::cli::error::{Error, Failure};
use crate::learn::Notes;
use crate::plan::controls::Guarded;
use crate::plan::{self, HostSupport, Plan, SCOPED_ABI, Writing};
use crate::policy::{Access, Decider, Endpoints, ResolvedPolicy, Rule};
use crate::trap::{Adviser, Code, Mechanism, Style};
use network::{serve_network, told_of};
pub(super) use prepare::make_temporary;
use prepare::{Temporary, without_disks};
pub use prepare::{add_mounts, refuse_shortfalls, with_temporary};
pub use program::refuse_outer_filter;
use program::{
    NotStarted, c_string, c_strings, launch_failure, look_up, no_broker_yet, setup, start,
    start_served,
};
use rustix::fs::Mode;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

/// Runs the job and returns the program's exit code. Who calls it has asked [`refuse_outer_filter`] before anything
/// else.
///
/// # Errors
///
/// When the program did not start, or could not be supervised to its end.
pub fn run(mut job: Job) -> Result<u8, Error> {
    let signals = Signals::block(job.inside.is_some())
        .map_err(|e| setup(Mechanism::Seccomp, "prctl(PR_SET_CHILD_SUBREAPER)", e))?;
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
    let own_pids = job.inside.as_ref().is_some_and(|inside| inside.own_pids);
    if own_pids {
        plan.in_own_pids();
    }
    if job.learn.is_some() {
        plan.learnable();
    }
    refuse_shortfalls(&plan, &job.accept)?;
    let door = job.inside.as_mut().and_then(|inside| inside.door.take());
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
    let learn = job.learn.is_some();
    let made = namespace.filter(|_| plan.namespace);
    let outside = job.inside.as_mut().and_then(|inside| inside.outside.take());
    let own_network = outside.as_ref().map_or(Ok(None), Outside::left_for)?;
    let outside = outside.filter(|_| plan.broker && plan.network);
    let served = outside.map_or(Ok(None), |outside| outside.serve(&plan.policy.network))?;
    let (namespace, names, network) = match served {
        // In a container where the operator opens no host: what else may list some reaches what that does.
        None => {
            // A policy that is attached to the program holds here, too.
            let unlisted = match (&queries, learn && !plan.network) {
                (_, true) => Unlisted::Learned,
                (Some(_), _) => Unlisted::Asked,
                (None, _) => Unlisted::Refused,
            };
            let (namespace, network) = serve_network(&plan, made, &env, unlisted)?;
            (namespace, None, network)
        }
        Some(Served { network, names }) => (None, names, Some(network)),
    };
    if let Some(network) = &network {
        plan.outer.ports.extend(network.control().ports());
    }
    let proxy = network.as_ref().and_then(|network| told_of(&plan, network, learn));
    let env = net::environment::with_proxy(env, proxy, !learn);
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
        makes_sockets: plan.broker && !plan.namespace && !support.copies_descriptors,
        namespace: plan.namespace,
        signals: plan.signals,
        devices: plan.devices,
    };
    let broker = if plan.broker {
        let reporter = Arc::clone(&reporter);
        let mut config = config(&plan, &inherited, permitted, options, reporter, queries, learner);
        config.adviser = config.adviser.in_container(job.inside.is_some());
        config.profile = job.inside.as_ref().is_some_and(|inside| inside.profile.is_some());
        config.namespace = namespace;
        config.names = names;
        config.own_network = own_network;
        config.network = network.as_ref().map(|network| Arc::clone(network.control()));
        let broker = Broker::new(config)
            .map_err(|e| setup(Mechanism::Seccomp, "opening /proc for the broker", e))?;
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
            signals.supervise(pid, broker.as_deref(), ending.deadline())
        }
        Err(NotStarted::Setup(failure)) => Err(failure.into()),
        Err(NotStarted::Step(step, errno)) => Err(launch_failure(step, errno, &path)),
    };
    // Nobody is left to be served, and it is a child, too.
    let ends = network.is_none_or(net::Network::end);
    if let Some(follower) = follower.filter(|_| ends) {
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
    let endpoints = Endpoints::new(&base.network, crate::cli::resolve::daemons());
    Ok(Learner::new(Decider::new(&base), endpoints, learning.notes))
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
        names: None,
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

/// The rule that denies it; none where another one wins.
fn deny_rule<'a>(plan: &'a Plan, access: Access, path: &str) -> Option<&'a Rule> {
    let verdict = plan.decider.decide(access, path.as_bytes());
    verdict.rule().filter(|_| !verdict.is_allowed())
}
