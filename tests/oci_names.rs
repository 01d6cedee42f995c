//! Containers whose programs know no proxy: names are found in there, by whatever name server they ask, and what is
//! connected to is led to the proxy outside. Connections go out by a proxy of the test's, which leads every name to
//! the server of the test and tells which ones it was asked for.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use support::have::have;
use support::names::{ANYWHERE, ASK, CONNECT, PYTHON, answered_anywhere, upstream};
use support::net::answering;
use support::networked::{containers, helper, in_network, init, kill, makers, place, shell, traps};
use support::place::{Answer, Place, Waiting, id, ready};

/// A place with an interpreter, and a name server that is nobody's; see [`place`].
fn house(network: Option<Value>) -> Place {
    let network = network.map(|mut network| {
        network["proxyEnvironment"] = false.into();
        network
    });
    let mut place = place(network.as_ref());
    let root = place.path("rootfs");
    for name in ["lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).expect("a link");
    }
    std::fs::write(root.join("etc/resolv.conf"), "nameserver 203.0.113.53\n").expect("a file");
    let usr = json!({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]});
    place.spec["mounts"].as_array_mut().expect("mounts").push(usr);
    place
}

/// Whether this user can have containers in which the interpreter runs.
fn interpreted(what: &str) -> bool {
    containers(what) && have(what, &[PYTHON])
}

/// A program of a container whose connections go out by `url`.
fn launch(place: &Place, url: &str, program: &[&str]) -> Answer {
    let mut command = place.program(program).command(&["run", "-b", ".", &id()]);
    let ended = command.env("ALL_PROXY", url).output().expect("its end");
    let [out, err] =
        [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).expect("text"));
    Answer { code: ended.status.code(), out, err }
}

fn connect(place: &Place, url: &str, hosts: &[&str]) -> Vec<String> {
    let answer = launch(place, url, &[&[PYTHON, "-c", CONNECT], hosts].concat());
    answer.good().lines().map(str::to_owned).collect()
}

/// What a script prints that can ask name servers.
fn ask(place: &Place, script: &str) -> Vec<String> {
    let answer = place.run(&[PYTHON, "-c", &format!("{ASK}{script}")]);
    answer.good().lines().map(str::to_owned).collect()
}

/// The protocols and targets of traps.
fn told(place: &Place) -> Vec<[String; 2]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |trap: &Value| [&trap["arguments"]["protocol"], &trap["target"]].map(text);
    traps(place).iter().map(of).collect()
}

/// The lines of [`CONNECT`] for each way to `name` that ends in `result`.
fn ways(name: &str, result: &str) -> Vec<String> {
    let of = |family: &str, way: &str| format!("{name} {family} {way} {result}");
    let mut lines = vec![of("AF_INET", "blocking"), of("AF_INET", "waiting")];
    if have("names by IPv6", &["ipv6"]) {
        lines.push(of("AF_INET", "mapped"));
        lines.extend(["blocking", "waiting"].map(|way| of("AF_INET6", way)));
    }
    lines
}

