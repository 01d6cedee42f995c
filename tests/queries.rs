//! Queries: a denial is held until the other end of the trap descriptor answers.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::client::{Client, go};
use support::have::have;
use support::mutations::{MUTATIONS, SETUP};
use support::tree::{Detail, difference, tree};
use support::{Bed, Run};

fn allow_in() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

fn is_ok(line: &str) -> bool {
    line == "ok" || line.starts_with("ok ")
}

fn read(bed: &Bed, name: &str) -> Option<String> {
    std::fs::read_to_string(bed.fill(name)).ok()
}

/// What a record is about.
fn path(record: &Value) -> &str {
    record["path"].as_str().expect("a path")
}

#[test]
fn an_answer_counts_once() {
    let bed = Bed::new(&[]);
    let ops = ["put {out}/a one", "put {out}/a two", "put {out}/a three"];
    let (run, _) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        for (id, action) in ["allow", "deny", "allow"].into_iter().enumerate() {
            let query = client.query();
            assert_eq!(query["query_id"], (id + 1).to_string());
            assert_eq!(path(&query), bed.fill("{out}/a"));
            assert_eq!(query["suggested_grant"]["allowWrite"], bed.fill("{out}/a"));
            client.answer(&query, action);
        }
    });
    assert_eq!(run.lines, ["ok", "EACCES", "ok"]);
    assert_eq!(read(&bed, "{out}/a").as_deref(), Some("three"));
    assert_eq!(run.stderr.matches("FILESYSTEM_DENIED").count(), 1, "{}", run.stderr);
}

