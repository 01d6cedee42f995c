//! Calls that change who the target is, and nested Landlock domains.

use super::task::Task;
use super::{Answer, Broker};
use crate::linux::sys::Errno;
use std::sync::atomic::Ordering;

/// The file-system user of this thread.
pub fn fs_uid() -> u32 {
    crate::linux::sys::identity::fs_uid()
}

impl Task<'_> {
    /// umask(2): from the first one that differs, the mask of each creation is looked up.
    pub(super) fn umask(&self) -> Answer {
        if self.call.arg(0) as u32 & 0o777 != self.broker.umask {
            self.broker.umask_changed.store(true, Ordering::Release);
        }
        Answer::Continue
    }

    /// setuid(2) and its kin: from the first one on, each call is done with the caller's identity.
    pub(super) fn identity(&self) -> Answer {
        self.broker.identity_changed.store(true, Ordering::Release);
        Answer::Continue
    }

    /// landlock_create_ruleset(2): to a program that would confine itself, Landlock seems switched
    /// off, since a broker that acts for it would undo its domain. A task with a filter of its own
    /// (a nested run of ours) is told apart by [`Task::is_nested`], and may go on.
    pub(super) fn create_ruleset(&self) -> Result<Answer, Errno> {
        let may = self.broker.kernel_holds_reading() && self.has_own_filter()?;
        if may { Ok(Answer::Continue) } else { Err(Errno::OPNOTSUPP) }
    }

    /// landlock_restrict_self(2), see [`Task::create_ruleset`].
    pub(super) fn restrict_self(&self) -> Result<Answer, Errno> {
        if !self.broker.kernel_holds_reading() || !self.has_own_filter()? {
            return Err(Errno::OPNOTSUPP);
        }
        self.broker.nested.store(true, Ordering::Release);
        Ok(Answer::Continue)
    }

    /// Whether the task may be in a Landlock domain that we do not know: then nothing is done for it
    /// that its own domain would not allow, and the kernel decides alone.
    ///
    /// Seccomp filters are inherited and never removed, so their number tells.
    ///
    /// # Errors
    ///
    /// `ESRCH` when the task is gone.
    pub(super) fn is_nested(&self) -> Result<bool, Errno> {
        Ok(self.broker.nested.load(Ordering::Acquire) && self.has_own_filter()?)
    }

    fn has_own_filter(&self) -> Result<bool, Errno> {
        let filters = self.status()?.filters;
        self.still_waits()?;
        let ours = || super::task::status_of(&self.broker.proc, std::process::id() as i32);
        let base = match self.broker.filters.get() {
            Some(base) => *base,
            None => *self.broker.filters.get_or_init({
                let count = ours()?.filters + self.broker.own_filters;
                move || count
            }),
        };
        Ok(filters > base)
    }
}

impl Broker {
    /// Whether Landlock alone holds what may be read: otherwise the broker opens every file that is.
    pub(super) fn kernel_holds_reading(&self) -> bool {
        !self.reads || !self.kernel_read.is_empty()
    }

    /// `fs.protected_regular` and `fs.protected_fifos` of proc_sys_fs(5), as if both were on: in a
    /// sticky directory that others may write, a file of somebody else is not opened with `O_CREAT`.
    pub(super) fn sticky_file(
        &self,
        directory: std::os::fd::BorrowedFd<'_>,
        file: &rustix::fs::Stat,
    ) -> Result<(), Errno> {
        if file.st_uid == self.acting_uid() {
            return Ok(());
        }
        let parent = rustix::fs::fstat(directory)?;
        let shared = parent.st_mode & 0o1000 != 0 && parent.st_mode & 0o022 != 0;
        if shared && file.st_uid != parent.st_uid { Err(Errno::ACCESS) } else { Ok(()) }
    }
}
