//! The network namespace of a run: what is in it, what is offered in it, and what is not reached from it.
#![cfg(target_os = "linux")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use support::attack::{Attack, Stage, attacks};
use support::have::have;
use support::{ACCEPT, Bed, FORBIDDEN, LANDSTRIP, Run, without_namespaces};

const PYTHON: &str = "/usr/bin/python3";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn with(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).quiet().error("ECONNREFUSED")
}

/// Whether runs have a namespace here.
fn namespaces(what: &str) -> bool {
    have(what, &["netns"])
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    (listener, port)
}

/// Python in a sandbox under the section `network`.
fn python(network: Value, script: &str) -> Run {
    Bed::new(&[]).launch(&with(network), &[], &[PYTHON, "-c", script])
}

/// Serves every connection to a port of loopback with `serve`.
fn serving(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let (listener, port) = listen();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    port
}

#[test]
fn what_the_host_serves_on_loopback_is_not_there() {
    if !namespaces("the host's loopback") {
        return;
    }
    let (_tcp, port) = listen();
    let six = TcpListener::bind("[::1]:0").and_then(|six| six.local_addr());
    let udp = UdpSocket::bind((LOOPBACK, 0)).expect("bind");
    let words = [
        ("{tcp}", port.to_string()),
        ("{six}", six.map_or(0, |address| address.port()).to_string()),
        ("{udp}", udp.local_addr().expect("address").port().to_string()),
    ];
    let policy = with(json!({"allowLocalBinding": true}));
    let stage = Stage { policy, setup: &[], guarded: &["{out}"], target: "", words: &words };
    attacks(
        &stage,
        &[
            at("tcp", "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:{tcp} #"),
            at("any address", "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:0.0.0.0:{tcp} #"),
            at(
                "another address",
                "do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:127.0.0.5:0 # ; connect $s in:127.0.0.1:{tcp} #",
            ),
            at(
                "mapped",
                "do s=socket AF_INET6 SOCK_STREAM 0 ; connect $s in:[::ffff:127.0.0.1]:{tcp} #",
            )
            .needs(&["ipv6"]),
            at(
                "a child",
                "child do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:{tcp} #",
            )
            .works("ok child ok")
            .error("ok child ECONNREFUSED"),
            at(
                "udp",
                "do s=socket AF_INET SOCK_DGRAM 0 ; connect $s in:127.0.0.1:{udp} # ; write $s bytes:x 1 ; write $s bytes:x 1",
            ),
        ],
    );
    udp.set_nonblocking(true).expect("nonblocking");
    // The control sent two, and nothing else came.
    let got = std::iter::from_fn(|| udp.recv(&mut [0; 9]).ok()).count();
    assert_eq!(got, 2);
}

/// What an ordinary user could do to a namespace that belongs to a user namespace of that user.
#[test]
fn the_namespace_is_not_changed_from_inside() {
    let words = [("{none}", String::new())];
    let policy = with(json!({"allowLocalBinding": true}));
    let stage = Stage { policy, setup: &[], guarded: &["{out}"], target: "", words: &words };
    // Bare they fail for want of a capability, or of a filter to replace: any other answer is the control.
    let at = |name, op| Attack::new(name, op).quiet().works("E");
    attacks(
        &stage,
        &[
            at("lo down", "do s=socket AF_INET SOCK_DGRAM 0 ; ioctl $s 0x8914 EFAULT")
                .error("EPERM"),
            at("a bridge", "do s=socket AF_INET SOCK_DGRAM 0 ; ioctl $s 0x89a0 EFAULT")
                .error("EPERM"),
            at(
                "a filter",
                "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s IPPROTO_IP 64 EFAULT 84",
            ),
            at(
                "ipsec",
                "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s IPPROTO_IP 17 EFAULT 84",
            ),
            at(
                "repair",
                "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s IPPROTO_TCP 19 EFAULT 4",
            ),
            at(
                "a mark",
                "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s SOL_SOCKET 36 EFAULT 4",
            )
            .error("EPERM"),
            at(
                "transparent",
                "do s=socket AF_INET SOCK_STREAM 0 ; setsockopt $s IPPROTO_IP 19 EFAULT 4",
            )
            .error("EPERM"),
            at(
                "transparent, by IPv6",
                "do s=socket AF_INET6 SOCK_STREAM 0 ; setsockopt $s IPPROTO_IPV6 75 EFAULT 4",
            )
            .needs(&["ipv6"])
            .error("EPERM"),
        ],
    );
}

