//! Which system calls are refused or notified, and when.

use super::{Action, Decision, Options, Test};
use crate::linux::sys::{nr, terminal};

const PERM: Action = Action::Errno(libc::EPERM);

/// Flags of open(2) that can change something. `O_TMPFILE` counts by its own bit.
const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32
    | (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// `CLONE_NEW*` flags of clone(2) and unshare(2).
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32;
/// `CLONE_NEWTIME`; in clone(2) the bit belongs to the exit signal.
const NEW_TIME: u32 = 0x80;

/// Every system call beside the opens that is not simply allowed.
pub fn decisions(options: Options) -> Vec<Decision> {
    let mut list = Vec::with_capacity(160);
    descriptors(options, &mut list);
    sockets(options, &mut list);
    if options.broker {
        brokered(options, &mut list);
    }
    processes(options, &mut list);
    if options.signals {
        signals(&mut list);
    }
    forbidden(&mut list);
    list
}

pub fn opens(options: Options, list: &mut Vec<Decision>) {
    if !options.broker {
        return;
    }
    let mut open = |nr, flags| {
        // O_PATH opens nothing, whatever else is asked for.
        let mut cases = vec![(Test::Bits(flags, libc::O_PATH as u32), Action::Allow)];
        if !options.reads {
            // The common case first: no writing flag, two instructions after the load.
            cases = vec![
                (Test::NoBits(flags, WRITING), Action::Allow),
                (Test::Bits(flags, libc::O_PATH as u32), Action::Allow),
            ];
        }
        list.push(Decision { nr, cases, otherwise: Action::Notify });
    };
    open(libc::SYS_openat, 2);
    #[cfg(target_arch = "x86_64")]
    open(libc::SYS_open, 1);
    // openat2's flags are in memory, creat always writes.
    always(list, &[libc::SYS_openat2], Action::Notify);
    #[cfg(target_arch = "x86_64")]
    always(list, &[libc::SYS_creat], Action::Notify);
}

fn always(list: &mut Vec<Decision>, numbers: &[i64], action: Action) {
    list.extend(numbers.iter().map(|&nr| Decision { nr, cases: Vec::new(), otherwise: action }));
}

/// ioctl(2) requests on any descriptor that write to a terminal's input or change a file without
/// an open for writing. By type letter where a file system owns the whole letter.
fn descriptors(options: Options, list: &mut Vec<Decision>) {
    const TIOCSTI: u32 = 0x5412;
    const TIOCLINUX: u32 = 0x541c;
    const TIOCCONS: u32 = 0x541d;
    const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
    const FS_IOC_FIEMAP: u32 = 0xc020_660b;
    const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
    const FS_IOC_GETVERSION: u32 = 0x8008_7601;
    const FICLONE: u32 = 0x4004_9409;
    const FICLONERANGE: u32 = 0x4020_940d;
    const FIDEDUPERANGE: u32 = 0xc018_9436;
    let is = |value| Test::Is(1, u32::MAX, value);
    let letter = |letter: u8| Test::Is(1, 0xff00, u32::from(letter) << 8);
    let mut cases = vec![(is(TIOCSTI), PERM), (is(TIOCLINUX), PERM), (is(TIOCCONS), PERM)];
    if options.broker {
        // Opens a terminal by its master, in a directory that Landlock does not grant.
        cases.push((is(terminal::TIOCGPTPEER), Action::Notify));
    }
    // Reading, or writing through a descriptor that is open for writing.
    for allowed in [
        FS_IOC_GETFLAGS,
        FS_IOC_FIEMAP,
        FS_IOC_FSGETXATTR,
        FS_IOC_GETVERSION,
        FICLONE,
        FICLONERANGE,
        FIDEDUPERANGE,
    ] {
        cases.push((is(allowed), Action::Allow));
    }
    // ext4 and common flags, btrfs, xfs and freezing, file versions, f2fs, console keyboards.
    // FAT, bcachefs, ocfs2, nilfs, ceph, cifs.
    for forbidden in [b'f', 0x94, b'X', b'v', 0xf5, b'K', b'r', 0xbc, b'o', b'n', 0x97, 0xcf] {
        cases.push((letter(forbidden), PERM));
    }
    if options.signals {
        // FIOSETOWN, SIOCSPGRP: see `signals`.
        cases.push((Test::OneOf(1, &[0x8901, 0x8902]), PERM));
        cases.push((is(libc::FIOASYNC as u32), Action::Notify));
    }
    if options.namespace {
        cases.extend(network_devices());
    }
    let mut otherwise = Action::Allow;
    if options.devices {
        cases.push((Test::OneOf(1, HARMLESS), Action::Allow));
        cases.push((letter(0x89), Action::Allow));
        cases.extend(terminal::setters().map(|setter| (is(setter), Action::Notify)));
        otherwise = Action::Errno(libc::EACCES);
    }
    list.push(Decision { nr: libc::SYS_ioctl, cases, otherwise });
}

/// ioctl(2) requests that are open where Landlock holds none of them (before Linux 6.10), beside those on sockets:
/// they control no device.
const HARMLESS: &[u32] = &[
    // What a terminal is like: TCGETS, TCGETA, TCGETS2, TIOCGWINSZ, TIOCGPGRP, TIOCGSID, TIOCOUTQ, TIOCGETD,
    // TIOCMGET, TIOCGSOFTCAR, TIOCGPTN, TIOCGDEV, TIOCGPKT, TIOCGPTLCK, TIOCGEXCL.
    0x5401,
    0x5405,
    0x802c_542a,
    0x5413,
    0x540f,
    0x5429,
    0x5411,
    0x5424,
    0x5415,
    0x5419,
    0x8004_5430,
    0x8004_5432,
    0x8004_5438,
    0x8004_5439,
    0x8004_5440,
    // About the caller's own session: TIOCSCTTY, TIOCSPGRP, TIOCNOTTY.
    0x540e,
    0x5410,
    0x5422,
    // For the master of a terminal alone: TIOCPKT, TIOCSPTLCK, TIOCSIG.
    0x5420,
    0x4004_5431,
    0x4004_5436,
    // On any file: FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE, FIGETBSZ.
    0x541b,
    0x5421,
    0x5450,
    0x5451,
    0x5452,
    0x5460,
    2,
    // RNDGETENTCNT.
    0x8004_5200,
    // NS_GET_USERNS, NS_GET_PARENT, NS_GET_NSTYPE, NS_GET_OWNER_UID.
    0xb701,
    0xb702,
    0xb703,
    0xb704,
    // EPIOCSPARAMS, EPIOCGPARAMS.
    0x4008_8a01,
    0x8008_8a02,
];

/// What sends signals to other processes, or has the kernel send them: the owner of a file that is read or written
/// asynchronously gets SIGIO, or whichever signal F_SETSIG says. A terminal makes its foreground group the owner.
fn signals(list: &mut Vec<Decision>) {
    const F_SETOWN_EX: u32 = 15;
    always(
        list,
        &[
            libc::SYS_kill,
            libc::SYS_tkill,
            libc::SYS_tgkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_send_signal,
        ],
        Action::Notify,
    );
    let asynchronous = ((1, libc::F_SETFL as u32), (2, libc::O_ASYNC as u32));
    let cases = vec![
        (Test::Is(1, u32::MAX, libc::F_SETOWN as u32), Action::Notify),
        (Test::PairBits(asynchronous.0, asynchronous.1), Action::Notify),
        // Its owner is in memory.
        (Test::Is(1, u32::MAX, F_SETOWN_EX), PERM),
    ];
    list.push(Decision { nr: libc::SYS_fcntl, cases, otherwise: Action::Allow });
}

/// ioctl(2) requests on network devices, netdevice(7): those that change nothing.
///
/// Who owns a user namespace has all capabilities over the network namespaces in it, outside of it too: an
/// ordinary user over the one of a run. Little could be done in there, and by much code of the kernel.
fn network_devices() -> Vec<(Test, Action)> {
    let is = |value| Test::Is(1, u32::MAX, value);
    // Owners, the mark of out-of-band data and time stamps; names, lists, flags, addresses, metric, MTU,
    // hardware address, index, queue length, map.
    let reads = (0x8901..=0x8907).chain([
        0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8933,
        0x8942, 0x8970,
    ]);
    let mut cases: Vec<_> = reads.map(|request| (is(request), Action::Allow)).collect();
    // Sockets and wireless devices.
    cases.extend([0x8900, 0x8b00].map(|letter| (Test::Is(1, 0xff00, letter), PERM)));
    cases
}

/// Options of the level IP and IPv6 for who has capabilities over the socket's network namespace, see
/// [`network_devices`]: policies of IPsec, tables of packet filters, bridges and virtual servers.
fn privileged_options(refused: Action) -> Vec<(Test, Action)> {
    const FOUR: u32 = libc::IPPROTO_IP as u32;
    const SIX: u32 = libc::IPPROTO_IPV6 as u32;
    let mut cases = Vec::new();
    for (level, option) in
        [(FOUR, 16), (FOUR, 17), (SIX, 34), (SIX, 35), (FOUR, 64), (FOUR, 65), (SIX, 64), (SIX, 65)]
    {
        cases.push((Test::Pair((1, level), (2, option)), refused));
    }
    // ARP tables, bridge tables; IPVS_SO_SET_*.
    for (mask, value) in [(!3, 96), (!3, 128), (!0xff, 0x400)] {
        cases.push((Test::Is(2, mask, value), refused));
    }
    cases
}

/// `MSG_FASTOPEN` connects from a send, which no connect rule sees.
const MSG_FASTOPEN: u32 = 0x2000_0000;
/// The bits of socket(2)'s second argument that name the type.
pub const TYPE: u32 = 0xf;

fn refused(options: Options) -> Action {
    if options.broker { Action::Notify } else { Action::Errno(libc::EACCES) }
}

/// socket(2).
pub fn socket(options: Options) -> Decision {
    let refused = refused(options);
    let mut cases = socket_cases(options, refused);
    if options.makes_sockets {
        // Of datagrams it could not tell when they are no longer needed.
        cases.insert(0, (Test::In(1, TYPE, STREAM | SEQPACKET), Action::Notify));
    }
    Decision { nr: libc::SYS_socket, cases, otherwise: refused }
}

fn sockets(options: Options, list: &mut Vec<Decision>) {
    let refused = refused(options);
    list.push(socket(options));
    if options.network {
        for (nr, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            let cases = vec![(Test::Bits(flags, MSG_FASTOPEN), Action::Errno(libc::EACCES))];
            list.push(Decision { nr, cases, otherwise: Action::Allow });
        }
    }
    if options.learn && !options.network {
        always(list, &[libc::SYS_sendmsg, libc::SYS_sendmmsg], Action::Notify);
        // Without an address the socket is connected.
        let cases = vec![(Test::NoBits(4, u32::MAX), Action::Allow)];
        list.push(Decision { nr: libc::SYS_sendto, cases, otherwise: Action::Notify });
    }
    if options.network {
        socket_options(options, list);
    }
    // A datagram socket sends to any address in sendmsg(2), which is never notified.
    let datagrams = if options.unix_sockets || options.learn { refused } else { Action::Allow };
    let cases = vec![
        (Test::NotIn(0, u32::MAX, 1 << libc::AF_UNIX), refused),
        (Test::In(1, TYPE, STREAM | SEQPACKET), Action::Allow),
    ];
    list.push(Decision { nr: libc::SYS_socketpair, cases, otherwise: datagrams });
    if options.broker {
        // Also where all is open: some sockets are as good as the host.
        always(list, &[libc::SYS_connect, libc::SYS_bind], Action::Notify);
    }
    if options.broker && options.network {
        // Without a bind before, listen(2) takes a free port by itself.
        always(list, &[libc::SYS_listen], Action::Notify);
    }
}

/// Options that send packets, or send them another way than the address says.
fn socket_options(options: Options, list: &mut Vec<Decision>) {
    const SOL_SOCKET: u32 = libc::SOL_SOCKET as u32;
    const SOL_TCP: u32 = libc::IPPROTO_TCP as u32;
    let refused = Action::Errno(libc::EACCES);
    let mut cases = Vec::new();
    if options.namespace {
        const TCP_REPAIR: u32 = 19;
        const TCP_AO_REPAIR: u32 = 42;
        for option in [TCP_REPAIR, TCP_AO_REPAIR] {
            cases.push((Test::Pair((1, SOL_TCP), (2, option)), refused));
        }
        // What bare needs a capability, as it is said there.
        const SO_MARK: u32 = libc::SO_MARK as u32;
        const FOUR: (u32, u32) = (libc::IPPROTO_IP as u32, libc::IP_TRANSPARENT as u32);
        const SIX: (u32, u32) = (libc::IPPROTO_IPV6 as u32, libc::IPV6_TRANSPARENT as u32);
        for (level, option) in [(SOL_SOCKET, SO_MARK), FOUR, SIX] {
            cases.push((Test::Pair((1, level), (2, option)), Action::Errno(libc::EPERM)));
        }
    }
    cases.push((Test::Is(1, u32::MAX, SOL_TCP), Action::Allow));
    // Sends through one interface, whatever the address.
    for option in [libc::SO_BINDTODEVICE, libc::SO_BINDTOIFINDEX] {
        cases.push((Test::Pair((1, SOL_SOCKET), (2, option as u32)), refused));
    }
    cases.push((Test::Is(1, u32::MAX, SOL_SOCKET), Action::Allow));
    // Of the levels IP and IPv6, which share the numbers. Routes: IP_OPTIONS, IPV6_2292PKTOPTIONS,
    // IPV6_FLOWLABEL_MGR, IP_UNICAST_IF and IPV6_PKTINFO, IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_RTHDR,
    // IPV6_DSTOPTS, IPV6_UNICAST_IF. Joining a group sends a packet, on a TCP socket too:
    // IPV6_ADD_MEMBERSHIP, IPV6_JOIN_ANYCAST, IP_ADD_MEMBERSHIP, IP_ADD_SOURCE_MEMBERSHIP, IP_MSFILTER,
    // MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP, MCAST_MSFILTER.
    for option in [4, 6, 32, 50, 54, 55, 57, 59, 76, 20, 27, 35, 39, 41, 42, 46, 48] {
        cases.push((Test::Is(2, u32::MAX, option), refused));
    }
    if options.namespace {
        cases.extend(privileged_options(refused));
        let cases = [(Test::Is(1, u32::MAX, SOL_SOCKET), Action::Allow)]
            .into_iter()
            .chain(privileged_options(refused))
            .collect();
        list.push(Decision { nr: libc::SYS_getsockopt, cases, otherwise: Action::Allow });
    }
    list.push(Decision { nr: libc::SYS_setsockopt, cases, otherwise: Action::Allow });
}

const STREAM: u32 = 1 << libc::SOCK_STREAM;
const SEQPACKET: u32 = 1 << libc::SOCK_SEQPACKET;

/// Which sockets may be made: families that are known, then by type. No family outside the four is
/// ever open (AF_VSOCK reaches the hypervisor, AF_ALG and AF_XDP the kernel).
fn socket_cases(options: Options, refused: Action) -> Vec<(Test, Action)> {
    let unix = 1 << libc::AF_UNIX;
    let internet = 1 << libc::AF_INET | 1 << libc::AF_INET6;
    // Route dumps of getaddrinfo(3) and getifaddrs(3); without CAP_NET_ADMIN, which the target
    // never has, it changes nothing.
    let netlink = 1 << libc::AF_NETLINK;
    let mut cases = vec![(Test::NotIn(0, u32::MAX, unix | internet | netlink), refused)];
    if options.network {
        if !options.broker || options.namespace {
            // The broker makes it. Without one, Landlock sees no port that listen(2) takes by itself, and
            // nobody else looks.
            cases.push((Test::In(0, u32::MAX, internet), refused));
        }
        // 0 is TCP for a stream; MPTCP, SCTP and the rest are not TCP to Landlock.
        let tcp = 1 << libc::IPPROTO_TCP | 1;
        cases.push((Test::NotIn(2, u32::MAX, tcp), refused));
    } else {
        cases.push((Test::In(0, u32::MAX, internet | netlink), Action::Allow));
    }
    if !options.unix_sockets && !options.learn {
        cases.push((Test::In(0, u32::MAX, unix), Action::Allow));
    }
    cases.push((Test::In(1, TYPE, STREAM), Action::Allow));
    // A sequenced packet socket of the internet families is SCTP, which connects in a send.
    cases.push((Test::In(0, u32::MAX, internet), refused));
    cases.push((Test::In(1, TYPE, SEQPACKET), Action::Allow));
    // What is left: Unix datagrams, and netlink. 0 is NETLINK_ROUTE.
    cases.push((Test::NotIn(2, u32::MAX, 1), refused));
    cases.push((Test::In(0, u32::MAX, netlink), Action::Allow));
    cases
}

/// What the broker decides or does beside opening.
fn brokered(options: Options, list: &mut Vec<Decision>) {
    #[cfg(target_arch = "x86_64")]
    always(
        list,
        &[
            libc::SYS_unlink,
            libc::SYS_rename,
            libc::SYS_mkdir,
            libc::SYS_rmdir,
            libc::SYS_chmod,
            libc::SYS_chown,
            libc::SYS_lchown,
            libc::SYS_link,
            libc::SYS_symlink,
            libc::SYS_mknod,
            libc::SYS_utime,
            libc::SYS_utimes,
            libc::SYS_futimesat,
            libc::SYS_renameat,
        ],
        Action::Notify,
    );
    always(
        list,
        &[
            libc::SYS_unlinkat,
            libc::SYS_renameat2,
            libc::SYS_mkdirat,
            libc::SYS_fchmodat,
            libc::SYS_fchmod,
            libc::SYS_utimensat,
            libc::SYS_fchownat,
            libc::SYS_fchown,
            libc::SYS_linkat,
            libc::SYS_symlinkat,
            libc::SYS_mknodat,
            libc::SYS_truncate,
            libc::SYS_fchmodat2,
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            libc::SYS_fsetxattr,
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            libc::SYS_fremovexattr,
            nr::SETXATTRAT,
            nr::REMOVEXATTRAT,
            libc::SYS_umask,
            libc::SYS_landlock_create_ruleset,
            libc::SYS_landlock_restrict_self,
            libc::SYS_shmget,
            libc::SYS_shmat,
            libc::SYS_shmctl,
            libc::SYS_semget,
            libc::SYS_semop,
            libc::SYS_semtimedop,
            libc::SYS_semctl,
            libc::SYS_msgget,
            libc::SYS_msgsnd,
            libc::SYS_msgrcv,
            libc::SYS_msgctl,
            libc::SYS_mq_open,
            libc::SYS_mq_unlink,
        ],
        Action::Notify,
    );
    others(list);
    if options.reads {
        always(list, &[libc::SYS_execve, libc::SYS_execveat], Action::Notify);
    }
    if options.identity {
        always(
            list,
            &[
                libc::SYS_setuid,
                libc::SYS_setgid,
                libc::SYS_setreuid,
                libc::SYS_setregid,
                libc::SYS_setresuid,
                libc::SYS_setresgid,
                libc::SYS_setgroups,
                libc::SYS_setfsuid,
                libc::SYS_setfsgid,
                libc::SYS_capset,
            ],
            Action::Notify,
        );
    }
}

/// Calls that change how a process is limited or scheduled. The caller itself is 0; another one has to
/// be of the run. Groups of processes and all of a user's are never the run's alone.
fn others(list: &mut Vec<Decision>) {
    for nr in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        let cases = vec![(Test::Is(0, u32::MAX, 0), Action::Allow)];
        list.push(Decision { nr, cases, otherwise: Action::Notify });
    }
    const PRIO_PROCESS: u32 = 0;
    const IOPRIO_WHO_PROCESS: u32 = 1;
    for (nr, process) in
        [(libc::SYS_setpriority, PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)]
    {
        let cases = vec![
            (Test::NotIn(0, u32::MAX, 1 << process), PERM),
            (Test::Is(1, u32::MAX, 0), Action::Allow),
        ];
        list.push(Decision { nr, cases, otherwise: Action::Notify });
    }
}

