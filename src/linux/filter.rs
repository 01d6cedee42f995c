//! The seccomp filter of a run, emitted as classic BPF.
//!
//! One program carries every action (kill, errno, notify, allow), which `seccompiler` cannot express:
//! it has one match action per filter, and each filter more costs every filtered system call again.
//! System calls that are not named here are allowed by number alone, so that the kernel answers them
//! from its bitmap without running the program.

use super::sys::nr;
use super::sys::seccomp::Instruction;
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD,
    BPF_LSH, BPF_MISC, BPF_RET, BPF_TAX, BPF_W, BPF_X,
};

/// What varies from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// There is a broker: path system calls are notified. Without one (inside another sandbox of
    /// ours) they are left to Landlock and to the outer broker.
    pub broker: bool,
    /// Reading opens are notified too, and execve(2).
    pub reads: bool,
    /// The network is fenced.
    pub network: bool,
    /// Pathname sockets are fenced.
    pub unix_sockets: bool,
    /// The target may change its user, groups or capabilities, which the broker then must follow.
    pub identity: bool,
}

/// `SECCOMP_RET_*` actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Allow,
    Notify,
    Errno(i32),
    Kill,
}

impl Action {
    fn value(self) -> u32 {
        match self {
            Action::Allow => libc::SECCOMP_RET_ALLOW,
            Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
            Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Action::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// A test on one register argument. The kernel reads `int` arguments from the low half alone, so
/// these tests do too: a comparison of 64 bits could be passed by setting the high half.
#[derive(Clone, Copy, Debug)]
enum Test {
    /// Any of these bits of the low half is set.
    Bits(usize, u32),
    /// None of these bits of the low half is set.
    NoBits(usize, u32),
    /// The low half, masked, has this value.
    Is(usize, u32, u32),
    /// The low half, masked, is the number of a bit in this set.
    In(usize, u32, u32),
    /// The opposite of `In`.
    NotIn(usize, u32, u32),
}

/// Tests in order, the first that holds decides; then the last action.
struct Decision {
    nr: i64,
    cases: Vec<(Test, Action)>,
    otherwise: Action,
}

/// Offsets into `struct seccomp_data`, little-endian halves.
const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// Numbers from here on are x32's on x86_64, and nothing on other architectures.
const X32_BIT: u32 = 0x4000_0000;

const PERM: Action = Action::Errno(libc::EPERM);

/// Builds the filter.
///
/// The first tests are for the opens, the hot system calls. The others are found by binary search:
/// the kernel runs the program once for every number as it is installed, to learn which are always
/// allowed, and a list would cost it a thousand steps each.
pub fn build(options: Options) -> Vec<Instruction> {
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_ABS, OFFSET_ARCH),
        jump(BPF_JEQ, AUDIT_ARCH, 1, 0),
        ret(Action::Kill),
        statement(BPF_LD | BPF_W | BPF_ABS, OFFSET_NR),
    ];
    let mut hot = Vec::new();
    opens(options, &mut hot);
    for decision in &hot {
        let block = body(decision);
        program.push(jump(BPF_JEQ, decision.nr as u32, 0, offset(block.len())));
        program.extend(block);
    }
    program.extend([jump(BPF_JGE, X32_BIT, 0, 1), ret(Action::Kill)]);
    let mut rest = decisions(options);
    rest.sort_by_key(|decision| decision.nr);
    program.extend(search(&rest));
    program
}

/// Numbers that are compared one by one at the end of the search.
const LEAF: usize = 8;

/// Instructions that find the number in the accumulator among `decisions`, which are sorted.
fn search(decisions: &[Decision]) -> Vec<Instruction> {
    if decisions.len() <= LEAF {
        return leaf(decisions);
    }
    let (low, high) = decisions.split_at(decisions.len() / 2);
    let (split, low, high) = (high[0].nr as u32, search(low), search(high));
    let mut out = Vec::with_capacity(low.len() + high.len() + 2);
    match u8::try_from(low.len()) {
        Ok(length) => out.push(jump(BPF_JGE, split, length, 0)),
        // Conditional jumps reach 255 instructions.
        Err(_) => {
            out.push(jump(BPF_JGE, split, 0, 1));
            out.push(statement(BPF_JMP | BPF_JA, low.len() as u32));
        }
    }
    out.extend(low);
    out.extend(high);
    out
}

/// Compares with each number. Those without cases jump to an answer at the end that they share.
fn leaf(decisions: &[Decision]) -> Vec<Instruction> {
    let (simple, tested): (Vec<_>, Vec<_>) = decisions.iter().partition(|d| d.cases.is_empty());
    let mut out = Vec::new();
    for decision in tested {
        let block = body(decision);
        out.push(jump(BPF_JEQ, decision.nr as u32, 0, offset(block.len())));
        out.extend(block);
    }
    let mut answers: Vec<Action> = Vec::new();
    for (index, decision) in simple.iter().enumerate() {
        let answer = answers.iter().position(|action| *action == decision.otherwise);
        let answer = answer.unwrap_or_else(|| {
            answers.push(decision.otherwise);
            answers.len() - 1
        });
        // Over the comparisons left and the answer "allow".
        let over = simple.len() - index - 1 + 1 + answer;
        out.push(jump(BPF_JEQ, decision.nr as u32, offset(over), 0));
    }
    out.push(ret(Action::Allow));
    out.extend(answers.into_iter().map(ret));
    out
}

fn offset(length: usize) -> u8 {
    u8::try_from(length).expect("a decision fits a short jump")
}

fn body(decision: &Decision) -> Vec<Instruction> {
    let mut out = Vec::new();
    for &(test, action) in &decision.cases {
        let low = |arg: usize| OFFSET_ARGS + 8 * arg as u32;
        match test {
            Test::Bits(arg, bits) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                out.push(jump(BPF_JSET, bits, 0, 1));
            }
            Test::NoBits(arg, bits) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                out.push(jump(BPF_JSET, bits, 1, 0));
            }
            Test::Is(arg, mask, value) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                if mask != u32::MAX {
                    out.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
                }
                out.push(jump(BPF_JEQ, value, 0, 1));
            }
            Test::In(arg, mask, set) | Test::NotIn(arg, mask, set) => {
                let inside = matches!(test, Test::In(..));
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                out.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
                out.push(jump(BPF_JGE, 32, if inside { 5 } else { 4 }, 0));
                out.push(statement(BPF_MISC | BPF_TAX, 0));
                out.push(statement(BPF_LD | BPF_IMM, 1));
                out.push(statement(BPF_ALU | BPF_LSH | BPF_X, 0));
                out.push(if inside {
                    jump(BPF_JSET, set, 0, 1)
                } else {
                    jump(BPF_JSET, set, 1, 0)
                });
            }
        }
        out.push(ret(action));
    }
    out.push(ret(decision.otherwise));
    out
}

