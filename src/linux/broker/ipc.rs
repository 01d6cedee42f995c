//! Objects that processes share by name: `/dev/shm` files, System V objects, message queues.
//!
//! The run may use those that it made. A namespace of its own would need privileges and time; the
//! broker's bookkeeping needs neither, and holds for every user.

use super::task::Task;
use super::{Answer, Errno};
use crate::linux::sys::ipc::{self, Kind};
use crate::policy::Reason;
use crate::policy::Verdict;
use crate::trap::Operation;
use rustix::fs::{AtFlags, Stat};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where shm_overview(7) and sem_overview(7) keep their objects.
const HOME: &[u8] = b"/dev/shm";
/// Most objects that a run may hold.
const LIMIT: usize = 16 * 1024;

/// The objects that the run made.
pub struct Objects {
    made: Mutex<Made>,
    tmpfs: bool,
}

/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

#[derive(Default)]
struct Made {
    /// The run is over: nothing more may be made.
    closed: bool,
    /// Files in `/dev/shm`, by device and inode.
    files: HashMap<(u64, u64), Vec<u8>>,
    ids: HashSet<(Kind, i32)>,
}

impl Objects {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects of a run; files in `/dev/shm` only where that is a tmpfs, which does not use an inode
    /// number twice.
    pub fn new() -> Objects {
        let tmpfs = rustix::fs::statfs(HOME).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC);
        Objects { made: Mutex::default(), tmpfs }
    }

    /// Whether a name may be made in `directory` although no rule of the policy allows it.
    pub fn may_create(&self, directory: &[u8], verdict: &Verdict<'_>) -> bool {
        self.is_home(directory)
            && matches!(verdict, Verdict::Deny { reason: Reason::AllowMiss, .. })
    }

    /// Whether `directory` is where shared memory lives.
    pub fn is_home(&self, directory: &[u8]) -> bool {
        self.tmpfs && directory == HOME
    }

    /// Whether the run made the file.
    pub fn owns_file(&self, stat: &Stat) -> bool {
        let made = self.made();
        !made.files.is_empty() && made.files.contains_key(&(stat.st_dev, stat.st_ino))
    }

    /// Remembers a file that the run just made.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when it made too many.
    pub fn own_file(&self, file: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(file)?;
        let mut made = self.made();
        if made.closed || made.files.len() >= LIMIT {
            return Err(Errno::NOSPC);
        }
        made.files.insert((stat.st_dev, stat.st_ino), name.to_vec());
        Ok(())
    }

    /// Forgets a file whose last name is about to go.
    pub fn forget_file(&self, stat: &Stat) {
        if stat.st_nlink <= 1 {
            self.made().files.remove(&(stat.st_dev, stat.st_ino));
        }
    }

    /// Removes what the run left behind.
    pub fn remove_all(&self) {
        let mut made = self.made();
        made.closed = true;
        for (kind, id) in std::mem::take(&mut made.ids) {
            ipc::remove(kind, id);
        }
        if made.files.is_empty() {
            return;
        }
        // A file may have been renamed or linked since: what counts is the inode.
        let Ok(directory) = rustix::fs::open(
            HOME,
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        ) else {
            return;
        };
        let Ok(entries) = rustix::fs::Dir::read_from(&directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            // A file may have several names.
            if made.files.contains_key(&(stat.st_dev, stat.st_ino)) {
                let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
            }
        }
    }
}

impl Task<'_> {
    /// shmget(2), semget(2) and msgget(2).
    pub(super) fn ipc_get(&self) -> Result<Answer, Errno> {
        let (kind, size, flags) = match self.call.nr() {
            libc::SYS_shmget => (Kind::SharedMemory, self.call.arg(1) as usize, self.int(2)),
            libc::SYS_semget => (Kind::Semaphores, self.call.arg(1) as usize, self.int(2)),
            _ => (Kind::Messages, 0, self.int(1)),
        };
        self.may_act()?;
        let key = self.int(0);
        let objects = &self.broker.memory;
        let exclusive = flags & libc::IPC_EXCL != 0;
        if key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0 {
            // Held until the object is noted, so that none is made once the run is over.
            let mut made = objects.made();
            if made.ids.len() >= LIMIT {
                made.ids.retain(|&(kind, id)| ipc::exists(kind, id));
            }
            if made.closed || made.ids.len() >= LIMIT {
                return Err(Errno::NOSPC);
            }
            match ipc::get(kind, key, size, flags | libc::IPC_EXCL) {
                Ok(id) => {
                    made.ids.insert((kind, id));
                    return Ok(Answer::Value(i64::from(id)));
                }
                Err(Errno::EXIST) if !exclusive => {}
                Err(errno) => return Err(errno),
            }
        }
        let id = ipc::get(kind, key, size, flags & !(libc::IPC_CREAT | libc::IPC_EXCL))?;
        if objects.made().ids.contains(&(kind, id)) {
            return Ok(Answer::Value(i64::from(id)));
        }
        Ok(self.refuse_ipc(Operation::Read, format!("{} key {key:#x}", describe(kind))))
    }

    /// The calls on an object: its id is in register 0, so the kernel sees the same one.
    pub(super) fn ipc_use(&self) -> Result<Answer, Errno> {
        let kind = match self.call.nr() {
            libc::SYS_shmat | libc::SYS_shmctl => Kind::SharedMemory,
            libc::SYS_semop | libc::SYS_semtimedop | libc::SYS_semctl => Kind::Semaphores,
            _ => Kind::Messages,
        };
        self.may_act()?;
        let id = self.int(0);
        if self.broker.memory.made().ids.contains(&(kind, id)) {
            return Ok(Answer::Continue);
        }
        Ok(self.refuse_ipc(Operation::Write, format!("{} id {id}", describe(kind))))
    }

    /// mq_open(3) and mq_unlink(3): named in a directory of the kernel's own that no rule reaches.
    pub(super) fn message_queue(&self) -> Result<Answer, Errno> {
        let name = self.path(0)?;
        self.still_waits()?;
        let target = format!("message queue /{}", String::from_utf8_lossy(&name));
        Ok(self.refuse_ipc(Operation::Write, target))
    }
}

fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::SharedMemory => "shared memory",
        Kind::Semaphores => "semaphore set",
        Kind::Messages => "message queue",
    }
}
