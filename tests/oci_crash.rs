//! The runtime killed at every step, and many containers: nothing stays behind.
#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use support::have::have;
use support::place::{Place, id, ready};

/// The calls that change something, or wait for somebody. A death between two others is no different.
const STEPS: &str = "mkdir,mkdirat,openat,write,rename,renameat,unlink,unlinkat,rmdir,clone3,clone,execve,\
    open_tree,move_mount,mount_setattr,fsopen,fsmount,sendto,sendmsg,recvfrom,recvmsg,bind,listen,connect,\
    pidfd_open,pidfd_send_signal,kill,prlimit64,wait4,waitid,ppoll,flock";

/// What there is on this machine that containers could leave.
#[derive(Debug, PartialEq)]
struct Host {
    mounts: usize,
    cgroups: BTreeSet<PathBuf>,
    outside: Vec<u8>,
}

impl Host {
    fn see(place: &Place, name: &str) -> Host {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let dir = place.dir.path().display().to_string();
        let mounts = mounts.lines().filter(|line| line.contains(&dir)).count();
        let outside = std::fs::read(place.path("outside")).expect("a file");
        Host { mounts, cgroups: cgroups(name), outside }
    }
}

/// The cgroups whose name begins with `name`, in all hierarchies.
fn cgroups(name: &str) -> BTreeSet<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let points = own.lines().filter(|line| line.contains(" - cgroup"));
    let mut todo: Vec<PathBuf> =
        points.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect();
    let mut found = BTreeSet::new();
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(name) {
                    found.insert(path);
                } else {
                    todo.push(path);
                }
            }
        }
    }
    found
}

/// The processes whose command line holds `word`.
fn processes(word: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("procfs").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != std::process::id() && line.windows(word.len()).any(|part| part == word.as_bytes())
    };
    pids.filter(has).collect()
}

fn none_is_left(word: &str) {
    let until = Instant::now() + support::PATIENCE;
    for pid in processes(word) {
        let left = until.saturating_duration_since(Instant::now());
        assert!(support::ends(pid, left), "{pid} of {word} still runs");
    }
    assert_eq!(processes(word), Vec::<u32>::new(), "{word}");
}

/// A place whose containers have a program with a line of its own, and beside it a file of the host's.
fn place() -> (Place, String) {
    let mut place = Place::new();
    std::fs::write(place.path("outside"), "outside").expect("a file");
    std::os::unix::fs::symlink(place.path("outside"), place.path("rootfs/link")).expect("a link");
    let hook = json!([{"path": "/bin/true"}]);
    place.spec["hooks"] = json!({"createRuntime": hook, "poststart": hook, "poststop": hook});
    (place, id())
}

/// Runs a command, killed as it enters call `number` of [`STEPS`]. Whether it got that far.
fn killed(place: &Place, args: &[&str], number: usize) -> bool {
    let command = place.command(args);
    let mut traced = Command::new("timeout");
    traced.args(["--kill-after=2", "120", "strace", "--output", "/dev/null"]);
    traced
        .arg(format!("--trace={STEPS}"))
        .arg(format!("--inject={STEPS}:signal=KILL:when={number}"));
    // Without the two of timeout(1), which would be traced instead.
    traced.args(command.get_args().skip(2)).current_dir(place.dir.path());
    let status = traced.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let code = status.expect("timeout(1)").code();
    assert_ne!(code, Some(124), "{args:?} hangs at {number}");
    // strace(1) ends as what it traced: by a signal.
    code.is_none() || code == Some(137)
}

/// Kills `args` at every step, each time in a container of its own that `before` prepares; without a policy, and under
/// one, where the runtime's process stays in the container.
fn at_every_step(verb: &str, before: impl Fn(&Place, &str), args: impl Fn(&str) -> Vec<String>) {
    for held in [false, true] {
        let (mut place, prefix) = place();
        if held {
            under_a_policy(&mut place);
        }
        at_every_step_in(&place, &prefix, verb, &before, &args);
    }
}

