//! Starting the target and the watcher, ending a domain, and taking on another task's identity.

use super::seccomp::{self, Instruction};
use super::{Errno, check};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Everything a target's process does between its creation and execve(2), decided beforehand.
pub struct Launch<'a> {
    /// The program's path, looked up already.
    pub path: &'a CStr,
    /// Its arguments, the first included.
    pub argv: &'a CStrings,
    /// The arguments of a shell that runs it, for a file that is no program: execvp(3) does that.
    pub shell: &'a CStrings,
    /// Its environment.
    pub envp: &'a CStrings,
    /// Its working directory.
    pub cwd: &'a CStr,
    /// Descriptors that stay open beside the first three.
    pub inherit: &'a [RawFd],
    /// Capabilities that root keeps, as a bit mask; `None` leaves them alone.
    pub keep_capabilities: Option<u64>,
    /// The Landlock ruleset to enter.
    pub ruleset: BorrowedFd<'a>,
    /// The seccomp filter.
    pub filter: &'a [Instruction],
    /// Whether the filter has a listener.
    pub listener: bool,
    /// Where to write the listener's number as soon as there is one, as a native `i32`.
    pub announce: Option<BorrowedFd<'a>>,
    /// What to do about SIGPIPE, which the launcher itself ignores: as it was inherited.
    pub ignore_sigpipe: bool,
    /// The signal mask to start the program with.
    pub mask: &'a SignalSet,
}

/// The step that failed in the new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// clone(2) itself.
    Clone,
    /// chdir(2).
    Directory,
    /// Closing descriptors.
    Descriptors,
    /// Dropping capabilities.
    Capabilities,
    /// landlock_restrict_self(2).
    Landlock,
    /// seccomp(2).
    Seccomp,
    /// Announcing the listener.
    Announce,
    /// execve(2).
    Exec,
}

/// C strings with the NULL-terminated pointer table that execve(2) wants.
pub struct CStrings {
    /// Owns what `pointers` points at.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers point into heap buffers that `_strings` owns and nobody changes.
unsafe impl Send for CStrings {}

impl CStrings {
    /// Builds the table.
    pub fn new(strings: Vec<CString>) -> CStrings {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        CStrings { _strings: strings, pointers }
    }
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The set of `signals`.
    pub fn of(signals: &[c_int]) -> SignalSet {
        // SAFETY: sigemptyset initialises the set, sigaddset checks the number.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for &signal in signals {
                libc::sigaddset(&raw mut set, signal);
            }
            SignalSet(set)
        }
    }

    /// Blocks the set in the calling thread and returns the mask before.
    pub fn block(&self) -> SignalSet {
        // SAFETY: both pointers are valid sets.
        unsafe {
            let mut old = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, &raw mut old);
            SignalSet(old)
        }
    }

    /// Waits at most `limit` for one of the set, which must be blocked.
    pub fn wait_for(&self, limit: std::time::Duration) -> Option<c_int> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // SAFETY: the set and the time are valid; no information is asked for.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const limit)
        };
        (signal > 0).then_some(signal)
    }

    /// Waits for one of the set, which must be blocked; returns its number and whether another
    /// process sent it (rather than the kernel or the terminal).
    pub fn wait(&self) -> (c_int, bool) {
        loop {
            // SAFETY: `info` is writable; the set is valid.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let signal = libc::sigwaitinfo(&raw const self.0, &raw mut info);
                if signal > 0 {
                    return (signal, info.si_code <= 0);
                }
            }
        }
    }
}

/// Room for the new process's own frames; it only makes system calls.
const STACK: usize = 64 * 1024;

struct Arguments<'a> {
    launch: &'a Launch<'a>,
    parent: i32,
    listener: Option<RawFd>,
    failure: Option<(Step, Errno)>,
}

/// A program that runs, and the listener of its filter.
pub struct Started {
    /// Its process id.
    pub pid: i32,
    /// The listener.
    pub listener: Option<OwnedFd>,
}

