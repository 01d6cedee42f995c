//! Mappings of id-mapped mounts, mount_setattr(2): a user namespace that nobody lives in.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;

use oci_spec::runtime::LinuxIdMapping;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::oci::sys::mount::user_namespace;
use crate::oci::{Context, Result};

/// The process that keeps a namespace until it is open.
struct Keeper(Pid);

impl Drop for Keeper {
    fn drop(&mut self) {
        // It is our child, and not reaped, so the id is its own.
        let _it_cannot_fail = kill_process(self.0, Signal::KILL);
        let _it_cannot_fail = waitpid(Some(self.0), WaitOptions::empty());
    }
}

/// A user namespace with these mappings.
///
/// # Errors
///
/// As clone(2) and user_namespaces(7): `EPERM` for ids that are not ours to map.
pub fn namespace(uids: &[LinuxIdMapping], gids: &[LinuxIdMapping]) -> Result<OwnedFd> {
    let keeper = Keeper(user_namespace().context("make a user namespace")?);
    let process = format!("/proc/{}", keeper.0.as_raw_nonzero());
    for (file, mappings) in [("uid_map", uids), ("gid_map", gids)] {
        // One write(2) is all that the kernel takes.
        std::fs::write(format!("{process}/{file}"), lines(mappings)).context(file)?;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, format!("{process}/ns/user"), flags, Mode::empty()).context("open a user namespace")
}

fn lines(mappings: &[LinuxIdMapping]) -> String {
    let mut lines = String::new();
    for mapping in mappings {
        let (inside, outside) = (mapping.container_id(), mapping.host_id());
        let _never_fails = writeln!(lines, "{inside} {outside} {}", mapping.size());
    }
    lines
}
