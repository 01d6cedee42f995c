//! Signals by number: `rustix` knows those with a name.

use rustix::io::Errno;
use rustix::process::Pid;

/// kill(2).
///
/// # Errors
///
/// `ESRCH` without such a process, `EPERM`, `EINVAL` for no signal.
pub fn kill(pid: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: by-value system call.
    match unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) } {
        0 => Ok(()),
        _ => {
            let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            Err(Errno::from_raw_os_error(code))
        }
    }
}
