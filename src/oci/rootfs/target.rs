//! Paths in the container's root, resolved there and nowhere else.
//!
//! A root is hostile: any name in it may be a link, and may be exchanged while we look. So a path becomes a
//! descriptor by one openat2(2) with `RESOLVE_IN_ROOT`, and what is done then is done to the descriptor.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat,
};
use rustix::io::Errno;

/// Links that one path may lead through, as in the kernel.
const LINKS: usize = 40;
/// Tries of what fails only because somebody else changes names at the same time.
const TRIES: usize = 64;

/// The container's root directory.
#[derive(Clone, Copy)]
pub struct Root<'a>(pub BorrowedFd<'a>);

/// What to make of a target that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    Directory,
    File,
}

/// What a path leads to.
pub struct Target {
    /// It, opened with `O_PATH`.
    pub fd: OwnedFd,
    /// There were links on the way, so that its path is another one.
    pub linked: bool,
    /// It was not there before.
    pub made: bool,
}

impl Root<'_> {
    /// What stands at `path`, a [`clean`] one.
    ///
    /// # Errors
    ///
    /// As openat2(2).
    pub fn find(self, path: &Path) -> Result<Target, Errno> {
        match self.plain(path) {
            Err(Errno::LOOP) => {}
            found => return found.map(|fd| Target { fd, linked: false, made: false }),
        }
        self.open(path, OFlags::PATH, ResolveFlags::NO_MAGICLINKS).map(|fd| Target {
            fd,
            linked: true,
            made: false,
        })
    }

    /// What stands at `path`, where no name on the way is a link.
    ///
    /// # Errors
    ///
    /// As openat2(2); `ELOOP` where there is a link.
    pub fn plain(self, path: &Path) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::PATH, ResolveFlags::NO_SYMLINKS)
    }

    fn open(self, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = resolve | ResolveFlags::IN_ROOT;
        again(|| openat2(self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// What stands at `path`, made with all that leads there where it is missing. A link to nothing on the
    /// way is followed, in the root: it is where images keep `/etc/resolv.conf`.
    ///
    /// # Errors
    ///
    /// As openat2(2), mkdirat(2) and openat(2).
    pub fn find_or_make(self, path: &Path, make: Make) -> Result<Target, Errno> {
        match self.find(path) {
            Err(Errno::NOENT) => {}
            found => return found,
        }
        // Mostly it is just the last name, and no link.
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Ok(parent) = self.find(parent)
            && let Ok(fd) = make_at(parent.fd.as_fd(), name, make)
        {
            return Ok(Target { fd, linked: parent.linked, made: true });
        }
        self.walk(path, make).map(|(fd, linked)| Target { fd, linked, made: true })
    }

    /// As [`Root::find_or_make`], name by name; and whether a link was on the way.
    fn walk(self, path: &Path, make: Make) -> Result<(OwnedFd, bool), Errno> {
        let mut todo: VecDeque<OsString> = names(path);
        // Where it is by now: a path without links, and the directory.
        let mut place = PathBuf::new();
        let mut here = self.plain(&place)?;
        let (mut links, mut tries) = (0, 0);
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                place.pop();
                here = self.plain(&place)?;
                continue;
            }
            let last = todo.is_empty();
            let next = match open_at(here.as_fd(), &name) {
                Err(Errno::NOENT) => {
                    let what = if last { make } else { Make::Directory };
                    match make_at(here.as_fd(), &name, what) {
                        // Somebody was faster. What they made is looked at like everything else.
                        Err(Errno::EXIST | Errno::NOENT) if tries < TRIES => {
                            tries += 1;
                            todo.push_front(name);
                            continue;
                        }
                        made => made?,
                    }
                }
                found => found?,
            };
            if FileType::from_raw_mode(fstat(&next)?.st_mode) != FileType::Symlink {
                if last {
                    return Ok((next, links > 0));
                }
                here = next;
                place.push(name);
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP);
            }
            let text = PathBuf::from(OsString::from_vec(readlinkat(&next, "", [])?.into_bytes()));
            if text.is_absolute() {
                place.clear();
                here = self.plain(&place)?;
            }
            for name in names(&text).into_iter().rev() {
                todo.push_front(name);
            }
        }
        Ok((here, links > 0))
    }
}

/// The names of a path, `..` among them.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

/// What stands at a name of a directory, itself if it is a link; mounts are followed.
///
/// # Errors
///
/// As openat(2).
pub fn open_at(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

/// Makes a new directory or an empty file, and opens it.
///
/// # Errors
///
/// As mkdirat(2) and openat(2): `EEXIST` where the name is taken.
pub fn make_at(directory: BorrowedFd<'_>, name: &OsStr, make: Make) -> Result<OwnedFd, Errno> {
    match make {
        Make::Directory => mkdirat(directory, name, Mode::from_raw_mode(0o755))?,
        Make::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(directory, name, flags | OFlags::WRONLY, Mode::from_raw_mode(0o644))?;
        }
    }
    open_at(directory, name)
}

/// Does what openat2(2) gives up on where names are moved meanwhile.
fn again(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    for _ in 0..TRIES {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}
