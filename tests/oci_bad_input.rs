//! Documents, roots and places that are not as they should be: a clear error, and nothing left behind.
#![cfg(target_os = "linux")]

mod support;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};
use support::have::have;
use support::place::{Answer, Place, id, ready};

/// The containers that are known in a place.
fn known(place: &Place) -> usize {
    std::fs::read_dir(place.path("state")).map_or(0, Iterator::count)
}

/// Creates a container from a text, which must be refused for a reason that `says` names.
fn refused(place: &Place, text: &[u8], says: &[&str]) {
    std::fs::write(place.path("config.json"), text).expect("a document");
    let id = id();
    let answer = place.call(&["create", "-b", ".", &id]);
    let shown = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
    for says in ["config.json"].iter().chain(says) {
        assert!(answer.err.contains(says), "{says}: {answer:?} {shown}");
    }
    assert_eq!(answer.err.lines().count(), 1, "{answer:?} {shown}");
    assert!(!matches!(answer.code, Some(0 | 124 | 137) | None), "{answer:?} {shown}");
    assert_eq!(known(place), 0, "{shown}");
}

#[test]
fn texts_that_are_no_document() {
    if !ready("texts that are no document") {
        return;
    }
    let place = Place::new();
    place.program(&["id"]);
    let good = std::fs::read(place.path("config.json")).expect("a document");
    let deep = |open: &str| open.repeat(200_000).into_bytes();
    for (text, says) in [
        (Vec::new(), "EOF"),
        (b"\xef\xbb\xbf{}".to_vec(), "expected value"),
        (b"[]".to_vec(), "ociVersion: is missing"),
        (b"null".to_vec(), "expected struct Spec"),
        (b"\xff\xfe{".to_vec(), "expected value"),
        (vec![0; 4096], "expected value"),
        ([&good[..], b"{}"].concat(), "trailing characters"),
        (deep("["), "config.json"),
        (deep("{\"process\":"), "config.json"),
        (deep("{\"unknown\":"), "EOF"),
    ] {
        refused(&place, &text, &[says]);
    }
    // Every tenth beginning of a good one.
    for length in (1..good.len()).step_by(10) {
        refused(&place, &good[..length], &[]);
    }
    // Larger than any document: not read to its end.
    let file = std::fs::File::create(place.path("config.json")).expect("a file");
    file.set_len(100 << 20).expect("a size");
    place.call(&["create", "-b", ".", &id()]).bad("larger than 64 MiB");
    // One that is large, and says nothing wrong, is read.
    let mut large: Value = serde_json::from_slice(&good).expect("JSON");
    large["annotations"]["org.example.large"] = json!("x".repeat(8 << 20));
    std::fs::write(place.path("config.json"), large.to_string()).expect("a document");
    place.call(&["run", "-b", ".", &id()]).good();

    std::fs::remove_file(place.path("config.json")).expect("the document");
    place.call(&["create", "-b", ".", &id()]).bad("config.json: No such file");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("config.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    place.call(&["create", "-b", ".", &id()]).bad("config.json: EOF");
    std::fs::remove_file(place.path("config.json")).expect("the FIFO");
    std::fs::create_dir(place.path("config.json")).expect("a directory");
    place.call(&["create", "-b", ".", &id()]).bad("config.json: Is a directory");
    place.call(&["create", "-b", "nowhere", &id()]).bad("nowhere/config.json: No such file");
    place.call(&["run", "-b", "/dev/null", &id()]).bad("Not a directory");
    assert_eq!(known(&place), 0);
}

#[test]
fn documents_that_say_what_cannot_be() {
    if !ready("documents that say what cannot be") {
        return;
    }
    let place = Place::new();
    place.program(&["id"]);
    let good: Value =
        serde_json::from_slice(&std::fs::read(place.path("config.json")).expect("a document"))
            .expect("JSON");
    let twice = json!([{"type": "mount"}, {"type": "pid"}, {"type": "pid"}]);
    let map = json!([{"containerID": 0, "hostID": 0, "size": 1}]);
    for (pointer, value, key, cause) in [
        ("/ociVersion", json!(1), "ociVersion", "expected a string"),
        ("/ociVersion", json!("0.9"), "ociVersion", "no version 1"),
        ("/root", Value::Null, "root.path", "is missing"),
        ("/root/path", json!(""), "root.path", "is missing"),
        ("/root/path", json!(["a"]), "root.path", "expected path string"),
        ("/process", json!("id"), "process", "invalid type"),
        ("/process/args", json!("id"), "process.args", "expected a sequence"),
        ("/process/args", json!(["id", 7]), "process.args[1]", "expected a string"),
        ("/process/args", json!([]), "process.args", "is missing"),
        ("/process/args", json!(["a\0b"]), "process.args[0]", "NUL"),
        ("/process/env", json!(["A=\0"]), "process.env[0]", "NUL"),
        ("/process/cwd", json!("tmp"), "process.cwd", "is not absolute"),
        ("/process/user/uid", json!(-1), "process.user.uid", "expected u32"),
        ("/process/user/uid", json!(4_294_967_296_u64), "process.user.uid", "expected u32"),
        ("/process/user/gid", json!("0"), "process.user.gid", "expected u32"),
        ("/process/user/umask", json!(0o1000), "process.user.umask", "0777"),
        ("/process/oomScoreAdj", json!(2000), "process.oomScoreAdj", "1000"),
        (
            "/process/rlimits",
            json!([{"type": "RLIMIT_X", "soft": 1, "hard": 1}]),
            "process.rlimits[0].type",
            "RLIMIT_X",
        ),
        (
            "/process/rlimits",
            json!([{"type": "RLIMIT_CORE", "soft": 2, "hard": 1}]),
            "process.rlimits[0]",
            "soft is above hard",
        ),
        (
            "/process/capabilities/bounding",
            json!("CAP_KILL"),
            "process.capabilities.bounding",
            "expected a sequence",
        ),
        (
            "/process/landlock",
            json!({"ruleset": {"handledAccessFS": ["fly"]}}),
            "process.landlock.ruleset.handledAccessFS",
            "\"fly\" is not known",
        ),
        (
            "/mounts",
            json!([{"destination": "/x", "type": "tmpfs", "options": 7}]),
            "mounts[0].options",
            "expected a sequence",
        ),
        ("/hooks", json!({"prestart": [{"path": "bin/x"}]}), "hooks", "not absolute"),
        ("/hooks", json!({"prestart": [{"path": "/x", "timeout": 0}]}), "hooks", "not positive"),
        ("/linux/namespaces", json!([]), "linux.namespaces", "mount namespace"),
        ("/linux/namespaces", twice, "linux.namespaces[2]", "given twice"),
        (
            "/linux/namespaces",
            json!([{"type": "moon"}]),
            "linux.namespaces[0].type",
            "unknown variant",
        ),
        (
            "/linux/namespaces",
            json!([{"type": "mount", "path": "x"}]),
            "linux.namespaces[0].path",
            "not absolute",
        ),
        ("/linux/uidMappings", map, "linux.uidMappings", "need a user namespace"),
        (
            "/linux/timeOffsets",
            json!({"monotonic": {"secs": 1}}),
            "linux.timeOffsets",
            "time namespace",
        ),
        ("/linux/netDevices", json!({"a/b": {}}), "linux.netDevices", "no name of a device"),
        (
            "/linux/resources",
            json!({"memory": {"limit": "1G"}}),
            "linux.resources.memory.limit",
            "expected i64",
        ),
        (
            "/linux/resources",
            json!({"pids": {"limit": 1.5}}),
            "linux.resources.pids.limit",
            "expected i64",
        ),
        (
            "/linux/devices",
            json!([{"path": "/dev/x", "type": "q"}]),
            "linux.devices[0].type",
            "unknown variant",
        ),
        (
            "/linux/seccomp",
            json!({"defaultAction": "SCMP_ACT_FLY"}),
            "linux.seccomp.defaultAction",
            "unknown variant",
        ),
    ] {
        let mut document = good.clone();
        let (above, name) = pointer.rsplit_once('/').expect("a pointer");
        document.pointer_mut(above).expect("a place")[name] = value;
        refused(&place, document.to_string().as_bytes(), &[&format!("{key}: "), cause]);
    }
    // What only a later step can know names its key, too, and leaves as little.
    for (pointer, value, says) in [
        ("/mounts/0", json!({"destination": "/x"}), "mount \"/x\": it has no type"),
        (
            "/mounts/0",
            json!({"destination": "/x", "type": "nofs", "source": "x"}),
            "mount \"/x\" of type \"nofs\": this kernel has no file system",
        ),
        (
            "/mounts/0",
            json!({"destination": "/x", "source": "/no/where", "options": ["bind"]}),
            "mount \"/x\" from \"/no/where\": No such file",
        ),
        (
            "/linux/namespaces/0",
            json!({"type": "pid", "path": "/no/where"}),
            "pid namespace /no/where: No such file",
        ),
        (
            "/linux/namespaces/0",
            json!({"type": "pid", "path": "/proc/self/ns/net"}),
            "Invalid argument",
        ),
        ("/linux/rootfsPropagation", json!("sideways"), "linux.rootfsPropagation"),
        ("/linux/sysctl", json!({"kernel.hostname": "x"}), "kernel.hostname"),
        (
            "/linux/personality",
            json!({"domain": "LINUX", "flags": ["X"]}),
            "linux.personality.flags",
        ),
        ("/linux/maskedPaths", json!(["relative"]), "linux.maskedPaths: \"relative\""),
        ("/process/apparmorProfile", json!("a"), "pparmor"),
        (
            "/process/scheduler",
            json!({"policy": "SCHED_FIFO", "priority": 500}),
            "process.scheduler",
        ),
    ] {
        let mut document = good.clone();
        let (above, name) = pointer.rsplit_once('/').expect("a pointer");
        let above = document.pointer_mut(above).expect("a place");
        match name.parse::<usize>() {
            Ok(place) => above[place] = value,
            Err(_) => above[name] = value,
        }
        std::fs::write(place.path("config.json"), document.to_string()).expect("a document");
        place.call(&["create", "-b", ".", &id()]).bad(says);
        assert_eq!(known(&place), 0, "{says}");
    }
    // Control: it was good.
    std::fs::write(place.path("config.json"), good.to_string()).expect("a document");
    place.call(&["run", "-b", ".", &id()]).good();
}

#[test]
fn roots_that_are_none() {
    if !ready("roots that are none") {
        return;
    }
    let mut place = Place::new();
    std::fs::write(place.path("file"), "x").expect("a file");
    symlink("rootfs", place.path("link")).expect("a link");
    symlink("nowhere", place.path("dangling")).expect("a link");
    symlink("loop", place.path("loop")).expect("a link");
    std::fs::create_dir(place.path("empty")).expect("a directory");
    for (root, says) in [
        ("nowhere", "root.path: "),
        ("file", "Not a directory"),
        ("dangling", "No such file"),
        ("loop", "(os error 40)"),
        ("empty", "executable file not found in $PATH"),
        ("rootfs/../../nowhere", "No such file"),
    ] {
        place.spec["root"]["path"] = json!(root);
        place.run(&["id"]).bad(says);
        assert_eq!(known(&place), 0, "{root}");
    }
    // A link to a directory is that directory.
    place.spec["root"]["path"] = json!("link");
    assert_eq!(place.run(&["echo", "in"]).good(), "in\n");

    // Deleted while a container waits for its start.
    let copy = place.path("copy");
    let copied =
        std::process::Command::new("cp").arg("-a").arg(place.path("rootfs")).arg(&copy).status();
    assert!(copied.is_ok_and(|status| status.success()));
    place.spec["root"]["path"] = json!("copy");
    let gone = id();
    place.program(&["cat", "/etc/none"]).call(&["create", "-b", ".", &gone]).good();
    support::tree::remove(&copy);
    place.call(&["start", &gone]).bad("No such file");
    place.call(&["delete", "--force", &gone]).good();
    assert_eq!(known(&place), 0);
}

/// Calls the runtime in a mount namespace that `before` prepared.
fn after(place: &Place, before: &str, args: &[&str]) -> Answer {
    let command = place.command(args);
    let mut words = vec!["unshare", "--mount", "--propagation", "private", "sh", "-c"];
    let script = format!(
        "set -e; {before}; set +e; \"$@\"; code=$?; ls state 2>/dev/null | sed s/^/left:/; exit $code"
    );
    words.extend([script.as_str(), "sh"]);
    let mut shell = std::process::Command::new(words[0]);
    shell.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    let output = shell.current_dir(place.dir.path()).stdin(std::process::Stdio::null()).output();
    let output = output.expect("unshare(1)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

#[test]
fn a_root_on_a_file_system_that_executes_nothing() {
    if !ready("a root without execution") || !have("mounts", &["cmd:unshare"]) {
        return;
    }
    let place = Place::new();
    place.program(&["id", "-u"]);
    let mount = |options: &str| {
        format!("mount --bind rootfs rootfs; mount -o remount,bind,{options} rootfs")
    };
    let answer = after(&place, &mount("noexec"), &["run", &id()]);
    assert_eq!(answer.code, Some(126), "{answer:?}");
    answer.bad("ermission denied");
    for options in ["nosuid,nodev", "ro"] {
        let answer = after(&place, &mount(options), &["run", &id()]);
        assert_eq!((answer.code, answer.out.as_str()), (Some(0), "0\n"), "{options}: {answer:?}");
    }
}

#[test]
fn disks_that_are_full_or_read_only() {
    if !ready("full disks") || !have("mounts", &["cmd:unshare"]) {
        return;
    }
    let place = Place::new();
    place.program(&["id", "-u"]);
    for name in ["state", "full"] {
        std::fs::create_dir(place.path(name)).expect("a directory");
    }
    // All of it is taken, but for room for a name.
    let full = |name: &str| {
        format!(
            "mount -t tmpfs -o size=16k,nr_inodes=64 none {name}; cat /dev/zero > {name}/zero 2>/dev/null || true; rm -f {name}/none"
        )
    };
    let space = "No space left on device";
    let answer = after(&place, &full("state"), &["run", &id()]);
    assert_eq!(answer.out.trim(), "left:zero", "{answer:?}");
    answer.bad(space);
    after(&place, &full("full"), &["run", "--pid-file", "full/pid", &id()]).bad("--pid-file: ");
    let read_only = "mount --bind state state; mount -o remount,bind,ro state";
    after(&place, read_only, &["run", &id()]).bad("Read-only file system");
    after(&place, read_only, &["list"]).good();
    after(&place, read_only, &["state", "nobody"]).bad("does not exist");
    // A log that cannot be written keeps nothing from being done.
    let answer = after(&place, &full("full"), &["--log", "full/log", "run", &id()]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), "0\n"), "{answer:?}");
    // Control.
    let answer = after(&place, "true", &["run", "--pid-file", "full/pid", &id()]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), "0\n"), "{answer:?}");
}

