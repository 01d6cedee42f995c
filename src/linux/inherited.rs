//! Standard streams that are files.

use crate::plan::{Grant, Writing};
use crate::policy::{Access, Decider};
use rustix::fs::{FileType, OFlags};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What such a stream allows: by path, and by device and inode.
pub type Inherited = (Grant, (u64, u64, Access));

/// Those of `streams` that are files: the target holds them open already, so it may open them again by
/// `/dev/stdout` and the like, unless a rule denies them. `reads` says whether reading is restricted.
pub fn files(reads: bool, decider: &Decider, streams: &[BorrowedFd<'_>]) -> Vec<Inherited> {
    let mut found = Vec::new();
    for fd in streams {
        let (Ok(stat), Ok(flags)) = (rustix::fs::fstat(fd), rustix::fs::fcntl_getfl(fd)) else {
            continue;
        };
        // Pipes and sockets need no right; a directory would give away what is below it.
        let kind = FileType::from_raw_mode(stat.st_mode);
        if matches!(kind, FileType::Fifo | FileType::Socket | FileType::Directory) {
            continue;
        }
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let Ok(path) = rustix::fs::readlink(link, Vec::new()) else {
            continue;
        };
        let Ok(path) = path.into_string() else {
            continue;
        };
        let mode = flags & OFlags::RWMODE;
        for access in [Access::Read, Access::Write] {
            let wanted = match access {
                Access::Read => reads && mode != OFlags::WRONLY,
                Access::Write => mode == OFlags::WRONLY || mode == OFlags::RDWR,
            };
            let verdict = decider.decide(access, path.as_bytes());
            let denied_by_name = !verdict.is_allowed() && verdict.rule().is_some();
            if wanted && !denied_by_name {
                let write = match access {
                    Access::Read => Writing::Nothing,
                    Access::Write => Writing::Content,
                };
                let read = access == Access::Read;
                let grant = Grant { path: path.clone(), read, write };
                found.push((grant, (stat.st_dev, stat.st_ino, access)));
            }
        }
    }
    found
}
