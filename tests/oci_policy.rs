//! Containers under a policy.
#![cfg(target_os = "linux")]

mod support;

use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::place::{Place, id, ready};

/// A place whose containers have `policy`.
fn fenced(policy: &Value) -> Place {
    let mut place = Place::new();
    for name in ["ws", "data", "home/u"] {
        std::fs::create_dir_all(place.path("rootfs").join(name)).expect("a directory");
    }
    std::fs::write(place.path("rootfs/etc/secret"), "secret\n").expect("a file");
    place.spec["annotations"]["dev.landstrip.policy"] = policy.to_string().into();
    place.options = vec!["--traps".into(), place.path("traps").display().to_string()];
    place
}

/// Puts the probe into its root.
fn with_probe(place: &mut Place) {
    std::fs::copy(support::probe(), place.path("rootfs/bin/probe")).expect("the probe");
    // Where it is not static.
    for libraries in ["/lib", "/lib64"].into_iter().filter(|path| Path::new(path).exists()) {
        let options = json!(["rbind", "ro"]);
        let mount = json!({"destination": libraries, "source": libraries, "options": options});
        place.spec["mounts"].as_array_mut().expect("a list").push(mount);
    }
}

fn traps(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path("traps")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What a shell in a container without a policy, and with one, says of each script.
fn both(policy: &Value, scripts: &[(&str, &str, &str)]) {
    let with = fenced(policy);
    let mut without = fenced(policy);
    without.spec["annotations"] = json!({});
    for (script, bare, held) in scripts {
        for (place, want) in [(&without, bare), (&with, held)] {
            let answer = place.run(&["sh", "-c", script]);
            assert_eq!(answer.out.trim(), *want, "{script}: {answer:?}");
        }
    }
}

#[test]
fn files_are_held() {
    if !ready("files_are_held") {
        return;
    }
    let policy = json!({"filesystem": {
        "allowWrite": ["/ws", "~/own"], "denyWrite": ["/ws/no"], "denyRead": ["/etc/secret"],
    }});
    both(
        &policy,
        &[
            ("echo x > /ws/f && cat /ws/f", "x", "x"),
            ("echo x > /data/f && cat /data/f", "x", ""),
            ("echo x > /ws/no && cat /ws/no", "x", ""),
            ("cat /etc/secret", "secret", ""),
            ("cat /proc/self/root/etc/secret", "secret", ""),
            ("busybox mkdir /data/d && echo made; busybox rmdir /data/d", "made", ""),
            ("busybox ln -sf /etc/secret /ws/l; cat /ws/l", "secret", ""),
            (
                "busybox mv /etc/secret /ws/s && cat /ws/s && busybox mv /ws/s /etc/secret",
                "secret",
                "",
            ),
        ],
    );
}

/// `.` is where the program starts, and `~` the home of its user, by the container's own list of users.
#[test]
fn relative_paths_are_the_containers() {
    if !ready("relative_paths") {
        return;
    }
    let mut place = fenced(&json!({"filesystem": {"allowWrite": [".", "~/own"]}}));
    let root = place.path("rootfs");
    std::fs::write(root.join("etc/passwd"), "u:x:7:7::/home/u:/bin/sh\n").expect("a file");
    for name in ["ws", "data", "home/u", "home/u/own"] {
        std::fs::create_dir_all(root.join(name)).expect("a directory");
        std::os::unix::fs::chown(root.join(name), Some(7), Some(7)).expect("an owner");
    }
    place.spec["process"]["user"] = json!({"uid": 7, "gid": 7});
    place.spec["process"]["cwd"] = json!("/ws");
    let script = "for d in /ws /data /home/u /home/u/own; do echo x > $d/f && echo $d; done; true";
    assert_eq!(place.sh(script), "/ws\n/home/u/own\n");
    place.spec["annotations"] = json!({});
    assert_eq!(place.sh(script), "/ws\n/data\n/home/u\n/home/u/own\n");
}

/// Images start as root and go on as somebody else. Who just did is closed to processes of either user, so
/// that a broker without the right to look reads none of its calls.
#[test]
fn programs_change_their_user() {
    if !ready("programs_change_their_user") {
        return;
    }
    let secret = "/etc/secret";
    for denied in [json!([]), json!([secret]), json!([secret, "/ws/**/*.env"])] {
        let policy = json!({"filesystem": {"allowWrite": ["/ws"], "denyRead": denied}});
        let mut place = fenced(&policy);
        std::fs::write(place.path("rootfs/etc/passwd"), "u:x:7:7::/:/bin/sh\n").expect("a file");
        let caps = json!(["CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_FOWNER"]);
        for set in ["bounding", "effective", "permitted"] {
            place.spec["process"]["capabilities"][set] = caps.clone();
        }
        let script =
            "cd /ws; busybox chmod 777 .; busybox su u -c \"$1\"; echo x > own; stat -c %u own";
        let inner = "id -u; echo a > f; busybox mv f g; stat -c %u g; echo x > a.env; cat a.env /etc/secret;
            grep CapPrm /proc/self/status; echo x > /data/f";
        let answer = place.run(&["sh", "-c", script, "sh", inner]);
        let mut want = vec!["7", "7"];
        want.extend((denied != json!([secret, "/ws/**/*.env"])).then_some("x"));
        want.extend((denied == json!([])).then_some("secret"));
        want.extend(["CapPrm:\t0000000000000000", "0"]);
        assert_eq!(answer.out.lines().collect::<Vec<_>>(), want, "{denied}: {answer:?}");
        assert!(answer.err.contains("/data/f: Permission denied"), "{answer:?}");
    }
}

/// The launcher is the container's first process, of the program's own user.
#[test]
fn the_launcher_is_out_of_reach() {
    if !ready("the_launcher_is_out_of_reach") {
        return;
    }
    // Without a policy, process 1 is the program's parent as well: a shell.
    let bare = "sh -c \"$1\"; true";
    let tries = [
        ("cat /proc/1/environ > /dev/null && echo read", "read"),
        ("readlink /proc/1/fd/0 > /dev/null && echo read", "read"),
        ("cat /proc/1/maps > /dev/null && echo read", "read"),
        ("busybox head -c 4 /proc/1/exe > /dev/null && echo read", "read"),
    ];
    let policy = json!({"filesystem": {"allowWrite": ["/"]}});
    let (with, mut without) = (fenced(&policy), fenced(&policy));
    without.spec["annotations"] = json!({});
    for (script, works) in tries {
        let answer = without.run(&["sh", "-c", bare, "sh", script]);
        assert_eq!(answer.out.trim(), works, "{script}: {answer:?}");
        let answer = with.run(&["sh", "-c", script]);
        assert_eq!(answer.out.trim(), "", "{script}: {answer:?}");
    }
    // Its command line had paths of the host.
    let answer = with.run(&["cat", "/proc/1/cmdline"]);
    assert_eq!(answer.out.trim_end_matches('\0'), "landstrip-oci", "{answer:?}");
    // It cannot be ended or stopped by those that it serves, and passes the rest on.
    for script in ["kill -KILL 1", "kill -STOP 1", "kill -SEGV 1", "busybox kill -35 1"] {
        let script = format!("trap '' 35; {script}; echo $?; echo x > /ws/f; cat /ws/f");
        assert_eq!(with.run(&["sh", "-c", &script]).out, "0\nx\n", "{script}");
    }
    let script = "trap 'echo got; exit 3' TERM; kill -TERM 1; while :; do sleep 0.1; done";
    let answer = with.run(&["sh", "-c", script]);
    assert_eq!((answer.out.trim(), answer.code), ("got", Some(3)), "{answer:?}");
}

/// Every way in which a command that an engine executes and the container's program meet works as without a
/// policy, in both directions.
#[test]
fn commands_and_the_program_reach_each_other() {
    if !ready("commands_and_the_program") {
        return;
    }
    const SERVE: &str = "probe 's=socket AF_UNIX SOCK_STREAM 0' \"bind \\$s un:/ws/$1 #\" 'listen $s 8' \
        'a=socket AF_UNIX SOCK_STREAM 0' \"bind \\$a abs:$1 #\" 'listen $a 8' \
        \"shmget $2 4096 IPC_CREAT|0600\" \"put /ws/$1-ready x\" 'sh sleep 1000'";
    const USE: &str = "until [ -e /ws/$1-ready ]; do sleep 0.05; done
        probe 's=socket AF_UNIX SOCK_STREAM 0' \"connect \\$s un:/ws/$1 #\" \
        'a=socket AF_UNIX SOCK_STREAM 0' \"connect \\$a abs:$1 #\" \"m=shmget $2 4096 0\"";
    let program = format!(
        "f() {{ {SERVE}; }}; g() {{ {USE}; }}; f program 71 > /dev/null &
        trap 'echo signalled >> /ws/signals' USR1; g command 72 > /ws/answer; echo > /ws/done
        while :; do sleep 0.1; done"
    );
    let policies =
        [None, Some(json!([])), Some(json!(["/etc/secret"])), Some(json!(["/ws/**/*.env"]))];
    for denied in policies {
        let policy = json!({"filesystem": {"allowWrite": ["/ws"], "denyRead": denied}});
        let mut place = fenced(&policy);
        if denied.is_none() {
            place.spec["annotations"] = json!({});
        }
        with_probe(&mut place);
        let id = &id();
        place.program(&["sh", "-c", &program]).call(&["run", "--detach", "-b", ".", id]).good();
        let exec = |args: &[&str]| place.call(&[&["exec", id.as_str()], args].concat());
        let both = "ok\nok\nok\nok\n";
        let answer = exec(&["sh", "-c", USE, "sh", "program", "71"]).good();
        assert!(answer.starts_with(both) && answer.lines().count() == 5, "{denied:?}: {answer}");
        assert!(!answer.contains('E'), "{denied:?}: {answer}");
        let serve = ["exec", "--detach", id, "sh", "-c", SERVE, "sh", "command", "72"];
        place.call(&serve).good();
        let answer =
            exec(&["sh", "-c", "until [ -e /ws/done ]; do sleep 0.05; done; cat /ws/answer"]);
        let answer = answer.good();
        assert!(answer.starts_with(both) && answer.lines().count() == 5, "{denied:?}: {answer}");
        assert!(!answer.contains('E'), "{denied:?}: {answer}");
        // The program is the container's first process, or its launcher passes signals on.
        exec(&["sh", "-c", "kill -USR1 1; until [ -e /ws/signals ]; do sleep 0.05; done"]).good();
        place.call(&["delete", "--force", id]).good();
    }
}

#[test]
fn denials_are_written_where_the_caller_says() {
    if !ready("denials_are_written") {
        return;
    }
    let place = fenced(&json!({"filesystem": {"allowWrite": ["/ws"]}}));
    place.run(&["sh", "-c", "echo x > /data/f"]);
    let traps = traps(&place);
    assert_eq!(traps.len(), 1, "{traps:?}");
    assert_eq!((&traps[0]["path"], &traps[0]["operation"]), (&json!("/data/f"), &json!("write")));
}

#[test]
fn denials_reach_a_socket() {
    if !ready("denials_reach_a_socket") {
        return;
    }
    let place = fenced(&json!({}));
    let listener = std::os::unix::net::UnixListener::bind(place.path("traps")).expect("a socket");
    place.run(&["sh", "-c", "echo x > /data/f"]);
    // What was sent waits in the socket.
    listener.set_nonblocking(true).expect("a socket");
    let (stream, _) = listener.accept().expect("a connection");
    let lines = std::io::BufReader::new(stream).lines().map_while(Result::ok).collect::<Vec<_>>();
    assert!(lines.iter().any(|line| line.contains("/data/f")), "{lines:?}");
}

/// `events` prints what was denied, from the start of the container to its end.
#[test]
fn denials_are_events() {
    if !ready("denials_are_events") {
        return;
    }
    let mut place = fenced(&json!({}));
    place.options.clear();
    let id = id();
    let script = "echo x > /data/first; sleep 1000";
    place.program(&["sh", "-c", script]).call(&["run", "--detach", "-b", ".", &id]).good();
    let mut events =
        place.command(&["events", &id]).stdout(Stdio::piped()).spawn().expect("events");
    let out = events.stdout.take().expect("a pipe");
    let mut lines = std::io::BufReader::new(out).lines().map_while(Result::ok);
    let mut trap = |path: &str| {
        lines.by_ref().any(|line| {
            let event: Value = serde_json::from_str(&line).expect("JSON");
            event["type"] == "trap" && event["id"] == id.as_str() && event["data"]["path"] == path
        })
    };
    assert!(trap("/data/first"));
    place.call(&["exec", &id, "sh", "-c", "echo x > /data/second"]);
    assert!(trap("/data/second"));
    place.call(&["delete", "--force", &id]).good();
    assert!(events.wait().expect("an end").success());
}

/// `events --traps` prints what was denied until then, also when the program has ended, and does not wait.
#[test]
fn denials_until_now_are_printed() {
    if !ready("denials_until_now") {
        return;
    }
    let mut place = fenced(&json!({}));
    let named = std::mem::take(&mut place.options);
    let paths = |place: &Place, id: &str| -> Vec<Value> {
        let told = place.call(&["events", "--traps", id]);
        let told = told.good();
        let events = told.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        events
            .inspect(|event| {
                assert_eq!((&event["type"], &event["id"]), (&json!("trap"), &json!(id)))
            })
            .map(|mut event| event["data"]["path"].take())
            .collect()
    };
    let (first, second) = (json!("/data/first"), json!("/data/second"));
    let ended = id();
    place.program(&["sh", "-c", "echo x > /data/first"]);
    place.call(&["run", "--keep", "-b", ".", &ended]);
    assert_eq!(paths(&place, &ended), std::slice::from_ref(&first));
    place.call(&["delete", &ended]).good();
    place.call(&["events", "--traps", &ended]).bad("does not exist");

    let running = id();
    place.program(&["sleep", "1000"]).call(&["run", "--detach", "-b", ".", &running]).good();
    assert_eq!(paths(&place, &running), [Value::Null; 0]);
    for path in [&first, &second] {
        let script = format!("echo x > {}", path.as_str().expect("a path"));
        assert_ne!(place.call(&["exec", &running, "sh", "-c", &script]).code, Some(0));
    }
    assert_eq!(paths(&place, &running), [first.clone(), second]);
    place.call(&["delete", "--force", &running]).good();

    // A file that the caller names is read as well, and outlives the container.
    place.options = named;
    let elsewhere = id();
    place.program(&["sh", "-c", "echo x > /data/first"]);
    place.call(&["run", "--keep", "-b", ".", &elsewhere]);
    assert_eq!(paths(&place, &elsewhere), [first]);
    place.call(&["delete", &elsewhere]).good();
    assert_eq!(traps(&place).len(), 1);

    // Without a policy nothing is denied.
    let plain = id();
    place.options.clear();
    place.spec["annotations"] = json!({});
    place.program(&["sh", "-c", "true"]).call(&["run", "--keep", "-b", ".", &plain]).good();
    assert_eq!(paths(&place, &plain), [Value::Null; 0]);
    place.call(&["delete", &plain]).good();
}

#[test]
fn exec_is_under_the_policy_of_the_container() {
    if !ready("exec_is_under_the_policy") {
        return;
    }
    let place =
        fenced(&json!({"filesystem": {"allowWrite": ["./sub"], "denyRead": ["/etc/secret"]}}));
    let mut spec = place.spec.clone();
    spec["process"]["cwd"] = "/ws".into();
    let place = Place { spec, ..place };
    std::fs::create_dir(place.path("rootfs/ws/sub")).expect("a directory");
    let running = place.waiting();
    let id = running.id.as_str();
    for (args, want) in [
        // `.` stays where the container's own program started.
        (&["--cwd", "/data", id, "sh", "-c", "echo x > /ws/sub/f && cat /ws/sub/f"][..], "x"),
        (&["--cwd", "/data", id, "sh", "-c", "echo x > sub && cat sub"], ""),
        (&[id, "cat", "/etc/secret"], ""),
        (&["--user", "7:8", id, "sh", "-c", "id -u; cat /etc/secret"], "7"),
    ] {
        let answer = running.exec(args);
        assert_eq!(answer.out.trim(), want, "{args:?} {answer:?}");
    }
    assert_eq!(running.exec(&[id, "sh", "-c", "exit 9"]).code, Some(9));
    // The launcher, the program, and this.
    assert_eq!(running.sh("set -- /proc/[0-9]*; echo $#"), "3\n");
    std::fs::remove_file(place.path("state").join(id).join("policy.json")).expect("the policy");
    running.exec(&[id, "id"]).bad("policy");
}

/// The launcher has the rights of the program: a command with other ones has a launcher of its own, under the
/// same policy.
#[test]
fn commands_of_other_users_are_held() {
    if !ready("commands_of_other_users") {
        return;
    }
    let mut place =
        fenced(&json!({"filesystem": {"allowWrite": ["/ws"], "denyRead": ["/etc/secret"]}}));
    let caps = json!(["CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_FOWNER"]);
    for set in ["bounding", "effective", "permitted"] {
        place.spec["process"]["capabilities"][set] = caps.clone();
    }
    let script = "echo > /data/f; cat /etc/secret; cd /ws; echo x > $1; stat -c %u $1; set -- /proc/[0-9]*; echo $#";
    // With CAP_SETUID the launcher can act as anybody.
    let running = place.waiting();
    assert_eq!(running.exec(&[&running.id, "busybox", "chmod", "777", "/ws"]).code, Some(0));
    for (user, want) in [("7:8", "7\n3\n"), ("0", "0\n3\n")] {
        let answer = running.exec(&["--user", user, &running.id, "sh", "-c", script, "sh", user]);
        assert_eq!(answer.out, want, "{answer:?}");
        assert!(answer.err.contains("/data/f: Permission denied"), "{answer:?}");
    }
    drop(running);
    // Without, it is the program's user alone.
    place.spec["process"]["user"] = json!({"uid": 7, "gid": 8});
    place.spec["process"]["capabilities"] = json!({});
    let running = place.waiting();
    for (user, want) in [("7:8", "7\n3\n"), ("0", "0\n4\n"), ("9", "9\n4\n")] {
        let answer = running.exec(&["--user", user, &running.id, "sh", "-c", script, "sh", user]);
        assert_eq!(answer.out.lines().last(), want.lines().last(), "{answer:?}");
        assert!(!answer.out.contains("secret"), "{answer:?}");
        assert!(answer.err.contains("/data/f: Permission denied"), "{answer:?}");
    }
    let other = [
        "--user",
        "0",
        "--cap",
        "CAP_KILL",
        &running.id,
        "sh",
        "-c",
        "kill -0 1; kill -0 2; echo $?",
    ];
    assert_eq!(running.exec(&other).out, "0\n");
}

/// The program and commands share a user, and yet none looks into another, or into the launcher; whatever
/// capabilities the document gives them.
#[test]
fn nobody_looks_into_another() {
    if !ready("nobody_looks_into_another") {
        return;
    }
    const LOOK: &str = "for p in /proc/[0-9]*; do
            case $p in /proc/$$|/proc/$PPID) continue;; esac
            cat $p/environ > /dev/null && echo environ; readlink $p/fd/0 && echo fd
            busybox head -c 0 $p/mem && echo mem
        done 2> /dev/null; echo looked";
    let program = format!(
        "echo > /ws/ready; until [ -e /ws/go ]; do sleep 0.05; done; {{ {LOOK}; }} > /ws/out
        echo > /ws/done; sleep 1000"
    );
    for denied in [None, Some(json!([])), Some(json!(["/ws/**/*.env"]))] {
        let policy = json!({"filesystem": {"allowWrite": ["/ws"], "denyRead": denied}});
        let mut place = fenced(&policy);
        if denied.is_none() {
            place.spec["annotations"] = json!({});
        }
        let caps =
            json!(["CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_KILL", "CAP_SETUID", "CAP_SETGID"]);
        for set in ["bounding", "effective", "permitted"] {
            place.spec["process"]["capabilities"][set] = caps.clone();
        }
        let id = &id();
        place.program(&["sh", "-c", &program]).call(&["run", "--detach", "-b", ".", id]).good();
        let exec = |script: &str| place.call(&["exec", id, "sh", "-c", script]).good();
        place.call(&["exec", "--detach", id, "sleep", "1000"]).good();
        let of_command = exec(&format!("until [ -e /ws/ready ]; do sleep 0.05; done; {LOOK}"));
        let of_program =
            exec("echo > /ws/go; until [ -e /ws/done ]; do sleep 0.05; done; cat /ws/out");
        place.call(&["delete", "--force", id]).good();
        for found in [of_command, of_program] {
            match denied {
                None => {
                    for what in ["environ", "fd", "mem"] {
                        assert!(found.contains(what), "{what}: {found}");
                    }
                }
                Some(_) => assert_eq!(found, "looked\n", "{denied:?}"),
            }
        }
    }
}

