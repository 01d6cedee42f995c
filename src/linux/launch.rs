//! The direct launch: a program on the host's own root, under a policy.
//!
//! Everything that can fail or allocate happens before the new process exists; it only applies, see
//! [`process::spawn`]. The order matters, and each constraint stands where it binds.

use super::broker::{self, Broker, Config, Reporter};
use super::filter::{self, Options};
use super::sys::process::{self, CStrings, Launch, Outsider, SignalScope, Step};
use super::sys::{self, Errno};
use super::tmpdir::TemporaryDirectory;
use super::{host, landlock, supervise};
use crate::cli::TrapFd;
use crate::cli::error::{Error, Failure};
use crate::plan::{self, Plan, SCOPED_ABI};
use crate::policy::{Access, ResolvedPolicy, Rule};
use crate::trap::{Code, Mechanism, Style, errno};
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

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
    /// How the denials at the end are written.
    pub style: Style,
}

/// Capabilities that root keeps, as bits: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID,
/// SETPCAP, NET_BIND_SERVICE. None of them reaches the kernel, a device, or another mount.
const KEEP: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10;

/// Runs the job and returns the program's exit code.
///
/// # Errors
///
/// When the program did not start, or could not be supervised to its end.
pub fn run(job: Job) -> Result<u8, Error> {
    let signals = supervise::Signals::block();
    let path = look_up(&job.args[0], &job.env)?;
    let support = host::support();
    let mut temporary = Temporary(None);
    if !support.nested || support.landlock_abi > 0 {
        temporary.0 = Some(make_temporary(&job.env)?);
    }
    let env = with_temporary(job.env, temporary.path().as_deref());
    let plan = plan::plan(
        job.policy,
        temporary.path().as_deref(),
        &host::HostView,
        support,
    );
    refuse_shortfalls(&plan, &job.accept)?;

    // Capabilities: root keeps the ones that work on files and processes of its own.
    let (_, permitted) =
        process::capabilities().map_err(|e| setup(Mechanism::Seccomp, "capget", e))?;
    let keep = permitted & KEEP;
    let options = Options {
        broker: plan.broker,
        reads: plan.reads,
        network: plan.network,
        unix_sockets: plan.unix_sockets,
        identity: keep != 0,
    };
    let program = filter::build(options);

    // Rule paths are opened while nothing is restricted yet.
    let inherited = inherited_files(&plan);
    let mut inner = plan.inner.clone();
    inner
        .grants
        .extend(inherited.iter().map(|(grant, _)| grant.clone()));
    let abi = support.landlock_abi;
    let failed = |f: landlock::Failure| Failure::setup(Mechanism::Landlock, f.0);
    let outer_ruleset = landlock::ruleset(&plan.outer, abi).map_err(failed)?;
    let inner_ruleset = landlock::ruleset(&inner, abi).map_err(failed)?;

    // The outer domain comes before any other thread or process, so that all are in it: the broker
    // may look at the target only from a domain around the target's.
    let scope = enter(&outer_ruleset, abi)?;
    process::adopt_orphans();
    let watcher = match scope {
        Some(scope) => Some(Watcher::start(scope)?),
        None => None,
    };

    let mut hand_over = None;
    let mut broker = None;
    if plan.broker {
        let (ours, theirs) = sys_pair()?;
        let serving = Arc::new(
            Broker::new(config(&plan, &inherited, permitted, job.traps))
                .map_err(|e| setup(Mechanism::Seccomp, "/proc", e))?,
        );
        broker::serve(&serving, ours).map_err(|e| {
            Failure::setup(Mechanism::Seccomp, format!("cannot start the broker: {e}"))
        })?;
        hand_over = Some(theirs);
        broker = Some(serving);
    }

    let cwd = c_string(plan.policy.cwd.as_bytes())?;
    let launch = Launch {
        path: &c_string(path.as_bytes())?,
        argv: &CStrings::new(c_strings(&job.args)?),
        envp: &CStrings::new(c_strings(&env)?),
        cwd: &cwd,
        inherit: &job.inherit,
        keep_capabilities: (permitted != 0).then_some(keep),
        ruleset: inner_ruleset.as_fd(),
        filter: &program,
        hand_over: hand_over.as_ref().map(AsFd::as_fd),
        mask: signals.before(),
    };
    let outcome = process::spawn(&launch);
    // The broker waits for the listener until the last copy of this end is closed.
    drop(hand_over);
    let result = match outcome {
        Ok(pid) => signals.supervise(pid, watcher.as_ref().map(|w| w.pid), scope),
        Err((step, errno)) => Err(launch_failure(step, errno, &path)),
    };
    supervise::end_all(scope);
    if let Some(broker) = &broker {
        broker.clean_up();
        broker
            .reporter()
            .finish(&mut io::stderr().lock(), job.style);
    }
    drop(temporary);
    result
}

