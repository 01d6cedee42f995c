//! Lists of Unix sockets: what is listed is reached by every name it has, and nothing else is.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use support::attack::{Attack, Stage, attacks};
use support::{Bed, Run, until_won};

fn with(network: Value) -> Value {
    json!({"filesystem": {"allowWrite": ["{in}", "{out}"]}, "network": network})
}

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).quiet()
}

/// A directory with sockets of a process outside.
struct Outside {
    dir: tempfile::TempDir,
    _listeners: Vec<UnixListener>,
}

impl Outside {
    fn new() -> Outside {
        let dir = tempfile::tempdir().expect("a directory");
        // Writable by whoever the tests run as: names are moved about in it.
        for name in ["", "listed", "listed/deep", "other"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).expect("mkdir");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("chmod");
        }
        let names = ["s", "t", "listed/a", "listed/deep/b", "listed/docker.sock", "other/c"];
        let listeners =
            names.iter().map(|name| UnixListener::bind(dir.path().join(name)).expect("bind"));
        Outside { _listeners: listeners.collect(), dir }
    }

    fn path(&self) -> String {
        self.dir.path().canonicalize().expect("a path").display().to_string()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![("{dir}", self.path())]
    }

    /// A policy whose paths start with `{dir}`, and which lets the directory be written.
    fn policy(&self, network: Value) -> Value {
        let mut policy = with(network);
        policy["filesystem"]["allowWrite"] = json!(["{in}", "{dir}"]);
        let text = policy.to_string().replace("{dir}", &self.path());
        serde_json::from_str(&text).expect("JSON")
    }

    fn boxed(&self, network: Value, ops: &[&str]) -> Run {
        let ops: Vec<String> = ops.iter().map(|op| op.replace("{dir}", &self.path())).collect();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        Bed::new(&[]).boxed(&self.policy(network), &ops)
    }
}

/// The same socket by every kind of name.
const NAMES: &[&str] = &[
    "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/s #",
    "do s=socket AF_UNIX SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s un:{dir}/s #",
    "do chdir \"{dir} ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:s #",
    "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:/proc/self/cwd/s #",
    "do d=openat AT_FDCWD \"{dir} O_PATH 0 ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:/proc/self/fd/{d}/s #",
    "do symlinkat \"{dir}/s AT_FDCWD \"{in}/l ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{in}/l #",
    "do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:../../../../../../..{dir}/./listed/../s #",
    "child do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/s #",
];

#[test]
fn a_listed_socket_is_reached_by_every_name() {
    let outside = Outside::new();
    for network in [json!({"allowUnixSockets": ["{dir}/s"]}), json!({"allowAllUnixSockets": true})]
    {
        let run = outside.boxed(network.clone(), NAMES);
        assert!(run.lines.iter().all(|line| line.starts_with("ok")), "{network} {run:?}");
        assert_eq!(run.lines.len(), NAMES.len());
    }
}

#[test]
fn a_listed_directory_opens_what_is_below() {
    let outside = Outside::new();
    let to =
        |name: &str| format!("do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{{dir}}/{name} #");
    let names = ["listed/a", "listed/deep/b", "s", "other/c", "listed/docker.sock"];
    let ops = names.map(to);
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let lines = |network| outside.boxed(network, &ops).lines;
    let denied = "EACCES";
    assert_eq!(lines(json!({})), [denied; 5]);
    let listed = json!({"allowUnixSockets": ["{dir}/listed"]});
    assert_eq!(lines(listed), ["ok", "ok", denied, denied, denied]);
    let glob = json!({"allowUnixSockets": ["{dir}/*/c", "{dir}/?"]});
    assert_eq!(lines(glob), [denied, denied, "ok", "ok", denied]);
    // What is as good as the host has to be named.
    let all = json!({"allowAllUnixSockets": true});
    assert_eq!(lines(all), ["ok", "ok", "ok", "ok", denied]);
    let named = json!({"allowUnixSockets": ["{dir}/listed/docker.sock"]});
    assert_eq!(lines(named), [denied, denied, denied, denied, "ok"]);
}