/// Urgent data of TCP stays where it was said, and so does what follows; by a relayed port and by the proxy.
#[test]
fn urgent_data_is_passed_on() {
    // What each end says, and hears: reading stops before what is urgent.
    const ENDS: &str = r"
import os, select, socket, sys
def say(s):
    s.sendall(b'before ')
    s.send(b'!', socket.MSG_OOB)
    s.sendall(b' after')
    s.shutdown(socket.SHUT_WR)
def hear(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    poll = select.poll()
    poll.register(s, select.POLLRDHUP)
    assert poll.poll(60000)
    print(s.recv(99), s.recv(99), s.recv(99), flush=True)
";
    const SERVER: &str = r"
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    s, _ = listener.accept()
    assert s.recv(3) == b'\0hi'
    s.sendall(b'ok')
    hear(s)
    say(s)
";
    const CLIENT: &str = r"
at = int(sys.argv[1])
for way in sys.argv[2:]:
    port = int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1]) if way == 'proxy' else at
    s = socket.create_connection(('127.0.0.1', port), 60)
    if way == 'proxy':
        s.sendall(b'CONNECT a.localhost:%d HTTP/1.1\r\n\r\n' % at)
        head = b''
        while not head.endswith(b'\r\n\r\n'): head += s.recv(1)
    s.sendall(b'\0hi')
    assert s.recv(2) == b'ok'
    say(s)
    hear(s)
";
    if !have("urgent data", &["netns", PYTHON]) {
        return;
    }
    let mut server = Command::new(PYTHON);
    let server = server.args(["-c", &(ENDS.to_owned() + SERVER)]).stdout(Stdio::piped());
    let mut server = server.spawn().expect("a server");
    let mut heard = BufReader::new(server.stdout.take().expect("its output")).lines();
    let mut next = || heard.next().expect("a line").expect("text");
    let port = next();
    let client = ENDS.to_owned() + CLIENT;
    let whole = "b'before ' b'! after' b''";
    let bare = Command::new(PYTHON).args(["-c", &client, &port, "bare"]).output().expect("python");
    assert_eq!(String::from_utf8_lossy(&bare.stdout).trim_end(), whole, "the control: {bare:?}");
    assert_eq!(next(), whole, "the control");
    let number: u16 = port.parse().expect("a port");
    let network =
        json!({"hostPorts": [number], "allowedDomains": [format!("a.localhost:{number}")]});
    let run = [PYTHON, "-c", &client, &port, "relay", "proxy"];
    let run = Bed::new(&[]).launch(&with(network), &[], &run);
    server.kill().expect("kill");
    server.wait().expect("wait");
    assert_eq!(run.lines, [whole, whole], "{run:?}");
    assert_eq!([next(), next()], [whole, whole]);
}

/// The program is in no user namespace: nothing that it sees has changed.
#[test]
fn owners_and_groups_are_what_they_are() {
    let script = "import os; s = os.stat('/etc'); print(s.st_uid, os.getgroups(), open('/proc/self/uid_map').read().split())";
    if !have("owners", &[PYTHON]) {
        return;
    }
    let bare = Command::new(PYTHON).args(["-c", script]).output().expect("python");
    let run = python(json!({"allowLocalBinding": true}), script);
    assert_eq!(run.lines.join("\n"), String::from_utf8_lossy(&bare.stdout).trim_end(), "{run:?}");
    assert!(run.lines[0].starts_with("0 "), "the control: {run:?}");
}

