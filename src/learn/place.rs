//! Where something was written: what may be granted for it, and what never is.

use super::Why;
use crate::policy::path::{depth, is_below, is_within, parent};
use crate::policy::{Access, Decider, Effect, Glob, Pattern, Verdict};

/// How a path was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// What stood there before, and was no directory.
    File,
    /// A directory that was there before: its attributes, its name, or a file without a name in it.
    Directory,
    /// A name that was not there before, and is no directory's.
    MadeFile,
    /// A directory that was not there before.
    MadeDirectory,
}

/// The places that a generalisation knows.
#[derive(Debug)]
pub struct Places {
    cwd: String,
    home: String,
    /// Whether all of the start directory may be granted.
    workspace: bool,
    /// What it denies is never granted, wherever everything else may be written.
    guard: Decider,
}

/// Directories that belong to the system: nothing below them is granted.
const SYSTEM: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/spool",
];

/// The exception to [`SYSTEM`]: XDG_RUNTIME_DIR of pam_systemd(8).
const RUNTIME: &str = "/run/user";

/// Directories of the home directory in which every program has a place of its own, as the XDG Base
/// Directory Specification names them.
const BASES: &[&str] = &[".cache", ".config", ".local", ".local/share", ".local/state"];

/// Where programs leave what lasts no longer than they do.
pub const SCRATCH: &[&str] = &["/tmp", "/var/tmp"];

impl Places {
    /// Places of a run that starts in `cwd` with the home directory `home`, both absolute and free of
    /// links. `guard` lets everything be written but what is never to be granted.
    #[must_use]
    pub fn new(cwd: &str, home: &str, guard: Decider) -> Places {
        let mut places =
            Places { cwd: cwd.to_owned(), home: home.to_owned(), workspace: false, guard };
        let system = SYSTEM.contains(&cwd) || ["/home", "/root", "/var"].contains(&cwd);
        let above_home = is_within(home.as_bytes(), cwd.as_bytes());
        places.workspace = cwd != "/"
            && !system
            && !above_home
            && places.never(cwd.as_bytes()).is_none()
            && places.guard.link_name(cwd.as_bytes()).is_none();
        places
    }

