//! On the real kernel, as root: cgroups with processes in them.

use super::*;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A container's cgroups, ended and removed when dropped.
struct Made(Cgroup, Vec<Child>);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = self.0.signal(libc::SIGKILL);
        for child in &mut self.1 {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.0.remove().expect("removing");
    }
}

fn is_root() -> bool {
    let root =
        rustix::process::geteuid().is_root() && place::hierarchies().is_ok_and(|h| !h.is_empty());
    if !root {
        eprintln!("not as root, or without cgroups: nothing is tested");
    }
    root
}

fn spec(document: &str) -> Spec {
    serde_json::from_str(document).expect("a document")
}

fn resources(text: &str) -> LinuxResources {
    serde_json::from_str(text).expect("resources")
}

fn make(name: &str, document: &str) -> Result<Made> {
    let id = format!("landstrip-unit-{name}-{}", std::process::id());
    let spec = spec(document);
    let request = Request { id: &id, spec: &spec, manager: Manager::Cgroupfs, rootless: false };
    let mut warn = |text| panic!("{text}");
    Cgroup::create(&request, &mut warn).map(|cgroup| Made(cgroup, Vec::new()))
}

const PLAIN: &str = r#"{"ociVersion":"1.2.0","linux":{}}"#;

impl Made {
    /// Runs a shell that does nothing before it is in.
    fn child(&mut self, program: &str) -> Pid {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("read line; {program}")])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let pid = Pid::from_child(&child);
        self.0.enter(pid).expect("entering");
        drop(child.stdin.take());
        self.1.push(child);
        pid
    }
}

