//! `mounts` of the document, in order.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxIdMapping, LinuxNamespaceType as Namespace, Mount, Spec};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mount::{
    FsPickFlags, MountAttrFlags as Attr, MountFlags, MountPropagationFlags as Propagation,
    fsconfig_reconfigure, fspick,
};

use super::options::Options;
use super::target::{Root, Target};
use super::tree::{self, Problem};
use super::{Surroundings, cgroups, copy, ids, namespace};
use crate::oci::path::clean;
use crate::oci::sys::mount::Change;
use crate::oci::{Error, Result};

/// fsconfig(2) takes no longer strings.
const LONGEST: usize = 255;

/// What there is to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bind,
    Remount,
    Proc,
    Sysfs,
    Tmpfs,
    Cgroup,
    /// A link to be made, in place of a bind mount.
    Link,
    Other,
}

/// One mount, with what only the host could open.
pub struct Entry {
    /// Where, below the root.
    pub path: PathBuf,
    /// What.
    pub kind: Kind,
    /// How.
    pub options: Options,
    /// The clone of a bind mount's source.
    pub source: Option<OwnedFd>,
    /// The text of a link to be made.
    pub link: PathBuf,
    /// The clones of the container's cgroups.
    cgroups: Vec<Option<OwnedFd>>,
}

/// A mount that becomes read-only when everything in it is made.
pub struct Late {
    path: PathBuf,
    tree: OwnedFd,
}

impl Late {
    /// Makes it read-only.
    ///
    /// # Errors
    ///
    /// As mount_setattr(2).
    pub fn finish(&self) -> Result<()> {
        tree::read_only(self.tree.as_fd()).map_err(|errno| {
            Error::new(format!("mount {:?}: read-only: {errno}", shown(&self.path)))
        })
    }
}

/// `linux.mountLabel`, the SELinux context of new file systems.
pub fn label(spec: &Spec) -> Option<&str> {
    let label = spec.linux().as_ref()?.mount_label().as_deref()?;
    (!label.is_empty()).then_some(label)
}

