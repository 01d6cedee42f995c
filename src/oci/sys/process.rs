//! Processes: making them, what they are besides their user, and execve(2).

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::Pid;

use super::check;
use crate::oci::seccomp::Instruction;

/// `struct clone_args` of clone3(2), its second version.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// `CLONE_INTO_CGROUP`.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// A process that was made.
pub struct Process {
    /// Its number in the pid namespace of whoever made it.
    pub pid: Pid,
    /// A descriptor of it.
    pub pidfd: OwnedFd,
}

/// fork(2) into new namespaces: clone3(2) with `flags` (`CLONE_NEW*`, and `CLONE_PARENT`), into the cgroup
/// of version 2 that `cgroup` is the directory of. `None` is returned in the new process.
///
/// Memory is copied, so that the new process can go on as it likes: this program has one thread.
///
/// # Errors
///
/// As clone3(2).
pub fn fork(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Option<Process>, Errno> {
    let mut pidfd: RawFd = -1;
    let parent = flags & libc::CLONE_PARENT as u64 != 0;
    let mut args = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        // A sibling's signal is that of the one which makes it, and none may be named.
        exit_signal: if parent { 0 } else { libc::SIGCHLD as u64 },
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is fork(2): the child has a copy of this one thread and its stack. The
    // kernel reads `args`, whose size is passed, and writes one descriptor to `pidfd`.
    let pid =
        check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) })?;
    let Some(pid) = Pid::from_raw(pid as i32) else { return Ok(None) };
    // SAFETY: the kernel just made it for us.
    Ok(Some(Process { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }))
}

/// Ends this process at once, as a child that shares nothing with its parent's exit handlers has to.
pub fn exit(code: i32) -> ! {
    // SAFETY: runs no handlers.
    unsafe { libc::_exit(code) }
}

/// unshare(2) of namespaces.
///
/// # Errors
///
/// As unshare(2).
pub fn unshare(flags: u64) -> Result<(), Errno> {
    // SAFETY: namespaces only, no CLONE_FILES: descriptors stay what they are.
    check(i64::from(unsafe { libc::unshare(flags as i32) })).map(|_| ())
}

/// Shows `name` as this process's command line, where the one that it was started with was: that names paths of
/// the host, for everybody in the container to see.
///
/// # Errors
///
/// Where `/proc/self/stat` does not say where it is.
pub fn show_as(name: &[u8]) -> std::io::Result<()> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 48 and 49 of proc_pid_stat(5), arg_start and arg_end; the second is in parentheses.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let mut words = after.split_ascii_whitespace().skip(45).map(str::parse::<usize>);
    let (Some(Ok(start)), Some(Ok(end))) = (words.next(), words.next()) else {
        return Err(std::io::ErrorKind::InvalidData.into());
    };
    let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
    let length = end.saturating_sub(start);
    // SAFETY: the kernel put the arguments there, one after the other, when it made this process's stack. `main`
    // copies them, and nobody else looks at them.
    unsafe {
        place.write_bytes(0, length);
        place.copy_from_nonoverlapping(name.as_ptr(), name.len().min(length.saturating_sub(1)));
    }
    Ok(())
}

/// C strings with the NULL-terminated pointer table that execve(2) wants.
pub struct Strings {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    /// Builds the table.
    #[must_use]
    pub fn new(strings: Vec<CString>) -> Strings {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Strings { _strings: strings, pointers }
    }
}

/// execve(2); returns only on failure.
#[must_use]
pub fn execute(path: &CStr, args: &Strings, env: &Strings) -> Errno {
    // SAFETY: both tables end with NULL and point at strings that they own.
    unsafe { libc::execve(path.as_ptr(), args.pointers.as_ptr(), env.pointers.as_ptr()) };
    last()
}

/// execveat(2) of an open file; returns only on failure.
#[must_use]
pub fn execute_file(file: BorrowedFd<'_>, args: &Strings, env: &Strings) -> Errno {
    // SAFETY: as in `execute`; the path is empty, so that the descriptor is the file.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            args.pointers.as_ptr(),
            env.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    last()
}

