//! `struct open_how` of openat2(2), judged as the kernel judges it before it looks at any path.

use super::sys::Errno;
use rustix::fs::{OFlags, ResolveFlags};

/// What an openat2(2) asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Flags of open(2).
    pub flags: OFlags,
    /// Permissions of what is made.
    pub mode: u32,
    /// How the path is walked.
    pub resolve: ResolveFlags,
}

/// The bytes of the structure: `{ u64 flags, mode, resolve; }`.
pub const SIZE: usize = 24;

/// `O_TMPFILE` without the `O_DIRECTORY` that it contains.
const TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
const DIRECTORY: u64 = libc::O_DIRECTORY as u64;
const CREATE: u64 = libc::O_CREAT as u64;

/// The ways to walk a path that there are. `ResolveFlags::all()` would be every bit.
const WAYS: ResolveFlags = ResolveFlags::NO_XDEV
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::BENEATH)
    .union(ResolveFlags::IN_ROOT)
    .union(ResolveFlags::CACHED);

/// Reads the structure, see build_open_flags in the kernel's fs/open.c.
///
/// # Errors
///
/// `EINVAL` for flags that are unknown or exclude each other, and for a mode where nothing is made;
/// `EAGAIN` for what can never be done from the cache alone.
pub fn decode(how: &[u8; SIZE]) -> Result<How, Errno> {
    let word = |at: usize| u64::from_ne_bytes(how[at..at + 8].try_into().expect("eight bytes"));
    let (flags, mode, resolve) = (word(0), word(8), word(16));
    let creates = flags & (CREATE | TMPFILE) != 0;
    let ways = ResolveFlags::from_bits_retain(resolve);
    let writes = flags & ACCESS_MODE as u64 != libc::O_RDONLY as u64;
    if flags & !VALID_FLAGS != 0
        || !WAYS.contains(ways)
        || ways.contains(ResolveFlags::BENEATH | ResolveFlags::IN_ROOT)
        || mode & !0o7777 != 0
        || (mode != 0 && !creates)
        // A directory is never made by an open, and a file without a name is always written.
        || flags & (CREATE | DIRECTORY) == CREATE | DIRECTORY
        || (flags & TMPFILE != 0 && (flags & DIRECTORY == 0 || !writes))
        || (flags & libc::O_PATH as u64 != 0 && flags & !PLACE_FLAGS != 0)
    {
        return Err(Errno::INVAL);
    }
    if ways.contains(ResolveFlags::CACHED) && (creates || flags & libc::O_TRUNC as u64 != 0) {
        return Err(Errno::AGAIN);
    }
    let flags = OFlags::from_bits_retain(flags as u32);
    Ok(How { flags, mode: mode as u32, resolve: ways })
}

/// The access mode's bits; `O_ACCMODE` is another value in musl.
const ACCESS_MODE: i32 = 3;

/// Flags that openat2(2) knows; others are an error there, unlike in open(2).
const VALID_FLAGS: u64 = (ACCESS_MODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | LARGEFILE
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE) as u64;

/// Flags of openat2(2) that go with `O_PATH`.
const PLACE_FLAGS: u64 =
    (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64;

/// `O_LARGEFILE`, which glibc defines as 0 on 64-bit targets.
#[cfg(target_arch = "x86_64")]
const LARGEFILE: i32 = 0o100_000;
#[cfg(not(target_arch = "x86_64"))]
const LARGEFILE: i32 = 0o400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let how = |flags: i32, mode: u64, resolve: u64| {
            let words = [flags as u32 as u64, mode, resolve].map(u64::to_ne_bytes);
            decode(&words.concat().try_into().unwrap()).map(|how| how.mode)
        };
        let (beneath, in_root, cached) = (0x8, 0x10, 0x20);
        for (flags, mode, resolve, want) in [
            (libc::O_RDONLY, 0, 0, Ok(0)),
            (libc::O_WRONLY | libc::O_CREAT, 0o644, beneath, Ok(0o644)),
            (libc::O_RDWR | libc::O_TMPFILE, 0o600, 0, Ok(0o600)),
            (libc::O_PATH | libc::O_NOFOLLOW, 0, 0x3, Ok(0)),
            (libc::O_RDONLY, 0, cached, Ok(0)),
            (libc::O_RDONLY, 0o644, 0, Err(Errno::INVAL)),
            (libc::O_RDONLY, 0, 0x40, Err(Errno::INVAL)),
            (libc::O_RDONLY, 0, beneath | in_root, Err(Errno::INVAL)),
            (libc::O_CREAT | libc::O_DIRECTORY, 0, 0, Err(Errno::INVAL)),
            (libc::O_TMPFILE, 0o600, 0, Err(Errno::INVAL)),
            (libc::O_PATH | libc::O_WRONLY, 0, 0, Err(Errno::INVAL)),
            (0o20_0000_0000, 0, 0, Err(Errno::INVAL)),
            (libc::O_CREAT, 0o1_0000, 0, Err(Errno::INVAL)),
            (libc::O_TRUNC, 0, cached, Err(Errno::AGAIN)),
        ] {
            assert_eq!(how(flags, mode, resolve), want, "{flags:#o} {mode:#o} {resolve:#x}");
        }
    }
}
