//! Attacks on the kernel's controls and on devices by way of a rule that means files: `allowWrite: ["/"]`,
//! or another directory above them. Each one works without the sandbox, and with a rule that names it.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::process::{Child, Command, Output, Stdio};
use support::{ACCEPT, Bed};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_landstrip");

fn root() -> bool {
    rustix::process::getuid().is_root()
}

fn writing(paths: &[&str]) -> Value {
    json!({"filesystem": {"allowWrite": paths}})
}

/// Runs `script` in `in`, in the sandbox if there is a policy. `around` comes first, outside: it has `$run`
/// for the start of the line that runs the script.
fn sh(around: Option<&str>, policy: Option<&Value>, script: &str) -> Output {
    let bed = Bed::new(&[]);
    let run = match policy {
        Some(policy) => {
            format!("{LAUNCHER} run {ACCEPT} --quiet -p {} --", bed.policy(policy).display())
        }
        None => String::new(),
    };
    let mut command = match around {
        Some(_) => Command::new("unshare"),
        None => Command::new("env"),
    };
    if around.is_some() {
        command.args(["-m", "--propagation", "private"]);
    }
    let line = around.unwrap_or("$run sh -ec \"$script\"");
    let output = command
        .args(["sh", "-ec", line])
        .env("run", run)
        .env("script", script)
        .current_dir(bed.root().join("in"))
        .stdin(Stdio::null())
        .output();
    output.expect("sh")
}

/// A process outside, which ends when this is dropped.
struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        // It waits for the end of its standard input.
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Victim(child.expect("cat"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Sets a control to what it is already.
fn same(path: &str) -> String {
    format!("v=$(cat {path}); printf %s \"$v\" > {path}")
}

/// The last directory of the policy is the one that names it.
fn closed(name: &str, script: &str, above: &[&[&str]], named: &[&str]) {
    let bare = sh(None, None, script);
    assert!(bare.status.success(), "{name}: the control failed: {bare:?}");
    for roots in above {
        let boxed = sh(None, Some(&writing(roots)), script);
        let errors = String::from_utf8_lossy(&boxed.stderr);
        assert!(!boxed.status.success(), "{name}, {roots:?}: {boxed:?}");
        assert!(errors.to_lowercase().contains("permission denied"), "{name}, {roots:?}: {errors}");
    }
    if !named.is_empty() {
        let boxed = sh(None, Some(&writing(named)), script);
        assert!(boxed.status.success(), "{name}, {named:?}: {boxed:?}");
    }
}

#[test]
fn processes_outside_are_not_adjusted_through_procfs() {
    let victim = Victim::new();
    let process = format!("/proc/{}", victim.0.id());
    for (file, value) in
        [("oom_score_adj", "500"), ("coredump_filter", "0x33"), ("clear_refs", "1")]
    {
        let path = format!("{process}/{file}");
        let script = format!("echo {value} > {path}");
        closed(file, &script, &[&["/"], &["/**"], &["/", "/sys"]], &["/", "/proc"]);
        closed(file, &script, &[], &[&process]);
    }
    let thread = format!("{process}/task/{}/oom_score_adj", victim.0.id());
    // The files of a thread are there for its process alone, on kernels that have this one.
    if std::path::Path::new(&thread).exists() {
        closed("of a thread", &format!("echo 501 > {thread}"), &[&["/"]], &[&thread]);
    }
    // The launcher is one of them.
    let script = "echo 500 > /proc/$PPID/oom_score_adj; : to stay";
    closed("the launcher's", script, &[&["/"]], &[]);
    // Their memory stays closed to whatever rule: that is no question of files.
    let script = format!(": <> {process}/mem");
    closed("mem", &script, &[&["/"], &["/", "/proc"]], &[]);
}

/// Looks into each process that is named by an argument, or a child of its parent, and changes it. Prints `COMMAND CALL
/// ERROR`, with 0 for none.
const MEDDLE: &str = r#"
import os, resource, sys
def field(pid, name):
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name + ":"))
def others():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(field(pid, "PPid")) == os.getppid() and int(pid) != os.getpid():
                yield int(pid)
        except OSError:
            pass
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
pids = [int(word) for word in sys.argv[1:]] or [os.getppid(), *others()]
reader, writer = os.pipe()
own = os.fork()
if own == 0:
    # It stays as long as its parent.
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
for pid in [*pids, own]:
    name = "own" if pid == own else field(pid, "Name")
    calls = {
        "memory": lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
        "environment": lambda: open(f"/proc/{pid}/environ", "rb").read(),
        "addresses": lambda: open(f"/proc/{pid}/maps").read(),
        "descriptors": lambda: os.listdir(f"/proc/{pid}/fd"),
        "score": lambda: write(f"/proc/{pid}/oom_score_adj", "900"),
        "dumps": lambda: write(f"/proc/{pid}/coredump_filter", "1"),
        "limits": lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
        "processors": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
        "policy": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    }
    for call, do in calls.items():
        try:
            do()
            error = 0
        except OSError as caught:
            error = caught.errno
        print(name, call, error)
