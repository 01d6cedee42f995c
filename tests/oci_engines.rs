//! The command line as engines use it: what go-runc (containerd, moby), conmon (podman, CRI-O) and buildah pass,
//! and what they read.
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::LANDSTRIP;
use support::have::have;
use support::place::{Place, id, ready, status};

/// The runtime by its own name, which it is told by.
fn named(place: &Place) -> Command {
    let link = place.path("landstrip-oci");
    if !link.exists() {
        std::os::unix::fs::symlink(LANDSTRIP, &link).expect("a link");
    }
    Command::new(link)
}

#[test]
fn the_version_is_what_engines_read() {
    let place = Place::new();
    let output = named(&place).arg("--version").output().expect("the runtime");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<_> = text.lines().collect();
    // go-runc: three lines, split at "version " and at ": ".
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[0], concat!("landstrip-oci version ", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("commit: "), "{text}");
    let features = named(&place).arg("features").output().expect("the runtime");
    let features: Value = serde_json::from_slice(&features.stdout).expect("JSON");
    assert_eq!(lines[2], format!("spec: {}", features["ociVersionMax"].as_str().expect("text")));
}

#[test]
fn checkpoints_are_refused() {
    if !ready("checkpoints") {
        return;
    }
    let place = Place::new();
    let waiting = place.waiting();
    // podman's crutils asks for help to find out.
    for words in [&["--help"][..], &["--image-path", "i", "--leave-running", &waiting.id]] {
        place.call(&[&["checkpoint"], words].concat()).bad("not supported");
        place
            .call(&[&["restore", "--detach", "-no-subreaper"], words].concat())
            .bad("not supported");
    }
    assert_eq!(status(&place, &waiting.id), "running");
}

#[test]
fn what_go_runc_passes_is_taken() {
    if !ready("go-runc") {
        return;
    }
    let (mut place, id) = (Place::new(), id());
    place.spec["process"]["user"] = json!({"uid": 0, "gid": 0});
    let dir = place.dir.path().to_owned();
    let at = |name: &str| dir.join(name).to_str().expect("a path").to_owned();
    let (log, pid) = (at("log.json"), at("init.pid"));
    place.options = ["--debug", "--log", &log, "--log-format", "json", "--rootless=auto"]
        .map(str::to_owned)
        .to_vec();
    place.program(&["sleep", "1000"]);
    let bundle = at("");
    let words = ["create", "--bundle", &bundle, "--pid-file", &pid, "--no-new-keyring", &id];
    place.call(&words).good();
    assert!(Path::new(&pid).exists());
    place.call(&["start", &id]).good();
    assert_eq!(place.state(&id)["status"], "running");

    let process = json!({"args": ["sleep", "1000"], "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}});
    std::fs::write(place.path("process.json"), process.to_string()).expect("a document");
    let exec = at("exec.pid");
    let words = ["exec", "--process", "process.json", "--detach", "--pid-file", &exec, &id];
    place.call(&words).good();
    let started = std::fs::read_to_string(&exec).expect("a pid file");
    let pids: Value =
        serde_json::from_str(&place.call(&["ps", "--format", "json", &id]).good()).expect("JSON");
    assert!(
        pids.as_array().expect("pids").contains(&json!(started.parse::<i32>().expect("a pid")))
    );
    let table = place.call(&["ps", "--format", "table", &id, "-ef"]).good();
    assert!(table.starts_with("UID") && table.contains("sleep"), "{table}");
    let listed: Value =
        serde_json::from_str(&place.call(&["list", "--format=json"]).good()).expect("JSON");
    assert_eq!(listed[0]["id"], id.as_str());
    assert_eq!(listed[0]["status"], "running");
    let stats: Value =
        serde_json::from_str(&place.call(&["events", "--stats", &id]).good()).expect("JSON");
    assert_eq!((&stats["type"], &stats["id"]), (&json!("stats"), &json!(id)));
    assert!(stats["data"].is_object(), "{stats}");

    let script = "printf '{\"pids\": {\"limit\": 77}}' | \"$@\"";
    let update = place.command(&["update", "--resources", "-", &id]);
    let mut piped = Command::new("sh");
    piped.args(["-c", script, "sh"]).arg(update.get_program()).args(update.get_args());
    assert!(piped.status().expect("sh").success());
    place.call(&["pause", &id]).good();
    assert_eq!(status(&place, &id), "paused");
    place.call(&["resume", &id]).good();
    place.call(&["kill", "--all", &id, "9"]).good();
    place.call(&["delete", "--force", &id]).good();
    place.call(&["delete", "--force", &id]).good();
    let log = std::fs::read_to_string(log).unwrap_or_default();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        assert_ne!(line["level"], "error", "{line}");
    }
}

/// What it can do is known before it runs: no file system of the kernel's is asked.
#[test]
fn features_are_those_of_the_program() {
    let place = Place::new();
    let text = |command: &mut Command| {
        let output = command.output().expect("the runtime");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let here = text(named(&place).arg("features"));
    let features: Value = serde_json::from_str(&here).expect("JSON");
    let unsafe_ones = features["potentiallyUnsafeConfigAnnotations"].as_array().expect("a list");
    for name in ["dev.landstrip.", "org.systemd.property.", "run.oci.keep_original_groups"] {
        assert!(unsafe_ones.contains(&json!(name)), "{name}: {unsafe_ones:?}");
    }
    let abi = features["annotations"]["dev.landstrip.landlock.abi"].as_str().expect("text");
    assert!(abi.parse::<u32>().expect("a number") >= 7, "{abi}");
    if !have("features of a bare host", &["root", "cmd:unshare"]) {
        return;
    }
    named(&place);
    let hide = "mount -t tmpfs tmpfs /sys && mount -t tmpfs tmpfs /proc && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", hide, "sh"]);
    command.arg(place.path("landstrip-oci")).arg("features");
    assert_eq!(text(&mut command), here);
}

