//! How a run looks from outside: exit status, signals, descriptors, environment, its end.
#![cfg(target_os = "linux")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::Instant;
use support::have::have;
use support::{ACCEPT, Bed, LANDSTRIP, PATIENCE, ends, probe, wait};

fn policy() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

fn sh(bed: &Bed, script: &str) -> support::Run {
    bed.launch(&policy(), &[], &["/bin/sh", "-c", script])
}

#[test]
fn the_exit_status_is_the_programs() {
    let bed = Bed::new(&[
        "put {in}/plain text",
        "put {in}/script echo hi",
        "fchmodat AT_FDCWD \"{in}/script 0755 0",
    ]);
    for (program, want) in [
        (&["/bin/true"][..], 0),
        (&["/bin/false"], 1),
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "ulimit -c 0; kill -SEGV $$"], 139),
        (&["no-such-program"], 127),
        (&["/no/such/program"], 127),
        (&["./plain"], 126),
        (&["{in}"], 126),
    ] {
        let run = bed.launch(&policy(), &[], program);
        assert_eq!(run.code, Some(want), "{program:?}: {run:?}");
    }
}

#[test]
fn a_program_that_does_not_start_is_trapped() {
    let bed = Bed::new(&["put {in}/plain text"]);
    for (program, errno) in [("/no/such/program", "ENOENT"), ("./plain", "EACCES")] {
        let run = bed.launch(&policy(), &[], &[program]);
        let trap = run.traps.iter().find(|t| t["kind"] == "launch").cloned().unwrap_or_default();
        assert_eq!(
            (&trap["code"], &trap["errno"]),
            (&json!("LAUNCH_FAILED"), &json!(errno)),
            "{run:?}"
        );
        assert!(run.stderr.contains("LAUNCH_FAILED"), "{run:?}");
    }
}

#[test]
fn failures_of_ours_have_their_own_status() {
    let bed = Bed::new(&[]);
    let missing = bed.launch(&policy(), &["--cwd=/no/such/directory"], &["/bin/true"]);
    // A directory that is not there is a mistake on the command line.
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("/no/such/directory"), "{missing:?}");
    let bad =
        bed.launch(&json!({"filesystem": {"allowRight": []}}), &[], &["/bin/touch", "{in}/ran"]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(!bed.root().join("in/ran").exists(), "launched under a bad policy");
    let mut usage = bed.command(LANDSTRIP.as_ref());
    usage.args(["run", "--no-such-option"]);
    assert_eq!(support::finish(usage, &bed.root()).code, Some(2));
}

#[test]
fn a_script_without_an_interpreter_line_runs_as_the_shell_would_run_it() {
    let bed = Bed::new(&["put {in}/script echo hi", "fchmodat AT_FDCWD \"{in}/script 0755 0"]);
    let run = bed.launch(&policy(), &[], &["./script"]);
    assert_eq!((run.code, run.lines), (Some(0), vec!["hi".to_owned()]), "{}", run.stderr);
}

#[test]
fn streams_pass_untouched() {
    let bed = Bed::new(&[]);
    let mut command = bed.sandboxed(&policy(), &[], &["/bin/sh", "-c", "cat; echo err >&2"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("spawn");
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut input = child.stdin.take().expect("piped");
    let text = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&text).is_ok());
    let output = child.wait_with_output().expect("output");
    assert!(writer.join().expect("writer"));
    assert!(output.stdout == bytes, "standard output changed");
    assert_eq!(output.stderr, b"err\n");
}

#[test]
fn descriptors_are_closed_but_those_that_are_asked_for() {
    let bed = Bed::new(&["put {root}/file text"]);
    let program = probe().display().to_string();
    let open = ["7<{root}/file", "9<{root}/file"];
    let run = bed.launch(&policy(), &open, &[&program, "fds"]);
    assert_eq!(run.lines, ["ok 0,1,2"], "{}", run.stderr);
    let run = bed.launch(
        &policy(),
        &[&open[..], &["--inherit=7"]].concat(),
        &[&program, "fds", "f=set 7", "text $f"],
    );
    assert_eq!(run.lines, ["ok 0,1,2,7", "ok", "ok text"], "{}", run.stderr);
}

