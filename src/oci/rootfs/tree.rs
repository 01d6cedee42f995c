//! Mounts that are not attached yet: clones of what the host has, and new file systems.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags as Attr, MountPropagationFlags as Propagation,
    MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen, move_mount, open_tree,
};

use super::options::{Attributes, Options};
use crate::oci::sys::mount::{Change, change};

/// Why something about a mount failed: what we or the file system have to say, and the system's word.
#[derive(Debug)]
pub struct Problem {
    said: String,
    /// None where it is we who refuse.
    pub errno: Option<Errno>,
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        Problem { said: String::new(), errno: Some(errno) }
    }
}

impl Problem {
    /// With words about what failed.
    pub fn new(errno: Errno, said: impl Into<String>) -> Problem {
        Problem { said: said.into(), errno: Some(errno) }
    }

    /// What we do not even try.
    pub fn refused(said: impl Into<String>) -> Problem {
        Problem { said: said.into(), errno: None }
    }

    /// The same, said of a part of what was to be done.
    pub fn of(self, part: &str) -> Problem {
        let between = if self.said.is_empty() { "" } else { ": " };
        Problem { said: format!("{part}{between}{}", self.said), ..self }
    }

    /// Whether a user namespace may not do this.
    pub fn denied(&self) -> bool {
        self.errno == Some(Errno::PERM)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)?;
        let Some(errno) = self.errno else { return Ok(()) };
        let between = if self.said.is_empty() { "" } else { ": " };
        write!(f, "{between}{errno}")?;
        match errno {
            Errno::NOSYS => f.write_str(" (Linux 5.12 is needed)"),
            _ => Ok(()),
        }
    }
}

/// A clone of what is mounted at `path`, open_tree(2).
///
/// # Errors
///
/// As open_tree(2): `EPERM` without the right to mount in this mount namespace.
pub fn clone(path: &Path, recursive: bool) -> Result<OwnedFd, Errno> {
    open_tree(CWD, path, clone_flags(recursive))
}

