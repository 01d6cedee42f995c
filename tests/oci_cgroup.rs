//! Containers' cgroups, in each layout that hosts have.
#![cfg(target_os = "linux")]

mod support;
#[path = "support/systemd.rs"]
mod systemd;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use support::have::{cgroup, have};

const BUSYBOX: &str = "/bin/busybox";

/// What the runtime finds below `/sys/fs/cgroup`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// Whatever the host has.
    Host,
    /// Version 1 alone.
    Separate,
    /// Version 2 alone: on a host with both it has the controllers that version 1 does not.
    Unified,
}

/// A bundle, and a directory of states.
struct Place {
    dir: tempfile::TempDir,
    spec: Value,
    layout: Layout,
    options: Vec<String>,
    address: String,
}

fn id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // None is the beginning of another one, see `left`.
    format!("test-landstrip-{}-{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Place {
    fn new(layout: Layout) -> Place {
        let dir = tempfile::Builder::new().prefix("cgroup").tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        let root = dir.path().join("rootfs");
        for name in ["bin", "proc", "dev", "sys"] {
            std::fs::create_dir_all(root.join(name)).expect("a directory");
        }
        std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("busybox");
        for name in ["sh", "cat", "sleep", "mknod", "echo", "head"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("a link");
        }
        let kinds = ["pid", "mount", "ipc", "uts", "network", "cgroup"];
        let capabilities = json!(["CAP_MKNOD"]);
        let spec = json!({
            "ociVersion": "1.3.0",
            "root": {"path": "rootfs"},
            "process": {
                "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"],
                "capabilities": {
                    "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
                },
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            ],
            "linux": {"namespaces": kinds.map(|kind| json!({"type": kind})), "resources": {}},
        });
        Place { dir, spec, layout, options: Vec::new(), address: String::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the runtime where the layout is shown, and gives its code and what it wrote.
    fn call(&self, args: &[&str]) -> (i32, String) {
        let show = match self.layout {
            Layout::Host => ":",
            Layout::Separate => {
                "if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi"
            }
            Layout::Unified => "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup",
        };
        let program = format!(r#"{show} || exit 99; exec "$@""#);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", "60", "unshare", "-m", "--propagation", "private"]);
        command.args(["sh", "-c", &program, "sh", support::LANDSTRIP, "--root"]);
        command.arg(self.path("state")).args(&self.options).args(args);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", &self.address);
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        // A file, since a container that is left running would hold a pipe open.
        let name = self.path(&format!("out-{}", id()));
        let out = std::fs::File::create(&name).expect("a file");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.stderr(out.try_clone().expect("a descriptor")).stdout(out);
        let code = command.status().expect("timeout(1)").code().unwrap_or(-1);
        (code, std::fs::read_to_string(name).expect("text"))
    }

    fn good(&self, args: &[&str]) -> String {
        let (code, text) = self.call(args);
        assert_eq!(code, 0, "{args:?} in {:?}: {text}", self.layout);
        text
    }

    fn bad(&self, args: &[&str], says: &str) {
        let (code, text) = self.call(args);
        assert!(code != 0 && text.contains(says), "{args:?} in {:?}: {code} {text}", self.layout);
    }

    fn write(&self, script: &str) {
        let mut spec = self.spec.clone();
        spec["process"]["args"] = json!(["sh", "-c", script]);
        std::fs::write(self.path("config.json"), spec.to_string()).expect("a document");
    }

    fn run(&self, script: &str) -> (i32, String) {
        self.write(script);
        self.call(&["run", "--bundle", ".", &id()])
    }

    fn waiting(&self, id: &str) -> Waiting<'_> {
        self.write("exec sleep 1000");
        self.good(&["run", "--detach", "--bundle", ".", id]);
        Waiting { place: self, id: id.to_owned() }
    }
}

/// A container that is taken away with this.
struct Waiting<'a> {
    place: &'a Place,
    id: String,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let _gone = self.place.call(&["delete", "--force", &self.id]);
    }
}

