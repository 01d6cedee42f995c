//! Calls that are held for an answer, or wait after one: signals, FIFOs, leases.
#![cfg(target_os = "linux")]

mod support;

use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::io::Read;
use std::time::{Duration, Instant};
use support::Bed;
use support::client::{go, writer};
use support::have::have;

fn allow_in() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

fn fifo(name: &str) -> String {
    format!("mknodat AT_FDCWD \"{name} S_IFIFO|0644 0")
}

/// The reading end of a FIFO, there before anybody writes.
fn reader(bed: &Bed, name: &str) -> std::fs::File {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(bed.fill(name), flags, Mode::empty()).expect("the FIFO");
    rustix::fs::fcntl_setfl(&fd, OFlags::RDONLY).expect("to wait");
    fd.into()
}

/// A timer that fires all the time: the handler runs while the question is out, the question stays the
/// same, and its answer counts. The call is done once: a second one would find the directory.
#[test]
fn a_fast_timer_does_not_starve_a_question() {
    let call = "mkdirat AT_FDCWD $p 0755";
    let retried = format!("retry {call}");
    for (mode, call) in
        [("restart", call), ("norestart", &retried), ("posix", call), ("posix-thread", call)]
    {
        let bed = Bed::new(&[&fifo("{in}/ticks")]);
        let mut ticks = reader(&bed, "{in}/ticks");
        let timer = format!("timer 300 {mode} $w");
        let open = "w=openat AT_FDCWD \"{in}/ticks O_WRONLY 0";
        let ops = ["p=hold \"{out}/d", open, &timer, call, "timer 0", "ticked"];
        let (run, others) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
            let query = client.query();
            // As many times the call was given back, and came again, at least.
            ticks.read_exact(&mut [0; 8]).expect("ticks");
            client.answer(&query, "allow");
            let others = client.answer_all("deny");
            let over = client.seen.iter().filter(|r| r["query_id"] == query["query_id"]).count();
            assert_eq!(over, 1, "nothing was withdrawn: {:?}", client.seen);
            others
        });
        assert_eq!(run.lines[3..], ["ok", "ok", "ok yes"], "{mode}: {}", run.stderr);
        assert!(others.is_empty(), "{mode}: asked again: {others:?}");
    }
}

/// The same for a call with two questions: what was allowed first stays allowed.
#[test]
fn a_fast_timer_does_not_undo_the_first_of_two_answers() {
    let setup = [&*fifo("{in}/ticks"), "put {out}/f text"];
    let bed = Bed::new(&setup);
    let mut ticks = reader(&bed, "{in}/ticks");
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyRead": ["{out}"]}});
    let ops = [
        "w=openat AT_FDCWD \"{in}/ticks O_WRONLY 0",
        "timer 300 restart $w",
        "openat AT_FDCWD \"{out}/f O_RDWR 0",
        "timer 0",
    ];
    let (run, ()) = bed.asked_probe(&policy, &[], &ops, |mut client| {
        for operation in ["read", "write"] {
            let query = client.query();
            assert_eq!(query["operation"], operation);
            ticks.read_exact(&mut [0; 4]).expect("ticks");
            client.answer(&query, "allow");
        }
        assert!(client.answer_all("deny").is_empty(), "asked once each");
    });
    assert!(run.lines[2].starts_with("ok"), "{run:?}");
}

#[test]
fn a_call_that_does_not_come_again_is_no_question_any_more() {
    let bed = Bed::new(&[&fifo("{in}/go")]);
    let call = "mkdirat AT_FDCWD \"{out}/d 0755";
    let ops = ["timer 100000 norestart", call, "timer 0", "cat {in}/go", call];
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let first = client.query();
        let over = client.info();
        assert_eq!(over["query_id"], first["query_id"]);
        assert_eq!(over["message"], "the caller no longer waits");
        client.answer(&first, "allow");
        go(&bed, "{in}/go");
        let second = client.query();
        assert_ne!(second["query_id"], first["query_id"]);
        client.answer(&second, "deny");
        client.answer_all("deny");
    });
    assert_eq!(run.lines[1], "EINTR");
    assert_eq!(run.lines[4], "EACCES");
}

