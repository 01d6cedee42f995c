//! Targets and clients that mean harm, and more of everything than anybody needs.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::Bed;
use support::client::{Client, go};

fn allow_in() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

fn path(record: &Value) -> &str {
    record["path"].as_str().or(record["target"].as_str()).expect("a path")
}

/// Allows what is about `good`, and denies all else, until the run is over; how often each.
fn allow_only(client: &mut Client, good: &str) -> (usize, usize) {
    let (mut allowed, mut denied) = (0, 0);
    while let Some(record) = client.record() {
        if record["state"] != "query" {
            continue;
        }
        let is_good = path(&record) == good;
        client.answer(&record, if is_good { "allow" } else { "deny" });
        *if is_good { &mut allowed } else { &mut denied } += 1;
    }
    (allowed, denied)
}

/// The path in memory changes all the time, and the client allows one of the two.
#[test]
fn no_race_gets_more_than_was_allowed() {
    for call in [
        "openat AT_FDCWD RACE O_WRONLY|O_TRUNC 0",
        "openat2 AT_FDCWD RACE how:O_WRONLY|O_TRUNC,0,0 24",
        "truncate RACE 1",
        "fchmodat AT_FDCWD RACE 0600 0",
        "utimensat AT_FDCWD RACE ts:1,2 0",
    ] {
        let setup = ["put {out}/good text", "put {out}/evil text"];
        let bed = Bed::new(&setup);
        let evil = || {
            let meta = std::fs::metadata(bed.fill("{out}/evil")).expect("evil");
            use std::os::unix::fs::MetadataExt;
            (meta.size(), meta.mode(), meta.mtime())
        };
        let before = evil();
        let race = format!("race-string 400 {{out}}/good {{out}}/evil {call}");
        let good = bed.fill("{out}/good");
        let (mut allowed, mut denied, mut done) = (0, 0, false);
        // Whether a swap falls into a call is the scheduler's business: until it did, both ways.
        for _ in 0..20 {
            if allowed > 0 && denied > 0 && done {
                break;
            }
            let (run, (yes, no)) = bed.asked_probe(&allow_in(), &[], &[&race], |mut client| {
                allow_only(&mut client, &good)
            });
            assert_eq!(evil(), before, "{call}: {run:?}");
            assert!(run.last().starts_with("ok "), "{call}: {run:?}");
            done |= run.last() != "ok 0" && !run.last().starts_with("ok 0 ");
            (allowed, denied) = (allowed + yes, denied + no);
        }
        assert!(allowed > 0 && denied > 0 && done, "{call}: {allowed} and {denied}, {done}");
    }
}

/// More calls than may wait at once: the others are denied as without a client, and none is lost.
#[test]
fn more_questions_than_may_wait_are_denied() {
    const BATCH: usize = 100;
    const BATCHES: usize = 11;
    const MOST: usize = 1024;
    let bed = Bed::new(&[]);
    // Batches, each of which the socket takes: what it has no room for is denied, too.
    let mut ops = Vec::new();
    for batch in 0..BATCHES {
        bed.must(&[&format!("mknodat AT_FDCWD \"{{in}}/go{batch} S_IFIFO|0644 0")]);
        ops.push(format!("bg b{batch} threads {BATCH} 1 put {{out}}/{batch}.{{t}} x"));
        ops.push(format!("cat {{in}}/go{batch}"));
    }
    ops.extend((0..BATCHES).map(|batch| format!("join b{batch}")));
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        let (mut queries, mut plain) = (Vec::new(), 0);
        for batch in 1..=BATCHES {
            while queries.len() + plain < batch * BATCH {
                let record = client.record().expect("a record");
                match record["state"].as_str() {
                    Some("query") => queries.push(record),
                    _ => plain += 1,
                }
            }
            go(&bed, &format!("{{in}}/go{}", batch - 1));
        }
        assert_eq!((queries.len(), plain), (MOST, BATCH * BATCHES - MOST));
        // Every third first, and the last ones before the first.
        for turn in 0..3 {
            for query in queries.iter().skip(turn).step_by(3).rev() {
                client.answer(query, "allow");
            }
        }
        assert!(client.answer_all("deny").is_empty());
    });
    let denied = BATCH * BATCHES - MOST;
    let last = format!("ok EACCES*{denied} ok*{}", BATCH - denied);
    assert_eq!(run.last(), last, "{run:?}");
    assert_eq!(std::fs::read_dir(bed.root().join("out")).expect("out").count(), MOST);
}

/// Callers are killed while they wait, while they are answered, and after that.
#[test]
fn callers_that_die_at_any_time_leave_nothing_behind() {
    let bed = Bed::new(&[]);
    // Each round starts eight callers and kills them a moment later, some of them while they are asked.
    let script = "r=0; while [ $r -lt 12 ]; do p=; for i in 1 2 3 4 5 6 7 8; do \
                  (exec sh -c 'echo x > {out}/'$r.$i) & p=\"$p $!\"; done; \
                  kill -KILL $p; wait; r=$((r+1)); done; echo done; echo x > {out}/last && echo kept";
    let program = ["/bin/sh", "-c", script];
    let (run, last) = bed.asked(&allow_in(), &[], &program, |mut client| {
        let mut last = 0;
        while let Some(record) = client.record() {
            if record["state"] == "query" {
                let id: u64 =
                    record["query_id"].as_str().and_then(|id| id.parse().ok()).expect("id");
                assert!(id > last, "an id twice");
                last = id;
                client.answer(&record, "allow");
            }
        }
        last
    });
    assert_eq!(run.lines, ["done", "kept"], "{}", run.stderr);
    assert!(last > 0);
}

/// The client goes away in the middle of an answer, in the middle of many.
#[test]
fn a_client_that_dies_in_an_answer_denies_the_rest() {
    for cut in [1, 10, 25, 40] {
        let bed = Bed::new(&[]);
        let ops = ["threads 40 1 put {out}/{t} x", "put {out}/z x", "put {in}/z x"];
        let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
            let queries: Vec<Value> = (0..40).map(|_| client.query()).collect();
            for query in &queries[..10] {
                client.answer(query, "allow");
            }
            let line = json!({"query_id": queries[10]["query_id"], "action": "allow"}).to_string();
            client.raw(&line.as_bytes()[..cut.min(line.len())]);
        });
        assert_eq!(run.lines, ["ok EACCES*30 ok*10", "EACCES", "ok"], "{cut}");
    }
}

/// Answers that name every number but that of the question, between those that do.
#[test]
fn answers_to_nothing_do_nothing() {
    let bed = Bed::new(&[]);
    let ops = ["loop 200 put {out}/{i} x"];
    let (run, ()) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        for turn in 0..200_u64 {
            let query = client.query();
            for wrong in [0, turn + 2, turn + 3, u64::MAX] {
                client.send(
                    &json!({"query_id": wrong.to_string(), "action": "allow", "scope": "run"})
                        .to_string(),
                );
            }
            client.answer(&query, "deny");
        }
        client.answer_all("allow");
    });
    assert_eq!(run.lines, ["ok EACCES*200"]);
    assert_eq!(std::fs::read_dir(bed.root().join("out")).expect("out").count(), 0);
}