"#;

/// The launcher's helpers are its children, as the program is, and so is what its process started before it was the
/// launcher: none is of the run.
#[test]
fn no_process_of_the_launcher_is_looked_into_or_changed() {
    const PYTHON: &str = "/usr/bin/python3";
    if !support::have::have("meddling", &[PYTHON]) {
        return;
    }
    let calls = 10;
    let victim = Victim::new();
    let pid = victim.0.id().to_string();
    let bare = Command::new(PYTHON).args(["-c", MEDDLE, &pid]).output().expect("python3");
    let lines = String::from_utf8_lossy(&bare.stdout).into_owned();
    let done: Vec<&str> = lines.lines().filter(|line| line.starts_with("cat ")).collect();
    assert_eq!(done.len(), calls, "{bare:?}");
    assert!(done.iter().all(|line| line.ends_with(" 0")), "{done:?}");

    let bed = Bed::new(&["put {out}/secret s"]);
    let secret = bed.fill("{out}/secret");
    let files = json!({"allowWrite": ["/"], "denyRead": [secret]});
    for (network, helpers) in [
        (json!({}), 0),
        (json!({"allowLocalBinding": true}), 1),
        (json!({"allowedDomains": ["listed.example"]}), 2),
    ] {
        let policy = bed.policy(&json!({"filesystem": files, "network": network}));
        // It is there before, and its parent becomes the launcher.
        let script = "cat > /dev/null 2>&1 < \"$1\" & shift; exec \"$@\"";
        let fifo = bed.root().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        // It goes with this.
        let end = std::fs::File::options().read(true).write(true).open(&fifo).expect("the FIFO");
        let run = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([fifo.as_os_str(), LAUNCHER.as_ref(), "run".as_ref(), "--quiet".as_ref()])
            .args([ACCEPT, "-p"])
            .arg(&policy)
            .args(["--", PYTHON, "-c", MEDDLE])
            .output()
            .expect("sh");
        let lines = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{network}: {run:?}");
        // Its own child can be changed, by the same calls.
        let own: Vec<&str> = lines.lines().filter(|line| line.starts_with("own ")).collect();
        assert_eq!(own.len(), calls, "{network}: {lines}");
        assert!(own.iter().all(|line| line.ends_with(" 0")), "{network}: {lines}");
        // The launcher, what was there before, and the watcher; then what else is made for the run, which need not
        // have its name yet.
        let mut expected = 3;
        if support::have::have("helpers", &["userns"]) {
            expected += helpers;
        }
        let others: Vec<&str> = lines.lines().filter(|line| !line.starts_with("own ")).collect();
        assert_eq!(others.len(), expected * calls, "{network}: {lines}");
        assert!(others.iter().all(|line| !line.ends_with(" 0")), "{network}: {lines}");
        drop(end);
        std::fs::remove_file(&fifo).expect("the FIFO");
    }
}

#[test]
fn settings_of_the_host_are_not_changed() {
    if !support::have::have("settings of the host", &["root"]) {
        return;
    }
    let swappiness = "/proc/sys/vm/swappiness";
    closed("sysctl", &same(swappiness), &[&["/"], &["/**"], &["/", "/sys"]], &["/", swappiness]);
    closed("sysctl, below", &same(swappiness), &[], &["/proc/sys"]);
    if std::path::Path::new("/proc/sysrq-trigger").exists() {
        closed("sysrq", ": >> /proc/sysrq-trigger", &[&["/"], &["/*/*"]], &["/proc"]);
    }
    closed("by a glob", &same(swappiness), &[&["/*/sys/**"], &["/**/swappiness"]], &["/proc/*/vm"]);
    let pages = "/sys/kernel/mm/transparent_hugepage/defrag";
    if std::path::Path::new(pages).exists() {
        let choice =
            format!("sed 's/.*\\[\\(.*\\)\\].*/\\1/' {pages} > $PWD/v; cat $PWD/v > {pages}");
        closed("sysfs", &choice, &[&["/"], &["/**", "."]], &["/sys", "."]);
    }
    closed("mode in sysfs", "chmod 755 /sys/kernel", &[&["/"]], &["/sys"]);
    let made = "mkdir /dev/landstrip-test; rmdir /dev/landstrip-test";
    closed("names in /dev", made, &[&["/"]], &["/dev"]);
    let node = ["/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1"];
    // A disk that is mounted may be closed to everybody.
    let opens = |node: &&str| std::fs::OpenOptions::new().append(true).open(node).is_ok();
    let open: Vec<&str> = node.into_iter().filter(opens).collect();
    assert!(open.contains(&"/dev/kmsg"), "{open:?}");
    for node in open {
        closed(node, &format!(": >> {node}"), &[&["/"], &["/**"]], &["/", node]);
        closed(node, &format!(": >> {node}"), &[], &["/dev"]);
    }
}

