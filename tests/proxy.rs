//! The domain proxy: what is listed is reached by every protocol, and nothing else by any. Clients are curl
//! and, for what no honest client says, a few lines of Python; the server tells what it was told. Names
//! below `localhost` lead to loopback without DNS, so they stand for hosts.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use support::have::have;
use support::{Bed, Run, without_namespaces};

/// A server that answers what it reads first with the same, as HTTP. What it read also comes out of the
/// channel.
fn echo() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            let length = stream.read(&mut buffer).unwrap_or(0);
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let head = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                text.len()
            );
            // First, so that it is there when the client has its answer.
            let _ = sender.send(text.clone());
            let _ = stream.write_all((head + &text).as_bytes());
        }
    });
    (port, receiver)
}

fn policy(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network})
}

fn shell(bed: &Bed, network: Value, script: &str) -> Run {
    bed.launch(&policy(network), &[], &["sh", "-c", script])
}

#[test]
fn a_listed_host_is_reached_by_every_protocol() {
    if !have("the proxy", &["cmd:curl"]) {
        return;
    }
    let (port, _server) = echo();
    let network = json!({"allowedDomains": [format!("a.localhost:{port}"), "127.0.0.1"], "deniedDomains": ["127.0.0.1:1"]});
    // With the variables of the environment, by each kind of proxy, and by an address without any.
    let ways = [
        ("--noproxy ''", "a.localhost", "http"),
        ("--noproxy '' -p", "a.localhost", "connect"),
        ("--noproxy '' -x socks5h://${HTTP_PROXY#*//}", "a.localhost", "socks5"),
        ("--noproxy '' --http2-prior-knowledge -p", "a.localhost", "connect"),
        ("--noproxy '*'", "127.0.0.1", "tcp"),
        ("--noproxy '' -x socks5://${HTTP_PROXY#*//}", "127.0.0.1", "socks5"),
    ];
    for (options, host, protocol) in ways {
        let get = |host: &str, port: u16| {
            format!("curl -sS -m 20 {options} http://{host}:{port}/x; echo \" $?\"")
        };
        let run = shell(&Bed::new(&[]), network.clone(), &get(host, port));
        let said = run.lines.join("\n");
        if options.contains("http2") {
            // What the server said is no HTTP/2, but it was reached.
            assert!(!said.ends_with(" 56") && run.traps.is_empty(), "{options}: {run:?}");
            continue;
        }
        assert!(said.contains("/x HTTP/1.1") && said.ends_with(" 0"), "{options}: {run:?}");
        assert!(run.traps.is_empty(), "{options}: {run:?}");
        if host == "127.0.0.1" {
            let run = shell(&Bed::new(&[]), network.clone(), &get(host, 1));
            let rule = &run.traps[0]["rule"];
            assert_eq!(rule["key"], "network.deniedDomains[0]", "{options}: {run:?}");
            assert_eq!(rule["text"], "127.0.0.1:1", "{options}: {run:?}");
            continue;
        }
        let run = shell(&Bed::new(&[]), network.clone(), &get("b.localhost", port));
        assert!(!run.lines.join("\n").contains("/x HTTP/1.1"), "{options}: {run:?}");
        let trap = &run.traps[0];
        let target = format!("b.localhost:{port}");
        assert_eq!(trap["target"], target, "{trap}");
        assert_eq!(trap["arguments"]["protocol"], protocol, "{trap}");
        assert_eq!(trap["suggested_grant"], json!({"allowedDomains": target}));
        assert!(trap["process"]["pid"].as_i64().is_some_and(|pid| pid > 0), "{trap}");
    }
}

/// An empty list names no host, which is not the same as no list, by whatever way.
#[test]
fn an_empty_list_opens_nothing() {
    if !have("the proxy", &["cmd:curl"]) {
        return;
    }
    let (port, server) = echo();
    let hosts = ["a.localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"];
    let ways = ["", "-p", "-x socks5h://${HTTP_PROXY#*//}", "-x socks5://${HTTP_PROXY#*//}", "*"];
    let gets = ways.map(|way| {
        let (options, skip) = if way == "*" { ("", "*") } else { (way, "") };
        let curl = format!("curl -s -m 20 --noproxy '{skip}' {options}");
        hosts.map(|host| format!("{curl} http://{host}:{port}/x")).join("; ")
    });
    let reached = |network: Value| {
        shell(&Bed::new(&[]), network, &format!("{}; true", gets.join("; ")));
        server.try_iter().filter(|text| text.starts_with("GET /x")).count()
    };
    let all = || {
        let listed = json!({"allowedDomains": ["a.localhost", "127.0.0.1"]});
        assert!(reached(listed) >= ways.len(), "the control");
        assert_eq!(reached(json!({"allowedDomains": []})), 0);
        assert_eq!(reached(json!({"allowedDomains": [], "deniedDomains": ["a.example"]})), 0);
    };
    all();
    without_namespaces(all);
}

