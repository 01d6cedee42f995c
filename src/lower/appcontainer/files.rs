//! The rules about paths, as entries of access control lists.
//!
//! What a list says of a directory is inherited below, so a rule needs an entry where its verdict differs from
//! the one above:
//!
//! - where it opens more, the object gets an entry for the run's container;
//! - where it closes something, the object stops inheriting, and gets what is left.
//!
//! A denial is about names, and a list about an object. So that they stay together, nothing on the way to a
//! denied or granted path can be deleted or moved: such directories grant all but that. What is granted and does
//! not exist may be made by the run, as a link too; Windows lets no sandboxed program make one to a directory
//! that it may not write. Above what is granted, directories may be passed through, and nothing there is listed
//! or read.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::dacl::{Ace, CONTAINER_INHERIT, INHERIT_ONLY, OBJECT_INHERIT};
use super::path::{is_alias, is_volume};
use super::shortfall::Shortfall;
use crate::policy::{Access, Decider, Effect, FsView, Kind, ResolvedPolicy, Rule};

// winnt.h: FILE_GENERIC_READ and FILE_GENERIC_EXECUTE, FILE_GENERIC_WRITE, DELETE; and of FILE_TRAVERSE,
// FILE_READ_ATTRIBUTES and SYNCHRONIZE, what passing through a directory takes. FILE_DELETE_CHILD is in none:
// it would delete what may not be.
const READ: u32 = 0x0012_00a9;
const WRITE: u32 = 0x0012_0116;
const DELETE: u32 = 0x0001_0000;
const TRAVERSE: u32 = 0x0010_00a0;

/// What is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rights {
    /// Reading, listing and executing.
    pub read: bool,
    /// Writing; below a directory deleting and moving, too.
    pub write: bool,
}

impl Rights {
    fn is_none(self) -> bool {
        self == Rights::default()
    }

    /// Whether `self` grants nothing that `other` does not.
    fn is_within(self, other: Rights) -> bool {
        (!self.read || other.read) && (!self.write || other.write)
    }

    fn mask(self) -> u32 {
        (if self.read { READ } else { 0 }) | (if self.write { WRITE } else { 0 })
    }
}

/// What is done to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The object, as a path of policies. Its last component may be a link; then it is the link itself.
    pub path: String,
    /// What is granted at it and, where it is a directory, below.
    pub rights: Rights,
    /// It is a directory.
    pub directory: bool,
    /// It inherits nothing any more.
    pub block: bool,
    /// It may be passed through.
    pub traverse: bool,
}

impl Entry {
    /// The entries of its list that do this for the container `sid`.
    #[must_use]
    pub fn aces(&self, sid: &[u8]) -> Vec<Ace> {
        let here = self.rights.mask() | if self.traverse { TRAVERSE } else { 0 };
        let mut aces = Vec::new();
        if here != 0 {
            aces.push(Ace::allow(here, 0, sid));
        }
        if self.directory && !self.rights.is_none() {
            let delete = if self.rights.write { DELETE } else { 0 };
            let flags = OBJECT_INHERIT | CONTAINER_INHERIT | INHERIT_ONLY;
            aces.push(Ace::allow(self.rights.mask() | delete, flags, sid));
        }
        aces
    }

    /// Whether the run can do without it: where the directory's list is not ours to change. A container
    /// passes through directories by a privilege of its user as well, `SeChangeNotifyPrivilege`.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.rights.is_none() && !self.block
    }
}

/// The entries for `policy`, no directory behind what is below it, and what of its paths they do not hold.
/// `decider` knows `rules`, which are its literal ones.
pub fn entries(
    policy: &ResolvedPolicy,
    rules: &[Rule],
    decider: &Decider,
    view: &dyn FsView,
) -> (Vec<Entry>, Vec<Shortfall>) {
    let mut lowering = Lowering { decider, view, nodes: BTreeMap::new(), shortfalls: Vec::new() };
    for rule in rules {
        lowering.place(rule);
    }
    lowering.fix_ways();
    let linked: BTreeSet<&str> = policy.linked.iter().map(|linked| linked.path.as_str()).collect();
    (lowering.entries(&linked), lowering.shortfalls)
}

