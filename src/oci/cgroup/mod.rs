//! The cgroups of a container, in whatever hierarchies the host has.

use oci_spec::runtime::{LinuxResources, Spec};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::{Error, Result};

/// Who makes the cgroups (`--cgroup-manager`, `--systemd-cgroup`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// We do, in the file system.
    #[default]
    Cgroupfs,
    /// systemd does, asked over D-Bus.
    Systemd,
    /// Nobody: the container stays where the runtime was started.
    Disabled,
}

/// What is asked for.
pub struct Request<'a> {
    /// The container's name.
    pub id: &'a str,
    /// The document: `linux.cgroupsPath`, `linux.resources`, `annotations`.
    pub spec: &'a Spec,
    /// Who makes them.
    pub manager: Manager,
    /// Without root in the initial user namespace: a cgroup that cannot be had is done without.
    pub rootless: bool,
}

/// The cgroups of one container. Kept in its state, and good for any later command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cgroup {}

/// What a mount of type `cgroup` in the container has to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The hierarchies: where each is mounted on the host, and the container's cgroup below.
    pub hierarchies: Vec<Hierarchy>,
}

/// One hierarchy of cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The name below `/sys/fs/cgroup` of version 1 (`cpu,cpuacct`), `unified` of a hybrid host, empty
    /// where version 2 is all there is.
    pub name: String,
    /// Other names of it, which are links in `/sys/fs/cgroup` (`cpu`, `cpuacct`).
    pub links: Vec<String>,
    /// Where the host has it mounted.
    pub mount: std::path::PathBuf,
    /// The container's cgroup, absolute on the host (below `mount`).
    pub cgroup: std::path::PathBuf,
    /// Version 2.
    pub unified: bool,
}

impl Cgroup {
    /// Makes the cgroups, empty and without limits. `warn` is told what is done without.
    ///
    /// # Errors
    ///
    /// Where one cannot be made, or exists and holds processes.
    pub fn create(_request: &Request<'_>, _warn: &mut dyn FnMut(String)) -> Result<Cgroup> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// Moves a process in; systemd's manager makes the scope with it.
    ///
    /// # Errors
    ///
    /// As write(2) on `cgroup.procs`.
    pub fn enter(&self, _pid: Pid) -> Result<()> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// Sets limits and device rules, those that are given.
    ///
    /// # Errors
    ///
    /// A resource that cannot be applied, by the name it has in the document; without root and without
    /// delegation `warn` is told instead.
    pub fn apply(&self, _resources: &LinuxResources, _warn: &mut dyn FnMut(String)) -> Result<()> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// What mounts of type `cgroup` show.
    ///
    /// # Errors
    ///
    /// Where the host's mounts cannot be read.
    pub fn view(&self) -> Result<View> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// Freezes or thaws every process, and waits until that is so.
    ///
    /// # Errors
    ///
    /// Where there is no freezer.
    pub fn freeze(&self, _frozen: bool) -> Result<()> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// Whether it is frozen.
    #[must_use]
    pub fn frozen(&self) -> bool {
        false
    }

    /// Every process in it and below.
    ///
    /// # Errors
    ///
    /// As read(2) on `cgroup.procs`; none where the cgroup is gone.
    pub fn processes(&self) -> Result<Vec<Pid>> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// Sends a signal, by number, to every process, through `cgroup.kill` where that can do it; new ones cannot
    /// slip away.
    ///
    /// # Errors
    ///
    /// Where processes remain that got nothing.
    pub fn signal(&self, _signal: i32) -> Result<()> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// What `events --stats` prints below `data`, in runc's form.
    ///
    /// # Errors
    ///
    /// Where the files cannot be read.
    pub fn stats(&self) -> Result<serde_json::Value> {
        Err(Error::new("cgroups are not built yet"))
    }

    /// Removes them, and those made below; processes that are still dying are waited for a while.
    ///
    /// # Errors
    ///
    /// Where one stays, and why.
    pub fn remove(&self) -> Result<()> {
        Err(Error::new("cgroups are not built yet"))
    }
}
