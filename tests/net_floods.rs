//! Many connections at once, by the relay and by the proxy, and those that say nothing.
#![cfg(target_os = "linux")]

mod support;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::Bed;
use support::have::have;
use support::internet::PYTHON;

/// Says what it hears, to any number of clients, until it is dropped.
struct Echo {
    server: Child,
    port: u16,
}

const ECHO: &str = "
import resource, selectors, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server(('127.0.0.1', 0), backlog=4096)
listener.setblocking(False)
print(listener.getsockname()[1], flush=True)
all = selectors.DefaultSelector()
all.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in all.select():
        try:
            if key.fileobj is listener:
                all.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            said = key.fileobj.recv(4096)
            if said.startswith(b'GET'): said = b'HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\nserved'
            if said:
                key.fileobj.sendall(said)
                continue
        except BlockingIOError: continue
        except OSError: pass
        all.unregister(key.fileobj)
        key.fileobj.close()
";

impl Echo {
    fn new() -> Echo {
        let mut command = Command::new(PYTHON);
        let mut server =
            command.args(["-c", ECHO]).stdout(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        let out = server.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a port");
        Echo { server, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// One flood at a time: each takes what the machine has.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a script to its end, however long that takes, and gives both outputs.
fn output(bed: &Bed, network: Value, script: &str) -> [String; 2] {
    let mut command = bed.sandboxed(&with(network), &[], &[PYTHON, "-c", script]);
    let output = command.output().expect("a run");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
}

fn with(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

/// So many files this user may have open in a process.
fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// For the scripts: as many descriptors as there may be.
const ALL: &str = "
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
";

#[test]
fn ten_thousand_connections_are_relayed_at_once() {
    if !have("ten thousand connections", &[PYTHON, "netns"]) {
        return;
    }
    let _alone = alone();
    // Each has two descriptors in the relay.
    let many = 10_000.min(descriptors().saturating_sub(192) / 2);
    if many < 10_000 {
        let _ =
            writeln!(std::io::stderr(), "{many} connections: for more there are no descriptors");
    }
    let echo = Echo::new();
    let script = format!(
        "{ALL}
cs = [socket.create_connection(('127.0.0.1', {port})) for _ in range({many})]
for round in range(2):
    for i, c in enumerate(cs): c.sendall(bytes([i % 256, round]))
    for i, c in enumerate(cs): assert c.recv(2, socket.MSG_WAITALL) == bytes([i % 256, round]), i
print(len(cs))
",
        port = echo.port
    );
    let bed = Bed::new(&[]);
    let [out, err] = output(&bed, json!({"hostPorts": [echo.port]}), &script);
    assert_eq!(out, format!("{many}\n"), "{err}");
    assert!(bed.traps().is_empty(), "{:?}", bed.traps());
}

#[test]
fn one_connection_too_many_is_refused_and_told_of() {
    if !have("too many connections", &[PYTHON, "netns"]) {
        return;
    }
    let _alone = alone();
    let echo = Echo::new();
    let script = format!(
        "import socket
cs, alive = [socket.create_connection(('127.0.0.1', {port})) for _ in range(300)], 0
for c in cs:
    try: c.sendall(b'x'); alive += c.recv(1) == b'x'
    except OSError: pass
print(alive)
for c in cs[:10]: c.close()
",
        port = echo.port
    );
    let policy = with(json!({"hostPorts": [echo.port]}));
    let options = ["hard=RLIMIT_NOFILE:600"];
    let run = Bed::new(&[]).launch(&policy, &options, &[PYTHON, "-c", &script]);
    // Two descriptors each, and those that the helper keeps.
    assert_eq!(run.lines, ["204"], "{run:?}");
    let told = &run.traps[0];
    assert_eq!(told["target"], format!("localhost:{}", echo.port), "{told}");
    assert!(told["message"].as_str().is_some_and(|text| text.contains("RLIMIT_NOFILE")), "{told}");
    assert_eq!(run.traps.len(), 96, "{run:?}");
}

/// What the helper of the launcher `pid` holds of memory now, in KiB.
fn held_by_helper(pid: u32) -> u64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("children");
    let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).ok();
    let helper = children.split_whitespace().filter_map(status);
    let mut helper = helper.filter(|status| status.starts_with("Name:\tnetwork\n"));
    let status = helper.next().expect("the helper");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Runs a script with a policy for the proxy; what it says after `ready`, and what the helper holds by then.
fn with_proxy(echo: &Echo, script: &str) -> (String, u64) {
    let bed = Bed::new(&[]);
    let policy = with(json!({"allowedDomains": [format!("a.localhost:{}", echo.port)]}));
    let script = format!(
        "{ALL}
port = int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])
def connect(said=b''):
    s = socket.create_connection(('127.0.0.1', port))
    try: s.sendall(said)
    except OSError: pass
    return s
def read(s):
    got = b''
    try:
        while more := s.recv(4096): got += more
    except OSError: pass
    return got
def ready():
    print('ready', flush=True)
    sys.stdin.read()
{script}"
    );
    let mut command = bed.sandboxed(&policy, &[], &[PYTHON, "-c", &script]);
    let (stdin, writer) = std::io::pipe().expect("a pipe");
    let mut run = command.stdin(stdin).stdout(Stdio::piped()).spawn().expect("a run");
    drop(command);
    let mut out = BufReader::new(run.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let held = held_by_helper(run.id());
    drop(writer);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    assert!(run.wait().expect("its end").success());
    (rest, held)
}

/// Ten thousand that begin and do not go on, by every protocol, hold up nobody, and take little.
#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    if !have("slow clients", &[PYTHON]) {
        return;
    }
    let _alone = alone();
    let echo = Echo::new();
    let many = 10_000.min(descriptors().saturating_sub(200));
    let script = format!(
        "
import select
begins = [b'', b'GET http://a', b'\\5', b'\\5\\1\\0\\5\\1\\0\\3', b'CONNECT a.localhost:{port} HTTP/1.1\\r\\nX:']
slow = [connect(begins[n % 5]) for n in range({many})]
ready()
print(read(connect(b'GET http://a.localhost:{port}/ HTTP/1.1\\r\\n\\r\\n'))[-6:].decode())
# One of SOCKS has its first answer, which is no end.
for s in slow: s.setblocking(False)
def ended(s):
    try:
        while s.recv(9): pass
        return True
    except BlockingIOError: return False
    except OSError: return True
print(sum(not ended(s) for s in slow) <= 1024)
",
        port = echo.port
    );
    let (said, held) = with_proxy(&echo, &script);
    assert_eq!(said, "served\nTrue\n");
    assert!(held < 64 << 10, "{held} KiB");
}

/// Heads that have no end, and first words in tunnels that have none, are kept for few at once.
#[test]
fn unfinished_heads_are_bounded() {
    if !have("large heads", &[PYTHON]) {
        return;
    }
    let _alone = alone();
    let echo = Echo::new();
    let script = format!(
        "
large = b'X: ' + b'y' * 60_000
head = b'CONNECT a.localhost:{port} HTTP/1.1\\r\\n'
slow = [connect(b'GET http://a.localhost/ HTTP/1.1\\r\\n' + large) for _ in range(2500)]
for _ in range(500):
    s = connect(head + b'\\r\\n')
    s.recv(4096)
    try: s.sendall(b'GET / HTTP/1.1\\r\\n' + large)
    except OSError: pass
    slow.append(s)
ready()
print(read(connect(b'GET http://a.localhost:{port}/ HTTP/1.1\\r\\n\\r\\n'))[-6:].decode())
",
        port = echo.port
    );
    let (said, held) = with_proxy(&echo, &script);
    assert_eq!(said, "served\n");
    // A thousand with 64 KiB, which may lie in twice as much.
    assert!(held < 192 << 10, "{held} KiB");
}

/// A flood of refused hosts: each is told so, and the report stays short.
#[test]
fn a_flood_of_refused_hosts_is_bounded() {
    if !have("refused hosts", &[PYTHON]) {
        return;
    }
    let _alone = alone();
    let bed = Bed::new(&[]);
    let script = "
import os, socket
port = int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])
refused = 0
for n in range(1000):
    s = socket.create_connection(('127.0.0.1', port))
    s.sendall(b'CONNECT x%d.%s:443 HTTP/1.1\\r\\n\\r\\n' % (n, b'.'.join([b'l' * 60] * 3)))
    refused += s.recv(20).startswith(b'HTTP/1.1 403')
    s.close()
print(refused)
";
    let [out, err] = output(&bed, json!({"allowedDomains": []}), script);
    assert_eq!(out, "1000\n", "{err}");
    assert!(err.len() < 1 << 20 && err.lines().count() < 300, "{}", err.len());
    assert!(err.contains("x0.lll"), "the control: {err}");
}
