//! Roots that were made to lead the runtime out of them, and changed while it mounts.
#![cfg(target_os = "linux")]

mod support;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use support::container::{Bundle, Ended};
use support::have::have;

/// It must not have come to the program, and says why.
fn refused(ended: &Ended, words: &[&str]) {
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

/// Exchanges two names as fast as it can while `work` runs.
fn exchanging<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("an exchange");
            }
        });
        // Set also when `work` panics, or the scope would wait for ever.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&over);
        work()
    })
}

#[test]
fn links_where_the_kernel_is_mounted() {
    if !have("links at /proc, /sys and /dev", &["root"]) {
        return;
    }
    for (name, kind) in [("proc", "proc"), ("dev", "tmpfs"), ("sys", "sysfs")] {
        for target in ["/elsewhere", "../outside", "elsewhere/missing"] {
            let mut bundle = Bundle::new();
            std::fs::create_dir(bundle.inside("elsewhere")).expect("a directory");
            symlink(target, bundle.inside(name)).expect("a link");
            if name == "sys" {
                bundle.mount(json!({ "destination": "/sys", "type": kind, "source": kind }));
            }
            let ended = bundle.probe(&["getcwd"]);
            refused(&ended, &[&format!("\"/{name}\""), "symbolic link"]);
            assert!(bundle.outside().is_empty(), "{name} {target}");
        }
    }
    // Without the links it runs.
    let mut bundle = Bundle::new();
    bundle.mount(json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs" }));
    assert_eq!(bundle.probe(&["getcwd"]).last(), "ok /");
}

#[test]
fn a_link_for_dev_that_nothing_is_mounted_on() {
    if !have("a link for /dev", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    bundle.spec["mounts"].as_array_mut().expect("mounts").remove(1);
    std::fs::create_dir(bundle.inside("elsewhere")).expect("a directory");
    symlink("elsewhere", bundle.inside("dev")).expect("a link");
    refused(&bundle.probe(&["getcwd"]), &["/dev", "symbolic link"]);
    assert_eq!(std::fs::read_dir(bundle.inside("elsewhere")).expect("a directory").count(), 0);
    std::fs::remove_file(bundle.inside("dev")).expect("the link");
    assert_eq!(bundle.probe(&["getcwd"]).last(), "ok /");
}

#[test]
fn links_on_the_way_to_a_target_stay_inside() {
    if !have("links on the way to a target", &["root"]) {
        return;
    }
    for target in ["../outside", "../../../../../outside", "HOST"] {
        for place in ["/way/new/deep", "/way", "/way/file"] {
            let mut bundle = Bundle::new();
            let host = bundle.path("outside");
            let target = if target == "HOST" { host.as_path() } else { Path::new(target) };
            symlink(target, bundle.inside("way")).expect("a link");
            // This is what a path by itself does.
            std::fs::create_dir(bundle.inside("way/naive")).ok();
            let led_out = !bundle.outside().is_empty();
            assert_eq!(led_out, target.starts_with("../outside") || target == host);
            std::fs::remove_dir(bundle.path("outside/naive")).ok();

            bundle.mount(json!({ "destination": place, "type": "tmpfs", "source": "tmpfs" }));
            let ended = bundle.probe(&[&format!("put {place}/x x"), "ls /"]);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(ended.stdout.starts_with("ok\n"), "{ended:?}");
            assert!(bundle.outside().is_empty(), "{place}: {:?}", bundle.outside());
        }
    }
}

#[test]
fn a_link_to_nothing_is_followed_in_the_root() {
    if !have("a link to nothing", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("resolv"), "nameserver").expect("a file");
    std::fs::create_dir(bundle.inside("etc")).expect("a directory");
    // As images of Ubuntu have it.
    symlink("../run/systemd/resolve/stub", bundle.inside("etc/resolv.conf")).expect("a link");
    bundle.bind("resolv", "/etc/resolv.conf", &["bind"]);
    let ended = bundle.probe(&["cat /etc/resolv.conf", "cat /run/systemd/resolve/stub"]);
    assert_eq!(ended.stdout, "ok nameserver\nok nameserver\n", "{ended:?}");

    symlink("loop", bundle.inside("loop")).expect("a link");
    bundle.bind("resolv", "/loop/a", &["bind"]);
    refused(&bundle.probe(&["getcwd"]), &["\"/loop/a\""]);
}

#[test]
fn nothing_covers_procfs() {
    if !have("mounts over /proc", &["root"]) {
        return;
    }
    for place in
        ["/proc", "/proc/sys", "/proc/self/attr", "//proc/./sys/../sys", "/way", "/way/kernel"]
    {
        for kind in ["tmpfs", "bind"] {
            let mut bundle = Bundle::new();
            symlink("/proc/sys", bundle.inside("way")).expect("a link");
            let source = bundle.path("outside");
            bundle.mount(json!({ "destination": place, "type": kind, "source": source }));
            refused(&bundle.probe(&["getcwd"]), &["/proc", place]);
        }
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("uptime"), "1 1").expect("a file");
    bundle.bind("uptime", "/proc/uptime", &["bind", "ro"]);
    assert_eq!(bundle.probe(&["cat /proc/uptime"]).last(), "ok 1 1");
}

#[test]
fn what_an_image_brings_as_devices() {
    if !have("devices of an image", &["root"]) {
        return;
    }
    let bring = |make: &dyn Fn(&Path, &Path)| {
        let mut bundle = Bundle::new();
        bundle.spec["mounts"].as_array_mut().expect("mounts").remove(1);
        bundle.spec["linux"]["maskedPaths"] = json!(["/masked"]);
        std::fs::create_dir(bundle.inside("dev")).expect("a directory");
        std::fs::write(bundle.inside("masked"), "masked").expect("a file");
        std::fs::write(bundle.path("outside/file"), "outside").expect("a file");
        make(&bundle.inside("dev"), &bundle.path("outside/file"));
        (bundle.probe(&["cat /masked"]), bundle)
    };
    let (fine, _) = bring(&|_, _| {});
    assert_eq!(fine.last(), "ok");
    for name in ["null", "zero", "tty"] {
        let (ended, bundle) = bring(&|dev, out| symlink(out, dev.join(name)).expect("a link"));
        refused(&ended, &[&format!("/dev/{name}")]);
        let kept = std::fs::read(bundle.path("outside/file")).expect("a file");
        assert_eq!(kept, b"outside");
        let (ended, _) = bring(&|dev, _| std::fs::write(dev.join(name), "x").expect("a file"));
        refused(&ended, &[&format!("/dev/{name}")]);
    }
}

/// CVE-2021-30465: between the look at a target and the mount, a directory on its way becomes a link.
#[test]
fn targets_that_are_exchanged() {
    if !have("exchanged targets", &["root"]) {
        return;
    }
    const ROUNDS: usize = 60;
    let mut bundle = Bundle::new();
    std::fs::create_dir_all(bundle.inside("vol/way")).expect("directories");
    let (way, link) = (bundle.inside("vol/way"), bundle.inside("vol/link"));
    symlink(bundle.path("outside"), &link).expect("a link");
    bundle.mount(json!({ "destination": "/vol/way/a/b", "type": "tmpfs", "source": "tmpfs" }));
    bundle.bind("outside", "/vol/way/c", &["bind"]);
    let (mut naive, mut ran) = (false, 0);
    exchanging(&way, &link, || {
        // This is what paths by themselves come to.
        for _ in 0..100_000 {
            if !bundle.outside().is_empty() {
                naive = true;
                break;
            }
            std::fs::create_dir(way.join("naive")).ok();
            std::fs::remove_dir(way.join("naive")).ok();
        }
        std::fs::remove_dir(bundle.path("outside/naive")).ok();
        for _ in 0..ROUNDS {
            let ended = bundle.probe(&["getcwd"]);
            ran += usize::from(ended.code == Some(0));
            let outside: Vec<PathBuf> = bundle.outside();
            assert!(outside.is_empty(), "{outside:?} {ended:?}");
        }
    });
    assert!(naive, "the exchange hit nothing");
    assert!(ran > 0, "no round ran");
    let host = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!host.contains(&*bundle.path("").to_string_lossy()), "{host}");
}

/// CVE-2025-31133: `/dev/null`, which hides masked files, is exchanged for a link to something else.
#[test]
fn a_null_device_that_is_exchanged() {
    if !have("an exchanged null device", &["root"]) {
        return;
    }
    const ROUNDS: usize = 60;
    let mut bundle = Bundle::new();
    bundle.spec["mounts"].as_array_mut().expect("mounts").remove(1);
    bundle.spec["linux"]["maskedPaths"] = json!(["/masked"]);
    for (name, text) in [("masked", "masked"), ("other", "other")] {
        std::fs::write(bundle.inside(name), text).expect("a file");
    }
    // One run makes the devices.
    assert_eq!(bundle.probe(&["cat /masked"]).last(), "ok");
    let (null, link) = (bundle.inside("dev/null"), bundle.inside("dev/link"));
    symlink("/other", &link).expect("a link");
    let (mut ran, mut refused) = (0, 0);
    exchanging(&null, &link, || {
        for _ in 0..ROUNDS {
            let ended = bundle.probe(&["cat /masked", "cat /other"]);
            if ended.code == Some(0) {
                assert_eq!(ended.stdout, "ok\nok other\n", "{ended:?}");
                ran += 1;
            } else {
                assert!(ended.stderr.contains("/dev/null"), "{ended:?}");
                refused += 1;
            }
        }
    });
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} did not");
}

