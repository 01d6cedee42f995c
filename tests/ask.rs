//! The reference client of queries, through a pseudoterminal.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::time::Instant;
use support::have::have;
use support::pty::Terminal;
use support::{Bed, LANDSTRIP};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/harness/ask.py");

/// Whether the client can run at all.
fn can_ask() -> bool {
    have("the reference client", &["cmd:python3"])
}

/// Starts the client for a shell script under a policy that allows `{in}`.
fn start(bed: &Bed, options: &[&str], script: &str) -> Terminal {
    let policy = bed.policy(&json!({"filesystem": {"allowWrite": ["{in}"]}})).display().to_string();
    let client = ["python3", CLIENT, "--landstrip", LANDSTRIP];
    let line = [&client[..], options, &["-p", &policy, "--", "/bin/sh", "-c", script]].concat();
    Terminal::start(bed, &line)
}

const ASKS: &str = "allow? [y/a/n/v] ";

/// A question, an answer on the terminal, and what it comes to.
#[test]
fn a_person_is_asked_on_the_terminal() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let script = "for i in a b a; do echo $i > {out}/$i && echo made $i; done; \
                  echo x > {out}/d\u{1b}; echo x > {out}/d\u{1b}; \
                  exec python3 -c 'import signal as s; s.pthread_sigmask(s.SIG_BLOCK, [s.SIGINT]); \
                  print(\"ready\", flush=True); s.sigwait([s.SIGINT]); exit(7)'";
    let mut terminal = start(&bed, &[], script);
    terminal.expect("write");
    terminal.expect("/out/a (O_WRONLY, O_CREAT, O_TRUNC, mode 0666) by ");
    terminal.expect(ASKS);
    terminal.write("what\n");
    terminal.expect("this once");
    terminal.expect(ASKS);
    terminal.write("a\n");
    terminal.expect("made a");
    terminal.expect("/out/b (");
    terminal.expect(ASKS);
    terminal.write("y\n");
    terminal.expect("made b");
    // Allowed for the run.
    terminal.expect("made a");
    terminal.expect("/out/d\\x1b (");
    terminal.expect(ASKS);
    terminal.write("v\n");
    terminal.expect("/out/d\\x1b (");
    terminal.expect("ready");
    // Ctrl-C is for the program, which waits for it in a way that loses none.
    terminal.write("\x03");
    terminal.ends_with(7);
}

/// Ctrl-C while the program waits for an answer.
#[test]
fn control_c_withdraws_a_question() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let mut terminal = start(&bed, &[], "echo x > {out}/a; echo survived");
    terminal.expect(ASKS);
    terminal.write("\x03");
    terminal.ends_with(130);
    let mut terminal =
        start(&bed, &[], "trap 'echo caught; exit 8' INT; echo x > {out}/a; echo went on");
    terminal.expect(ASKS);
    terminal.write("\x03");
    terminal.expect("caught");
    terminal.ends_with(8);
}

/// Ctrl-D is "no" to one question, and no more.
#[test]
fn an_end_of_file_denies_one_question() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let script =
        "echo x > {out}/a || echo no-$((40 + 2)); echo x > {out}/b && echo yes-$((40 + 2))";
    let mut terminal = start(&bed, &[], script);
    terminal.expect("/out/a (");
    terminal.expect(ASKS);
    terminal.write("\x04");
    terminal.expect("no-42");
    terminal.expect("/out/b (");
    terminal.expect(ASKS);
    terminal.write("y\n");
    terminal.expect("yes-42");
    terminal.ends_with(0);
}

/// Nobody is left to ask: what waits is denied, and the run goes on to its end.
#[test]
fn a_terminal_that_goes_away_denies() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    // The signal of the hang-up is passed on to a program that takes none.
    let script = "trap '' HUP; echo x > {out}/a 2>/dev/null || echo x > {out}/b 2>/dev/null || \
                  echo denied > {in}/result";
    let mut terminal = start(&bed, &[], script);
    terminal.expect(ASKS);
    terminal.hang_up();
    let until = Instant::now() + support::PATIENCE;
    while std::fs::read(bed.fill("{in}/result")).ok().as_deref() != Some(b"denied\n") {
        assert!(Instant::now() < until, "both were denied");
        std::thread::yield_now();
    }
    assert!(!std::path::Path::new(&bed.fill("{out}/a")).exists());
    terminal.ends();
}

/// What cannot start says so in a line.
#[test]
fn a_run_that_does_not_start_is_no_denial() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&json!({"filesystem": {}})).display().to_string();
    let file = bed.fill("{in}/file");
    std::fs::write(&file, "").expect("write");
    for (line, code, says) in [
        (&["--landstrip", "/nonexistent", "-p", &policy, "--", "true"][..], 127, "cannot run"),
        (&["--landstrip", &file, "-p", &policy, "--", "true"], 126, "cannot run"),
        (&["--landstrip", LANDSTRIP, "-p", &policy, "--", "/nonexistent"], 127, "cannot run"),
        (&["--landstrip", LANDSTRIP, "-p", "/nonexistent", "--", "true"], 1, "/nonexistent"),
        (&["--landstrip", LANDSTRIP, "--no-such-option", "--", "true"], 2, "--no-such-option"),
        (&["--tty", "/nonexistent", "--", "true"], 2, "/nonexistent"),
        (&["--tty", "/dev/null", "--", "true"], 2, "/dev/null"),
        (&["--"], 2, "ask.py"),
        (&["--help"], 0, "ask.py"),
        (&["--tty", "/nonexistent", "-h"], 0, "ask.py"),
        (&[], 2, "ask.py"),
    ] {
        let mut terminal = Terminal::start(&bed, &[&["python3", CLIENT][..], line].concat());
        let said = terminal.rest(code);
        assert!(said.contains(says), "{line:?}: {said}");
        assert!(!said.contains("Traceback") && !said.contains("denied:"), "{line:?}: {said}");
        // By the run or by the client, and not by both.
        let told = |name: &str| said.lines().filter(|line| line.starts_with(name)).count();
        assert!(told("landstrip: ") + told("ask.py: ") <= 1, "{line:?}: {said}");
    }
}

