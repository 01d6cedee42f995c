//! Socket calls on addresses that arrive as bytes.

use super::{Errno, check};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// connect(2) to the raw address `address`.
///
/// # Errors
///
/// As connect(2).
pub fn connect(socket: &OwnedFd, address: &[u8]) -> Result<(), Errno> {
    with_address(libc::SYS_connect, socket, address)
}

/// bind(2) to the raw address `address`.
///
/// # Errors
///
/// As bind(2).
pub fn bind(socket: &OwnedFd, address: &[u8]) -> Result<(), Errno> {
    with_address(libc::SYS_bind, socket, address)
}

/// Makes the next bind(2) to port 0 leave the port to connect(2) or listen(2)
/// (`IP_BIND_ADDRESS_NO_PORT`, Linux 4.2; ip(7)). It is an option of IPv6 sockets, too.
///
/// # Errors
///
/// As setsockopt(2).
pub fn bind_without_port(socket: &OwnedFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one int.
    check(i64::from(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    }))
    .map(|_| ())
}

/// Whether what is to be read next of `socket` is urgent (`SIOCATMARK`, tcp(7)).
#[must_use]
pub fn is_at_mark(socket: BorrowedFd<'_>) -> bool {
    const SIOCATMARK: u32 = 0x8905;
    let mut at: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK as _, &raw mut at) };
    result == 0 && at != 0
}

/// The number that the network namespace of `socket` has for as long as the kernel runs
/// (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
///
/// As getsockopt(2).
pub fn namespace_cookie(socket: &OwnedFd) -> Result<u64, Errno> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: `cookie` has room for `length` bytes.
    check(i64::from(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    }))
    .map(|_| cookie)
}

fn with_address(call: libc::c_long, socket: &OwnedFd, address: &[u8]) -> Result<(), Errno> {
    // SAFETY: the kernel copies `address.len()` bytes and parses them itself.
    check(unsafe {
        libc::syscall(call, socket.as_fd().as_raw_fd(), address.as_ptr(), address.len())
    })
    .map(|_| ())
}

/// The abstract name that `socket` is bound to, its leading NUL included; `None` for another address.
///
/// # Errors
///
/// As getsockname(2).
pub fn own_abstract_name(socket: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut address = [0u8; 128];
    let mut length = address.len() as libc::socklen_t;
    // SAFETY: `address` has room for `length` bytes.
    check(i64::from(unsafe {
        libc::getsockname(socket.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut length)
    }))?;
    let name = address.get(2..(length as usize).min(address.len())).unwrap_or_default();
    Ok((name.first() == Some(&0)).then(|| name.to_vec()))
}
