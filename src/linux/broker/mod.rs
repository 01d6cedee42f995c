//! The broker: answers the target's notified system calls.
//!
//! It decides with [`Decider`] on pinned objects and then either does the operation itself, with the
//! target's rights, or lets the kernel run it. It continues a call only where that is safe whatever
//! the target's memory holds by then: the decision was on register values, or Landlock holds the same
//! decision on the kernel's second look. See SECURITY.md, "The broker".

mod answers;
mod asked;
mod attributes;
mod controls;
mod deep;
mod device;
mod diag;
mod direct;
mod due;
mod execute;
mod grants;
mod guests;
mod held;
mod helpers;
mod hosts;
mod identity;
mod internet;
mod ipc;
mod learn;
mod moves;
mod names;
mod network;
mod open;
mod pool;
mod procfs;
mod query;
mod report;
mod resolve;
mod signals;
mod substitute;
mod task;
mod terms;
mod text;
mod unix;

use super::filter::Options;
use super::namespace::Namespace;
use super::net::channel::Control;
use super::sys::identity::Identity;
use super::sys::{Errno, seccomp};
use crate::policy::{Access, Decider, Effect, Endpoints, Reason, Rule, Verdict};
use crate::trap::Adviser;
pub use guests::{Desk, Given, Guest, NAMESPACES, namespaces};
use held::Held;
pub use hosts::follow;
pub use learn::Learner;
pub use pool::{Paused, serve, serve_announced};
pub use query::Queries;
pub use report::Reporter;
use resolve::fd_name;
use rustix::fs::{Mode, OFlags, Stat, major};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use task::Task;
pub use task::{ALWAYS, status_of};

/// What a call comes to.
enum Answer {
    /// The kernel runs it.
    Continue,
    /// It returns this value.
    Value(i64),
    /// It fails.
    Error(Errno),
    /// It returns this descriptor, close-on-exec or not.
    Descriptor(OwnedFd, bool),
    /// The same, and it was made there just now.
    Created(OwnedFd, bool, direct::Made),
    /// It returns 0 or fails, and this descriptor takes the place of that number, and of every other one
    /// that the process has for the socket with the inode `old`.
    Replaced { fd: OwnedFd, number: i32, cloexec: bool, old: u64, result: Result<(), Errno> },
    /// It waits: a query is out, and whoever answers it ends the call.
    Asked,
    /// It is to be done over at once: there is an answer already.
    Again,
}

impl From<Result<Answer, Errno>> for Answer {
    fn from(result: Result<Answer, Errno>) -> Answer {
        result.unwrap_or_else(Answer::Error)
    }
}

impl From<Result<(), Errno>> for Answer {
    fn from(result: Result<(), Errno>) -> Answer {
        match result {
            Ok(()) => Answer::Value(0),
            Err(errno) => Answer::Error(errno),
        }
    }
}

/// What the broker works from; fixed before the target starts.
pub struct Config {
    /// The policy's one meaning.
    pub decider: Arc<Decider>,
    /// The directory that the target starts in.
    pub cwd: String,
    /// Subtrees in which Landlock lets the target write by itself.
    pub kernel_write: Vec<String>,
    /// The same for reading; `/` while reads are unrestricted.
    pub kernel_read: Vec<String>,
    /// Whether reads are restricted.
    pub reads: bool,
    /// What the policy means for addresses and sockets.
    pub endpoints: Endpoints,
    /// Where internet sockets are made, if the run has a network namespace.
    pub namespace: Option<Namespace>,
    /// Where those of UDP are made in a container whose questions about names are answered.
    pub names: Option<Namespace>,
    /// The network namespace of the container that the target is in, by its cookie: all addresses in there are the
    /// container's own.
    pub own_network: Option<u64>,
    /// The way to the domain proxy, if there is one.
    pub network: Option<Arc<Control>>,
    /// Denied files with more than one name, by device and inode.
    pub linked: Vec<(u64, u64, Access, Rule)>,
    /// Inherited descriptors by device and inode: what Landlock grants on them.
    pub inherited: Vec<(u64, u64, Access)>,
    /// The file mode creation mask that the target starts with.
    pub umask: u32,
    /// Capabilities that the target keeps, as a bit mask.
    pub capabilities: u64,
    /// A filter of the target's own comes on top of the one that notifies.
    pub profile: bool,
    /// Where denials go.
    pub reporter: Arc<Reporter>,
    /// Whom to ask before denying, if anybody.
    pub queries: Option<Queries>,
    /// Who learns from the run, if anybody.
    pub learner: Option<Learner>,
    /// Who knows what would allow what is denied.
    pub adviser: Adviser,
    /// What the filter notifies.
    pub options: Options,
}