/// A launcher that says what a file holds on the trap descriptor, and then prints what comes back, line
/// by line, until it has as many as it was told.
const FAKE: &str = r#"#!/usr/bin/env python3
import socket, sys
link = socket.socket(fileno=int(sys.argv[sys.argv.index("--trap-fd") + 1]))
path, lines = sys.argv[-2:]
link.sendall(open(path, "rb").read())
text = b""
while text.count(b"\n") < int(lines):
    chunk = link.recv(4096)
    if not chunk:
        break
    text += chunk
print("got:" + text.decode().replace("\n", ";") + ":end", flush=True)
"#;

/// The client beside such a launcher.
fn beside(bed: &Bed, records: &[u8], answers: usize) -> Terminal {
    use std::os::unix::fs::PermissionsExt;
    let (fake, said) = (bed.fill("{in}/fake"), bed.fill("{in}/said"));
    std::fs::write(&fake, FAKE).expect("write");
    std::fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).expect("chmod");
    std::fs::write(&said, records).expect("write");
    let answers = answers.to_string();
    Terminal::start(bed, &["python3", CLIENT, "--landstrip", &fake, "--", &said, &answers])
}

fn query(id: u32, path: &str, pid: u32) -> Value {
    json!({"kind": "filesystem", "state": "query", "query_id": id.to_string(), "operation": "write",
        "path": path, "process": {"pid": pid, "exe": "/bin/cc", "cwd": "/"}, "ts": id})
}

#[test]
fn callers_that_want_the_same_are_one_question() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let mut other = query(4, "/a", 13);
    other["flags"] = json!(["O_TRUNC"]);
    let over = json!({"kind": "filesystem", "state": "info", "query_id": "3", "operation": "write",
        "message": "the caller no longer waits"});
    let records = [
        query(1, "/a", 10),
        query(2, "/b", 11),
        query(3, "/a", 12),
        other,
        query(5, "/a", 14),
        over,
    ];
    let records: String = records.iter().map(|record| format!("{record}\n")).collect();
    let mut terminal = beside(&bed, records.as_bytes(), 4);
    // What is over before it is shown is not counted.
    terminal.expect("/a by cc[10] (2 callers)");
    terminal.expect(ASKS);
    terminal.write("y\n");
    terminal.expect("/b by cc[11]\r\n");
    terminal.expect(ASKS);
    terminal.write("n\n");
    terminal.expect("/a (O_TRUNC) by cc[13]\r\n");
    terminal.expect(ASKS);
    terminal.write("v\n");
    terminal.expect("got:{\"query_id\": \"1\", \"action\": \"allow\"};{\"query_id\": \"5\", \"action\": \"allow\"};");
    terminal.expect("{\"query_id\": \"2\", \"action\": \"deny\"};");
    terminal.expect("{\"query_id\": \"4\", \"action\": \"deny\", \"scope\": \"run\"};:end");
    terminal.ends_with(0);
}

/// Records of every kind, and what is none.
#[test]
fn no_record_is_too_odd() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let mut records = b"\n{}\n[]\nnonsense\n{\"kind\": 7}\n\xff\xfe\n".to_vec();
    for record in [
        json!({"kind": "limit", "message": "the run ran out of memory\u{1b}[2J"}),
        json!({"kind": "control", "message": "not JSON"}),
        json!({"kind": "network", "state": "info", "query_id": "0", "operation": "connect", "target": "1.2.3.4:5"}),
        json!({"kind": "filesystem", "state": "query", "query_id": "1"}),
    ] {
        records.extend(format!("{record}\n").bytes());
    }
    records.extend(b"{\"half");
    let mut terminal = beside(&bed, &records, 1);
    terminal.expect("landstrip: the run ran out of memory\\x1b[2J");
    terminal.expect("landstrip: an answer was ignored: not JSON");
    terminal.expect("landstrip: denied: connect 1.2.3.4:5");
    terminal.expect(ASKS);
    terminal.write("y\n");
    terminal.expect("got:{\"query_id\": \"1\", \"action\": \"allow\"};:end");
    let rest = terminal.rest(0);
    assert!(!rest.contains("Traceback"), "{rest}");
}

/// Whoever ends the client ends the run.
#[test]
fn an_ended_client_ends_its_run() {
    if !can_ask() {
        return;
    }
    let bed = Bed::new(&[]);
    let script =
        "trap 'echo ended > {in}/result; exit 9' TERM; echo ready; while :; do sleep 1; done";
    let mut terminal = start(&bed, &[], script);
    terminal.expect("ready");
    terminal.signal(rustix::process::Signal::TERM);
    terminal.ends_with(9);
    assert_eq!(std::fs::read(bed.fill("{in}/result")).ok().as_deref(), Some(&b"ended\n"[..]));
}