impl Waiting<'_> {
    fn state(&self) -> Value {
        serde_json::from_str(&self.place.good(&["state", &self.id])).expect("JSON")
    }

    fn status(&self) -> String {
        self.state()["status"].as_str().expect("a status").to_owned()
    }

    /// The cgroups of its first process, each as (controllers, path).
    fn cgroups(&self) -> Vec<(String, String)> {
        let pid = self.state()["pid"].clone();
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups");
        let line = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        };
        text.lines().filter_map(line).collect()
    }

    /// A file of a controller, in whichever version the host has it.
    fn file(&self, controller: &str, name: &str) -> String {
        let cgroups = self.cgroups();
        let of = |wanted: &str| {
            cgroups.iter().find(|(names, _)| names.split(',').any(|name| name == wanted))
        };
        let path = match of(controller) {
            Some((_, path)) => format!("/sys/fs/cgroup/{controller}{path}/{name}"),
            None => format!("/sys/fs/cgroup{}/{name}", of("").expect("the controller").1),
        };
        std::fs::read_to_string(&path).expect("a file").trim().to_owned()
    }
}

/// Every cgroup of the host whose name has this in it.
fn left(name: &str) -> Vec<PathBuf> {
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(name) {
                    found.push(entry.path());
                }
                todo.push(entry.path());
            }
        }
    }
    found
}

fn ready(what: &str) -> bool {
    have(what, &["root", BUSYBOX])
}

/// The layouts that this host can show.
fn layouts() -> Vec<Layout> {
    let mut layouts = vec![Layout::Host];
    let hybrid = Path::new("/sys/fs/cgroup/unified").is_dir();
    match hybrid {
        true => layouts.extend([Layout::Separate, Layout::Unified]),
        false => eprintln!("this host has one version of cgroups: only that one is tested"),
    }
    layouts
}

#[test]
fn a_container_has_its_cgroups_in_every_layout() {
    if !ready("layouts") {
        return;
    }
    for layout in layouts() {
        let mut place = Place::new(layout);
        let id = id();
        place.spec["linux"]["cgroupsPath"] = json!(format!("/{id}-parent/{id}"));
        let waiting = place.waiting(&id);
        let expected = format!("/{id}-parent/{id}");
        let inside: Vec<_> =
            waiting.cgroups().into_iter().filter(|(_, path)| *path == expected).collect();
        let unified = inside.iter().any(|(names, _)| names.is_empty());
        match layout {
            Layout::Separate => assert!(!unified && inside.len() > 1, "{inside:?}"),
            Layout::Unified => assert!(unified && inside.len() == 1, "{inside:?}"),
            Layout::Host => assert_eq!(inside.len(), waiting.cgroups().len(), "{inside:?}"),
        }
        assert_eq!(waiting.status(), "running");
        place.good(&["pause", &id]);
        assert_eq!(waiting.status(), "paused", "{layout:?}");
        place.good(&["resume", &id]);
        assert_eq!(waiting.status(), "running", "{layout:?}");
        let (code, text) = place.call(&["exec", &id, "cat", "/proc/self/cgroup"]);
        assert_eq!(code, 0, "{text}");
        let own = text.lines().filter(|line| line.ends_with(":/")).count();
        assert!(own >= inside.len(), "{layout:?}: {text}");
        // Another container cannot have the same.
        place.bad(&["run", "--detach", "--bundle", ".", &self::id()], "processes already");
        // One that is paused ends too.
        place.good(&["pause", &id]);
        drop(waiting);
        let left = left(&id);
        assert!(left.iter().all(|dir| dir.ends_with(format!("{id}-parent"))), "{left:?}");
        for dir in left {
            std::fs::remove_dir(dir).expect("the one above is empty");
        }
    }
}