/// The path as the container sees it.
fn shown(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

/// Whether `/dev` is ours to fill: it is not when the caller binds one.
pub fn own_dev(entries: &[Entry]) -> bool {
    !entries.iter().any(|entry| entry.kind == Kind::Bind && entry.path == Path::new("dev"))
}

/// Reads every mount, and opens the sources that are the host's.
///
/// # Errors
///
/// An option that is unknown, a source that does not exist.
pub fn prepare(around: &Surroundings<'_>, otherwise: Propagation) -> Result<Vec<Entry>> {
    let mounts = around.spec.mounts().as_deref().unwrap_or_default();
    let one = |mount| {
        prepare_one(around, mount, otherwise).map_err(|problem| failed(around, mount, &problem))
    };
    mounts.iter().map(one).collect()
}

fn prepare_one(
    around: &Surroundings<'_>,
    mount: &Mount,
    otherwise: Propagation,
) -> std::result::Result<Entry, Problem> {
    let options = Options::parse(mount.options().as_deref().unwrap_or_default());
    let typ = mount.typ().as_deref().unwrap_or_default();
    let kind = match typ {
        _ if options.remount => Kind::Remount,
        _ if options.bind => Kind::Bind,
        "bind" | "rbind" => Kind::Bind,
        "proc" => Kind::Proc,
        "sysfs" => Kind::Sysfs,
        "tmpfs" => Kind::Tmpfs,
        "cgroup" => Kind::Cgroup,
        "" => return Err(Problem::refused("it has no type")),
        _ => Kind::Other,
    };
    let path = clean(mount.destination());
    let mut entry =
        Entry { path, kind, options, source: None, link: PathBuf::new(), cgroups: Vec::new() };
    let options = &mut entry.options;
    options.recursive |= typ == "rbind" && !options.bind;
    if options.copy_up && (kind != Kind::Tmpfs || entry.path.as_os_str().is_empty()) {
        return Err(Problem::refused("tmpcopyup is for a tmpfs below the root"));
    }
    let mapped = mount.uid_mappings().is_some() || mount.gid_mappings().is_some();
    if (mapped || options.ids.is_some()) && kind != Kind::Bind {
        return Err(Problem::refused("ids are mapped in bind mounts alone"));
    }
    match kind {
        Kind::Bind => {
            if let Some((key, _)) = options.data.first() {
                let said = format!("a bind mount has no option {key:?}");
                return Err(Problem::refused(said));
            }
            if options.links.copy
                && let Some(source) = mount.source()
                && let Ok(text) = std::fs::read_link(around.bundle.join(source))
            {
                entry.kind = Kind::Link;
                entry.link = text;
                return Ok(entry);
            }
            match source(around, mount, options, otherwise) {
                // Without the right to mount here, the container's root tries in its own namespaces.
                Err(problem) if problem.denied() && !mapped => {}
                tree => entry.source = Some(tree?),
            }
        }
        Kind::Cgroup => entry.cgroups = cgroups::prepare(around)?,
        _ => {}
    }
    Ok(entry)
}

/// Clones what a bind mount shows.
fn source(
    around: &Surroundings<'_>,
    mount: &Mount,
    options: &Options,
    otherwise: Propagation,
) -> std::result::Result<OwnedFd, Problem> {
    let none = || Problem::refused("a bind mount needs a source");
    let source = mount.source().as_deref().ok_or_else(none)?;
    let clone = if options.links.source { tree::clone_link } else { tree::clone };
    let tree = clone(&around.bundle.join(source), options.recursive)?;
    if let Some([uids, gids]) = mappings(around, mount, options)? {
        let userns =
            ids::namespace(&uids, &gids).map_err(|error| Problem::refused(error.to_string()))?;
        let recursive = options.ids == Some(true);
        let ids = Change { recursive, ids: Some(userns.as_fd()), ..Change::default() };
        crate::oci::sys::mount::change(Some(tree.as_fd()), ids).map_err(|errno| match errno {
            Errno::INVAL => Problem::new(errno, "this file system maps no ids"),
            errno => Problem::new(errno, "map ids"),
        })?;
    }
    tree::settle(tree.as_fd(), options, Some(otherwise))?;
    Ok(tree)
}

/// The mappings of users and groups: the mount's own, or where it only says `idmap`, the container's.
fn mappings(
    around: &Surroundings<'_>,
    mount: &Mount,
    options: &Options,
) -> std::result::Result<Option<[Vec<LinuxIdMapping>; 2]>, Problem> {
    let linux = around.spec.linux().as_ref();
    let container = [
        linux.and_then(|linux| linux.uid_mappings().clone()).unwrap_or_default(),
        linux.and_then(|linux| linux.gid_mappings().clone()).unwrap_or_default(),
    ];
    let given = match (mount.uid_mappings(), mount.gid_mappings(), &options.maps) {
        (Some(uids), Some(gids), None) => [uids.clone(), gids.clone()],
        (None, None, Some(text)) => ids::parse(text, [&container[0], &container[1]])
            .map_err(|error| Problem::refused(error.to_string()))?,
        (None, None, None) if options.ids.is_none() => return Ok(None),
        (None, None, None) => container,
        _ => Default::default(),
    };
    if given.iter().any(Vec::is_empty) {
        return Err(Problem::refused("uidMappings and gidMappings are needed, both"));
    }
    Ok(Some(given))
}

/// Mounts everything, and returns the root and what becomes read-only in the end. What is mounted over
/// the root is the root from then on.
///
/// # Errors
///
/// The mount that failed, with its destination and the cause.
pub fn build(
    entries: Vec<Entry>,
    around: &Surroundings<'_>,
    mut root: OwnedFd,
    otherwise: Propagation,
) -> Result<(OwnedFd, Vec<Late>)> {
    let mounts = around.spec.mounts().as_deref().unwrap_or_default();
    let mut late = Vec::new();
    for (entry, mount) in entries.into_iter().zip(mounts) {
        let (path, is_late) = (entry.path.clone(), entry.is_late());
        let tree = entry
            .build(around, mount, Root(root.as_fd()), otherwise)
            .map_err(|problem| failed(around, mount, &problem))?;
        match tree {
            Some(tree) if path.as_os_str().is_empty() => root = tree,
            Some(tree) if is_late => late.push(Late { path, tree }),
            _ => {}
        }
    }
    Ok((root, late))
}

fn failed(around: &Surroundings<'_>, mount: &Mount, problem: &Problem) -> Error {
    let mut text = format!("mount {:?}", mount.destination());
    match (mount.source(), mount.typ()) {
        (Some(source), _)
            if Options::parse(mount.options().as_deref().unwrap_or_default()).bind =>
        {
            text += &format!(" from {:?}", around.bundle.join(source));
        }
        (_, Some(kind)) => text += &format!(" of type {kind:?}"),
        _ => {}
    }
    Error::new(format!("{text}: {problem}"))
}

impl Entry {
    /// Mounts it, and returns the mount where there is one new one.
    fn build(
        mut self,
        around: &Surroundings<'_>,
        mount: &Mount,
        root: Root<'_>,
        otherwise: Propagation,
    ) -> std::result::Result<Option<OwnedFd>, Problem> {
        if self.kind == Kind::Bind && self.source.is_none() {
            self.source = Some(source(around, mount, &self.options, otherwise)?);
        }
        if self.kind == Kind::Link {
            return self.link(root).map(|()| None);
        }
        let target = self.target(root)?;
        self.allowed_over(&target)?;
        let tree = match (self.kind, self.source.take()) {
            (Kind::Remount, _) => return self.remount(&target).map(|()| None),
            (Kind::Cgroup, _) => {
                cgroups::build(around, &self.cgroups, &self.options, &target)?;
                return Ok(None);
            }
            (Kind::Bind, Some(source)) => source,
            _ => match self.fresh(around, mount, &target)? {
                Some(tree) => tree,
                None => {
                    let there = root.find(&self.path)?;
                    tree::settle_new(there.fd.as_fd(), &self.options)?;
                    return Ok(None);
                }
            },
        };
        tree::attach(tree.as_fd(), target.fd.as_fd())?;
        Ok(Some(tree))
    }

    /// It is written to once more before it becomes read-only: directories for other mounts, devices.
    fn is_late(&self) -> bool {
        let written =
            self.kind == Kind::Tmpfs || self.kind != Kind::Bind && self.path == Path::new("dev");
        written && self.options.merged().read_only()
    }

    /// Changes what is mounted at the target: with `bind` only this mount, otherwise the file system.
    fn remount(&self, target: &Target) -> std::result::Result<(), Problem> {
        if !self.options.bind {
            let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
            let fs = fspick(&target.fd, "", flags)?;
            tree::parameters(fs.as_fd(), &self.options)
                .and_then(|()| fsconfig_reconfigure(&fs))
                .map_err(|errno| Problem::new(errno, tree::said(fs.as_fd())))?;
        }
        tree::settle(target.fd.as_fd(), &self.options, None)
    }

    /// A new file system, not attached. `None` where it could only be mounted in one step, and is.
    fn fresh(
        &mut self,
        around: &Surroundings<'_>,
        mount: &Mount,
        target: &Target,
    ) -> std::result::Result<Option<OwnedFd>, Problem> {
        let typ = mount.typ().as_deref().unwrap_or_default();
        let source = mount.source().as_deref();
        let mut attributes = self.options.merged().set;
        if self.is_late() {
            attributes -= Attr::MOUNT_ATTR_RDONLY;
        }
        if self.kind == Kind::Tmpfs && !target.made && !self.options.has("mode") {
            let mode = fstat(&target.fd)?.st_mode & 0o7777;
            self.options.data.push(("mode".to_owned(), Some(format!("{mode:o}"))));
        }
        // Those that show the kernel have labels of their own.
        if let (Kind::Tmpfs | Kind::Other, Some(label)) = (self.kind, label(around.spec)) {
            self.options.data.push(("context".to_owned(), Some(label.to_owned())));
        }
        if self.options.data.iter().any(|(_, v)| v.as_ref().is_some_and(|v| v.len() > LONGEST)) {
            self.in_one_step(typ, source, target)?;
            return Ok(None);
        }
        // A disk is told, so that it replays no journal.
        if self.kind == Kind::Other
            && attributes.contains(Attr::MOUNT_ATTR_RDONLY)
            && source.is_some_and(Path::is_absolute)
        {
            self.options.superblock.push("ro".to_owned());
        }
        let tree = match tree::filesystem(typ, source, &self.options, attributes) {
            Err(problem) if problem.denied() => self.hosts(around, problem)?,
            made => {
                let tree = made?;
                tree::settle_new(tree.as_fd(), &self.options)?;
                tree
            }
        };
        if self.options.copy_up && !target.made {
            copy::up(target.fd.as_fd(), tree.as_fd())
                .map_err(|errno| Problem::new(errno, "tmpcopyup"))?;
        }
        Ok(Some(tree))
    }

    /// What stands in for a file system that a user namespace may not mount, because the namespace that it
    /// shows is not the user namespace's own: then the host's shows the same.
    fn hosts(
        &self,
        around: &Surroundings<'_>,
        problem: Problem,
    ) -> std::result::Result<OwnedFd, Problem> {
        let (namespace_of, path) = match self.kind {
            Kind::Proc => (Namespace::Pid, "/proc"),
            Kind::Sysfs => (Namespace::Network, "/sys"),
            _ => return Err(problem),
        };
        if !around.user_namespace || namespace(around.spec, namespace_of).is_some() {
            return Err(problem);
        }
        let tree = tree::clone(Path::new(path), true)?;
        // Everything below is the host's as well.
        let mut options = self.options.clone();
        options.recursive = true;
        options.all = options.merged();
        options.data.clear();
        tree::settle(tree.as_fd(), &options, Some(Propagation::DOWNSTREAM))?;
        Ok(tree)
    }

    /// mount(2), for data that fsconfig(2) finds too long: many layers of an overlay.
    fn in_one_step(
        &self,
        typ: &str,
        source: Option<&Path>,
        target: &Target,
    ) -> std::result::Result<(), Problem> {
        let attributes = self.options.merged().set;
        let mut flags = MountFlags::empty();
        for (attribute, flag) in [
            (Attr::MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
            (Attr::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
            (Attr::MOUNT_ATTR_NODEV, MountFlags::NODEV),
            (Attr::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
            (Attr::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
            (Attr::MOUNT_ATTR_STRICTATIME, MountFlags::STRICTATIME),
            (Attr::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
            (Attr::MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
        ] {
            if attributes.contains(attribute) {
                flags |= flag;
            }
        }
        let mut data = self.options.text();
        for option in &self.options.superblock {
            match &**option {
                "sync" => flags |= MountFlags::SYNCHRONOUS,
                "dirsync" => flags |= MountFlags::DIRSYNC,
                "lazytime" => flags |= MountFlags::LAZYTIME,
                "mand" => flags |= MountFlags::PERMIT_MANDATORY_FILE_LOCKING,
                // What the kernel does anyway.
                "async" | "nolazytime" | "nomand" => {}
                other => data += &format!(",{other}"),
            }
        }
        let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
        // The host's procfs, as no other is where we look before the root is entered.
        let place = format!("/proc/self/fd/{}", target.fd.as_raw_fd());
        let source = source.unwrap_or(Path::new(typ));
        rustix::mount::mount(source, place, typ, flags, &*data)?;
        Ok(())
    }
}
