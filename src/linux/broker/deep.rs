//! Directories whose path is longer than the kernel tells.
//!
//! The kernel writes a path into a page, and fails with `ENAMETOOLONG` where it does not fit. Such a
//! directory is named step by step instead: each one's name is looked for in the directory above, up to
//! the nearest one that the kernel names. A step that a move overtakes changes no verdict: no move that the
//! run can make carries anything across one.

use super::report::Refusal;
use super::resolve::{fd_name, file_type};
use super::task::Task;
use super::{Answer, Broker, Errno};
use crate::policy::Access;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most bytes of a path that are put together.
const LONGEST: usize = 1 << 16;
/// Most names in directories that are looked at for one path.
const MOST: usize = 1 << 18;

/// After how many steps the kernel is asked again. That leads past no root: a name has at most 255 bytes.
const STRIDE: usize = 8;

thread_local! {
    /// An object could not be named in the call at hand.
    static NAMELESS: Cell<bool> = const { Cell::new(false) };
}

impl Broker {
    /// The path of one of our descriptors.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG` where it is too long for the kernel to tell, and is not a directory's whose names
    /// can be looked up.
    pub(super) fn path_of(&self, fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        match self.told_path(fd) {
            Err(Errno::NAMETOOLONG) => self.found_path(fd).map_err(|_| {
                NAMELESS.set(true);
                Errno::NAMETOOLONG
            }),
            told => told,
        }
    }

    fn told_path(&self, fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        let buffer = Vec::with_capacity(256);
        Ok(rustix::fs::readlinkat(&self.own_fds, fd_name(fd), buffer)?.into_bytes())
    }

    fn found_path(&self, fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let up = |from: BorrowedFd<'_>| rustix::fs::openat(from, c"..", flags, Mode::empty());
        let mut entries = MOST;
        // Backwards, since the last name comes first.
        let mut names = Vec::new();
        let mut above = up(fd)?;
        add_name(&above, fd, &mut names, &mut entries)?;
        for step in 1.. {
            // To ask costs the kernel as much as several steps.
            if step % STRIDE == 0 {
                match self.told_path(above.as_fd()) {
                    Ok(mut path) => {
                        path.extend(names.iter().rev());
                        return Ok(path);
                    }
                    Err(Errno::NAMETOOLONG) => {}
                    Err(errno) => return Err(errno),
                }
            }
            let next = up(above.as_fd())?;
            add_name(&next, above.as_fd(), &mut names, &mut entries)?;
            above = next;
        }
        Err(Errno::NAMETOOLONG)
    }
}

/// Adds a slash and the name of the directory `child` in `parent` to `names`, backwards. `entries` is how
/// many names may still be looked at.
fn add_name(
    parent: &OwnedFd,
    child: BorrowedFd<'_>,
    names: &mut Vec<u8>,
    entries: &mut usize,
) -> Result<(), Errno> {
    let wanted = rustix::fs::fstat(child)?;
    if file_type(&wanted) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = rustix::fs::openat(parent, c".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut listed = RawDir::new(&list, &mut buffer);
    while let Some(entry) = listed.next() {
        let entry = entry?;
        *entries = entries.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
        let name = entry.file_name();
        if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
            || entry.ino() != wanted.st_ino
            || name == c"."
            || name == c".."
        {
            continue;
        }
        let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|f| (f.st_dev, f.st_ino) == (wanted.st_dev, wanted.st_ino)) {
            names.extend(name.to_bytes().iter().rev());
            names.push(b'/');
            return if names.len() > LONGEST { Err(Errno::NAMETOOLONG) } else { Ok(()) };
        }
    }
    // Removed, or the root of a mount.
    Err(Errno::NOENT)
}

impl Task<'_> {
    /// Does `call`, and writes down if it failed for want of a name to decide on.
    pub(super) fn with_names(&self, call: impl FnOnce() -> Answer) -> Answer {
        NAMELESS.set(false);
        let answer = call();
        if NAMELESS.get() && matches!(answer, Answer::Error(Errno::NAMETOOLONG)) {
            let path = b"(a path longer than 4095 bytes)";
            let mut refusal = Refusal::new(Access::Write, path, b"", None);
            refusal.message = Some("it cannot be told what its name is".to_owned());
            return self.refuse_with(refusal, Errno::NAMETOOLONG);
        }
        answer
    }
}
