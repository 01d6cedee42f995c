//! Denials that somebody is asked about: a query holds the call until its answer comes.
//!
//! A call that is asked about keeps no worker: the notification stays valid while the target waits, so
//! it is put aside, and when the answer has come, the call is done over with that in hand.
//! Nothing is carried over from the first time: memory is read and paths are resolved anew, and whatever
//! they mean by then has to be what was allowed, or it is asked about again.
//!
//! A call that is given back to the kernel for a signal mostly comes again, from the same thread. Until
//! it does, the question stays, and counts when it comes: so a program that a timer interrupts all the
//! time gets its answer, too.

use super::asked::Hosts;
use super::due::Due;
use super::grants::{Grants, Pass, Subject};
use super::helpers::Helpers;
use super::task::Task;
use super::terms::Key;
use super::{Answer, Broker, Errno};
use crate::linux::sys::seccomp::{self, Notification};
use crate::policy::{Access, Use, Verdict};
use crate::trap::{Action, Denial, Scope, Sent};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most calls that wait for an answer at once; later ones are refused as if nobody could be asked.
const MOST: usize = 1024;
/// Most of them that one look is about, so that many cost no more than a few.
const LOOKED_AT: usize = 64;
/// How long a call that was given back has for coming again. The kernel needs no time for it; the
/// handler of the signal may.
const GRACE: Duration = Duration::from_secs(1);

/// The queries of one run.
pub struct Queries {
    /// The other end answers.
    pub(super) socket: OwnedFd,
    timeout: Duration,
    /// Tells the thread that reads that a call waits, which then has to be looked at.
    pub(super) wake: OwnedFd,
    calls: Mutex<Calls>,
    /// The hosts that are asked about.
    pub(super) hosts: Hosts,
    /// Who does calls over.
    pub(super) helpers: Helpers,
    /// What answers granted.
    pub(super) grants: Grants,
    /// Of the terms of calls.
    pub(super) key: Key,
}

#[derive(Default)]
struct Calls {
    /// Nobody answers any more.
    closed: bool,
    /// The thread that reads wakes up by itself to look at calls.
    watched: bool,
    /// The id of the last query. None is used twice.
    last: u64,
    /// The calls that wait, by the id of their query: the first has waited longest.
    waiting: BTreeMap<u64, Held>,
    /// Those that were given back to the kernel, by thread.
    away: HashMap<i32, Away>,
}

/// A question that was put.
pub struct Question {
    id: u64,
    denial: Denial,
    /// What the call gives if the answer is "no".
    error: Errno,
    deadline: Instant,
}

/// A call that waits for an answer, or to be done over.
pub struct Held {
    /// The call.
    pub call: Notification,
    /// What was allowed for this call before, and last what is asked about now.
    pub passes: Vec<Pass>,
    /// The question.
    pub question: Question,
    due: Due,
}

/// A call that may come again.
struct Away {
    held: Held,
    since: Instant,
    /// What was answered meanwhile.
    answer: Option<Action>,
}

