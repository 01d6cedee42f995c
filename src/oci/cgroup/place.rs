//! Which hierarchies the host has, where in them a container's cgroup is, and making it there.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::oci::path::clean;
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::file;
use crate::linux::cgroup::find::{self, Hierarchy};
use crate::linux::cgroup::unified;
use crate::oci::{Context, Error, Result};

/// Where hierarchies are mounted by convention.
const USUAL: &str = "/sys/fs/cgroup";

/// A container's cgroup in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The cgroup, absolute on the host.
    pub dir: PathBuf,
    /// The controllers of a hierarchy of version 1, or its `name=`.
    pub controllers: Vec<String>,
    /// Version 2.
    pub unified: bool,
}

impl Place {
    /// Whether this is a hierarchy of version 1 with the controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Makes the cgroup, and those above that are missing. True where it was not there before.
    ///
    /// # Errors
    ///
    /// As mkdir(2), with the path.
    pub fn make(&self) -> std::result::Result<bool, (Errno, PathBuf)> {
        let new = make_dir(&self.mount, &self.dir)?;
        if self.has("cpuset") {
            for name in ["cpuset.cpus", "cpuset.mems"] {
                inherit(&self.mount, &self.dir, name, new);
            }
        }
        if self.unified {
            self.hand_down();
        }
        Ok(new)
    }

    /// Gives the cgroup every controller that the hierarchy has, as far as those above allow it. What is
    /// missing then is found when a limit needs it.
    fn hand_down(&self) {
        let offered = unified::words(self.mount.join("cgroup.controllers"));
        let has = unified::words(self.dir.join("cgroup.controllers"));
        if offered.iter().all(|name| has.contains(name)) {
            return;
        }
        let mut above: Vec<&Path> = self.dir.ancestors().skip(1).collect();
        above.retain(|dir| dir.starts_with(&self.mount));
        for dir in above.iter().rev() {
            let dir = dir.to_string_lossy();
            if unified::hand_down(&dir, offered.iter().map(String::as_str)).is_err() {
                // One of them that cannot be had refuses all.
                for name in &offered {
                    let _ = unified::hand_down(&dir, std::iter::once(name.as_str()));
                }
            }
        }
    }

    /// Moves a process in.
    ///
    /// # Errors
    ///
    /// As write(2), with the path.
    pub fn enter(&self, pid: Pid) -> Result<()> {
        let pid = pid.as_raw_nonzero().get().to_string();
        let entered = match file::write(&self.dir, "cgroup.procs", &pid) {
            // The container handed its controllers down to cgroups of its own, and holds processes only
            // there: what joins it goes to the first one that takes it.
            Err(Errno::BUSY) if self.unified => {
                let below = file::tree(&self.dir);
                let held = below.iter().skip(1).filter(|dir| !processes_in(dir).is_empty());
                held.map(|dir| file::write(dir, "cgroup.procs", &pid))
                    .find(std::result::Result::is_ok)
                    .unwrap_or(Err(Errno::BUSY))
            }
            entered => entered,
        };
        entered.map_err(|errno| self.refusal(errno))
    }

    /// A file that takes the process, of one thread, which writes `0` to it.
    ///
    /// # Errors
    ///
    /// As open(2), with the path.
    pub fn entrance(&self) -> Result<OwnedFd> {
        // `tasks` of version 1 moves one thread, and spares the wait for an RCU grace period that moving
        // a whole process costs.
        let name = if self.unified { "cgroup.procs" } else { "tasks" };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(self.dir.join(name), flags, Mode::empty())
            .map_err(|errno| self.refusal(errno))
    }

    fn refusal(&self, errno: Errno) -> Error {
        Error::new(format!("cannot enter {}: {errno}", self.dir.display()))
    }

    /// Refuses a cgroup that cannot hold processes and limits.
    ///
    /// # Errors
    ///
    /// Where it, or one above, is for threads only, or it is frozen or holds processes already.
    pub fn check(&self, new: bool) -> Result<()> {
        let shown = self.dir.display();
        if self.unified {
            let kind = file::read(&self.dir, "cgroup.type")?.unwrap_or_default();
            if kind == "threaded" || kind == "domain invalid" {
                return Err(Error::new(format!(
                    "{shown}: a threaded cgroup cannot hold a container"
                )));
            }
        }
        if new {
            return Ok(());
        }
        let held: usize = file::tree(&self.dir).iter().map(|dir| processes_in(dir).len()).sum();
        if held > 0 {
            return Err(Error::new(format!("{shown}: the cgroup holds {held} processes already")));
        }
        let frozen = match self.unified {
            true => file::read(&self.dir, "cgroup.freeze")?.is_some_and(|state| state == "1"),
            false => file::read(&self.dir, "freezer.state")?.is_some_and(|s| s != "THAWED"),
        };
        match frozen {
            true => Err(Error::new(format!("{shown}: the cgroup is frozen"))),
            false => Ok(()),
        }
    }
}

