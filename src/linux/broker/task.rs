//! The task that a notification came from: its memory, its directories, its identity.

use super::Broker;
use super::grants::Pass;
use super::query::Question;
use super::terms::Terms;
use crate::linux::sys::identity::{self, Identity};
use crate::linux::sys::{Errno, seccomp::Notification};
use rustix::fs::{Mode, OFlags};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

/// One notified system call and the task that waits in it.
pub struct Task<'a> {
    /// The broker that answers.
    pub broker: &'a Broker,
    /// The notification.
    pub call: Notification,
    /// The task may be in a Landlock domain that we do not know.
    pub nested: Cell<bool>,
    /// What answers to queries allowed for this call.
    pub passes: RefCell<Vec<Pass>>,
    /// The question whose answer has it done over.
    pub answered: Cell<Option<Question>>,
    /// What this run of it goes by.
    pub(super) terms: Terms,
    /// It is served by a thread that receives no calls, and does nothing else.
    pub(super) helped: bool,
}

/// What `/proc/TID/status` says of a task, see proc_pid_status(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Thread group id.
    pub tgid: i32,
    /// Real, effective, saved and file-system user id.
    pub uids: [u32; 4],
    /// The same of the group.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities.
    pub capabilities: u64,
    /// Parent process id.
    pub ppid: i32,
    /// File mode creation mask.
    pub umask: u32,
    /// Number of seccomp filters.
    pub filters: u32,
    /// Number of threads of the process.
    pub threads: u32,
    /// Signals that are pending for this thread, neither blocked nor ignored.
    pub own_signals: u64,
    /// The same, of the whole process: any thread of it may take them.
    pub shared_signals: u64,
    /// Signals that this thread blocks.
    pub blocked: u64,
    /// Signals that the process ignores.
    pub ignored: u64,
    /// It sleeps, and a signal would wake it.
    pub sleeps: bool,
    /// Somebody traces it.
    pub traced: bool,
}

const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

thread_local! {
    /// The procfs directory of the last task that this thread looked at.
    static LAST: RefCell<Option<(i32, OwnedFd)>> = const { RefCell::new(None) };
    /// The mask in force on this thread, which has a file-system context of its own.
    static UMASK: Cell<u32> = const { Cell::new(u32::MAX) };
    /// Whether this thread now acts as somebody else than the broker.
    static DISGUISED: Cell<bool> = const { Cell::new(false) };
}

impl<'a> Task<'a> {
    /// A call that was received just now.
    pub fn new(broker: &'a Broker, call: Notification) -> Task<'a> {
        Task {
            broker,
            call,
            nested: Cell::new(false),
            passes: RefCell::default(),
            answered: Cell::default(),
            terms: Terms::default(),
            helped: false,
        }
    }

    /// A call that an answer has done over: `passes` are what was allowed, `answered` the last question.
    pub fn again(
        broker: &'a Broker,
        call: Notification,
        passes: Vec<Pass>,
        answered: Question,
    ) -> Task<'a> {
        Task {
            passes: RefCell::new(passes),
            answered: Cell::new(Some(answered)),
            helped: true,
            ..Task::new(broker, call)
        }
    }

    /// Thread id.
    pub fn tid(&self) -> i32 {
        self.call.tid()
    }

    /// Register argument as `int`.
    pub fn int(&self, index: usize) -> i32 {
        self.call.arg(index) as i32
    }

