//! The cgroups of a container, in whatever hierarchies the host has.

mod below;
mod block;
mod cpu;
mod devices;
mod end;
mod file;
mod freeze;
mod limits;
mod memory;
pub mod oom;
mod others;
mod place;
mod rdt;
mod stats;
mod systemd;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;

use oci_spec::runtime::{LinuxResources, Spec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::{Error, Result};
pub use below::Below;
use freeze::Freezer;
use place::Place;
use rdt::Rdt;
use systemd::Unit;

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
pub struct Cgroup {
    /// One in each hierarchy that is there, or that could be had.
    places: Vec<Place>,
    /// Some hierarchy is done without.
    partial: bool,
    rootless: bool,
    /// Who made them, where it was not us.
    unit: Option<Unit>,
    rdt: Option<Rdt>,
    /// The document has no device rules. Only known while the container is created.
    #[serde(skip)]
    no_devices: bool,
}

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
    /// Makes the cgroups, without limits but for this: a document without device rules gets those that
    /// every container has. `warn` is told what is done without. `linux.intelRdt` is made with them; with
    /// systemd they are made when the first process enters.
    ///
    /// # Errors
    ///
    /// Where one cannot be made, or exists and holds processes. None is left then.
    pub fn create(request: &Request<'_>, warn: &mut dyn FnMut(String)) -> Result<Cgroup> {
        let linux = request.spec.linux().as_ref();
        let resources = linux.and_then(|linux| linux.resources().as_ref());
        let devices = resources.and_then(|resources| resources.devices().as_ref());
        let mut cgroup = Cgroup {
            places: Vec::new(),
            partial: false,
            rootless: request.rootless,
            unit: None,
            rdt: None,
            no_devices: devices.is_none(),
        };
        let made = cgroup.build(request, warn);
        if made.is_err() {
            let _ = cgroup.remove();
        }
        made.map(|()| cgroup)
    }

    fn build(&mut self, request: &Request<'_>, warn: &mut dyn FnMut(String)) -> Result<()> {
        let linux = request.spec.linux().as_ref();
        if let Some(rdt) = linux.and_then(|linux| linux.intel_rdt().as_ref()) {
            self.rdt = Some(Rdt::make(rdt, request.id)?);
        }
        match request.manager {
            Manager::Disabled => {
                self.partial = true;
                Ok(())
            }
            Manager::Systemd => self.find_unit(request),
            Manager::Cgroupfs => {
                let path = linux.and_then(|linux| linux.cgroups_path().clone()).unwrap_or_default();
                let path = if path.as_os_str().is_empty() { request.id.into() } else { path };
                self.make(&path, warn)?;
                self.set_usual_devices(warn)
            }
        }
    }

    fn set_usual_devices(&self, warn: &mut dyn FnMut(String)) -> Result<()> {
        match self.no_devices {
            true => devices::set(&mut limits::Limits::new(self, warn), &[]),
            false => Ok(()),
        }
    }

    fn find_unit(&mut self, request: &Request<'_>) -> Result<()> {
        let hierarchies = place::hierarchies()?;
        let alone = hierarchies.iter().all(|hierarchy| hierarchy.unified);
        let unit = Unit::of(request, alone)?;
        let path = unit.cgroup()?;
        for hierarchy in &hierarchies {
            let place = place::locate(hierarchy, &path, alone);
            if place.dir.exists() {
                place.check(false)?;
            }
            self.places.push(place);
        }
        self.unit = Some(unit);
        Ok(())
    }

    /// Has systemd make the scope with its first process. It moves that in the hierarchies that it knows.
    fn start_unit(&self, unit: &Unit, pid: Pid) -> Result<()> {
        unit.start(pid)?;
        for place in &self.places {
            place.make().map_err(|(errno, dir)| {
                Error::new(format!("cannot make {}: {errno}", dir.display()))
            })?;
            place.enter(pid)?;
        }
        self.set_usual_devices(&mut |_| {})
    }

    fn make(&mut self, path: &Path, warn: &mut dyn FnMut(String)) -> Result<()> {
        let hierarchies = place::hierarchies()?;
        let alone = hierarchies.iter().all(|hierarchy| hierarchy.unified);
        for hierarchy in &hierarchies {
            let place = place::locate(hierarchy, path, alone);
            if place.dir == place.mount {
                return Err(Error::new("linux.cgroupsPath: the top of the hierarchy"));
            }
            match place.make() {
                Ok(new) => {
                    let fit = place.check(new);
                    // One that is used by others is not ours to remove.
                    if new || fit.is_ok() {
                        self.places.push(place);
                    }
                    fit?;
                }
                Err((errno @ (Errno::ACCESS | Errno::PERM | Errno::ROFS), dir))
                    if self.rootless =>
                {
                    if !self.partial {
                        let dir = dir.display();
                        warn(format!("no cgroup for the container: cannot make {dir}: {errno}"));
                    }
                    self.partial = true;
                }
                Err((errno, dir)) => {
                    return Err(Error::new(format!("cannot make {}: {errno}", dir.display())));
                }
            }
        }
        if hierarchies.is_empty() {
            match self.rootless {
                true => warn("no cgroup for the container: none is mounted".to_owned()),
                false => return Err(Error::new("no cgroup hierarchy is mounted")),
            }
            self.partial = true;
        }
        Ok(())
    }

    /// Moves a process in, from outside.
    ///
    /// # Errors
    ///
    /// As write(2) on `cgroup.procs`, or as systemd has it.
    pub fn enter(&self, pid: Pid) -> Result<()> {
        self.enter_first(pid)?;
        if self.waiting_unit().is_some() {
            return Ok(());
        }
        for place in &self.places {
            place.enter(pid)?;
        }
        Ok(())
    }

    /// Files of which each takes the process that writes `0` to it into one of the cgroups: for the first
    /// process, which has one thread and may have no right to open them. That spares the wait of some
    /// milliseconds which moving it from outside costs. With `born` those are left out that a process
    /// made with the descriptor of [`Cgroup::birthplace`] is in already.
    ///
    /// What it cannot enter by itself is left to [`Cgroup::enter_first`].
    ///
    /// # Errors
    ///
    /// As open(2).
    pub fn entrances(&self, born: bool) -> Result<Vec<OwnedFd>> {
        if self.waiting_unit().is_some() {
            return Ok(Vec::new());
        }
        let places = self.places.iter().filter(|place| !(born && place.unified));
        places.map(Place::entrance).collect()
    }

    /// Moves the container's first process into what it does not enter by [`Cgroup::entrances`]: a group of
    /// resctrl, and the scope that systemd makes with it.
    ///
    /// # Errors
    ///
    /// As [`Cgroup::enter`].
    pub fn enter_first(&self, pid: Pid) -> Result<()> {
        if let Some(rdt) = &self.rdt {
            rdt.enter(pid)?;
        }
        match self.waiting_unit() {
            Some(unit) => self.start_unit(unit, pid),
            None => Ok(()),
        }
    }

    /// The scope that is to be made.
    fn waiting_unit(&self) -> Option<&Unit> {
        self.unit.as_ref().filter(|unit| unit.is_new())
    }

    /// The cgroup of version 2, for `CLONE_INTO_CGROUP`; `None` where there is none yet.
    #[must_use]
    pub fn birthplace(&self) -> Option<OwnedFd> {
        if self.waiting_unit().is_some() {
            return None;
        }
        let place = self.places.iter().find(|place| place.unified)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&place.dir, flags, Mode::empty()).ok()
    }

    /// Sets limits and device rules, those that are given. A 0 where that is no limit counts as not
    /// given, and -1 is unlimited.
    ///
    /// # Errors
    ///
    /// A resource that cannot be applied, by the name it has in the document; without root and without
    /// delegation `warn` is told instead.
    pub fn apply(&self, resources: &LinuxResources, warn: &mut dyn FnMut(String)) -> Result<()> {
        // A new scope was made with them.
        match self.unit.as_ref().is_some_and(|unit| unit.is_new()) {
            true => limits::Limits::new(self, warn).set(resources),
            false => self.apply_more(resources, warn),
        }
    }

    /// Applies resources besides those that the cgroup was made with.
    ///
    /// # Errors
    ///
    /// As [`Cgroup::apply`].
    pub fn apply_more(
        &self,
        resources: &LinuxResources,
        warn: &mut dyn FnMut(String),
    ) -> Result<()> {
        if let Some(unit) = &self.unit {
            unit.update(resources, self.places.iter().all(|place| place.unified))?;
        }
        limits::Limits::new(self, warn).set(resources)
    }

    /// What mounts of type `cgroup` show.
    ///
    /// # Errors
    ///
    /// None: nothing is read that was not read when the cgroups were made.
    pub fn view(&self) -> Result<View> {
        let alone = self.places.iter().all(|place| place.unified);
        let hierarchy = |place: &Place| {
            let name = place.mount.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            // Of `cpu,cpuacct` each name is a link.
            let links = match name.contains(',') && !place.unified {
                true => name.split(',').map(str::to_owned).collect(),
                false => Vec::new(),
            };
            Hierarchy {
                name: if alone { String::new() } else { name },
                links,
                mount: place.mount.clone(),
                cgroup: place.dir.clone(),
                unified: place.unified,
            }
        };
        Ok(View { hierarchies: self.places.iter().map(hierarchy).collect() })
    }

    /// Freezes or thaws every process, and waits until that is so.
    ///
    /// # Errors
    ///
    /// Where there is no freezer, or a process cannot be frozen for long.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        match Freezer::of(&self.places) {
            Some(freezer) => freezer.set(frozen),
            None => Err(Error::new("no cgroup of the container can freeze it")),
        }
    }

    /// Whether it is frozen.
    #[must_use]
    pub fn frozen(&self) -> bool {
        Freezer::of(&self.places).is_some_and(|freezer| freezer.is_frozen())
    }

    /// Every process in it and below.
    ///
    /// # Errors
    ///
    /// Where the container has no cgroup of its own; none are listed where it is gone.
    pub fn processes(&self) -> Result<Vec<Pid>> {
        match self.places.is_empty() {
            true => Err(Error::new("the container has no cgroup, which alone knows its processes")),
            false => Ok(end::processes(&self.places)),
        }
    }

    /// Sends a signal, by number, to every process, through `cgroup.kill` where that can do it; new ones cannot
    /// slip away.
    ///
    /// # Errors
    ///
    /// Where processes remain that got nothing.
    pub fn signal(&self, signal: i32) -> Result<()> {
        match self.places.is_empty() {
            true => Err(Error::new("the container has no cgroup, which alone knows its processes")),
            false => end::signal_all(&self.places, signal),
        }
    }

    /// What `events --stats` prints below `data`, in runc's form.
    ///
    /// # Errors
    ///
    /// Where the container has no cgroup, or it is gone.
    pub fn stats(&self) -> Result<serde_json::Value> {
        stats::of(&self.places)
    }

    /// Watches for the end of memory, for `events`.
    ///
    /// # Errors
    ///
    /// Without a memory controller.
    pub fn watch_memory(&self) -> Result<oom::Watch> {
        oom::Watch::new(&self.places)
    }

    /// Removes them, and those made below; processes that are still dying are waited for a while.
    ///
    /// # Errors
    ///
    /// The first that stays, and why, after all others are gone.
    pub fn remove(&self) -> Result<()> {
        let unit = self.unit.as_ref().map_or(Ok(()), Unit::stop);
        let places = end::remove(&self.places);
        let rdt = self.rdt.as_ref().map_or(Ok(()), Rdt::remove);
        unit.and(places).and(rdt)
    }
}