/// What everybody in a run shares: the policy, and the books of what the run made.
pub struct Run {
    decider: Arc<Decider>,
    kernel_write: Held,
    kernel_read: Held,
    reads: bool,
    endpoints: Endpoints,
    namespace: Option<Namespace>,
    names: Option<Namespace>,
    own_network: Option<u64>,
    network: Option<Arc<Control>>,
    /// The sockets that were as good as the host at the launch, by device and inode.
    daemons: HashSet<(u64, u64)>,
    linked: HashMap<(u64, u64, Access), Rule>,
    /// The root directory.
    root: OwnedFd,
    /// `/proc`.
    proc: OwnedFd,
    /// `/proc/self/fd`, where our own descriptors can be opened again.
    own_fds: OwnedFd,
    memory: ipc::Objects,
    sockets: unix::Bound,
    kept: substitute::Kept,
    askers: hosts::Askers,
    /// A rule grants something by a name in a subtree that Landlock grants whole, links and all.
    guards_links: bool,
    moves: moves::Moves,
    reporter: Arc<Reporter>,
    queries: Option<Queries>,
    learner: Option<Learner>,
    adviser: Adviser,
    options: Options,
}

/// The broker of one target and its descendants: the program of a run, or a [`Guest`] of it.
pub struct Broker {
    run: Arc<Run>,
    listener: OnceLock<OwnedFd>,
    inherited: Vec<(u64, u64, Access)>,
    /// It serves a guest, whose domain grants nothing of those, and who looks at no process of others.
    guest: bool,
    umask: u32,
    umask_changed: AtomicBool,
    identity_changed: AtomicBool,
    /// Some task entered a Landlock domain of its own.
    nested: AtomicBool,
    /// Seccomp filters on the target beside the launcher's.
    own_filters: u32,
    /// Seccomp filters on the target, looked up when first asked for.
    filters: OnceLock<u32>,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Capabilities of the workers.
    own_capabilities: u64,
    pool: pool::Pool,
}

