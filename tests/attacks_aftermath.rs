//! Attacks on what the launcher does at the end of a run, outside of every domain.
#![cfg(target_os = "linux")]

mod support;

use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::Bed;

/// A user without privileges: for root, permissions of its own stop nothing.
const USER: u32 = 65534;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("stat").permissions().mode() & 0o7777
}

/// The temporary directory is emptied by the launcher, outside of every domain. A link that cannot be
/// removed, in a directory that the run made read-only, must not be followed by a chmod.
#[test]
fn emptying_the_temporary_directory_follows_no_link() {
    let bed = Bed::new(&[]);
    let root = rustix::process::getuid().is_root();
    let (inside, victim) = (bed.root().join("in"), bed.root().join("out/victim"));
    std::fs::write(&victim, "x").expect("write");
    if root {
        for path in [&bed.root(), &inside, &bed.root().join("out"), &victim] {
            std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("chown");
        }
    }
    std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o604)).expect("chmod");
    let uid = format!("uid={USER}");
    let options: &[&str] = if root { &[&uid] } else { &[] };
    let script = "ln -s {out}/victim $TMPDIR/link && chmod 500 $TMPDIR && echo $TMPDIR";
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}});
    let run = bed.launch(&policy, options, &["sh", "-c", script]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let temporary = Path::new(run.last());
    let left = temporary.exists();
    if left {
        std::fs::set_permissions(temporary, PermissionsExt::from_mode(0o700)).expect("chmod");
        std::fs::remove_dir_all(temporary).expect("remove");
    }
    assert_eq!(mode(&victim), 0o604, "the launcher changed a file outside");
    assert!(!left, "{} was left behind", temporary.display());
}

/// A file in /dev/shm goes under each of its names.
#[test]
fn no_name_of_a_shared_memory_file_stays() {
    let bed = Bed::new(&[]);
    let names =
        ["a", "b", "c"].map(|n| format!("/dev/shm/landstrip-test-{}-{n}", std::process::id()));
    let script = format!(
        "echo x > {0} && ln {0} {1} && ln {0} {2} && echo made",
        names[0], names[1], names[2]
    );
    let run = bed.launch(&json!({}), &[], &["sh", "-c", &script]);
    let left: Vec<&String> = names.iter().filter(|n| std::fs::remove_file(n).is_ok()).collect();
    assert_eq!(run.last(), "made", "{run:?}");
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Killed at any moment, a launcher leaves nothing that the next run does not remove: neither the
/// directory of one that was killed before its watcher was there, nor what is in one later.
#[test]
fn a_killed_launcher_leaves_no_temporary_directory() {
    const KILLS: u32 = 200;
    let bed = Bed::new(&[]);
    let parent = bed.root().join("out");
    let policy = bed.policy(&json!({}));
    let launcher = |script: &str| {
        let mut command = bed.command(Path::new(support::LANDSTRIP));
        command.args(["run", "--quiet", "-p"]).arg(&policy).args(["--", "sh", "-c", script]);
        // Who is being killed with its launcher may find that nobody answers, and say so.
        command.env("TMPDIR", &parent).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::null());
        command
    };
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&parent).expect("a directory").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    // How long a launch takes here.
    let start = std::time::Instant::now();
    assert!(launcher(":").status().expect("a run").success());
    let whole = start.elapsed();
    let mut left = 0;
    for kill in 0..KILLS {
        let mut child =
            launcher("echo x > $TMPDIR/file; exec sleep 60").spawn().expect("a launcher");
        // A bit later each time, to hit every stage.
        let at = std::time::Instant::now() + whole * kill / KILLS;
        while std::time::Instant::now() < at {
            std::hint::spin_loop();
        }
        child.kill().expect("kill");
        child.wait().expect("its end");
        left = left.max(names().len());
    }
    assert!(left > 0, "no kill came between the directory and its end");
    // Who waits for the watchers of the killed, and for its own, sees them all go but its own.
    let wait = "until [ \"$(ls ..)\" = \"${TMPDIR##*/}\" ]; do :; done; echo alone";
    let mut child = launcher(&format!("cd $TMPDIR && {wait}")).spawn().expect("a launcher");
    let ended = support::wait(&mut child, support::PATIENCE);
    if ended.is_none() {
        let _ = child.kill();
    }
    assert!(ended.is_some_and(|status| status.success()), "left behind: {:?}", names());
    assert_eq!(names(), Vec::<String>::new());
}

