//! Names for the numbers of Linux: `errno` values and flags of open(2).

/// Symbolic names by number, from the kernel's `asm-generic/errno-base.h` and
/// `asm-generic/errno.h`. Empty strings are numbers that no architecture of ours uses.
const NAMES: [&str; 134] = [
    "",
    "EPERM",
    "ENOENT",
    "ESRCH",
    "EINTR",
    "EIO",
    "ENXIO",
    "E2BIG",
    "ENOEXEC",
    "EBADF",
    "ECHILD",
    "EAGAIN",
    "ENOMEM",
    "EACCES",
    "EFAULT",
    "ENOTBLK",
    "EBUSY",
    "EEXIST",
    "EXDEV",
    "ENODEV",
    "ENOTDIR",
    "EISDIR",
    "EINVAL",
    "ENFILE",
    "EMFILE",
    "ENOTTY",
    "ETXTBSY",
    "EFBIG",
    "ENOSPC",
    "ESPIPE",
    "EROFS",
    "EMLINK",
    "EPIPE",
    "EDOM",
    "ERANGE",
    "EDEADLK",
    "ENAMETOOLONG",
    "ENOLCK",
    "ENOSYS",
    "ENOTEMPTY",
    "ELOOP",
    "",
    "ENOMSG",
    "EIDRM",
    "ECHRNG",
    "EL2NSYNC",
    "EL3HLT",
    "EL3RST",
    "ELNRNG",
    "EUNATCH",
    "ENOCSI",
    "EL2HLT",
    "EBADE",
    "EBADR",
    "EXFULL",
    "ENOANO",
    "EBADRQC",
    "EBADSLT",
    "",
    "EBFONT",
    "ENOSTR",
    "ENODATA",
    "ETIME",
    "ENOSR",
    "ENONET",
    "ENOPKG",
    "EREMOTE",
    "ENOLINK",
    "EADV",
    "ESRMNT",
    "ECOMM",
    "EPROTO",
    "EMULTIHOP",
    "EDOTDOT",
    "EBADMSG",
    "EOVERFLOW",
    "ENOTUNIQ",
    "EBADFD",
    "EREMCHG",
    "ELIBACC",
    "ELIBBAD",
    "ELIBSCN",
    "ELIBMAX",
    "ELIBEXEC",
    "EILSEQ",
    "ERESTART",
    "ESTRPIPE",
    "EUSERS",
    "ENOTSOCK",
    "EDESTADDRREQ",
    "EMSGSIZE",
    "EPROTOTYPE",
    "ENOPROTOOPT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "EOPNOTSUPP",
    "EPFNOSUPPORT",
    "EAFNOSUPPORT",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "ENETDOWN",
    "ENETUNREACH",
    "ENETRESET",
    "ECONNABORTED",
    "ECONNRESET",
    "ENOBUFS",
    "EISCONN",
    "ENOTCONN",
    "ESHUTDOWN",
    "ETOOMANYREFS",
    "ETIMEDOUT",
    "ECONNREFUSED",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "EALREADY",
    "EINPROGRESS",
    "ESTALE",
    "EUCLEAN",
    "ENOTNAM",
    "ENAVAIL",
    "EISNAM",
    "EREMOTEIO",
    "EDQUOT",
    "ENOMEDIUM",
    "EMEDIUMTYPE",
    "ECANCELED",
    "ENOKEY",
    "EKEYEXPIRED",
    "EKEYREVOKED",
    "EKEYREJECTED",
    "EOWNERDEAD",
    "ENOTRECOVERABLE",
    "ERFKILL",
    "EHWPOISON",
];

/// The symbolic name of the Linux error `number`, or `None` for a number without one.
///
/// `EWOULDBLOCK` and `EDEADLOCK` are reported under their main names, `EAGAIN` and `EDEADLK`.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    let name = *NAMES.get(usize::try_from(number).ok()?)?;
    (!name.is_empty()).then_some(name)
}

/// The four flags whose bits Arm swaps with each other, in the order of [`ARCH_BITS`].
const ARCH_NAMES: [&str; 4] = ["O_DIRECT", "O_LARGEFILE", "O_DIRECTORY", "O_NOFOLLOW"];

/// `asm-generic/fcntl.h`, and `arch/arm*/include/uapi/asm/fcntl.h` which overrides it.
const ARCH_BITS: [u32; 4] = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) {
    [0o200_000, 0o400_000, 0o40_000, 0o100_000]
} else {
    [0o40_000, 0o100_000, 0o200_000, 0o400_000]
};

