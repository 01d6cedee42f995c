//! Hosts that somebody is asked about: the proxy holds the connection until the answer has come.
//!
//! As with a system call that is held, nobody waits here: the question is put aside, and its answer is sent
//! on to the proxy's process by whoever has it.

use super::Broker;
use super::grants::Subject;
use super::query::{NO_LONGER, Queries};
use crate::policy::Use;
use crate::trap::{Action, Denial, Scope, Sent};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Most hosts that are asked about at once; others are refused as if nobody could be asked.
const MOST: usize = 256;

/// The questions about hosts of one run.
#[derive(Default)]
pub struct Hosts(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Nobody answers any more.
    closed: bool,
    /// By the id of their query: the first has waited longest.
    hosts: BTreeMap<u64, Asked>,
}

/// One question.
struct Asked {
    /// What the proxy's process calls it.
    number: u64,
    subject: Subject,
    denial: Denial,
    deadline: Instant,
}

impl Asked {
    /// Ends it: the proxy hears what was answered.
    fn end(&self, broker: &Broker, allowed: bool) {
        if !allowed {
            broker.reporter.denied(&self.denial);
        }
        if let Some(control) = &broker.network {
            control.answer(self.number, allowed);
        }
    }
}

impl Hosts {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are questions.
    pub fn wait(&self) -> bool {
        !self.waiting().hosts.is_empty()
    }

    /// Puts question `id`; whether it was.
    fn put(&self, broker: &Broker, id: u64, asked: Asked) -> bool {
        // Held meanwhile: the answer may come before this is back.
        let mut waiting = self.waiting();
        let put = !waiting.closed
            && waiting.hosts.len() < MOST
            && broker.reporter.query(&asked.denial, id) == Sent::Yes;
        if put {
            waiting.hosts.insert(id, asked);
        }
        put
    }

    /// Takes out the questions that `is_it` is true of.
    fn take(&self, is_it: impl Fn(u64, &Asked) -> bool) -> BTreeMap<u64, Asked> {
        let mut waiting = self.waiting();
        let (taken, left) = std::mem::take(&mut waiting.hosts)
            .into_iter()
            .partition(|(id, asked)| is_it(*id, asked));
        waiting.hosts = left;
        taken
    }

    /// Nobody waits for the answer to what the proxy's process calls `number`.
    pub fn forget(&self, broker: &Broker, number: u64) {
        for (id, asked) in self.take(|_, asked| asked.number == number) {
            broker.reporter.over(&asked.denial, id, NO_LONGER);
        }
    }

    /// Says that all questions are over, and why.
    pub fn finish(&self, broker: &Broker, why: &str) {
        for (id, asked) in self.take(|_, _| true) {
            broker.reporter.over(&asked.denial, id, why);
        }
    }

    /// Nobody answers any more: what waits is denied.
    pub fn close(&self, broker: &Broker) {
        self.waiting().closed = true;
        self.take(|_, _| true).values().for_each(|asked| asked.end(broker, false));
    }

    /// Denies what waited too long, and says that it did.
    pub fn look(&self, broker: &Broker, late: &str) {
        let now = Instant::now();
        for (id, asked) in self.take(|_, asked| asked.deadline <= now) {
            broker.reporter.over(&asked.denial, id, late);
            asked.end(broker, false);
        }
    }

    /// Allows those that need no answer of their own after that to query `id`.
    fn cover(&self, broker: &Broker, queries: &Queries, id: u64) {
        let message = format!("allowed by the answer to query {id}");
        for (other, asked) in self.take(|_, asked| queries.opens(&asked.subject)) {
            broker.reporter.over(&asked.denial, other, &message);
            asked.end(broker, true);
        }
    }
}

impl Queries {
    fn opens(&self, subject: &Subject) -> bool {
        matches!(subject, Subject::Endpoint(using, host) if self.grants.opens(*using, host))
    }

    /// Asks about a host that the proxy would refuse, and calls `number`; what is to be done where nobody has to
    /// be asked, or can be.
    pub(super) fn ask_for_host(
        &self,
        broker: &Broker,
        number: u64,
        denial: &Denial,
    ) -> Option<bool> {
        let target = denial.target.as_deref().unwrap_or_default();
        // As the endpoint of a call.
        let subject = Subject::Endpoint(Use::Connect, [target.as_bytes(), b"\0"].concat());
        if self.opens(&subject) {
            return Some(true);
        }
        if self.grants.ask(&subject) {
            let (denial, deadline) = (denial.clone(), Instant::now() + self.timeout());
            let asked = Asked { number, subject, denial, deadline };
            if self.hosts.put(broker, self.next_id(), asked) {
                self.wake();
                return None;
            }
        }
        broker.reporter.record(denial);
        Some(false)
    }

    /// Does as an answer says; whether it is one to a question about a host.
    pub(super) fn answer_for_host(
        &self,
        broker: &Broker,
        (id, action, scope): (u64, Action, Scope),
    ) -> bool {
        let taken = self.hosts.take(|other, _| other == id);
        let Some(asked) = taken.values().next() else { return false };
        let allowed = action == Action::Allow;
        let kept = scope == Scope::Run && self.grants.keep(&asked.subject, allowed);
        asked.end(broker, allowed);
        if kept && allowed {
            self.cover_hosts(broker, id);
        }
        true
    }

    /// Allows hosts that wait and need no answer of their own after that to query `id`.
    pub(super) fn cover_hosts(&self, broker: &Broker, id: u64) {
        self.hosts.cover(broker, self, id);
    }
}
