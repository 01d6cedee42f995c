//! Containers from `create` to `delete`, as engines call them.
#![cfg(target_os = "linux")]

mod support;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::have::have;
use support::place::{BUSYBOX, Place, gone, id, ready, status};

#[test]
fn a_container_lives() {
    if !ready("a_container_lives") {
        return;
    }
    let (place, id) = (Place::new(), id());
    place.program(&["sleep", "1000"]);
    place.call(&["create", "--pid-file", "pid", "--bundle", ".", &id]).good();
    let state = place.state(&id);
    assert_eq!(state["ociVersion"], "1.0.2");
    assert_eq!(state["id"], id.as_str());
    assert_eq!(state["status"], "created");
    assert_eq!(state["bundle"], place.dir.path().to_str().expect("a path"));
    assert_eq!(state["annotations"], json!({"org.example.key": "value"}));
    let pid = std::fs::read_to_string(place.path("pid")).expect("the pid file");
    assert_eq!(state["pid"].to_string(), pid);
    // It holds the standard streams, and the socket where it waits; what it was made with it closes while
    // `create` ends.
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count();
    let late = Instant::now() + Duration::from_secs(10);
    while open() != 4 && Instant::now() < late {
        std::thread::yield_now();
    }
    assert_eq!(open(), 4);
    // Nothing runs yet.
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("a process");
    assert_ne!(name.trim(), "sleep");

    place.call(&["create", "-b", ".", &id]).bad("already exists");
    place.call(&["start", &id]).good();
    assert_eq!(status(&place, &id), "running");
    place.call(&["delete", &id]).bad("is not stopped");
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("a process");
    assert_eq!(name.trim(), "sleep");
    place.call(&["start", &id]).bad("is not created");
    assert_eq!(place.call(&["list", "-q"]).good(), format!("{id}\n"));
    place.call(&["kill", &id, "KILL"]).good();
    gone(&state["pid"]);
    assert_eq!(status(&place, &id), "stopped");
    place.call(&["kill", &id, "9"]).bad("not running");
    place.call(&["exec", &id, "id"]).bad("not running");
    place.call(&["delete", &id]).good();
    place.call(&["state", &id]).bad("does not exist");
    place.call(&["delete", &id]).bad("does not exist");
    place.call(&["delete", "--force", &id]).good();
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

#[test]
fn options_stand_before_and_behind_the_name() {
    if !ready("options") {
        return;
    }
    let (place, id) = (Place::new(), id());
    place.program(&["sleep", "1000"]);
    let other = place.path("other.json");
    std::fs::rename(place.path("config.json"), &other).expect("rename");
    let other = other.to_str().expect("a path");
    place.call(&["create", &id, "--config", other, "--bundle", "."]).good();
    place.call(&["delete", &id, "--force"]).good();
    place.call(&["--log-format=json", "--debug", "create", "-f", other, &id]).good();
    place.call(&["kill", "--all", &id, "SIGKILL"]).good();
    place.call(&["delete", "-f", &id]).good();
}

#[test]
fn run_ends_as_its_program_does() {
    if !ready("run") {
        return;
    }
    let place = Place::new();
    assert_eq!(place.run(&["sh", "-c", "echo hi; exit 7"]).code, Some(7));
    assert_eq!(place.run(&["sh", "-c", "kill -9 $$; kill -TERM 1; exec sleep 0"]).code, Some(0));
    place.program(&["sh", "-c", "exit 3"]);
    // The bundle alone, and one in the current directory.
    assert_eq!(place.call(&["run", "./"]).code, Some(3));
    assert_eq!(place.call(&["run", &id()]).code, Some(3));
    let kept = id();
    assert_eq!(place.call(&["run", "--keep", &kept]).code, Some(3));
    assert_eq!(status(&place, &kept), "stopped");
    place.call(&["delete", &kept]).good();
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

#[test]
fn what_does_not_start_says_why_and_leaves_nothing() {
    if !ready("what does not start") {
        return;
    }
    let mut place = Place::new();
    for (args, says, code) in [
        (&["nonsense"][..], "executable file not found in $PATH", 127),
        (&["/nowhere"], "No such file or directory", 127),
        (&["/etc"], "Permission denied", 126),
    ] {
        let answer = place.run(args);
        assert_eq!(answer.code, Some(code), "{answer:?}");
        answer.bad(says);
        place.program(args).call(&["create", "-b", ".", &id()]).bad(says);
    }
    std::fs::write(place.path("rootfs/bin/text"), "no program").expect("a file");
    let mode = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path("rootfs/bin/text"), mode).expect("chmod");
    // What only execve(2) finds out comes from `start`.
    let started = id();
    place.program(&["text"]).call(&["create", "-b", ".", &started]).good();
    place.call(&["start", &started]).bad("Exec format error");
    place.call(&["delete", "-f", &started]).good();

    place.spec["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    place.spec["process"]["cwd"] = json!("/bin/sh");
    place.run(&["id"]).bad("process.cwd");
    place.spec["process"]["cwd"] = json!("/");
    place.spec["root"]["path"] = json!("nowhere");
    place.run(&["id"]).bad("root.path");
    place.spec["root"]["path"] = json!("rootfs");
    place.spec["annotations"]["dev.landstrip.policy"] = json!("/p.json");
    place.run(&["id"]).bad("/p.json");
    for bad in ["a/b", "..", ""] {
        place.call(&["create", "-b", ".", bad]).bad("invalid character");
    }
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

#[test]
fn the_log_has_errors_as_engines_read_them() {
    if !ready("log") {
        return;
    }
    let place = Place::new();
    let log = |format: &str| {
        let path = place.path(&format!("log-{format}"));
        let options = ["--log", path.to_str().expect("a path"), "--log-format", format];
        place.call(&[&options[..], &["state", "nobody"]].concat()).bad("does not exist");
        std::fs::read_to_string(path).expect("a log")
    };
    let line: Value = serde_json::from_str(log("json").trim()).expect("JSON");
    assert_eq!(line["level"], "error");
    assert!(line["msg"].as_str().expect("a text").contains("does not exist"), "{line}");
    assert!(line["time"].as_str().expect("a time").ends_with('Z'), "{line}");
    assert!(log("text").contains("level=error msg="));
}

#[test]
fn exec_joins_everything() {
    if !ready("exec") {
        return;
    }
    let mut place = Place::new();
    place.spec["process"]["noNewPrivileges"] = json!(true);
    place.spec["linux"]["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}],
    });
    let waiting = place.waiting();
    let pid = place.state(&waiting.id)["pid"].clone();
    let theirs = |path: String| {
        let link = std::fs::read_link(path).expect("a link");
        link.to_str().expect("text").to_owned()
    };
    for kind in ["pid", "mnt", "ipc", "uts", "net"] {
        let inside = waiting.sh(&format!("readlink /proc/self/ns/{kind}"));
        assert_eq!(inside.trim(), theirs(format!("/proc/{pid}/ns/{kind}")), "{kind}");
        assert_ne!(inside.trim(), theirs(format!("/proc/self/ns/{kind}")), "{kind}");
    }
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups");
    assert_eq!(waiting.sh("cat /proc/self/cgroup"), cgroup);
    let own = "grep -E '^(Seccomp|NoNewPrivs|Cap...):' /proc/self/status";
    assert_eq!(
        waiting.sh(own),
        waiting.sh("grep -E '^(Seccomp|NoNewPrivs|Cap...):' /proc/1/status")
    );
    waiting.exec(&[&waiting.id, "busybox", "mkdir", "/tmp/x"]).bad("Permission denied");
    assert_eq!(waiting.exec(&[&waiting.id, "sh", "-c", "exit 5"]).code, Some(5));

    let words =
        ["--user", "5:6", "--env", "A=b c", "--cwd", "/tmp", "--cap", "net_admin", "-g", "7"];
    let script = "id -u; id -g; id -G; echo $A; busybox pwd; grep CapBnd /proc/self/status";
    let answer = waiting.exec(&[&words[..], &[&waiting.id, "sh", "-c", script]].concat()).good();
    assert_eq!(answer, "5\n6\n6 7\nb c\n/tmp\nCapBnd:\t0000000000001021\n");
    for user in ["root", "5:", "-1", "4294967295"] {
        waiting.exec(&[&format!("--user={user}"), &waiting.id, "id"]).bad("--user");
    }

    let document = json!({
        "args": ["sh", "-c", "id -u; umask; ulimit -n; grep NoNewPrivs /proc/self/status"],
        "cwd": "/tmp", "env": ["PATH=/bin"], "user": {"uid": 9, "gid": 9, "umask": 0o27},
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 99, "hard": 99}],
    });
    std::fs::write(place.path("process.json"), document.to_string()).expect("a document");
    let words = ["--process", "process.json", "--pid-file", "exec-pid", &waiting.id];
    assert_eq!(waiting.exec(&words).good(), "9\n0027\n99\nNoNewPrivs:\t0\n");
    assert!(std::fs::read_to_string(place.path("exec-pid")).expect("a pid").parse::<i32>().is_ok());
    // A second process of a container that is paused has to wait, and so has who asks for it.
    if support::have::cgroup("freezer") {
        place.call(&["pause", &waiting.id]).good();
        assert_eq!(status(&place, &waiting.id), "paused");
        waiting.exec(&[&waiting.id, "id"]).bad("paused");
        place.call(&["resume", &waiting.id]).good();
        assert_eq!(status(&place, &waiting.id), "running");
    }
}

