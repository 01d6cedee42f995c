//! Turning a refusal into a record.

use super::resolve::Object;
use super::task::Task;
use super::{Answer, Errno};
use crate::cli::TrapFd;
use crate::plan::controls::CLOSED;
use crate::policy::endpoint::Line;
use crate::policy::{Access, Pattern, Reason as PolicyReason, Rule, Use, Verdict};
use crate::trap::{
    self, Denial, Grant, Kind, Obstacle, Operation, Process, RuleRef, Sent, Sink, State, Style,
    Summary, errno,
};
use std::borrow::Cow;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Where the denials of one run go: as they happen to the trap descriptor, and at the end, one line
/// a distinct denial, to standard error.
#[derive(Default)]
pub struct Reporter {
    summary: Mutex<Summary>,
    stream: Option<Mutex<Sink<Stream>>>,
}

/// The trap descriptor, owned.
struct Stream(TrapFd);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Reporter {
    /// A reporter that streams to `traps`, if given.
    pub fn new(traps: Option<TrapFd>) -> Reporter {
        Reporter {
            summary: Mutex::default(),
            stream: traps.map(|fd| Mutex::new(Sink::new(Stream(fd)))),
        }
    }

    pub(super) fn record(&self, denial: &Denial) {
        let now = SystemTime::now();
        if let Some(stream) = &self.stream {
            lock(stream).send(&denial.json_line(now, State::Info, 0));
        }
        lock(&self.summary).record(denial, now);
    }

    /// Sends a line to the trap descriptor, if there is one.
    pub fn stream(&self, line: &str) {
        if let Some(stream) = &self.stream {
            lock(stream).send(line);
        }
    }

    /// Sends a query; its answer is to come with `id`.
    pub fn query(&self, denial: &Denial, id: u64) -> Sent {
        let line = denial.json_line(SystemTime::now(), State::Query, id);
        self.stream.as_ref().map_or(Sent::Closed, |stream| lock(stream).send(&line))
    }

    /// Says that query `id` needs no answer any more, and why.
    pub fn over(&self, denial: &Denial, id: u64, why: &str) {
        let denial = Denial { message: Some(why.to_owned()), ..denial.clone() };
        if let Some(stream) = &self.stream {
            lock(stream).send(&denial.json_line(SystemTime::now(), State::Info, id));
        }
    }

    /// Takes a denial into the summary alone: on the stream it was a query.
    pub fn denied(&self, denial: &Denial) {
        lock(&self.summary).record(denial, SystemTime::now());
    }

    /// Whether records wait for a slow reader of the stream.
    pub fn is_pending(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| lock(stream).is_pending())
    }

    /// Writes what waits, as far as the reader takes it.
    pub fn flush(&self) {
        if let Some(stream) = &self.stream {
            lock(stream).flush();
        }
    }

    /// Writes the summary to `out`, and gives a slow reader of the stream a moment to take the rest.
    pub fn finish(&self, out: &mut dyn Write, style: Style) {
        // Standard error may be closed; there is nobody to tell then.
        let _ = lock(&self.summary).write(out, style);
        if let Some(stream) = &self.stream {
            let deadline = Instant::now() + Duration::from_secs(2);
            let mut sink = lock(stream);
            while sink.is_pending() {
                let left = deadline.saturating_duration_since(Instant::now());
                let Some(writer) = sink.writer() else { break };
                let writable = wait_writable(&writer.0, left);
                if !writable {
                    break;
                }
                sink.flush();
            }
        }
    }
}

