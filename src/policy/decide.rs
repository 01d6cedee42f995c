//! The one meaning of a policy: what is allowed to be done to a path.
//!
//! A rule matches a path when its pattern matches the path or an ancestor of it. The most specific
//! rule wins: the one whose *shallowest* match on the way from `/` to the path is deepest. At
//! equal depth a literal beats a glob; between the like, denial wins for writing and permission
//! wins for reading. A denial of the `*Always` lists beats everything. What no rule matches may be
//! read and may not be written.
//!
//! Denying globs do not apply to `/proc` and what is below it (literals do): the names there are
//! made up by the kernel as processes come and go, and a glob meant for files would only hide
//! them.

use super::glob::{Glob, Reach};
use super::index::Index;
use super::path::is_within;
use super::resolved::ResolvedPolicy;
use super::rule::{Access, Effect, Pattern, Rule};

/// Why something is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing allows it.
    AllowMiss,
    /// A rule denies it.
    DenyMatch,
}

/// The answer about one access to one path, and the rule that gave it, if any did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict<'a> {
    /// Allowed, by a rule or by default.
    Allow(Option<&'a Rule>),
    /// Denied.
    Deny {
        /// The rule that denies; none when nothing allows.
        rule: Option<&'a Rule>,
        /// Why.
        reason: Reason,
    },
}

impl<'a> Verdict<'a> {
    /// Whether the access is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// The rule that gave the answer.
    pub fn rule(&self) -> Option<&'a Rule> {
        match *self {
            Self::Allow(rule) | Self::Deny { rule, .. } => rule,
        }
    }
}

/// Answers what a resolved policy means for a path. Building one costs a sort of the rules; asking
/// allocates nothing.
#[derive(Debug)]
pub struct Decider {
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: Index,
    /// The rules whose pattern is a glob.
    globs: Vec<u32>,
}

impl Decider {
    /// Indexes the rules of a policy.
    pub fn new(policy: &ResolvedPolicy) -> Self {
        Self::of_rules(policy.rules.clone())
    }

    /// Indexes a list of rules.
    pub fn of_rules(rules: Vec<Rule>) -> Self {
        Self {
            index: Index::new(&rules),
            globs: rules
                .iter()
                .zip(0..)
                .filter(|(rule, _)| matches!(rule.pattern, Pattern::Glob(_)))
                .map(|(_, i)| i)
                .collect(),
            rules,
        }
    }

    /// The rules, in the order of the policy.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The glob rules that can apply to `path`.
    pub(crate) fn globs(&self, path: &[u8]) -> impl Iterator<Item = (&Rule, &Glob, usize)> {
        let exempt = is_within(path, b"/proc");
        self.globs.iter().filter_map(move |&i| {
            let rule = &self.rules[i as usize];
            match &rule.pattern {
                Pattern::Glob(glob) if !(exempt && rule.effect == Effect::Deny) => {
                    Some((rule, glob, i as usize))
                }
                _ => None,
            }
        })
    }

    /// Decides about a path, which is absolute and free of symbolic links, `.`, `..` and doubled
    /// slashes. Anything that does not start with `/`, such as the name of an unreachable
    /// directory, is denied.
    pub fn decide(&self, access: Access, path: &[u8]) -> Verdict<'_> {
        if path.first() != Some(&b'/') {
            return Verdict::Deny {
                rule: None,
                reason: Reason::AllowMiss,
            };
        }
        let found = self.index.find(&self.rules, access, path);
        let mut always = found.always;
        let preferred = match access {
            Access::Read => Effect::Allow,
            Access::Write => Effect::Deny,
        };
        let weight =
            |depth: usize, literal: bool, effect: Effect| (depth, literal, effect == preferred);
        let mut best = found
            .best
            .map(|(depth, effect, rule)| (weight(depth, true, effect), rule));
        if always.is_none() && !self.globs.is_empty() {
            for (rule, glob, i) in self.globs(path) {
                if rule.access != access {
                    continue;
                }
                if let Reach::Matched(depth) = glob.reach(path) {
                    if rule.always {
                        always = Some(i);
                        break;
                    }
                    let weight = weight(depth, false, rule.effect);
                    if best.is_none_or(|(best, _)| best < weight) {
                        best = Some((weight, i));
                    }
                }
            }
        }
        match always.or(best.map(|(_, i)| i)).map(|i| &self.rules[i]) {
            Some(rule) if rule.effect == Effect::Allow => Verdict::Allow(Some(rule)),
            Some(rule) => Verdict::Deny {
                rule: Some(rule),
                reason: Reason::DenyMatch,
            },
            None if access == Access::Read => Verdict::Allow(None),
            None => Verdict::Deny {
                rule: None,
                reason: Reason::AllowMiss,
            },
        }
    }

    /// Whether moving the *directory* `from` to the name `to` would change the verdict on anything
    /// it holds or may come to hold: then the rule that would stop or start to apply. Such a move
    /// must be refused. A file's move only needs [`decide`](Self::decide) on both names.
    pub fn directory_move(&self, from: &[u8], to: &[u8]) -> Option<&Rule> {
        if from.first() != Some(&b'/') || to.first() != Some(&b'/') {
            return None; // decide() denies both names.
        }
        for end in [from, to] {
            if let Some(rule) = self.index.any_below(&self.rules, end, |_| true) {
                return Some(rule);
            }
        }
        for access in [Access::Read, Access::Write] {
            let (before, after) = (self.decide(access, from), self.decide(access, to));
            if before.is_allowed() != after.is_allowed()
                && let Some(rule) = before.rule().or(after.rule())
            {
                return Some(rule);
            }
        }
        let reach = |glob: &Glob, rule: &Rule, path: &[u8]| {
            if rule.effect == Effect::Deny && is_within(path, b"/proc") {
                Reach::Dead
            } else {
                glob.reach(path)
            }
        };
        self.globs.iter().find_map(|&i| {
            let rule = &self.rules[i as usize];
            let Pattern::Glob(glob) = &rule.pattern else {
                return None;
            };
            let same = match (reach(glob, rule, from), reach(glob, rule, to)) {
                (Reach::Above, _) | (_, Reach::Above) => false,
                (Reach::Matched(_), Reach::Matched(_)) => true,
                (before, after) => before == after,
            };
            (!same).then_some(rule)
        })
    }

    /// Whether a symbolic link must not be created at `path` because the name lies on the way to a
    /// denied path, which would then mean something else: the rule that denies it.
    pub fn link_name(&self, path: &[u8]) -> Option<&Rule> {
        if path.first() != Some(&b'/') {
            return None; // decide() denies the name.
        }
        let denies = |rule: &Rule| rule.effect == Effect::Deny;
        if let Some(rule) = self.index.any_below(&self.rules, path, denies) {
            return Some(rule);
        }
        self.globs(path)
            .filter(|(rule, ..)| denies(rule))
            .find(|(_, glob, _)| glob.progresses_at(path))
            .map(|(rule, ..)| rule)
    }
}