#[test]
fn a_listed_name_is_found_and_reached_in_any_network_namespace() {
    if !interpreted("names") {
        return;
    }
    let (url, asked) = upstream(answering("server"));
    let network = json!({"allowedDomains": ["listed.example", "*.below.example:444"]});
    let hosts =
        ["other.example:80", "listed.example:25", "a.below.example:444", "a.below.example:445"];
    let expected = [
        // First, so that who asked is still there when it is written down.
        vec!["other.example:80 gaierror -2".to_owned()],
        ways("listed.example", "server"),
        ways("a.below.example", "server"),
        // Connected to the proxy, which resets it.
        ways("a.below.example", "104"),
    ];
    let check = |place: &Place| {
        let lines = connect(place, &url, &hosts);
        assert_eq!(lines, expected.concat(), "{:?}", traps(place));
        let asked: Vec<String> = asked.try_iter().collect();
        let of = |host: &str| asked.iter().filter(|to| *to == host).count();
        let each = expected[1].len();
        assert_eq!([of("listed.example:25"), of("a.below.example:444")], [each; 2], "{asked:?}");
        assert_eq!(asked.len(), 2 * each, "{asked:?}");
        let told = told(place);
        for trap in [["tcp", "a.below.example:445"], ["dns", "other.example"]] {
            assert!(told.iter().any(|told| *told == trap), "{trap:?}: {told:?}");
        }
        let trap = &traps(place)[0];
        assert_eq!(trap["suggested_grant"], json!({"allowedDomains": "other.example"}), "{trap}");
        let exe = trap["process"]["exe"].as_str().unwrap_or_default();
        assert!(exe.contains("python"), "{trap}");
    };
    check(&house(Some(network.clone())));
    if ready("names in the host's network namespace") {
        check(&in_network(house(Some(network.clone())), None));
    }
    // The controls: without a policy, and where an annotation lists hosts and the operator none.
    let none = |place: Place| {
        let lines = connect(&place, &url, &hosts[1..2]);
        assert!(lines[0].starts_with("listed.example:25 gaierror"), "{lines:?}");
    };
    none(house(None));
    let mut asks = house(None);
    let policy = json!({"network": network}).to_string();
    asks.spec["annotations"]["dev.landstrip.policy"] = policy.into();
    none(asks);
}

/// Programs with a resolver of their own: the probe has that of the C library it is built with, and knows no more than
/// `/etc/resolv.conf`.
#[test]
fn other_resolvers_find_names_too() {
    if !containers("other resolvers") {
        return;
    }
    let (url, _asked) = upstream(answering("server"));
    let place = house(Some(json!({"allowedDomains": ["listed.example"]})));
    std::fs::copy(support::probe(), place.path("rootfs/bin/probe")).expect("the probe");
    let answer = launch(
        &place,
        &url,
        &["/bin/probe", "fetch listed.example:8080", "fetch other.example:8080"],
    );
    let lines: Vec<&str> = answer.out.lines().collect();
    assert_eq!(lines[0], "ok HTTP/1.0 200 OK", "{answer:?}");
    assert!(!lines[1].starts_with("ok"), "{answer:?}");
    let script = "busybox nslookup listed.example | grep -c 'Address.*198.18'
        busybox nslookup other.example 203.0.113.9 2>&1 | grep -c -i NXDOMAIN";
    let answer = launch(&place, &url, &["sh", "-c", script]);
    assert!(answer.out.starts_with("1\n") && !answer.out.ends_with("\n0\n"), "{answer:?}");
}

/// Whichever name server is asked, in whichever way.
#[test]
fn every_address_is_a_name_server() {
    if !interpreted("name servers") {
        return;
    }
    let network = json!({"allowedDomains": ["listed.example"], "allowLocalBinding": true});
    assert_eq!(ask(&house(Some(network)), ANYWHERE), answered_anywhere());
}

