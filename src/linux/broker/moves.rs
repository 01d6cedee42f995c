//! Moves exclude each other, as far as they can meet.
//!
//! A move is judged by what stands at its two names, which no other move may change until it is done. Only
//! a move in the same file system can: so one that hangs, on a file system that does not answer, holds up
//! those on that file system and no others. Who waits can be interrupted.

use super::Errno;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The moves that are under way.
#[derive(Default)]
pub struct Moves {
    /// The device numbers of the directories on both sides, two a move.
    busy: Mutex<Vec<u64>>,
    /// Counts the moves that ended.
    ended: AtomicU32,
}

/// A move that is under way.
pub struct Moving<'a> {
    moves: &'a Moves,
    devices: [u64; 2],
}

impl Moves {
    /// Begins a move between directories on `devices`, as soon as there is no other one on either.
    ///
    /// # Errors
    ///
    /// What `waiting` says, which is called once before waiting, and `EINTR`.
    pub fn begin<T>(
        &self,
        devices: [u64; 2],
        waiting: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<Moving<'_>, Errno> {
        if let Some(moving) = self.try_begin(devices) {
            return Ok(moving);
        }
        let _leave = waiting()?;
        loop {
            let seen = self.ended.load(Ordering::Acquire);
            if let Some(moving) = self.try_begin(devices) {
                return Ok(moving);
            }
            match futex::wait(&self.ended, futex::Flags::PRIVATE, seen, None) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn try_begin(&self, devices: [u64; 2]) -> Option<Moving<'_>> {
        let mut busy = self.busy();
        if busy.iter().any(|device| devices.contains(device)) {
            return None;
        }
        busy.extend(devices);
        Some(Moving { moves: self, devices })
    }

    fn busy(&self) -> MutexGuard<'_, Vec<u64>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Nobody else's are among them.
        self.moves.busy().retain(|device| !self.devices.contains(device));
        self.moves.ended.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&self.moves.ended, futex::Flags::PRIVATE, u32::MAX >> 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_moves_on_the_same_devices_wait() {
        let moves = Moves::default();
        let full = || Err::<(), _>(Errno::BUSY);
        let one = moves.begin([1, 1], full).ok();
        assert!(one.is_some());
        assert_eq!(moves.begin([1, 2], full).err(), Some(Errno::BUSY));
        assert_eq!(moves.begin([2, 1], full).err(), Some(Errno::BUSY));
        let other = moves.begin([2, 3], full).ok();
        assert!(other.is_some());
        drop(one);
        assert_eq!(moves.begin([1, 3], full).err(), Some(Errno::BUSY));
        assert!(moves.begin([1, 4], full).is_ok());
    }

    #[test]
    fn who_waits_goes_on_when_the_other_is_done() {
        let moves = Moves::default();
        let one = moves.begin([1, 1], || Ok(())).ok();
        std::thread::scope(|scope| {
            let (sender, waits) = std::sync::mpsc::channel();
            let waiter = scope.spawn(|| {
                let waiting = move || sender.send(()).map_err(|_| Errno::IO);
                moves.begin([1, 2], waiting).is_ok()
            });
            waits.recv().expect("it waits");
            drop(one);
            assert!(waiter.join().expect("it ends"));
        });
    }
}