#[test]
fn limits_hold_are_updated_and_refused() {
    if !ready("limits") || !cgroup("memory") || !cgroup("pids") {
        return;
    }
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        eprintln!("no cgroups of version 1 here: nothing is tested");
        return;
    }
    let mut place = Place::new(Layout::Host);
    place.spec["linux"]["resources"] = json!({
        "memory": {"limit": 67_108_864, "swap": 134_217_728, "reservation": 33_554_432},
        "cpu": {"shares": 512, "quota": 50_000, "period": 100_000, "cpus": "0"},
        "pids": {"limit": 20},
        "blockIO": {"throttleReadBpsDevice": []},
    });
    let id = id();
    let waiting = place.waiting(&id);
    assert_eq!(waiting.file("memory", "memory.limit_in_bytes"), "67108864");
    assert_eq!(waiting.file("memory", "memory.soft_limit_in_bytes"), "33554432");
    assert_eq!(waiting.file("cpu", "cpu.shares"), "512");
    assert_eq!(waiting.file("cpu", "cpu.cfs_quota_us"), "50000");
    assert_eq!(waiting.file("cpuset", "cpuset.cpus"), "0");
    assert_eq!(waiting.file("pids", "pids.max"), "20");

    let update = place.path("update.json");
    let text = json!({"memory": {"limit": 33_554_432, "swap": 33_554_432}, "pids": {"limit": -1}});
    std::fs::write(&update, text.to_string()).expect("a file");
    place.good(&["update", "--resources", "update.json", &id]);
    assert_eq!(waiting.file("memory", "memory.limit_in_bytes"), "33554432");
    assert_eq!(waiting.file("pids", "pids.max"), "max");
    assert_eq!(waiting.file("cpu", "cpu.shares"), "512", "what is not given stays");

    let stats: Value =
        serde_json::from_str(&place.good(&["events", "--stats", &id])).expect("JSON");
    assert_eq!(stats["data"]["memory"]["usage"]["limit"], 33_554_432, "{stats}");
    assert_eq!(stats["data"]["pids"]["current"], 1, "{stats}");
    drop(waiting);

    // What cannot be had is an error that names it, and nothing stays.
    for (resources, says) in [
        (json!({"rdma": {"mlx5_0": {"hcaHandles": 1}}}), "linux.resources.rdma.mlx5_0"),
        (json!({"cpu": {"cpus": "9999"}}), "linux.resources.cpu.cpus"),
        (json!({"unified": {"nonsense.max": "1"}}), "linux.resources.unified.nonsense.max"),
    ] {
        place.spec["linux"]["resources"] = resources;
        let (code, text) = place.run("true");
        assert!(code != 0 && text.contains(says), "{says}: {code} {text}");
    }
    assert_eq!(left(&id), Vec::<PathBuf>::new());
}

#[test]
fn the_kernel_holds_the_limit_of_processes_and_memory() {
    if !ready("holding") || !cgroup("memory") || !cgroup("pids") {
        return;
    }
    let mut place = Place::new(Layout::Host);
    let forks = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0 & done; wait; echo end";
    let (_, free) = place.run(forks);
    assert!(free.contains("end") && !free.contains("fork"), "{free}");
    place.spec["linux"]["resources"] = json!({"pids": {"limit": 4}});
    let (_, held) = place.run(forks);
    assert!(held.contains("fork"), "{held}");
    // The shell grows until it is ended.
    place.spec["linux"]["resources"] = json!({"memory": {"limit": 8_388_608, "swap": 8_388_608}});
    let (code, text) = place.run("x=12345678; while :; do x=$x$x; done");
    assert_eq!(code, 137, "{text}");
}

#[test]
fn devices_are_refused_in_every_layout() {
    if !ready("devices") || !have("devices", &["/dev/fuse"]) {
        return;
    }
    for layout in layouts() {
        let mut place = Place::new(layout);
        let read = "mknod /dev/log c 10 229 && exec 3</dev/log && echo opened";
        place.spec["linux"]["resources"]["devices"] = json!([{"allow": false, "access": "rwm"}]);
        let (code, text) = place.run(read);
        assert!(code != 0 && text.contains("not permitted"), "{layout:?}: {code} {text}");
        let (code, text) = place.run("mknod /dev/none c 1 3 && echo x >/dev/none && echo fine");
        assert_eq!((code, text.as_str()), (0, "fine\n"), "{layout:?}: the usual ones are allowed");
        place.spec["linux"]["resources"]["devices"] = json!([
            {"allow": false, "access": "rwm"},
            {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "r"},
        ]);
        let (code, text) = place.run(read);
        assert_eq!((code, text.as_str()), (0, "opened\n"), "{layout:?}: control");
        // No rules at all are the same as none that allow.
        place.spec["linux"].as_object_mut().expect("an object").remove("resources");
        let (code, text) = place.run(read);
        assert!(code != 0 && text.contains("not permitted"), "{layout:?}: {code} {text}");
    }
}