/// What a resolver of the container makes of a listed name, and of the container's own, is no refusal.
#[test]
fn what_is_searched_in_the_container_is_no_refusal() {
    if !interpreted("searched domains") {
        return;
    }
    let mut place = house(Some(json!({"allowedDomains": ["listed.example"]})));
    place.spec["hostname"] = "its-own.example".into();
    let text = "nameserver 203.0.113.53\nsearch corp.example\noptions ndots:5\n";
    std::fs::write(place.path("rootfs/etc/resolv.conf"), text).expect("a file");
    let script = "
for name in 'listed.example', 'its-own.example', 'other.example':
    try: print(socket.getaddrinfo(name, 1, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as e: print(e.errno)
";
    assert_eq!(ask(&place, script), ["198.18.0.1", "-2", "-2"]);
    let told: Vec<String> = told(&place).into_iter().map(|[_, target]| target).collect();
    assert!(told.contains(&"other.example".to_owned()), "{told:?}");
    // One that is not listed itself is a refusal with the domain as well.
    let names = ["listed", "its-own.example"];
    let mut of_names = told.iter().filter(|told| names.iter().any(|name| told.starts_with(name)));
    assert!(of_names.all(|told| told == "its-own.example.corp.example"), "{told:?}");
}

/// What UDP is for, whatever else is open, and what it is not: a server beside the program, in the same network namespace,
/// hears nothing.
#[test]
fn datagrams_reach_nothing_but_answers() {
    if !interpreted("datagrams") || !ready("datagrams in the host's network namespace") {
        return;
    }
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let port = udp.local_addr().expect("address").port();
    let send = format!(
        r#"
def attempt(work):
    try: return work()
    except OSError as e: return e.errno
def make(): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def send(address):
    # The second hears what became of the first.
    s = make(); s.settimeout(20); s.setsockopt(socket.IPPROTO_IP, 11, 1)
    s.sendto(b'x', address)
    return s.recv(9)
print(attempt(lambda: send(('127.0.0.1', {port}))))
"#
    );
    let script = format!(
        r#"
print(attempt(lambda: send(('203.0.113.1', 443))))
print(attempt(lambda: make().connect(('198.18.0.1', 443))))
print(attempt(lambda: make().connect(('127.0.0.1', 65535))))
print(attempt(lambda: make().bind(('0.0.0.0', 0))))
print(attempt(lambda: make().connect(('203.0.113.1', 443))))
print(attempt(lambda: make().connect(('127.0.0.1', {port}))))
print(attempt(lambda: make().bind(('0.0.0.0', 5353))))
print(attempt(lambda: make().bind(('127.0.0.1', 0))))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)))
print(attempt(lambda: socket.socket().connect(('203.0.113.1', 443))))
s = socket.socket()
print(attempt(lambda: s.sendto(b'x', 0x20000000, ('198.18.0.1', 443))))
"#
    );
    let expected = ["111", "111", "None", "None", "None", "13", "13", "13", "13", "13", "13", "13"];
    for more in [json!({}), json!({"allowLocalBinding": true})] {
        let mut network = more;
        network["allowedDomains"] = json!(["listed.example"]);
        let place = in_network(house(Some(network)), None);
        assert_eq!(ask(&place, &format!("{send}{script}")), expected, "{:?}", traps(&place));
    }
    // One that lists no host has no datagrams at all.
    let closed = in_network(house(Some(json!({"allowLocalBinding": true}))), None);
    assert_eq!(ask(&closed, &send), ["13"]);
    udp.set_nonblocking(true).expect("nonblocking");
    assert!(udp.recv(&mut [0; 9]).is_err(), "nothing came out");
    udp.set_nonblocking(false).expect("blocking");
    let bare = in_network(house(None), None);
    let heard = std::thread::spawn(move || {
        let (_, from) = udp.recv_from(&mut [0; 9]).expect("the control: it is heard without one");
        udp.send_to(b"y", from).expect("an answer");
    });
    assert_eq!(ask(&bare, &send), ["b'y'"]);
    heard.join().expect("the server");
}

/// A name server that writes down who asks, at the address that the container's resolver has.
const SERVE: &str = r#"
import os
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(('127.0.0.1', 53))
log = open('/ws/log', 'a', buffering=1)
while True:
    q, who = d.recvfrom(999)
    log.write(q[12:].decode(errors='replace') + '\n')
    d.sendto(q[:2] + b'\x81\x80\0\1\0\1\0\0\0\0' + q[12:] + b'\xc0\x0c\0\1\0\1\0\0\0\0\0\4' + bytes([192, 0, 2, 80]), who)
"#;