fn last() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Whether this process, as its effective user and with its effective capabilities, may execute `path`:
/// faccessat2(2).
///
/// # Errors
///
/// As faccessat2(2).
pub fn executable(path: &CStr) -> Result<(), Errno> {
    // SAFETY: a path and three numbers.
    check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::X_OK,
            libc::AT_EACCESS,
        )
    })
    .map(|_| ())
}

/// Marks every descriptor from `first` on close-on-exec.
///
/// # Errors
///
/// As close_range(2).
pub fn close_on_exec(first: u32) -> Result<(), Errno> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: by value; nothing is closed before execve(2).
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) }).map(|_| ())
}

/// Closes every descriptor from `first` on: those that a caller left open, before there are any of our own.
///
/// # Errors
///
/// As close_range(2).
pub fn close_inherited(first: u32) -> Result<(), Errno> {
    // SAFETY: by value; the caller has opened nothing yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(|_| ())
}

/// Whether `fd` is open, and was before this program began: what it opens itself closes on execve(2).
pub fn is_inherited(fd: RawFd) -> bool {
    // SAFETY: by value.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == 0 }
}

/// Makes `fd` one that execve(2) keeps.
///
/// # Errors
///
/// `EBADF`.
pub fn keep_open(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: by value.
    check(i64::from(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })).map(|_| ())
}

/// Makes `fd` the standard descriptor `number` (0 to 2).
///
/// # Errors
///
/// As dup2(2).
pub fn become_standard(fd: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    // SAFETY: the standard descriptors are nobody's own.
    check(i64::from(unsafe { libc::dup2(fd.as_raw_fd(), number) })).map(|_| ())
}

/// Gives every signal its default action, and blocks none: what a program starts with should not depend on
/// who started the runtime.
pub fn default_signals() {
    // SAFETY: SIG_DFL runs no code, numbers that cannot be set are refused; the set is initialised.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Gives this process a new session keyring of its own, keyctl(2).
///
/// # Errors
///
/// As keyctl(2): `ENOSYS` without keys, `EDQUOT`.
pub fn join_keyring(name: &CStr) -> Result<(), Errno> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: an operation and a name.
    check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, name.as_ptr()) })
        .map(|_| ())
}

/// Sets the execution domain, personality(2).
///
/// # Errors
///
/// `EINVAL`.
pub fn personality(value: u32) -> Result<(), Errno> {
    // SAFETY: by value.
    check(i64::from(unsafe { libc::personality(value.into()) })).map(|_| ())
}

/// Sets the I/O priority of process `pid`, ioprio_set(2).
///
/// # Errors
///
/// As ioprio_set(2): `EPERM` for the real-time class without CAP_SYS_ADMIN.
pub fn io_priority(pid: Pid, class: u32, level: u32) -> Result<(), Errno> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    let value = class << CLASS_SHIFT | level;
    let pid = pid.as_raw_nonzero().get();
    // SAFETY: by value.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, pid, value) }).map(|_| ())
}

/// `struct sched_attr` of sched_setattr(2), with the clamps of Linux 5.3.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// The size of this, filled in when it is used.
    pub size: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// For `SCHED_OTHER` and `SCHED_BATCH`.
    pub nice: i32,
    /// For `SCHED_FIFO` and `SCHED_RR`.
    pub priority: u32,
    /// For `SCHED_DEADLINE`, in nanoseconds.
    pub runtime: u64,
    /// As `runtime`.
    pub deadline: u64,
    /// As `runtime`.
    pub period: u64,
    /// The least utilization.
    pub util_min: u32,
    /// The most utilization.
    pub util_max: u32,
}

/// Sets how process `pid` is scheduled, sched_setattr(2).
///
/// # Errors
///
/// As sched_setattr(2).
pub fn schedule(pid: Pid, scheduling: Scheduling) -> Result<(), Errno> {
    let mut attr = Scheduling { size: size_of::<Scheduling>() as u32, ..scheduling };
    let pid = pid.as_raw_nonzero().get();
    // SAFETY: the kernel reads `attr`, which says its size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw mut attr, 0) }).map(|_| ())
}

