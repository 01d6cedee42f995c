//! From a path as the target wrote it to a pinned object and its canonical name.
//!
//! Every resolution ends in a descriptor; the decision is about that descriptor's path, and the
//! operation goes through that descriptor. The kernel walks the path in one openat2(2) wherever it
//! can. Where it cannot (magic links of procfs, `/proc/self`), [`walk`] goes component by component.

use super::Broker;
use super::task::Task;
use crate::linux::sys::Errno;
use rustix::fs::{
    AtFlags, FileType, MemfdFlags, Mode, OFlags, ResolveFlags, Stat, StatxFlags, makedev,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// An object, pinned.
pub struct Object {
    /// `O_PATH` descriptor.
    pub fd: OwnedFd,
    /// Its path. Not absolute for objects that have none (`pipe:[1]`).
    pub path: Vec<u8>,
}

impl Object {
    /// The object's path, without what the kernel appends to the path of an unlinked file.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub fn named(&self) -> Result<&[u8], Errno> {
        match self.path.strip_suffix(b" (deleted)") {
            Some(stripped) if rustix::fs::fstat(&self.fd)?.st_nlink == 0 => Ok(stripped),
            _ => Ok(&self.path),
        }
    }

    /// Whether it has no place in the tree (a pipe, a socket, a memory file), so that no policy can
    /// be about it.
    pub fn is_anonymous(&self) -> bool {
        !self.path.starts_with(b"/") || self.path.starts_with(b"/memfd:") && self.is_memory_file()
    }

    /// Whether it is on the file system that memfd_create(2) makes files on, which is mounted nowhere.
    /// The name alone says nothing: any file can be called so.
    fn is_memory_file(&self) -> bool {
        static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
        let device = *DEVICE.get_or_init(|| {
            let file = rustix::fs::memfd_create(c"", MemfdFlags::CLOEXEC).ok()?;
            rustix::fs::fstat(&file).ok().map(|stat| stat.st_dev)
        });
        device.is_some() && rustix::fs::fstat(&self.fd).ok().map(|stat| stat.st_dev) == device
    }
}

/// A name in a directory, pinned.
pub struct Spot {
    /// `O_PATH` descriptor of the directory.
    pub dir: OwnedFd,
    /// The directory's path.
    pub dir_path: Vec<u8>,
    /// The last component, with one trailing slash when the target wrote any.
    pub name: Vec<u8>,
}

/// How a path ends, see path_resolution(7).
pub enum Last {
    /// With a name.
    Spot(Spot),
    /// With `.`.
    Dot,
    /// With `..`.
    DotDot,
    /// It is the root directory.
    Root,
}

impl Spot {
    /// The path of the name.
    pub fn path(&self) -> Vec<u8> {
        join(&self.dir_path, self.bare_name())
    }

    /// The name without trailing slash.
    pub fn bare_name(&self) -> &[u8] {
        self.name.strip_suffix(b"/").unwrap_or(&self.name)
    }

    /// Removes the name again, if it still is that of `file`.
    pub fn take_back(&self, file: &OwnedFd) {
        let same =
            |made: &Stat, here: &Stat| (made.st_dev, made.st_ino) == (here.st_dev, here.st_ino);
        if let (Ok(made), Ok(here)) = (rustix::fs::fstat(file), self.stat())
            && same(&made, &here)
        {
            let _ = rustix::fs::unlinkat(&self.dir, self.bare_name(), AtFlags::empty());
        }
    }

    /// The numbers of the mount and of the device that the directory is on.
    ///
    /// # Errors
    ///
    /// As statx(2).
    pub fn mount(&self) -> Result<(u64, u64), Errno> {
        let want = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let found = rustix::fs::statx(&self.dir, c"", AtFlags::EMPTY_PATH, want)?;
        Ok((found.stx_mnt_id, makedev(found.stx_dev_major, found.stx_dev_minor)))
    }

    /// What stands at the name now, not followed.
    ///
    /// # Errors
    ///
    /// `ENOENT` when nothing does.
    pub fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.dir, self.bare_name(), AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// `directory` + `/` + `name`.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The type of a file by its mode.
pub fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Flags of openat2(2) that tie a resolution to its starting directory.
const SCOPED: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::IN_ROOT);

