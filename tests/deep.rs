//! Trees that are deeper than a path can be long: 300 names of 100 bytes.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use support::Bed;

/// Works in `deep` below the start directory by names relative to where it is.
const PRELUDE: &str = r#"
import os, subprocess, sys
name = "n" * 99
def down(depth, start="deep"):
    os.chdir(start)
    for level in range(depth):
        os.chdir(name + chr(97 + level % 26))
def make(depth):
    os.mkdir("deep")
    os.chdir("deep")
    for level in range(depth):
        this = name + chr(97 + level % 26)
        os.mkdir(this)
        os.chdir(this)
        if level % 50 == 49:
            open("file", "w").write("text")
def refused(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except PermissionError:
        return
    raise SystemExit(f"allowed: {call.__name__} {arguments}")
"#;

const MAKE: &str = "make(300)";

fn policies() -> Vec<(&'static str, Value)> {
    vec![
        ("the kernel holds", json!({"filesystem": {"allowWrite": ["."]}})),
        (
            "the broker acts",
            json!({"filesystem": {
                "allowWrite": ["."], "denyWrite": ["**/*.denied", "**/hooks/below"],
            }}),
        ),
        (
            "the broker reads",
            json!({"filesystem": {
                "allowWrite": ["."], "denyWrite": ["**/*.denied", "**/hooks/below"],
                "denyRead": ["**/*.hidden"],
            }}),
        ),
    ]
}

fn python(bed: &Bed, policy: Option<&Value>, program: &str) -> Output {
    let program = format!("{PRELUDE}{program}");
    let mut line = vec!["python3".to_owned(), "-c".to_owned(), program];
    if let Some(policy) = policy {
        let file = bed.policy(policy).display().to_string();
        let ours = [support::LANDSTRIP, "run", support::ACCEPT, "-p", &file, "--"];
        line.splice(0..0, ours.map(str::to_owned));
    }
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).current_dir(bed.root().join("in")).stdin(Stdio::null());
    command.output().expect("python3")
}

/// Removes what a test left, which the tree of the bed cannot.
fn clear(bed: &Bed) {
    let done = Command::new("rm").args(["-rf", "deep"]).current_dir(bed.root().join("in")).status();
    assert!(done.expect("rm").success());
}

/// The programs of a build, and what removes it, work as without a sandbox.
#[test]
fn what_works_bare_works_in_a_deep_tree() {
    if !support::have::have("deep trees", &["/usr/bin/python3"]) {
        return;
    }
    let work = r#"
make(300)
os.mkdir("sub")
open("sub/new", "w").write("x")
os.rename("sub/new", "new")
os.link("new", "second")
os.symlink("new", "soft")
open("soft", "a").write("y")
os.rename("sub", "dir")
os.chmod("new", 0o600)
os.utime("new", (1, 1))
assert os.stat("new").st_mtime == 1
os.truncate("new", 1)
d = os.open("dir", os.O_RDONLY)
os.mkdir("below", dir_fd=d)
os.open("file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=d)
os.replace("file", "moved", src_dir_fd=d, dst_dir_fd=d)
os.chmod(d, 0o700)
os.mkdir("up")
os.chdir("up")
open("../beside", "w").write("z")
os.mkdir("../../cousin")
subprocess.run(["sh", "-ec", "echo x > made; mkdir -p a/b/c; cp made a/b/c; rm -r a; cat made"], check=True)
os.chdir("..")
print(sorted(os.listdir(".")), open("new").read(), os.stat("dir").st_mode)
"#;
    let remove = r#"subprocess.run(["rm", "-r", "deep"], check=True); print(os.listdir("."))"#;
    let bed = Bed::new(&[]);
    let [made, removed] = [work, remove].map(|program| python(&bed, None, program));
    assert!(made.status.success() && removed.status.success(), "{made:?} {removed:?}");
    for (name, policy) in policies() {
        let boxed = python(&bed, Some(&policy), work);
        let same = (&boxed.stdout, boxed.status.code()) == (&made.stdout, Some(0));
        assert!(same, "{name}: {boxed:?}\ninstead of {made:?}");
        assert!(boxed.stderr.is_empty(), "{name}: {boxed:?}");
        let boxed = python(&bed, Some(&policy), remove);
        assert_eq!(boxed.stdout, removed.stdout, "{name}: {boxed:?}");
        assert!(boxed.status.success(), "{name}: {boxed:?}");
        clear(&bed);
    }
}

/// A name that is denied is denied at any depth, and whatever is denied outside.
#[test]
fn denials_hold_in_a_deep_tree() {
    if !support::have::have("deep trees", &["/usr/bin/python3"]) {
        return;
    }
    let outside = r#"
make(300)
refused(os.mkdir, "x")
refused(open, "x", "w")
refused(open, "file", "a")
refused(os.rename, "file", "file2")
refused(os.chmod, "file", 0o600)
refused(os.unlink, "file")
refused(os.symlink, "a", "b")
"#
    .replace("make(300)", "down(300)");
    let named = r#"
down(300)
refused(open, "x.denied", "w")
refused(os.mkdir, "x.denied")
refused(os.rename, "file", "file.denied")
refused(os.link, "file", "file.denied")
os.mkdir("hooks")
refused(os.mkdir, "hooks/below")
refused(os.rename, "hooks", "other")
refused(os.symlink, "a", "hooks/below")
d = os.open("hooks", os.O_RDONLY)
refused(os.mkdir, "below", dir_fd=d)
os.chdir("hooks")
refused(os.mkdir, "below")
refused(os.rename, "../file", "below")
"#;
    let bed = Bed::new(&[]);
    assert!(python(&bed, None, MAKE).status.success());
    let stays = json!({"filesystem": {"allowWrite": ["."], "denyWrite": ["deep"]}});
    let globs = &policies()[1].1;
    for (policy, program) in [(&stays, outside.as_str()), (globs, named)] {
        // What is refused works bare: then the first one says that it was allowed.
        let bare = python(&bed, None, program);
        assert!(String::from_utf8_lossy(&bare.stderr).contains("allowed"), "{bare:?}");
        clear(&bed);
        assert!(python(&bed, None, MAKE).status.success());
        let boxed = python(&bed, Some(policy), program);
        assert!(boxed.status.success(), "{policy}: {boxed:?}");
    }
    // A directory that does not show its names has none that could be decided on.
    let hidden =
        "down(299); os.chmod('.', 0o300); os.chdir(name + chr(97 + 299 % 26)); os.mkdir('x')";
    let bare = python(&bed, None, &hidden.replace("'x'", "'bare'"));
    assert!(bare.status.success(), "{bare:?}");
    if !rustix::process::getuid().is_root() {
        let boxed = python(&bed, Some(globs), hidden);
        let errors = String::from_utf8_lossy(&boxed.stderr);
        assert!(errors.contains("File name too long"), "{errors}");
        assert!(errors.contains("longer than 4095 bytes"), "{errors}");
    }
    let show = "down(299); os.chmod('.', 0o700)";
    assert!(python(&bed, None, show).status.success());
    clear(&bed);
}
