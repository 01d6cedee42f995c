//! Attacks by way of names: what stands at a name on the way to a denial, other names that a mount or a
//! terminal has. Each one works without the sandbox.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output};
use support::Bed;
use support::have::have;

/// Runs `script` in the directory `in`, bare and under `policy`, on a fresh bed each time.
fn both(setup: &str, policy: &Value, script: &str) -> (Output, Output) {
    let sh = |bed: &Bed, prefix: &[&str], script: &str| {
        let mut line: Vec<String> = prefix.iter().map(|s| (*s).to_owned()).collect();
        line.extend(["sh", "-ec", script].map(str::to_owned));
        let inside = bed.root().join("in");
        let output = Command::new(&line[0]).args(&line[1..]).current_dir(inside).output();
        output.expect("sh")
    };
    let run = |sandboxed: bool| {
        let bed = Bed::new(&[]);
        assert!(sh(&bed, &[], setup).status.success(), "{setup}");
        let file = bed.policy(policy);
        let launcher = env!("CARGO_BIN_EXE_landstrip");
        let prefix = [launcher, "run", support::ACCEPT, "-p", file.to_str().expect("UTF-8"), "--"];
        sh(&bed, if sandboxed { &prefix } else { &[] }, script)
    };
    (run(false), run(true))
}

/// The script works bare, and fails in the sandbox.
fn refused(name: &str, setup: &str, policy: &Value, script: &str) {
    let (bare, sandboxed) = both(setup, policy, script);
    assert!(bare.status.success(), "{name}: the control failed: {bare:?}");
    assert!(!sandboxed.status.success(), "{name}: {sandboxed:?}");
}

/// Git reads its configuration through whatever stands at `.git`.
#[test]
fn nothing_takes_the_place_of_a_directory_that_a_denial_names() {
    let policy = json!({"filesystem": {
        "allowWrite": ["."],
        "denyWrite": ["**/.git/config", "**/.git/hooks", "**/.git/commondir"],
    }});
    let setup = "mkdir -p .git/hooks sub evil; echo x > .git/config; echo y > sub/file";
    for (name, script) in [
        ("a file", "echo gitdir: ../evil > sub/.git"),
        ("a link", "ln -s ../evil sub/.git"),
        ("a hard link", "ln sub/file sub/.git"),
        ("a file moved there", "mv sub/file sub/.git"),
        ("a directory moved there", "mv evil sub/.git"),
        ("the directory moved away", "mv .git old"),
        ("the directory moved down", "mv .git sub/.git"),
        ("a FIFO", "mkfifo sub/.git"),
        ("another common directory", "echo ../evil > .git/commondir"),
    ] {
        refused(name, setup, &policy, script);
    }
    // A submodule's own file, which is there already.
    refused("an existing file", "mkdir sub; echo x > sub/.git", &policy, "echo y > sub/.git");
    let (_, fine) = both(setup, &policy, "mkdir -p sub/.git; echo x > .git/HEAD; mv sub sub2");
    assert!(fine.status.success(), "{fine:?}");
}

/// A link that is moved or linked to a name on the way to a denial stands for what is denied, as one
/// that is made there.
#[test]
fn a_link_gets_no_name_on_the_way_to_a_denial() {
    let policy = json!({"filesystem": {"allowWrite": ["."], "denyRead": ["t/secret"]}});
    let setup = "mkdir mine; ln -s mine link; echo x > mine/secret; echo y > file";
    for (name, script) in
        [("made", "ln -s mine t"), ("linked", "ln -P link t"), ("moved", "mv -T link t")]
    {
        refused(name, setup, &policy, script);
    }
    let (_, fine) = both(setup, &policy, "ln -P link t2; mv link t3; ln -P file t4");
    assert!(fine.status.success(), "{fine:?}");
}

/// What stands in the temporary directory is removed at the end, by the launcher, which no denial holds.
#[test]
fn the_temporary_directory_takes_nothing_that_is_denied_along() {
    let policy = json!({"filesystem": {"allowWrite": ["."], "denyWrite": ["**/.git/hooks"]}});
    let setup = "mkdir -p repo/.git/hooks; echo x > repo/.git/hooks/h; mkdir free; echo y > file";
    let script = "t=$(mktemp -d); mv repo $t/repo; rm -rf $t";
    refused("moved", setup, &policy, script);
    let exchange = "t=$(mktemp -d); mkdir $t/d; mv --exchange -T $t/d repo";
    if Command::new("mv")
        .arg("--help")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--exchange"))
    {
        refused("exchanged", setup, &policy, exchange);
    }
    let fine =
        "mkdir $TMPDIR/a; mv $TMPDIR/a $TMPDIR/b; mv file $TMPDIR/f; mv $TMPDIR/f f; mv free g";
    let (_, fine) = both(setup, &policy, &fine.replace("$TMPDIR", "${TMPDIR:-.}"));
    assert!(fine.status.success(), "{fine:?}");
}