#[test]
fn the_program_is_what_the_document_says() {
    if !ready("the program") {
        return;
    }
    let mut place = Place::new();
    std::fs::write(place.path("rootfs/etc/passwd"), "u:x:77:1::/home/u:/bin/sh\n").expect("a file");
    place.spec["hostname"] = json!("a-host");
    place.spec["domainname"] = json!("a-domain");
    let process = &mut place.spec["process"];
    process["user"] = json!({"uid": 77, "gid": 88, "additionalGids": [99], "umask": 0o37});
    let caps = json!(["CAP_KILL", "CAP_NET_RAW"]);
    let sets = ["bounding", "effective", "permitted", "inheritable", "ambient"];
    process["capabilities"] = sets.iter().map(|set| ((*set).to_owned(), caps.clone())).collect();
    process["rlimits"] = json!([{"type": "RLIMIT_CORE", "soft": 10, "hard": 4096}]);
    process["oomScoreAdj"] = json!(500);
    process["ioPriority"] = json!({"class": "IOPRIO_CLASS_IDLE", "priority": 0});
    process["scheduler"] = json!({"policy": "SCHED_BATCH", "nice": 5});
    process["cwd"] = json!("/made/for/it");
    place.spec["linux"]["personality"] = json!({"domain": "LINUX32"});
    let script = "id -u; id -g; id -G; umask; busybox pwd; busybox hostname
        cat /proc/sys/kernel/domainname /proc/self/oom_score_adj /proc/self/personality
        grep -E 'Cap|NoNew|Seccomp:' /proc/self/status; grep core /proc/self/limits; echo $HOME
        busybox cut -d' ' -f19,41 /proc/self/stat";
    let seen = place.sh(script);
    let lines: Vec<&str> = seen.lines().collect();
    let cap = "0000000000002020";
    let expected = [
        "77",
        "88",
        "88 99",
        "0037",
        "/made/for/it",
        "a-host",
        "a-domain",
        "500",
        "00000008",
        &format!("CapInh:\t{cap}"),
        &format!("CapPrm:\t{cap}"),
        &format!("CapEff:\t{cap}"),
        &format!("CapBnd:\t{cap}"),
        &format!("CapAmb:\t{cap}"),
        "NoNewPrivs:\t0",
        "Seccomp:\t0",
    ];
    assert_eq!(lines[..expected.len()], expected, "{seen}");
    assert!(
        lines[16].split_whitespace().eq(["Max", "core", "file", "size", "10", "4096", "bytes"]),
        "{seen}"
    );
    // Nice 5, and the policy SCHED_BATCH.
    assert_eq!(lines[17..], ["/home/u", "5 3"], "{seen}");
}

