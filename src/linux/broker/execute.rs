//! execve(2) and execveat(2), where reads are restricted.
//!
//! Landlock holds the decision where the carve is exact; see SECURITY.md for the rest. What the kernel
//! opens beside the file that was named is decided on in the same way: the interpreter of a script, and
//! the one that an ELF file asks for.

use super::report::Refusal;
use super::resolve::{Object, file_type};
use super::task::Task;
use super::{Answer, Errno};
use crate::policy::Access;
use crate::trap::Operation;
use rustix::fs::{FileType, OFlags, ResolveFlags};
use std::os::fd::{AsFd, OwnedFd};

/// Most files that one call starts: a script, five that are each other's interpreter, as in the
/// kernel's exec_binprm, and the one that an ELF file asks for.
const FILES: usize = 7;
/// As many bytes of a script as the kernel looks at, BINPRM_BUF_SIZE.
const LINE: usize = 256;
/// Enough for what linkers put at the start: the ELF header, its table, and the interpreter's name.
const START: usize = 1024;
/// Most bytes of the table of an ELF file, as in the kernel's load_elf_phdrs.
const TABLE: usize = 65536;
/// Longest name of an interpreter.
const PATH_MAX: usize = 4096;

impl Task<'_> {
    /// Decides on everything that the kernel opens to run the file.
    pub(super) fn execute(&self, dirfd: i32, path: usize, flags: i32) -> Result<Answer, Errno> {
        let broker = self.broker;
        let mut text = match self.path(path) {
            // Who changed its user is closed to everybody without CAP_SYS_PTRACE until it has executed
            // something, PR_SET_DUMPABLE(2const).
            Err(Errno::PERM) if broker.linked.is_empty() && broker.kernel_holds_reading() => {
                return Ok(Answer::Continue);
            }
            text => text?,
        };
        let mut object = if text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            self.object_of(dirfd)?
        } else {
            let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
            self.object(dirfd, &text, follow, ResolveFlags::empty())?
        };
        self.still_waits()?;
        for file in 0..FILES {
            let path = object.named()?;
            let refusal = self.refused_program(&object, path, &text)?;
            if let Some(mut refusal) = refusal
                && !object.is_anonymous()
            {
                refusal.operation = Operation::Execute;
                return Ok(self.refuse(self.beside_interpreters(&object, refusal, FILES - file)));
            }
            if file_type(&rustix::fs::fstat(&object.fd)?) != FileType::RegularFile {
                // The kernel runs nothing else.
                return Err(Errno::ACCESS);
            }
            let next = match self.interpreter(&object) {
                Ok(next) => next,
                // Landlock refuses what is denied, if it names that.
                Err(_) if broker.linked.is_empty() && broker.kernel_holds(Access::Read, path) => {
                    break;
                }
                // A file that can be started and not read may name anything, and a lease keeps a file
                // from being read for as long as its holder likes.
                Err(errno) => {
                    let mut refusal = Refusal::new(Access::Read, path, &text, None);
                    refusal.operation = Operation::Execute;
                    let why = format!("its interpreter cannot be told: {errno}");
                    return Ok(self.refuse(refusal.because(why)));
                }
            };
            let Some(next) = next else { break };
            text = next;
            object = self.object(libc::AT_FDCWD, &text, true, ResolveFlags::empty())?;
        }
        Ok(Answer::Continue)
    }

    /// The refusal of reading one of the files, if it is refused.
    fn refused_program<'a>(
        &'a self,
        object: &Object,
        path: &'a [u8],
        text: &'a [u8],
    ) -> Result<Option<Refusal<'a>>, Errno> {
        let verdict = self.decide(Access::Read, path);
        self.refused_object(&verdict, (Access::Read, object), path, text)
    }

    /// The refusal of `object`, beside what would be refused of its interpreters, `most` of them.
    fn beside_interpreters<'a>(
        &'a self,
        object: &Object,
        mut refusal: Refusal<'a>,
        most: usize,
    ) -> Refusal<'a> {
        let mut next = self.interpreter(object);
        for _ in 0..most {
            let Ok(Some(text)) = next else { break };
            let found = self.object(libc::AT_FDCWD, &text, true, ResolveFlags::empty());
            let Ok(object) = found else { break };
            if let Ok(path) = object.named()
                && let Ok(found) = self.refused_program(&object, path, &text)
            {
                refusal = refusal.beside(found);
            }
            next = self.interpreter(&object);
        }
        refusal
    }

    /// The interpreter that `object` names, see execve(2).
    ///
    /// # Errors
    ///
    /// As open(2) and pread(2), when it cannot be told.
    fn interpreter(&self, object: &Object) -> Result<Option<Vec<u8>>, Errno> {
        let file = self.broker.reopen(object.fd.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK)?;
        let start = read_at(&file, 0, START)?;
        if start.starts_with(b"\x7fELF") {
            return elf_interpreter(&file, &start);
        }
        Ok(script_interpreter(&start[..start.len().min(LINE)]))
    }
}

