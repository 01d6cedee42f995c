use super::table::{decisions, opens};
use super::*;

/// Runs the program as the kernel's classic BPF does, see linux/filter.h.
fn run(program: &[Instruction], arch: u32, nr: u32, args: [u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        OFFSET_NR => nr,
        OFFSET_ARCH => arch,
        _ => {
            let at = (offset - OFFSET_ARGS) as usize;
            (args[at / 8] >> (8 * (at % 8))) as u32
        }
    };
    let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
    loop {
        let i = program[at];
        at += 1;
        let code = u32::from(i.code);
        let taken = |condition: bool| usize::from(if condition { i.jt } else { i.jf });
        if code == BPF_LD | BPF_W | BPF_ABS {
            a = word(i.k);
        } else if code == BPF_LD | BPF_IMM {
            a = i.k;
        } else if code == BPF_MISC | BPF_TAX {
            x = a;
        } else if code == BPF_ALU | BPF_AND | BPF_K {
            a &= i.k;
        } else if code == BPF_ALU | BPF_LSH | BPF_X {
            a = a.wrapping_shl(x);
        } else if code == BPF_JMP | BPF_JA {
            at += i.k as usize;
        } else if code == BPF_JMP | BPF_JEQ | BPF_K {
            at += taken(a == i.k);
        } else if code == BPF_JMP | BPF_JGE | BPF_K {
            at += taken(a >= i.k);
        } else if code == BPF_JMP | BPF_JSET | BPF_K {
            at += taken(a & i.k != 0);
        } else if code == BPF_RET | BPF_K {
            return i.k;
        } else {
            panic!("unknown instruction {code:#x}");
        }
    }
}

fn all_options() -> impl Iterator<Item = Options> {
    (0..1024u32).map(|bits| Options {
        broker: bits & 1 != 0,
        reads: bits & 2 != 0,
        network: bits & 4 != 0,
        unix_sockets: bits & 8 != 0,
        identity: bits & 16 != 0,
        learn: bits & 32 != 0,
        makes_sockets: bits & 64 != 0,
        namespace: bits & 128 != 0,
        signals: bits & 256 != 0,
        devices: bits & 512 != 0,
    })
}

#[test]
fn the_search_decides_as_the_list_does() {
    for options in all_options() {
        let program = build(options);
        assert!(program.len() < 4096, "{}", program.len());
        let mut list = decisions(options);
        opens(options, &mut list);
        for nr in 0..600u32 {
            let found: Vec<_> = list.iter().filter(|d| d.nr == i64::from(nr)).collect();
            assert!(found.len() <= 1, "{nr} is decided twice");
            for args in [
                [0; 6],
                [u64::MAX; 6],
                [1, 1, 1, 1, 1, 1],
                [2, 2, 6, 0, 0, 0],
                [3, 4, 0x2800, 0, 0, 0],
                [3, 0x8905, 0, 0, 0, 0],
                [3, 0x540d, 0, 0, 0, 0],
            ] {
                let want = match found.first() {
                    None if i64::from(nr) > nr::LAST => {
                        libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32
                    }
                    None => libc::SECCOMP_RET_ALLOW,
                    Some(decision) => decision.action(args).value(),
                };
                assert_eq!(run(&program, AUDIT_ARCH, nr, args), want, "{nr} {args:?}");
            }
        }
    }
}

#[test]
fn other_architectures_are_killed() {
    for options in all_options() {
        let program = build(options);
        let kill = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(run(&program, 0x4000_0003, 5, [0; 6]), kill);
        for nr in [X32_BIT, X32_BIT + 2, u32::MAX] {
            assert_eq!(run(&program, AUDIT_ARCH, nr, [0; 6]), kill);
        }
    }
}

