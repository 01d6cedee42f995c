//! The git directory of a linked worktree.
//!
//! A linked worktree (gitrepository-layout(5), git-worktree(1)) has a file `.git` that names
//! `C/worktrees/N`, where C is the common directory of the repository, usually far from the
//! worktree. `filesystem.gitDir` opens what ordinary commands write there, and keeps closed what
//! git runs or follows: hooks, `config`, `config.worktree`, `commondir`, `gitdir`.
//!
//! A sandboxed program can write a `.git` file of its own. Its word is taken only if the directory
//! it names points back at it, and lies where git puts it: `C/worktrees/N` for the C that it
//! states. Whoever can arrange both can already write C.

use super::document::Ignored;
use super::error::PolicyError;
use super::path::{Walker, is_within, join, parent};
use super::resolved::ResolvedPolicy;
use super::rule::{Access, Effect, Origin, Pattern, Rule};
use super::view::{FsView, Kind};

/// The largest `.git`, `commondir` or `gitdir` file read, in bytes.
const MAX_POINTER: usize = 8192;

/// The key that asks for this.
const GIT_DIR: &str = "filesystem.gitDir";

/// What ordinary commands write below the common directory.
const WRITABLE: &[&str] = &[
    "objects",
    "refs",
    "logs",
    "packed-refs",
    "packed-refs.lock",
    "packed-refs.new",
    "shallow",
    "shallow.lock",
    "rr-cache",
];

/// What stays closed below the worktree's own git directory.
const CLOSED: &[&str] = &["commondir", "gitdir", "config.worktree", "hooks"];

/// The rules that `filesystem.gitDir` would add to a resolved policy which does not set it; none outside
/// of linked worktrees.
pub(crate) fn git_dir_rules(policy: &ResolvedPolicy, view: &dyn FsView) -> Vec<Rule> {
    let asked = Origin { key: GIT_DIR.to_owned(), ..Origin::default() };
    if policy.rules.iter().any(|rule| rule.origin.key == GIT_DIR) {
        return Vec::new();
    }
    let roots: Vec<String> = policy.write_roots().map(str::to_owned).collect();
    // A pointer of git's never starts at the home directory.
    let mut walker = Walker::new(view, None);
    // What cannot be resolved would be refused.
    worktree(&mut walker, &policy.cwd, &roots, &asked).map(|(rules, _)| rules).unwrap_or_default()
}

/// The rules that open the git directory of the linked worktree around `cwd`, and notes on why
/// there are none. The worktree's top is `cwd` or an ancestor within one of `roots`.
pub(crate) fn worktree(
    walker: &mut Walker,
    cwd: &str,
    roots: &[String],
    asked: &Origin,
) -> Result<(Vec<Rule>, Vec<Ignored>), PolicyError> {
    let mut dir = cwd;
    loop {
        let within = roots.iter().any(|root| is_within(dir.as_bytes(), root.as_bytes()));
        if !within && dir != cwd {
            return Ok((Vec::new(), Vec::new()));
        }
        let dot_git = join(dir, ".git");
        match walker.kind(&dot_git) {
            Kind::Absent => {}
            Kind::File { .. } => return linked(walker, dir, &dot_git, asked),
            Kind::Dir | Kind::Symlink(_) | Kind::SymlinkNotUtf8 | Kind::Other => {
                return Ok((Vec::new(), Vec::new()));
            }
        }
        if dir == "/" {
            return Ok((Vec::new(), Vec::new()));
        }
        dir = std::str::from_utf8(parent(dir.as_bytes())).unwrap_or("/");
    }
}

/// Checks that a `.git` file and the directory it names belong together, and opens that directory.
fn linked(
    walker: &mut Walker,
    top: &str,
    dot_git: &str,
    asked: &Origin,
) -> Result<(Vec<Rule>, Vec<Ignored>), PolicyError> {
    let ignore = |reason: &str| {
        let reason = format!("{dot_git}: {reason}; nothing is opened for it");
        let origin = asked.clone();
        Ok((Vec::new(), vec![Ignored { origin, reason }]))
    };
    let Some(text) = pointer(walker, dot_git) else {
        return ignore("cannot be read as a git file");
    };
    let Some(named) = text.strip_prefix("gitdir: ") else {
        return ignore("does not name a git directory");
    };
    let own = walker.follow(named, top, asked)?.path;
    let Some(stated) = pointer(walker, &join(&own, "commondir")) else {
        return ignore("its git directory is not that of a linked worktree");
    };
    let common = walker.follow(&stated, &own, asked)?.path;
    if parent(own.as_bytes()) != join(&common, "worktrees").as_bytes() {
        return ignore("its git directory is not among the worktrees of its repository");
    }
    let Some(back) = pointer(walker, &join(&own, "gitdir")) else {
        return ignore("its git directory does not name a worktree");
    };
    if walker.follow(&back, &own, asked)?.path != dot_git {
        return ignore("its git directory names another worktree");
    }
    let rule = |effect, path: String| Rule {
        access: Access::Write,
        effect,
        always: false,
        text: "true".to_owned(),
        pattern: Pattern::Subtree(path),
        origin: asked.clone(),
    };
    let allowed = WRITABLE.iter().map(|name| join(&common, name));
    let mut rules: Vec<Rule> =
        allowed.chain([own.clone()]).map(|path| rule(Effect::Allow, path)).collect();
    let denied = CLOSED.iter().map(|name| join(&own, name));
    rules.extend(denied.chain([dot_git.to_owned()]).map(|path| rule(Effect::Deny, path)));
    Ok((rules, Vec::new()))
}