fn wait_writable(fd: &TrapFd, limit: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Ok(limit) = Timespec::try_from(limit) else {
        return false;
    };
    let fd = fd.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
    matches!(poll(&mut fds, Some(&limit)), Ok(1..))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry that would open an endpoint, or why none would.
pub type Advice = Result<Grant, Cow<'static, str>>;

/// A refusal of a path, before it is written down.
pub struct Refusal<'a> {
    /// What was tried.
    pub operation: Operation,
    /// The resolved path.
    pub path: &'a [u8],
    /// The path as the target wrote it.
    pub requested: &'a [u8],
    /// The flags of an open.
    pub flags: Vec<&'static str>,
    /// The rule that decided.
    pub rule: Option<&'a Rule>,
    /// Why, where it is a matter of rules.
    pub reason: Option<trap::Reason>,
    /// What the reader needs beside.
    pub message: Option<String>,
    /// The paths of a call that has two, old and new.
    pub names: Option<[&'a [u8]; 2]>,
    /// An answer to a query could allow it: the policy denies this path, and nothing else stands
    /// against the operation.
    pub askable: bool,
    /// Something stands against the operation that no entry of a policy changes; the message says what.
    pub blocked: bool,
    /// What else the operation needs and the policy denies.
    pub others: Vec<(Access, Vec<u8>)>,
    /// The path is that of a symbolic link, or will be.
    pub link: bool,
}

impl<'a> Refusal<'a> {
    /// A refusal of `access` to `path` by `rule`, a deny rule, or by default; not for what the rules say
    /// about the path itself, but for something that no entry of a policy changes.
    pub fn new(
        access: Access,
        path: &'a [u8],
        requested: &'a [u8],
        rule: Option<&'a Rule>,
    ) -> Self {
        Refusal {
            operation: match access {
                Access::Read => Operation::Read,
                Access::Write => Operation::Write,
            },
            path,
            requested,
            flags: Vec::new(),
            rule,
            reason: rule.map(|_| trap::Reason::DenyMatch),
            message: None,
            names: None,
            askable: false,
            blocked: true,
            others: Vec::new(),
            link: false,
        }
    }

    /// The refusal of an object that `rule` denies by another of its names.
    pub fn linked(access: Access, path: &'a [u8], requested: &'a [u8], rule: &'a Rule) -> Self {
        let refusal = Refusal::new(access, path, requested, Some(rule));
        refusal.because("this is another name (a hard link) of what the rule denies")
    }

    /// The same, for a reason that no entry of a policy changes.
    pub fn because(self, message: impl Into<String>) -> Self {
        Refusal { message: Some(message.into()), blocked: true, ..self }
    }

    /// The same, where `found` stands against the operation as well.
    pub fn beside(mut self, found: Option<Refusal<'_>>) -> Self {
        match found {
            Some(Refusal { blocked: true, message, .. }) => {
                self.blocked = true;
                self.message = message;
            }
            Some(found) => {
                let needs = found.others.iter().map(|(access, path)| (*access, path.as_slice()));
                for (access, path) in needs.chain([(found.access(), found.path)]) {
                    let known =
                        self.others.iter().any(|(a, p)| (*a, p.as_slice()) == (access, path));
                    if !known && (access, path) != (self.access(), self.path) {
                        self.others.push((access, path.to_vec()));
                    }
                }
            }
            None => {}
        }
        self
    }

    /// The access that is refused.
    pub fn access(&self) -> Access {
        match self.operation {
            Operation::Write => Access::Write,
            _ => Access::Read,
        }
    }

    /// The refusal that `verdict` is, if it is one.
    pub fn of(
        verdict: &Verdict<'a>,
        access: Access,
        path: &'a [u8],
        requested: &'a [u8],
    ) -> Option<Self> {
        match *verdict {
            Verdict::Allow(_) => None,
            Verdict::Deny { rule, reason } => {
                let mut refusal = Refusal::new(access, path, requested, rule);
                refusal.askable = rule.is_none_or(|rule| rule.yields_to(path));
                refusal.blocked = false;
                if rule.is_some_and(Rule::guards_controls) {
                    refusal.message = Some(CLOSED.to_owned());
                }
                refusal.reason = Some(match reason {
                    PolicyReason::AllowMiss => trap::Reason::AllowMiss,
                    PolicyReason::DenyMatch => trap::Reason::DenyMatch,
                });
                Some(refusal)
            }
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Task<'_> {
    /// The refusal of `access` to an object by the name `path`, which `verdict` is about, or by another
    /// of its names.
    pub(super) fn refused_object<'a>(
        &'a self,
        verdict: &Verdict<'a>,
        (access, object): (Access, &Object),
        path: &'a [u8],
        requested: &'a [u8],
    ) -> Result<Option<Refusal<'a>>, Errno> {
        let linked = self.linked(object, access)?;
        Ok(match (Refusal::of(verdict, access, path, requested), linked) {
            // One rule, and an entry for this name is one for the object.
            (Some(refusal), Some(Rule { pattern: Pattern::Subtree(named), .. }))
                if named.as_bytes() == path =>
            {
                Some(refusal)
            }
            (Some(refusal), Some(rule)) => {
                Some(refusal.beside(Some(Refusal::linked(access, path, requested, rule))))
            }
            (None, Some(rule)) => Some(Refusal::linked(access, path, requested, rule)),
            (None, None) if access == Access::Write => self
                .is_closed_control(object.fd.as_fd(), verdict)
                .then(|| Refusal::control(path, requested)),
            (refusal, None) => refusal,
        })
    }

    /// The same as [`Task::refuse_with`], the error being `EACCES`.
    pub(super) fn refuse(&self, refusal: Refusal<'_>) -> Answer {
        self.refuse_with(refusal, Errno::ACCESS)
    }

    /// Asks about the refusal, if that is possible, or else writes it down and answers `error`.
    pub(super) fn refuse_with(&self, refusal: Refusal<'_>, error: Errno) -> Answer {
        let (grant, obstacle) = match self.advice(&refusal) {
            Ok(grant) => (Some(grant), None),
            Err(obstacle) => (None, obstacle),
        };
        // What a record cannot name is not asked about.
        let is_told = |text: &&[u8]| std::str::from_utf8(text).is_ok();
        let names = refusal.names.unwrap_or_default();
        let askable = refusal.askable
            && self.is_telling()
            && std::iter::once(&refusal.path).chain(&names).all(is_told);
        let [old, new] = names;
        let name = |name| refusal.names.map(|_| lossy(name));
        let mut flags = refusal.flags;
        flags.extend(self.name_flags());
        let denial = Denial {
            kind: Kind::Filesystem,
            operation: refusal.operation,
            suggested_grant: grant,
            path: Some(lossy(refusal.path)),
            requested_path: Some(lossy(refusal.requested)),
            old_path: name(old),
            new_path: name(new),
            target: None,
            syscall: Some(syscall_name(self.call.nr())),
            errno: Some(errno_name(error)),
            flags,
            arguments: self.arguments(),
            reason: refusal.reason,
            rule: refusal.rule.map(RuleRef::from),
            process: self.process(),
            message: match (refusal.message, obstacle.map(|obstacle| obstacle.why())) {
                (Some(message), Some(why)) => Some(format!("{message}; {why}")),
                (message, why) => message.or(why.map(Cow::into_owned)),
            },
        };
        let access = match refusal.operation {
            Operation::Read => Some(Access::Read),
            Operation::Write => Some(Access::Write),
            // Execute above all: only the kernel does that, and Landlock has not granted it.
            _ => None,
        };
        if let Some(access) = access.filter(|_| askable)
            && let Some(answer) = self.ask(access, refusal.path, error, &denial)
        {
            return answer;
        }
        self.record(denial);
        Answer::Error(error)
    }

    /// The entry that would allow what is refused, or why none would, where the refusal does not say.
    fn advice(&self, refusal: &Refusal<'_>) -> Result<Grant, Option<Obstacle>> {
        if refusal.blocked {
            return Err(None);
        }
        let denied = trap::Denied {
            operation: refusal.operation,
            path: refusal.path,
            rule: refusal.rule,
            others: &refusal.others,
            link: refusal.link,
        };
        self.broker.adviser.path(&self.broker.decider, &denied).map_err(Some)
    }

    /// Writes down that a socket operation on `target` was refused, by `line` where one says so, and
    /// answers `EACCES`. About `endpoint` somebody is asked first, if that is possible.
    pub(super) fn refuse_network(
        &self,
        operation: Operation,
        target: String,
        (grant, endpoint): (Advice, Option<(Use, &[u8])>),
        line: Option<Line<'_>>,
        message: Option<&str>,
    ) -> Answer {
        let (grant, why) = match grant {
            Ok(grant) => (Some(grant), None),
            Err(why) => (None, Some(why)),
        };
        let is_path = target.starts_with('/');
        let rule = line.map(|Line { origin, value }| RuleRef {
            file: origin.file.clone(),
            line: origin.line,
            key: origin.key.clone(),
            text: value.to_string(),
        });
        let denial = Denial {
            kind: Kind::Network,
            operation,
            path: is_path.then(|| target.clone()),
            requested_path: None,
            old_path: None,
            new_path: None,
            target: Some(target),
            syscall: Some(syscall_name(self.call.nr())),
            errno: Some("EACCES"),
            flags: Vec::new(),
            arguments: Vec::new(),
            reason: Some(match rule {
                Some(_) => trap::Reason::DenyMatch,
                None => trap::Reason::AllowMiss,
            }),
            suggested_grant: grant,
            rule,
            process: self.process(),
            message: message.map(str::to_owned).or(why.map(Into::into)),
        };
        if let Some(endpoint) = endpoint
            && let Some(answer) = self.ask_for_endpoint(endpoint, &denial)
        {
            return answer;
        }
        self.record(denial);
        Answer::Error(Errno::ACCESS)
    }

    /// Writes down that an IPC object was refused, and answers `EACCES`.
    pub(super) fn refuse_ipc(&self, operation: Operation, target: String) -> Answer {
        self.record(Denial {
            kind: Kind::Ipc,
            operation,
            path: None,
            requested_path: None,
            old_path: None,
            new_path: None,
            target: Some(target),
            syscall: Some(syscall_name(self.call.nr())),
            errno: Some("EACCES"),
            flags: Vec::new(),
            arguments: Vec::new(),
            reason: None,
            suggested_grant: None,
            rule: None,
            process: self.process(),
            message: Some("the run may use only the objects that it made".to_owned()),
        });
        Answer::Error(Errno::ACCESS)
    }

    fn record(&self, denial: Denial) {
        if let Some(learner) = &self.broker.learner {
            learner.denied(&denial, &self.broker.adviser);
        }
        self.broker.reporter.record(&denial);
    }

    pub(super) fn process(&self) -> Process {
        process_of(&self.broker.proc, self.tid())
    }
}

/// The process of thread `tid`, as the procfs at `proc` has it now.
pub(super) fn process_of(proc: &OwnedFd, tid: i32) -> Process {
    let link = |name| {
        let link = format!("{tid}/{name}");
        let text = rustix::fs::readlinkat(proc, link, Vec::new());
        text.map(|text| lossy(text.as_bytes())).unwrap_or_default()
    };
    Process { pid: tid, exe: link("exe"), cwd: link("cwd") }
}

fn errno_name(error: Errno) -> &'static str {
    errno::name(error.raw_os_error()).unwrap_or("EACCES")
}