/// The interpreter in the first line of a script that starts so.
fn script_interpreter(start: &[u8]) -> Option<Vec<u8>> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t\0".contains(byte)).filter(|word| !word.is_empty());
    words.next().map(<[u8]>::to_vec)
}

/// The name in the first `PT_INTERP` entry of an ELF file, see elf(5).
fn elf_interpreter(file: &OwnedFd, start: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    const PT_INTERP: u64 = 3;
    const WIDE: [u64; 2] = [libc::EM_X86_64 as u64, libc::EM_AARCH64 as u64];
    // The kernel goes by the machine and by the size of an entry, and not by what the file says of
    // its class.
    let machine = number(start, 18, 2).unwrap_or(0);
    let wide = WIDE.contains(&machine) && number(start, 54, 2) == Some(56);
    // Places of the fields in files of 64 and of 32 bits.
    let [table, entries, size] = if wide { [32, 56, 56] } else { [28, 44, 32] };
    let [offset, length] = if wide { [8, 32] } else { [4, 16] };
    let word = if wide { 8 } else { 4 };
    let (Some(table), Some(entries)) = (number(start, table, word), number(start, entries, 2))
    else {
        return Ok(None);
    };
    // The kernel runs no file with a larger table.
    let bytes = (entries as usize * size).min(TABLE);
    let read;
    let within = usize::try_from(table).ok().and_then(|at| start.get(at..at.checked_add(bytes)?));
    let table = match within {
        Some(table) => table,
        None => {
            read = read_at(file, table, bytes)?;
            read.as_slice()
        }
    };
    let Some(entry) = table.chunks_exact(size).find(|e| number(e, 0, 4) == Some(PT_INTERP)) else {
        return Ok(None);
    };
    let (Some(offset), Some(length)) = (number(entry, offset, word), number(entry, length, word))
    else {
        return Ok(None);
    };
    let length = usize::try_from(length).unwrap_or(PATH_MAX).min(PATH_MAX);
    let mut name = read_at(file, offset, length)?;
    name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
    Ok((!name.is_empty()).then_some(name))
}

/// The little-endian number of `size` bytes at `place`.
fn number(bytes: &[u8], place: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(place..place + size)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// What stands at `offset`, as much as there is of `length` bytes.
fn read_at(file: &OwnedFd, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let got = match rustix::io::pread(file, bytes.as_mut_slice(), offset) {
        // Past what a file can hold: the kernel finds nothing there either.
        Err(Errno::INVAL) => 0,
        got => got?,
    };
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{elf_interpreter, script_interpreter};
    use std::io::Write;

    /// An ELF file of one class whose second entry, at `table`, names an interpreter at `name`.
    fn elf(wide: bool, table: u64, name: u64) -> Vec<u8> {
        let size: u64 = if wide { 56 } else { 32 };
        let word = if wide { 8 } else { 4 };
        let mut bytes = vec![0; (table + 2 * size).max(name + 5) as usize];
        let mut put = |place: u64, value: u64, size: usize| {
            bytes[place as usize..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        put(18, if wide { 62 } else { 3 }, 2);
        put(if wide { 54 } else { 42 }, size, 2);
        put(if wide { 32 } else { 28 }, table, word);
        put(if wide { 56 } else { 44 }, 2, 2);
        let entry = table + size;
        put(entry, 3, 4);
        put(entry + if wide { 8 } else { 4 }, name, word);
        put(entry + if wide { 32 } else { 16 }, 5, word);
        bytes[name as usize..][..5].copy_from_slice(b"/l/i\0");
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes
    }

    #[test]
    fn elf_files_name_their_interpreter() {
        for wide in [true, false] {
            for (table, name) in [(64, 256), (64, 5000), (4096, 128), (2000, 9000)] {
                let bytes = elf(wide, table, name);
                let start = &bytes[..bytes.len().min(super::START)];
                let mut file = tempfile::tempfile().expect("a file");
                file.write_all(&bytes).expect("its content");
                let found = elf_interpreter(&file.into(), start).expect("read");
                assert_eq!(found.as_deref(), Some(&b"/l/i"[..]), "{wide} {table} {name}");
            }
        }
    }

    #[test]
    fn scripts_name_their_interpreter() {
        for (text, want) in [
            (&b"#!/bin/sh"[..], Some(&b"/bin/sh"[..])),
            (b"#! \t/bin/sh -e\nx", Some(b"/bin/sh")),
            (b"#!\n/bin/sh", None),
            (b"x#!/bin/sh", None),
            (b"", None),
        ] {
            assert_eq!(script_interpreter(text).as_deref(), want, "{text:?}");
        }
    }
}