#[test]
fn names_that_are_none() {
    let place = Place {
        dir: tempfile::tempdir().expect("a directory"),
        spec: json!({}),
        options: Vec::new(),
    };
    std::fs::write(place.path("victim"), "x").expect("a file");
    std::fs::create_dir(place.path("state")).expect("a directory");
    let verbs: [&[&str]; 13] = [
        &["create", "-b", "."],
        &["start"],
        &["state"],
        &["kill"],
        &["delete"],
        &["delete", "--force"],
        &["ps"],
        &["pause"],
        &["resume"],
        &["update", "--memory", "1"],
        &["events", "--stats"],
        &["events", "--traps"],
        &["exec"],
    ];
    let long = "a".repeat(1000);
    for verb in verbs {
        let last: &[&str] = if verb == ["exec"] { &["id"] } else { &[] };
        for name in ["../victim", "a/b", "..", ".", "/", "", "a\n", "%", "é", &long] {
            let answer = place.call(&[verb, &["--", name], last].concat());
            answer.bad("container ID");
        }
        if verb[0] == "create" || verb == ["delete", "--force"] {
            continue;
        }
        place.call(&[verb, &["nobody"], last].concat()).bad("does not exist");
    }
    place.call(&["delete", "--force", "nobody"]).good();
    assert!(place.path("victim").exists());
    assert_eq!(known(&place), 0);
}