/// Exfiltration by questions: a name server in the container's own network namespace, where another one of the pod serves,
/// hears of no name, whoever asks.
#[test]
fn no_question_leaves_the_container() {
    if !interpreted("exfiltration by names") || !ready("a shared network namespace") {
        return;
    }
    let server = house(None);
    let serving = server.waiting();
    let namespace = format!("/proc/{}/ns/net", init(&serving));
    std::fs::write(server.path("rootfs/ws/log"), "").expect("a file");
    let serve = format!("{ASK}{SERVE}");
    serving.exec(&["--detach", &serving.id, PYTHON, "-c", &serve]).good();
    let listening = "until busybox grep -q ' 0100007F:0035 ' /proc/net/udp; do sleep 0.05; done";
    serving.sh(listening);
    let heard = || std::fs::read_to_string(server.path("rootfs/ws/log")).expect("the log");
    let tell = "
for text in b'secret.evil.example', b'listed.example':
    for connect in True, False: print(show(udp(question(text), ('127.0.0.1', 53), connect=connect)))
";
    let lists = json!({"allowedDomains": ["listed.example"], "allowLocalBinding": true});
    let place = in_network(house(Some(lists)), Some(&namespace));
    let expected = ["3 0", "3 0", "0 1 198.18.0.1", "0 1 198.18.0.1"];
    assert_eq!(ask(&place, tell), expected);
    assert_eq!(heard(), "");
    let bare = in_network(house(None), Some(&namespace));
    assert_eq!(ask(&bare, tell), ["0 1"; 4], "the control");
    assert!(heard().contains("secret"), "the control");
}

/// A line of shell that prints what a name is found at, or nothing.
fn found(name: &str) -> String {
    format!(
        "busybox nslookup {name} 2>&1 | busybox awk '/^Address.*198[.]18/ {{print \"{name}\"}}'"
    )
}

/// Commands are served by the launcher of the container, or by one of their own; and a program's own policy narrows.
#[test]
fn commands_find_the_names_of_the_container() {
    if !ready("commands") {
        return;
    }
    let mut place = house(Some(json!({"allowedDomains": ["a.example", "b.example"]})));
    let script = ["a", "b", "c"].map(|name| found(&format!("{name}.example"))).join("; ");
    let both = "a.example\nb.example\n";
    let running = place.waiting();
    assert_eq!(running.sh(&script), both);
    assert_eq!(running.exec(&["--user", "7", &running.id, "sh", "-c", &script]).good(), both);
    if have("a policy of the program", &["xattr"]) {
        let file = place.path("rootfs/bin/ash");
        std::fs::copy(support::place::BUSYBOX, &file).expect("busybox");
        let policy = json!({"network": {"allowedDomains": ["b.example"]}}).to_string();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, "user.landstrip.policy", policy.as_bytes(), flags)
            .expect("xattr");
        let answer = running.exec(&[&running.id, "/bin/ash", "-c", &script]);
        assert_eq!(answer.good(), "b.example\n");
        let policy = json!({"network": {"allowedDomains": []}}).to_string();
        rustix::fs::setxattr(&file, "user.landstrip.policy", policy.as_bytes(), flags)
            .expect("xattr");
        let answer = running.exec(&[&running.id, "/bin/ash", "-c", &script]);
        assert_eq!(answer.good(), "");
    }
    drop(running);
    // The launcher may not act as anybody else: then a command has its own.
    place.spec["process"]["capabilities"] = json!({});
    place.spec["process"]["user"] = json!({"uid": 7, "gid": 7});
    let running = place.waiting();
    assert_eq!(running.exec(&["--user", "8", &running.id, "sh", "-c", &script]).good(), both);
}

/// Containers of a pod have the names of their own policy.
#[test]
fn containers_that_share_a_namespace_find_their_own_names() {
    if !ready("a shared namespace") {
        return;
    }
    let lists = |name: &str| house(Some(json!({"allowedDomains": [name]})));
    let first = lists("a.example");
    let first = first.waiting();
    let namespace = format!("/proc/{}/ns/net", init(&first));
    let second = in_network(lists("b.example"), Some(&namespace));
    let script = [found("a.example"), found("b.example")].join("; ");
    assert_eq!(first.sh(&script), "a.example\n");
    assert_eq!(shell(&second, &script).good(), "b.example\n");
}

