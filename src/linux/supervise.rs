//! Waiting for the program: signals, job control, the end of everything it started.

use super::broker::{Broker, status_of};
use super::sys::domain::{self, First, Last, Outsider, Sight, SignalScope, Watcher};
use super::sys::signals::{self, Change, SignalSet};
use super::sys::stop::{self, Stop};
use super::sys::{self, Errno, image};
use super::tmpdir::{self, TemporaryDirectory};
use crate::cli::error::{Error, Failure};
use crate::trap::{Code, Mechanism};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
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

/// Every signal but those that cannot be blocked and those that say that we ourselves are at fault.
fn passable() -> Vec<i32> {
    let own = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGCHLD,
    ];
    (1..=libc::SIGRTMAX()).filter(|signal| !own.contains(signal)).collect()
}

/// How long killed descendants may take to go: a process in uninterruptible sleep can take longer
/// than anybody waits.
const LAST_MOMENTS: Duration = Duration::from_secs(2);

/// After this time a run is no short one, and what its launch took is given back.
const SETTLED: Duration = Duration::from_secs(1);

/// The signals of a run, blocked from its beginning so that none is lost.
pub struct Signals {
    set: SignalSet,
    before: SignalSet,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its exit code, 128+n for signal n.
    pub code: u8,
    /// Its time was up.
    pub late: bool,
}

impl Signals {
    /// Blocks them: those that a terminal or a caller sends, or with `every` all that can be passed on, for
    /// a launcher that stands in for the program.
    ///
    /// # Errors
    ///
    /// As prctl(2), where it cannot be told of the end of orphans.
    pub fn block(every: bool) -> Result<Signals, Errno> {
        let mut all = if every { passable() } else { FORWARDED.to_vec() };
        all.extend([libc::SIGCHLD, domain::watcher_signal()]);
        domain::adopt_orphans()?;
        let set = SignalSet::of(&all);
        Ok(Signals { before: set.block(), set })
    }

    /// The mask before, for the program.
    pub fn before(&self) -> &SignalSet {
        &self.before
    }

