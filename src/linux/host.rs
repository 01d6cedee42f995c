//! What this host is: its files as the policy engine asks for them, and what its kernel can do.

use super::sys;
use crate::lower::Identity;
use crate::plan::HostSupport;
use crate::policy::{FsView, Kind};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use std::io::IsTerminal;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// The host's own files.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostView;

impl FsView for HostView {
    fn kind(&self, path: &str) -> Kind {
        let Ok(stat) = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) else {
            return Kind::Absent;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Dir,
            FileType::RegularFile => {
                Kind::File { links: stat.st_nlink, executable: stat.st_mode & 0o111 != 0 }
            }
            FileType::Symlink => match rustix::fs::readlinkat(CWD, path, Vec::new()) {
                Ok(text) => text.into_string().map_or(Kind::SymlinkNotUtf8, Kind::Symlink),
                Err(_) => Kind::Absent,
            },
            _ => Kind::Other,
        }
    }

    fn list(&self, dir: &str, limit: usize) -> Option<Vec<String>> {
        let fd = open(dir, OFlags::DIRECTORY)?;
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(fd, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if names.len() == limit {
                return None;
            }
            // A name that is not UTF-8 is not granted to the kernel; the broker sees to it.
            names.extend(name.to_str().ok().map(str::to_owned));
        }
        Some(names)
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        let fd = open(path, OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut content = vec![0; limit + 1];
        let mut length = 0;
        while length < content.len() {
            match rustix::io::read(&fd, &mut content[length..]).ok()? {
                0 => break,
                got => length += got,
            }
        }
        content.truncate(length);
        (length <= limit).then_some(content)
    }
}

fn open(path: &str, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Who launches, as a specification says it.
///
/// # Errors
///
/// As getgroups(2) and capget(2), which fail for want of memory at most.
pub fn identity() -> Result<Identity, sys::Errno> {
    let (_, permitted) = sys::identity::capabilities()?;
    let kept = super::launch::kept(permitted);
    let all = caps::all();
    let capabilities = all.iter().filter(|capability| kept & capability.bitmask() != 0);
    let groups = rustix::process::getgroups()?;
    Ok(Identity {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(rustix::process::Gid::as_raw).collect(),
        capabilities: capabilities.map(ToString::to_string).collect(),
        terminal: std::io::stdin().is_terminal(),
    })
}

/// The block devices that this user may read: a disk holds every file, also those that may not be read.
pub fn readable_disks() -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![("/dev".to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let Some(fd) = open(&directory, OFlags::DIRECTORY) else { continue };
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(fd, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            let path = || format!("{directory}/{name}");
            match entry.file_type() {
                FileType::BlockDevice
                    if rustix::fs::access(path(), rustix::fs::Access::READ_OK).is_ok() =>
                {
                    found.push(path());
                }
                // Such as /dev/mapper; the links in /dev/disk lead to nodes found elsewhere.
                FileType::Directory if depth < 2 && name != "." && name != ".." => {
                    directories.push((path(), depth + 1));
                }
                _ => {}
            }
        }
    }
    found
}

/// Asks the kernel what a launch needs to know. Quick: a few system calls.
///
/// Inside another run of ours, Landlock answers as if it were switched off, unless the asking process
/// has a seccomp filter of its own, see the broker's `create_ruleset`. So a filter that allows
/// everything is put on, and the question asked again.
pub fn support() -> HostSupport {
    let mut nested = false;
    let mut abi = sys::landlock_abi();
    if abi == Err(sys::Errno::OPNOTSUPP) && sys::seccomp::mark_self().is_ok() {
        abi = sys::landlock_abi();
        nested = abi.is_ok();
    }
    HostSupport {
        landlock_abi: abi.unwrap_or(0),
        nested,
        copies_descriptors: sys::probe::may_copy_descriptors().is_ok(),
        ..HostSupport::default()
    }
}
