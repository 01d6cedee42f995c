//! A run as a whole: who is in its domain, and how it ends.

use super::signals::signal;
use super::{Errno, last_errno};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

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