    /// Waits for `program` to end, or for `deadline`. Stops and goes on with it, unless others have calls of theirs
    /// wait at `broker` meanwhile; the watcher wakes us when time is up.
    ///
    /// # Errors
    ///
    /// `SUPERVISE_FAILED` when the watcher was killed: from then on a death of ours would leave
    /// the program's descendants behind, so the run ends.
    pub fn supervise(
        &self,
        program: i32,
        broker: Option<&Broker>,
        deadline: Option<Instant>,
    ) -> Result<End, Error> {
        const LATE: End = End { code: 128 + libc::SIGKILL as u8, late: true };
        let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let mut settled = Some(Instant::now() + SETTLED);
        loop {
            // Who is killed with the rest of the run may never be seen to end: a tracer can hold that
            // back for as long as it lives.
            let wake = settled.into_iter().chain(deadline).min();
            let Some((signal, sent)) = self.set.wait_until(wake) else {
                if is_late() {
                    return Ok(LATE);
                }
                image::give_back();
                settled = None;
                continue;
            };
            if signal == domain::watcher_signal() && !sent {
                let message = "the watcher process was killed; the run was ended";
                return Err(Failure::new(Code::SuperviseFailed, message).into());
            }
            if signal != libc::SIGCHLD {
                // A program that is stopped does not go on for a moment when its time is up.
                if sent && !is_late() {
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
                    Change::Exited(status) => return Ok(End { code: status as u8, late: false }),
                    Change::Killed(signal) => {
                        return Ok(End { code: 128 + signal as u8, late: false });
                    }
                    // The shell that waits for us has to see us stop, too.
                    Change::Stopped(_) => {
                        let listener = broker.and_then(Broker::own_listener);
                        let answers = broker.and_then(Broker::own_answers);
                        let pause = || broker.map(Broker::pause);
                        let how = stop::stop_with(program, [listener, answers], pause);
                        if is_late() {
                            return Ok(LATE);
                        }
                        stopped = how == Stop::Continued;
                        if how != Stop::None {
                            // The signal that continued us: passed on later than it came, it would undo
                            // a stop that the program got meanwhile.
                            SignalSet::of(&[libc::SIGCONT]).wait_for(Duration::ZERO);
                        }
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

/// The end of a run, prepared at its beginning: everything in the domain dies with us.
pub struct Ending {
    /// `None` without scopes (Landlock before ABI 6), and in a container but for its first process.
    scope: Option<SignalScope>,
    /// `None` where the kernel does it: it ends a pid namespace with its first process.
    watcher: Option<Watcher>,
    /// When time is up.
    deadline: Option<Instant>,
}

impl Ending {
    /// Enters the outer domain, which is a scope of signals or not (`scoped`), and starts the watcher in it. It
    /// removes `temporary` if we do not live to do so, and wakes us after `time` if we are stopped.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED`: then the calling thread may be restricted already.
    pub fn enter(
        outer: OwnedFd,
        scoped: bool,
        temporary: Option<&TemporaryDirectory>,
        time: Option<Duration>,
    ) -> Result<Ending, Failure> {
        let failed = |what: &str, errno: Errno| {
            Failure::setup(Mechanism::Landlock, format!("{what}: {}", io::Error::from(errno)))
        };
        let deadline = time.map(|time| Instant::now() + time);
        let outsider = Outsider::find(scoped)
            .map_err(|errno| failed("fork, for a process to prove the domain on", errno))?;
        sys::restrict_self(outer.as_fd())
            .map_err(|errno| failed("entering the outer domain (landlock_restrict_self)", errno))?;
        let wrong = |message| Failure::setup(Mechanism::Landlock, message);
        let place = temporary.map(TemporaryDirectory::place);
        let tasks = (tmpdir::sweep as First, tmpdir::remove as Last);
        let (scope, watcher) = if scoped {
            let scope = SignalScope::prove(&outsider)
                .ok_or_else(|| wrong("signals leave the domain although the kernel has scopes"))?;
            let watcher = scope.start_watcher(place, tasks, deadline);
            (Some(scope), watcher)
        } else {
            let sight = Sight::prove(&outsider).ok_or_else(|| {
                wrong("the domain does not say which processes can be looked at (get_robust_list)")
            })?;
            (None, sight.start_watcher(place, tasks, deadline))
        };
        let watcher = watcher.map_err(|errno| failed("clone, for the watcher", errno))?;
        Ok(Ending { scope, watcher: Some(watcher), deadline })
    }

    /// The same in a container with a pid namespace of its own. Nobody in there can end or stop its first process.
    ///
    /// # Errors
    ///
    /// As [`Ending::enter`].
    pub fn inside(outer: OwnedFd, time: Option<Duration>) -> Result<Ending, Failure> {
        sys::restrict_self(outer.as_fd()).map_err(|errno| {
            let message = format!(
                "entering the outer domain (landlock_restrict_self): {}",
                io::Error::from(errno)
            );
            Failure::setup(Mechanism::Landlock, message)
        })?;
        let deadline = time.map(|time| Instant::now() + time);
        Ok(Ending { scope: SignalScope::of_init(), watcher: None, deadline })
    }

    /// When time is up, for the watcher and for [`Signals::supervise`]: whom the watcher wakes before that
    /// would let the program go on.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Kills whatever the program left, and waits until it is gone.
    pub fn end_all(self) {
        // Orphans come to us, so no child means no descendant; the watcher does not count as one.
        if !is_over() {
            if let Some(scope) = &self.scope {
                scope.kill_all();
            }
            let deadline = Instant::now() + LAST_MOMENTS;
            let children = SignalSet::of(&[libc::SIGCHLD]);
            while !is_over() && Instant::now() < deadline {
                if self.scope.is_none() {
                    // Until none is left, it ends every descendant: the orphans of each round become children.
                    for child in children_of_run().unwrap_or_default() {
                        signals::signal(child, libc::SIGKILL);
                    }
                }
                children.wait_for(Duration::from_millis(100));
            }
        }
        if let Some(watcher) = self.watcher {
            watcher.dismiss();
        }
    }
}

/// Reaps what has ended; whether no child of the run is left.
fn is_over() -> bool {
    loop {
        match signals::wait_any(false) {
            Err(_) => return true,
            Ok(Some(_)) => {}
            Ok(None) => return children_of_run().is_ok_and(|children| children.is_empty()),
        }
    }
}

/// The children that have the program's filter: this process can have had others, before it executed this program.
fn children_of_run() -> io::Result<Vec<i32>> {
    let proc = rustix::fs::open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let filters = |pid| status_of(&proc, pid).map(|status| status.filters);
    let own = filters(std::process::id().cast_signed())?;
    let mut children = domain::children()?;
    // Who cannot be looked at counts.
    children.retain(|child| filters(*child).map_or(true, |filters| filters > own));
    Ok(children)
}
