//! A file system that does not answer holds up who uses it, and nobody else.
#![cfg(target_os = "linux")]

mod support;

use serde_json::json;
use std::process::{Command, Stdio};
use support::Bed;

/// Mounts the file system at `m` for as long as the line takes that `$run` and the script are.
const AROUND: &str = r#"
mkdir m
python3 "$daemon" m log & daemon=$!
until mountpoint -q m; do :; done
timeout -k 1 100 $run sh -ec "$script" & job=$!
# Its end ends what hangs: nothing else does, once the request is in its hands.
until [ -e done ] || ! kill -0 $job 2> /dev/null; do :; done
kill -9 $daemon
wait $job
"#;

/// One rename hangs. Another one there can be interrupted, and elsewhere renames go on.
const SCRIPT: &str = r#"
cd "$PWD"
mv m/a m/b & first=$!
until [ -s log ]; do :; done
echo x > x; mv x y; mkdir -p d/e; mv y d/e/z; mv d c; cat c/e/z
# Between the two: what the kernel says, at once.
python3 -c 'import os; os.rename("m/a", "n")' 2>&1 | grep -o cross-device
$second
echo > done
wait $first || echo gone
"#;

/// A rename there by a program that a signal is to get out of it.
const SECOND: &str = r#"python3 -c '
import os, signal
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    os.rename("m/a", "m/c")
except Late:
    print("interrupted")
'"#;

#[test]
fn a_rename_that_hangs_holds_up_no_other_file_system() {
    if !support::have::have("FUSE", &["root", "/dev/fuse", "cmd:unshare"]) {
        return;
    }
    let daemon = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hang.py");
    // Without the sandbox the second one waits for the lock of the directory, and takes no signal.
    for (policy, second, expected) in [
        (None, "", "x\ncross-device\ngone\n"),
        (Some(json!(["**/*.denied"])), SECOND, "x\ncross-device\ninterrupted\ngone\n"),
        (Some(json!(["**/*.denied", "c/e/never"])), SECOND, "x\ncross-device\ninterrupted\ngone\n"),
    ] {
        let bed = Bed::new(&[]);
        let run = policy.as_ref().map_or(String::new(), |denied| {
            let policy = json!({"filesystem": {"allowWrite": ["."], "denyWrite": denied}});
            format!(
                "{} run {} -p {} --",
                support::LANDSTRIP,
                support::ACCEPT,
                bed.policy(&policy).display()
            )
        });
        let script = SCRIPT.replace("$second", second);
        let script = if run.contains("run") && policy == Some(json!(["**/*.denied", "c/e/never"])) {
            // What is denied below a name that is moved there: another lock, the same order.
            script.replace("mv d c; cat c/e/z", "cat d/e/z")
        } else {
            script
        };
        let mut command = Command::new("unshare");
        command
            .args(["-m", "--propagation", "private", "sh", "-ec", AROUND])
            .env("daemon", daemon)
            .env("run", run)
            .env("script", script)
            .current_dir(bed.root().join("in"))
            .stdin(Stdio::null());
        let output = command.output().expect("unshare");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, expected, "{policy:?}: {output:?}");
        assert!(output.status.success(), "{policy:?}: {output:?}");
    }
}

/// An open hangs, in the broker or in the program. Then the run ends.
const ENDING: &str = r#"
mkdir m
python3 "$daemon" m log open & daemon=$!
until mountpoint -q m; do :; done
$run sh -c 'cat m/a & until [ -s log ]; do :; done; echo $$ > pid; exec sleep 1000' & job=$!
until [ -s pid ] || ! kill -0 $job 2> /dev/null; do :; done
pid=$(cat pid)
$ending
while grep -q '^State:.[^ZX]' /proc/$pid/status 2> /dev/null; do :; done
echo the rest is gone
kill -9 $daemon
wait $job || echo $?
"#;

/// Time is up, or the launcher is killed: all that can end does, whoever waits for the file system, and the launcher
/// has ended when that one answers.
#[test]
fn a_run_ends_but_for_what_hangs() {
    if !support::have::have("FUSE", &["root", "/dev/fuse", "cmd:unshare"]) {
        return;
    }
    let daemon = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hang.py");
    for denied in [json!([]), json!(["**/*.denied"])] {
        for (time, ending) in [(5, ""), (1000, "kill -9 $job")] {
            let bed = Bed::new(&[]);
            let policy = bed
                .policy(&json!({"filesystem": {"allowWrite": ["."], "denyRead": denied},
                "limits": {"time": time}}));
            let run = format!(
                "{} run {} -p {} --",
                support::LANDSTRIP,
                support::ACCEPT,
                policy.display()
            );
            let mut command = Command::new("timeout");
            command
                .args(["-k", "1", "100", "unshare", "-m", "--propagation", "private"])
                .args(["sh", "-c", &ENDING.replace("$ending", ending)])
                .env("daemon", daemon)
                .env("run", run)
                .current_dir(bed.root().join("in"))
                .stdin(Stdio::null());
            let output = command.output().expect("unshare");
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text, "the rest is gone\n137\n", "{denied} {ending}: {output:?}");
        }
    }
}
