//! Tries out what a run needs, each thing for real and in a process of its own.

use super::cgroup::Cgroups;
use super::namespace::Namespace;
use super::sys::probe::{
    Child, End, copy_descriptor, install_and_send, may_signal, readable, receive_listener, umask,
    unshare,
};
use super::sys::{self, Errno, memory, needs, seccomp};
use super::{filter, host, landlock, launch};
use crate::plan::{Ceiling, Grant, HostSupport, Layer, SCOPED_ABI, Writing};
use crate::policy::{Limits, Located, Origin};
use crate::trap::errno;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};

/// How long one trial may take, in seconds; none of them waits for anything slow.
const PATIENCE: i64 = 10;

/// What came of the trials.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Nothing that a run needs is missing.
    pub healthy: bool,
    /// The version of this program.
    pub version: &'static str,
    /// The release of the kernel, where `/proc` tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What a plan goes by.
    pub host: HostSupport,
    /// The trials, in order.
    pub checks: Vec<Check>,
}

/// One trial.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was tried.
    pub name: &'static str,
    /// Whether a run needs it.
    pub required: bool,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a trial.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// In a word.
    pub status: Status,
    /// The kernel's error, by name.
    pub errno: Option<String>,
    /// What was seen, or what is missing.
    pub message: String,
}

/// The result of a trial in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It works.
    Ok,
    /// The kernel took it, and it does not do what it should.
    Failed,
    /// This host refuses it, or has no such thing.
    Unavailable,
}

impl Status {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Failed => "failed",
            Status::Unavailable => "unavailable",
        }
    }
}

/// How a trial ends: `Err` is only the shorter way out.
type Trial = Result<Outcome, Outcome>;

/// It does not do what it should.
fn wrong(message: impl Into<String>) -> Outcome {
    Outcome { status: Status::Failed, errno: None, message: message.into() }
}

/// The kernel refuses `what`.
fn refused(what: &str) -> impl FnOnce(Errno) -> Outcome {
    move |error| {
        let code = error.raw_os_error();
        let text = std::io::Error::from_raw_os_error(code);
        Outcome {
            status: Status::Unavailable,
            errno: Some(errno::name(code).map_or_else(|| code.to_string(), str::to_owned)),
            message: format!("{what}: {text}"),
        }
    }
}

/// The outcome of a trial.
fn outcome(trial: Trial) -> Outcome {
    trial.unwrap_or_else(|outcome| outcome)
}

/// It works, as `message` says.
fn works(message: impl Into<String>) -> Trial {
    Ok(Outcome { status: Status::Ok, errno: None, message: message.into() })
}

/// Runs a trial in a process of its own.
fn apart(trial: impl FnOnce() -> Trial) -> Outcome {
    let work = || serde_json::to_vec(&outcome(trial())).unwrap_or_default();
    let child = match Child::start(work) {
        Ok(child) => child,
        Err(error) => return refused("fork")(error),
    };
    match child.end(PATIENCE) {
        End::Said(text) => serde_json::from_slice(&text)
            .unwrap_or_else(|error| wrong(format!("the trial spoke unclearly: {error}"))),
        End::Died(status) => wrong(format!("the trial died (wait status {status:#x})")),
        End::Hung => wrong(format!("no answer within {PATIENCE} seconds")),
    }
}