    /// Checks that the task still waits: what was read before this is its own then, and not that of
    /// a later process with the same number.
    ///
    /// # Errors
    ///
    /// `ESRCH` when it does not.
    pub fn still_waits(&self) -> Result<(), Errno> {
        if self.broker.still_valid(self.call.id()) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// The path argument `index`.
    ///
    /// # Errors
    ///
    /// `EFAULT` and `ENAMETOOLONG` as the kernel has them.
    pub fn path(&self, index: usize) -> Result<Vec<u8>, Errno> {
        const PATH_MAX: usize = 4096;
        let mut out = Vec::with_capacity(256);
        self.read_string(self.call.arg(index), PATH_MAX - 1, &mut out)?;
        Ok(out)
    }

    /// Does `work` on the task's directory in procfs.
    ///
    /// The directory of the last task is kept. It belongs to the task and not to its number: once the
    /// task is gone, nothing is found in it, even if another one has the number.
    fn in_proc<T>(&self, work: impl Fn(&OwnedFd) -> Result<T, Errno>) -> Result<T, Errno> {
        LAST.with_borrow_mut(|last| {
            if let Some((tid, directory)) = last
                && *tid == self.tid()
            {
                match work(directory) {
                    Err(Errno::NOENT | Errno::SRCH) => {}
                    result => return result,
                }
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let name = self.tid().to_string();
            let directory = rustix::fs::openat(&self.broker.proc, name, flags, Mode::empty())?;
            let result = work(&directory);
            *last = Some((self.tid(), directory));
            result
        })
    }

    /// The path of the task's working directory for `AT_FDCWD`, or of what its descriptor `fd` refers to,
    /// as it was a moment ago.
    ///
    /// # Errors
    ///
    /// `ENOENT` when the task is gone, or has no such descriptor.
    pub fn directory_path(&self, fd: i32) -> Result<Vec<u8>, Errno> {
        let read = |name: &str| {
            let buffer = || Vec::with_capacity(256);
            self.in_proc(|directory| rustix::fs::readlinkat(directory, name, buffer()))
        };
        let path = if fd == libc::AT_FDCWD { read("cwd") } else { read(&format!("fd/{fd}")) };
        path.map(std::ffi::CString::into_bytes)
    }

    /// The object that descriptor `fd` of the task refers to, or its working directory for `AT_FDCWD`.
    ///
    /// # Errors
    ///
    /// `EBADF` for a descriptor that is not open.
    pub fn descriptor(&self, fd: i32) -> Result<OwnedFd, Errno> {
        let open = |name: &str| self.in_proc(|d| rustix::fs::openat(d, name, FIND, Mode::empty()));
        if fd == libc::AT_FDCWD {
            return open("cwd");
        }
        if fd < 0 {
            return Err(Errno::BADF);
        }
        open(&format!("fd/{fd}")).map_err(|errno| match errno {
            Errno::NOENT => Errno::BADF,
            other => other,
        })
    }

    /// Whether descriptor `fd` of the task is only a place, opened with `O_PATH`.
    ///
    /// # Errors
    ///
    /// `EBADF` for a descriptor that is not open.
    pub fn is_place(&self, fd: i32) -> Result<bool, Errno> {
        Ok(self.flags_of(fd)? & libc::O_PATH as u32 != 0)
    }

    /// The flags of descriptor `fd` of the task, as open(2) has them, `O_CLOEXEC` included; all of them
    /// where procfs does not say.
    ///
    /// # Errors
    ///
    /// `EBADF` for a descriptor that is not open.
    pub fn flags_of(&self, fd: i32) -> Result<u32, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let name = format!("{}/fdinfo/{fd}", self.tid());
        let file = rustix::fs::openat(&self.broker.proc, name, flags, Mode::empty())
            .map_err(|errno| if errno == Errno::NOENT { Errno::BADF } else { errno })?;
        let mut text = [0; 128];
        let length = rustix::io::read(&file, &mut text)?;
        // "flags:\t0100002", octal, see proc_pid_fdinfo(5).
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        let word = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = word.and_then(|word| u32::from_str_radix(word.trim(), 8).ok());
        Ok(flags.unwrap_or(u32::MAX))
    }

    /// Reads the task's status file.
    ///
    /// # Errors
    ///
    /// `ESRCH` when the task is gone.
    pub fn status(&self) -> Result<Status, Errno> {
        status_of(&self.broker.proc, self.tid())
    }

    /// Makes this thread create files with the task's mask.
    ///
    /// # Errors
    ///
    /// `ESRCH` when the task is gone.
    pub fn assume_umask(&self) -> Result<(), Errno> {
        let mask =
            if self.broker.umask_changed() { self.status()?.umask } else { self.broker.umask };
        UMASK.with(|now| {
            if now.get() != mask {
                rustix::process::umask(Mode::from_raw_mode(mask));
                now.set(mask);
            }
        });
        Ok(())
    }

    /// Makes this thread act with the task's user, groups and capabilities, when they can differ from
    /// the run's at all.
    ///
    /// # Errors
    ///
    /// `EPERM` when the identity cannot be taken on: then nothing may be done for the task.
    pub fn assume_identity(&self) -> Result<(), Errno> {
        if !self.broker.identity_changed() {
            return Ok(());
        }
        let status = self.status()?;
        self.still_waits()?;
        DISGUISED.set(true);
        let broker = self.broker;
        // Who is half one user and half another can be looked at with CAP_SYS_PTRACE only.
        let whole = |ids: [u32; 4], own| if ids[..3] == [ids[0]; 3] { ids[0] } else { own };
        identity::set_identity(Identity {
            uid: whole(status.uids, broker.uid),
            gid: whole(status.gids, broker.gid),
            fs_uid: status.uids[3],
            fs_gid: status.gids[3],
            groups: &status.groups,
        })?;
        let keep = broker.own_capabilities;
        identity::set_capabilities(status.capabilities & keep | keep & ALWAYS, keep)
    }

    /// Checks that the broker may do for the task what Landlock covers. A task in a domain of its own
    /// is held by that, too: then only the kernel may act, where this run's domain lets it.
    ///
    /// # Errors
    ///
    /// `EACCES`.
    pub fn may_act(&self) -> Result<(), Errno> {
        if self.nested.get() { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Undoes [`Task::assume_identity`].
    pub fn drop_identity(&self) {
        if !DISGUISED.replace(false) {
            return;
        }
        let broker = self.broker;
        let restored = identity::set_capabilities(broker.own_capabilities, broker.own_capabilities)
            .and_then(|()| identity::set_identity(broker.own_identity()))
            .and_then(|()| {
                identity::set_capabilities(broker.own_capabilities, broker.own_capabilities)
            });
        if restored.is_err() {
            // A worker with a wrong identity must not serve anybody.
            std::process::abort();
        }
    }
}

/// Capabilities that have no say over files and that a worker needs to find its way back:
/// CAP_SETGID, CAP_SETUID, CAP_SYS_PTRACE.
pub const ALWAYS: u64 = 1 << 6 | 1 << 7 | 1 << 19;

/// Reads the status file of task `tid` below `proc`.
///
/// # Errors
///
/// `ESRCH` when the task is gone.
pub fn status_of(proc: &OwnedFd, tid: i32) -> Result<Status, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, format!("{tid}/status"), flags, Mode::empty()).map_err(
        |errno| {
            if errno == Errno::NOENT { Errno::SRCH } else { errno }
        },
    )?;
    let mut buffer = vec![0u8; 16 * 1024];
    let mut length = 0;
    loop {
        let got = rustix::io::read(&file, &mut buffer[length..])?;
        length += got;
        if got == 0 || length == buffer.len() {
            break;
        }
    }
    Ok(parse_status(&buffer[..length]))
}

fn ids<'a>(mut words: impl Iterator<Item = &'a str>) -> [u32; 4] {
    [(); 4].map(|()| words.next().and_then(|word| word.parse().ok()).unwrap_or(u32::MAX))
}

