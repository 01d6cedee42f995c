//! Signals, where no scope of Landlock's keeps them inside (before Linux 6.12).
//!
//! A number can be that of another process by the time that the kernel looks. So a call goes on by itself to the
//! caller's own process alone, which lives for as long as its call waits. To any other one the signal is sent here,
//! by a descriptor: a process that is there when it is sent was the one with that number when it was decided on.
//! Who gets it sees the launcher's number as the sender's, unless the sender says one with the signal.

use super::due::ERESTARTSYS;
use super::procfs::Session;
use super::task::{Task, status_of};
use super::{Answer, Errno};
use crate::linux::sys::{signals, terminal};
use rustix::fs::{Dir, Mode, OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

/// The largest number of a signal.
const LAST: i32 = 64;
/// How often the members of a group are looked for.
const ROUNDS: usize = 256;
/// Where `si_code` is in a `siginfo_t`, behind the signal and an error.
const CODE: std::ops::Range<usize> = 8..12;
/// `si_code` of tkill(2).
const SI_TKILL: i32 = -6;

/// Whom a signal is for that is not for one process.
#[derive(Clone, Copy)]
enum Many {
    /// The processes of this group.
    Group(i32),
    /// All but the caller's.
    All,
}

impl Task<'_> {
    /// kill(2).
    pub(super) fn kill(&self) -> Result<Answer, Errno> {
        let (id, signal) = (self.int(0), self.int(1));
        match id {
            -1 => self.signal_many(Many::All, signal),
            0 => self.signal_many(Many::Group(self.session(self.tid())?.group), signal),
            ..0 => match id.checked_neg() {
                Some(group) => self.signal_many(Many::Group(group), signal),
                None => Err(Errno::SRCH),
            },
            _ if self.is_own(id)? => Ok(Answer::Continue),
            _ => self.signal_process(id, signal, None),
        }
    }

    /// tkill(2), or tgkill(2) for a thread of process `tgid`.
    pub(super) fn signal_thread(&self, tgid: Option<i32>, tid: i32) -> Result<Answer, Errno> {
        let signal = self.int(if tgid.is_some() { 2 } else { 1 });
        if tid <= 0 || tgid.is_some_and(|tgid| tgid <= 0) {
            return Err(Errno::INVAL);
        }
        if tgid.map_or(Ok(tid == self.tid()), |tgid| self.is_own(tgid))? {
            return Ok(Answer::Continue);
        }
        let found = status_of(&self.broker.proc, tid)?.tgid;
        if tgid.is_some_and(|tgid| tgid != found) {
            return Err(Errno::SRCH);
        }
        if tid == found && found != self.own_process()? {
            return self.signal_process(tid, signal, None);
        }
        // Whose thread has the number in the next moment, no descriptor tells before Linux 6.9.
        self.signalled(found, signal)?;
        self.still_waits()?;
        Ok(signals::send_to_thread(found, tid, signal).into())
    }

    /// rt_sigqueueinfo(2).
    pub(super) fn queue_signal(&self) -> Result<Answer, Errno> {
        let (id, signal) = (self.int(0), self.int(1));
        if self.is_own(id)? {
            return Ok(Answer::Continue);
        }
        let info = self.info(2, signal)?;
        self.signal_process(id, signal, Some(info))
    }

    /// rt_tgsigqueueinfo(2): to the caller's own threads.
    pub(super) fn queue_thread_signal(&self) -> Result<Answer, Errno> {
        if self.is_own(self.int(0))? { Ok(Answer::Continue) } else { Err(Errno::PERM) }
    }

    /// pidfd_send_signal(2).
    pub(super) fn signal_descriptor(&self) -> Result<Answer, Errno> {
        let signal = self.int(1);
        let info = if self.call.arg(2) == 0 { None } else { Some(self.info(2, signal)?) };
        let process = self.own_copy()?;
        if self.int(3) != 0 {
            return Err(Errno::INVAL);
        }
        let id = self.process_of(&process)?;
        if !self.is_of_the_run(id) {
            return Err(refused(signal));
        }
        Ok(signals::send(process.as_fd(), signal, info.as_ref()).into())
    }

    /// fcntl(2) that says to whom a file sends signals, or that it does.
    pub(super) fn own_file(&self) -> Result<Answer, Errno> {
        if self.int(1) == libc::F_SETOWN {
            let owner = self.int(2);
            return if owner == 0 || owner == self.own_process()? {
                Ok(Answer::Continue)
            } else {
                Err(Errno::PERM)
            };
        }
        let file = self.own_copy()?;
        owned_by_nobody(&file)?;
        let flags = OFlags::from_bits_retain(self.call.arg(2) as u32);
        Ok(fcntl_setfl(&file, flags).into())
    }

    /// The same by ioctl(2).
    pub(super) fn set_async(&self) -> Result<Answer, Errno> {
        let on = i32::from_ne_bytes(self.read_array(self.call.arg(2))?) != 0;
        // It sees to it that the task still waits.
        let file = self.own_copy()?;
        if on {
            owned_by_nobody(&file)?;
        }
        Ok(terminal::set_async(file.as_fd(), on).into())
    }

    /// What the kernel does to who sets something of its terminal in the background: it stops, and goes on with it later.
    /// `terminal` is the number of it.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when it is to stop, `EIO` when nobody would have it go on.
    pub(super) fn check_foreground(&self, terminal: u32) -> Result<(), Errno> {
        let own = self.session(self.tid())?;
        if own.terminal != terminal || own.foreground <= 0 || own.foreground == own.group {
            return Ok(());
        }
        let status = self.status()?;
        if (status.blocked | status.ignored) & 1 << (libc::SIGTTOU - 1) != 0 {
            return Ok(());
        }
        let mut members = Vec::new();
        self.each_member(Many::Group(own.group), |id, session| members.push((id, session)))?;
        let is_looked_after = members.iter().any(|(_, member)| {
            let parent = self.session(member.parent);
            parent.is_ok_and(|p| p.group != member.group && p.leader == member.leader)
        });
        if !is_looked_after {
            return Err(Errno::IO);
        }
        self.still_waits()?;
        for (id, _) in members.iter().filter(|(id, _)| *id != status.tgid) {
            let _ = self.signal_process(*id, libc::SIGTTOU, None);
        }
        signals::signal_thread(self.tid(), libc::SIGTTOU);
        Err(Errno::from_raw_os_error(ERESTARTSYS))
    }

    /// The task's process.
    fn own_process(&self) -> Result<i32, Errno> {
        let status = self.status()?;
        self.still_waits()?;
        Ok(status.tgid)
    }

    /// Whether `id` is the task's process, or the task.
    fn is_own(&self, id: i32) -> Result<bool, Errno> {
        Ok(id == self.tid() || id == self.own_process()?)
    }

    /// The `siginfo_t` in register `index`, read once, that a process may send to another one.
    fn info(&self, index: usize, signal: i32) -> Result<[u8; signals::INFO], Errno> {
        let mut info: [u8; signals::INFO] = self.read_array(self.call.arg(index))?;
        let code = i32::from_ne_bytes(info[CODE].try_into().expect("four"));
        if code >= 0 || code == SI_TKILL {
            return Err(Errno::PERM);
        }
        info[..4].copy_from_slice(&signal.to_ne_bytes());
        self.still_waits()?;
        Ok(info)
    }

    /// The process that process or thread `id` is of, if `signal` may be sent to it.
    fn signalled(&self, id: i32, signal: i32) -> Result<OwnedFd, Errno> {
        if id <= 0 {
            return Err(Errno::SRCH);
        }
        let tgid = status_of(&self.broker.proc, id)?.tgid;
        let process = pidfd_open(Pid::from_raw(tgid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        if self.is_of_the_run(tgid) { Ok(process) } else { Err(refused(signal)) }
    }

    fn signal_process(
        &self,
        id: i32,
        signal: i32,
        info: Option<[u8; signals::INFO]>,
    ) -> Result<Answer, Errno> {
        let process = self.signalled(id, signal)?;
        self.still_waits()?;
        signals::send(process.as_fd(), signal, info.as_ref()).map(|()| Answer::Value(0))
    }

    /// Sends `signal` to each process of the run among many.
    ///
    /// The kernel does so at once, and here others may fork meanwhile. Who is killed or stopped handles nothing, so
    /// that they are signalled as they are found, until there is no new one. With other signals they are all found
    /// before: what a handler starts gets none.
    fn signal_many(&self, whom: Many, signal: i32) -> Result<Answer, Errno> {
        let own = self.own_process()?;
        let at_once = matches!(signal, libc::SIGKILL | libc::SIGSTOP);
        let mut known = HashSet::new();
        let mut found = Vec::new();
        let mut results = Vec::new();
        for _ in 0..ROUNDS {
            let before = known.len();
            let all =
                self.each_member(whom, |id, session| match known.insert((id, session.start)) {
                    true if id == own => {}
                    true if at_once => results.push(self.signal_member(id, &session, signal)),
                    true => found.push((id, session)),
                    false => {}
                })?;
            // One that ended before it was looked at may have left a child that was not there to be seen yet.
            if known.len() == before && (all || !at_once) {
                break;
            }
        }
        results.extend(found.iter().map(|(id, seen)| self.signal_member(*id, seen, signal)));
        match whom {
            Many::Group(_) => {
                // The caller last: it may not live to see the others.
                if known.iter().any(|(id, _)| *id == own) {
                    results.push(self.signal_process(own, signal, None).map(drop));
                }
                let reached = results.iter().find(|result| result.is_ok()).copied();
                let last = reached.or(results.pop()).unwrap_or(Err(Errno::SRCH));
                last.map(|()| Answer::Value(0))
            }
            // There are always others; to be let at none of them is no error.
            Many::All => {
                let mut failed = results.into_iter().filter_map(Result::err);
                let failed = failed.rfind(|errno| !matches!(*errno, Errno::PERM | Errno::SRCH));
                failed.map_or(Ok(Answer::Value(0)), Err)
            }
        }
    }

    /// Sends `signal` to process `id`, if it is the one that was seen.
    fn signal_member(&self, id: i32, seen: &Session, signal: i32) -> Result<(), Errno> {
        let process = self.signalled(id, signal)?;
        let now = self.session(id)?;
        if (now.start, now.group) != (seen.start, seen.group) {
            return Err(Errno::SRCH);
        }
        signals::send(process.as_fd(), signal, None)
    }

    /// Calls `act` for each process among many, of the run or not, as it is then; whether none ended before that.
    fn each_member(&self, whom: Many, mut act: impl FnMut(i32, Session)) -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::openat(&self.broker.proc, c".", flags, Mode::empty())?;
        let mut all = true;
        for entry in Dir::new(proc)?.flatten() {
            let Some(id) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let Ok(session) = self.session(id) else {
                all = false;
                continue;
            };
            if matches!(whom, Many::All)
                || matches!(whom, Many::Group(group) if group == session.group)
            {
                act(id, session);
            }
        }
        Ok(all)
    }

    /// The process behind a pidfd of ours.
    fn process_of(&self, pidfd: &OwnedFd) -> Result<i32, Errno> {
        let name = format!("self/fdinfo/{}", super::resolve::fd_name(pidfd.as_fd()));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.broker.proc, name, flags, Mode::empty())?;
        let mut text = [0; 512];
        let length = rustix::io::read(&file, &mut text)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let line = text.lines().find_map(|line| line.strip_prefix("Pid:"));
        let id: i32 = line.and_then(|id| id.trim().parse().ok()).ok_or(Errno::BADF)?;
        // Once it was waited for, it has none.
        if id > 0 { Ok(id) } else { Err(Errno::SRCH) }
    }
}

/// What the kernel says of a signal to a process that it is not for.
fn refused(signal: i32) -> Errno {
    if (0..=LAST).contains(&signal) { Errno::PERM } else { Errno::INVAL }
}

/// Refuses terminals: one makes its foreground group the owner of who is told of it, and that can be of processes outside.
fn owned_by_nobody(file: &OwnedFd) -> Result<(), Errno> {
    if terminal::number(file.as_fd()).is_ok() { Err(Errno::PERM) } else { Ok(()) }
}
