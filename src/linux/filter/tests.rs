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
    (0..64u32).map(|bits| Options {
        broker: bits & 1 != 0,
        reads: bits & 2 != 0,
        network: bits & 4 != 0,
        unix_sockets: bits & 8 != 0,
        identity: bits & 16 != 0,
        learn: bits & 32 != 0,
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
        let (broker, reads, identity, learn) = (true, false, false, false);
        build(Options { broker, reads, network, unix_sockets, identity, learn })
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
        // Without a broker nobody ties a socket to loopback.
        for family in [libc::AF_INET, libc::AF_INET6] {
            let made = decide(libc::SYS_socket, family, libc::SOCK_STREAM) == allow;
            assert_eq!(made, options.broker || !options.network);
        }
    }
}
