//! How long the scheduler lets a thread run at a time.

/// The shortest slice there is, in nanoseconds.
const SHORTEST: u64 = 100_000;

/// Gives the calling thread the shortest slice: it runs the sooner after it wakes, before what else waits for the
/// same processor, and gets no more of it in all (sched(7), "fair scheduling"; `sched_runtime` of sched_setattr(2)
/// means this since Linux 6.12, and nothing before).
///
/// A thread of another scheduling policy, and one that may not do this, stays as it is.
pub fn shorten() {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: plain numbers, for which all zeroes are values.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes there.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if got != 0 || !matches!(attr.sched_policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return;
    }
    attr.size = size as u32;
    attr.sched_runtime = SHORTEST;
    // SAFETY: reads `attr`, which says how large it is.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_the_slice_of_this_thread_where_the_kernel_knows_such() {
        let slice = || {
            let size = size_of::<libc::sched_attr>();
            // SAFETY: as above.
            let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
            assert_eq!(got, 0);
            (attr.sched_policy, attr.sched_nice, attr.sched_runtime)
        };
        std::thread::spawn(move || {
            let (policy, nice, before) = slice();
            shorten();
            // Before Linux 6.12, none is told.
            let shortened = if before == 0 { 0 } else { SHORTEST };
            assert_eq!(slice(), (policy, nice, shortened));
        })
        .join()
        .unwrap();
    }
}