impl Task<'_> {
    /// Resolves `path` to an existing object; `follow` says whether a final symbolic link is followed.
    ///
    /// # Errors
    ///
    /// As path_resolution(7).
    pub fn object(
        &self,
        dirfd: i32,
        path: &[u8],
        follow: bool,
        resolve: ResolveFlags,
    ) -> Result<Object, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let base = Base::of(self, dirfd, path, resolve)?;
        let flags = if follow { FIND } else { FIND | OFlags::NOFOLLOW };
        find(self, &base, path, flags, resolve)
    }

    /// The object that descriptor `fd` refers to (`AT_EMPTY_PATH`, or the f* calls).
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub fn object_of(&self, fd: i32) -> Result<Object, Errno> {
        let fd = self.descriptor(fd)?;
        let path = self.broker.path_of(fd.as_fd())?;
        Ok(Object { fd, path })
    }

    /// Resolves all of `path` but its last component.
    ///
    /// # Errors
    ///
    /// As path_resolution(7).
    pub fn spot(&self, dirfd: i32, path: &[u8], resolve: ResolveFlags) -> Result<Last, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let base = Base::of(self, dirfd, path, resolve)?;
        spot(self, base, path, resolve)
    }

    /// Whether the object stands where its path says: one that was unlinked, or that a mount covers, does
    /// not. What the path says of it would be untrue, so nobody is asked.
    pub fn is_at_its_name(&self, object: &Object) -> bool {
        self.broker.queries.is_some()
            && rustix::fs::fstat(&object.fd).is_ok_and(|held| self.is_named(&held, object))
    }

    /// The same where what the kernel says of the object is known.
    pub fn is_named(&self, held: &rustix::fs::Stat, object: &Object) -> bool {
        self.broker.queries.is_some()
            && rustix::fs::lstat(object.path.as_slice())
                .is_ok_and(|named| (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino))
    }

    /// What stands at `spot`, not followed.
    ///
    /// # Errors
    ///
    /// `ENOENT` when nothing does.
    pub fn object_at(&self, spot: &Spot) -> Result<Object, Errno> {
        let flags = FIND | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&spot.dir, spot.bare_name(), flags, Mode::empty())?;
        Ok(Object { fd, path: spot.path() })
    }

    /// Resolves `path`, the text of a symbolic link found at `at`, as [`Task::spot`] does.
    ///
    /// # Errors
    ///
    /// As path_resolution(7).
    pub fn spot_from(&self, at: &Spot, path: &[u8]) -> Result<Last, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let base = if path[0] == b'/' { Base::Root(&self.broker.root) } else { Base::Spot(at) };
        spot(self, base, path, ResolveFlags::empty())
    }
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

/// Where a resolution starts.
pub(super) enum Base<'a> {
    /// The root directory; the path is absolute.
    Root(&'a OwnedFd),
    /// The task's working directory, or a directory that it holds.
    Own(OwnedFd),
    /// A directory that was resolved before.
    Spot(&'a Spot),
}

impl AsFd for Base<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Base::Root(fd) => fd.as_fd(),
            Base::Own(fd) => fd.as_fd(),
            Base::Spot(spot) => spot.dir.as_fd(),
        }
    }
}

impl<'a> Base<'a> {
    /// Where `path` starts for the task.
    ///
    /// # Errors
    ///
    /// `EBADF` for a descriptor that is not open, `ESRCH` when the task is gone.
    pub(super) fn of(
        task: &Task<'a>,
        dirfd: i32,
        path: &[u8],
        resolve: ResolveFlags,
    ) -> Result<Base<'a>, Errno> {
        let base = if path.first() == Some(&b'/') && !resolve.intersects(SCOPED) {
            Base::Root(&task.broker.root)
        } else {
            Base::Own(task.descriptor(dirfd)?)
        };
        task.still_waits()?;
        Ok(base)
    }

    /// The directory, if it is the task's own.
    pub(super) fn into_owned(self) -> Option<OwnedFd> {
        match self {
            Base::Own(fd) => Some(fd),
            Base::Root(_) | Base::Spot(_) => None,
        }
    }

    /// Its path.
    ///
    /// # Errors
    ///
    /// As readlink(2).
    pub(super) fn path(&self, broker: &Broker) -> Result<Vec<u8>, Errno> {
        match self {
            Base::Root(_) => Ok(b"/".to_vec()),
            Base::Own(fd) => broker.path_of(fd.as_fd()),
            Base::Spot(spot) => Ok(spot.dir_path.clone()),
        }
    }
}

