//! Queries about hosts: the proxy holds a connection until somebody has said whether it is to be made. Hosts are
//! names below `localhost`, which lead to loopback without DNS.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::client::Client;
use support::have::have;
use support::net::answering;
use support::{Bed, Run, without_namespaces};

const PYTHON: &str = "/usr/bin/python3";

/// Connects to hosts by name, and by proxy where `by` says which; what came back is the last word of it.
const REACH: &str = r#"
import os, socket, sys, threading
def talk(s):
    s.sendall(b'GET /x HTTP/1.0\r\n\r\n')
    got = b''
    while True:
        more = s.recv(99)
        if not more: return got.split()[-1].decode() if got else 'end'
        got += more
def reach(host, by=None):
    name, port = host.rsplit(':', 1)
    try:
        if by is None:
            # One address alone: what is denied before connect(2) has returned would be tried at the next.
            family, kind, _, _, address = socket.getaddrinfo(name, int(port), 0, socket.SOCK_STREAM)[0]
            s = socket.socket(family, kind)
            s.settimeout(60)
            s.connect(address)
            return talk(s)
        s = socket.create_connection(('127.0.0.1', int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])), 60)
        if by == 'connect':
            s.sendall(b'CONNECT %s HTTP/1.1\r\n\r\n' % host.encode())
            got = b''
            while not got.endswith(b'\r\n\r\n'):
                more = s.recv(1)
                if not more: return 'end'
                got += more
            if b' 200 ' not in got: return got.split()[1].decode()
            return talk(s)
        if by == 'http':
            s.sendall(b'GET http://%s/x HTTP/1.1\r\nConnection: close\r\n\r\n' % host.encode())
            got = b''
            while True:
                more = s.recv(99)
                if not more: break
                got += more
            return got.split()[-1].decode() if b' 200 ' in got else got.split()[1].decode()
        s.sendall(b'\5\1\0\5\1\0\3' + bytes([len(name)]) + name.encode() + int(port).to_bytes(2, 'big'))
        got = b''
        while len(got) < 12:
            more = s.recv(12 - len(got))
            if not more: return 'end'
            got += more
        return talk(s) if got[3] == 0 else 'socks %d' % got[3]
    except OSError as e: return str(e.errno)
"#;

fn asked<T>(
    network: Value,
    options: &[&str],
    script: &str,
    client: impl FnOnce(Client) -> T,
) -> (Run, T) {
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network});
    let script = format!("{REACH}{script}");
    Bed::new(&[]).asked(&policy, options, &[PYTHON, "-c", &script], client)
}

fn listed(port: u16) -> Value {
    json!({"allowedDomains": [format!("listed.localhost:{port}")]})
}

fn names(what: &str) -> bool {
    have(what, &[PYTHON, "netns"])
}

#[test]
fn a_host_is_asked_about_by_every_protocol() {
    if !names("queries about hosts") {
        return;
    }
    let port = answering("server");
    let ways = [
        ("None", "tcp", "104"),
        ("'connect'", "connect", "403"),
        ("'http'", "http", "403"),
        ("'socks'", "socks5", "socks 2"),
    ];
    for (way, protocol, denied) in ways {
        let host = format!("a.localhost:{port}");
        let script = format!("for i in range(3): print(reach('{host}', {way}))");
        let (run, ()) = asked(listed(port), &[], &script, |mut client| {
            for action in ["allow", "deny", "allow"] {
                let query = client.query();
                assert_eq!(query["kind"], "network");
                assert_eq!(query["operation"], "connect");
                assert_eq!(query["target"], host);
                assert_eq!(query["reason"], "allow_miss");
                assert_eq!(query["arguments"]["protocol"], protocol);
                assert_eq!(query["suggested_grant"], json!({"allowedDomains": host}));
                assert!(query["process"]["pid"].as_i64().is_some_and(|pid| pid > 0), "{query}");
                client.answer(&query, action);
            }
            assert!(client.answer_all("deny").is_empty());
        });
        assert_eq!(run.lines, ["server", denied, "server"], "{way}: {run:?}");
        // The summary has what was denied, and only that.
        assert_eq!(run.stderr.matches("NETWORK_DENIED").count(), 1, "{way}: {run:?}");
    }
}