/// Starts the target and returns once it runs the program.
///
/// Memory is shared with the new process until then (`CLONE_VM | CLONE_VFORK`), as posix_spawn(3)
/// does: no page table is copied, and an error comes back as a plain value. Descriptors are shared
/// until the listener is there (`CLONE_FILES`), which hands it over. The calling thread stands still
/// meanwhile; when it ends, so does the program (`PR_SET_PDEATHSIG` is about the thread).
///
/// # Errors
///
/// The step that failed and its errno; the process is gone and reaped then.
pub fn spawn(launch: &Launch<'_>) -> Result<Started, (Step, Errno)> {
    let mut stack = vec![0u8; STACK];
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let mut arguments = Arguments { launch, parent, listener: None, failure: None };
    // SAFETY: the child runs `target_main` on `stack` while this thread is suspended by
    // CLONE_VFORK; both outlive it. It calls nothing that allocates or takes a lock.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK & !15);
        libc::clone(
            target_main,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD,
            (&raw mut arguments).cast(),
        )
    };
    if pid < 0 {
        return Err((Step::Clone, last_errno()));
    }
    // SAFETY: the child made the listener in the table that it shared with us, and left it to us.
    let listener = arguments.listener.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    if let Some(failure) = arguments.failure {
        // SAFETY: reaps the child that just ended.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        return Err(failure);
    }
    Ok(Started { pid, listener })
}

pub(super) fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

extern "C" fn target_main(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to its `Arguments`, and is suspended meanwhile.
    let arguments = unsafe { &mut *argument.cast::<Arguments<'_>>() };
    arguments.failure =
        Some(become_target(arguments.launch, arguments.parent, &mut arguments.listener));
    // SAFETY: ends this process without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// The launch, one kernel step after the other; returns only on failure.
fn become_target(launch: &Launch<'_>, parent: i32, listener: &mut Option<RawFd>) -> (Step, Errno) {
    macro_rules! step {
        ($step:expr, $call:expr) => {
            if let Err(errno) = check($call as libc::c_long) {
                return ($step, errno);
            }
        };
    }
    // SAFETY: plain system calls on values that `launch` keeps alive.
    unsafe {
        // The program dies with us. A parent that died before this line is noticed on the next.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            return (Step::Clone, Errno::SRCH);
        }
        step!(Step::Directory, libc::chdir(launch.cwd.as_ptr()));
        if let Some(keep) = launch.keep_capabilities
            && let Err(errno) = limit_capabilities(keep)
        {
            return (Step::Capabilities, errno);
        }
        // no_new_privs is on already, inherited from the thread that entered the outer domain.
        step!(
            Step::Landlock,
            libc::syscall(libc::SYS_landlock_restrict_self, launch.ruleset.as_raw_fd(), 0)
        );
        libc::signal(
            libc::SIGPIPE,
            if launch.ignore_sigpipe { libc::SIG_IGN } else { libc::SIG_DFL },
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const launch.mask.0, std::ptr::null_mut());
        // From here on, system calls may wait for the broker; the ones below are not notified.
        if !launch.listener {
            if let Err(errno) = seccomp::install_plain(launch.filter) {
                return (Step::Seccomp, errno);
            }
        } else {
            match seccomp::install_with_listener(launch.filter) {
                Ok(fd) => *listener = Some(fd),
                Err(errno) => return (Step::Seccomp, errno),
            }
        }
        if let (Some(pipe), Some(fd)) = (launch.announce, *listener) {
            let size = size_of_val(&fd);
            step!(Step::Announce, libc::write(pipe.as_raw_fd(), (&raw const fd).cast(), size));
        }
        // A table of its own, in which everything above stdio closes at exec but what was asked for.
        let flags = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
        step!(Step::Descriptors, libc::syscall(libc::SYS_close_range, 3, u32::MAX, flags));
        for &fd in launch.inherit {
            step!(Step::Descriptors, libc::fcntl(fd, libc::F_SETFD, 0));
        }
        libc::execve(
            launch.path.as_ptr(),
            launch.argv.pointers.as_ptr(),
            launch.envp.pointers.as_ptr(),
        );
        if last_errno() == Errno::NOEXEC && is_text(launch.path) {
            libc::execve(
                c"/bin/sh".as_ptr(),
                launch.shell.pointers.as_ptr(),
                launch.envp.pointers.as_ptr(),
            );
        }
    }
    (Step::Exec, last_errno())
}

/// Whether the file begins with something that a shell could read: shells take a NUL for a sign that it
/// is not. Leaves errno as execve(2) set it.
fn is_text(path: &CStr) -> bool {
    let mut start = [0u8; 128];
    // SAFETY: the buffer is as long as said, and errno is this thread's own.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(fd, start.as_mut_ptr().cast(), start.len());
        libc::close(fd);
        *libc::__errno_location() = libc::ENOEXEC;
        length > 0 && !start[..length as usize].contains(&0)
    }
}

