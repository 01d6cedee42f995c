//! `linux.resources.memory`.

use oci_spec::runtime::LinuxMemory;
use rustix::io::Errno;

use super::file;
use super::limits::{Limits, Target, given, refused, unlimited};
use crate::oci::{Error, Result};

const LIMIT: &str = "memory.limit_in_bytes";
const SWAP: &str = "memory.memsw.limit_in_bytes";

/// Sets what is given.
///
/// # Errors
///
/// The field that cannot be had.
#[allow(deprecated)]
pub fn set(limits: &mut Limits<'_, '_>, memory: &LinuxMemory) -> Result<()> {
    let fields = [
        ("memory.limit", given(memory.limit()).is_some()),
        ("memory.swap", given(memory.swap()).is_some()),
        ("memory.reservation", given(memory.reservation()).is_some()),
        ("memory.kernel", given(memory.kernel()).is_some()),
        ("memory.kernelTCP", given(memory.kernel_tcp()).is_some()),
        ("memory.swappiness", memory.swappiness().is_some()),
        ("memory.disableOOMKiller", memory.disable_oom_killer() == Some(true)),
        ("memory.useHierarchy", memory.use_hierarchy().is_some()),
    ];
    let Some((first, _)) = fields.iter().find(|(_, given)| *given) else { return Ok(()) };
    let Some(target) = limits.target(first, "memory")? else { return Ok(()) };
    if memory.check_before_update() == Some(true) {
        check(&target, memory)?;
    }
    match target.unified {
        true => set_unified(&target, memory),
        false => set_separate(&target, memory),
    }
}

/// Refuses a limit that is below what is in use: without this the kernel of version 2 ends processes.
fn check(target: &Target<'_>, memory: &LinuxMemory) -> Result<()> {
    let usage = if target.unified { "memory.current" } else { "memory.usage_in_bytes" };
    let (Some(limit), Some(usage)) = (given(memory.limit()), file::number(target.dir, usage))
    else {
        return Ok(());
    };
    match u64::try_from(limit) {
        Ok(limit) if limit < usage => {
            Err(refused("memory.limit", format!("{limit} is less than the {usage} in use")))
        }
        _ => Ok(()),
    }
}

fn set_unified(target: &Target<'_>, memory: &LinuxMemory) -> Result<()> {
    if let Some(swap) = swap_alone(target, memory)? {
        match file::write(target.dir, "memory.swap.max", &swap) {
            // Without swap accounting there is nothing to be had, and nothing is asked for.
            Err(Errno::NOENT) if swap == "max" || swap == "0" => {}
            Err(errno) => {
                return Err(target.failed("memory.swap", "memory.swap.max", &swap, errno));
            }
            Ok(()) => {}
        }
    }
    if let Some(limit) = given(memory.limit()) {
        target.set("memory.limit", "memory.max", &unlimited(limit))?;
    }
    if let Some(low) = given(memory.reservation()) {
        target.set("memory.reservation", "memory.low", &unlimited(low))?;
    }
    unsupported(memory)
}

/// What version 2 has no file for.
#[allow(deprecated)]
fn unsupported(memory: &LinuxMemory) -> Result<()> {
    let asked = [
        ("memory.kernel", given(memory.kernel()).is_some()),
        ("memory.kernelTCP", given(memory.kernel_tcp()).is_some()),
        ("memory.swappiness", memory.swappiness().is_some()),
        ("memory.disableOOMKiller", memory.disable_oom_killer() == Some(true)),
        ("memory.useHierarchy", memory.use_hierarchy() == Some(false)),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((field, _)) => Err(refused(field, "cgroup version 2 has no such setting")),
        None => Ok(()),
    }
}

