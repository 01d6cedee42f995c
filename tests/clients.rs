//! Programs that people use, against servers of their kind: with a policy that lists one of two hosts, each
//! reaches that one and not the other. Without a sandbox it reaches both.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::Write;
use support::Bed;
use support::have::have;
use support::internet::{PYTHON, bare, boxed, internet, noted};

/// What a program does, and how that is to look.
struct Client {
    /// Lines of shell that end well if, and only if, they reached `HOST`.
    fetch: &'static str,
    /// The port that they are for.
    port: u16,
    /// The protocol of the record.
    protocol: &'static str,
}

/// Lets a program fetch from a host that is listed and from one that is not.
fn shows(what: &str, needs: &[&str], client: &Client) {
    if !internet(what) || !have(what, needs) {
        return;
    }
    let fetch = |host: &str| {
        let fetch = client.fetch.replace("HOST", host);
        format!("( {fetch} ) >&2 && echo reached || echo not\n")
    };
    let script = fetch("listed.example") + &fetch("other.example");
    let run = bare(&Bed::new(&[]), &script);
    assert_eq!(run.lines, ["reached", "reached"], "the control of {what}: {run:?}");
    let bed = Bed::new(&[]);
    let run = boxed(&bed, &json!({"allowedDomains": ["listed.example"]}), &script);
    assert_eq!(run.lines, ["reached", "not"], "{what}: {run:?}");
    // Some make a socket for datagrams, or ask DNS, too, which is a matter of its own.
    let of_proxy =
        |trap: &&Value| trap["arguments"]["protocol"].as_str().is_some_and(|way| way != "dns");
    let of_hosts: Vec<&Value> = run.traps.iter().filter(of_proxy).collect();
    let target = format!("other.example:{}", client.port);
    assert!(!of_hosts.is_empty(), "{what}: {run:?}");
    for trap in of_hosts {
        assert_eq!(trap["target"], target, "{what}: {trap}");
        assert_eq!(trap["arguments"]["protocol"], client.protocol, "{what}: {trap}");
        assert_eq!(trap["suggested_grant"], json!({ "allowedDomains": target }), "{what}: {trap}");
    }
    let asked = noted(&bed, "asked");
    assert!(!asked.iter().any(|line| line.contains("other")), "{what} asked of DNS: {asked:?}");
}

#[test]
fn curl() {
    let https = |fetch| Client { fetch, port: 443, protocol: "connect" };
    let http = Client { fetch: "curl -sSf -m 20 http://HOST/x", port: 80, protocol: "http" };
    shows("http", &[], &http);
    shows("https", &[], &https("curl -sSf -m 20 https://HOST/x"));
    let socks = "curl -sSf -m 20 ${HTTP_PROXY:+-x socks5h://${HTTP_PROXY#*//}} https://HOST/x";
    shows("socks5h", &[], &Client { protocol: "socks5", ..https(socks) });
    // A protocol that has no variable of its own.
    let other = "echo hi | curl -sS -m 20 telnet://HOST:22 | grep SSH";
    shows("another protocol", &[], &Client { port: 22, ..https(other) });
}

#[test]
fn git_by_https() {
    let fetch = "git clone -q https://HOST/git/tiny.git HOST && cd HOST && \
        git -c user.name=a -c user.email=a@b commit -q --allow-empty -m more && git push -q";
    shows("git", &[], &Client { fetch, port: 443, protocol: "connect" });
}

/// As far as the greetings: the server is none.
#[test]
fn git_by_ssh() {
    let fetch = "export GIT_SSH_COMMAND=\"${GIT_SSH_COMMAND:-ssh} -v\"; \
        git ls-remote ssh://HOST/tiny.git 2>&1 | grep 'remote software version nobody'";
    let client = Client { fetch, port: 22, protocol: "connect" };
    shows("git by ssh", &["cmd:ssh", "cmd:nc"], &client);
}

