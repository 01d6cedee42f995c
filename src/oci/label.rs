//! AppArmor profiles and SELinux labels: what the program runs under, from execve(2) on.

use std::os::fd::OwnedFd;
use std::path::Path;

use oci_spec::runtime::Process;
use rustix::fs::{Mode, OFlags, fstatfs, open};

use super::{Context, Error, Result};

/// The magic number of procfs, statfs(2).
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// What is asked for.
pub enum Label {
    /// An AppArmor profile.
    AppArmor(String),
    /// An SELinux label.
    Selinux(String),
}

/// Reads the process of a document.
///
/// # Errors
///
/// A label that this host has no module for.
pub fn of(process: &Process) -> Result<Option<Label>> {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let profile = some(process.apparmor_profile());
    let label = some(process.selinux_label());
    if let Some(label) = label {
        if !Path::new("/sys/fs/selinux/enforce").exists() {
            return Err(Error::new("process.selinuxLabel: this host has no SELinux"));
        }
        return Ok(Some(Label::Selinux(label)));
    }
    let Some(profile) = profile else { return Ok(None) };
    let enabled = std::fs::read("/sys/module/apparmor/parameters/enabled");
    if enabled.is_ok_and(|text| text.first() == Some(&b'Y')) {
        return Ok(Some(Label::AppArmor(profile)));
    }
    // That is what a host without AppArmor gives.
    if profile == "unconfined" {
        return Ok(None);
    }
    Err(Error::new("process.apparmorProfile: this host has no AppArmor"))
}

impl Label {
    /// Opens the file that takes the label. It has to be that of the process itself, and of the host's
    /// procfs: what the container has mounted at `/proc` could be anything.
    ///
    /// # Errors
    ///
    /// As open(2); where it is no procfs.
    pub fn open(&self) -> Result<OwnedFd> {
        let paths: &[&str] = match self {
            Label::AppArmor(_) => {
                &["/proc/thread-self/attr/apparmor/exec", "/proc/thread-self/attr/exec"]
            }
            Label::Selinux(_) => &["/proc/thread-self/attr/exec"],
        };
        let mut result = Err(Error::new("no file to write a label to"));
        for path in paths {
            result = open(*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).context(path);
            if result.is_ok() {
                break;
            }
        }
        let file = result?;
        let system = fstatfs(&file).context("statfs")?;
        if system.f_type != PROC_SUPER_MAGIC {
            return Err(Error::new("/proc is no procfs"));
        }
        Ok(file)
    }

    /// Writes the label.
    ///
    /// # Errors
    ///
    /// Where the module does not take it.
    pub fn write(&self, file: &OwnedFd) -> Result<()> {
        match self {
            Label::AppArmor(profile) => super::process::write_all(file, &format!("exec {profile}"))
                .context(format!("process.apparmorProfile: {profile}")),
            Label::Selinux(label) => super::process::write_all(file, label)
                .context(format!("process.selinuxLabel: {label}")),
        }
    }
}