fn at_every_step_in(
    place: &Place,
    prefix: &str,
    verb: &str,
    before: impl Fn(&Place, &str),
    args: impl Fn(&str) -> Vec<String>,
) {
    place.program(&["sh", "-c", &format!("sleep 1000; : {prefix}")]);
    let host = Host::see(place, prefix);
    let mut number = 0;
    loop {
        number += 1;
        let id = format!("{prefix}-{number}");
        before(place, &id);
        let args = args(&id);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let died = killed(place, &args, number);
        let force = place.call(&["delete", "--force", &id]);
        assert_eq!(force.code, Some(0), "{verb} {number}: {force:?}");
        let left = std::fs::read_dir(place.path("state")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{verb} {number}");
        if !died {
            break;
        }
        assert!(number < 500, "{verb} never ends");
    }
    assert!(number > 2, "{verb}: only {number} steps");
    none_is_left(prefix);
    assert_eq!(Host::see(place, prefix), host, "{verb}");
}

fn can_kill(what: &str) -> bool {
    ready(what) && have(what, &["cmd:strace"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn create(place: &Place, id: &str) {
    place.call(&["create", "-b", ".", id]).good();
}

fn running(place: &Place, id: &str) {
    place.call(&["run", "--detach", "-b", ".", id]).good();
}

#[test]
fn create_is_killed() {
    if can_kill("create is killed") {
        at_every_step("create", |_, _| (), |id| words(&["create", "-b", ".", id]));
    }
}

#[test]
fn run_is_killed() {
    if can_kill("run is killed") {
        at_every_step("run", |_, _| (), |id| words(&["run", "--detach", "-b", ".", id]));
    }
}

#[test]
fn start_is_killed() {
    if can_kill("start is killed") {
        at_every_step("start", create, |id| words(&["start", id]));
    }
}

#[test]
fn exec_is_killed() {
    if can_kill("exec is killed") {
        at_every_step("exec", running, |id| words(&["exec", "--detach", id, "sleep", "1000"]));
    }
}

#[test]
fn delete_is_killed() {
    if can_kill("delete is killed") {
        at_every_step("delete", running, |id| words(&["delete", "--force", id]));
    }
}

fn under_a_policy(place: &mut Place) {
    let policy = json!({"filesystem": {"allowWrite": ["/tmp"], "denyRead": ["/etc"]}});
    place.spec["annotations"]["dev.landstrip.policy"] = policy.to_string().into();
}

/// A place with a policy or without.
fn fenced(fenced: bool) -> (Place, String) {
    let (mut place, prefix) = place();
    place.spec["hooks"] = Value::Null;
    if fenced {
        under_a_policy(&mut place);
    }
    (place, prefix)
}

#[test]
fn two_hundred_one_after_another() {
    if !ready("200 containers") {
        return;
    }
    let (place, prefix) = fenced(false);
    place.program(&["sh", "-c", &format!(": {prefix}")]);
    let host = Host::see(&place, &prefix);
    let shared = descriptors();
    for number in 0..200 {
        let id = format!("{prefix}-{number}");
        create(&place, &id);
        place.call(&["start", &id]).good();
        place.call(&["delete", "--force", &id]).good();
    }
    assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
    none_is_left(&prefix);
    assert_eq!(Host::see(&place, &prefix), host);
    assert_eq!(descriptors(), shared);
}

/// The names in the directories of files that everybody shares.
fn descriptors() -> BTreeSet<PathBuf> {
    let names = ["/dev/shm", "/run"].map(Path::new);
    let entries = names.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    let ours = |path: &PathBuf| path.to_string_lossy().contains("landstrip-");
    entries.map(|entry| entry.path()).filter(ours).collect()
}

#[test]
fn fifty_at_once() {
    if !ready("50 containers") {
        return;
    }
    for held in [false, true] {
        let (place, prefix) = fenced(held);
        let script = format!("sleep 1000; : {prefix}");
        place.program(&["sh", "-c", &script]);
        let host = Host::see(&place, &prefix);
        let ids: Vec<String> = (0..50).map(|number| format!("{prefix}-{number}")).collect();
        let each = |verb: &[&str]| {
            std::thread::scope(|scope| {
                for id in &ids {
                    let place = &place;
                    scope.spawn(move || place.call(&[verb, &[id]].concat()).good());
                }
            });
        };
        each(&["run", "--detach", "-b", "."]);
        let listed = place.call(&["list", "-q"]).good();
        assert_eq!(listed.lines().count(), 50, "{listed}");
        for id in &ids {
            assert_eq!(support::place::status(&place, id), "running");
        }
        if support::have::cgroup("freezer") {
            each(&["pause"]);
            each(&["resume"]);
        }
        each(&["delete", "--force"]);
        assert_eq!(std::fs::read_dir(place.path("state")).expect("states").count(), 0);
        none_is_left(&prefix);
        assert_eq!(Host::see(&place, &prefix), host);
    }
}