#[test]
fn sockets_are_decided_by_family_type_and_protocol() {
    let notify = libc::SECCOMP_RET_USER_NOTIF;
    let allow = libc::SECCOMP_RET_ALLOW;
    let options = |network, unix_sockets| {
        let (broker, reads, identity, learn) = (true, false, false, false);
        let (makes_sockets, namespace, signals, devices) = (false, false, false, false);
        Options {
            broker,
            reads,
            network,
            unix_sockets,
            identity,
            learn,
            makes_sockets,
            namespace,
            signals,
            devices,
        }
    };
    let (fenced, unix_only, open) =
        (options(true, true), options(false, true), options(false, false));
    let cloexec = libc::SOCK_CLOEXEC;
    for (family, kind, protocol, wants) in [
        (libc::AF_UNIX, libc::SOCK_STREAM | cloexec, 0, [allow, allow, allow]),
        (libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, [allow, allow, allow]),
        (libc::AF_UNIX, libc::SOCK_DGRAM, 0, [notify, notify, allow]),
        (libc::AF_INET, libc::SOCK_STREAM, 0, [allow, allow, allow]),
        (libc::AF_INET6, libc::SOCK_STREAM, 6, [allow, allow, allow]),
        (libc::AF_INET, libc::SOCK_STREAM, 262, [notify, allow, allow]),
        (libc::AF_INET, libc::SOCK_STREAM, 132, [notify, allow, allow]),
        (libc::AF_INET, libc::SOCK_SEQPACKET, 0, [notify, allow, allow]),
        (libc::AF_INET, libc::SOCK_DGRAM, 0, [notify, allow, allow]),
        (libc::AF_NETLINK, libc::SOCK_RAW, 0, [allow, allow, allow]),
        (libc::AF_NETLINK, libc::SOCK_DGRAM, 12, [notify, allow, allow]),
        (libc::AF_NETLINK, libc::SOCK_RAW, 6, [notify, allow, allow]),
        (libc::AF_VSOCK, libc::SOCK_STREAM, 0, [notify, notify, notify]),
        (libc::AF_ALG, libc::SOCK_SEQPACKET, 0, [notify, notify, notify]),
        (libc::AF_PACKET, libc::SOCK_RAW, 0, [notify, notify, notify]),
        (4000, libc::SOCK_STREAM, 0, [notify, notify, notify]),
    ] {
        let args = [family as u64, kind as u64, protocol, 0, 0, 0];
        let all = [fenced, unix_only, open];
        let got =
            all.map(|options| run(&build(options), AUDIT_ARCH, libc::SYS_socket as u32, args));
        assert_eq!(got, wants, "{family} {kind} {protocol}");
        let made = all.map(|options| Options { makes_sockets: true, ..options });
        assert_eq!(
            made.map(|options| allows_socket(options, args)),
            wants.map(|want| want == allow)
        );
        let streams = matches!(kind & 0xf, libc::SOCK_STREAM | libc::SOCK_SEQPACKET);
        let got =
            made.map(|options| run(&build(options), AUDIT_ARCH, libc::SYS_socket as u32, args));
        assert_eq!(got, if streams { [notify; 3] } else { wants }, "{family} {kind} {protocol}");
    }
}