#[test]
fn a_refusal_names_the_grant() {
    let outside = Outside::new();
    let ops = ["listed/a", "listed/docker.sock"]
        .map(|name| format!("do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{{dir}}/{name} #"));
    let run = outside.boxed(json!({}), &[&ops[0], &ops[1]]);
    let path = format!("{}/listed/a", outside.path());
    let trap = &run.traps[0];
    assert_eq!((&trap["kind"], &trap["operation"]), (&json!("network"), &json!("connect")));
    assert_eq!((&trap["path"], &trap["errno"]), (&json!(path), &json!("EACCES")));
    assert_eq!(trap["suggested_grant"], json!({"allowUnixSockets": path}));
    assert_eq!(run.traps[1]["suggested_grant"], Value::Null);
    assert!(run.traps[1]["message"].as_str().is_some_and(|m| m.contains("as good as the host")));
    let granted = json!({"allowUnixSockets": [path]});
    assert_eq!(outside.boxed(granted, &[&ops[0]]).lines, ["ok"]);
}

/// The list is about a place; what is outside of it must not get there.
const MOVES: &[Attack] = &[
    at(
        "a link to another socket",
        "do symlinkat \"{dir}/t AT_FDCWD \"{dir}/listed/l ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/l #",
    ),
    at(
        "moved",
        "do renameat AT_FDCWD \"{dir}/t AT_FDCWD \"{dir}/listed/t ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/t #",
    ),
    at(
        "moved over",
        "do renameat AT_FDCWD \"{dir}/t AT_FDCWD \"{dir}/listed/a ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/a #",
    ),
    at(
        "linked",
        "do linkat AT_FDCWD \"{dir}/t AT_FDCWD \"{dir}/listed/t 0 ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/t #",
    ),
    at(
        "exchanged",
        "do renameat2 AT_FDCWD \"{dir}/t AT_FDCWD \"{dir}/listed/a RENAME_EXCHANGE ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/a #",
    ),
    at(
        "exchanged the other way",
        "do renameat2 AT_FDCWD \"{dir}/listed/a AT_FDCWD \"{dir}/t RENAME_EXCHANGE ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/a #",
    ),
    at(
        "its directory moved",
        "do renameat AT_FDCWD \"{dir}/other AT_FDCWD \"{dir}/listed/other ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/other/c #",
    ),
    at(
        "its directory in the place",
        "do renameat AT_FDCWD \"{dir}/listed AT_FDCWD \"{dir}/was ; renameat AT_FDCWD \"{dir}/other AT_FDCWD \"{dir}/listed ; s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/listed/c #",
    ),
];

#[test]
fn what_is_not_listed_does_not_get_there() {
    for attack in MOVES {
        // Each moves the sockets about, so each has its own.
        let (bare, boxed) = (Outside::new(), Outside::new());
        let op = attack.op.replace("{dir}", &bare.path());
        let control = Bed::new(&[]).bare(&[&op]);
        assert!(control.last().starts_with("ok"), "{}: the control: {control:?}", attack.name);
        let run = boxed.boxed(json!({"allowUnixSockets": ["{dir}/listed"]}), &[attack.op]);
        assert_eq!(run.last(), "EACCES", "{}: {run:?}", attack.name);
    }
}

#[test]
fn what_the_run_binds_may_be_moved_there() {
    let outside = Outside::new();
    let ops = [
        "s=socket AF_UNIX SOCK_STREAM 0",
        "bind $s un:{dir}/own #",
        "listen $s 2",
        "renameat AT_FDCWD \"{dir}/own AT_FDCWD \"{dir}/listed/own",
        "do c=socket AF_UNIX SOCK_STREAM 0 ; connect $c un:{dir}/listed/own #",
        "put {dir}/file x",
        "renameat AT_FDCWD \"{dir}/file AT_FDCWD \"{dir}/listed/file",
        "linkat AT_FDCWD \"{dir}/listed/a AT_FDCWD \"{dir}/listed/a2 0",
        "do c=socket AF_UNIX SOCK_STREAM 0 ; connect $c un:{dir}/listed/a2 #",
    ];
    let run = outside.boxed(json!({"allowUnixSockets": ["{dir}/listed"]}), &ops);
    assert_eq!(run.lines, ["ok"; 9], "{}", run.stderr);
}