fn parse_status(text: &[u8]) -> Status {
    let mut status = Status::default();
    let (mut pending, mut shared) = (0u64, 0u64);
    for line in text.split(|&byte| byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let mut words = value.split_ascii_whitespace();
        let hex = || u64::from_str_radix(value.trim(), 16).unwrap_or(0);
        match key {
            "PPid" => status.ppid = words.next().and_then(|w| w.parse().ok()).unwrap_or(0),
            "Tgid" => status.tgid = words.next().and_then(|w| w.parse().ok()).unwrap_or(0),
            "Uid" => status.uids = ids(words),
            "Gid" => status.gids = ids(words),
            "Groups" => status.groups = words.filter_map(|w| w.parse().ok()).collect(),
            "Umask" => status.umask = u32::from_str_radix(value.trim(), 8).unwrap_or(0o777),
            "CapEff" => status.capabilities = hex(),
            "Seccomp_filters" => {
                status.filters = words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
            }
            "Threads" => status.threads = words.next().and_then(|w| w.parse().ok()).unwrap_or(0),
            "State" => status.sleeps = words.next() == Some("S"),
            "TracerPid" => status.traced = words.next() != Some("0"),
            "SigPnd" => pending = hex(),
            "ShdPnd" => shared = hex(),
            "SigBlk" => status.blocked = hex(),
            "SigIgn" => status.ignored = hex(),
            _ => {}
        }
    }
    let deliverable = !status.blocked & !status.ignored;
    status.own_signals = pending & deliverable;
    status.shared_signals = shared & deliverable;
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_by_name() {
        let text = b"Name:\tsh\nState:\tS (sleeping)\nUmask:\t0027\nTgid:\t12\nPid:\t13\nPPid:\t11\nTracerPid:\t0\nThreads:\t2\nUid:\t0\t0\t0\t65534\nGid:\t1\t2\t3\t4\n\
            Groups:\t4 24 27 \nSigPnd:\t0000000000000002\nShdPnd:\t0000000000000300\n\
            SigBlk:\t0000000000000200\nSigIgn:\t0000000000001000\nCapEff:\t00000000a80425fb\n\
            Seccomp:\t2\nSeccomp_filters:\t3\n";
        assert_eq!(
            parse_status(text),
            Status {
                tgid: 12,
                ppid: 11,
                uids: [0, 0, 0, 65534],
                gids: [1, 2, 3, 4],
                groups: vec![4, 24, 27],
                capabilities: 0xa804_25fb,
                umask: 0o27,
                filters: 3,
                threads: 2,
                own_signals: 2,
                shared_signals: 0x100,
                blocked: 0x200,
                ignored: 0x1000,
                sleeps: true,
                traced: false,
            }
        );
    }
}