/// Tries everything. Only to be called while this process has one thread, since it forks.
#[must_use]
pub fn examine() -> Report {
    // Without these, the other trials would fail in ways that say nothing.
    if let Err((call, errno)) = needs::check_all() {
        let outcome = refused(&format!("a seccomp filter in force refuses {call}"))(errno);
        let checks = vec![Check { name: SYSTEM_CALLS, required: true, outcome }];
        return Report {
            healthy: false,
            version: VERSION,
            kernel: None,
            host: HostSupport::default(),
            checks,
        };
    }
    let limits = every_limit();
    let support = Cgroups::make(&limits).support();
    let host = HostSupport { limits: support, ..host::support() };
    let env: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| name == "TMPDIR")
        .map(|(_, path)| {
            let mut variable = std::ffi::OsString::from("TMPDIR=");
            variable.push(path);
            variable
        })
        .collect();
    let temporary = launch::make_temporary(&env);
    let directory = temporary.as_ref().ok().map(|made| made.path());
    let made = match &directory {
        Some(path) => outcome(temporary_directory(path)),
        None => wrong("no directory could be made in TMPDIR, /tmp, /var/tmp or /dev/shm"),
    };
    // Inside a run of ours there is a broker already, and Landlock alone holds the inner run.
    let broker = !host.nested;
    let scoped = host.landlock_abi >= SCOPED_ABI;
    let mut checks = Vec::new();
    let mut add = |name, required, outcome| checks.push(Check { name, required, outcome });
    add(SYSTEM_CALLS, true, outcome(works("none that every run needs is refused")));
    add("landlock", true, apart(|| denies_a_write(host, directory.as_deref())));
    add("landlock-errata", false, outcome(errata()));
    add("landlock-signals", scoped, apart(|| keeps_signals_inside(host)));
    add("seccomp-listener", broker, apart(answers_a_notification));
    add("process-memory", broker, apart(|| with_child(reads_memory)));
    add("pidfd-getfd", false, apart(|| with_child(copies_descriptors)));
    add("proc", true, apart(|| with_child(proc_is_usable)));
    add("temporary-directory", true, made);
    add("user-namespace", false, apart(|| namespace(UnshareFlags::NEWUSER)));
    add("network-namespace", false, apart(network_namespace));
    let ceilings = [("memory", support.memory), ("pids", support.pids), ("cpu", support.cpu)];
    for (limit, (controller, ceiling)) in LIMITS.into_iter().zip(ceilings) {
        add(limit, false, outcome(held(controller, ceiling)));
    }
    if let Ok(temporary) = &temporary {
        temporary.remove();
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    Report {
        healthy: !checks.iter().any(|c| c.required && c.outcome.status != Status::Ok),
        version: VERSION,
        kernel: kernel.map(|text| text.trim_end().to_owned()),
        host,
        checks,
    }
}

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The trial of [`needs::check_all`].
const SYSTEM_CALLS: &str = "system-calls";

/// The trials of ceilings, in the order of [`every_limit`].
const LIMITS: [&str; 3] = ["limit-memory", "limit-pids", "limit-cpu"];

/// A policy's limits, each with a value that any host takes.
fn every_limit() -> Limits {
    let amount = |value| Some(Located::new(value, Origin::built_in("doctor")));
    Limits { memory: amount(64 << 20), pids: amount(64), cpu: amount(1000), time: None }
}

/// A cgroup could be made that holds the ceiling.
fn held(controller: &str, ceiling: Option<Ceiling>) -> Trial {
    let ceiling = ceiling.unwrap_or(Ceiling::Absent);
    match ceiling.holder() {
        Some(holder) => works(format!("held by {}", holder.name())),
        None => Err(Outcome {
            status: Status::Unavailable,
            errno: None,
            message: ceiling.reason(controller),
        }),
    }
}

fn temporary_directory(path: &str) -> Trial {
    let io = |error: std::io::Error| wrong(format!("{path}: {error}"));
    for name in ["open", "closed"] {
        fs::create_dir(format!("{path}/{name}")).map_err(io)?;
    }
    fs::write(format!("{path}/file"), "x").map_err(io)?;
    works(format!("files can be made in {}", path.rsplit_once('/').map_or("/", |(dir, _)| dir)))
}