#[test]
fn an_answer_for_the_run_is_about_one_host_and_port() {
    if !names("answers for the run") {
        return;
    }
    let (port, other) = (answering("server"), answering("server"));
    let script = format!(
        "for host in 'a.localhost:{port}', 'a.localhost:{port}', 'a.localhost:{other}', 'b.localhost:{port}', 'listed.localhost:{port}':
    print(reach(host), reach(host, 'connect'))"
    );
    let (run, ()) = asked(listed(port), &[], &script, |mut client| {
        let first = client.query();
        client.answer_for_the_run(&first, "allow");
        let second = client.query();
        assert_eq!(second["target"], format!("a.localhost:{other}"));
        client.answer_for_the_run(&second, "deny");
        let others = client.answer_all("deny");
        let others: Vec<_> = others.iter().map(|query| query["target"].clone()).collect();
        assert_eq!(others, vec![json!(format!("b.localhost:{port}")); 2]);
    });
    let (yes, no) = ("server server", "104 403");
    assert_eq!(run.lines, [yes, yes, no, no, yes], "{run:?}");
}

/// One answer for those that wait already.
#[test]
fn an_answer_for_the_run_covers_what_waits() {
    if !names("what waits") {
        return;
    }
    let port = answering("server");
    let script = format!(
        "out = []
def one(): out.append(reach('a.localhost:{port}'))
ts = [threading.Thread(target=one) for i in range(20)]
for t in ts: t.start()
for t in ts: t.join()
print(out == ['server'] * 20)"
    );
    let (run, ()) = asked(listed(port), &[], &script, |mut client| {
        let all: Vec<Value> = (0..20).map(|_| client.query()).collect();
        client.answer_for_the_run(&all[7], "allow");
        let over: Vec<Value> = (0..19).map(|_| client.info()).collect();
        let id = all[7]["query_id"].as_str().expect("an id");
        for record in &over {
            let message = record["message"].as_str().expect("a message");
            assert_eq!(message, format!("allowed by the answer to query {id}"));
        }
        assert!(client.answer_all("deny").is_empty());
    });
    assert_eq!(run.lines, ["True"], "{run:?}");
}

#[test]
fn what_is_denied_by_name_can_be_asked_about_and_special_addresses_cannot() {
    if !names("denied hosts") {
        return;
    }
    let port = answering("server");
    // A list that denies this name denies loopback, too, as an address of that name.
    let network = json!({"deniedDomains": ["no.localhost"]});
    let script = format!(
        "print(reach('no.localhost:{port}'), reach('127.0.0.1:{port}'), reach('a.localhost:{port}'))"
    );
    let (run, queries) = asked(network, &[], &script, |mut client| {
        let queries = client.answer_all("allow");
        let messages = client.seen.iter().filter(|record| record["state"] == "info");
        let messages: Vec<Value> = messages.map(|record| record["message"].clone()).collect();
        (queries, messages)
    });
    let (queries, messages) = queries;
    assert_eq!(run.lines, ["104 server 104"], "{run:?}");
    assert_eq!(queries.len(), 3, "{queries:?}");
    for query in &queries[..2] {
        assert_eq!(query["reason"], "deny_match");
        assert_eq!(query["rule"]["key"], "network.deniedDomains[0]");
        assert!(query.get("suggested_grant").is_none_or(Value::is_null), "{query}");
    }
    assert_eq!(queries[2]["reason"], "allow_miss");
    let denied = |host: &str| json!(format!("{host} has the address ::1, which is denied"));
    assert_eq!(messages, [denied("no.localhost"), denied("a.localhost")]);
}

#[test]
fn silence_and_a_closed_client_are_no() {
    if !names("silence") {
        return;
    }
    let port = answering("server");
    let script = format!("print(reach('a.localhost:{port}'), reach('b.localhost:{port}'))");
    let (run, seen) = asked(listed(port), &["--query-timeout=1"], &script, |mut client| {
        let query = client.query();
        let over = client.info();
        assert_eq!(over["query_id"], query["query_id"]);
        assert_eq!(over["message"], "no answer within 1 s");
        client.query();
        drop(client.seen.split_off(0));
    });
    let () = seen;
    assert_eq!(run.lines, ["104 104"], "{run:?}");
    // Closed at once: nothing is asked, and denials are what they are without a client.
    let (run, ()) = asked(listed(port), &[], &script, drop);
    assert_eq!(run.lines, ["104 104"], "{run:?}");
    assert_eq!(run.stderr.matches("NETWORK_DENIED").count(), 2, "{run:?}");
}

