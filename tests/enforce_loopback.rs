//! Loopback and the ports of proxies: what is open works as it does bare, and nothing else is reached. With a
//! network namespace and without one; what only a namespace does is in `net_namespace`.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use support::attack::{Attack, Stage, attacks};
use support::have::have;
use support::net::{outside_addresses, server};
use support::{Bed, FORBIDDEN, until_won, without_namespaces};

fn with(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

fn local() -> Value {
    with(json!({"allowLocalBinding": true}))
}

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).quiet()
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// What works on loopback, and how it fails. Ports in the lines are replaced: the kernel picks them.
const OWN: &[&str] = &[
    "s=socket AF_INET SOCK_STREAM 0",
    "setsockopt $s SOL_SOCKET SO_REUSEADDR i:1 4",
    "bind $s in:127.0.0.1:{free} #",
    "name $s",
    "listen $s 64",
    "name $s",
    "c=socket AF_INET SOCK_STREAM 0",
    "connect $c in:127.0.0.1:{free} #",
    "peer $c",
    "connect $c in:127.0.0.1:{free} #",
    "a=accept $s 0 0",
    "write $c bytes:hello 5",
    "read $a buf:9 9",
    "connect $a family:0 16",
    "n=socket AF_INET SOCK_STREAM|SOCK_NONBLOCK 0",
    "connect $n in:127.0.0.1:{free} #",
    "z=socket AF_INET SOCK_STREAM 0",
    "connect $z in:0.0.0.0:{free} #",
    "peer $z",
    "y=socket AF_INET SOCK_STREAM 0",
    "connect $y in:127.0.0.2:{free} #",
    "child do c=socket AF_INET SOCK_STREAM 0 ; connect $c in:127.0.0.1:{free} #",
    "bind $s in:127.0.0.1:0 #",
    "b=socket AF_INET SOCK_STREAM 0",
    "bind $b in:127.0.0.1:{free} #",
    "bind $b in:127.0.0.1:{free} 15",
    "bind $b un:{in}/x #",
    "bind $b EFAULT 16",
    "connect $b EFAULT 16",
    "connect $b in:127.0.0.1:{free} 1",
    "connect $b in:127.0.0.1:{free} 200",
    "connect 77 in:127.0.0.1:{free} #",
    "connect 0 in:127.0.0.1:{free} #",
    "d=socket AF_INET SOCK_STREAM 0",
    "setsockopt $d IPPROTO_TCP TCP_FASTOPEN_CONNECT i:1 4",
    "connect $d in:127.0.0.1:{free} #",
    "write $d bytes:x 1",
    "e=socket AF_INET SOCK_STREAM 0",
    "bind $e in:127.0.0.3:0 #",
    "connect $e in:127.0.0.1:{free} #",
    "listen 0 1",
    "listen 77 1",
    "connect -1 in:127.0.0.1:{free} #",
    "bind -1 in:127.0.0.1:{free} #",
    "listen -1 1",
];

const OWN_SIX: &[&str] = &[
    "s=socket AF_INET6 SOCK_STREAM 0",
    "setsockopt $s SOL_SOCKET SO_REUSEADDR i:1 4",
    "bind $s in:[::1]:{free} #",
    "listen $s 4",
    "name $s",
    "c=socket AF_INET6 SOCK_STREAM 0",
    "connect $c in:[::1]:{free} #",
    "peer $c",
    "z=socket AF_INET6 SOCK_STREAM 0",
    "connect $z in:[::]:{free} #",
    "peer $z",
    "m=socket AF_INET6 SOCK_STREAM 0",
    "connect $m in:[::ffff:127.0.0.1]:{free} #",
    "t=socket AF_INET6 SOCK_STREAM 0",
    "setsockopt $t SOL_SOCKET SO_REUSEADDR i:1 4",
    "bind $t in:[::ffff:127.0.0.1]:{free} #",
    "listen $t 4",
    "m=socket AF_INET6 SOCK_STREAM 0",
    "connect $m in:[::ffff:127.0.0.1]:{free} #",
    "peer $m",
    "v=socket AF_INET6 SOCK_STREAM 0",
    "setsockopt $v IPPROTO_IPV6 26 i:1 4",
    "connect $v in:[::ffff:127.0.0.1]:{free} #",
    "connect $v in:127.0.0.1:{free} #",
    "bind $v in:127.0.0.1:{free} #",
    "bind $v in:[::1]:0 23",
];

