//! Resolves a policy: every entry becomes rules about absolute paths without symbolic links.
//!
//! Nothing is walked. One question is asked about each name that a literal leads through, and the
//! answers are kept, so that entries in one directory cost one look-up each.

use std::collections::HashSet;

use super::anchor::{Anchor, anchors};
use super::decide::Decider;
use super::document::{Entry, Paths, Policy};
use super::error::{self, PolicyError};
use super::git;
use super::glob::{self, Glob};
use super::path::{Target, Walker};
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
        anchors: Vec::new(),
        out: ResolvedPolicy {
            cwd,
            limits: policy.limits.clone(),
            macos: policy.macos.clone(),
            windows: policy.windows.clone(),
            ignored: policy.ignored.clone(),
            ..ResolvedPolicy::default()
        },
        names: HashSet::new(),
        granted: Vec::new(),
    };
    resolver.filesystem(policy, roots)?;
    resolver.network(policy)?;
    resolver.keep_links()?;
    Ok(resolver.out)
}

struct Resolver<'a> {
    walker: Walker<'a>,
    /// The directories that a relative denying glob is anchored below.
    anchors: Vec<Anchor>,
    out: ResolvedPolicy,
    /// The `Name` rules made so far, as (path, always).
    names: HashSet<(String, bool)>,
    /// The symbolic links on the way to what is granted.
    granted: Vec<(String, Located<Entry>)>,
}

