//! User and group ids of a new user namespace.

use std::fmt::Write;
use std::process::Command;

use oci_spec::runtime::{LinuxIdMapping, Spec};
use rustix::io::Errno;
use rustix::process::{Pid, getegid, geteuid};

use super::{Context, Error, Result};

/// Writes the document's mappings for process `pid`, which is in a new user namespace; where the kernel
/// does not let us, newuidmap(1) and newgidmap(1) do.
///
/// # Errors
///
/// Where neither can, and why.
pub fn write(spec: &Spec, pid: Pid) -> Result<()> {
    let linux = spec.linux().as_ref();
    let uids = linux.and_then(|linux| linux.uid_mappings().as_deref()).unwrap_or_default();
    let gids = linux.and_then(|linux| linux.gid_mappings().as_deref()).unwrap_or_default();
    let root = geteuid().is_root();
    let only = |maps: &[LinuxIdMapping], own| matches!(maps, [map] if map.size() == 1 && map.host_id() == own);
    let (own_uid, own_gid) = (only(uids, geteuid().as_raw()), only(gids, getegid().as_raw()));
    let number = pid.as_raw_nonzero();
    if root || own_gid {
        if !root {
            // Without privileges a group may only be mapped by who gives up setgroups(2).
            let path = format!("/proc/{number}/setgroups");
            std::fs::write(&path, "deny").context(&path)?;
        }
        by_kernel_or_helper("linux.gidMappings", "gid_map", "newgidmap", pid, gids)?;
    } else {
        by_helper("linux.gidMappings", "newgidmap", pid, gids)?;
    }
    if root || own_uid {
        by_kernel_or_helper("linux.uidMappings", "uid_map", "newuidmap", pid, uids)
    } else {
        by_helper("linux.uidMappings", "newuidmap", pid, uids)
    }
}

fn by_kernel_or_helper(
    key: &str,
    file: &str,
    helper: &str,
    pid: Pid,
    maps: &[LinuxIdMapping],
) -> Result<()> {
    let mut text = String::new();
    for map in maps {
        let _always = writeln!(text, "{} {} {}", map.container_id(), map.host_id(), map.size());
    }
    match std::fs::write(format!("/proc/{}/{file}", pid.as_raw_nonzero()), text) {
        // Root in a user namespace may not have these ids itself.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            by_helper(key, helper, pid, maps)
        }
        result => result.context(key),
    }
}

fn by_helper(key: &str, helper: &str, pid: Pid, maps: &[LinuxIdMapping]) -> Result<()> {
    let mut command = Command::new(helper);
    command.arg(pid.as_raw_nonzero().to_string());
    for map in maps {
        command.args([map.container_id(), map.host_id(), map.size()].map(|n| n.to_string()));
    }
    let output = command.output().map_err(|error| {
        Error::new(format!("{key}: {helper}, which more ids than one's own need: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("{key}: {helper}: {}", text.trim())))
}