/// Enters the outer domain; proves that signals stay in it where the kernel can hold that.
fn enter(ruleset: &OwnedFd, abi: u32) -> Result<Option<SignalScope>, Failure> {
    let restrict = || {
        sys::restrict_self(ruleset.as_fd()).map_err(|e| setup(Mechanism::Landlock, "restrict", e))
    };
    if abi < SCOPED_ABI {
        restrict()?;
        return Ok(None);
    }
    let outsider = Outsider::find().map_err(|e| setup(Mechanism::Landlock, "fork", e))?;
    restrict()?;
    SignalScope::prove(outsider).map(Some).ok_or_else(|| {
        Failure::setup(
            Mechanism::Landlock,
            "signals leave the domain although the kernel has scopes",
        )
    })
}

/// The watcher, and our end of its pipe: it closes with us, however we end.
struct Watcher {
    pid: i32,
    _held: OwnedFd,
}

impl Watcher {
    fn start(scope: SignalScope) -> Result<Watcher, Failure> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| Failure::new(Code::SandboxSetupFailed, format!("pipe: {e}")))?;
        let pid = process::start_watcher(reader.as_fd(), scope)
            .map_err(|e| Failure::new(Code::SandboxSetupFailed, format!("watcher: {e}")))?;
        Ok(Watcher { pid, _held: writer })
    }
}

/// The private temporary directory; removed when dropped.
struct Temporary(Option<TemporaryDirectory>);

