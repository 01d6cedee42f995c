//! `tmpcopyup`: a new file system that begins with what is in the directory that it covers.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fstat, mkdirat, mknodat,
    openat, readlinkat, statat, symlinkat,
};
use rustix::io::{Errno, read, write};

/// Directories in directories that are copied.
const DEPTH: usize = 64;

/// Copies what is in the directory `from` into the empty directory `to`: kinds, modes and owners.
///
/// # Errors
///
/// What cannot be read or made.
pub fn up(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    directory(open(from, OsStr::new("."), OFlags::DIRECTORY)?, to, DEPTH)
}

fn open(at: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(at, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn directory(from: OwnedFd, to: BorrowedFd<'_>, depth: usize) -> Result<(), Errno> {
    let Some(depth) = depth.checked_sub(1) else { return Err(Errno::NAMETOOLONG) };
    for entry in Dir::read_from(&from)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            one(from.as_fd(), to, name, depth)?;
        }
    }
    Ok(())
}

fn one(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, depth: usize) -> Result<(), Errno> {
    let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let private = Mode::from_raw_mode(0o700);
    match kind {
        FileType::Directory => {
            mkdirat(to, name, private)?;
            let made = open(to, name, OFlags::DIRECTORY)?;
            directory(open(from, name, OFlags::DIRECTORY)?, made.as_fd(), depth)?;
            own(to, name, &stat)?;
            fchmod(made, mode(&stat))
        }
        FileType::RegularFile => {
            let source = open(from, name, OFlags::NONBLOCK)?;
            // It may have been exchanged for something that never ends.
            if FileType::from_raw_mode(fstat(&source)?.st_mode) != FileType::RegularFile {
                return Err(Errno::INVAL);
            }
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let made = openat(to, name, flags, private)?;
            content(&source, &made)?;
            own(to, name, &stat)?;
            fchmod(made, mode(&stat))
        }
        FileType::Symlink => {
            symlinkat(&*readlinkat(from, name, [])?, to, name)?;
            own(to, name, &stat)
        }
        kind => {
            mknodat(to, name, kind, mode(&stat), stat.st_rdev)?;
            own(to, name, &stat)
        }
    }
}

fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn own(to: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn content(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = read(from, &mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let written = write(to, rest)?;
            rest = &rest[written..];
        }
    }
}
