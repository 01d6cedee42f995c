//! Learning a policy from what a run did.
//!
//! Pure: what was done comes in as calls of [`Notes`], one a change, in any order and of any number;
//! [`Notes::finish`] gives the entries. The rule, which README.md states for its readers:
//!
//! 1. What is written in the start directory becomes that directory. What is made in a directory of a
//!    program's own (`~/.cargo/registry`, `~/.cache/pip`) becomes the whole of it, since the next run
//!    may use other names there; elsewhere the directory that it is made in. What was there before and
//!    is written becomes itself.
//! 2. More than [`MOST_SIBLINGS`] entries below one directory become that directory.
//! 3. Nothing is granted that the host reads or runs later, that is secret, that belongs to the
//!    system, or that everything shares (`/`, the home directory, `~/.config`). It is told instead.

pub mod endpoint;
pub mod place;
pub mod print;

use crate::policy::endpoint::has_host_ports;
use crate::policy::{Daemons, Entry, FsView, Kind, Spelling, Verdict, shipped};
pub use endpoint::{Endpoint, Socket};
pub use place::{Change, Places};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::net::SocketAddr;

/// What a policy says that lets everything be done, to be merged over what is there: the run that is
/// learned from is restricted by denials alone.
pub const OPEN: &str = r#"{
  "filesystem": { "allowWrite": ["/"] },
  "network": { "allowNetwork": true, "allowAllUnixSockets": true }
}"#;
/// Most entries below one directory that are listed one by one.
pub const MOST_SIBLINGS: usize = 3;
/// Most entries of a learned policy.
pub const MOST_ENTRIES: usize = 64;
/// Most entries, and most things not granted, that are kept while learning.
const MOST_KEPT: usize = 4096;
/// Most programs that are named as evidence.
const MOST_PROGRAMS: usize = 8;

/// Why something is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It holds credentials.
    Secret,
    /// A policy that the learned one extends denies it.
    Denied,
    /// The policy that is attached to the program denies it.
    Attached,
    /// No policy allows it.
    Impossible,
    /// The host reads or runs it later.
    Later,
    /// It is the system's.
    System,
    /// Other programs keep things there, too.
    Shared,
    /// There are too many to name.
    TooMany,
    /// Its name cannot be written in a policy.
    Name,
    /// A service that acts for whoever asks stands behind it.
    Service,
    /// Only opening every Unix socket would allow it.
    AllSockets,
    /// Abstract names of the host stay closed.
    Abstract,
    /// Only opening the whole network would allow it.
    Datagrams,
    /// Only opening the whole network would, and the policy that the learned one extends lists hosts.
    Listed,
    /// A host was reached by a name that nobody heard.
    Unnamed,
}

impl Why {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Secret => "a secret",
            Why::Denied => "denied by the policy that this one extends",
            Why::Attached => "denied by the policy that is attached to the program",
            Why::Impossible => "not possible inside, whatever a policy says",
            Why::Later => "read or run outside of the sandbox later",
            Why::System => "part of the system",
            Why::Shared => "other programs keep things there, too",
            Why::TooMany => "too many to name",
            Why::Name => "the name is not UTF-8",
            Why::Service => "what answers there acts for whoever asks, outside of the sandbox",
            Why::AllSockets => "only allowAllUnixSockets would, which opens every service",
            Why::Abstract => "abstract sockets of the host stay closed",
            Why::Listed => "only allowNetwork would, beside which no hosts can be listed",
            Why::Unnamed => {
                "its name is not known: list it in network.allowedDomains (a run with this policy \
                    says which names are wanting)"
            }
            Why::Datagrams => "only allowNetwork would: no datagram socket can be kept on loopback",
        }
    }
}

/// What speaks for an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// How often it was needed.
    pub count: u64,
    /// What was used, of all the first in order.
    pub example: String,
    /// The programs that did it.
    pub by: BTreeSet<String>,
}

impl Evidence {
    fn add(&mut self, example: &str, by: &str) {
        self.merge(Evidence {
            count: 1,
            example: example.to_owned(),
            by: BTreeSet::from([by.to_owned()]),
        });
    }