fn state_of(pid: Pid) -> String {
    let path = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_container_is_made_entered_signalled_and_removed() {
    if !is_root() {
        return;
    }
    let mut made = make("life", PLAIN).expect("cgroups");
    let pid = made.child("sleep 100 & sleep 100");
    let own = state_of(pid);
    let expected = made.0.places.len();
    assert_eq!(own.lines().filter(|line| line.contains("landstrip-unit-life")).count(), expected);
    assert!(made.0.processes().expect("processes").contains(&pid));
    assert!(!made.0.frozen());
    made.0.freeze(true).expect("freezing");
    assert!(made.0.frozen());
    made.0.freeze(false).expect("thawing");
    assert!(!made.0.frozen());
    // Killing what is frozen works too.
    made.0.freeze(true).expect("freezing");
    made.0.signal(libc::SIGKILL).expect("signalling");
    let status = made.1[0].wait().expect("the shell");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    let dirs: Vec<PathBuf> = made.0.places.iter().map(|place| place.dir.clone()).collect();
    assert!(dirs.iter().all(|dir| dir.exists()));
    drop(made);
    assert!(!dirs.iter().any(|dir| dir.exists()));
}

#[test]
fn what_is_in_use_is_not_taken() {
    if !is_root() {
        return;
    }
    let path = format!("/landstrip-unit-used-{}", std::process::id());
    let document = format!(r#"{{"ociVersion":"1.2.0","linux":{{"cgroupsPath":"{path}/in"}}}}"#);
    let mut made = make("used", &document).expect("cgroups");
    let again = make("used", &document).expect("an empty one is taken over");
    std::mem::forget(again);
    made.child("exec sleep 100");
    let error = make("used", &document).err().expect("an error").to_string();
    assert!(error.contains("holds 1 processes already"), "{error}");
    assert!(made.0.places.iter().all(|place| place.dir.exists()));
    let above: Vec<PathBuf> =
        made.0.places.iter().map(|p| p.dir.parent().expect("one above").to_owned()).collect();
    drop(made);
    for dir in above {
        std::fs::remove_dir(dir).expect("the one above is left");
    }
}

#[test]
fn limits_are_written() {
    if !is_root() {
        return;
    }
    let made = make("limits", PLAIN).expect("cgroups");
    if made.0.places.iter().all(|place| place.unified) {
        eprintln!("no cgroups of version 1: nothing is tested");
        return;
    }
    let mut warn = |text| panic!("{text}");
    let mut apply = |text: &str| made.0.apply(&resources(text), &mut warn);
    apply(
        r#"{"memory":{"limit":67108864,"swap":134217728,"reservation":33554432,"swappiness":10},
            "cpu":{"shares":512,"quota":50000,"period":20000,"cpus":"0","mems":"0"},"pids":{"limit":7}}"#,
    )
    .expect("limits");
    let read = |controller: &str, name: &str| {
        let place = made.0.places.iter().find(|place| place.has(controller));
        file::read(&place.expect("a hierarchy of version 1").dir, name).expect("a file")
    };
    for (controller, name, value) in [
        ("memory", "memory.limit_in_bytes", "67108864"),
        ("memory", "memory.memsw.limit_in_bytes", "134217728"),
        ("memory", "memory.soft_limit_in_bytes", "33554432"),
        ("memory", "memory.swappiness", "10"),
        ("cpu", "cpu.shares", "512"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpu", "cpu.cfs_period_us", "20000"),
        ("cpuset", "cpuset.cpus", "0"),
        ("pids", "pids.max", "7"),
    ] {
        assert_eq!(read(controller, name).as_deref(), Some(value), "{name}");
    }
    // Both ways past the kernel's order, and back to no limit.
    apply(r#"{"memory":{"limit":268435456,"swap":268435456}}"#).expect("up");
    apply(r#"{"memory":{"limit":33554432,"swap":33554432}}"#).expect("down");
    apply(r#"{"memory":{"limit":-1},"pids":{"limit":-1}}"#).expect("unlimited");
    assert_eq!(read("pids", "pids.max").as_deref(), Some("max"));
    for (text, field) in [
        (r#"{"cpu":{"cpus":"4096"}}"#, "linux.resources.cpu.cpus: "),
        (r#"{"cpu":{"quota":1}}"#, "linux.resources.cpu.quota: "),
        (r#"{"rdma":{"mlx5_0":{"hcaHandles":3}}}"#, "linux.resources.rdma.mlx5_0: "),
        (r#"{"network":{"classID":3}}"#, "linux.resources.network.classID: "),
        (r#"{"unified":{"../x":"1"}}"#, "linux.resources.unified.../x: "),
        (
            r#"{"hugepageLimits":[{"pageSize":"3MB","limit":0}]}"#,
            "linux.resources.hugepageLimits: ",
        ),
    ] {
        let error = apply(text).expect_err(text).to_string();
        assert!(error.starts_with(field), "{error}");
    }
}

/// What a shell in the container may do with `/dev/zero` and `/dev/fuse`.
fn devices(made: &mut Made) -> (bool, bool) {
    let mut opens = |device: &str| {
        made.child(&format!("exec 3<{device}"));
        let mut child = made.1.pop().expect("the shell");
        child.wait().expect("the shell").success()
    };
    (opens("/dev/zero"), opens("/dev/fuse"))
}

#[test]
fn devices_are_held_by_the_kernel() {
    if !is_root() {
        return;
    }
    let mut made = make("devices", PLAIN).expect("cgroups");
    let opens = std::fs::File::open("/dev/fuse").is_ok();
    assert_eq!(devices(&mut made), (true, false), "the rules of every container");
    let apply = |made: &Made, text: &str| {
        made.0.apply(&resources(text), &mut |text| panic!("{text}")).expect(text);
    };
    apply(&made, r#"{"devices":[{"allow":true,"type":"c","major":10,"minor":229,"access":"r"}]}"#);
    assert_eq!(devices(&mut made), (true, opens), "one more");
    apply(&made, r#"{"devices":[{"allow":false,"access":"rwm"}]}"#);
    assert_eq!(devices(&mut made), (true, false), "one less");
    apply(&made, r#"{"devices":[{"allow":true,"access":"rwm"}]}"#);
    assert_eq!(devices(&mut made), (true, opens), "all");
    apply(&made, r#"{"devices":[{"allow":false,"access":"rwm"}]}"#);
    assert_eq!(devices(&mut made), (true, false), "and back");
}

#[test]
fn statistics_have_runcs_form() {
    if !is_root() {
        return;
    }
    let mut made = make("stats", PLAIN).expect("cgroups");
    made.child("while :; do :; done");
    // Until it has run for a while, by its own account.
    let usage = loop {
        let stats = made.0.stats().expect("statistics");
        let total = stats["cpu"]["usage"]["total"].as_u64().expect("a number");
        if total > 1_000_000 {
            break stats;
        }
        std::thread::yield_now();
    };
    for part in ["cpu", "cpuset", "memory", "pids", "blkio", "hugetlb", "intel_rdt"] {
        assert!(usage[part].is_object(), "{part}: {usage}");
    }
    if made.0.places.iter().any(|place| place.has("pids")) {
        assert_eq!(usage["pids"]["current"], 1);
        assert!(usage["memory"]["usage"]["limit"].as_u64() > Some(0), "{usage}");
        assert!(usage["memory"]["raw"]["rss"].is_u64(), "{usage}");
    }
    let places = std::mem::take(&mut made.0.places);
    assert!(made.0.stats().is_err());
    made.0.places = places;
}

#[test]
fn the_end_of_memory_is_told() {
    if !is_root() {
        return;
    }
    let mut made = make("oom", PLAIN).expect("cgroups");
    let Ok(mut watch) = made.0.watch_memory() else {
        eprintln!("no memory controller: nothing is tested");
        return;
    };
    let own = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    )
    .expect("a pidfd");
    let after = |time: u64| std::time::Instant::now() + std::time::Duration::from_millis(time);
    assert_eq!(watch.wait(after(1), &own).expect("waiting"), oom::Event::Late);
    let limits = resources(r#"{"memory":{"limit":8388608,"swap":8388608}}"#);
    made.0.apply(&limits, &mut |text| panic!("{text}")).expect("limits");
    made.child("x=12345678; while :; do x=$x$x; done");
    assert_eq!(watch.wait(after(30_000), &own).expect("waiting"), oom::Event::OutOfMemory);
    made.0.signal(libc::SIGKILL).expect("signalling");
    made.1[0].wait().expect("the shell");
    made.0.remove().expect("removing");
    while watch.wait(after(30_000), &own).expect("waiting") == oom::Event::OutOfMemory {}
    assert_eq!(watch.wait(after(1), &own).expect("waiting"), oom::Event::Gone);
}

#[test]
fn what_the_container_made_below_goes_too() {
    if !is_root() {
        return;
    }
    let mut made = make("nested", PLAIN).expect("cgroups");
    let pid = made.child("exec sleep 100");
    for place in &made.0.places {
        let below = place.dir.join("a/b");
        std::fs::create_dir_all(&below).expect("a cgroup below");
        if place.has("cpuset") {
            continue;
        }
        file::write(&below, "cgroup.procs", &pid.as_raw_nonzero().to_string()).expect("moving");
    }
    assert_eq!(made.0.processes().expect("processes"), [pid]);
    made.0.freeze(true).expect("freezing");
    made.0.freeze(false).expect("thawing");
}

#[test]
fn nothing_is_there_for_who_has_no_rights() {
    let spec = spec(r#"{"ociVersion":"1.2.0","linux":{"intelRdt":{"closID":"x"}}}"#);
    let request = Request { id: "x", spec: &spec, manager: Manager::Disabled, rootless: false };
    let error = Cgroup::create(&request, &mut |_| {}).err();
    if !std::path::Path::new("/sys/fs/resctrl/schemata").exists() {
        assert!(error.expect("an error").to_string().starts_with("linux.intelRdt: "));
    }
    let spec = self::spec(PLAIN);
    let request = Request { id: "x", spec: &spec, manager: Manager::Disabled, rootless: false };
    let none = Cgroup::create(&request, &mut |text| panic!("{text}")).expect("no cgroup");
    let mut told = Vec::new();
    none.apply(&resources(r#"{"pids":{"limit":5}}"#), &mut |text| told.push(text)).expect("told");
    assert!(told[0].starts_with("linux.resources.pids.limit is not applied"), "{told:?}");
    assert!(none.freeze(true).is_err() && none.signal(9).is_err() && none.stats().is_err());
    none.remove().expect("nothing to remove");
}
