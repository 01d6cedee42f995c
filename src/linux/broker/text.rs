//! Calls that Landlock holds anyway, judged by their text.
//!
//! Most calls are about what the kernel may decide alone. All that is to be found out for those is
//! whether there could be a denial to report, and the text tells, once a lookup has proven it to be the
//! object's name, free of links. Nothing here has to be exact but the "yes", and even that is only about
//! what gets reported: Landlock checks what is continued, whatever the text is by then.

use super::names::parent;
use super::resolve::{goes_up, join, normalize};
use super::task::Task;
use super::{Answer, Errno};
use crate::policy::Access;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::os::fd::AsFd;

impl Task<'_> {
    /// `path` from the root on, as text; none where that cannot be told cheaply.
    pub(super) fn absolute(&self, dirfd: i32, path: &[u8]) -> Option<Vec<u8>> {
        match path.first()? {
            b'/' => Some(path.to_vec()),
            _ => match self.directory_path(dirfd).ok()? {
                base if base.starts_with(b"/") => Some(join(&base, path)),
                _ => None,
            },
        }
    }

    /// Whether something stands at `path`, absolute, with no link on the way: then the kernel walks as
    /// the text reads, `..` included.
    ///
    /// # Errors
    ///
    /// `ENOENT` when nothing does, `ELOOP` for a link.
    pub(super) fn stands(&self, path: &[u8], flags: OFlags) -> Result<(), Errno> {
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.broker.root, path, flags, Mode::empty(), plain).map(drop)
    }

    /// Where `path` leads through links; none for magic ones, which are walked as the target.
    pub(super) fn followed(&self, path: &[u8]) -> Option<Vec<u8>> {
        let broker = self.broker;
        let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_MAGICLINKS);
        let found = rustix::fs::openat2(&broker.root, path, flags, Mode::empty(), resolve).ok()?;
        broker.path_of(found.as_fd()).ok()
    }

    /// Whether Landlock lets the target make and remove the name `path`, and the policy does, too.
    /// `proven` says that there is no link on the way to it.
    pub(super) fn held_name(&self, path: &[u8], proven: bool) -> bool {
        let directory = parent(path);
        self.broker.kernel_holds(Access::Write, directory)
            && self.broker.decide_change(path).is_allowed()
            && (proven || self.stands(directory, OFlags::DIRECTORY).is_ok())
    }

    /// Lets the kernel make a directory, or remove a name, that it holds anyway.
    pub(super) fn held_names(&self, dirfd: i32, text: &[u8]) -> Option<Answer> {
        // What ends so is no name, and has errors of its own.
        let last = text.rsplit(|&byte| byte == b'/').next();
        if matches!(last, None | Some(b"" | b"."))
            || goes_up(text)
            || !self.worth_a_look(Access::Write, text)
        {
            return None;
        }
        let path = normalize(b"/", &self.absolute(dirfd, text)?);
        self.held_name(&path, is_name(text)).then_some(Answer::Continue)
    }

    /// Whether the kernel can be expected to hold `access` to the path: looking up what a relative one
    /// starts from costs a system call, which is lost where it grants nothing near the start directory.
    pub(super) fn worth_a_look(&self, access: Access, text: &[u8]) -> bool {
        let broker = self.broker;
        match access {
            Access::Read if !broker.reads => true,
            Access::Read => broker.kernel_read.is_of_use(text.first() != Some(&b'/')),
            Access::Write => broker.kernel_write.is_of_use(text.first() != Some(&b'/')),
        }
    }
}

/// Whether `path` is a name in the directory that it starts from: the kernel said where that directory
/// is, so only the name itself can be a link.
pub(super) fn is_name(path: &[u8]) -> bool {
    !path.contains(&b'/') && path != b".."
}