/// CVE-2024-21626: a directory of the host that is open in the runtime, as the one to start in.
#[test]
fn no_program_starts_outside() {
    if !have("starting outside", &["root"]) {
        return;
    }
    let mut bundle = Bundle::new();
    std::fs::write(bundle.path("outside/file"), "outside").expect("a file");
    // The runtime is called with a directory of the host open.
    let open = format!("exec 7<{}", bundle.path("outside").display());
    bundle.before = Some(open);
    // Control: what a program is given on purpose leads out.
    bundle.options = vec!["--preserve-fds", "5"];
    let way = ["cat /proc/self/fd/7/file"];
    assert_eq!(bundle.probe(&way).last(), "ok outside");
    bundle.options = Vec::new();
    assert_ne!(bundle.probe(&way).stdout, "ok outside\n");
    let mut refused = 0;
    for preserved in [&["--preserve-fds", "5"][..], &[]] {
        for number in 3..16 {
            bundle.options = preserved.to_vec();
            bundle.spec["process"]["cwd"] = json!(format!("/proc/self/fd/{number}"));
            let ended = bundle.probe(&["getcwd", "cat file", "cat ../outside/file"]);
            assert!(!ended.stdout.contains("outside"), "{number}: {ended:?}");
            refused += usize::from(ended.stderr.contains("process.cwd"));
        }
    }
    assert!(refused > 0);
}
