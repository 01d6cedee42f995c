//! What a container sees of files, against the document.
#![cfg(target_os = "linux")]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::{Value, json};
use support::container::{Bundle, Ended};
use support::have::have;

const MOUNTS: &str = "cat /proc/self/mountinfo";

/// The fields of what is mounted at `place`, as the container sees it, proc_pid_mountinfo(5).
fn mounted(ended: &Ended, place: &str) -> Vec<String> {
    let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // The probe shows line ends as text.
    let text = ended.stdout.replace("\\n", "\n");
    let mut lines = text.lines().map(|line| fields(line.trim_start_matches("ok ")));
    lines
        .find(|fields| fields.get(4).is_some_and(|p| p == place))
        .unwrap_or_else(|| panic!("nothing at {place}: {ended:?}"))
}

/// The mount's own flags, sorted.
fn flags(ended: &Ended, place: &str) -> String {
    let mut flags: Vec<_> = mounted(ended, place)[5].split(',').map(str::to_owned).collect();
    flags.sort();
    flags.join(",")
}

fn refused(bundle: &Bundle, words: &[&str]) {
    let ended = bundle.probe(&["getcwd"]);
    assert_ne!(ended.code, Some(0), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

#[test]
fn flags_of_a_bind_mount() {
    if !have("flags of a bind mount", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    for (options, expected) in [
        (&["bind"][..], "relatime,rw"),
        (&["bind", "ro", "nosuid", "nodev", "noexec"], "nodev,noexec,nosuid,relatime,ro"),
        (&["rbind", "rro", "rnosuid"], "nosuid,relatime,ro"),
        (&["bind", "ro", "rw", "noatime"], "noatime,rw"),
        (&["bind", "strictatime", "nodiratime", "nosymfollow"], "nodiratime,nosymfollow,rw"),
    ] {
        bundle.spec["mounts"].as_array_mut().expect("mounts").truncate(3);
        bundle.bind("outside", "/a/b/dir", options).bind("outside/file", "/a/file", options);
        let ended = bundle.probe(&["cat /a/b/dir/file", "cat /a/file", MOUNTS]);
        assert!(ended.stdout.starts_with("ok text\nok text\n"), "{ended:?}");
        assert_eq!(flags(&ended, "/a/b/dir"), expected, "{options:?}");
        assert_eq!(flags(&ended, "/a/file"), expected, "{options:?}");
    }
}

#[test]
fn read_only_binds_are_not_written() {
    if !have("read-only binds", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.bind("outside", "/no", &["bind", "ro"]).bind("outside", "/yes", &["bind"]);
    let ended = bundle.probe(&["put /no/a x", "put /yes/b x"]);
    assert_eq!(ended.stdout, "EROFS\nok\n", "{ended:?}");
    assert_eq!(bundle.outside(), [bundle.path("outside/b")]);
}

#[test]
fn what_is_below_a_source_comes_with_rbind() {
    if !have("rbind", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::create_dir(bundle.path("outside/below")).expect("a directory");
    let below = bundle.path("outside/below");
    bundle.before = Some(format!("mount -t tmpfs -o mode=700 t {}", below.display()));
    bundle.bind("outside", "/one", &["bind"]).bind("outside", "/all", &["rbind", "ro"]);
    bundle.bind("outside", "/fixed", &["rbind", "rro"]);
    let ended = bundle.probe(&[
        "put /one/below/x x",
        "put /all/below/x x",
        "put /all/x x",
        "put /fixed/below/x x",
        "stat /all/below",
    ]);
    // `ro` is of the mount alone, `rro` of all below.
    assert!(ended.stdout.starts_with("ok\nok\nEROFS\nEROFS\nok "), "{ended:?}");
    assert!(ended.last().contains("700"), "{ended:?}");
    assert!(bundle.path("outside/below/x").exists());
}

#[test]
fn sources_are_the_hosts_and_start_at_the_bundle() {
    if !have("sources", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    bundle.mount(json!({ "destination": "/a", "source": "outside/file", "type": "bind" }));
    assert_eq!(bundle.probe(&["cat /a"]).last(), "ok text");
    let mut bundle = Bundle::new();
    bundle.bind("missing", "/there", &["bind"]);
    refused(&bundle, &["\"/there\"", "missing\"", "No such file or directory"]);
    let mut bundle = Bundle::new();
    bundle.bind("outside", "/there", &["bind", "nosiud"]);
    refused(&bundle, &["\"/there\"", "nosiud"]);
}

#[test]
fn links_as_sources_and_targets() {
    if !have("links as sources", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    std::os::unix::fs::symlink("file", bundle.path("outside/link")).expect("a link");
    for name in ["target", "other"] {
        std::os::unix::fs::symlink("nowhere", bundle.inside(name)).expect("a link");
    }
    bundle.bind("outside/link", "/follow", &["bind"]);
    bundle.bind("outside/link", "/copy/link", &["rbind", "copy-symlink"]);
    bundle.bind("outside/file", "/copy/file", &["bind", "copy-symlink"]);
    bundle.bind("outside/link", "/target", &["bind", "dest-nofollow"]);
    bundle.bind("outside/link", "/other", &["bind", "dest-nofollow", "src-nofollow"]);
    let ended = bundle.probe(&[
        "cat /follow",
        "to /copy/link",
        "cat /copy/file",
        "cat /target",
        "to /other",
        "stat /nowhere",
    ]);
    assert_eq!(ended.stdout, "ok text\nok file\nok text\nok text\nok file\nENOENT\n", "{ended:?}");
}

#[test]
fn propagation_of_mounts() {
    if !have("propagation of mounts", &["root"]) {
        return;
    }
    for (options, rootfs, expected) in [
        (&["rbind"][..], None, "master:"),
        (&["rbind"], Some("private"), "-"),
        (&["rbind", "rprivate"], None, "-"),
        (&["rbind", "slave"], None, "master:"),
        (&["rbind", "shared"], None, "shared:"),
        (&["rbind", "unbindable"], None, "unbindable"),
    ] {
        let mut bundle = Bundle::new();
        let place = bundle.path("outside");
        bundle.before = Some(format!("mount -t tmpfs --make-shared t {}", place.display()));
        if let Some(kind) = rootfs {
            bundle.spec["linux"]["rootfsPropagation"] = json!(kind);
        }
        bundle.bind("outside", "/a", options);
        let ended = bundle.probe(&[MOUNTS]);
        assert!(mounted(&ended, "/a")[6].starts_with(expected), "{options:?}: {ended:?}");
    }
}

#[test]
fn propagation_of_the_root() {
    if !have("propagation of the root", &["root"]) {
        return;
    }
    for (kind, expected) in [("private", "-"), ("shared", "shared:"), ("unbindable", "unbindable")]
    {
        let mut bundle = Bundle::new();
        bundle.spec["linux"]["rootfsPropagation"] = json!(kind);
        assert!(mounted(&bundle.probe(&[MOUNTS]), "/")[6].starts_with(expected), "{kind}");
    }
    let mut bundle = Bundle::new();
    bundle.spec["linux"]["rootfsPropagation"] = json!("private2");
    refused(&bundle, &["rootfsPropagation", "private2"]);
}

#[test]
fn temporary_file_systems() {
    if !have("temporary file systems", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::create_dir(bundle.inside("there")).expect("a directory");
    let mode = std::fs::Permissions::from_mode(0o751);
    std::fs::set_permissions(bundle.inside("there"), mode).expect("a mode");
    let tmpfs = |place: &str, options: Value| json!({ "destination": place, "type": "tmpfs", "source": "tmpfs", "options": options });
    bundle.mount(tmpfs("/there", json!(["ro"])));
    bundle.mount(tmpfs("/there/below", json!(["mode=700", "noexec"])));
    bundle.mount(tmpfs("/new", json!(["size=1m"])));
    let ended = bundle.probe(&[
        "stat /there",
        "stat /there/below",
        "stat /new",
        "put /there/x x",
        "put /new/x x",
        MOUNTS,
    ]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    // The mode of a directory that is there is kept; /there is read-only and has a mount in it.
    for (line, mode) in [(0, "751"), (1, "700"), (2, "1777")] {
        assert!(lines[line].contains(mode), "{ended:?}");
    }
    assert_eq!(&lines[3..5], ["EROFS", "ok"], "{ended:?}");
    assert!(mounted(&ended, "/new").last().expect("data").contains("size=1024k"));

    for (options, words) in
        [(json!(["size=much"]), "Bad value for 'size'"), (json!(["sizes=1"]), "sizes")]
    {
        let mut bundle = Bundle::new();
        bundle.mount(tmpfs("/new", options));
        refused(&bundle, &["\"/new\"", words]);
    }
}

#[test]
fn a_file_system_begins_with_what_it_covers() {
    if !have("tmpcopyup", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::create_dir_all(bundle.inside("a/b")).expect("directories");
    std::fs::write(bundle.inside("a/b/file"), "text").expect("a file");
    std::os::unix::fs::symlink("/a/b/file", bundle.inside("a/link")).expect("a link");
    std::os::unix::fs::chown(bundle.inside("a/b/file"), Some(5), Some(6)).expect("an owner");
    let mode = std::fs::Permissions::from_mode(0o4710);
    std::fs::set_permissions(bundle.inside("a/b/file"), mode).expect("a mode");
    bundle.mount(json!({ "destination": "/a", "type": "tmpfs", "options": ["tmpcopyup"] }));
    let ended =
        bundle.probe(&["stat /a/b/file", "cat /a/link", "put /a/b/file new", "cat /a/b/file"]);
    assert!(ended.stdout.contains("4710 5 6 "), "{ended:?}");
    assert!(ended.stdout.ends_with("ok text\nok\nok new\n"), "{ended:?}");
    assert_eq!(std::fs::read(bundle.inside("a/b/file")).expect("a file"), b"text");
}

#[test]
fn devices_and_links() {
    if !have("devices", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.spec["linux"]["devices"] = json!([
        { "path": "/dev/deep/er", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 7, "gid": 8 },
        { "path": "/dev/pipe", "type": "p" },
        { "path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o600 },
    ]);
    let ended = bundle.probe(&[
        "stat /dev/deep/er",
        "stat /dev/pipe",
        "stat /dev/null",
        "stat /dev/zero",
        "to /dev/fd",
        "to /dev/stdout",
        "to /dev/ptmx",
        "ls /dev",
    ]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    for (line, mode) in [(0, "640 7 8"), (1, "666 0 0"), (2, "600 0 0"), (3, "666 0 0")] {
        assert!(lines[line].contains(mode), "{ended:?}");
    }
    assert_eq!(&lines[4..7], ["ok /proc/self/fd", "ok /proc/self/fd/1", "ok pts/ptmx"]);
    for name in ["full", "random", "tty", "urandom"] {
        assert!(lines[7].contains(name), "{ended:?}");
    }
    let mut bundle = Bundle::new();
    bundle.spec["linux"]["devices"] = json!([{ "path": "/dev/x", "type": "a" }]);
    refused(&bundle, &["/dev/x"]);
}

#[test]
fn devices_in_a_user_namespace() {
    if !have("devices in a user namespace", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.in_user_namespace(100_000, 65_536);
    bundle.spec["linux"]["devices"] = json!([
        { "path": "/dev/own", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 7, "gid": 8 },
        { "path": "/dev/pipe", "type": "p" },
    ]);
    bundle.spec["linux"]["maskedPaths"] = json!(["/proc/keys"]);
    let ended = bundle.probe(&[
        "stat /dev/null",
        "stat /dev/own",
        "stat /dev/pipe",
        "put /dev/null x",
        "cat /proc/keys",
        MOUNTS,
    ]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    // Made here, with the owner that was asked for; or, on older kernels, the host's.
    if lines[0].contains(" 0 0 ") {
        assert!(lines[1].contains("20640 7 8 "), "{ended:?}");
        assert!(lines[2].contains("10666 0 0 "), "{ended:?}");
    }
    assert_eq!(&lines[3..5], ["ok", "ok"], "{ended:?}");
    assert_eq!(flags(&ended, "/dev/null"), "noexec,nosuid,relatime,rw");
}

#[test]
fn a_user_namespace_need_not_reach_the_sources() {
    if !have("sources of a user namespace", &["root"]) {
        return;
    }
    // The bundle itself is private to root.
    let mut bundle = Bundle::new();
    bundle.in_user_namespace(100_000, 65_536);
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 10 }]);
    bundle.bind("outside", "/plain", &["rbind", "ro"]);
    bundle.mount(json!({
        "destination": "/mapped", "source": bundle.path("outside"), "options": ["bind"],
        "uidMappings": map, "gidMappings": map,
    }));
    let ended = bundle.probe(&[
        "cat /plain/file",
        "stat /plain/file",
        "put /plain/x x",
        "stat /mapped/file",
        "put /mapped/new x",
    ]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!((lines[0], lines[2], lines[4]), ("ok text", "EROFS", "ok"), "{ended:?}");
    assert!(lines[1].contains(" 65534 65534 ") && lines[3].contains(" 0 0 "), "{ended:?}");
    // What the container's root made belongs to the host's.
    let made = std::fs::metadata(bundle.path("outside/new")).expect("a file");
    assert_eq!((made.uid(), made.gid()), (0, 0));
}

/// Without privileges nothing of the host is opened before there is a user namespace.
#[test]
fn mounts_of_an_ordinary_user() {
    if !have("mounts of an ordinary user", &["root", "userns", "cmd:setpriv"]) {
        return;
    }
    let mut bundle = Bundle::new();
    if !bundle.owned_by(4242) {
        // Written directly, as `have` does.
        let reason = "skipped: mounts of an ordinary user: cannot reach the program\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), reason.as_bytes());
        return;
    }
    bundle.in_user_namespace(4242, 1);
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    bundle.bind("outside", "/a", &["bind", "ro", "nodev"]);
    bundle.mount(json!({ "destination": "/sys", "type": "sysfs", "options": ["ro"] }));
    bundle.spec["linux"]["maskedPaths"] = json!(["/proc/keys", "/proc/acpi"]);
    bundle.spec["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
    let ended = bundle.probe(&[
        "cat /a/file",
        "put /a/x x",
        "put /dev/null x",
        "cat /proc/keys",
        "cat /proc/sys/net/ipv4/ip_forward",
        MOUNTS,
    ]);
    assert!(ended.stdout.starts_with("ok text\nEROFS\nok\nok\nok 1"), "{ended:?}");
    assert_eq!(flags(&ended, "/a"), "nodev,relatime,ro");
    assert_eq!(flags(&ended, "/dev/null"), "noexec,nosuid,relatime,rw");
    bundle.bind("missing", "/b", &["bind"]);
    refused(&bundle, &["\"/b\"", "No such file or directory"]);
}

#[test]
fn a_read_only_dev() {
    if !have("a read-only /dev", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.spec["mounts"][1]["options"].as_array_mut().expect("options").push(json!("ro"));
    bundle.mount(json!({ "destination": "/dev/shm", "type": "tmpfs", "options": ["mode=1777"] }));
    let ended = bundle.probe(&["put /dev/null x", "put /dev/x x", "put /dev/shm/x x"]);
    assert_eq!(ended.stdout, "ok\nEROFS\nok\n", "{ended:?}");
}

#[test]
fn a_bound_dev_is_the_callers() {
    if !have("a bound /dev", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.spec["mounts"][1] = json!({
        "destination": "/dev", "source": bundle.path("outside"), "options": ["bind"],
    });
    assert_eq!(bundle.probe(&["ls /dev"]).last(), "ok");
    assert!(bundle.outside().is_empty());
}

#[test]
fn masked_and_read_only_paths() {
    if !have("masked and read-only paths", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::create_dir_all(bundle.inside("dir/below")).expect("directories");
    std::fs::write(bundle.inside("file"), "text").expect("a file");
    std::fs::write(bundle.inside("dir/file"), "text").expect("a file");
    let open = bundle.probe(&["cat /file", "ls /dir", "put /dir/new x"]);
    assert_eq!(open.stdout.lines().next(), Some("ok text"), "{open:?}");
    assert_eq!(open.last(), "ok");
    std::fs::remove_file(bundle.inside("dir/new")).expect("what was put there");

    bundle.spec["linux"]["readonlyPaths"] = json!(["/dir", "/missing", "/proc/sys"]);
    let fixed = bundle.probe(&[
        "put /dir/new x",
        "cat /dir/file",
        "put /proc/sys/kernel/hostname x",
        "put /new x",
    ]);
    assert_eq!(fixed.stdout, "EROFS\nok text\nEROFS\nok\n", "{fixed:?}");

    bundle.spec["linux"]["maskedPaths"] = json!(["/dir", "/file", "/missing", "/file/missing"]);
    let masked = bundle.probe(&["cat /file", "ls /dir", "put /dir/new x", "put /file x"]);
    assert_eq!(masked.stdout, "ok\nok\nEROFS\nok\n", "{masked:?}");
    assert_eq!(std::fs::read(bundle.inside("file")).expect("a file"), b"text");
}

#[test]
fn hidden_paths_are_absolute() {
    if !have("hidden paths", &["root"]) {
        return;
    }
    for key in ["maskedPaths", "readonlyPaths"] {
        let mut bundle = Bundle::new();
        bundle.spec["linux"][key] = json!(["/proc/keys", "proc/bus"]);
        refused(&bundle, &[key, "proc/bus"]);
        bundle.spec["linux"][key] = json!(["/loop"]);
        std::os::unix::fs::symlink("loop", bundle.inside("loop")).expect("a link");
        refused(&bundle, &[key, "/loop"]);
    }
}

#[test]
fn the_root_can_be_covered() {
    if !have("a mount over the root", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    let over =
        json!({ "destination": "/", "source": bundle.path("outside"), "options": ["rbind"] });
    bundle.spec["mounts"].as_array_mut().expect("mounts").insert(0, over);
    bundle.spec["root"]["readonly"] = json!(true);
    let ended = bundle.probe(&["cat /file", "put /new x", "stat /dev/null"]);
    assert!(ended.stdout.starts_with("ok text\nEROFS\nok 20666 "), "{ended:?}");
}

#[test]
fn a_read_only_root() {
    if !have("a read-only root", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    let ops = ["put /new x", "put /dev/new x", "put /data/new x"];
    bundle.bind("outside", "/data", &["bind"]);
    assert_eq!(bundle.probe(&ops).stdout, "ok\nok\nok\n");
    bundle.spec["root"]["readonly"] = json!(true);
    assert_eq!(bundle.probe(&ops).stdout, "EROFS\nok\nok\n");
}

#[test]
fn kernel_parameters_are_the_containers() {
    if !have("sysctl", &["root"]) {
        return;
    }
    let host = std::fs::read("/proc/sys/kernel/shmmax").expect("a parameter");
    let mut bundle = Bundle::new();
    bundle.spec["linux"]["sysctl"] =
        json!({ "kernel.shmmax": "12345", "net/ipv4/ip_forward": "1", "fs.mqueue.msg_max": "9" });
    bundle.spec["linux"]["readonlyPaths"] = json!(["/proc/sys"]);
    let ended = bundle.probe(&[
        "cat /proc/sys/kernel/shmmax",
        "cat /proc/sys/net/ipv4/ip_forward",
        "cat /proc/sys/fs/mqueue/msg_max",
    ]);
    assert_eq!(ended.stdout, "ok 12345\\n\nok 1\\n\nok 9\\n\n", "{ended:?}");
    assert_eq!(std::fs::read("/proc/sys/kernel/shmmax").expect("a parameter"), host);

    for name in ["kernel.core_pattern", "vm.swappiness", "kernel.hostname", "net.none"] {
        bundle.spec["linux"]["sysctl"] = json!({ name: "1" });
        refused(&bundle, &["sysctl", name]);
    }
}

#[test]
fn ids_of_a_mount_are_mapped() {
    if !have("idmapped mounts", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("outside/file"), "text").expect("a file");
    let map = json!([{ "containerID": 0, "hostID": 5000, "size": 10 }]);
    bundle.mount(json!({
        "destination": "/a", "source": bundle.path("outside"), "options": ["bind", "idmap"],
        "uidMappings": map, "gidMappings": map,
    }));
    assert!(bundle.probe(&["stat /a/file"]).last().contains(" 5000 5000 "));
    assert_eq!(std::fs::metadata(bundle.path("outside/file")).expect("a file").uid(), 0);
    bundle.spec["mounts"][3]["gidMappings"].take();
    refused(&bundle, &["\"/a\"", "gidMappings"]);
    // In an option, as podman has it.
    let source = bundle.path("outside");
    let with = |option: &str| json!({ "destination": "/a", "source": source, "options": ["bind", option] });
    bundle.spec["mounts"][3] = with("idmap=uids=0-6000-10;gids=0-7000-10");
    assert!(bundle.probe(&["stat /a/file"]).last().contains(" 6000 7000 "));
    bundle.spec["mounts"][3] = with("idmap=uids=0-6000-10");
    refused(&bundle, &["\"/a\"", "gidMappings"]);
    bundle.spec["mounts"][3] = with("idmap=uids=@0-0-1;gids=0-0-1");
    refused(&bundle, &["\"/a\"", "is no id of the container"]);
}

#[test]
fn what_is_mounted_can_be_changed() {
    if !have("remounts", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.bind("outside", "/a", &["bind", "nosuid"]);
    bundle.mount(json!({ "destination": "/a", "options": ["bind", "remount", "ro"] }));
    bundle.mount(json!({ "destination": "/dev", "options": ["remount", "size=1m"] }));
    let ended = bundle.probe(&["put /a/x x", MOUNTS]);
    // The flags that it had stay.
    assert_eq!(flags(&ended, "/a"), "nosuid,relatime,ro");
    assert!(mounted(&ended, "/dev").last().expect("data").contains("size=1024k"));
    assert!(ended.stdout.starts_with("EROFS\n"), "{ended:?}");
}

#[test]
fn layers() {
    if !have("overlay", &["root"]) {
        return;
    }
    // The second is too long for fsconfig(2).
    for way in [String::new(), "./".repeat(150)] {
        let mut bundle = Bundle::new();
        for layer in ["lower", "upper", "work"] {
            std::fs::create_dir(bundle.path("outside").join(layer)).expect("a directory");
        }
        std::fs::write(bundle.path("outside/lower/file"), "text").expect("a file");
        let base = bundle.path("outside").display().to_string();
        let option = |key: &str, layer: &str| format!("{key}={base}/{way}{layer}");
        let options =
            [option("lowerdir", "lower"), option("upperdir", "upper"), option("workdir", "work")];
        bundle.mount(json!({
            "destination": "/a", "type": "overlay", "source": "overlay",
            "options": [options[0], options[1], options[2], "nosuid"],
        }));
        let ended = bundle.probe(&["cat /a/file", "put /a/file new", MOUNTS]);
        assert!(ended.stdout.starts_with("ok text\nok\n"), "{ended:?}");
        assert_eq!(flags(&ended, "/a"), "nosuid,relatime,rw");
        assert_eq!(std::fs::read(bundle.path("outside/upper/file")).expect("a file"), b"new");
    }
}

#[test]
fn the_host_is_gone() {
    if !have("the host is gone", &["root"]) {
        return;
    }
    for options in [&[][..], &["--no-pivot"]] {
        let mut bundle = Bundle::new();
        bundle.options = options.to_vec();
        let ended = bundle.probe(&["ls /", "ls /..", MOUNTS]);
        let lines: Vec<_> = ended.stdout.lines().collect();
        assert_eq!(lines[0], lines[1], "{ended:?}");
        assert!(lines[0].ends_with("probe proc") || lines[0].contains("probe"), "{ended:?}");
        // What is mounted in the container is on its own mounts alone.
        if options.is_empty() {
            assert!(!ended.stdout.contains(" /sys "), "{ended:?}");
        }
        let host = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let bundle = bundle.path("").display().to_string();
        assert!(!host.contains(bundle.trim_end_matches('/')), "{host}");
    }
}
