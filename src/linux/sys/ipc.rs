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

/// Whether the object exists, as far as this process may know.
pub fn exists(kind: Kind, id: i32) -> bool {
    // Large enough for each of shmid64_ds, semid64_ds and msqid64_ds.
    let mut buffer = [0u64; 32];
    let at = buffer.as_mut_ptr();
    // SAFETY: IPC_STAT writes less than the buffer holds.
    let result = unsafe {
        match kind {
            Kind::SharedMemory => libc::syscall(libc::SYS_shmctl, id, libc::IPC_STAT, at),
            Kind::Semaphores => libc::syscall(libc::SYS_semctl, id, 0, libc::IPC_STAT, at),
            Kind::Messages => libc::syscall(libc::SYS_msgctl, id, libc::IPC_STAT, at),
        }
    };
    !matches!(check(result), Err(Errno::INVAL | Errno::IDRM))
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