#[test]
fn pip() {
    let fetch = "PIP_CONFIG_FILE=/dev/null /usr/bin/python3 -m pip install -q --no-input --no-cache-dir \
        --disable-pip-version-check --retries 0 --timeout 20 --root-user-action ignore --target HOST \
        --index-url https://HOST/simple tiny && [ -e HOST/tiny.py ]";
    shows("pip", &["cmd:pip3"], &Client { fetch, port: 443, protocol: "connect" });
}

#[test]
fn npm() {
    let fetch = "npm install --silent --no-audit --no-fund --fetch-retries=0 --prefix ./HOST \
        --registry https://HOST/npm/ tiny && [ -e HOST/node_modules/tiny/package.json ]";
    shows("npm", &["cmd:npm"], &Client { fetch, port: 443, protocol: "connect" });
}

#[test]
fn cargo() {
    let fetch = "mkdir -p HOST/src HOST/.cargo && cd HOST && touch src/lib.rs && \
        echo '[registries.here]\nindex = \"sparse+https://HOST/index/\"' > .cargo/config.toml && \
        echo '[package]\nname = \"p\"\nedition = \"2021\"\n[dependencies]\n\
        tiny = { version = \"1\", registry = \"here\" }' > Cargo.toml && \
        CARGO_HOME=\"$PWD/home\" CARGO_NET_RETRY=0 RUSTC=\"${CARGO%cargo}rustc\" \"$CARGO\" fetch";
    shows("cargo", &["cargo"], &Client { fetch, port: 443, protocol: "connect" });
}