#[test]
fn descriptors_of_the_caller_are_closed_but_those_preserved() {
    if !ready("descriptors") {
        return;
    }
    let place = Place::new();
    place.program(&["sh", "-c", "busybox ls /proc/self/fd; cat /proc/self/fd/3"]);
    std::fs::write(place.path("kept"), "kept\n").expect("a file");
    let run = |options: &str, open: &str| {
        let script = format!("exec \"$@\" run {options} {} {open}", id());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh", "timeout", "20", support::LANDSTRIP, "--root", "state"]);
        shell.args(["--log", "log"]);
        let output = shell.current_dir(place.dir.path()).output().expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // One more is the directory itself, as it is listed.
    let open = "3<kept 4<kept 9<kept";
    assert_eq!(run("", open), "0\n1\n2\n3\n");
    assert_eq!(run("--preserve-fds 2", open), "0\n1\n2\n3\n4\n5\nkept\n");
    // Those that are open: what the runtime opens in their place is not for the program.
    assert_eq!(run("--preserve-fds 7", open), "0\n1\n2\n3\n4\n5\n9\nkept\n");
    assert_eq!(run("--preserve-fds 7", "9<kept"), "0\n1\n2\n3\n9\n");
}

#[test]
fn a_number_that_is_used_again_is_left_alone() {
    if !ready("pid reuse") {
        return;
    }
    let place = Place::new();
    let waiting = place.waiting();
    let path = place.path("state").join(&waiting.id).join("state.json");
    let good = std::fs::read(&path).expect("a state");
    let mut state: Value = serde_json::from_slice(&good).expect("JSON");
    // The number now is that of a process which is none of the container's.
    state["startTime"] = json!(state["startTime"].as_u64().expect("a time") + 1);
    std::fs::write(&path, state.to_string()).expect("write");
    assert_eq!(status(&place, &waiting.id), "stopped");
    place.call(&["kill", &waiting.id, "KILL"]).bad("not running");
    waiting.exec(&[&waiting.id, "id"]).bad("not running");
    std::fs::write(&path, good).expect("write");
    assert_eq!(status(&place, &waiting.id), "running");
}

#[test]
fn without_cgroups_a_container_is_still_taken_away() {
    if !ready("without cgroups") {
        return;
    }
    for kinds in [json!([{"type": "mount"}]), json!([{"type": "mount"}, {"type": "pid"}])] {
        let mut place = Place::new();
        place.options = vec!["--cgroup-manager".to_owned(), "disabled".to_owned()];
        place.spec["linux"]["namespaces"] = kinds;
        let waiting = place.waiting();
        let pid = place.state(&waiting.id)["pid"].clone();
        assert_eq!(waiting.sh("id -u"), "0\n");
        place.call(&["delete", "--force", &waiting.id]).good();
        gone(&pid);
    }
}

#[test]
fn what_a_killed_create_leaves_is_deleted_by_force() {
    if !ready("killed create") {
        return;
    }
    let place = Place::new();
    let half = id();
    std::fs::create_dir_all(place.path("state").join(&half)).expect("a directory");
    std::fs::write(place.path("state").join(&half).join("config.json"), "{").expect("a file");
    assert_eq!(status(&place, &half), "creating");
    place.call(&["start", &half]).bad("not created");
    place.call(&["delete", &half]).bad("--force");
    place.call(&["delete", "--force", &half]).good();
    place.call(&["state", &half]).bad("does not exist");
}

/// Waits for a terminal at a console socket, as conmon does.
fn terminal(listener: &std::os::unix::net::UnixListener) -> OwnedFd {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let (socket, _) = listener.accept().expect("a connection");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 64];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::empty()).expect("a message");
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .expect("a descriptor")
}

