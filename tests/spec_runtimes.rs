//! The bundles that `spec` writes, under other runtimes and under ours.
#![cfg(target_os = "linux")]

mod support;

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use support::have::have;
use support::{Bed, LANDSTRIP, Run, finish};

/// Runs `words` where no cgroup of version 2 stands beside those of version 1, which crun refuses.
const ONE_VERSION: [&str; 8] = [
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "sh",
    "-c",
    "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"",
    "sh",
];

/// What runs bundles here, the last is ours.
fn runtimes() -> Vec<&'static str> {
    let root = rustix::process::geteuid().is_root();
    let mut names = Vec::new();
    // Without root, crun cannot be shown one version of cgroups.
    if root && have("bundles under crun", &["cmd:crun", "cmd:unshare"]) {
        names.push("crun");
    }
    if have("bundles under runc", &["cmd:runc"]) && (root || have("without root", &["userns"])) {
        names.push("runc");
    }
    names.push(LANDSTRIP);
    names
}

/// Writes a bundle for a shell script, and gives what `spec` said.
fn write(bed: &Bed, policy: &Value, name: &str, script: &str) -> Run {
    let mut command = bed.command(LANDSTRIP.as_ref());
    command.args(["spec", "-p"]).arg(bed.policy(policy)).arg("-b").arg(bed.root().join(name));
    command.args(["--", "sh", "-c", script]);
    let made = finish(command, &bed.root().join("no traps"));
    assert_eq!(made.code, Some(0), "{made:?}");
    made
}

