//! What is open of the host's files, as mounts, masked and read-only paths.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{MADE, bind, tmpfs};
use crate::policy::path::is_within;
use crate::policy::{Access, Decider, Effect, FsView, Kind, Pattern, ResolvedPolicy, Rule};

/// The most names of `/` that are looked at.
const NAMES: usize = 1024;
/// More names than any directory in `/` has.
const MANY: usize = 1 << 24;

/// What may be done to a path, each more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Open {
    Hidden,
    Read,
    Write,
}

/// Files, as mounts.
pub struct Files<'a> {
    view: &'a dyn FsView,
    decider: Decider,
    /// The paths that rules are about.
    places: BTreeSet<String>,
    /// What the mounts so far make of paths.
    shown: BTreeMap<String, Open>,
    pub mounts: Vec<Value>,
    pub masked: Vec<String>,
    pub readonly: Vec<String>,
    pub notes: Vec<String>,
}

impl<'a> Files<'a> {
    pub fn new(view: &'a dyn FsView, decider: Decider) -> Files<'a> {
        let about = |rule: &Rule| match &rule.pattern {
            Pattern::Subtree(path) => Some(path.clone()),
            _ => None,
        };
        Files {
            view,
            places: decider.rules().iter().filter_map(about).collect(),
            decider,
            shown: BTreeMap::new(),
            mounts: Vec::new(),
            masked: Vec::new(),
            readonly: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn open(&self, path: &str) -> Open {
        let may = |access| self.decider.decide(access, path.as_bytes()).is_allowed();
        match (may(Access::Read), may(Access::Write)) {
            (false, _) => Open::Hidden,
            (true, false) => Open::Read,
            (true, true) => Open::Write,
        }
    }

    /// Shows the directories in `/`, and returns the links there.
    pub fn top(&mut self, rootless: bool) -> Vec<(String, String)> {
        let mut links = Vec::new();
        let mut names = self.view.list("/", NAMES).unwrap_or_default();
        names.sort_unstable();
        for name in names {
            let path = format!("/{name}");
            match self.view.kind(&path) {
                Kind::Symlink(target) => links.push((name, target)),
                // Of a user namespace, nobody could pass what its one user cannot.
                Kind::Dir if rootless && self.view.list(&path, MANY).is_none() => {}
                Kind::Dir if !MADE.contains(&&*path) => {
                    let open = self.open(&path);
                    if open > Open::Hidden {
                        self.mounts.push(bind(&path, open == Open::Write));
                        self.shown.insert(path, open);
                    }
                }
                _ => {}
            }
        }
        links
    }

    /// What the mounts so far make of `path`.
    fn around(&self, path: &str) -> Open {
        let mut at = path;
        loop {
            if let Some(open) = self.shown.get(at) {
                return *open;
            }
            match at.rsplit_once('/') {
                Some((above, _)) if !above.is_empty() => at = above,
                _ => return Open::Hidden,
            }
        }
    }

    /// Whether something below `path` is more open than it.
    fn reopened(&self, path: &str, open: Open) -> bool {
        let below = format!("{path}/");
        let places = self.places.range(below.clone()..);
        places.take_while(|place| place.starts_with(&below)).any(|place| self.open(place) > open)
    }

    /// Goes through the paths that rules are about, those above first.
    pub fn places(&mut self) {
        for path in self.places.clone() {
            let open = self.open(&path);
            if let Some(made) = MADE.iter().find(|made| is_within(path.as_bytes(), made.as_bytes()))
            {
                match open {
                    Open::Hidden => self.masked.push(path),
                    Open::Read => {}
                    Open::Write => {
                        let why = format!("not given: {made} is the container's own");
                        self.tell(Access::Write, &path, &why);
                    }
                }
                continue;
            }
            if path != "/" {
                self.place(path, open);
            }
        }
    }

    fn place(&mut self, path: String, open: Open) {
        let around = self.around(&path);
        if around == open {
            return;
        }
        let kind = self.view.kind(&path);
        if kind == Kind::Absent && open < Open::Write && around == Open::Write {
            let access = if open == Open::Hidden { Access::Read } else { Access::Write };
            self.tell(access, &path, "not held if the run itself makes it: it does not exist yet");
        }
        match open {
            _ if matches!(kind, Kind::Symlink(_) | Kind::SymlinkNotUtf8) => {
                return self.tell(Access::Write, &path, "not held: a symbolic link");
            }
            Open::Hidden if kind == Kind::Dir && self.reopened(&path, open) => {
                self.mounts.push(tmpfs(&path, &["nosuid", "nodev", "mode=755", "size=64k"]));
            }
            Open::Hidden => self.masked.push(path.clone()),
            Open::Read
                if around == Open::Write
                    && (kind == Kind::Absent || !self.reopened(&path, open)) =>
            {
                self.readonly.push(path.clone());
            }
            _ if kind == Kind::Absent => {
                return self.tell(Access::Write, &path, "not given: it does not exist yet");
            }
            open => self.mounts.push(bind(&path, open == Open::Write)),
        }
        self.shown.insert(path, open);
    }

    /// Adds a note about the rule that decides about `path`, if it is one of a policy.
    fn tell(&mut self, access: Access, path: &str, what: &str) {
        let verdict = self.decider.decide(access, path.as_bytes());
        if let Some(rule) = verdict.rule().filter(|rule| !rule.origin.is_built_in()) {
            self.notes.push(format!("{}: {:?}: {what}", rule.origin, rule.text));
        }
    }

    /// Adds what no mount is about.
    pub fn note(&mut self, policy: &ResolvedPolicy, rootless: bool) {
        for rule in policy.rules.iter().filter(|rule| !rule.origin.is_built_in()) {
            let what = match (&rule.pattern, rule.effect) {
                (Pattern::Glob(_), Effect::Allow) => "not given: a glob",
                (Pattern::Glob(_), Effect::Deny) => "not held: a glob",
                (Pattern::Name(name), _) if self.around(name) == Open::Write => {
                    "not held: the link on its way can be replaced"
                }
                _ => continue,
            };
            self.notes.push(format!("{}: {:?}: {what}", rule.origin, rule.text));
        }
        for linked in &policy.linked {
            let path = &linked.path;
            self.notes.push(format!("{}: {path:?}: not held under its other names", linked.origin));
        }
        let network = &policy.network;
        let mut note = |key: &str, what: &str| self.notes.push(format!("network.{key}: {what}"));
        if network.allow_network && network.denied_domains.as_ref().is_some_and(|d| !d.is_empty()) {
            note("deniedDomains", "not held");
        }
        if !network.allow_network {
            if network.allowed_domains.as_ref().is_some_and(|domains| !domains.is_empty()) {
                note("allowedDomains", "not given: there is no network");
            }
            if network.host_ports().chain(&network.expose).next().is_some() {
                let keys = "httpProxyPort, socksProxyPort, hostPorts, expose";
                note(keys, "not given: there is no network");
            }
        }
        if !network.allow_all_unix_sockets.as_ref().is_some_and(|all| all.value) {
            let what = "not held, but for those of well-known daemons";
            note("allowUnixSockets", what);
        }
        let limits = &policy.limits;
        if limits.time.is_some() {
            self.notes.push("limits.time: not held".to_owned());
        }
        if rootless && (limits.memory.is_some() || limits.pids.is_some() || limits.cpu.is_some()) {
            self.notes.push("limits: held where the user has a cgroup with controllers".to_owned());
        }
    }
}