#[test]
fn a_terminal_goes_to_the_console_socket() {
    use std::io::Read;
    if !ready("terminal") {
        return;
    }
    let mut place = Place::new();
    place.spec["process"]["terminal"] = json!(true);
    place.spec["process"]["consoleSize"] = json!({"height": 33, "width": 77});
    let listener = std::os::unix::net::UnixListener::bind(place.path("socket")).expect("a socket");
    place.program(&["sh", "-c", "tty; stty size; stat -c %t:%T /dev/console; echo end"]);
    place.call(&["create", &id()]).bad("--console-socket");
    let id = id();
    let reader = std::thread::spawn(move || {
        let mut terminal = std::fs::File::from(terminal(&listener));
        let mut text = Vec::new();
        let mut buffer = [0; 256];
        // Its other end is gone at the end: an error, not an end of file.
        while let Ok(length @ 1..) = terminal.read(&mut buffer) {
            text.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8(text).expect("text")
    });
    place.call(&["create", "--console-socket", "socket", &id]).good();
    place.call(&["start", &id]).good();
    let text = reader.join().expect("the reader").replace("\r\n", "\n");
    place.call(&["delete", "-f", &id]).good();
    assert_eq!(text, "/dev/pts/0\n33 77\n88:0\nend\n");
}

#[test]
fn hooks_run_where_and_when_they_should() {
    if !ready("hooks") {
        return;
    }
    let mut place = Place::new();
    let path = |name: &str| place.path(name).to_str().expect("a path").to_owned();
    let (log, script) = (path("log"), path("hook"));
    // What it gets and where it is; /bin/sh is the host's or the container's.
    let text = "#!/bin/sh\nstatus=$(cat)\nstatus=${status#*'\"status\":\"'}\nif [ -e /probe-host ]; \
        then at=host; else at=inside; fi\necho \"$0 $1 $X ${status%%'\"'*} $(readlink /proc/self/ns/uts)\" >> LOG\n";
    std::fs::write(&script, text.replace("LOG", &log)).expect("a file");
    let inside = place.path("rootfs/hook");
    std::fs::write(&inside, text.replace("LOG", "/log")).expect("a file");
    for file in [Path::new(&script), &inside] {
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    let hook = |path: &str, name: &str| json!([{"path": path, "args": ["h", name], "env": ["X=x", "PATH=/bin:/usr/bin"]}]);
    place.spec["hooks"] = json!({
        "prestart": hook(&script, "prestart"), "createRuntime": hook(&script, "createRuntime"),
        "createContainer": hook(&script, "createContainer"),
        "startContainer": hook("/hook", "startContainer"),
        "poststart": hook(&script, "poststart"), "poststop": hook(&script, "poststop"),
    });
    let id = id();
    place.program(&["sleep", "1000"]).call(&["create", &id]).good();
    let own = std::fs::read_link("/proc/self/ns/uts").expect("a link");
    let pid = place.state(&id)["pid"].clone();
    let theirs = std::fs::read_link(format!("/proc/{pid}/ns/uts")).expect("a link");
    let (own, theirs) = (own.display(), theirs.display());
    let mut expected = vec![
        format!("{script} prestart x creating {own}"),
        format!("{script} createRuntime x creating {own}"),
        format!("{script} createContainer x creating {theirs}"),
    ];
    let seen = || {
        let text = std::fs::read_to_string(place.path("log")).expect("a log");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(seen(), expected);
    place.call(&["start", &id]).good();
    let inside = std::fs::read_to_string(place.path("rootfs/log")).expect("a log");
    assert_eq!(inside, format!("/hook startContainer x created {theirs}\n"));
    expected.push(format!("{script} poststart x running {own}"));
    assert_eq!(seen(), expected);
    place.call(&["delete", "-f", &id]).good();
    expected.push(format!("{script} poststop x stopped {own}"));
    assert_eq!(seen(), expected);
}

#[test]
fn a_hook_may_ask_for_the_state() {
    if !ready("hooks and state") {
        return;
    }
    let (mut place, id) = (Place::new(), id());
    let (state, seen) = (place.path("state"), place.path("seen"));
    let (state, seen) = (state.display(), seen.display());
    let ask = format!("{} --root {state} state {id} >> {seen}", support::LANDSTRIP);
    let hook = json!([{"path": "/bin/sh", "args": ["sh", "-c", ask]}]);
    place.spec["hooks"] = json!({"createRuntime": hook, "poststart": hook});
    place.program(&["sleep", "1000"]).call(&["create", &id]).good();
    assert_eq!(status(&place, &id), "created");
    place.call(&["start", &id]).good();
    place.call(&["delete", "-f", &id]).good();
    let text = std::fs::read_to_string(place.path("seen")).expect("states");
    let states = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let states: Vec<Value> = states.map(|state| state.expect("JSON")["status"].clone()).collect();
    assert_eq!(states, ["creating", "running"]);
}

#[test]
fn a_hook_that_fails_or_hangs_ends_the_create() {
    if !ready("failing hooks") {
        return;
    }
    let mut place = Place::new();
    for (hook, says) in [
        (
            json!({"path": "/bin/sh", "args": ["sh", "-c", "echo because >&2; exit 4"]}),
            "exit status 4: because",
        ),
        (
            json!({"path": "/bin/sh", "args": ["sh", "-c", "sleep 1000 & echo $! >> pids; wait"], "timeout": 1}),
            "longer than 1 s",
        ),
        (json!({"path": "/nowhere"}), "No such file"),
    ] {
        for point in ["prestart", "createRuntime", "createContainer"] {
            place.spec["hooks"] = json!({point: [hook.clone()]});
            place.program(&["id"]).call(&["create", &id()]).bad(says);
        }
    }
    // What the one that hung had started is gone with it. The last ran in the container's pid namespace, where
    // it has another number.
    let pids = std::fs::read_to_string(place.path("pids")).expect("numbers");
    assert_eq!(pids.lines().count(), 3, "{pids}");
    for pid in pids.lines().take(2) {
        gone(&json!(pid.parse::<u32>().expect("a number")));
    }
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
}

#[test]
fn a_profile_that_notifies_hands_its_listener_over() {
    use std::io::IoSliceMut;
    if !ready("listener") {
        return;
    }
    let mut place = Place::new();
    let listener = std::os::unix::net::UnixListener::bind(place.path("agent")).expect("a socket");
    place.spec["linux"]["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "listenerPath": place.path("agent"), "listenerMetadata": "meta",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_NOTIFY"}],
    });
    let agent = std::thread::spawn(move || {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let (socket, _) = listener.accept().expect("a connection");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; 65536];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got =
            recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::empty()).expect("a message");
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let fd = fd.expect("a descriptor");
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("a link");
        let state: Value = serde_json::from_slice(&bytes[..got.bytes]).expect("JSON");
        // Closed without an answer: the call fails.
        (state, link)
    });
    let id = id();
    place.program(&["busybox", "mkdir", "/tmp/x"]).call(&["create", &id]).good();
    let pid = place.state(&id)["pid"].clone();
    let (state, link) = agent.join().expect("the agent");
    assert_eq!(link.to_str(), Some("anon_inode:seccomp notify"));
    assert_eq!(state["fds"], json!(["seccompFd"]));
    assert_eq!(state["metadata"], "meta");
    assert_eq!(state["pid"], pid);
    assert_eq!(
        (&state["state"]["id"], &state["state"]["status"]),
        (&json!(id), &json!("creating"))
    );
    place.call(&["start", &id]).good();
    gone(&pid);
    assert!(!place.path("rootfs/tmp/x").exists());
    place.call(&["delete", &id]).good();
}

