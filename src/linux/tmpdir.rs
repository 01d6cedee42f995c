//! The run's private temporary directory.
//!
//! Its launcher removes it, or the watcher does when the launcher was killed. Killed before there is a
//! watcher, the launcher leaves it empty: then a later run removes it. So that none removes one that is
//! in use, it is locked, flock(2), for as long as its launcher lives.

use super::sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, SeekFrom, Stat};
use rustix::path::DecInt;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A directory of mode 0700 that is removed, with what is in it, by [`TemporaryDirectory::remove`].
pub struct TemporaryDirectory {
    parent: OwnedFd,
    parent_path: String,
    name: CString,
    /// Open and locked.
    _lock: OwnedFd,
}

/// What a name starts with; sixteen hexadecimal digits follow.
const PREFIX: &[u8] = b"landstrip-";
const DIGITS: usize = 16;

impl TemporaryDirectory {
    /// Makes one in the first of `parents` that takes it.
    ///
    /// # Errors
    ///
    /// The error of the last one tried.
    pub fn make<'a>(parents: impl IntoIterator<Item = &'a str>) -> Result<Self, Errno> {
        let mut last = Errno::NOENT;
        for parent in parents {
            match TemporaryDirectory::make_in(parent) {
                Ok(made) => return Ok(made),
                Err(errno) => last = errno,
            }
        }
        Err(last)
    }

    fn make_in(parent: &str) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty())?;
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&parent));
        let path = rustix::fs::readlink(link, Vec::new())?;
        let parent_path = path.into_string().map_err(|_| Errno::ILSEQ)?;
        loop {
            let mut random = [0u8; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name = format!("landstrip-{:016x}", u64::from_ne_bytes(random));
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            match rustix::fs::mkdirat(&parent, &name, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(errno),
            }
            match lock(parent.as_fd(), &name) {
                Ok(Some(lock)) => {
                    return Ok(TemporaryDirectory { parent, parent_path, name, _lock: lock });
                }
                Ok(None) => remove(parent.as_fd(), &name),
                Err(errno) => {
                    remove(parent.as_fd(), &name);
                    return Err(errno);
                }
            }
        }
    }

    /// Its path, free of symbolic links.
    pub fn path(&self) -> String {
        format!("{}/{}", self.parent_path.trim_end_matches('/'), self.name.to_string_lossy())
    }

    /// Removes it. What cannot be removed stays; nothing outside is ever touched.
    pub fn remove(&self) {
        remove(self.parent.as_fd(), &self.name);
    }

    /// Where it is: the directory that it is in, and its name there.
    pub fn place(&self) -> (BorrowedFd<'_>, &CStr) {
        (self.parent.as_fd(), &self.name)
    }
}

/// Locks the directory `name`, made just now. None if another run took it for one that was left.
fn lock(parent: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let directory = match own_directory(parent, name) {
        Err(Errno::NOENT) => return Ok(None),
        directory => directory?,
    };
    // Shared, since the run may want to lock it, too.
    if let Err(Errno::WOULDBLOCK) =
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared)
    {
        return Ok(None);
    }
    // Where there are no such locks, nobody gets one to remove it, either.
    let is = |stat: Stat| (stat.st_dev, stat.st_ino);
    let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    Ok((there.map(is) == Some(is(rustix::fs::fstat(&directory)?))).then_some(directory))
}

fn own_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Removes what launchers of this user left in `parent` that were killed at once: empty directories that
/// nobody holds locked. Stops when something comes on `stop`, or its other end closes.
///
/// Nothing here allocates, since the watcher does this.
pub fn sweep(parent: BorrowedFd<'_>, stop: BorrowedFd<'_>) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(list) = rustix::fs::openat(parent, c".", flags, Mode::empty()) else { return };
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&list, &mut buffer);
    let mut fds = [PollFd::new(&stop, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        let digits = name.to_bytes().strip_prefix(PREFIX).unwrap_or_default();
        let ours = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
        if ours && matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            remove_left(parent, name);
        }
        if entries.is_buffer_empty() && poll(&mut fds, Some(&now)) != Ok(0) {
            return;
        }
    }
}

fn remove_left(parent: BorrowedFd<'_>, name: &CStr) {
    let Ok(directory) = own_directory(parent, name) else { return };
    let own = rustix::process::geteuid().as_raw();
    if rustix::fs::fstat(&directory).is_ok_and(|stat| stat.st_uid == own)
        && rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
}

/// Removes directory `name` of `parent` with what is in it.
///
/// Nothing here allocates: the watcher does this when the launcher was killed, at any point.
pub fn remove(parent: BorrowedFd<'_>, name: &CStr) {
    if rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) != Err(Errno::NOTEMPTY) {
        return;
    }
    if let Ok(fd) = open_directory(parent, name) {
        empty(&fd);
    }
    let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
}