/// How a question compares with that of a call that was given back.
enum Compared {
    /// It is the same question.
    Same,
    /// It is one that the same call was allowed before.
    Earlier,
    /// It is something else.
    Other,
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
            hosts: Hosts::default(),
            helpers: Helpers::default(),
            grants: Grants::default(),
            key: Key::default(),
        })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an answer may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// An id for another query.
    pub(super) fn next_id(&self) -> u64 {
        let mut calls = self.calls();
        calls.last += 1;
        calls.last
    }

    /// Has the thread that reads look after what waits.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Sends the query and puts the call of `task` aside; none if that was not possible.
    fn ask(
        &self,
        task: &Task<'_>,
        subject: Subject,
        denial: &Denial,
        error: Errno,
    ) -> Option<Answer> {
        let asked = Pass { subject, terms: task.terms() };
        let mut passes = task.passes.borrow_mut();
        // What was allowed on other terms is over.
        passes.extract_if(.., |pass| pass.terms != asked.terms).for_each(|pass| {
            self.grants.release(&pass.subject);
        });
        let mut calls = self.calls();
        // One that was allowed and is denied again is not for an answer to decide.
        if passes.contains(&asked) || calls.closed {
            return None;
        }
        if let Some(away) = calls.away.remove(&task.tid()) {
            match (away.compare(task, &asked, denial), away.answer) {
                (Compared::Same, None) => {
                    self.release(&passes);
                    passes.clear();
                    let held = Held { call: task.call, due: Due::default(), ..away.held };
                    self.put_aside(&mut calls, held);
                    return Some(Answer::Asked);
                }
                (Compared::Same, Some(Action::Deny)) => {
                    self.release(&away.held.passes);
                    task.broker.reporter.denied(denial);
                    return Some(Answer::Error(error));
                }
                (Compared::Same | Compared::Earlier, Some(Action::Allow)) => {
                    self.release(&passes);
                    *passes = away.held.passes;
                    task.answered.set(Some(away.held.question));
                    return Some(Answer::Again);
                }
                (Compared::Earlier, _) if self.grants.ask(&asked.subject) => {
                    calls.away.insert(task.tid(), away);
                    passes.push(asked);
                    return Some(Answer::Again);
                }
                _ => self.drop_away(task.broker, away, NO_LONGER),
            }
        }
        if calls.waiting.len() + calls.away.len() >= MOST || !self.grants.ask(&asked.subject) {
            return None;
        }
        let id = calls.last + 1;
        // Under the lock: the answer may come before this is back.
        if task.broker.reporter.query(denial, id) != Sent::Yes {
            self.grants.release(&asked.subject);
            return None;
        }
        calls.last = id;
        passes.push(asked);
        let deadline = Instant::now() + self.timeout;
        let question = Question { id, denial: denial.clone(), error, deadline };
        let passes = std::mem::take(&mut *passes);
        self.put_aside(&mut calls, Held { call: task.call, passes, question, due: Due::default() });
        Some(Answer::Asked)
    }

    fn put_aside(&self, calls: &mut Calls, held: Held) {
        if !std::mem::replace(&mut calls.watched, true) {
            self.wake();
        }
        calls.waiting.insert(held.question.id, held);
    }

    /// Ends what was settled for these.
    pub fn release(&self, passes: &[Pass]) {
        passes.iter().for_each(|pass| self.grants.release(&pass.subject));
    }

    /// Ends a held call as denied.
    pub fn deny(&self, broker: &Broker, held: &Held) {
        broker.reporter.denied(&held.question.denial);
        self.release(&held.passes);
        // A target that is gone by now needs no answer.
        let error = held.question.error.raw_os_error();
        let _ = seccomp::answer_error(broker.listener(), held.call.id(), error);
    }

    /// Says that a question is over, and why.
    fn over(&self, broker: &Broker, question: &Question, why: &str) {
        broker.reporter.over(&question.denial, question.id, why);
    }

    /// A call that was given back does not come again, or need not.
    fn drop_away(&self, broker: &Broker, away: Away, why: &str) {
        if away.answer.is_none() {
            self.over(broker, &away.held.question, why);
        }
        self.release(&away.held.passes);
    }

    /// Does as an answer says; whether it is one to a query that is asked.
    pub fn answer(&self, broker: &Arc<Broker>, (id, action, scope): (u64, Action, Scope)) -> bool {
        if self.answer_for_host(broker, (id, action, scope)) {
            if (action, scope) == (Action::Allow, Scope::Run) {
                let covered = self.covered(broker, &mut self.calls(), id);
                covered.into_iter().for_each(|held| self.helpers.hand_on(broker, self, held));
            }
            return true;
        }
        let mut calls = self.calls();
        let keep = |held: &Held| {
            let asked = &held.passes.last().expect("a call waits for something").subject;
            scope == Scope::Run && self.grants.keep(asked, action == Action::Allow)
        };
        let Some(held) = calls.waiting.remove(&id) else {
            let away = calls.away.values_mut().find(|away| away.held.question.id == id);
            let Some(away) = away.filter(|away| away.answer.is_none()) else { return false };
            away.answer = Some(action);
            let covers = keep(&away.held) && action == Action::Allow;
            let covered = if covers { self.covered(broker, &mut calls, id) } else { Vec::new() };
            drop(calls);
            self.cover_hosts(broker, id);
            covered.into_iter().for_each(|held| self.helpers.hand_on(broker, self, held));
            return true;
        };
        let kept = keep(&held);
        match action {
            Action::Deny => {
                drop(calls);
                self.deny(broker, &held);
            }
            Action::Allow => {
                let covered = if kept { self.covered(broker, &mut calls, id) } else { Vec::new() };
                drop(calls);
                self.helpers.hand_on(broker, self, held);
                self.cover_hosts(broker, id);
                covered.into_iter().for_each(|held| self.helpers.hand_on(broker, self, held));
            }
        }
        true
    }

    /// Takes the calls that need no answer of their own after that to query `id`.
    fn covered(&self, broker: &Broker, calls: &mut Calls, id: u64) -> Vec<Held> {
        let is_covered = |held: &Held| match held.passes.last().map(|pass| &pass.subject) {
            Some(Subject::Path(access, path)) => {
                let verdict = broker.decide(*access, path);
                self.grants.cover(*access, path, verdict.rule())
            }
            Some(Subject::Endpoint(using, endpoint)) => self.grants.opens(*using, endpoint),
            None => false,
        };
        let message = format!("allowed by the answer to query {id}");
        let away = calls.away.extract_if(|_, away| away.answer.is_none() && is_covered(&away.held));
        away.for_each(|(_, away)| self.drop_away(broker, away, &message));
        let mut covered = Vec::new();
        for (other, held) in std::mem::take(&mut calls.waiting) {
            if is_covered(&held) {
                self.over(broker, &held.question, &message);
                covered.push(held);
            } else {
                calls.waiting.insert(other, held);
            }
        }
        covered
    }

    /// Whether nobody answers any more.
    pub fn is_closed(&self) -> bool {
        self.calls().closed
    }

    /// Nobody answers any more: what waits is denied, and nothing more is asked.
    pub fn close(&self, broker: &Broker) {
        let (waiting, away) = {
            let mut calls = self.calls();
            calls.closed = true;
            (std::mem::take(&mut calls.waiting), std::mem::take(&mut calls.away))
        };
        self.hosts.close(broker);
        waiting.values().for_each(|held| self.deny(broker, held));
        away.values().for_each(|away| self.release(&away.held.passes));
    }

    /// The run is over, and so are its questions.
    pub fn finish(&self, broker: &Broker) {
        let mut calls = self.calls();
        if !std::mem::replace(&mut calls.closed, true) {
            let why = "the run is over";
            calls.waiting.values().for_each(|held| self.over(broker, &held.question, why));
            self.hosts.finish(broker, why);
            std::mem::take(&mut calls.away)
                .into_values()
                .for_each(|away| self.drop_away(broker, away, why));
        }
    }

    /// Denies what waited too long, and gives back calls whose target died or has a signal to take.
    pub fn look(&self, broker: &Broker, looked_at: &mut u64) {
        let now = Instant::now();
        let mut calls = self.calls();
        let late = format!("no answer within {} s", self.timeout.as_secs());
        self.hosts.look(broker, &late);
        while let Some(first) =
            calls.waiting.first_entry().filter(|e| e.get().question.deadline <= now)
        {
            let held = first.remove();
            self.over(broker, &held.question, &late);
            self.deny(broker, &held);
        }
        let gone = |away: &Away| away.since + GRACE <= now || away.held.question.deadline <= now;
        let gone: Vec<Away> =
            calls.away.extract_if(|_, away| gone(away)).map(|(_, away)| away).collect();
        gone.into_iter().for_each(|away| self.drop_away(broker, away, NO_LONGER));
        let after = *looked_at;
        let ids: Vec<u64> =
            calls.waiting.range(after + 1..).map(|(id, _)| *id).take(LOOKED_AT).collect();
        *looked_at = if ids.len() < LOOKED_AT { 0 } else { ids[LOOKED_AT - 1] };
        for id in ids {
            let held = calls.waiting.get_mut(&id).expect("found just now");
            if let Some(error) = held.look(broker) {
                let held = calls.waiting.remove(&id).expect("found just now");
                self.give_back(broker, &mut calls, held, error, None);
            }
        }
        // Those that are allowed and for which there is no thread yet.
        for (held, error) in self.helpers.look(|held| held.look(broker), LOOKED_AT) {
            self.give_back(broker, &mut calls, held, error, Some(Action::Allow));
        }
    }

    /// Gives a call back to the kernel, which ends it with `error` or has it made again.
    fn give_back(
        &self,
        broker: &Broker,
        calls: &mut Calls,
        held: Held,
        error: i32,
        answer: Option<Action>,
    ) {
        let (tid, id) = (held.call.tid(), held.call.id());
        let before = calls.away.insert(tid, Away { held, since: Instant::now(), answer });
        // Before it can come again, and under the lock that it needs for that.
        let lost = seccomp::answer_error(broker.listener(), id, error).is_err();
        let lost = if lost { calls.away.remove(&tid) } else { None };
        for away in before.into_iter().chain(lost) {
            self.drop_away(broker, away, NO_LONGER);
        }
    }

    /// The call of `task`, which an answer allowed, is about to be given back to the kernel: it keeps the
    /// answer.
    pub fn keep_answer(&self, task: &Task<'_>) {
        let (passes, question) = (task.passes.take(), task.answered.take());
        let Some(question) = question else { return self.release(&passes) };
        let held = Held { call: task.call, passes, question, due: Due::default() };
        let away = Away { held, since: Instant::now(), answer: Some(Action::Allow) };
        let before = self.calls().away.insert(task.tid(), away);
        if let Some(before) = before {
            self.drop_away(task.broker, before, NO_LONGER);
        }
        self.wake();
    }

    /// Whether the thread that reads has to wake up by itself: there is something to look at, or there
    /// `soon` will be. Where it need not, it is woken by the first call that waits.
    pub fn watch(&self, soon: bool) -> bool {
        let mut calls = self.calls();
        let waiting = !calls.waiting.is_empty() || !calls.away.is_empty() || self.hosts.wait();
        calls.watched = soon || waiting || self.helpers.is_behind();
        calls.watched
    }
}