impl Temporary {
    fn path(&self) -> Option<String> {
        self.0.as_ref().map(TemporaryDirectory::path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(directory) = &self.0 {
            directory.remove();
        }
    }
}

fn make_temporary(env: &[OsString]) -> Result<TemporaryDirectory, Failure> {
    let own = env
        .iter()
        .find_map(|v| v.as_bytes().strip_prefix(b"TMPDIR="))
        .and_then(|v| {
            std::str::from_utf8(v)
                .ok()
                .filter(|path| path.starts_with('/'))
        });
    let parents = own.into_iter().chain(["/tmp", "/var/tmp", "/dev/shm"]);
    TemporaryDirectory::make(parents).map_err(|errno| {
        let message =
            format!("cannot make a temporary directory in TMPDIR, /tmp or /var/tmp: {errno}");
        Failure::new(Code::SandboxSetupFailed, message)
    })
}

fn with_temporary(mut env: Vec<OsString>, path: Option<&str>) -> Vec<OsString> {
    if let Some(path) = path {
        env.retain(|variable| !variable.as_bytes().starts_with(b"TMPDIR="));
        env.push(format!("TMPDIR={path}").into());
    }
    env
}

fn refuse_shortfalls(plan: &Plan, accept: &[String]) -> Result<(), Failure> {
    let refused =
        |s: &&plan::Shortfall| !(s.acceptable && accept.iter().any(|name| name == s.name));
    let Some(shortfall) = plan.shortfalls.iter().find(refused) else {
        return Ok(());
    };
    let mut message = shortfall.message.clone();
    if shortfall.acceptable {
        message.push_str(&format!(
            " (to run without it: --accept {})",
            shortfall.name
        ));
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

/// Standard input, output and error that are files: the target holds them open already, so it may
/// open them again by `/dev/stdout` and the like, unless a rule denies them.
fn inherited_files(plan: &Plan) -> Vec<(plan::Grant, (u64, u64, Access))> {
    let mut found = Vec::new();
    for (fd, number) in [
        (rustix::stdio::stdin(), 0),
        (rustix::stdio::stdout(), 1),
        (rustix::stdio::stderr(), 2),
    ] {
        let (Ok(stat), Ok(flags)) = (rustix::fs::fstat(fd), rustix::fs::fcntl_getfl(fd)) else {
            continue;
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo
            || FileType::from_raw_mode(stat.st_mode) == FileType::Socket
        {
            continue;
        }
        let Ok(path) = rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new()) else {
            continue;
        };
        let Ok(path) = path.into_string() else {
            continue;
        };
        let mode = flags & OFlags::RWMODE;
        for access in [Access::Read, Access::Write] {
            let wanted = match access {
                Access::Read => plan.reads && mode != OFlags::WRONLY,
                Access::Write => mode == OFlags::WRONLY || mode == OFlags::RDWR,
            };
            let denied_by_name = plan
                .decider
                .decide(access, path.as_bytes())
                .rule()
                .is_some();
            if wanted && !denied_by_name {
                let grant = plan::Grant {
                    path: path.clone(),
                    read: access == Access::Read,
                    write: access == Access::Write,
                    names: false,
                };
                found.push((grant, (stat.st_dev, stat.st_ino, access)));
            }
        }
    }
    found
}

fn config(
    plan: &Plan,
    inherited: &[(plan::Grant, (u64, u64, Access))],
    permitted: u64,
    traps: Option<TrapFd>,
) -> Config {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    let linked = plan.policy.linked.iter().filter_map(|linked| {
        let stat = rustix::fs::lstat(linked.path.as_str()).ok()?;
        let rule = deny_rule(plan, linked.access, &linked.path)?;
        Some((stat.st_dev, stat.st_ino, linked.access, rule.clone()))
    });
    Config {
        decider: crate::policy::Decider::of_rules(plan.policy.rules.clone()),
        kernel_write: plan.kernel_write.clone(),
        kernel_read: plan.kernel_read.clone(),
        reads: plan.reads,
        network: plan.network,
        unix_sockets: plan.unix_sockets,
        linked: linked.collect(),
        inherited: inherited.iter().map(|(_, file)| *file).collect(),
        umask: umask.as_raw_mode(),
        capabilities: permitted & (KEEP | broker::ALWAYS),
        reporter: Reporter::new(traps),
    }
}

fn deny_rule<'a>(plan: &'a Plan, access: Access, path: &str) -> Option<&'a Rule> {
    plan.decider.decide(access, path.as_bytes()).rule()
}

fn launch_failure(step: Step, errno: Errno, path: &OsStr) -> Error {
    let name = errno::name(errno.raw_os_error());
    let text = io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    let what = match step {
        Step::Exec => {
            let program = path.to_string_lossy().into_owned();
            return Error::Launch {
                program,
                errno: name,
                message: text,
            };
        }
        Step::Directory => {
            return Failure::new(
                Code::LaunchFailed,
                format!("cannot start in the directory: {text}"),
            )
            .into();
        }
        Step::Clone => "clone",
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
        Step::HandOver => "handing the listener over",
    };
    setup(Mechanism::Seccomp, what, errno).into()
}

fn setup(mechanism: Mechanism, what: &str, errno: Errno) -> Failure {
    let text = io::Error::from_raw_os_error(errno.raw_os_error());
    Failure::setup(mechanism, format!("{what}: {text}"))
}

fn sys_pair() -> Result<(OwnedFd, OwnedFd), Failure> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| setup(Mechanism::Seccomp, "socketpair", e))
}

fn c_string(bytes: &[u8]) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| {
        Failure::new(
            Code::LaunchFailed,
            "an argument or a variable contains a NUL character",
        )
    })
}

fn c_strings(strings: &[OsString]) -> Result<Vec<CString>, Failure> {
    strings.iter().map(|s| c_string(s.as_bytes())).collect()
}

/// Finds the program as execvp(3) does: a name without a slash along `PATH`.
///
/// # Errors
///
/// ENOENT when it is nowhere, EACCES when what was found cannot be executed.
fn look_up(program: &OsStr, env: &[OsString]) -> Result<OsString, Error> {
    let name = program.as_bytes();
    let fail = |errno: Errno| launch_failure(Step::Exec, errno, program);
    if name.is_empty() {
        return Err(fail(Errno::NOENT));
    }
    if name.contains(&b'/') {
        return Ok(program.to_owned());
    }
    let path = env
        .iter()
        .find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
    let mut last = Errno::NOENT;
    // execvp(3)'s default where PATH is not set.
    for directory in path.unwrap_or(b"/bin:/usr/bin").split(|&byte| byte == b':') {
        let directory = if directory.is_empty() {
            b"."
        } else {
            directory
        };
        let candidate = [directory, b"/", name].concat();
        match rustix::fs::access(candidate.as_slice(), rustix::fs::Access::EXEC_OK) {
            Ok(()) if is_file(&candidate) => return Ok(OsString::from_vec(candidate)),
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