/// A Landlock domain lets a write through and refuses another.
fn denies_a_write(host: HostSupport, directory: Option<&str>) -> Trial {
    let abi = sys::landlock_abi().map_err(refused("landlock_create_ruleset"))?;
    let Some(directory) = directory else {
        return Err(wrong("there is no temporary directory to try it in"));
    };
    let open = format!("{directory}/open");
    let grant = Grant { path: open.clone(), read: false, write: Writing::All };
    let layer = Layer { writing: true, grants: vec![grant], ..Layer::default() };
    enter(&layer, host.landlock_abi)?;
    fs::write(format!("{open}/file"), "x")
        .map_err(|error| wrong(format!("a granted write is refused: {error}")))?;
    match fs::write(format!("{directory}/closed/file"), "x") {
        Err(error) if error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => {}
        Err(error) => return Err(wrong(format!("a write that is not granted: {error}"))),
        Ok(()) => return Err(wrong("a write that is not granted succeeds")),
    }
    let message = format!("ABI {abi}: a granted write succeeds, another is refused");
    if abi < crate::plan::OLDEST_ABI {
        return Err(wrong(format!("{message}; ABI {} is needed", crate::plan::OLDEST_ABI)));
    }
    works(message)
}

fn enter(layer: &Layer, abi: u32) -> Result<(), Outcome> {
    let ruleset = landlock::ruleset(layer, abi).map_err(|failure| wrong(failure.0))?;
    sys::restrict_self(ruleset.as_fd()).map_err(refused("landlock_restrict_self"))
}

fn errata() -> Trial {
    let errata = sys::landlock_errata().map_err(refused("the kernel does not list its errata"))?;
    let fixed = (0..u32::BITS).filter(|bit| errata >> bit & 1 == 1).map(|bit| bit + 1);
    let fixed: Vec<_> = fixed.map(|number| number.to_string()).collect();
    works(match fixed.is_empty() {
        true => "no erratum is fixed in this kernel, or none applies to it".to_owned(),
        false => format!("fixed in this kernel: {}", fixed.join(", ")),
    })
}

/// A domain keeps its signals inside: the process outside that is tried is the one that waits for
/// this trial, and signal 0 is never delivered.
fn keeps_signals_inside(host: HostSupport) -> Trial {
    if host.landlock_abi < SCOPED_ABI {
        let instead =
            if host.nested { "a run takes --accept signals" } else { "the broker holds them" };
        let message =
            format!("needs Landlock ABI {SCOPED_ABI} (Linux 6.12): before that, {instead}");
        return Err(Outcome { status: Status::Unavailable, errno: None, message });
    }
    let outside = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    may_signal(outside).map_err(refused("a signal to the parent"))?;
    enter(
        &Layer { writing: true, signals: true, abstract_sockets: true, ..Layer::default() },
        host.landlock_abi,
    )?;
    match may_signal(outside) {
        Err(Errno::PERM) => works("a signal to a process outside is refused"),
        Err(error) => Err(refused("a signal to a process outside")(error)),
        Ok(()) => Err(wrong("a signal to a process outside is delivered")),
    }
}

/// A system call of another process waits for us, and goes on when we say so.
fn answers_a_notification() -> Trial {
    const MASK: u32 = 0o27;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(refused("socketpair"))?;
    // The widest filter that a run can have.
    let program = filter::build(filter::Options {
        broker: true,
        reads: true,
        network: true,
        namespace: true,
        unix_sockets: true,
        identity: true,
        learn: false,
        makes_sockets: true,
        signals: true,
        devices: true,
    });
    let before = umask(0o77);
    let target = Child::start(|| match install_and_send(&program, theirs.as_fd()) {
        Ok(()) => vec![u8::from(umask(MASK) == 0o77)],
        Err(error) => error.raw_os_error().to_ne_bytes().to_vec(),
    });
    umask(before);
    let target = target.map_err(refused("fork"))?;
    drop(theirs);
    let Some(listener) = receive_listener(ours.as_fd()).map_err(refused("recvmsg"))? else {
        return Err(match target.end(PATIENCE) {
            End::Said(code) if code.len() == 4 => {
                let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
                refused("a filter with a listener")(Errno::from_raw_os_error(code))
            }
            end => wrong(format!("the target has no listener: {end:?}")),
        });
    };
    seccomp::set_sync_wake_up(listener.as_fd());
    if !readable(&listener, PATIENCE) {
        return Err(wrong("no notification came"));
    }
    let seen = seccomp::receive(listener.as_fd()).map_err(refused("SECCOMP_IOCTL_NOTIF_RECV"))?;
    if (seen.nr(), seen.arg(0)) != (libc::SYS_umask, u64::from(MASK)) {
        return Err(wrong(format!("system call {} was notified, not umask", seen.nr())));
    }
    if !seccomp::id_valid(listener.as_fd(), seen.id()) {
        return Err(wrong("the notification is not valid"));
    }
    seccomp::answer_continue(listener.as_fd(), seen.id())
        .map_err(refused("SECCOMP_IOCTL_NOTIF_SEND"))?;
    match target.end(PATIENCE) {
        End::Said(said) if said == [1] => works("a system call waited for its answer and went on"),
        end => Err(wrong(format!("the system call did not go on as answered: {end:?}"))),
    }
}