#[test]
fn what_is_allowed_does_what_it_does_without_a_sandbox() {
    let mut failures = Vec::new();
    // With a glob, so that the broker does everything: what the kernel could exchange is not moved.
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.none"]}});
    for attack in MUTATIONS.iter().filter(|a| !a.is_closed() && have(a.name, a.needs)) {
        let fill = |op: &&str| op.replace("{T}", "{out}");
        let setup: Vec<String> = SETUP.iter().chain(attack.before).map(fill).collect();
        let setup: Vec<&str> = setup.iter().map(String::as_str).collect();
        let ops: Vec<String> = attack.prepare.iter().chain([&attack.op]).map(fill).collect();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        let bed = Bed::new(&setup);
        let now = || tree(&bed.root().join("out"), Detail::Result);
        let start = now();

        let (run, queries) =
            bed.asked_probe(&policy, &[], &ops, |mut client| client.answer_all("deny"));
        // Directories are not moved across a verdict, whoever says so.
        let moves_directory = attack.name.contains("director") && attack.name.contains("rename ")
            || attack.name == "renameat2 exchanging directories";
        // Nor is anybody asked about what gets a second name, or has none.
        let links_out = attack.name.starts_with("link") && !attack.name.ends_with("into");
        let closed = moves_directory || links_out;
        if run.last() != "EACCES" || now() != start || queries.is_empty() != closed {
            failures.push(format!("{}: denied: {run:?} {queries:?}", attack.name));
        }

        bed.reset(&setup);
        let (run, queries) =
            bed.asked_probe(&policy, &[], &ops, |mut client| client.answer_all("allow"));
        let asked = now();
        if closed {
            if run.last() != "EACCES" || asked != start || !queries.is_empty() {
                failures.push(format!("{}: {run:?}", attack.name));
            }
            continue;
        }
        bed.reset(&setup);
        let bare = bed.bare(&ops);
        let changed = difference(&now(), &asked);
        if !is_ok(bare.last()) || !is_ok(run.last()) || !changed.is_empty() {
            failures.push(format!("{}: {} {changed:?} {queries:?}", attack.name, run.last()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn reading_is_asked_about_too() {
    let bed = Bed::new(&["mkdirat AT_FDCWD \"{out}/d 0755", "put {out}/d/f secret"]);
    for pattern in ["{out}/d", "**/d"] {
        let policy =
            json!({"filesystem": {"allowWrite": ["{in}", "{out}"], "denyRead": [pattern]}});
        let ops = [
            "cat {out}/d/f",
            "ls {out}/d",
            "cat {out}/d/f",
            "openat AT_FDCWD \"{out}/d/f O_RDWR 0",
        ];
        let (run, queries) =
            bed.asked_probe(&policy, &[], &ops, |mut client| client.answer_all("allow"));
        assert_eq!(run.lines[..3], ["ok secret", "ok f", "ok secret"], "{pattern}");
        assert!(is_ok(run.last()), "{run:?}");
        let paths: Vec<_> = queries.iter().map(path).collect();
        let [d, f] = [bed.fill("{out}/d"), bed.fill("{out}/d/f")];
        assert_eq!(paths, [&f, &d, &f, &f], "{pattern}");
        let (run, _) = bed.asked_probe(&policy, &[], &ops, |mut client| client.answer_all("deny"));
        assert_eq!(run.lines, ["EACCES"; 4], "{pattern}");
    }
}

#[test]
fn an_answer_for_the_run_opens_a_subtree_for_one_access() {
    let setup = ["mkdirat AT_FDCWD \"{out}/d 0755", "put {out}/d/f text", "put {out}/d/no text"];
    let bed = Bed::new(&setup);
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}"], "denyWrite": ["{out}/d/no"], "denyRead": ["{out}/d"]}});
    let ops = [
        "utimensat AT_FDCWD \"{out}/d ts:1,2 0",
        "put {out}/d/f new",
        "mkdirat AT_FDCWD \"{out}/d/e 0755",
        "put {out}/d/no new",
        "cat {out}/d/f",
        "put {out}/x new",
    ];
    let (run, paths) = bed.asked_probe(&policy, &[], &ops, |mut client| {
        let first = client.query();
        client.answer_for_the_run(&first, "allow");
        client.answer_all("deny").iter().map(|q| path(q).to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(run.lines, ["ok", "ok", "ok", "EACCES", "EACCES", "EACCES"]);
    assert_eq!(paths, ["{out}/d/no", "{out}/d/f", "{out}/x"].map(|p| bed.fill(p)));
    assert_eq!(read(&bed, "{out}/d/f").as_deref(), Some("new"));
}

#[test]
fn no_for_the_run_is_not_asked_again() {
    let bed = Bed::new(&[]);
    let ops = ["put {out}/a x", "put {out}/a x", "put {out}/b x"];
    let (run, asked) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let first = client.query();
        client.answer_for_the_run(&first, "deny");
        client.answer_all("allow").len()
    });
    assert_eq!((run.lines, asked), (["EACCES", "EACCES", "ok"].map(String::from).to_vec(), 1));
}

#[test]
fn an_answer_for_the_run_ends_the_other_queries_that_it_covers() {
    let bed = Bed::new(&["mkdirat AT_FDCWD \"{out}/d 0755"]);
    let ops = [
        "bg a utimensat AT_FDCWD \"{out}/d ts:1,2 0",
        "bg b put {out}/d/b x",
        "bg c put {out}/c x",
        "join a",
        "join b",
        "join c",
    ];
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let queries = [client.query(), client.query(), client.query()];
        let of = |name: &str| queries.iter().find(|q| path(q) == bed.fill(name)).expect("a query");
        client.answer_for_the_run(of("{out}/d"), "allow");
        let over = client.info();
        assert_eq!(over["query_id"], of("{out}/d/b")["query_id"]);
        assert!(over["message"].as_str().is_some_and(|m| m.contains("allowed by the answer")));
        client.answer(of("{out}/d/b"), "deny");
        client.answer(of("{out}/c"), "deny");
    });
    assert_eq!(run.lines[3..], ["ok", "ok", "EACCES"]);
}

#[test]
fn without_an_answer_it_is_denied_in_time() {
    let bed = Bed::new(&[]);
    let start = Instant::now();
    let ops = ["put {out}/a x", "put {in}/b x"];
    let options = ["--query-timeout=1"];
    let (run, over) = bed.asked_probe(&allow_in(), &options, &ops, |mut client| {
        let query = client.query();
        let over = client.info();
        client.answer(&query, "allow");
        assert_eq!(over["query_id"], query["query_id"]);
        over
    });
    assert_eq!(run.lines, ["EACCES", "ok"]);
    assert!(over["message"].as_str().is_some_and(|m| m.contains("no answer within 1 s")), "{over}");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(read(&bed, "{out}/a"), None);
    assert!(run.stderr.contains("FILESYSTEM_DENIED"), "{}", run.stderr);
}

/// More calls wait than there can be workers, and others go on meanwhile.
#[test]
fn many_wait_at_once_and_are_answered_in_reverse_order() {
    const MANY: usize = 150;
    let bed = Bed::new(&[]);
    let script = format!(
        "i=0; while [ $i -lt {} ]; do (echo x > {{out}}/p$i) & i=$((i+1)); done; wait",
        MANY / 2
    );
    let threads = format!("bg threads threads {} 1 put {{out}}/t{{t}} x", MANY / 2);
    let shell = format!("bg shell sh {script}");
    let last = "do put {in}/free x ; put {out}/last x";
    let ops = [threads.as_str(), &shell, last, "join threads", "join shell"];
    let (run, count) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let mut queries: Vec<Value> = (0..=MANY).map(|_| client.query()).collect();
        // Whoever asked this one had its call in {in} done, too.
        assert!(queries.iter().any(|q| path(q) == bed.fill("{out}/last")));
        assert_eq!(read(&bed, "{in}/free").as_deref(), Some("x"));
        queries.reverse();
        queries.iter().for_each(|query| client.answer(query, "allow"));
        queries.len()
    });
    assert_eq!(count, MANY + 1);
    assert_eq!(run.lines[2..], ["ok", &format!("ok ok*{}", MANY / 2), "ok 0"]);
    assert_eq!(std::fs::read_dir(bed.root().join("out")).expect("out").count(), MANY + 1);
}

#[test]
fn only_a_right_answer_is_an_answer() {
    let bed = Bed::new(&[]);
    let ops = ["put {out}/a x", "put {out}/b x", "put {out}/c x"];
    let (run, ignored) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let first = client.query();
        assert_eq!(first["query_id"], "1");
        for line in [
            "",
            "allow",
            "{\"query_id\":\"1\",\"action\":\"allow\"",
            "{\"query_id\":1,\"action\":\"allow\"}",
            "{\"query_id\":\"01\",\"action\":\"allow\"}",
            "{\"query_id\":\"0\",\"action\":\"allow\"}",
            // Not asked yet: it must not count when it is.
            "{\"query_id\":\"2\",\"action\":\"allow\"}",
            "{\"query_id\":\"99\",\"action\":\"allow\"}",
            "[{\"query_id\":\"1\",\"action\":\"allow\"}]",
            "[\"1\",\"allow\"]",
            "\u{0}\u{1}\u{7f}",
        ] {
            client.send(line);
        }
        client.raw(&[0xff; 1000]);
        client.raw(b"\n");
        let long = "x".repeat(10 << 20);
        client.send(&format!("{{\"query_id\":\"1\",\"action\":\"deny\",\"x\":\"{long}\"}}"));
        // In parts, and twice: the second is about nothing.
        let line = b"{\"query_id\":\"1\",\"action\":\"allow\"}\n";
        line.iter().for_each(|byte| client.raw(&[*byte]));
        client.answer(&first, "deny");
        let second = client.query();
        assert_eq!(second["query_id"], "2");
        // Of an answer that is wrong, it is "no" that counts.
        client.send("{\"query_id\":\"2\",\"action\":\"allow\",\"scope\":\"always\"}");
        client.answer(&second, "allow");
        let third = client.query();
        client.answer(&first, "allow");
        client.answer(&second, "allow");
        client.answer(&third, "deny");
        client.answer_all("deny");
        told(&client)
    });
    assert_eq!(run.lines, ["ok", "EACCES", "EACCES"]);
    // Each line that was ignored, and why, in their order.
    let why = [
        (None, "not a JSON object"),
        (None, "not a JSON object"),
        (None, "not JSON"),
        (None, "query_id is no string"),
        (None, "query_id is no string"),
        (None, "query_id is no string"),
        (Some("2"), "query 2 is not asked"),
        (Some("99"), "query 99 is not asked"),
        (None, "not a JSON object"),
        (None, "not a JSON object"),
        (None, "not a JSON object"),
        (None, "not a JSON object"),
        (None, "longer than 1024 bytes"),
        (Some("1"), "query 1 is not asked, or over"),
        (Some("2"), "unknown variant `always`"),
        (Some("2"), "query 2 is not asked, or over"),
        (Some("1"), "query 1 is not asked, or over"),
        (Some("2"), "query 2 is not asked, or over"),
    ];
    assert_eq!(ignored.len(), why.len(), "{ignored:?}");
    for ((id, message), (query, part)) in ignored.iter().zip(why) {
        assert_eq!(id.as_deref(), query, "{message}");
        assert!(message.contains(part), "{message} instead of {part}");
    }
}

