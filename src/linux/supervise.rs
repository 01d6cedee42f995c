//! Waiting for the program: signals, job control, the end of everything it started.

use super::sys::domain;
use super::sys::signals::{self, Change, SignalSet};
use crate::cli::error::{Error, Failure};
use crate::trap::Code;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Signals that are passed on to the program when another process sends them to us. What the
/// terminal sends reaches the program by itself: it is in our process group.
const FORWARDED: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// How long killed descendants may take to go: a process in uninterruptible sleep can take longer
/// than anybody waits.
const LAST_MOMENTS: Duration = Duration::from_secs(2);

/// The signals of a run, blocked from its beginning so that none is lost.
pub struct Signals {
    set: SignalSet,
    before: SignalSet,
}

impl Signals {
    /// Blocks them.
    pub fn block() -> Signals {
        let mut all = FORWARDED.to_vec();
        all.extend([libc::SIGCHLD, domain::watcher_signal()]);
        domain::adopt_orphans();
        let set = SignalSet::of(&all);
        Signals { before: set.block(), set }
    }

    /// The mask before, for the program.
    pub fn before(&self) -> &SignalSet {
        &self.before
    }

    /// Waits for `program` to end and returns its exit code, 128+n for signal n. Stops and goes on
    /// with it.
    ///
    /// # Errors
    ///
    /// `SUPERVISE_FAILED` when the watcher was killed: from then on a death of ours would leave
    /// the program's descendants behind, so the run ends.
    pub fn supervise(&self, program: i32) -> Result<u8, Error> {
        loop {
            let (signal, sent) = self.set.wait();
            if signal == domain::watcher_signal() {
                let message = "the watcher process was killed; the run was ended";
                return Err(Failure::new(Code::SuperviseFailed, message).into());
            }
            if signal != libc::SIGCHLD {
                if sent {
                    signals::signal(program, signal);
                }
                continue;
            }
            let mut stopped = false;
            while let Ok(Some((pid, change))) = signals::wait_any(false) {
                if pid != program {
                    continue;
                }
                match change {
                    Change::Exited(status) => return Ok(status as u8),
                    Change::Killed(signal) => return Ok(128 + signal as u8),
                    // The shell that waits for us has to see us stop, too.
                    Change::Stopped(_) => {
                        signals::stop_self();
                        // The signal that continued us: passed on later than it came, it would undo
                        // a stop that the program got meanwhile.
                        SignalSet::of(&[libc::SIGCONT]).wait_for(Duration::ZERO);
                        stopped = true;
                    }
                    Change::Continued => stopped = false,
                }
            }
            // It was for us alone, and not for our process group.
            if stopped {
                signals::signal(program, libc::SIGCONT);
            }
        }
    }
}

/// Kills whatever the program left, and waits until it is gone. `watch` is our end of the watcher's
/// pipe: closing it makes the watcher kill the domain.
pub fn end_all(watch: OwnedFd) {
    // Orphans come to us, so no child means no descendant; the watcher does not count as one.
    if reap() {
        return;
    }
    drop(watch);
    let deadline = Instant::now() + LAST_MOMENTS;
    let children = SignalSet::of(&[libc::SIGCHLD]);
    while !reap() && Instant::now() < deadline {
        if children.wait_for(Duration::from_millis(100)).is_none() {
            // There is no watcher (Landlock before ABI 6), or it was killed.
            domain::kill_children();
        }
    }
}

/// Reaps what has ended; whether no child is left.
fn reap() -> bool {
    loop {
        match signals::wait_any(false) {
            Err(_) => return true,
            Ok(Some(_)) => {}
            Ok(None) => return false,
        }
    }
}