#[test]
fn rules_are_replaced_while_it_runs() {
    if !ready("devices, updated") || !have("devices, updated", &["/dev/fuse"]) {
        return;
    }
    for layout in layouts() {
        let mut place = Place::new(layout);
        place.spec["linux"]["resources"]["devices"] = json!([{"allow": false, "access": "rwm"}]);
        let id = id();
        let waiting = place.waiting(&id);
        let opens = |made: &str| {
            let script = format!("{made} exec 3</dev/log");
            place.call(&["exec", &waiting.id, "sh", "-c", &script]).0 == 0
        };
        let update = |devices: Value| {
            let text = json!({ "devices": devices }).to_string();
            std::fs::write(place.path("update.json"), text).expect("a file");
            place.good(&["update", "--resources", "update.json", &id]);
        };
        assert!(!opens("mknod /dev/log c 10 229;"), "{layout:?}");
        update(json!([{"allow": true, "type": "c", "major": 10, "minor": 229, "access": "r"}]));
        assert!(opens(""), "{layout:?}");
        update(json!([{"allow": false, "access": "rwm"}]));
        assert!(!opens(""), "{layout:?}");
    }
}

#[test]
fn without_a_manager_there_is_no_cgroup() {
    if !ready("disabled") {
        return;
    }
    let mut place = Place::new(Layout::Host);
    place.options = vec!["--cgroup-manager".to_owned(), "disabled".to_owned()];
    let id = id();
    let waiting = place.waiting(&id);
    assert!(waiting.cgroups().iter().all(|(_, path)| !path.contains("test-landstrip")));
    place.bad(&["pause", &id], "no cgroup");
    drop(waiting);
    // The name of a class of service that no machine has.
    place.spec["linux"]["intelRdt"] = json!({"closID": "test-landstrip"});
    let (code, text) = place.run("true");
    assert!(code != 0 && text.contains("linux.intelRdt"), "{code} {text}");
}

