//! Attacks on the network rules, each first shown to work where nothing stops it.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use support::Bed;
use support::attack::{Attack, Stage, attacks};
use support::have::have;

/// How a family that is not allowed may be refused.
const FAMILY: &str = "EACCES|EPERM|EAFNOSUPPORT";

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).quiet()
}

fn none() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

fn network() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": {"allowNetwork": true}})
}

/// Servers outside: they accept and read whatever comes, for as long as they live.
struct Outside {
    dir: tempfile::TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    _sockets: (UnixListener, UnixDatagram, UnixListener, UnixDatagram),
    name: String,
}

impl Outside {
    fn new() -> Outside {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::net::SocketAddr;
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        // Unique by the directory's own random name.
        let name = dir.path().file_name().expect("a name").to_string_lossy().into_owned();
        let abstract_name = |kind: &str| {
            SocketAddr::from_abstract_name(format!("{name}{kind}")).expect("an abstract name")
        };
        let sockets = (
            UnixListener::bind(dir.path().join("s")).expect("bind"),
            UnixDatagram::bind(dir.path().join("d")).expect("bind"),
            UnixListener::bind_addr(&abstract_name(".s")).expect("bind"),
            UnixDatagram::bind_addr(&abstract_name(".d")).expect("bind"),
        );
        Outside {
            tcp: TcpListener::bind("127.0.0.1:0").expect("bind"),
            udp: UdpSocket::bind("127.0.0.1:0").expect("bind"),
            _sockets: sockets,
            name,
            dir,
        }
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let port = |address: std::io::Result<std::net::SocketAddr>| {
            address.expect("address").port().to_string()
        };
        vec![
            ("{tcp}", port(self.tcp.local_addr())),
            ("{udp}", port(self.udp.local_addr())),
            ("{dir}", self.dir.path().canonicalize().expect("a path").display().to_string()),
            ("{name}", self.name.clone()),
        ]
    }