/// Runs a test's script as an ordinary user with subordinate ids, whom the machine has to have.
fn ids_of(user: &str) -> Option<String> {
    let text = std::fs::read_to_string("/etc/subuid").ok()?;
    text.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':').map(str::to_owned))
}

/// The document of a container without root: one id, or those of `subuid` besides.
fn without_root(place: &mut Place, subordinate: Option<&str>) {
    let kinds = ["user", "pid", "mount", "ipc", "uts"].map(|kind| json!({"type": kind}));
    place.spec["linux"]["namespaces"] = json!(kinds);
    let map = |own: u32| {
        let mut maps = vec![json!({"containerID": 0, "hostID": own, "size": 1})];
        if let Some((first, size)) = subordinate.and_then(|range| range.split_once(':')) {
            let number = |text: &str| text.parse::<u32>().expect("a number");
            maps.push(json!({"containerID": 1, "hostID": number(first), "size": number(size)}));
        }
        json!(maps)
    };
    place.spec["linux"]["uidMappings"] = map(rustix::process::getuid().as_raw());
    place.spec["linux"]["gidMappings"] = map(rustix::process::getgid().as_raw());
}

#[test]
fn a_user_runs_a_container_without_root() {
    if !have("without root", &["user", "userns", BUSYBOX]) {
        return;
    }
    let mut place = Place::new();
    without_root(&mut place, None);
    let own = rustix::process::getuid().as_raw();
    let map = format!("0 {own} 1");
    let seen = place.sh("id -u; cat /proc/self/uid_map");
    assert!(seen.split_whitespace().eq(format!("0 {map}").split(' ')), "{seen}");
    let waiting = place.waiting();
    let seen = waiting.sh("id -u; cat /proc/self/uid_map; grep CapBnd /proc/self/status");
    let expected = format!("0 {map} CapBnd: 0000000000000021");
    assert!(seen.split_whitespace().eq(expected.split(' ')), "{seen}");
    let pid = place.state(&waiting.id)["pid"].clone();
    place.call(&["kill", &waiting.id, "KILL"]).good();
    gone(&pid);
    drop(waiting);
    // Without a user namespace, it takes root.
    place.spec["linux"]["namespaces"] = json!([{"type": "mount"}]);
    place.spec["linux"]["uidMappings"] = Value::Null;
    place.spec["linux"]["gidMappings"] = Value::Null;
    place.run(&["id"]).bad("needs root");
}

