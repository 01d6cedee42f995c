//! The threads that do calls over whose answer is "yes". They receive none, and may take their time.

use super::Broker;
use super::pool::{self, Slot};
use super::query::{Held, Queries};
use super::task::Task;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most of them. More calls than that at once wait for each other; see [`pool::Pool::place_to_wait`] for
/// those that wait for somebody else.
pub const MOST: usize = 64;

/// The threads, and what they have to do.
#[derive(Default)]
pub struct Helpers {
    jobs: Mutex<Jobs>,
    /// There is a job.
    job: Condvar,
}

#[derive(Default)]
struct Jobs {
    ready: VecDeque<Held>,
    /// Threads in all, and those that wait for a job.
    threads: usize,
    idle: usize,
}

impl Helpers {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a call done over by a thread that does nothing else meanwhile.
    pub fn hand_on(&self, broker: &Arc<Broker>, queries: &Queries, held: Held) {
        let mut jobs = self.jobs();
        jobs.ready.push_back(held);
        if jobs.ready.len() <= jobs.idle {
            self.job.notify_one();
            return;
        }
        if jobs.threads < MOST {
            let ours = Arc::clone(broker);
            let serve = move || {
                if let Some(queries) = &ours.queries {
                    queries.helpers.serve(&ours);
                }
            };
            if pool::start(serve).is_ok() {
                jobs.threads += 1;
            } else if jobs.threads == 0 {
                let denied = std::mem::take(&mut jobs.ready);
                drop(jobs);
                denied.iter().for_each(|held| queries.deny(broker, held));
            }
        }
    }

    /// Whether calls wait for a thread.
    pub fn is_behind(&self) -> bool {
        !self.jobs().ready.is_empty()
    }

    /// Looks at the first `most` calls that wait for a thread, and takes those out that have an error.
    pub fn look(
        &self,
        mut look: impl FnMut(&mut Held) -> Option<i32>,
        most: usize,
    ) -> Vec<(Held, i32)> {
        let mut jobs = self.jobs();
        let mut taken = Vec::new();
        for _ in 0..jobs.ready.len().min(most) {
            let Some(mut held) = jobs.ready.pop_front() else { break };
            match look(&mut held) {
                Some(error) => taken.push((held, error)),
                None => jobs.ready.push_back(held),
            }
        }
        taken
    }

    fn serve(&self, broker: &Arc<Broker>) {
        let slot = Arc::new(Slot::default());
        pool::prepare(broker, &slot);
        broker.pool.add_helper(&slot);
        loop {
            let Held { call, passes, question, .. } = {
                let mut jobs = self.jobs();
                loop {
                    if let Some(held) = jobs.ready.pop_front() {
                        break held;
                    }
                    jobs.idle += 1;
                    jobs = self.job.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                    jobs.idle -= 1;
                }
            };
            let task = Task::again(broker, call, passes, question);
            pool::serve_one(broker, &task, &slot);
        }
    }
}
