//! Resolves a policy: every entry becomes rules about absolute paths without symbolic links.
//!
//! Nothing is walked. One question is asked about each name that a literal leads through, and the
//! answers are kept, so that entries in one directory cost one look-up each.

use std::collections::HashSet;

use super::document::{Entry, Paths, Policy};
use super::error::{self, PolicyError};
use super::git;
use super::glob::{self, Glob};
use super::path::{Walker, is_below};
use super::resolved::{Linked, Network, ResolvedPolicy};
use super::rule::{Access, Effect, Located, Origin, Pattern, Rule};
use super::view::{FsView, Kind};

/// The most rules that one policy may resolve to, counting every anchor of every glob.
pub const MAX_RULES: usize = 100_000;

/// Devices that every run may use unless a rule names them (`pts` with what is below it, since
/// `/dev/ptmx` usually links to `/dev/pts/ptmx`).
pub const BUILT_IN_DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Where a policy is resolved.
pub struct Place<'a> {
    /// The directory that the run starts in: absolute.
    pub cwd: &'a str,
    /// The home directory that `~` stands for: absolute.
    pub home: Option<&'a str>,
    /// The filesystem.
    pub view: &'a dyn FsView,
}

/// Resolves a merged policy.
///
/// # Errors
///
/// `POLICY_HOME_UNAVAILABLE`, `POLICY_TRAVERSAL_DEPTH` (a loop of symbolic links), or
/// `POLICY_PARSE_FAILED` (a path that is not UTF-8, more than [`MAX_RULES`] rules), each with the
/// entry it is about.
pub fn resolve(policy: &Policy, place: &Place) -> Result<ResolvedPolicy, PolicyError> {
    resolve_below(policy, place, &[])
}

/// Resolves an executable's policy, whose relative denials hold below the writable roots of
/// `base` as well; see [`tighten`](super::tighten()).
///
/// # Errors
///
/// As [`resolve`].
pub fn resolve_executable(
    policy: &Policy,
    place: &Place,
    base: &ResolvedPolicy,
) -> Result<ResolvedPolicy, PolicyError> {
    let roots: Vec<String> = base.write_roots().map(str::to_owned).collect();
    resolve_below(policy, place, &roots)
}

fn resolve_below(
    policy: &Policy,
    place: &Place,
    roots: &[String],
) -> Result<ResolvedPolicy, PolicyError> {
    let mut walker = Walker::new(place.view, place.home);
    let start = Origin::built_in("cwd");
    let cwd = walker.follow(place.cwd, "/", &start)?.path;
    let mut resolver = Resolver {
        walker,
        anchors: vec![cwd.clone()],
        out: ResolvedPolicy {
            cwd,
            limits: policy.limits.clone(),
            macos: policy.macos.clone(),
            windows: policy.windows.clone(),
            ignored: policy.ignored.clone(),
            ..ResolvedPolicy::default()
        },
        names: HashSet::new(),
    };
    resolver.filesystem(policy, roots)?;
    resolver.network(policy)?;
    Ok(resolver.out)
}

struct Resolver<'a> {
    walker: Walker<'a>,
    /// The directories that a relative denying glob is anchored below.
    anchors: Vec<String>,
    out: ResolvedPolicy,
    /// The `Name` rules made so far, as (path, always).
    names: HashSet<(String, bool)>,
}

