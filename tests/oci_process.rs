//! What few containers ask for: time namespaces, real-time scheduling, memory policies, processors of `exec`.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::have::have;
use support::place::{Place, id, ready};

#[test]
fn clocks_are_offset() {
    if !ready("time namespaces") || !have("time namespaces", &["/proc/self/ns/time"]) {
        return;
    }
    let uptime = |text: &str| -> f64 {
        text.split(' ').next().and_then(|field| field.parse().ok()).expect("an uptime")
    };
    for user in [false, true] {
        let mut place = Place::new();
        let mut add = |kind: &str| {
            let kinds = place.spec["linux"]["namespaces"].as_array_mut().expect("namespaces");
            kinds.push(json!({"type": kind}));
        };
        add("time");
        if user {
            add("user");
            let map = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
            place.spec["linux"]["uidMappings"] = map.clone();
            place.spec["linux"]["gidMappings"] = map;
            for name in ["", "bin", "dev", "proc", "sys", "tmp", "etc"] {
                let dir = place.path("rootfs").join(name);
                std::os::unix::fs::chown(dir, Some(100_000), Some(100_000)).expect("an owner");
            }
        }
        let offset = json!({"secs": 10_000_000, "nanosecs": 5});
        place.spec["linux"]["timeOffsets"] = json!({"boottime": offset, "monotonic": offset});
        let waiting = place.waiting();
        let own = uptime(&std::fs::read_to_string("/proc/uptime").expect("an uptime"));
        for inside in [place.sh("cat /proc/uptime"), waiting.sh("cat /proc/uptime")] {
            let ahead = uptime(&inside) - own;
            assert!((10_000_000.0..10_000_100.0).contains(&ahead), "user {user}: {inside}");
        }
        drop(waiting);
        place.spec["linux"]["timeOffsets"] = json!({"tai": {"secs": 1}});
        place.run(&["id"]).bad("linux.timeOffsets");
    }
}

#[test]
fn memory_comes_from_the_nodes_named() {
    if !ready("memory policies") || !have("memory policies", &["/proc/self/numa_maps"]) {
        return;
    }
    let mut place = Place::new();
    let modes = |place: &Place| place.sh("grep -o ' [a-z]*[:=][^ ]*' /proc/self/numa_maps");
    let bound = |text: &str, mode: &str| text.lines().any(|line| line.trim() == mode);
    assert!(!bound(&modes(&place), "bind:0"));
    place.spec["linux"]["memoryPolicy"] = json!({"mode": "MPOL_BIND", "nodes": "0"});
    assert!(bound(&modes(&place), "bind:0"));
    place.spec["linux"]["memoryPolicy"] = json!({
        "mode": "MPOL_INTERLEAVE", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"],
    });
    assert!(bound(&modes(&place), "interleave=static:0"));
    for (nodes, says) in [("1023", "linux.memoryPolicy: "), ("1-0", "linux.memoryPolicy.nodes: ")] {
        place.spec["linux"]["memoryPolicy"] = json!({"mode": "MPOL_BIND", "nodes": nodes});
        place.run(&["id"]).bad(says);
    }
}

/// Real-time priority and policy, proc_pid_stat(5): one word less before them, for the name has no blank.
const POLICY: &str = "set -- $(cat /proc/self/stat); echo ${40} ${41}";

#[test]
fn scheduling_is_what_the_document_says() {
    if !ready("scheduling") {
        return;
    }
    let mut place = Place::new();
    place.spec["process"]["scheduler"] = json!({
        "policy": "SCHED_FIFO", "priority": 10, "flags": ["SCHED_FLAG_RESET_ON_FORK"],
    });
    // A cgroup of version 1 has no real-time until it is given some (CONFIG_RT_GROUP_SCHED).
    let groups = std::path::Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists();
    if groups {
        place.run(&["id"]).bad("realtimeRuntime");
        place.spec["linux"]["resources"] =
            json!({"cpu": {"realtimeRuntime": 1000, "realtimePeriod": 1_000_000}});
    }
    let built_in = "read -r line < /proc/self/stat; set -- $line; echo ${40} ${41}";
    assert_eq!(place.sh(built_in), "10 1\n");
    // A child is ordinary.
    assert_eq!(place.sh(POLICY), "0 0\n");
    place.spec["linux"]["resources"] = Value::Null;

    let times = |runtime: u64, deadline: u64, period: u64| {
        json!({"policy": "SCHED_DEADLINE", "runtime": runtime, "deadline": deadline,
            "period": period})
    };
    place.spec["process"]["scheduler"] = times(1_000_000, 3_000_000, 3_000_000);
    assert_eq!(place.sh(built_in), "0 6\n");
    for (scheduler, says) in [
        (json!({"policy": "SCHED_DEADLINE", "deadline": 5000}), "requires `runtime`"),
        (json!({"policy": "SCHED_DEADLINE", "runtime": 5000}), "requires `deadline`"),
        (times(0, 5000, 5000), "must be greater than 0"),
        (times(10, 5000, 5000), "must be between 1024"),
        (times(6000, 5000, 0), "runtime 6000 must be <= deadline 5000"),
        (times(2000, 5000, 4000), "deadline 5000 must be <= period 4000"),
        (json!({"policy": "SCHED_ISO"}), "process.scheduler.policy"),
        (json!({"policy": "SCHED_FIFO", "priority": 500}), "process.scheduler: "),
    ] {
        place.spec["process"]["scheduler"] = scheduler;
        place.run(&["id"]).bad(says);
    }
}

