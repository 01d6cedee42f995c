//! What a container uses, in the form that `runc events` prints (its `types/events.go`): numbers that are
//! not known are 0, lists that are not are left out.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::file;
use super::place::Place;
use crate::linux::cgroup::unified;
use crate::oci::{Error, Result};

/// Nanoseconds in a microsecond, which version 2 counts in.
const MICRO: u64 = 1000;

/// Everything.
///
/// # Errors
///
/// Where the container has no cgroup, or it is gone.
pub fn of(places: &[Place]) -> Result<Value> {
    if !places.iter().any(|place| place.dir.exists()) {
        return Err(Error::new("the container has no cgroup, which alone has its statistics"));
    }
    let find = |controller: &str, other: &str| {
        let separate = places.iter().find(|place| place.has(controller));
        let has = |place: &&Place| {
            place.unified
                && unified::words(place.dir.join("cgroup.controllers")).iter().any(|n| n == other)
        };
        separate.or_else(|| places.iter().find(has))
    };
    let part = |controller: &str, other: &str, of: fn(&Path, bool) -> Value| {
        find(controller, other).map_or_else(|| of(Path::new(""), true), |p| of(&p.dir, p.unified))
    };
    let mut cpu = Map::new();
    cpu.insert("usage".to_owned(), usage(places));
    cpu.insert("throttling".to_owned(), part("cpu", "cpu", throttling));
    put_pressure(&mut cpu, places, "cpu.pressure");
    let mut memory = match part("memory", "memory", memory) {
        Value::Object(memory) => memory,
        _ => Map::new(),
    };
    put_pressure(&mut memory, places, "memory.pressure");
    let mut blkio = match part("blkio", "io", blkio) {
        Value::Object(blkio) => blkio,
        _ => Map::new(),
    };
    put_pressure(&mut blkio, places, "io.pressure");
    Ok(json!({
        "cpu": cpu,
        "cpuset": part("cpuset", "cpuset", cpuset),
        "memory": memory,
        "pids": part("pids", "pids", pids),
        "blkio": blkio,
        "hugetlb": part("hugetlb", "hugetlb", hugetlb),
        "intel_rdt": {},
        "network_interfaces": null,
    }))
}

fn text(dir: &Path, name: &str) -> String {
    file::read(dir, name).ok().flatten().unwrap_or_default()
}

fn number(dir: &Path, name: &str) -> u64 {
    file::number(dir, name).unwrap_or(0)
}

/// A limit, where `max` is the largest number.
fn limit(dir: &Path, name: &str) -> u64 {
    match text(dir, name).as_str() {
        "max" => u64::MAX,
        text => text.parse().unwrap_or(0),
    }
}