impl Resolver<'_> {
    fn filesystem(&mut self, policy: &Policy, roots: &[String]) -> Result<(), PolicyError> {
        let lists = &policy.filesystem;
        self.allow(Access::Write, &lists.allow_write)?;
        let own: Vec<String> = self.out.write_roots().map(str::to_owned).collect();
        if let Some(asked) = &lists.git_dir
            && asked.value
        {
            let (mut walker, cwd) = (&mut self.walker, &self.out.cwd);
            let (rules, ignored) = git::worktree(&mut walker, cwd, &own, &asked.origin)?;
            self.out.rules.extend(rules);
            self.out.ignored.extend(ignored);
        }
        let mut seen: HashSet<&str> = HashSet::from([self.anchors[0].as_str()]);
        let more: Vec<String> = own
            .iter()
            .chain(roots)
            .filter(|root| seen.insert(root))
            .cloned()
            .collect();
        self.anchors.extend(more);
        self.deny(Access::Write, &lists.deny_write, false)?;
        self.deny(Access::Write, &lists.deny_write_always, true)?;
        self.allow(Access::Read, &lists.allow_read)?;
        self.deny(Access::Read, &lists.deny_read, false)?;
        self.deny(Access::Read, &lists.deny_read_always, true)?;
        self.built_in(Access::Write);
        if self.out.restricts_reading() {
            self.built_in(Access::Read);
        }
        Ok(())
    }

    fn network(&mut self, policy: &Policy) -> Result<(), PolicyError> {
        let said = &policy.network;
        let before = self.out.rules.len();
        self.allow(Access::Write, &said.allow_unix_sockets)?;
        let sockets = self.out.rules.split_off(before);
        self.out.network = Network {
            allow_network: said.allow_network.as_ref().is_some_and(|said| said.value),
            allow_network_origin: said.allow_network.as_ref().map(|said| said.origin.clone()),
            allowed_domains: said.allowed_domains.clone(),
            denied_domains: said.denied_domains.clone(),
            http_proxy_port: said.http_proxy_port.clone(),
            socks_proxy_port: said.socks_proxy_port.clone(),
            allow_local_binding: said.allow_local_binding.clone(),
            allow_unix_sockets: sockets,
            allow_all_unix_sockets: said.allow_all_unix_sockets.clone(),
        };
        Ok(())
    }

    fn allow(&mut self, access: Access, entries: &Paths) -> Result<(), PolicyError> {
        let cwd = [self.out.cwd.clone()];
        for entry in entries {
            for (glob, target) in self.locate(entry, &cwd)? {
                let pattern = pattern(glob, &target.path);
                self.push(access, Effect::Allow, false, pattern, entry)?;
            }
        }
        Ok(())
    }

    fn deny(&mut self, access: Access, entries: &Paths, always: bool) -> Result<(), PolicyError> {
        let anchors = std::mem::take(&mut self.anchors);
        for entry in entries {
            for (glob, target) in self.locate(entry, &anchors)? {
                for link in target.links {
                    if self.names.insert((link.clone(), always)) {
                        let name = Pattern::Name(link);
                        self.push(Access::Write, Effect::Deny, always, name, entry)?;
                    }
                }
                if let (None, Some(link)) = (&glob, target.last_link) {
                    self.push(access, Effect::Deny, always, Pattern::Subtree(link), entry)?;
                }
                if let (None, Kind::File { links: 2.., .. }) = (&glob, &target.kind) {
                    self.out.linked.push(Linked {
                        access,
                        path: target.path.clone(),
                        origin: entry.origin.clone(),
                    });
                }
                let pattern = pattern(glob, &target.path);
                self.push(access, Effect::Deny, always, pattern, entry)?;
            }
        }
        self.anchors = anchors;
        Ok(())
    }

    /// The places an entry speaks about: for a literal its target, for a glob each of its
    /// expansions below the target of its head, for each of `anchors` where it is relative.
    fn locate(
        &mut self,
        entry: &Located<Entry>,
        anchors: &[String],
    ) -> Result<Vec<(Option<Glob>, super::path::Target)>, PolicyError> {
        let origin = &entry.origin;
        let text = &entry.value.text;
        if !entry.value.is_glob() {
            let cwd = self.out.cwd.clone();
            return Ok(vec![(None, self.walker.follow(text, &cwd, origin)?)]);
        }
        let refuse = |message: String| {
            PolicyError::at(error::PARSE_FAILED, origin, format!("{text:?}: {message}"))
        };
        let mut found = Vec::new();
        for expanded in glob::expand(text).map_err(refuse)? {
            let (head, tail) = glob::split_head(&expanded);
            let compiled = Glob::new("/", tail).map_err(refuse)?;
            let relative = !head.starts_with(['/', '~']);
            let bases = if relative { anchors } else { &anchors[..1] };
            for base in bases {
                let inside = |other: &String| is_below(base.as_bytes(), other.as_bytes());
                if head.is_empty() && compiled.starts_crossing() && bases.iter().any(inside) {
                    // Another anchor above matches the same names.
                    continue;
                }
                let target = self.walker.follow(&head, base, origin)?;
                let glob = (!tail.is_empty()).then(|| compiled.anchored(&target.path));
                found.push((glob, target));
                if self.out.rules.len() + found.len() > MAX_RULES {
                    return Err(too_many(origin));
                }
            }
        }
        Ok(found)
    }

    fn push(
        &mut self,
        access: Access,
        effect: Effect,
        always: bool,
        pattern: Pattern,
        entry: &Located<Entry>,
    ) -> Result<(), PolicyError> {
        if self.out.rules.len() == MAX_RULES {
            return Err(too_many(&entry.origin));
        }
        self.out.rules.push(Rule {
            access,
            effect,
            always,
            pattern,
            text: entry.value.text.clone(),
            origin: entry.origin.clone(),
        });
        Ok(())
    }

    /// Grants the devices that no denial names.
    fn built_in(&mut self, access: Access) {
        for device in BUILT_IN_DEVICES {
            let named = |rule: &Rule| {
                rule.access == access
                    && rule.effect == Effect::Deny
                    && matches!(&rule.pattern, Pattern::Subtree(path) if path == device)
            };
            if !self.out.rules.iter().any(named) {
                self.out.rules.push(Rule {
                    access,
                    effect: Effect::Allow,
                    always: false,
                    pattern: Pattern::Subtree((*device).to_owned()),
                    text: (*device).to_owned(),
                    origin: Origin::built_in("devices"),
                });
            }
        }
    }
}

fn pattern(glob: Option<Glob>, path: &str) -> Pattern {
    glob.map_or_else(|| Pattern::Subtree(path.to_owned()), Pattern::Glob)
}

fn too_many(origin: &Origin) -> PolicyError {
    let message = format!(
        "the policy resolves to more than {MAX_RULES} rules; a relative glob counts once below \
         the start directory and once below each allowWrite root"
    );
    PolicyError::at(error::PARSE_FAILED, origin, message)
}