/// Resolves all of `path` but its last component.
///
/// # Errors
///
/// As path_resolution(7).
pub(super) fn spot(
    task: &Task<'_>,
    base: Base<'_>,
    path: &[u8],
    resolve: ResolveFlags,
) -> Result<Last, Errno> {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    if end == 0 {
        return Ok(Last::Root);
    }
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    let found = match (&path[..start], base) {
        // A name in a directory that is pinned already.
        (b"", Base::Own(fd)) => {
            let path = task.broker.path_of(fd.as_fd())?;
            Object { fd, path }
        }
        (b"", base) => find(task, &base, b".", FIND | OFlags::DIRECTORY, resolve)?,
        (text, base) => find(task, &base, text, FIND | OFlags::DIRECTORY, resolve)?,
    };
    Ok(match name {
        b"." => Last::Dot,
        b".." => Last::DotDot,
        _ => {
            let keep = (end + 1).min(path.len());
            Last::Spot(Spot {
                dir: found.fd,
                dir_path: found.path,
                name: path[start..keep].to_vec(),
            })
        }
    })
}

fn find(
    task: &Task<'_>,
    base: &Base<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<Object, Errno> {
    let broker = task.broker;
    let open =
        |extra| rustix::fs::openat2(base.as_fd(), path, flags, Mode::empty(), resolve | extra);
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match open(plain) {
        // Without links on the way, the text names the object.
        Ok(fd) => {
            let path = if path == b"." {
                base.path(broker)?
            } else if resolve.intersects(SCOPED) || goes_up(path) {
                // `..` leads to where the directory is by then, not to where the text says.
                broker.path_of(fd.as_fd())?
            } else if path[0] == b'/' {
                normalize(b"/", path)
            } else {
                normalize(&base.path(broker)?, path)
            };
            Ok(Object { fd, path })
        }
        Err(Errno::LOOP) if !resolve.contains(ResolveFlags::NO_SYMLINKS) => {
            match open(ResolveFlags::NO_MAGICLINKS) {
                Ok(fd) if !broker.on_procfs(fd.as_fd())? => {
                    let path = broker.path_of(fd.as_fd())?;
                    Ok(Object { fd, path })
                }
                Err(Errno::LOOP) if resolve.contains(ResolveFlags::NO_MAGICLINKS) => {
                    Err(Errno::LOOP)
                }
                // Magic links leave every scope.
                Err(Errno::LOOP) if resolve.intersects(SCOPED | ResolveFlags::NO_XDEV) => {
                    Err(Errno::XDEV)
                }
                // What a scope keeps out, or lacks, is no business of the walk's.
                Err(errno) if resolve.intersects(SCOPED | ResolveFlags::NO_XDEV) => Err(errno),
                // A magic link, or a path through our own /proc/self, which may have led to an
                // object or to an error: walk as the target.
                Ok(_) | Err(_) => walk(task, base, path, flags, resolve),
            }
        }
        Err(errno) => Err(errno),
    }
}

/// Whether `..` is among the components of `path`.
pub(super) fn goes_up(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|component| component == b"..")
}