/// What a command leaves lives on, as without a policy, and ends with the container.
#[test]
fn what_a_command_leaves_ends_with_the_container() {
    if !ready("what_a_command_leaves") {
        return;
    }
    let place = fenced(&json!({"filesystem": {"allowWrite": ["/ws"]}}));
    let id = &id();
    let script = "until [ -e /ws/end ]; do sleep 0.05; done; exit 4";
    let mut run = place.program(&["sh", "-c", script]).command(&["run", "-b", ".", id]);
    let mut run = run.spawn().expect("run");
    let exec = |script: &str| place.call(&["exec", id, "sh", "-c", script]);
    while exec("true").code != Some(0) {}
    exec("(while :; do echo x > /ws/alive; sleep 0.05; done) > /dev/null 2>&1 &").good();
    exec("busybox rm -f /ws/alive; until [ -e /ws/alive ]; do sleep 0.05; done").good();
    exec("echo > /ws/end");
    assert_eq!(run.wait().expect("an end").code(), Some(4));
}

/// Nothing runs that nobody serves.
#[test]
fn without_its_launcher_nothing_is_executed() {
    if !ready("without_its_launcher") {
        return;
    }
    let place = fenced(&json!({"filesystem": {"allowWrite": ["/ws"]}}));
    let running = place.waiting();
    let launcher = place.state(&running.id)["pid"].as_i64().expect("a pid");
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill").args([name, &launcher.to_string()]).status();
        assert!(sent.expect("kill(1)").success());
    };
    signal("-STOP");
    let answer = running.exec(&[&running.id, "sh", "-c", "echo ran"]);
    assert_eq!(answer.out, "");
    answer.bad("did not answer");
    signal("-CONT");
    assert_eq!(running.sh("echo ran"), "ran\n");
}

