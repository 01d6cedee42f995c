//! Ceilings on a run, against programs that want more: each also runs under a ceiling that is high
//! enough, and gets it.

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::have::{self, have};
use support::{ACCEPT, Bed, LANDSTRIP, Run, collect, finish, wait};

/// Sets `$D` to the directory of this process's cgroup that has the controller `$1`, without starting
/// a process: there may be no room for one.
const DIRECTORY: &str = r#"
dir() { while IFS=: read -r n c p; do
    case "$n,$c," in *,$1,*) D=/sys/fs/cgroup/$1$p;; 0,,) [ -e /sys/fs/cgroup/cgroup.procs ] && D=/sys/fs/cgroup$p;; esac
done < /proc/self/cgroup; }
"#;

fn policy(limits: Value) -> Value {
    json!({ "filesystem": { "allowWrite": ["{in}"] }, "limits": limits })
}

/// Runs a script of sh under `limits`.
fn script(bed: &Bed, limits: Value, text: &str) -> Run {
    bed.launch(&policy(limits), &[], &["/bin/sh", "-c", &format!("{DIRECTORY}{text}")])
}

/// The `limit` records among `traps`, as resource and count.
fn reached(traps: &[Value]) -> Vec<(&str, u64)> {
    traps
        .iter()
        .filter(|trap| trap["kind"] == "limit")
        .map(|trap| (trap["resource"].as_str().unwrap(), trap["count"].as_u64().unwrap()))
        .collect()
}

/// The records on standard error.
fn reported(run: &Run) -> Vec<Value> {
    run.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The host directory of the cgroup that a line of `/proc/PID/cgroup` with the controller names.
fn directory(lines: &[String], controller: &str) -> PathBuf {
    let find = |wanted: &dyn Fn(&str, &str) -> bool| {
        lines.iter().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(id, names).then(|| path.to_owned())
        })
    };
    let (top, path) = match find(&|_, names| names.split(',').any(|name| name == controller)) {
        Some(path) => (format!("/sys/fs/cgroup/{controller}"), path),
        None => ("/sys/fs/cgroup".to_owned(), find(&|id, _| id == "0").expect("a cgroup")),
    };
    PathBuf::from(format!("{top}{path}"))
}

#[test]
fn a_fork_bomb_reaches_the_ceiling_and_ends_with_the_run() {
    if !have("fork bomb", &["cgroup:pids"]) {
        return;
    }
    let bed = Bed::new(&[]);
    // It doubles for ever; the program itself goes on until the kernel has refused a process.
    let bomb = r#"
        dir pids; cat /proc/self/cgroup; echo end
        bomb() { bomb & bomb & wait; }; bomb 2>/dev/null &
        until read -r word count < $D/pids.events && [ "$count" -gt 0 ]; do :; done
        read -r now < $D/pids.current; echo "$now"; exit 5"#;
    let run = script(&bed, json!({ "pids": 20 }), bomb);
    assert_eq!((run.code, run.signal), (Some(5), None), "{run:?}");
    let now: u64 = run.last().parse().expect("a number");
    assert!((1..=20).contains(&now), "{run:?}");
    for traps in [&run.traps, &reported(&run)] {
        let reached = reached(traps);
        assert!(matches!(reached[..], [("pids", 1..)]), "{run:?}");
    }
    assert!(!directory(&run.lines, "pids").exists(), "{run:?}");

    // The control: a bomb that stops at 63 processes has room for them.
    let small = "b() { [ $1 = 0 ] || { b $(($1-1)) & b $(($1-1)) & wait; }; echo x; }; b 5";
    let run = script(&bed, json!({ "pids": 200 }), small);
    assert_eq!((run.code, run.lines.len()), (Some(0), 63), "{run:?}");
    assert_eq!(reached(&run.traps), []);
}