/// Opens directory `name` for reading, never through a link, and gives its owner back the rights that the
/// run may have taken away.
fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    // fchmod(2) does not work on a place; its name below /proc leads to this very directory.
    if let Ok(own) = rustix::fs::open(c"/proc/self/fd", OFlags::PATH, Mode::empty()) {
        let _ = rustix::fs::chmodat(own, DecInt::from_fd(&place), Mode::RWXU, AtFlags::empty());
    }
    rustix::fs::openat(&place, c".", flags | OFlags::RDONLY, Mode::empty())
}

/// Deletes everything below `root`. No path is followed: each step is one name in an open directory.
///
/// One directory is open at a time beside the root, so that a deep tree exhausts neither descriptors
/// nor the stack: a directory that is not empty is emptied by moving what it holds up to the root.
fn empty(root: &OwnedFd) {
    let mut fresh = 0u64;
    while each_name(root, |name| {
        if delete(root, name) {
            return true;
        }
        let Ok(directory) = open_directory(root.as_fd(), name) else {
            return false;
        };
        let lifted = lift(&directory, root, &mut fresh);
        delete(root, name) || lifted
    }) {}
}

/// Deletes the files of `directory` and moves its subdirectories to `root` under fresh names.
fn lift(directory: &OwnedFd, root: &OwnedFd, fresh: &mut u64) -> bool {
    each_name(directory, |name| {
        if delete(directory, name) {
            return true;
        }
        // Moving a directory changes it: its own rights are needed too.
        let _ = open_directory(directory.as_fd(), name);
        loop {
            *fresh += 1;
            match rustix::fs::renameat(directory, name, root, DecInt::new(*fresh)) {
                // The name is taken, maybe by `directory` itself.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                done => return done.is_ok(),
            }
        }
    })
}

fn delete(directory: &OwnedFd, name: &CStr) -> bool {
    rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok()
        || rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR).is_ok()
}

/// Calls `act` for each name in `directory`; whether any call returned true.
fn each_name(directory: &OwnedFd, mut act: impl FnMut(&CStr) -> bool) -> bool {
    if rustix::fs::seek(directory, SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut any = false;
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if name != c"." && name != c".." {
            any |= act(name);
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn only_what_was_left_is_swept() {
        let outer = tempfile::tempdir().unwrap();
        let live = TemporaryDirectory::make([outer.path().to_str().unwrap()]).unwrap();
        let make = |name: &str| {
            let path = outer.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let left = make("landstrip-0123456789abcdef");
        let full = make("landstrip-fedcba9876543210");
        std::fs::write(full.join("file"), "x").unwrap();
        let others = [make("landstrip-0"), make("landstrip-run-0123456789abcdef"), make("other")];
        let parent = std::fs::File::open(outer.path()).unwrap();
        let (stop, going) = rustix::pipe::pipe().unwrap();
        sweep(parent.as_fd(), stop.as_fd());
        assert!(!left.exists());
        assert!(Path::new(&live.path()).exists() && full.exists());
        assert!(others.iter().all(|path| path.exists()));
        // Its launcher is gone.
        let path = live.path();
        drop((live, going));
        sweep(parent.as_fd(), stop.as_fd());
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn a_deep_and_locked_tree_goes_and_its_neighbours_stay() {
        let outer = tempfile::tempdir().unwrap();
        let parent = outer.path().to_str().unwrap();
        std::fs::write(outer.path().join("neighbour"), "x").unwrap();
        let made = TemporaryDirectory::make([parent]).unwrap();
        let path = made.path();
        let mut deep = std::path::PathBuf::from(&path);
        for _ in 0..300 {
            deep.push("d");
            std::fs::create_dir(&deep).unwrap();
            std::fs::write(deep.join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(outer.path().join("neighbour"), Path::new(&path).join("link"))
            .unwrap();
        let locked = Path::new(&path).join("locked");
        std::fs::create_dir(&locked).unwrap();
        std::fs::write(locked.join("f"), "x").unwrap();
        for taken in ["1/2/c/d", "2/3/1", "4/5", "5/6/7"] {
            std::fs::create_dir_all(Path::new(&path).join(taken)).unwrap();
        }
        std::fs::write(Path::new(&path).join("3"), "x").unwrap();
        let victim = outer.path().join("neighbour");
        std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .unwrap();
        std::os::unix::fs::symlink(&victim, Path::new(&path).join("l")).unwrap();
        std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o0))
            .unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o500))
            .unwrap();
        made.remove();
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&victim.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o644);
        assert!(!Path::new(&path).exists());
        assert!(outer.path().join("neighbour").exists());
    }
}
