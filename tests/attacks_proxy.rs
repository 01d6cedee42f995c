//! Attacks on the domain proxy, by what is said to it and by how much. Names below `localhost` lead to loopback
//! without DNS, so they stand for hosts: `a.localhost` is listed, `b.localhost` is not.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use support::Bed;
use support::attack::{Attack, Stage, attacks};
use support::have::have;
use support::internet::{self, PYTHON, internet, noted};

/// A server that answers what it reads first, and tells all that it read until the end of the connection, one
/// connection after the other.
fn recorder() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut all = vec![0; 1 << 16];
            let first = stream.read(&mut all).unwrap_or(0);
            all.truncate(first);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            let _ = stream.read_to_end(&mut all);
            let _ = sender.send(String::from_utf8_lossy(&all).into_owned());
        }
    });
    (port, receiver)
}

/// What the recorder was told until now.
fn told((port, receiver): &(u16, Receiver<String>)) -> Vec<String> {
    let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).expect("connect");
    last.write_all(b"the end").expect("write");
    drop(last);
    receiver.iter().take_while(|text| text != "the end").collect()
}

fn policy(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

/// Says what each case of its first argument is made of in a connection of its own to the proxy (without one, to
/// the server that is the second argument) and prints what came back. Of a case, bytes are said; a number is so
/// many bytes to wait for, and 0 a head of HTTP; `end` ends what is said.
const SAY: &str = r#"
import os, socket, ssl, sys
end = object()
def hello(name):
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname = False
    t = c.wrap_bio(i, o, server_hostname=name)
    try: t.do_handshake()
    except ssl.SSLWantReadError: pass
    return o.read()
def records(hello, size):
    body = hello[5:]
    return b''.join(b'\x16\3\1' + len(body[at:at + size]).to_bytes(2, 'big') + body[at:at + size]
        for at in range(0, len(body), size))
def version(hello, number):
    return hello[:1] + number + hello[3:]
def slowly(text):
    return [bytes([byte]) for byte in text]
def connect(name):
    return b'CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n' % (name, name)
proxy = os.environ.get('HTTP_PROXY')
port = int(proxy.rsplit(':', 1)[1]) if proxy else int(sys.argv[2])
for case in eval(sys.argv[1]):
    s = socket.create_connection(('127.0.0.1', port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.settimeout(60)
    answer = b''
    try:
        for part in case:
            if isinstance(part, bytes): s.sendall(part)
            elif part is end: s.shutdown(socket.SHUT_WR)
            elif proxy:
                got = b''
                while len(got) < part if part else not got.endswith(b'\r\n\r\n'):
                    more = s.recv(1)
                    if not more: break
                    got += more
                answer += got
        while more := s.recv(4096): answer += more
    except OSError as error:
        answer += str(error).encode()
    print(ascii(answer.decode('latin1')))
print('end')
"#;

/// What came back for each case, what the server was told, and the messages of the traps.
fn say(cases: &[String]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let server = recorder();
    let list = format!("[{}]", cases.join(", ")).replace("PORT", &server.0.to_string());
    let network = json!({"allowedDomains": [format!("a.localhost:{}", server.0)]});
    let run = Bed::new(&[]).launch(&policy(network), &[], &[PYTHON, "-c", SAY, &list]);
    assert_eq!(run.last(), "end", "{run:?}");
    let told_of =
        run.traps.iter().map(|trap| trap["message"].as_str().unwrap_or_default().to_owned());
    let messages = told_of.collect();
    (run.lines, told(&server), messages)
}

/// Requests in which another one hides, for one reader or the other.
const HIDING: [&str; 27] = [
    r"b'POST http://A/N HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: cow\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding:\x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 99\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nContent-Length: 0, 99\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nContent-Length: -1\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nContent-Length: 0x10\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n' + HIDDEN",
    r"b'POST http://A/N HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\nHost: A\n\n' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\r\nX: y\r' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\r\nX: y\0z\r\n\r\n' + HIDDEN",
    r"b'GET http://A/N\0 HTTP/1.1\r\n\r\n' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\r\nX: y\r\n Host: B\r\n\r\n' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\r\nHost: B\r\n\r\n' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\r\nHost: A\r\nHost: B\r\n\r\n' + HIDDEN",
    r"b'GET http://A/N HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n' + HIDDEN",
    // The control of those that are refused: so many bytes are no request.
    r"b'POST http://B/N HTTP/1.1\r\nContent-Length: %d\r\n\r\n' % len(HIDDEN) + HIDDEN",
    r"b'GET http://B/N HTTP/1.1\r\n\r\n' + HIDDEN",
    r"connect(b'B') + HIDDEN",
    r"b'GET http://A@B/hidden HTTP/1.1\r\n\r\n'",
    r"b'GET /hidden HTTP/1.1\r\nHost: A\r\n\r\n'",
];

#[test]
fn no_request_is_hidden_in_another() {
    if !have("the proxy", &[PYTHON]) {
        return;
    }
    let hidden = r"b'GET http://A/hidden HTTP/1.1\r\nHost: A\r\n\r\n'";
    // Names of headers have the letters, too.
    let case = |text: &str| {
        let text = text.replace("HIDDEN", hidden);
        let named =
            ["http://A", "Host: A", "b'A'"].map(|at| (at, at.replace('A', "a.localhost:PORT")));
        let others = ["http://B", "Host: B", "b'B'", "@B"]
            .map(|at| (at, at.replace('B', "b.localhost:PORT")));
        let text =
            named.iter().chain(&others).fold(text, |text, (from, to)| text.replace(from, to));
        format!("[{text}]")
    };
    let cases: Vec<String> = HIDING.iter().map(|text| case(text)).collect();
    let (answers, seen, _) = say(&cases);
    assert_eq!(answers.len(), cases.len() + 1);
    for text in &seen {
        let lower = text.to_ascii_lowercase();
        let lengths =
            lower.matches("content-length:").count() + lower.matches("transfer-encoding:").count();
        assert!(!text.contains("/hidden") && !text.contains("b.localhost"), "{text}");
        assert!(
            lengths <= 1 && !lower.contains("upgrade") && !lower.contains("http2-settings"),
            "{text}"
        );
    }
    // The control: what hides is something that the server would have seen.
    let plain = case("HIDDEN");
    let (_, seen, _) = say(&[plain]);
    assert!(seen.len() == 1 && seen[0].contains("/hidden"), "{seen:?}");
}

/// What a client says first in a tunnel: the server hears of none that names another host, however it is said.
#[test]
fn no_first_word_names_another_host() {
    if !have("the proxy", &[PYTHON]) {
        return;
    }
    let tunnel = "connect(b'a.localhost:PORT'), 0";
    let refused = [
        "*slowly(hello('b.localhost'))",
        "records(hello('b.localhost'), 7)",
        "*slowly(records(hello('b.localhost'), 1))",
        r"b'\x15\3\1\0\2\1\x5a' + hello('b.localhost')",
        r"*slowly(b'\x15\3\1\0\2\1\x5a' + hello('b.localhost'))",
        r"b'\x14\3\3\0\1\1' + hello('b.localhost')",
        r"b'\x15\2\1\0\2\1\x5a' + hello('b.localhost')",
        r"version(hello('b.localhost'), b'\2\1')",
        r"version(hello('b.localhost'), b'\4\1')",
        r"version(hello('b.localhost'), b'\x0f\xff')",
        r"version(hello('b.localhost'), b'\0\0')",
        r"version(hello('b.localhost'), b'\xfe\xfd')",
        r"*slowly(version(hello('b.localhost'), b'\4\1'))",
        r"version(records(hello('b.localhost'), 1), b'\2\1')",
        r"b'\x16\3\1\0\0' + hello('b.localhost')",
        "hello('b.localhost')[:99], end",
        r"b'\x16\3\1\x40\0\1\xff\xff\xff' + b'x' * 70_000",
        r"*slowly(b'GET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n')",
        r"b'\r\n\r\nGET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b'\n', b'GET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b'get /SEEN', b' HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.2\r\nHost: b.localhost\r\n\r\n'",
        r"b'GET\t/SEEN\tHTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\nHost: b.localhost\n\n'",
        r"b'GET /SEEN HTTP/1.1\r\nHost: b.localhost', end",
        r"b'GET /' + b'x' * 20_000 + b'SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\r\n' + b'X: y\r\n' * 20_000 + b'Host: b.localhost\r\n\r\n'",
        r"b'GET http://b.localhost/SEEN HTTP/1.1\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\r\nHost: a.localhost, b.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\r\nHost: b.localhost\0.a.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\r\nHost : b.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\r\nHost: a.localhost\r\n Host: b.localhost\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\rHost: b.localhost\r\r\n\r\n'",
        r"b'GET /SEEN HTTP/1.1\r\nHost: a.localhost:+PORT\r\n\r\n'",
        r"b'G' * 33 + b' /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"*slowly(b'\t GET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n')",
        r"b' ', b'\r\n', b'GET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b'POST /SEEN', b'\r\n', b'Host: b.localhost\r\n\r\n'",
        r"b'GET http://b.localhost/SEEN\r\n\r\n'",
        r"b'GET http://b.localhost/SEEN HTTP/1.0', end",
        r"b'CONNECT b.localhost:1 HTTP/1.1\r\nHost: a.localhost\r\n\r\n'",
        r"b'PRI * HTTP/2.0\r\n\r\nGET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
        r"b' ' * 70_000 + b'GET /SEEN HTTP/1.1\r\nHost: b.localhost\r\n\r\n'",
    ];
    let cases: Vec<String> = refused.iter().map(|first| format!("[{tunnel}, {first}]")).collect();
    let (answers, seen, messages) = say(&cases);
    assert!(answers[..cases.len()].iter().all(|said| said.contains("200 OK")), "{answers:?}");
    assert!(seen.iter().all(|text| text.trim().is_empty()), "{seen:?}");
    assert_eq!(messages.len(), refused.len(), "{messages:?}");
    // The controls: the same server hears what names no other host.
    let passes = [
        "*slowly(hello('a.localhost')), end",
        "records(hello('a.localhost'), 7), end",
        "hello(None), end",
        r"b'\r\n\r\nGET /SEEN HTTP/1.1\r\nHost: a.localhost\r\n\r\n', end",
        r"b'get /SEEN', b' HTTP/1.1\r\nHost: a.localhost\r\n\r\n', end",
        r"b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', end",
        r"b'hi', end",
        r"b'0032git-upload-pack /x\0host=y\0', end",
    ];
    let cases: Vec<String> = passes.iter().map(|first| format!("[{tunnel}, {first}]")).collect();
    let (_, seen, messages) = say(&cases);
    assert!(messages.is_empty(), "{messages:?}");
    assert_eq!(seen.iter().filter(|text| !text.is_empty()).count(), passes.len(), "{seen:?}");
}

/// Servers of HTTP that answer with the host that a request is for, and what they take for requests beyond what
/// the standard has.
const SERVERS: [(&str, &[&str], &[&str]); 2] = [
    (
        PYTHON,
        &[
            "-c",
            "import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'for ' + str(self.headers.get('Host')).encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()",
        ],
        &[
            r"b' GET / HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'\tGET / HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'\x0bGET / HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'GET /\0 HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'GET /\1 HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'GET /\x7f HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'GET\xa0/\xa0HTTP/1.1\r\nHost: HOST\r\n\r\n'",
            r"b'GET / HTTP/1.10\r\nHost: HOST\r\n\r\n'",
            r"b'GET x\r\nHost: HOST\r\n\r\n'",
            r"b'GET /\n', b'Host: HOST\n\n'",
        ],
    ),
    (
        "node",
        &[
            "-e",
            "require('http').createServer((request, answer) => {
    answer.setHeader('Connection', 'close')
    answer.end('for ' + request.headers.host)
}).listen(0, '127.0.0.1', function () { console.log(this.address().port) })",
        ],
        &[
            r"b'POST /\r\nHost: HOST\r\n\r\n'",
            r"b'GET / RTSP/1.0\r\nHost: HOST\r\n\r\n'",
            r"b'SOURCE / ICE/1.0\r\nHost: HOST\r\n\r\n'",
            r"b'GET / HTTP/2.0\r\nHost: HOST\r\n\r\n'",
            r"b'GET /xHTTP/1.1\r\nHost: HOST\r\n\r\n'",
        ],
    ),
];

/// Ends it, however the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a real server takes for a request, and the proxy has to.
#[test]
fn no_odd_request_that_a_server_takes_names_another_host() {
    for (program, arguments, odd) in SERVERS {
        let needs: &[&str] = if program == PYTHON { &[PYTHON] } else { &[PYTHON, "cmd:node"] };
        if !have(&format!("requests to {program}"), needs) {
            continue;
        }
        let mut command = Command::new(program);
        let server = command.args(arguments).stdout(Stdio::piped()).spawn().expect("a server");
        let mut server = Ended(server);
        let mut port = String::new();
        let told = server.0.stdout.as_mut().expect("its port");
        BufReader::new(told).read_line(&mut port).expect("its port");
        let port = port.trim();
        let cases = |first: &str, host: &str, odd: &[&str]| {
            let case = |text: &&str| format!("[{first} {}]", text.replace("HOST", host));
            format!("[{}]", odd.iter().map(case).collect::<Vec<_>>().join(", "))
        };
        let mut bare = Command::new(PYTHON);
        bare.args(["-c", SAY, &cases("", "b.localhost", odd), port]).env_remove("HTTP_PROXY");
        let said = bare.output().expect("a client").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(said.matches("for b.localhost").count(), odd.len(), "the control: {said}");
        let tunnel = format!("connect(b'a.localhost:{port}'), 0,");
        let plain = [r"b'GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n'"];
        let network = policy(json!({"allowedDomains": [format!("a.localhost:{port}")]}));
        for (host, list) in [("b.localhost", odd), ("a.localhost", &plain)] {
            let cases = cases(&tunnel, host, list);
            let run = Bed::new(&[]).launch(&network, &[], &[PYTHON, "-c", SAY, &cases]);
            let answered = run.lines.iter().filter(|line| line.contains("for ")).count();
            let is_other = host == "b.localhost";
            assert_eq!(answered, if is_other { 0 } else { list.len() }, "{run:?}");
            assert_eq!(run.traps.len(), if is_other { list.len() } else { 0 }, "{run:?}");
        }
    }
}

/// What is no TLS and no HTTP passes as it is said, and does not wait for more to be said.
#[test]
fn other_protocols_are_let_through() {
    if !have("the proxy", &[PYTHON]) {
        return;
    }
    let protocols = [
        r"b'SSH-2.0-OpenSSH_9.6 x\r\n'",
        r"b'EHLO me.example\r\n'",
        r"b'a1 LOGIN user /secret\r\n'",
        r"b'USER me\r\n'",
        r"b'NICK me\r\nUSER me 0 * :Me\r\n'",
        r"b'0032git-upload-pack /a.git\0host=b.localhost\0'",
        r"b'*2\r\n$3\r\nGET\r\n$1\r\nk\r\n'",
        r"b'PING\r\n'",
        r"b'get /a/key\r\n'",
        r"b'CONNECT\naccept-version:1.2\nhost:b.localhost\n\n\0'",
        r#"b'CONNECT {"verbose":false,"lang":"python"}\r\nPING\r\n'"#,
        r"b'<?xml version=\'1.0\'?><stream:stream to=\'b.localhost\'>'",
        r#"b'{"jsonrpc":"2.0","method":"GET / HTTP/1.1","id":1}'"#,
        r"b'OPTIONS rtsp://a.localhost/x RTSP/1.0\r\nCSeq: 1\r\n\r\n'",
        r"b'REGISTER sip:b.localhost SIP/2.0\r\nTo: x\r\n y\r\n\r\n'",
        r"b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0'",
        // PostgreSQL: a question for TLS, and a start. MySQL: a login of 278 bytes, and a question for TLS.
        r"b'\0\0\0\x08\x04\xd2\x16\x2f'",
        r"b'\0\0\0\x12\0\3\0\0user\0me\0\0\0'",
        r"b'\x16\1\0\1\x85\xa6\xff\x19' + b'x' * 274",
        r"b'\x20\0\0\1\x85\xae\xff\x19' + bytes(28)",
        // MongoDB, MQTT, AMQP, LDAP, Kafka, a greeting of SSL 2 for TLS 1.0, which has no place for a name.
        r"b'\x16\1\0\0\1\0\0\0\0\0\0\0\xdd\x07\0\0' + bytes(262)",
        r"b'\x10\x10\0\4MQTT\4\2\0\x3c\0\4abcd'",
        r"b'AMQP\0\0\x09\1'",
        r"b'\x30\x0c\2\1\1\x60\7\2\1\3\4\0\x80\0'",
        r"b'\0\0\0\x0e\0\x12\0\0\0\0\0\1\0\4test'",
        r"b'\x80\x1c\1\3\1\0\3\0\0\0\x10\0\0\x2f' + bytes(16)",
    ];
    // The server answers what it has read, without hearing more.
    let case = |first: &&str| format!("[connect(b'a.localhost:PORT'), 0, {first}, 15, end]");
    let cases: Vec<String> = protocols.iter().map(case).collect();
    let (answers, seen, messages) = say(&cases);
    assert!(messages.is_empty(), "{messages:?}");
    for (protocol, answer) in protocols.iter().zip(&answers) {
        assert_eq!(answer.matches("200 OK").count(), 2, "{protocol}: {answer}");
    }
    assert_eq!(seen.iter().filter(|text| !text.is_empty()).count(), protocols.len(), "{seen:?}");
    // The control: what could be a request waits for its end, which is refused when it does not come.
    let (answers, seen, messages) =
        say(&[r"[connect(b'a.localhost:PORT'), 0, b'GET / HTTP/1.1\r\n', end]".to_owned()]);
    assert!(seen.iter().all(String::is_empty) && messages.len() == 1, "{answers:?} {seen:?}");
}

/// A body of CONNECT is none, and heads have an end.
#[test]
fn what_is_odd_at_the_start_reaches_nobody() {
    if !have("the proxy", &[PYTHON]) {
        return;
    }
    let [mine, other] = ["a.localhost", "b.localhost"]
        .map(|host| format!(r"b'GET /SEEN HTTP/1.1\r\nHost: {host}\r\n\r\n'"));
    let cases = [
        format!(
            r"[b'CONNECT a.localhost:PORT HTTP/1.1\r\nContent-Length: %d\r\n\r\n' % len({other}) + {other}, end]"
        ),
        format!(
            r"[b'CONNECT a.localhost:PORT HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n' + b'%x\r\n' % len({other}) + {other} + b'\r\n0\r\n\r\n', end]"
        ),
        format!(r"[connect(b'a.localhost:PORT') + {other}]"),
        r"[b'GET http://a.localhost:PORT/SEEN HTTP/1.1\r\nX: ' + b'y' * 200_000 + b'\r\n\r\n']"
            .to_owned(),
        r"[b'GET http://a.localhost:PORT/SEEN HTTP/1.1\r\n' + b'X: y\r\n' * 20_000 + b'\r\n']"
            .to_owned(),
        r"[b'GET http://a.localhost:PORT/' + b'x' * 100_000 + b'SEEN HTTP/1.1\r\n\r\n']".to_owned(),
        r"[b'GET https://a.localhost:PORT/SEEN HTTP/1.1\r\n\r\n']".to_owned(),
        r"[b'\5\1\2', end]".to_owned(),
        r"[b'\5\1\0', 2, b'\5\3\0\3\x0ba.localhost' + (PORT).to_bytes(2, 'big'), end]".to_owned(),
        r"[b'\4\1' + (PORT).to_bytes(2, 'big') + b'\0\0\0\1x\0a.localhost\0', end]".to_owned(),
        r"[hello('a.localhost'), end]".to_owned(),
        format!("[connect(b'a.localhost:+PORT') + {mine}, end]"),
        format!("[connect(b'a.localhost:0PORT') + {mine}, end]"),
        r"[b'GET http://a.localhost:+PORT/SEEN HTTP/1.1\r\n\r\n', end]".to_owned(),
        r"[b'GET http://a.localhost:0PORT/SEEN HTTP/1.1\r\n\r\n', end]".to_owned(),
        r"[b'GET http://a.localhost:PORT/SEEN HTTP/1.1\r\nHost: a.localhost:+PORT\r\n\r\n', end]"
            .to_owned(),
        r"[b'GET http://a.localhost:PORT/SEEN HTTP/1.1\r\nHost: a.localhost:\r\n\r\n', end]"
            .to_owned(),
    ];
    let (answers, seen, _) = say(&cases);
    assert_eq!(answers.len(), cases.len() + 1);
    assert!(seen.iter().all(|text| !text.contains("SEEN")), "{seen:?}");
    let controls = [
        r"[b'GET http://a.localhost:PORT/SEEN HTTP/1.1\r\nX: ' + b'y' * 40_000 + b'\r\n\r\n']"
            .to_owned(),
        format!("[connect(b'a.localhost:PORT') + {mine}, end]"),
        r"[b'GET http://a.localhost:PORT/SEEN HTTP/1.1\r\nHost: a.localhost:PORT\r\n\r\n', end]"
            .to_owned(),
        r"[b'\5\1\0', 2, b'\5\1\0\3\x0ba.localhost' + (PORT).to_bytes(2, 'big') + b'SEEN', end]"
            .to_owned(),
    ];
    let (_, seen, messages) = say(&controls);
    assert!(messages.is_empty(), "{messages:?}");
    assert_eq!(seen.iter().filter(|text| text.contains("SEEN")).count(), 4, "{seen:?}");
}

/// Ways around the proxy, for a program that may reach one host by it.
#[test]
fn there_is_no_way_around_it() {
    let server = recorder();
    let udp = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let name = format!("landstrip-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("bind");
    let words = [
        ("{tcp}", server.0.to_string()),
        ("{udp}", udp.local_addr().expect("address").port().to_string()),
        ("{name}", name),
    ];
    let policy = policy(json!({"allowedDomains": ["a.localhost:1", "203.0.113.1"]}));
    let stage = Stage { policy, setup: &[], guarded: &["{out}"], target: "", words: &words };
    const NOWHERE: &str = "EACCES|EPERM|EAFNOSUPPORT|ECONNREFUSED|ENETUNREACH";
    let at = |name, op| Attack::new(name, op).quiet().error(NOWHERE);
    attacks(
        &stage,
        &[
            at("tcp", "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:127.0.0.1:{tcp} #"),
            at("any address", "do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:0.0.0.0:{tcp} #"),
            at(
                "mapped",
                "do s=socket AF_INET6 SOCK_STREAM 0 ; connect $s in:[::ffff:127.0.0.1]:{tcp} #",
            )
            .needs(&["ipv6"]),
            at(
                "udp",
                "do s=socket AF_INET SOCK_DGRAM 0 ; connect $s in:127.0.0.1:{udp} # ; write $s bytes:x 1 ; write $s bytes:x 1",
            ),
            at("raw", "socket AF_INET SOCK_RAW IPPROTO_ICMP").needs(&["root"]),
            at("packet", "socket AF_PACKET SOCK_RAW 0").needs(&["root"]),
            at("abstract", "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s abs:{name} #"),
        ],
    );
    udp.set_nonblocking(true).expect("nonblocking");
    // The control sent two.
    assert_eq!(std::iter::from_fn(|| udp.recv(&mut [0; 9]).ok()).count(), 2);
}

/// The address that is dialled is the one that was checked: a name is looked up once for each connection, and what
/// it leads to by then counts.
#[test]
fn a_name_that_moves_to_loopback_is_refused_there() {
    if !internet("rebinding") {
        return;
    }
    let script = "for n in 1 2 3; do curl -s -m 20 http://rebind.example/x; done; true";
    let run = internet::bare(&Bed::new(&[]), script);
    let reached: Vec<&str> =
        run.lines.iter().filter_map(|line| line.split(" from ").nth(1)).collect();
    assert_eq!(reached, ["203.0.113.1", "127.0.0.1", "127.0.0.1"], "the control: {run:?}");
    let bed = Bed::new(&[]);
    let run = internet::boxed(&bed, &json!({"allowedDomains": ["rebind.example"]}), script);
    assert!(run.lines[0].ends_with("from 203.0.113.1"), "{run:?}");
    for line in &run.lines[1..] {
        assert!(line.contains("is denied") && line.contains("a loopback address"), "{run:?}");
    }
    assert_eq!((run.lines.len(), run.traps.len()), (3, 2), "{run:?}");
    let asked = noted(&bed, "asked");
    assert_eq!(asked.iter().filter(|line| *line == "rebind.example 1").count(), 3, "{asked:?}");
    assert_eq!(noted(&bed, "served").len(), 1);
}