/// A clone of what stands at a name in a mount that may be attached nowhere.
///
/// # Errors
///
/// As open_tree(2): `EINVAL` before Linux 6.15.
pub fn clone_at(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    open_tree(directory, name, clone_flags(false) | OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
}

/// As [`clone`], of the link itself where `path` is one.
///
/// # Errors
///
/// As open_tree(2).
pub fn clone_link(path: &Path, recursive: bool) -> Result<OwnedFd, Errno> {
    open_tree(CWD, path, clone_flags(recursive) | OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
}

fn clone_flags(recursive: bool) -> OpenTreeFlags {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive { flags | OpenTreeFlags::AT_RECURSIVE } else { flags }
}

/// A clone of what `fd` has open, which has to be attached in this mount namespace.
///
/// # Errors
///
/// As open_tree(2): `EINVAL` for a mount of another mount namespace.
pub fn clone_of(fd: BorrowedFd<'_>, recursive: bool) -> Result<OwnedFd, Errno> {
    open_tree(fd, "", clone_flags(recursive) | OpenTreeFlags::AT_EMPTY_PATH)
}

/// Attaches `tree` over what `target` has open.
///
/// # Errors
///
/// As move_mount(2): `ENOTDIR` where one is a directory and the other is not.
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", target, "", flags)
}

/// Makes the mount read-only.
///
/// # Errors
///
/// As mount_setattr(2).
pub fn read_only(tree: BorrowedFd<'_>) -> Result<(), Errno> {
    set(tree, Attr::MOUNT_ATTR_RDONLY)
}

/// Sets attributes of the mount.
///
/// # Errors
///
/// As mount_setattr(2).
pub fn set(tree: BorrowedFd<'_>, attributes: Attr) -> Result<(), Errno> {
    change(Some(tree), Change { set: attributes, ..Change::default() })
}

/// Changes the propagation of the mount, or without one of the mount at `/`.
///
/// # Errors
///
/// As mount_setattr(2).
pub fn propagate(
    tree: Option<BorrowedFd<'_>>,
    kind: Propagation,
    recursive: bool,
) -> Result<(), Errno> {
    change(tree, Change { recursive, propagation: kind, ..Change::default() })
}

/// Gives a clone the attributes and propagation that `options` ask for, in as few calls as that takes.
/// `otherwise` is the propagation where they ask for none.
///
/// # Errors
///
/// As mount_setattr(2).
pub fn settle(
    tree: BorrowedFd<'_>,
    options: &Options,
    otherwise: Option<Propagation>,
) -> Result<(), Problem> {
    let mut changes = Vec::with_capacity(2);
    let attributes = |recursive, a: Attributes| Change {
        recursive,
        set: a.set,
        clear: a.clear,
        ..Change::default()
    };
    if options.recursive {
        changes.push(attributes(false, options.top));
        changes.push(attributes(true, options.all));
    } else {
        // There is one mount, and what is said of all is said of it.
        changes.push(attributes(false, options.merged()));
    }
    let mut propagation = options.propagation.clone();
    if propagation.is_empty() {
        propagation.extend(otherwise.map(|kind| (kind, true)));
    }
    for (kind, recursive) in propagation {
        let recursive = recursive && options.recursive;
        let free = |c: &&mut Change<'_>| c.recursive == recursive && c.propagation.is_empty();
        match changes.last_mut().filter(free) {
            Some(last) => last.propagation = kind,
            None => changes.push(Change { recursive, propagation: kind, ..Change::default() }),
        }
    }
    changes.iter().filter(|c| !is_empty(c)).try_for_each(|c| change_unless_locked(tree, *c))
}

/// Gives a new mount, which has its attributes already, the propagation that `options` ask for.
///
/// # Errors
///
/// As mount_setattr(2).
pub fn settle_new(tree: BorrowedFd<'_>, options: &Options) -> Result<(), Errno> {
    options.propagation.iter().try_for_each(|(kind, _)| {
        change(Some(tree), Change { propagation: *kind, ..Change::default() })
    })
}

fn is_empty(change: &Change<'_>) -> bool {
    change.set.is_empty() && change.clear.is_empty() && change.propagation.is_empty()
}

/// How access times are kept is locked on every mount that a user namespace inherits. There it stays
/// as it is, as with runc; another locked flag that is to be cleared is an error.
fn change_unless_locked(tree: BorrowedFd<'_>, wanted: Change<'_>) -> Result<(), Problem> {
    let times = Attr::MOUNT_ATTR__ATIME | Attr::MOUNT_ATTR_NODIRATIME;
    match change(Some(tree), wanted) {
        Err(Errno::PERM) if (wanted.set | wanted.clear).intersects(times) => {
            let rest = Change { set: wanted.set - times, clear: wanted.clear - times, ..wanted };
            if is_empty(&rest) { Ok(()) } else { change(Some(tree), rest) }
        }
        done => done,
    }
    .map_err(|errno| match errno {
        Errno::PERM => Problem::new(errno, "the mount's flags are locked on this host"),
        errno => errno.into(),
    })
}

/// A new mount of the file system `kind`, fsopen(2).
///
/// # Errors
///
/// What the kernel says, and the file system where it says more.
pub fn filesystem(
    kind: &str,
    source: Option<&Path>,
    options: &Options,
    attributes: Attr,
) -> Result<OwnedFd, Problem> {
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
        Errno::NODEV => Problem::new(errno, format!("this kernel has no file system {kind:?}")),
        errno => errno.into(),
    })?;
    configure(fs.as_fd(), source, options)
        .map_err(|errno| Problem::new(errno, said(fs.as_fd())))?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(Problem::from)
}

fn configure(fs: BorrowedFd<'_>, source: Option<&Path>, options: &Options) -> Result<(), Errno> {
    if let Some(source) = source.filter(|source| !source.as_os_str().is_empty()) {
        fsconfig_set_string(fs, "source", source)?;
    }
    parameters(fs, options)?;
    fsconfig_create(fs)
}

/// Hands the options that are the file system's to its context.
///
/// # Errors
///
/// As fsconfig(2).
pub fn parameters(fs: BorrowedFd<'_>, options: &Options) -> Result<(), Errno> {
    for flag in &options.superblock {
        fsconfig_set_flag(fs, flag)?;
    }
    for (key, value) in &options.data {
        match value {
            Some(value) => fsconfig_set_string(fs, key, value)?,
            None => fsconfig_set_flag(fs, key)?,
        }
    }
    Ok(())
}

/// What a file system context has to say of its last error: a letter, a space, the message.
pub fn said(fs: BorrowedFd<'_>) -> String {
    let mut bytes = [0; 256];
    let length = rustix::io::read(fs, &mut bytes).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..length]);
    text.trim_end().trim_start_matches("e ").to_owned()
}