/// What was told of lines that are no answers: the query that each names, and what is wrong with it.
fn told(client: &Client) -> Vec<(Option<String>, String)> {
    let control = client.seen.iter().filter(|record| record["kind"] == "control");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    control
        .inspect(|record| assert_eq!(record["code"], "CONTROL_IGNORED"))
        .map(|record| (text(&record["query_id"]), text(&record["message"]).expect("a message")))
        .collect()
}

#[test]
fn a_flood_of_nonsense_is_told_a_hundred_times() {
    let bed = Bed::new(&[]);
    let ops = ["put {out}/a x", "put {out}/b x"];
    let (run, ignored) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let first = client.query();
        client.raw("nonsense\n".repeat(100_000).as_bytes());
        client.answer(&first, "allow");
        // The answer after all of it counts, and the next question comes.
        let second = client.query();
        client.raw(b"{\"query_id\":\"2\",\"act");
        assert_eq!(second["query_id"], "2");
        client.stop_writing();
        client.answer_all("deny");
        told(&client)
    });
    assert_eq!(run.lines, ["ok", "EACCES"]);
    assert_eq!(ignored.len(), 100);
    assert!(ignored[99].1.contains("nothing more is told"), "{:?}", ignored[99]);
}

#[test]
fn half_a_line_at_the_end_is_told() {
    let bed = Bed::new(&[]);
    let (run, ignored) = bed.asked_probe(&allow_in(), &[], &["put {out}/a x"], |mut client| {
        client.query();
        client.raw(b"{\"query_id\":\"1\",\"action\":\"allow\"}");
        client.stop_writing();
        client.answer_all("deny");
        told(&client)
    });
    assert_eq!(run.lines, ["EACCES"]);
    assert_eq!(ignored, [(None, "the end of the line is missing".to_owned())]);
}

