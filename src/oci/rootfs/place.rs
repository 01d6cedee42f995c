//! Where a mount goes: its target, opened, and what may not be covered.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, PROC_SUPER_MAGIC, fstat, fstatfs, readlinkat, symlinkat};
use rustix::io::Errno;

use super::mounts::{Entry, Kind};
use super::sysctl::is_procfs;
use super::target::{Make, Root, Target, make_at, open_at};
use super::tree::Problem;

/// Files of procfs that may be covered: lxcfs shows the container's limits there. Everything else
/// below `/proc` is what security depends on (CVE-2019-16884, CVE-2019-19921).
const PROC: [&str; 10] = [
    "proc/cpuinfo",
    "proc/diskstats",
    "proc/meminfo",
    "proc/stat",
    "proc/swaps",
    "proc/uptime",
    "proc/loadavg",
    "proc/slabinfo",
    "proc/sys/kernel/ns_last_pid",
    "proc/sys/crypto/fips_enabled",
];

impl Entry {
    /// The place, opened; made if it is missing. What the kernel itself shows is mounted on ordinary
    /// directories alone: through a link it would be elsewhere than everybody believes.
    pub fn target(&self, root: Root<'_>) -> std::result::Result<Target, Problem> {
        let make = match &self.source {
            Some(tree) if FileType::from_raw_mode(fstat(tree)?.st_mode) != FileType::Directory => {
                Make::File
            }
            _ => Make::Directory,
        };
        let target = match self.kind {
            Kind::Remount => root.find(&self.path)?,
            _ if self.options.links.target => self.last(root, make)?,
            _ => root.find_or_make(&self.path, make)?,
        };
        let strict = matches!(self.kind, Kind::Proc | Kind::Sysfs | Kind::Cgroup)
            || ["proc", "sys", "dev"].iter().any(|name| self.path == Path::new(name));
        if strict && target.linked {
            let said = "must be mounted on ordinary directory, and this is a symbolic link";
            return Err(Problem::refused(said));
        }
        Ok(target)
    }

    /// The place, its last name taken as it is.
    fn last(&self, root: Root<'_>, make: Make) -> std::result::Result<Target, Problem> {
        let (parent, name) = self.parent(root)?;
        let (fd, made) = match open_at(parent.fd.as_fd(), name) {
            Err(Errno::NOENT) => (make_at(parent.fd.as_fd(), name, make)?, true),
            found => (found?, false),
        };
        Ok(Target { fd, linked: parent.linked, made })
    }

    fn parent(&self, root: Root<'_>) -> std::result::Result<(Target, &OsStr), Problem> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(Problem::refused("this is the root itself"));
        };
        Ok((root.find_or_make(parent, Make::Directory)?, name))
    }

    /// Makes the link. One that is there is left if it is the same.
    pub fn link(&self, root: Root<'_>) -> std::result::Result<(), Problem> {
        let (parent, name) = self.parent(root)?;
        let same = |fd: OwnedFd| {
            readlinkat(fd, "", [])
                .is_ok_and(|text| text.as_bytes() == self.link.as_os_str().as_bytes())
        };
        self.allowed_over(&parent)?;
        match symlinkat(&self.link, &parent.fd, name) {
            Err(Errno::EXIST) if same(open_at(parent.fd.as_fd(), name)?) => Ok(()),
            made => Ok(made?),
        }
    }

    /// Refuses to cover what security depends on.
    pub fn allowed_over(&self, target: &Target) -> std::result::Result<(), Problem> {
        let inside = || Err(Problem::refused("it is inside /proc"));
        if self.path == Path::new("proc") {
            let proc = match (self.kind, &self.source) {
                (Kind::Proc, _) => true,
                (Kind::Remount, _) => true,
                (Kind::Bind, Some(source)) => is_procfs(source)?,
                _ => false,
            };
            if !proc {
                let said = "only a file system of type proc is mounted there";
                return Err(Problem::refused(said));
            }
        } else if self.path.starts_with("proc") {
            if !PROC.iter().any(|allowed| self.path == Path::new(allowed)) {
                return inside();
            }
        } else if target.linked && fstatfs(&target.fd)?.f_type == PROC_SUPER_MAGIC {
            return inside();
        }
        Ok(())
    }
}
