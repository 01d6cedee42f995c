//! A file-system context of a thread's own: its working directory and its mask, which threads share
//! otherwise.

use super::Errno;
use std::arch::asm;
use std::ffi::c_void;
use std::mem::ManuallyDrop;

/// Does `work` with a working directory and a mask that no other thread has: in the calling thread, which
/// keeps them, or, where a container's filter refuses unshare(2) whatever it is asked for, in another one that
/// is born with them. It takes the calling one's place, which waits meanwhile.
///
/// # Errors
///
/// As clone(2): then nothing was done.
pub fn with_own(work: impl FnOnce()) -> Result<(), Errno> {
    // SAFETY: CLONE_FS splits no memory and no descriptors, which `unshare_unsafe` warns of.
    if unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.is_ok() {
        work();
        return Ok(());
    }
    in_another(work)
}

/// What a thread of pthread_create(3) shares with the others, but for the file-system context. The caller waits
/// (`CLONE_VFORK`), so that its stack and its thread-local variables can be the new thread's.
const SHARED: libc::c_int = libc::CLONE_VM
    | libc::CLONE_VFORK
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

fn in_another<F: FnOnce()>(work: F) -> Result<(), Errno> {
    extern "C" fn run<F: FnOnce()>(work: *mut c_void) -> ! {
        // SAFETY: `in_another` passes its `work`, and leaves it alone from then on.
        unsafe {
            ManuallyDrop::take(&mut *work.cast::<ManuallyDrop<F>>())();
            // The number of this thread alone: exit_group(2) ends the others as well.
            libc::syscall(libc::SYS_exit, 0);
        }
        std::process::abort()
    }
    let mut work = ManuallyDrop::new(work);
    // SAFETY: the new thread runs `run` below this frame, which stands still until it has ended, and never
    // comes back into it. Thread-local variables are used by one of the two at a time; what the C library keeps
    // there of the thread's number is not asked for.
    let result = unsafe { clone_below(run::<F>, (&raw mut work).cast()) };
    if result < 0 {
        // SAFETY: nobody took it.
        unsafe { ManuallyDrop::drop(&mut work) };
        return Err(Errno::from_raw_os_error(-result as i32));
    }
    Ok(())
}

/// Has a new thread call `run` on the stack below the caller's frame; the thread's number, or a negative errno.
///
/// No function of the C library does that: they keep a thread's stack and its variables apart.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_below(run: extern "C" fn(*mut c_void) -> !, work: *mut c_void) -> i64 {
    let result;
    // SAFETY: clone(2) with flags, a stack below the red zone, and three zeros. The caller vouches for the rest.
    unsafe {
        asm!(
            "lea rsi, [rsp - 256]",
            "and rsi, -16",
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, {work}",
            "call {run}",
            "2:",
            work = in(reg) work,
            run = in(reg) run,
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") i64::from(SHARED),
            out("rsi") _,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

/// The same.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_below(run: extern "C" fn(*mut c_void) -> !, work: *mut c_void) -> i64 {
    let result;
    // SAFETY: as above.
    unsafe {
        asm!(
            "sub x1, sp, #256",
            "svc #0",
            "cbnz x0, 2f",
            "mov x0, {work}",
            "blr {run}",
            "2:",
            work = in(reg) work,
            run = in(reg) run,
            in("x8") libc::SYS_clone,
            inlateout("x0") i64::from(SHARED) => result,
            out("x1") _,
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
        );
    }
    result
}