/// Folds `.`, `..` and repeated slashes of `path` below `base`; right only where no link was met.
pub fn normalize(base: &[u8], path: &[u8]) -> Vec<u8> {
    let mut out = base.to_vec();
    if out == b"/" {
        out.clear();
    }
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => out.truncate(out.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Most symbolic links in one resolution, as the kernel's MAXSYMLINKS.
const MAX_LINKS: u32 = 40;

/// Resolves component by component, with the target's `/proc/self` in place of ours.
fn walk(
    task: &Task<'_>,
    base: &Base<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<Object, Errno> {
    let broker = task.broker;
    let follow = !flags.contains(OFlags::NOFOLLOW);
    let mut here = duplicate(base.as_fd())?;
    // Components still to go, the next one last.
    let mut rest: Vec<Vec<u8>> = components(path);
    let trailing_slash = path.ends_with(b"/");
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let last = rest.is_empty();
        let next =
            rustix::fs::openat(&here, name.as_slice(), FIND | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = rustix::fs::fstat(&next)?;
        if file_type(&stat) != FileType::Symlink || (last && !follow && !trailing_slash) {
            here = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        if !broker.on_procfs(next.as_fd())? {
            sticky_link(broker, here.as_fd(), &stat)?;
        } else {
            let directory = broker.path_of(here.as_fd())?;
            match (directory.as_slice(), name.as_slice()) {
                (b"/proc", b"self") => {
                    rest.push(task.status()?.tgid.to_string().into_bytes());
                    continue;
                }
                (b"/proc", b"thread-self") => {
                    rest.push(task.tid().to_string().into_bytes());
                    rest.push(b"task".to_vec());
                    rest.push(task.status()?.tgid.to_string().into_bytes());
                    continue;
                }
                (b"/proc", _) => {}
                (directory, _) => {
                    // A magic link. The target's own are its descriptors and directories; those of
                    // other processes are the kernel's to judge, which knows who may look at whom.
                    if resolve.contains(ResolveFlags::NO_MAGICLINKS) {
                        return Err(Errno::LOOP);
                    }
                    if !belongs_to(task, directory)? {
                        return Err(Errno::ACCESS);
                    }
                    here = rustix::fs::openat(&here, name.as_slice(), FIND, Mode::empty())?;
                    continue;
                }
            }
        }
        let text = rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes();
        if text.is_empty() {
            return Err(Errno::NOENT);
        }
        if text[0] == b'/' {
            here = duplicate(broker.root.as_fd())?;
        }
        rest.extend(components(&text));
    }
    if flags.contains(OFlags::DIRECTORY) || trailing_slash {
        let stat = rustix::fs::fstat(&here)?;
        if file_type(&stat) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
    }
    let path = broker.path_of(here.as_fd())?;
    Ok(Object { fd: here, path })
}

/// The components of `path`, the first one last.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

/// Whether `directory` is a procfs directory of the task's own process.
pub fn belongs_to(task: &Task<'_>, directory: &[u8]) -> Result<bool, Errno> {
    let Some(rest) = directory.strip_prefix(b"/proc/") else {
        return Ok(false);
    };
    let pid = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
    Ok(pid == task.status()?.tgid.to_string().as_bytes()
        || pid == task.tid().to_string().as_bytes())
}

/// The rule of `fs.protected_symlinks`, see proc_sys_fs(5): in a sticky world-writable directory, a
/// link is followed only by its owner, or when the directory's owner made it.
pub fn sticky_link(broker: &Broker, directory: BorrowedFd<'_>, link: &Stat) -> Result<(), Errno> {
    let parent = rustix::fs::fstat(directory)?;
    let sticky = parent.st_mode & 0o1002 == 0o1002;
    if sticky && link.st_uid != broker.acting_uid() && link.st_uid != parent.st_uid {
        return Err(Errno::ACCESS);
    }
    Ok(())
}

/// `N` as a C string component for use below `/proc/self/fd`.
pub fn fd_name(fd: BorrowedFd<'_>) -> String {
    fd.as_raw_fd().to_string()
}

#[cfg(test)]
mod tests {
    use super::normalize;

    #[test]
    fn normalizing_folds_as_a_linkless_walk_does() {
        for (base, path, want) in [
            ("/", "/", "/"),
            ("/", "/a//b/./c", "/a/b/c"),
            ("/", "/a/../..", "/"),
            ("/x/y", "../z", "/x/z"),
            ("/x/y", "a/", "/x/y/a"),
            ("/", "a", "/a"),
            ("/x", ".", "/x"),
        ] {
            let got = normalize(base.as_bytes(), path.as_bytes());
            assert_eq!(String::from_utf8(got).unwrap(), want, "{base} {path}");
        }
    }
}
