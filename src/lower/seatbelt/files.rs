//! The rules about paths.
//!
//! Of several rules of a profile that match, the last one counts. A policy's rules about literal paths are
//! therefore written by depth, the deepest last. What a glob matches has no depth of its own; but the
//! literal rules that outrank a glob where they stand outrank it everywhere below too, since the glob's
//! match is above. So a glob comes behind all literal rules, and leaves those subtrees out. Between globs
//! that allow and globs that deny, the policy's meaning depends on each path; here denial wins.

use std::collections::BTreeSet;

use super::regex::{self, Bias};
use super::text::{quoted, rule};
use crate::policy::glob::{Glob, Reach};
use crate::policy::path::depth;
use crate::policy::{Access, Effect, Pattern, ResolvedPolicy, Rule};

/// The operations of each access.
const READ: &str = "file-read* file-map-executable process-exec*";
/// What stat(2) and access(2) tell is no reading: it is open on every platform.
const METADATA: &str = "file-read-metadata file-test-existence";
const WRITE: &str = "file-write*";

/// The rules about reading and writing, a line each; `tag` is what the log says with each denial.
pub fn rules(policy: &ResolvedPolicy, tag: Option<&str>) -> Vec<String> {
    let (reading, writing) = (ordered(policy, Access::Read), ordered(policy, Access::Write));
    let mut lines = vec![rule("allow", READ, &[], None)];
    lines.extend(reading.iter().map(|one| one.line(READ, tag)));
    lines.push(rule("allow", METADATA, &[], None));
    lines.extend(writing.iter().map(|one| one.line(WRITE, tag)));
    let fixed = Fixed::of(policy);
    // What may not be read stays where it is, and so does what leads to a denial: moved away, it would
    // have another name.
    let moved: Vec<String> = denied(&reading).into_iter().chain(fixed.names.clone()).collect();
    lines.extend(any("file-write-unlink", &moved, tag));
    // And no link to elsewhere comes to stand on the way to it, or to what is granted.
    let names: Vec<String> = fixed.names.union(&fixed.granted).cloned().collect();
    let links = any_of(&names).map(|names| format!("(require-all (vnode-type SYMLINK) {names})"));
    lines.extend(any("file-write-create", &links.into_iter().collect::<Vec<_>>(), tag));
    // A program's own policy is not for the program to write; nor may one become another user's.
    lines.push(rule("deny", "file-write-xattr", &["(xattr \"user.landstrip.policy\")"], tag));
    lines.push(rule("deny", "file-write-setugid", &[], tag));
    lines
}

/// One rule of the policy, in the order in which the profile needs them.
struct Ordered {
    effect: Effect,
    filter: String,
}

impl Ordered {
    fn line(&self, operations: &str, tag: Option<&str>) -> String {
        match self.effect {
            Effect::Allow => rule("allow", operations, &[&self.filter], None),
            Effect::Deny => rule("deny", operations, &[&self.filter], tag),
        }
    }
}

fn ordered(policy: &ResolvedPolicy, access: Access) -> Vec<Ordered> {
    let rules = || policy.rules.iter().filter(|rule| rule.access == access);
    let preferred = if access == Access::Read { Effect::Allow } else { Effect::Deny };
    let mut literal: Vec<&Rule> =
        rules().filter(|rule| !rule.always && glob_of(rule).is_none()).collect();
    literal.sort_by_key(|rule| (depth(rule.place().as_bytes()), rule.effect == preferred));
    let mut ordered: Vec<Ordered> =
        literal.iter().map(|one| Ordered { effect: one.effect, filter: filter(one) }).collect();
    for effect in [Effect::Allow, Effect::Deny] {
        for one in rules().filter(|rule| !rule.always && rule.effect == effect) {
            let Some(glob) = glob_of(one) else { continue };
            let Some(text) = regex::glob(glob, bias(effect)) else { continue };
            let filter = outranked(&regex_filter(&text), glob, effect, &literal);
            ordered.push(Ordered { effect, filter });
        }
    }
    let always = rules().filter(|rule| rule.always);
    ordered.extend(always.map(|one| Ordered { effect: Effect::Deny, filter: filter(one) }));
    ordered
}

