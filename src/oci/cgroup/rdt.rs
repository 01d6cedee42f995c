//! `linux.intelRdt`: a group of resctrl, see the kernel's resctrl.rst. Made, entered and removed with the
//! cgroups.

use std::path::{Path, PathBuf};

use oci_spec::runtime::LinuxIntelRdt;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::file;
use crate::oci::{Context, Error, Result};
use crate::plan::mounts::unescape;

/// A container's groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rdt {
    /// The group of its class of service.
    group: PathBuf,
    /// The group is the container's alone, and goes with it.
    own: bool,
    /// The group that is watched, if that is asked for.
    monitor: Option<PathBuf>,
}

impl Rdt {
    /// Makes what the document asks for.
    ///
    /// # Errors
    ///
    /// Where resctrl is not mounted, a class of service does not exist or a schema is not taken. Nothing is
    /// left then.
    pub fn make(rdt: &LinuxIntelRdt, id: &str) -> Result<Rdt> {
        let text =
            std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
        let top = text.lines().find_map(resctrl).ok_or_else(|| {
            Error::new("linux.intelRdt: resctrl is not mounted: no RDT in this processor or kernel")
        })?;
        Rdt::make_in(&top, rdt, id)
    }

    fn make_in(top: &Path, rdt: &LinuxIntelRdt, id: &str) -> Result<Rdt> {
        let class = rdt.clos_id().as_deref().filter(|class| !class.is_empty());
        // A class of `/` is the one that everything is in.
        let class = class.map(|class| if class == "/" { "" } else { class });
        let name = class.unwrap_or(id);
        if name.contains('/') || name.starts_with('.') {
            return Err(refused("closID", format!("`{name}` is no name of a group")));
        }
        let group = if name.is_empty() { top.to_owned() } else { top.join(name) };
        let schemata = schemata(rdt);
        // A class without schemas is one that was set up before.
        if class.is_some() && schemata.is_empty() && !group.is_dir() {
            return Err(refused("closID", format!("{} does not exist", group.display())));
        }
        let made = match rustix::fs::mkdir(&group, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(refused("closID", format!("{}: {errno}", group.display()))),
        };
        let mut made_rdt = Rdt { group, own: made && class.is_none(), monitor: None };
        let result = made_rdt.fill(&schemata, rdt, id);
        if result.is_err() {
            let _ = made_rdt.remove();
            if made {
                let _ = rustix::fs::rmdir(&made_rdt.group);
            }
        }
        result.map(|()| made_rdt)
    }

    #[allow(deprecated)]
    fn fill(&mut self, schemata: &str, rdt: &LinuxIntelRdt, id: &str) -> Result<()> {
        if !schemata.is_empty() {
            file::write(&self.group, "schemata", schemata).map_err(|errno| {
                refused("schemata", format!("`{}`: {errno}", schemata.trim_end()))
            })?;
        }
        let asked = [rdt.enable_monitoring(), rdt.enable_cmt(), rdt.enable_mbm()];
        if asked.iter().any(|asked| asked.is_some_and(|asked| asked)) {
            let group = self.group.join("mon_groups").join(id);
            rustix::fs::mkdir(&group, Mode::from_raw_mode(0o755)).map_err(|errno| {
                refused("enableMonitoring", format!("{}: {errno}", group.display()))
            })?;
            self.monitor = Some(group);
        }
        Ok(())
    }

    /// Moves a process in.
    ///
    /// # Errors
    ///
    /// As write(2) on `tasks`.
    pub fn enter(&self, pid: Pid) -> Result<()> {
        let pid = pid.as_raw_nonzero().to_string();
        for dir in std::iter::once(&self.group).chain(&self.monitor) {
            file::write(dir, "tasks", &pid)
                .map_err(|errno| Error::new(format!("cannot enter {}: {errno}", dir.display())))?;
        }
        Ok(())
    }

    /// Removes what is the container's alone.
    ///
    /// # Errors
    ///
    /// As rmdir(2).
    pub fn remove(&self) -> Result<()> {
        let own = self.own.then_some(&self.group);
        for dir in self.monitor.iter().chain(own) {
            match rustix::fs::rmdir(dir) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(Error::new(format!("removing {}: {errno}", dir.display())));
                }
            }
        }
        Ok(())
    }
}

fn refused(field: &str, why: String) -> Error {
    Error::new(format!("linux.intelRdt.{field}: {why}"))
}

/// The lines to write: what is in `schemata` comes last, and wins.
fn schemata(rdt: &LinuxIntelRdt) -> String {
    let first = [rdt.l3_cache_schema(), rdt.mem_bw_schema()];
    let lines = first.into_iter().flatten().chain(rdt.schemata().iter().flatten());
    lines.filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

fn resctrl(line: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let mount = after.starts_with("resctrl ").then(|| before.split(' ').nth(4))??;
    Some(unescape(mount)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rdt(text: &str) -> LinuxIntelRdt {
        serde_json::from_str(text).expect("intelRdt")
    }

    #[test]
    fn the_mount_is_found() {
        let line = "40 31 0:37 / /sys/fs/res\\040ctrl rw,nosuid - resctrl resctrl rw";
        assert_eq!(resctrl(line), Some("/sys/fs/res ctrl".into()));
        assert_eq!(resctrl("40 31 0:37 / /sys rw - sysfs sysfs rw"), None);
    }

    #[test]
    fn schemas_are_lines() {
        let both =
            rdt(r#"{"l3CacheSchema":"L3:0=f","memBwSchema":"MB:0=20","schemata":["L2:0=3"]}"#);
        assert_eq!(schemata(&both), "L3:0=f\nMB:0=20\nL2:0=3\n");
    }

    /// A directory stands in for the file system, which few machines have.
    #[test]
    fn groups_that_are_ours_go_and_others_stay() {
        let top = tempfile::tempdir().expect("a directory");
        let make = |text: &str| Rdt::make_in(top.path(), &rdt(text), "id");
        let error = make(r#"{"closID":"gold"}"#).expect_err("no class").to_string();
        assert!(error.starts_with("linux.intelRdt.closID: "), "{error}");
        assert!(!top.path().join("gold").exists());
        std::fs::create_dir(top.path().join("gold")).expect("a class");
        make(r#"{"closID":"gold"}"#).expect("the class").remove().expect("removing");
        assert!(top.path().join("gold").exists());
        let own = make("{}").expect("a group of its own");
        assert!(top.path().join("id").exists());
        own.remove().expect("removing");
        assert!(!top.path().join("id").exists());
        assert!(make(r#"{"closID":"../x"}"#).is_err());
        // There is no file `schemata` here.
        assert!(make(r#"{"l3CacheSchema":"L3:0=f"}"#).is_err());
        assert!(!top.path().join("id").exists());
    }
}
