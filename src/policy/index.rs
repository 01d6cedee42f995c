//! The literal rules of a policy, by path: one hash look-up for each ancestor of a path, and a
//! binary search for what lies below one.

use super::path::{depth, is_below};
use super::rule::{Access, Effect, Pattern, Rule};

/// No rule.
const NONE: u32 = u32::MAX;
/// FNV-1a, 64 bits: one multiplication a byte, and a prefix's hash is on the way to the next.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The rules about one path, as indices into the rules; of several, the first.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Any rule about the path: where to read the path.
    any: u32,
    allow: [u32; 2],
    deny: [u32; 2],
    always: [u32; 2],
    name: u32,
}

/// What the literal rules say about a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// The deepest rule, its depth and effect.
    pub best: Option<(usize, Effect, usize)>,
    /// A denial that nothing re-opens.
    pub always: Option<usize>,
}

impl Found {
    /// Takes in what is said about a prefix deeper than those before; `is_whole` says that it is
    /// the path itself.
    fn weigh(
        &mut self,
        rules: &[Rule],
        group: &Group,
        access: Access,
        depth: usize,
        is_whole: bool,
    ) {
        let (allow, mut deny) = (group.allow[access as usize], group.deny[access as usize]);
        let mut always = group.always[access as usize];
        if is_whole && access == Access::Write && group.name != NONE {
            if rules[group.name as usize].always {
                always = group.name;
            } else if deny == NONE {
                deny = group.name;
            }
        }
        if always != NONE && self.always.is_none() {
            self.always = Some(always as usize);
        }
        // The one that wins at equal depth comes last.
        let pair = match access {
            Access::Read => [(deny, Effect::Deny), (allow, Effect::Allow)],
            Access::Write => [(allow, Effect::Allow), (deny, Effect::Deny)],
        };
        for (rule, effect) in pair {
            if rule != NONE {
                self.best = Some((depth, effect, rule as usize));
            }
        }
    }
}

/// An index over the literal rules.
#[derive(Debug)]
pub(crate) struct Index {
    /// Sorted by path, bytewise.
    groups: Vec<Group>,
    /// Open addressing; a slot holds a group's position plus one.
    table: Vec<u32>,
    /// The depths at which there are literal rules; bit 63 stands for all from 63 on.
    depths: u64,
}

fn literal(rule: &Rule) -> Option<&str> {
    match &rule.pattern {
        Pattern::Subtree(path) | Pattern::Name(path) => Some(path),
        Pattern::Glob(_) => None,
    }
}

fn depth_bit(depth: usize) -> u64 {
    1 << depth.min(63)
}