/// Runs a bundle.
fn run(bed: &Bed, runtime: &str, name: &str) -> Run {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("spec-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let bundle = bed.root().join(name);
    let mut words: Vec<&str> = Vec::new();
    if runtime == "crun" {
        words.extend(ONE_VERSION);
    }
    words.extend(["timeout", "--kill-after=2", "20", runtime]);
    let state = bed.root().join("state").display().to_string();
    if runtime == LANDSTRIP {
        words.extend(["run", support::ACCEPT, "--quiet"]);
    } else {
        words.extend(["--root", &state, "run", "-b"]);
    }
    let mut command = bed.command(words[0].as_ref());
    command.args(&words[1..]).arg(bundle).env("XDG_RUNTIME_DIR", bed.root());
    if runtime != LANDSTRIP {
        command.arg(id);
    }
    finish(command, &bed.root().join("no traps"))
}

/// The same script bare.
fn bare(bed: &Bed, script: &str) -> Run {
    let mut command: Command = bed.command("sh".as_ref());
    command.args(["-c", script]);
    finish(command, &bed.root().join("no traps"))
}

/// What each line of the script comes to: bare, and under every runtime.
fn both(bed: &Bed, policy: &Value, lines: &[(&str, &str, &str)]) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for (line, want, held) in lines {
        let line = &bed.fill(line);
        let name = format!("bundle-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        write(bed, policy, &name, line);
        for runtime in runtimes() {
            let ran = run(bed, runtime, &name);
            assert_eq!(ran.lines.join(" "), *held, "{runtime}: {line}: {ran:?}");
        }
        let ran = bare(bed, line);
        assert_eq!(ran.lines.join(" "), *want, "bare: {line}: {ran:?}");
    }
}

#[test]
fn files_are_held_by_every_runtime() {
    let bed = Bed::new(&[]);
    let make =
        |name: &str, text: &str| std::fs::write(bed.root().join(name), text).expect("a file");
    for name in ["in/held/open", "in/secrets/open", "in/bin"] {
        std::fs::create_dir_all(bed.root().join(name)).expect("a directory");
    }
    for name in ["in/env", "in/secrets/key", "in/secrets/open/file", "out/secret"] {
        make(name, "text\n");
    }
    let policy = json!({"filesystem": {
        "allowWrite": [".", "./held/open"], "denyWrite": ["./held", "./later"],
        "denyRead": ["./env", "./secrets", "{out}/secret"], "allowRead": ["./secrets/open"],
    }});
    both(
        &bed,
        &policy,
        &[
            ("echo x > new && cat new", "x", "x"),
            ("echo x > {out}/new && cat {out}/new", "x", ""),
            ("echo x > held/new && cat held/new", "x", ""),
            ("echo x > held/open/new && cat held/open/new", "x", "x"),
            ("cat env", "text", ""),
            ("cat {out}/secret", "text", ""),
            ("cat secrets/key", "text", ""),
            ("cat secrets/open/file", "text", "text"),
            ("mv env other && cat other && mv other env", "text", ""),
            ("pwd", &bed.fill("{in}"), &bed.fill("{in}")),
            ("grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t0", "NoNewPrivs:\t1"),
        ],
    );
}

#[test]
fn without_a_network_no_runtime_gives_one() {
    if !have("a connection", &["cmd:bash"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo connected");
    both(&bed, &json!({}), &[(&line, "connected", "")]);
    both(&bed, &json!({"network": {"allowNetwork": true}}), &[(&line, "connected", "connected")]);
}

#[test]
fn temporary_files_have_a_place() {
    let bed = Bed::new(&[]);
    let policy = json!({"filesystem": {"allowWrite": ["."]}});
    let temporary = bed.root().join("tmp");
    std::fs::create_dir(&temporary).expect("a directory");
    std::fs::write(temporary.join("others"), "x").expect("a file");
    let script = "echo x > $TMPDIR/f && cat $TMPDIR/f";
    let mut command = bed.command(LANDSTRIP.as_ref());
    command.env("TMPDIR", &temporary).args(["spec", "-p"]).arg(bed.policy(&policy));
    command.arg("-b").arg(bed.root().join("b")).args(["--", "sh", "-c", script]);
    assert_eq!(finish(command, &bed.root().join("no traps")).code, Some(0));
    for runtime in runtimes() {
        let ran = run(&bed, runtime, "b");
        assert_eq!(ran.lines, ["x"], "{runtime}: {ran:?}");
        assert!(!temporary.join("f").exists(), "{runtime}");
    }
}

#[test]
fn limits_are_held_by_every_runtime() {
    if !have("limits", &["root", "cgroup:pids"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let script = "i=0; while [ $i -lt 60 ]; do sleep 100 & i=$((i+1)); done 2>/dev/null; echo all; \
                  trap '' TERM; kill 0";
    both(&bed, &json!({"limits": {"pids": 30}}), &[(script, "all", "")]);
    both(&bed, &json!({}), &[(script, "all", "all")]);
}

/// Root in a container that shows the host's files must reach no control of the kernel, and no device.
#[test]
fn root_reaches_no_control_of_the_host() {
    if !have("controls", &["root"]) {
        return;
    }
    let bed = Bed::new(&[]);
    // Nothing is changed where it works: these are opened, and not written.
    let opens = |path: &str| format!("sh -c ': >> {path}' 2>/dev/null && echo open");
    let name = std::fs::read_dir("/sys/kernel/mm/transparent_hugepage").is_ok();
    let control =
        if name { "/sys/kernel/mm/transparent_hugepage/enabled" } else { "/sys/power/state" };
    let policy = json!({"filesystem": {"allowWrite": ["/"]}, "network": {"allowNetwork": true}});
    for path in ["/proc/sys/kernel/core_pattern", control] {
        let line = opens(path);
        both(&bed, &policy, &[(&line, "open", "")]);
    }
    both(&bed, &policy, &[("echo x > {out}/anywhere && cat {out}/anywhere", "x", "x")]);
}

#[test]
fn what_others_do_otherwise_is_told() {
    let bed = Bed::new(&[]);
    let policy = json!({
        "filesystem": {"allowWrite": [".", "{out}/nowhere"], "denyRead": ["**/*.pem"]},
        "network": {"httpProxyPort": 8080}, "limits": {"time": 9},
    });
    let said = write(&bed, &policy, "b", "true").stderr;
    let path = bed.root().join("policy.json").display().to_string();
    for line in [
        format!(
            "spec: other runtimes: {path}:1 filesystem.denyRead[0]: \"**/*.pem\": not held: a glob"
        ),
        "filesystem.allowWrite[1]: ".to_owned(),
        "network.httpProxyPort, socksProxyPort, hostPorts, expose: not given".to_owned(),
        "limits.time: not held".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let quiet =
        json!({"filesystem": {"allowWrite": ["."]}, "network": {"allowAllUnixSockets": true}});
    assert_eq!(write(&bed, &quiet, "c", "true").stderr, "");
}

/// What makes a container of a bundle is for others, and what is not what `spec` wrote is not overlooked.
#[test]
fn a_bundle_that_was_changed_is_refused_here() {
    let bed = Bed::new(&[]);
    write(&bed, &json!({}), "b", "echo ran");
    let path = bed.root().join("b/config.json");
    let good = std::fs::read_to_string(&path).expect("a document");
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 9] = [
        ("root", |v| v["root"]["readonly"] = json!(false)),
        ("mounts", |v| drop(v["mounts"].as_array_mut().expect("a list").pop())),
        ("linux.namespaces", |v| v["linux"]["namespaces"] = json!([{"type": "mount"}])),
        ("linux.maskedPaths", |v| v["linux"]["maskedPaths"] = json!([])),
        ("linux.seccomp", |v| v["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_KILL"})),
        ("hooks", |v| v["hooks"] = json!({"poststop": [{"path": "/bin/true"}]})),
        ("linux.uidMappings", |v| {
            v["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": 4242, "size": 1}]);
        }),
        ("process.capabilities", |v| {
            v["process"]["capabilities"]["ambient"] = json!(["CAP_KILL"]);
        }),
        ("process.cwd", |v| v["process"]["cwd"] = json!("/")),
    ];
    for (key, change) in changes {
        let mut value: Value = serde_json::from_str(&good).expect("JSON");
        change(&mut value);
        std::fs::write(&path, value.to_string()).expect("a document");
        let ran = run(&bed, LANDSTRIP, "b");
        assert_eq!((ran.code, ran.lines.len()), (Some(1), 0), "{key}: {ran:?}");
        assert!(ran.stderr.contains(key), "{key}: {ran:?}");
    }
    std::fs::write(&path, good).expect("a document");
    assert_eq!(run(&bed, LANDSTRIP, "b").lines, ["ran"]);
    // It is no container of ours: that would hold less.
    let mut create = bed.command(LANDSTRIP.as_ref());
    create.arg("--root").arg(bed.root().join("state")).args(["create", "-b"]);
    create.arg(bed.root().join("b")).arg("id");
    let said = finish(create, &bed.root().join("no traps"));
    assert!(said.stderr.contains("dev.landstrip.enforcement"), "{said:?}");
}
