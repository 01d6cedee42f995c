//! Containers under a policy that opens some of the network, and the processes that serve it.

use super::have::have;
use super::place::{Answer, BUSYBOX, Place, Waiting};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A container's place under a policy with this section `network`; without one, none.
pub fn place(network: Option<&Value>) -> Place {
    let mut place = Place::new();
    for name in ["ws", "data"] {
        std::fs::create_dir(place.path("rootfs").join(name)).expect("a directory");
    }
    std::fs::create_dir_all(place.path("rootfs/usr/bin")).expect("a directory");
    let caps = json!(["CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_NET_BIND_SERVICE"]);
    for set in ["bounding", "effective", "permitted"] {
        place.spec["process"]["capabilities"][set] = caps.clone();
    }
    place.spec["annotations"] = json!({});
    if let Some(network) = network {
        let policy = json!({"filesystem": {"allowWrite": ["/ws"]}, "network": network});
        std::fs::write(place.path("policy.json"), policy.to_string()).expect("a file");
        for (option, name) in [("--policy", "policy.json"), ("--traps", "traps")] {
            place.options.extend([option.to_owned(), place.path(name).display().to_string()]);
        }
    }
    if !rustix::process::geteuid().is_root() {
        let map = |own: u32| json!([{"containerID": 0, "hostID": own, "size": 1}]);
        let linux = &mut place.spec["linux"];
        linux["uidMappings"] = map(rustix::process::geteuid().as_raw());
        linux["gidMappings"] = map(rustix::process::getegid().as_raw());
        let user = json!({"type": "user"});
        linux["namespaces"].as_array_mut().expect("namespaces").push(user);
        place.options.extend(["--cgroup-manager".to_owned(), "disabled".to_owned()]);
    }
    place
}

/// Has the containers in another network namespace: the host's, or one with a path.
pub fn in_network(mut place: Place, path: Option<&str>) -> Place {
    let namespaces = place.spec["linux"]["namespaces"].as_array_mut().expect("namespaces");
    namespaces.retain(|namespace| namespace["type"] != "network");
    namespaces.extend(path.map(|path| json!({"type": "network", "path": path})));
    place
}

/// Whether this user can have containers here.
pub fn containers(what: &str) -> bool {
    have(what, &[BUSYBOX]) && (rustix::process::geteuid().is_root() || have(what, &["userns"]))
}

pub fn shell(place: &Place, script: &str) -> Answer {
    place.run(&["sh", "-c", script])
}

pub fn traps(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path("traps")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The process that serves the container with this first process: it holds what listens in there.
pub fn helpers(init: u64) -> Vec<u32> {
    let listening: HashSet<String> = ["tcp", "tcp6"]
        .iter()
        .flat_map(|table| {
            let text = std::fs::read_to_string(format!("/proc/{init}/net/{table}"));
            let text = text.unwrap_or_default();
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let listens = lines.filter(|fields| fields.get(3) == Some(&"0A"));
            listens.map(|fields| format!("socket:[{}]", fields[9])).collect::<Vec<_>>()
        })
        .collect();
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        name == "network\n"
            && links.any(|link| listening.contains(&link.to_string_lossy().into_owned()))
    };
    pids.filter(holds).collect()
}

/// The first process of a container.
pub fn init(running: &Waiting<'_>) -> u64 {
    running.place.state(&running.id)["pid"].as_u64().expect("a pid")
}

/// The one process that serves a container whose program runs.
pub fn helper(running: &Waiting<'_>) -> u32 {
    running.sh("true");
    let found = helpers(init(running));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

pub fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::KILL).expect("kill");
}

/// The processes that make sockets for the one that serves a container.
pub fn makers(helper: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (start, end) = stat.rsplit_once(')').unwrap_or_default();
        let parent = end.split_whitespace().nth(1);
        start.ends_with("(sockets") && parent == Some(helper.to_string().as_str())
    };
    pids.filter(is_one).collect()
}
