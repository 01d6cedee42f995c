//! Random system calls: whatever a program passes, the broker answers.

use crate::Outcome;
use crate::args::fail;
use libc as c;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Notified calls that end by themselves, or do where nothing is opened that waits.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    c::SYS_openat, c::SYS_openat2, c::SYS_mkdirat, c::SYS_mknodat, c::SYS_unlinkat, c::SYS_renameat2,
    c::SYS_linkat, c::SYS_symlinkat, c::SYS_truncate, c::SYS_fchmod, c::SYS_fchmodat, c::SYS_fchmodat2,
    c::SYS_fchown, c::SYS_fchownat, c::SYS_utimensat, c::SYS_setxattr, c::SYS_lsetxattr,
    c::SYS_fsetxattr, c::SYS_removexattr, c::SYS_lremovexattr, c::SYS_fremovexattr, 463, 466,
    c::SYS_umask, c::SYS_landlock_create_ruleset, c::SYS_shmget, c::SYS_shmat, c::SYS_shmctl,
    c::SYS_semget, c::SYS_semctl, c::SYS_msgget, c::SYS_msgctl, c::SYS_mq_open, c::SYS_mq_unlink,
    c::SYS_socket, c::SYS_socketpair, c::SYS_connect, c::SYS_bind, c::SYS_listen, c::SYS_prlimit64,
    c::SYS_sched_setaffinity, c::SYS_setpriority, c::SYS_ioprio_set, c::SYS_ioctl, c::SYS_setgroups,
];
/// The same of x86-64 alone: open, creat, mkdir, mknod, unlink, rmdir, rename, link, symlink, chmod,
/// chown, lchown, utime, utimes, futimesat.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[2, 85, 83, 133, 87, 84, 82, 86, 88, 90, 92, 94, 132, 235, 261];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

/// Nothing but names of this directory: it might be run without a sandbox.
const PATHS: &[&str] =
    &["a", "b", "d/a", "d", "", ".", "l", "a/", "d//b", "/proc/self/fd/4", "\u{7f}\n"];
const NUMBERS: &[u64] =
    &[0, 1, 2, 16, 24, 25, 110, 4096, 0x7fff_ffff, 1 << 31, 1 << 32, 1 << 63, u64::MAX];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A place in `memory`, with something there that a call could take.
    fn place(&mut self, memory: &mut [u8]) -> u64 {
        let at = self.below(memory.len() - 512) & !7;
        let place = &mut memory[at..at + 512];
        match self.below(4) {
            0 => place[..64].iter_mut().for_each(|byte| *byte = self.0.rotate_left(9) as u8),
            1 => place[..64].chunks_mut(8).for_each(|word| {
                word.copy_from_slice(&self.of(NUMBERS).to_ne_bytes());
            }),
            2 => {
                let family = self.of(&[c::AF_UNIX, c::AF_INET, c::AF_INET6, 77]) as u16;
                place[..2].copy_from_slice(&family.to_ne_bytes());
                place[2..8].copy_from_slice(&[0, 0, 127, 0, 0, 1]);
            }
            _ => {
                let path = self.of(PATHS).as_bytes();
                place[..path.len()].copy_from_slice(path);
                place[path.len()] = 0;
            }
        }
        place.as_ptr() as u64
    }

    fn argument(&mut self, memory: &mut [u8]) -> u64 {
        match self.below(8) {
            0 => self.of(NUMBERS),
            1 => c::AT_FDCWD as u64,
            2 => self.below(12) as u64,
            // The last page, and addresses of the kernel's.
            3 => (self.below(8192) as u64).wrapping_neg(),
            4 => (c::O_CREAT | c::O_RDWR) as u64,
            _ => self.place(memory),
        }
    }

    /// A call and its arguments, changed where it could wait, or reach another process.
    fn call(&mut self, memory: &mut [u8]) -> (i64, [u64; 6]) {
        let number =
            if self.below(4) == 0 && !OLD.is_empty() { self.of(OLD) } else { self.of(CALLS) };
        let mut args = [(); 6].map(|()| self.argument(memory));
        match number {
            c::SYS_openat => args[2] |= c::O_NONBLOCK as u64,
            2 if !OLD.is_empty() => args[1] |= c::O_NONBLOCK as u64,
            133 if !OLD.is_empty() => args[1] &= 0o777,
            c::SYS_mknodat => args[2] &= 0o777,
            c::SYS_socket | c::SYS_socketpair => {
                args[0] = self.of(&[1, 2, 10, 16, 40]);
                args[1] = self.of(&[1, 2, 5, 3]) | c::SOCK_NONBLOCK as u64;
            }
            // Not over what is there.
            c::SYS_shmat => args[1] = 0,
            c::SYS_prlimit64 | c::SYS_sched_setaffinity => (args[0], args[2]) = (u64::MAX, 0),
            c::SYS_setpriority | c::SYS_ioprio_set => args[1] = u64::MAX,
            // TIOCGPTPEER.
            c::SYS_ioctl => args[1] = 0x5441,
            _ => {}
        }
        (number, args)
    }
}

/// `noise MILLISECONDS`: random calls by three threads; how many succeeded, and how many failed.
pub fn noise(text: &str) -> Outcome {
    let time = text.parse().unwrap_or_else(|_| fail("milliseconds"));
    let end = Instant::now() + Duration::from_millis(time);
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for turn in 1..=3 {
            let counts = &counts;
            scope.spawn(move || {
                let clock =
                    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
                let (mut random, mut memory) = (Random(clock ^ turn << 40 | 1), vec![0; 1 << 16]);
                while Instant::now() < end {
                    let (number, [a, b, c, d, e, f]) = random.call(&mut memory);
                    // SAFETY: none of the calls writes more than a few hundred bytes, and `memory`, which
                    // all of the addresses are of that can be written, is never used but by calls.
                    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
                    counts[usize::from(result < 0)].fetch_add(1, Ordering::Relaxed);
                    if turn == 1 && random.below(64) == 0 {
                        // SAFETY: by value; what is above the standard streams is ours.
                        unsafe { libc::syscall(c::SYS_close_range, 8, u32::MAX, 0) };
                    }
                }
            });
        }
    });
    let [ok, failed] = counts.map(AtomicU64::into_inner);
    Ok(format!("{ok} {failed}"))
}
