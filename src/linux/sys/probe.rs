//! Trying things out in a process of their own: what it does to itself ends with it.

use super::last_errno;
use super::{Errno, seccomp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut, PipeReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A process that runs one closure of this program; killed and reaped when dropped.
pub struct Child {
    pid: i32,
    reader: PipeReader,
    reaped: bool,
}

/// What a child came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned these bytes.
    Said(Vec<u8>),
    /// It ended without a word; the wait status of waitpid(2).
    Died(i32),
    /// It was still busy when the time was up.
    Hung,
}

impl Child {
    /// Forks a child that runs `work` and says what it returns. Only to be called while this process
    /// has one thread: the child allocates.
    ///
    /// # Errors
    ///
    /// As pipe(2) and fork(2).
    pub fn start(work: impl FnOnce() -> Vec<u8>) -> Result<Child, Errno> {
        let (reader, mut writer) = std::io::pipe().map_err(|_| last_errno())?;
        let parent = rustix::process::getpid();
        // SAFETY: there is one thread, so the child finds every lock free.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(last_errno());
        }
        if pid == 0 {
            drop(reader);
            // SAFETY: by value. The child dies with us; a parent that died before is noticed.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if rustix::process::getppid() == Some(parent) {
                let _nobody_waits = writer.write_all(&work());
            }
            // SAFETY: ends this process without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        Ok(Child { pid, reader, reaped: false })
    }

    /// Its process id, which stays its own until it is reaped.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What it comes to within `seconds`.
    pub fn end(mut self, seconds: i64) -> End {
        let mut said = Vec::new();
        loop {
            let mut part = [0; 4096];
            if !readable(&self.reader, seconds) {
                return End::Hung;
            }
            match self.reader.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(length) => said.extend_from_slice(&part[..length]),
            }
        }
        let status = self.reap();
        if said.is_empty() { End::Died(status) } else { End::Said(said) }
    }

    fn reap(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is writable, and `pid` an unreaped child of ours.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        self.reaped = true;
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            super::signals::signal(self.pid, libc::SIGKILL);
            self.reap();
        }
    }
}

/// Whether `fd` has something to read, or has ended, within `seconds`.
pub fn readable(fd: &impl std::os::fd::AsFd, seconds: i64) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })) == Ok(1)
}

/// Installs `filter` on the calling process and sends its listener over `socket`.
///
/// # Errors
///
/// As [`seccomp::install_with_listener`] and sendmsg(2).
pub fn install_and_send(
    filter: &[seccomp::Instruction],
    socket: BorrowedFd<'_>,
) -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    let listener = seccomp::install_with_listener(filter)?;
    // SAFETY: the kernel just made `listener` for us, and nothing closes it while it is sent.
    let fds = [unsafe { BorrowedFd::borrow_raw(listener) }];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).map(|_| ())
}

/// The listener that [`install_and_send`] sent; `None` where the other end is gone instead.
///
/// # Errors
///
/// As recvmsg(2).
pub fn receive_listener(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Whether signal 0 from the caller reaches `pid`; it only asks for permission.
///
/// # Errors
///
/// `EPERM` where it does not.
pub fn may_signal(pid: i32) -> Result<(), Errno> {
    // SAFETY: by value; signal 0 is never delivered.
    super::check(i64::from(unsafe { libc::kill(pid, 0) })).map(|_| ())
}

/// Calls umask(2) and returns the mask before, as the kernel or a broker answers.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: by value.
    unsafe { libc::umask(mask) }
}

/// Copies descriptor `fd` of process `pid`, pidfd_getfd(2), and drops the copy.
///
/// # Errors
///
/// As pidfd_open(2) and pidfd_getfd(2); `EPERM` where a container forbids it.
pub fn copy_descriptor(pid: i32, fd: &impl AsRawFd) -> Result<(), Errno> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    pidfd_getfd(pidfd, fd.as_raw_fd(), PidfdGetfdFlags::empty()).map(drop)
}

/// Whether pidfd_open(2) and pidfd_getfd(2) are there to be used, asked without another process.
///
/// # Errors
///
/// `EPERM` or `ENOSYS` where they are not.
pub fn may_copy_descriptors() -> Result<(), Errno> {
    rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    // SAFETY: by value.
    match super::check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, -1, -1, 0) }) {
        Err(Errno::BADF) => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Moves the calling process into new namespaces; for a child that does nothing else.
///
/// # Errors
///
/// As unshare(2).
pub fn unshare(flags: rustix::thread::UnshareFlags) -> Result<(), Errno> {
    // SAFETY: no descriptor table is split, which `unshare_unsafe` warns of.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