#[test]
fn python() {
    let connect = |fetch| Client { fetch, port: 443, protocol: "connect" };
    let urllib = "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://HOST/x\", timeout=20).read()'";
    shows("urllib", &[], &connect(urllib));
    let client = "/usr/bin/python3 -c '
import http.client, os
proxy = os.environ.get(\"HTTPS_PROXY\", \"\")[7:]
c = http.client.HTTPSConnection(proxy or \"HOST\", timeout=20)
if proxy: c.set_tunnel(\"HOST\", 443)
c.request(\"GET\", \"/x\")
assert c.getresponse().read().startswith(b\"served\")
'";
    shows("http.client", &[], &connect(client));
}

#[test]
fn node() {
    if !have("node", &["cmd:node"]) {
        return;
    }
    let heeds = "process.exit(process.allowedNodeEnvironmentFlags.has('--use-env-proxy') ? 0 : 1)";
    let status = std::process::Command::new("node").args(["-e", heeds]).status().expect("node");
    if !status.success() {
        let _ = writeln!(std::io::stderr(), "skipped: node: this one is too old for variables");
        return;
    }
    let fetch = "node -e 'fetch(\"https://HOST/x\").then(r => r.text()).then(\
        t => process.exit(t.startsWith(\"served\") ? 0 : 1), () => process.exit(1))'";
    shows("node", &[], &Client { fetch, port: 443, protocol: "connect" });
}

/// Opens a tunnel by the proxy, or a connection where there is none, to HOST at PORT.
const OPEN: &str = "
import os, socket
def connect(host, port):
    proxy = os.environ.get('HTTP_PROXY')
    if not proxy: return socket.create_connection((host, port), 20)
    s = socket.create_connection(('127.0.0.1', int(proxy.rsplit(':', 1)[1])), 20)
    s.sendall(f'CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n'.encode())
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'):
        more = s.recv(1)
        if not more: break
        head += more
    assert head.startswith(b'HTTP/1.1 200'), head
    return s
";

/// A message that a WebSocket gives back.
const WEBSOCKET: &str = "
def websocket(s, host):
    s.sendall(b'GET /x HTTP/1.1\\r\\nHost: ' + host + b'\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n'
        b'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n')
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'):
        more = s.recv(1)
        if not more: break
        head += more
    assert head.startswith(b'HTTP/1.1 101') and b's3pPLMBiTxaQ9kYGzzhZRbK+xOo=' in head, head
    s.sendall(b'\\x81\\x82\\1\\2\\3\\4' + bytes([ord('h') ^ 1, ord('i') ^ 2]))
    got = b''
    while more := s.recv(9): got += more
    assert got == b'\\x81\\2hi', got
";

/// A program in Python, as an argument of a shell.
fn program(parts: &[&str]) -> &'static str {
    let text = parts.concat();
    assert!(!text.contains('"'));
    // A test has few of them.
    Box::leak(format!("{PYTHON} -c \"{text}\"").into_boxed_str())
}

#[test]
fn websockets() {
    let fetch = program(&[OPEN, WEBSOCKET, "websocket(connect('HOST', 80), b'HOST')"]);
    shows("WebSocket", &[], &Client { fetch, port: 80, protocol: "connect" });
    if !internet("WebSocket by address") {
        return;
    }
    // To an address that is listed, without a word of a proxy.
    let to = |address: &str| {
        let open = format!("websocket(socket.create_connection(('{address}', 80)), b'{address}')");
        format!("{} && echo reached || echo not; ", program(&["import socket", WEBSOCKET, &open]))
    };
    let script = to("203.0.113.1") + &to("127.0.0.1");
    let run = bare(&Bed::new(&[]), &script);
    assert_eq!(run.lines, ["reached", "reached"], "the control: {run:?}");
    let run = boxed(&Bed::new(&[]), &json!({"allowedDomains": ["203.0.113.1"]}), &script);
    assert_eq!(run.lines, ["reached", "not"], "{run:?}");
}

const GRPC: &str = "/usr/lib/python3/dist-packages/grpc";

#[test]
fn grpc() {
    let fetch = program(&["
import grpc
with grpc.secure_channel('HOST:50051', grpc.ssl_channel_credentials()) as channel:
    assert channel.unary_unary('/test/Twice')(b'again', timeout=20) == b'againagain'
"]);
    shows("gRPC", &[GRPC], &Client { fetch, port: 50051, protocol: "connect" });
}

/// The server of gRPC speaks nothing else.
#[test]
fn http_2() {
    let fetch =
        "[ \"$(curl -s -m 20 -o /dev/null -w '%{http_version}' https://HOST:50051/x)\" = 2 ]";
    shows("HTTP/2", &[GRPC], &Client { fetch, port: 50051, protocol: "connect" });
}

/// A server that answers when its client has said all.
#[test]
fn half_closed_connections() {
    let fetch = program(&[
        OPEN,
        "
s = connect('HOST', 7)
s.sendall(b'\\0' * 3_000_000)
s.shutdown(socket.SHUT_WR)
assert s.makefile().read() == '3000000\\n'
",
    ]);
    shows("half-close", &[], &Client { fetch, port: 7, protocol: "connect" });
}

/// What knows no proxy, or is told to use none, goes nowhere that is not listed.
#[test]
fn without_a_proxy_nothing_else_is_reached() {
    if !internet("no proxy") {
        return;
    }
    let ways = [
        "curl -sSf -m 20 --noproxy '*' http://other.example/x",
        "curl -sSf -m 20 --noproxy '*' --resolve other.example:80:203.0.113.1 http://other.example/x",
        "curl -sSf -m 20 --noproxy '*' http://203.0.113.1/x",
        "curl -sSf -m 20 --noproxy '*' 'http://[2001:db8::1]/x'",
        "curl -sSf -m 20 --noproxy '*' 'http://[::ffff:203.0.113.1]/x'",
        "curl -sSf -m 20 --noproxy '*' http://127.0.0.1/x",
        "env -i curl -sSf -m 20 http://203.0.113.1/x",
    ];
    let script: String =
        ways.iter().map(|way| format!("{way} >&2 && echo reached || echo not\n")).collect();
    let run = bare(&Bed::new(&[]), &script);
    assert_eq!(run.lines, ["reached"; 7], "the control: {run:?}");
    let bed = Bed::new(&[]);
    let run = boxed(&bed, &json!({"allowedDomains": ["listed.example"]}), &script);
    assert_eq!(run.lines, ["not"; 7], "{run:?}");
    assert_eq!(noted(&bed, "served"), Vec::<String>::new());
    let asked = noted(&bed, "asked");
    assert!(!asked.iter().any(|line| line.contains("example")), "{asked:?}");
}
