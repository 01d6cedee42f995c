//! What the launcher and the broker hold in memory, at rest and after many denials.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{getpid, set_child_subreaper};
use serde_json::json;

use crate::contender::Contender;
use crate::lab::Lab;
use crate::measure::{Build, Goal, Group, Lane, Row, Spec, Unit};
use crate::sys::same_memory;

const REST: &str = "peak resident, before the first denial";
const DENIALS: &str = "peak resident, after 60,000 distinct denials";
const SHARE: &str = "proportional share (PSS), after 60,000 distinct denials";

const NETWORK: &str = "peak resident, relay and domain proxy, idle";

const LIMIT: Goal = Goal::AtMost(8e6);

/// The sandbox's own processes, summed, while the load inside waits.
pub fn group() -> Group {
    let specs: [(&'static str, Build); 4] = [
        (REST, |lab| row(lab, REST, "0", peak, vec![LIMIT])),
        (DENIALS, |lab| row(lab, DENIALS, "60000", peak, vec![LIMIT])),
        (SHARE, |lab| row(lab, SHARE, "60000", share, Vec::new())),
        (NETWORK, network),
    ];
    Group {
        rounds: 3,
        rival: Contender::Bare,
        specs: specs.into_iter().map(|(name, build)| Spec { name, beside: None, build }).collect(),
    }
}

fn row(
    lab: &Lab,
    name: &'static str,
    denials: &str,
    size: fn(u32) -> io::Result<f64>,
    goals: Vec<Goal>,
) -> io::Result<Row> {
    let dir = lab.workspace(&format!("memory-{}", name.replace([' ', ','], "")))?;
    let outside = lab.outside().into_os_string();
    let job = lab.inner(&dir, ["denials".into(), outside, denials.into()]);
    let lanes = Contender::ALL.map(|contender| {
        let command = match contender {
            Contender::Bare => None,
            other => lab.tools.command(other, &job),
        }?;
        Some(lane(command, lab.speed.clone(), size))
    });
    Ok(Row { name, unit: Unit::Megabytes, lanes, goals })
}

/// What serves the network of a run alone.
fn network(lab: &Lab) -> io::Result<Row> {
    let network = json!({"hostPorts": [9], "allowedDomains": ["example.com"]});
    let policy = lab.policy("memory-network", &json!({"network": network}))?;
    let outside = lab.outside().into_os_string();
    let job = lab
        .inner(&lab.workspace("memory-network")?, ["denials".into(), outside, "0".into()])
        .under([policy]);
    let mut row = Row {
        name: NETWORK,
        unit: Unit::Megabytes,
        lanes: Contender::ALL.map(|_| None),
        goals: vec![Goal::AtMost(6e6)],
    };
    let command = lab.tools.command(Contender::Landstrip, &job);
    row.lanes[Contender::Landstrip.index()] =
        command.map(|command| lane(command, lab.speed.clone(), peak_of_helper));
    Ok(row)
}

/// Starts the load, waits until it says that it is ready, adds up the sandbox's processes, and
/// lets the load end.
fn lane(mut command: Command, speed: PathBuf, size: fn(u32) -> io::Result<f64>) -> Lane {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Box::new(move || {
        // A process that outlives its parent becomes ours, and so stays in the sum.
        set_child_subreaper(Some(getpid()))?;
        let mut child = command.spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let sum = if line == "ready\n" {
            sandbox_processes(&speed)?.into_iter().map(size).sum()
        } else {
            Err(io::Error::other("the load did not get ready"))
        };
        drop(child.stdin.take());
        child.wait()?;
        sum
    })
}

/// What the descendants of this process that do not run the load hold now, in bytes: `VmRSS` of
/// proc_pid_status(5), which counts pages shared with other processes in full.
pub fn sandbox_memory(load: &Path) -> io::Result<f64> {
    let sizes = sandbox_processes(load)?.into_iter().map(|pid| field(pid, "status", "VmRSS:"));
    // Of nothing at all, Rust's sum is a negative zero.
    sizes.map(|size| size.map(|kilobytes| kilobytes * 1024.0)).try_fold(0.0, |a, b| Ok(a + b?))
}

/// The descendants of this process that do not run the load, one of those that share memory.
fn sandbox_processes(load: &Path) -> io::Result<Vec<u32>> {
    let load = fs::metadata(load)?;
    // By what the kernel has open: the path of a container's program is the container's.
    let runs_other = |pid: &u32| {
        let exe = fs::metadata(format!("/proc/{pid}/exe"));
        exe.is_ok_and(|exe| (exe.dev(), exe.ino()) != (load.dev(), load.ino()))
    };
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end between the listing and the reading.
        if let Ok(parent) = field(pid, "status", "PPid:") {
            parents.insert(pid, parent as u32);
        }
    }
    let own = std::process::id();
    let descends = |mut pid: u32| {
        while let Some(&parent) = parents.get(&pid) {
            if parent == own {
                return true;
            }
            pid = parent;
        }
        false
    };
    let mut found: Vec<u32> = Vec::new();
    for pid in parents.keys().copied().filter(|&pid| descends(pid)).filter(runs_other) {
        if !found.iter().any(|&other| same_memory(pid, other)) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// The number behind `label` in `/proc/PID/FILE`, as it stands there.
fn field(pid: u32, file: &str, label: &str) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {label} of process {pid}")))
}

/// The most that was ever resident, in bytes: `VmHWM` of proc_pid_status(5), which counts pages
/// shared with other processes in full.
fn peak(pid: u32) -> io::Result<f64> {
    Ok(field(pid, "status", "VmHWM:")? * 1024.0)
}

/// The same of the network helper, and nothing of others.
fn peak_of_helper(pid: u32) -> io::Result<f64> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
    if name == "network\n" { peak(pid) } else { Ok(0.0) }
}

/// What is resident now, in bytes, shared pages divided among those who share them: `Pss` of
/// `/proc/PID/smaps_rollup`.
fn share(pid: u32) -> io::Result<f64> {
    Ok(field(pid, "smaps_rollup", "Pss:")? * 1024.0)
}
