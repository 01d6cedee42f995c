//! `probe @spawn OPTIONS -- PROGRAM ARGS`: sets up what a test cannot set up safely between fork
//! and exec from Rust, then executes the program in its place.
//!
//! | option | effect |
//! |---|---|
//! | `N>PATH` | descriptor N writes to the file or FIFO (created, truncated) |
//! | `N<PATH` | descriptor N reads from PATH |
//! | `N@PATH` | descriptor N is connected to the unix stream socket PATH |
//! | `N-` | descriptor N is closed |
//! | `tty=PATH` | new session, PATH its controlling terminal and descriptors 0, 1 and 2 |
//! | `group` | new process group |
//! | `cwd=PATH`, `umask=N`, `uid=N` | as they say; uid sets uid and gid and drops groups |
//! | `rlimit=NAME:N`, `hard=NAME:N` | soft limit; both limits |
//! | `ignore=SIGNAL` | the signal is ignored |
//! | `refuse=CALL`, `refuse=CALL:BITS` | the system call fails with EPERM, as a container's filter has it; with such an argument |
//! | `lack=CALL` | it fails with ENOSYS |
//! | `-VAR`, `VAR=TEXT` (upper case) | environment |

use crate::Vars;
use crate::args::{errno, fail, number};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;

/// Runs the options and executes the program; never returns.
pub fn main(all: &[String]) -> ! {
    let end = all.iter().position(|a| a == "--").unwrap_or_else(|| fail("@spawn needs --"));
    for option in &all[..end] {
        apply(option);
    }
    let error = std::process::Command::new(&all[end + 1]).args(&all[end + 2..]).exec();
    fail(&format!("exec {}: {error}", all[end + 1]));
}

fn apply(option: &str) {
    let none = Vars::new();
    let digits = option.len() - option.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits > 0 {
        let fd: i32 = option[..digits].parse().unwrap_or_else(|_| fail("descriptor"));
        return redirect(fd, &option[digits..]);
    }
    let (name, text) = option.split_once('=').unwrap_or((option, ""));
    match name {
        "tty" => terminal(text),
        // SAFETY: plain calls on this process, which is about to exec.
        "group" => check(unsafe { libc::setpgid(0, 0) }),
        "cwd" => std::env::set_current_dir(text).unwrap_or_else(|e| fail(&format!("{text}: {e}"))),
        "umask" => {
            // SAFETY: as above.
            unsafe { libc::umask(number(text, &none) as libc::mode_t) };
        }
        "uid" => {
            let id = number(text, &none) as u32;
            // SAFETY: as above.
            check(unsafe { libc::setgroups(0, std::ptr::null()) });
            check(unsafe { libc::setresgid(id, id, id) });
            check(unsafe { libc::setresuid(id, id, id) });
        }
        "rlimit" => limit(text, false),
        "hard" => limit(text, true),
        "refuse" => crate::abi::refuse(text, libc::EPERM),
        "lack" => crate::abi::refuse(text, libc::ENOSYS),
        "ignore" => {
            // SAFETY: as above; SIG_IGN is inherited through exec.
            unsafe { libc::signal(number(text, &none) as i32, libc::SIG_IGN) };
        }
        // SAFETY: the probe has one thread here.
        _ if option.starts_with('-') => unsafe { std::env::remove_var(&option[1..]) },
        _ => unsafe { std::env::set_var(name, text) },
    }
}

/// `NAME:N` sets a soft resource limit, and with `hard` the other one as well.
pub fn limit(text: &str, hard: bool) {
    let (name, value) = text.split_once(':').unwrap_or_else(|| fail("rlimit NAME:N"));
    let which = number(name, &Vars::new()) as _;
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a live struct of their type.
    check(unsafe { libc::getrlimit(which, &raw mut now) });
    now.rlim_cur = value.parse().unwrap_or_else(|_| fail("rlimit value"));
    if hard {
        now.rlim_max = now.rlim_cur;
    }
    check(unsafe { libc::setrlimit(which, &raw const now) });
}

fn redirect(fd: i32, what: &str) {
    let (kind, path) = what.split_at(1);
    let io = |e: std::io::Error| -> ! { fail(&format!("{path}: {e}")) };
    let from: OwnedFd = match kind {
        ">" => std::fs::File::create(path).unwrap_or_else(|e| io(e)).into(),
        "<" => std::fs::File::open(path).unwrap_or_else(|e| io(e)).into(),
        "@" => std::os::unix::net::UnixStream::connect(path).unwrap_or_else(|e| io(e)).into(),
        _ => {
            // SAFETY: closing a number that nothing here owns.
            unsafe { libc::close(fd) };
            return;
        }
    };
    let raw = from.into_raw_fd();
    if raw == fd {
        // SAFETY: clears close-on-exec on our own descriptor.
        check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) });
    } else {
        // SAFETY: dup2 leaves `fd` without close-on-exec; the original is ours to close.
        check(unsafe { libc::dup2(raw, fd) });
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}

fn terminal(path: &str) {
    // SAFETY: plain calls on this process, which is about to exec.
    unsafe {
        check(libc::setsid());
        // As a login has them. Who was started in the background by a shell ignores both.
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        libc::signal(libc::SIGQUIT, libc::SIG_DFL);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
        let fd = file.unwrap_or_else(|e| fail(&format!("{path}: {e}"))).into_raw_fd();
        check(libc::ioctl(fd, libc::TIOCSCTTY, 0));
        for to in 0..3 {
            check(libc::dup2(fd, to));
        }
        if fd > 2 {
            libc::close(fd);
        }
    }
}

fn check(result: i32) {
    if result == -1 {
        fail(&format!("@spawn: {}", crate::table::errno_name(errno())));
    }
}