/// What the rules deny, as one filter.
fn denied(ordered: &[Ordered]) -> Option<String> {
    ordered.iter().fold(None, |denied, one| match (denied, one.effect) {
        (None, Effect::Allow) => None,
        (None, Effect::Deny) => Some(one.filter.clone()),
        (Some(denied), Effect::Allow) => {
            Some(format!("(require-all {denied} (require-not {}))", one.filter))
        }
        (Some(denied), Effect::Deny) => Some(format!("(require-any {denied} {})", one.filter)),
    })
}

/// The filter of a glob without the subtrees of literal rules that say otherwise and outrank it.
fn outranked(own: &str, glob: &Glob, effect: Effect, literal: &[&Rule]) -> String {
    let mut outside = Vec::new();
    for one in literal.iter().filter(|rule| rule.effect != effect) {
        if matches!(glob.reach(one.place().as_bytes()), Reach::Matched(_)) {
            outside.push(format!("(require-not {})", filter(one)));
        }
    }
    match outside.is_empty() {
        true => own.to_owned(),
        false => format!("(require-all {own} {})", outside.join(" ")),
    }
}

/// What a rule matches, as a filter of a profile.
fn filter(rule: &Rule) -> String {
    let denies = rule.effect == Effect::Deny;
    match &rule.pattern {
        Pattern::Subtree(path) if denies => format!(
            "(require-any (subpath {}) {})",
            quoted(path),
            regex_filter(&regex::path(path, true, Bias::Denies))
        ),
        Pattern::Subtree(path) => format!("(subpath {})", quoted(path)),
        Pattern::Name(path) => regex_filter(&regex::path(path, false, bias(rule.effect))),
        // Only a grant can come to nothing, and what is asked for here denies.
        Pattern::Glob(glob) => regex_filter(&regex::glob(glob, Bias::Denies).unwrap_or_default()),
    }
}

/// Names that are not to be moved or replaced, as filters.
#[derive(Default)]
struct Fixed {
    /// The directories on the way to what is denied.
    names: BTreeSet<String>,
    /// What is granted, and the way to it.
    granted: BTreeSet<String>,
}

impl Fixed {
    fn of(policy: &ResolvedPolicy) -> Fixed {
        let mut fixed = Fixed::default();
        let exact = |path: &str| regex_filter(&regex::path(path, false, Bias::Denies));
        for one in policy.rules.iter().filter(|rule| !rule.origin.is_built_in()) {
            let ancestors = ancestors(one.place()).map(exact);
            if one.effect == Effect::Allow {
                fixed.granted.extend(ancestors.chain([exact(one.place())]));
                continue;
            }
            fixed.names.extend(ancestors);
            if let Some(glob) = glob_of(one) {
                fixed.names.insert(exact(glob.anchor()));
                let names = regex::inner_names(glob).into_iter().map(|text| {
                    format!("(require-all (vnode-type DIRECTORY) {})", regex_filter(&text))
                });
                fixed.names.extend(names);
            }
        }
        fixed
    }
}

/// The directories above a path, but for the root.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').skip(1).map(|(at, _)| &path[..at])
}

fn glob_of(rule: &Rule) -> Option<&Glob> {
    match &rule.pattern {
        Pattern::Glob(glob) => Some(glob),
        _ => None,
    }
}

fn regex_filter(text: &str) -> String {
    format!("(regex {})", quoted(text))
}

fn bias(effect: Effect) -> Bias {
    match effect {
        Effect::Allow => Bias::Allows,
        Effect::Deny => Bias::Denies,
    }
}

fn any_of(filters: &[String]) -> Option<String> {
    match filters {
        [] => None,
        [one] => Some(one.clone()),
        _ => Some(format!("(require-any {})", filters.join(" "))),
    }
}

/// A denial of what any of the filters matches.
fn any(operation: &str, filters: &[String], tag: Option<&str>) -> Option<String> {
    any_of(filters).map(|filter| rule("deny", operation, &[&filter], tag))
}