#[test]
fn a_question_is_over_when_its_caller_is_gone() {
    if !names("callers that go") {
        return;
    }
    let port = answering("server");
    for by in ["None", "'connect'", "'socks'"] {
        // Ended while it waits, after the question was seen: it reads what the client lets through.
        let script = format!(
            "pid = os.fork()
if pid == 0:
    reach('a.localhost:{port}', {by}); os._exit(0)
print(reach('b.localhost:{port}'), flush=True)
os.kill(pid, 9); os.waitpid(pid, 0)
print(reach('c.localhost:{port}'))"
        );
        let (run, ()) = asked(listed(port), &[], &script, |mut client| {
            let mut asked = [client.query(), client.query()];
            if asked[0]["target"] != format!("a.localhost:{port}") {
                asked.reverse();
            }
            let [first, second] = asked;
            client.answer(&second, "allow");
            let over = client.info();
            assert_eq!(over["query_id"], first["query_id"], "{by}: {over}");
            assert_eq!(over["message"], "the caller no longer waits", "{by}");
            // An answer comes too late, and is told to be none.
            client.answer(&first, "allow");
            assert_eq!(client.answer_all("allow").len(), 1, "{by}");
        });
        assert_eq!(run.lines, ["server", "server"], "{by}: {run:?}");
    }
}

/// Addresses are asked about at connect(2), as without lists of hosts, and led to the proxy after a "yes".
#[test]
fn an_address_that_an_answer_opens_is_reached() {
    if !have("addresses", &[PYTHON]) {
        return;
    }
    let (port, other) = (answering("server"), answering("server"));
    let script = format!(
        "print(reach('127.0.0.1:{port}'), reach('127.0.0.1:{other}'), reach('127.0.0.1:{port}', 'connect'))
s = socket.socket()
for own in ('127.0.0.1', 0), ('203.0.113.7', 0):
    try: print(s.bind(own))
    except OSError as e: print(e.errno)"
    );
    let run = || {
        let network = json!({"allowedDomains": ["listed.example"]});
        asked(network, &[], &script, |mut client| {
            let first = client.query();
            assert_eq!(first["target"], format!("127.0.0.1:{port}"));
            assert_eq!(
                first["suggested_grant"],
                json!({"allowedDomains": format!("127.0.0.1:{port}")})
            );
            // The proxy keeps to it, too.
            client.answer_for_the_run(&first, "allow");
            let second = client.query();
            client.answer(&second, "deny");
            let bind = client.query();
            assert_eq!(bind["operation"], "bind");
            client.answer(&bind, "allow");
            client.answer_all("deny")
        })
    };
    let (run_, asked) = run();
    assert_eq!(run_.lines[..2], ["server 13 server", "None"], "{run_:?}");
    assert_eq!(run_.lines[2], "13", "{run_:?}");
    if have("the namespace", &["netns"]) {
        assert!(asked.is_empty(), "an address that it does not have: {asked:?}");
    }
    let (run_, _) = without_namespaces(run);
    assert_eq!(run_.lines[..2], ["server 13 server", "None"], "{run_:?}");
}

/// Nothing is asked of anybody about a name before the answer, and at most so many are asked about at once.
#[test]
fn questions_about_hosts_are_bounded() {
    if !names("many questions") {
        return;
    }
    let port = answering("server");
    let script = format!(
        "ss = []
# What found no room is reset, before it is known to be connected or after; the last of them is.
for i in range(300):
    try: last = socket.create_connection(('h%d.localhost' % i, {port}), 60); ss.append(last)
    except OSError as e: last = e.errno
if last == ss[-1]:
    try: last = last.recv(1)
    except OSError as e: last = e.errno
print([last])
for s in ss: s.close()"
    );
    let (run, asked) = asked(listed(port), &[], &script, |mut client| {
        let asked: Vec<Value> = (0..256).map(|_| client.query()).collect();
        // The rest of the records until the end: none is a query any more.
        (asked.len(), client.answer_all("deny").len())
    });
    assert_eq!(asked, (256, 0));
    assert_eq!(run.lines, ["[104]"], "{run:?}");
}
