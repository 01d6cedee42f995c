//! Having a thread look at its signals.

use super::{Errno, check};

/// Has thread `tid` of a target look at its signals on its way out of the kernel, as if there were one for it.
/// If it waits where a fatal signal alone reaches it, it goes on waiting. For a thread that does nothing else
/// and ends at once: until then it traces the target.
///
/// `PTRACE_SEIZE` stops nobody, and `PTRACE_INTERRUPT` marks the thread as having a signal (`TIF_SIGPENDING`) and
/// asks it to stop. The end of the tracer takes that back, but for the mark, see ptrace(2) and
/// `__ptrace_unlink` in the kernel.
///
/// # Errors
///
/// As ptrace(2): `EPERM` where a container forbids it, and where somebody traces the thread already.
pub fn nudge(tid: i32) -> Result<(), Errno> {
    for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
        // SAFETY: by value; neither request reads or writes memory.
        check(unsafe { libc::syscall(libc::SYS_ptrace, request, tid, 0, 0) })?;
    }
    Ok(())
}
