//! Calls of libsandbox and of the C library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::time::Duration;

// In libSystem. sandbox_init(3); deprecated, and what every sandbox of macOS outside of the App Store uses.
unsafe extern "C" {
    fn sandbox_init(profile: *const c_char, flags: u64, error: *mut *mut c_char) -> c_int;
    fn sandbox_free_error(error: *mut c_char);
}

/// The terminal on standard input, output or error: a descriptor and the path.
pub fn terminal() -> Option<(RawFd, CString)> {
    let mut path = [0 as c_char; 1024];
    (0..=2).find_map(|fd| {
        // SAFETY: the buffer is as long as it is said to be, and ends in NUL when the call succeeds.
        let name = unsafe {
            (libc::ttyname_r(fd, path.as_mut_ptr(), path.len()) == 0)
                .then(|| CStr::from_ptr(path.as_ptr()).to_owned())
        };
        name.map(|name| (fd, name))
    })
}

/// Starts `command` in a sandbox. Where the sandbox refuses, what it says is written to `report`.
///
/// # Errors
///
/// Those of fork(2) and execve(2); EPERM where the sandbox refuses.
pub fn spawn(
    command: &mut Command,
    profile: CString,
    terminal: Option<RawFd>,
    report: &impl AsRawFd,
) -> io::Result<Child> {
    let report = report.as_raw_fd();
    let prepare = move || {
        if let Some(terminal) = terminal {
            foreground(terminal);
        }
        keep_stdio();
        enter(&profile, report)
    };
    // SAFETY: this process has one thread, so that the child may allocate and call what is not
    // async-signal-safe, as libsandbox does.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Whether something can be read within `most`, or the other end is closed.
pub fn readable(file: &impl AsRawFd, most: Duration) -> bool {
    let mut asked = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = c_int::try_from(most.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: there is one structure, and it lives as long as the call.
    unsafe { libc::poll(&raw mut asked, 1, milliseconds) > 0 }
}

/// Makes the process group of this process the one in the foreground.
fn foreground(terminal: RawFd) {
    // SAFETY: the calls take integers. Blocked, SIGTTOU lets a group in the background do this.
    unsafe {
        let before = mask(libc::SIG_BLOCK, &[libc::SIGTTOU]);
        libc::tcsetpgrp(terminal, libc::getpgrp());
        libc::sigprocmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}

/// Descriptors of whoever called stay out of the program.
fn keep_stdio() {
    // SAFETY: the calls take integers.
    unsafe {
        for fd in 3..libc::getdtablesize() {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

fn enter(profile: &CStr, report: RawFd) -> io::Result<()> {
    let mut error = ptr::null_mut();
    // SAFETY: the profile ends in NUL; without flags it is read as the text of one. The message is
    // ours to free, and ends in NUL.
    unsafe {
        if sandbox_init(profile.as_ptr(), 0, &raw mut error) == 0 {
            return Ok(());
        }
        if !error.is_null() {
            let text = CStr::from_ptr(error).to_bytes();
            libc::write(report, text.as_ptr().cast(), text.len());
            sandbox_free_error(error);
        }
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}

/// The signals that the launcher passes on.
const PASSED: [c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH, libc::SIGCONT];

/// Signals that wait to be taken.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Has them wait. The standard library starts programs with none blocked.
    pub fn block() -> Signals {
        let mut all = PASSED.to_vec();
        all.extend([libc::SIGCHLD, libc::SIGTTOU]);
        mask(libc::SIG_BLOCK, &all);
        all.pop();
        Signals(set(&all))
    }

    /// Waits for the end of `child`, which leads a process group; passes signals on, and ends what is left
    /// of the group. Returns the exit code.
    pub fn supervise(&self, child: Child, terminal: Option<RawFd>) -> u8 {
        let group = c_int::try_from(child.id()).unwrap_or(c_int::MAX);
        loop {
            let mut signal = 0;
            // SAFETY: the set and the number live as long as the call.
            unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
            if signal != libc::SIGCHLD {
                if let (libc::SIGCONT, Some(terminal)) = (signal, terminal) {
                    // SAFETY: the call takes integers.
                    unsafe { libc::tcsetpgrp(terminal, group) };
                }
                // SAFETY: the call takes integers; the child is not waited for yet, so the number is its.
                unsafe { libc::kill(-group, signal) };
                continue;
            }
            let mut status = 0;
            let flags = libc::WNOHANG | libc::WUNTRACED;
            // SAFETY: the status lives as long as the call.
            if unsafe { libc::waitpid(group, &raw mut status, flags) } != group {
                continue;
            }
            if libc::WIFSTOPPED(status) {
                // SAFETY: the calls take integers. Whoever waits for us sees us stopped too.
                unsafe {
                    terminal.map(|terminal| libc::tcsetpgrp(terminal, libc::getpgrp()));
                    libc::raise(libc::SIGSTOP);
                }
                continue;
            }
            // SAFETY: the calls take integers. The number of a group is not used anew while it has members.
            unsafe {
                libc::kill(-group, libc::SIGKILL);
                terminal.map(|terminal| libc::tcsetpgrp(terminal, libc::getpgrp()));
            }
            let status = ExitStatus::from_raw(status);
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            return u8::try_from(code).unwrap_or(u8::MAX);
        }
    }
}

fn set(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset makes the set a valid one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Changes the mask of blocked signals, and returns the one before.
fn mask(how: c_int, signals: &[c_int]) -> libc::sigset_t {
    let (set, mut before) = (set(signals), MaybeUninit::uninit());
    // SAFETY: both sets live as long as the call, which fills the second.
    unsafe {
        libc::sigprocmask(how, &raw const set, before.as_mut_ptr());
        before.assume_init()
    }
}