/// `memory.swap` is memory and swap together; version 2 limits swap alone.
fn swap_alone(target: &Target<'_>, memory: &LinuxMemory) -> Result<Option<String>> {
    let limit = given(memory.limit());
    let Some(both) = given(memory.swap()) else {
        // As version 1 has it: no limit for memory is none for swap.
        return Ok((limit == Some(-1)).then(|| "max".to_owned()));
    };
    let limit = match limit {
        Some(limit) => limit,
        // Only the sum is updated: the limit stays what it is.
        None => file::number(target.dir, "memory.max")
            .and_then(|limit| i64::try_from(limit).ok())
            .unwrap_or(-1),
    };
    difference(both, limit).map(Some)
}

fn difference(both: i64, limit: i64) -> Result<String> {
    match (both, limit) {
        (..0, _) | (_, ..0) => Ok(unlimited(both)),
        _ if both < limit => {
            Err(refused("memory.swap", format!("{both} is less than the limit of memory, {limit}")))
        }
        _ => Ok((both - limit).to_string()),
    }
}

#[allow(deprecated)]
fn set_separate(target: &Target<'_>, memory: &LinuxMemory) -> Result<()> {
    let limit = given(memory.limit());
    let mut swap = given(memory.swap());
    if limit == Some(-1) && swap.is_none() && target.dir.join(SWAP).exists() {
        swap = Some(-1);
    }
    // The kernel holds the limit below the sum at every moment: what grows goes first.
    let grows = match (limit, swap) {
        (Some(_), Some(swap)) => match u64::try_from(swap) {
            Ok(swap) => file::number(target.dir, LIMIT).is_some_and(|now| now < swap),
            Err(_) => true,
        },
        _ => false,
    };
    let set_swap = || match swap {
        Some(swap) => target.set("memory.swap", SWAP, &swap.to_string()),
        None => Ok(()),
    };
    if grows {
        set_swap()?;
    }
    if let Some(limit) = limit {
        set_limit(target, limit)?;
    }
    if !grows {
        set_swap()?;
    }
    let numbers = [
        ("memory.reservation", "memory.soft_limit_in_bytes", given(memory.reservation())),
        ("memory.kernel", "memory.kmem.limit_in_bytes", given(memory.kernel())),
        ("memory.kernelTCP", "memory.kmem.tcp.limit_in_bytes", given(memory.kernel_tcp())),
        ("memory.useHierarchy", "memory.use_hierarchy", memory.use_hierarchy().map(i64::from)),
    ];
    for (field, name, number) in numbers {
        if let Some(number) = number {
            target.set(field, name, &number.to_string())?;
        }
    }
    if let Some(swappiness) = memory.swappiness() {
        target.set("memory.swappiness", "memory.swappiness", &swappiness.to_string())?;
    }
    if let Some(off) = memory.disable_oom_killer() {
        // New cgroups have the killer: the file is touched to change that, and to update it.
        let is_off = file::read(target.dir, "memory.oom_control")?
            .and_then(|text| file::value(&text, "oom_kill_disable"));
        if is_off != Some(u64::from(off)) {
            let text = if off { "1" } else { "0" };
            target.set("memory.disableOOMKiller", "memory.oom_control", text)?;
        }
    }
    Ok(())
}

fn set_limit(target: &Target<'_>, limit: i64) -> Result<()> {
    match file::write(target.dir, LIMIT, &limit.to_string()) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(busy(target, limit)),
        Err(errno) => Err(target.failed("memory.limit", LIMIT, &limit.to_string(), errno)),
    }
}

fn busy(target: &Target<'_>, limit: i64) -> Error {
    let usage = file::number(target.dir, "memory.usage_in_bytes").unwrap_or_default();
    let most = file::number(target.dir, "memory.max_usage_in_bytes").unwrap_or_default();
    refused("memory.limit", format!("cannot be {limit}: {usage} are in use, {most} at most"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_what_the_sum_leaves() {
        let of = |both, limit| difference(both, limit).ok();
        assert_eq!(of(3000, 1000).as_deref(), Some("2000"));
        assert_eq!(of(1000, 1000).as_deref(), Some("0"));
        assert_eq!(of(-1, 1000).as_deref(), Some("max"));
        assert_eq!(of(3000, -1).as_deref(), Some("3000"));
        assert_eq!(of(999, 1000), None);
    }
}
