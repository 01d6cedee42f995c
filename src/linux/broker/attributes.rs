//! Calls that change a file without opening it: size, mode, owner, times, extended attributes.
//!
//! No Landlock right covers these (but truncation), so the broker always does them itself.

use super::report::Refusal;
use super::resolve::{Object, fd_name, file_type};
use super::task::Task;
use super::{Answer, Errno};
use crate::linux::sys::{identity, signals};
use crate::policy::{ATTRIBUTE, Access};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use std::os::fd::AsFd;

/// The attribute that carries a program's own policy. Nothing in the sandbox may write one.
const POLICY_ATTRIBUTE: &[u8] = ATTRIBUTE.as_bytes();
/// Longest name of an extended attribute, xattr(7), and largest value.
const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: usize = 65536;

impl Task<'_> {
    /// The object at a path argument, or of `dirfd` itself for an empty path with `AT_EMPTY_PATH`.
    fn subject(&self, dirfd: i32, path: usize, flags: i32) -> Result<(Object, Vec<u8>), Errno> {
        if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
            return Err(Errno::INVAL);
        }
        let null = self.call.arg(path) == 0;
        let requested =
            if null && flags & libc::AT_EMPTY_PATH != 0 { Vec::new() } else { self.path(path)? };
        if requested.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            let object = self.object_of(dirfd)?;
            self.still_waits()?;
            return Ok((object, requested));
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        let object = self.object(dirfd, &requested, follow, ResolveFlags::empty())?;
        Ok((object, requested))
    }

    /// The object of the descriptor in register 0.
    fn descriptor_subject(&self) -> Result<(Object, Vec<u8>), Errno> {
        let fd = self.int(0);
        if fd < 0 {
            return Err(Errno::BADF);
        }
        let object = self.object_of(fd)?;
        let place = self.is_place(fd)?;
        self.still_waits()?;
        // The f* calls want an open file.
        if place { Err(Errno::BADF) } else { Ok((object, Vec::new())) }
    }

    /// Does `change` to the object, if writing it is allowed, with the target's rights.
    fn change(
        &self,
        (object, requested): (Object, Vec<u8>),
        change: impl FnOnce(&Object) -> Result<(), Errno>,
    ) -> Result<Answer, Errno> {
        let path = object.named()?;
        if !object.is_anonymous() {
            let verdict = self.decide_change(path);
            let about = (Access::Write, &object);
            let refusal = self.refused_object(&verdict, about, path, &requested)?;
            if let Some(mut refusal) = refusal
                && (refusal.rule.is_some()
                    || !self.broker.memory.owns_file(&rustix::fs::fstat(&object.fd)?))
            {
                refusal.link = file_type(&rustix::fs::fstat(&object.fd)?) == FileType::Symlink;
                refusal.askable = refusal.askable && self.is_at_its_name(&object);
                return Ok(self.refuse(refusal));
            }
        }
        Ok(change(&object).into())
    }

    /// truncate(2).
    pub(super) fn truncate(&self) -> Result<Answer, Errno> {
        let length = self.call.arg(1) as i64;
        if length < 0 {
            return Err(Errno::INVAL);
        }
        self.may_act()?;
        self.change(self.subject(libc::AT_FDCWD, 0, 0)?, |object| {
            let stat = rustix::fs::fstat(&object.fd)?;
            match file_type(&stat) {
                FileType::RegularFile => {}
                FileType::Directory => return Err(Errno::ISDIR),
                _ => return Err(Errno::INVAL),
            }
            if length > stat.st_size && length as u64 > self.file_size_limit()? {
                signals::signal_thread(self.tid(), libc::SIGXFSZ);
                return Err(Errno::FBIG);
            }
            let file = self.open_waiting(object, FileType::RegularFile, OFlags::WRONLY)?;
            rustix::fs::ftruncate(&file, length as u64)
        })
    }

    /// The task's RLIMIT_FSIZE, which the kernel would hold against it and not against us.
    fn file_size_limit(&self) -> Result<u64, Errno> {
        // Not to be had of a process that gave up its user: then the limit does not hold here.
        let limit = identity::file_size_limit(self.tid()).unwrap_or(u64::MAX);
        self.still_waits()?;
        Ok(limit)
    }

    /// chmod(2), fchmodat(2) and fchmodat2(2).
    pub(super) fn chmod(
        &self,
        dirfd: i32,
        path: usize,
        mode: u64,
        flags: i32,
    ) -> Result<Answer, Errno> {
        let subject = self.subject(dirfd, path, flags)?;
        self.chmod_object(subject, mode)
    }

    /// fchmod(2).
    pub(super) fn fchmod(&self) -> Result<Answer, Errno> {
        self.chmod_object(self.descriptor_subject()?, self.call.arg(1))
    }

    fn chmod_object(&self, subject: (Object, Vec<u8>), mode: u64) -> Result<Answer, Errno> {
        let mode = mode as u32 & 0o7777;
        let directory = mode & 0o6000 != 0
            && file_type(&rustix::fs::fstat(&subject.0.fd)?) == FileType::Directory;
        if mode & 0o4000 != 0 || (mode & 0o2000 != 0 && !directory) {
            return Ok(self.refuse_setid(&subject.0.path));
        }
        self.change(subject, |object| {
            let mode = Mode::from_raw_mode(mode);
            rustix::fs::chmodat(
                &self.broker.own_fds,
                fd_name(object.fd.as_fd()),
                mode,
                AtFlags::empty(),
            )
        })
    }

    /// chown(2), lchown(2) and fchownat(2); `ids` is the index of the user argument.
    pub(super) fn chown(
        &self,
        dirfd: i32,
        path: usize,
        ids: usize,
        flags: i32,
    ) -> Result<Answer, Errno> {
        let subject = self.subject(dirfd, path, flags)?;
        self.chown_object(subject, ids)
    }

    /// fchown(2).
    pub(super) fn fchown(&self) -> Result<Answer, Errno> {
        self.chown_object(self.descriptor_subject()?, 1)
    }

    fn chown_object(&self, subject: (Object, Vec<u8>), ids: usize) -> Result<Answer, Errno> {
        let id = |index| Some(self.call.arg(index) as u32).filter(|&id| id != u32::MAX);
        let (user, group) = (id(ids).map(Uid::from_raw), id(ids + 1).map(Gid::from_raw));
        self.change(subject, |object| {
            rustix::fs::chownat(&object.fd, "", user, group, AtFlags::EMPTY_PATH)
        })
    }

    /// utimensat(2), and so futimens(3), which passes no path.
    pub(super) fn utimensat(&self) -> Result<Answer, Errno> {
        let times = match self.call.arg(2) {
            0 => now(),
            address => {
                let raw: [u8; 32] = self.read_array(address)?;
                let word =
                    |at: usize| i64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight"));
                let stamp = |at| Timespec { tv_sec: word(at), tv_nsec: word(at + 8) as _ };
                Timestamps { last_access: stamp(0), last_modification: stamp(16) }
            }
        };
        let subject = if self.call.arg(1) == 0 {
            if self.int(3) != 0 {
                return Err(Errno::INVAL);
            }
            self.descriptor_subject()?
        } else {
            self.subject(self.int(0), 1, self.int(3))?
        };
        self.set_times(subject, times)
    }

    /// utimes(2) and futimesat(2): microseconds.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn utimes(&self, dirfd: i32, path: usize, times: usize) -> Result<Answer, Errno> {
        let times = match self.call.arg(times) {
            0 => now(),
            address => {
                let raw: [u8; 32] = self.read_array(address)?;
                let word =
                    |at: usize| i64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight"));
                if !(0..1_000_000).contains(&word(8)) || !(0..1_000_000).contains(&word(24)) {
                    return Err(Errno::INVAL);
                }
                let stamp = |at| Timespec { tv_sec: word(at), tv_nsec: word(at + 8) * 1000 };
                Timestamps { last_access: stamp(0), last_modification: stamp(16) }
            }
        };
        if self.call.arg(path) == 0 {
            return self.set_times(self.descriptor_subject()?, times);
        }
        self.set_times(self.subject(dirfd, path, 0)?, times)
    }

    /// utime(2): seconds.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn utime(&self) -> Result<Answer, Errno> {
        let times = match self.call.arg(1) {
            0 => now(),
            address => {
                let raw: [u8; 16] = self.read_array(address)?;
                let word =
                    |at: usize| i64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight"));
                let stamp = |at| Timespec { tv_sec: word(at), tv_nsec: 0 };
                Timestamps { last_access: stamp(0), last_modification: stamp(8) }
            }
        };
        self.set_times(self.subject(libc::AT_FDCWD, 0, 0)?, times)
    }

    fn set_times(&self, subject: (Object, Vec<u8>), times: Timestamps) -> Result<Answer, Errno> {
        self.say("atime", || Some(time_text(&times.last_access)));
        self.say("mtime", || Some(time_text(&times.last_modification)));
        self.change(subject, |object| {
            let name = fd_name(object.fd.as_fd());
            rustix::fs::utimensat(&self.broker.own_fds, name, &times, AtFlags::empty())
        })
    }

    /// setxattr(2) and lsetxattr(2).
    pub(super) fn set_xattr(&self, follow: bool) -> Result<Answer, Errno> {
        let subject = self.subject(libc::AT_FDCWD, 0, no_follow(follow))?;
        self.set_xattr_object(subject, 1, self.call.arg(2), self.call.arg(3), self.int(4) as u32)
    }

    /// fsetxattr(2).
    pub(super) fn fset_xattr(&self) -> Result<Answer, Errno> {
        let subject = self.descriptor_subject()?;
        self.set_xattr_object(subject, 1, self.call.arg(2), self.call.arg(3), self.int(4) as u32)
    }

    /// setxattrat(2): `struct xattr_args { u64 value; u32 size; u32 flags; }`.
    pub(super) fn set_xattr_at(&self) -> Result<Answer, Errno> {
        const SIZE: u64 = 16;
        match self.call.arg(5) {
            SIZE => {}
            size if size < SIZE => return Err(Errno::INVAL),
            _ => return Err(Errno::TOOBIG),
        }
        let raw: [u8; SIZE as usize] = self.read_array(self.call.arg(4))?;
        let value = u64::from_ne_bytes(raw[..8].try_into().expect("eight"));
        let size = u32::from_ne_bytes(raw[8..12].try_into().expect("four"));
        let flags = u32::from_ne_bytes(raw[12..].try_into().expect("four"));
        let subject = self.subject(self.int(0), 1, self.call.arg(2) as i32)?;
        self.set_xattr_object(subject, 3, value, u64::from(size), flags)
    }

    fn set_xattr_object(
        &self,
        subject: (Object, Vec<u8>),
        name: usize,
        value: u64,
        size: u64,
        flags: u32,
    ) -> Result<Answer, Errno> {
        // `all()` would be every bit: the crate lets unknown ones through.
        if flags & !(XattrFlags::CREATE | XattrFlags::REPLACE).bits() != 0 {
            return Err(Errno::INVAL);
        }
        let size = usize::try_from(size).ok().filter(|&size| size <= XATTR_SIZE_MAX);
        let size = size.ok_or(Errno::TOOBIG)?;
        let name = self.xattr_name(name)?;
        let mut bytes = vec![0; size];
        if self.read_exact(value, &mut bytes).is_err() {
            return Err(Errno::FAULT);
        }
        self.say("attribute", || String::from_utf8(name.clone()).ok());
        self.say("size", || Some(size.to_string()));
        self.still_waits()?;
        if name == POLICY_ATTRIBUTE {
            return Ok(self.refuse_policy_attribute(&subject));
        }
        self.change(subject, |object| {
            let flags = XattrFlags::from_bits_retain(flags);
            rustix::fs::setxattr(own_path(object), name.as_slice(), &bytes, flags)
        })
    }

    /// removexattr(2) and lremovexattr(2).
    pub(super) fn remove_xattr(&self, follow: bool) -> Result<Answer, Errno> {
        let subject = self.subject(libc::AT_FDCWD, 0, no_follow(follow))?;
        self.remove_xattr_object(subject, 1)
    }

    /// fremovexattr(2).
    pub(super) fn fremove_xattr(&self) -> Result<Answer, Errno> {
        self.remove_xattr_object(self.descriptor_subject()?, 1)
    }

    /// removexattrat(2).
    pub(super) fn remove_xattr_at(&self) -> Result<Answer, Errno> {
        let subject = self.subject(self.int(0), 1, self.call.arg(2) as i32)?;
        self.remove_xattr_object(subject, 3)
    }

    fn remove_xattr_object(
        &self,
        subject: (Object, Vec<u8>),
        name: usize,
    ) -> Result<Answer, Errno> {
        let name = self.xattr_name(name)?;
        self.still_waits()?;
        self.say("attribute", || String::from_utf8(name.clone()).ok());
        if name == POLICY_ATTRIBUTE {
            return Ok(self.refuse_policy_attribute(&subject));
        }
        self.change(subject, |object| rustix::fs::removexattr(own_path(object), name.as_slice()))
    }

    fn xattr_name(&self, index: usize) -> Result<Vec<u8>, Errno> {
        let mut name = Vec::new();
        match self.read_string(self.call.arg(index), XATTR_NAME_MAX, &mut name) {
            // As xattr(7): a name that is too long, or empty, is out of range.
            Err(Errno::NAMETOOLONG) => Err(Errno::RANGE),
            Ok(()) if name.is_empty() => Err(Errno::RANGE),
            result => result.map(|()| name),
        }
    }

    fn read_exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read(address + done as u64, &mut buffer[done..])? {
                0 => return Err(Errno::FAULT),
                got => done += got,
            }
        }
        Ok(())
    }

    fn refuse_policy_attribute(&self, (object, requested): &(Object, Vec<u8>)) -> Answer {
        let refusal = Refusal::new(Access::Write, &object.path, requested, None);
        let refusal = refusal.because("a program's own policy cannot be changed from inside");
        self.refuse_with(refusal, Errno::PERM)
    }
}

/// The object's path among our own descriptors, for calls that take no directory.
fn own_path(object: &Object) -> String {
    format!("/proc/self/fd/{}", fd_name(object.fd.as_fd()))
}

fn no_follow(follow: bool) -> i32 {
    if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
}

/// A time of utimensat(2) in words.
fn time_text(time: &Timespec) -> String {
    match time.tv_nsec {
        rustix::fs::UTIME_NOW => "now".to_owned(),
        rustix::fs::UTIME_OMIT => "omit".to_owned(),
        nanos => format!("{}.{nanos:09}", time.tv_sec),
    }
}

fn now() -> Timestamps {
    let stamp = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access: stamp, last_modification: stamp }
}
