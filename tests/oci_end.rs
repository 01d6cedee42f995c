//! How containers end that something keeps from it, and what is run then.
#![cfg(target_os = "linux")]

mod support;

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::have::have;
use support::place::{Place, gone, id, ready, status};

/// A hook that writes a word to the file `said`.
fn say(place: &Place, word: &str) -> Value {
    let script = format!("echo {word} >> {}", place.path("said").display());
    json!([{"path": "/bin/sh", "args": ["sh", "-c", script]}])
}

fn said(place: &Place) -> String {
    std::fs::read_to_string(place.path("said")).unwrap_or_default()
}

#[test]
fn one_that_was_never_started_is_deleted_without_force() {
    if !ready("delete what was created") {
        return;
    }
    let (place, id) = (Place::new(), id());
    place.program(&["sleep", "1000"]).call(&["create", &id]).good();
    let pid = place.state(&id)["pid"].clone();
    place.call(&["delete", &id]).good();
    gone(&pid);
    place.call(&["state", &id]).bad("does not exist");
}

#[test]
fn a_hook_that_fails_after_the_start_ends_the_container() {
    if !ready("failing poststart") {
        return;
    }
    let (mut place, id) = (Place::new(), id());
    place.spec["hooks"] = json!({
        "poststart": [{"path": "/bin/false"}, say(&place, "next")[0]],
        "poststop": say(&place, "gone"),
    });
    place.program(&["sleep", "1000"]).call(&["create", &id]).good();
    let pid = place.state(&id)["pid"].clone();
    place.call(&["start", &id]).bad("hooks.poststart[0]: /bin/false: exit status 1");
    gone(&pid);
    place.call(&["state", &id]).bad("does not exist");
    assert_eq!(said(&place), "gone\n");
    place.run(&["sleep", "1000"]).bad("hooks.poststart[0]");
    assert_eq!(said(&place), "gone\ngone\n");
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

#[test]
fn what_hooks_began_hooks_end() {
    if !ready("poststop of what was not created") {
        return;
    }
    let mut place = Place::new();
    for point in ["prestart", "createRuntime", "createContainer"] {
        let began = say(&place, "began");
        place.spec["hooks"] = json!({"prestart": began, "poststop": say(&place, "gone")});
        let hooks = place.spec["hooks"][point].as_array().cloned().unwrap_or_default();
        place.spec["hooks"][point] = json!([hooks, vec![json!({"path": "/bin/false"})]].concat());
        place.program(&["id"]).call(&["create", &id()]).bad(&format!("hooks.{point}["));
        assert_eq!(said(&place), "began\ngone\n", "{point}");
        std::fs::remove_file(place.path("said")).expect("a file");
    }
    // Control: what fails before them is none of theirs.
    place.spec["process"]["cwd"] = json!("nowhere");
    place.program(&["id"]).call(&["create", &id()]).bad("process.cwd");
    assert_eq!(said(&place), "");
}

#[test]
fn a_hook_without_an_environment_inherits_one() {
    if !ready("environment of hooks") {
        return;
    }
    let (mut place, id) = (Place::new(), id());
    let seen = place.path("seen");
    let script = format!("echo $OURS. >> {}", seen.display());
    let hook = json!({"path": "/bin/sh", "args": ["sh", "-c", script]});
    let mut none = hook.clone();
    none["env"] = json!([]);
    // In the container it is that of the program.
    let inside = json!({"path": "/bin/sh", "args": ["sh", "-c", "echo $OURS $PATH > /seen"]});
    place.spec["process"]["env"] = json!(["PATH=/bin", "OURS=inside"]);
    place.spec["hooks"] = json!({"createRuntime": [hook, none], "startContainer": [inside]});
    place.program(&["sleep", "1000"]);
    let mut create = place.command(&["create", &id]);
    create.env("OURS", "outside").stdout(Stdio::null()).stderr(Stdio::null());
    assert!(create.status().expect("timeout(1)").success());
    place.call(&["start", &id]).good();
    place.call(&["delete", "--force", &id]).good();
    assert_eq!(std::fs::read_to_string(seen).expect("a file"), "outside.\n.\n");
    let inside = std::fs::read_to_string(place.path("rootfs/seen")).expect("a file");
    assert_eq!(inside, "inside /bin\n");
}

#[test]
fn what_another_freezer_holds_is_ended() {
    const FREEZER: &str = "/sys/fs/cgroup/freezer";
    if !ready("another freezer") || !have("another freezer", &[FREEZER]) {
        return;
    }
    let place = Place::new();
    let waiting = place.waiting();
    let pid = place.state(&waiting.id)["pid"].clone();
    let ice = std::path::Path::new(FREEZER).join(&waiting.id).with_extension("ice");
    std::fs::create_dir(&ice).expect("a cgroup");
    std::fs::write(ice.join("cgroup.procs"), pid.to_string()).expect("a process");
    std::fs::write(ice.join("freezer.state"), "FROZEN").expect("a state");
    // Control: not even SIGKILL ends it.
    place.call(&["kill", &waiting.id, "KILL"]).good();
    assert!(!support::ends(
        pid.as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid"),
        std::time::Duration::from_millis(200)
    ));
    let deleted = place.call(&["delete", "--force", &waiting.id]);
    let _thawed = std::fs::write(ice.join("freezer.state"), "THAWED");
    gone(&pid);
    std::fs::remove_dir(&ice).expect("a cgroup without processes");
    deleted.good();
}

/// Has the caller of `exec` not wait for its process: the init of the pid namespace cannot end then.
#[test]
fn what_nobody_reaps_does_not_keep_a_container() {
    if !ready("unreaped processes") {
        return;
    }
    let (place, id) = (Place::new(), id());
    place.program(&["sleep", "1000"]);
    let call = format!("timeout 20 {} --root state", support::LANDSTRIP);
    // The shell is the init of a pid namespace, which gets all orphans and reaps none of them.
    let script = format!(
        "{call} run -d {id} && {call} exec -d {id} sleep 0 && {call} delete --force {id}
        code=$?; {call} state {id}; echo $code $?; exec sleep 0"
    );
    let mut shell = Command::new("unshare");
    shell.args(["--pid", "--fork", "--kill-child", "--mount-proc", "python3", "-c"]);
    let reapless = "import subprocess,sys; sys.exit(subprocess.call(['sh', '-c', sys.argv[1]]))";
    shell.args([reapless, &script]).current_dir(place.dir.path()).stdin(Stdio::null());
    let start = std::time::Instant::now();
    let output = shell.output().expect("unshare(1)");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "0 1\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(start.elapsed() < std::time::Duration::from_secs(8));
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

#[test]
fn readiness_is_passed_on_to_who_waits() {
    if !ready("NOTIFY_SOCKET") || !have("NOTIFY_SOCKET", &["cmd:python3"]) {
        return;
    }
    let mut place = Place::new();
    // Busybox sends no datagrams.
    for dir in ["/usr", "/lib", "/lib64"].map(std::path::Path::new).iter().filter(|d| d.exists()) {
        let inside = place.path("rootfs").join(dir.strip_prefix("/").expect("a root"));
        std::fs::create_dir(inside).expect("a directory");
        let mounts = place.spec["mounts"].as_array_mut().expect("mounts");
        mounts.push(json!({"destination": dir, "source": dir, "options": ["rbind", "ro"]}));
    }
    place.spec["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    let caller = place.path("caller");
    let socket = std::os::unix::net::UnixDatagram::bind(&caller).expect("a socket");
    let patience = Some(std::time::Duration::from_secs(20));
    socket.set_read_timeout(patience).expect("a timeout");
    let told = || {
        let mut text = [0; 100];
        let length = socket.recv(&mut text).expect("a datagram");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let say = "import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ['NOTIFY_SOCKET'])
s.send(b'STATUS=not yet')
s.send(b'STOPPING=0\\nREADY=1')
time.sleep(1000)";
    let program = ["/usr/bin/python3", "-c", say];
    let call = |place: &Place, args: &[&str]| {
        let mut command = place.command(args);
        command.env("NOTIFY_SOCKET", &caller);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("timeout(1)").success()
    };
    place.program(&program);
    let name = id();
    assert!(call(&place, &["create", &name]));
    // It returns when the program is ready.
    assert!(call(&place, &["start", &name]));
    assert_eq!(told(), "READY=1");
    assert!(call(&place, &["delete", "--force", &name]));
    assert!(call(&place, &["run", "--detach", &name]));
    assert_eq!(told(), "READY=1");
    assert!(call(&place, &["delete", "--force", &name]));
    // A program that ends without a word is not waited for.
    place.program(&["/usr/bin/python3", "-c", ""]);
    assert!(call(&place, &["run", &name]) && call(&place, &["run", "--detach", &name]));
    assert!(call(&place, &["delete", "--force", &name]));
    // Under a policy it takes one that opens such sockets; else the log says that it cannot be.
    let policy = |all: bool| json!({"network": {"allowAllUnixSockets": all}}).to_string();
    place.spec["annotations"]["dev.landstrip.policy"] = policy(true).into();
    place.program(&program);
    assert!(call(&place, &["run", "--detach", &name]));
    assert_eq!(told(), "READY=1");
    assert!(call(&place, &["delete", "--force", &name]));
    for all in [true, false] {
        place.spec["annotations"]["dev.landstrip.policy"] = policy(all).into();
        place.program(&["/usr/bin/python3", "-c", ""]);
        let mut command = place.command(&["run", &name]);
        let output = command.env("NOTIFY_SOCKET", &caller).output().expect("run");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(err.contains("NOTIFY_SOCKET"), !all, "{err}");
    }
    socket.set_nonblocking(true).expect("a socket");
    assert!(socket.recv(&mut [0; 8]).is_err());
}

#[test]
fn exec_goes_into_a_cgroup_below() {
    if !ready("exec --cgroup") {
        return;
    }
    let place = Place::new();
    let waiting = place.waiting();
    let id = waiting.id.as_str();
    let pid = place.state(id)["pid"].to_string();
    let lines = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    // The first hierarchy that the container has a cgroup of its own in.
    let (_, name) = lines
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .find(|(_, path)| path.contains(id))
        .expect("a cgroup");
    let tops = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let tops = tops.lines().filter(|line| line.contains(" cgroup"));
    let dirs: Vec<_> = tops
        .filter_map(|line| line.split(' ').nth(1))
        .map(|top| std::path::PathBuf::from(format!("{top}{name}")))
        .filter(|dir| dir.is_dir())
        .collect();
    std::fs::create_dir(dirs[0].join("below")).expect("a cgroup");
    let own = |cgroup: &str| waiting.exec(&["--cgroup", cgroup, id, "cat", "/proc/self/cgroup"]);
    assert!(own("below").good().lines().any(|line| line.ends_with(&format!("{name}/below"))));
    assert!(!own("/").good().contains("below"));
    own("elsewhere").bad("--cgroup: the container has no cgroup at \"/elsewhere\"");
    own("nothing:/").bad("--cgroup: the container has no cgroup of nothing");
    for out in ["..", "below/..", "/../x"] {
        own(out).bad("`..` components are not allowed");
    }
    assert_eq!(status(&place, id), "running");
}