#[test]
fn a_client_that_leaves_denies_what_waits_and_is_not_asked_again() {
    for last_words in ["", "{\"query_id\":\"1\",\"action\":\"allow\"}"] {
        let bed = Bed::new(&[]);
        let ops = ["threads 50 1 put {out}/{t} x", "put {out}/a x", "put {in}/a x"];
        let start = Instant::now();
        let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
            let queries: Vec<Value> = (0..50).map(|_| client.query()).collect();
            client.answer(&queries[7], "allow");
            client.raw(last_words.as_bytes());
        });
        assert_eq!(run.lines, ["ok EACCES*49 ok*1", "EACCES", "ok"], "{last_words:?}");
        assert!(start.elapsed() < Duration::from_secs(120), "nothing waited for the time-out");
    }
}

#[test]
fn a_client_that_never_reads_cannot_stop_the_run() {
    let bed = Bed::new(&[]);
    // The socket takes a few hundred queries; those wait, the others are denied at once.
    let ops = ["threads 600 2 put {out}/{t} x", "put {in}/a x"];
    let options = ["--query-timeout=2"];
    let (gone, end) = std::sync::mpsc::channel();
    let (run, ()) = bed.asked_probe(&allow_in(), &options, &ops, |client| {
        // Kept open, unread, for as long as the run takes.
        std::thread::spawn(move || {
            let _client: Client = client;
            let _ = end.recv();
        });
    });
    drop::<std::sync::mpsc::Sender<()>>(gone);
    assert_eq!(run.lines, ["ok EACCES*1200", "ok"], "{}", run.stderr);
    assert_eq!(run.code, Some(0));
}