#[test]
fn closed_standard_streams_do_no_harm() {
    let bed = Bed::new(&[]);
    for closed in [&["0-"][..], &["1-"], &["2-"], &["0-", "1-", "2-"]] {
        let run = bed.launch(
            &policy(),
            closed,
            &["/bin/sh", "-c", "touch {in}/ran; touch {out}/no; exit 5"],
        );
        assert_eq!(run.code, Some(5), "{closed:?}: {run:?}");
        assert!(bed.root().join("in/ran").exists() && !bed.root().join("out/no").exists());
    }
}

#[test]
fn the_temporary_directory_is_private_and_goes() {
    let bed = Bed::new(&[]);
    let run = sh(
        &bed,
        "touch $TMPDIR/x && stat -c %a $TMPDIR && echo $TMPDIR; mktemp -d >/dev/null && echo made",
    );
    assert_eq!(run.lines.len(), 3, "{run:?}");
    assert_eq!((run.lines[0].as_str(), run.lines[2].as_str()), ("700", "made"), "{run:?}");
    assert!(!std::path::Path::new(&run.lines[1]).exists(), "{} is left", run.lines[1]);
    let other = sh(&bed, "echo $TMPDIR");
    assert_ne!(run.lines[1], other.lines[0], "two runs share a directory");
}

#[test]
fn the_environment_passes() {
    let bed = Bed::new(&[]);
    let mut command = bed.sandboxed(&policy(), &[], &["/usr/bin/env"]);
    command.env("LANDSTRIP_TEST_VALUE", "a b=c").env_remove("TERM");
    let run = support::finish(command, &bed.root());
    assert!(run.lines.contains(&"LANDSTRIP_TEST_VALUE=a b=c".to_owned()), "{run:?}");
    assert!(!run.lines.iter().any(|l| l.starts_with("TERM=")), "{run:?}");
    let bare = bed.command("/usr/bin/env".as_ref());
    let count = support::finish(bare, &bed.root()).lines.len();
    assert!(run.lines.len() <= count + 3, "more than TMPDIR was added: {run:?}");
}

