//! Device nodes and the links of `/dev`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, LinuxIdMapping, Spec};
use rustix::fs::{
    AtFlags, Dev, FileType, Gid, Mode, Uid, chmodat, chownat, fstat, makedev, mknodat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags as Attr;

use super::options::Options;
use super::target::{Make, Root, make_at, open_at};
use super::tree;
use crate::oci::path::clean;
use crate::oci::{Context, Error, Result};

/// The devices that every container has, config-linux.md "Default Devices"; all are memory's (1) or
/// the terminal's (5).
const DEFAULT: [(&str, u32, u32); 6] = [
    ("dev/null", 1, 3),
    ("dev/zero", 1, 5),
    ("dev/full", 1, 7),
    ("dev/random", 1, 8),
    ("dev/urandom", 1, 9),
    ("dev/tty", 5, 0),
];

/// The links that every container has, runtime-linux.md "Dev symbolic links".
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Flags of nodes that are mounted, as crun's.
const FLAGS: Attr = Attr::MOUNT_ATTR_NOSUID.union(Attr::MOUNT_ATTR_NOEXEC);

/// A node to be made.
pub struct Device {
    /// Where, below the root.
    path: PathBuf,
    kind: FileType,
    number: Dev,
    mode: Mode,
    owner: Option<(u32, u32)>,
    /// The node, to be mounted where the container may not make one.
    tree: Option<OwnedFd>,
}

/// The devices that the document asks for, and those that it need not ask for. Where `bind` says so, they
/// are to be mounted: made here, or the host's.
///
/// # Errors
///
/// A device that is none, or that the host has not.
pub fn prepare(spec: &Spec, bind: bool) -> Result<Vec<Device>> {
    let asked = spec.linux().as_ref().and_then(|linux| linux.devices().as_ref());
    let mut devices = Vec::new();
    for device in asked.into_iter().flatten() {
        devices.extend(read(device)?);
    }
    for (path, major, minor) in DEFAULT {
        if devices.iter().all(|device| device.path != Path::new(path)) {
            devices.push(Device {
                path: path.into(),
                kind: FileType::CharacterDevice,
                number: makedev(major, minor),
                mode: Mode::from_raw_mode(0o666),
                owner: None,
                tree: None,
            });
        }
    }
    if bind && !make(spec, &mut devices) {
        for device in &mut devices {
            match device.host() {
                Ok(tree) => device.tree = Some(tree),
                // Without the right to mount here, the container's root tries in its own namespaces.
                Err(problem) if problem.denied() => break,
                Err(problem) => return Err(Error::new(device.failed(&problem))),
            }
        }
    }
    Ok(devices)
}

/// Makes the nodes where a user namespace may not: in a file system of their own, from which each is bound
/// into the container. They have the mode and owner that were asked for, and what the container does to
/// them it does to no node of the host. Tells whether that was possible: without privileges it is not, and
/// only from Linux 6.15 on can a part of a mount be cloned that is attached nowhere.
fn make(spec: &Spec, devices: &mut [Device]) -> bool {
    let Ok(nodes) =
        tree::filesystem("tmpfs", Some(Path::new("tmpfs")), &Options::parse(&[]), FLAGS)
    else {
        return false;
    };
    let linux = spec.linux().as_ref();
    let uids = linux.and_then(|linux| linux.uid_mappings().as_deref()).unwrap_or_default();
    let gids = linux.and_then(|linux| linux.gid_mappings().as_deref()).unwrap_or_default();
    let one = |number: usize, device: &Device| {
        let name = number.to_string();
        mknodat(&nodes, &name, device.kind, device.mode, device.number)?;
        chmodat(&nodes, &name, device.mode, AtFlags::empty())?;
        let (uid, gid) = device.owner.unwrap_or((0, 0));
        if let (Some(uid), Some(gid)) = (outside(uids, uid), outside(gids, gid)) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            chownat(&nodes, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        tree::clone_at(nodes.as_fd(), &name)
    };
    for (number, device) in devices.iter_mut().enumerate() {
        match one(number, device) {
            Ok(tree) => device.tree = Some(tree),
            Err(_) => return false,
        }
    }
    true
}

/// The id outside that is `id` in the container.
fn outside(maps: &[LinuxIdMapping], id: u32) -> Option<u32> {
    let inside = |map: &&LinuxIdMapping| {
        id.checked_sub(map.container_id()).is_some_and(|offset| offset < map.size())
    };
    let map = maps.iter().find(inside)?;
    map.host_id().checked_add(id - map.container_id())
}

/// One of the document's; none for `/dev/ptmx`, which is a link.
fn read(device: &LinuxDevice) -> Result<Option<Device>> {
    let shown = device.path().display();
    let path = clean(device.path());
    if path == Path::new("dev/ptmx") {
        return Ok(None);
    }
    let kind = match device.typ() {
        LinuxDeviceType::B => FileType::BlockDevice,
        LinuxDeviceType::C | LinuxDeviceType::U => FileType::CharacterDevice,
        LinuxDeviceType::P => FileType::Fifo,
        LinuxDeviceType::A => {
            return Err(Error::new(format!("linux.devices: {shown}: type \"a\" is no device")));
        }
    };
    let part = |name: &str, number: i64| {
        u32::try_from(number).context(format!("linux.devices: {shown}: {name} {number}"))
    };
    let number = match kind {
        FileType::Fifo => 0,
        _ => makedev(part("major", device.major())?, part("minor", device.minor())?),
    };
    let owner = (device.uid().unwrap_or(0), device.gid().unwrap_or(0));
    Ok(Some(Device {
        path,
        kind,
        number,
        mode: Mode::from_raw_mode(device.file_mode().unwrap_or(0o666) & 0o7777),
        owner: (owner != (0, 0)).then_some(owner),
        tree: None,
    }))
}

/// Makes the devices and links. `dev` is where `/dev` is by now.
///
/// # Errors
///
/// The device or link that cannot be made.
pub fn build(root: Root<'_>, dev: BorrowedFd<'_>, devices: &[Device]) -> Result<()> {
    for device in devices {
        device.build(root, dev).map_err(|problem| Error::new(device.failed(&problem)))?;
    }
    for (name, target) in LINKS {
        match symlinkat(target, dev, name) {
            Err(Errno::EXIST) => {}
            made => made.context(format!("link /dev/{name}"))?,
        }
    }
    // What an image brings under this name may be anything; a directory stays, and is an error.
    let link = || symlinkat("pts/ptmx", dev, "ptmx");
    match link() {
        Err(Errno::EXIST) => unlinkat(dev, "ptmx", AtFlags::empty()).and_then(|()| link()),
        made => made,
    }
    .context("link /dev/ptmx")
}

impl Device {
    fn failed(&self, cause: &impl std::fmt::Display) -> String {
        format!("device /{}: {cause}", self.path.display())
    }

    fn build(&self, root: Root<'_>, dev: BorrowedFd<'_>) -> std::result::Result<(), tree::Problem> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?;
        if self.path.parent() == Some(Path::new("dev")) {
            return self.build_in(dev, name);
        }
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let parent = root.find_or_make(parent, Make::Directory)?;
        self.build_in(parent.fd.as_fd(), name)
    }

    fn build_in(
        &self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
    ) -> std::result::Result<(), tree::Problem> {
        if let Some(tree) = &self.tree {
            return bind(tree.as_fd(), directory, name);
        }
        match mknodat(directory, name, self.kind, self.mode, self.number) {
            Ok(()) => {}
            // What an image has under this name is good if it is that device.
            Err(Errno::EXIST) => return self.check(open_at(directory, name)?.as_fd()),
            // In a user namespace there are no new devices.
            Err(Errno::PERM) if self.kind != FileType::Fifo => {
                return bind(self.host()?.as_fd(), directory, name);
            }
            Err(errno) => return Err(errno.into()),
        }
        if let Some((uid, gid)) = self.owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn check(&self, fd: BorrowedFd<'_>) -> std::result::Result<(), tree::Problem> {
        let stat = fstat(fd)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == self.kind && (kind == FileType::Fifo || stat.st_rdev == self.number) {
            return Ok(());
        }
        Err(tree::Problem::refused("something else is there"))
    }

    /// The host's node of this name, if it is that device.
    fn host(&self) -> std::result::Result<OwnedFd, tree::Problem> {
        let path = Path::new("/").join(&self.path);
        let tree = tree::clone(&path, false)
            .map_err(|errno| tree::Problem::new(errno, "open the host's"))?;
        let stat = fstat(&tree)?;
        if FileType::from_raw_mode(stat.st_mode) != self.kind || stat.st_rdev != self.number {
            return Err(tree::Problem::refused("the host's is another device"));
        }
        tree::set(tree.as_fd(), FLAGS)?;
        Ok(tree)
    }
}

/// Mounts the host's node over an empty file.
fn bind(
    tree: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> std::result::Result<(), tree::Problem> {
    let target = match make_at(directory, name, Make::File) {
        Err(Errno::EXIST) => open_at(directory, name)?,
        made => made?,
    };
    tree::attach(tree, target.as_fd())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside() {
        let map = |json: &str| serde_json::from_str::<LinuxIdMapping>(json).expect("a mapping");
        let maps = [
            map(r#"{"containerID":0,"hostID":1000,"size":1}"#),
            map(r#"{"containerID":1,"hostID":100000,"size":10}"#),
            map(r#"{"containerID":20,"hostID":4294967295,"size":2}"#),
        ];
        let cases =
            [(0, Some(1000)), (1, Some(100_000)), (10, Some(100_009)), (11, None), (21, None)];
        for (inside, expected) in cases {
            assert_eq!(outside(&maps, inside), expected, "{inside}");
        }
        assert_eq!(outside(&[], 0), None);
    }
}