/// Drops every capability outside `keep` from all sets of the calling thread. The bounding set stays:
/// it limits what execve(2) adds, and under no_new_privs execve adds nothing, capabilities(7).
fn limit_capabilities(keep: u64) -> Result<(), Errno> {
    // SAFETY: by-value prctl.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    let (_, permitted) = capabilities()?;
    set_capabilities(permitted & keep, permitted & keep)
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Effective and permitted capabilities of the calling thread, as bit masks.
///
/// # Errors
///
/// As capget(2).
pub fn capabilities() -> Result<(u64, u64), Errno> {
    let mut header = [CAPABILITY_VERSION_3, 0];
    let mut data = [0u32; 6];
    // SAFETY: version 3 takes a header of two words and two data triples.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()) })?;
    let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    Ok((join(data[0], data[3]), join(data[1], data[4])))
}

/// Sets the calling thread's effective and permitted capabilities; the inheritable set becomes empty.
///
/// # Errors
///
/// `EPERM` for a capability that is not permitted.
pub fn set_capabilities(effective: u64, permitted: u64) -> Result<(), Errno> {
    let header = [CAPABILITY_VERSION_3, 0];
    let data = [
        effective as u32,
        permitted as u32,
        0,
        (effective >> 32) as u32,
        (permitted >> 32) as u32,
        0,
    ];
    // SAFETY: as in `capabilities`.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(|_| ())
}

/// Sets the calling thread's file-system user and group, and its supplementary groups.
pub fn set_fs_identity(uid: u32, gid: u32, groups: Option<&[u32]>) -> Result<(), Errno> {
    if let Some(groups) = groups {
        // SAFETY: the raw call changes this thread alone; the pointer covers `groups`.
        check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    }
    // SAFETY: by-value system calls on this thread alone. They report no error; asking again with an
    // invalid id returns the value in force.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        let now = (
            libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32,
            libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32,
        );
        if now != (uid, gid) { Err(Errno::PERM) } else { Ok(()) }
    }
}

/// Makes this process adopt the orphans below it (`PR_SET_CHILD_SUBREAPER`).
pub fn adopt_orphans() {
    // SAFETY: by-value prctl, which cannot fail with these arguments.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// A process outside the domain, to try a signal on. It ends when this value is dropped.
pub struct Canary {
    pid: i32,
    _held: std::io::PipeWriter,
}

impl Canary {
    /// Starts one; it only waits for the other end of its pipe to close.
    ///
    /// # Errors
    ///
    /// As pipe(2) and fork(2).
    pub fn start() -> Result<Canary, Errno> {
        let (reader, held) = std::io::pipe().map_err(|_| last_errno())?;
        // SAFETY: this process has one thread yet; the child only makes system calls.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(last_errno());
        }
        if pid == 0 {
            let mut byte = 0u8;
            // SAFETY: `byte` is writable. The writer's copy has to go, or there is no end of file.
            unsafe {
                libc::close(held.as_raw_fd());
                while libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) > 0 {}
                libc::_exit(0);
            }
        }
        Ok(Canary { pid, _held: held })
    }
}

/// Proof that signals of this process stay within its Landlock domain.
///
/// `kill(-1)` reaches every process of the user otherwise, so it is only to be had with this proof.
/// A domain belongs to a thread, and so does the proof: it is not `Send`, and the one process that
/// uses it, the watcher, is started by the thread that has it.
pub struct SignalScope(std::marker::PhantomData<*const ()>);

