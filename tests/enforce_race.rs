//! Attacks that change what a call means while it is decided. Each is first shown to win where
//! nothing stops it.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::mutations::SETUP;
use support::tree::{Detail, difference, tree};
use support::{Bed, until_won};

/// A race: its name, and its operation. `{own}` and `{other}` are an allowed file and a forbidden one
/// by names of one length.
type Race = (&'static str, &'static str);

/// Races for one pair of files.
const STRINGS: &[Race] = &[
    ("open", "race-string {n} {own} {other} openat AT_FDCWD RACE O_WRONLY|O_TRUNC 0"),
    ("open, cutting", "race-string {n} {own} {other} openat AT_FDCWD RACE O_RDONLY|O_TRUNC 0"),
    (
        "open, creating",
        "race-string {n} {own} {other} openat AT_FDCWD RACE O_RDWR|O_CREAT|O_TRUNC 0600",
    ),
    ("openat2", "race-string {n} {own} {other} openat2 AT_FDCWD RACE how:O_WRONLY|O_TRUNC,0,0 24"),
    ("truncate", "race-string {n} {own} {other} truncate RACE 1"),
    ("chmod", "race-string {n} {own} {other} fchmodat AT_FDCWD RACE 0600 0"),
    ("utimensat", "race-string {n} {own} {other} utimensat AT_FDCWD RACE 0 0"),
    ("setxattr", "race-string {n} {own} {other} setxattr RACE \"user.race bytes:v 1 0"),
    (
        "creating where nothing is",
        "race-new {n} {fresh} {other} openat AT_FDCWD RACE O_RDONLY|O_CREAT|O_TRUNC 0600",
    ),
    ("unlink", "race-string {n} {fresh} {other} unlinkat AT_FDCWD RACE 0"),
    ("mkdir", "race-string {n} {fresh} {gone} mkdirat AT_FDCWD RACE 0700"),
    (
        "exchange",
        "race-string {n} {own} {other} renameat2 AT_FDCWD \"{in}/mine AT_FDCWD RACE RENAME_EXCHANGE",
    ),
    ("link", "race-string {n} {fresh} {gone} linkat AT_FDCWD \"{in}/mine AT_FDCWD RACE 0"),
    (
        "cutting what was a pipe",
        "race-string {n} {pipe} {other} openat AT_FDCWD RACE O_RDONLY|O_TRUNC|O_NONBLOCK 0",
    ),
    (
        "mode 3, cutting what was a pipe",
        "race-string {n} {pipe} {other} openat AT_FDCWD RACE 3|O_TRUNC|O_NONBLOCK 0",
    ),
    ("mode 3, cutting", "race-string {n} {own} {other} openat AT_FDCWD RACE 3|O_TRUNC 0"),
    ("mode 3 in memory", "race-how {n} O_RDONLY 3|O_TRUNC {other}"),
    ("flags in memory", "race-how {n} O_RDONLY O_RDONLY|O_TRUNC {other}"),
    ("flags in memory, of a place", "race-how {n} O_PATH O_RDONLY|O_TRUNC {other}"),
    ("flags in memory, to write", "race-how {n} O_RDONLY O_WRONLY|O_TRUNC {other}"),
];

const LINKS: &[Race] = &[
    (
        "link to a file outside",
        "race-link {n} {in}/sw a.txt {out}/f {out}/f openat AT_FDCWD \"{in}/sw O_WRONLY|O_TRUNC 0",
    ),
    (
        "link to a file outside, cutting",
        "race-link {n} {in}/sw a.txt {out}/f {out}/f openat AT_FDCWD \"{in}/sw O_RDONLY|O_TRUNC 0",
    ),
    (
        "link to a file outside, truncate",
        "race-link {n} {in}/sw a.txt {out}/f {out}/f truncate \"{in}/sw 1",
    ),
    (
        "link to a directory outside",
        "race-link {n} {in}/sw da {out} {out}/f openat AT_FDCWD \"{in}/sw/f O_WRONLY|O_TRUNC 0",
    ),
    (
        "link to a directory outside, chmod",
        "race-link {n} {in}/sw da {out} {out}/f fchmodat AT_FDCWD \"{in}/sw/f 0600 0",
    ),
    (
        "link to a directory outside, setxattr",
        "race-link {n} {in}/sw da {out} {out}/f setxattr \"{in}/sw/f \"user.race bytes:v 1 0",
    ),
    (
        "link to a directory outside, mkdir",
        "race-link {n} {in}/sw da {out} {out}/f mkdirat AT_FDCWD \"{in}/sw/new 0700",
    ),
    (
        "link to a directory outside, creating",
        "race-link {n} {in}/sw da {out} {out}/f openat AT_FDCWD \"{in}/sw/new O_CREAT|O_WRONLY 0600",
    ),
    (
        "exchange of a directory and a link",
        "race-exchange {n} {in}/da {in}/dl {out}/f openat AT_FDCWD \"{in}/da/f O_WRONLY|O_TRUNC 0",
    ),
    (
        "exchange, chmod",
        "race-exchange {n} {in}/da {in}/dl {out}/f fchmodat AT_FDCWD \"{in}/da/f 0600 0",
    ),
    (
        "exchange, unlink",
        "race-exchange {n} {in}/da {in}/dl {out}/f unlinkat AT_FDCWD \"{in}/da/f 0",
    ),
];

