//! A run as a whole: who is in its domain, and how it ends.

use super::{Errno, check, last_errno};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, pidfd_send_signal,
};
use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Makes this process adopt the orphans below it (`PR_SET_CHILD_SUBREAPER`).
///
/// # Errors
///
/// The kernel has none; a container's filter may refuse it.
pub fn adopt_orphans() -> Result<(), Errno> {
    // SAFETY: by-value prctl.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }.into()).map(|_| ())
}

/// A process outside the domain, to try a signal on. It ends when this value is dropped.
pub struct Canary {
    pid: i32,
    _held: std::io::PipeWriter,
}

impl Canary {
    /// Starts one; it only waits for the other end of its pipe to close.
    ///
    /// # Errors
    ///
    /// As pipe(2) and fork(2).
    pub fn start() -> Result<Canary, Errno> {
        let (reader, held) = std::io::pipe().map_err(|_| last_errno())?;
        // SAFETY: this process has one thread yet; the child only makes system calls.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(last_errno());
        }
        if pid == 0 {
            let mut byte = 0u8;
            // SAFETY: `byte` is writable. The writer's copy has to go, or there is no end of file.
            unsafe {
                libc::close(held.as_raw_fd());
                while libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) > 0 {}
                libc::_exit(0);
            }
        }
        Ok(Canary { pid, _held: held })
    }
}

/// Proof that signals of this process stay within its Landlock domain, or pid namespace.
///
/// `kill(-1)` reaches every process of the user otherwise, so it is only to be had with this proof.
/// A domain belongs to a thread, and so does the proof: it is not `Send`.
pub struct SignalScope(std::marker::PhantomData<*const ()>);

/// Proof that this process can look at those of its Landlock domain alone, and so tell them from others, see ptrace(2).
///
/// It is what there is without a [`SignalScope`]: looking takes longer than a step, and shows no process that let
/// itself not be looked at. The proof belongs to a thread, too.
pub struct Sight(std::marker::PhantomData<*const ()>);

/// The process that ends the run when we do not live to do it.
pub struct Watcher {
    /// Its pipe, which closes when we die.
    alive: OwnedFd,
}

/// Signal that the watcher's end sends; not SIGCHLD, so that waiting for children passes it over.
#[must_use]
pub fn watcher_signal() -> c_int {
    libc::SIGRTMIN()
}

/// Whom the proof of a signal scope, or of sight, is tried on.
pub enum Outsider {
    /// The parent process, which could be reached before the domain was entered.
    Parent,
    /// A process made for it.
    Canary(Canary),
}

impl Outsider {
    /// Finds one, to be called before the domain is entered: for a signal, or else to be looked at.
    ///
    /// # Errors
    ///
    /// As fork(2), when there is no parent to try.
    pub fn find(signal: bool) -> Result<Outsider, Errno> {
        let reached = if signal { can_signal } else { can_look_at };
        // It is 0 for the first process of a pid namespace.
        if parent() > 0 && reached(parent()) {
            Ok(Outsider::Parent)
        } else {
            Canary::start().map(Outsider::Canary)
        }
    }

    fn pid(&self) -> i32 {
        match self {
            Outsider::Parent => parent(),
            Outsider::Canary(canary) => canary.pid,
        }
    }
}

impl SignalScope {
    /// For the first process of a pid namespace: kill(2) reaches nobody outside of it.
    pub fn of_init() -> Option<SignalScope> {
        rustix::process::getpid().is_init().then_some(SignalScope(std::marker::PhantomData))
    }

    /// Checks, after the domain was entered, that a signal to a process outside is refused.
    pub fn prove(outsider: &Outsider) -> Option<SignalScope> {
        refuses_signal(outsider.pid()).then_some(SignalScope(std::marker::PhantomData))
    }

    /// Kills every process of the domain but this one, the watcher included, in one step that no fork
    /// can slip through: kill(2) walks the process list under the lock that fork takes for writing.
    pub fn kill_all(&self) {
        kill_domain();
    }

    /// Starts the watcher, which does as [`SignalScope::kill_all`].
    ///
    /// # Errors
    ///
    /// As pipe(2) and clone(2).
    pub fn start_watcher(
        &self,
        place: Option<(BorrowedFd<'_>, &CStr)>,
        tasks: (First, Last),
        deadline: Option<Instant>,
    ) -> Result<Watcher, Errno> {
        start_watcher(kill_domain, place, tasks, deadline)
    }
}

impl Sight {
    /// Checks, after the domain was entered, that a process outside cannot be looked at, and this one can.
    pub fn prove(outsider: &Outsider) -> Option<Sight> {
        let blind = outsider.pid() > 0 && !can_look_at(outsider.pid());
        (blind && can_look_at(getpid().as_raw_nonzero().get()))
            .then_some(Sight(std::marker::PhantomData))
    }