/// Files in memory have paths that begin so, and no policy is about them.
#[test]
fn a_file_that_is_called_like_one_in_memory_is_none() {
    if !support::have::have("names in /", &["root"]) {
        return;
    }
    let top = format!("/memfd:landstrip-test-{}", std::process::id());
    std::fs::create_dir(&top).expect("mkdir");
    let policy = json!({"filesystem": {"allowWrite": ["/"], "denyWrite": ["/**/secret"]}});
    let (bare, sandboxed) = both("true", &policy, &format!("echo x > {top}/secret"));
    let (_, fine) = both("true", &policy, &format!("echo x > {top}/other"));
    std::fs::remove_dir_all(&top).expect("remove");
    assert!(bare.status.success() && fine.status.success(), "{bare:?} {fine:?}");
    assert!(!sandboxed.status.success(), "{sandboxed:?}");
}

/// The same directory, mounted elsewhere.
#[test]
fn a_denial_holds_where_a_mount_shows_the_same_directory() {
    let unshare = ["unshare", "-m", "--propagation", "private"];
    let mut mount = Command::new(unshare[0]);
    mount.args(&unshare[1..]).args(["mount", "-t", "tmpfs", "t", "/mnt"]);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        assert!(!rustix::process::getuid().is_root(), "root may mount");
        eprintln!("skipped: only root may mount");
        return;
    }
    let bed = Bed::new(&[]);
    let inside = bed.root().join("in");
    let policy = json!({"filesystem": {
        "allowWrite": ["."], "denyRead": ["secret"], "denyWrite": ["kept"],
    }});
    let file = bed.policy(&policy);
    for (name, script) in [
        ("reading", "cat alias/secret/key"),
        ("reading what is mounted of it", "cat part/key"),
        ("writing", "echo x > alias/kept/file"),
    ] {
        for sandboxed in [false, true] {
            let launcher = env!("CARGO_BIN_EXE_landstrip");
            let prefix = if sandboxed {
                format!("{launcher} run -p {} -- ", file.display())
            } else {
                String::new()
            };
            let line = format!(
                "mkdir -p secret kept alias part && echo k > secret/key && mount --bind . alias && \
                 mount --bind secret part && exec {prefix} sh -ec '{script}'"
            );
            let output = Command::new(unshare[0])
                .args(&unshare[1..])
                .args(["sh", "-ec", &line])
                .current_dir(&inside)
                .output()
                .expect("unshare");
            assert_eq!(output.status.success(), !sandboxed, "{name}: {output:?}");
        }
    }
}

/// procfs, mounted a second time: the path no longer says that it shows the launcher's memory.
#[test]
fn procfs_elsewhere_does_not_show_the_launcher() {
    let mut unshare = vec!["unshare", "-m", "--propagation", "private"];
    if !rustix::process::getuid().is_root() {
        unshare.push("--map-root-user");
    }
    let start = || {
        let mut command = Command::new(unshare[0]);
        command.args(&unshare[1..]);
        command
    };
    if !start().arg("true").output().is_ok_and(|output| output.status.success()) {
        assert!(!rustix::process::getuid().is_root(), "root may mount");
        eprintln!("skipped: mounts need root or user namespaces");
        return;
    }
    let bed = Bed::new(&[]);
    let inside = bed.root().join("in");
    let file = bed.policy(&json!({"filesystem": {
        "allowWrite": ["."], "denyWrite": ["**/.env"], "denyRead": ["**/.env"],
    }}));
    for (name, script) in [
        ("its memory", ": <> p/$PPID/mem"),
        ("reading its memory", ": < p/$PPID/mem"),
        ("of a thread", ": <> p/$PPID/task/$PPID/mem"),
        ("its environment", ": < p/$PPID/environ"),
        ("its descriptors", "ls p/$PPID/fd/"),
        ("mounted by itself", ": <> one/mem"),
    ] {
        for sandboxed in [false, true] {
            let prefix = if sandboxed {
                format!("{} run -p {} -- ", env!("CARGO_BIN_EXE_landstrip"), file.display())
            } else {
                String::new()
            };
            // Not the last command, so that the shell stays as its parent.
            let line = format!(
                "mkdir -p p one; mount --rbind /proc p; mount --bind /proc/$$ one
                 {prefix}sh -ec '{script}' || exit 1; exit 0"
            );
            let mut command = start();
            let output = command.args(["sh", "-ec", &line]).current_dir(&inside).output();
            let output = output.expect("unshare");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), !sandboxed, "{name}: {output:?}");
            assert_eq!(errors.contains("ermission denied"), sandboxed, "{name}: {errors}");
        }
    }
}

/// A lease keeps the broker from reading a script, and the kernel waits for its end.
#[test]
fn a_lease_does_not_hide_an_interpreter() {
    let program = r#"
import fcntl, os, signal
f = open("script")
fd = f.fileno()
signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK))
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
child = os.fork()
if child == 0:
    try:
        os.execv("./script", ["./script"])
    finally:
        os._exit(1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;
    let setup = "cp /bin/true hidden; echo '#!./hidden' > script; chmod 755 script";
    let policy = json!({"filesystem": {"allowWrite": ["."], "denyRead": ["**/hidden"]}});
    refused("a lease", setup, &policy, &format!("exec python3 -c '{program}'"));
}

