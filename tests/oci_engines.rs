//! The command line as engines use it: what go-runc (containerd, moby), conmon (podman, CRI-O) and buildah pass,
//! and what they read.
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::LANDSTRIP;
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
