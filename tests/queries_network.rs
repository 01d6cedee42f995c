//! Queries about addresses and sockets: asked like paths, and held to what was asked.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use support::Bed;
use support::client::{Client, go};
use support::have::have;
use support::net::{outside_addresses, server};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn with(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

fn fifos() -> Bed {
    let fifo = |name: &str| format!("mknodat AT_FDCWD \"{name} S_IFIFO|0644 0");
    Bed::new(&[&fifo("{in}/go"), &fifo("{in}/on")])
}

fn connect(to: SocketAddr) -> String {
    let family = if to.is_ipv4() { "AF_INET" } else { "AF_INET6" };
    format!("do s=socket {family} SOCK_STREAM 0 ; connect $s in:{to} # ; peer $s")
}

fn run(
    policy: Value,
    options: &[&str],
    ops: &[String],
    client: impl FnOnce(Client),
) -> Vec<String> {
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    Bed::new(&[]).asked_probe(&policy, options, &ops, client).0.lines
}

/// Where the socket can be copied, and where it cannot.
const WAYS: [&[&str]; 2] = [&[], &["refuse=pidfd_getfd"]];

#[test]
fn an_address_is_asked_about() {
    for ip in [LOOPBACK].into_iter().chain(outside_addresses()) {
        let to = SocketAddr::new(ip, server(ip));
        let ops = [connect(to), connect(to), connect(to)];
        for options in WAYS {
            let lines = run(with(json!({})), options, &ops, |mut client| {
                for action in ["allow", "deny", "allow"] {
                    let query = client.query();
                    assert_eq!(query["kind"], "network");
                    assert_eq!(query["operation"], "connect");
                    assert_eq!(query["target"], to.to_string());
                    let grant = match ip {
                        LOOPBACK => json!({ "hostPorts": to.port() }),
                        _ => json!({ "allowedDomains": to.to_string() }),
                    };
                    assert_eq!(query["suggested_grant"], grant);
                    client.answer(&query, action);
                }
                assert!(client.answer_all("deny").is_empty());
            });
            let connected = format!("ok {to}");
            assert_eq!(lines, [&*connected, "EACCES", &connected], "{options:?}");
        }
    }
}

#[test]
fn an_answer_for_the_run_is_about_one_address_and_port() {
    let [one, other] = [server(LOOPBACK), server(LOOPBACK)].map(|port| (LOOPBACK, port).into());
    let bind = format!("do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:{one} #");
    let ops = [connect(one), connect(one), connect(other), bind, connect(one)];
    let lines = run(with(json!({})), &[], &ops, |mut client| {
        let first = client.query();
        client.answer_for_the_run(&first, "allow");
        let others: Vec<_> =
            client.answer_all("deny").iter().map(|q| q["target"].clone()).collect();
        assert_eq!(others, [json!(other.to_string()), json!(one.to_string())]);
    });
    let connected = format!("ok {one}");
    assert_eq!(lines, [&*connected, &connected, "EACCES", "EACCES", &connected]);

    let ops = [connect(one), connect(one), connect(other)];
    let lines = run(with(json!({})), &[], &ops, |mut client| {
        let first = client.query();
        client.answer_for_the_run(&first, "deny");
        assert_eq!(client.answer_all("allow").len(), 1);
    });
    assert_eq!(lines, ["EACCES", "EACCES", &format!("ok {other}")]);
}

/// What would be open to loopback alone with the policy's own switch is so with an answer.
#[test]
fn any_address_is_bound_to_loopback_by_an_answer_too() {
    let ops = [
        "do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:0.0.0.0:0 # ; listen $s 1 ; name $s",
        "do s=socket AF_INET SOCK_STREAM 0 ; listen $s 1 ; name $s",
    ];
    for options in WAYS {
        let lines = run(with(json!({})), options, &ops.map(str::to_owned), |mut client| {
            let told = client.answer_all("allow");
            let seen: Vec<_> = told.iter().map(|q| q["operation"].as_str()).collect();
            assert_eq!(seen, [Some("bind"), Some("listen"), Some("listen")]);
            for query in &told {
                let message = query["message"].as_str().expect("a message");
                assert!(message.contains("loopback alone"), "{query}");
            }
        });
        assert!(lines.iter().all(|line| line.starts_with("ok 127.0.0.1:")), "{lines:?}");
    }
}

#[test]
fn a_server_for_others_is_asked_about_twice() {
    for ip in outside_addresses() {
        let own = SocketAddr::new(ip, 0);
        let family = if ip.is_ipv4() { "AF_INET" } else { "AF_INET6" };
        let serve = format!(
            "do s=socket {family} SOCK_STREAM 0 ; bind $s in:{own} # ; listen $s 1 ; name $s"
        );
        for policy in [json!({}), json!({"allowLocalBinding": true})] {
            let ops = [serve.clone(), serve.clone()];
            let lines = run(with(policy.clone()), &[], &ops, |mut client| {
                let bind = client.query();
                assert_eq!(
                    (&bind["operation"], &bind["target"]),
                    (&json!("bind"), &json!(own.to_string()))
                );
                client.answer(&bind, "allow");
                let listen = client.query();
                assert_eq!(listen["operation"], "listen");
                let target = listen["target"].as_str().expect("a target");
                assert!(
                    target.parse::<SocketAddr>().is_ok_and(|to| to.ip() == ip && to.port() != 0)
                );
                client.answer(&listen, "allow");
                // Bound by an answer, and not listening without another one.
                let bind = client.query();
                client.answer(&bind, "allow");
                let listen = client.query();
                client.answer(&listen, "deny");
                client.answer_all("deny");
            });
            assert!(lines[0].starts_with("ok ") && lines[1] == "EACCES", "{policy}: {lines:?}");
        }
    }
}

#[test]
fn a_unix_socket_is_asked_about_by_its_path() {
    let ops = [
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{out}/s #",
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{out}/s #",
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{out}/s #",
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{out}/t #",
    ];
    for options in WAYS {
        let bed = Bed::new(&[]);
        let _servers = ["{out}/s", "{out}/t"].map(|name| UnixListener::bind(bed.fill(name)));
        let (run, ()) = bed.asked_probe(&with(json!({})), options, &ops, |mut client| {
            let first = client.query();
            assert_eq!(
                (&first["kind"], &first["operation"]),
                (&json!("network"), &json!("connect"))
            );
            assert_eq!(first["path"], bed.fill("{out}/s"));
            assert_eq!(first["suggested_grant"]["allowUnixSockets"], bed.fill("{out}/s"));
            client.answer(&first, "allow");
            let second = client.query();
            client.answer_for_the_run(&second, "allow");
            let others = client.answer_all("deny");
            assert_eq!(
                others.iter().map(|q| &q["path"]).collect::<Vec<_>>(),
                [&bed.fill("{out}/t")]
            );
        });
        assert_eq!(run.lines, ["ok", "ok", "ok", "EACCES"], "{options:?}");
    }
}

/// The program moves another socket of a process outside to the path that was asked about.
#[test]
fn another_socket_at_the_same_path_is_another_question() {
    for scope in ["once", "run"] {
        let bed = fifos();
        let _servers = ["{in}/good", "{in}/evil"].map(|name| UnixListener::bind(bed.fill(name)));
        let call = "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{in}/good #";
        let in_background = format!("bg call {call}");
        let ops = [
            &in_background,
            "cat {in}/go",
            "renameat2 AT_FDCWD \"{in}/evil AT_FDCWD \"{in}/good 0",
            "cat {in}/on",
            "join call",
            call,
        ];
        let (run, ()) = bed.asked_probe(&with(json!({})), &[], &ops, |mut client| {
            let first = client.query();
            if scope == "run" {
                client.answer_for_the_run(&first, "allow");
                go(&bed, "{in}/go");
                go(&bed, "{in}/on");
            } else {
                go(&bed, "{in}/go");
                go(&bed, "{in}/on");
                client.answer(&first, "allow");
            }
            assert!(!client.answer_all("deny").is_empty(), "{scope}: asked anew");
        });
        assert_eq!(run.lines[2], "ok", "the move itself: {run:?}");
        assert_eq!(run.last(), "EACCES", "{scope}: {run:?}");
    }
}

#[test]
fn a_call_that_is_another_one_by_then_is_another_question() {
    let [good, evil] =
        [server(LOOPBACK), server(LOOPBACK)].map(|port| SocketAddr::new(LOOPBACK, port));
    let socket = "s=socket AF_INET SOCK_STREAM 0".to_owned();
    let another = "t=socket AF_INET SOCK_STREAM 0".to_owned();
    let held = format!("a=hold in:{good}");
    for (swap, target) in [
        (format!("poke $a in:{evil}"), evil),
        ("dup3 $t $s 0".to_owned(), good),
        ("getcwd".to_owned(), good),
    ] {
        let ops = [
            socket.clone(),
            another.clone(),
            held.clone(),
            "bg call connect $s $a 16".to_owned(),
            "cat {in}/go".to_owned(),
            swap.clone(),
            "cat {in}/on".to_owned(),
            "join call".to_owned(),
            "peer $s".to_owned(),
        ];
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        for options in WAYS {
            let bed = fifos();
            let (run, ()) = bed.asked_probe(&with(json!({})), options, &ops, |mut client| {
                let first = client.query();
                assert_eq!(first["target"], good.to_string());
                go(&bed, "{in}/go");
                go(&bed, "{in}/on");
                client.answer(&first, "allow");
                let others = client.answer_all("deny");
                let others: Vec<_> = others.iter().map(|q| q["target"].clone()).collect();
                let control = swap == "getcwd";
                assert_eq!(
                    others,
                    vec![json!(target.to_string()); usize::from(!control)],
                    "{swap}"
                );
            });
            let control = swap == "getcwd";
            assert_eq!(run.lines[7], if control { "ok" } else { "EACCES" }, "{swap} {options:?}");
            let peer = format!("ok {good}");
            assert_eq!(run.last(), if control { &peer } else { "ENOTCONN" }, "{swap} {options:?}");
        }
    }
}

#[test]
fn what_no_answer_can_hold_is_not_asked_about() {
    let bed = Bed::new(&[]);
    let port = server(LOOPBACK);
    let name = format!("landstrip-{}", std::process::id());
    let outside = UnixListener::bind_addr(&{
        use std::os::linux::net::SocketAddrExt;
        std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name")
    });
    assert!(outside.is_ok());
    let _daemon = {
        std::fs::create_dir_all(bed.fill("{out}/run")).expect("mkdir");
        UnixListener::bind(bed.fill("{out}/run/docker.sock")).expect("a socket")
    };
    let mut ops = vec![
        "do s=socket AF_INET SOCK_DGRAM 0".to_owned(),
        "do s=socket AF_UNIX SOCK_DGRAM 0".to_owned(),
        "do s=socket AF_VSOCK SOCK_STREAM 0".to_owned(),
        format!("do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s abs:{name} #"),
        "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{out}/run/docker.sock #".to_owned(),
    ];
    if have("multipath TCP", &["mptcp"]) {
        ops.push("do s=socket AF_INET SOCK_STREAM IPPROTO_MPTCP".to_owned());
    }
    let denied = ops.len();
    // The control: this client allows.
    ops.push(connect((LOOPBACK, port).into()));
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let (run, queries) =
        bed.asked_probe(&with(json!({})), &[], &ops, |mut client| client.answer_all("allow"));
    assert_eq!(run.lines[..denied], vec!["EACCES"; denied], "{run:?}");
    assert!(run.last().starts_with("ok "), "{run:?}");
    assert_eq!(queries.len(), 1, "{queries:?}");
}

/// A connection that an answer opened leaves nothing behind that reaches elsewhere.
#[test]
fn a_socket_of_an_answered_call_goes_nowhere_else() {
    for ip in outside_addresses().into_iter().filter(IpAddr::is_ipv4) {
        let (to, other) = (SocketAddr::new(ip, server(ip)), SocketAddr::new(ip, server(ip)));
        let ops = [
            "s=socket AF_INET SOCK_STREAM 0".to_owned(),
            format!("connect $s in:{to} #"),
            "connect $s family:0 16".to_owned(),
            format!("connect $s in:{other} #"),
            "listen $s 1".to_owned(),
            "name $s".to_owned(),
        ];
        let policy = with(json!({"allowLocalBinding": true}));
        let lines = run(policy, &[], &ops, |mut client| {
            let first = client.query();
            client.answer(&first, "allow");
            client.answer_all("deny");
        });
        assert_eq!(lines[1..4], ["ok", "ok", "EACCES"]);
        if have("listening after a connection", &["relisten"]) {
            assert_eq!(lines[4], "ok");
            assert!(lines[5].starts_with("ok 127.0.0.1:"), "{lines:?}");
        }
    }
}
