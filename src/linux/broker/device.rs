//! Devices: what is more than its name says, and what descriptors of it may do.

use super::open::Request;
use super::pool;
use super::report::Refusal;
use super::resolve::{Object, file_type};
use super::task::Task;
use super::{Answer, Errno};
use crate::linux::landlock;
use crate::linux::sys::{restrict_self, terminal};
use crate::policy::{Access, Pattern, Rule, Verdict};
use rustix::fs::{FileType, OFlags, Stat, major, minor};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

impl Task<'_> {
    /// What refuses to open the object for what it is, a disk or a terminal of somebody else, although the rules about its
    /// name would not.
    pub(super) fn guarded_device<'a>(
        &self,
        request: &'a Request,
        object: &Object,
        path: &'a [u8],
    ) -> Result<Option<Refusal<'a>>, Errno> {
        let broker = self.broker;
        if broker.reads
            && request.wants().contains(&Access::Read)
            && file_type(&rustix::fs::fstat(&object.fd)?) == FileType::BlockDevice
            && !names(&broker.decide(Access::Read, path), path)
        {
            let refusal = Refusal::new(Access::Read, path, &request.path, None);
            let why =
                "a disk shows every file: only an entry in allowRead with its own path opens it";
            return Ok(Some(refusal.because(why)));
        }
        let is_foreign = || match self.controlling_terminal(&rustix::fs::fstat(&object.fd)?)? {
            Some(terminal) => self.is_taken_terminal(&terminal),
            None => self.is_foreign_terminal(object),
        };
        if request.writes() && is_foreign()? {
            let refusal = Refusal::new(Access::Write, path, &request.path, None);
            return Ok(Some(refusal.because("the run did not make this terminal")));
        }
        Ok(None)
    }

    /// Whether the object is a device that may be read, and not written: ioctl(2) changes it, or makes something by it,
    /// whichever way it was opened.
    pub(super) fn is_to_look_at(
        &self,
        request: &Request,
        object: &Object,
        stat: &Stat,
    ) -> Result<bool, Errno> {
        let given = (stat.st_dev, stat.st_ino, Access::Write);
        // Without the right of Landlock's, what is asked of a device is held when it is asked.
        let held = self.broker.options.devices || self.broker.inherited.contains(&given);
        if !is_device(stat) || request.writes() || held {
            return Ok(false);
        }
        let verdict = self.decide(Access::Write, object.named()?);
        Ok(!verdict.is_allowed()
            || self.is_closed_control(object.fd.as_fd(), &verdict)
            || self.is_foreign_terminal(object)?)
    }

    /// Opens a device so that the descriptor does not control it. What a descriptor may do goes by the domain that it was
    /// opened in: so by one around a thread that does nothing else. Nobody interrupts that one, so it waits for nothing.
    pub(super) fn open_without_control(
        &self,
        object: &Object,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let (broker, fd) = (self.broker, object.fd.as_fd());
        let open = move || {
            let ruleset = landlock::no_device_control().map_err(|_| Errno::ACCESS)?;
            if let Some(ruleset) = ruleset {
                restrict_self(ruleset.as_fd())?;
            }
            broker.reopen(fd, flags | OFlags::NONBLOCK)
        };
        let file = thread::scope(|scope| {
            let opens = thread::Builder::new().stack_size(pool::STACK).spawn_scoped(scope, open);
            opens.map_err(|_| Errno::AGAIN)?.join().unwrap_or(Err(Errno::IO))
        })?;
        rustix::fs::fcntl_setfl(&file, flags)?;
        Ok(file)
    }

    /// ioctl(2) that sets something of a terminal, where Landlock holds no requests on devices (before Linux 6.10). Of
    /// one that may not be written nothing is set, whichever way it was opened.
    pub(super) fn set_terminal(&self, request: u32) -> Result<Answer, Errno> {
        let mut memory = vec![0; terminal::argument_size(request)?];
        let copy = self.own_copy()?;
        let number = terminal::number(copy.as_fd()).map_err(|_| Errno::NOTTY)?;
        if !memory.is_empty() && self.read(self.call.arg(2), &mut memory)? < memory.len() {
            return Err(Errno::FAULT);
        }
        if !self.may_set(&copy, number)? {
            return Err(Errno::ACCESS);
        }
        self.still_waits()?;
        if !matches!(request, terminal::TIOCSWINSZ | terminal::TIOCEXCL | terminal::TIOCNXCL) {
            self.check_foreground(number)?;
        }
        // Some wait until everything is written.
        let _place = self.broker.pool.place_to_wait(self.helped).map_err(|_| Errno::AGAIN)?;
        Ok(terminal::set(copy.as_fd(), request, self.call.arg(2), &memory).into())
    }

    /// Whether the task may set what terminal `number` is like, which `copy` is open on.
    fn may_set(&self, copy: &OwnedFd, number: u32) -> Result<bool, Errno> {
        if terminal::is_master(copy.as_fd()) {
            return Ok(true);
        }
        let stat = rustix::fs::fstat(copy)?;
        let terminal = match (major(stat.st_rdev), minor(stat.st_rdev)) {
            // /dev/tty.
            (5, 0) => self.terminal_at(number)?,
            _ => {
                let path = self.broker.path_of(copy.as_fd())?;
                Object { fd: copy.try_clone().map_err(|_| Errno::MFILE)?, path }
            }
        };
        let stat = rustix::fs::fstat(&terminal.fd)?;
        if self.broker.inherited.contains(&(stat.st_dev, stat.st_ino, Access::Write)) {
            return Ok(true);
        }
        let verdict = self.decide(Access::Write, terminal.named()?);
        if !verdict.is_allowed() || self.is_closed_control(terminal.fd.as_fd(), &verdict) {
            return Ok(false);
        }
        // Who is in its session need not descend from who made it.
        Ok(!self.is_foreign_terminal(&terminal)?
            || self.session(self.tid())?.terminal == number
                && !self.is_taken_terminal(&terminal)?)
    }
}

/// Whether this is a device, whose descriptors take requests of its driver's.
pub(super) fn is_device(stat: &Stat) -> bool {
    matches!(file_type(stat), FileType::CharacterDevice | FileType::BlockDevice)
}

/// Whether the verdict comes from a rule about exactly this path.
fn names(verdict: &Verdict<'_>, path: &[u8]) -> bool {
    let names = |rule: &Rule| matches!(&rule.pattern, Pattern::Subtree(p) if p.as_bytes() == path);
    verdict.rule().is_some_and(names)
}
