//! `linux.resources.cpu`.

use oci_spec::runtime::LinuxCpu;

use super::file;
use super::limits::{Limits, Target, given, refused};
use crate::oci::Result;

/// The kernel's period where none is given, in microseconds.
const PERIOD: u64 = 100_000;

/// Sets what is given.
///
/// # Errors
///
/// The field that cannot be had.
pub fn set(limits: &mut Limits<'_, '_>, cpu: &LinuxCpu) -> Result<()> {
    let time = [
        ("cpu.shares", given(cpu.shares()).is_some()),
        ("cpu.quota", given(cpu.quota()).is_some()),
        ("cpu.period", given(cpu.period()).is_some()),
        ("cpu.burst", cpu.burst().is_some()),
        ("cpu.idle", cpu.idle().is_some()),
        ("cpu.realtimeRuntime", given(cpu.realtime_runtime()).is_some()),
        ("cpu.realtimePeriod", given(cpu.realtime_period()).is_some()),
    ];
    if let Some((first, _)) = time.iter().find(|(_, given)| *given)
        && let Some(target) = limits.target(first, "cpu")?
    {
        match target.unified {
            true => set_unified(&target, cpu)?,
            false => set_separate(&target, cpu)?,
        }
    }
    // The same file names in both versions.
    for (field, name, text) in
        [("cpu.cpus", "cpuset.cpus", cpu.cpus()), ("cpu.mems", "cpuset.mems", cpu.mems())]
    {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { continue };
        if let Some(target) = limits.target(field, "cpuset")? {
            target.set(field, name, text)?;
        }
    }
    Ok(())
}

fn set_separate(target: &Target<'_>, cpu: &LinuxCpu) -> Result<()> {
    if let Some(idle) = cpu.idle() {
        target.set("cpu.idle", "cpu.idle", &idle.to_string())?;
    }
    if let Some(shares) = given(cpu.shares()).filter(|_| cpu.idle() != Some(1)) {
        target.set("cpu.shares", "cpu.shares", &shares.to_string())?;
    }
    let mut wanted = Vec::new();
    let mut want = |field, name, text: Option<String>| {
        if let Some(text) = text {
            wanted.push((field, name, text));
        }
    };
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    want("cpu.period", "cpu.cfs_period_us", text(given(cpu.period())));
    want(
        "cpu.quota",
        "cpu.cfs_quota_us",
        given(cpu.quota()).map(|quota| quota.max(-1).to_string()),
    );
    want("cpu.burst", "cpu.cfs_burst_us", text(cpu.burst()));
    want("cpu.realtimePeriod", "cpu.rt_period_us", text(given(cpu.realtime_period())));
    let runtime = given(cpu.realtime_runtime()).map(|runtime| runtime.to_string());
    want("cpu.realtimeRuntime", "cpu.rt_runtime_us", runtime);
    target.set_together(wanted)
}

fn set_unified(target: &Target<'_>, cpu: &LinuxCpu) -> Result<()> {
    for (field, asked) in [
        ("cpu.realtimeRuntime", given(cpu.realtime_runtime()).is_some()),
        ("cpu.realtimePeriod", given(cpu.realtime_period()).is_some()),
    ] {
        if asked {
            return Err(refused(field, "cgroup version 2 has no such setting"));
        }
    }
    if let Some(idle) = cpu.idle() {
        target.set("cpu.idle", "cpu.idle", &idle.to_string())?;
    }
    if let Some(shares) = given(cpu.shares()).filter(|_| cpu.idle() != Some(1)) {
        target.set("cpu.shares", "cpu.weight", &weight(shares).to_string())?;
    }
    let mut wanted = Vec::new();
    if given(cpu.quota()).is_some() || given(cpu.period()).is_some() {
        let now = file::read(target.dir, "cpu.max")?.unwrap_or_default();
        wanted.push(("cpu.quota", "cpu.max", maximum(&now, cpu.quota(), cpu.period())));
    }
    if let Some(burst) = cpu.burst() {
        wanted.push(("cpu.burst", "cpu.max.burst", burst.to_string()));
    }
    target.set_together(wanted)
}

/// The text of `cpu.max`: what is not given stays as it is now.
fn maximum(now: &str, quota: Option<i64>, period: Option<u64>) -> String {
    let mut words = now.split(' ');
    let (old_quota, old_period) = (words.next().unwrap_or("max"), words.next());
    let quota = match given(quota) {
        Some(quota) if quota > 0 => quota.to_string(),
        Some(_) => "max".to_owned(),
        None if old_quota.is_empty() => "max".to_owned(),
        None => old_quota.to_owned(),
    };
    let period = given(period)
        .or_else(|| old_period.and_then(|period| period.parse().ok()))
        .unwrap_or(PERIOD);
    format!("{quota} {period}")
}

/// `cpu.weight` (1 to 10000, usually 100) for `cpu.shares` (2 to 262144, usually 1024): the smallest, the
/// usual and the largest of one are those of the other, and what is between is a parabola of the
/// logarithms, as other runtimes have it.
pub fn weight(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    10f64.powf(exponent).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights() {
        let pairs: Vec<u64> =
            [0, 1, 2, 1024, 2048, 4096, 262_144, u64::MAX].into_iter().map(weight).collect();
        assert_eq!(pairs, [1, 1, 1, 100, 174, 303, 10_000, 10_000]);
        let all: Vec<u64> = (2..=262_144).map(weight).collect();
        assert!(all.is_sorted());
    }

    #[test]
    fn half_an_update_keeps_the_other_half() {
        assert_eq!(maximum("max 100000", Some(5000), None), "5000 100000");
        assert_eq!(maximum("5000 20000", None, Some(10_000)), "5000 10000");
        assert_eq!(maximum("5000 20000", Some(-1), None), "max 20000");
        assert_eq!(maximum("", Some(5000), None), "5000 100000");
    }
}