fn statement(code: u32, k: u32) -> Instruction {
    Instruction { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code: (BPF_JMP | test | BPF_K) as u16, jt, jf, k }
}

fn ret(action: Action) -> Instruction {
    statement(BPF_RET | BPF_K, action.value())
}

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
fn decisions(options: Options) -> Vec<Decision> {
    let mut list = Vec::with_capacity(160);
    descriptors(&mut list);
    sockets(options, &mut list);
    if options.broker {
        brokered(options, &mut list);
    }
    processes(options, &mut list);
    forbidden(&mut list);
    list
}

fn opens(options: Options, list: &mut Vec<Decision>) {
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
fn descriptors(list: &mut Vec<Decision>) {
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
    list.push(Decision { nr: libc::SYS_ioctl, cases, otherwise: Action::Allow });
}

/// `MSG_FASTOPEN` connects from a send, which no connect rule sees.
const MSG_FASTOPEN: u32 = 0x2000_0000;
/// The bits of socket(2)'s second argument that name the type.
const TYPE: u32 = 0xf;

fn sockets(options: Options, list: &mut Vec<Decision>) {
    let refused = if options.broker { Action::Notify } else { Action::Errno(libc::EACCES) };
    list.push(Decision {
        nr: libc::SYS_socket,
        cases: socket_cases(options, refused),
        otherwise: refused,
    });
    if options.network {
        for (nr, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            let cases = vec![(Test::Bits(flags, MSG_FASTOPEN), Action::Errno(libc::EACCES))];
            list.push(Decision { nr, cases, otherwise: Action::Allow });
        }
    }
    if options.network {
        // Joining a group sends a packet, on a TCP socket too.
        const SOL_SOCKET: u32 = libc::SOL_SOCKET as u32;
        const SOL_TCP: u32 = libc::IPPROTO_TCP as u32;
        let mut cases = vec![
            (Test::Is(1, u32::MAX, SOL_SOCKET), Action::Allow),
            (Test::Is(1, u32::MAX, SOL_TCP), Action::Allow),
        ];
        // IPV6_ADD_MEMBERSHIP, IPV6_JOIN_ANYCAST, IP_ADD_MEMBERSHIP, IP_ADD_SOURCE_MEMBERSHIP,
        // IP_MSFILTER, MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP, MCAST_MSFILTER.
        for option in [20, 27, 35, 39, 41, 42, 46, 48] {
            cases.push((Test::Is(2, u32::MAX, option), Action::Errno(libc::EACCES)));
        }
        list.push(Decision { nr: libc::SYS_setsockopt, cases, otherwise: Action::Allow });
    }
    if options.unix_sockets {
        // A datagram socket sends to any address in sendmsg(2), which is never notified.
        let cases = vec![
            (Test::NotIn(0, u32::MAX, 1 << libc::AF_UNIX), refused),
            (Test::In(1, TYPE, STREAM | SEQPACKET), Action::Allow),
        ];
        list.push(Decision { nr: libc::SYS_socketpair, cases, otherwise: refused });
    }
    if options.broker && (options.network || options.unix_sockets) {
        always(list, &[libc::SYS_connect, libc::SYS_bind], Action::Notify);
    }
    if options.broker && options.network {
        // Without a bind before, listen(2) takes a free port by itself.
        always(list, &[libc::SYS_listen], Action::Notify);
    }
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
        // 0 is TCP for a stream; MPTCP, SCTP and the rest are not TCP to Landlock.
        let tcp = 1 << libc::IPPROTO_TCP | 1;
        cases.push((Test::NotIn(2, u32::MAX, tcp), refused));
    } else {
        cases.push((Test::In(0, u32::MAX, internet | netlink), Action::Allow));
    }
    if !options.unix_sockets {
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
    const IOPRIO_WHO_PROCESS: u32 = 1;
    for (nr, process) in
        [(libc::SYS_setpriority, libc::PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)]
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

#[cfg(test)]
mod tests {
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
        (0..32u32).map(|bits| Options {
            broker: bits & 1 != 0,
            reads: bits & 2 != 0,
            network: bits & 4 != 0,
            unix_sockets: bits & 8 != 0,
            identity: bits & 16 != 0,
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
                for args in [[0; 6], [u64::MAX; 6], [1, 1, 1, 1, 1, 1], [2, 2, 6, 0, 0, 0]] {
                    let want = match found.first() {
                        None => libc::SECCOMP_RET_ALLOW,
                        Some(decision) => run(&body(decision), AUDIT_ARCH, nr, args),
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
            build(Options { broker: true, reads: false, network, unix_sockets, identity: false })
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
            let got = [&fenced, &unix_only, &open]
                .map(|program| run(program, AUDIT_ARCH, libc::SYS_socket as u32, args));
            assert_eq!(got, wants, "{family} {kind} {protocol}");
        }
    }
}