/// Of a program that cares for its children, and of one that does not.
#[test]
fn a_child_that_ends_does_not_end_the_question() {
    if !have("traps of bash", &["cmd:bash"]) {
        return;
    }
    for trap in ["trap 'echo child' CHLD;", "trap '' CHLD;", ""] {
        let bed = Bed::new(&[&fifo("{in}/go")]);
        let script = format!("{trap} cat < {{in}}/go >/dev/null & mkdir {{out}}/d && echo made");
        let script = script.replace("mkdir {out}/d", "echo x > {out}/d");
        let program = ["/bin/bash", "-c", &script];
        let (run, others) = bed.asked(&allow_in(), &[], &program, |mut client| {
            let query = client.query();
            go(&bed, "{in}/go");
            let pid = query["process"]["pid"].to_string();
            // Until the child is gone, waited for or not.
            let until = Instant::now() + support::PATIENCE;
            while children(&pid) > 0 {
                assert!(Instant::now() < until, "the child ends");
                std::thread::yield_now();
            }
            client.answer(&query, "allow");
            client.answer_all("deny")
        });
        assert!(run.lines.iter().any(|line| line == "made"), "{trap}: {run:?}");
        assert!(others.is_empty(), "{trap}: {others:?}");
    }
}

/// Children of a process that still run.
fn children(pid: &str) -> usize {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    let runs = |child: &&str| {
        std::fs::read_to_string(format!("/proc/{child}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    list.split_whitespace().filter(runs).count()
}

/// More allowed opens wait for the other end of a FIFO than there are threads for answered calls.
#[test]
fn fifos_without_another_end_do_not_hold_up_other_answers() {
    const MANY: usize = 70;
    const WAIT: usize = 48;
    let fifos: Vec<String> = (0..MANY).map(|n| fifo(&format!("{{out}}/p{n}"))).collect();
    let fifos: Vec<&str> = fifos.iter().map(String::as_str).collect();
    let bed = Bed::new(&fifos);
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyRead": ["{out}"]}});
    let open = format!("bg all threads {MANY} 1 openat AT_FDCWD \"{{out}}/p{{t}} O_RDONLY 0");
    let ops = [open.as_str(), "put {out}/other x", "join all"];
    let (run, ()) = bed.asked_probe(&policy, &[], &ops, |mut client| {
        let queries: Vec<Value> = (0..=MANY).map(|_| client.query()).collect();
        let (other, fifos): (Vec<_>, Vec<_>) =
            queries.iter().partition(|q| q["path"] == bed.fill("{out}/other"));
        fifos.iter().for_each(|query| client.answer(query, "allow"));
        client.answer(other[0], "allow");
        let until = Instant::now() + support::PATIENCE;
        while std::fs::read(bed.fill("{out}/other")).ok().as_deref() != Some(b"x") {
            assert!(Instant::now() < until, "the other answer counts");
            std::thread::yield_now();
        }
        // All but those that may wait have ended: what is left are they, and two that wait for them.
        let caller = other[0]["process"]["pid"].as_u64().expect("a caller");
        let threads =
            || std::fs::read_dir(format!("/proc/{caller}/task")).map_or(0, Iterator::count);
        while threads() > WAIT + 2 {
            assert!(Instant::now() < until, "the rest is refused: {}", threads());
            std::thread::yield_now();
        }
        // Each that waits gets its other end.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        let open = |n: &usize| {
            let name = bed.fill(&format!("{{out}}/p{n}"));
            rustix::fs::open(name, flags, Mode::empty()).is_ok()
        };
        while (0..MANY).filter(open).count() < WAIT {
            assert!(Instant::now() < until, "so many wait");
            std::thread::yield_now();
        }
        client.answer_all("deny");
    });
    let count = |word: &str| -> usize {
        let counts = run.lines[2].split(&[' ', '*'][..]).collect::<Vec<_>>();
        let at = counts.iter().rposition(|part| *part == word).expect("a count");
        counts[at + 1].parse().expect("a number")
    };
    assert!(run.lines[1] == "ok" && count("ok") == WAIT, "{run:?}");
    assert_eq!(count("ENFILE"), MANY - WAIT, "{run:?}");
}

/// An allowed call that waits takes signals, and is not asked about again.
#[test]
fn an_allowed_call_that_waits_is_interrupted() {
    for (mode, result) in [("norestart", "EINTR"), ("restart", "ok")] {
        let bed = Bed::new(&[&fifo("{in}/ticks"), &fifo("{out}/p")]);
        let mut ticks = reader(&bed, "{in}/ticks");
        let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyRead": ["{out}"]}});
        let timer = format!("timer 20000 {mode} $w");
        let call = "openat AT_FDCWD \"{out}/p O_RDONLY 0";
        let ops = ["w=openat AT_FDCWD \"{in}/ticks O_WRONLY 0", &timer, call, "timer 0"];
        let (run, ()) = bed.asked_probe(&policy, &[], &ops, |mut client| {
            let query = client.query();
            client.answer(&query, "allow");
            let seen = if mode == "restart" { 8 } else { 1 };
            ticks.read_exact(&mut vec![0; seen]).expect("ticks");
            // Kept open: a tick may come between two times that the call waits.
            let _writer = (mode == "restart").then(|| writer(&bed, "{out}/p"));
            assert!(client.answer_all("deny").is_empty(), "{mode}: asked again");
        });
        assert_eq!(run.lines[2..], [result, "ok"], "{mode}");
    }
}

/// A signal to a process of several threads, one of which waits for an answer: the handler runs in that
/// thread, and asks for a restart, which it gets.
#[test]
fn a_signal_of_the_process_restarts_the_call_of_its_first_thread() {
    let bed = Bed::new(&[&fifo("{in}/ticks"), &fifo("{in}/go")]);
    let mut ticks = reader(&bed, "{in}/ticks");
    let ops = [
        "w=openat AT_FDCWD \"{in}/ticks O_WRONLY 0",
        "bg other cat {in}/go",
        "timer 1000 restart $w",
        "mkdirat AT_FDCWD \"{out}/d 0755",
        "timer 0",
        "join other",
    ];
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let query = client.query();
        ticks.read_exact(&mut [0; 4]).expect("ticks");
        client.answer(&query, "allow");
        go(&bed, "{in}/go");
        assert!(client.answer_all("deny").is_empty(), "asked again");
    });
    assert_eq!(run.lines[3..], ["ok", "ok", "ok go\\n"]);
}