#[test]
fn a_user_has_the_ids_that_are_set_aside() {
    let user = std::env::var("USER").unwrap_or_default();
    let Some(range) = ids_of(&user) else {
        eprintln!("skipped: subordinate ids: needs a line for {user:?} in /etc/subuid");
        return;
    };
    if !have("subordinate ids", &["user", "userns", BUSYBOX, "cmd:newuidmap"]) {
        return;
    }
    let mut place = Place::new();
    without_root(&mut place, Some(&range));
    place.spec["process"]["user"] = json!({"uid": 5, "gid": 6, "additionalGids": [7]});
    assert_eq!(place.sh("id -u; id -G"), "5\n6 7\n");
}

#[test]
fn the_runtime_cannot_be_written_from_a_container() {
    if !ready("the runtime's file") {
        return;
    }
    // A copy: this is the attack.
    let place = Place::new();
    let copy = place.path("runtime");
    std::fs::copy(support::LANDSTRIP, &copy).expect("a copy");
    let before = std::fs::metadata(&copy).expect("a file").len();
    let id = id();
    place.program(&["sleep", "1000"]);
    let call = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["20"]).arg(&copy).args(["--root", "state"]).args(args);
        command.current_dir(place.dir.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("timeout(1)").code()
    };
    assert_eq!(call(&["create", &id]), Some(0));
    // The process that waits for `start` runs our file. Root takes hold of it, and waits until nobody runs it.
    let pid = place.state(&id)["pid"].to_string();
    let held = |path: &Path| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("a descriptor")
    };
    let write = |held: &OwnedFd| {
        let path = format!("/proc/self/fd/{}", held.as_raw_fd());
        std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .map(|_| ())
            .map_err(|e| e.raw_os_error())
    };
    let (through, direct) = (held(Path::new(&format!("/proc/{pid}/exe"))), held(&copy));
    assert_eq!(call(&["start", &id]), Some(0));
    let read_only = rustix::io::Errno::ROFS.raw_os_error();
    assert_eq!(write(&through), Err(Some(read_only)));
    // Control: it is the way that is closed, and not the file.
    assert_eq!(write(&direct), Ok(()));
    assert_eq!(call(&["delete", "-f", &id]), Some(0));
    assert_eq!(std::fs::metadata(&copy).expect("a file").len(), before);
}

