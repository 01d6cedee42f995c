//! The run's private temporary directory.

use super::sys::Errno;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::path::DecInt;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A directory of mode 0700 that is removed, with what is in it, by [`TemporaryDirectory::remove`].
pub struct TemporaryDirectory {
    parent: OwnedFd,
    parent_path: String,
    name: CString,
}

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
                Ok(()) => return Ok(TemporaryDirectory { parent, parent_path, name }),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
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
