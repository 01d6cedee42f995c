//! The terms of a call: what an answer to a query about it is held to.
//!
//! Registers cannot change while the target waits. All else can: what is in its memory, and what its
//! names and descriptors mean. So everything that is copied out of the target, and every name that is
//! found by it beside the one that is asked about, goes into one number. When the call is done over
//! and that comes out differently, what was allowed does not count, and the call is asked about anew.
//!
//! The number is a keyed hash with a key of this run's that nobody else knows, so a target cannot look
//! for two terms that share one; it has to try, and each try is another question.

use super::Errno;
use super::task::Task;
use crate::linux::sys::memory;
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};

/// What one run of a call went by so far.
#[derive(Default)]
pub struct Terms {
    /// The number.
    so_far: Cell<u64>,
    /// What of it is shown, by name.
    said: RefCell<Vec<(&'static str, String)>>,
    /// Something of it cannot be shown as it is.
    untold: Cell<bool>,
}

impl Task<'_> {
    /// The call is looked at from the start.
    pub(super) fn begin_terms(&self) {
        self.terms.so_far.set(0);
        self.terms.said.borrow_mut().clear();
        self.terms.untold.set(false);
    }

    /// The number for what was noted since.
    pub(super) fn terms(&self) -> u64 {
        self.terms.so_far.get()
    }

    /// Whether a record can say all that the call is about.
    pub(super) fn is_telling(&self) -> bool {
        !self.terms.untold.get()
    }

    /// Takes down that the call goes by `bytes`, too.
    pub(super) fn note(&self, bytes: &[u8]) {
        if let Some(queries) = &self.broker.queries {
            self.terms.so_far.set(queries.key.hash_one((self.terms(), bytes)));
        }
    }

    /// The same for something that comes from memory and is shown as `name`. What is not UTF-8 is not.
    pub(super) fn say(&self, name: &'static str, value: impl FnOnce() -> Option<String>) {
        if self.broker.queries.is_none() {
            return;
        }
        match value() {
            Some(value) => self.terms.said.borrow_mut().push((name, value)),
            None => self.terms.untold.set(true),
        }
    }

    /// Reads the target's memory as [`memory::read`] does.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let got = memory::read(self.tid(), address, buffer)?;
        self.note(&buffer[..got]);
        Ok(got)
    }

    /// Reads exactly `N` bytes of it.
    pub(super) fn read_array<const N: usize>(&self, address: u64) -> Result<[u8; N], Errno> {
        let bytes = memory::read_array(self.tid(), address)?;
        self.note(&bytes);
        Ok(bytes)
    }

    /// Reads a string of it, as [`memory::read_string`] does.
    pub(super) fn read_string(
        &self,
        address: u64,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        memory::read_string(self.tid(), address, limit, out)?;
        self.note(out);
        Ok(())
    }

    /// What the call asks for beside paths and flags, by name: from its registers, and what was said.
    pub(super) fn arguments(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let octal = |bits: u64| format!("0{bits:o}");
        match registers(self.call.nr()) {
            Shown::Nothing => {}
            Shown::Mode(at) => all.push(("mode", octal(self.call.arg(at) & 0o7777))),
            Shown::CreationMode { flags, mode } => {
                let flags = self.int(flags);
                if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
                    all.push(("mode", octal(self.call.arg(mode) & 0o7777)));
                }
            }
            Shown::Node(at) => all.push(("mode", octal(self.call.arg(at) & 0o177_777))),
            Shown::Size(at) => all.push(("size", self.call.arg(at).to_string())),
            Shown::Owner(at) => {
                for (name, id) in [("owner", self.int(at)), ("group", self.int(at + 1))] {
                    if id != -1 {
                        all.push((name, (id as u32).to_string()));
                    }
                }
            }
        }
        all.extend(self.terms.said.borrow().iter().cloned());
        all
    }

    /// The flags of a call on names, by name.
    pub(super) fn name_flags(&self) -> Vec<&'static str> {
        let (known, flags): (&[_], i32) = match self.call.nr() {
            libc::SYS_renameat2 => (
                &[
                    (libc::RENAME_NOREPLACE as i32, "RENAME_NOREPLACE"),
                    (libc::RENAME_EXCHANGE as i32, "RENAME_EXCHANGE"),
                ],
                self.int(4),
            ),
            libc::SYS_unlinkat => (&[(libc::AT_REMOVEDIR, "AT_REMOVEDIR")], self.int(2)),
            _ => (&[], 0),
        };
        known.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect()
    }
}

/// Which registers hold what is shown.
enum Shown {
    Nothing,
    /// A file's mode.
    Mode(usize),
    /// A mode that counts if the flags make a file.
    CreationMode {
        flags: usize,
        mode: usize,
    },
    /// A type and a mode.
    Node(usize),
    /// A length.
    Size(usize),
    /// A user, and then a group.
    Owner(usize),
}

fn registers(number: i64) -> Shown {
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_open => return Shown::CreationMode { flags: 1, mode: 2 },
        libc::SYS_creat | libc::SYS_mkdir | libc::SYS_chmod => return Shown::Mode(1),
        libc::SYS_mknod => return Shown::Node(1),
        libc::SYS_chown | libc::SYS_lchown => return Shown::Owner(1),
        _ => {}
    }
    match number {
        libc::SYS_openat => Shown::CreationMode { flags: 2, mode: 3 },
        libc::SYS_mkdirat | libc::SYS_fchmodat | libc::SYS_fchmodat2 => Shown::Mode(2),
        libc::SYS_fchmod => Shown::Mode(1),
        libc::SYS_mknodat => Shown::Node(2),
        libc::SYS_truncate => Shown::Size(1),
        libc::SYS_fchown => Shown::Owner(1),
        libc::SYS_fchownat => Shown::Owner(2),
        _ => Shown::Nothing,
    }
}

/// The key of one run.
pub type Key = RandomState;