/// Processor time in nanoseconds.
fn usage(places: &[Place]) -> Value {
    if let Some(place) = places.iter().find(|place| place.has("cpuacct")) {
        let dir = &place.dir;
        let list = |name: &str| -> Vec<u64> {
            text(dir, name).split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        return json!({
            "total": number(dir, "cpuacct.usage"),
            "percpu": list("cpuacct.usage_percpu"),
            "percpu_kernel": list("cpuacct.usage_percpu_sys"),
            "percpu_user": list("cpuacct.usage_percpu_user"),
            "kernel": number(dir, "cpuacct.usage_sys"),
            "user": number(dir, "cpuacct.usage_user"),
        });
    }
    // Times are in this file without the controller too.
    let place = places.iter().find(|place| place.unified);
    let stat = place.map(|place| text(&place.dir, "cpu.stat")).unwrap_or_default();
    let time = |key: &str| file::value(&stat, key).unwrap_or(0) * MICRO;
    json!({
        "total": time("usage_usec"),
        "kernel": time("system_usec"),
        "user": time("user_usec"),
    })
}

fn throttling(dir: &Path, unified: bool) -> Value {
    let stat = text(dir, "cpu.stat");
    let value = |key: &str| file::value(&stat, key).unwrap_or(0);
    let time = match unified {
        true => value("throttled_usec") * MICRO,
        false => value("throttled_time"),
    };
    json!({
        "periods": value("nr_periods"),
        "throttledPeriods": value("nr_throttled"),
        "throttledTime": time,
    })
}

fn cpuset(dir: &Path, unified: bool) -> Value {
    let list = |own: &str, effective: &str| -> Vec<u64> {
        let own = text(dir, own);
        let text = if own.is_empty() { text(dir, effective) } else { own };
        text.split(',').filter_map(range).flatten().collect()
    };
    if unified {
        return json!({
            "cpus": list("cpuset.cpus", "cpuset.cpus.effective"),
            "mems": list("cpuset.mems", "cpuset.mems.effective"),
        });
    }
    let value = |name: &str| number(dir, &format!("cpuset.{name}"));
    json!({
        "cpus": list("cpuset.cpus", "cpuset.effective_cpus"),
        "cpu_exclusive": value("cpu_exclusive"),
        "mems": list("cpuset.mems", "cpuset.effective_mems"),
        "mem_hardwall": value("mem_hardwall"),
        "mem_exclusive": value("mem_exclusive"),
        "memory_migrate": value("memory_migrate"),
        "memory_spread_page": value("memory_spread_page"),
        "memory_spread_slab": value("memory_spread_slab"),
        "memory_pressure": value("memory_pressure"),
        "sched_load_balance": value("sched_load_balance"),
        "sched_relax_domain_level":
            text(dir, "cpuset.sched_relax_domain_level").parse::<i64>().unwrap_or(0),
    })
}

fn range(part: &str) -> Option<std::ops::RangeInclusive<u64>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[derive(Default, Serialize)]
struct Memory {
    limit: u64,
    usage: u64,
    max: u64,
    failcnt: u64,
}

fn memory(dir: &Path, unified: bool) -> Value {
    let stat = text(dir, "memory.stat");
    let raw: BTreeMap<&str, u64> = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(key, value)| Some((key, value.parse().ok()?)))
        .collect();
    if !unified {
        let of = |prefix: &str| Memory {
            limit: number(dir, &format!("memory.{prefix}limit_in_bytes")),
            usage: number(dir, &format!("memory.{prefix}usage_in_bytes")),
            max: number(dir, &format!("memory.{prefix}max_usage_in_bytes")),
            failcnt: number(dir, &format!("memory.{prefix}failcnt")),
        };
        return json!({
            "cache": raw.get("cache").copied().unwrap_or(0),
            "usage": of(""),
            "swap": of("memsw."),
            "kernel": of("kmem."),
            "kernelTCP": of("kmem.tcp."),
            "raw": raw,
        });
    }
    let failures = |name: &str| file::value(&text(dir, name), "max").unwrap_or(0);
    let usage = Memory {
        limit: limit(dir, "memory.max"),
        usage: number(dir, "memory.current"),
        max: number(dir, "memory.peak"),
        failcnt: failures("memory.events"),
    };
    // As in version 1, memory and swap together.
    let swap = Memory {
        limit: limit(dir, "memory.swap.max").saturating_add(usage.limit),
        usage: number(dir, "memory.swap.current") + usage.usage,
        max: 0,
        failcnt: failures("memory.swap.events"),
    };
    json!({
        "cache": raw.get("file").copied().unwrap_or(0),
        "usage": usage,
        "swap": swap,
        "kernel": Memory::default(),
        "kernelTCP": Memory::default(),
        "raw": raw,
    })
}

fn pids(dir: &Path, _unified: bool) -> Value {
    let limit = match limit(dir, "pids.max") {
        u64::MAX => 0,
        limit => limit,
    };
    json!({ "current": number(dir, "pids.current"), "limit": limit })
}

fn blkio(dir: &Path, unified: bool) -> Value {
    let mut found = Map::new();
    if unified {
        let (bytes, counts) = io_stat(&text(dir, "io.stat"));
        found.insert("ioServiceBytesRecursive".to_owned(), bytes.into());
        found.insert("ioServicedRecursive".to_owned(), counts.into());
        return found.into();
    }
    for (key, names) in [
        (
            "ioServiceBytesRecursive",
            ["bfq.io_service_bytes_recursive", "throttle.io_service_bytes_recursive"],
        ),
        ("ioServicedRecursive", ["bfq.io_serviced_recursive", "throttle.io_serviced_recursive"]),
    ] {
        let lists = names.map(|name| counted(&text(dir, &format!("blkio.{name}"))));
        let list = lists.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
        found.insert(key.to_owned(), list.into());
    }
    found.into()
}

