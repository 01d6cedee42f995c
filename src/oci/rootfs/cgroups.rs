//! Mounts of type `cgroup`: what the container sees at `/sys/fs/cgroup`.
//!
//! With version 2 that is one file system. With version 1 it is a tmpfs with a directory for each hierarchy,
//! and links for its other names. Where the container has a cgroup namespace, each is mounted anew, and
//! begins at the container's cgroup by itself; otherwise the container's cgroup is bound there.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::LinuxNamespaceType as Namespace;
use rustix::fs::{Mode, mkdirat, statfs, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags as Attr, MountPropagationFlags as Propagation};

use super::options::Options;
use super::target::{Target, open_at};
use super::tree::{self, Problem};
use super::{Surroundings, namespace};
use crate::oci::cgroup::Hierarchy;

/// Controllers of version 1. A hierarchy of another name has none, and is mounted by its name.
const CONTROLLERS: [&str; 15] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "debug",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// `CGROUP2_SUPER_MAGIC`, linux/magic.h.
const CGROUP2: u64 = 0x6367_7270;

/// Where every host has its cgroups.
const HOST: &str = "/sys/fs/cgroup";

/// Clones of the container's cgroups on the host, one a hierarchy; none where they will not be needed, or
/// cannot be had here.
///
/// # Errors
///
/// As open_tree(2).
pub fn prepare(around: &Surroundings<'_>) -> Result<Vec<Option<OwnedFd>>, Problem> {
    if has_namespace(around) && !around.user_namespace {
        return Ok(Vec::new());
    }
    let hierarchies = around.cgroup.hierarchies.iter();
    hierarchies
        .map(|hierarchy| match tree::clone(&hierarchy.cgroup, false) {
            Ok(tree) => {
                tree::propagate(Some(tree.as_fd()), Propagation::PRIVATE, true)?;
                Ok(Some(tree))
            }
            Err(Errno::PERM | Errno::NOENT) => Ok(None),
            Err(errno) => Err(Problem::new(errno, hierarchy.cgroup.to_string_lossy())),
        })
        .collect()
}

fn has_namespace(around: &Surroundings<'_>) -> bool {
    namespace(around.spec, Namespace::Cgroup).is_some()
}

/// Mounts them at `target`.
///
/// # Errors
///
/// The hierarchy that cannot be mounted.
pub fn build(
    around: &Surroundings<'_>,
    clones: &[Option<OwnedFd>],
    options: &Options,
    target: &Target,
) -> Result<(), Problem> {
    match &*around.cgroup.hierarchies {
        [] => unmanaged(options, target),
        [only] if only.name.is_empty() => {
            let tree = match unified(options) {
                Err(problem) if is_foreign(&problem) => {
                    // A user namespace whose cgroup namespace is another's.
                    let place = if has_namespace(around) { &only.cgroup } else { &only.mount };
                    let tree = tree::clone(place, false)
                        .map_err(|errno| Problem::new(errno, place.to_string_lossy()))?;
                    tree::settle(tree.as_fd(), options, Some(Propagation::PRIVATE))?;
                    tree
                }
                made => made?,
            };
            Ok(tree::attach(tree.as_fd(), target.fd.as_fd())?)
        }
        hierarchies => each(around, hierarchies, clones, options, target),
    }
}

fn unified(options: &Options) -> Result<OwnedFd, Problem> {
    let tree =
        tree::filesystem("cgroup2", Some(Path::new("cgroup2")), options, options.merged().set)?;
    tree::settle_new(tree.as_fd(), options)?;
    Ok(tree)
}

/// Where nobody manages cgroups: what version 2 shows to whoever asks, and with version 1 nothing.
fn unmanaged(options: &Options, target: &Target) -> Result<(), Problem> {
    let tree = if statfs(HOST).is_ok_and(|fs| fs.f_type.cast_unsigned() == CGROUP2) {
        match unified(options) {
            Err(problem) if is_foreign(&problem) => {
                let tree = tree::clone(Path::new(HOST), false)?;
                tree::settle(tree.as_fd(), options, Some(Propagation::PRIVATE))?;
                tree
            }
            made => made?,
        }
    } else {
        let tree = tmpfs()?;
        tree::read_only(tree.as_fd())?;
        tree
    };
    Ok(tree::attach(tree.as_fd(), target.fd.as_fd())?)
}

