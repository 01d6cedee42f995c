//! AppArmor profiles and SELinux labels: what the program runs under, from execve(2) on.

use std::os::fd::OwnedFd;
use std::path::Path;

use oci_spec::runtime::Process;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::{Context, Error, Result};

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
    /// Opens the file that takes the label. It has to be that of the process itself, in a procfs that is mounted
    /// nowhere: what the container has at `/proc` could be anything.
    ///
    /// # Errors
    ///
    /// As fsopen(2) and open(2).
    pub fn open(&self) -> Result<OwnedFd> {
        let procfs = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).context("fsopen proc")?;
        fsconfig_create(&procfs).context("fsconfig proc")?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_NODEV;
        let procfs =
            fsmount(&procfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).context("fsmount proc")?;
        let paths: &[&str] = match self {
            Label::AppArmor(_) => &["thread-self/attr/apparmor/exec", "thread-self/attr/exec"],
            Label::Selinux(_) => &["thread-self/attr/exec"],
        };
        let mut result = Err(Error::new("no file to write a label to"));
        for path in paths {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            result = openat(&procfs, *path, flags, Mode::empty()).context(path);
            if result.is_ok() {
                break;
            }
        }
        result
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