/// conmon waits for the end of what the container writes, and containers are its children when `create` has ended.
#[test]
fn nothing_stays_between_the_engine_and_the_container() {
    let needed = ["root", support::place::BUSYBOX, "cmd:python3"];
    if !have("the engine and the container", &needed) {
        return;
    }
    // prctl(2): PR_SET_CHILD_SUBREAPER is 36. The pipe ends when nobody has it open.
    const ENGINE: &str = "
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
read, write = os.pipe()
def call(*words, **how):
    return subprocess.run(sys.argv[2:] + list(words), check=True, stdin=subprocess.DEVNULL, **how)
call('create', '--bundle', '.', '--pid-file', 'pid', sys.argv[1], stdout=write, stderr=write)
pid = open('pid').read()
assert open(f'/proc/{pid}/stat').read().rsplit(')')[1].split()[1] == str(os.getpid())
call('start', sys.argv[1])
os.close(write)
text = b''
while part := os.read(read, 4096):
    text += part
assert text == b'said\\n', text
assert open(f'/proc/{pid}/stat').read().rsplit(')')[1].split()[0] in 'RSD'
print('ended')
";
    let reads = "{\"filesystem\": {\"denyRead\": [\"/etc/*.key\"]}}";
    for (policy, own_pids) in
        [(None, true), (Some("{}"), true), (Some(reads), true), (Some("{}"), false)]
    {
        let mut place = Place::new();
        if !own_pids {
            let namespaces = place.spec["linux"]["namespaces"].as_array_mut().expect("a list");
            namespaces.retain(|namespace| namespace["type"] != "pid");
        }
        if let Some(policy) = policy {
            place.spec["annotations"]["dev.landstrip.policy"] = policy.into();
        }
        // It closes what it has of the pipe, and lives on.
        place.program(&["sh", "-c", "echo said; exec > /dev/null 2>&1; exec sleep 1000"]);
        let id = id();
        let ours = place.command(&[]);
        let mut engine = Command::new("timeout");
        engine.args(["--kill-after=2", "30", "python3", "-c", ENGINE, &id]);
        engine.args(ours.get_args().skip(2)).current_dir(place.dir.path());
        let output = engine.output().expect("timeout(1)");
        place.call(&["delete", "--force", &id]).good();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "ended\n",
            "{policy:?} {own_pids}: {output:?}"
        );
    }
}

/// An engine may be in a pid namespace of its own.
#[test]
fn numbers_are_those_of_the_callers_namespace() {
    if !ready("numbers") || !have("numbers", &["cmd:unshare"]) {
        return;
    }
    let (place, id) = (Place::new(), id());
    place.program(&["sleep", "1000"]);
    let ours = place.command(&[]);
    let script = "id=$1; shift
        \"$@\" create --bundle . --pid-file pid $id > /dev/null && \"$@\" start $id || exit 3
        \"$@\" exec --detach --pid-file more $id sleep 1000 > /dev/null || exit 4
        tr '\\0' ' ' < /proc/$(cat pid)/cmdline; tr '\\0' ' ' < /proc/$(cat more)/cmdline
        [ $(cat pid) -lt 100 ] && \"$@\" state $id | grep -c \"\\\"pid\\\": $(cat pid)\"
        \"$@\" delete --force $id";
    let mut engine = Command::new("unshare");
    engine.args(["--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c", script]);
    engine.args(["sh", &id]).args(ours.get_args().skip(2)).current_dir(place.dir.path());
    let output = engine.output().expect("unshare(1)");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "sleep 1000 sleep 1000 1\n", "{output:?}");
}

/// Later commands go by the document that the container was created with.
#[test]
fn the_document_is_kept() {
    if !ready("the document is kept") {
        return;
    }
    let (mut place, id) = (Place::new(), id());
    place.spec["process"]["env"] = json!(["PATH=/bin", "KEPT=yes"]);
    place.program(&["sleep", "1000"]).call(&["create", "--bundle", ".", &id]).good();
    std::fs::write(place.path("config.json"), "{").expect("a file");
    place.call(&["start", &id]).good();
    assert_eq!(place.call(&["exec", &id, "sh", "-c", "echo $KEPT"]).good(), "yes\n");
    assert_eq!(place.state(&id)["annotations"], json!({"org.example.key": "value"}));
    // Without a name of a signal it is SIGTERM, which the first process of a namespace has to ask for.
    let pid = place.state(&id)["pid"].clone();
    place.call(&["kill", &id]).good();
    place.call(&["kill", &id, "KILL"]).good();
    support::place::gone(&pid);
    place.call(&["delete", &id]).good();
}

#[test]
fn a_container_has_a_session_keyring_of_its_own() {
    if !ready("a keyring") || !have("a keyring", &["cmd:grep"]) || !Path::new("/proc/keys").exists()
    {
        return;
    }
    let place = Place::new();
    place.program(&["grep", "-o", "_ses[.].*: ", "/proc/keys"]);
    let (own, callers) = (id(), id());
    let answer = place.call(&["run", "--bundle", ".", &own]);
    assert!(answer.out.contains(&format!("_ses.{own}: ")), "{answer:?}");
    let answer = place.call(&["run", "--no-new-keyring", "--bundle", ".", &callers]);
    assert!(!answer.out.contains(&callers), "{answer:?}");
}