/// New namespaces would change what a path means.
fn processes(options: Options, list: &mut Vec<Decision>) {
    list.push(Decision {
        nr: libc::SYS_clone,
        cases: vec![(Test::Bits(0, NEW_NAMESPACES), PERM)],
        otherwise: Action::Allow,
    });
    list.push(Decision {
        nr: libc::SYS_unshare,
        cases: vec![(Test::Bits(0, NEW_NAMESPACES | NEW_TIME), PERM)],
        otherwise: Action::Allow,
    });
    // Its flags are in memory. The C libraries go back to clone(2) on ENOSYS.
    always(list, &[libc::SYS_clone3], Action::Errno(libc::ENOSYS));
    if !options.broker {
        // Landlock-only: what it does not know is closed where that breaks little.
        always(list, &[libc::SYS_mq_open, libc::SYS_mq_unlink], PERM);
    }
}

/// Refused whatever the arguments.
fn forbidden(list: &mut Vec<Decision>) {
    always(
        list,
        &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
        Action::Errno(libc::ENOSYS),
    );
    always(
        list,
        &[
            // Mounts and roots.
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_open_tree,
            nr::OPEN_TREE_ATTR,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
            libc::SYS_setns,
            // Files by another name than their path, or without an open.
            libc::SYS_open_by_handle_at,
            nr::FILE_SETATTR,
            // What /proc/self/attr does, without its files.
            nr::LSM_SET_SELF_ATTR,
            libc::SYS_fanotify_init,
            libc::SYS_quotactl,
            libc::SYS_quotactl_fd,
            libc::SYS_acct,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            // Kernel interfaces with a history.
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_bpf,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_reboot,
            libc::SYS_syslog,
            libc::SYS_vhangup,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
        ],
        PERM,
    );
    #[cfg(target_arch = "x86_64")]
    always(list, &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib], PERM);
}