#[test]
fn exec_runs_on_the_processors_named() {
    if !ready("processors of exec") {
        return;
    }
    let place = Place::new();
    let waiting = place.waiting();
    let run = |affinity: Value| {
        let process = json!({
            "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"],
            "args": ["grep", "Cpus_allowed_list", "/proc/self/status"],
            "execCPUAffinity": affinity,
        });
        std::fs::write(place.path("process.json"), process.to_string()).expect("a document");
        waiting.exec(&["--process", "process.json", &waiting.id])
    };
    let all = run(Value::Null).good();
    assert_eq!(run(json!({"final": "0"})).good(), "Cpus_allowed_list:\t0\n");
    // Where a cgroup has processors of its own, entering it gives those.
    let initial = run(json!({"initial": "0"})).good();
    assert!(initial == "Cpus_allowed_list:\t0\n" || initial == all, "{initial}");
    let last = all.trim().rsplit(['-', ',', '\t']).next().expect("a number");
    let both = run(json!({"initial": "0", "final": last})).good();
    assert_eq!(both, format!("Cpus_allowed_list:\t{last}\n"));
    run(json!({"final": "1000"})).bad("process.execCPUAffinity");
    run(json!({"final": "x"})).bad("execCPUAffinity");
}

#[test]
fn a_domain_name_is_said_once() {
    if !ready("domain names") {
        return;
    }
    let mut place = Place::new();
    place.spec["domainname"] = json!("one");
    place.spec["linux"]["sysctl"] = json!({"kernel.domainname": "one"});
    assert_eq!(place.sh("cat /proc/sys/kernel/domainname"), "one\n");
    place.spec["linux"]["sysctl"] = json!({"kernel.domainname": "other"});
    place.run(&["id"]).bad("kernel.domainname");
    place.spec["domainname"] = Value::Null;
    assert_eq!(place.sh("cat /proc/sys/kernel/domainname"), "other\n");
}

#[test]
fn what_the_machine_does_not_have_is_refused_by_name() {
    if !ready("refusals") {
        return;
    }
    let lacks = |path: &str| !std::path::Path::new(path).exists();
    let mut place = Place::new();
    for (missing, linux, says) in [
        (
            lacks("/sys/fs/resctrl/schemata"),
            json!({"intelRdt": {"closID": "x", "schemata": ["L3:0=f"]}}),
            "linux.intelRdt: ",
        ),
        (
            lacks("/sys/fs/cgroup/net_cls"),
            json!({"resources": {"network": {"classID": 1}}}),
            "linux.resources.network.classID: ",
        ),
        (
            lacks("/sys/fs/cgroup/net_prio"),
            json!({"resources": {"network": {"priorities": [{"name": "lo", "priority": 1}]}}}),
            "linux.resources.network.priorities: ",
        ),
        (
            lacks("/sys/class/infiniband/none"),
            json!({"resources": {"rdma": {"none": {"hcaHandles": 1}}}}),
            "linux.resources.rdma.none: ",
        ),
        (
            lacks("/sys/kernel/mm/hugepages/hugepages-12kB"),
            json!({"resources": {"hugepageLimits": [{"pageSize": "12KB", "limit": 0}]}}),
            "linux.resources.hugepageLimits: ",
        ),
        (
            lacks("/sys/dev/block/99:99"),
            json!({"resources": {"blockIO": {
                "throttleReadBpsDevice": [{"major": 99, "minor": 99, "rate": 1024}],
            }}}),
            "linux.resources.blockIO.throttleReadBpsDevice: ",
        ),
        (
            true,
            json!({"personality": {"domain": "LINUX", "flags": ["ADDR_NO_RANDOMIZE"]}}),
            "linux.personality.flags: ",
        ),
    ] {
        if !missing {
            eprintln!("this machine has what {says}is about: nothing is tested");
            continue;
        }
        let own = place.spec["linux"].clone();
        for (key, value) in linux.as_object().expect("an object") {
            place.spec["linux"][key] = value.clone();
        }
        let name = id();
        place.program(&["id"]).call(&["run", "-b", ".", &name]).bad(says);
        place.call(&["state", &name]).bad("does not exist");
        place.spec["linux"] = own;
    }
}
