//! Stopping with a program, as a shell expects of the process that it started.

use super::signals::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::pread;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions, getppid, kill_process, waitpid};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How often it is looked whether the program goes on.
const LOOK: Duration = Duration::from_millis(50);
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// So many times a call is seen to wait before it is served.
const SEEN: u32 = 2;
/// How long a program that is being nudged may take until it is stopped, or goes on, and how often that is looked at.
const NUDGED: (Duration, u32) = (Duration::from_millis(1), 100);

/// What a process does, proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stopped by a signal.
    Stopped,
    /// Stopped by its tracer.
    Traced,
    /// Anything else, or nothing any more.
    Going,
}

/// How a stop went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing was stopped: the program goes on, procfs does not tell, or this process cannot be.
    None,
    /// Somebody continued this process, or the program.
    Continued,
    /// The program stays stopped, but somebody else waits to be served.
    Asked,
}

/// Stops this process where its child `program` is stopped by a signal. It goes on when somebody continues it; when
/// others continue the program, since a stopped launcher would not see its end; and when something waits at one
/// of `asked`, since those who make calls need not be stopped. Nobody may receive one before that: it would not wait
/// there any more. So `pause` is called, and what it gives is held, for as long as this process is stopped.
pub fn stop_with<T>(
    program: i32,
    asked: [Option<BorrowedFd<'_>>; 2],
    pause: impl FnOnce() -> T,
) -> Stop {
    if rustix::process::getpid().is_init() {
        // Nobody in its namespace can stop it, itself included (pid_namespaces(7)).
        return Stop::None;
    }
    let Ok(stat) = File::open(format!("/proc/{program}/stat")) else { return Stop::None };
    let Ok((told, tell)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) else { return Stop::None };
    // A thread of ours that makes the program look at its signals traces it for that long, see `nudge`.
    for _ in 0..NUDGED.1 {
        if state(stat.as_fd()) != State::Traced {
            break;
        }
        std::thread::sleep(NUDGED.0);
    }
    if state(stat.as_fd()) != State::Stopped {
        return Stop::None;
    }
    // SAFETY: `wake` makes system calls and nothing else, and does not return.
    let waker = unsafe { libc::fork() };
    if waker == 0 {
        wake(stat.as_fd(), asked, tell.as_fd());
    }
    drop(tell);
    let paused = pause();
    // SAFETY: by value.
    unsafe { libc::raise(libc::SIGSTOP) };
    drop(paused);
    if let Some(waker) = Pid::from_raw(waker) {
        signal(waker.as_raw_nonzero().get(), libc::SIGKILL);
        let _reaped = waitpid(Some(waker), WaitOptions::empty());
    }
    // At its end where nothing was said.
    if rustix::io::read(&told, &mut [0]) == Ok(1) { Stop::Asked } else { Stop::Continued }
}

/// The process that continues its parent when it has to, and writes to `tell` where that is for a call. It is ended
/// by its parent.
fn wake(stat: BorrowedFd<'_>, asked: [Option<BorrowedFd<'_>>; 2], tell: BorrowedFd<'_>) -> ! {
    // SAFETY: by value. It ends with its parent, and with it what it holds open; in a session that no terminal stops.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setsid();
    }
    let launcher = getppid();
    let mut waits = 0;
    while launcher.is_some() && getppid() == launcher {
        std::thread::sleep(LOOK);
        let waiting = asked.iter().flatten().any(|from| {
            let mut fds = [PollFd::new(from, PollFlags::IN)];
            poll(&mut fds, Some(&NOW)) == Ok(1) && fds[0].revents().contains(PollFlags::IN)
        });
        waits = if waiting { waits + 1 } else { 0 };
        let going = state(stat) == State::Going;
        // The shell has seen the stop by then.
        let asked = waits > SEEN;
        if asked && !going {
            let _ = rustix::io::write(tell, &[0]);
        }
        if asked || going {
            // Again and again: it may not have stopped yet.
            let _ = launcher.map(|launcher| kill_process(launcher, Signal::CONT));
        }
    }
    // SAFETY: ends this process without running the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

fn state(stat: BorrowedFd<'_>) -> State {
    let mut buffer = [0; 1024];
    let length = pread(stat, &mut buffer, 0).unwrap_or(0);
    let text = &buffer[..length];
    // The second field is the command in parentheses, and may contain anything.
    let after = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    match after {
        Some(b'T') => State::Stopped,
        Some(b't') => State::Traced,
        _ => State::Going,
    }
}
