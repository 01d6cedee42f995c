//! Signals and children.

use super::{Errno, check};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The set as the C library has it.
    pub(super) fn raw(&self) -> *const libc::sigset_t {
        &raw const self.0
    }

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
            tv_sec: limit.as_secs() as _,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // SAFETY: the set and the time are valid; no information is asked for.
        let signal = unsafe {
            libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const limit)
        };
        (signal > 0).then_some(signal)
    }

    /// Waits for one of the set, which must be blocked; returns its number and whether another
    /// process sent it (rather than the kernel or the terminal), or `None` once `deadline` is past.
    pub fn wait_until(&self, deadline: Option<std::time::Instant>) -> Option<(c_int, bool)> {
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            let limit = left.map(|left| libc::timespec {
                tv_sec: left.as_secs() as _,
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            let pointer = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: `info` is writable; the set is valid, and so is the time, or NULL for none.
            let (signal, info) = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                (libc::sigtimedwait(&raw const self.0, &raw mut info, pointer), info)
            };
            if signal > 0 {
                return Some((signal, info.si_code <= 0));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
        }
    }
}

/// Sends `signal` to `pid`; a process that is gone already is no error.
pub fn signal(pid: i32, signal: c_int) {
    // SAFETY: by value; callers pass the pid of a child that they have not reaped.
    unsafe { libc::kill(pid, signal) };
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
    let pid = loop {
        // SAFETY: `status` is writable.
        let pid = check(i64::from(unsafe { libc::waitpid(-1, &raw mut status, flags) }))? as i32;
        if pid == 0 {
            return Ok(None);
        }
        // Somebody who was nudged and stops for as long as that takes, see `nudge`: no change at all.
        if status >> 16 != libc::PTRACE_EVENT_STOP {
            break pid;
        }
    };
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

/// Signals that would end or stop the launcher for what it does for others: writing to a reader who
/// left, growing a file beyond a limit of its own, using up its own processor time, and writing to a
/// terminal that is somebody else's by then.
const IGNORED: [c_int; 4] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGXCPU, libc::SIGTTOU];

/// What the signals of [`ignore`] did before: whether each was ignored.
#[derive(Clone, Copy)]
pub struct Ignored([bool; IGNORED.len()]);

/// Ignores them: what they are about is an error, and not the end.
pub fn ignore() -> Ignored {
    // SAFETY: SIG_IGN runs no code.
    Ignored(IGNORED.map(|signal| unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_IGN))
}

impl Ignored {
    /// Puts back what was, for the program. Only makes system calls.
    pub(super) fn restore(&self) {
        for (&signal, &ignored) in IGNORED.iter().zip(&self.0) {
            // SAFETY: neither disposition runs code.
            unsafe { libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL }) };
        }
    }
}

/// Sends `signal` to thread `tid` of a target.
pub fn signal_thread(tid: i32, signal: c_int) {
    // SAFETY: by value; the target waits for our answer, so the number is its own.
    unsafe { libc::syscall(libc::SYS_tkill, tid, signal) };
}

/// What a `siginfo_t` takes in memory, in bytes.
pub const INFO: usize = 128;

/// Sends `signal` to the process of `pidfd`, pidfd_send_signal(2), with `info`, a `siginfo_t`, or as kill(2) does.
///
/// # Errors
///
/// As pidfd_send_signal(2): `ESRCH` once it was waited for.
pub fn send(pidfd: BorrowedFd<'_>, signal: c_int, info: Option<&[u8; INFO]>) -> Result<(), Errno> {
    let info = info.map_or(std::ptr::null(), |info| info.as_ptr());
    // SAFETY: `info` is NULL or covers a `siginfo_t`, which the kernel only reads.
    let sent =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) };
    check(sent).map(|_| ())
}

/// Sends `signal` to thread `tid`, if it is one of process `tgid`, tgkill(2).
///
/// # Errors
///
/// As tgkill(2).
pub fn send_to_thread(tgid: i32, tid: i32, signal: c_int) -> Result<(), Errno> {
    // SAFETY: by value; whose numbers these are, callers have found out.
    check(unsafe { libc::syscall(libc::SYS_tgkill, tgid, tid, signal) }).map(|_| ())
}