/// A terminal of this process, and its name.
fn terminal() -> (OwnedFd, String) {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let master = rustix::pty::openpt(flags).expect("openpt");
    rustix::pty::grantpt(&master).expect("grantpt");
    rustix::pty::unlockpt(&master).expect("unlockpt");
    let name =
        rustix::pty::ptsname(&master, Vec::new()).expect("ptsname").into_string().expect("UTF-8");
    assert!(Path::new(&name).exists());
    (master, name)
}

/// Policies under which the kernel opens what is read, and the broker.
fn readers() -> [Value; 2] {
    let by_broker = json!({"filesystem": {"allowWrite": ["."], "denyRead": ["**/hidden"]}});
    [json!({}), by_broker]
}

/// A terminal is set by whoever has it open, for reading too.
#[test]
fn terminals_outside_are_not_set() {
    let (_master, name) = terminal();
    for policy in readers() {
        refused("a terminal", "true", &policy, &format!("exec stty -F {name} -echo"));
        let (_, fine) = both("true", &policy, &format!("exec 3< {name}"));
        assert!(fine.status.success(), "{policy}: {fine:?}");
        // The run's own terminals are set.
        let own = "import os, pty, termios; m, s = pty.openpty(); \
            t = os.open(os.ttyname(s), os.O_RDWR); \
            termios.tcsetattr(t, termios.TCSANOW, termios.tcgetattr(t))";
        let (_, fine) = both("true", &policy, &format!("python3 -c '{own}'"));
        assert!(fine.status.success(), "{policy}: {fine:?}");
    }
}

/// A process without a terminal has the one that it opens for its own, also for reading, and then it is `/dev/tty`.
#[test]
fn terminals_outside_are_not_written_as_ones_own() {
    let (_master, name) = terminal();
    let program = |then: &str| {
        format!(
            "exec setsid -w python3 -c 'import os; os.open(\"{name}\", os.O_RDONLY); \
            t = os.open(\"/dev/tty\", os.O_RDWR); {then}'"
        )
    };
    for policy in readers() {
        refused("a terminal", "true", &policy, &program("os.write(t, b\"evil\")"));
        // One of the run's own is had like this.
        let own = "import os, pty; child, m = pty.fork(); \
            t = os.open(\"/dev/tty\", os.O_RDWR) if child == 0 else 0; \
            child or os._exit(0 if os.write(t, b\"x\") == 1 else 1); \
            os.read(m, 1); raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";
        let (bare, fine) = both("true", &policy, &format!("exec python3 -c '{own}'"));
        assert!(bare.status.success() && fine.status.success(), "{policy}: {bare:?} {fine:?}");
    }
}

/// What a device does for whoever has it open, for reading too: here it gives what userfaultfd(2) would.
#[test]
fn devices_that_may_be_read_are_not_controlled() {
    let name = "/dev/userfaultfd";
    if !have("devices", &["root"]) || std::fs::File::open(name).is_err() {
        return;
    }
    let script = |then: &str| {
        format!("python3 -c 'import fcntl, os; d = os.open(\"{name}\", os.O_RDONLY); {then}'")
    };
    for policy in readers() {
        refused("a device", "true", &policy, &script("fcntl.ioctl(d, 0xaa00, 0)"));
        // It is opened.
        let flags = "assert fcntl.fcntl(d, fcntl.F_GETFL) & os.O_NONBLOCK == 0";
        let (_, fine) = both("true", &policy, &script(flags));
        assert!(fine.status.success(), "{policy}: {fine:?}");
    }
}

/// A terminal of the same user that the run did not make takes escape sequences.
#[test]
fn terminals_outside_are_not_written() {
    let (_master, name) = terminal();
    refused("a terminal", "true", &json!({}), &format!("echo evil > {name}"));
    // The run's own terminals work.
    let own = "import os, pty; m, s = pty.openpty(); os.close(os.open(os.ttyname(s), os.O_RDWR))";
    let (_, fine) = both("true", &json!({}), &format!("python3 -c '{own}'"));
    assert!(fine.status.success(), "{fine:?}");
}

/// What the run builds beside a file that may not be read runs all the same.
#[test]
fn a_new_program_beside_a_hidden_file_runs() {
    let policy = json!({"filesystem": {"allowWrite": ["."], "denyRead": [".env", "**/*.pem"]}});
    let script = "cp /bin/echo built; mkdir new; cp built new/built; ./built a; new/built b";
    let (_, fine) = both("echo secret > .env", &policy, script);
    assert_eq!(String::from_utf8_lossy(&fine.stdout), "a\nb\n", "{fine:?}");
    // Nobody may still have it open for writing when it is run.
    let again = "for i in $(seq 100); do cp /bin/echo built$i; ./built$i x > /dev/null; done";
    let (_, fine) = both("echo secret > .env", &policy, again);
    assert!(fine.status.success(), "{fine:?}");
    refused("the file", "echo secret > .env", &policy, "cat .env");
    refused("as another user of the kernel would", "cp /bin/true x.pem", &policy, "./x.pem");
}
