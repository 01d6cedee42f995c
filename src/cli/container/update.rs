//! `update`: limits from a document or from flags.

use std::io::Read;

use serde_json::{Value, json};

use super::args::UpdateArgs;
use crate::oci::runtime::Runtime;
use crate::oci::{Context, Error, Result, bundle, lifecycle};

/// `update`.
///
/// # Errors
///
/// A document or size that is none; as [`lifecycle::update`].
pub fn update(runtime: &Runtime<'_>, args: &UpdateArgs) -> Result<()> {
    let document = match &args.resources {
        Some(path) => from_file(path)?,
        None => from_flags(args)?,
    };
    let resources = serde_json::from_value(document).context("--resources")?;
    if args.kernel_memory.is_some() || args.kernel_memory_tcp.is_some() {
        runtime.warn("--kernel-memory is ignored: kernels have no such limit any more");
    }
    lifecycle::update(runtime, &args.id, &resources)
}

fn from_file(path: &std::path::Path) -> Result<Value> {
    let text = if path.as_os_str() == "-" {
        let mut text = Vec::new();
        std::io::stdin().take(1 << 20).read_to_end(&mut text).context("standard input")?;
        text
    } else {
        bundle::bytes(path)?
    };
    serde_json::from_slice(&text).context("--resources")
}

fn from_flags(args: &UpdateArgs) -> Result<Value> {
    let mut document = json!({});
    let mut set = |section: &str, key: &str, value: Option<Value>| {
        if let Some(value) = value {
            document[section][key] = value;
        }
    };
    let size = |flag: &str, text: &Option<String>| {
        text.as_deref().map(|text| bytes(text).context(flag).map(Value::from)).transpose()
    };
    set("memory", "limit", size("--memory", &args.memory)?);
    set("memory", "reservation", size("--memory-reservation", &args.memory_reservation)?);
    set("memory", "swap", size("--memory-swap", &args.memory_swap)?);
    set("cpu", "shares", args.cpu_share.map(Value::from));
    set("cpu", "quota", args.cpu_quota.map(Value::from));
    set("cpu", "burst", args.cpu_burst.map(Value::from));
    set("cpu", "period", args.cpu_period.map(Value::from));
    set("cpu", "realtimeRuntime", args.cpu_rt_runtime.map(Value::from));
    set("cpu", "realtimePeriod", args.cpu_rt_period.map(Value::from));
    set("cpu", "cpus", args.cpuset_cpus.clone().map(Value::from));
    set("cpu", "mems", args.cpuset_mems.clone().map(Value::from));
    set("cpu", "idle", args.cpu_idle.map(Value::from));
    set("pids", "limit", args.pids_limit.map(Value::from));
    set("blockIO", "weight", args.blkio_weight.map(Value::from));
    Ok(document)
}

/// A size in bytes, with a unit of 1024 as engines write it; -1 is no limit.
fn bytes(text: &str) -> Result<i64> {
    let no = || Error::new(format!("{text:?} is no size like 64m"));
    if text.trim() == "-1" {
        return Ok(-1);
    }
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 10),
        Some(b'm') => (&lower[..lower.len() - 1], 20),
        Some(b'g') => (&lower[..lower.len() - 1], 30),
        Some(b't') => (&lower[..lower.len() - 1], 40),
        _ => (lower, 0),
    };
    let number: i64 = digits.trim().parse().map_err(|_| no())?;
    number.checked_mul(1 << shift).filter(|size| *size >= 0).ok_or_else(no)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size) in
            [("0", 0), ("-1", -1), ("64m", 64 << 20), ("1GiB", 1 << 30), ("2KB", 2048), ("7b", 7)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for bad in ["", "m", "-2", "1.5g", "9999999t", "64x"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_become_the_document() {
        let args =
            UpdateArgs { memory: Some("64m".into()), pids_limit: Some(-1), ..Default::default() };
        let expected = json!({"memory": {"limit": 64 << 20}, "pids": {"limit": -1}});
        assert_eq!(from_flags(&args), Ok(expected));
    }
}
