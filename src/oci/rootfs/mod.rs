//! What a container sees of files: mounts, devices, masked and read-only paths, its root.

use std::os::fd::BorrowedFd;
use std::path::Path;

use oci_spec::runtime::Spec;

use super::{Error, Result, cgroup};

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
    /// The runtime itself has no root in the initial user namespace.
    pub rootless: bool,
    /// What mounts of type `cgroup` show.
    pub cgroup: &'a cgroup::View,
    /// `--no-pivot`: moves the root over `/` and changes into it, for hosts whose root is a ramfs.
    pub no_pivot: bool,
}

/// What only the host can open: sources of bind mounts and user namespaces of idmapped mounts.
pub struct Prepared(());

/// The container's root with everything mounted, not entered yet.
pub struct Built(());

/// Opens, in the host's namespaces and with the host's rights, what the container's root could not.
///
/// # Errors
///
/// A source that does not exist, an option that is unknown or that this kernel lacks.
pub fn prepare(_around: &Surroundings<'_>) -> Result<Prepared> {
    Err(Error::new("mounts are not built yet"))
}

impl Prepared {
    /// Mounts everything, in the container's new mount namespace and before its root is entered: the
    /// root itself, `mounts` in order, devices and the links of `/dev`. Every target is resolved below
    /// the root, and attached by descriptor.
    ///
    /// # Errors
    ///
    /// The mount that failed, with its destination and the cause.
    pub fn build(self, _around: &Surroundings<'_>) -> Result<Built> {
        Err(Error::new("mounts are not built yet"))
    }
}

impl Built {
    /// Enters the root: pivot_root(2), or what `no_pivot` says, and the root's propagation. Host paths
    /// are gone after this.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn enter(&self, _around: &Surroundings<'_>) -> Result<()> {
        Err(Error::new("mounts are not built yet"))
    }

    /// The last steps in the new root: sysctls, read-only and masked paths, the read-only root.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn finish(&self, _around: &Surroundings<'_>) -> Result<()> {
        Err(Error::new("mounts are not built yet"))
    }
}

/// Puts the terminal's slave, an open devpts inode, at `/dev/console` of the root that was entered.
///
/// # Errors
///
/// Where it is no terminal, or `/dev/console` cannot be made.
pub fn console(_slave: BorrowedFd<'_>) -> Result<()> {
    Err(Error::new("mounts are not built yet"))
}