#[test]
fn lists_are_about_pathname_sockets_alone() {
    let outside = Outside::new();
    let words = outside.words();
    let policy = outside.policy(json!({"allowUnixSockets": ["{dir}"]}));
    let stage = Stage { policy, setup: &[], guarded: &[], target: "", words: &words };
    attacks(
        &stage,
        &[
            at("tcp", "do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:127.0.0.1:0 #"),
            at("a datagram pair", "socketpair a b SOCK_DGRAM"),
        ],
    );
    // Binding takes the right to make a file.
    let ops = ["do s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:{out}/new #"];
    let policy = json!({"network": {"allowUnixSockets": ["{out}"]}});
    assert_eq!(Bed::new(&[]).boxed(&policy, &ops).last(), "EACCES");
    assert_eq!(Bed::new(&[]).bare(&ops).last(), "ok");
}

/// The environment says where an engine's socket is; a hard link gives it a name that nobody knows.
#[test]
fn a_daemon_is_known_by_its_inode() {
    let outside = Outside::new();
    let engine = format!("{}/t", outside.path());
    std::fs::hard_link(&engine, outside.dir.path().join("listed/alias")).expect("link");
    let to = |name: &str| {
        format!("do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{}/{name} #", outside.path())
    };
    let policy = outside.policy(json!({"allowAllUnixSockets": true}));
    let probe = support::probe().display().to_string();
    let [direct, alias, plain] = ["t", "listed/alias", "s"].map(to);
    let lines = |option: &str| {
        let program = [probe.as_str(), &direct, &alias, &plain];
        Bed::new(&[]).launch(&policy, &[option], &program).lines
    };
    assert_eq!(lines("DOCKER_HOST=tcp://127.0.0.1:1"), ["ok"; 3]);
    let named = format!("DOCKER_HOST=unix://{engine}");
    assert_eq!(lines(&named), ["EACCES", "EACCES", "ok"]);
}

#[test]
fn races_for_the_way_end_at_a_listed_socket() {
    let outside = Outside::new();
    let dir = outside.path();
    let accept = |name: &str| {
        let listener = outside._listeners[if name == "s" { 0 } else { 1 }].try_clone();
        let listener = listener.expect("clone");
        std::thread::spawn(move || listener.incoming().for_each(drop));
    };
    accept("s");
    accept("t");
    for op in [
        format!("race-way 3000 {{in}}/l {dir}/s {dir}/t"),
        format!("race-connect 3000 {dir}/s {dir}/t"),
    ] {
        let counts = |run: &Run| -> Vec<u64> {
            run.last().split(' ').filter_map(|word| word.parse().ok()).collect()
        };
        let won = |run: &Run| matches!(counts(run)[..], [_, (1..)]);
        let bare = until_won(|| Bed::new(&[]).bare(&[&op]), won);
        assert!(won(&bare), "the control never won: {bare:?}");
        let policy = outside.policy(json!({"allowUnixSockets": ["{dir}/s"]}));
        let run = Bed::new(&[]).boxed(&policy, &[&op]);
        assert!(matches!(counts(&run)[..], [(1..), 0]), "{op}: {run:?}");
    }
}

/// The name in memory changes between a file's and a socket's while it is exchanged with a listed one.
#[test]
fn a_race_for_the_name_moves_no_socket() {
    let race = |outside: &Outside| {
        let dir = outside.path();
        vec![
            format!("put {dir}/q x"),
            format!("put {dir}/listed/f x"),
            format!(
                "race-string 500 {dir}/q {dir}/t renameat2 AT_FDCWD RACE AT_FDCWD \"{dir}/listed/f \
                 RENAME_EXCHANGE"
            ),
            format!("sh test -S {dir}/t"),
        ]
    };
    // Every other time at most, the socket is back where it was.
    let won = (0..40).any(|_| {
        let outside = Outside::new();
        let ops = race(&outside);
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        Bed::new(&[]).bare(&ops).last() == "ok 1"
    });
    assert!(won, "the control never won");
    for _ in 0..4 {
        let outside = Outside::new();
        let ops = race(&outside);
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        let run = outside.boxed(json!({"allowUnixSockets": ["{dir}/listed"]}), &ops);
        let moves = run.lines.get(2).and_then(|line| line.strip_prefix("ok ")?.parse::<u64>().ok());
        assert!(moves.is_some_and(|moves| moves > 0), "{run:?}");
        assert_eq!(run.last(), "ok 0", "the socket was moved: {run:?}");
    }
}

