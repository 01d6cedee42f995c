//! Attributes of mounts, and the user namespaces that map their ids.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use rustix::process::Pid;

/// What to change of a mount, or of a mount and all below it.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// With every mount below.
    pub recursive: bool,
    /// Attributes to set.
    pub set: MountAttrFlags,
    /// Attributes to clear first.
    pub clear: MountAttrFlags,
    /// The new propagation, one kind or none.
    pub propagation: MountPropagationFlags,
    /// Whose mappings the mount's ids go through; only for what is not attached yet.
    pub ids: Option<BorrowedFd<'a>>,
}

impl Default for Change<'_> {
    fn default() -> Self {
        Change {
            recursive: false,
            set: MountAttrFlags::empty(),
            clear: MountAttrFlags::empty(),
            propagation: MountPropagationFlags::empty(),
            ids: None,
        }
    }
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Changes the mount that `fd` is the root of, or without one the mount at `/`, mount_setattr(2).
///
/// # Errors
///
/// As mount_setattr(2): `EPERM` where a flag is locked, `EINVAL` where no mount begins there.
pub fn change(fd: Option<BorrowedFd<'_>>, change: Change<'_>) -> Result<(), Errno> {
    let mut attributes = Attributes {
        set: u64::from(change.set.bits()),
        clear: u64::from(change.clear.bits()),
        propagation: u64::from(change.propagation.bits()),
        userns: 0,
    };
    if let Some(ids) = change.ids {
        attributes.set |= u64::from(MountAttrFlags::MOUNT_ATTR_IDMAP.bits());
        attributes.userns = u64::from(ids.as_raw_fd().cast_unsigned());
    }
    let path: &CStr = if fd.is_some() { c"" } else { c"/" };
    let mut flags = if fd.is_some() { libc::AT_EMPTY_PATH } else { 0 };
    if change.recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `path` and `attributes` outlive the call, which only reads them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd()),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Forks a process in a user namespace of its own, without mappings. It does nothing, and dies with its
/// parent.
///
/// # Errors
///
/// As clone(2).
pub fn user_namespace() -> Result<Pid, Errno> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: like fork(2): without a stack of its own the child goes on with a copy of ours.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        // SAFETY: system calls that take no pointers, and touch nothing that another thread may hold.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        Some(pid) if pid.as_raw_nonzero().get() > 0 => Ok(pid),
        _ => Err(last_errno()),
    }
}

/// What the calling thread's last call through the C library failed with.
fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