/// Flags of all that is mounted for version 1, as runc's.
fn flags() -> Attr {
    Attr::MOUNT_ATTR_NOSUID | Attr::MOUNT_ATTR_NODEV | Attr::MOUNT_ATTR_NOEXEC
}

fn tmpfs() -> Result<OwnedFd, Problem> {
    let options = Options::parse(&["mode=755".to_owned()]);
    tree::filesystem("tmpfs", Some(Path::new("tmpfs")), &options, flags())
}

fn each(
    around: &Surroundings<'_>,
    hierarchies: &[Hierarchy],
    clones: &[Option<OwnedFd>],
    options: &Options,
    target: &Target,
) -> Result<(), Problem> {
    let directory = tmpfs()?;
    let read_only = options.merged().read_only();
    tree::attach(directory.as_fd(), target.fd.as_fd())?;
    tree::settle_new(directory.as_fd(), options)?;
    for (number, hierarchy) in hierarchies.iter().enumerate() {
        let clone = clones.get(number).and_then(Option::as_ref);
        one(around, hierarchy, clone, read_only, &directory)
            .map_err(|problem| problem.of(&format!("cgroup {}", hierarchy.name)))?;
    }
    if read_only {
        tree::read_only(directory.as_fd())?;
    }
    Ok(())
}

/// One hierarchy, with its links, in the directory of them all.
fn one(
    around: &Surroundings<'_>,
    hierarchy: &Hierarchy,
    clone: Option<&OwnedFd>,
    read_only: bool,
    directory: &OwnedFd,
) -> Result<(), Problem> {
    let name = &*hierarchy.name;
    mkdirat(directory, name, Mode::from_raw_mode(0o755))?;
    let place = open_at(directory.as_fd(), OsStr::new(name))?;
    let attributes = if read_only { flags() | Attr::MOUNT_ATTR_RDONLY } else { flags() };
    match (has_namespace(around), clone) {
        (true, clone) => match (anew(hierarchy, attributes), clone) {
            (Err(problem), Some(clone)) if is_foreign(&problem) => bind(clone, attributes, &place)?,
            (made, _) => tree::attach(made?.as_fd(), place.as_fd())?,
        },
        (false, Some(clone)) => bind(clone, attributes, &place)?,
        (false, None) => bind(&tree::clone(&hierarchy.cgroup, false)?, attributes, &place)?,
    }
    for link in hierarchy.links.iter().filter(|link| *link != name) {
        symlinkat(name, directory, link)?;
    }
    Ok(())
}

/// Whether the cgroup namespace is not the user namespace's own.
fn is_foreign(problem: &Problem) -> bool {
    matches!(problem.errno, Some(Errno::PERM | Errno::BUSY))
}

fn bind(clone: &OwnedFd, attributes: Attr, place: &OwnedFd) -> Result<(), Errno> {
    tree::set(clone.as_fd(), attributes)?;
    tree::attach(clone.as_fd(), place.as_fd())
}

/// The hierarchy, as the cgroup namespace shows it.
fn anew(hierarchy: &Hierarchy, attributes: Attr) -> Result<OwnedFd, Problem> {
    let name = &*hierarchy.name;
    let kind = if hierarchy.unified { "cgroup2" } else { "cgroup" };
    let controllers = name.split(',').all(|n| CONTROLLERS.contains(&n));
    let options: Vec<String> = match (hierarchy.unified, controllers) {
        (true, _) => Vec::new(),
        (false, true) => name.split(',').map(str::to_owned).collect(),
        (false, false) => vec![format!("name={name}")],
    };
    let source = Some(Path::new(kind));
    tree::filesystem(kind, source, &Options::parse(&options), attributes)
}
