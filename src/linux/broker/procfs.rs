//! What depends on who asks: processes in procfs, the controlling terminal, calls on other processes.
//!
//! The kernel judges these by the caller. When the broker opens for the target, it has to judge as the
//! kernel would: a process of the run may look at the others of the run, and at what is public of those
//! outside.

use super::resolve::{Object, belongs_to};
use super::task::{Task, status_of};
use super::{Answer, Errno};
use crate::linux::sys::terminal;
use crate::policy::Access;
use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor};
use std::os::fd::AsFd;

/// Files of a process that procfs shows to everybody, proc(5).
const PUBLIC: [&[u8]; 7] =
    [b"cgroup", b"cmdline", b"comm", b"limits", b"stat", b"statm", b"status"];
/// Most ancestors that are looked at for the run's own process; pid numbers end the chain before.
const MAX_DEPTH: usize = 4096;
/// How often it is looked for them, while some end.
const MAX_TRIES: usize = 16;

impl Task<'_> {
    /// Whether the object is what procfs keeps of a process for those who may inspect it, and the task
    /// may not. Where procfs is mounted anywhere but at `/proc`, the path does not tell whose it is, so
    /// it may not at all.
    ///
    /// # Errors
    ///
    /// `ESRCH` when the task is gone.
    pub fn shows_another_process(&self, object: &Object, stat: &Stat) -> Result<bool, Errno> {
        if !self.broker.shows_procfs(object.fd.as_fd(), stat)? {
            return Ok(false);
        }
        let Some(rest) = object.path.strip_prefix(b"/proc/") else {
            return Ok(object.path != b"/proc");
        };
        if !rest.first().is_some_and(u8::is_ascii_digit) || belongs_to(self, &object.path)? {
            return Ok(false);
        }
        let parts: Vec<&[u8]> = rest.split(|&byte| byte == b'/').collect();
        let public = match parts[..] {
            [_] | [_, b"task"] | [_, b"task", _] => true,
            [_, name] | [_, b"task", _, name] => PUBLIC.contains(&name),
            _ => false,
        };
        let pid = std::str::from_utf8(parts[0]).ok().and_then(|pid| pid.parse().ok());
        let known = pid.is_some_and(|pid| self.is_known_process(pid));
        Ok(!public && !known)
    }

    /// Whether process `pid` is of the run, and the task may do with it what one process of a user may
    /// do with another: who gave up the run's user may not, and no guest, whose domain the kernel would not
    /// let either.
    pub(super) fn is_known_process(&self, pid: i32) -> bool {
        !self.broker.identity_changed() && !self.broker.guest && self.is_of_the_run(pid)
    }

    /// Whether process or thread `id` was started in this run: every one descends from the launcher, to which orphans
    /// come, or is in the pid namespace that it is the first of; and has the program's filter, which is inherited and
    /// never removed. Helpers of ours lack that, and so do the children that the launcher's process had before.
    /// Two of the helpers share the launcher's memory: of those, the kernel shows the broker whatever it asks for.
    pub(super) fn is_of_the_run(&self, id: i32) -> bool {
        let launcher = std::process::id() as i32;
        // An ancestor that ends meanwhile leaves its children to another one.
        for _ in 0..MAX_TRIES {
            let Ok(mut status) = status_of(&self.broker.proc, id) else { return false };
            let filters = status.filters;
            for _ in 0..MAX_DEPTH {
                if status.tgid == launcher {
                    return filters > status.filters;
                }
                let next = if launcher == 1 { launcher } else { status.ppid };
                if next == 0 {
                    return false;
                }
                let Ok(parent) = status_of(&self.broker.proc, next) else { break };
                status = parent;
            }
        }
        false
    }

    /// Whether the object is a pseudoterminal that the built-in rule allows and the run did not make.
    ///
    /// A terminal is the run's own if the task, or a process of the run that it descends from, holds
    /// its master, see pty(7).
    ///
    /// # Errors
    ///
    /// `ESRCH` when the task is gone.
    pub(super) fn is_foreign_terminal(&self, object: &Object) -> Result<bool, Errno> {
        self.is_foreign_to(self.tid(), object)
    }

    /// The same of the controlling terminal of the task, which is its session's. Who opens a terminal for reading, and
    /// has none, has it for a controlling terminal from then on.
    pub(super) fn is_taken_terminal(&self, terminal: &Object) -> Result<bool, Errno> {
        let stat = rustix::fs::fstat(&terminal.fd)?;
        if self.broker.inherited.contains(&(stat.st_dev, stat.st_ino, Access::Write)) {
            return Ok(false);
        }
        let verdict = self.broker.decide(Access::Write, &terminal.path);
        let Session { leader, .. } = self.session(self.tid())?;
        Ok(!verdict.is_allowed() || leader == 0 || self.is_foreign_to(leader, terminal)?)
    }

    fn is_foreign_to(&self, process: i32, object: &Object) -> Result<bool, Errno> {
        let prefix = [crate::plan::TERMINALS.as_bytes(), b"/"].concat();
        let number = object.path.strip_prefix(prefix.as_slice());
        let number = number.and_then(|n| std::str::from_utf8(n).ok()).and_then(|n| n.parse().ok());
        let Some(number) = number else { return Ok(false) };
        let verdict = self.broker.decide(Access::Write, &object.path);
        if !verdict.rule().is_some_and(|rule| rule.origin.is_built_in()) {
            return Ok(false);
        }
        let launcher = std::process::id() as i32;
        let mut next = process;
        for _ in 0..MAX_DEPTH {
            let status = status_of(&self.broker.proc, next)?;
            if status.tgid == launcher || status.ppid <= 1 {
                break;
            }
            if self.holds_master(status.tgid, number) {
                return Ok(false);
            }
            next = status.ppid;
        }
        Ok(true)
    }

    /// Whether process `pid` has the master of pseudoterminal `number` open, by its fdinfo files.
    fn holds_master(&self, pid: i32, number: u32) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open =
            |name: String, flags| rustix::fs::openat(&self.broker.proc, name, flags, Mode::empty());
        let Ok(directory) = open(format!("{pid}/fd"), flags | OFlags::DIRECTORY) else {
            return false;
        };
        let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return false };
        let wanted = format!("tty-index:\t{number}\n");
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let is_master = rustix::fs::readlinkat(&directory, name, Vec::new())
                .is_ok_and(|link| link.as_bytes().ends_with(b"ptmx"));
            if !is_master {
                return false;
            }
            let Ok(file) = open(format!("{pid}/fdinfo/{}", name.to_string_lossy()), flags) else {
                return false;
            };
            let mut text = [0; 1024];
            let length = rustix::io::read(&file, &mut text).unwrap_or(0);
            String::from_utf8_lossy(&text[..length]).contains(&wanted)
        })
    }

    /// ioctl(2).
    pub(super) fn request(&self) -> Result<Answer, Errno> {
        match self.call.arg(1) as u32 {
            terminal::TIOCGPTPEER => self.open_peer(),
            request if request == libc::FIOASYNC as u32 => self.set_async(),
            request => self.set_terminal(request),
        }
    }

    /// `TIOCGPTPEER`: who has the master may open the terminal.
    fn open_peer(&self) -> Result<Answer, Errno> {
        let flags = self.int(2);
        let master = self.own_copy()?;
        self.may_act()?;
        let ours = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
        let terminal = terminal::terminal_of(master.as_fd(), ours)?;
        Ok(Answer::Descriptor(terminal, flags & libc::O_CLOEXEC != 0))
    }

    /// A call that changes how process `id`, a register argument, is scheduled or limited.
    pub(super) fn adjust_process(&self, id: i32) -> Result<Answer, Errno> {
        if id == self.tid() || self.is_of_the_run(id) {
            return Ok(Answer::Continue);
        }
        self.still_waits()?;
        Err(Errno::PERM)
    }

    /// The task's own terminal, if the object is the device `/dev/tty` and means another one to the broker.
    ///
    /// # Errors
    ///
    /// `ENXIO` when the task has none.
    pub(super) fn controlling_terminal(&self, stat: &Stat) -> Result<Option<Object>, Errno> {
        let is_tty = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && (major(stat.st_rdev), minor(stat.st_rdev)) == (5, 0);
        if !is_tty {
            return Ok(None);
        }
        let number = self.session(self.tid())?.terminal;
        self.still_waits()?;
        if number != 0 && self.session(std::process::id() as i32)?.terminal == number {
            return Ok(None);
        }
        self.terminal_at(number).map(Some)
    }

    /// The terminal with this number, which is laid out as in proc_pid_stat(5).
    ///
    /// # Errors
    ///
    /// `ENXIO` where nobody knows its path.
    pub(super) fn terminal_at(&self, number: u32) -> Result<Object, Errno> {
        // See admin-guide/devices.txt of the kernel.
        let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00);
        let path = match major {
            0 => return Err(Errno::NXIO),
            136..=143 => format!("/dev/pts/{}", minor + (major - 136) * 256),
            4 if minor < 64 => format!("/dev/tty{minor}"),
            4 => format!("/dev/ttyS{}", minor - 64),
            _ => return Err(Errno::NXIO),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Object { fd, path: path.into_bytes() })
    }

    /// The session of thread `id`.
    pub(super) fn session(&self, id: i32) -> Result<Session, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.broker.proc, format!("{id}/stat"), flags, Mode::empty())?;
        let mut buffer = [0; 1024];
        let length = rustix::io::read(&file, &mut buffer)?;
        // The second field is the command in parentheses, and may contain anything.
        let text = String::from_utf8_lossy(&buffer[..length]);
        let after = text.rsplit_once(')').map_or("", |(_, after)| after);
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at - 3).and_then(|field| field.parse::<i64>().ok());
        let field = |at| number(at).unwrap_or(0);
        Ok(Session {
            parent: field(4) as i32,
            group: field(5) as i32,
            leader: field(6) as i32,
            terminal: field(7) as u32,
            foreground: field(8) as i32,
            start: field(22),
        })
    }
}

/// What proc_pid_stat(5) says of a process and its session.
pub(super) struct Session {
    /// Its parent.
    pub(super) parent: i32,
    /// Its process group; 0 for one that is not seen.
    pub(super) group: i32,
    /// The first process of its session; 0 for one that is not seen.
    pub(super) leader: i32,
    /// `tty_nr`: its terminal; 0 for none.
    pub(super) terminal: u32,
    /// The group that is in the foreground of that; -1 for none.
    pub(super) foreground: i32,
    /// When it started, in clock ticks.
    pub(super) start: i64,
}