#[test]
fn what_is_not_read_yet_waits_for_the_reader() {
    let bed = Bed::new(&[]);
    // More than the socket holds: the rest is sent when there is room, without another denial.
    let ops = ["threads 250 1 put {out}/{t} x"];
    let (run, asked) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let mut queries = vec![client.query()];
        // Reading starts late, when all that can wait do.
        while queries.len() < 250 {
            match client.record() {
                Some(record) if record["state"] == "query" => queries.push(record),
                Some(_) => break,
                None => break,
            }
        }
        for query in &queries {
            client.answer(query, "allow");
        }
        queries.len() + client.answer_all("allow").len()
    });
    let allowed = format!("ok*{asked}");
    assert!(asked > 100 && run.lines[0].contains(&allowed), "{asked} {:?}", run.lines);
}

#[test]
fn a_target_that_dies_takes_its_query_with_it() {
    for (signal, status) in [("KILL", 137), ("TERM", 143)] {
        let script = format!(
            "(exec sh -c 'echo x > {{out}}/a') & read go < {{in}}/go; kill -{signal} $!; wait $!; echo $?; \
             read go < {{in}}/on; echo x > {{out}}/b; exit 0"
        );
        let fifos =
            ["{in}/go", "{in}/on"].map(|name| format!("mknodat AT_FDCWD \"{name} S_IFIFO|0644 0"));
        let bed = Bed::new(&[&fifos[0], &fifos[1]]);
        let program = ["/bin/sh", "-c", script.as_str()];
        let (run, ()) = bed.asked(&allow_in(), &[], &program, |mut client| {
            let query = client.query();
            go(&bed, "{in}/go");
            let over = client.info();
            assert_eq!(over["query_id"], query["query_id"]);
            assert_eq!(over["message"], "the caller no longer waits");
            client.answer(&query, "allow");
            go(&bed, "{in}/on");
            let next = client.query();
            assert_eq!(path(&next), bed.fill("{out}/b"));
            // For the one that is gone, again.
            client.answer(&query, "allow");
            client.answer(&next, "deny");
        });
        assert_eq!(run.lines, [status.to_string()], "{}", run.stderr);
        assert_eq!((read(&bed, "{out}/a"), read(&bed, "{out}/b")), (None, None));
    }
}

/// Who is asked about need not be stopped when the program is, and may be who continues it.
#[test]
fn an_answer_counts_while_the_program_is_stopped() {
    let script = "(echo x > {out}/a; kill -CONT $$) & read go < {in}/go; kill -STOP $$; echo on";
    let bed = Bed::new(&["mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0"]);
    let program = ["/bin/sh", "-c", script];
    let (run, ()) = bed.asked(&allow_in(), &[], &program, |mut client| {
        let query = client.query();
        go(&bed, "{in}/go");
        // Of the shell that asks, of the program, and of the launcher.
        let field = |pid: &str, name: &str| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            line.trim().to_owned()
        };
        let program = field(&query["process"]["pid"].to_string(), "PPid:");
        let launcher = field(&program, "PPid:");
        while !field(&launcher, "State:").starts_with('T') {
            std::thread::yield_now();
        }
        client.answer(&query, "allow");
    });
    assert_eq!(run.lines, ["on"], "{}", run.stderr);
    assert!(read(&bed, "{out}/a").is_some());
}

