//! System calls through the other entries of the processor: i386 (`int 0x80`) and x32 numbers.

use crate::Outcome;
use crate::args::{Call, fail};

/// Opens a path through the i386 entry. The kernel takes 32-bit pointers there, so the path is
/// copied below 4 GiB first.
#[cfg(target_arch = "x86_64")]
pub fn int80_open(path: &str, flags: i64, mode: i64) -> Outcome {
    // SAFETY: a fresh private mapping of one page, larger than the path; `int 0x80` changes eax
    // and, on some processors, r8-r11. rbx is saved by hand because LLVM keeps it for itself.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
            -1,
            0,
        );
        if page == libc::MAP_FAILED || path.len() >= 4096 {
            fail("no memory below 4 GiB");
        }
        std::ptr::copy_nonoverlapping(path.as_ptr(), page.cast(), path.len());
        let got: i64;
        std::arch::asm!(
            "mov {saved}, rbx", "mov rbx, {path}", "int 0x80", "mov rbx, {saved}",
            saved = out(reg) _, path = in(reg) page,
            inlateout("rax") 5_i64 => got, // open(2) in arch/x86/entry/syscalls/syscall_32.tbl
            in("rcx") flags, in("rdx") mode,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
        let got = got as i32;
        if got < 0 { Err(-got) } else { Ok(String::new()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn int80_open(_: &str, _: i64, _: i64) -> Outcome {
    fail("no i386 entry on this processor")
}

/// Makes the call under its x32 number (`__X32_SYSCALL_BIT`).
pub fn x32(mut call: Call) -> Outcome {
    call.number |= 0x4000_0000;
    call.make().map(|_| String::new())
}