/// A port that nothing has, for both runs.
fn free_port() -> u16 {
    TcpListener::bind((LOOPBACK, 0)).and_then(|l| l.local_addr()).expect("a port").port()
}

fn same_inside(list: &[&str], options: &[&str]) {
    let port = free_port().to_string();
    let ops: Vec<String> = list.iter().map(|op| op.replace("{free}", &port)).collect();
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let bed = Bed::new(&[]);
    let bare = bed.bare(&ops);
    bed.reset(&[]);
    let probe = support::probe().display().to_string();
    let program = [&[probe.as_str()][..], &ops].concat();
    let boxed = bed.launch(&local(), options, &program);
    let wrong: Vec<_> = (0..ops.len())
        .filter(|&i| bare.lines.get(i) != boxed.lines.get(i))
        .map(|i| format!("{}: {:?} instead of {:?}", ops[i], boxed.lines.get(i), bare.lines.get(i)))
        .collect();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), boxed.stderr);
    assert_eq!(bare.lines.len(), ops.len(), "{bare:?}");
}

#[test]
fn loopback_works_as_it_does_bare() {
    for options in [&[][..], &[FORBIDDEN]] {
        same_inside(OWN, options);
        if have("loopback of IPv6", &["ipv6"]) {
            same_inside(OWN_SIX, options);
        }
    }
}

