//! Terminals: requests of ioctl_tty(2).

use super::{Errno, check};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Opens the other end of a pseudoterminal.
pub const TIOCGPTPEER: u32 = 0x5441;

/// Requests that set something of a terminal, and what each reads from memory, in bytes; with 0, the argument is
/// a number.
const SETTERS: [(u32, usize); 17] = [
    // TCSETS, TCSETSW, TCSETSF: `struct termios` of the kernel.
    (0x5402, 36),
    (0x5403, 36),
    (0x5404, 36),
    // TCSETA, TCSETAW, TCSETAF: `struct termio`.
    (0x5406, 18),
    (0x5407, 18),
    (0x5408, 18),
    // TCSETS2, TCSETSW2, TCSETSF2: `struct termios2`.
    (0x402c_542b, 44),
    (0x402c_542c, 44),
    (0x402c_542d, 44),
    (TIOCSWINSZ, 8),
    // TIOCSETD.
    (0x5423, 4),
    // TCSBRK, TCSBRKP, TCXONC, TCFLSH.
    (0x5409, 0),
    (0x5425, 0),
    (0x540a, 0),
    (0x540b, 0),
    (TIOCEXCL, 0),
    (TIOCNXCL, 0),
];
/// Sets the size of a terminal.
pub const TIOCSWINSZ: u32 = 0x5414;
/// Lets nobody else open a terminal, and again anybody.
pub const TIOCEXCL: u32 = 0x540c;
/// See [`TIOCEXCL`].
pub const TIOCNXCL: u32 = 0x540d;

/// The requests that [`set`] makes.
pub fn setters() -> impl Iterator<Item = u32> {
    SETTERS.iter().map(|(request, _)| *request)
}

/// How many bytes `request`, one of [`setters`], reads from memory.
///
/// # Errors
///
/// `ENOTTY` for any other one.
pub fn argument_size(request: u32) -> Result<usize, Errno> {
    let found = SETTERS.iter().find(|(setter, _)| *setter == request);
    found.map(|(_, size)| *size).ok_or(Errno::NOTTY)
}

/// Makes `request`, one of [`setters`], of a terminal: with `memory`, or where it reads none, with `value`.
///
/// # Errors
///
/// As ioctl_tty(2); `EINVAL` where `memory` is not of the right size.
pub fn set(terminal: BorrowedFd<'_>, request: u32, value: u64, memory: &[u8]) -> Result<(), Errno> {
    if argument_size(request)? != memory.len() {
        return Err(Errno::INVAL);
    }
    let argument = if memory.is_empty() { value } else { memory.as_ptr() as u64 };
    // SAFETY: the kernel takes a number, or reads as many bytes as there are.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), request as libc::Ioctl, argument) }.into())
        .map(|_| ())
}

/// The device number of a terminal, as proc_pid_stat(5) has it; of a master, that of its other end, and of
/// `/dev/tty`, that of the terminal behind it.
///
/// # Errors
///
/// `ENOTTY` or another one for what is no terminal.
pub fn number(terminal: BorrowedFd<'_>) -> Result<u32, Errno> {
    const TIOCGDEV: u32 = 0x8004_5432;
    read(terminal, TIOCGDEV)
}

/// Whether this is the master of a pseudoterminal.
pub fn is_master(terminal: BorrowedFd<'_>) -> bool {
    const TIOCGPTN: u32 = 0x8004_5430;
    read(terminal, TIOCGPTN).is_ok()
}

fn read(terminal: BorrowedFd<'_>, request: u32) -> Result<u32, Errno> {
    let mut number = 0u32;
    // SAFETY: `number` is writable, and both requests fill one `unsigned int`.
    check(
        unsafe { libc::ioctl(terminal.as_raw_fd(), request as libc::Ioctl, &raw mut number) }
            .into(),
    )
    .map(|_| number)
}

/// Opens the terminal whose master is `master`, with the flags of open(2).
///
/// # Errors
///
/// `ENOTTY` when it is no master.
pub fn terminal_of(master: BorrowedFd<'_>, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: by-value ioctl; the descriptor that it returns is new, and ours.
    unsafe {
        let fd = libc::ioctl(master.as_raw_fd(), TIOCGPTPEER as libc::Ioctl, flags);
        check(i64::from(fd)).map(|_| OwnedFd::from_raw_fd(fd))
    }
}

/// Has a file send signals to its owner, or no longer (`FIOASYNC`).
///
/// # Errors
///
/// As ioctl(2): `ENOTTY` for a file that knows no such thing.
pub fn set_async(file: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
    let on = libc::c_int::from(on);
    // SAFETY: the kernel reads one `int`.
    check(
        unsafe { libc::ioctl(file.as_raw_fd(), libc::FIOASYNC as libc::Ioctl, &raw const on) }
            .into(),
    )
    .map(|_| ())
}
