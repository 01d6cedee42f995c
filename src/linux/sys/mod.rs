//! Small safe wrappers around what neither `rustix` nor `landlock` offers.
//!
//! This directory is the only place of the Linux backend that holds `unsafe`.
#![allow(unsafe_code)]

pub mod allocator;
pub mod context;
pub mod datagram;
pub mod domain;
pub mod helper;
pub mod identity;
pub mod image;
pub mod ipc;
pub mod memory;
pub mod needs;
pub mod netns;
pub mod nudge;
pub mod probe;
pub mod route;
pub mod seccomp;
pub mod signals;
pub mod slice;
pub mod socket;
pub mod spawn;
pub mod stop;
pub mod terminal;

pub use rustix::io::Errno;

/// What the calling thread's last call through the C library failed with.
fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Turns the return value of `libc::syscall` into a result.
fn check(value: libc::c_long) -> Result<usize, Errno> {
    if value < 0 {
        // errno is the calling thread's own, set by the call that just failed.
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(value as usize)
}

/// System call numbers that are the same on every architecture and newer than the `libc` crate.
pub mod nr {
    /// setxattrat(2), Linux 6.13.
    pub const SETXATTRAT: i64 = 463;
    /// removexattrat(2), Linux 6.13.
    pub const REMOVEXATTRAT: i64 = 466;
    /// open_tree_attr(2), Linux 6.15.
    pub const OPEN_TREE_ATTR: i64 = 467;
    /// file_setattr(2), Linux 6.17.
    pub const FILE_SETATTR: i64 = 469;
    /// lsm_set_self_attr(2), Linux 6.8.
    pub const LSM_SET_SELF_ATTR: i64 = 460;
    /// The last system call that is known here, Linux 6.17: what a later one does, nobody has looked at.
    pub const LAST: i64 = FILE_SETATTR;
}

/// The newest Landlock ABI of the running kernel, landlock_create_ruleset(2).
///
/// # Errors
///
/// `ENOSYS` without Landlock, `EOPNOTSUPP` when it is switched off at boot.
pub fn landlock_abi() -> Result<u32, Errno> {
    const VERSION: u32 = 1;
    // SAFETY: asking for the version takes no pointer.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION)
    };
    check(abi).map(|abi| abi as u32)
}

/// The fixes that this kernel's Landlock has, as a bit mask, bit n-1 for erratum n.
///
/// # Errors
///
/// `EINVAL` on kernels that do not tell (before Linux 6.15).
pub fn landlock_errata() -> Result<u32, Errno> {
    const ERRATA: u32 = 1 << 1;
    // SAFETY: asking for the errata takes no pointer.
    let errata = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, ERRATA)
    };
    check(errata).map(|errata| errata as u32)
}

/// Enters the domain of `ruleset`, landlock_restrict_self(2). Sets no_new_privs first.
///
/// # Errors
///
/// `E2BIG` with 16 domains already.
pub fn restrict_self(ruleset: std::os::fd::BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    enter_domain(ruleset)
}

/// Enters the domain of `ruleset` with the privileges that there are.
///
/// # Errors
///
/// `E2BIG` with 16 domains already; `EPERM` with neither no_new_privs nor CAP_SYS_ADMIN.
pub fn enter_domain(ruleset: std::os::fd::BorrowedFd<'_>) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // SAFETY: by-value system call.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(|_| ())
}