/// Where nobody may copy a socket, a new one takes its place: of the same type, with the same flags.
#[test]
fn listed_sockets_are_reached_where_none_can_be_copied() {
    let outside = Outside::new();
    let policy = outside.policy(json!({"allowUnixSockets": ["{dir}/s"]}));
    let dir = outside.path();
    let mut ops: Vec<String> = NAMES.iter().map(|op| op.replace("{dir}", &dir)).collect();
    let more = [
        "s=socket AF_UNIX SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK 0",
        "connect $s un:{dir}/s #",
        "fcntl $s F_GETFD 0",
        "fcntl $s F_GETFL 0",
        "connect $s un:{dir}/s #",
        "q=socket AF_UNIX SOCK_SEQPACKET 0",
        "bind $q un:{in}/q #",
        "listen $q 2",
        "r=socket AF_UNIX SOCK_SEQPACKET 0",
        "connect $r un:{in}/q #",
        "a=accept $q 0 0",
        "write $r bytes:hello 5",
        "read $a buf:9 9",
        "do x=socket AF_UNIX SOCK_STREAM 0 ; connect $x un:{in}/q #",
        "do x=socket AF_UNIX SOCK_STREAM 0 ; connect $x un:{in}/none #",
        "connect 0 un:{dir}/s #",
        "connect 77 un:{dir}/s #",
        "n=socket AF_NETLINK SOCK_RAW 0",
        "bind $n family:AF_NETLINK 12",
    ];
    ops.extend(more.map(|op| op.replace("{dir}", &dir)));
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let bare = Bed::new(&[]).bare(&ops);
    let probe = support::probe().display().to_string();
    let program = [&[probe.as_str()][..], &ops].concat();
    let boxed = Bed::new(&[]).launch(&policy, &["refuse=pidfd_getfd"], &program);
    let wrong: Vec<_> = (0..ops.len())
        .filter(|&i| bare.lines.get(i) != boxed.lines.get(i))
        .map(|i| format!("{}: {:?} instead of {:?}", ops[i], boxed.lines.get(i), bare.lines.get(i)))
        .collect();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), boxed.stderr);
    let refused = format!("do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/t #");
    let program = [probe.as_str(), &refused];
    let boxed = Bed::new(&[]).launch(&policy, &["refuse=pidfd_getfd"], &program);
    assert_eq!(boxed.last(), "EACCES", "{boxed:?}");
}

/// A foreign socket that is moved to the name while it is being bound is no socket of the run.
#[test]
fn a_race_for_the_bound_name_owns_no_socket() {
    let outside = Outside::new();
    let dir = outside.path();
    let listener = outside._listeners[1].try_clone().expect("clone");
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let op = format!("race-bind 4000 {dir}/mine {dir}/t");
    let counts = |run: &Run| -> Vec<u64> {
        run.last().split(' ').filter_map(|word| word.parse().ok()).collect()
    };
    let policy = outside.policy(json!({}));
    let run = Bed::new(&[]).boxed(&policy, &[&op]);
    assert!(matches!(counts(&run)[..], [(1..), 0]), "{run:?}");
    let won = |run: &Run| matches!(counts(run)[..], [_, (1..)]);
    let bare = until_won(|| Bed::new(&[]).bare(&[&op]), won);
    assert!(won(&bare), "the control never won: {bare:?}");
}