/// Ports of the host's loopback, in a namespace and without one.
#[test]
fn listed_ports_of_the_host_are_reached_and_no_other() {
    if !have("ports of the host", &[PYTHON]) {
        return;
    }
    let hello = |mut client: TcpStream| client.write_all(b"hello").expect("write");
    let (listed, other) = (serving(hello), serving(hello));
    let script = format!(
        "import socket
for host, port in [('127.0.0.1', {listed}), ('0.0.0.0', {listed}), ('127.0.0.1', {other})]:
    try: print(socket.create_connection((host, port)).recv(9).decode())
    except OSError as e: print(e.errno)
s = socket.socket()
try: s.bind(('127.0.0.1', 0))
except OSError as e: print(e.errno)
"
    );
    let run = || python(json!({"hostPorts": [listed]}), &script);
    for run in [run(), without_namespaces(run)] {
        assert_eq!(run.lines, ["hello", "hello", "13", "13"], "{run:?}");
    }
    // The control: without the line there is none.
    let run = python(json!({"hostPorts": [other]}), &script);
    assert_eq!(run.lines, ["13", "13", "hello", "13"], "{run:?}");
}

/// Ports of the run on the host's loopback, in a namespace and without one.
#[test]
fn an_exposed_port_is_served_on_the_host() {
    if !have("exposed ports", &[PYTHON]) {
        return;
    }
    let served = || {
        let (listener, port) = listen();
        drop(listener);
        let script = format!(
            "import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', {port})); s.listen()
print('ready', flush=True)
c, _ = s.accept(); c.sendall(b'from inside'); print(c.recv(9).decode())
try: socket.socket().bind(('127.0.0.1', {port} + 1))
except OSError as e: print(e.errno)
"
        );
        let bed = Bed::new(&[]);
        let policy = with(json!({"expose": [port]}));
        let mut command = bed.sandboxed(&policy, &[], &[PYTHON, "-c", &script]);
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("a run");
        let mut out = child.stdout.take().expect("its output");
        let mut ready = [0; 6];
        out.read_exact(&mut ready).expect("it is ready");
        let mut client = TcpStream::connect((LOOPBACK, port)).expect("connect");
        let mut text = [0; 11];
        client.read_exact(&mut text).expect("text");
        client.write_all(b"outside").expect("write");
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("the rest");
        assert!(child.wait().expect("its end").success());
        assert_eq!((&text, rest.as_str()), (b"from inside", "outside\n13\n"));
    };
    served();
    without_namespaces(served);
}

#[test]
fn a_port_that_cannot_be_served_refuses_the_run() {
    if !namespaces("a port in use") {
        return;
    }
    let (_listener, port) = listen();
    let run = Bed::new(&[]).boxed(&with(json!({"expose": [port]})), &["ls {in}"]);
    assert_eq!(run.lines.len(), 0);
    assert!(run.stderr.contains("network.expose[0]") && run.stderr.contains("in use"), "{run:?}");
}

#[test]
fn a_proxy_that_nobody_runs_refuses_the_run() {
    let (listener, port) = listen();
    let policy = with(json!({"socksProxyPort": port}));
    let run = || Bed::new(&[]).boxed(&policy, &["ls {in}"]);
    assert_eq!(run().lines, ["ok"], "the control");
    drop(listener);
    for run in [run(), without_namespaces(run)] {
        assert_eq!((run.lines.len(), run.code), (0, Some(1)), "{run:?}");
        assert!(run.stderr.contains("network.socksProxyPort"), "{}", run.stderr);
        assert!(run.stderr.contains("refused"), "{}", run.stderr);
    }
}