/// Why a question is over whose caller has gone on.
pub(super) const NO_LONGER: &str = "the caller no longer waits";

impl Away {
    fn compare(&self, task: &Task<'_>, asked: &Pass, denial: &Denial) -> Compared {
        let Held { call, passes, question, .. } = &self.held;
        let same = call.nr() == task.call.nr()
            && (0..6).all(|at| call.arg(at) == task.call.arg(at))
            && question.denial.process == denial.process;
        match passes.split_last() {
            Some((last, _)) if same && last == asked => Compared::Same,
            Some((_, before)) if same && before.contains(asked) => Compared::Earlier,
            _ => Compared::Other,
        }
    }
}

impl Held {
    /// The error that ends the call because its target has something else to do.
    fn look(&mut self, broker: &Broker) -> Option<i32> {
        if !broker.still_valid(self.call.id()) {
            return Some(Errno::SRCH.raw_os_error());
        }
        self.due.look(&broker.proc, self.call.tid())
    }
}

impl Task<'_> {
    /// Asks whether `access` to `path` is to be allowed after all, and holds the call until then; none
    /// where nobody can be asked. It gives `error` if the answer is "no".
    pub(super) fn ask(
        &self,
        access: Access,
        path: &[u8],
        error: Errno,
        denial: &Denial,
    ) -> Option<Answer> {
        let queries = self.broker.queries.as_ref()?;
        // Not for what the policy itself allows and something else refuses, nor for a task that is in
        // a domain of its own: the broker could not do it.
        if self.nested.get() || self.broker.decide(access, path).is_allowed() {
            return None;
        }
        queries.ask(self, Subject::Path(access, path.to_vec()), denial, error)
    }

    /// The same for the use of an endpoint.
    pub(super) fn ask_for_endpoint(
        &self,
        (using, endpoint): (Use, &[u8]),
        denial: &Denial,
    ) -> Option<Answer> {
        let queries = self.broker.queries.as_ref()?;
        if self.nested.get() {
            return None;
        }
        queries.ask(self, Subject::Endpoint(using, endpoint.to_vec()), denial, Errno::ACCESS)
    }

    fn has_pass(&self, is_it: impl Fn(&Subject) -> bool) -> bool {
        let terms = self.terms();
        self.passes.borrow().iter().any(|pass| pass.terms == terms && is_it(&pass.subject))
    }

    /// Whether an answer opens `path` for `access`, which the policy gave `verdict` on.
    pub(super) fn is_granted(&self, verdict: &Verdict<'_>, access: Access, path: &[u8]) -> bool {
        let (Verdict::Deny { rule, .. }, Some(queries)) = (verdict, &self.broker.queries) else {
            return false;
        };
        if rule.is_some_and(|rule| !rule.yields_to(path)) {
            return false;
        }
        self.has_pass(|subject| matches!(subject, Subject::Path(a, p) if *a == access && p == path))
            || queries.grants.cover(access, path, *rule)
    }

    /// Whether an answer opens `endpoint` for `using`.
    pub(super) fn is_opened(&self, using: Use, endpoint: &[u8]) -> bool {
        let Some(queries) = &self.broker.queries else { return false };
        self.has_pass(
            |subject| matches!(subject, Subject::Endpoint(u, e) if *u == using && e == endpoint),
        ) || queries.grants.opens(using, endpoint)
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
