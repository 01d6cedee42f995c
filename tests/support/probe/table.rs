//! Names of system calls, constants and errors.

macro_rules! calls {
    ($text:expr, $($name:ident => $sys:ident),* $(,)?) => {
        match $text { $(stringify!($name) => Some(libc::$sys),)* _ => None }
    };
}

macro_rules! constants {
    ($text:expr, $($name:ident)*) => {
        match $text { $(stringify!($name) => Some(libc::$name as i64),)* _ => None }
    };
}

/// Calls whose value a test may want to see; descriptors and identifiers differ between runs.
pub const PRINTS_VALUE: &[&str] = &[
    "fcntl",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "umask",
    "lseek",
    "getuid",
    "geteuid",
    "sendto",
    "readlink",
    "readlinkat",
    "copy_file_range",
    "prctl",
    "landlock_create_ruleset",
];

/// The number of a system call.
pub fn number(name: &str) -> Option<i64> {
    let newer = match name {
        // include/uapi/asm-generic/unistd.h; the same on every architecture.
        "fchmodat2" => Some(452),
        "mseal" => Some(462),
        "setxattrat" => Some(463),
        "getxattrat" => Some(464),
        "listxattrat" => Some(465),
        "removexattrat" => Some(466),
        "open_tree_attr" => Some(467),
        "file_getattr" => Some(468),
        "file_setattr" => Some(469),
        _ => None,
    };
    let common = calls!(name,
        openat => SYS_openat, openat2 => SYS_openat2, mkdirat => SYS_mkdirat, mknodat => SYS_mknodat,
        renameat => SYS_renameat, renameat2 => SYS_renameat2, linkat => SYS_linkat,
        symlinkat => SYS_symlinkat, unlinkat => SYS_unlinkat, truncate => SYS_truncate,
        ftruncate => SYS_ftruncate, fallocate => SYS_fallocate, fchmod => SYS_fchmod,
        fchmodat => SYS_fchmodat, fchown => SYS_fchown, fchownat => SYS_fchownat,
        utimensat => SYS_utimensat, setxattr => SYS_setxattr, lsetxattr => SYS_lsetxattr,
        fsetxattr => SYS_fsetxattr, removexattr => SYS_removexattr, lremovexattr => SYS_lremovexattr,
        fremovexattr => SYS_fremovexattr, getxattr => SYS_getxattr, ioctl => SYS_ioctl,
        fcntl => SYS_fcntl, close => SYS_close, read => SYS_read, write => SYS_write,
        pread64 => SYS_pread64, pwrite64 => SYS_pwrite64, lseek => SYS_lseek, dup => SYS_dup,
        dup3 => SYS_dup3, umask => SYS_umask, chdir => SYS_chdir, fchdir => SYS_fchdir,
        chroot => SYS_chroot, pivot_root => SYS_pivot_root, mount => SYS_mount,
        umount2 => SYS_umount2, fsopen => SYS_fsopen, fsconfig => SYS_fsconfig,
        fsmount => SYS_fsmount, fspick => SYS_fspick, open_tree => SYS_open_tree,
        move_mount => SYS_move_mount, mount_setattr => SYS_mount_setattr, unshare => SYS_unshare,
        setns => SYS_setns, ptrace => SYS_ptrace, process_vm_readv => SYS_process_vm_readv,
        process_vm_writev => SYS_process_vm_writev, pidfd_open => SYS_pidfd_open,
        pidfd_getfd => SYS_pidfd_getfd, pidfd_send_signal => SYS_pidfd_send_signal,
        process_madvise => SYS_process_madvise, kcmp => SYS_kcmp, kill => SYS_kill,
        tgkill => SYS_tgkill, tkill => SYS_tkill, rt_sigqueueinfo => SYS_rt_sigqueueinfo,
        io_uring_setup => SYS_io_uring_setup, io_uring_enter => SYS_io_uring_enter,
        io_uring_register => SYS_io_uring_register, add_key => SYS_add_key,
        request_key => SYS_request_key, keyctl => SYS_keyctl, bpf => SYS_bpf,
        perf_event_open => SYS_perf_event_open, userfaultfd => SYS_userfaultfd,
        fanotify_init => SYS_fanotify_init, open_by_handle_at => SYS_open_by_handle_at,
        name_to_handle_at => SYS_name_to_handle_at, shmget => SYS_shmget, shmat => SYS_shmat,
        shmctl => SYS_shmctl, msgget => SYS_msgget, msgctl => SYS_msgctl, msgsnd => SYS_msgsnd,
        msgrcv => SYS_msgrcv, semget => SYS_semget, semctl => SYS_semctl, semop => SYS_semop,
        mq_open => SYS_mq_open, mq_unlink => SYS_mq_unlink, socket => SYS_socket,
        connect => SYS_connect, bind => SYS_bind, listen => SYS_listen, accept => SYS_accept,
        sendto => SYS_sendto, shutdown => SYS_shutdown, getsockname => SYS_getsockname, setsockopt => SYS_setsockopt,
        setuid => SYS_setuid, setgid => SYS_setgid, setresuid => SYS_setresuid,
        setresgid => SYS_setresgid, setgroups => SYS_setgroups, setfsuid => SYS_setfsuid,
        setfsgid => SYS_setfsgid, getuid => SYS_getuid, geteuid => SYS_geteuid,
        setpriority => SYS_setpriority, sched_setaffinity => SYS_sched_setaffinity,
        prlimit64 => SYS_prlimit64, acct => SYS_acct, swapon => SYS_swapon, reboot => SYS_reboot,
        sethostname => SYS_sethostname, settimeofday => SYS_settimeofday,
        init_module => SYS_init_module, finit_module => SYS_finit_module, syslog => SYS_syslog,
        quotactl => SYS_quotactl, memfd_create => SYS_memfd_create, prctl => SYS_prctl,
        seccomp => SYS_seccomp, faccessat => SYS_faccessat, readlinkat => SYS_readlinkat,
        copy_file_range => SYS_copy_file_range, statx => SYS_statx, flock => SYS_flock,
        execve => SYS_execve, execveat => SYS_execveat, inotify_init1 => SYS_inotify_init1,
        inotify_add_watch => SYS_inotify_add_watch, setpgid => SYS_setpgid, setsid => SYS_setsid,
        vhangup => SYS_vhangup, personality => SYS_personality, memfd_secret => SYS_memfd_secret,
        lookup_dcookie => SYS_lookup_dcookie, move_pages => SYS_move_pages,
        migrate_pages => SYS_migrate_pages, process_mrelease => SYS_process_mrelease,
        clock_settime => SYS_clock_settime, clock_adjtime => SYS_clock_adjtime,
        kexec_load => SYS_kexec_load, landlock_create_ruleset => SYS_landlock_create_ruleset,
        close_range => SYS_close_range, sync_file_range => SYS_sync_file_range,
        landlock_add_rule => SYS_landlock_add_rule, clone3 => SYS_clone3, capget => SYS_capget,
        landlock_restrict_self => SYS_landlock_restrict_self, capset => SYS_capset,
        eventfd2 => SYS_eventfd2, pipe2 => SYS_pipe2, socketpair => SYS_socketpair,
        getrandom => SYS_getrandom, rt_sigtimedwait => SYS_rt_sigtimedwait,
        rt_sigprocmask => SYS_rt_sigprocmask,
    );
    newer.or(common).or_else(|| older(name))
}