/// Lines such as `8:0 Read 4096`; the sum at the end is none.
fn counted(text: &str) -> Vec<Value> {
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let (major, minor) = words.next()?.split_once(':')?;
        entry(major, minor, words.next()?, words.next()?.parse().ok()?)
    };
    text.lines().filter_map(entry).collect()
}

/// Lines such as `8:0 rbytes=4096 wbytes=0 rios=1 wios=0`.
fn io_stat(text: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut bytes, mut counts) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some((major, minor)) = words.next().and_then(|word| word.split_once(':')) else {
            continue;
        };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let (list, operation) = match key {
                "rbytes" => (&mut bytes, "Read"),
                "wbytes" => (&mut bytes, "Write"),
                "dbytes" => (&mut bytes, "Discard"),
                "rios" => (&mut counts, "Read"),
                "wios" => (&mut counts, "Write"),
                "dios" => (&mut counts, "Discard"),
                _ => continue,
            };
            list.extend(value.parse().ok().and_then(|value| entry(major, minor, operation, value)));
        }
    }
    (bytes, counts)
}

fn entry(major: &str, minor: &str, operation: &str, value: u64) -> Option<Value> {
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    Some(json!({ "major": major, "minor": minor, "op": operation, "value": value }))
}

fn hugetlb(dir: &Path, unified: bool) -> Value {
    let end = if unified { ".current" } else { ".usage_in_bytes" };
    let mut found = Map::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let size = name.strip_prefix("hugetlb.").and_then(|rest| rest.strip_suffix(end));
        let Some(size) = size.filter(|size| !size.contains('.')) else { continue };
        let (most, failures) = match unified {
            true => {
                let events = text(dir, &format!("hugetlb.{size}.events"));
                (0, file::value(&events, "max").unwrap_or(0))
            }
            false => (
                number(dir, &format!("hugetlb.{size}.max_usage_in_bytes")),
                number(dir, &format!("hugetlb.{size}.failcnt")),
            ),
        };
        let usage = number(dir, &name);
        found.insert(size.to_owned(), json!({ "usage": usage, "max": most, "failcnt": failures }));
    }
    found.into()
}

/// Pressure stall information of version 2, see the kernel's psi.rst.
fn put_pressure(into: &mut Map<String, Value>, places: &[Place], name: &str) {
    let place = places.iter().find(|place| place.unified);
    let text = place.map(|place| text(&place.dir, name)).unwrap_or_default();
    let pressure = pressure(&text);
    if !pressure.is_empty() {
        into.insert("psi".to_owned(), pressure.into());
    }
}

fn pressure(text: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some(kind) = words.next() else { continue };
        let pairs = words.filter_map(|word| word.split_once('='));
        let values: Map<String, Value> = pairs
            .filter_map(|(key, value)| Some((key.to_owned(), serde_json::from_str(value).ok()?)))
            .collect();
        found.insert(kind.to_owned(), values.into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        assert_eq!(
            counted("8:0 Read 5\n8:0 Total 5\nTotal 5"),
            [entry("8", "0", "Read", 5), entry("8", "0", "Total", 5)].map(Option::unwrap)
        );
        let (bytes, counts) = io_stat("8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\nx");
        assert_eq!((bytes.len(), counts.len()), (3, 3));
        assert_eq!(Some(&bytes[1]), entry("8", "16", "Write", 2).as_ref());
        assert_eq!(range("2-4").map(|range| range.count()), Some(3));
        let text = "some avg10=0.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=3";
        assert_eq!(pressure(text)["some"]["avg10"], 0.5);
        assert_eq!(pressure(text)["full"]["total"], 3);
    }
}
