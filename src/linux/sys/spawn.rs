//! Starting the target.

use super::identity::limit_capabilities;
use super::seccomp::{self, Instruction};
use super::signals::{Ignored, SignalSet};
use super::{Errno, check, last_errno};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Everything a target's process does between its creation and execve(2), decided beforehand.
pub struct Launch<'a> {
    /// The program's path, looked up already.
    pub path: &'a CStr,
    /// Its arguments, the first included.
    pub argv: &'a CStrings,
    /// The arguments of a shell that runs it, for a file that is no program: execvp(3) does that.
    pub shell: Option<&'a CStrings>,
    /// Its environment.
    pub envp: &'a CStrings,
    /// Its working directory.
    pub cwd: &'a CStr,
    /// Descriptors that stay open beside the first three.
    pub inherit: &'a [RawFd],
    /// Capabilities that root keeps, as a bit mask; `None` leaves them alone.
    pub keep_capabilities: Option<u64>,
    /// Files to write `0` to, each the entrance to a cgroup.
    pub entrances: &'a [OwnedFd],
    /// Limits of the process, as setrlimit(2) takes them; none is ever raised.
    pub process_limits: &'a [(i32, u64)],
    /// The Landlock ruleset to enter.
    pub ruleset: BorrowedFd<'a>,
    /// The seccomp filter.
    pub filter: &'a [Instruction],
    /// Whether the filter has a listener.
    pub listener: bool,
    /// One more filter, without a listener, and its flags; installed last.
    pub profile: Option<(&'a [Instruction], u32)>,
    /// Where to write the listener's number as soon as there is one, as a native `i32`.
    pub announce: Option<BorrowedFd<'a>>,
    /// What to do about the signals that the launcher itself ignores: as it was inherited.
    pub ignored: Ignored,
    /// The signal mask to start the program with.
    pub mask: &'a SignalSet,
}

/// The step that failed in the new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// clone(2) itself.
    Clone,
    /// prctl(2): the program is to die with us.
    Death,
    /// Entering a cgroup.
    Cgroup,
    /// setrlimit(2).
    Limits,
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
    /// seccomp(2), of the profile.
    Profile,
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
        step!(Step::Death, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL));
        if libc::getppid() != parent {
            return (Step::Clone, Errno::SRCH);
        }
        // While this is one thread that shares the launcher's memory: what it uses from execve(2) on
        // is the run's. The kernel checks the rights of whoever opened the files.
        for entrance in launch.entrances {
            step!(Step::Cgroup, libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1));
        }
        for &(resource, value) in launch.process_limits {
            step!(Step::Limits, lower_limit(resource, value));
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
        launch.ignored.restore();
        libc::pthread_sigmask(libc::SIG_SETMASK, launch.mask.raw(), std::ptr::null_mut());
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
        if let Some((profile, flags)) = launch.profile
            && let Err(errno) = seccomp::install_profile(profile, flags)
        {
            return (Step::Profile, errno);
        }
        libc::execve(
            launch.path.as_ptr(),
            launch.argv.pointers.as_ptr(),
            launch.envp.pointers.as_ptr(),
        );
        if let Some(shell) = launch.shell
            && last_errno() == Errno::NOEXEC
            && is_text(launch.path)
        {
            libc::execve(
                c"/bin/sh".as_ptr(),
                shell.pointers.as_ptr(),
                launch.envp.pointers.as_ptr(),
            );
        }
    }
    (Step::Exec, last_errno())
}

/// Lowers both limits of this process to `value`, where they are higher.
fn lower_limit(resource: i32, value: u64) -> c_int {
    // SAFETY: both calls get a pointer to a live struct of their type.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource as _, &raw mut limit) != 0 {
            return -1;
        }
        limit.rlim_max = limit.rlim_max.min(value as _);
        limit.rlim_cur = limit.rlim_cur.min(limit.rlim_max);
        libc::setrlimit(resource as _, &raw const limit)
    }
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