    /// Starts the watcher, which looks for processes of the domain until it finds none.
    ///
    /// # Errors
    ///
    /// As pipe(2) and clone(2).
    pub fn start_watcher(
        &self,
        place: Option<(BorrowedFd<'_>, &CStr)>,
        tasks: (First, Last),
        deadline: Option<Instant>,
    ) -> Result<Watcher, Errno> {
        start_watcher(kill_seen, place, tasks, deadline)
    }
}

/// Starts a watcher: a process in the domain of the calling thread and a session of its own. It
/// calls `first` with `directory` and what closes when this process is gone, waits for that, kills
/// the domain but itself by `kill`, and then calls `last` with `directory`, until `name` is gone from there.
/// At `deadline` it continues this process if that is stopped.
///
/// It shares this process's memory: a copy of the page table, and of each page that we write later,
/// would cost half a launch. By the time of `last` no thread is left in there, but what one held stays
/// held: `first`, `kill` and `last` must neither allocate nor take a lock.
///
/// # Errors
///
/// As pipe(2) and clone(2).
fn start_watcher(
    kill: fn(),
    place: Option<(BorrowedFd<'_>, &CStr)>,
    (first, last): (First, Last),
    deadline: Option<Instant>,
) -> Result<Watcher, Errno> {
    let (reader, alive) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Stack and argument live as long as the watcher does, so they are leaked.
    let stack = Box::leak(vec![0u8; WATCHER_STACK].into_boxed_slice());
    let pipe = reader.as_raw_fd();
    let place = place.map(|(directory, name)| (directory.as_raw_fd(), name.to_owned()));
    let watch = Box::leak(Box::new(Watch { pipe, place, first, kill, last, deadline }));
    // SAFETY: `watcher_main` runs on a stack of its own, and nobody else uses its argument. It has
    // a copy of the table of descriptors, and so of the two in there.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len() & !15);
        let flags = libc::CLONE_VM | watcher_signal();
        libc::clone(watcher_main, top.cast(), flags, (&raw mut *watch).cast())
    };
    if pid < 0 { Err(last_errno()) } else { Ok(Watcher { alive }) }
}

/// What a watcher does at the beginning.
pub type First = fn(BorrowedFd<'_>, BorrowedFd<'_>);
/// What a watcher does at the end.
pub type Last = fn(BorrowedFd<'_>, &CStr);

/// Room for the watcher's frames, a buffer for getdents64(2) in them.
const WATCHER_STACK: usize = 32 * 1024;

/// What the watcher works from.
struct Watch {
    pipe: RawFd,
    /// The directory that the temporary one is in, and its name there.
    place: Option<(RawFd, CString)>,
    first: First,
    kill: fn(),
    last: Last,
    deadline: Option<Instant>,
}

impl Watcher {
    /// Lets it go: nothing is left to kill.
    pub fn dismiss(self) {
        // It may have been killed, with the rest of the domain.
        let _ = rustix::io::write(&self.alive, &[0]);
    }
}

/// Kills the calling thread's domain but its own process. For those who know that signals are scoped.
fn kill_domain() {
    // SAFETY: by value. A [`SignalScope`], which the watcher was started with, proves that only the
    // domain is reached.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Kills the processes that this one can look at, until none is found. For those who know that these are of the
/// domain. Only makes system calls.
fn kill_seen() {
    let end = Instant::now() + LONGEST;
    let mut calm = 0;
    while calm < CALM && Instant::now() < end {
        calm = if kill_once() { 0 } else { calm + 1 };
        std::thread::sleep(LOOK);
    }
}

/// Whether any was left.
fn kill_once() -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(proc) = rustix::fs::open(c"/proc", flags, Mode::empty()) else { return false };
    let own = getpid().as_raw_nonzero().get();
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut entries = RawDir::new(&proc, &mut buffer);
    let mut any = false;
    while let Some(Ok(entry)) = entries.next() {
        let pid = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        any |= pid.is_some_and(|pid| pid != own && kill_if_seen(pid));
    }
    any
}

/// Kills process `pid` if it can be looked at; whether it was there, or has been. The descriptor comes first: by that, the
/// signal reaches no other one than the one that was looked at.
fn kill_if_seen(pid: i32) -> bool {
    let Some(Ok(process)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
    else {
        return true;
    };
    // Who has ended stays to be seen until it is waited for.
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)) == Ok(0)
        && can_look_at(pid)
        && pidfd_send_signal(&process, Signal::KILL) != Err(Errno::PERM)
}

/// Whether the kernel lets this process look at process `pid`, `PTRACE_MODE_READ_REALCREDS` of ptrace(2). Of the calls
/// that go by this alone, get_robust_list(2) takes no way by procfs, and works for a process whose first thread
/// has ended.
fn can_look_at(pid: i32) -> bool {
    let (mut head, mut length) = (std::ptr::null_mut::<c_void>(), 0usize);
    // SAFETY: both are writable; what is written is an address in the other process, and is not used.
    let told =
        unsafe { libc::syscall(libc::SYS_get_robust_list, pid, &raw mut head, &raw mut length) };
    told == 0
}

fn parent() -> i32 {
    // SAFETY: by value; a parent outside our pid namespace reads as 0.
    unsafe { libc::getppid() }
}

fn can_signal(pid: i32) -> bool {
    // SAFETY: signal 0 only checks. 0 would be our own process group, and init is a poor example.
    unsafe { pid > 1 && libc::kill(pid, 0) == 0 }
}

/// Whether a signal is refused for want of permission: the process exists, and may not be reached.
fn refuses_signal(pid: i32) -> bool {
    // SAFETY: as in `can_signal`.
    pid > 1 && unsafe { libc::kill(pid, 0) } != 0 && last_errno() == Errno::PERM
}

/// Closes every descriptor of a process that has its own table, but for two above the first three. Where that is
/// refused, the process ends: the other ends of what it waits for are among them, so it would wait for ever.
pub(super) fn close_all_but(one: RawFd, other: RawFd) {
    let (low, high) = (one.min(other), one.max(other));
    for (from, to) in [(0, low - 1), (low + 1, high - 1), (high + 1, RawFd::MAX)] {
        if from <= to {
            // SAFETY: by value, on a table that nobody else uses. The end is without the launcher's exit handlers.
            unsafe {
                if libc::syscall(libc::SYS_close_range, from, to, 0) != 0 {
                    libc::_exit(1);
                }
            }
        }
    }
}

extern "C" fn watcher_main(argument: *mut c_void) -> c_int {
    // SAFETY: `start_watcher` leaked this for us.
    let watch = unsafe { &*argument.cast::<Watch>() };
    let directory = watch.place.as_ref().map_or(watch.pipe, |(directory, _)| *directory);
    // By a way that leaves the errno of the launcher's thread alone. Nothing depends on either.
    let _ = rustix::process::setsid();
    // Who kills the launcher by name does not mean this one.
    let _ = rustix::thread::set_name(c"watcher");
    // The write end of the pipe is among these, or there would be no end of file.
    close_all_but(watch.pipe, directory);
    // SAFETY: nobody closes them in this process's table.
    let (pipe, directory) =
        unsafe { (BorrowedFd::borrow_raw(watch.pipe), BorrowedFd::borrow_raw(directory)) };
    if watch.place.is_some() {
        (watch.first)(directory, pipe);
    }
    let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
    while let Some(at) = watch.deadline {
        let left = at.saturating_duration_since(Instant::now()).max(WAKE_UP);
        if poll(&mut fds, left.try_into().ok().as_ref()) != Ok(0) {
            break;
        }
        // Our parent is the launcher as long as the pipe is open.
        let _ = getppid().map(|launcher| kill_process(launcher, Signal::CONT));
    }
    if rustix::io::read(pipe, &mut [0u8]) != Ok(1) {
        (watch.kill)();
        // What was killed may take a moment to go, and make a file before it does.
        let name = watch.place.as_ref().map(|(_, name)| name.as_c_str());
        for name in std::iter::repeat_n(name, LAST_TRIES).flatten() {
            (watch.last)(directory, name);
            let left = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            if left.err() == Some(Errno::NOENT) {
                break;
            }
            std::thread::sleep(WAKE_UP);
        }
    }
    // SAFETY: ends this process without running the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

/// How often the watcher tries again.
const WAKE_UP: Duration = Duration::from_millis(20);
/// How often it looks for processes to kill, and how long: one in uninterruptible sleep can stay for longer.
const LOOK: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(5);
/// How often in a row it has to find none: a process that ended just then, or a number that is used from the start again,
/// can hide another one.
const CALM: u32 = 3;
/// How many times it tries to remove a directory.
const LAST_TRIES: usize = 100;

/// The children of this process; those that have ended, too, until they are waited for.
///
/// # Errors
///
/// As reading `/proc/self/task/TID/children`, which a kernel need not have (proc_tid_children(5)).
pub fn children() -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("children"))?;
        children.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(children)
}