#[test]
fn systemd_is_asked_for_a_scope() {
    if !ready("systemd") || !have("systemd", &["cmd:dbus-daemon"]) {
        return;
    }
    for layout in layouts() {
        let mut place = Place::new(layout);
        let systemd = systemd::Systemd::start(place.dir.path());
        place.address.clone_from(&systemd.address);
        place.options = vec!["--systemd-cgroup".to_owned()];
        let id = id();
        let slice = format!("{}.slice", id.replace('-', "_"));
        place.spec["linux"]["cgroupsPath"] = json!(format!("{slice}:pod:{id}"));
        place.spec["annotations"] = json!({
            "org.systemd.property.TimeoutStopSec": "5",
            "org.systemd.property.CollectMode": "'inactive-or-failed'",
        });
        if layout != Layout::Unified && cgroup("pids") {
            place.spec["linux"]["resources"] = json!({"pids": {"limit": 33}});
        }
        let waiting = place.waiting(&id);
        let pid = waiting.state()["pid"].clone();
        let calls = systemd.calls();
        let start =
            calls.iter().find(|call| call.starts_with("StartTransientUnit")).expect("a start");
        for part in [
            format!("StartTransientUnit pod-{id}.scope replace ["),
            format!("Slice={slice}"),
            format!("PIDs=[{pid}]"),
            "Delegate=true".to_owned(),
            "TimeoutStopUSec=5000000t".to_owned(),
            "CollectMode=inactive-or-failed".to_owned(),
        ] {
            assert!(start.contains(&part), "{layout:?}: {part}: {start}");
        }
        let expected = format!("/{slice}/pod-{id}.scope");
        let cgroups = waiting.cgroups();
        let inside = cgroups.iter().filter(|(_, path)| *path == expected).count();
        assert!(inside >= 1 && (layout != Layout::Host || inside == cgroups.len()), "{cgroups:?}");
        if layout != Layout::Unified && cgroup("pids") {
            assert!(start.contains("TasksMax=33t"), "{start}");
            assert_eq!(waiting.file("pids", "pids.max"), "33");
            place.good(&["update", "--pids-limit", "44", &id]);
            let calls = systemd.calls();
            let set = format!("SetUnitProperties pod-{id}.scope true [TasksMax=44t]");
            assert!(calls.contains(&set), "{calls:?}");
            assert_eq!(waiting.file("pids", "pids.max"), "44");
        }
        place.good(&["delete", "--force", &id]);
        let calls = systemd.calls();
        assert!(calls.contains(&format!("StopUnit pod-{id}.scope replace")), "{calls:?}");
        assert_eq!(left(&id), Vec::<PathBuf>::new());
        drop(waiting);

        // A name that failed before is made free; a job that fails is an error.
        place.spec["linux"]["cgroupsPath"] = json!(format!("{slice}:taken:{id}"));
        place.write("echo ran");
        assert_eq!(place.good(&["run", "--bundle", ".", &id]), "ran\n");
        assert!(systemd.calls().iter().any(|call| call.starts_with("ResetFailedUnit taken-")));
        place.spec["linux"]["cgroupsPath"] = json!(format!("{slice}:failing:{id}"));
        place.write("echo ran");
        place.bad(&["run", "--bundle", ".", &id], "the job ended with `failed`");
        place.spec["linux"]["cgroupsPath"] = json!("/no/unit");
        place.write("echo ran");
        place.bad(&["run", "--bundle", ".", &id], "expected slice:prefix:name");
        // systemd would remove its slice.
        for dir in left(&slice) {
            std::fs::remove_dir(dir).expect("the slice is empty");
        }
    }
}

/// An annotation may be an image's: it says nothing that the document decides. And what systemd is not told of, the
/// limits of a policy among it, it takes back when it is reloaded.
#[test]
fn systemd_knows_every_limit() {
    let needed = ["cmd:dbus-daemon", "cgroup:pids"];
    if !ready("systemd knows every limit") || !have("systemd knows every limit", &needed) {
        return;
    }
    let mut place = Place::new(Layout::Host);
    let systemd = systemd::Systemd::start(place.dir.path());
    place.address.clone_from(&systemd.address);
    place.options = vec!["--systemd-cgroup".to_owned()];
    let id = id();
    let slice = format!("{}.slice", id.replace('-', "_"));
    place.spec["linux"]["cgroupsPath"] = json!(format!("{slice}:pod:{id}"));
    place.spec["linux"]["resources"] = json!({"pids": {"limit": 33}});
    for (name, text) in
        [("TasksMax", "uint64 9999"), ("Slice", "'other.slice'"), ("PIDs", "[uint32 1]")]
    {
        place.spec["annotations"] = json!({format!("org.systemd.property.{name}"): text});
        place.write("echo ran");
        place.bad(&["run", "--bundle", ".", &id], "the document decides this");
    }
    place.spec["linux"]["resources"] = json!({});
    place.spec["annotations"] = json!({"org.systemd.property.TasksMax": "uint64 9999"});
    let waiting = place.waiting(&id);
    assert!(systemd.calls().iter().any(|call| call.contains("TasksMax=9999t")));
    drop(waiting);
    // The limit of a policy, and what the launcher takes.
    place.spec["annotations"]["dev.landstrip.policy"] =
        json!({"limits": {"pids": 4}}).to_string().into();
    let waiting = place.waiting(&id);
    let calls = systemd.calls();
    let set = format!("SetUnitProperties pod-{id}.scope true [TasksMax=20t]");
    assert!(calls.contains(&set), "{calls:?}");
    assert_eq!(waiting.file("pids", "pids.max"), "20");
    drop(waiting);
    for dir in left(&slice) {
        std::fs::remove_dir(dir).expect("the slice is empty");
    }
}