impl Resolver<'_> {
    fn filesystem(&mut self, policy: &Policy, roots: &[String]) -> Result<(), PolicyError> {
        let lists = &policy.filesystem;
        self.allow(Access::Write, &lists.allow_write)?;
        let own: Vec<String> = self.out.write_roots().map(str::to_owned).collect();
        if let Some(asked) = &lists.git_dir
            && asked.value
        {
            let cwd = &self.out.cwd;
            let (rules, ignored) = git::worktree(&mut self.walker, cwd, &own, &asked.origin)?;
            self.out.rules.extend(rules);
            self.out.ignored.extend(ignored);
        }
        let dirs = [&self.out.cwd].into_iter().chain(&own).chain(roots);
        self.anchors = anchors(dirs.map(String::as_str));
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
        let connected = [&said.http_proxy_port, &said.socks_proxy_port].into_iter().flatten();
        let connected: Vec<_> = connected.chain(&said.host_ports).collect();
        for port in &said.expose {
            if let Some(other) = connected.iter().find(|other| other.value == port.value) {
                let message =
                    format!("{} is served elsewhere already: {}", port.value, other.origin.key);
                return Err(PolicyError::at(error::PARSE_FAILED, &port.origin, message));
            }
        }
        self.out.network = Network { allow_unix_sockets: sockets, ..Network::of(said) };
        Ok(())
    }

    fn allow(&mut self, access: Access, entries: &Paths) -> Result<(), PolicyError> {
        let cwd = anchors([self.out.cwd.as_str()].into_iter());
        for entry in entries {
            for (glob, target) in self.locate(entry, &cwd)? {
                self.granted.extend(target.links.into_iter().map(|link| (link, entry.clone())));
                let pattern = pattern(glob, &target.path);
                self.push(access, Effect::Allow, false, pattern, entry)?;
            }
        }
        Ok(())
    }

    /// Denies to change the links on the way to what is granted, where they lie in what may be written:
    /// the next run would follow them elsewhere.
    fn keep_links(&mut self) -> Result<(), PolicyError> {
        let links = std::mem::take(&mut self.granted);
        if links.is_empty() {
            return Ok(());
        }
        let decider = Decider::of_rules(self.out.rules.clone());
        for (link, entry) in links {
            if decider.decide(Access::Write, link.as_bytes()).is_allowed()
                && self.names.insert((link.clone(), false))
            {
                self.push(Access::Write, Effect::Deny, false, Pattern::Name(link), &entry)?;
            }
        }
        Ok(())
    }

    fn deny(&mut self, access: Access, entries: &Paths, always: bool) -> Result<(), PolicyError> {
        let anchors = std::mem::take(&mut self.anchors);
        for entry in entries {
            let mut places = self.locate(entry, &anchors)?;
            places.extend(self.locate_first(entry, &anchors)?);
            for (glob, target) in places {
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
        anchors: &[Anchor],
    ) -> Result<Vec<(Option<Glob>, Target)>, PolicyError> {
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
            let crosses = head.is_empty() && compiled.starts_crossing();
            for base in bases.iter().filter(|base| base.outermost || !crosses) {
                let target = self.walker.follow(&head, &base.path, origin)?;
                let glob = (!tail.is_empty()).then(|| compiled.anchored(&target.path));
                found.push((glob, target));
                if self.out.rules.len() + found.len() > MAX_RULES {
                    return Err(too_many(origin));
                }
            }
        }
        Ok(found)
    }

    /// What a relative glob that starts with `**/` and goes on with a name matches right below its anchors, where
    /// that has another name: `.git` of the start directory may be a link, or `.envrc`. Further down nothing is
    /// looked for, which would be walking the tree.
    fn locate_first(
        &mut self,
        entry: &Located<Entry>,
        anchors: &[Anchor],
    ) -> Result<Vec<(Option<Glob>, Target)>, PolicyError> {
        let mut found = Vec::new();
        if !entry.value.is_glob() || !entry.value.text.starts_with("**/") {
            return Ok(found);
        }
        let origin = &entry.origin;
        let refuse = |message| PolicyError::at(error::PARSE_FAILED, origin, message);
        for expanded in glob::expand(&entry.value.text).map_err(refuse)? {
            let (head, tail) = glob::split_head(expanded.trim_start_matches("**/"));
            if head.is_empty() {
                continue;
            }
            for base in anchors {
                let target = self.walker.follow(&head, &base.path, origin)?;
                let linked = matches!(target.kind, Kind::File { links: 2.., .. });
                if !target.links.is_empty() || linked && tail.is_empty() {
                    let below = (!tail.is_empty()).then(|| Glob::new(&target.path, tail));
                    found.push((below.transpose().map_err(refuse)?, target));
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
            text: entry.value.typed(),
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

#[cfg(test)]
mod tests {
    use super::super::MemoryTree;
    use super::super::testing::{resolved, try_resolve};
    use super::*;

    /// The rules that documents state, as `+w subtree /path`.
    fn rules(policy: &ResolvedPolicy) -> Vec<String> {
        let shown = |rule: &Rule| {
            let effect = match (rule.effect, rule.always) {
                (Effect::Allow, _) => "+",
                (Effect::Deny, false) => "-",
                (Effect::Deny, true) => "!",
            };
            let access = match rule.access {
                Access::Read => "r",
                Access::Write => "w",
            };
            let pattern = match &rule.pattern {
                Pattern::Subtree(path) => path.clone(),
                Pattern::Name(path) => format!("name {path}"),
                Pattern::Glob(glob) => format!("glob {} {}", glob.anchor(), glob.pattern()),
            };
            format!("{effect}{access} {pattern}")
        };
        let stated = policy.rules.iter().filter(|rule| !rule.origin.is_built_in());
        stated.map(shown).collect()
    }

    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new();
        tree.dir("/w/src")
            .link("/w/out", "/data/out")
            .link("/home/u/.bashrc", "dot/bashrc")
            .dir("/home/u/dot");
        tree
    }

    #[test]
    fn entries_become_rules() {
        let cases: &[(&str, &[&str])] = &[
            (r#""allowWrite": [".", "./", "/w//."]"#, &["+w /w", "+w /w", "+w /w"]),
            (r#""allowWrite": ["~/x", "../y", "out"]"#, &["+w /home/u/x", "+w /y", "+w /data/out"]),
            (
                r#""denyWrite": ["~/.bashrc"]"#,
                &["-w name /home/u/.bashrc", "-w /home/u/.bashrc", "-w /home/u/dot/bashrc"],
            ),
            (
                r#""denyRead": ["out/x", "out/y"]"#,
                &["-w name /w/out", "-r /data/out/x", "-r /data/out/y"],
            ),
            (r#""denyReadAlways": ["/a"]"#, &["!r /a"]),
            (
                r#""allowWrite": ["/x", "src"], "denyWrite": ["*.pem", "**/.env", "/etc/*"]"#,
                &[
                    "+w /x",
                    "+w /w/src",
                    "-w glob /w *.pem",
                    "-w glob /x *.pem",
                    "-w glob /w/src *.pem",
                    "-w glob /w **/.env",
                    "-w glob /x **/.env",
                    "-w glob /etc *",
                ],
            ),
            (r#""allowWrite": ["/x", "*.tmp"]"#, &["+w /x", "+w glob /w *.tmp"]),
            (r#""denyWrite": ["{a,b/*}/c"]"#, &["-w /w/a/c", "-w glob /w/b */c"]),
            (r#""denyWrite": ["out/*.o"]"#, &["-w name /w/out", "-w glob /data/out *.o"]),
            // What a crossing glob matches first has its own name, and that of what it links to.
            (
                r#""denyWrite": ["**/out", "**/src", "**/out/x/*/y"]"#,
                &[
                    "-w glob /w **/out",
                    "-w name /w/out",
                    "-w /w/out",
                    "-w /data/out",
                    "-w glob /w **/src",
                    "-w glob /w **/out/x/*/y",
                    "-w glob /data/out/x */y",
                ],
            ),
            (r#""allowWrite": ["**/out"]"#, &["+w glob /w **/out"]),
            (r#""allowWrite": [".", "out/x"]"#, &["+w /w", "+w /data/out/x", "-w name /w/out"]),
            (r#""allowRead": [{"literal": "a*"}, {"glob": "b"}]"#, &["+r /w/a*", "+r /w/b"]),
        ];
        for (filesystem, expected) in cases {
            let json = format!("{{\"filesystem\":{{{filesystem}}}}}");
            assert_eq!(rules(&resolved(&json, &tree())), *expected, "{filesystem}");
        }
    }

    #[test]
    fn devices_are_granted_unless_named() {
        let granted = |filesystem: &str, access: Access| {
            let json = format!("{{\"filesystem\":{{{filesystem}}}}}");
            let policy = resolved(&json, &tree());
            let built_in = |rule: &&Rule| rule.origin.is_built_in() && rule.access == access;
            policy.rules.iter().filter(built_in).count()
        };
        let all = BUILT_IN_DEVICES.len();
        assert_eq!(granted("", Access::Write), all);
        assert_eq!(granted("", Access::Read), 0);
        assert_eq!(granted(r#""denyRead": ["/"]"#, Access::Read), all);
        assert_eq!(granted(r#""denyWrite": ["/dev/tty", "/dev"]"#, Access::Write), all - 1);
    }

    #[test]
    fn origins_are_kept() {
        let json = "{\"filesystem\": {\n\"denyWrite\": [\"a\",\n\"b*\"]}}";
        let policy = resolved(json, &tree());
        let origins: Vec<String> = policy.rules.iter().map(|r| r.origin.to_string()).collect();
        assert_eq!(origins[0], "p.json:2 filesystem.denyWrite[0]");
        assert_eq!(origins[1], "p.json:3 filesystem.denyWrite[1]");
        assert_eq!(origins[2], "built-in devices");
        assert_eq!(policy.rules[1].text, "b*");
    }

    #[test]
    fn denied_files_with_other_names_are_noted() {
        let mut tree = tree();
        for (path, links) in [("/w/two", 2), ("/w/one", 1)] {
            let executable = false;
            tree.add(path, Kind::File { links, executable }, b"");
        }
        for json in [
            r#"{"filesystem": {"denyRead": ["two", "one", "src"], "allowWrite": ["two"]}}"#,
            r#"{"filesystem": {"denyRead": ["**/{two,one,src}"], "allowWrite": ["**/two"]}}"#,
        ] {
            let policy = resolved(json, &tree);
            assert_eq!(policy.linked.len(), 1, "{json}");
            assert_eq!(policy.linked[0].path, "/w/two");
            assert_eq!(policy.linked[0].access, Access::Read);
        }
    }

    #[test]
    fn what_cannot_be_resolved_is_refused_with_its_line() {
        let mut tree = tree();
        tree.link("/w/loop", "loop").add("/w/odd", Kind::SymlinkNotUtf8, b"");
        for (entry, code) in [("loop/x", error::TRAVERSAL_DEPTH), ("odd/x", error::PARSE_FAILED)] {
            let json = format!("{{\"filesystem\":\n{{\"denyRead\": [\"{entry}\"]}}}}");
            let error = try_resolve(&json, &tree).unwrap_err();
            assert_eq!((error.code, error.line), (code, Some(2)), "{entry}");
            assert_eq!(error.key.as_deref(), Some("filesystem.denyRead[0]"));
        }
    }

    #[test]
    fn too_many_anchored_globs_are_refused() {
        let roots: Vec<String> = (0..400).map(|i| format!("\"/r{i}\"")).collect();
        let globs: Vec<String> = (0..400).map(|i| format!("\"*.x{i}\"")).collect();
        let json = format!(
            "{{\"filesystem\":{{\"allowWrite\":[{}],\"denyWrite\":[{}]}}}}",
            roots.join(","),
            globs.join(",")
        );
        let error = try_resolve(&json, &tree()).unwrap_err();
        assert!(error.message.contains("100000"), "{error}");
    }

    #[test]
    fn resolved_policies_survive_serialization() {
        let json = r#"{"filesystem": {"allowWrite": ["."], "denyWrite": ["**/*.pem", "out"]},
            "network": {"allowedDomains": [], "allowUnixSockets": ["/run/x"]},
            "limits": {"cpu": 0.5}}"#;
        let policy = resolved(json, &tree());
        assert_eq!(policy.network.allowed_domains, Some(vec![]));
        assert_eq!(policy.network.allow_unix_sockets.len(), 1);
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<ResolvedPolicy>(&text).unwrap(), policy);
    }
}