#[test]
fn a_signal_interrupts_a_call_that_waits() {
    let bed = Bed::new(&[]);
    let call = "openat AT_FDCWD \"{out}/a O_WRONLY|O_CREAT 0644";
    let ops = ["timer 100000 norestart", call, "timer 0", "ticked"];
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let query = client.query();
        let over = client.info();
        assert_eq!(over["query_id"], query["query_id"]);
        client.answer(&query, "allow");
        assert!(client.answer_all("allow").is_empty(), "the call gave EINTR and was not repeated");
    });
    assert_eq!(run.lines[1..], ["EINTR", "ok", "ok yes"]);
    assert_eq!(read(&bed, "{out}/a"), None);
}

#[test]
fn a_signal_is_taken_while_another_thread_runs() {
    let bed = Bed::new(&["mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0"]);
    let call = "openat AT_FDCWD \"{out}/a O_WRONLY|O_CREAT 0644";
    let other = "bg other cat {in}/go";
    let ops = [other, "timer 100000 norestart", call, "timer 0", "ticked", "join other"];
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        client.query();
        client.info();
        go(&bed, "{in}/go");
        client.answer_all("deny");
    });
    assert_eq!(run.lines[2..], ["EINTR", "ok", "ok yes", "ok go\\n"]);
}

#[test]
fn what_nothing_reopens_is_never_asked_about() {
    let bed = Bed::new(&[
        "put {out}/r text",
        "put {out}/w text",
        "put {out}/x text",
        "fchmodat AT_FDCWD \"{out}/x 0755 0",
    ]);
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}", "{out}"],
        "denyReadAlways": ["{out}/r"], "denyWriteAlways": ["{out}/w"], "denyRead": ["{out}/x"]}});
    let ops = [
        "cat {out}/r",
        "put {out}/w x",
        "unlinkat AT_FDCWD \"{out}/w 0",
        "fchmodat AT_FDCWD \"{in} 04755 0",
        "mknodat AT_FDCWD \"{in}/n S_IFCHR|0644 259",
        "fchmodat AT_FDCWD \"/dev/null 0666 0",
        "execve \"{out}/x 0 0",
        // The control: this client would allow.
        "cat {out}/x",
    ];
    let (run, queries) =
        bed.asked_probe(&policy, &[], &ops, |mut client| client.answer_all("allow"));
    let (last, others) = run.lines.split_last().expect("lines");
    assert_eq!(last, "ok text");
    assert!(others.iter().all(|line| line == "EACCES" || line == "EPERM"), "{others:?}");
    assert_eq!(queries.iter().map(path).collect::<Vec<_>>(), [bed.fill("{out}/x")]);
    assert_eq!(read(&bed, "{out}/w").as_deref(), Some("text"));
}

#[test]
fn what_is_no_connected_stream_is_not_asked() {
    let bed = Bed::new(&[]);
    let denied = |run: &Run| {
        assert_eq!(run.lines, ["EACCES"]);
        run.traps.iter().for_each(|trap| assert_eq!(trap["state"], "info"));
    };
    denied(&bed.boxed(&allow_in(), &["put {out}/a x"]));
    let (run, seen) =
        bed.asked_probe(&allow_in(), &["--query-timeout=0"], &["put {out}/a x"], |mut client| {
            client.answer_all("allow");
            client.seen
        });
    denied(&run);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["state"], "info");
}

