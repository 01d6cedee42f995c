//! `linux.resources.blockIO`.

use oci_spec::runtime::{LinuxBlockIo, LinuxThrottleDevice, LinuxWeightDevice};

use super::limits::{Limits, Target, given, refused};
use crate::oci::Result;

/// Sets what is given.
///
/// # Errors
///
/// The field that cannot be had.
pub fn set(limits: &mut Limits<'_, '_>, block: &LinuxBlockIo) -> Result<()> {
    let none = Vec::new();
    let throttles = throttles(block);
    let weights = block.weight_device().as_ref().unwrap_or(&none);
    let fields = [
        ("blockIO.weight", given(block.weight()).is_some()),
        ("blockIO.leafWeight", given(block.leaf_weight()).is_some()),
        ("blockIO.weightDevice", !weights.is_empty()),
    ];
    let mut asked = fields
        .into_iter()
        .filter(|(_, asked)| *asked)
        .map(|(field, _)| field)
        .chain(throttles.iter().filter(|t| !t.devices.is_empty()).map(|t| t.field));
    let Some(first) = asked.next() else { return Ok(()) };
    let controller = if limits.separate("blkio").is_some() { "blkio" } else { "io" };
    let Some(target) = limits.target(first, controller)? else { return Ok(()) };
    if let Some(weight) = given(block.weight()) {
        let name = weight_file(&target);
        target.set("blockIO.weight", name, &weight_text(name, weight))?;
    }
    if let Some(weight) = given(block.leaf_weight()) {
        leaf(&target, "blockIO.leafWeight")?;
        target.set("blockIO.leafWeight", "blkio.leaf_weight", &weight.to_string())?;
    }
    for device in weights {
        set_device(&target, device)?;
    }
    for throttle in throttles {
        for device in throttle.devices {
            let (major, minor, rate) = (device.major(), device.minor(), device.rate());
            let (name, text) = match target.unified {
                // 0 is no limit: version 2 has a word for it.
                true if rate == 0 => ("io.max", format!("{major}:{minor} {}=max", throttle.key)),
                true => ("io.max", format!("{major}:{minor} {}={rate}", throttle.key)),
                false => (throttle.file, format!("{major}:{minor} {rate}")),
            };
            target.set(throttle.field, name, &text)?;
        }
    }
    Ok(())
}

/// One of the four kinds of rates.
struct Throttle<'a> {
    field: &'static str,
    /// The file of version 1.
    file: &'static str,
    /// The key in `io.max` of version 2.
    key: &'static str,
    devices: &'a [LinuxThrottleDevice],
}

fn throttles(block: &LinuxBlockIo) -> [Throttle<'_>; 4] {
    fn devices(list: &Option<Vec<LinuxThrottleDevice>>) -> &[LinuxThrottleDevice] {
        list.as_deref().unwrap_or_default()
    }
    [
        Throttle {
            field: "blockIO.throttleReadBpsDevice",
            file: "blkio.throttle.read_bps_device",
            key: "rbps",
            devices: devices(block.throttle_read_bps_device()),
        },
        Throttle {
            field: "blockIO.throttleWriteBpsDevice",
            file: "blkio.throttle.write_bps_device",
            key: "wbps",
            devices: devices(block.throttle_write_bps_device()),
        },
        Throttle {
            field: "blockIO.throttleReadIOPSDevice",
            file: "blkio.throttle.read_iops_device",
            key: "riops",
            devices: devices(block.throttle_read_iops_device()),
        },
        Throttle {
            field: "blockIO.throttleWriteIOPSDevice",
            file: "blkio.throttle.write_iops_device",
            key: "wiops",
            devices: devices(block.throttle_write_iops_device()),
        },
    ]
}

fn set_device(target: &Target<'_>, device: &LinuxWeightDevice) -> Result<()> {
    let field = "blockIO.weightDevice";
    let (major, minor) = (device.major(), device.minor());
    if let Some(weight) = given(device.weight()) {
        let name = match (target.unified, weight_file(target)) {
            (false, "blkio.weight") => "blkio.weight_device",
            (false, _) => "blkio.bfq.weight_device",
            (true, name) => name,
        };
        target.set(field, name, &format!("{major}:{minor} {}", weight_text(name, weight)))?;
    }
    if let Some(weight) = given(device.leaf_weight()) {
        leaf(target, field)?;
        let text = format!("{major}:{minor} {weight}");
        target.set(field, "blkio.leaf_weight_device", &text)?;
    }
    Ok(())
}

fn leaf(target: &Target<'_>, field: &str) -> Result<()> {
    match target.unified {
        true => Err(refused(field, "cgroup version 2 has no leaf weights")),
        false => Ok(()),
    }
}

/// The file for weights of the scheduler that the kernel has. With BFQ that is its own.
fn weight_file(target: &Target<'_>) -> &'static str {
    let has = |name: &str| target.dir.join(name).exists();
    match target.unified {
        true if has("io.bfq.weight") => "io.bfq.weight",
        true => "io.weight",
        false if has("blkio.weight") => "blkio.weight",
        false => "blkio.bfq.weight",
    }
}

/// The document counts from 10 to 1000, as version 1 does, and BFQ from 1; `io.weight` to 10000.
fn weight_text(name: &str, weight: u16) -> String {
    match name {
        "io.weight" => converted(weight).to_string(),
        _ => weight.to_string(),
    }
}

fn converted(weight: u16) -> u64 {
    1 + u64::from(weight.max(10) - 10) * 9999 / 990
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_ends() {
        assert_eq!([0, 10, 500, 1000].map(converted), [1, 1, 4950, 10_000]);
        assert_eq!(weight_text("io.bfq.weight", 500), "500");
    }
}
