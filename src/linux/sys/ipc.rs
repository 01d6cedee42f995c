//! System V shared memory, semaphores and message queues, sysvipc(7).

use super::{Errno, check};

/// The three kinds of System V objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// shmget(2).
    SharedMemory,
    /// semget(2).
    Semaphores,
    /// msgget(2).
    Messages,
}

/// The object for `key`, made when `flags` say so. `size` is bytes or the number of semaphores.
///
/// # Errors
///
/// As shmget(2), semget(2) and msgget(2).
pub fn get(kind: Kind, key: i32, size: usize, flags: i32) -> Result<i32, Errno> {
    // SAFETY: by-value system calls.
    check(unsafe {
        match kind {
            Kind::SharedMemory => libc::syscall(libc::SYS_shmget, key, size, flags),
            Kind::Semaphores => libc::syscall(libc::SYS_semget, key, size as i32, flags),
            Kind::Messages => libc::syscall(libc::SYS_msgget, key, flags),
        }
    })
    .map(|id| id as i32)
}

/// Removes the object; one that is gone already is no error.
pub fn remove(kind: Kind, id: i32) {
    // SAFETY: IPC_RMID takes no buffer.
    unsafe {
        match kind {
            Kind::SharedMemory => libc::syscall(libc::SYS_shmctl, id, libc::IPC_RMID, 0),
            Kind::Semaphores => libc::syscall(libc::SYS_semctl, id, 0, libc::IPC_RMID, 0),
            Kind::Messages => libc::syscall(libc::SYS_msgctl, id, libc::IPC_RMID, 0),
        };
    }
}
