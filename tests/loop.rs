//! The loop of a harness: one bundle a command.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use support::have::have;
use support::{Bed, LANDSTRIP};

const LOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/harness/loop.py");

/// The output of the loop for a line of input each.
fn output(bed: &Bed, words: &[&str], lines: &[String]) -> String {
    let mut looping = bed.command(LOOP.as_ref());
    looping.args(words).stdin(Stdio::piped());
    looping.stdout(Stdio::piped()).env("TMPDIR", bed.root().join("out"));
    let mut looping = looping.spawn().expect("python3");
    let mut input = looping.stdin.take().expect("a pipe");
    // One that only prints its help does not read.
    let _unread = input.write_all(lines.concat().as_bytes());
    drop(input);
    let output = support::collect(looping.stdout.take());
    let status = support::wait(&mut looping, std::time::Duration::from_secs(30));
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    output.join().expect("a reader")
}

/// What became of each command.
fn looped(bed: &Bed, policy: &Path, commands: &[String]) -> Vec<Value> {
    let policy = policy.to_str().expect("a path");
    let lines: Vec<_> = commands.iter().map(|command| format!("{command}\n")).collect();
    let output = output(bed, &["--landstrip", LANDSTRIP, "-p", policy], &lines);
    let results: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(results.len(), commands.len(), "{output}");
    for (result, command) in results.iter().zip(commands) {
        assert_eq!(result["command"], command.as_str());
        // What `spec` says of other runtimes is not about this run.
        assert_eq!(result.as_object().expect("an object").len(), 5, "{result}");
    }
    results
}

#[test]
fn a_limit_that_is_reached_is_told_in_full() {
    if !have("the loop of a harness", &["cmd:python3"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&json!({"limits": {"time": 1}}));
    let results = looped(&bed, &policy, &["exec sleep 1000".to_owned(), "true".to_owned()]);
    let reached = json!([{"kind": "limit", "resource": "time", "value": 1}]);
    assert_eq!((&results[0]["status"], &results[0]["denied"]), (&json!(137), &reached));
    assert_eq!((&results[1]["status"], &results[1]["denied"]), (&json!(0), &json!([])));
}

#[test]
fn help_is_printed() {
    if !have("the loop of a harness", &["cmd:python3"]) {
        return;
    }
    let bed = Bed::new(&[]);
    for words in [&["--help"][..], &["-h"], &["--landstrip", LANDSTRIP, "--help"]] {
        let help = output(&bed, words, &["true\n".to_owned()]);
        assert!(help.contains("loop.py [--landstrip PROGRAM]"), "{words:?}: {help}");
    }
}

#[test]
fn commands_are_run_one_by_one_and_say_what_they_were_denied() {
    if !have("the loop of a harness", &["cmd:python3"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&json!({
        "filesystem": {"allowWrite": ["{in}"], "denyRead": ["{out}/secret"]}, "limits": {"time": 20},
    }));
    std::fs::write(bed.root().join("out/secret"), "secret\n").expect("a file");
    let commands = [
        "echo hi > note && cat note; echo er >&2",
        "echo x > {out}/a; echo y > {out}/a; exit 3",
        "cat {out}/secret",
        "cat note; kill -9 $$",
        // What is left in the background ends with its command, and the loop goes on.
        "sleep 1000 & echo started",
        "echo \u{1f980}",
    ]
    .map(|command| bed.fill(command));
    let results = looped(&bed, &policy, &commands);
    let of = |at: usize, key: &str| results[at][key].clone();
    assert_eq!(
        (of(0, "status"), of(0, "stdout"), of(0, "denied")),
        (json!(0), json!("hi\n"), json!([]))
    );
    assert_eq!(of(0, "stderr"), "er\n");
    assert_eq!(of(1, "status"), 3);
    let target = bed.fill("{out}/a");
    let denied = json!([{"kind": "filesystem", "operation": "write", "target": target,
        "grant": {"allowWrite": target}}]);
    assert_eq!(of(1, "denied"), denied);
    assert!(!bed.root().join("out/a").exists());
    assert_eq!(
        (of(2, "stdout"), of(2, "denied")[0]["operation"].clone()),
        (json!(""), json!("read"))
    );
    assert_eq!((of(3, "status"), of(3, "stdout")), (json!(137), json!("hi\n")));
    assert_eq!((of(4, "status"), of(4, "stdout")), (json!(0), json!("started\n")));
    assert_eq!(of(5, "stdout"), "\u{1f980}\n");
    let left = std::fs::read_dir(bed.root().join("out")).expect("a directory").count();
    assert_eq!(left, 1, "the secret, and no bundle");
}