#[test]
fn a_pair_is_of_the_unix_family_whatever_is_open() {
    for options in all_options() {
        let program = build(options);
        let decide = |call: i64, family: i32, kind: i32| {
            run(&program, AUDIT_ARCH, call as u32, [family as u64, kind as u64, 0, 0, 0, 0])
        };
        let allow = libc::SECCOMP_RET_ALLOW;
        for family in [libc::AF_INET, libc::AF_VSOCK, libc::AF_TIPC, 4000] {
            assert_ne!(decide(libc::SYS_socketpair, family, libc::SOCK_STREAM), allow, "{family}");
        }
        assert_eq!(decide(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM), allow);
        // Without a broker nobody ties a socket to loopback, and in a namespace the broker makes it.
        for family in [libc::AF_INET, libc::AF_INET6] {
            let args = [family as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
            let by_itself = options.broker && !options.namespace;
            assert_eq!(allows_socket(options, args), by_itself || !options.network);
        }
    }
}

/// Every system call that the filter does not name, with why it may be left alone.
const HARMLESS: &[(&str, &str)] = &[
    (
        "on descriptors that are open, within the access that they were opened with",
        "read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 lseek close close_range \
         dup dup2 dup3 flock fsync fdatasync sync_file_range ftruncate fallocate fadvise64 \
         readahead getdents getdents64 sendfile splice tee vmsplice copy_file_range poll ppoll select \
         pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 epoll_ctl_old \
         epoll_wait_old io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel syncfs \
         mq_timedsend mq_timedreceive mq_notify mq_getsetattr inotify_rm_watch fanotify_mark",
    ),
    (
        "makes a descriptor of the process's own",
        "pipe pipe2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime \
         inotify_init inotify_init1 memfd_create memfd_secret landlock_add_rule",
    ),
    (
        "tells names and metadata, which are open; changes nothing",
        "stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat statfs \
         fstatfs ustat sysfs getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr \
         listxattrat file_getattr inotify_add_watch name_to_handle_at cachestat statmount listmount \
         getcwd lookup_dcookie",
    ),
    ("where the process is, which decides nothing", "chdir fchdir"),
    (
        "the process's own memory",
        "mmap mprotect munmap brk mremap msync mincore madvise mlock mlock2 munlock mlockall munlockall \
         remap_file_pages mbind set_mempolicy get_mempolicy set_mempolicy_home_node pkey_mprotect \
         pkey_alloc pkey_free map_shadow_stack mseal modify_ldt shmdt membarrier",
    ),
    (
        "on another process: held by Landlock's domains, as ptrace(2) is",
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp \
         migrate_pages move_pages get_robust_list",
    ),
    (
        "the process, its threads, its children and its time",
        "fork vfork exit exit_group wait4 waitid setpgid getpgid getpgrp setsid getsid getpid getppid \
         gettid getuid geteuid getgid getegid getresuid getresgid getgroups capget prctl arch_prctl \
         personality set_tid_address set_thread_area get_thread_area set_robust_list rseq uretprobe \
         seccomp setrlimit getrlimit getrusage times getpriority ioprio_get sched_yield sched_getparam \
         sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval \
         sched_getaffinity sched_getattr getcpu pidfd_open futex futex_waitv futex_wait futex_wake \
         futex_requeue nanosleep clock_nanosleep alarm getitimer setitimer timer_create timer_settime \
         timer_gettime timer_getoverrun timer_delete pause rt_sigaction rt_sigprocmask rt_sigreturn \
         rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack restart_syscall lsm_get_self_attr",
    ),
    (
        "sockets that are there; what they may be used for was decided when they were made",
        "accept accept4 recvfrom recvmsg recvmmsg shutdown getsockname getpeername",
    ),
    (
        "tells about the machine; or sets its clock, with a capability that no program has",
        "uname sysinfo gettimeofday time clock_gettime clock_getres adjtimex clock_adjtime getrandom \
         lsm_list_modules sync",
    ),
    (
        "no longer there",
        "_sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall \
         tuxcall security vserver",
    ),
];

#[test]
fn every_system_call_is_decided_or_known_to_be_harmless() {
    let options = Options {
        broker: true,
        reads: true,
        network: true,
        unix_sockets: true,
        identity: true,
        learn: false,
        makes_sockets: true,
        namespace: true,
        signals: true,
        devices: true,
    };
    let mut list = decisions(options);
    opens(options, &mut list);
    let named: Vec<&str> = HARMLESS.iter().flat_map(|(_, names)| names.split(' ')).collect();
    let mut last = 0;
    for (name, number) in crate::oci::seccomp::native_calls() {
        last = last.max(i64::from(number));
        let decided = list.iter().any(|d| d.nr == i64::from(number));
        let harmless = named.iter().filter(|known| **known == name).count();
        assert_eq!(usize::from(decided) + harmless, 1, "{name}, number {number}");
    }
    assert_eq!(last, nr::LAST);
}

#[test]
fn signals_are_the_brokers_where_no_scope_holds_them() {
    let allow = libc::SECCOMP_RET_ALLOW;
    let (notify, refused) = (libc::SECCOMP_RET_USER_NOTIF, Action::Errno(libc::EPERM).value());
    let (set_flags, own) = (libc::F_SETFL as u64, libc::F_SETOWN as u64);
    let (quiet, asynchronous) = (libc::O_NONBLOCK as u64, libc::O_ASYNC as u64);
    for options in all_options() {
        let program = build(options);
        let decide = |call: i64, args: [u64; 3]| {
            let args = [args[0], args[1], args[2], 0, 0, 0];
            run(&program, AUDIT_ARCH, call as u32, args)
        };
        let held = |action| if options.signals { action } else { allow };
        for call in [
            libc::SYS_kill,
            libc::SYS_tkill,
            libc::SYS_tgkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_send_signal,
        ] {
            assert_eq!(decide(call, [1, 9, 9]), held(notify), "{call}");
        }
        for (command, argument, action) in [
            (own, 1, notify),
            (15, 1, refused),
            (set_flags, quiet | asynchronous, notify),
            (set_flags, quiet, allow),
            (libc::F_DUPFD as u64, asynchronous, allow),
            // The kernel takes an unsigned int for the command.
            (own | 1 << 32, 1, notify),
        ] {
            assert_eq!(decide(libc::SYS_fcntl, [3, command, argument]), held(action), "{command}");
        }
        for (request, action) in [(0x8901, refused), (0x8902, refused), (0x5452, notify)] {
            assert_eq!(decide(libc::SYS_ioctl, [3, request, 0]), held(action), "{request:#x}");
        }
    }
}

#[test]
fn devices_take_no_requests_where_landlock_holds_none() {
    let (allow, notify) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF);
    let (denied, refused) =
        (Action::Errno(libc::EACCES).value(), Action::Errno(libc::EPERM).value());
    for options in all_options().filter(|options| !options.namespace) {
        let program = build(options);
        let decide = |request: u64| {
            run(&program, AUDIT_ARCH, libc::SYS_ioctl as u32, [3, request, 0, 0, 0, 0])
        };
        let held = |action| if options.devices { action } else { allow };
        // TCGETS, FIONREAD, SIOCATMARK, FS_IOC_GETFLAGS; TIOCSTI.
        for request in [0x5401, 0x541b, 0x8905, 0x8008_6601] {
            assert_eq!(decide(request), allow, "{request:#x}");
        }
        assert_eq!(decide(0x5412), refused);
        // TCSETS, TCSETSF2, TIOCSWINSZ, TIOCNXCL.
        for request in [0x5402, 0x402c_542d, 0x5414, 0x540d, 1 << 32 | 0x5402] {
            assert_eq!(decide(request), held(notify), "{request:#x}");
        }
        // KVM_CREATE_VM, LOOP_SET_FD, SNDRV_CTL_IOCTL_ELEM_WRITE, HCIDEVUP, TIOCVHANGUP, and nothing at all.
        for request in [0xae01, 0x4c00, 0xc4c8_5513, 0x4004_48c9, 0x5437, 0] {
            assert_eq!(decide(request), held(denied), "{request:#x}");
        }
    }
}
