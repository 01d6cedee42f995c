//! `linux.resources.devices`: which devices a container may open and make.
//!
//! [`rule`] reads the rules, [`program`] makes them a program for version 2; both are pure.

mod program;
mod rule;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::LinuxDeviceCgroup;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file;
use super::limits::{Limits, refused};
use crate::oci::sys::bpf;
use crate::oci::{Context, Error, Result};
use rule::{Devices, Rule, Table, letters};

const FIELD: &str = "devices";

/// Sets the rules, and the ones that every container has.
///
/// # Errors
///
/// A rule that makes no sense, or that cannot be had. In a user namespace the kernel lets nobody set them,
/// and nothing there can make a device or mount one: that is told, unless the document says no more than
/// every document does.
pub fn set(limits: &mut Limits<'_, '_>, rules: &[LinuxDeviceCgroup]) -> Result<()> {
    let own = rule::parse(rules).map_err(|why| refused(FIELD, why))?;
    let all: Vec<Rule> = own.iter().copied().chain(rule::defaults()).collect();
    let result = match (limits.separate("devices"), limits.unified()) {
        (Some(place), _) => set_separate(&place.dir, &all),
        (None, Some(place)) => set_unified(&place.dir, &all),
        (None, None) if limits.is_partial() && rule::is_usual(&own) => return Ok(()),
        (None, None) => return limits.without(FIELD, "no cgroup can hold them"),
    };
    match result {
        Err(Failure::Kernel(Errno::PERM | Errno::ACCESS, what))
            if limits.rootless || in_user_namespace() =>
        {
            if !rule::is_usual(&own) {
                limits.tell(&format!("linux.resources.{FIELD} are not applied: {what}"));
            }
            Ok(())
        }
        Err(Failure::Kernel(errno, what)) => Err(refused(FIELD, format!("{what}: {errno}"))),
        Err(Failure::Other(error)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// The rules as `DeviceAllow=` of systemd.resource-control(5): a node or a group of them, and the access.
/// `None` where everything is allowed. What systemd has no words for is left out: the file says more.
///
/// # Errors
///
/// A rule that makes no sense.
pub fn systemd(rules: &[LinuxDeviceCgroup]) -> Result<Option<Vec<(String, String)>>> {
    let mut all = rule::parse(rules).map_err(|why| refused(FIELD, why))?;
    all.extend(rule::defaults());
    let table = Table::of(&all).map_err(|why| refused(FIELD, why))?;
    if table.allow {
        return Ok(None);
    }
    let known = std::fs::read_to_string("/proc/devices").unwrap_or_default();
    let line = |(devices, access): (&Devices, &u32)| {
        Some((rule::systemd(devices, &known)?, letters(*access)))
    };
    Ok(Some(table.exceptions.iter().filter_map(line).collect()))
}

/// Why rules are not set.
enum Failure {
    /// The kernel refused to do this.
    Kernel(Errno, String),
    /// They cannot be had at all.
    Other(Error),
}

/// Whether this process is in a user namespace that is not the first one, see user_namespaces(7).
fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().ne(["0", "0", "4294967295"])
}

/// One of the two files that rules are written to, line by line.
struct Lines {
    path: PathBuf,
    file: OwnedFd,
}

impl Lines {
    fn open(dir: &Path, name: &str) -> std::result::Result<Lines, Failure> {
        let path = dir.join(name);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => Ok(Lines { path, file }),
            Err(errno) => Err(Failure::Kernel(errno, format!("cannot open {}", path.display()))),
        }
    }

    fn write(&self, line: &str) -> std::result::Result<(), Failure> {
        rustix::io::write(&self.file, line.as_bytes()).map(|_| ()).map_err(|errno| {
            Failure::Kernel(errno, format!("cannot write `{line}` to {}", self.path.display()))
        })
    }
}

/// Writes what differs from what is there. What is added goes first: nothing that stays is ever denied
/// in between, and nothing else is allowed.
fn set_separate(dir: &Path, rules: &[Rule]) -> std::result::Result<(), Failure> {
    let table = Table::of(rules).map_err(|why| Failure::Other(refused(FIELD, why)))?;
    let (allow, deny) = (Lines::open(dir, "devices.allow")?, Lines::open(dir, "devices.deny")?);
    let (verdict, exception) = if table.allow { (&allow, &deny) } else { (&deny, &allow) };
    let text = file::read(dir, "devices.list").map_err(Failure::Other)?.unwrap_or_default();
    let now: Option<BTreeMap<Devices, u32>> = text.lines().map(rule::listed).collect();
    let now = match now {
        Some(now) if !table.allow => now,
        // What is listed of a cgroup that allows everything does not say what it excepts.
        _ => {
            verdict.write("a")?;
            BTreeMap::new()
        }
    };
    let of = |table: &BTreeMap<Devices, u32>, devices| table.get(devices).copied().unwrap_or(0);
    let line = |devices: &Devices, access: u32| format!("{devices} {}", letters(access));
    for (devices, access) in &table.exceptions {
        let missing = access & !of(&now, devices);
        if missing != 0 {
            exception.write(&line(devices, missing))?;
        }
    }
    for (devices, access) in &now {
        let extra = access & !of(&table.exceptions, devices);
        if extra != 0 {
            verdict.write(&line(devices, extra))?;
        }
    }
    Ok(())
}

fn set_unified(dir: &Path, rules: &[Rule]) -> std::result::Result<(), Failure> {
    let kernel = |what: &str| {
        let what = format!("{what} of {}", dir.display());
        move |errno| Failure::Kernel(errno, what)
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cgroup = rustix::fs::open(dir, flags, Mode::empty())
        .context(dir.display())
        .map_err(Failure::Other)?;
    let program = program::compile(rules);
    let program =
        bpf::load_device_program(&program).map_err(kernel("cannot load the device program"))?;
    bpf::attach_device_program(&cgroup, &program)
        .map_err(kernel("cannot attach the device program"))
}