/// Says the bytes in its first argument, as Python has them, to the proxy, and prints the answer; `hello(x)` is
/// a ClientHello for x.
const SAY: &str = r#"
import os, socket, ssl, sys
def hello(name):
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    t = c.wrap_bio(i, o, server_hostname=name)
    try: t.do_handshake()
    except ssl.SSLWantReadError: pass
    return o.read()
def socks(name, port):
    return b'\5\1\0\5\1\0\3' + bytes([len(name)]) + name + port.to_bytes(2, 'big')
s = socket.create_connection(('127.0.0.1', int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])))
s.settimeout(20)
try:
    for part in eval(sys.argv[1]):
        if isinstance(part, bytes):
            s.sendall(part)
            continue
        # So many bytes, or a head of HTTP.
        got = b''
        while len(got) < part if part else not got.endswith(b'\r\n\r\n'):
            more = s.recv(1)
            if not more: break
            got += more
        print(got)
    while True:
        got = s.recv(4096)
        if not got: break
        print(got)
except OSError as error:
    print(error)
print('end')
"#;

/// What came back for each, what the server saw, and the messages of the traps.
fn say(what: &str) -> (String, Vec<String>, Vec<String>) {
    let (port, server) = echo();
    let network = json!({"allowedDomains": [format!("a.localhost:{port}"), format!("b.localhost:{port}"), "127.0.0.1"]});
    let what = what.replace("PORT", &port.to_string());
    let run = Bed::new(&[]).launch(&policy(network), &[], &["python3", "-c", SAY, &what]);
    assert_eq!(run.lines.last().map(String::as_str), Some("end"), "{what}: {run:?}");
    let told = run.traps.iter().map(|trap| trap["message"].as_str().unwrap_or_default().to_owned());
    (run.lines.join("\n"), server.try_iter().collect(), told.collect())
}

#[test]
fn what_is_said_in_a_connection_names_the_same_host() {
    if !have("the proxy", &["cmd:python3"]) {
        return;
    }
    let connect =
        "b'CONNECT a.localhost:PORT HTTP/1.1\\r\\nHost: a.localhost:PORT\\r\\n\\r\\n', None";
    let by_socks = "socks(b'a.localhost', PORT), 12";
    let get = |host: &str| format!("b'GET /x HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n'");
    for way in [connect, by_socks] {
        for (first, agrees) in [
            (get("a.localhost"), true),
            (get("A.Localhost:PORT"), true),
            (get("b.localhost"), false),
            (get("a.localhost\\r\\nHost: b.localhost"), false),
            ("b'GET http://b.localhost/x HTTP/1.1\\r\\n\\r\\n'".to_owned(), false),
            ("hello('a.localhost')".to_owned(), true),
            ("hello('b.localhost')".to_owned(), false),
            ("b'\\x16\\x03\\x01\\0\\x04\\2\\0\\0\\0'".to_owned(), false),
            ("b'SSH-2.0-x\\r\\n'".to_owned(), true),
        ] {
            let (said, saw, told) = say(&format!("[{way}, {first}]"));
            assert_eq!(
                saw.iter().any(|text| !text.is_empty()),
                agrees,
                "{first}: {said} {saw:?} {told:?}"
            );
            assert_eq!(told.is_empty(), agrees, "{first}: {said} {told:?}");
        }
    }
}

#[test]
fn a_host_is_read_in_one_way() {
    if !have("the proxy", &["cmd:python3"]) {
        return;
    }
    for (host, reached) in [
        ("127.0.0.1", true),
        ("127.1", false),
        ("0x7f.0.0.1", false),
        ("2130706433", false),
        ("0177.0.0.1", false),
        ("127.0.0.1.", false),
        ("a.localhost.", false),
        ("a%2elocalhost", false),
        ("x@127.0.0.1", false),
    ] {
        for what in [
            format!(
                "[b'CONNECT {host}:PORT HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n', None, b'hi']"
            ),
            format!("[b'GET http://{host}:PORT/x HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n']"),
            format!("[socks(b'{host}', PORT), 12, b'hi']"),
        ] {
            let (said, saw, _) = say(&what);
            assert_eq!(!saw.is_empty(), reached, "{what}: {said}");
        }
    }
    let (said, saw, _) = say("[socks(b'127.0.0.1\\0.localhost', PORT), 12, b'hi']");
    assert!(saw.is_empty(), "{said}");
}