/// Sets the memory policy of this process, set_mempolicy(2). `nodes` is a mask of 64 nodes a word.
///
/// # Errors
///
/// As set_mempolicy(2): `EINVAL` for nodes that are not there, `ENOSYS` without NUMA.
pub fn memory_policy(mode: i32, nodes: &[u64]) -> Result<(), Errno> {
    let pointer = if nodes.is_empty() { std::ptr::null() } else { nodes.as_ptr() };
    // The kernel takes one bit less than what it is told.
    let bits = if nodes.is_empty() { 0 } else { nodes.len() * 64 + 1 };
    // SAFETY: the mask has as many bits as said, and the one more is not read.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) }).map(|_| ())
}

/// A filter as the C library has it.
pub fn raw(program: &[Instruction]) -> Vec<libc::sock_filter> {
    let raw = |i: &Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    program.iter().map(raw).collect()
}

/// Installs a filter on this process, seccomp(2), and returns its listener where the flags ask for one.
///
/// # Errors
///
/// As seccomp(2): `EACCES` with neither CAP_SYS_ADMIN nor no_new_privs, `EBUSY` where there is a listener.
pub fn install_filter(program: &[Instruction], flags: u32) -> Result<Option<OwnedFd>, Errno> {
    let raw = raw(program);
    let program = libc::sock_fprog { len: raw.len() as u16, filter: raw.as_ptr().cast_mut() };
    // SAFETY: `program` points at `raw`, which outlives the call; the kernel only reads it.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::c_ulong::from(flags),
            &raw const program,
        )
    })?;
    let listens = libc::c_ulong::from(flags) & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
    // SAFETY: with that flag the kernel returns a new descriptor.
    Ok(listens.then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
}

/// Sends `signal`, a number that may be one of the real-time signals, by descriptor.
///
/// # Errors
///
/// `ESRCH` where the process has ended, `EINVAL` for no signal.
pub fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> Result<(), Errno> {
    // SAFETY: by value; no further information is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(|_| ())
}

/// Takes descriptor `number` out of another process, pidfd_getfd(2); `None` while it has none.
///
/// # Errors
///
/// As pidfd_getfd(2).
pub fn take_descriptor(pidfd: BorrowedFd<'_>, number: RawFd) -> Result<Option<OwnedFd>, Errno> {
    // SAFETY: by value.
    match check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) }) {
        // SAFETY: the kernel just made it for us.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })),
        Err(Errno::BADF) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The number that the next descriptor made here gets.
///
/// # Errors
///
/// As dup(2).
pub fn next_descriptor() -> Result<RawFd, Errno> {
    let probe = rustix::io::dup(rustix::stdio::stderr())?;
    Ok(probe.as_raw_fd())
}

/// Signals that are blocked and read instead.
pub struct Signals(OwnedFd);

impl Signals {
    /// SIGCHLD.
    pub const CHILD: i32 = libc::SIGCHLD;
    /// SIGWINCH.
    pub const WINDOW: i32 = libc::SIGWINCH;

    /// Blocks every signal that can be passed on. Those that an error of our own raises stay.
    ///
    /// # Errors
    ///
    /// As signalfd(2).
    pub fn block() -> Result<Signals, Errno> {
        const OWN: [i32; 7] = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGABRT,
            libc::SIGTRAP,
            libc::SIGSYS,
        ];
        // SAFETY: the set is initialised before it is used, and the new descriptor is ours.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            for signal in OWN {
                libc::sigdelset(&raw mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = check(i64::from(libc::signalfd(-1, &raw const set, flags)))?;
            Ok(Signals(OwnedFd::from_raw_fd(fd as RawFd)))
        }
    }

    /// The next that came; `None` where none did.
    ///
    /// # Errors
    ///
    /// As read(2).
    pub fn next(&self) -> Result<Option<i32>, Errno> {
        // struct signalfd_siginfo begins with the number, signalfd(2).
        let mut information = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut information) {
            Ok(length) if length == information.len() => {
                let number = information.first_chunk().map(|first| i32::from_ne_bytes(*first));
                Ok(number)
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl std::os::fd::AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