    fn stage<'a>(&self, policy: Value, words: &'a [(&'a str, String)]) -> Stage<'a> {
        Stage { policy, setup: &[], guarded: &["{out}"], target: "", words }
    }
}

#[test]
fn without_network_nothing_goes_out() {
    let outside = Outside::new();
    let words = outside.words();
    attacks(&outside.stage(none(), &words), &[
        at("tcp connect", "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:{tcp} #"),
        at("tcp connect, not blocking", "do s=socket AF_INET SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s in:127.0.0.1:{tcp} #")
            .works("EINPROGRESS"),
        at("tcp connect in IPv6 form", "do s=socket AF_INET6 SOCK_STREAM 0 ; connect $s in:[::ffff:127.0.0.1]:{tcp} #")
            .needs(&["ipv6"]),
        at("tcp in a child", "child do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:{tcp} #")
            .works("ok child ok").error("ok child EACCES"),
        at("fast open", "do s=socket AF_INET SOCK_STREAM 0 ; sendto $s bytes:x 1 MSG_FASTOPEN in:127.0.0.1:{tcp} #"),
        at("multipath tcp", "do s=socket AF_INET SOCK_STREAM IPPROTO_MPTCP ; connect $s in:127.0.0.1:{tcp} #")
            .needs(&["mptcp"]),
        at("tcp bind", "do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:127.0.0.1:0 #"),
        at("listen without bind", "do s=socket AF_INET SOCK_STREAM 0 ; listen $s 1"),
        at("udp connect", "do s=socket AF_INET SOCK_DGRAM 0 ; connect $s in:127.0.0.1:{udp} #"),
        at("udp send", "do s=socket AF_INET SOCK_DGRAM 0 ; sendto $s bytes:x 1 0 in:127.0.0.1:{udp} #"),
        at("udp sendmsg", "do s=socket AF_INET SOCK_DGRAM 0 ; sendmsg $s in:127.0.0.1:{udp} x"),
        at("udp sendmmsg", "do s=socket AF_INET SOCK_DGRAM 0 ; sendmmsg $s in:127.0.0.1:{udp} x"),
        at("udp bind", "do s=socket AF_INET SOCK_DGRAM 0 ; bind $s in:127.0.0.1:0 #"),
        at("udp lite", "do s=socket AF_INET SOCK_DGRAM IPPROTO_UDPLITE ; sendto $s bytes:x 1 0 in:127.0.0.1:{udp} #")
            .needs(&["udplite"]),
        at("raw", "socket AF_INET SOCK_RAW IPPROTO_ICMP").needs(&["root"]).error(FAMILY),
    ]);
    // Nothing arrived but what the controls sent.
    outside.tcp.set_nonblocking(true).expect("nonblocking");
}

#[test]
fn other_families_are_refused() {
    let outside = Outside::new();
    let family = |name, op| at(name, op).error(FAMILY);
    let table = [
        ("netlink xfrm", family("netlink xfrm", "socket AF_NETLINK SOCK_RAW 6")),
        ("netlink diagnostics", family("netlink diagnostics", "socket AF_NETLINK SOCK_RAW 4")),
        ("netlink audit", family("netlink audit", "socket AF_NETLINK SOCK_RAW 9")),
        ("netlink events", family("netlink events", "socket AF_NETLINK SOCK_RAW 15")),
        ("netlink generic", family("netlink generic", "socket AF_NETLINK SOCK_DGRAM 16")),
        ("packet", family("packet", "socket AF_PACKET SOCK_RAW 0").needs(&["root"])),
        ("vsock", family("vsock", "socket AF_VSOCK SOCK_STREAM 0")),
        ("alg", family("alg", "socket AF_ALG SOCK_SEQPACKET 0")),
        ("can", family("can", "socket AF_CAN SOCK_RAW 1")),
        ("key", family("key", "socket AF_KEY SOCK_RAW 2").needs(&["root"])),
        ("xdp", family("xdp", "socket AF_XDP SOCK_RAW 0").needs(&["root"])),
        ("tipc", family("tipc", "socket AF_TIPC SOCK_STREAM 0")),
        ("rds", family("rds", "socket AF_RDS SOCK_SEQPACKET 0")),
        ("bluetooth", family("bluetooth", "socket AF_BLUETOOTH SOCK_STREAM 3")),
        ("sctp", family("sctp", "socket AF_INET SOCK_STREAM IPPROTO_SCTP")),
        ("smc", family("smc", "socket 43 SOCK_STREAM 0")),
    ];
    let words = outside.words();
    for (name, attack) in table {
        // A kernel without the family refuses it by itself: nothing to attack.
        let there = Bed::new(&[]).bare(&[attack.op]);
        let missing = ["EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EPERM"];
        if missing.contains(&there.last()) {
            let _ = writeln!(std::io::stderr(), "skipped: {name}: {} here", there.last());
            continue;
        }
        attacks(&outside.stage(none(), &words), &[attack]);
    }
}

/// Pathname and abstract sockets of processes outside.
const UNIX: &[Attack] = &[
    at("stream", "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/s #"),
    at(
        "stream, not blocking",
        "do s=socket AF_UNIX SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s un:{dir}/s #",
    ),
    at(
        "stream by /proc",
        "do d=openat AT_FDCWD \"{dir} O_PATH 0 ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:/proc/self/fd/{d}/s #",
    ),
    at("stream, relative", "do chdir \"{dir} ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:s #"),
    at(
        "stream, dots",
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:../../../../../../..{dir}/./s #",
    ),
    at(
        "stream through a link",
        "do symlinkat \"{dir}/s AT_FDCWD \"{in}/l ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{in}/l #",
    ),
    at("stream in a child", "child do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/s #")
        .works("ok child ok")
        .error("ok child EACCES"),
    at("datagram connect", "do s=socket AF_UNIX SOCK_DGRAM 0 ; connect $s un:{dir}/d #"),
    at("datagram send", "do s=socket AF_UNIX SOCK_DGRAM 0 ; sendto $s bytes:x 1 0 un:{dir}/d #"),
    at("datagram sendmsg", "do s=socket AF_UNIX SOCK_DGRAM 0 ; sendmsg $s un:{dir}/d x"),
    at("datagram sendmmsg", "do s=socket AF_UNIX SOCK_DGRAM 0 ; sendmmsg $s un:{dir}/d x"),
    at(
        "raw, which is a datagram socket",
        "do s=socket AF_UNIX SOCK_RAW 0 ; sendto $s bytes:x 1 0 un:{dir}/d #",
    ),
    at("datagram pair", "do socketpair a b SOCK_DGRAM ; sendto $a bytes:x 1 0 un:{dir}/d #"),
    at("datagram pair, sendmsg", "do socketpair a b SOCK_DGRAM ; sendmsg $a un:{dir}/d x"),
    at("datagram pair, reconnected", "do socketpair a b SOCK_DGRAM ; connect $a un:{dir}/d #"),
];

const ABSTRACT: &[Attack] = &[
    at("abstract stream", "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s abs:{name}.s #"),
    at("abstract datagram", "do s=socket AF_UNIX SOCK_DGRAM 0 ; connect $s abs:{name}.d #"),
    at(
        "abstract datagram send",
        "do s=socket AF_UNIX SOCK_DGRAM 0 ; sendto $s bytes:x 1 0 abs:{name}.d #",
    ),
    at("abstract datagram sendmsg", "do s=socket AF_UNIX SOCK_DGRAM 0 ; sendmsg $s abs:{name}.d x"),
    at(
        "abstract datagram pair",
        "do socketpair a b SOCK_DGRAM ; sendto $a bytes:x 1 0 abs:{name}.d #",
    ),
];

fn abstract_attacks() -> Vec<Attack> {
    // Landlock's scope answers EPERM. Where there is none, the broker refuses all the same.
    ABSTRACT.iter().map(|a| a.error("EACCES|EPERM|ECONNREFUSED")).collect()
}

#[test]
fn unix_sockets_outside_are_refused() {
    let outside = Outside::new();
    let words = outside.words();
    attacks(&outside.stage(none(), &words), UNIX);
    attacks(&outside.stage(none(), &words), &abstract_attacks());
}

#[test]
fn unix_sockets_outside_stay_refused_with_network() {
    let outside = Outside::new();
    let words = outside.words();
    attacks(&outside.stage(network(), &words), UNIX);
    attacks(&outside.stage(network(), &words), &abstract_attacks());
}

/// A socket in the writable directory is still somebody else's.
#[test]
fn a_socket_in_a_writable_directory_is_outside() {
    let bed = Bed::new(&[]);
    let _listener = UnixListener::bind(bed.root().join("in/s")).expect("bind");
    let _datagram = UnixDatagram::bind(bed.root().join("in/d")).expect("bind");
    let ops = [
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{in}/s #",
        "do s=socket AF_UNIX SOCK_DGRAM 0 ; sendto $s bytes:x 1 0 un:{in}/d #",
        "do renameat AT_FDCWD \"{in}/s AT_FDCWD \"{in}/t ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{in}/t #",
    ];
    let refused = bed.boxed(&none(), &ops);
    assert_eq!(refused.lines, ["EACCES"; 3], "{}", refused.stderr);
    bed.must(&["sh test -S {in}/s || mv {in}/t {in}/s"]);
    let bare = bed.bare(&ops);
    assert!(bare.lines.iter().all(|l| l.starts_with("ok")), "the control: {bare:?}");
}

/// What the run itself binds is its own. Datagram sockets are not here: sendmsg(2) takes an address
/// from memory, and is never notified, so they cannot be made at all.
const OWN: &[&str] = &[
    "s=socket AF_UNIX SOCK_STREAM 0",
    "bind $s un:{in}/own #",
    "listen $s 4",
    "c=socket AF_UNIX SOCK_STREAM 0",
    "connect $c un:{in}/own #",
    "a=accept $s 0 0",
    "write $c bytes:hello 5",
    "read $a buf:9 9",
    "child do c=socket AF_UNIX SOCK_STREAM 0 ; connect $c un:own #",
    "q=socket AF_UNIX SOCK_SEQPACKET 0",
    "bind $q un:{in}/seq #",
    "listen $q 1",
    "r=socket AF_UNIX SOCK_SEQPACKET 0",
    "connect $r un:{in}/seq #",
    "t=socket AF_UNIX SOCK_STREAM 0",
    "bind $t abs:landstrip-own-{pid} #",
    "listen $t 1",
    "u=socket AF_UNIX SOCK_STREAM 0",
    "connect $u abs:landstrip-own-{pid} #",
    "socketpair p q SOCK_STREAM",
    "write $p bytes:hello 5",
    "read $q buf:9 9",
    "socketpair p q SOCK_SEQPACKET",
    "write $p bytes:hello 5",
    "read $q buf:9 9",
    "connect $c un:{in}/none #",
    "lstat {in}/own",
    "unlinkat AT_FDCWD \"{in}/own 0",
];

#[test]
fn unix_sockets_made_inside_work() {
    for policy in [none(), network()] {
        let bed = Bed::new(&[]);
        let bare = bed.bare(OWN);
        bed.reset(&[]);
        let boxed = bed.boxed(&policy, OWN);
        let wrong: Vec<_> = (0..OWN.len())
            .filter(|i| bare.lines.get(*i) != boxed.lines.get(*i))
            .map(|i| {
                format!("{}: {:?} instead of {:?}", OWN[i], boxed.lines.get(i), bare.lines.get(i))
            })
            .collect();
        assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), boxed.stderr);
    }
}

