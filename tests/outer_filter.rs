//! Under somebody else's seccomp filter, as in a container.
#![cfg(target_os = "linux")]

#[allow(dead_code)] // all but every_name
#[path = "support/filter.rs"]
mod filter;
mod support;

use landstrip::oci::seccomp::{Abi, number};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Bed, LANDSTRIP, Run, finish, probe};

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

/// What is done under each filter, with what comes of it under none.
const OPS: [(&str, &str); 16] = [
    ("put {in}/a x", "ok"),
    ("put {in}/.env x", "EACCES"),
    ("put {out}/a x", "EACCES"),
    ("cat {in}/key", "EACCES"),
    ("cat {in}/a", "ok x"),
    ("mkdirat AT_FDCWD \"{in}/d 0755", "ok"),
    ("renameat2 AT_FDCWD \"{in}/a AT_FDCWD \"{in}/d/a 0", "ok"),
    ("renameat2 AT_FDCWD \"{in}/d/a AT_FDCWD \"{in}/.env 0", "EACCES"),
    ("truncate \"{in}/d/a 0", "ok"),
    ("umask 077", "ok 18"),
    ("unlinkat AT_FDCWD \"{in}/d/a 0", "ok"),
    ("socketpair a b SOCK_STREAM", "ok"),
    ("s=socket AF_INET SOCK_STREAM 0", "ok"),
    ("bind $s in:127.0.0.1:0 #", "ok"),
    ("listen $s 1", "ok"),
    ("connect $s in:10.0.0.1:9 #", "EISCONN|EINVAL|EACCES"),
];

/// A policy that takes all processes of ours: the watcher, the broker, the maker of sockets, the proxy.
fn everything() -> Value {
    json!({
        "filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.env"], "denyRead": ["{in}/key"]},
        "network": {"allowLocalBinding": true, "allowedDomains": ["example.com"]},
    })
}

fn under(bed: &Bed, filter: &[&str]) -> Run {
    bed.reset(&["put {in}/key x"]);
    let probe = probe().display().to_string();
    let program: Vec<&str> =
        std::iter::once(&*probe).chain(OPS.iter().map(|(op, _)| *op)).collect();
    // The filter comes last: it is for what is started, and not for the rest of the preparation.
    let options = [&["umask=022", "3>{root}/traps"], filter].concat();
    bed.launch(&everything(), &options, &program)
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

/// The filters of others refuse what they like. Then a run does what it can, or says which call it lacks.
#[test]
fn whatever_is_refused_no_run_opens_hangs_or_goes_without_a_word() {
    let free = under(&Bed::new(&[]), &[]);
    let as_expected =
        |(line, (_, expected)): (&String, &(&str, &str))| expected.split('|').any(|e| e == line);
    assert!(
        free.lines.len() == OPS.len() && free.lines.iter().zip(&OPS).all(as_expected),
        "{free:?}"
    );
    let abi = Abi::NATIVE;
    let calls: Vec<_> = filter::every_name()
        .into_iter()
        // The test starts landstrip by one, and no program ends without the others.
        .filter(|name| !["execve", "exit", "exit_group"].contains(&name.as_str()))
        .filter_map(|name| number(&name, abi).map(|number| (name, number)))
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let bed = Bed::new(&[]);
        while let Some((name, number)) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Which of the two errors a filter gives makes no difference to us.
            let how = if number % 2 == 0 { "refuse" } else { "lack" };
            if let Some(what) = wrong_under(&bed, name, &format!("{how}={number}")) {
                wrong.lock().expect("no panic").push(format!("{name}, {how}: {what}"));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong about a run under a filter that refuses `name`.
fn wrong_under(bed: &Bed, name: &str, filter: &str) -> Option<String> {
    let run = under(bed, &[filter]);
    let denied = |(line, (_, expected)): (&String, &(&str, &str))| {
        expected.starts_with("ok") || !line.starts_with("ok")
    };
    let made = ["{in}/.env", "{out}/a"].map(|path| Path::new(&bed.fill(path)).exists());
    if !run.lines.iter().zip(&OPS).all(denied) || made.contains(&true) {
        return Some(format!("it opens something: {run:?}"));
    }
    if run.code == Some(0) && run.lines.len() == OPS.len() {
        return None;
    }
    let record = run.stderr.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = record.is_some_and(|record| {
        let words = record["message"].as_str().unwrap_or_default();
        let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
        record["code"] != "INTERNAL_ERROR" && words.any(|word| word == name)
    });
    if run.code == Some(1) && told {
        return None;
    }
    // Without some no program gets far.
    let ops = ["thread set 1", "put {in}/b x", "cat {in}/b"];
    let mut command = bed.command(&probe());
    command.args(["@spawn", filter, "--"]).arg(probe()).args(ops.map(|op| bed.fill(op)));
    let bare = finish(command, &bed.root().join("no traps"));
    let works = bare.lines == ["ok", "ok", "ok x"] && bare.code == Some(0);
    works.then(|| format!("{run:?}"))
}

/// What every run needs is told by `doctor`, too.
#[test]
fn the_doctor_names_what_is_refused() {
    let bed = Bed::new(&[]);
    let mut command = bed.command(&probe());
    command.args(["@spawn", "refuse=process_vm_readv", "--", LANDSTRIP, "doctor"]);
    let run = finish(command, &bed.root().join("no traps"));
    let report: Value = serde_json::from_str(&run.lines.join("\n")).expect("a report");
    assert_eq!((run.code, &report["healthy"]), (Some(1), &json!(false)), "{report}");
    assert_eq!(report["checks"][0]["name"], "system-calls", "{report}");
    assert!(report["checks"][0]["message"].to_string().contains("process_vm_readv"), "{report}");
}