struct Lowering<'a> {
    decider: &'a Decider,
    view: &'a dyn FsView,
    /// The objects that a rule is about, or that lie on the way to one; whether each is a directory. In this
    /// order a directory comes before what is below it.
    nodes: BTreeMap<String, bool>,
    shortfalls: Vec<Shortfall>,
}

impl Lowering<'_> {
    fn rights(&self, path: &str) -> Rights {
        let allowed = |access| self.decider.decide(access, path.as_bytes()).is_allowed();
        Rights { read: allowed(Access::Read), write: allowed(Access::Write) }
    }

    /// Finds the object that a rule is about.
    fn place(&mut self, rule: &Rule) {
        let path = rule.place();
        if is_volume(path) {
            return; // Denied like everything else, or refused.
        }
        let kind = self.view.kind(path);
        if is_alias(&kind) {
            return; // The name that is kept has a rule of its own.
        }
        if kind != Kind::Absent {
            self.nodes.insert(path.to_owned(), kind == Kind::Dir);
            return;
        }
        let mut above = ancestors(path);
        let Some(existing) = above.find(|above| self.view.kind(above) == Kind::Dir) else { return };
        let inherited = self.decider.decide(rule.access, existing.as_bytes()).is_allowed();
        match rule.effect {
            Effect::Allow if inherited => {
                self.nodes.insert(existing.to_owned(), true);
            }
            Effect::Allow => {
                let message = "the path does not exist, and what does not exist cannot be granted";
                self.shortfalls.push(Shortfall::acceptable("absent", message, &rule.origin));
            }
            Effect::Deny if inherited => {
                let message =
                    "the path does not exist, and may be made in a directory that is granted";
                self.shortfalls.push(Shortfall::acceptable("absent", message, &rule.origin));
            }
            Effect::Deny => {}
        }
    }

    /// Adds the directories above each object, as far as they may be written.
    fn fix_ways(&mut self) {
        let ways = self.nodes.keys().flat_map(|path| {
            ancestors(path).take_while(|above| self.rights(above).write).map(str::to_owned)
        });
        let ways: Vec<String> = ways.collect();
        self.nodes.extend(ways.into_iter().map(|way| (way, true)));
    }

    fn entries(&self, linked: &BTreeSet<&str>) -> Vec<Entry> {
        let mut entries: BTreeMap<&str, Entry> = BTreeMap::new();
        for (path, &directory) in &self.nodes {
            let above = ancestors(path).find(|above| self.nodes.contains_key(*above));
            let inherited = above.map(|above| self.rights(above)).unwrap_or_default();
            let rights = self.rights(path);
            // Of a file with other names, the directory of another one may hand its grants down to it.
            let block = inherited.write
                || !inherited.is_within(rights)
                || (linked.contains(path.as_str())
                    && rights != (Rights { read: true, write: true }));
            if !block && rights == inherited {
                continue;
            }
            let entry = Entry { path: path.clone(), rights, directory, block, traverse: false };
            entries.insert(path, entry);
        }
        let granted: Vec<&str> = (entries.iter())
            .filter(|(_, entry)| !entry.rights.is_none())
            .map(|(path, _)| *path)
            .collect();
        for above in granted.into_iter().flat_map(ancestors) {
            // What may be read may be passed through.
            if self.rights(above).read {
                continue;
            }
            let passed = || Entry {
                path: above.to_owned(),
                rights: Rights::default(),
                directory: true,
                block: false,
                traverse: true,
            };
            let entry = entries.entry(above).or_insert_with(passed);
            entry.traverse = true;
        }
        entries.into_values().collect()
    }
}

/// The directories above `path`, the nearest first, without the root above all drives.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').skip(1).map(|(at, _)| &path[..at]).collect::<Vec<_>>().into_iter().rev()
}