/// A file that a glob denies could be swapped by moving the directories around it.
#[test]
fn no_directory_above_moves_while_a_path_is_asked_about() {
    let setup = [
        "mkdirat AT_FDCWD \"{in}/a 0755",
        "mkdirat AT_FDCWD \"{in}/c 0755",
        "put {in}/a/.env A",
        "put {in}/c/.env C",
        "mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0",
    ];
    let bed = Bed::new(&setup);
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.env"]}});
    let exchange = "renameat2 AT_FDCWD \"{in}/a AT_FDCWD \"{in}/c RENAME_EXCHANGE";
    let back = "renameat2 AT_FDCWD \"{in}/c AT_FDCWD \"{in}/a RENAME_EXCHANGE";
    let ops = [
        exchange,
        back,
        "bg put put {in}/a/.env new",
        "cat {in}/go",
        exchange,
        "join put",
        exchange,
    ];
    let (run, ()) = bed.asked_probe(&policy, &[], &ops, |mut client| {
        let query = client.query();
        assert_eq!(path(&query), bed.fill("{in}/a/.env"));
        go(&bed, "{in}/go");
        let refused = client.info();
        assert_eq!(refused["syscall"], "renameat2");
        client.answer(&query, "allow");
    });
    // Moving them is allowed before and after.
    assert_eq!(run.lines, ["ok", "ok", "ok", "ok go\\n", "EACCES", "ok", "ok"]);
    assert_eq!(read(&bed, "{in}/c/.env").as_deref(), Some("new"));
    assert_eq!(read(&bed, "{in}/a/.env").as_deref(), Some("C"));
}

/// The path is read again when the answer has come: another one by then is another question.
#[test]
fn an_answer_is_about_the_path_that_was_asked() {
    let bed = Bed::new(&["put {out}/good x", "put {out}/evil x"]);
    let link = "symlinkat \"{out}/good AT_FDCWD \"{in}/l";
    let ops = [
        link,
        "bg put put {in}/l text",
        "cat {in}/go",
        "do unlinkat AT_FDCWD \"{in}/l 0 ; symlinkat \"{out}/evil AT_FDCWD \"{in}/l",
        "join put",
    ];
    bed.must(&["mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0"]);
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let query = client.query();
        assert_eq!(path(&query), bed.fill("{out}/good"));
        go(&bed, "{in}/go");
        // Until the link is another one.
        while std::fs::read_link(bed.fill("{in}/l")).ok() != Some(bed.fill("{out}/evil").into()) {
            std::thread::yield_now();
        }
        client.answer(&query, "allow");
        let other = client.query();
        assert_eq!(path(&other), bed.fill("{out}/evil"));
        client.answer(&other, "deny");
    });
    assert_eq!(run.lines[4], "EACCES");
    assert_eq!(read(&bed, "{out}/good").as_deref(), Some("x"));
    assert_eq!(read(&bed, "{out}/evil").as_deref(), Some("x"));
}

#[test]
fn ten_thousand_queries_take_no_more_memory_than_a_thousand() {
    let bed = Bed::new(&[]);
    let ops = ["loop 10001 put {out}/{i} x"];
    let peak = |query: &Value| -> u64 {
        let status = |pid: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a status file")
        };
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|l| l.starts_with(name)).expect("the field").to_owned();
            line.split_whitespace().nth(1).expect("its value").to_owned()
        };
        let parent = field(&status(&query["process"]["pid"].to_string()), "PPid:");
        field(&status(&parent), "VmHWM:").parse().expect("kilobytes")
    };
    let (run, (early, late)) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let mut early = 0;
        for turn in 0..10_000 {
            let query = client.query();
            if turn == 1000 {
                early = peak(&query);
            }
            match turn % 3 {
                0 => client.answer(&query, "deny"),
                1 => client.answer(&query, "allow"),
                _ => client.answer_for_the_run(&query, "allow"),
            }
        }
        let last = client.query();
        let late = peak(&last);
        client.answer(&last, "deny");
        (early, late)
    });
    assert_eq!(run.lines, ["ok EACCES*3335 ok*6666"]);
    // Some thousand grants for the run are kept, and as many paths.
    assert!(late < early + 2048 && late < 64 * 1024, "{early} kB, then {late} kB");
}