/// The process ids that a cgroup lists.
pub fn processes_in(dir: &Path) -> Vec<i32> {
    let text = file::read(dir, "cgroup.procs").ok().flatten().unwrap_or_default();
    // 0 is a process of another pid namespace.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

fn make_dir(mount: &Path, dir: &Path) -> std::result::Result<bool, (Errno, PathBuf)> {
    match rustix::fs::mkdir(dir, Mode::from_raw_mode(0o755)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(Errno::NOENT) if dir != mount => {
            let above = dir.parent().unwrap_or(mount);
            make_dir(mount, above)?;
            match rustix::fs::mkdir(dir, Mode::from_raw_mode(0o755)) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(errno) => Err((errno, dir.to_owned())),
            }
        }
        Err(errno) => Err((errno, dir.to_owned())),
    }
}

/// A cpuset of version 1 starts with nothing in it, and takes no process until it has something: what
/// the one above has, see "cpusets" in the kernel's cgroup-v1 documentation.
fn inherit(mount: &Path, dir: &Path, name: &str, new: bool) -> String {
    let own = match new {
        true => String::new(),
        false => file::read(dir, name).ok().flatten().unwrap_or_default(),
    };
    if !own.is_empty() || dir == mount {
        return own;
    }
    let above = inherit(mount, dir.parent().unwrap_or(mount), name, false);
    // Entering says `ENOSPC` where this did not work.
    let _ = file::write(dir, name, &above);
    above
}

/// The hierarchies of the host that a container takes part in, each once.
///
/// # Errors
///
/// Where the host's mounts cannot be read.
pub fn hierarchies() -> Result<Vec<Hierarchy>> {
    let read = |path: &str| std::fs::read_to_string(path).context(path);
    Ok(chosen(find::hierarchies(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)))
}

fn chosen(mut found: Vec<Hierarchy>) -> Vec<Hierarchy> {
    // Mounted several times, the usual place counts.
    found.sort_by_key(|h| !Path::new(&h.top).starts_with(USUAL));
    let mut chosen: Vec<Hierarchy> = Vec::new();
    for mut hierarchy in found {
        // The other options of the mount are no controllers; of the named ones, systemd's is entered.
        let other = ["rw", "ro", "xattr", "clone_children", "cpuset_v2_mode", "favordynmods"];
        hierarchy.controllers.retain(|name| {
            !other.contains(&name.as_str())
                && !name.starts_with("release_agent=")
                && (!name.starts_with("name=") || name == "name=systemd")
        });
        let empty = !hierarchy.unified && hierarchy.controllers.is_empty();
        let same = |h: &Hierarchy| {
            h.unified == hierarchy.unified && h.controllers == hierarchy.controllers
        };
        if !empty && !chosen.iter().any(same) {
            chosen.push(hierarchy);
        }
    }
    chosen
}

/// Where the cgroup `path` is in a hierarchy: an absolute one counts from the mount, a relative one from
/// the cgroup that this process is in. On a host that has only version 2, where a cgroup with processes
/// hands nothing down, it counts from the one above that, if that may be written.
pub fn locate(hierarchy: &Hierarchy, path: &Path, alone: bool) -> Place {
    let mount = PathBuf::from(&hierarchy.top);
    let mut dir = mount.clone();
    if !path.is_absolute() {
        let own = hierarchy.own.as_deref().unwrap_or_default().trim_start_matches('/');
        dir.push(own);
        if alone && dir != mount {
            let above = dir.parent().unwrap_or(&mount);
            if rustix::fs::access(above.join("cgroup.procs"), Access::WRITE_OK).is_ok() {
                dir.pop();
            }
        }
    }
    dir.push(clean(path));
    Place { mount, dir, controllers: hierarchy.controllers.clone(), unified: hierarchy.unified }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy(top: &str, own: &str, controllers: &[&str]) -> Hierarchy {
        let controllers: Vec<String> = controllers.iter().map(|&name| name.to_owned()).collect();
        let unified = controllers.is_empty();
        Hierarchy { unified, controllers, top: top.to_owned(), own: Some(own.to_owned()) }
    }

    #[test]
    fn a_hierarchy_counts_once_and_at_its_usual_place() {
        let found = vec![
            hierarchy("/mnt/memory", "", &["rw", "memory"]),
            hierarchy("/sys/fs/cgroup/memory", "/own", &["rw", "memory"]),
            hierarchy("/sys/fs/cgroup/x", "", &["rw", "xattr", "name=elogind"]),
            hierarchy("/sys/fs/cgroup/systemd", "", &["rw", "xattr", "name=systemd"]),
            hierarchy("/sys/fs/cgroup/unified", "", &[]),
        ];
        let tops: Vec<String> = chosen(found).into_iter().map(|h| h.top).collect();
        assert_eq!(
            tops,
            ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"]
        );
    }

    #[test]
    fn relative_paths_count_from_our_own() {
        let memory = hierarchy("/nowhere/memory", "/own/deep", &["memory"]);
        let at = |path: &str| locate(&memory, Path::new(path), false).dir;
        assert_eq!(at("/pod/c"), Path::new("/nowhere/memory/pod/c"));
        assert_eq!(at("pod/c"), Path::new("/nowhere/memory/own/deep/pod/c"));
        assert_eq!(at("../../../c"), Path::new("/nowhere/memory/own/deep/c"));
    }
}
