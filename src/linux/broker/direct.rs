//! Opens by one system call.
//!
//! Where no link is on the way, the text of a path is the object's name, and openat2(2) can be told to
//! take no other way. So the text is decided on before anything is opened, and the open itself proves
//! that it was about the right object. What is not that simple is left to [`super::open`], which pins
//! the object first: links, `..`, devices, what procfs shows, and every error that needs care.

use super::device::is_device;
use super::open::Request;
use super::resolve::{Base, Last, Spot, file_type, goes_up, normalize, spot};
use super::task::Task;
use super::{Answer, Errno};
use crate::policy::Access;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use std::os::fd::{AsFd, OwnedFd};

const PLAIN: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

impl Task<'_> {
    /// Opens a file for the target, or makes one with `O_EXCL`; none where that takes a closer look.
    ///
    /// # Errors
    ///
    /// As openat2(2), where it finds the same error that the target would.
    pub(super) fn direct(&self, request: &Request) -> Result<Option<Answer>, Errno> {
        let broker = self.broker;
        let creates = request.flags.contains(OFlags::CREATE);
        if creates && !request.flags.contains(OFlags::EXCL)
            || !request.resolve.is_empty()
            || request.path.is_empty()
            || goes_up(&request.path)
            || !broker.linked.is_empty()
            || self.nested.get()
        {
            return Ok(None);
        }
        let base = Base::of(self, request.dirfd, &request.path, request.resolve)?;
        let path = match &base {
            Base::Root(_) => normalize(b"/", &request.path),
            base => normalize(&base.path(broker)?, &request.path),
        };
        if !self.is_plain(request, &path, creates) {
            return Ok(None);
        }
        if creates {
            self.assume_umask()?;
        }
        // A FIFO waits for its other end. Whether this is one, the open finds out itself.
        let Ok(_place) = broker.pool.place_to_wait(self.helped) else { return Ok(None) };
        let flags = request.flags | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if creates { request.mode } else { 0 });
        let opened = rustix::fs::openat2(base.as_fd(), request.path.as_slice(), flags, mode, PLAIN);
        match opened {
            // A device, or procfs where it is mounted a second time: the text did not tell.
            Ok(fd) if !creates && self.is_special(&fd, request, &path)? => Ok(None),
            Ok(fd) if creates => {
                let made = Made::By(base.into_owned(), request.path.clone());
                Ok(Some(Answer::Created(fd, request.cloexec(), made)))
            }
            Ok(fd) => Ok(Some(Answer::Descriptor(fd, request.cloexec()))),
            // Found before any link, these are what the target would find.
            Err(
                errno @ (Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::EXIST | Errno::INTR),
            ) => Err(errno),
            Err(_) => Ok(None),
        }
    }

    /// Whether there is more to decide about an object than its path says.
    fn is_special(&self, file: &OwnedFd, request: &Request, path: &[u8]) -> Result<bool, Errno> {
        let stat = rustix::fs::fstat(file)?;
        let control = || {
            request.writes() && {
                let verdict = self.broker.decide(Access::Write, path);
                self.is_closed_control(file.as_fd(), &verdict)
            }
        };
        Ok(file_type(&stat) == FileType::BlockDevice
            || is_device(&stat) && !request.writes()
            || self.broker.shows_procfs(file.as_fd(), &stat)?
            || control())
    }

    /// Whether the policy allows the open of what `path` names, and nothing but the policy has a say.
    fn is_plain(&self, request: &Request, path: &[u8], creates: bool) -> bool {
        let broker = self.broker;
        let special = |top: &[u8]| path.starts_with(top);
        if !path.starts_with(b"/") || special(b"/dev/") || special(b"/proc/") {
            return false;
        }
        let allowed = |&access: &Access| broker.decide(access, path).is_allowed();
        let held = |&access: &Access| broker.kernel_holds(access, path);
        request.wants().iter().all(allowed)
            && (!creates || broker.decide_change(path).is_allowed())
            && !((creates || request.writes()) && broker.decider.directory_name(path).is_some())
            && !(request.may_continue() && request.wants().iter().all(held))
    }
}

/// Where a file was made just now.
pub enum Made {
    /// At this name.
    At(Spot),
    /// By this path from a directory, or from the root.
    By(Option<OwnedFd>, Vec<u8>),
}

impl Made {
    /// Removes `file` again, if it still stands there.
    pub fn take_back(self, task: &Task<'_>, file: &OwnedFd) {
        let (base, path) = match self {
            Made::At(spot) => return spot.take_back(file),
            Made::By(None, path) => (Base::Root(&task.broker.root), path),
            Made::By(Some(directory), path) => (Base::Own(directory), path),
        };
        if let Ok(Last::Spot(spot)) = spot(task, base, &path, PLAIN) {
            spot.take_back(file);
        }
    }
}