/// The right to write below `/tmp` alone, and to read everything.
fn domain() -> Value {
    json!({
        "ruleset": {"handledAccessFS": ["write_file", "make_reg", "make_dir", "remove_file", "read_file", "execute"]},
        "rules": {"pathBeneath": [
            {"allowedAccess": ["read_file", "execute"], "paths": ["/"]},
            {"allowedAccess": ["write_file", "make_reg", "remove_file"], "paths": ["/tmp", "/dev/null"]},
        ]},
    })
}

#[test]
fn a_landlock_domain_holds_the_program_and_what_is_executed_in_it() {
    if !ready("process.landlock") {
        return;
    }
    let script = "echo a > /tmp/a && cat /tmp/a; echo b > /etc/b && cat /etc/b; \
                  busybox mkdir /tmp/d && busybox rmdir /tmp/d && echo made; true";
    for (no_new_privileges, user) in [(true, 0), (false, 0), (true, 7), (false, 7)] {
        let mut place = Place::new();
        for name in ["tmp", "etc"] {
            let mode = PermissionsExt::from_mode(0o1777);
            std::fs::set_permissions(place.path("rootfs").join(name), mode).expect("chmod");
        }
        place.spec["process"]["noNewPrivileges"] = json!(no_new_privileges);
        place.spec["process"]["user"] = json!({"uid": user, "gid": user});
        assert_eq!(place.sh(script), "a\nb\nmade\n");
        std::fs::remove_file(place.path("rootfs/etc/b")).expect("a file");
        place.spec["process"]["landlock"] = domain();
        assert_eq!(place.sh(script), "a\n", "{no_new_privileges} {user}");
        let waiting = place.waiting();
        assert_eq!(waiting.sh(script), "a\n", "{no_new_privileges} {user}");
        // Engines that do not know the key write none into the document of a process.
        let process = json!({"args": ["sh", "-c", script], "cwd": "/", "env": ["PATH=/bin"],
            "user": {"uid": user, "gid": user}});
        std::fs::write(place.path("process.json"), process.to_string()).expect("a document");
        let words = ["--process", "process.json", &waiting.id];
        assert_eq!(waiting.exec(&words).good(), "a\n");
        assert!(!place.path("rootfs/etc/b").exists());
    }
}

#[test]
fn paths_of_a_landlock_domain_are_the_containers() {
    if !ready("paths of process.landlock") {
        return;
    }
    let mut place = Place::new();
    let hosts = place.path("hosts");
    std::fs::create_dir(&hosts).expect("a directory");
    std::os::unix::fs::symlink(&hosts, place.path("rootfs/link")).expect("a link");
    std::os::unix::fs::symlink("/proc/self/cwd", place.path("rootfs/magic")).expect("a link");
    let on = |path: &str| {
        let mut domain = domain();
        domain["rules"]["pathBeneath"][1]["paths"][0] = json!(path);
        domain
    };
    for (path, says) in [
        ("/nowhere", "process.landlock.rules.pathBeneath[1].paths: \"/nowhere\": No such file"),
        ("/link", "\"/link\": No such file"),
        ("/magic", "(os error 40)"),
    ] {
        place.spec["process"]["landlock"] = on(path);
        place.run(&["id"]).bad(says);
    }
    // A directory that its user may not pass.
    std::fs::create_dir_all(place.path("rootfs/shut/own")).expect("a directory");
    let mode = |mode| PermissionsExt::from_mode(mode);
    std::fs::set_permissions(place.path("rootfs/shut"), mode(0o700)).expect("chmod");
    place.spec["process"]["user"] = json!({"uid": 7, "gid": 7});
    place.spec["process"]["landlock"] = on("/shut/own");
    assert_eq!(place.sh("echo ran"), "ran\n");
    // What this kernel does not know, no kernel that was asked for everything has to.
    let mut newer = domain();
    newer["ruleset"]["handledAccessFS"].as_array_mut().expect("a list").push(json!("resolve_unix"));
    place.spec["process"]["landlock"] = newer.clone();
    assert_eq!(place.sh("echo ran"), "ran\n");
    newer["disableBestEffort"] = json!(true);
    place.spec["process"]["landlock"] = newer;
    let answer = place.run(&["echo", "ran"]);
    if support::have::landlock() < 9 {
        answer.bad("process.landlock.ruleset.handledAccessFS: \"resolve_unix\" is not known to this kernel");
    } else {
        assert_eq!(answer.good(), "ran\n");
    }
}

