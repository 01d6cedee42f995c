//! What a thread or a process is: its capabilities, its user on files, its limits.

use super::{Errno, check};

/// Drops every capability outside `keep` from all sets of the calling thread. The bounding set stays:
/// it limits what execve(2) adds, and under no_new_privs execve adds nothing, capabilities(7).
pub fn limit_capabilities(keep: u64) -> Result<(), Errno> {
    // SAFETY: by-value prctl.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    let (_, permitted) = capabilities()?;
    set_capabilities(permitted & keep, permitted & keep)
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Effective and permitted capabilities of the calling thread, as bit masks.
///
/// # Errors
///
/// As capget(2).
pub fn capabilities() -> Result<(u64, u64), Errno> {
    let mut header = [CAPABILITY_VERSION_3, 0];
    let mut data = [0u32; 6];
    // SAFETY: version 3 takes a header of two words and two data triples.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()) })?;
    let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    Ok((join(data[0], data[3]), join(data[1], data[4])))
}

/// Sets the calling thread's effective and permitted capabilities; the inheritable set becomes empty.
///
/// # Errors
///
/// `EPERM` for a capability that is not permitted.
pub fn set_capabilities(effective: u64, permitted: u64) -> Result<(), Errno> {
    let header = [CAPABILITY_VERSION_3, 0];
    let data = [
        effective as u32,
        permitted as u32,
        0,
        (effective >> 32) as u32,
        (permitted >> 32) as u32,
        0,
    ];
    // SAFETY: as in `capabilities`.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(|_| ())
}

/// A user and its groups, as a thread takes them on.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Real, effective and saved user.
    pub uid: u32,
    /// The same of the group.
    pub gid: u32,
    /// User on files.
    pub fs_uid: u32,
    /// Group on files.
    pub fs_gid: u32,
    /// Supplementary groups, sorted as the kernel has them.
    pub groups: &'a [u32],
}

/// Keeps the calling thread's permitted capabilities when it changes its user, capabilities(7).
///
/// # Errors
///
/// As prctl(2).
pub fn keep_capabilities() -> Result<(), Errno> {
    rustix::thread::set_keep_capabilities(true)
}

/// Gives the calling thread, which has to [keep its capabilities](keep_capabilities), an identity. Those that it
/// is permitted are effective afterwards. Files go by the user on files, and looking at a process goes by
/// the real one, ptrace(2).
///
/// # Errors
///
/// `EPERM` where the thread may not become that user; what is the same takes no right to set.
pub fn set_identity(identity: Identity<'_>) -> Result<(), Errno> {
    let Identity { uid, gid, fs_uid, fs_gid, groups } = identity;
    let own = rustix::process::getgroups()?;
    if !own.iter().map(|group| group.as_raw()).eq(groups.iter().copied()) {
        // SAFETY: the raw call changes this thread alone; the pointer covers `groups`.
        check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    }
    if rustix::process::getgid().as_raw() != gid {
        // SAFETY: by value; the raw call changes this thread alone.
        check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    }
    if rustix::process::getuid().as_raw() != uid {
        let (_, permitted) = capabilities()?;
        // SAFETY: as above.
        check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
        // Leaving root has emptied the effective set.
        set_capabilities(permitted, permitted)?;
    }
    // SAFETY: by-value system calls on this thread alone. They report no error; asking again with an
    // invalid id returns the value in force.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, fs_gid);
        libc::syscall(libc::SYS_setfsuid, fs_uid);
        let now = (
            libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32,
            libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32,
        );
        if now != (fs_uid, fs_gid) { Err(Errno::PERM) } else { Ok(()) }
    }
}

/// The file-system user of the calling thread.
pub fn fs_uid() -> u32 {
    // SAFETY: an invalid id changes nothing and returns the one in force, see setfsuid(2).
    unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32 }
}

/// Opens `/dev/null` for each of the first three descriptors that is closed, so that none of ours
/// takes its place and reaches the program as its standard input or output.
pub fn fill_stdio() {
    for fd in 0..3 {
        // SAFETY: by-value calls and a constant path; the lowest free number is `fd`.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}

/// The soft limit on the size of files that process `pid` writes, in bytes; `u64::MAX` is none.
///
/// # Errors
///
/// As prlimit(2).
pub fn file_size_limit(pid: i32) -> Result<u64, Errno> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no new limit is set, and `limit` is writable.
    check(i64::from(unsafe {
        libc::prlimit64(pid, libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit)
    }))?;
    Ok(limit.rlim_cur)
}
