//! What a container sees of files: mounts, devices, masked and read-only paths, its root.
//!
//! Mounts are made unattached, given their attributes, and attached to a place that was opened in the
//! container's root before: no path is looked up twice, and none leads out. What the host has is cloned
//! before the container's namespaces exist, with the host's rights and in the host's peer groups.

mod cgroups;
mod copy;
mod devices;
mod hide;
mod ids;
mod mounts;
mod options;
mod place;
mod sysctl;
mod target;
mod tree;

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, major, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags as Propagation, MoveMountFlags, UnmountFlags, move_mount, unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root, umask};

use super::{Context, Error, Result, cgroup};
pub use options::NAMES as MOUNT_OPTIONS;
use target::{Make, Root, make_at, open_at};

/// What the mounts depend on besides the document.
pub struct Surroundings<'a> {
    /// The document.
    pub spec: &'a Spec,
    /// The bundle's directory, absolute: relative mount sources start here.
    pub bundle: &'a Path,
    /// The root file system's directory, absolute and without links.
    pub rootfs: &'a Path,
    /// The container has a user namespace that is not ours: no mknod(2), flags of mounts are locked.
    pub user_namespace: bool,
    /// What mounts of type `cgroup` show.
    pub cgroup: &'a cgroup::View,
    /// `--no-pivot`: moves the root over `/` and changes into it, for hosts whose root is a ramfs.
    pub no_pivot: bool,
}

/// What only the host can open: sources of bind mounts and user namespaces of idmapped mounts.
pub struct Prepared {
    /// A clone of the root; none where only the container's own user namespace has the right to make one.
    root: Option<OwnedFd>,
    mounts: Vec<mounts::Entry>,
    /// None where the caller brings a `/dev` of its own.
    devices: Option<Vec<devices::Device>>,
    /// `linux.rootfsPropagation`, and whether of all mounts.
    propagation: Option<(Propagation, bool)>,
    /// The propagation of what says nothing about it.
    otherwise: Propagation,
}

/// The container's root with everything mounted, not entered yet.
pub struct Built {
    root: OwnedFd,
    late: Vec<mounts::Late>,
    propagation: Option<(Propagation, bool)>,
}

/// The namespace of this kind that the container gets of its own: the path to join, or none for a new
/// one.
fn namespace(spec: &Spec, kind: LinuxNamespaceType) -> Option<Option<&Path>> {
    let namespaces = spec.linux().as_ref()?.namespaces().as_ref()?;
    let namespace = namespaces.iter().find(|namespace| namespace.typ() == kind)?;
    Some(namespace.path().as_deref().filter(|path| !path.as_os_str().is_empty()))
}

/// Opens, in the host's namespaces and with the host's rights, what the container's root could not.
///
/// # Errors
///
/// A source that does not exist, an option that is unknown or that this kernel lacks.
pub fn prepare(around: &Surroundings<'_>) -> Result<Prepared> {
    let linux = around.spec.linux().as_ref();
    sysctl::check(around.spec)?;
    hide::check(around.spec)?;
    if mounts::label(around.spec).is_some() && !Path::new("/sys/fs/selinux/enforce").exists() {
        return Err(Error::new("linux.mountLabel: this host has no SELinux"));
    }
    let propagation = match linux.and_then(|linux| linux.rootfs_propagation().as_deref()) {
        None | Some("") => None,
        Some(name) => {
            let whole = name.strip_prefix('r').and_then(options::propagation).map(|p| (p, true));
            let known = whole.or(options::propagation(name).map(|p| (p, false)));
            let unknown = || Error::new(format!("linux.rootfsPropagation: unknown value {name:?}"));
            Some(known.ok_or_else(unknown)?)
        }
    };
    // Mounts of the host appear in the container, and none the other way, unless one of its mounts says so.
    let otherwise = match propagation {
        Some((Propagation::PRIVATE, _)) => Propagation::PRIVATE,
        _ => Propagation::DOWNSTREAM,
    };
    let about_root = || format!("root {:?}", around.rootfs);
    let root = match tree::clone(around.rootfs, true) {
        Err(Errno::PERM) => None,
        root => Some(root.context(about_root())?),
    };
    if let Some(root) = &root {
        tree::propagate(Some(root.as_fd()), otherwise, true).context(about_root())?;
    }
    let mounts = mounts::prepare(around, otherwise)?;
    let devices = mounts::own_dev(&mounts)
        .then(|| devices::prepare(around.spec, around.user_namespace))
        .transpose()?;
    Ok(Prepared { root, mounts, devices, propagation, otherwise })
}

