//! A process of ours beside the launcher, made by fork(2).

use super::{Errno, last_errno};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// How long a helper lives at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as the process that starts it.
    Parent,
    /// As long as it works.
    Work,
}

/// Starts a process that does `work` and ends with it.
///
/// It has its own copy of this memory, so `work` may do what it likes.
///
/// # Errors
///
/// As fork(2); `EBUSY` in a process with threads: what they hold would stay held in the copy.
pub fn fork(name: &std::ffi::CStr, life: Life, work: impl FnOnce()) -> Result<(), Errno> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(Errno::BUSY);
    }
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: this is the only thread, so the copy is consistent. It goes no way back into the launcher:
    // it ends with `work`, and a panic aborts.
    unsafe {
        match libc::fork() {
            -1 => Err(last_errno()),
            0 => {
                if life == Life::Parent {
                    let bound = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0;
                    // A parent that died before is noticed here.
                    if !bound || libc::getppid() != parent {
                        libc::_exit(1);
                    }
                }
                libc::setsid();
                libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                if libc::prctl(libc::PR_SET_DUMPABLE, 0) != 0 {
                    libc::_exit(1);
                }
                work();
                // Without the exit handlers that it has from the launcher.
                libc::_exit(0)
            }
            _ => Ok(()),
        }
    }
}

/// Closes every descriptor but those in `keep`; standard input, output and error become `null`.
///
/// # Errors
///
/// As dup2(2) and close_range(2).
pub fn close_others(null: BorrowedFd<'_>, keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut numbers: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    numbers.extend([0, 1, 2, RawFd::MAX]);
    numbers.sort_unstable();
    for number in 0..3 {
        // SAFETY: by value. These are nobody's property in this process.
        super::check(i64::from(unsafe { libc::dup2(null.as_raw_fd(), number) }))?;
    }
    for pair in numbers.windows(2) {
        let (from, to) = (pair[0] + 1, pair[1] - 1);
        if from <= to {
            // SAFETY: by value. What is closed here belongs to values of the launcher, which this
            // process never comes back to.
            super::check(unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) })?;
        }
    }
    Ok(())
}
