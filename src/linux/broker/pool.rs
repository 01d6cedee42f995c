//! The threads that serve notifications.
//!
//! One worker receives while calls are quick: two waiting workers would both wake for each call. The
//! manager looks every [`TICK`] while calls come in. It adds a worker when all of them are held up in
//! one call each, so that no call can stop the others, and when calls queue up; it sends superfluous
//! ones home; and it interrupts a worker whose target got a signal or died, as the kernel would.

use super::direct::Made;
use super::due::{Due, ERESTARTSYS};
use super::task::Task;
use super::{Answer, Broker, handle, helpers};
use crate::linux::sys::{Errno, context, identity, seccomp, signals, slice, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::futex;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the manager looks. A call that takes longer than this and less than two is held up.
const TICK: Duration = Duration::from_millis(4);
/// Ticks without any call until the manager sleeps.
const QUIET: u32 = 50;
/// Ticks with too many workers until one goes home.
const PATIENCE: u32 = 25;
/// Most workers: as many calls may be held up at once.
const MOST: usize = 128;
/// How long calls may take to finish in a pause, and how often it is looked whether they have.
const DRAINED: Duration = Duration::from_millis(100);
const PARKING: Duration = Duration::from_micros(200);
/// A worker's own frames are small; the rest is on the heap.
pub const STACK: usize = 128 * 1024;

/// The workers of one broker.
#[derive(Default)]
pub struct Pool {
    slots: Mutex<Vec<Arc<Slot>>>,
    /// Threads that do calls over after an answer, and receive none.
    helpers: Mutex<Vec<Arc<Slot>>>,
    /// Workers, and helpers, that wait for the other end of a FIFO or a connection.
    waiting: AtomicU64,
    helpers_waiting: AtomicU64,
    /// Calls received, ever.
    calls: AtomicU64,
    /// Whether the manager looks.
    watching: AtomicBool,
    wake: Condvar,
    started: AtomicBool,
    /// Nobody is left to serve.
    ending: AtomicBool,
    /// 1 while no worker is to receive a call.
    paused: AtomicU32,
}

/// One worker, as the manager sees it.
#[derive(Default)]
pub struct Slot {
    /// Thread id of the worker; 0 before it runs.
    tid: AtomicI32,
    /// Counts up at the begin and at the end of each call: odd while in one.
    phase: AtomicU64,
    /// Cookie and thread of the call in progress.
    id: AtomicU64,
    target: AtomicI32,
    /// Cookie of the call that is to be given up, and the error that it then gives.
    interrupted: AtomicU64,
    error: AtomicI32,
    /// What is known of the target's signals in the call with this cookie.
    due: Mutex<(u64, Due)>,
    /// The worker is to end.
    dismissed: AtomicBool,
    /// The worker waits for the end of a pause.
    parked: AtomicBool,
}

impl Slot {
    /// Whether the worker is in a call.
    fn is_busy(&self) -> bool {
        self.phase.load(Ordering::Acquire) % 2 == 1
    }
}

/// No worker receives a call until this is dropped.
pub struct Paused<'a>(&'a Pool);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.paused.store(0, Ordering::Release);
        let _ = futex::wake(&self.0.paused, futex::Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// Leave for one thread to wait for as long as the other end of a FIFO or a connection takes.
pub struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pool {
    /// Gives leave to wait, unless too few workers, or helpers, would be left for everybody else.
    ///
    /// # Errors
    ///
    /// `ENFILE`.
    pub fn place_to_wait(&self, helped: bool) -> Result<Waiting<'_>, Errno> {
        let (waiting, most) =
            if helped { (&self.helpers_waiting, helpers::MOST) } else { (&self.waiting, MOST) };
        let place = Waiting(waiting);
        if waiting.fetch_add(1, Ordering::AcqRel) >= most as u64 / 4 * 3 {
            return Err(Errno::NFILE);
        }
        Ok(place)
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has no worker receive a call, and those finish that they have received: for as long as calls usually take,
    /// since one that is held up may never end.
    pub fn pause(&self) -> Paused<'_> {
        self.paused.store(1, Ordering::SeqCst);
        let since = Instant::now();
        loop {
            let receives = |slot: &&Arc<Slot>| !slot.parked.load(Ordering::SeqCst);
            let slots = self.slots();
            let mut left = slots.iter().filter(receives).peekable();
            let held_up = since.elapsed() > DRAINED;
            if left.peek().is_none() || held_up && left.clone().all(|slot| slot.is_busy()) {
                return Paused(self);
            }
            // Again and again: it may not have begun to wait yet.
            left.filter(|slot| !slot.is_busy())
                .for_each(|slot| signals::interrupt_thread(slot.tid.load(Ordering::Acquire)));
            drop(slots);
            thread::sleep(PARKING);
        }
    }

    /// Waits for the end of a pause.
    fn park(&self, slot: &Slot) {
        while self.paused.load(Ordering::SeqCst) == 1 {
            slot.parked.store(true, Ordering::SeqCst);
            let _ = futex::wait(&self.paused, futex::Flags::PRIVATE, 1, None);
            // Before the pause is looked at again: there may be another one by then.
            slot.parked.store(false, Ordering::SeqCst);
        }
    }

    /// Whether nobody is left to serve, see [`end`].
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Lets the manager look after a thread that only calls [`serve_one`].
    pub fn add_helper(&self, slot: &Arc<Slot>) {
        self.helpers().push(Arc::clone(slot));
    }

    fn helpers(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the notifications of `listener` on a new thread, until no target is left.
///
/// # Errors
///
/// `EAGAIN` when no thread can be had.
pub fn serve(broker: &Arc<Broker>, listener: OwnedFd) -> io::Result<()> {
    let Some(slot) = begin(broker, listener) else { return Ok(()) };
    let broker = Arc::clone(broker);
    start(move || work(&broker, &slot))
}

/// Starts a thread with a mask and a working directory of its own, which it needs to act for targets.
///
/// # Errors
///
/// `EAGAIN` when no thread can be had.
pub fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let begin = move || {
        if context::with_own(work).is_err() {
            // Nobody answers then, and the target waits.
            std::process::abort();
        }
    };
    thread::Builder::new().stack_size(STACK).spawn(begin).map(drop)
}

/// Takes `listener` on, unless there is one; returns what the first worker is seen as.
fn begin(broker: &Arc<Broker>, listener: OwnedFd) -> Option<Arc<Slot>> {
    signals::catch_interrupts();
    seccomp::set_sync_wake_up(std::os::fd::AsFd::as_fd(&listener));
    broker.listener.set(listener).ok()?;
    let slot = Arc::new(Slot::default());
    broker.pool.slots().push(Arc::clone(&slot));
    super::answers::start(broker);
    Some(slot)
}

/// Ends the threads of a broker that nobody is left to be served by; whether all workers are gone. One may have
/// been on its way to receive a call, so this has to be repeated until they are: before Linux 6.11 it would
/// wait there for good.
pub fn end(broker: &Broker) -> bool {
    let slots = broker.pool.slots();
    broker.pool.ending.store(true, Ordering::Release);
    broker.pool.wake.notify_one();
    for slot in slots.iter() {
        signals::interrupt_thread(slot.tid.load(Ordering::Acquire));
    }
    slots.is_empty()
}

/// Serves on a new thread, as soon as the listener is announced on `pipe`; nothing is served when the
/// pipe closes instead.
///
/// # Errors
///
/// `EAGAIN` when no thread can be had.
pub fn serve_announced(broker: &Arc<Broker>, pipe: OwnedFd) -> io::Result<()> {
    let broker = Arc::clone(broker);
    let serve = move || {
        if let Ok(Some(listener)) = spawn::announced_listener(&pipe) {
            drop(pipe);
            if let Some(slot) = begin(&broker, listener) {
                work(&broker, &slot);
            }
        }
    };
    start(serve)
}

fn add_worker(broker: &Arc<Broker>) {
    let slot = Arc::new(Slot::default());
    let (ours, theirs) = (Arc::clone(broker), Arc::clone(&slot));
    // Without another thread, the calls wait until one that is held up comes back.
    if start(move || work(&ours, &theirs)).is_ok() {
        broker.pool.slots().push(slot);
    }
}

/// Makes the calling thread, one of [`start`], fit to act for targets.
pub fn prepare(broker: &Broker, slot: &Slot) {
    slot.tid.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    // A signal interrupts a call that is not received yet, and the target is asleep meanwhile.
    slice::shorten();
    // No more capabilities than it needs.
    let ready = identity::keep_capabilities().is_ok()
        && identity::set_capabilities(broker.own_capabilities, broker.own_capabilities).is_ok();
    if !ready {
        // Nobody answers then, and the target waits: end the run rather than serve with other rights.
        std::process::abort();
    }
}

fn work(broker: &Arc<Broker>, slot: &Arc<Slot>) {
    prepare(broker, slot);
    while !slot.dismissed.load(Ordering::Acquire) {
        broker.pool.park(slot);
        let call = match seccomp::receive(broker.listener()) {
            Ok(call) => call,
            // The target is gone, or the manager wants us to look at our slot.
            Err(Errno::NOENT | Errno::INTR) => {
                if !alive(broker) {
                    break;
                }
                continue;
            }
            Err(_) => break,
        };
        serve_one(broker, &Task::new(broker, call), slot);
    }
    broker.pool.slots().retain(|other| !Arc::ptr_eq(other, slot));
}

/// Does one call, under the eyes of the manager.
pub fn serve_one(broker: &Arc<Broker>, task: &Task<'_>, slot: &Slot) {
    slot.id.store(task.call.id(), Ordering::Release);
    slot.target.store(task.tid(), Ordering::Release);
    slot.phase.fetch_add(1, Ordering::AcqRel);
    broker.pool.calls.fetch_add(1, Ordering::AcqRel);
    if !broker.pool.watching.load(Ordering::Acquire) {
        watch(broker);
    }
    serve_call(task, slot);
    slot.phase.fetch_add(1, Ordering::AcqRel);
}

/// Whether any task is left that could send a notification.
fn alive(broker: &Broker) -> bool {
    let listener = broker.listener();
    let mut fds = [PollFd::new(&listener, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = poll(&mut fds, Some(&now));
    !fds[0].revents().contains(PollFlags::HUP)
}

fn serve_call(task: &Task<'_>, slot: &Slot) {
    let answer = loop {
        let answer = task.answer();
        task.drop_identity();
        match answer {
            // Cookies start at 1 and never come back: this is about no other call.
            Answer::Error(Errno::INTR)
                if slot.interrupted.load(Ordering::Acquire) != task.call.id() => {}
            Answer::Again => {}
            answer => break answer,
        }
    };
    if let Some(queries) = &task.broker.queries {
        // Before the target goes on: what held for this call must not stand in the way of its next one.
        match answer {
            Answer::Error(Errno::INTR) => queries.keep_answer(task),
            _ => queries.release(&task.passes.take()),
        }
    }
    let (listener, id) = (task.broker.listener(), task.call.id());
    // A target that is gone by now needs no answer.
    let _ = match answer {
        Answer::Continue => seccomp::answer_continue(listener, id),
        Answer::Value(value) => seccomp::answer_value(listener, id, value),
        Answer::Error(Errno::INTR) => {
            seccomp::answer_error(listener, id, slot.error.load(Ordering::Acquire))
        }
        Answer::Error(errno) => seccomp::answer_error(listener, id, errno.raw_os_error()),
        Answer::Descriptor(fd, cloexec) => hand_over(task, fd, cloexec, None),
        Answer::Created(fd, cloexec, made) => hand_over(task, fd, cloexec, Some(made)),
        Answer::Replaced { fd, number, cloexec, old, result } => {
            let put = |(number, cloexec)| {
                seccomp::put_fd(listener, id, std::os::fd::AsFd::as_fd(&fd), number, cloexec)
            };
            // While the old one still stands at its number, no other one can have its inode.
            for other in task.other_numbers(old, number) {
                let _ = put(other);
            }
            let placed = put((number, cloexec));
            drop(fd);
            match placed.map(|_| ()).and(result) {
                Ok(()) => seccomp::answer_value(listener, id, 0),
                Err(errno) => seccomp::answer_error(listener, id, errno.raw_os_error()),
            }
        }
        // Done over above.
        Answer::Asked | Answer::Again => Ok(()),
    };
}

/// Puts a copy of `fd` into the target and answers with its number, or with why that failed. `made` is
/// where the file was just made.
fn hand_over(task: &Task<'_>, fd: OwnedFd, cloexec: bool, made: Option<Made>) -> Result<(), Errno> {
    let (listener, id) = (task.broker.listener(), task.call.id());
    // Without ADDFD_FLAG_SEND: only the plain answer wakes the target on this CPU.
    match seccomp::add_fd(listener, id, std::os::fd::AsFd::as_fd(&fd), cloexec) {
        Ok(number) => {
            // Ours has to be closed before the target goes on: it may close its own at once, and expect a
            // lock to be free, a pipe to end, or a program not to be busy.
            drop(fd);
            seccomp::answer_value(listener, id, number)
        }
        Err(errno) => {
            // The kernel finds out that there is no number left before it makes a file.
            if let Some(made) = made {
                made.take_back(task, &fd);
            }
            seccomp::answer_error(listener, id, errno.raw_os_error())
        }
    }
}

impl Task<'_> {
    fn answer(&self) -> Answer {
        self.begin_terms();
        // Before anything is looked up: the way to an object is checked by who asks, too.
        if let Err(errno) = self.assume_identity() {
            return Answer::Error(errno);
        }
        match self.is_nested() {
            Ok(nested) => self.nested.set(nested),
            Err(errno) => return Answer::Error(errno),
        }
        handle(self)
    }
}

/// Wakes the manager, or starts it.
fn watch(broker: &Arc<Broker>) {
    let pool = &broker.pool;
    let slots = pool.slots();
    pool.watching.store(true, Ordering::Release);
    if pool.started.swap(true, Ordering::AcqRel) {
        pool.wake.notify_one();
        return;
    }
    drop(slots);
    let manager = Arc::clone(broker);
    let started = thread::Builder::new().stack_size(STACK).spawn(move || manage(&manager));
    if started.is_err() {
        pool.started.store(false, Ordering::Release);
        pool.watching.store(false, Ordering::Release);
    }
}

/// What the manager saw at its last look.
#[derive(Default)]
struct Look {
    calls: u64,
    quiet: u32,
    idle: u32,
    phases: Vec<(Arc<Slot>, u64)>,
}

fn manage(broker: &Arc<Broker>) {
    let pool = &broker.pool;
    let mut last = Look::default();
    // More than there are processors: to hand over a descriptor is to wait for the target to run.
    let most = 2 * thread::available_parallelism().map_or(1, std::num::NonZero::get);
    while !pool.is_ending() {
        thread::sleep(TICK);
        let slots: Vec<Arc<Slot>> = pool.slots().clone();
        let held_up: Vec<&Arc<Slot>> = slots.iter().filter(|slot| last.is_held_up(slot)).collect();
        let helpers: Vec<Arc<Slot>> = pool.helpers().clone();
        let mut waits = held_up.clone();
        waits.extend(helpers.iter().filter(|slot| last.is_held_up(slot)));
        for slot in &waits {
            release(broker, slot);
        }
        let free = slots.len() - held_up.len();
        // A call may be on its way to a worker that waits for it.
        let short = slots.iter().all(|slot| slot.is_busy()) && queue(broker);
        // Of calls that are held up there may be many more to come.
        let more = match free {
            0 if short => held_up.len().max(1),
            0 => 1,
            _ => usize::from(short && free < most),
        };
        for _ in 0..more.min(MOST.saturating_sub(slots.len())) {
            add_worker(broker);
        }
        last.idle = if !short && free > 1 { last.idle + 1 } else { 0 };
        if last.idle > PATIENCE {
            last.idle = 0;
            dismiss(&slots);
        }
        let calls = pool.calls.load(Ordering::Acquire);
        last.quiet =
            if calls == last.calls && waits.is_empty() && free <= 1 { last.quiet + 1 } else { 0 };
        last.calls = calls;
        last.phases = slots
            .iter()
            .chain(&helpers)
            .map(|s| (Arc::clone(s), s.phase.load(Ordering::Acquire)))
            .collect();
        if last.quiet > QUIET {
            last.quiet = 0;
            let mut guard = pool.slots();
            pool.watching.store(false, Ordering::Release);
            // A call that came in before the line above did not wake us.
            while !pool.is_ending()
                && !pool.watching.load(Ordering::Acquire)
                && pool.calls.load(Ordering::Acquire) == last.calls
            {
                guard = pool.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            pool.watching.store(true, Ordering::Release);
        }
    }
}

impl Look {
    /// Whether the worker is in the same call as at the last look.
    fn is_held_up(&self, slot: &Arc<Slot>) -> bool {
        let phase = slot.phase.load(Ordering::Acquire);
        phase % 2 == 1 && self.phases.iter().any(|(s, p)| Arc::ptr_eq(s, slot) && *p == phase)
    }
}

/// Whether calls wait for a worker.
fn queue(broker: &Broker) -> bool {
    let listener = broker.listener();
    let mut fds = [PollFd::new(&listener, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::IN)
}

/// Interrupts a worker whose target died, or has a signal to take.
fn release(broker: &Broker, slot: &Slot) {
    let id = slot.id.load(Ordering::Acquire);
    let error = if broker.still_valid(id) {
        let mut due = slot.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.0 != id {
            *due = (id, Due::default());
        }
        due.1.look(&broker.proc, slot.target.load(Ordering::Acquire))
    } else {
        Some(ERESTARTSYS)
    };
    // A worker that went on to another call meanwhile only tries that one again.
    if let Some(error) = error {
        slot.error.store(error, Ordering::Release);
        slot.interrupted.store(id, Ordering::Release);
        signals::interrupt_thread(slot.tid.load(Ordering::Acquire));
    }
}

/// Ends one worker that waits for a call.
fn dismiss(slots: &[Arc<Slot>]) {
    let idle = |slot: &&Arc<Slot>| !slot.is_busy() && !slot.dismissed.load(Ordering::Acquire);
    // Never the first: somebody has to stay.
    if let Some(slot) = slots.iter().skip(1).rfind(idle) {
        slot.dismissed.store(true, Ordering::Release);
        signals::interrupt_thread(slot.tid.load(Ordering::Acquire));
    }
}