/// Runs every race bare, where it must win, and in the sandbox, where it must not.
fn races(policy: &Value, other: &str, table: &[Race]) {
    let mut setup: Vec<String> = SETUP.iter().map(|op| op.replace("{T}", "{out}")).collect();
    let more = [
        "put {in}/a.txt mine",
        "put {in}/b.key denied",
        "mkdirat AT_FDCWD \"{in}/da 0755",
        "put {in}/da/f mine",
        "symlinkat \"{out} AT_FDCWD \"{in}/dl",
    ];
    setup.extend(more.map(String::from));
    let setup: Vec<&str> = setup.iter().map(String::as_str).collect();
    let seen = |bed: &Bed| {
        [bed.fill("{in}/b.key"), bed.fill("{in}/c.key"), bed.fill("{out}")]
            .map(|path| tree(path.as_ref(), Detail::All))
    };
    let changed = |old: &[_; 3], new: &[_; 3]| -> Vec<String> {
        old.iter().zip(new).flat_map(|(old, new)| difference(old, new)).collect()
    };
    let numbers =
        |line: &str| -> Vec<u64> { line.split(' ').filter_map(|n| n.parse().ok()).collect() };
    let mut failures = Vec::new();
    let lost = std::cell::Cell::new(false);
    for (name, op) in table {
        let bed = Bed::new(&setup);
        // Leading slashes make up for the length.
        let pad = |path: &str| format!("{:/>200}", bed.fill(path));
        let gone = if other == "{out}/f" { "{out}/gone" } else { "{in}/c.key" };
        let op = op.replace("{own}", &pad("{in}/a.txt")).replace("{other}", &pad(other));
        let op = op.replace("{fresh}", &pad("{in}/fresh")).replace("{gone}", &pad(gone));
        let op = op.replace("{pipe}", &pad("/proc/self/fd/90"));
        let [often, seldom] = ["50000", "2000"].map(|n| op.replace("{n}", n));

        let bare = || {
            bed.reset(&setup);
            let old = seen(&bed);
            let run = bed.bare(&["pipe a b", "dup3 $a 90 0", &often]);
            lost.set(changed(&old, &seen(&bed)).is_empty());
            run
        };
        let bare = until_won(bare, |_| !lost.get());
        if lost.get() {
            failures.push(format!("{name}: the control never won: {}", bare.last()));
        }
        bed.reset(&setup);
        let old = seen(&bed);
        let run = bed.boxed(policy, &["pipe a b", "dup3 $a 90 0", &seldom]);
        let won = changed(&old, &seen(&bed));
        if !run.last().starts_with("ok") || !won.is_empty() {
            failures.push(format!("{name}: {} {}", run.last(), won.join("; ")));
        }
        if numbers(run.last()).get(1).is_some_and(|reached| *reached > 0)
            && !op.starts_with("race-how")
        {
            failures.push(format!("{name}: got the forbidden file {}", run.last()));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn kernel() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

fn broker() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/*.key"]}})
}

#[test]
fn memory_outside_where_the_kernel_holds() {
    races(&kernel(), "{out}/f", STRINGS);
}

#[test]
fn memory_outside_where_the_broker_acts() {
    races(&broker(), "{out}/f", STRINGS);
}

#[test]
fn memory_inside() {
    races(&broker(), "{in}/b.key", STRINGS);
}

#[test]
fn links_where_the_kernel_holds() {
    races(&kernel(), "{out}/f", LINKS);
}

#[test]
fn links_where_the_broker_acts() {
    races(&broker(), "{out}/f", LINKS);
}

/// A directory must not take a file's place while the file is moved: it would take what it holds along,
/// past denials that are about its name, or out of the reach of a glob, and into and out of TMPDIR.
#[test]
fn a_directory_does_not_move_as_a_file() {
    let globs = ["**/src/*/secret", "{in}/*/kept", "**/.git/hooks"];
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": globs}});
    let setup = &[
        "mkdirat AT_FDCWD \"{in}/src 0755",
        "mkdirat AT_FDCWD \"{in}/src/b 0755",
        "put {in}/src/b/secret theirs",
        "put {in}/src/a mine",
        "mkdirat AT_FDCWD \"{in}/b 0755",
        "put {in}/b/kept theirs",
        "put {in}/a mine",
    ];
    for (name, a, to) in [
        ("out of the reach of a glob", "src/a", "{in}/out"),
        ("deeper", "a", "{in}/src/out"),
        ("to the temporary directory", "a", "{tmp}/out"),
    ] {
        let b = a.replace('a', "b").replace("srb", "src");
        let bed = Bed::new(setup);
        let op = |n: &str, to: &str| format!("race-move {n} {{in}}/{a} {{in}}/{b} {to}");
        let bare = || {
            bed.reset(setup);
            bed.bare(&[&op("50000", &to.replace("{tmp}", "{root}"))])
        };
        let bare = until_won(bare, |run| run.last().ends_with(" 1"));
        assert!(bare.last().ends_with(" 1"), "{name}: the control never won: {bare:?}");
        bed.reset(setup);
        let to = to.replace("{tmp}", "$TMPDIR");
        let run = if to.starts_with('$') {
            let probe = support::probe();
            let line = format!("exec {} \"{}\"", probe.display(), bed.fill(&op("3000", &to)));
            bed.launch(&policy, &[], &["sh", "-c", &line])
        } else {
            bed.boxed(&policy, &[&op("3000", &to)])
        };
        let moved: Vec<&str> = run.last().split(' ').collect();
        assert!(moved.len() == 3 && moved[1] != "0" && moved[2] == "0", "{name}: {run:?}");
    }
}

/// What is moved is exchanged by removing it and making something else, rather than by another move.
const EXCHANGE: &str = r#"
import os, sys, time
a, to, kind, count, seconds = sys.argv[1:4] + [int(word) for word in sys.argv[4:]]
bare = count > 10000
child = os.fork()
if child == 0:
    while True:
        try:
            open(a, "w").close()
            os.unlink(a)
            os.mkdir(a) if kind == "directory" else os.symlink("/etc", a)
            os.rmdir(a) if kind == "directory" else os.unlink(a)
        except OSError:
            try:
                os.rmdir(a) if os.path.isdir(a) and not os.path.islink(a) else os.unlink(a)
            except OSError:
                pass
moved = won = 0
end = time.monotonic() + seconds
while moved + won < count and time.monotonic() < end and not (bare and won):
    try:
        os.rename(a, to)
    except OSError:
        continue
    if os.path.islink(to) or os.path.isdir(to):
        won += 1
        os.rmdir(to) if os.path.isdir(to) and not os.path.islink(to) else os.unlink(to)
    else:
        moved += 1
        os.unlink(to)
os.kill(child, 9)
print(moved, won)
"#;

#[test]
fn nothing_else_is_moved_than_what_was_judged() {
    if !support::have::have("exchanges", &["cmd:python3"]) {
        return;
    }
    let setup = &["mkdirat AT_FDCWD \"{in}/src 0755"];
    let globs = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/src/*/secret"]}});
    let apart = json!({"filesystem": {
        "allowWrite": ["{in}", "{out}"], "denyWrite": ["{in}/src/*/secret"],
    }});
    let granted = json!({"filesystem": {"allowWrite": ["{in}", "{in}/conf"]}});
    let single = json!({"filesystem": {"allowWrite": ["{in}/conf", "{out}"]}});
    for (name, policy, kind, a, to, moves) in [
        ("where the broker acts", &globs, "directory", "{in}/a", "{in}/src/to", true),
        ("out of what the kernel holds", &apart, "directory", "{out}/a", "{in}/src/to", false),
        ("to what is granted", &granted, "link", "{in}/a", "{in}/conf", true),
        ("from elsewhere to what is granted", &single, "link", "{out}/a", "{in}/conf", false),
    ] {
        let bed = Bed::new(setup);
        // Where nothing moves, only time ends it.
        let line = |count: &str, seconds: &str| -> Vec<String> {
            let line = ["python3", "-c", EXCHANGE, a, to, kind, count, seconds];
            line.iter().map(|word| bed.fill(word)).collect()
        };
        let won = |text: &str| -> Vec<u32> {
            text.split(' ').filter_map(|n| n.parse().ok()).collect::<Vec<u32>>()
        };
        let bare = line("20000", "120");
        let output = std::process::Command::new(&bare[0]).args(&bare[1..]).output();
        let output = String::from_utf8(output.expect("python3").stdout).expect("text");
        let found = won(output.trim());
        assert!(found.len() == 2 && found[1] > 0, "{name}: the control never won: {output}");
        let words = line("1500", if moves { "60" } else { "2" });
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = bed.launch(policy, &["--quiet"], &words);
        let found = won(run.last());
        assert!(found.len() == 2 && found[1] == 0, "{name}: {run:?}");
        assert_eq!(found[0] > 0, moves, "{name}: {run:?}");
    }
}
