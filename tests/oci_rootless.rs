//! Containers of an ordinary user, without any engine; and what is said where the host lets them have none.
#![cfg(target_os = "linux")]

mod support;

use serde_json::json;
use std::process::Stdio;
use support::LANDSTRIP;
use support::container::{Bundle, Ended};
use support::have::have;

/// The user that runs the containers where root runs the tests.
const NOBODY: u32 = 65534;

/// A bundle of an ordinary user, with a user namespace that has that one user. None where that user cannot
/// reach the program, or namespaces are not to be had.
fn bundle(what: &str) -> Option<Bundle> {
    if !have(what, &["userns"]) {
        return None;
    }
    let mut bundle = Bundle::new();
    let root = rustix::process::geteuid().is_root();
    if root && !bundle.owned_by(NOBODY) {
        eprintln!("skipped: {what}: {LANDSTRIP} is closed to ordinary users");
        return None;
    }
    let own = if root { NOBODY } else { rustix::process::geteuid().as_raw() };
    let map = json!([{"containerID": 0, "hostID": own, "size": 1}]);
    let linux = &mut bundle.spec["linux"];
    linux["namespaces"].as_array_mut().expect("namespaces").push(json!({"type": "user"}));
    linux["uidMappings"] = map.clone();
    linux["gidMappings"] = map;
    Some(bundle)
}

/// The runtime ends with an error that says this.
fn fails(ended: &Ended, says: &str) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(says), "{says}: {ended:?}");
}

#[test]
fn an_ordinary_user_runs_a_bundle() {
    let Some(bundle) = bundle("a bundle") else { return };
    let ended = bundle.probe(&["getuid", "openat AT_FDCWD \"/new O_WRONLY|O_CREAT 0600"]);
    assert!(ended.last().starts_with("ok"), "{ended:?}");
    assert!(bundle.inside("new").exists());
}

/// As with runc and crun, the usual place is not a user's where `XDG_RUNTIME_DIR` names none.
#[test]
fn a_user_without_a_place_for_containers_is_told_how_to_name_one() {
    let Some(bundle) = bundle("a place for containers") else { return };
    bundle.write(&["/probe", "getuid"]);
    let directory = bundle.path("").to_str().expect("a path").to_owned();
    let run = |runtime_dir: Option<&std::path::Path>, id: &str| {
        let mut command = bundle.caller();
        command.args(["--cgroup-manager", "disabled", "run", "-b", &directory, id]);
        match runtime_dir {
            Some(dir) => command.env("XDG_RUNTIME_DIR", dir),
            None => command.env_remove("XDG_RUNTIME_DIR"),
        };
        command.stdin(Stdio::null()).output().expect("timeout(1)")
    };
    let id = bundle.id();
    let refused = run(None, &id);
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{says}");
    assert!(says.contains("/run/landstrip: Permission denied"), "{says}");
    assert!(says.contains("; set XDG_RUNTIME_DIR, or give --root DIR"), "{says}");
    let place = bundle.path("state");
    let ran = run(Some(&place), &id);
    assert!(ran.status.success(), "{ran:?}");
    assert!(place.join("landstrip").is_dir());
}

/// The kernel lets an ordinary user look at no launcher, which hands its namespaces over instead: to a command that
/// it serves, and to one of other capabilities, which has a launcher of its own.
#[test]
fn an_ordinary_user_executes_commands_under_a_policy() {
    let Some(mut bundle) = bundle("exec") else { return };
    let create = |path: &str| format!("openat AT_FDCWD \"{path} O_WRONLY|O_CREAT 0600");
    let (inside, outside) = (create("/ws/new"), create("/new"));
    let ops = ["getuid", inside.as_str(), "unlink \"/ws/new", &outside];
    for name in ["ws", "tmp"] {
        std::fs::create_dir(bundle.inside(name)).expect("a directory");
        std::os::unix::fs::chown(bundle.inside(name), bundle.user, bundle.user).expect("an owner");
    }
    let directory = bundle.path("").to_str().expect("a path").to_owned();
    for fenced in [false, true] {
        if fenced {
            bundle.spec["annotations"] =
                json!({"dev.landstrip.policy": r#"{"filesystem": {"allowWrite": ["/ws"]}}"#});
        }
        let id = bundle.id();
        bundle.write(&["/probe", "await"]);
        let mut run = bundle.command(&["run", "--detach", "--bundle", &directory, &id]);
        let run = run.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut run = run.expect("timeout(1)");
        // The program ends with this.
        let input = run.stdin.take();
        assert!(run.wait().is_ok_and(|status| status.success()));
        for options in [&[][..], &["--cap", "CAP_NET_ADMIN"]] {
            let words = [&["exec"], options, &[id.as_str(), "/probe"], &ops].concat();
            let ended = bundle.runtime(&words);
            let lines: Vec<_> = ended.stdout.lines().collect();
            assert_eq!(lines.len(), 4, "{options:?} {ended:?}");
            assert!(lines[1].starts_with("ok") && lines[2] == "ok", "{options:?} {ended:?}");
            assert_eq!(lines[3] == "EACCES", fenced, "{options:?} {ended:?}");
        }
        drop(input);
        assert_eq!(bundle.runtime(&["delete", "--force", &id]).code, Some(0));
    }
}

/// Answers as Docker's default profile: clone3(2) is not there, and no user namespace is made.
const FILTERED: &str = r#"
import ctypes, os, struct, sys
LD, JEQ, JSET, RET = 0x20, 0x15, 0x45, 0x06
program = [(LD, 0, 0, 0), (JEQ, 0, 1, 435), (RET, 0, 0, 0x50000 + 38), (JEQ, 1, 0, 56),
           (JEQ, 0, 3, 272), (LD, 0, 0, 16), (JSET, 0, 1, 0x10000000), (RET, 0, 0, 0x50001),
           (RET, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn where_no_namespaces_are_to_be_had_the_cause_is_named() {
    let Some(mut bundle) = bundle("no namespaces") else { return };
    assert_eq!(bundle.probe(&["getuid"]).last(), "ok");
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    bundle.wrapper = vec!["unshare", "--user", "--map-root-user", "sh", "-c", none, "sh"];
    fails(&bundle.probe(&["getuid"]), "(the sysctl user.max_user_namespaces is 0)");
    if have("no namespaces", &["x86_64"]) {
        bundle.wrapper = vec!["/usr/bin/python3", "-c", FILTERED];
        fails(&bundle.probe(&["getuid"]), "new user namespace: Function not implemented");
        fails(&bundle.probe(&["getuid"]), "(by a seccomp filter that is in force here");
    }
}

#[test]
fn where_apparmor_takes_the_rights_away_it_is_named() {
    if !have("AppArmor", &["root"]) {
        return;
    }
    let Some(mut bundle) = bundle("AppArmor") else { return };
    // Where something is mounted over procfs, a user namespace may mount none: as refused as by AppArmor.
    let over = "mount -t tmpfs tmpfs /proc/sys/kernel";
    bundle.before = Some(over.to_owned());
    let ended = bundle.probe(&["getuid"]);
    fails(&ended, "Operation not permitted");
    assert!(!ended.stderr.contains("apparmor"), "{ended:?}");
    let name = "apparmor_restrict_unprivileged_userns";
    bundle.before = Some(format!("{over} && echo 1 > /proc/sys/kernel/{name}"));
    fails(&bundle.probe(&["getuid"]), &format!("(the sysctl kernel.{name} is 1)"));
}
