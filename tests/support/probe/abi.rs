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

/// Makes a system call fail with `errno`, here and in all that comes after: `NAME`, or its number, or
/// `NAME:BITS` where its first argument has one of these bits.
pub fn refuse(text: &str, errno: i32) {
    let (name, bits) = text.split_once(':').unwrap_or((text, ""));
    let number = name.parse().ok().or_else(|| crate::table::number(name));
    let number = number.unwrap_or_else(|| fail("no such call"));
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let wanted = match bits {
        "" => step(0x05, 0, 0),
        bits => {
            let bits = crate::args::number(bits, &crate::Vars::new()) as u32;
            libc::sock_filter { code: 0x45, jt: 0, jf: 1, k: bits }
        }
    };
    let program = [
        step(0x20, 0, 0),                                                 // load the number
        libc::sock_filter { code: 0x15, jt: 0, jf: 3, k: number as u32 }, // is it this one?
        step(0x20, 0, 16),                                                // load the first argument
        wanted,                                                           // has it these bits?
        step(0x06, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(0x06, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let length = program.len() as u16;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which lives until then.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result != 0 {
        fail("no seccomp filter can be installed");
    }
}

/// Takes a seccomp filter that allows everything, and a Landlock domain that restricts nothing but
/// TCP: what a sandbox inside the sandbox looks like.
pub fn nest() -> Outcome {
    let allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let program = libc::sock_fprog { len: 1, filter: (&raw const allow).cast_mut() };
    // struct landlock_ruleset_attr: access to files, access to the network.
    let attributes = [0_u64, 1];
    let fail = |result: i64| if result < 0 { Err(crate::args::errno()) } else { Ok(result) };
    // SAFETY: every pointer is to a live value of the type that the call wants.
    unsafe {
        fail(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        fail(libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program))?;
        let create = libc::SYS_landlock_create_ruleset;
        let ruleset = fail(libc::syscall(create, attributes.as_ptr(), 16, 0))?;
        fail(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0))?;
        libc::close(ruleset as i32);
    }
    Ok(String::new())
}