/// Who has said all may end that way, and is answered.
#[test]
fn a_client_that_has_said_all_is_answered() {
    const CLIENT: &str = r#"
import os, socket, sys
port, proxy = int(sys.argv[1]), int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])
at = f'a.localhost:{port}'
get = f'GET /x HTTP/1.1\r\nHost: {at}\r\n\r\n'.encode()
for said in [
    f'GET http://{at}/x HTTP/1.1\r\nHost: {at}\r\n\r\n'.encode(),
    f'POST http://{at}/x HTTP/1.1\r\nHost: {at}\r\nContent-Length: 2\r\n\r\nok'.encode(),
    f'CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n'.encode() + get,
    b'\5\1\0\5\1\0\3\x0ba.localhost' + port.to_bytes(2, 'big') + get,
]:
    s = socket.create_connection(('127.0.0.1', proxy), 60)
    s.sendall(said)
    s.shutdown(socket.SHUT_WR)
    got = b''.join(iter(lambda: s.recv(1 << 16), b''))
    print(len(got.rsplit(b'\r\n\r\n', 1)[-1]))
"#;
    if !have("the proxy", &["cmd:python3"]) {
        return;
    }
    const LONG: usize = 8 << 20;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&[7; LONG]));
        }
    });
    let network = json!({"allowedDomains": [format!("a.localhost:{port}")]});
    let port = port.to_string();
    let run = Bed::new(&[]).launch(&policy(network), &[], &["python3", "-c", CLIENT, &port]);
    assert_eq!(run.lines, vec![LONG.to_string(); 4], "{run:?}");
}

#[test]
fn no_request_is_hidden_in_another() {
    if !have("the proxy", &["cmd:python3"]) {
        return;
    }
    let hidden = "GET /hidden HTTP/1.1\\r\\nHost: b.localhost\\r\\n\\r\\n";
    for head in [
        "Content-Length: 4\\r\\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\\r\\nContent-Length: 4",
        "Content-Length: 0\\r\\nContent-Length: 44",
        "Transfer-Encoding: xchunked",
        "Content-Length: +4",
        "Host: b.localhost:PORT",
        "Host: a.localhost:PORT\\r\\nHost: b.localhost:PORT",
        "X: y\\r\\n Host: b.localhost",
    ] {
        let what = format!(
            "[b'POST http://a.localhost:PORT/x HTTP/1.1\\r\\n{head}\\r\\nConnection: close\\r\\n\\r\\n0\\r\\n\\r\\n{hidden}']"
        );
        let (said, saw, _) = say(&what);
        // At most what was meant for it, with one length.
        let lengths = |text: &String| {
            let text = text.to_ascii_lowercase();
            text.matches("content-length").count() + text.matches("transfer-encoding").count()
        };
        assert!(
            saw.iter().all(|text| !text.contains("/hidden") && lengths(text) <= 1),
            "{head}: {said} {saw:?}"
        );
        assert!(saw.len() <= 1, "{head}: {said} {saw:?}");
    }
    // The control, and what is about the connection alone stays behind.
    let (_, saw, _) = say(
        "[b'GET http://a.localhost:PORT/x HTTP/1.1\\r\\nConnection: close, X-Mine\\r\\nX-Mine: 1\\r\\nProxy-Authorization: z\\r\\nX-Other: 2\\r\\n\\r\\n']",
    );
    let saw = saw[0].to_ascii_lowercase();
    assert!(saw.starts_with("get /x http/1.1\r\n") && saw.contains("x-other"), "{saw}");
    assert!(!saw.contains("x-mine") && !saw.contains("proxy-"), "{saw}");
}

#[test]
fn nobody_outside_of_the_run_uses_its_proxy_and_it_fails_closed() {
    if !have("the proxy", &["cmd:curl"]) {
        return;
    }
    // In a namespace, it is not there for others.
    if have("the namespace", &["netns"]) {
        fails_closed(false);
    }
    without_namespaces(|| fails_closed(true));
}