/// A server that answers only when its client has ended, and what one of both breaks.
#[test]
fn ends_and_resets_are_passed_on() {
    if !have("half-closed connections", &[PYTHON]) {
        return;
    }
    let total = serving(|mut client| {
        let mut all = Vec::new();
        let read = client.read_to_end(&mut all);
        let said = read.map_or_else(|error| format!("{:?}", error.kind()), |n| n.to_string());
        let _ = client.write_all(said.as_bytes());
    });
    let resets = serving(|client| {
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("linger");
    });
    let (seen, saw) = std::sync::mpsc::channel();
    let reset = serving(move |mut client| {
        client.write_all(b"x").expect("write");
        let _ = seen.send(client.read(&mut [0; 9]).map_err(|error| error.kind()));
    });
    let script = format!(
        "import socket, struct
c = socket.create_connection(('127.0.0.1', {total}))
c.sendall(b'x' * 10_000_000); c.shutdown(socket.SHUT_WR); print(c.recv(99).decode())
c = socket.create_connection(('127.0.0.1', {resets}))
try: print(c.recv(9))
except OSError as e: print(e.errno)
c = socket.create_connection(('127.0.0.1', {reset}))
# Until it has reached the server: the helper ends with the run.
assert c.recv(1) == b'x'
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()
"
    );
    let run = python(json!({"hostPorts": [total, resets, reset]}), &script);
    assert_eq!(run.lines, ["10000000", "104"], "{run:?}");
    assert_eq!(saw.recv().expect("a reset"), Err(ErrorKind::ConnectionReset));
}

/// So many pipes that this user gets no more of use for the relay (`pipe-user-pages-soft` of proc(5)).
fn all_pipes() -> Vec<(OwnedFd, OwnedFd)> {
    const LARGE: usize = 1 << 20;
    let text = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").expect("a limit");
    let pages: usize = text.trim().parse().expect("a number");
    let mut pipes = Vec::new();
    for _ in 0..=pages * 4096 / LARGE {
        let pipe = rustix::pipe::pipe().expect("a pipe");
        // The last one is too many.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe.1, LARGE);
        pipes.push(pipe);
    }
    pipes
}