/// A directory that a live run works in stays, whoever comes after it.
#[test]
fn a_live_temporary_directory_is_not_taken_for_one_that_was_left() {
    let bed = Bed::new(&[]);
    let parent = bed.root().join("out");
    let policy = bed.policy(&json!({}));
    let run = |script: &str| {
        let mut command = bed.command(Path::new(support::LANDSTRIP));
        command.args(["run", support::ACCEPT, "-p"]).arg(&policy).args(["--", "sh", "-c", script]);
        command.env("TMPDIR", &parent);
        command
    };
    let mut first = run("echo; read x; cd $TMPDIR && echo x > file")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a launcher");
    let mut line = [0];
    std::io::Read::read_exact(first.stdout.as_mut().expect("piped"), &mut line).expect("a line");
    let left = parent.join("landstrip-00000000000000ff");
    std::fs::create_dir(&left).expect("mkdir");
    // The control: the one that nobody holds goes.
    let second = run("until [ ! -e $PWD/../out/landstrip-00000000000000ff ]; do :; done").status();
    assert!(second.expect("a run").success() && !left.exists());
    drop(first.stdin.take());
    assert!(first.wait().expect("its end").success());
}

/// A link that a run leaves at a path of its own policy, or on the way to one: the next run would follow
/// it, and grant what it leads to.
#[test]
fn no_link_is_left_for_the_next_run_to_follow() {
    let victim = "put {out}/f theirs";
    let grants = |paths: &[&str]| json!({"filesystem": {"allowWrite": paths}});
    let sockets = json!({
        "filesystem": {"allowWrite": ["."]}, "network": {"allowUnixSockets": ["./sock"]},
    });
    let read = json!({"filesystem": {
        "allowWrite": ["."], "denyRead": ["{out}/f"], "allowRead": ["./shown"],
    }});
    let cases: &[(&str, serde_json::Value, &[&str], &str)] = &[
        ("a file", grants(&["conf"]), &["put {in}/conf x"], "rm conf; ln -s {out} conf"),
        ("what is missing", grants(&["conf"]), &[], "ln -s {out} conf"),
        ("a file, beside", grants(&[".", "conf"]), &["put {in}/conf x"], "ln -sfT {out} conf"),
        (
            "a directory",
            grants(&[".", "a/b"]),
            &["mkdirat AT_FDCWD \"{in}/a 0755", "mkdirat AT_FDCWD \"{in}/a/b 0755"],
            "rmdir a/b; ln -s {out} a/b",
        ),
        ("its parent", grants(&[".", "a/b"]), &[], "ln -s {out} a"),
        ("moved there", grants(&[".", "a/b"]), &[], "ln -s {out} l; mv -T l a"),
        ("linked there", grants(&[".", "a/b"]), &[], "ln -s {out} l; ln -P l a"),
        (
            "exchanged",
            grants(&[".", "a/b"]),
            &["mkdirat AT_FDCWD \"{in}/a 0755"],
            "ln -s {out} l; python3 -c 'import ctypes, sys; \
             sys.exit(ctypes.CDLL(None).renameat2(-100, b\"l\", -100, b\"a\", 2) != 0)'",
        ),
        (
            "in a directory that is moved there",
            grants(&[".", "a/b/c"]),
            &[],
            "mkdir x; ln -s {out} x/b; mv -T x a",
        ),
        ("before a wildcard", grants(&[".", "a/*.log"]), &[], "ln -s {out} a"),
        ("for reading", read, &[], "ln -s {out}/f shown"),
        ("for a socket", sockets, &[], "ln -s {out} sock"),
        (
            "a link that is there",
            grants(&[".", "l/x"]),
            &["mkdirat AT_FDCWD \"{in}/d 0755", "symlinkat \"d AT_FDCWD \"{in}/l"],
            "ln -sfn {out} l",
        ),
    ];
    for (name, policy, setup, script) in cases {
        for beside in [None, Some("**/*.denied")] {
            let mut policy = policy.clone();
            if let Some(glob) = beside {
                policy["filesystem"]["denyWrite"] = json!([glob]);
            }
            let setup = [*setup, &[victim]].concat();
            let bed = Bed::new(&setup);
            let script = bed.fill(script);
            let script = format!("set -e; {script}; echo planted");
            let bare = std::process::Command::new("sh")
                .args(["-c", &script])
                .current_dir(bed.root().join("in"))
                .output()
                .expect("sh");
            assert!(
                String::from_utf8_lossy(&bare.stdout).ends_with("planted\n"),
                "{name}: {bare:?}"
            );
            bed.reset(&setup);
            let run = bed.launch(&policy, &[], &["sh", "-c", &script]);
            assert_ne!(run.last(), "planted", "{name}: {policy}");
            let refused = run.traps.iter().any(|t| {
                t["message"].as_str().is_some_and(|m| m.contains("the next run"))
                    || t["reason"] == "deny_match"
            });
            assert!(refused, "{name}: {run:?}");
        }
    }
    // Links elsewhere, and files at those names, are made as ever.
    let bed = Bed::new(&[]);
    let script = "set -e; ln -s {out} free; mv free other; mkdir -p a/b; echo x > a/b/t; \
        mv a/b/t a/b/c; echo y > n; mv n conf; ln -sf x l; echo fine";
    let run = bed.launch(&grants(&[".", "a/b", "conf"]), &[], &["sh", "-c", &bed.fill(script)]);
    assert_eq!(run.last(), "fine", "{run:?}");
}