/// Users of an image: whatever its `/etc/passwd` is, it is looked at as a file of the image or not at all.
#[test]
fn files_of_users_that_are_none() {
    if !ready("files of users") {
        return;
    }
    let place = Place::new();
    std::fs::write(place.path("outside"), "root:x:0:0::/of/the/host:/bin/sh\n").expect("a file");
    let passwd = place.path("rootfs/etc/passwd");
    let home = |make: &dyn Fn(&Path)| {
        let _none_before = std::fs::remove_dir(&passwd).or_else(|_| std::fs::remove_file(&passwd));
        make(&passwd);
        place.sh("echo $HOME").trim().to_owned()
    };
    assert_eq!(home(&|path| std::fs::write(path, "r:x:0:0::/r:/bin/sh\n").expect("a file")), "/r");
    let outside = place.path("outside");
    assert_eq!(home(&|path| symlink(&outside, path).expect("a link")), "/");
    assert_eq!(home(&|path| symlink("/dev/zero", path).expect("a link")), "/");
    assert_eq!(home(&|path| symlink("/proc/1/root/../outside", path).expect("a link")), "/");
    assert_eq!(home(&|path| std::fs::create_dir(path).expect("a directory")), "/");
    let fifo = |path: &Path| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
    };
    assert_eq!(home(&fifo), "/");
    let large = |path: &Path| {
        let file = std::fs::File::create(path).expect("a file");
        file.set_len(10 << 30).expect("a size");
    };
    assert_eq!(home(&large), "/");
    let odd =
        |path: &Path| std::fs::write(path, b"\xff:x:0:0::relative:\nr:x:0:0").expect("a file");
    assert_eq!(home(&odd), "/");
    std::fs::set_permissions(&passwd, PermissionsExt::from_mode(0o000)).expect("chmod");
    assert_eq!(place.sh("echo $HOME"), "/\n");
}