/// Where any of several threads that wait may take a signal to the process, one does, and only its call ends as
/// its handler wants.
#[test]
fn a_signal_of_the_process_is_for_one_of_the_threads_that_wait() {
    for (mode, results) in [("restart", ["ok", "ok"]), ("norestart", ["EINTR", "ok"])] {
        let bed = Bed::new(&[&fifo("{in}/ticks"), &fifo("{in}/go")]);
        let mut ticks = reader(&bed, "{in}/ticks");
        let handle = format!("timer 0 {mode} $w");
        let ops = [
            "w=openat AT_FDCWD \"{in}/ticks O_WRONLY 0",
            &handle,
            "bg a mkdirat AT_FDCWD \"{out}/a 0755",
            "bg b mkdirat AT_FDCWD \"{out}/b 0755",
            // SIG_BLOCK, and of the set the bit of SIGALRM: the first thread does not take it.
            "rt_sigprocmask 0 i:8192 0 8",
            "cat {in}/go",
            "kill $pid 14",
            "join a",
            "join b",
        ];
        let (run, others) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
            let queries = [client.query(), client.query()];
            go(&bed, "{in}/go");
            ticks.read_exact(&mut [0]).expect("a tick");
            queries.iter().for_each(|query| client.answer(query, "allow"));
            client.answer_all("deny")
        });
        assert!(others.is_empty(), "{mode}: asked again: {others:?}");
        let mut ended = [&run.lines[7], &run.lines[8]];
        ended.sort();
        assert_eq!(ended, results, "{mode}: {run:?}");
    }
}

/// Leases are broken by opens, which wait until their holder lets go: 45 seconds by default. Opens of
/// others go on meanwhile, and so do opens that are over in no time.
#[test]
fn leases_hold_up_nobody_else() {
    if !have("leases", &["leases"]) {
        return;
    }
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.env"]}});
    for (many, waiting) in [(64, 64), (150, 96)] {
        let bed = Bed::new(&[]);
        // The signal that a lease breaks would end the process; SIGURG does nothing.
        let lease = "do put {in}/l{i} x ; d=openat AT_FDCWD \"{in}/l{i} O_RDONLY 0 ; \
                     fcntl $d F_SETSIG 23 ; fcntl $d F_SETLEASE F_WRLCK";
        let lease = format!("loop {many} {lease}");
        let open = format!("bg all threads {many} 1 openat AT_FDCWD \"{{in}}/l{{t}} O_RDWR 0");
        let ops = [
            lease.as_str(),
            &open,
            "loop 300 put {in}/free{i} x",
            "mkdirat AT_FDCWD \"{in}/done 0755",
            "close_range 3 2000 0",
            "join all",
        ];
        let start = Instant::now();
        let run = bed.boxed(&policy, &ops);
        let took = start.elapsed();
        assert!(run.lines[0].starts_with("ok ok*"), "{run:?}");
        assert_eq!(run.lines[2], "ok ok*300", "{run:?}");
        let opened = match many - waiting {
            0 => format!("ok ok*{waiting}"),
            over => format!("ok ENFILE*{over} ok*{waiting}"),
        };
        assert_eq!(run.lines[5], opened, "{run:?}");
        assert!(took < Duration::from_secs(40), "{many}: {took:?}");
    }
}