/// Flags with the same bit on every architecture of ours. `O_SYNC` and `O_TMPFILE` are handled
/// apart: their values contain the bit of another flag.
const COMMON: [(u32, &str); 9] = [
    (0o100, "O_CREAT"),
    (0o200, "O_EXCL"),
    (0o400, "O_NOCTTY"),
    (0o1_000, "O_TRUNC"),
    (0o2_000, "O_APPEND"),
    (0o4_000, "O_NONBLOCK"),
    (0o20_000, "O_ASYNC"),
    (0o1_000_000, "O_NOATIME"),
    (0o2_000_000, "O_CLOEXEC"),
];

const O_DSYNC: u32 = 0o10_000;
const O_SYNC_ONLY: u32 = 0o4_000_000;
const O_PATH: u32 = 0o10_000_000;
const O_TMPFILE_ONLY: u32 = 0o20_000_000;

/// The names of the flags in `bits`, the second argument of open(2): the access mode first, then
/// the rest in order of their bits. Unknown bits are left out.
#[must_use]
pub fn open_flags(bits: u32) -> Vec<&'static str> {
    let mut names = Vec::with_capacity(4);
    names.push(match bits & 0o3 {
        0 => "O_RDONLY",
        1 => "O_WRONLY",
        2 => "O_RDWR",
        // Linux's own access mode 3: permission to read and write, an fd that can do neither.
        _ => "O_ACCMODE",
    });
    names.extend(COMMON.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name));
    if bits & O_SYNC_ONLY != 0 {
        names.push("O_SYNC");
    } else if bits & O_DSYNC != 0 {
        names.push("O_DSYNC");
    }
    if bits & O_PATH != 0 {
        names.push("O_PATH");
    }
    let tmpfile = bits & O_TMPFILE_ONLY != 0;
    if tmpfile {
        names.push("O_TMPFILE");
    }
    for (bit, name) in ARCH_BITS.iter().zip(ARCH_NAMES) {
        if bits & bit != 0 && !(tmpfile && name == "O_DIRECTORY") {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_name() {
        for number in [-1, 0, 41, 58, 134, i32::MAX, i32::MIN] {
            assert_eq!(name(number), None, "{number}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn errno_names_are_those_of_the_c_library() {
        for (number, expected) in [
            (libc::EPERM, "EPERM"),
            (libc::ENOENT, "ENOENT"),
            (libc::EAGAIN, "EAGAIN"),
            (libc::EACCES, "EACCES"),
            (libc::ERANGE, "ERANGE"),
            (libc::EDEADLK, "EDEADLK"),
            (libc::ENOSYS, "ENOSYS"),
            (libc::ELOOP, "ELOOP"),
            (libc::ENOMSG, "ENOMSG"),
            (libc::EL2HLT, "EL2HLT"),
            (libc::EBADE, "EBADE"),
            (libc::EBFONT, "EBFONT"),
            (libc::EOVERFLOW, "EOVERFLOW"),
            (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
            (libc::ECONNREFUSED, "ECONNREFUSED"),
            (libc::EDQUOT, "EDQUOT"),
            (libc::EHWPOISON, "EHWPOISON"),
        ] {
            assert_eq!(name(number), Some(expected));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_flags_are_those_of_the_c_library() {
        for (bits, expected) in [
            (0, &["O_RDONLY"][..]),
            (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, &["O_WRONLY", "O_CREAT", "O_TRUNC"]),
            (libc::O_RDWR | libc::O_EXCL | libc::O_CLOEXEC, &["O_RDWR", "O_EXCL", "O_CLOEXEC"]),
            (libc::O_APPEND | libc::O_NONBLOCK, &["O_RDONLY", "O_APPEND", "O_NONBLOCK"]),
            (libc::O_NOCTTY | libc::O_NOATIME, &["O_RDONLY", "O_NOCTTY", "O_NOATIME"]),
            (libc::O_ASYNC, &["O_RDONLY", "O_ASYNC"]),
            (libc::O_SYNC, &["O_RDONLY", "O_SYNC"]),
            (libc::O_DSYNC, &["O_RDONLY", "O_DSYNC"]),
            (libc::O_TMPFILE | libc::O_RDWR, &["O_RDWR", "O_TMPFILE"]),
            (libc::O_PATH | libc::O_NOFOLLOW, &["O_RDONLY", "O_PATH", "O_NOFOLLOW"]),
            (libc::O_DIRECTORY, &["O_RDONLY", "O_DIRECTORY"]),
            (libc::O_DIRECT, &["O_RDONLY", "O_DIRECT"]),
            (3, &["O_ACCMODE"]),
        ] {
            assert_eq!(open_flags(bits.cast_unsigned()), expected, "{bits:#o}");
        }
    }
}