/// All of it, and in order, by pipes and where there are none.
#[test]
fn bytes_arrive_as_they_were_sent() {
    if !have("bytes by the relay", &[PYTHON]) {
        return;
    }
    let echo = serving(|mut client| {
        let Ok(mut back) = client.try_clone() else { return };
        let _ = std::io::copy(&mut client, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let script = format!(
        "import hashlib, socket, threading
c = socket.create_connection(('127.0.0.1', {echo}))
block = bytes(i % 251 for i in range(1_000_003))
sent, got, length = hashlib.sha256(), hashlib.sha256(), 0
def say():
    for n in range(24):
        said = block[n:] + block[:n]
        sent.update(said); c.sendall(said)
    c.shutdown(socket.SHUT_WR)
saying = threading.Thread(target=say); saying.start()
while more := c.recv(300_000):
    got.update(more); length += len(more)
saying.join()
print(length, got.digest() == sent.digest())
"
    );
    let run = python(json!({"hostPorts": [echo]}), &script);
    assert_eq!(run.lines, ["24000072 True"], "{run:?}");
    let pipes = all_pipes();
    let run = python(json!({"hostPorts": [echo]}), &script);
    assert_eq!(run.lines, ["24000072 True"], "without pipes: {run:?}");
    drop(pipes);
}

/// Whoever does not read holds up the other end, and nobody else.
#[test]
fn a_slow_reader_holds_up_its_writer() {
    if !have("back-pressure", &[PYTHON]) {
        return;
    }
    let (go, going) = std::sync::mpsc::channel();
    let going = std::sync::Arc::new(std::sync::Mutex::new(going));
    let port = serving(move |mut client| {
        let _ = going.lock().expect("unpoisoned").recv();
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all);
        let sum: u64 = all.iter().map(|&byte| u64::from(byte)).sum();
        let _ = client.write_all(format!("{} {sum}", all.len()).as_bytes());
    });
    let other = serving(move |mut client| {
        client.write_all(b"other").expect("write");
        drop(client);
        let _ = go.send(());
    });
    let script = format!(
        "import socket
c = socket.create_connection(('127.0.0.1', {port})); c.setblocking(False)
block, sent = bytes(range(256)) * 4096, 0
try:
    while True: sent += c.send(block[sent % len(block):])
except BlockingIOError: pass
print(sent < 100_000_000, socket.create_connection(('127.0.0.1', {other})).recv(9).decode())
c.setblocking(True)
while sent < 64 * len(block): sent += c.send(block[sent % len(block):])
c.shutdown(socket.SHUT_WR)
sum_ = (sent // 256) * 32640 + sum(range(sent % 256))
print(c.recv(99).decode() == f'{{sent}} {{sum_}}')
"
    );
    let run = python(json!({"hostPorts": [port, other]}), &script);
    assert_eq!(run.lines, ["True other", "True"], "{run:?}");
}

#[test]
fn many_connections_are_served_at_once_and_too_many_reset() {
    if !have("many connections", &[PYTHON]) || !namespaces("many connections") {
        return;
    }
    let port = serving(|mut client| {
        let mut byte = [0];
        while client.read(&mut byte).is_ok_and(|n| n > 0) {
            if client.write_all(&byte).is_err() {
                break;
            }
        }
    });
    let script = format!(
        "import socket
cs, alive = [], 0
for i in range(600):
    try: cs.append(socket.create_connection(('127.0.0.1', {port})))
    except OSError: pass
for i, c in enumerate(cs):
    try: c.sendall(bytes([i % 256])); alive += c.recv(1) == bytes([i % 256])
    except OSError: pass
print(alive)
for c in cs: c.close()
"
    );
    let policy = with(json!({"hostPorts": [port]}));
    let run = |options: &[&str]| Bed::new(&[]).launch(&policy, options, &[PYTHON, "-c", &script]);
    let all = run(&[]);
    assert_eq!(all.lines, ["600"], "{all:?}");
    // The program has as many as it needs, and its two ends in the helper do not fit.
    let some = run(&["hard=RLIMIT_NOFILE:700"]);
    let alive: u32 = some.lines[0].parse().expect("a number");
    assert!((200..400).contains(&alive), "{some:?}");
}

/// The process of that name that `pid` made. One that was just made has the launcher's name.
fn child(pid: u32, name: &str) -> i32 {
    let start = std::time::Instant::now();
    loop {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.expect("its children");
        let named = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.trim() == name)
        };
        if let Some(pid) = list.split_whitespace().find(named) {
            return pid.parse().expect("a pid");
        }
        assert!(start.elapsed() < support::PATIENCE, "no {name}: {list}");
    }
}

#[test]
fn the_end_of_the_helper_closes_everything() {
    if !have("the helper", &[PYTHON]) || !namespaces("the helper") {
        return;
    }
    let port = serving(|mut client| {
        let _ = client.read(&mut [0]);
    });
    let script = format!(
        "import socket, sys
c = socket.create_connection(('127.0.0.1', {port})); print('ready', flush=True)
try: print(c.recv(9))
except OSError as e: print(e.errno)
# The port closes after the connections: until then one is taken, and reset.
while True:
    try: socket.create_connection(('127.0.0.1', {port})).close()
    except ConnectionResetError: pass
    except OSError as e: print(e.errno); break
"
    );
    let bed = Bed::new(&[]);
    let policy = bed.policy(&with(json!({"hostPorts": [port]})));
    let mut command = bed.command(LANDSTRIP.as_ref());
    command.args(["run", ACCEPT, "--quiet", "-p"]).arg(policy).args(["--", PYTHON, "-c", &script]);
    let mut run = command.stdout(Stdio::piped()).spawn().expect("a run");
    let mut out = run.stdout.take().expect("its output");
    out.read_exact(&mut [0; 6]).expect("it is ready");
    let pid = Pid::from_raw(child(run.id(), "network")).expect("a pid");
    kill_process(pid, Signal::KILL).expect("kill");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "104\n111\n");
    assert!(run.wait().expect("its end").success());
}