/// Signal that the watcher's end sends; not SIGCHLD, so that waiting for children passes it over.
#[must_use]
pub fn watcher_signal() -> c_int {
    libc::SIGRTMIN()
}

/// Whom the proof of a signal scope is tried on.
pub enum Outsider {
    /// The parent process, which accepted a signal before the domain was entered.
    Parent,
    /// A process made for it.
    Canary(Canary),
}

impl Outsider {
    /// Finds one, to be called before the domain is entered.
    ///
    /// # Errors
    ///
    /// As fork(2), when there is no parent to try.
    pub fn find() -> Result<Outsider, Errno> {
        if can_signal(parent()) {
            Ok(Outsider::Parent)
        } else {
            Canary::start().map(Outsider::Canary)
        }
    }
}

impl SignalScope {
    /// Checks, after the domain was entered, that a signal to a process outside is refused.
    pub fn prove(outsider: Outsider) -> Option<SignalScope> {
        let pid = match &outsider {
            Outsider::Parent => parent(),
            Outsider::Canary(canary) => canary.pid,
        };
        let scoped = refuses_signal(pid);
        scoped.then_some(SignalScope(std::marker::PhantomData))
    }

    /// Kills every process of the domain but the caller, in one step that no fork can slip through:
    /// kill(2) walks the process list under the lock that fork takes for writing.
    fn kill_all(self) {
        // SAFETY: by value. `self` proves that only this domain is reached.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}

fn parent() -> i32 {
    // SAFETY: by value; a parent outside our pid namespace reads as 0.
    unsafe { libc::getppid() }
}

fn can_signal(pid: i32) -> bool {
    // SAFETY: signal 0 only checks. 0 would be our own process group, and init is a poor example.
    unsafe { pid > 1 && libc::kill(pid, 0) == 0 }
}

/// Whether a signal is refused for want of permission: the process exists, and may not be reached.
fn refuses_signal(pid: i32) -> bool {
    // SAFETY: as in `can_signal`.
    pid > 1 && unsafe { libc::kill(pid, 0) } != 0 && last_errno() == Errno::PERM
}

/// Sends `signal` to `pid`; a process that is gone already is no error.
pub fn signal(pid: i32, signal: c_int) {
    // SAFETY: by value; callers pass the pid of a child that they have not reaped.
    unsafe { libc::kill(pid, signal) };
}

/// Starts the watcher: a process in the domain of the calling thread and a session of its own. It
/// waits until every copy of the write end of the pipe but its own is closed, and then kills the
/// domain but itself. Returns its pid.
///
/// It shares this process's memory, which makes it cheap; it never touches any after its start.
///
/// # Errors
///
/// As clone(2).
pub fn start_watcher(read_end: BorrowedFd<'_>, scope: SignalScope) -> Result<i32, Errno> {
    // The stack and the argument live as long as the watcher does, so they are leaked.
    let stack = Box::leak(vec![0u8; 16 * 1024].into_boxed_slice());
    let argument = Box::leak(Box::new((read_end.as_raw_fd(), scope)));
    // SAFETY: `watcher_main` runs on a stack of its own and only makes system calls.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len() & !15);
        let argument = (&raw mut *argument).cast();
        libc::clone(watcher_main, top.cast(), libc::CLONE_VM | watcher_signal(), argument)
    };
    if pid < 0 { Err(last_errno()) } else { Ok(pid) }
}

extern "C" fn watcher_main(argument: *mut c_void) -> c_int {
    // SAFETY: `start_watcher` leaked this pair for us.
    let (fd, scope) = unsafe { argument.cast::<(RawFd, SignalScope)>().read() };
    // SAFETY: system calls by value. None of them fails, so none writes the errno shared with the
    // launcher's thread.
    unsafe {
        libc::setsid();
        if fd > 0 {
            libc::syscall(libc::SYS_close_range, 0, fd - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, fd + 1, u32::MAX, 0);
        let mut byte = 0u8;
        while libc::read(fd, (&raw mut byte).cast(), 1) > 0 {}
        scope.kill_all();
        libc::_exit(0)
    }
}

/// How a child changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this exit status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It runs again.
    Continued,
}

/// The next change of any child; without `block`, `None` when nothing changed.
///
/// # Errors
///
/// `ECHILD` when there is no child left.
pub fn wait_any(block: bool) -> Result<Option<(i32, Change)>, Errno> {
    let flags = libc::WUNTRACED | libc::WCONTINUED | if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    // SAFETY: `status` is writable.
    let pid = check(i64::from(unsafe { libc::waitpid(-1, &raw mut status, flags) }))? as i32;
    if pid == 0 {
        return Ok(None);
    }
    let change = if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Killed(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else {
        Change::Continued
    };
    Ok(Some((pid, change)))
}

/// Interrupts a blocking system call of thread `tid` of this process, see [`catch_interrupts`].
pub fn interrupt_thread(tid: i32) {
    // SAFETY: by value; the thread belongs to this process.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGURG);
    }
}

/// Makes `SIGURG` interrupt system calls (EINTR) and do nothing else.
pub fn catch_interrupts() {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: installs a handler that does nothing, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut());
    }
}