    /// The guard's verdict on writing `path`.
    pub(super) fn guarded(&self, path: &[u8]) -> Verdict<'_> {
        self.guard.decide(Access::Write, path)
    }

    /// What to grant for a change of `path`, absolute and free of links.
    ///
    /// # Errors
    ///
    /// Why nothing is granted for it.
    pub fn grant(&self, path: &str, change: Change) -> Result<String, Why> {
        if let Some(why) = self.never(path.as_bytes()) {
            return Err(why);
        }
        if self.workspace && within(path, &self.cwd) {
            return Ok(self.cwd.clone());
        }
        let granted = match change {
            // With a cold cache the same file would be made.
            Change::File if below(path, &self.home) => self.directory(path, None).unwrap_or(path),
            Change::File => path,
            Change::Directory if self.grantable(path) => path,
            Change::Directory => return Err(Why::Shared),
            Change::MadeFile | Change::MadeDirectory => {
                let itself = (change == Change::MadeDirectory).then_some(path);
                match self.directory(path, itself) {
                    Some(directory) => directory,
                    None if change == Change::MadeFile => path,
                    // Made once. Granting it would grant everything that comes to be in it.
                    None => return Err(Why::Shared),
                }
            }
        };
        if self.guard.link_name(granted.as_bytes()).is_some() {
            return Err(Why::Later);
        }
        Ok(granted.to_owned())
    }

    /// The directory to grant for a name made at `path`: a program's own directory below the home
    /// directory as a whole, elsewhere the nearest one.
    fn directory<'a>(&self, path: &'a str, itself: Option<&'a str>) -> Option<&'a str> {
        let mut above: Vec<&str> = itself.into_iter().chain(ancestors(path)).collect();
        if below(path, &self.home) {
            above.reverse();
            return above.into_iter().find(|dir| below(dir, &self.home) && self.grantable(dir));
        }
        above.into_iter().take(1).find(|dir| self.grantable(dir))
    }

    /// Whether a directory may be granted with everything in it.
    pub fn grantable(&self, dir: &str) -> bool {
        // On the way to what is never granted: the denying globs of a learned policy start below what it
        // grants, and would not see it.
        !self.shared(dir)
            && self.never(dir.as_bytes()).is_none()
            && self.guard.link_name(dir.as_bytes()).is_none()
    }

    /// Whether one of [`SCRATCH`] may be granted as a whole.
    pub(super) fn scratch(&self, dir: &str) -> bool {
        let around = within(&self.home, dir) || within(&self.cwd, dir);
        !around && self.never(dir.as_bytes()).is_none()
    }

    /// Whether many programs keep things in the directory, each its own.
    fn shared(&self, dir: &str) -> bool {
        if within(&self.home, dir) || within(&self.cwd, dir) {
            return true;
        }
        if let Some(rest) = dir.strip_prefix(&self.home).and_then(|rest| rest.strip_prefix('/')) {
            // `~/.tool` is a program's; `~/Documents` is not.
            let top = !rest.contains('/');
            return BASES.contains(&rest) || (top && !rest.starts_with('.'));
        }
        let levels = match dir.split('/').nth(1) {
            Some("home" | "var" | "media") => 2,
            Some("run") => 3,
            _ => 1,
        };
        depth(dir.as_bytes()) <= levels
    }

    /// Why nothing at `path` is ever granted.
    pub(super) fn never(&self, path: &[u8]) -> Option<Why> {
        if !self.guard.decide(Access::Read, path).is_allowed() {
            return Some(Why::Secret);
        }
        if let Verdict::Deny { rule: Some(_), .. } = self.guarded(path) {
            return Some(Why::Later);
        }
        let inside = |top: &str| is_within(path, top.as_bytes());
        let own = (self.workspace && inside(&self.cwd))
            || is_below(path, self.home.as_bytes())
            || is_below(path, RUNTIME.as_bytes());
        let system = !own && SYSTEM.iter().any(|top| inside(top));
        system.then_some(Why::System)
    }

    /// The glob for `path` and the names like it: the numbers in its last component are any. Nothing
    /// where there are none, or where the glob could mean more than names.
    pub(super) fn numbered(&self, path: &str) -> Option<String> {
        let (dir, name) = path.rsplit_once('/')?;
        if path.contains(['*', '?', '[', ']', '{', '}', '$', ',', '\\']) {
            return None;
        }
        let mut glob = String::new();
        let mut rest = name;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            glob.push_str(&rest[..at]);
            glob.push_str("[0-9]*");
            rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        }
        glob.push_str(rest);
        // What the glob starts with is a name of somebody's own.
        let named = glob.find("[0-9]").is_some_and(|at| at >= 2);
        let matcher = Glob::new(if dir.is_empty() { "/" } else { dir }, &glob).ok()?;
        let harmless = !self.guard.rules().iter().any(|rule| match &rule.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => {
                rule.effect == Effect::Deny && matcher.matches(path.as_bytes())
            }
            Pattern::Glob(_) => false,
        });
        (named && harmless).then(|| format!("{dir}/{glob}"))
    }

    /// `path` as an entry of a policy spells it.
    #[must_use]
    pub fn spell(&self, path: &str) -> String {
        if self.workspace && within(path, &self.cwd) {
            return path[self.cwd.len()..].strip_prefix('/').unwrap_or(".").to_owned();
        }
        match path.strip_prefix(&self.home) {
            Some(rest) if below(path, &self.home) => format!("~{rest}"),
            _ => path.to_owned(),
        }
    }
}

fn within(path: &str, dir: &str) -> bool {
    is_within(path.as_bytes(), dir.as_bytes())
}

fn below(path: &str, dir: &str) -> bool {
    is_below(path.as_bytes(), dir.as_bytes())
}

/// The directories that hold `path`, nearest first.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        let above = std::str::from_utf8(parent(path.as_bytes())).ok()?;
        (above != *path).then_some(above)
    })
    .skip(1)
}
