//! `linux.resources`: `pids`, `hugepageLimits`, `network`, `rdma` and `unified`.

use std::collections::HashMap;

use oci_spec::runtime::{LinuxHugepageLimit, LinuxNetwork, LinuxPids, LinuxRdma, LinuxResources};
use rustix::io::Errno;

use super::file;
use super::limits::{Limits, given, refused, unlimited};
use crate::oci::Result;

/// Sets what is given.
///
/// # Errors
///
/// The field that cannot be had.
pub fn set(limits: &mut Limits<'_, '_>, resources: &LinuxResources) -> Result<()> {
    if let Some(pids) = resources.pids() {
        set_pids(limits, pids)?;
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        set_hugepages(limits, limit)?;
    }
    if let Some(network) = resources.network() {
        set_network(limits, network)?;
    }
    if let Some(rdma) = resources.rdma() {
        set_rdma(limits, rdma)?;
    }
    match resources.unified() {
        Some(files) => set_files(limits, files),
        None => Ok(()),
    }
}

fn set_pids(limits: &mut Limits<'_, '_>, pids: &LinuxPids) -> Result<()> {
    let Some(limit) = given(Some(pids.limit())) else { return Ok(()) };
    match limits.target("pids.limit", "pids")? {
        Some(target) => target.set("pids.limit", "pids.max", &unlimited(limit)),
        None => Ok(()),
    }
}

fn set_hugepages(limits: &mut Limits<'_, '_>, limit: &LinuxHugepageLimit) -> Result<()> {
    let field = "hugepageLimits";
    let size = limit.page_size();
    if !is_page_size(size) {
        return Err(refused(field, format!("`{size}` is no page size such as 2MB")));
    }
    let Some(target) = limits.target(field, "hugetlb")? else { return Ok(()) };
    let (end, text) = match target.unified {
        true => ("max", unlimited(limit.limit())),
        false => ("limit_in_bytes", limit.limit().to_string()),
    };
    target.set(field, &format!("hugetlb.{size}.{end}"), &text)?;
    // Reservations are limited too where the kernel can (Linux 5.7), which fails the mmap(2) and not the
    // access.
    let reserved = format!("hugetlb.{size}.rsvd.{end}");
    match file::write(target.dir, &reserved, &text) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(target.failed(field, &reserved, &text, errno)),
    }
}

/// It becomes part of a file's name.
fn is_page_size(size: &str) -> bool {
    let number = size.strip_suffix("KB").or(size.strip_suffix("MB")).or(size.strip_suffix("GB"));
    number.is_some_and(|n| {
        !n.is_empty() && !n.starts_with('0') && n.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn set_network(limits: &mut Limits<'_, '_>, network: &LinuxNetwork) -> Result<()> {
    if let Some(class) = given(network.class_id())
        && let Some(target) = limits.target("network.classID", "net_cls")?
    {
        target.set("network.classID", "net_cls.classid", &class.to_string())?;
    }
    for priority in network.priorities().iter().flatten() {
        let field = "network.priorities";
        if let Some(target) = limits.target(field, "net_prio")? {
            let text = format!("{} {}", priority.name(), priority.priority());
            target.set(field, "net_prio.ifpriomap", &text)?;
        }
    }
    Ok(())
}

fn set_rdma(limits: &mut Limits<'_, '_>, rdma: &HashMap<String, LinuxRdma>) -> Result<()> {
    for (device, limit) in rdma {
        let field = format!("rdma.{device}");
        let Some(target) = limits.target(&field, "rdma")? else { continue };
        let mut text = device.clone();
        for (key, count) in
            [("hca_handle", limit.hca_handles()), ("hca_object", limit.hca_objects())]
        {
            if let Some(count) = count {
                text.push_str(&format!(" {key}={count}"));
            }
        }
        target.set(&field, "rdma.max", &text)?;
    }
    Ok(())
}

/// Files of version 2 by their names: what the document has no field for. They come last, and win.
fn set_files(limits: &mut Limits<'_, '_>, files: &HashMap<String, String>) -> Result<()> {
    let mut names: Vec<&String> = files.keys().collect();
    names.sort();
    for name in names {
        let field = format!("unified.{name}");
        let Some((controller, _)) = name.split_once('.').filter(|_| !name.contains('/')) else {
            return Err(refused(&field, "no name of a cgroup file"));
        };
        let target = match controller {
            "cgroup" => limits.unified_target(&field)?,
            _ => limits.target(&field, controller)?,
        };
        let Some(target) = target else { continue };
        if !target.unified {
            limits.without(&field, "the controller is not in a cgroup of version 2 here")?;
            continue;
        }
        // The kernel takes one line in one write.
        for line in files[name].lines() {
            target.set(&field, name, line)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_no_paths() {
        for size in ["2MB", "1GB", "64KB"] {
            assert!(is_page_size(size), "{size}");
        }
        for size in ["", "MB", "0MB", "02MB", "../x/2MB", "2mb", "2MB/..", "-2MB"] {
            assert!(!is_page_size(size), "{size}");
        }
    }
}