/// The file-system user of the calling thread.
pub fn fs_uid() -> u32 {
    // SAFETY: an invalid id changes nothing and returns the one in force, see setfsuid(2).
    unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32 }
}

/// Stops this process, as the program was stopped, until somebody continues it.
pub fn stop_self() {
    // SAFETY: by value.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Kills every child of this process. Repeated until no child is left, it ends every descendant: the
/// orphans of each round become children.
pub fn kill_children() {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    for thread in threads.flatten() {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for pid in text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            signal(pid, libc::SIGKILL);
        }
    }
}

/// Gives the calling thread a working directory and a mask of its own.
///
/// # Errors
///
/// `ENOMEM`.
pub fn own_file_context() -> Result<(), Errno> {
    // SAFETY: CLONE_FS splits no memory and no descriptors, which `unshare_unsafe` warns of.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}

/// Keeps the C library from reserving a heap for each thread, which costs system calls at its start
/// and memory later. The threads here allocate little.
pub fn share_heap() {
    // SAFETY: by-value call, before there is a second thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Ignores SIGPIPE, so that writing to a reader who left is an error and not the end; returns
/// whether it was ignored before.
pub fn ignore_sigpipe() -> bool {
    // SAFETY: SIG_IGN runs no code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) == libc::SIG_IGN }
}

/// Takes the listener that a new process announces on `pipe`, see [`Launch::announce`]; `None` when the
/// pipe closes instead.
///
/// # Errors
///
/// As read(2) and fcntl(2).
pub fn announced_listener(pipe: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut number = [0; size_of::<RawFd>()];
    if rustix::io::read(pipe, &mut number)? < number.len() {
        return Ok(None);
    }
    // SAFETY: the new process made it in our table, where `spawn` owns it. It does not close it before
    // the program runs, and the program cannot run before somebody serves this listener.
    let listener = unsafe { BorrowedFd::borrow_raw(RawFd::from_ne_bytes(number)) };
    rustix::io::fcntl_dupfd_cloexec(listener, 3).map(Some)
}

/// Opens `/dev/null` for each of the first three descriptors that is closed, so that none of ours
/// takes its place and reaches the program as its standard input or output.
pub fn fill_stdio() {
    for fd in 0..3 {
        // SAFETY: by-value calls and a constant path; the lowest free number is `fd`.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}

/// The soft limit on the size of files that process `pid` writes, in bytes; `u64::MAX` is none.
///
/// # Errors
///
/// As prlimit(2).
pub fn file_size_limit(pid: i32) -> Result<u64, Errno> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no new limit is set, and `limit` is writable.
    check(i64::from(unsafe {
        libc::prlimit64(pid, libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit)
    }))?;
    Ok(limit.rlim_cur)
}

/// Sends `signal` to thread `tid` of a target.
pub fn signal_thread(tid: i32, signal: c_int) {
    // SAFETY: by value; the target waits for our answer, so the number is its own.
    unsafe { libc::syscall(libc::SYS_tkill, tid, signal) };
}