#[test]
fn without_systemd_there_is_an_error() {
    if !ready("no systemd") {
        return;
    }
    let mut place = Place::new(Layout::Host);
    place.address = format!("unix:path={}", place.path("nowhere").display());
    place.options = vec!["--systemd-cgroup".to_owned()];
    let (code, text) = place.run("true");
    assert!(code != 0 && text.contains("systemd's bus at unix:path="), "{code} {text}");
}

#[test]
fn an_ordinary_user_has_what_was_delegated() {
    let needs = ["root", BUSYBOX, "userns", "cmd:setpriv"];
    if !have("rootless", &needs) || !layouts().contains(&Layout::Unified) {
        return;
    }
    let user = 65_534;
    let allowed = Command::new("setpriv")
        .args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"])
        .args(["unshare", "-Ur", "true"])
        .stderr(Stdio::null())
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: rootless: an ordinary user may make no user namespace");
        return;
    }
    let mut place = Place::new(Layout::Unified);
    let id = id();
    // Where that user can reach it.
    std::fs::copy(support::LANDSTRIP, place.path("landstrip")).expect("the program");
    let kinds = ["pid", "mount", "ipc", "uts", "network", "user"].map(|kind| json!({"type": kind}));
    place.spec["linux"]["namespaces"] = json!(kinds);
    for map in ["uidMappings", "gidMappings"] {
        place.spec["linux"][map] = json!([{"containerID": 0, "hostID": user, "size": 1}]);
    }
    place.spec["linux"]["resources"]["devices"] = json!([{"allow": false, "access": "rwm"}]);
    place.write("cat /proc/self/cgroup");
    for path in ["", "config.json", "rootfs"] {
        std::os::unix::fs::chown(place.path(path), Some(user), Some(user)).expect("chown");
    }
    let top = format!("/sys/fs/cgroup/{id}-top");
    let run = |delegated: bool, resources: &str| {
        let dir = place.dir.path().display();
        let owner = if delegated { user } else { 0 };
        let script = format!(
            r#"umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 99
            mkdir -p {top}/own && chown -R {owner} {top} && echo $$ >{top}/own/cgroup.procs
            cd {dir}; timeout 30 setpriv --reuid {user} --regid {user} --clear-groups \
                env XDG_RUNTIME_DIR={dir} ./landstrip --root {dir}/user run --bundle . {id} 2>&1
            echo code $?; echo $$ >/sys/fs/cgroup/cgroup.procs; rmdir {top}/own {top}"#
        );
        let mut spec: Value = serde_json::from_str(
            &std::fs::read_to_string(place.path("config.json")).expect("a document"),
        )
        .expect("JSON");
        spec["linux"]["resources"]["unified"] = serde_json::from_str(resources).expect("JSON");
        std::fs::write(place.path("config.json"), spec.to_string()).expect("a document");
        let output = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .output()
            .expect("unshare(1)");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Beside the cgroup that it was started in, which holds processes and could hand nothing down.
    let had = run(true, r#"{"cgroup.max.depth": "3"}"#);
    assert!(had.contains(&format!("0::/{id}-top/{id}\n")) && had.ends_with("code 0\n"), "{had}");
    // What is not delegated is an error then.
    let missing = run(true, r#"{"nonsense.max": "3"}"#);
    assert!(missing.contains("linux.resources.unified.nonsense.max") && missing.contains("code 1"));
    // Without any it stays where it is, and says so.
    let none = run(false, r#"{"cgroup.max.depth": "3"}"#);
    assert!(none.contains(&format!("0::/{id}-top/own\n")) && none.ends_with("code 0\n"), "{none}");
    assert!(none.contains("no cgroup for the container") && none.contains("not applied"), "{none}");
    assert_eq!(left(&id), Vec::<PathBuf>::new());
}

#[test]
fn the_users_systemd_says_where_its_scopes_are() {
    if !ready("systemd's user") || !have("systemd's user", &["cmd:dbus-daemon"]) {
        return;
    }
    let mut place = Place::new(Layout::Host);
    let systemd = systemd::Systemd::start(place.dir.path());
    place.address.clone_from(&systemd.address);
    place.options = ["--systemd-cgroup", "--rootless", "true"].map(str::to_owned).to_vec();
    let id = id();
    let waiting = place.waiting(&id);
    let expected = format!("/test-landstrip-user/user.slice/landstrip-{id}.scope");
    let cgroups = waiting.cgroups();
    assert!(cgroups.iter().all(|(_, path)| *path == expected), "{cgroups:?}");
    let calls = systemd.calls();
    let asked = "Get org.freedesktop.systemd1.Manager ControlGroup";
    assert!(calls.iter().any(|call| call == asked), "{calls:?}");
    drop(waiting);
    // What systemd has made above.
    for dir in left("user.slice").iter().chain(&left("test-landstrip-user")) {
        if dir.to_string_lossy().contains("test-landstrip-user") {
            std::fs::remove_dir(dir).expect("it is empty");
        }
    }
}

#[test]
fn what_joins_a_container_that_has_cgroups_of_its_own_joins_one_of_them() {
    if !ready("nested") || !layouts().contains(&Layout::Unified) {
        return;
    }
    let controllers = std::fs::read_to_string("/sys/fs/cgroup/unified/cgroup.controllers");
    let controllers = controllers.unwrap_or_default();
    let Some(controller) = controllers.split_ascii_whitespace().next() else {
        eprintln!("skipped: nested: version 2 has no controller here");
        return;
    };
    let mut place = Place::new(Layout::Unified);
    let mounts = place.spec["mounts"].as_array_mut().expect("mounts");
    mounts.push(json!({
        "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["rw"],
    }));
    std::os::unix::fs::symlink("busybox", place.path("rootfs/bin/mkdir")).expect("a link");
    let id = id();
    // It tells of its end by a file, which is waited for below.
    place.write(&format!(
        "cd /sys/fs/cgroup && mkdir own && echo 1 >own/cgroup.procs &&
         echo +{controller} >cgroup.subtree_control && exec sleep 1000"
    ));
    place.good(&["run", "--detach", "--bundle", ".", &id]);
    let waiting = Waiting { place: &place, id: id.clone() };
    let pid = waiting.state()["pid"].clone();
    let moved = || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "sleep"
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !moved() && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(moved(), "the container could not hand its controller down");
    let (code, text) = place.call(&["exec", &id, "cat", "/proc/self/cgroup"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("0::/own\n"), "{text}");
    drop(waiting);
    assert_eq!(left(&id), Vec::<PathBuf>::new());
}

#[test]
fn events_tell_when_memory_runs_out() {
    use std::io::{BufRead, BufReader};
    if !ready("events") || !cgroup("memory") {
        return;
    }
    let mut place = Place::new(Layout::Host);
    place.spec["linux"]["resources"] = json!({"memory": {"limit": 16_777_216, "swap": 16_777_216}});
    let id = id();
    let waiting = place.waiting(&id);
    let mut events = Command::new("timeout")
        .args(["30", support::LANDSTRIP, "--root"])
        .arg(place.path("state"))
        .args(["events", "--interval", "20s", &id])
        .stdout(Stdio::piped())
        .spawn()
        .expect("events");
    let mut lines = BufReader::new(events.stdout.take().expect("its output")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(next()["type"], "stats");
    let hog = ["exec", &id, "sh", "-c", "x=12345678; while :; do x=$x$x; done"];
    assert_eq!(place.call(&hog).0, 137);
    let told = next();
    assert_eq!((&told["type"], &told["id"]), (&json!("oom"), &json!(id)));
    drop(waiting);
    assert!(events.wait().expect("events").success());
}
