//! A cgroup below the container's, for `exec --cgroup`.

use std::path::{Component, Path, PathBuf};

use rustix::process::Pid;

use super::Cgroup;
use super::file;
use super::place::Place;
use crate::oci::{Error, Result};

/// Where a process goes, as it is typed: `[CONTROLLER,...:]PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// The hierarchies of version 1 by one of their controllers; all hierarchies where there is none.
    controllers: Vec<String>,
    /// The cgroup, from the container's.
    path: PathBuf,
}

impl Below {
    /// Reads what is typed.
    ///
    /// # Errors
    ///
    /// A path that could lead out of the container's cgroup.
    pub fn parse(text: &str) -> Result<Below> {
        let (controllers, path) = text.split_once(':').unwrap_or(("", text));
        if Path::new(path).components().any(|part| part == Component::ParentDir) {
            return Err(Error::new(format!("--cgroup: {text:?}: `..` components are not allowed")));
        }
        let controllers = controllers.split(',').filter(|name| !name.is_empty());
        Ok(Below {
            controllers: controllers.map(str::to_owned).collect(),
            path: Path::new(path)
                .components()
                .filter(|c| matches!(c, Component::Normal(_)))
                .collect(),
        })
    }

    fn concerns(&self, place: &Place) -> bool {
        self.controllers.is_empty() || self.controllers.iter().any(|name| place.has(name))
    }
}

impl Cgroup {
    /// Moves a process in, or into a cgroup below that exists. Of what names all hierarchies, one has to have
    /// it; the process is in the container's own cgroup in the others.
    ///
    /// # Errors
    ///
    /// A cgroup or a controller that is not there; as [`Cgroup::enter`].
    pub fn enter_at(&self, pid: Pid, below: &[Below]) -> Result<()> {
        if below.is_empty() {
            return self.enter(pid);
        }
        let mut found = vec![false; below.len()];
        self.enter_first(pid)?;
        for place in &self.places {
            let mut dir = place.dir.clone();
            for (at, below) in below.iter().enumerate().filter(|(_, b)| b.concerns(place)) {
                let path = place.dir.join(&below.path);
                if path.is_dir() {
                    (dir, found[at]) = (path, true);
                }
            }
            if dir == place.dir {
                place.enter(pid)?;
                continue;
            }
            file::write(&dir, "cgroup.procs", &pid.as_raw_nonzero().get().to_string()).map_err(
                |errno| Error::new(format!("--cgroup: cannot enter {}: {errno}", dir.display())),
            )?;
        }
        match found.iter().position(|found| !found) {
            None => Ok(()),
            Some(at) => {
                let Below { controllers, path } = &below[at];
                let path = path.display();
                let within = match controllers.is_empty() {
                    true => String::new(),
                    false => format!(" of {}", controllers.join(",")),
                };
                Err(Error::new(format!(
                    "--cgroup: the container has no cgroup{within} at \"/{path}\""
                )))
            }
        }
    }

    /// Takes a process back that somebody moved to a freezer of version 1 other than the container's: what that
    /// holds frozen does not even die.
    pub fn take_back(&self, pid: Pid) {
        for place in self.places.iter().filter(|place| place.has("freezer")) {
            let _ends_or_stays = place.enter(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out() {
        let path = |text| Below::parse(text).map(|below| below.path);
        assert_eq!(path("/"), Ok(PathBuf::new()));
        assert_eq!(path("/a/./b/"), Ok(PathBuf::from("a/b")));
        assert_eq!(path("cpu,memory:a"), Ok(PathBuf::from("a")));
        for out in ["..", "a/..", "cpu:../a", "/../a"] {
            assert!(path(out).is_err(), "{out}");
        }
        assert_eq!(Below::parse("cpu,memory:a").unwrap().controllers, ["cpu", "memory"]);
    }
}