/// The one line of a small file, without its line end; `None` also for a path starting with `~`,
/// which git takes literally and a literal of ours would not.
fn pointer(walker: &mut Walker, path: &str) -> Option<String> {
    if !matches!(walker.kind(path), Kind::File { .. }) {
        return None;
    }
    let text = String::from_utf8(walker.read(path, MAX_POINTER)?).ok()?;
    let line = text.trim_end_matches(['\n', '\r']);
    let path = line.strip_prefix("gitdir: ").unwrap_or(line);
    let plain = !path.is_empty() && !path.starts_with('~') && !line.contains(['\n', '\0']);
    plain.then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::resolved;
    use super::super::{Decider, MemoryTree, Verdict};
    use super::*;

    const POLICY: &str = r#"{"filesystem": {"allowWrite": ["."], "gitDir": true}}"#;

    fn tree(gitdir: &str, commondir: &str, back: &str) -> MemoryTree {
        let mut tree = MemoryTree::new();
        tree.file("/w/.git", gitdir)
            .file("/repo/.git/worktrees/w/commondir", commondir)
            .file("/repo/.git/worktrees/w/gitdir", back)
            .dir("/repo/.git/objects");
        tree
    }

    #[test]
    fn a_linked_worktree_can_be_used() {
        for (gitdir, back) in [
            ("gitdir: /repo/.git/worktrees/w\n", "/w/.git\n"),
            ("gitdir: ../repo/.git/worktrees/w\n", "../../../../w/.git\n"),
        ] {
            let policy = resolved(POLICY, &tree(gitdir, "../..\n", back));
            assert_eq!(policy.ignored, []);
            let decider = Decider::new(&policy);
            for (path, allowed) in [
                ("/repo/.git/objects/ab/cd", true),
                ("/repo/.git/refs/heads/x", true),
                ("/repo/.git/packed-refs.lock", true),
                ("/repo/.git/worktrees/w/index.lock", true),
                ("/repo/.git/worktrees/w/HEAD", true),
                ("/repo/.git/worktrees/w/hooks/x", false),
                ("/repo/.git/worktrees/w/config.worktree", false),
                ("/repo/.git/worktrees/w/commondir", false),
                ("/repo/.git/worktrees/other/HEAD", false),
                ("/repo/.git/hooks/pre-commit", false),
                ("/repo/.git/config", false),
                ("/w/.git", false),
                ("/w/src", true),
            ] {
                let verdict: Verdict = decider.decide(Access::Write, path.as_bytes());
                assert_eq!(verdict.is_allowed(), allowed, "{path}");
            }
        }
    }

    #[test]
    fn what_does_not_point_back_opens_nothing() {
        let good = "gitdir: /repo/.git/worktrees/w\n";
        for (gitdir, commondir, back) in [
            (good, "../..\n", "/elsewhere/.git\n"),
            (good, "/other\n", "/w/.git\n"),
            ("gitdir: /repo/.git\n", "../..\n", "/w/.git\n"),
            ("/repo/.git/worktrees/w\n", "../..\n", "/w/.git\n"),
            ("gitdir: ~/x\n", "../..\n", "/w/.git\n"),
            ("", "../..\n", "/w/.git\n"),
        ] {
            let policy = resolved(POLICY, &tree(gitdir, commondir, back));
            let stated = |rule: &&Rule| !rule.origin.is_built_in();
            assert_eq!(policy.rules.iter().filter(stated).count(), 1, "{gitdir} {back}");
            assert_eq!(policy.ignored.len(), 1, "{gitdir} {back}");
        }
    }

    #[test]
    fn the_top_is_found_above_the_start_but_within_the_roots() {
        let mut tree = tree("gitdir: /repo/.git/worktrees/w\n", "../..\n", "/w/.git\n");
        tree.dir("/w/a/b");
        let found = |roots: &[String]| {
            let mut walker = Walker::new(&tree, None);
            worktree(&mut walker, "/w/a/b", roots, &Origin::default()).unwrap()
        };
        assert!(!found(&["/w".to_owned()]).0.is_empty());
        assert!(found(&["/w/a".to_owned()]).0.is_empty());
        assert!(found(&[]).0.is_empty());
    }

    #[test]
    fn an_ordinary_checkout_needs_nothing() {
        let mut tree = MemoryTree::new();
        tree.dir("/w/.git");
        let policy = resolved(POLICY, &tree);
        assert_eq!(policy.ignored, []);
    }
}
