//! The one system call here that no safe crate offers.
#![allow(unsafe_code)]

/// Whether two processes share their memory, as after clone(2) with `CLONE_VM`: kcmp(2) with
/// `KCMP_VM`. Where the kernel does not answer (built without it, or no permission), they count as
/// separate.
pub fn same_memory(one: u32, other: u32) -> bool {
    /// `KCMP_VM` of `linux/kcmp.h`, which libc does not carry.
    const KCMP_VM: libc::c_long = 1;
    let pids = [one, other].map(libc::c_long::from);
    // SAFETY: kcmp takes five integers, reads and writes no memory of ours.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pids[0], pids[1], KCMP_VM, 0, 0) };
    order == 0
}