/// A program in a Landlock domain of its own, as a sandbox inside the sandbox has it, uses no socket and
/// no System V object of the run.
#[test]
fn a_program_that_confines_itself_shares_nothing_with_the_run() {
    let ops = |nest| {
        [
            "s=socket AF_UNIX SOCK_STREAM 0",
            "bind $s un:{in}/own #",
            "listen $s 9",
            "m=shmget 0 4096 IPC_CREAT|0600",
            nest,
            "do c=socket AF_UNIX SOCK_STREAM 0 ; connect $c un:{in}/own #",
            "shmctl $m 0 0",
        ]
    };
    let policy = with(json!({"allowAllUnixSockets": true}));
    let run = |nest| Bed::new(&[]).boxed(&policy, &ops(nest));
    let (free, confined) = (run("put {in}/f x"), run("nest"));
    assert_eq!(free.lines[5..], ["ok", "ok"], "{free:?}");
    assert_eq!(confined.lines[4..], ["ok", "EACCES", "EACCES"], "{confined:?}");
}

/// Landlock sees no port that listen(2) takes by itself.
#[test]
fn a_run_inside_another_listens_nowhere() {
    let listen = "do s=socket AF_INET SOCK_STREAM 0 ; listen $s 1";
    let lines = |inner: &str| {
        let bed = Bed::new(&[]);
        std::fs::write(bed.root().join("inner.json"), inner).expect("write");
        let probe = support::probe().display().to_string();
        let policy = json!({"network": {"allowNetwork": true}});
        let inner = [
            support::LANDSTRIP,
            "run",
            support::ACCEPT,
            "-p",
            "{root}/inner.json",
            "--",
            &probe,
            listen,
        ];
        bed.launch(&policy, &[], &inner)
    };
    let (open, closed) =
        (lines(r#"{"network": {"allowNetwork": true}}"#), lines(r#"{"network": {}}"#));
    assert_eq!((open.last(), closed.last()), ("ok", "EACCES"), "{open:?} {closed:?}");
}

#[test]
fn a_daemon_that_starts_later_is_known() {
    let outside = Outside::new();
    let dir = outside.path();
    let to =
        |name: &str| format!("do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{dir}/{name} #");
    let link = format!("linkat AT_FDCWD \"{dir}/t AT_FDCWD \"{dir}/engine 0");
    let policy = outside.policy(json!({"allowAllUnixSockets": true}));
    let probe = support::probe().display().to_string();
    let [before, after] = [to("t"), to("t")];
    let program = [probe.as_str(), &before, &link, &after];
    let option = format!("DOCKER_HOST=unix://{dir}/engine");
    let run = Bed::new(&[]).launch(&policy, &[&option], &program);
    assert_eq!(run.lines, ["ok", "ok", "EACCES"], "{run:?}");
}

/// More connections wait than there are workers, and who is to accept them needs one.
#[test]
fn connections_that_wait_stop_nobody() {
    let mut ops = vec![
        "s=socket AF_UNIX SOCK_STREAM 0".to_owned(),
        "bind $s un:{in}/s #".to_owned(),
        "listen $s 0".to_owned(),
    ];
    let connect = "do c=socket AF_UNIX SOCK_STREAM 0 ; connect $c un:{in}/s #";
    ops.extend((0..150).map(|i| format!("bg w{i} {connect}")));
    ops.push("loop 90 do a=accept $s 0 0 ; put {in}/f x ; close $a".to_owned());
    let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
    let bare = Bed::new(&[]).bare(&ops);
    let boxed = Bed::new(&[]).boxed(&with(json!({})), &ops);
    assert_eq!((bare.lines.len(), bare.last()), (ops.len(), boxed.last()), "{boxed:?}");
    assert!(boxed.last().starts_with("ok"), "{boxed:?}");
}

#[test]
fn closed_sockets_leave_room() {
    let ops =
        ["loop 17000 do s=socket AF_UNIX SOCK_STREAM 0 ; bind $s family:AF_UNIX 2 ; close $s"];
    let (bare, boxed) = (Bed::new(&[]).bare(&ops), Bed::new(&[]).boxed(&with(json!({})), &ops));
    assert_eq!(boxed.last(), bare.last(), "{boxed:?}");
}