/// The same file systems, mounted elsewhere, before the run and during it.
#[test]
fn controls_are_known_wherever_they_are_mounted() {
    if !support::have::have("mounts", &["root", "cmd:unshare"]) {
        return;
    }
    let before = "mkdir m; $mount; $run sh -ec \"$script\"";
    let value = "v=$(cat m/sys/vm/swappiness); echo $v > m/sys/vm/swappiness";
    for (mount, script) in [
        ("mount -t proc p m", value),
        ("mount --bind /proc m", value),
        ("mkdir -p m/sys/vm; mount --bind /proc/sys/vm m/sys/vm", value),
        (
            "mkdir -p m/sys/vm; : > m/sys/vm/swappiness; \
          mount --bind /proc/sys/vm/swappiness m/sys/vm/swappiness",
            value,
        ),
        ("mount -t sysfs s m", ": >> m/power/state"),
        ("mount -t tracefs t m", ": >> m/trace"),
        (
            "mount -t debugfs d m",
            "mkdir m/tracing/instances/landstrip; rmdir m/tracing/instances/landstrip",
        ),
        ("mount -t mqueue q m", ": > m/landstrip; rm m/landstrip"),
        ("mount -t binfmt_misc b m", ": >> m/register"),
        ("mount -t bpf b m", "mkdir m/landstrip; rmdir m/landstrip"),
        ("mount -t devtmpfs d m", ": >> m/kmsg"),
        ("mount -t cgroup2 c m", "mkdir m/landstrip-test; rmdir m/landstrip-test"),
    ] {
        let around = before.replace("$mount", mount);
        let bare = sh(Some(&around), None, script);
        if !bare.status.success() {
            let errors = String::from_utf8_lossy(&bare.stderr).into_owned();
            let missing = ["unknown filesystem", "already mounted", "cannot open", "tracing"];
            assert!(missing.iter().any(|why| errors.contains(why)), "{mount}: {bare:?}");
            eprintln!("skipped: {mount}: {errors}");
            continue;
        }
        for roots in [&["."][..], &["/"], &["/**"]] {
            let boxed = sh(Some(&around), Some(&writing(roots)), script);
            assert!(!boxed.status.success(), "{mount}, {roots:?}: {boxed:?}");
        }
        let named = sh(Some(&around), Some(&writing(&[".", "m"])), script);
        // A directory in which two are mounted is named by neither.
        let inner = mount.starts_with("mkdir") || mount.contains("debugfs");
        assert!(inner || named.status.success(), "{mount}, named: {named:?}");
    }
    // Where the broker acts, it sees what is mounted later.
    let during = "mkdir m; mkfifo go ready; \
        (read x < ready; mount -t proc p m; echo > go) & $run sh -ec \"$script\"";
    let script = format!("echo > ready; read x < go; {value}");
    let policy = json!({"filesystem": {"allowWrite": ["."], "denyWrite": ["**/*.denied"]}});
    let bare = sh(Some(during), None, &script);
    assert!(bare.status.success(), "the control failed: {bare:?}");
    let boxed = sh(Some(during), Some(&policy), &script);
    assert!(!boxed.status.success(), "mounted during the run: {boxed:?}");
    let create = script.replace(value, "mkdir m/landstrip || chmod 700 m/sys");
    let boxed = sh(Some(during), Some(&policy), &create);
    assert!(!boxed.status.success(), "mounted during the run: {boxed:?}");
}

/// Such a rule goes on to mean what it says of files, and of the run's own processes.
#[test]
fn a_rule_about_everything_opens_files() {
    let mine = "/var/tmp/landstrip-test-$$";
    let mut scripts = vec![
        format!("mkdir {mine}; echo x > {mine}/f; mv {mine}/f {mine}/g; rm -r {mine}"),
        "echo x > /dev/null; echo y > /dev/shm/landstrip-test-$$; rm /dev/shm/landstrip-test-$$".into(),
        "echo 300 > /proc/self/oom_score_adj; test $(cat /proc/self/oom_score_adj) -ge 0".into(),
        "echo 301 > /proc/$$/oom_score_adj; test $(cat /proc/$$/oom_score_adj) = 301".into(),
        "sleep 60 & echo 302 > /proc/$!/oom_score_adj; test $(cat /proc/$!/oom_score_adj) = 302; kill $!"
            .into(),
        "echo named > /proc/$$/comm; test $(cat /proc/$$/comm) = named".into(),
        "echo 0x33 > /proc/self/coredump_filter".into(),
    ];
    if root() {
        scripts.push(
            "mkdir /landstrip-test-$$; mv /landstrip-test-$$ /landstrip-test2-$$; \
            rmdir /landstrip-test2-$$"
                .into(),
        );
    }
    for script in scripts {
        for policy in [
            writing(&["/"]),
            json!({"filesystem": {"allowWrite": ["/"], "denyWrite": ["/**/*.denied"]}}),
            json!({"filesystem": {"allowWrite": ["/"], "denyRead": ["/**/*.denied"]}}),
        ] {
            let bare = sh(None, None, &script);
            assert!(bare.status.success(), "the control failed: {script}: {bare:?}");
            let boxed = sh(None, Some(&policy), &script);
            assert!(boxed.status.success(), "{script}: {policy}: {boxed:?}");
        }
    }
}