#[test]
fn a_landlock_domain_is_around_the_launcher_of_a_policy() {
    if !ready("process.landlock beside a policy") {
        return;
    }
    let mut place = Place::new();
    let policy = json!({"filesystem": {"allowWrite": ["/tmp", "/etc"]}});
    place.spec["annotations"]["dev.landstrip.policy"] = policy.to_string().into();
    let script = "echo a > /tmp/a && cat /tmp/a; echo b > /etc/b && cat /etc/b; true";
    assert_eq!(place.sh(script), "a\nb\n");
    std::fs::remove_file(place.path("rootfs/etc/b")).expect("a file");
    place.spec["process"]["landlock"] = domain();
    assert_eq!(place.sh(script), "a\n");
    let waiting = place.waiting();
    assert_eq!(waiting.sh(script), "a\n");
    assert!(!place.path("rootfs/etc/b").exists());
}

/// Runs the runtime where a pair of devices was made, in a network namespace of its own.
fn with_devices(place: &Place, args: &[&str]) -> support::place::Answer {
    let command = place.command(args);
    let script = "set -e; ip link add va type veth peer name vb; ip link set vb up
        ip addr add 10.9.0.1/24 dev va; ip -6 addr add fd09::1/64 dev va nodad; ip link set va mtu 1400
        set +e; \"$@\"; code=$?; ip -o link show va 2>/dev/null | sed 's/^/host: /'; exit $code";
    let mut shell = Command::new("unshare");
    shell.args(["--net", "sh", "-c", script, "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(place.dir.path()).stdin(Stdio::null());
    let output = shell.output().expect("unshare(1)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    support::place::Answer {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

#[test]
fn network_devices_are_moved_with_their_addresses() {
    if !ready("netDevices") || !have("devices", &["cmd:ip", "cmd:unshare"]) {
        return;
    }
    let mut place = Place::new();
    let show = "busybox ip -o addr show; busybox ip -o link show | busybox grep -v ' lo:'";
    let run = |place: &Place| {
        place.program(&["sh", "-c", show]);
        with_devices(place, &["run", &id()])
    };
    let bare = run(&place);
    assert!(!bare.out.contains("10.9.0.1") && bare.out.contains("host: "), "{bare:?}");
    for (given, name) in [(json!({}), "va"), (json!({"name": "eth0"}), "eth0")] {
        place.spec["linux"]["netDevices"] = json!({"va": given});
        let answer = run(&place);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        for says in [
            format!(" {name}    inet 10.9.0.1/24"),
            format!(" {name}    inet6 fd09::1/64"),
            "mtu 1400".into(),
        ] {
            assert!(answer.out.contains(&says), "{says}: {answer:?}");
        }
        let up = answer.out.lines().find(|line| line.contains("mtu 1400")).expect("a device");
        assert!(up.contains(&format!(" {name}")) && up.contains("UP"), "{answer:?}");
        assert!(!answer.out.contains("host: "), "it is not the host's any more: {answer:?}");
    }
    for (devices, says) in [
        (json!({"nothere": {}}), "linux.netDevices: \"nothere\": No such device"),
        (json!({"va": {"name": "lo"}}), "linux.netDevices: \"va\" to \"lo\": File exists"),
        (json!({"va": {"name": "x"}, "vb": {"name": "x"}}), "two devices would be named \"x\""),
        (json!({"lo": {"name": "x"}}), "linux.netDevices: \"lo\" to \"x\": "),
        (json!({"va": {"name": "a-name-of-too-many"}}), "is no name of a device"),
    ] {
        place.spec["linux"]["netDevices"] = devices;
        run(&place).bad(says);
        assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0, "{says}");
    }
    // The namespace that a container shares with the runtime has them already.
    place.spec["linux"]["netDevices"] = json!({"va": {}});
    let kinds = ["pid", "mount", "ipc", "uts"].map(|kind| json!({"type": kind}));
    place.spec["linux"]["namespaces"] = json!(kinds);
    run(&place).bad("linux.netDevices: need a network namespace");
    place.spec["linux"]["namespaces"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"type": "network", "path": "/proc/self/ns/net"}));
    run(&place).bad("linux.netDevices: the container has the runtime's network namespace");
}
