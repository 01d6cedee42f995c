//! Descriptors that were inherited by number.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A duplicate of the open descriptor `fd`: close-on-exec, and numbered 3 or higher.
///
/// # Errors
///
/// `EBADF` where `fd` is not open, `EMFILE` where there is no room for one more.
pub fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes two integers and touches no memory of ours; a number that is
    // no descriptor is an error.
    let new = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made `new` for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}