/// Where nobody may copy a socket, as in a default container.
#[test]
fn loopback_works_where_no_socket_can_be_copied() {
    let without = |list: &[&'static str], lost: &[&str]| -> Vec<&'static str> {
        list.iter().copied().filter(|op| !lost.iter().any(|lost| op.starts_with(lost))).collect()
    };
    // Disconnecting needs the socket itself, and a socket that listens or is connected is left alone.
    let lost = ["connect $a family", "bind $s in:127.0.0.1:0"];
    same_inside(&without(OWN, &lost), &["refuse=pidfd_getfd"]);
    if have("loopback of IPv6", &["ipv6"]) {
        same_inside(OWN_SIX, &["refuse=pidfd_getfd"]);
    }
}

/// Where no socket can be copied, what a program may do more than once or under another number. Each line
/// is what it is bare.
const TWICE: &[&str] = &[
    "s=socket AF_INET SOCK_STREAM 0",
    "setsockopt $s SOL_SOCKET SO_REUSEADDR i:1 4",
    "bind $s in:127.0.0.1:{free} #",
    "bind $s in:127.0.0.1:{free} #",
    "listen $s 1",
    "listen $s 64",
    "bind $s in:127.0.0.1:0 #",
    "connect $s in:127.0.0.1:{free} #",
    "name $s",
    "c=socket AF_INET SOCK_STREAM 0",
    "d=dup $c",
    "connect $c in:127.0.0.1:{free} #",
    "peer $d",
    "write $d bytes:x 1",
    "a=accept $s 0 0",
    "read $a buf:9 9",
    "connect $c in:127.0.0.1:{free} #",
    "listen $c 1",
    "bind $c in:127.0.0.1:0 #",
    "u=socket AF_UNIX SOCK_STREAM 0",
    "listen $u 1",
    "bind $u un:{in}/u #",
    "bind $u un:{in}/other #",
    "listen $u 1",
    "listen $u 5",
    "bind $u un:{in}/third #",
    "connect $u un:{in}/u #",
    "v=socket AF_UNIX SOCK_STREAM 0",
    "w=dup $v",
    "connect $v un:{in}/u #",
    "connect $v un:{in}/u #",
    "write $w bytes:x 1",
    "ls {in}",
];

#[test]
fn a_socket_put_in_its_place_works_more_than_once() {
    for options in [&[][..], &[FORBIDDEN], &["refuse=pidfd_getfd"]] {
        same_inside(TWICE, options);
    }
}

/// A client that asks for a port of its own keeps it over a connection that is refused.
#[test]
fn a_bound_client_keeps_its_port() {
    let (own, none, server) = (free_port(), free_port(), server(LOOPBACK));
    let ops = [
        "f=socket AF_INET SOCK_STREAM 0".to_owned(),
        format!("bind $f in:127.0.0.1:{own} #"),
        format!("connect $f in:127.0.0.1:{none} #"),
        format!("connect $f in:127.0.0.1:{server} #"),
        "name $f".to_owned(),
    ];
    let probe = support::probe().display().to_string();
    let program: Vec<&str> = [&probe].into_iter().chain(&ops).map(String::as_str).collect();
    let run = Bed::new(&[]).launch(&local(), &["refuse=pidfd_getfd"], &program);
    let name = format!("ok 127.0.0.1:{own}");
    assert_eq!(run.lines, ["ok", "ok", "ECONNREFUSED", "ok", &name], "{}", run.stderr);
}

/// What was let go is refused, and not mistaken for a socket that was never bound.
#[test]
fn a_bound_socket_that_was_let_go_is_told() {
    let ops = [
        "s=socket AF_INET SOCK_STREAM 0",
        "bind $s in:127.0.0.1:0 #",
        "loop 64 do o=socket AF_INET SOCK_STREAM 0 ; bind $o in:127.0.0.1:0 #",
        "bind $s in:127.0.0.1:0 #",
        "listen $s 1",
    ];
    let probe = support::probe().display().to_string();
    let program = [&[probe.as_str()][..], &ops].concat();
    let run = Bed::new(&[]).launch(&local(), &["refuse=pidfd_getfd"], &program);
    assert_eq!(run.lines, ["ok", "ok", "ok ok*64", "EINVAL", "ENOBUFS"]);
    let trap = run.traps.last().expect("a trap");
    assert_eq!((&trap["kind"], &trap["operation"]), (&json!("network"), &json!("listen")));
    // The control: with the socket itself, as many as there are descriptors.
    let run = Bed::new(&[]).boxed(&local(), &ops);
    assert_eq!(run.lines, ["ok", "ok", "ok ok*64", "EINVAL", "ok"]);
}

/// Every address of this host is, for the run, loopback.
#[test]
fn any_address_is_bound_as_loopback() {
    let four =
        ["s=socket AF_INET SOCK_STREAM 0", "bind $s in:0.0.0.0:0 #", "listen $s 1", "name $s"];
    let unspecified = ["s=socket AF_INET SOCK_STREAM 0", "bind $s family:0 16", "name $s"];
    let both = ["s=socket AF_INET6 SOCK_STREAM 0", "bind $s in:[::]:0 #", "listen $s 1", "name $s"];
    let six = [
        "s=socket AF_INET6 SOCK_STREAM 0",
        "setsockopt $s IPPROTO_IPV6 26 i:1 4",
        "bind $s in:[::]:0 #",
        "name $s",
    ];
    let no_bind = ["s=socket AF_INET SOCK_STREAM 0", "listen $s 1", "name $s"];
    let no_bind_six = ["s=socket AF_INET6 SOCK_STREAM 0", "listen $s 1", "name $s"];
    // The kernel forgets a local address that it picked itself.
    let again = [
        "c=socket AF_INET SOCK_STREAM 0",
        "connect $c in:127.0.0.1:{port} #",
        "connect $c family:0 16",
        "listen $c 1",
        "name $c",
    ];
    let port = server(LOOPBACK).to_string();
    for (ops, bare, boxed) in [
        (&four[..], "0.0.0.0:", "127.0.0.1:"),
        (&unspecified, "0.0.0.0:", "127.0.0.1:"),
        (&both, "[::]:", "[::ffff:127.0.0.1]:"),
        (&six, "[::]:", "[::1]:"),
        (&no_bind, "0.0.0.0:", "127.0.0.1:"),
        (&no_bind_six, "[::]:", "[::ffff:127.0.0.1]:"),
        (&again, "0.0.0.0:", "127.0.0.1:"),
    ] {
        if boxed.starts_with('[') && !have("any address of IPv6", &["ipv6"]) {
            continue;
        }
        if ops == again && !have("listening after a connection", &["relisten"]) {
            continue;
        }
        let ops: Vec<String> = ops.iter().map(|op| op.replace("{port}", &port)).collect();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        let run = without_namespaces(|| Bed::new(&[]).boxed(&local(), &ops));
        for (run, want) in [(Bed::new(&[]).bare(&ops), bare), (run, boxed)] {
            let name = run.last().strip_prefix("ok ").unwrap_or_default();
            let port = name.strip_prefix(want).and_then(|port| port.parse::<u16>().ok());
            assert!(port.is_some_and(|port| port > 0), "{ops:?}: {run:?}");
        }
    }
}

#[test]
fn nothing_outside_of_loopback_is_reached() {
    for ip in outside_addresses() {
        let words = vec![
            ("{to}", SocketAddr::new(ip, server(ip)).to_string()),
            ("{own}", SocketAddr::new(ip, 0).to_string()),
            ("{lo}", SocketAddr::new(LOOPBACK, server(LOOPBACK)).to_string()),
            ("{F}", if ip.is_ipv4() { "AF_INET" } else { "AF_INET6" }.to_owned()),
        ];
        let proxies =
            json!({"httpProxyPort": server(LOOPBACK), "socksProxyPort": server(LOOPBACK)});
        for policy in [local(), with(proxies)] {
            let stage =
                Stage { policy, setup: &[], guarded: &["{out}"], target: "", words: &words };
            attacks(&stage, OUTWARD);
            without_namespaces(|| attacks(&stage, OUTWARD));
        }
        let stage =
            Stage { policy: local(), setup: &[], guarded: &["{out}"], target: "", words: &words };
        attacks(&stage, AFTER_LOOPBACK);
        without_namespaces(|| attacks(&stage, AFTER_LOOPBACK));
    }
}

/// Refused as a socket that cannot be made, or one in a network namespace without a way out.
const NOWHERE: &str = "EACCES|ENETUNREACH";

const OUTWARD: &[Attack] = &[
    at("connect", "do s=socket {F} SOCK_STREAM 0 ; connect $s in:{to} #"),
    at("connect in a child", "child do s=socket {F} SOCK_STREAM 0 ; connect $s in:{to} #")
        .works("ok child ok")
        .error("ok child EACCES"),
    at("connect, protocol named", "do s=socket {F} SOCK_STREAM IPPROTO_TCP ; connect $s in:{to} #"),
    at("bind", "do s=socket {F} SOCK_STREAM 0 ; bind $s in:{own} #"),
    at("fast open", "do s=socket {F} SOCK_STREAM 0 ; sendto $s bytes:x 1 MSG_FASTOPEN in:{to} #"),
    at("udp connect", "do s=socket {F} SOCK_DGRAM 0 ; connect $s in:{to} #"),
    at("udp send", "do s=socket {F} SOCK_DGRAM 0 ; sendto $s bytes:x 1 0 in:{to} #").error(NOWHERE),
    at("udp sendmsg", "do s=socket {F} SOCK_DGRAM 0 ; sendmsg $s in:{to} x").error(NOWHERE),
    at("udp bind", "do s=socket {F} SOCK_DGRAM 0 ; bind $s in:{own} #"),
    at("multipath tcp", "do s=socket {F} SOCK_STREAM IPPROTO_MPTCP ; connect $s in:{to} #")
        .needs(&["mptcp"]),
    at(
        "through an interface",
        "do s=socket {F} SOCK_STREAM 0 ; setsockopt $s SOL_SOCKET SO_BINDTODEVICE \"lo 3",
    ),
    at(
        "through an interface by number",
        "do s=socket {F} SOCK_STREAM 0 ; setsockopt $s SOL_SOCKET SO_BINDTOIFINDEX i:1 4",
    ),
    // IPOPT_SSRR by way of one address.
    at(
        "by another route",
        "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s IPPROTO_IP IP_OPTIONS i:0 8",
    ),
    at(
        "from another interface",
        "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s IPPROTO_IP IP_UNICAST_IF i:0 4",
    ),
    at(
        "from another interface, IPv6",
        "do s=socket AF_INET6 SOCK_STREAM 0 ; setsockopt $s IPPROTO_IPV6 IPV6_UNICAST_IF i:0 4",
    )
    .needs(&["ipv6"]),
    at(
        "by a routing header",
        "do s=socket AF_INET6 SOCK_STREAM 0 ; setsockopt $s IPPROTO_IPV6 IPV6_RTHDR NULL 0",
    )
    .needs(&["ipv6"]),
];

const AFTER_LOOPBACK: &[Attack] = &[
    at(
        "after loopback",
        "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:{lo} # ; connect $s family:0 16 ; s=socket {F} SOCK_STREAM 0 ; connect $s in:{to} #",
    )
    .error("EACCES|ECONNREFUSED"),
    at(
        "fast open announced",
        "do s=socket {F} SOCK_STREAM 0 ; setsockopt $s IPPROTO_TCP TCP_FASTOPEN_CONNECT i:1 4 ; connect $s in:{to} #",
    ),
    at(
        "after listening",
        "do l=socket AF_INET SOCK_STREAM 0 ; bind $l in:127.0.0.1:0 # ; listen $l 1 ; s=socket {F} SOCK_STREAM 0 ; connect $s in:{to} #",
    ),
];

#[test]
fn the_form_of_an_address_makes_no_difference() {
    let Some(ip) = outside_addresses().into_iter().find(IpAddr::is_ipv4) else { return };
    let stage =
        |policy, words| Stage { policy, setup: &[], guarded: &["{out}"], target: "", words };
    let words = [("{to}", format!("[::ffff:{ip}]:{}", server(ip)))];
    attacks(
        &stage(local(), &words),
        &[at("mapped", "do s=socket AF_INET6 SOCK_STREAM 0 ; connect $s in:{to} #")
            .needs(&["ipv6"])],
    );
}

#[test]
fn a_proxy_is_reached_at_its_port_alone() {
    let (proxy, other) = (server(LOOPBACK), server(LOOPBACK));
    let policy = with(json!({"httpProxyPort": proxy}));
    let to = |ip: &str, port: u16| {
        format!("do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:{ip}:{port} # ; peer $s")
    };
    let mut ops = vec![
        to("127.0.0.1", proxy),
        to("0.0.0.0", proxy),
        to("127.0.0.1", other),
        "do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:127.0.0.1:0 #".to_owned(),
        "do s=socket AF_INET SOCK_STREAM 0 ; listen $s 1".to_owned(),
    ];
    if have("listening after a connection", &["relisten"]) {
        ops.push(format!(
            "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:{proxy} # ; connect $s family:0 16 ; listen $s 1"
        ));
    }
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let bed = Bed::new(&[]);
    let (run, bare) = (bed.boxed(&policy, &ops), Bed::new(&[]).bare(&ops));
    assert!(bare.lines.iter().all(|line| line.starts_with("ok")), "the control: {bare:?}");
    let reached = format!("ok 127.0.0.1:{proxy}");
    let denied = ops.len() - 2;
    let want = [&*reached, &reached].into_iter().chain(std::iter::repeat_n("EACCES", denied));
    assert_eq!(run.lines, want.collect::<Vec<_>>(), "{}", run.stderr);
    let grants: Vec<_> = run.traps.iter().map(|trap| trap["suggested_grant"].clone()).collect();
    let mut wanted = vec![json!({"allowLocalBinding": true}); denied];
    wanted[0] = json!({ "hostPorts": other });
    assert_eq!(grants, wanted);
    assert_eq!(run.traps[0]["target"], format!("127.0.0.1:{other}"));
    for ip in outside_addresses().iter().filter(|ip| ip.is_ipv4()) {
        let there = TcpListener::bind((*ip, proxy)).expect("the same port");
        let op = to(&ip.to_string(), proxy);
        assert!(Bed::new(&[]).bare(&[&op]).last().starts_with("ok"), "the control");
        let run = Bed::new(&[]).boxed(&policy, &[&op]);
        assert_eq!(
            (run.last(), &run.traps[0]["suggested_grant"]),
            ("EACCES", &json!({"allowNetwork": true}))
        );
        drop(there);
    }
}

#[test]
fn the_broker_and_a_race_for_the_address() {
    let Some(ip) = outside_addresses().into_iter().find(IpAddr::is_ipv4) else { return };
    let (inside, outside) = (server(LOOPBACK), server(ip));
    let connect = format!("race-address 3000 connect 127.0.0.1:{inside} {ip}:{outside}");
    let bind = format!("race-address 3000 bind 127.0.0.1:0 {ip}:0");
    for op in [connect, bind] {
        let counts = |run: &support::Run| -> Vec<u64> {
            run.last().split(' ').filter_map(|word| word.parse().ok()).collect()
        };
        let won = |run: &support::Run| matches!(counts(run)[..], [_, (1..)]);
        let bare = until_won(|| Bed::new(&[]).bare(&[&op]), won);
        assert!(won(&bare), "the control never won: {bare:?}");
        let run = without_namespaces(|| Bed::new(&[]).boxed(&local(), &[&op]));
        assert!(matches!(counts(&run)[..], [(1..), 0]), "{op}: {run:?}");
    }
}

/// listen(2) names nothing but a number, which may mean another socket by the time it is looked up.
#[test]
fn a_race_for_the_descriptor_listens_on_loopback() {
    let ops = [
        "a=socket AF_UNIX SOCK_STREAM 0",
        "bind $a abs:landstrip-race-{pid} #",
        "b=socket AF_INET SOCK_STREAM 0",
        "x=dup $a",
        "race-fd 3000 $a $b $x listen $x 1",
        "name $b",
    ];
    // Where it listens, once the race is won: on a busy machine that can take a few tries.
    let listens = |run: &dyn Fn() -> support::Run| {
        (0..40).find_map(|_| {
            let run = run();
            let place = run.last().strip_prefix("ok ").unwrap_or_else(|| panic!("{run:?}"));
            let (address, port) = place.rsplit_once(':').unwrap_or_else(|| panic!("{run:?}"));
            (port != "0").then(|| address.to_owned())
        })
    };
    let bare = listens(&|| Bed::new(&[]).bare(&ops));
    assert_eq!(bare.as_deref(), Some("0.0.0.0"), "the control");
    let boxed = listens(&|| without_namespaces(|| Bed::new(&[]).boxed(&local(), &ops)));
    assert_eq!(boxed.as_deref(), Some("127.0.0.1"));
}

#[test]
fn a_connect_that_waits_holds_up_nobody() {
    // More of them than there are processors, each to a listener whose queue is full.
    let mut ops = vec![
        "l=socket AF_UNIX SOCK_STREAM 0".to_owned(),
        "bind $l abs:landstrip-full-{pid} #".to_owned(),
        "listen $l 0".to_owned(),
        "c=socket AF_UNIX SOCK_STREAM 0".to_owned(),
        "connect $c abs:landstrip-full-{pid} #".to_owned(),
    ];
    for i in 0..8 {
        ops.push(format!(
            "bg w{i} do c=socket AF_UNIX SOCK_STREAM 0 ; connect $c abs:landstrip-full-{{pid}} #"
        ));
    }
    ops.push("s=socket AF_INET SOCK_STREAM 0".to_owned());
    ops.push("bind $s in:127.0.0.1:0 #".to_owned());
    ops.push("put {in}/file x".to_owned());
    ops.extend((0..9).map(|_| "do a=accept $l 0 0".to_owned()));
    ops.extend((0..8).map(|i| format!("join w{i}")));
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let run = Bed::new(&[]).boxed(&local(), &ops);
    assert_eq!(run.lines, vec!["ok"; ops.len()], "{run:?}");
}

#[test]
fn many_connections_take_no_memory() {
    let closed = free_port();
    let resident =
        "sh awk '/^VmRSS/{print $2}' /proc/$(awk '/^PPid/{print $2}' /proc/$PPID/status)/status";
    let one = "s=socket AF_INET SOCK_STREAM 0".to_owned();
    let refused = format!("loop 60000 connect $s in:127.0.0.1:{closed} #");
    let warm = format!("loop 1000 connect $s in:127.0.0.1:{closed} #");
    let run = Bed::new(&[]).boxed(&local(), &[&one, &warm, resident, &refused, resident]);
    let kilobytes = |line: &str| line.strip_prefix("ok 0 ").and_then(|n| n.parse::<u64>().ok());
    assert!(run.lines[3].contains("ECONNREFUSED") && run.lines[3].contains("60000"), "{run:?}");
    let (Some(before), Some(after)) = (kilobytes(&run.lines[2]), kilobytes(&run.lines[4])) else {
        panic!("no figures: {run:?}");
    };
    assert!(after < before + 1024, "{before} kB before, {after} kB after");
}

/// A server and clients as people write them.
const SERVER: &str = r#"
import functools, http.server, os, subprocess, sys, threading, urllib.request
os.chdir(os.environ["TMPDIR"])
open("page", "w").write("hello")
server = http.server.ThreadingHTTPServer(("", 0), http.server.SimpleHTTPRequestHandler)
port = server.server_address[1]
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in ["localhost", "127.0.0.1"]:
    url = f"http://{host}:{port}/page"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    print(direct.open(url).read().decode(), flush=True)
    print(subprocess.run(["curl", "--noproxy", "*", "-sS", url], capture_output=True).stdout.decode())
"#;

#[test]
fn a_web_server_serves_on_loopback() {
    let python = "/usr/bin/python3";
    if !have("a web server", &[python, "cmd:curl"]) {
        return;
    }
    for options in [&[][..], &["refuse=pidfd_getfd"]] {
        let bed = Bed::new(&[]);
        let run = bed.launch(&local(), options, &[python, "-c", SERVER]);
        assert_eq!(run.lines, ["hello"; 4], "{options:?}: {}", run.stderr);
    }
}

/// What a program does with a socket before it is bound or connected: options, epoll(7), a fork.
const BEFORE: &str = r#"
import os, select, signal, socket as k, struct, fcntl
tcp = k.IPPROTO_TCP
def prepared(family):
    s = k.socket(family, k.SOCK_STREAM)
    for level, name, value in [(k.SOL_SOCKET, k.SO_REUSEPORT, 1), (k.SOL_SOCKET, k.SO_KEEPALIVE, 1),
            (k.SOL_SOCKET, k.SO_RCVBUF, 9000), (k.SOL_SOCKET, k.SO_SNDBUF, 9000), (tcp, k.TCP_NODELAY, 1),
            (tcp, k.TCP_KEEPIDLE, 77), (k.SOL_SOCKET, k.SO_RCVTIMEO, struct.pack("ll", 7, 0))]:
        if family != k.AF_UNIX or level == k.SOL_SOCKET and name != k.SO_REUSEPORT:
            s.setsockopt(level, name, value)
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
    return s
def told(s):
    said = [s.getsockopt(k.SOL_SOCKET, o) for o in (k.SO_REUSEADDR, k.SO_KEEPALIVE, k.SO_RCVBUF, k.SO_SNDBUF)]
    said.append(struct.unpack("ll", s.getsockopt(k.SOL_SOCKET, k.SO_RCVTIMEO, 16)))
    if s.family != k.AF_UNIX:
        said += [s.getsockopt(tcp, o) for o in (k.TCP_NODELAY, k.TCP_KEEPIDLE)]
    print(said, fcntl.fcntl(s, fcntl.F_GETOWN) == os.getpid())
for family in (k.AF_INET, k.AF_UNIX):
    server, poll = prepared(family), select.epoll()
    poll.register(server, select.EPOLLIN)
    # Bound and listening in a child, for both.
    child = os.fork()
    if child == 0:
        server.bind(("127.0.0.1", 0) if family == k.AF_INET else "./server")
        server.listen(5)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    told(server)
    address = server.getsockname()
    if family == k.AF_INET:
        second = prepared(family)
        second.bind(address)
        second.close()
    client, polled = prepared(family), select.epoll()
    client.setblocking(False)
    print(fcntl.fcntl(client, fcntl.F_GETFL) & os.O_NONBLOCK)
    try:
        client.connect(address)
    except BlockingIOError:
        pass
    told(client)
    polled.register(client, select.EPOLLOUT)
    print(len(poll.poll(10)), len(polled.poll(10)))
    accepted = server.accept()[0]
    client.send(b"hello")
    print(accepted.recv(9))
    server.close()
    # Whose copy the broker keeps would still take this one.
    last = k.socket(family, k.SOCK_STREAM)
    print(last.connect_ex(address) in (111, 2))
"#;

/// Where no socket can be copied, it is still the program's own that is bound and connected.
#[test]
fn what_was_done_before_is_not_lost_where_no_socket_can_be_copied() {
    let python = "/usr/bin/python3";
    if !have("options", &[python]) {
        return;
    }
    let program = [python, "-c", BEFORE];
    let bare = Bed::new(&[]);
    let output =
        Command::new(python).args(&program[1..]).current_dir(bare.root().join("in")).output();
    let output = output.expect("python3");
    assert!(output.status.success(), "{output:?}");
    let want: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    for options in [&[][..], &["refuse=pidfd_getfd"]] {
        let run = Bed::new(&[]).launch(&local(), options, &program);
        assert_eq!(run.lines, want, "{options:?}: {}", run.stderr);
    }
}

/// A proxy that connects whoever asks to `to`.
fn proxy(to: SocketAddr) -> u16 {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || tunnel(client, to));
        }
    });
    port
}

