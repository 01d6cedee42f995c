//! Network devices by ioctl(2), netdevice(7).

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::check;

/// `struct ifreq` of netdevice(7): a name, and a union of at most 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Brings the device `lo` up, through any `socket` of its network namespace.
///
/// # Errors
///
/// As ioctl(2).
pub fn loopback_up(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut request =
        Request { name: [0; libc::IFNAMSIZ], flags: libc::IFF_UP as i16, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: the kernel reads a `struct ifreq`.
    check(i64::from(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw mut request)
    }))
    .map(|_| ())
}