#[cfg(target_arch = "x86_64")]
fn older(name: &str) -> Option<i64> {
    calls!(name,
        open => SYS_open, creat => SYS_creat, mkdir => SYS_mkdir, mknod => SYS_mknod,
        rename => SYS_rename, link => SYS_link, symlink => SYS_symlink, unlink => SYS_unlink,
        rmdir => SYS_rmdir, chmod => SYS_chmod, chown => SYS_chown, lchown => SYS_lchown,
        utime => SYS_utime, utimes => SYS_utimes, futimesat => SYS_futimesat,
        readlink => SYS_readlink, access => SYS_access, stat => SYS_stat, lstat => SYS_lstat,
        iopl => SYS_iopl, ioperm => SYS_ioperm, uselib => SYS_uselib,
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn older(_: &str) -> Option<i64> {
    None
}

/// The value of a constant of the C headers.
pub fn constant(name: &str) -> Option<i64> {
    let newer = match name {
        "NULL" => Some(0),
        // include/uapi/linux: fs.h, tty.h, openat2.h, mount.h, memfd.h, sched.h.
        "FS_IOC_SETFLAGS" => Some(0x4008_6602),
        "FS_IOC_FSSETXATTR" => Some(0x401c_5820),
        "FS_IOC_SETVERSION" => Some(0x4008_7602),
        "FICLONE" => Some(0x4004_9409),
        "TIOCLINUX" => Some(0x541c),
        "FS_NODUMP_FL" => Some(0x40),
        "RESOLVE_CACHED" => Some(0x20),
        "OPEN_TREE_CLONE" => Some(1),
        "MOVE_MOUNT_F_EMPTY_PATH" => Some(4),
        "MFD_NOEXEC_SEAL" => Some(8),
        "CLONE_NEWTIME" => Some(0x80),
        "UFFD_USER_MODE_ONLY" => Some(1),
        "KEYCTL_GET_KEYRING_ID" => Some(0),
        "KEYCTL_JOIN_SESSION_KEYRING" => Some(1),
        "KEY_SPEC_USER_KEYRING" => Some(-4),
        "KEY_SPEC_PROCESS_KEYRING" => Some(-2),
        "IPC_SEM" | "PIDFD_THREAD" => Some(0o200),
        "PRIO_PROCESS" => Some(0),
        "F_SETSIG" => Some(10),
        _ => None,
    };
    let named = constants!(name,
        O_RDONLY O_WRONLY O_RDWR O_CREAT O_EXCL O_TRUNC O_APPEND O_NONBLOCK O_CLOEXEC O_DIRECTORY
        O_NOFOLLOW O_PATH O_TMPFILE O_NOCTTY O_NOATIME O_SYNC O_DSYNC O_ASYNC O_DIRECT
        AT_FDCWD AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_EMPTY_PATH AT_REMOVEDIR AT_EACCESS
        RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT
        RESOLVE_NO_XDEV RESOLVE_NO_MAGICLINKS RESOLVE_NO_SYMLINKS RESOLVE_BENEATH RESOLVE_IN_ROOT
        S_IFREG S_IFDIR S_IFIFO S_IFSOCK S_IFCHR S_IFBLK XATTR_CREATE XATTR_REPLACE
        F_GETFL F_SETFL F_GETFD F_SETFD F_DUPFD F_SETOWN F_SETLEASE F_NOTIFY F_WRLCK F_UNLCK
        F_ADD_SEALS F_SEAL_WRITE R_OK W_OK X_OK F_OK
        AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_VSOCK AF_ALG AF_BLUETOOTH AF_KEY AF_UNSPEC
        AF_TIPC AF_RDS AF_CAN AF_XDP AF_NFC AF_IB AF_APPLETALK AF_AX25 AF_X25 AF_LLC
        SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_SEQPACKET SOCK_CLOEXEC SOCK_NONBLOCK
        IPPROTO_TCP IPPROTO_UDP IPPROTO_SCTP IPPROTO_ICMP IPPROTO_MPTCP IPPROTO_UDPLITE IPPROTO_RAW
        MSG_FASTOPEN MSG_DONTWAIT MSG_NOSIGNAL
        SOL_SOCKET SO_REUSEADDR SO_BINDTODEVICE SO_BINDTOIFINDEX IPPROTO_IP IPPROTO_IPV6 IP_OPTIONS
        IP_UNICAST_IF IPV6_UNICAST_IF IPV6_RTHDR TCP_FASTOPEN_CONNECT
        CLONE_NEWUSER CLONE_NEWNS CLONE_NEWPID CLONE_NEWNET CLONE_NEWIPC CLONE_NEWUTS
        CLONE_NEWCGROUP CLONE_FS CLONE_FILES CLONE_VM CLONE_VFORK
        PTRACE_ATTACH PTRACE_SEIZE PTRACE_DETACH PTRACE_TRACEME PTRACE_O_TRACESYSGOOD
        IPC_CREAT IPC_EXCL IPC_PRIVATE IPC_RMID IPC_STAT SHM_RDONLY
        TIOCSTI TIOCSCTTY TIOCSPTLCK TIOCGPTPEER TIOCGWINSZ TCGETS FIONREAD
        MS_BIND MS_REMOUNT MS_REC MS_PRIVATE MNT_DETACH
        SIGTERM SIGKILL SIGUSR1 SIGUSR2 SIGCONT SIGSTOP SIGURG SIGCHLD SIGHUP SIGINT
        SECCOMP_SET_MODE_FILTER SECCOMP_FILTER_FLAG_NEW_LISTENER
        PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS PR_GET_SECCOMP PR_SET_DUMPABLE PR_SET_PDEATHSIG
        PR_GET_DUMPABLE
        FALLOC_FL_PUNCH_HOLE FALLOC_FL_KEEP_SIZE SEEK_SET SEEK_END
        RLIMIT_NOFILE RLIMIT_FSIZE RLIMIT_CORE RLIMIT_NPROC RLIMIT_AS IN_MODIFY
        EINTR EFAULT
    );
    newer.or(named)
}

/// `EACCES` for 13, `E<number>` for one that has no name here.
pub fn errno_name(errno: i32) -> String {
    macro_rules! names {
        ($($name:ident)*) => { match errno { $(libc::$name => stringify!($name).into(),)*
            other => format!("E{other}") } };
    }
    names!(EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
        ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
        ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
        ELOOP ENODATA EOVERFLOW EPROTO ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT
        EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
        EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET EISCONN ENOTCONN ETIMEDOUT
        ECONNREFUSED ENOBUFS EHOSTUNREACH EALREADY EINPROGRESS ESTALE ENOKEY EDQUOT)
}
