//! What a document is not believed: an image, or a pod, may have written its annotations.
#![cfg(target_os = "linux")]

mod support;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::LANDSTRIP;
use support::have::have;
use support::place::{Answer, Place, id, ready};

const SECRET: &str = "/etc/secret";

/// A place with files to read and directories to write.
fn place() -> Place {
    let place = Place::new();
    for name in ["ws/in", "data"] {
        std::fs::create_dir_all(place.path("rootfs").join(name)).expect("a directory");
    }
    std::fs::write(place.path("rootfs/etc/secret"), "secret\n").expect("a file");
    place
}

fn asks(place: &mut Place, name: &str, text: &str) {
    place.spec["annotations"][format!("dev.landstrip.{name}")] = text.into();
}

/// A file in the place, as the text of its path.
fn file(place: &Place, name: &str, text: &str) -> String {
    std::fs::write(place.path(name), text).expect("a file");
    place.path(name).display().to_string()
}

fn operator() -> Value {
    json!({"filesystem": {"allowWrite": ["/ws"], "denyRead": [SECRET]}})
}

/// Tries to open what the operator closes: what each is, and what a program gets by it where nobody else has a
/// policy.
fn wider() -> Vec<(Value, &'static str, &'static str)> {
    let files = |rules: Value| json!({"filesystem": rules});
    vec![
        (files(json!({"allowWrite": ["/data"]})), "echo x > /data/f && cat /data/f", "x"),
        (files(json!({"allowWrite": ["/"]})), "echo x > /data/f && cat /data/f", "x"),
        (files(json!({"allowRead": [SECRET]})), "cat /etc/secret", "secret"),
        (
            json!({"network": {"allowNetwork": true}}),
            "busybox nc 127.0.0.1 1 2>&1 | grep -o 'Connection refused'",
            "Connection refused",
        ),
    ]
}

#[test]
fn a_document_opens_nothing_that_the_operator_closes() {
    if !ready("a_document_opens_nothing") {
        return;
    }
    let mut place = place();
    let base = file(&place, "base.json", &operator().to_string());
    for (policy, script, gets) in wider() {
        let own = file(&place, "own.json", &policy.to_string());
        let script = ["sh", "-c", script];
        // The control: it does open that, where it is the operator's as well, and where nobody has another.
        place.spec["annotations"] = json!({});
        place.options = ["--policy", &base, "--policy", &own].map(str::to_owned).to_vec();
        assert_eq!(place.run(&script).out.trim(), gets, "{policy}");
        place.options = ["--policy", &base].map(str::to_owned).to_vec();
        assert_eq!(place.run(&script).out.trim(), "", "{policy}");
        for text in [policy.to_string(), own] {
            asks(&mut place, "policy", &text);
            let answer = place.run(&script);
            assert_eq!(answer.out, "", "{answer:?}");
            answer.bad("may only tighten");
        }
        assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
    }
}

#[test]
fn a_document_tightens() {
    if !ready("a_document_tightens") {
        return;
    }
    let mut place = place();
    let base = file(&place, "base.json", &operator().to_string());
    place.options = vec!["--policy".into(), base];
    let script =
        "echo x > /ws/f && echo ws; echo x > /ws/in/f && echo in; echo x > /data/f && echo data
        cat /etc/secret; cat /etc/group";
    std::fs::write(place.path("rootfs/etc/group"), "group\n").expect("a file");
    assert_eq!(place.sh(&format!("{script}; true")), "ws\nin\ngroup\n");
    let policy = json!({"filesystem": {"allowWrite": ["/ws/in"], "denyRead": ["/etc/group"]}});
    asks(&mut place, "policy", &policy.to_string());
    assert_eq!(place.sh(&format!("{script}; true")), "in\n");
    let running = place.waiting();
    assert_eq!(running.sh(&format!("{script}; true")), "in\n");
    drop(running);
    // One that says nothing changes nothing.
    asks(&mut place, "policy", "{}");
    assert_eq!(place.sh(&format!("{script}; true")), "ws\nin\ngroup\n");
}