    fn merge(&mut self, other: Evidence) {
        if self.count == 0 || other.example < self.example {
            self.example = other.example;
        }
        self.count += other.count;
        self.by.extend(other.by);
        while self.by.len() > MOST_PROGRAMS {
            self.by.pop_last();
        }
    }
}

/// What was done so far. What it holds is bounded, whatever is done.
#[derive(Debug)]
pub struct Notes {
    places: Places,
    daemons: Daemons,
    grants: BTreeMap<String, Evidence>,
    git_dir: Evidence,
    /// The policy that the learned one extends lists hosts.
    lists: bool,
    /// A name was looked up.
    names: bool,
    sockets: BTreeMap<&'static str, Evidence>,
    /// Hosts with a port, as the proxy was asked for them.
    named: BTreeMap<String, Evidence>,
    /// What was connected to.
    connected: BTreeMap<SocketAddr, Evidence>,
    /// Where datagrams went that are no questions about names.
    datagrams: BTreeMap<SocketAddr, Evidence>,
    /// Ports that the run bound.
    bound: BTreeSet<u16>,
    unix: BTreeMap<String, Evidence>,
    refused: BTreeMap<(String, Why), Evidence>,
    /// Changes that neither table had room for.
    omitted: u64,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Learned {
    /// Entries of `filesystem.allowWrite`, as spelled in a policy.
    pub writes: Vec<(Entry, Evidence)>,
    /// What speaks for `filesystem.gitDir`.
    pub git_dir: Option<Evidence>,
    /// Switches of `network` by name.
    pub switches: Vec<(&'static str, Evidence)>,
    /// Entries of `network.hostPorts`.
    pub ports: Vec<(u16, Evidence)>,
    /// Entries of `network.allowedDomains`.
    pub hosts: Vec<(String, Evidence)>,
    /// Entries of `network.allowUnixSockets`.
    pub unix: Vec<(Entry, Evidence)>,
    /// What was done and is not granted.
    pub refused: Vec<(String, Why, Evidence)>,
    /// Changes that are not accounted for, because there were too many.
    pub omitted: u64,
}

impl Learned {
    /// Entries of `filesystem.denyWrite` to go with it: what the host reads or runs later, wherever it
    /// stands. What stands in the home directory is never granted, so it need not be denied.
    #[must_use]
    pub fn deny_write(&self) -> Vec<String> {
        if self.writes.is_empty() {
            return Vec::new();
        }
        // A relative glob that denies starts where a path is allowed, and not where a glob is.
        let globs = self.writes.iter().any(|(entry, _)| entry.is_glob());
        let everywhere = shipped::list("@agent", "denyWrite").into_iter();
        let everywhere = everywhere.filter(|entry| entry.starts_with("**/"));
        everywhere.map(|entry| if globs { format!("/{entry}") } else { entry }).collect()
    }
}

/// Entries of `filesystem.denyRead` of every learned policy.
#[must_use]
pub fn secrets() -> Vec<String> {
    shipped::list("@secrets", "denyRead")
}

impl Notes {
    /// Nothing so far. `daemons` are the sockets that are never granted.
    #[must_use]
    pub fn new(places: Places, daemons: Daemons) -> Notes {
        Notes {
            places,
            daemons,
            grants: BTreeMap::new(),
            git_dir: Evidence::default(),
            lists: false,
            names: false,
            sockets: BTreeMap::new(),
            named: BTreeMap::new(),
            connected: BTreeMap::new(),
            datagrams: BTreeMap::new(),
            bound: BTreeSet::new(),
            unix: BTreeMap::new(),
            refused: BTreeMap::new(),
            omitted: 0,
        }
    }

    /// The same, where the learned policy extends one that lists hosts, if `lists` says so: then the network as a
    /// whole is never granted.
    #[must_use]
    pub fn beside_hosts(self, lists: bool) -> Notes {
        Notes { lists, ..self }
    }

    /// The program `by` changed `path`, absolute and free of links, and nothing allows that yet.
    pub fn wrote(&mut self, path: &[u8], change: Change, by: &str) {
        let Ok(text) = std::str::from_utf8(path) else {
            return self.refuse(&String::from_utf8_lossy(path), Why::Name, by);
        };
        if let Verdict::Allow(Some(rule)) = self.places.guarded(path)
            && rule.origin.key == "filesystem.gitDir"
        {
            let spelled = self.places.spell(text);
            return self.git_dir.add(&spelled, by);
        }
        match self.places.grant(text, change) {
            Err(why) => self.refuse(text, why, by),
            Ok(grant) => {
                let spelled = self.places.spell(text);
                let grant = match covering(&self.grants, &grant) {
                    Some(wider) => wider.to_owned(),
                    None => grant,
                };
                if self.grants.len() >= MOST_KEPT && !self.grants.contains_key(&grant) {
                    // Not for each of the many that may still come.
                    if self.omitted.is_multiple_of(MOST_KEPT as u64) {
                        self.collapse(MOST_SIBLINGS);
                    }
                    if self.grants.len() >= MOST_KEPT {
                        self.omitted += 1;
                        return;
                    }
                }
                self.grants.entry(grant).or_default().add(&spelled, by);
            }
        }
    }

    /// The program `by` was denied something at `path` while it was learned from, and `why`, as far as
    /// that is not told by the path.
    pub fn denied(&mut self, path: &[u8], why: Why, by: &str) {
        let why = match why {
            Why::Denied => self.places.never(path).unwrap_or(why),
            _ => why,
        };
        self.refuse(&String::from_utf8_lossy(path), why, by);
    }

    /// The program `by` was denied a socket, or an address, by the policy that is attached to it.
    pub fn closed(&mut self, target: &str, by: &str) {
        self.refuse(target, Why::Attached, by);
    }

    /// The program `by` used a socket in a way that nothing allows yet.
    pub fn used(&mut self, socket: &Socket, by: &str) {
        if self.lists && socket.asks_for_names() {
            self.names = true;
            self.refuse("the host of a name that was looked up", Why::Unnamed, by);
            // In a run that lists hosts, those questions are answered.
            if !matches!(socket, Socket::Connect(Endpoint::Path(_))) {
                return;
            }
        }
        let room = |known: &BTreeMap<SocketAddr, Evidence>, to| {
            known.len() < MOST_KEPT || known.contains_key(to)
        };
        match socket.need(&self.daemons) {
            endpoint::Need::Nothing => {}
            endpoint::Need::Host(_) if !self.lists => {
                self.sockets.entry("allowNetwork").or_default().add(&socket.to_string(), by);
            }
            endpoint::Need::Local(to) | endpoint::Need::Host(to) => {
                if room(&self.connected, &to) {
                    self.connected.entry(to).or_default().add(&socket.to_string(), by);
                } else {
                    self.omitted += 1;
                }
            }
            endpoint::Need::Switch("allowNetwork") if self.lists => match socket {
                Socket::Datagram(to) if room(&self.datagrams, to) => {
                    self.datagrams.entry(*to).or_default().add(&socket.to_string(), by);
                }
                Socket::Datagram(_) => self.omitted += 1,
                _ => self.refuse(&socket.to_string(), Why::Listed, by),
            },
            endpoint::Need::Switch(key) => {
                self.sockets.entry(key).or_default().add(&socket.to_string(), by);
            }
            endpoint::Need::Path(path) if self.unix.len() < MOST_KEPT => {
                let spelled = self.places.spell(path);
                self.unix.entry(path.to_owned()).or_default().add(&spelled, by);
            }
            endpoint::Need::Path(_) => self.omitted += 1,
            endpoint::Need::Refused(why) => self.refuse(&socket.to_string(), why, by),
        }
    }

    /// The program `by` asked the proxy for `host`, a name with a port.
    pub fn named(&mut self, host: &str, by: &str) {
        if self.named.len() < MOST_KEPT || self.named.contains_key(host) {
            self.named.entry(host.to_owned()).or_default().add(host, by);
        } else {
            self.omitted += 1;
        }
    }

    /// The run bound `port`, so that a server there is its own.
    pub fn bound(&mut self, port: u16) {
        self.bound.insert(port);
    }

    /// What was connected to becomes the entries for it, of `hostPorts` and of `allowedDomains`. Which servers are
    /// the run's own is known by now: a client may come before its server.
    fn connections(&mut self) -> (BTreeMap<u16, Evidence>, BTreeMap<String, Evidence>) {
        let (mut ports, mut hosts) =
            (BTreeMap::<_, Evidence>::new(), BTreeMap::<_, Evidence>::new());
        for (host, evidence) in take(&mut self.named) {
            if hosts.len() < MOST_ENTRIES {
                hosts.insert(host, evidence);
            } else {
                self.refused.entry((host, Why::TooMany)).or_default().merge(evidence);
            }
        }
        let connected = take(&mut self.connected);
        for (to, evidence) in take(&mut self.datagrams) {
            // Where getaddrinfo(3) asks for the way to an address, which is no use of it.
            if !connected.keys().any(|known| known.ip() == to.ip()) {
                let key = (Socket::Datagram(to).to_string(), Why::Listed);
                self.refused.entry(key).or_default().merge(evidence);
            }
        }
        for (to, evidence) in connected {
            let entry = SocketAddr::new(to.ip().to_canonical(), to.port()).to_string();
            if endpoint::is_local(to.ip()) {
                if to.port() == 0 || self.bound.contains(&to.port()) {
                    self.sockets.entry("allowLocalBinding").or_default().merge(evidence);
                } else if has_host_ports(to.ip()) && ports.len() < MOST_ENTRIES {
                    ports.entry(to.port()).or_default().merge(evidence);
                } else if !has_host_ports(to.ip()) && hosts.len() < MOST_ENTRIES {
                    hosts.entry(entry).or_default().merge(evidence);
                } else {
                    self.refused.entry((entry, Why::TooMany)).or_default().merge(evidence);
                }
            } else if self.names || to.port() == 0 || entry.contains('%') {
                self.refused.entry((entry, Why::Unnamed)).or_default().merge(evidence);
            } else if hosts.len() < MOST_ENTRIES {
                hosts.entry(entry).or_default().merge(evidence);
            } else {
                self.refused.entry((entry, Why::TooMany)).or_default().merge(evidence);
            }
        }
        (ports, hosts)
    }

    fn refuse(&mut self, path: &str, why: Why, by: &str) {
        let spelled = self.places.spell(path);
        let key = (spelled.clone(), why);
        if self.refused.len() >= MOST_KEPT && !self.refused.contains_key(&key) {
            self.omitted += 1;
            return;
        }
        self.refused.entry(key).or_default().add(&spelled, by);
    }

    /// Replaces entries by the directory that holds them, where more than `most` do.
    fn collapse(&mut self, most: usize) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for path in self.grants.keys() {
            for above in place::ancestors(path) {
                *counts.entry(above).or_default() += 1;
            }
        }
        let mut crowded: Vec<String> = counts
            .into_iter()
            .filter(|(dir, count)| *count > most && self.places.grantable(dir))
            .map(|(dir, _)| dir.to_owned())
            .collect();
        // The deepest first: what it takes in no longer counts further up.
        crowded.sort_by_key(|dir| std::cmp::Reverse(dir.matches('/').count()));
        for dir in crowded {
            let inside = format!("{dir}/");
            let taken: Vec<String> = self
                .grants
                .range(inside.clone()..)
                .map(|(path, _)| path)
                .take_while(|path| path.starts_with(&inside))
                .cloned()
                .collect();
            if taken.len() > most {
                self.take_in(dir, taken);
            }
        }
    }

    /// Puts one entry in the place of several.
    fn take_in(&mut self, wider: String, taken: Vec<String>) {
        let mut all = self.grants.remove(&wider).unwrap_or_default();
        for path in taken {
            all.merge(self.grants.remove(&path).unwrap_or_default());
        }
        self.grants.insert(wider, all);
    }

    /// What was learned, which is forgotten here; `view` says what the run left.
    pub fn finish(&mut self, view: &dyn FsView) -> Learned {
        // A name that is gone was made up for the moment, and will be another one next time.
        for scratch in place::SCRATCH.iter().filter(|dir| view.kind(dir) == Kind::Dir) {
            let names =
                self.grants.keys().filter(|path| place::ancestors(path).next() == Some(scratch));
            let gone =
                names.filter(|path| view.kind(path) == Kind::Absent).cloned().collect::<Vec<_>>();
            if !gone.is_empty() && self.places.scratch(scratch) {
                let inside = format!("{scratch}/");
                let all = self.grants.keys().filter(|path| path.starts_with(&inside));
                let all = all.cloned().collect();
                self.take_in((*scratch).to_owned(), all);
            }
        }
        self.drop_covered();
        self.collapse(MOST_SIBLINGS);
        let globs = self.globs(view);
        if self.grants.len() > MOST_ENTRIES {
            self.collapse(1);
        }
        while self.grants.len() + globs.len() > MOST_ENTRIES {
            let Some((path, evidence)) = self.grants.pop_last() else { break };
            let key = (self.places.spell(&path), Why::TooMany);
            self.refused.entry(key).or_default().merge(evidence);
        }
        let (mut ports, mut hosts) = self.connections();
        let places = &self.places;
        let spelled = |(path, evidence): (String, Evidence)| {
            let text = places.spell(&path);
            let special = text.contains(['*', '?', '[', '{', '$']);
            let spelling = if special { Spelling::Literal } else { Spelling::Plain };
            (Entry { text, spelling }, evidence)
        };
        let mut writes: Vec<_> = take(&mut self.grants).into_iter().map(spelled).collect();
        writes.extend(globs);
        writes.sort_by(|(a, _), (b, _)| a.text.cmp(&b.text));
        let mut switches: Vec<_> = take(&mut self.sockets).into_iter().collect();
        if switches.iter().any(|(key, _)| *key == "allowNetwork") {
            switches.retain(|(key, _)| *key != "allowLocalBinding");
            ports.clear();
            hosts.clear();
            self.refused.retain(|(_, why), _| *why != Why::Datagrams);
        }
        Learned {
            writes,
            git_dir: Some(take(&mut self.git_dir)).filter(|evidence| evidence.count > 0),
            switches,
            ports: ports.into_iter().collect(),
            hosts: hosts.into_iter().collect(),
            unix: take(&mut self.unix).into_iter().map(spelled).collect(),
            refused: take(&mut self.refused)
                .into_iter()
                .map(|((path, why), evidence)| (path, why, evidence))
                .collect(),
            omitted: self.omitted,
        }
    }

    /// Takes out the names with numbers in them that stand for many, or for others next time, and gives
    /// globs for them: a directory that can be granted whole has none.
    fn globs(&mut self, view: &dyn FsView) -> Vec<(Entry, Evidence)> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in self.grants.keys() {
            if let Some(pattern) = self.places.numbered(path) {
                groups.entry(pattern).or_default().push(path.clone());
            }
        }
        groups.retain(|_, paths| {
            paths.len() > MOST_SIBLINGS || paths.iter().any(|path| view.kind(path) == Kind::Absent)
        });
        let mut globs = Vec::new();
        for (pattern, paths) in groups {
            let mut all = Evidence::default();
            for path in paths {
                all.merge(self.grants.remove(&path).unwrap_or_default());
            }
            let text = self.places.spell(&pattern);
            globs.push((Entry { text, spelling: Spelling::Plain }, all));
        }
        globs
    }

    /// Drops entries below others.
    fn drop_covered(&mut self) {
        let covered: Vec<(String, String)> = self
            .grants
            .keys()
            .filter_map(|path| {
                let wider = place::ancestors(path).filter(|dir| self.grants.contains_key(*dir));
                Some((wider.last()?.to_owned(), path.clone()))
            })
            .collect();
        for (wider, path) in covered {
            self.take_in(wider, vec![path]);
        }
    }
}

/// The entry that covers `path`, if there is one.
fn covering<'a>(grants: &'a BTreeMap<String, Evidence>, path: &str) -> Option<&'a str> {
    let above = std::iter::once(path).chain(place::ancestors(path));
    above.filter_map(|dir| grants.get_key_value(dir)).map(|(dir, _)| dir.as_str()).last()
}
