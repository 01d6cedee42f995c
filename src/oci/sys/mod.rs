//! Small safe wrappers around what `rustix` lacks: a file for each user.
#![allow(unsafe_code)]

pub mod bpf;
pub mod mount;
pub mod net;
pub mod process;
pub mod signal;

use rustix::io::Errno;

/// Turns the return value of `libc::syscall` into a result.
fn check(value: libc::c_long) -> Result<usize, Errno> {
    if value < 0 {
        // errno is the calling thread's own, set by the call that just failed.
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(value as usize)
}
