//! Signals of a target that waits for us.
//!
//! A target whose call was received waits where only a fatal signal reaches it
//! (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`). So whoever holds a call for long has to see to the
//! others: the call is given back, and the kernel delivers the signal on the way out. With
//! `ERESTARTSYS` it then does as signal(7) says: run the call again, or give `EINTR`, as the handler
//! wants. Nothing of the call has been done by then.
//!
//! Without a signal to deliver, the program would see that number. So it is only for a thread that the kernel
//! has marked as having one. Which thread of a process it picked for a signal to the process it does not
//! say: not one that blocks it, and whoever runs or sleeps takes it at once. One that nobody takes was for
//! a thread that waits for us. Where that may be any of several, this one is marked, too (`nudge`): it may
//! take the signal as well as the other, and whoever then finds none makes the call again.

use super::pool;
use super::task::{Status, status_of};
use crate::linux::sys::{Errno, nudge::nudge};
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Makes the kernel run the call again after a signal handler, or return `EINTR` as the handler wants.
pub const ERESTARTSYS: i32 = 512;
/// How long another thread has for taking a signal. One that runs takes it in no time.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long marking it may take. It has to wait for another thread that is in execve(2).
const LONGEST: Duration = Duration::from_secs(1);
/// Threads that are marked at a time.
const MOST_NUDGES: u32 = 16;
static NUDGES: AtomicU32 = AtomicU32::new(0);
/// More threads are not looked at one by one.
const MOST_THREADS: u32 = 64;

/// What is known of the signals of one thread.
#[derive(Debug, Default)]
pub struct Due {
    /// Since when one waits that another thread could take as well.
    since: Option<Instant>,
    /// Who marks the thread.
    nudge: Option<JoinHandle<bool>>,
}

impl Due {
    /// The error that gives the call of thread `tid` back, if it has a signal to take by now; `proc` is
    /// `/proc`.
    pub fn look(&mut self, proc: &OwnedFd, tid: i32) -> Option<i32> {
        // Before it is seen whether the thread is traced.
        let nudged = self.nudge.as_ref().is_some_and(JoinHandle::is_finished);
        let status = status_of(proc, tid).ok()?;
        if status.own_signals != 0 {
            return Some(ERESTARTSYS);
        }
        if status.shared_signals == 0 {
            self.since = None;
            return None;
        }
        if status.threads == 1 {
            return Some(ERESTARTSYS);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return None;
        }
        if is_ours(proc, tid, &status) {
            return Some(ERESTARTSYS);
        }
        // Who is given back while traced would stop for a moment.
        let comes = self.nudge.is_some() && (!nudged || status.traced);
        if comes && since.elapsed() < LONGEST {
            return None;
        }
        let marked = match self.nudge.take() {
            None if since.elapsed() < LONGEST => {
                self.nudge = start_nudge(tid);
                return None;
            }
            Some(marks) if nudged => marks.join().is_ok_and(|marked| marked),
            _ => false,
        };
        Some(if marked { ERESTARTSYS } else { Errno::INTR.raw_os_error() })
    }
}

/// Marks thread `tid`; none while too many others are, or where no thread can be had.
fn start_nudge(tid: i32) -> Option<JoinHandle<bool>> {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            NUDGES.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let before = NUDGES.fetch_add(1, Ordering::AcqRel);
    let running = Running;
    if before >= MOST_NUDGES {
        return None;
    }
    let marks = move || {
        let _running = running;
        nudge(tid).is_ok()
    };
    thread::Builder::new().stack_size(pool::STACK).spawn(marks).ok()
}

/// Whether a signal to the process that nobody took is for thread `tid`.
fn is_ours(proc: &OwnedFd, tid: i32, status: &Status) -> bool {
    // The kernel asks the first thread first, unless it knows a better one: the one that made the
    // child which ended.
    let child = 1 << (libc::SIGCHLD - 1);
    if tid == status.tgid && status.shared_signals & !child != 0 {
        return true;
    }
    // Nobody else could have been picked and be kept from it.
    status.threads <= MOST_THREADS
        && others(proc, tid, status.tgid).is_some_and(|others| {
            others.iter().all(|other| status.shared_signals & !other.blocked == 0 || other.sleeps)
        })
}

/// The other threads of the process.
fn others(proc: &OwnedFd, tid: i32, tgid: i32) -> Option<Vec<Status>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = rustix::fs::openat(proc, format!("{tgid}/task"), flags, Mode::empty()).ok()?;
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::read_from(&tasks).ok()? {
        let name = entry.ok()?;
        let Some(other) = name.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that is gone takes nothing.
        if let (true, Ok(status)) = (other != tid, status_of(proc, other)) {
            all.push(status);
        }
    }
    Some(all)
}