/// Neither the maker of sockets nor the helper outlives the launcher.
#[test]
fn nothing_is_left_of_a_launcher_that_is_killed() {
    if !namespaces("a killed launcher") {
        return;
    }
    let (_listener, port) = listen();
    let bed = Bed::new(&[]);
    let policy = bed.policy(&with(json!({"hostPorts": [port], "allowLocalBinding": true})));
    let mut command = bed.command(LANDSTRIP.as_ref());
    command.args(["run", ACCEPT, "--quiet", "-p"]).arg(policy).args([
        "--",
        "sh",
        "-c",
        "echo; read x",
    ]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::from(reader)).stdout(Stdio::piped());
    let mut run = command.spawn().expect("a run");
    run.stdout.take().expect("its output").read_exact(&mut [0]).expect("it runs");
    let made = ["network", "sockets"].map(|name| child(run.id(), name));
    run.kill().expect("kill");
    run.wait().expect("its end");
    for pid in made {
        assert!(support::ends(pid.cast_unsigned(), Duration::from_secs(10)), "{pid} is left");
    }
    drop(writer);
}

#[test]
fn the_plan_says_which_fence_is_in_force() {
    let bed = Bed::new(&[]);
    let policy = bed.policy(&with(json!({"allowLocalBinding": true})));
    let plan = |refuse: &[&str]| -> Value {
        let mut command = bed.command(&support::probe());
        command.arg("@spawn").args(refuse).args(["--", LANDSTRIP, "policy", "plan", "-p"]);
        let output = command.arg(&policy).output().expect("a plan");
        let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        plan["host"]["namespace"].clone()
    };
    assert_eq!(plan(&[FORBIDDEN]), json!({"refused": "EPERM"}));
    if namespaces("the plan") {
        assert_eq!(plan(&[]), json!("available"));
    }
    let closed = bed.policy(&with(json!({})));
    let output =
        bed.command(LANDSTRIP.as_ref()).args(["policy", "plan", "-p"]).arg(closed).output();
    let plan: Value = serde_json::from_slice(&output.expect("a plan").stdout).expect("JSON");
    assert_eq!(plan["host"]["namespace"], "unasked");
}

/// A socket that was given to the run is in another namespace, and used for nothing there.
#[test]
fn a_given_socket_reaches_nothing() {
    if !namespaces("a given socket") || !have("a given socket", &[PYTHON]) {
        return;
    }
    let (_listener, port) = listen();
    let script = format!(
        "import os, socket, subprocess, sys
s = socket.socket()
os.dup2(s.fileno(), 0)
p = subprocess.run(sys.argv[1:] + ['{PYTHON}', '-c', '''
import socket
s = socket.socket(fileno=0)
try: print(s.connect((\"127.0.0.1\", {port})))
except OSError as e: print(e.errno)
'''])
"
    );
    let bed = Bed::new(&[]);
    let policy = bed.policy(&with(json!({"allowLocalBinding": true})));
    let run = |words: &[&str]| {
        let output = Command::new(PYTHON).args(["-c", &script]).args(words).output();
        String::from_utf8_lossy(&output.expect("python").stdout).trim_end().to_owned()
    };
    assert_eq!(run(&["env"]), "None", "the control");
    let policy = policy.to_string_lossy().into_owned();
    assert_eq!(run(&[LANDSTRIP, "run", ACCEPT, "--quiet", "-p", &policy, "--"]), "13");
}

/// The other end of a published port that is closed there is reset, as a port that nobody serves.
#[test]
fn a_published_port_that_nobody_serves_is_reset() {
    if !namespaces("a published port") {
        return;
    }
    let (listener, port) = listen();
    drop(listener);
    let bed = Bed::new(&[]);
    let policy = with(json!({"expose": [port]}));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = bed.sandboxed(&policy, &[], &["sh", "-c", "echo; read x"]);
    let mut run = command.stdin(reader).stdout(Stdio::piped()).spawn().expect("a run");
    run.stdout.take().expect("its output").read_exact(&mut [0]).expect("it runs");
    let mut client = TcpStream::connect(SocketAddr::new(LOOPBACK, port)).expect("connect");
    let _ = client.shutdown(Shutdown::Write);
    let said = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(said, Err(ErrorKind::ConnectionReset));
    drop(writer);
    run.wait().expect("its end");
    assert!(TcpStream::connect((LOOPBACK, port)).is_err(), "nobody serves it any more");
}
