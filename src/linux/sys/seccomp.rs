//! seccomp(2) with a listener, and the ioctls of seccomp_unotify(2).

use super::{Errno, check};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One classic BPF instruction, `struct sock_filter`.
pub type Instruction = libc::sock_filter;

/// The system call that a target waits in.
#[derive(Clone, Copy)]
pub struct Notification(libc::seccomp_notif);

impl Notification {
    /// The cookie that answers refer to.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Thread id of the target, in the reader's pid namespace; 0 when it has none there.
    pub fn tid(&self) -> i32 {
        self.0.pid as i32
    }

    /// System call number.
    pub fn nr(&self) -> i64 {
        i64::from(self.0.data.nr)
    }

    /// Register argument `index` (0 to 5), as the target passed it.
    pub fn arg(&self, index: usize) -> u64 {
        self.0.data.args[index]
    }
}

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`: once received, only a fatal signal interrupts the target.
const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (Linux 6.6): hand the CPU over with the answer.
const SYNC_WAKE_UP: u64 = 1;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`, `_IOW('!', 4, __u64)`.
const NOTIF_SET_FLAGS: libc::Ioctl = 0x4008_2104u32 as libc::Ioctl;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const FLAG_CONTINUE: u32 = 1;

/// Installs `filter` on the calling thread and returns its listener.
///
/// Async-signal-safe: it allocates nothing, so that a vforked child may call it.
///
/// # Errors
///
/// `EBUSY` when an outer filter already has a listener, `EINVAL` on kernels without
/// `WAIT_KILLABLE_RECV` (before Linux 5.19), `EACCES` without no_new_privs.
pub fn install_with_listener(filter: &[Instruction]) -> Result<RawFd, Errno> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV;
    install(filter, flags).map(|fd| fd as RawFd)
}

/// The same, where nothing keeps the caller from owning what it got.
///
/// # Errors
///
/// As [`install_with_listener`].
pub fn install_owning(filter: &[Instruction]) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel just made it for us.
    install_with_listener(filter).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Installs `filter`, which must not ask for notifications, on the calling thread.
///
/// # Errors
///
/// As seccomp(2) says.
pub fn install_plain(filter: &[Instruction]) -> Result<(), Errno> {
    install(filter, 0).map(|_| ())
}

/// Installs `filter`, made elsewhere and without a listener, on the calling thread.
///
/// # Errors
///
/// As seccomp(2); `EINVAL` for flags that ask for a listener.
pub fn install_profile(filter: &[Instruction], flags: u32) -> Result<(), Errno> {
    let flags = libc::c_ulong::from(flags);
    if flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
        return Err(Errno::INVAL);
    }
    install(filter, flags).map(|_| ())
}

fn install(filter: &[Instruction], flags: libc::c_ulong) -> Result<usize, Errno> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` points at `filter`, which outlives the call; the kernel only reads it.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })
}

/// Asks the kernel to switch to the target as it is answered. Older kernels lack it: slower, no less safe.
pub fn set_sync_wake_up(listener: BorrowedFd<'_>) {
    // SAFETY: this ioctl takes its argument by value.
    let _ = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Waits for the next notification.
///
/// # Errors
///
/// `ENOENT` when the target went away meanwhile, `EINTR` on a signal.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    // SAFETY: an all-zero `seccomp_notif` is valid, and the kernel demands zeros.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: `raw` is a writable `seccomp_notif`.
    check(i64::from(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV as libc::Ioctl,
            &raw mut raw,
        )
    }))?;
    Ok(Notification(raw))
}

/// Does an ioctl on the listener again when a signal cut it short: all of them wait for the filter's
/// lock, and one for the target, and none has done anything by then.
fn uninterrupted(mut call: impl FnMut() -> libc::c_int) -> Result<usize, Errno> {
    loop {
        match check(i64::from(call())) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whether the target still waits in notification `id`.
pub fn id_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as libc::Ioctl;
    // SAFETY: the kernel reads one u64.
    uninterrupted(|| unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const id) }).is_ok()
}

fn send(listener: BorrowedFd<'_>, mut response: libc::seccomp_notif_resp) -> Result<(), Errno> {
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND as libc::Ioctl;
    // SAFETY: `response` is a `seccomp_notif_resp`.
    uninterrupted(|| unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut response) })
        .map(|_| ())
}

/// Answers with the return value `value`.
///
/// # Errors
///
/// `ENOENT` when the target no longer waits.
pub fn answer_value(listener: BorrowedFd<'_>, id: u64, value: i64) -> Result<(), Errno> {
    send(listener, libc::seccomp_notif_resp { id, val: value, error: 0, flags: 0 })
}

/// Answers with the error `errno`, a positive number that may be kernel-internal (`ERESTARTSYS`).
///
/// # Errors
///
/// `ENOENT` when the target no longer waits.
pub fn answer_error(listener: BorrowedFd<'_>, id: u64, errno: i32) -> Result<(), Errno> {
    send(listener, libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 })
}

/// Lets the kernel run the system call as the target now has it in registers and memory.
///
/// # Errors
///
/// `ENOENT` when the target no longer waits.
pub fn answer_continue(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    send(listener, libc::seccomp_notif_resp { id, val: 0, error: 0, flags: FLAG_CONTINUE })
}

/// Puts a copy of `fd` into the target and returns its number there.
///
/// # Errors
///
/// `EMFILE` by the target's own limit, `ENOENT` when it no longer waits.
pub fn add_fd(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    cloexec: bool,
) -> Result<i64, Errno> {
    add(listener, id, fd, None, cloexec)
}

/// Puts a copy of `fd` into the target under `number`, in the place of what was there.
///
/// # Errors
///
/// `EBADF` for a number beyond the target's limit, `ENOENT` when it no longer waits.
pub fn put_fd(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    number: i32,
    cloexec: bool,
) -> Result<i64, Errno> {
    add(listener, id, fd, Some(number), cloexec)
}

fn add(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    number: Option<i32>,
    cloexec: bool,
) -> Result<i64, Errno> {
    let set = libc::SECCOMP_ADDFD_FLAG_SETFD as u32;
    let mut request = libc::seccomp_notif_addfd {
        id,
        flags: if number.is_some() { set } else { 0 },
        srcfd: fd.as_raw_fd() as u32,
        newfd: number.unwrap_or(0) as u32,
        newfd_flags: if cloexec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    let code = libc::SECCOMP_IOCTL_NOTIF_ADDFD as libc::Ioctl;
    // SAFETY: `request` is a `seccomp_notif_addfd`.
    uninterrupted(|| unsafe { libc::ioctl(listener.as_raw_fd(), code, &raw mut request) })
        .map(|fd| fd as i64)
}

/// Puts a filter that allows everything on this process, so that it can be told from its parent by
/// the number of its filters.
///
/// # Errors
///
/// As seccomp(2).
pub fn mark_self() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    let allow = libc::BPF_RET | libc::BPF_K;
    install_plain(&[Instruction { code: allow as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW }])
}
