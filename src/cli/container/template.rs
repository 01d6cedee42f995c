//! `spec` without a program: a document to start from.

use std::path::Path;

use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};

/// A container that runs a shell in `rootfs`, read-only; without root where `rootless`.
pub fn template(rootless: bool) -> Value {
    let capabilities = json!(["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"]);
    let mut namespaces = vec!["pid", "ipc", "uts", "mount"];
    if !rootless {
        namespaces.push("network");
    }
    // Hosts with version 1 have no use for one.
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        namespaces.push("cgroup");
    }
    if rootless {
        namespaces.push("user");
    }
    let namespaces: Vec<Value> = namespaces.into_iter().map(|kind| json!({"type": kind})).collect();
    let flags = ["nosuid", "noexec", "nodev"];
    let shm = [&flags[..], &["mode=1777", "size=65536k"]].concat();
    let devpts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    let sys = match rootless {
        // A user without the network namespace may mount no sysfs of it.
        true => json!({"destination": "/sys", "type": "none", "source": "/sys",
            "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]}),
        false => json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
            "options": ["nosuid", "noexec", "nodev", "ro"]}),
    };
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
        // Group 5 is mapped with root alone.
        json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
            "options": &devpts[..devpts.len() - usize::from(rootless)]}),
        json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
            "options": shm}),
        json!({"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": flags}),
        sys,
    ];
    if !rootless {
        mounts.push(json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
            "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]}));
    }
    let mut linux = json!({
        "namespaces": namespaces,
        "maskedPaths": ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys",
            "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
            "/sys/firmware", "/proc/scsi"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if rootless {
        let map = |own: u32| json!([{"containerID": 0, "hostID": own, "size": 1}]);
        linux["uidMappings"] = map(geteuid().as_raw());
        linux["gidMappings"] = map(getegid().as_raw());
    } else {
        linux["resources"] = json!({"devices": [{"allow": false, "access": "rwm"}]});
    }
    json!({
        "ociVersion": "1.2.0",
        "process": {
            "terminal": true,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "landstrip",
        "mounts": mounts,
        "linux": linux,
    })
}