fn fails_closed(is_there: bool) {
    let (port, server) = echo();
    let bed = Bed::new(&[
        "mknodat AT_FDCWD \"{in}/told S_IFIFO|0644 0",
        "mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0",
    ]);
    let network = json!({"allowedDomains": ["a.localhost"]});
    let get =
        format!("curl -s --noproxy '' -m 20 -o {{in}}/out http://a.localhost:{port}/x; echo $?");
    let script =
        format!("{get}; echo ${{http_proxy##*:}} > {{in}}/told; read x < {{in}}/go; {get}");
    let mut command = bed.sandboxed(&policy(network), &[], &["sh", "-c", &script]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("a run");
    let told = std::fs::read_to_string(bed.root().join("in/told")).expect("a port");
    let own: u16 = told.trim().parse().expect("a port");
    // Else somebody else may be at that port.
    if is_there {
        let mut outsider = TcpStream::connect((Ipv4Addr::LOCALHOST, own)).expect("it listens");
        let _ = write!(outsider, "CONNECT a.localhost:{port} HTTP/1.1\r\n\r\n");
        let mut answer = Vec::new();
        let _ = outsider.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let children = std::fs::read_to_string(children).expect("children");
    let name = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|n| n == "network\n")
    };
    let helper = children.split_whitespace().find(name).expect("the helper");
    let pid = rustix::process::Pid::from_raw(helper.parse().expect("a number")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
    support::ends(helper.parse().expect("a number"), std::time::Duration::from_secs(5));
    std::fs::write(bed.root().join("in/go"), "x\n").expect("go");
    let out = child.wait_with_output().expect("its end");
    let codes = String::from_utf8_lossy(&out.stdout).into_owned();
    let codes: Vec<&str> = codes.split_whitespace().collect();
    assert_eq!(codes[0], "0");
    assert_ne!(codes[1], "0");
    assert_eq!(server.try_iter().count(), 1);
}

#[test]
fn connections_go_out_by_the_proxy_of_the_launcher() {
    if !have("the proxy", &["cmd:curl"]) {
        return;
    }
    let (port, server) = echo();
    let upstream = format!("http://u:p%40@127.0.0.1:{port}");
    let launch = |variable: &str, value: &str, script: &str| {
        let bed = Bed::new(&[]);
        let network = json!({"allowedDomains": ["listed.example"]});
        let mut command: Command = bed.sandboxed(&policy(network), &[], &["sh", "-c", script]);
        let out = command.env(variable, value).output().expect("a run");
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let get = "curl -s -m 20 http://listed.example/x; curl -s -m 20 http://other.example/x";
    let (_, said, _) = launch("HTTP_PROXY", &upstream, get);
    assert!(said.contains("other.example:80 is denied"), "{said}");
    // The first that it saw is our look whether it is there.
    let saw: Vec<String> = server.try_iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(saw.len(), 1, "{saw:?}");
    assert!(saw[0].starts_with("GET http://listed.example/x HTTP/1.1\r\n"), "{saw:?}");
    assert!(saw[0].to_ascii_lowercase().contains("proxy-authorization: basic dtpwqa=="), "{saw:?}");
    let (_, _, _) = launch("HTTPS_PROXY", &upstream, "curl -s -m 20 https://listed.example/");
    let saw: Vec<String> = server.try_iter().filter(|text| !text.is_empty()).collect();
    assert!(saw[0].starts_with("CONNECT listed.example:443 HTTP/1.1\r\n"), "{saw:?}");
    let free =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind").local_addr().expect("address");
    for bad in
        ["ftp://127.0.0.1:1".to_owned(), "http://127.0.0.1:x".to_owned(), format!("http://{free}")]
    {
        let (code, said, told) = launch("HTTPS_PROXY", &bad, "echo ran");
        assert_eq!((code, said.as_str()), (Some(1), ""), "{bad}: {told}");
        assert!(told.contains("HTTPS_PROXY: "), "{bad}: {told}");
    }
}

#[test]
fn variables_are_set_unless_the_policy_says_no() {
    let names = "env | grep -ci '_proxy=' ; true";
    let (port, _server) = echo();
    let count = |network: Value| {
        let run = shell(&Bed::new(&[]), network, names);
        run.lines[0].parse::<usize>().expect("a number")
    };
    let hosts = json!([format!("a.localhost:{port}")]);
    let before = count(json!({}));
    assert!(count(json!({"allowedDomains": hosts})) >= 8);
    assert_eq!(count(json!({"allowedDomains": hosts, "proxyEnvironment": false})), before);
}