#[test]
fn a_socket_is_bound_only_where_files_may_be_made() {
    let stage = Stage { policy: none(), setup: &[], guarded: &["{out}"], target: "", words: &[] };
    attacks(
        &stage,
        &[
            Attack::new("stream", "do s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:{out}/s #"),
            Attack::new("datagram", "do s=socket AF_UNIX SOCK_DGRAM 0 ; bind $s un:{out}/d #"),
            Attack::new(
                "relative",
                "do chdir \"{out} ; s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:s #",
            ),
            Attack::new(
                "through a link",
                "do symlinkat \"{out} AT_FDCWD \"{in}/l ; s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:{in}/l/s #",
            ),
            Attack::new(
                "by /proc",
                "do d=openat AT_FDCWD \"{out} O_PATH 0 ; s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:/proc/self/fd/{d}/s #",
            ),
        ],
    );
}

#[test]
fn with_network_everything_is_reached() {
    let outside = Outside::new();
    let [tcp, udp] = [0, 1].map(|i| outside.words()[i].1.clone());
    let server = {
        let tcp = outside.tcp.try_clone().expect("clone");
        std::thread::spawn(move || {
            let (mut stream, _) = tcp.accept().expect("accept");
            let mut text = [0; 5];
            stream.read_exact(&mut text).expect("read");
            stream.write_all(b"world").expect("write");
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let connect = format!("connect $s in:127.0.0.1:{tcp} #");
    let send = format!("sendto $u bytes:hello 5 0 in:127.0.0.1:{udp} #");
    let ops = [
        "s=socket AF_INET SOCK_STREAM 0",
        &connect,
        "write $s bytes:hello 5",
        "read $s buf:5 5",
        "u=socket AF_INET SOCK_DGRAM 0",
        &send,
        "socket AF_NETLINK SOCK_RAW 0",
        "l=socket AF_INET SOCK_STREAM 0",
        "bind $l in:127.0.0.1:0 #",
        "listen $l 1",
    ];
    let run = Bed::new(&[]).boxed(&network(), &ops);
    let want = ["ok", "ok", "ok 5", "ok 5", "ok", "ok 5", "ok", "ok", "ok", "ok"];
    if run.lines != want {
        // Lets the server end, so that the failure is seen.
        let _ = std::net::TcpStream::connect(format!("127.0.0.1:{tcp}"))
            .and_then(|mut s| s.write_all(b"-----"));
    }
    assert_eq!(server.join().expect("the server"), "hello", "{run:?}");
    assert_eq!(run.lines, want, "{}", run.stderr);
    let mut text = [0; 5];
    outside.udp.recv(&mut text).expect("a datagram");
    assert_eq!(&text, b"hello");
}

#[test]
fn all_unix_sockets_may_be_allowed() {
    let policy =
        json!({"filesystem": {"allowWrite": ["{in}"]}, "network": {"allowAllUnixSockets": true}});
    for (name, op) in UNIX.iter().map(|a| (a.name, a.op)) {
        // A server each: a datagram socket that nobody reads takes ten messages.
        let outside = Outside::new();
        let op = outside.words().iter().fold(op.to_owned(), |op, (w, t)| op.replace(w, t));
        let (bare, boxed) = (Bed::new(&[]).bare(&[&op]), Bed::new(&[]).boxed(&policy, &[&op]));
        assert_eq!(bare.lines, boxed.lines, "{name}: {}", boxed.stderr);
    }
    // The rest of the network stays closed.
    let run = Bed::new(&[])
        .boxed(&policy, &["do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:1 #"]);
    assert_eq!(run.lines, ["EACCES"], "{}", run.stderr);
}

#[test]
fn what_another_process_connects_to_is_served() {
    // From outside into the sandbox: the run's own pathname socket is an ordinary file.
    if !have("nc", &["cmd:bash"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let ops = [
        "s=socket AF_UNIX SOCK_STREAM 0",
        "bind $s un:{in}/own #",
        "listen $s 1",
        "a=accept $s 0 0",
        "read $a buf:5 5",
    ];
    let path = bed.root().join("in/own");
    let client = std::thread::spawn(move || {
        // The file shows up when it is bound, and accepts a little later.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::time::Instant::now() < until {
            if let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&path) {
                return stream.write_all(b"hello").is_ok();
            }
            std::thread::yield_now();
        }
        false
    });
    let run = bed.boxed(&none(), &ops);
    assert!(client.join().expect("the client"), "never connected: {run:?}");
    assert_eq!(run.lines, ["ok", "ok", "ok", "ok", "ok 5"], "{}", run.stderr);
}

/// Races on the address in memory.
#[test]
fn races_do_not_reach_sockets_outside() {
    let outside = Outside::new();
    let dir = outside.dir.path().canonicalize().expect("a path").display().to_string();
    // Both addresses have one length: sun_path of the run's own socket, and of the one outside.
    let bed = Bed::new(&[]);
    let own = format!("{}/in/", bed.root().display());
    let target = format!("{dir}/s");
    let pad = own.len().max(target.len()) + 1;
    let own_path = format!("{own}{}", "o".repeat(pad - own.len()));
    let slashes = "/".repeat(pad - target.len());
    let target_path = format!("{dir}{slashes}/s");
    let race = format!("race-connect 3000 {own_path} {target_path}");
    let ops = [
        "l=socket AF_UNIX SOCK_STREAM 0",
        &format!("bind $l un:{own_path} #"),
        "listen $l 4096",
        &race,
    ];
    let won = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
    let bare = || {
        bed.reset(&[]);
        bed.bare(&ops)
    };
    let bare = support::until_won(bare, |run| won(run.last()).is_some_and(|n| n > 0));
    assert!(won(bare.last()).is_some_and(|n| n > 0), "the control never won: {bare:?}");
    bed.reset(&[]);
    let run = bed.boxed(&none(), &ops);
    assert_eq!(won(run.last()), Some(0), "{run:?}");
}