/// A run whose program says `ready` on standard output.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(bed: &Bed, options: &[&str], script: &str) -> Running {
        let mut command = bed.sandboxed(&policy(), options, &["/bin/sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        kill_process(pid, signal).expect("kill");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this process, and so what it starts, ignores the signal (under nohup(1), for one).
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("SigIgn");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    mask >> (signal.as_raw() - 1) & 1 != 0
}

#[test]
fn signals_reach_the_program() {
    let bed = Bed::new(&[]);
    for (name, signal) in [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("WINCH", Signal::WINCH),
        ("CONT", Signal::CONT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ] {
        if is_ignored(signal) {
            eprintln!("skipped: {name} is ignored here, which a shell cannot undo");
            continue;
        }
        let script =
            format!("trap 'echo got; kill $p; exit 9' {name}; sleep 60 & p=$!; echo ready; wait");
        let mut run = Running::start(&bed, &[], &script);
        assert_eq!(run.line(), "ready", "{name}");
        run.signal(signal);
        assert_eq!(run.line(), "got", "{name}");
        let status = wait(&mut run.child, PATIENCE).expect("an end");
        assert_eq!(status.code(), Some(9), "{name}");
    }
}

#[test]
fn a_program_that_a_forwarded_signal_ends_gives_its_status() {
    let bed = Bed::new(&[]);
    let mut run = Running::start(&bed, &[], "echo ready; exec sleep 60");
    assert_eq!(run.line(), "ready");
    run.signal(Signal::TERM);
    let status = wait(&mut run.child, PATIENCE).expect("an end");
    assert_eq!(status.code(), Some(143), "{status:?}");
}

/// The launcher stops with the program, and one signal to it alone continues both.
#[test]
fn a_run_that_stopped_goes_on() {
    use rustix::process::{WaitOptions, waitpid};
    let bed = Bed::new(&[]);
    let mut run = Running::start(&bed, &[], "echo ready; kill -STOP $$; echo on; exit 3");
    assert_eq!(run.line(), "ready");
    let pid = Pid::from_raw(run.child.id().cast_signed());
    let (_, status) = waitpid(pid, WaitOptions::UNTRACED).expect("waitpid").expect("a change");
    assert!(status.stopped(), "{status:?}");
    run.signal(Signal::CONT);
    assert_eq!(run.line(), "on");
    assert_eq!(wait(&mut run.child, PATIENCE).and_then(|s| s.code()), Some(3));
}

/// What the program started continues it, while nobody outside knows that it stopped; and before that it needs the
/// broker, which is stopped, too.
#[test]
fn a_program_that_its_own_child_continues_goes_on() {
    use rustix::process::{WaitOptions, waitpid};
    let bed = Bed::new(&[]);
    for child in [
        // Calls before, in, and after the moment of the stop.
        "until grep -q '^State:.T' /proc/$$/status; do : > made; done; : > made; kill -CONT $$",
        "until grep -q '^State:.T' /proc/$$/status; do :; done; : > made; kill -CONT $$",
        // Once every thread of the launcher has stopped.
        "while grep -q '^State:.[^T]' /proc/$PPID/task/*/status; do :; done; : > made; \
            kill -CONT $$",
        "exec sh -c 'while [ -e /proc/$0 ]; do kill -CONT $0; done' $$",
    ] {
        let script = format!("({child}) & echo ready; kill -STOP $$; echo on; exit 3");
        let mut run = Running::start(&bed, &[], &script);
        assert_eq!(run.line(), "ready");
        assert_eq!(run.line(), "on");
        assert_eq!(wait(&mut run.child, PATIENCE).and_then(|s| s.code()), Some(3));
    }
    // Stopped for good, it stays so, and the launcher with it.
    let mut run = Running::start(&bed, &[], "echo ready; kill -STOP $$; echo on");
    assert_eq!(run.line(), "ready");
    let pid = Pid::from_raw(run.child.id().cast_signed());
    let (_, status) = waitpid(pid, WaitOptions::UNTRACED).expect("waitpid").expect("a change");
    assert!(status.stopped(), "{status:?}");
    let (_, status) =
        waitpid(pid, WaitOptions::UNTRACED | WaitOptions::NOHANG | WaitOptions::CONTINUED)
            .expect("waitpid")
            .unzip();
    assert!(status.is_none(), "{status:?}");
    run.signal(Signal::CONT);
    assert_eq!(run.line(), "on");
    assert!(wait(&mut run.child, PATIENCE).is_some());
}

/// Children in every relation: plain, in a session of its own, orphaned twice, ignoring signals.
const FAMILY: &str = "sleep 1000 & echo $!; setsid sleep 1001 & echo $!; \
    (setsid sh -c 'sleep 1002 & echo $!' &); (trap '' TERM HUP INT; sleep 1003 & echo $!); ";

fn family(run: &mut Running) -> Vec<u32> {
    (0..4).map(|_| run.line().parse().expect("a pid")).collect()
}

#[test]
fn descendants_end_with_the_program() {
    let bed = Bed::new(&[]);
    let mut run = Running::start(&bed, &[], &format!("{FAMILY} read go; exit 4"));
    let pids = family(&mut run);
    drop(run.child.stdin.take());
    let status = wait(&mut run.child, PATIENCE).expect("an end");
    assert_eq!(status.code(), Some(4));
    for pid in pids {
        assert!(ends(pid, PATIENCE), "{pid} lives on");
    }
}

#[test]
fn descendants_end_with_the_launcher() {
    let bed = Bed::new(&[]);
    for signal in [Signal::KILL, Signal::TERM, Signal::SEGV, Signal::ABORT] {
        let mut run = Running::start(&bed, &[], &format!("{FAMILY} exec sleep 1004"));
        let pids = family(&mut run);
        run.signal(signal);
        wait(&mut run.child, PATIENCE)
            .unwrap_or_else(|| panic!("the launcher survives {signal:?}"));
        for pid in pids {
            assert!(ends(pid, PATIENCE), "{pid} survives {signal:?}");
        }
    }
}

#[test]
fn the_temporary_directory_goes_when_anybody_is_killed() {
    let bed = Bed::new(&[]);
    let full = "mkdir -p $TMPDIR/a/b $TMPDIR/c; echo x > $TMPDIR/a/b/f; chmod 0 $TMPDIR/c";
    for (signal, before) in
        [(Signal::TERM, "true"), (Signal::TERM, full), (Signal::KILL, "true"), (Signal::KILL, full)]
    {
        let script = format!("{before}; echo $TMPDIR; exec sleep 60");
        let mut run = Running::start(&bed, &[], &script);
        let path = run.line();
        assert!(std::path::Path::new(&path).exists(), "{path} is not there");
        // Killed, the launcher leaves that to its watcher.
        let launcher = run.child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
        run.signal(signal);
        wait(&mut run.child, PATIENCE).expect("an end");
        for pid in children.expect("the launcher's children").split_whitespace() {
            assert!(ends(pid.parse().expect("a pid"), PATIENCE), "{pid} lives on");
        }
        let left = std::path::Path::new(&path).exists();
        assert!(!left, "{path} is left by {signal:?} after {before}");
    }
}

#[test]
fn denials_are_reported_in_their_shape() {
    let bed = Bed::new(&[]);
    let run = sh(&bed, "echo x > {out}/file");
    let trap = run.traps.first().cloned().unwrap_or_default();
    let want = json!({
        "kind": "filesystem", "code": "FILESYSTEM_DENIED", "state": "info", "query_id": "0", "operation": "write",
        "path": bed.fill("{out}/file"), "requested_path": bed.fill("{out}/file"), "syscall": "openat", "errno": "EACCES",
        "reason": "allow_miss", "suggested_grant": {"allowWrite": bed.fill("{out}/file")}, "mechanism": "seccomp",
    });
    for (key, value) in want.as_object().expect("an object") {
        assert_eq!(&trap[key], value, "{key} of {trap}");
    }
    assert_eq!(trap["process"]["cwd"], json!(bed.fill("{in}")), "{trap}");
    assert!(trap["flags"].as_array().is_some_and(|f| f.contains(&json!("O_CREAT"))), "{trap}");
    // The same at the end of the run, on standard error.
    let last = run.stderr.lines().last().and_then(|l| serde_json::from_str::<Value>(l).ok());
    assert_eq!(last.unwrap_or_default()["path"], want["path"], "{}", run.stderr);
}

#[test]
fn denials_are_not_summed_up_when_nobody_wants_that() {
    let bed = Bed::new(&[]);
    let script = ["/bin/sh", "-c", "echo x > {out}/file"];
    for (options, want) in [(&[][..], true), (&["--quiet"], false)] {
        let run = bed.launch(&policy(), options, &script);
        assert_eq!(run.traps.len(), 1, "{run:?}");
        assert_eq!(run.stderr.contains("FILESYSTEM_DENIED"), want, "{run:?}");
    }
}

#[test]
fn a_limit_of_the_launcher_is_not_the_programs() {
    if !support::have::have("limits", &["cmd:python3"]) {
        return;
    }
    let bed = Bed::new(&["put {in}/file x"]);
    let script = "import os, resource as r\n\
        r.setrlimit(r.RLIMIT_FSIZE, (r.getrlimit(r.RLIMIT_FSIZE)[1],) * 2)\n\
        os.truncate('file', 1 << 20)\nprint(os.path.getsize('file'))";
    let run = bed.launch(&policy(), &["rlimit=RLIMIT_FSIZE:1000"], &["python3", "-c", script]);
    assert_eq!((run.code, run.last()), (Some(0), "1048576"), "{run:?}");
}

/// Short of memory, the kernel takes the program and not the launcher.
#[test]
fn the_program_is_taken_before_the_launcher() {
    let bed = Bed::new(&[]);
    let mut run = Running::start(&bed, &[], "echo $$; exec sleep 60");
    let program = run.line();
    let score = |pid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a score");
        text.trim().parse::<i32>().expect("a number")
    };
    let own = score("self");
    assert_eq!(score(&program), (own + 300).min(1000));
    // The launcher takes its own back once the program has started, which may be after its first line.
    let launcher = run.child.id().to_string();
    let end = Instant::now() + PATIENCE;
    while score(&launcher) != own && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(score(&launcher), own);
}

#[test]
fn shared_memory_that_could_not_be_removed_goes_with_the_run() {
    let bed = Bed::new(&[]);
    let script = "f=/dev/shm/landstrip-test-$$; echo x > $f; rm $f/ 2> /dev/null; ls $f";
    let run = sh(&bed, script);
    let path = run.last();
    assert!(path.starts_with("/dev/shm/"), "{run:?}");
    assert!(!std::path::Path::new(path).exists(), "{path} is left");
}

#[test]
fn a_refused_connection_names_the_line_that_closes_the_network() {
    let bed = Bed::new(&[]);
    for (network, reason, key) in [
        (json!({"allowNetwork": false}), "deny_match", json!("network.allowNetwork")),
        (json!({}), "allow_miss", Value::Null),
    ] {
        let run = bed.boxed(
            &json!({"network": network}),
            &["s=socket AF_INET SOCK_STREAM 0", "connect $s in:127.0.0.1:9 #"],
        );
        let trap = run.traps.iter().find(|trap| trap["kind"] == "network").expect("a trap");
        assert_eq!((&trap["reason"], &trap["rule"]["key"]), (&json!(reason), &key), "{trap}");
        assert_eq!(trap["target"], "127.0.0.1:9", "{trap}");
    }
}

#[test]
fn a_deny_rule_is_named() {
    let bed = Bed::new(&["put {in}/.env x"]);
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.env"]}});
    let run = bed.launch(&policy, &[], &["/bin/sh", "-c", "echo x > .env"]);
    let trap = run.traps.first().cloned().unwrap_or_default();
    assert_eq!(trap["reason"], json!("deny_match"), "{run:?}");
    assert!(trap["rule"].to_string().contains("**/.env"), "{trap}");
}

#[test]
fn an_allowed_run_is_quiet() {
    let bed = Bed::new(&[]);
    let run = sh(
        &bed,
        "echo x > {in}/file; cat {in}/file; ls / > /dev/null; mkdir -p {in}/a/b; mkdir -p {root}; cat {in}/none 2>/dev/null; exit 0",
    );
    assert_eq!((run.stderr.as_str(), run.traps.len()), ("", 0), "{run:?}");
}

#[test]
fn one_denial_is_one_record_with_a_count() {
    let bed = Bed::new(&[]);
    let run =
        bed.boxed(&policy(), &["loop 1000 openat AT_FDCWD \"{out}/file O_WRONLY|O_CREAT 0644"]);
    assert_eq!(run.lines, ["ok EACCES*1000"]);
    let records: Vec<Value> =
        run.stderr.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    assert_eq!(records.len(), 1, "{}", run.stderr);
    assert_eq!(records[0]["count"], json!(1000), "{}", run.stderr);
}

#[test]
fn many_denials_are_summed_up() {
    let bed = Bed::new(&[]);
    let run =
        bed.boxed(&policy(), &["loop 20000 openat AT_FDCWD \"{out}/file{i} O_WRONLY|O_CREAT 0644"]);
    assert_eq!(run.lines, ["ok EACCES*20000"]);
    let lines = run.stderr.lines().count();
    assert!((2..=201).contains(&lines), "{lines} lines on standard error");
    let last = run.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("19800"), "the rest is not counted: {last}");
}