impl Index {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut order: Vec<(&str, u32)> =
            rules.iter().zip(0u32..).filter_map(|(rule, i)| Some((literal(rule)?, i))).collect();
        order.sort_unstable();
        let mut groups: Vec<Group> = Vec::with_capacity(order.len());
        let mut depths = 0;
        let mut last = None;
        for (path, i) in order {
            if last != Some(path) {
                last = Some(path);
                depths |= depth_bit(depth(path.as_bytes()));
                groups.push(Group {
                    any: i,
                    allow: [NONE; 2],
                    deny: [NONE; 2],
                    always: [NONE; 2],
                    name: NONE,
                });
            }
            let rule = &rules[i as usize];
            let end = groups.len() - 1;
            let group = &mut groups[end];
            let access = rule.access as usize;
            let slot = match (&rule.pattern, rule.effect) {
                (Pattern::Name(_), _) => &mut group.name,
                (_, Effect::Allow) => &mut group.allow[access],
                (_, Effect::Deny) if rule.always => &mut group.always[access],
                (_, Effect::Deny) => &mut group.deny[access],
            };
            let firmer = |old: u32| rule.always && !rules[old as usize].always;
            if *slot == NONE || firmer(*slot) {
                *slot = i;
            }
        }
        let mut index =
            Self { table: vec![0; (groups.len() * 2).next_power_of_two().max(2)], groups, depths };
        for position in 0..index.groups.len() {
            let path = index.path(rules, position).as_bytes();
            let hash =
                path.iter().fold(FNV_START, |h, &b| (h ^ u64::from(b)).wrapping_mul(FNV_PRIME));
            let mut slot = index.slot(hash);
            while index.table[slot] != 0 {
                slot = (slot + 1) & (index.table.len() - 1);
            }
            index.table[slot] = position as u32 + 1;
        }
        index
    }

    fn slot(&self, hash: u64) -> usize {
        // The low bits of FNV-1a are its weakest.
        (hash ^ hash >> 32) as usize & (self.table.len() - 1)
    }

    fn path<'a>(&self, rules: &'a [Rule], position: usize) -> &'a str {
        literal(&rules[self.groups[position].any as usize]).unwrap_or_default()
    }

    fn get(&self, rules: &[Rule], path: &[u8], hash: u64) -> Option<&Group> {
        let mut slot = self.slot(hash);
        loop {
            let position = (self.table[slot] as usize).checked_sub(1)?;
            if self.path(rules, position).as_bytes() == path {
                return Some(&self.groups[position]);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
    }

    /// What the rules say about `path`, absolute and normalized.
    pub(crate) fn find(&self, rules: &[Rule], access: Access, path: &[u8]) -> Found {
        let mut found = Found::default();
        let mut hash = (FNV_START ^ u64::from(b'/')).wrapping_mul(FNV_PRIME);
        if let Some(root) = self.get(rules, b"/", hash) {
            found.weigh(rules, root, access, 0, path.len() == 1);
        }
        let mut depth = 0;
        for end in 1..=path.len() {
            let ends = end == path.len() || path[end] == b'/';
            if ends && end > 1 {
                depth += 1;
                if self.depths & depth_bit(depth) != 0
                    && let Some(group) = self.get(rules, &path[..end], hash)
                {
                    found.weigh(rules, group, access, depth, end == path.len());
                }
            }
            if let Some(&b) = path.get(end) {
                hash = (hash ^ u64::from(b)).wrapping_mul(FNV_PRIME);
            }
        }
        found
    }

    /// The positions of the groups strictly below `dir`.
    fn below(&self, rules: &[Rule], dir: &[u8]) -> std::ops::Range<usize> {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        // Compares a path with `dir` followed by `/`, and with everything that starts so.
        let before = |position: usize, past: bool| {
            let path = self.path(rules, position).as_bytes();
            let head = &path[..path.len().min(dir.len() + 1)];
            let order = head.iter().cmp(dir.iter().chain(std::iter::once(&b'/')));
            order.is_lt() || past && order.is_eq()
        };
        let search = |past| {
            let (mut low, mut high) = (0, self.groups.len());
            while low < high {
                let middle = low + (high - low) / 2;
                if before(middle, past) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        let (from, to) = (search(false), search(true));
        // `/` itself sorts as below `/`.
        let from = from + usize::from(dir.is_empty() && from < to && self.path(rules, from) == "/");
        from..to
    }

    /// A grant about `path` itself or strictly below it that `wanted` accepts.
    pub(crate) fn grant_from<'a>(
        &self,
        rules: &'a [Rule],
        path: &[u8],
        wanted: impl Fn(&Rule) -> bool,
    ) -> Option<&'a Rule> {
        let hash = path.iter().fold(FNV_START, |h, &b| (h ^ u64::from(b)).wrapping_mul(FNV_PRIME));
        let wanted = |rule: &Rule| rule.effect == Effect::Allow && wanted(rule);
        let own = self.get(rules, path, hash).and_then(|group| {
            let grants = group.allow.iter().filter(|&&rule| rule != NONE);
            grants.map(|&rule| &rules[rule as usize]).find(|rule| wanted(rule))
        });
        own.or_else(|| self.any_below(rules, path, wanted))
    }

    /// A rule strictly below `dir` that `wanted` accepts.
    pub(crate) fn any_below<'a>(
        &self,
        rules: &'a [Rule],
        dir: &[u8],
        wanted: impl Fn(&Rule) -> bool,
    ) -> Option<&'a Rule> {
        self.below(rules, dir).find_map(|position| {
            let group = &self.groups[position];
            debug_assert!(is_below(self.path(rules, position).as_bytes(), dir));
            group
                .allow
                .iter()
                .chain(&group.deny)
                .chain(&group.always)
                .chain([&group.name])
                .filter(|&&rule| rule != NONE)
                .map(|&rule| &rules[rule as usize])
                .find(|rule| wanted(rule))
        })
    }
}