/// Where the runtime can have no network namespace for questions, no socket is made for them, and the record says by what
/// names are found.
#[test]
fn without_a_namespace_for_questions_a_trap_says_how_names_are_found() {
    if !interpreted("no namespace for questions") || !ready("no namespace for questions") {
        return;
    }
    if !have("no namespace for questions", &["userns", "cmd:unshare"]) {
        return;
    }
    let script = "
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print('made')
except OSError as e: print(e.errno)
";
    let run = |most: u32| {
        let mut place =
            in_network(house(Some(json!({"allowedDomains": ["listed.example"]}))), None);
        place.options.extend(["--cgroup-manager", "disabled"].map(str::to_owned));
        place.program(&[PYTHON, "-c", &format!("{ASK}{script}")]);
        let inner = place.command(&["run", "-b", ".", &id()]);
        let limit = format!("echo {most} > /proc/sys/user/max_net_namespaces && exec \"$@\"");
        let mut outer = Command::new("unshare");
        outer.args(["--map-root-user", "--mount", "sh", "-c", &limit, "sh"]);
        outer.arg(inner.get_program()).args(inner.get_args()).current_dir(place.dir.path());
        let ended = outer.output().expect("its end");
        assert!(ended.status.success(), "{ended:?}");
        let messages = traps(&place).iter().map(|trap| trap["message"].to_string()).collect();
        (String::from_utf8(ended.stdout).expect("text"), messages)
    };
    let (said, messages): (String, Vec<String>) = run(0);
    assert_eq!(said, "13\n", "{messages:?}");
    assert!(messages.len() == 1 && messages[0].contains("HTTPS_PROXY"), "{messages:?}");
    assert_eq!(run(9), ("made\n".to_owned(), Vec::new()), "the control");
}

/// The end of what answers, and of what makes sockets.
#[test]
fn who_answers_no_more_leaves_the_program_without() {
    if !ready("the end of who answers") {
        return;
    }
    let script = found("a.example");
    let lists = || house(Some(json!({"allowedDomains": ["a.example"]})));
    let end = |running: &Waiting<'_>, whom: u32| {
        assert_eq!(running.sh(&script), "a.example\n", "the control");
        kill(whom);
        assert!(support::ends(whom, support::PATIENCE));
        assert_eq!(running.sh(&script), "");
    };
    let place = lists();
    let running = place.waiting();
    let (answers, maker) = (helper(&running), one_maker(&running));
    end(&running, answers);
    drop(running);
    assert!(support::ends(maker, support::PATIENCE), "with the launcher");
    let place = lists();
    let running = place.waiting();
    let (answers, maker) = (helper(&running), one_maker(&running));
    end(&running, maker);
    drop(running);
    assert!(support::ends(answers, support::PATIENCE), "with the launcher");
}

/// The process that makes the sockets of a container whose program runs: it is in no namespace of the container's, and
/// keeps nothing.
fn one_maker(running: &Waiting<'_>) -> u32 {
    let found = makers(helper(running));
    assert_eq!(found.len(), 1, "{found:?}");
    let maker = found[0];
    let at = |what: &str| PathBuf::from(format!("/proc/{maker}/{what}"));
    for fd in std::fs::read_dir(at("fd")).expect("descriptors").flatten() {
        let to = std::fs::read_link(fd.path()).expect("a link").to_string_lossy().into_owned();
        assert!(to.starts_with("socket:"), "{to}");
    }
    let status = std::fs::read_to_string(at("status")).expect("status");
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    let of = |process: String, name: &str| {
        std::fs::read_link(format!("/proc/{process}/ns/{name}")).expect("a namespace")
    };
    for name in ["mnt", "pid", "user", "net"] {
        let its = of(maker.to_string(), name);
        assert_eq!(its == of("self".to_owned(), name), name != "net", "{name}");
        let inside = of(init(running).to_string(), name);
        assert!(name == "user" || its != inside, "{name}");
    }
    maker
}
