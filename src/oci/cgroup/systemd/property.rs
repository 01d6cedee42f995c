//! `linux.resources` as properties of a unit, see systemd.resource-control(5).
//!
//! The limits are written to the files as well, which says more; but what systemd does not know of, it takes
//! back when it is reloaded.

use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxResources};

use super::super::cpu::weight;
use super::super::devices;
use super::super::limits::{given, refused};
use super::wire::Value;
use crate::oci::Result;

/// A property of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

impl Property {
    /// A property.
    pub fn new(name: &str, value: Value) -> Property {
        Property { name: name.to_owned(), value }
    }
}

/// Properties as an argument of a call.
pub fn array(properties: Vec<Property>) -> Value {
    let pair = |property: Property| {
        Value::Tuple(vec![Value::Text(property.name), Value::Variant(Box::new(property.value))])
    };
    Value::Array("(sv)".to_owned(), properties.into_iter().map(pair).collect())
}

/// `infinity`
fn unlimited(limit: i64) -> u64 {
    u64::try_from(limit).unwrap_or(u64::MAX)
}

/// The properties for what is given.
///
/// # Errors
///
/// A list of processors that is none.
pub fn of(resources: &LinuxResources, unified: bool) -> Result<Vec<Property>> {
    let mut found = Vec::new();
    if let Some(memory) = resources.memory() {
        found.extend(of_memory(memory, unified));
    }
    if let Some(cpu) = resources.cpu() {
        found.extend(of_cpu(cpu, unified)?);
    }
    if let Some(limit) = resources.pids().as_ref().and_then(|pids| given(Some(pids.limit()))) {
        found.push(Property::new("TasksMax", Value::U64(unlimited(limit))));
    }
    if let Some(weight) = resources.block_io().as_ref().and_then(|block| given(block.weight()))
        && !unified
    {
        found.push(Property::new("BlockIOWeight", Value::U64(u64::from(weight))));
    }
    if unified {
        found.extend(of_files(resources));
    } else if let Some(rules) = resources.devices()
        && let Some(allowed) = devices::systemd(rules)?
    {
        // In version 1 a reload would open every device again. In version 2 our program stays beside
        // what systemd attaches.
        let pair = |(device, access)| Value::Tuple(vec![Value::Text(device), Value::Text(access)]);
        let allowed = allowed.into_iter().map(pair).collect();
        found.push(Property::new("DevicePolicy", Value::text("strict")));
        found.push(Property::new("DeviceAllow", Value::Array("(ss)".to_owned(), allowed)));
    }
    Ok(found)
}

fn of_memory(memory: &LinuxMemory, unified: bool) -> Vec<Property> {
    let mut found = Vec::new();
    let mut add = |name, limit: Option<i64>| {
        if let Some(limit) = limit {
            found.push(Property::new(name, Value::U64(unlimited(limit))));
        }
    };
    let limit = given(memory.limit());
    if !unified {
        add("MemoryLimit", limit);
        return found;
    }
    add("MemoryMax", limit);
    add("MemoryLow", given(memory.reservation()));
    add(
        "MemorySwapMax",
        match (given(memory.swap()), limit) {
            (Some(both), Some(limit)) if both >= limit && limit >= 0 => Some(both - limit),
            (Some(..0), _) | (None, Some(..0)) => Some(-1),
            // What only the files can say, or an error that comes from them.
            _ => None,
        },
    );
    found
}