/// The launcher's memory does not grow with what the program does.
#[test]
fn memory_is_bounded() {
    let bed = Bed::new(&[]);
    let program = probe().display().to_string();
    let op =
        "loop 60000 openat AT_FDCWD \"{out}/a-name-that-is-rather-long-{i} O_WRONLY|O_CREAT 0644";
    let mut command = bed.sandboxed(&policy(), &["3>/dev/null"], &[&program, op, "await"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("spawn");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), "ok EACCES*60000");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("status");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("VmHWM");
    let anonymous = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("RssAnon");
    let number = |text: &str| text.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    drop(child.stdin.take());
    wait(&mut child, PATIENCE).expect("an end");
    // A debug build maps a program of many megabytes; what it allocates is the same.
    let (peak, anonymous) = (number(peak), number(anonymous));
    assert!(anonymous <= 8192, "{anonymous} kB allocated");
    assert!(cfg!(debug_assertions) || peak <= 8192, "{peak} kB at the peak");
}

/// A server for the trap descriptor.
fn trap_server(bed: &Bed) -> std::os::unix::net::UnixListener {
    std::os::unix::net::UnixListener::bind(bed.root().join("trap.sock")).expect("bind")
}

#[test]
fn denials_stream_while_the_program_runs() {
    let bed = Bed::new(&[]);
    let server = trap_server(&bed);
    let script = "echo x > {out}/file; read go; exit 6";
    let mut run = Running::start(&bed, &["3@{root}/trap.sock", "--query-timeout=0"], script);
    let (stream, _) = server.accept().expect("accept");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("a trap before the end");
    assert!(line.contains("FILESYSTEM_DENIED"), "{line}");
    drop(run.child.stdin.take());
    assert_eq!(wait(&mut run.child, PATIENCE).and_then(|s| s.code()), Some(6));
}