/// The name of a notified system call.
fn syscall_name(number: i64) -> &'static str {
    macro_rules! names {
        ($($name:ident: $number:path,)*) => {
            match number { $($number => stringify!($name),)* _ => "unknown" }
        };
    }
    use super::super::sys::nr;
    #[cfg(target_arch = "x86_64")]
    {
        let old = names! {
            open: libc::SYS_open, creat: libc::SYS_creat, mkdir: libc::SYS_mkdir,
            mknod: libc::SYS_mknod, unlink: libc::SYS_unlink, rmdir: libc::SYS_rmdir,
            rename: libc::SYS_rename, renameat: libc::SYS_renameat, link: libc::SYS_link,
            symlink: libc::SYS_symlink, chmod: libc::SYS_chmod, chown: libc::SYS_chown,
            lchown: libc::SYS_lchown, utime: libc::SYS_utime, utimes: libc::SYS_utimes,
            futimesat: libc::SYS_futimesat,
        };
        if old != "unknown" {
            return old;
        }
    }
    names! {
        openat: libc::SYS_openat, openat2: libc::SYS_openat2, execve: libc::SYS_execve,
        execveat: libc::SYS_execveat, mkdirat: libc::SYS_mkdirat, mknodat: libc::SYS_mknodat,
        unlinkat: libc::SYS_unlinkat, renameat2: libc::SYS_renameat2, linkat: libc::SYS_linkat,
        symlinkat: libc::SYS_symlinkat, truncate: libc::SYS_truncate, fchmod: libc::SYS_fchmod,
        fchmodat: libc::SYS_fchmodat, fchmodat2: libc::SYS_fchmodat2, fchown: libc::SYS_fchown,
        fchownat: libc::SYS_fchownat, utimensat: libc::SYS_utimensat, setxattr: libc::SYS_setxattr,
        lsetxattr: libc::SYS_lsetxattr, fsetxattr: libc::SYS_fsetxattr,
        removexattr: libc::SYS_removexattr, lremovexattr: libc::SYS_lremovexattr,
        fremovexattr: libc::SYS_fremovexattr, setxattrat: nr::SETXATTRAT,
        removexattrat: nr::REMOVEXATTRAT, shmget: libc::SYS_shmget, shmat: libc::SYS_shmat,
        shmctl: libc::SYS_shmctl, semget: libc::SYS_semget, semop: libc::SYS_semop,
        semtimedop: libc::SYS_semtimedop, semctl: libc::SYS_semctl, msgget: libc::SYS_msgget,
        msgsnd: libc::SYS_msgsnd, msgrcv: libc::SYS_msgrcv, msgctl: libc::SYS_msgctl,
        mq_open: libc::SYS_mq_open, mq_unlink: libc::SYS_mq_unlink, socket: libc::SYS_socket,
        socketpair: libc::SYS_socketpair, connect: libc::SYS_connect, bind: libc::SYS_bind,
        listen: libc::SYS_listen,
    }
}