impl Prepared {
    /// Mounts everything, in the container's new mount namespace and before its root is entered: the
    /// root itself, `mounts` in order, devices and the links of `/dev`. Every target is resolved below
    /// the root, and attached by descriptor. Sets the file mode mask to zero, until [`Built::finish`].
    ///
    /// # Errors
    ///
    /// The mount that failed, with its destination and the cause.
    pub fn build(self, around: &Surroundings<'_>) -> Result<Built> {
        umask(Mode::empty());
        tree::propagate(None, Propagation::DOWNSTREAM, true)
            .context("make the host's mounts slaves")?;
        let about_root = || format!("root {:?}", around.rootfs);
        let root = match self.root {
            Some(root) => root,
            None => {
                let root = tree::clone(around.rootfs, true).context(about_root())?;
                tree::propagate(Some(root.as_fd()), self.otherwise, true).context(about_root())?;
                root
            }
        };
        let attach = |place: &Path| {
            move_mount(&root, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        };
        match attach(around.rootfs) {
            // Below a directory that the container's user may not pass. It need not be there.
            Err(Errno::ACCESS) => attach(Path::new("/")),
            attached => attached,
        }
        .context(about_root())?;
        let (root, late) = mounts::build(self.mounts, around, root, self.otherwise)?;
        let at = Root(root.as_fd());
        if let Some(devices) = &self.devices {
            let dev =
                at.find_or_make(Path::new("dev"), Make::Directory).context("the root's /dev")?;
            if dev.linked {
                return Err(Error::new("the root's /dev is a symbolic link"));
            }
            devices::build(at, dev.fd.as_fd(), devices)?;
        }
        Ok(Built { root, late, propagation: self.propagation })
    }
}

impl Built {
    /// Enters the root: pivot_root(2), or what `no_pivot` says, and the root's propagation. Host paths
    /// are gone after this.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn enter(&self, around: &Surroundings<'_>) -> Result<()> {
        fchdir(&self.root).context("enter the root")?;
        if around.no_pivot {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&self.root, "", CWD, "/", flags).context("move the root")?;
            chroot(".").context("chroot into the root")?;
        } else {
            // The old root comes to lie over the new one, so that there need be no directory for it.
            pivot_root(".", ".").context("pivot_root into the root")?;
            unmount(".", UnmountFlags::DETACH).context("unmount the host's root")?;
        }
        chdir("/").context("enter the root")?;
        match self.propagation {
            Some((kind @ (Propagation::SHARED | Propagation::UNBINDABLE), recursive)) => {
                tree::propagate(Some(self.root.as_fd()), kind, recursive)
                    .context("linux.rootfsPropagation")
            }
            _ => Ok(()),
        }
    }

    /// The last steps in the new root: sysctls, read-only and masked paths, the read-only root. The file
    /// mode mask is 022 after it.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn finish(&self, around: &Surroundings<'_>) -> Result<()> {
        sysctl::write(around.spec)?;
        self.late.iter().try_for_each(mounts::Late::finish)?;
        if around.spec.root().as_ref().and_then(oci_spec::runtime::Root::readonly) == Some(true) {
            tree::read_only(self.root.as_fd()).context("make the root read-only")?;
        }
        let root = Root(self.root.as_fd());
        if let Some(linux) = around.spec.linux() {
            hide::read_only(root, linux.readonly_paths().as_deref().unwrap_or_default())?;
            hide::mask(root, linux.masked_paths().as_deref().unwrap_or_default())?;
        }
        umask(Mode::from_raw_mode(0o022));
        Ok(())
    }
}

/// Puts the terminal's slave, an open devpts inode, at `/dev/console` of the root that was entered. That is
/// done before [`Built::finish`], which may make `/dev` read-only.
///
/// # Errors
///
/// Where it is no terminal, or `/dev/console` cannot be made.
pub fn console(slave: BorrowedFd<'_>) -> Result<()> {
    /// `DEVPTS_SUPER_MAGIC`, linux/magic.h.
    const DEVPTS: u64 = 0x1cd1;
    /// Major numbers of the slaves of pseudoterminals, Documentation/admin-guide/devices.txt.
    const SLAVES: std::ops::RangeInclusive<u32> = 136..=143;
    let about = "/dev/console";
    let stat = fstat(slave).context(about)?;
    let terminal = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && SLAVES.contains(&major(stat.st_rdev));
    if !terminal || fstatfs(slave).context(about)?.f_type.cast_unsigned() != DEVPTS {
        return Err(Error::new("/dev/console: this is no terminal of a devpts"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, "/", flags, Mode::empty()).context(about)?;
    let dev = Root(root.as_fd()).plain(Path::new("dev")).context(about)?;
    let name = OsStr::new("console");
    let place = match make_at(dev.as_fd(), name, Make::File) {
        Err(Errno::EXIST) => open_at(dev.as_fd(), name),
        made => made,
    }
    .context(about)?;
    if FileType::from_raw_mode(fstat(&place).context(about)?.st_mode) == FileType::Symlink {
        return Err(Error::new("/dev/console is a symbolic link"));
    }
    let tree = tree::clone_of(slave, false).context(about)?;
    tree::attach(tree.as_fd(), place.as_fd()).context(about)
}
