//! Connections whose client has not said yet what it wants. They are few at once, whatever a program opens: one
//! more takes the place of the oldest. So who says nothing, or says it slowly, keeps nobody out, and what is
//! kept of unfinished requests is bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// The most at once.
const MOST: usize = 1024;

/// Those that wait now, by when they came.
#[derive(Default)]
pub struct Waiting(Mutex<(u64, BTreeMap<u64, Sender<()>>)>);

/// A place among those that wait, until it is dropped.
pub struct Place {
    room: Arc<Waiting>,
    number: u64,
}

/// Says when a place was given to another.
pub struct Lost(Receiver<()>);

impl Waiting {
    /// Takes a place, the oldest if there is no other.
    pub fn enter(self: &Arc<Waiting>) -> (Place, Lost) {
        let (sender, receiver) = channel();
        let mut places = self.lock();
        let (next, taken) = &mut *places;
        *next += 1;
        taken.insert(*next, sender);
        let number = *next;
        if taken.len() > MOST
            && let Some((_, oldest)) = taken.pop_first()
        {
            // Where nobody listens any more, it has ended by itself.
            let _ = oldest.send(());
        }
        (Place { room: Arc::clone(self), number }, Lost(receiver))
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Sender<()>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.lock().1.remove(&self.number);
    }
}

impl Lost {
    /// Waits until the place was given to another; for ever, where it was left.
    pub async fn wait(self) {
        if self.0.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way() {
        let room = Arc::new(Waiting::default());
        let mut all: Vec<(Place, Lost)> = (0..MOST).map(|_| room.enter()).collect();
        let lost = |all: &mut Vec<(Place, Lost)>| {
            let lost = all.iter_mut().map(|(_, lost)| lost.0.try_recv().is_ok());
            lost.collect::<Vec<bool>>()
        };
        assert!(lost(&mut all).iter().all(|lost| !lost), "there is room for all");
        // One that has said what it wants is not in the way.
        drop(all.remove(0));
        all.push(room.enter());
        assert!(lost(&mut all).iter().all(|lost| !lost));
        all.push(room.enter());
        assert_eq!(lost(&mut all).iter().position(|lost| *lost), Some(0));
        assert_eq!(room.lock().1.len(), MOST);
        drop(all);
        assert!(room.lock().1.is_empty());
    }
}