fn tunnel(mut client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    assert!(head.starts_with(b"CONNECT server.test:80 "), "{}", String::from_utf8_lossy(&head));
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let mut server = TcpStream::connect(to)?;
    let (mut back, mut forth) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || std::io::copy(&mut forth, &mut back));
    std::io::copy(&mut server, &mut client)?;
    Ok(())
}

#[test]
fn a_proxy_leads_out() {
    if !have("a proxy", &["cmd:curl"]) {
        return;
    }
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("bind");
    let server = listener.local_addr().expect("address");
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1024];
            let _ = client.read(&mut request);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    let port = proxy(server);
    let policy = with(json!({"httpProxyPort": port}));
    let through = format!("http://127.0.0.1:{port}");
    let curl = ["curl", "-sS", "--proxytunnel", "-x", &through, "http://server.test/"];
    let run = Bed::new(&[]).launch(&policy, &[], &curl);
    assert_eq!(run.lines, ["hello"], "{}", run.stderr);
    // The server itself is on loopback too, and not at the proxy's port.
    let direct = format!("http://{server}/");
    let curl = ["curl", "-sS", "--noproxy", "*", &direct];
    let run = Bed::new(&[]).launch(&policy, &[], &curl);
    assert_eq!((run.lines.len(), run.code), (0, Some(7)), "{}", run.stderr);
}