impl Deref for Broker {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

impl Broker {
    /// Prepares a broker; it serves once it has a listener, see [`serve`].
    ///
    /// # Errors
    ///
    /// As open(2) on `/` and `/proc`.
    pub fn new(config: Config) -> Result<Broker, Errno> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path| rustix::fs::open(path, directory, Mode::empty());
        let linked =
            config.linked.into_iter().map(|(dev, ino, access, rule)| ((dev, ino, access), rule));
        // Now, with all of the launcher's rights; where no socket of a process outside can be reached,
        // nobody asks.
        let endpoints = config.endpoints;
        let daemons = if endpoints.opens_sockets() {
            unix::daemons(&endpoints).collect()
        } else {
            HashSet::new()
        };
        let kernel_write = Held::new(&config.kernel_write, &config.cwd, &config.decider);
        let guards_links = config.decider.rules().iter().any(|rule| {
            let place = rule.place().as_bytes();
            rule.effect == Effect::Allow
                && !rule.origin.is_built_in()
                && place != b"/"
                && kernel_write.covers(names::parent(place))
        });
        let run = Run {
            kernel_write,
            guards_links,
            kernel_read: Held::new(&config.kernel_read, &config.cwd, &config.decider),
            decider: config.decider,
            reads: config.reads,
            endpoints,
            namespace: config.namespace,
            names: config.names,
            own_network: config.own_network,
            network: config.network,
            daemons,
            linked: linked.collect(),
            root: open("/")?,
            proc: open("/proc")?,
            own_fds: open("/proc/self/fd")?,
            memory: ipc::Objects::new(),
            sockets: unix::Bound::default(),
            kept: substitute::Kept::default(),
            askers: hosts::Askers::default(),
            moves: moves::Moves::default(),
            reporter: config.reporter,
            queries: config.queries,
            learner: config.learner,
            adviser: config.adviser,
            options: config.options,
        };
        Ok(Broker {
            run: Arc::new(run),
            listener: OnceLock::new(),
            inherited: config.inherited,
            guest: false,
            umask: config.umask,
            umask_changed: AtomicBool::new(false),
            identity_changed: AtomicBool::new(false),
            nested: AtomicBool::new(false),
            own_filters: 1 + u32::from(config.profile),
            filters: OnceLock::new(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()?.iter().map(|group| group.as_raw()).collect(),
            own_capabilities: config.capabilities,
            pool: pool::Pool::default(),
        })
    }

    /// Removes what the run left in `/dev/shm` and of System V objects.
    pub fn clean_up(&self) {
        if let Some(queries) = &self.queries {
            queries.finish(self);
        }
        self.memory.remove_all();
    }

    /// Where the calls of the program and its descendants come in, once that is known.
    pub fn own_listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.get().map(AsFd::as_fd)
    }

    /// Where answers to queries come in, while any are read.
    pub fn own_answers(&self) -> Option<BorrowedFd<'_>> {
        let queries = self.queries.as_ref().filter(|queries| !queries.is_closed());
        queries.map(|queries| queries.socket.as_fd())
    }

    /// See [`Pool::pause`].
    pub fn pause(&self) -> Paused<'_> {
        self.pool.pause()
    }

    fn listener(&self) -> BorrowedFd<'_> {
        self.listener.get().expect("a worker starts with the listener").as_fd()
    }

    fn still_valid(&self, id: u64) -> bool {
        seccomp::id_valid(self.listener(), id)
    }

    fn umask_changed(&self) -> bool {
        self.umask_changed.load(Ordering::Acquire) || self.identity_changed()
    }

    fn identity_changed(&self) -> bool {
        self.identity_changed.load(Ordering::Acquire)
    }

    /// Whom the target starts as, and the workers with it.
    fn own_identity(&self) -> Identity<'_> {
        let (uid, gid) = (self.uid, self.gid);
        Identity { uid, gid, fs_uid: uid, fs_gid: gid, groups: &self.groups }
    }

    /// The user that this thread now acts as on files.
    fn acting_uid(&self) -> u32 {
        if self.identity_changed() { identity::fs_uid() } else { self.uid }
    }

    /// Opens one of our `O_PATH` descriptors for real.
    fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        // A terminal must not become the launcher's; descriptors must not leak.
        let flags = flags - (OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW);
        let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.own_fds, fd_name(fd), flags, Mode::empty())
    }

    fn on_procfs(&self, fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        Ok(rustix::fs::fstatfs(fd)?.f_type == rustix::fs::PROC_SUPER_MAGIC)
    }

    /// The same for an object with this `stat`, at less cost where it is not: procfs has no device
    /// and no blocks, and asking a file system for its type can take a way over the network.
    fn shows_procfs(&self, fd: BorrowedFd<'_>, stat: &Stat) -> Result<bool, Errno> {
        Ok(major(stat.st_dev) == 0 && stat.st_blocks == 0 && self.on_procfs(fd)?)
    }

    /// Whether Landlock alone lets the target have `access` to the object at `path`, and to names in
    /// it if it is a directory.
    fn kernel_holds(&self, access: Access, path: &[u8]) -> bool {
        match access {
            Access::Read => !self.reads || self.kernel_read.covers(path),
            Access::Write => self.kernel_write.covers(path),
        }
    }

    /// The verdict on changing a name or an attribute: the built-in devices are there to be opened,
    /// and for nothing else.
    fn decide_change(&self, path: &[u8]) -> Verdict<'_> {
        if let Some(learner) = &self.learner {
            learner.expect(path);
        }
        match self.decider.decide(Access::Write, path) {
            Verdict::Allow(Some(rule))
                if rule.origin.is_built_in() && rule.origin.key != crate::plan::TEMPORARY =>
            {
                Verdict::Deny { rule: None, reason: Reason::AllowMiss }
            }
            verdict => verdict,
        }
    }

    fn decide(&self, access: Access, path: &[u8]) -> Verdict<'_> {
        if access == Access::Read && !self.reads {
            return Verdict::Allow(None);
        }
        if let (Some(learner), Access::Write) = (&self.learner, access) {
            learner.expect(path);
        }
        self.decider.decide(access, path)
    }
}