#[test]
fn signals_and_ends_are_those_of_the_program() {
    if !ready("signals_and_ends") {
        return;
    }
    let place = fenced(&json!({"filesystem": {"allowWrite": ["/ws"]}}));
    assert_eq!(place.run(&["sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(place.run(&["sh", "-c", "kill -9 $$"]).code, Some(137));
    for (name, number) in [("TERM", "15"), ("RTMIN+3", "37"), ("ALRM", "14")] {
        let id = id();
        let script = format!("trap 'exit 3' {number}; echo ready; while :; do sleep 0.1; done");
        let mut run = place.program(&["sh", "-c", &script]).command(&["run", "-b", ".", &id]);
        let mut run = run.stdout(Stdio::piped()).spawn().expect("run");
        let mut line = String::new();
        let out = run.stdout.take().expect("a pipe");
        std::io::BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        place.call(&["kill", &id, name]).good();
        assert_eq!(run.wait().expect("an end").code(), Some(3), "{name}");
    }
}

/// The launcher is the first process, which nobody in there can stop: the program stops alone.
#[test]
fn a_program_that_stops_stays_so_until_it_is_continued() {
    if !ready("a_program_that_stops") {
        return;
    }
    let place = fenced(&json!({"filesystem": {"allowWrite": ["/ws"]}}));
    let script = "(seen=0; for look in $(busybox seq 2000); do \
            if busybox grep -q '^State:.T' /proc/$$/status; then seen=$((seen + 1)); else seen=0; fi; \
            if [ $seen = 20 ]; then echo stopped; break; fi; \
        done; kill -CONT $$) & kill -STOP $$; wait; echo on";
    let answer = place.run(&["sh", "-c", script]);
    assert_eq!(answer.out, "stopped\non\n", "{answer:?}");
}

#[test]
fn policies_are_merged_and_refused_by_name() {
    if !ready("policies_are_merged") {
        return;
    }
    let mut place = fenced(&json!({}));
    place.spec["annotations"] = json!({});
    place.options.clear();
    for (name, text) in [
        ("one.json", "{\"filesystem\": {\"allowWrite\": [\"/ws\"]}}"),
        ("more.yaml", "filesystem:\n  allowWrite: [/data]\n"),
    ] {
        std::fs::write(place.path(name), text).expect("a file");
        place.options.extend(["--policy".into(), place.path(name).display().to_string()]);
    }
    let both = place;
    let script = "echo x > /data/f; echo x > /ws/f; echo x > /tmp/f; busybox ls /data /ws /tmp";
    let out = both.run(&["sh", "-c", script]).out;
    assert_eq!(out.matches("\nf").count(), 2, "{out}");

    let mut place = both;
    std::fs::copy(place.path("more.yaml"), place.path("more.json")).expect("a copy");
    place.options = vec!["--policy".into(), place.path("more.json").display().to_string()];
    place.run(&["true"]).bad("a name that does not end in .yaml or .yml is read as JSON");
    place.options.clear();
    for (policy, says) in [
        (json!("relative.json"), "annotations.dev.landstrip.policy: \"relative.json\""),
        (json!("/nowhere/p.json"), "/nowhere/p.json: No such file"),
        (json!("{\"filesystem\": {\"alowWrite\": []}}"), "filesystem.alowWrite"),
        (json!("@nothing"), "no policy `@nothing`"),
        (
            json!("{\"network\": {\"allowedDomains\": [\"a.example\"], \"allowNetwork\": true}}"),
            "network.allowedDomains",
        ),
    ] {
        place.spec["annotations"]["dev.landstrip.policy"] = policy;
        let answer = place.run(&["sh", "-c", "echo ran"]);
        assert_eq!(answer.out, "", "{answer:?}");
        answer.bad(says);
    }
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
    place.spec["annotations"]["dev.landstrip.policy"] = "{}".into();
    place.spec["linux"]["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/nowhere",
        "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}],
    });
    place.run(&["id"]).bad("SCMP_ACT_NOTIFY");
}

/// An image can bring files that look like procfs.
#[test]
fn a_container_without_procfs_is_refused() {
    if !ready("a_container_without_procfs") {
        return;
    }
    let mut place = fenced(&json!({}));
    assert_eq!(place.run(&["sh", "-c", "echo ran"]).out, "ran\n");
    let mounts = place.spec["mounts"].as_array_mut().expect("a list");
    mounts.retain(|mount| mount["destination"] != "/proc");
    let answer = place.run(&["sh", "-c", "echo ran"]);
    assert_eq!(answer.out, "", "{answer:?}");
    answer.bad("procfs");
}

/// The container's own profile is for the program, and it wins over what the policy allows.
#[test]
fn the_profile_holds_beside_the_policy() {
    if !ready("the_profile_holds") {
        return;
    }
    let mut place = fenced(&json!({"filesystem": {"allowWrite": ["/ws"]}}));
    place.spec["linux"]["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95},
            // What the launcher needs, and the program does not.
            {"names": ["process_vm_readv", "landlock_restrict_self", "clone3"], "action": "SCMP_ACT_ERRNO"},
        ],
    });
    let answer = place.run(&["sh", "-c", "busybox mkdir /ws/d; echo x > /ws/f; cat /ws/f"]);
    assert_eq!(answer.out.trim(), "x", "{answer:?}");
    assert!(answer.err.contains("not supported"), "{answer:?}");
    // Its filter is not one of a run in there, which may have Landlock.
    with_probe(&mut place);
    place.spec["linux"]["seccomp"]["syscalls"][1]["names"] = json!(["process_vm_readv"]);
    let ask = ["probe", "landlock_create_ruleset NULL 0 1"];
    assert_eq!(place.run(&ask).out, "EOPNOTSUPP\n");
    place.spec["annotations"] = json!({});
    assert!(place.run(&ask).out.starts_with("ok"));
}

#[test]
fn limits_are_those_of_the_cgroup() {
    if !ready("limits_are_those_of_the_cgroup") {
        return;
    }
    let mut place = fenced(&json!({"limits": {"pids": 20, "memory": "64M"}}));
    place.spec["linux"]["namespaces"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"type": "cgroup"}));
    let mounts = place.spec["mounts"].as_array_mut().expect("a list");
    mounts.push(json!({"destination": "/sys", "type": "sysfs", "source": "sysfs"}));
    mounts.push(json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"}));
    let script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; \
        i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done";
    let answer = place.run(&["sh", "-c", script]);
    assert_eq!(answer.out.trim(), "67108864", "{answer:?}");
    assert!(answer.err.contains("fork"), "{answer:?}");
}