/// Of two ceilings the lower counts, whoever says it.
#[test]
fn limits_only_become_lower() {
    if !have("limits_only_become_lower", &["root", "cgroup:pids", support::place::BUSYBOX]) {
        return;
    }
    let mut place = place();
    let script = "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo all";
    let limits = |pids: u32| json!({"limits": {"pids": pids}}).to_string();
    for (operator, document, all) in [(20, 500, false), (500, 20, false), (500, 500, true)] {
        let base = file(&place, "base.json", &limits(operator));
        place.options = vec!["--policy".into(), base];
        asks(&mut place, "policy", &limits(document));
        let answer = place.run(&["sh", "-c", script]);
        assert_eq!(answer.out == "all\n", all, "{operator} {document}: {answer:?}");
        assert_eq!(answer.err.contains("fork"), !all, "{operator} {document}: {answer:?}");
    }
}

/// Runs a script with this content in `/etc/landstrip`, made by a shell command.
fn with_etc(place: &Place, make: &str, script: &str) -> Answer {
    place.program(&["sh", "-c", script]);
    let ours = place.command(&["run", "--bundle", ".", &id()]);
    let shell =
        format!("mount -t tmpfs tmpfs /etc && mkdir /etc/landstrip && {make} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &shell, "sh"]);
    command.arg(ours.get_program()).args(ours.get_args()).current_dir(place.dir.path());
    let output = command.output().expect("unshare(1)");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Answer { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

#[test]
fn the_file_of_the_host_is_the_operators() {
    if !ready("the_file_of_the_host") || !have("the_file_of_the_host", &["cmd:unshare"]) {
        return;
    }
    let mut place = place();
    let script = "echo x > /data/f && cat /data/f; cat /etc/secret";
    let base = file(&place, "base.json", &operator().to_string());
    let make = format!("cp {base} /etc/landstrip/policy.json");
    assert_eq!(with_etc(&place, "true", script).out, "x\nsecret\n");
    assert_eq!(with_etc(&place, &make, script).out, "");
    asks(&mut place, "policy", &json!({"filesystem": {"allowWrite": ["/"]}}).to_string());
    std::fs::remove_file(place.path("rootfs/data/f")).expect("a file");
    assert_eq!(with_etc(&place, "true", script).out, "x\nsecret\n");
    std::fs::remove_file(place.path("rootfs/data/f")).expect("a file");
    let answer = with_etc(&place, &make, script);
    assert_eq!(answer.out, "", "{answer:?}");
    answer.bad("may only tighten");
    // What is there and cannot be read is not one that is not there.
    place.spec["annotations"] = json!({});
    for make in ["ln -s nowhere /etc/landstrip/policy.json", "mkdir /etc/landstrip/policy.json"] {
        let answer = with_etc(&place, make, script);
        assert_eq!(answer.out, "", "{make}: {answer:?}");
        answer.bad("/etc/landstrip/policy.json");
    }
}

/// Without root it is the user's.
#[test]
fn the_file_of_a_user_is_the_operators() {
    if !ready("the_file_of_a_user") {
        return;
    }
    let mut place = place();
    let dir = place.path("config/landstrip");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("policy.json"), operator().to_string()).expect("a file");
    std::fs::create_dir_all(place.path("home/.config")).expect("a directory");
    symlink(&dir, place.path("home/.config/landstrip")).expect("a link");
    place.options = vec!["--rootless=true".into()];
    place.program(&["sh", "-c", "echo x > /data/f && cat /data/f; cat /etc/secret"]);
    let run = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["run", "--bundle", ".", &id()]);
        command.env_remove("XDG_CONFIG_HOME").env_remove("HOME");
        command.envs(variables.iter().map(|(name, path)| (name, place.path(path))));
        String::from_utf8(command.output().expect("run").stdout).expect("text")
    };
    assert_eq!(run(&[("XDG_CONFIG_HOME", "config")]), "");
    assert_eq!(run(&[("HOME", "home")]), "");
    assert_eq!(run(&[("HOME", "nowhere")]), "x\nsecret\n");
}

