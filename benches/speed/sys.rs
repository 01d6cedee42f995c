//! The system calls here that no safe crate offers.
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// Whether two processes share their memory, as after clone(2) with `CLONE_VM`: kcmp(2) with
/// `KCMP_VM`. Where the kernel does not answer (built without it, or no permission), they count as
/// separate.
pub fn same_memory(one: u32, other: u32) -> bool {
    /// `KCMP_VM` of `linux/kcmp.h`, which libc does not carry.
    const KCMP_VM: libc::c_long = 1;
    let pids = [one, other].map(libc::c_long::from);
    // SAFETY: kcmp takes five integers, reads and writes no memory of ours.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pids[0], pids[1], KCMP_VM, 0, 0) };
    order == 0
}

/// The processor time of the children that have been waited for, and of theirs: getrusage(2).
pub fn children_time() -> Duration {
    let mut usage: libc::rusage = {
        // SAFETY: a structure of integers, for which zeros are a value.
        unsafe { std::mem::zeroed() }
    };
    // SAFETY: the kernel writes one `rusage`, and cannot fail for these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.cast_unsigned())
            + Duration::from_micros(time.tv_usec.cast_unsigned())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Gives this process, which has one thread, a mount namespace of its own: unshare(2).
///
/// # Errors
///
/// Those of unshare(2).
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: no memory or descriptor table is unshared.
    match unsafe { libc::unshare(libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
