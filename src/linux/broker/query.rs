//! Denials that somebody is asked about: a query holds the call until its answer comes.
//!
//! A call that is asked about keeps no worker: the notification stays valid while the target waits, so
//! it is put aside, and when the answer has come, the call is done over with that in hand.
//! Nothing is carried over from the first time: paths are read and resolved anew, and whatever they
//! mean by then has to be what was allowed, or it is asked about again.
//!
//! One thread reads; others do the calls over, which may take their time.

use super::grants::{Grants, Pass};
use super::pool::{self, Slot};
use super::task::Task;
use super::{Broker, Errno};
use crate::linux::sys::seccomp::{self, Notification};
use crate::policy::{Access, Verdict};
use crate::trap::{Action, Denial, Lines, Scope, Sent, parse_answer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::RecvFlags;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most calls that wait for an answer at once; later ones are refused as if nobody could be asked.
const MOST: usize = 1024;
/// How often waiting calls are looked at: whether they still wait, or have a signal to take.
const LOOK: Duration = Duration::from_millis(50);
/// Most of them that one look is about, so that many cost no more than a few.
const LOOKED_AT: usize = 64;
/// Most threads that do calls over. More calls than that at once wait for each other.
const MOST_THREADS: usize = 64;

/// The queries of one run.
pub struct Queries {
    /// The other end answers.
    socket: OwnedFd,
    timeout: Duration,
    /// Tells the thread that reads that a first call waits, which then has to be looked at.
    wake: OwnedFd,
    calls: Mutex<Calls>,
    jobs: Mutex<Jobs>,
    /// There is a job.
    job: Condvar,
    /// What answers granted.
    pub grants: Grants,
}

/// What is to be done over, and by whom.
#[derive(Default)]
struct Jobs {
    ready: VecDeque<Held>,
    /// Threads in all, and those that wait for a job.
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Calls {
    /// Nobody answers any more.
    closed: bool,
    /// The id of the last query. None is used twice.
    last: u64,
    /// The calls that wait, by the id of their query: the first has waited longest.
    waiting: BTreeMap<u64, Held>,
}

/// A call that waits for an answer.
struct Held {
    call: Notification,
    /// What was allowed for this call before, and last what is asked about now.
    passes: Vec<Pass>,
    denial: Denial,
    /// What the call gives if the answer is "no".
    error: Errno,
    deadline: Instant,
    /// At the last look, a signal waited that another thread of the process could take as well.
    signalled: bool,
}

/// What the thread that reads has in hand.
struct Reader {
    lines: Lines,
    /// Where the last look ended.
    looked_at: u64,
    next_look: Instant,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { lines: Lines::default(), looked_at: 0, next_look: Instant::now() }
    }
}

impl Queries {
    /// Asks on `socket`, a connected stream socket, and waits `timeout` for each answer.
    ///
    /// # Errors
    ///
    /// `EMFILE`.
    pub fn new(socket: OwnedFd, timeout: Duration) -> Result<Queries, Errno> {
        Ok(Queries {
            socket,
            timeout,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            calls: Mutex::default(),
            jobs: Mutex::default(),
            job: Condvar::new(),
            grants: Grants::default(),
        })
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the query and puts the call of `task` aside; whether that was possible.
    fn ask(&self, task: &Task<'_>, asked: Pass, denial: &Denial, error: Errno) -> bool {
        let mut passes = task.passes.borrow_mut();
        let mut calls = self.calls();
        // One that was allowed and is denied again is not for an answer to decide.
        if passes.contains(&asked)
            || calls.closed
            || calls.waiting.len() >= MOST
            || !self.grants.ask(&asked)
        {
            return false;
        }
        let id = calls.last + 1;
        // Under the lock: the answer may come before this is back.
        if task.broker.reporter.query(denial, id) != Sent::Yes {
            self.grants.release(&asked);
            return false;
        }
        calls.last = id;
        if calls.waiting.is_empty() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        passes.push(asked);
        let held = Held {
            call: task.call,
            passes: std::mem::take(&mut *passes),
            denial: denial.clone(),
            error,
            deadline: Instant::now() + self.timeout,
            signalled: false,
        };
        calls.waiting.insert(id, held);
        true
    }

    /// Ends a held call with `error`, or what makes the kernel run it again.
    fn end(&self, broker: &Broker, held: &Held, error: i32) {
        // A target that is gone by now needs no answer.
        let _ = seccomp::answer_error(broker.listener(), held.call.id(), error);
        held.passes.iter().for_each(|pass| self.grants.release(pass));
    }

    /// Ends a held call as denied.
    fn deny(&self, broker: &Broker, held: &Held) {
        broker.reporter.denied(&held.denial);
        self.end(broker, held, held.error.raw_os_error());
    }

    /// Does as an answer says. One to a query that is not, or no longer, asked is none.
    fn answer(&self, broker: &Arc<Broker>, (id, action, scope): (u64, Action, Scope)) {
        let mut calls = self.calls();
        let Some(held) = calls.waiting.remove(&id) else { return };
        let asked = held.passes.last().expect("a call waits for something").clone();
        let kept = scope == Scope::Run && self.grants.keep(&asked, action == Action::Allow);
        match action {
            Action::Deny => {
                drop(calls);
                self.deny(broker, &held);
            }
            Action::Allow => {
                let covered = if kept { self.covered(broker, &mut calls, id) } else { Vec::new() };
                drop(calls);
                hand_on(broker, self, held);
                covered.into_iter().for_each(|held| hand_on(broker, self, held));
            }
        }
    }

    /// Takes the calls that need no answer of their own after that to query `id`.
    fn covered(&self, broker: &Broker, calls: &mut Calls, id: u64) -> Vec<Held> {
        let is_covered = |held: &Held| {
            held.passes.last().is_some_and(|pass| {
                let verdict = broker.decide(pass.access, &pass.path);
                self.grants.cover(pass.access, &pass.path, verdict.rule())
            })
        };
        let message = format!("allowed by the answer to query {id}");
        let mut covered = Vec::new();
        for (other, held) in std::mem::take(&mut calls.waiting) {
            if is_covered(&held) {
                broker.reporter.over(&held.denial, other, &message);
                covered.push(held);
            } else {
                calls.waiting.insert(other, held);
            }
        }
        covered
    }

    /// Nobody answers any more: what waits is denied, and nothing more is asked.
    fn close(&self, broker: &Broker) {
        let waiting = {
            let mut calls = self.calls();
            calls.closed = true;
            std::mem::take(&mut calls.waiting)
        };
        waiting.values().for_each(|held| self.deny(broker, held));
    }

    /// Denies what waited too long, and gives up calls whose target died or has a signal to take.
    fn look(&self, broker: &Broker, looked_at: &mut u64) {
        let now = Instant::now();
        let mut calls = self.calls();
        while let Some(first) = calls.waiting.first_entry().filter(|e| e.get().deadline <= now) {
            let (id, held) = first.remove_entry();
            let message = format!("no answer within {} s", self.timeout.as_secs());
            broker.reporter.over(&held.denial, id, &message);
            self.deny(broker, &held);
        }
        let after = *looked_at;
        let mut ids: Vec<u64> =
            calls.waiting.range(after + 1..).map(|(id, _)| *id).take(LOOKED_AT).collect();
        *looked_at = if ids.len() < LOOKED_AT { 0 } else { ids[LOOKED_AT - 1] };
        ids.retain(|id| {
            let held = calls.waiting.get_mut(id).expect("found just now");
            match held.look(broker) {
                Some(error) => {
                    let held = calls.waiting.remove(id).expect("found just now");
                    broker.reporter.over(&held.denial, *id, "the caller no longer waits");
                    self.end(broker, &held, error);
                    true
                }
                None => false,
            }
        });
    }

    fn is_waiting(&self) -> bool {
        !self.calls().waiting.is_empty()
    }
}

impl Held {
    /// The error that ends the call because its target has something else to do.
    fn look(&mut self, broker: &Broker) -> Option<i32> {
        if !broker.still_valid(self.call.id()) {
            return Some(Errno::SRCH.raw_os_error());
        }
        let status = super::task::status_of(&broker.proc, self.call.tid()).ok()?;
        if status.own_signals != 0 || (status.shared_signals != 0 && status.threads == 1) {
            return Some(pool::ERESTARTSYS);
        }
        // Another thread may take it. If none does, it is for this one: EINTR is right for the handler,
        // and harmless should somebody take it just now.
        let before = std::mem::replace(&mut self.signalled, status.shared_signals != 0);
        (before && self.signalled).then_some(Errno::INTR.raw_os_error())
    }
}

impl Reader {
    /// Reads answers until nobody gives any.
    fn run(mut self, broker: &Arc<Broker>, queries: &Queries) {
        let mut buffer = [0; 4096];
        while !queries.calls().closed {
            // Also while bytes keep coming.
            if self.next_look <= Instant::now() {
                queries.look(broker, &mut self.looked_at);
                self.next_look = Instant::now() + LOOK;
            }
            match self.wait(broker, queries) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => queries.close(broker),
            }
            match rustix::net::recv(&queries.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => queries.close(broker),
                Ok((size, _)) => self.lines.push(&buffer[..size], |line| {
                    if let Some(answer) = parse_answer(line) {
                        queries.answer(broker, answer);
                    }
                }),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => queries.close(broker),
            }
        }
    }

    /// Waits until there is something to read, or to do; whether there is something to read.
    fn wait(&self, broker: &Broker, queries: &Queries) -> Result<bool, Errno> {
        let mut wanted = PollFlags::IN;
        // Records that the other end had no room for wait with us.
        let pending = broker.reporter.is_pending();
        if pending {
            wanted |= PollFlags::OUT;
        }
        let limit = queries.is_waiting().then(|| {
            let left = self.next_look.saturating_duration_since(Instant::now());
            Timespec::try_from(left).expect("a fraction of a second")
        });
        let mut fds =
            [PollFd::new(&queries.socket, wanted), PollFd::new(&queries.wake, PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let (socket, wake) = (fds[0].revents(), fds[1].revents());
        if wake.contains(PollFlags::IN) {
            let _ = rustix::io::read(&queries.wake, &mut [0; 8]);
        }
        if pending && socket.contains(PollFlags::OUT) {
            broker.reporter.flush();
        }
        Ok(socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }
}

/// Starts the thread that reads answers, where there are queries at all. Without it nothing is asked.
pub fn start(broker: &Arc<Broker>) {
    let Some(queries) = &broker.queries else { return };
    let ours = Arc::clone(broker);
    let read = move || {
        if let Some(queries) = &ours.queries {
            Reader::default().run(&ours, queries);
        }
    };
    if thread::Builder::new().stack_size(pool::STACK).spawn(read).is_err() {
        queries.close(broker);
    }
}

/// Has calls whose answer is "yes" done over, each by a thread that does nothing else meanwhile.
fn hand_on(broker: &Arc<Broker>, queries: &Queries, held: Held) {
    let mut jobs = queries.jobs();
    jobs.ready.push_back(held);
    if jobs.ready.len() <= jobs.idle {
        queries.job.notify_one();
        return;
    }
    if jobs.threads < MOST_THREADS {
        let ours = Arc::clone(broker);
        let started = thread::Builder::new().stack_size(pool::STACK).spawn(move || serve(&ours));
        if started.is_ok() {
            jobs.threads += 1;
        } else if jobs.threads == 0 {
            let denied = std::mem::take(&mut jobs.ready);
            denied.iter().for_each(|held| queries.deny(broker, held));
        }
    }
}

fn serve(broker: &Arc<Broker>) {
    let Some(queries) = &broker.queries else { return };
    let slot = Arc::new(Slot::default());
    pool::prepare(broker, &slot);
    broker.pool.add_helper(&slot);
    loop {
        let held = {
            let mut jobs = queries.jobs();
            loop {
                if let Some(held) = jobs.ready.pop_front() {
                    break held;
                }
                jobs.idle += 1;
                jobs = queries.job.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                jobs.idle -= 1;
            }
        };
        let task = Task::new(broker, held.call, held.passes);
        pool::serve_one(broker, &task, &slot);
        task.passes.take().iter().for_each(|pass| queries.grants.release(pass));
    }
}

impl Task<'_> {
    /// Asks whether `access` to `path` is to be allowed after all, and holds the call until then;
    /// whether anybody can be asked. It gives `error` if the answer is "no".
    pub(super) fn ask(&self, access: Access, path: &[u8], error: Errno, denial: &Denial) -> bool {
        let Some(queries) = &self.broker.queries else { return false };
        // Not for what the policy itself allows and something else refuses, nor for a task that is in
        // a domain of its own: the broker could not do it.
        !self.nested.get()
            && !self.broker.decide(access, path).is_allowed()
            && queries.ask(self, Pass { access, path: path.to_vec() }, denial, error)
    }

    /// Whether an answer opens `path` for `access`, which the policy gave `verdict` on.
    pub(super) fn is_granted(&self, verdict: &Verdict<'_>, access: Access, path: &[u8]) -> bool {
        let (Verdict::Deny { rule, .. }, Some(queries)) = (verdict, &self.broker.queries) else {
            return false;
        };
        if rule.is_some_and(|rule| !rule.yields_to(path)) {
            return false;
        }
        let passes = self.passes.borrow();
        passes.iter().any(|pass| pass.access == access && pass.path == path)
            || queries.grants.cover(access, path, *rule)
    }

    /// The policy's verdict, and what answers made of it.
    pub(super) fn decide(&self, access: Access, path: &[u8]) -> Verdict<'_> {
        let verdict = self.broker.decide(access, path);
        if self.is_granted(&verdict, access, path) { Verdict::Allow(None) } else { verdict }
    }

    /// The same of [`Broker::decide_change`].
    pub(super) fn decide_change(&self, path: &[u8]) -> Verdict<'_> {
        let verdict = self.broker.decide_change(path);
        // Not the verdict of `decide_change`, which denies more than any answer is about.
        let asked = || self.broker.decide(Access::Write, path);
        if !verdict.is_allowed() && self.is_granted(&asked(), Access::Write, path) {
            return Verdict::Allow(None);
        }
        verdict
    }
}