/// What a trial that looks at another process looks at.
struct Subject<'a> {
    pid: i32,
    /// In its memory too, where it is here.
    text: &'a [u8; 16],
    /// Open there too, under the same number.
    open: &'a std::io::PipeReader,
}

/// Runs a trial on a child that does nothing.
fn with_child(trial: impl FnOnce(&Subject<'_>) -> Trial) -> Trial {
    let text = *b"sixteen letters!";
    let (mut open, held) = std::io::pipe().map_err(|error| wrong(format!("a pipe: {error}")))?;
    let child = Child::start(|| {
        // Nobody writes: this ends with a signal.
        let _nothing = open.read(&mut [0]);
        Vec::new()
    });
    let child = child.map_err(refused("fork"))?;
    let result = trial(&Subject { pid: child.pid(), text: &text, open: &open });
    drop((child, held));
    result
}

fn reads_memory(subject: &Subject<'_>) -> Trial {
    let read = memory::read_array::<16>(subject.pid, subject.text.as_ptr() as u64);
    match read.map_err(refused("process_vm_readv"))? == *subject.text {
        true => works("the memory of a child can be read"),
        false => Err(wrong("process_vm_readv returns something else")),
    }
}

fn copies_descriptors(subject: &Subject<'_>) -> Trial {
    let copied = copy_descriptor(subject.pid, subject.open);
    copied.map_err(refused(
        "pidfd_getfd (the broker then makes the stream sockets of a run itself, and before Linux 6.10 a run \
            takes --accept devices)",
    ))?;
    works("a descriptor of a child can be copied")
}

/// What the broker asks `/proc` for: what a descriptor is, and where another process stands.
fn proc_is_usable(subject: &Subject<'_>) -> Trial {
    const PROC_SUPER_MAGIC: i64 = 0x9fa0;
    let statfs = rustix::fs::statfs("/proc").map_err(refused("/proc"))?;
    if statfs.f_type as i64 != PROC_SUPER_MAGIC {
        return Err(wrong("/proc is no proc file system"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty()).map_err(refused("/"))?;
    let pid = subject.pid;
    let links = [format!("/proc/self/fd/{}", root.as_raw_fd()), format!("/proc/{pid}/root")];
    for link in links {
        let target = rustix::fs::readlink(&link, Vec::new()).map_err(refused(&link))?;
        if target.as_bytes() != b"/" {
            return Err(wrong(format!("{link} does not lead to /")));
        }
    }
    fs::read(format!("/proc/{pid}/status"))
        .map_err(|error| wrong(format!("/proc/{pid}/status: {error}")))?;
    works("descriptors and processes can be looked up")
}

fn namespace(flags: UnshareFlags) -> Trial {
    unshare(flags).map_err(refused("unshare"))?;
    works("can be made (no run needs it)")
}

/// As a run makes one.
fn network_namespace() -> Trial {
    let without = "without one, the broker keeps sockets on the host's loopback, and names are for the proxy alone";
    let namespace = Namespace::make(true).map_err(refused(without))?.namespace;
    let socket = namespace.socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    match socket.map_err(refused("a socket in it"))? {
        socket if namespace.has(&socket) => works(
            "a policy that opens part of loopback, or lists hosts, gets one; names are answered in it",
        ),
        _ => Err(wrong("a socket is in another one")),
    }
}
