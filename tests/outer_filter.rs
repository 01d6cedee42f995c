//! Under somebody else's seccomp filter, as in a container.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::{Bed, probe};

/// A default container refuses unshare(2) whatever it is asked for: the broker's threads are born with what they would
/// have asked for, their own mask and working directory.
#[test]
fn the_broker_serves_where_unshare_is_refused() {
    let bed = Bed::new(&[]);
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.env"], "denyRead": ["**/key"]}});
    let ops = [
        ("put {in}/a x", "ok"),
        ("cat {in}/a", "ok x"),
        ("umask 077", "ok 18"),
        ("put {in}/b x", "ok"),
        ("sh stat -c %a {in}/b", "ok 0 600"),
        ("s=socket AF_UNIX SOCK_STREAM 0", "ok"),
        ("bind $s un:{in}/s #", "ok"),
        ("put {in}/.env x", "EACCES"),
        ("put {out}/a x", "EACCES"),
    ];
    let probe = probe().display().to_string();
    let program: Vec<&str> =
        std::iter::once(&*probe).chain(ops.iter().map(|(op, _)| *op)).collect();
    let run = bed.launch(&policy, &["umask=022", "refuse=unshare"], &program);
    let expected: Vec<&str> = ops.iter().map(|(_, result)| *result).collect();
    assert_eq!(run.lines, expected, "{run:?}");
}

/// Who cannot wait for signals would not see the program end.
#[test]
fn a_launcher_that_cannot_wait_starts_nothing() {
    for option in ["refuse=rt_sigtimedwait", "lack=rt_sigtimedwait"] {
        let bed = Bed::new(&[]);
        let policy = json!({"filesystem": {"allowWrite": ["{in}"]}});
        let run = bed.launch(&policy, &[option], &["/bin/sh", "-c", "echo ran"]);
        let record = run.stderr.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let record: Value = record.unwrap_or_else(|| panic!("no record: {run:?}"));
        assert_eq!((run.code, record["code"].as_str()), (Some(1), Some("SANDBOX_SETUP_FAILED")));
        assert!(run.lines.is_empty() && record["message"].to_string().contains("rt_sigtimedwait"));
    }
}