#[test]
fn a_reader_of_traps_that_stalls_or_leaves_stops_nobody() {
    for leaves in [false, true] {
        let bed = Bed::new(&[]);
        let server = trap_server(&bed);
        let program = probe().display().to_string();
        let op = "loop 20000 openat AT_FDCWD \"{out}/file{i} O_WRONLY|O_CREAT 0644";
        let options = ["3@{root}/trap.sock", "--query-timeout=0"];
        let mut command = bed.sandboxed(&policy(), &options, &[&program, op]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("spawn");
        let stream = server.accept().expect("accept");
        let stream = if leaves { None } else { Some(stream) };
        let status = wait(&mut child, PATIENCE);
        if status.is_none() {
            let _ = child.kill();
        }
        let mut text = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut text).expect("output");
        assert_eq!(
            (status.and_then(|s| s.code()), text.trim()),
            (Some(0), "ok EACCES*20000"),
            "leaves: {leaves}"
        );
        drop(stream);
    }
}

#[test]
fn a_run_inside_a_run_is_held_by_both() {
    let bed = Bed::new(&["mkdirat AT_FDCWD \"{in}/sub 0755"]);
    let inner = bed.root().join("inner.json");
    std::fs::write(&inner, bed.fill(r#"{"filesystem": {"allowWrite": ["{in}/sub", "{out}"]}}"#))
        .expect("write");
    let script = "echo x > {in}/sub/yes; echo x > {in}/no; echo x > {out}/no; mkdir {in}/sub/d; mkdir {in}/nod; cat {in}/sub/yes; exit 3";
    let inner = inner.display().to_string();
    let run = bed.launch(
        &policy(),
        &[],
        &[LANDSTRIP, "run", ACCEPT, "-p", &inner, "--", "/bin/sh", "-c", script],
    );
    assert_eq!(
        (run.code, run.lines.as_slice()),
        (Some(3), &["x".to_owned()][..]),
        "{}",
        run.stderr
    );
    let there = |name: &str| bed.root().join(name).exists();
    assert!(there("in/sub/yes") && there("in/sub/d"), "{}", run.stderr);
    assert!(!there("in/no") && !there("in/nod") && !there("out/no"), "{}", run.stderr);
}

/// One call that does not come back stops no other.
#[test]
fn stuck_calls_stop_nobody() {
    let bed = Bed::new(&["mknodat AT_FDCWD \"{in}/p S_IFIFO|0644 0"]);
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/*.denied"]}});
    let stuck: Vec<String> =
        (0..40).map(|i| format!("bg w{i} w{i}=openat AT_FDCWD \"{{in}}/p O_WRONLY 0")).collect();
    let mut ops: Vec<&str> = stuck.iter().map(String::as_str).collect();
    ops.extend(["threads 4 200 put {in}/f{t}.{i} x", "r=openat AT_FDCWD \"{in}/p O_RDONLY 0"]);
    let joins: Vec<String> = (0..40).map(|i| format!("join w{i}")).collect();
    ops.extend(joins.iter().map(String::as_str));
    let run = bed.boxed(&policy, &ops);
    let wrong: Vec<_> =
        ops.iter().zip(&run.lines).filter(|(_, l)| **l != "ok" && **l != "ok ok*800").collect();
    assert!(wrong.is_empty() && run.lines.len() == ops.len(), "{wrong:?} {}", run.stderr);
    assert!(have("a fifo", &[]));
}