#[test]
fn what_is_reached_is_told_as_it_happens() {
    if !have("stream", &["cgroup:pids"]) {
        return;
    }
    let bed = Bed::new(&[
        "mknodat AT_FDCWD \"{in}/go S_IFIFO|0666 0",
        "mknodat AT_FDCWD \"{root}/fifo S_IFIFO|0600 0",
    ]);
    let text = "(:) & (:) & (:) & (:) & (read -r _ < go) & (read -r _ < go); read -r _ < go";
    // dash ends when it cannot fork; the outer one waits for the word of the test.
    let text = format!("trap '' CHLD; sh -c '{text}'; read -r word < go; exit 6");
    let mut command =
        bed.sandboxed(&policy(json!({ "pids": 3 })), &["3>{root}/fifo"], &["/bin/sh", "-c", &text]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("landstrip");
    let err = collect(child.stderr.take());
    let mut traps = BufReader::new(std::fs::File::open(bed.root().join("fifo")).expect("fifo"));
    let mut line = String::new();
    traps.read_line(&mut line).expect("a trap");
    let trap: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(trap["code"], "PIDS_LIMIT_REACHED", "{line}");
    assert_eq!(trap["rule"]["key"], "limits.pids", "{line}");
    assert!(child.try_wait().expect("status").is_none(), "it told only at the end");
    std::fs::write(bed.root().join("in/go"), "go\n").expect("go");
    let status = wait(&mut child, Duration::from_secs(30)).expect("an end");
    assert_eq!(status.code(), Some(6), "{:?}", err.join());
    traps.read_to_string(&mut line).expect("the rest");
    assert_eq!(line.matches("PIDS_LIMIT_REACHED").count(), 1, "{line}");
}

#[test]
fn a_memory_hog_is_killed() {
    if !have("memory hog", &["cgroup:memory"]) {
        return;
    }
    let bed = Bed::new(&[]);
    // tail(1) keeps what it may have to print.
    let hog = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c";
    let run = script(&bed, json!({ "memory": "64M" }), hog);
    assert_eq!((run.code, run.last()), (Some(0), "0"), "{run:?}");
    for traps in [&run.traps, &reported(&run)] {
        assert!(matches!(reached(traps)[..], [("memory", 1..)]), "{run:?}");
    }
    let run = script(&bed, json!({ "memory": "1G" }), hog);
    assert_eq!((run.code, run.last()), (Some(0), "200000000"), "{run:?}");
    assert_eq!(reached(&run.traps), []);
    // The program itself: its end is the run's.
    let run =
        script(&bed, json!({ "memory": "64M" }), "x=$(head -c 200000000 /dev/zero | tr '\\0' x)");
    assert_eq!(run.code, Some(128 + 9), "{run:?}");
    assert!(matches!(reached(&run.traps)[..], [("memory", 1..)]), "{run:?}");
}

#[test]
fn processor_time_is_rationed() {
    if !have("spin", &["cgroup:cpu"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let throttled = |cpu: Value, turns: u32| {
        let spin =
            format!("dir cpu; i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done; cat $D/cpu.stat");
        let run = script(&bed, json!({ "cpu": cpu }), &spin);
        assert_eq!(run.code, Some(0), "{run:?}");
        let count = run.lines.iter().find_map(|line| line.strip_prefix("nr_throttled "));
        count.and_then(|n| n.parse::<u64>().ok()).unwrap_or_else(|| panic!("{run:?}"))
    };
    assert!(throttled(json!(0.1), 300_000) > 2);
    // Less than the least quota, by a longer period.
    assert!(throttled(json!(0.005), 10_000) > 0);
    assert_eq!(throttled(json!(1000), 300_000), 0);
}

#[test]
fn the_run_ends_when_its_time_is_up() {
    let bed = Bed::new(&[]);
    // Neither the program nor what it leaves behind hears of a polite signal.
    let stubborn = "trap '' TERM INT HUP; (while :; do :; done) & echo $!; while :; do :; done";
    let run = script(&bed, json!({ "time": 1 }), stubborn);
    assert_eq!(run.code, Some(128 + 9), "{run:?}");
    for traps in [&run.traps, &reported(&run)] {
        assert_eq!(reached(traps), [("time", 1)], "{run:?}");
    }
    assert!(!Path::new("/proc").join(run.last()).exists(), "{run:?}");
    let run = script(&bed, json!({ "time": 60 }), "exit 7");
    assert_eq!((run.code, reached(&run.traps)), (Some(7), vec![]), "{run:?}");
    // A program that stops itself stops the launcher with it, but no clock.
    let run = script(&bed, json!({ "time": 1 }), "(while :; do :; done) & kill -STOP $$; exit 3");
    assert_eq!((run.code, reached(&run.traps)), (Some(128 + 9), vec![("time", 1)]), "{run:?}");
    // Inside another run as well: the launcher holds it by itself.
    let inner = bed.root().join("inner.json");
    std::fs::write(&inner, r#"{"limits":{"time":1}}"#).expect("a policy");
    let inner = inner.display().to_string();
    let args =
        [LANDSTRIP, "run", ACCEPT, "-p", &inner, "--", "/bin/sh", "-c", "while :; do :; done"];
    let run = bed.launch(&policy(json!({ "time": 60 })), &[], &args);
    assert_eq!(run.code, Some(128 + 9), "{run:?}");
    assert_eq!(reached(&reported(&run)), [("time", 1)], "{run:?}");
}

#[test]
fn cgroups_cannot_be_changed_from_inside() {
    if !have("escape", &["cgroup:pids"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let open = |limits: Value, roots: &[&str]| json!({ "filesystem": { "allowWrite": roots }, "limits": limits });
    let escape = r#"dir pids; T=${D%/landstrip-run-*}
        (echo 0 > $T/cgroup.procs) 2>/dev/null && echo moved
        (echo max > $D/pids.max) 2>/dev/null && echo raised
        mkdir $T/landstrip-test-escape 2>/dev/null && rmdir $T/landstrip-test-escape && echo made
        rmdir $D 2>/dev/null && echo removed
        chmod 777 $D 2>/dev/null && echo changed
        mv $D $T/landstrip-test-other 2>/dev/null && echo renamed
        echo tried"#;
    let text = format!("{DIRECTORY}{escape}");
    let run = |policy: Value| bed.launch(&policy, &[], &["/bin/sh", "-c", &text]);
    for roots in [&["/"][..], &["/sys"], &["/", "/sys/fs/cgroup"], &["/**"]] {
        let run = run(open(json!({ "pids": 50 }), roots));
        assert_eq!(run.lines, ["tried"], "{roots:?} {run:?}");
    }
    // Without a ceiling there is nothing to undo, but processes outside to be moved and killed.
    assert_eq!(run(open(json!({}), &["/"])).lines, ["tried"]);
    // The control: a policy that names them, and the one attempt that leaves no trace on the host.
    let make =
        "dir pids; mkdir $D/landstrip-test-made && rmdir $D/landstrip-test-made && echo made";
    let text = format!("{DIRECTORY}{make}");
    let named = open(json!({}), &["/", "/sys/fs/cgroup"]);
    let named = bed.launch(&named, &[], &["/bin/sh", "-c", &text]);
    assert_eq!(named.lines, ["made"], "{named:?}");
}

#[test]
fn what_a_killed_launcher_leaves_is_removed_by_a_later_run() {
    if !have("stale cgroups", &["cgroup:pids"]) {
        return;
    }
    let bed = Bed::new(&["mknodat AT_FDCWD \"{in}/wait S_IFIFO|0666 0"]);
    let limits = || policy(json!({ "pids": 9 }));
    let start = || {
        let text = "cat /proc/self/cgroup; echo end; read -r word < wait";
        let mut command = bed.sandboxed(&limits(), &[], &["/bin/sh", "-c", text]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("landstrip");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = out.lines().map_while(Result::ok);
        let cgroup: Vec<_> = lines.by_ref().take_while(|line| line != "end").collect();
        (child, directory(&cgroup, "pids"), lines)
    };
    let (mut killed, stale, mut rest) = start();
    let (mut living, used, _rest) = start();
    killed.kill().expect("SIGKILL");
    killed.wait().expect("its end");
    // The pipe closes when the last process of the run is gone.
    assert_eq!(rest.next(), None);
    assert!(stale.exists() && used.exists());
    let run = bed.launch(&limits(), &[], &["/bin/true"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!stale.exists(), "{stale:?}");
    assert!(used.exists(), "{used:?} is in use");
    std::fs::write(bed.root().join("in/wait"), "go\n").expect("go");
    assert!(wait(&mut living, Duration::from_secs(30)).is_some());
    assert!(!used.exists(), "{used:?}");
}

#[test]
fn what_cannot_be_held_is_refused_unless_accepted() {
    let bed = Bed::new(&[]);
    let root = rustix::process::geteuid().is_root();
    let user: &[&str] = if root { &["3>{root}/traps", "uid=65534"] } else { &[] };
    if !root && have::cgroup("pids") {
        eprintln!("skipped: no cgroups: this user has a delegated one");
        return;
    }
    let all = json!({ "memory": "100M", "pids": 40, "cpu": 1 });
    let program = ["/bin/cat", "/proc/self/limits"];
    let run = bed.launch(&policy(all.clone()), user, &program);
    assert_eq!((run.code, run.lines.len()), (Some(1), 0), "{run:?}");
    let trap = &reported(&run)[0];
    assert_eq!(
        (&trap["code"], &trap["key"]),
        (&json!("POLICY_SHORTFALL"), &json!("limits.memory"))
    );
    let accepted = bed.launch(&policy(all), &[user, &["--accept=limits"]].concat(), &program);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let limit = |name: &str| {
        let line = accepted.lines.iter().find(|line| line.starts_with(name)).expect("a limit");
        line[name.len()..].split_ascii_whitespace().next().expect("a value").to_owned()
    };
    assert_eq!(limit("Max data size"), (100 << 20).to_string());
    assert!((40..100_000).contains(&limit("Max processes").parse::<u64>().expect("a number")));
}

/// The same host as programs see it that know one version of cgroups only.
#[test]
fn each_version_is_told_apart() {
    if !have("views", &["root", "/sys/fs/cgroup/unified", "cgroup:pids", "cmd:unshare"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let file = bed.policy(&policy(json!({ "pids": 30, "time": 60 })));
    let plan = |prepare: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c"]);
        command.arg(format!(
            "{prepare} && exec {LANDSTRIP} policy plan --format json -p {}",
            file.display()
        ));
        let run = finish(command, Path::new("none"));
        let plan: Value = serde_json::from_str(&run.lines.join("\n")).expect("a plan");
        let lines = plan["lines"].as_array().expect("lines");
        let held = |key: &str| {
            let line = lines.iter().find(|line| line["origin"]["key"] == key).expect("a line");
            line["held_by"].clone()
        };
        (run.code, held("limits.pids"), held("limits.time"))
    };
    let launcher = json!("launcher");
    for hybrid_or_v1 in ["true", "umount /sys/fs/cgroup/unified"] {
        assert_eq!(plan(hybrid_or_v1), (Some(0), json!("cgroup-v1"), launcher.clone()));
    }
    // This host's version 2 has none of the controllers.
    let v2 = "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup";
    assert_eq!(plan(v2), (Some(1), Value::Null, launcher.clone()));
    assert_eq!(plan("umount -R /sys/fs/cgroup"), (Some(1), Value::Null, launcher));
}