fn of_cpu(cpu: &LinuxCpu, unified: bool) -> Result<Vec<Property>> {
    const PERIOD: u64 = 100_000;
    let mut found = Vec::new();
    match (given(cpu.shares()), unified) {
        (Some(shares), true) => {
            found.push(Property::new("CPUWeight", Value::U64(weight(shares))));
        }
        (Some(shares), false) => found.push(Property::new("CPUShares", Value::U64(shares))),
        (None, _) => {}
    }
    let period = given(cpu.period());
    if let Some(period) = period {
        found.push(Property::new("CPUQuotaPeriodUSec", Value::U64(period)));
    }
    if let Some(quota) = given(cpu.quota()) {
        let second = match u64::try_from(quota) {
            // systemd counts in hundredths of a second; less than what is asked for would be wrong.
            Ok(quota) => (quota.saturating_mul(1_000_000) / period.unwrap_or(PERIOD))
                .checked_next_multiple_of(10_000)
                .unwrap_or(u64::MAX),
            Err(_) => u64::MAX,
        };
        found.push(Property::new("CPUQuotaPerSecUSec", Value::U64(second)));
    }
    if unified {
        for (field, name, list) in [
            ("cpu.cpus", "AllowedCPUs", cpu.cpus()),
            ("cpu.mems", "AllowedMemoryNodes", cpu.mems()),
        ] {
            let Some(list) = list.as_deref().filter(|list| !list.is_empty()) else { continue };
            let mask = mask(list).ok_or_else(|| refused(field, format!("`{list}` is no list")))?;
            let bytes = mask.into_iter().map(Value::Byte).collect();
            found.push(Property::new(name, Value::Array("y".to_owned(), bytes)));
        }
    }
    Ok(found)
}

/// Files of version 2 that systemd has a property for.
fn of_files(resources: &LinuxResources) -> Vec<Property> {
    let names = [
        ("memory.min", "MemoryMin"),
        ("memory.low", "MemoryLow"),
        ("memory.high", "MemoryHigh"),
        ("memory.max", "MemoryMax"),
        ("memory.swap.max", "MemorySwapMax"),
        ("pids.max", "TasksMax"),
        ("cpu.weight", "CPUWeight"),
    ];
    let Some(files) = resources.unified() else { return Vec::new() };
    let property = |(file, name): (&str, &str)| {
        let limit = match files.get(file)?.trim() {
            "max" => u64::MAX,
            text => text.parse().ok()?,
        };
        Some(Property::new(name, Value::U64(limit)))
    };
    names.into_iter().filter_map(property).collect()
}

/// A list as `0-2,5`, as the bytes of a mask, the lowest first.
fn mask(list: &str) -> Option<Vec<u8>> {
    const MOST: usize = 8192;
    let mut mask = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        for bit in first..=last {
            if mask.len() <= bit / 8 {
                mask.resize(bit / 8 + 1, 0);
            }
            mask[bit / 8] |= 1 << (bit % 8);
        }
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(text: &str, unified: bool) -> Vec<(String, Value)> {
        let resources: LinuxResources = serde_json::from_str(text).expect("resources");
        let found = of(&resources, unified).expect("properties");
        found.into_iter().map(|property| (property.name, property.value)).collect()
    }

    #[test]
    fn limits_are_properties() {
        let text = r#"{"memory":{"limit":1000,"swap":3000,"reservation":500},
            "cpu":{"shares":1024,"quota":15000,"period":100000,"cpus":"0-2,9"},"pids":{"limit":-1},
            "unified":{"memory.high":"900"}}"#;
        let number = |name: &str, number| (name.to_owned(), Value::U64(number));
        let cpus = Value::Array("y".to_owned(), vec![Value::Byte(7), Value::Byte(2)]);
        assert_eq!(
            properties(text, true),
            [
                number("MemoryMax", 1000),
                number("MemoryLow", 500),
                number("MemorySwapMax", 2000),
                number("CPUWeight", 100),
                number("CPUQuotaPeriodUSec", 100_000),
                number("CPUQuotaPerSecUSec", 150_000),
                ("AllowedCPUs".to_owned(), cpus),
                number("TasksMax", u64::MAX),
                number("MemoryHigh", 900),
            ]
        );
        assert_eq!(
            properties(text, false)[..2],
            [number("MemoryLimit", 1000), number("CPUShares", 1024)]
        );
    }

    #[test]
    fn lists_are_masks() {
        assert_eq!(mask("0,3-4"), Some(vec![0b11001]));
        assert_eq!(mask("8"), Some(vec![0, 1]));
        for bad in ["", "a", "3-1", "0-99999999", "-1", "1-"] {
            assert_eq!(mask(bad), None, "{bad}");
        }
    }
}
