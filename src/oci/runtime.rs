//! What the commands of the runtime share.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;

use rustix::process::geteuid;

use super::cgroup::Manager;
use super::state::Root;

/// One call of the runtime.
pub struct Runtime<'a> {
    /// Where the containers are.
    pub root: Root,
    /// Who makes cgroups.
    pub manager: Manager,
    /// Without root in the initial user namespace.
    pub rootless: bool,
    /// The policies of the caller, as `run --policy` takes them.
    pub policies: Vec<OsString>,
    /// The shortfalls that the caller accepts.
    pub accept: Vec<String>,
    /// Where the caller wants traps, absolute: a file, a socket, or the directory of those that documents name.
    pub traps: Option<PathBuf>,
    /// Takes warnings, a line each.
    pub warn: &'a dyn Fn(&str),
}

impl Runtime<'_> {
    /// Passes a warning on.
    pub fn warn(&self, what: impl Display) {
        (self.warn)(&what.to_string());
    }
}

/// Whether this process has no root in the initial user namespace.
#[must_use]
pub fn is_rootless() -> bool {
    if !geteuid().is_root() {
        return true;
    }
    // The initial one maps every id to itself, user_namespaces(7).
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Where containers are kept when nobody says it.
#[must_use]
pub fn default_root(rootless: bool) -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| rootless);
    own.filter(|dir| !dir.is_empty())
        .map_or_else(|| PathBuf::from("/run/landstrip"), |dir| PathBuf::from(dir).join("landstrip"))
}
