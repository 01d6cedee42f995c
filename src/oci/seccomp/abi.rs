//! The application binary interfaces that a kernel offers, and what a filter has to know of them.

use super::calls::CALLS;
use oci_spec::runtime::Arch;

/// One way to number system calls. A 64-bit kernel answers to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Abi {
    /// 64-bit programs on x86-64.
    X86_64,
    /// Programs with 32-bit pointers on x86-64: the same numbers with a bit set, and some of their own.
    X32,
    /// 32-bit programs on x86-64.
    X86,
    /// 64-bit programs on ARM.
    Aarch64,
    /// 32-bit programs on ARM (EABI).
    Arm,
}

/// The bit that tells x32 from x86-64, which have one `AUDIT_ARCH`.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// ARM's calls from here on are the kernel's private ones, far behind the others.
pub(super) const ARM_PRIVATE: u32 = 0x000f_0000;

impl Abi {
    /// What the machine that this program was built for runs.
    pub const NATIVE: Abi = if cfg!(target_arch = "aarch64") { Abi::Aarch64 } else { Abi::X86_64 };

    /// What else a kernel of this architecture may run.
    fn others(self) -> &'static [Abi] {
        match self {
            Abi::X86_64 => &[Abi::X86, Abi::X32],
            Abi::Aarch64 => &[Abi::Arm],
            Abi::X32 | Abi::X86 | Abi::Arm => &[],
        }
    }

    /// The native one and those of `listed` that a kernel of this architecture can meet. Others
    /// never occur in a filter's data, so there is nothing to say about them.
    pub(super) fn among(self, listed: &[Arch]) -> Vec<Abi> {
        let wanted = |abi: Abi| listed.contains(&abi.name());
        let others = self.others().iter().copied().filter(|abi| wanted(*abi));
        std::iter::once(self).chain(others).collect()
    }

    fn name(self) -> Arch {
        match self {
            Abi::X86_64 => Arch::ScmpArchX86_64,
            Abi::X32 => Arch::ScmpArchX32,
            Abi::X86 => Arch::ScmpArchX86,
            Abi::Aarch64 => Arch::ScmpArchAarch64,
            Abi::Arm => Arch::ScmpArchArm,
        }
    }

    /// The kernel's `AUDIT_ARCH_*`, which stands in `seccomp_data.arch`.
    pub fn audit(self) -> u32 {
        match self {
            Abi::X86_64 | Abi::X32 => 0xc000_003e,
            Abi::X86 => 0x4000_0003,
            Abi::Aarch64 => 0xc000_00b7,
            Abi::Arm => 0x4000_0028,
        }
    }

    /// Whether all 64 bits of an argument count. Of the others the kernel takes the low half, while
    /// `seccomp_data` may hold more: a 64-bit program that enters by `int 0x80` fills the whole
    /// register, and would get around a comparison of 64 bits.
    pub(super) fn is_wide(self) -> bool {
        matches!(self, Abi::X86_64 | Abi::Aarch64)
    }
}

/// In a row: there is no such call there.
pub(super) const NO: u32 = u32::MAX;

/// The longest name in the table is shorter.
const NAME: usize = 32;

/// A system call: its name, filled up with zeros, and its numbers in the order of [`Abi`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    name: [u8; NAME],
    numbers: [u32; 5],
}

/// A row of the table.
pub(super) const fn call(text: &[u8], numbers: [u32; 5]) -> Call {
    let mut name = [0; NAME];
    let mut at = 0;
    while at < text.len() {
        name[at] = text[at];
        at += 1;
    }
    Call { name, numbers }
}

impl Call {
    /// The call of this name, if any architecture has it.
    pub(super) fn named(text: &str) -> Option<&'static Call> {
        let mut name = [0; NAME];
        name.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        CALLS.binary_search_by(|call| call.name.cmp(&name)).ok().map(|at| &CALLS[at])
    }

    /// Its name.
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default().trim_end_matches('\0')
    }

    /// Its number, as it stands in `seccomp_data.nr`.
    pub(super) fn number(&self, abi: Abi) -> Option<u32> {
        let number = self.numbers[abi as usize];
        (number != NO).then_some(if abi == Abi::X32 { number | X32_BIT } else { number })
    }
}

/// The number of the call `name`, as it stands in `seccomp_data.nr`, if `abi` has it.
pub fn number(name: &str, abi: Abi) -> Option<u32> {
    Call::named(name)?.number(abi)
}

/// A call that takes the number of another as its first argument.
pub(super) struct Multiplexer {
    /// Its own number.
    pub(super) number: u32,
    /// The bits of its first argument that say which call is meant.
    pub(super) mask: u64,
    /// What it calls: the number in the argument.
    pub(super) operation: u64,
}

/// `socketcall` (`SYS_*` of linux/net.h).
const SOCKET_CALLS: [&str; 20] = [
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "getsockname",
    "getpeername",
    "socketpair",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "accept4",
    "recvmmsg",
    "sendmmsg",
];

/// `ipc` (linux/ipc.h).
const IPC_CALLS: [(&str, u64); 12] = [
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];

/// The other way to `name`. Only 32-bit x86 still has one.
pub(super) fn multiplexer(name: &str, abi: Abi) -> Option<Multiplexer> {
    if abi != Abi::X86 {
        return None;
    }
    if let Some(at) = SOCKET_CALLS.iter().position(|call| *call == name) {
        let operation = at as u64 + 1;
        return Some(Multiplexer { number: 102, mask: u64::MAX, operation });
    }
    let (_, operation) = *IPC_CALLS.iter().find(|(call, _)| *call == name)?;
    // The upper half is a version of the interface, which the kernel takes off first.
    Some(Multiplexer { number: 117, mask: 0xffff, operation })
}
