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

use super::component::Sieve;
use super::glob::{Glob, Reach};
use super::index::Index;
use super::path::is_within;
use super::resolved::ResolvedPolicy;
use super::rule::{Access, Effect, Pattern, Rule};
use super::view::{FsView, Kind};

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
    /// The denials around controls.
    guards: Vec<u32>,
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
            guards: (rules.iter().zip(0..).filter(|(rule, _)| rule.guards_controls()))
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
            return Verdict::Deny { rule: None, reason: Reason::AllowMiss };
        }
        let found = self.index.find(&self.rules, access, path);
        let mut always = found.always;
        let preferred = match access {
            Access::Read => Effect::Allow,
            Access::Write => Effect::Deny,
        };
        let weight =
            |depth: usize, literal: bool, effect: Effect| (depth, literal, effect == preferred);
        let mut best = found.best.map(|(depth, effect, rule)| (weight(depth, true, effect), rule));
        if always.is_none() && !self.globs.is_empty() {
            let names = Sieve::of_path(path);
            for (rule, glob, i) in self.globs(path) {
                if rule.access != access || !glob.may_match(&names) {
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
            Some(rule) if rule.effect == Effect::Allow => {
                let literal = found.best.map(|(.., i)| &self.rules[i]);
                match self.guard(path, rule, literal) {
                    Some(guard) => Verdict::Deny { rule: Some(guard), reason: Reason::DenyMatch },
                    None => Verdict::Allow(Some(rule)),
                }
            }
            Some(rule) => Verdict::Deny { rule: Some(rule), reason: Reason::DenyMatch },
            None if access == Access::Read => Verdict::Allow(None),
            None => Verdict::Deny { rule: None, reason: Reason::AllowMiss },
        }
    }

    /// The denial around controls that `rule`, a grant, does not reach through: a glob from above
    /// matches deeper than the denial stands, and names nothing in there all the same. `literal` is
    /// the deepest literal rule about the path.
    fn guard(&self, path: &[u8], rule: &Rule, literal: Option<&Rule>) -> Option<&Rule> {
        if self.guards.is_empty() || !matches!(rule.pattern, Pattern::Glob(_)) {
            return None;
        }
        let literal = literal.filter(|rule| rule.effect == Effect::Allow);
        self.guards.iter().map(|&i| &self.rules[i as usize]).find(|guard| {
            let top = guard.place().as_bytes();
            let inside = |rule: &Rule| is_within(rule.place().as_bytes(), top);
            guard.access == rule.access
                && is_within(path, top)
                && !inside(rule)
                && !literal.is_some_and(inside)
        })
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
            if before.is_allowed() != after.is_allowed() {
                let (denied, allowed) =
                    if before.is_allowed() { (after, before) } else { (before, after) };
                // A denial by default has no rule; then the other end is allowed by one.
                return denied.rule().or(allowed.rule());
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
            // Taking the directory away would leave its name to something else.
            if rule.effect == Effect::Deny && glob.names_directory(from) {
                return Some(rule);
            }
            let same = match (reach(glob, rule, from), reach(glob, rule, to)) {
                (Reach::Above, _) | (_, Reach::Above) => false,
                (Reach::Matched(_), Reach::Matched(_)) => true,
                (before, after) => before == after,
            };
            (!same).then_some(rule)
        })
    }

    /// A rule that denies, or could come to deny, writing something strictly below `path`.
    pub fn write_denial_below(&self, path: &[u8]) -> Option<&Rule> {
        if path.first() != Some(&b'/') {
            return None; // decide() denies the path.
        }
        let denies = |rule: &Rule| rule.effect == Effect::Deny && rule.access == Access::Write;
        self.index.any_below(&self.rules, path, denies).or_else(|| {
            self.globs(path)
                .filter(|(rule, ..)| denies(rule))
                .find(|(_, glob, _)| matches!(glob.reach(path), Reach::Above | Reach::Live(_)))
                .map(|(rule, ..)| rule)
        })
    }

    /// The directory for want of which `path`, absolute and canonical, cannot come to be, although it may
    /// be written: it does not exist, and may not be made.
    pub fn missing_directory<'a>(&self, view: &dyn FsView, path: &'a str) -> Option<&'a str> {
        let mut at = path;
        while view.kind(at) == Kind::Absent && at != "/" {
            let directory = at.rfind('/').map_or("/", |end| &at[..end.max(1)]);
            let allowed = self.decide(Access::Write, directory.as_bytes()).is_allowed();
            if !allowed && view.kind(directory) == Kind::Absent {
                return Some(directory);
            }
            at = directory;
        }
        None
    }

    /// Whether a symbolic link must not be created at `path` because the name lies on the way to a
    /// denied path, which would then mean something else: the rule that denies it.
    pub fn link_name(&self, path: &[u8]) -> Option<&Rule> {
        self.on_the_way(path, |_| true, Glob::progresses_at)
    }

    /// The grant whose path is `path`, or goes through it. No symbolic link may come to stand there: the
    /// next run under this policy would follow it, and grant what it leads to.
    pub fn grant_name(&self, path: &[u8]) -> Option<&Rule> {
        if path.first() != Some(&b'/') {
            return None; // decide() denies the name.
        }
        let stated = |rule: &Rule| !rule.origin.is_built_in();
        self.index.grant_from(&self.rules, path, stated).or_else(|| {
            self.globs.iter().map(|&i| &self.rules[i as usize]).find(|rule| {
                rule.effect == Effect::Allow && is_within(rule.place().as_bytes(), path)
            })
        })
    }

    /// The rule that needs a directory at `path`, because it denies writing something in it by name.
    /// Nothing else may be made or written there: what reads `.git/config` also reads a *file* `.git`
    /// that names another directory.
    pub fn directory_name(&self, path: &[u8]) -> Option<&Rule> {
        self.on_the_way(path, |rule| rule.access == Access::Write, Glob::names_directory)
    }

    fn on_the_way(
        &self,
        path: &[u8],
        about: impl Fn(&Rule) -> bool,
        leads: impl Fn(&Glob, &[u8]) -> bool,
    ) -> Option<&Rule> {
        if path.first() != Some(&b'/') {
            return None; // decide() denies the name.
        }
        let denies = |rule: &Rule| rule.effect == Effect::Deny && about(rule);
        if let Some(rule) = self.index.any_below(&self.rules, path, denies) {
            return Some(rule);
        }
        self.globs(path)
            .filter(|(rule, ..)| denies(rule))
            .find(|(_, glob, _)| leads(glob, path))
            .map(|(rule, ..)| rule)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryTree;
    use super::super::testing::decider;
    use super::*;

    const RULES: &str = r#"
        "allowWrite": [".", "/var/log/app", "/w/d/open", "*/glob.ok"],
        "denyWrite": ["d", "**/.git/hooks", "**/*.lock", "/w/same", "new/name"],
        "denyWriteAlways": ["d/open/never"],
        "denyRead": ["~", "/w/both", "**/*.key"],
        "allowRead": ["~/.cargo", "/w/both"],
        "denyReadAlways": ["~/.cargo/credentials", "**/*.pem"]"#;

    /// The key of the deciding rule's list, with a `!` where it denies; `-` for the default.
    fn said(verdict: Verdict) -> String {
        let key = match verdict.rule() {
            Some(rule) => rule.origin.key.replace("filesystem.", ""),
            None => "-".to_owned(),
        };
        let mark = if verdict.is_allowed() { "" } else { "!" };
        format!("{mark}{key}")
    }

    #[test]
    fn the_most_specific_rule_wins() {
        let decider = decider(RULES, &MemoryTree::new());
        let cases: &[(Access, &str, &str)] = &[
            (Access::Write, "/", "!-"),
            (Access::Write, "/w", "allowWrite[0]"),
            (Access::Write, "/w/a/b", "allowWrite[0]"),
            (Access::Write, "/wx", "!-"),
            (Access::Write, "/var/log/app/x", "allowWrite[1]"),
            (Access::Write, "/var/log", "!-"),
            (Access::Write, "/w/d", "!denyWrite[0]"),
            (Access::Write, "/w/d/x", "!denyWrite[0]"),
            (Access::Write, "/w/d/open/x", "allowWrite[2]"),
            (Access::Write, "/w/d/open/never/x", "!denyWriteAlways[0]"),
            (Access::Write, "/w/new", "allowWrite[0]"),
            (Access::Write, "/w/new/name/below", "!denyWrite[4]"),
            (Access::Write, "/w/x/.git/config", "allowWrite[0]"),
            (Access::Write, "/w/x/.git/hooks/pre-commit", "!denyWrite[1]"),
            (Access::Write, "/w/a.lock", "!denyWrite[2]"),
            (Access::Write, "/w/a.lock/below", "!denyWrite[2]"),
            (Access::Write, "/w/d/glob.ok", "allowWrite[3]"),
            (Access::Write, "/var/log/app/a.lock", "!denyWrite[2]"),
            (Access::Write, "/w/d/open/a.lock", "!denyWrite[2]"),
            (Access::Write, "/dev/null", "devices"),
            (Access::Write, "relative", "!-"),
            (Access::Read, "/etc/passwd", "-"),
            (Access::Read, "/home/u", "!denyRead[0]"),
            (Access::Read, "/home/u/x", "!denyRead[0]"),
            (Access::Read, "/home/u/.cargo/bin", "allowRead[0]"),
            (Access::Read, "/home/u/.cargo/credentials", "!denyReadAlways[0]"),
            (Access::Read, "/w/both/x", "allowRead[1]"),
            (Access::Read, "/w/a.key", "!denyRead[2]"),
            (Access::Read, "/w/both/a.key", "!denyRead[2]"),
            (Access::Read, "/w/both/a.pem", "!denyReadAlways[1]"),
            (Access::Read, "/dev/tty", "devices"),
        ];
        for (access, path, expected) in cases {
            let verdict = decider.decide(*access, path.as_bytes());
            assert_eq!(said(verdict), *expected, "{access:?} {path}");
        }
        let verdict = decider.decide(Access::Write, b"/w/\xff/.git/hooks/\xfe");
        assert_eq!(said(verdict), "!denyWrite[1]", "names need not be UTF-8");
    }

    #[test]
    fn reasons_tell_default_from_rule() {
        let decider = decider(RULES, &MemoryTree::new());
        let reason = |path: &str| match decider.decide(Access::Write, path.as_bytes()) {
            Verdict::Deny { reason, .. } => Some(reason),
            Verdict::Allow(_) => None,
        };
        assert_eq!(reason("/etc"), Some(Reason::AllowMiss));
        assert_eq!(reason("/w/d"), Some(Reason::DenyMatch));
        assert_eq!(reason("/w"), None);
    }

    #[test]
    fn a_denied_link_holds_its_name_its_target_and_the_way() {
        let mut tree = MemoryTree::new();
        tree.link("/w/rc", "conf/rc").link("/w/conf", "/data/conf");
        let decider = decider(r#""allowWrite": [".", "/data"], "denyWrite": ["rc"]"#, &tree);
        for (path, allowed) in [
            ("/w/rc", false),
            ("/w/rc/below", false),
            ("/w/conf", false),
            ("/w/conf/rc", true),
            ("/w/conf/other", true),
            ("/data/conf", true),
            ("/data/conf/rc", false),
            ("/data/conf/rc/below", false),
        ] {
            let verdict = decider.decide(Access::Write, path.as_bytes());
            assert_eq!(verdict.is_allowed(), allowed, "{path}");
        }
    }

    #[test]
    fn denying_globs_leave_proc_alone() {
        let rules = r#""denyRead": ["/**/*.key", "/proc/kcore"], "denyReadAlways": ["/**/x"]"#;
        let decider = decider(rules, &MemoryTree::new());
        let read = |path: &str| decider.decide(Access::Read, path.as_bytes()).is_allowed();
        assert!(read("/proc/1/x") && read("/proc/a.key"));
        assert!(!read("/proc/kcore") && !read("/procx/a.key") && !read("/x"));
    }

    #[test]
    fn moves_of_directories_that_change_a_verdict_are_found() {
        let decider = decider(RULES, &MemoryTree::new());
        let cases: &[(&str, &str, Option<&str>)] = &[
            ("/w/a", "/w/b", None),
            // The glob `*/glob.ok` looks into every first-level directory.
            ("/w/a", "/w/a2/c", Some("allowWrite[3]")),
            ("/w/new", "/w/old", Some("denyWrite[4]")),
            ("/w/a", "/w/new", Some("denyWrite[4]")),
            ("/w/a", "/w/d", Some("allowWrite[2]")),
            ("/w/a", "/w/d/x", Some("denyWrite[0]")),
            ("/w/a", "/w/.git", Some("denyWrite[1]")),
            ("/w/x/.git", "/w/x/git", Some("denyWrite[1]")),
            ("/w/x/.git/info", "/w/x/.git/other", None),
            ("/w/a", "/outside", Some("allowWrite[0]")),
            ("/w/a", "/w/a.lock", Some("denyWrite[2]")),
            ("/home/u/x", "/w/x", Some("denyRead[0]")),
            ("/etc/a", "/etc/b", None),
        ];
        for (from, to, expected) in cases {
            let rule = decider.directory_move(from.as_bytes(), to.as_bytes());
            let key = rule.map(|rule| rule.origin.key.replace("filesystem.", ""));
            assert_eq!(key.as_deref(), *expected, "{from} {to}");
        }
    }

    #[test]
    fn links_on_the_way_to_a_denial_are_found() {
        let rules = r#""allowWrite": ["."], "denyWrite": ["a/b/c", "**/.git/hooks", "**/*.pem"]"#;
        let decider = decider(rules, &MemoryTree::new());
        for (path, expected) in [
            ("/w/a", true),
            ("/w/a/b", true),
            ("/w/a/b/c", false),
            ("/w/x", false),
            ("/w/x/.git", true),
            ("/w/x/.git/hooks", false),
            ("/w/x/.git/other", false),
            ("/w/x.pem", false),
        ] {
            assert_eq!(decider.link_name(path.as_bytes()).is_some(), expected, "{path}");
        }
    }
}