/// Answers one call, and has it written down where somebody learns from the run.
fn handle(task: &Task<'_>) -> Answer {
    let Some(learner) = &task.broker.learner else {
        return task.with_names(|| dispatch(task));
    };
    let call = || learner.socket_call(task).unwrap_or_else(|| dispatch(task));
    let answer = task.with_names(call);
    learner.settle(task, &answer);
    answer
}

/// Every notified number has its line here.
fn dispatch(task: &Task<'_>) -> Answer {
    use libc as c;
    let number = task.call.nr();
    #[cfg(target_arch = "x86_64")]
    {
        let old = match number {
            c::SYS_open => Some(task.open(c::AT_FDCWD, 0, task.int(1), task.call.arg(2))),
            c::SYS_creat => Some(task.open(
                c::AT_FDCWD,
                0,
                c::O_CREAT | c::O_WRONLY | c::O_TRUNC,
                task.call.arg(1),
            )),
            c::SYS_mkdir => Some(task.mkdir(c::AT_FDCWD, 0, task.call.arg(1))),
            c::SYS_mknod => Some(task.mknod(c::AT_FDCWD, 0, task.call.arg(1), task.call.arg(2))),
            c::SYS_unlink => Some(task.unlink(c::AT_FDCWD, 0, 0)),
            c::SYS_rmdir => Some(task.unlink(c::AT_FDCWD, 0, c::AT_REMOVEDIR)),
            c::SYS_rename => Some(task.rename((c::AT_FDCWD, 0), (c::AT_FDCWD, 1), 0)),
            c::SYS_renameat => Some(task.rename((task.int(0), 1), (task.int(2), 3), 0)),
            c::SYS_link => Some(task.link((c::AT_FDCWD, 0), (c::AT_FDCWD, 1), 0)),
            c::SYS_symlink => Some(task.symlink(0, c::AT_FDCWD, 1)),
            c::SYS_chmod => Some(task.chmod(c::AT_FDCWD, 0, task.call.arg(1), 0)),
            c::SYS_chown => Some(task.chown(c::AT_FDCWD, 0, 1, 0)),
            c::SYS_lchown => Some(task.chown(c::AT_FDCWD, 0, 1, c::AT_SYMLINK_NOFOLLOW)),
            c::SYS_utime => Some(task.utime()),
            c::SYS_utimes => Some(task.utimes(c::AT_FDCWD, 0, 1)),
            c::SYS_futimesat => Some(task.utimes(task.int(0), 1, 2)),
            _ => None,
        };
        if let Some(answer) = old {
            return answer.into();
        }
    }
    match number {
        c::SYS_openat => task.open(task.int(0), 1, task.int(2), task.call.arg(3)),
        c::SYS_openat2 => task.openat2(),
        c::SYS_execve => task.execute(c::AT_FDCWD, 0, 0),
        c::SYS_execveat => task.execute(task.int(0), 1, task.int(4)),
        c::SYS_mkdirat => task.mkdir(task.int(0), 1, task.call.arg(2)),
        c::SYS_mknodat => task.mknod(task.int(0), 1, task.call.arg(2), task.call.arg(3)),
        c::SYS_unlinkat => task.unlink(task.int(0), 1, task.int(2)),
        c::SYS_renameat2 => {
            task.rename((task.int(0), 1), (task.int(2), 3), task.call.arg(4) as u32)
        }
        c::SYS_linkat => task.link((task.int(0), 1), (task.int(2), 3), task.int(4)),
        c::SYS_symlinkat => task.symlink(0, task.int(1), 2),
        c::SYS_truncate => task.truncate(),
        c::SYS_fchmod => task.fchmod(),
        c::SYS_fchmodat => task.chmod(task.int(0), 1, task.call.arg(2), 0),
        c::SYS_fchmodat2 => task.chmod(task.int(0), 1, task.call.arg(2), task.int(3)),
        c::SYS_fchown => task.fchown(),
        c::SYS_fchownat => task.chown(task.int(0), 1, 2, task.int(4)),
        c::SYS_utimensat => task.utimensat(),
        c::SYS_setxattr => task.set_xattr(true),
        c::SYS_lsetxattr => task.set_xattr(false),
        c::SYS_fsetxattr => task.fset_xattr(),
        c::SYS_removexattr => task.remove_xattr(true),
        c::SYS_lremovexattr => task.remove_xattr(false),
        c::SYS_fremovexattr => task.fremove_xattr(),
        super::sys::nr::SETXATTRAT => task.set_xattr_at(),
        super::sys::nr::REMOVEXATTRAT => task.remove_xattr_at(),
        c::SYS_umask => Ok(task.umask()),
        c::SYS_setuid
        | c::SYS_setgid
        | c::SYS_setreuid
        | c::SYS_setregid
        | c::SYS_setresuid
        | c::SYS_setresgid
        | c::SYS_setgroups
        | c::SYS_setfsuid
        | c::SYS_setfsgid
        | c::SYS_capset => Ok(task.identity()),
        c::SYS_prlimit64
        | c::SYS_sched_setaffinity
        | c::SYS_sched_setscheduler
        | c::SYS_sched_setparam
        | c::SYS_sched_setattr => task.adjust_process(task.int(0)),
        c::SYS_ioctl => task.request(),
        c::SYS_fcntl => task.own_file(),
        c::SYS_kill => task.kill(),
        c::SYS_tkill => task.signal_thread(None, task.int(0)),
        c::SYS_tgkill => task.signal_thread(Some(task.int(0)), task.int(1)),
        c::SYS_rt_sigqueueinfo => task.queue_signal(),
        c::SYS_rt_tgsigqueueinfo => task.queue_thread_signal(),
        c::SYS_pidfd_send_signal => task.signal_descriptor(),
        c::SYS_setpriority | c::SYS_ioprio_set => task.adjust_process(task.int(1)),
        c::SYS_landlock_create_ruleset => task.create_ruleset(),
        c::SYS_landlock_restrict_self => task.restrict_self(),
        c::SYS_shmget | c::SYS_semget | c::SYS_msgget => task.ipc_get(),
        c::SYS_shmat
        | c::SYS_shmctl
        | c::SYS_semop
        | c::SYS_semtimedop
        | c::SYS_semctl
        | c::SYS_msgsnd
        | c::SYS_msgrcv
        | c::SYS_msgctl => task.ipc_use(),
        c::SYS_mq_open | c::SYS_mq_unlink => task.message_queue(),
        c::SYS_socket => task.socket(),
        c::SYS_socketpair => task.refuse_socket(),
        c::SYS_connect => task.connect(),
        c::SYS_bind => task.bind(),
        c::SYS_listen => task.listen(),
        // A filter that notifies what nobody answers is a bug; fail closed.
        _ => Err(Errno::PERM),
    }
    .into()
}