#[test]
fn a_document_accepts_no_shortfall() {
    if !ready("a_document_accepts_no_shortfall") {
        return;
    }
    let mut place = place();
    asks(&mut place, "policy", "{}");
    place.options = vec!["--accept".into(), "signals,nested".into()];
    assert_eq!(place.sh("echo ran"), "ran\n");
    asks(&mut place, "accept", "signals");
    let answer = place.run(&["sh", "-c", "echo ran"]);
    assert_eq!(answer.out, "", "{answer:?}");
    answer.bad("annotations.dev.landstrip.accept: ");
}

/// The runtime writes there with its own rights, and the program chooses what.
#[test]
fn a_document_writes_no_traps_where_it_likes() {
    if !ready("a_document_writes_no_traps") {
        return;
    }
    let mut place = place();
    asks(&mut place, "policy", "{}");
    let outside = file(&place, "outside", "old\n");
    let absent = place.path("absent").display().to_string();
    let traps = place.path("traps");
    std::fs::create_dir(&traps).expect("a directory");
    symlink(&outside, traps.join("link")).expect("a link");
    symlink(place.path(""), traps.join("up")).expect("a link");
    let dir = traps.display().to_string();
    let denied = ["sh", "-c", "echo x > /data/'$(id)'"];
    // The control: where the caller names it, it is written, whatever it is.
    let link = format!("{dir}/link");
    for named in [&outside, &link, &absent] {
        place.options = vec!["--traps".into(), named.clone()];
        place.run(&denied);
        assert!(std::fs::read_to_string(named).expect("traps").contains("/data/$(id)"), "{named}");
    }
    std::fs::remove_file(&absent).expect("a file");
    let outside = file(&place, "outside", "old\n");
    let asked = |name: &str| format!("{dir}/{name}");
    for (options, name) in [
        (vec![], outside.clone()),
        (vec![], absent.clone()),
        (vec!["--traps", &dir], outside.clone()),
        (vec!["--traps", &dir], absent.clone()),
        (vec!["--traps", &dir], asked("link")),
        (vec!["--traps", &dir], asked("up/absent")),
        (vec!["--traps", &dir], asked("../absent")),
        (vec!["--traps", &dir], dir.clone()),
        (vec!["--traps", &outside], outside.clone()),
    ] {
        place.options = options.iter().map(|option| (*option).to_owned()).collect();
        asks(&mut place, "traps", &name);
        let answer = place.run(&denied);
        answer.bad("annotations.dev.landstrip.traps: ");
        assert_eq!(std::fs::read_to_string(&outside).expect("a file"), "old\n", "{name}");
        assert!(!Path::new(&absent).exists(), "{name}");
    }
    // In the directory it is for, it may.
    place.options = vec!["--traps".into(), dir.clone()];
    asks(&mut place, "traps", &asked("own"));
    place.run(&denied);
    assert!(std::fs::read_to_string(traps.join("own")).expect("traps").contains("/data/$(id)"));
    let listener = std::os::unix::net::UnixListener::bind(traps.join("socket")).expect("a socket");
    asks(&mut place, "traps", &asked("socket"));
    place.run(&denied);
    listener.set_nonblocking(true).expect("a socket");
    listener.accept().expect("a connection");
    // Unless others could have made something there.
    std::fs::set_permissions(&traps, PermissionsExt::from_mode(0o777)).expect("chmod");
    asks(&mut place, "traps", &asked("more"));
    place.run(&denied).bad("others can write there");
    assert!(!traps.join("more").exists());
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

/// The runtime reads what whoever wrote the document may not.
#[test]
fn nothing_is_told_of_a_file_that_is_no_policy() {
    if !ready("nothing_is_told") {
        return;
    }
    let mut place = place();
    let json = file(&place, "credentials.json", "{\n\"hunter2\": 1}");
    let yaml = file(&place, "credentials.yaml", "hunter2: [}");
    let plain = file(&place, "shadow", "hunter2:$6$hunter2:1\n");
    for path in [&json, &yaml, &plain] {
        asks(&mut place, "policy", path);
        let answer = place.run(&["sh", "-c", "echo ran"]);
        assert!(!answer.err.contains("hunter2"), "{answer:?}");
        assert_eq!(answer.out, "", "{answer:?}");
        answer.bad(&format!("annotations.dev.landstrip.policy: {path}: line "));
    }
    // The control: of the caller's own it is told.
    place.spec["annotations"] = json!({});
    place.options = vec!["--policy".into(), json];
    place.run(&["id"]).bad("hunter2");
    // To open some files does something: here it would wait for ever.
    place.options.clear();
    let fifo = place.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo(1)");
    assert!(made.success());
    for path in [fifo.to_str().expect("a path"), "/dev/full", "/"] {
        asks(&mut place, "policy", path);
        place.run(&["id"]).bad("is no regular file");
    }
}

/// A container is open where the annotation of its policy is misspelt, so that is refused.
#[test]
fn annotations_that_nobody_knows_are_refused() {
    if !ready("annotations_that_nobody_knows_are_refused") {
        return;
    }
    for (name, meant) in [("polcy", "policy"), ("Policy", "policy"), ("trap", "traps"), ("", "")] {
        let mut place = place();
        asks(&mut place, name, "@readonly");
        let says = "is not known; did you mean dev.landstrip";
        place.run(&["id"]).bad(&format!("annotations.dev.landstrip.{name}: {says}.{meant}"));
    }
    // Names of others are theirs.
    let mut place = place();
    place.spec["annotations"] = json!({"dev.landstripes.x": "y", "org.landstrip": "z"});
    place.run(&["id"]).good();
}

/// Engines, and tools that unpack images, copy annotations: one alone makes no run on the host of a container.
#[test]
fn a_document_makes_no_run_on_the_host() {
    if !ready("a_document_makes_no_run_on_the_host") {
        return;
    }
    let mut place = place();
    let reached = place.path("reached");
    let policy = json!({"filesystem": {"allowWrite": ["."]}});
    let policy = file(&place, "policy.json", &policy.to_string());
    let script = format!("echo x > {}", reached.display());
    let mut spec = Command::new(LANDSTRIP);
    spec.current_dir(place.dir.path()).args(["spec", "-p", &policy, "-b", "bundle", "--"]);
    let made = spec.args(["sh", "-c", &script]).output().expect("spec");
    assert!(made.status.success(), "{made:?}");
    // The control: so `spec` wrote it, and so it runs on the host.
    assert_eq!(place.call(&["run", "bundle/"]).code, Some(0));
    assert!(reached.exists());
    std::fs::remove_file(&reached).expect("a file");

    let genuine = std::fs::read(place.path("bundle/config.json")).expect("a document");
    let mut forged: Value = serde_json::from_slice(&genuine).expect("JSON");
    let text = forged["annotations"]["dev.landstrip.enforcement"].as_str().expect("text");
    let mut enforcement: Value = serde_json::from_str(text).expect("JSON");
    let sum = |value: &Value| {
        let text = serde_json::to_vec(value).expect("JSON");
        let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", text.iter().fold(0xcbf2_9ce4_8422_2325, step))
    };
    assert_eq!(enforcement["container"]["/mounts"], json!(sum(&forged["mounts"])));
    // Who writes an image knows what an engine mounts, and what the sums are then.
    forged["mounts"] = place.spec["mounts"].clone();
    enforcement["container"]["/mounts"] = json!(sum(&forged["mounts"]));
    let text = enforcement.to_string();
    forged["annotations"]["dev.landstrip.enforcement"] = json!(text);
    place.spec = forged;
    place.program(&["sh", "-c", &script]);
    for words in [&["run", "--bundle", ".", "id"][..], &["run", "./"], &["create", "-b", ".", "id"]]
    {
        place.call(words).bad("dev.landstrip.enforcement");
        assert!(!reached.exists(), "{words:?}");
    }
}
