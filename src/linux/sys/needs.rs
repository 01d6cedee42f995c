//! The system calls that no run does without, tried before one begins.
//!
//! A container's filter, or another sandbox's, may refuse any of them. Some of the refusals could be told where
//! the call is made; others end in a panic (what cannot fail is not checked by who calls it), in waiting for ever,
//! or in a run that nobody can end. So all are tried in one place, with arguments that the kernel itself refuses or
//! that change nothing.
//!
//! A filter that looks at arguments may let these pass and refuse what is done later. That is told where it is
//! done. What a program cannot even start without (execve, mmap) is not among them, nor is exit(2), which cannot be
//! tried, nor Landlock, whose errors are told apart from those of a kernel without it.

use super::{Errno, check};
use libc as c;

/// No descriptor.
const NONE: i64 = -1;
/// Of flags, options and numbers of signals, clocks and limits: none that there is.
const BAD: i64 = 0x7fff_ffff;
/// An address that is not aligned, and at which there is nothing.
const NOWHERE: i64 = 1;

/// A call by its name and number, with its first arguments; the others are zeros.
type Trial = (&'static str, i64, [i64; 4]);

#[rustfmt::skip]
const TRIALS: &[Trial] = &[
    // Who we are: these are not expected to fail by those who call them.
    ("getpid", c::SYS_getpid, [0; 4]),
    ("gettid", c::SYS_gettid, [0; 4]),
    ("getppid", c::SYS_getppid, [0; 4]),
    ("getuid", c::SYS_getuid, [0; 4]),
    ("geteuid", c::SYS_geteuid, [0; 4]),
    ("getgid", c::SYS_getgid, [0; 4]),
    ("getegid", c::SYS_getegid, [0; 4]),
    ("getgroups", c::SYS_getgroups, [0; 4]),
    ("capget", c::SYS_capget, [0; 4]),
    ("capset", c::SYS_capset, [0; 4]),
    ("prlimit64", c::SYS_prlimit64, [0, BAD, 0, 0]),
    ("uname", c::SYS_uname, [0; 4]),
    // Files.
    #[cfg(target_arch = "x86_64")]
    ("access", c::SYS_access, [0; 4]),
    #[cfg(target_arch = "x86_64")]
    ("open", c::SYS_open, [0; 4]),
    #[cfg(target_arch = "x86_64")]
    ("readlink", c::SYS_readlink, [0; 4]),
    #[cfg(target_arch = "x86_64")]
    ("stat", c::SYS_stat, [0; 4]),
    ("chdir", c::SYS_chdir, [0; 4]),
    ("close", c::SYS_close, [NONE, 0, 0, 0]),
    ("close_range", c::SYS_close_range, [1, 0, 0, 0]),
    ("fcntl", c::SYS_fcntl, [NONE, c::F_GETFD as i64, 0, 0]),
    ("fstat", c::SYS_fstat, [NONE, 0, 0, 0]),
    ("getcwd", c::SYS_getcwd, [0; 4]),
    ("getdents64", c::SYS_getdents64, [NONE, 0, 0, 0]),
    ("getxattr", c::SYS_getxattr, [0; 4]),
    ("ioctl", c::SYS_ioctl, [NONE, c::FIOCLEX as i64, 0, 0]),
    ("lseek", c::SYS_lseek, [NONE, 0, 0, 0]),
    ("mkdirat", c::SYS_mkdirat, [NONE, 0, 0, 0]),
    ("newfstatat", c::SYS_newfstatat, [NONE, 0, 0, 0]),
    ("openat", c::SYS_openat, [NONE, 0, 0, 0]),
    ("openat2", c::SYS_openat2, [NONE, 0, 0, 0]),
    ("pipe2", c::SYS_pipe2, [0, BAD, 0, 0]),
    ("pread64", c::SYS_pread64, [NONE, 0, 0, 0]),
    ("read", c::SYS_read, [NONE, 0, 0, 0]),
    ("readlinkat", c::SYS_readlinkat, [NONE, 0, 0, 0]),
    ("statx", c::SYS_statx, [NONE, 0, BAD, 0]),
    ("unlinkat", c::SYS_unlinkat, [NONE, 0, BAD, 0]),
    ("write", c::SYS_write, [NONE, 0, 0, 0]),
    // Processes, and waiting for them.
    #[cfg(target_arch = "x86_64")]
    ("poll", c::SYS_poll, [0, BAD, 0, 0]),
    ("ppoll", c::SYS_ppoll, [0, BAD, 0, 0]),
    ("clock_nanosleep", c::SYS_clock_nanosleep, [BAD, 0, 0, 0]),
    ("clone", c::SYS_clone, [c::CLONE_THREAD as i64, 0, 0, 0]),
    ("futex", c::SYS_futex, [NOWHERE, c::FUTEX_WAKE as i64, 0, 0]),
    ("getrandom", c::SYS_getrandom, [0, 0, BAD, 0]),
    ("kill", c::SYS_kill, [0, BAD, 0, 0]),
    ("mprotect", c::SYS_mprotect, [NOWHERE, 0, 0, 0]),
    ("process_vm_readv", c::SYS_process_vm_readv, [0; 4]),
    ("rt_sigaction", c::SYS_rt_sigaction, [BAD, 0, 0, 0]),
    ("rt_sigprocmask", c::SYS_rt_sigprocmask, [0; 4]),
    ("rt_sigtimedwait", c::SYS_rt_sigtimedwait, [0; 4]),
    ("seccomp", c::SYS_seccomp, [BAD, 0, 0, 0]),
    ("tgkill", c::SYS_tgkill, [NONE, NONE, 0, 0]),
    ("wait4", c::SYS_wait4, [NONE, 0, BAD, 0]),
];

/// Tries them all, where this process is under a filter; there are none to refuse anything otherwise.
///
/// # Errors
///
/// The name of the first one that is refused, and how. To be called while there is one thread.
pub fn check_all() -> Result<(), (&'static str, Errno)> {
    // SAFETY: by-value prctl. Under a filter it returns 2.
    let filtered = unsafe { c::prctl(c::PR_GET_SECCOMP, 0, 0, 0, 0) };
    if check(filtered.into()).map_err(|errno| ("prctl", errno))? == 0 {
        return Ok(());
    }
    for &(name, number, [first, second, third, fourth]) in TRIALS {
        // SAFETY: no pointer among the arguments is one that the kernel would follow: NULL, or [`NOWHERE`].
        let result = unsafe { c::syscall(number, first, second, third, fourth, 0, 0) };
        if let Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) = check(result) {
            return Err((name, errno));
        }
    }
    // It has no arguments that change nothing.
    // SAFETY: by value. The mask is put back before anything is made.
    let umask = |mask: usize| check(unsafe { c::syscall(c::SYS_umask, mask) });
    umask(0o777).and_then(umask).map(drop).map_err(|errno| ("umask", errno))
}
