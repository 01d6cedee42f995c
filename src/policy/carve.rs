//! Carving: which whole subtrees a kernel mechanism may grant, so that it never grants what
//! [`Decider::decide`] denies.
//!
//! A mechanism such as Landlock only grants, and only whole subtrees. A subtree may be granted when
//! its top is allowed and no denial lies, or could come to match, below it. Where one does, the
//! children are looked at instead, in bounded listings and only on the way to a literal denial.
//! Whatever is not granted is left to the broker, which asks `decide`; so carving less is slow and
//! never wrong.

use std::collections::HashSet;

use super::decide::Decider;
use super::glob::Reach;
use super::path::{is_below, is_within, join};
use super::rule::{Access, Effect, Pattern, Rule};
use super::view::{FsView, Kind};

/// The most names in a directory that are granted one by one.
pub const MAX_ENTRIES: usize = 128;
/// The most names in a directory that carving for reading looks into. In one with more than
/// [`MAX_ENTRIES`], such as `/etc`, only directories and programs are granted, since a grant costs a
/// launch several system calls: the broker can open a file for reading, and cannot execute one.
pub const MAX_LISTED: usize = 1024;

/// What carving found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carved {
    /// The subtrees that may be granted whole: absolute paths of existing files and directories, none
    /// within another.
    pub granted: Vec<String>,
    /// Allowed directories on the way to a denial that are too large to look into.
    pub unlisted: Vec<String>,
}

/// What lies below a directory that may be granted but for this.
enum Below {
    /// No denial: grant it.
    Nothing,
    /// Literal denials, or the heads of denying globs: look at the children.
    Literals,
    /// A glob that may match what does not exist yet: nothing here may be granted.
    Glob,
}

impl Decider {
    /// The subtrees that may be granted whole for `access`.
    ///
    /// For reading that is `/` when nothing is denied for reading; denying globs do not apply to
    /// `/proc`, so it is granted unless a literal speaks of it. `budget` bounds the work: it is
    /// lowered by one for each name listed, and a directory with more names than are left is not
    /// looked into. Names that are not UTF-8 are not granted.
    pub fn carve(&self, view: &dyn FsView, access: Access, budget: &mut usize) -> Carved {
        let mut starts: Vec<&str> = self
            .rules
            .iter()
            .filter(|rule| rule.access == access && rule.effect == Effect::Allow)
            .filter_map(|rule| match &rule.pattern {
                Pattern::Subtree(path) => Some(path.as_str()),
                _ => None,
            })
            .collect();
        if access == Access::Read {
            starts.extend(["/", "/proc"]);
        }
        starts.sort_unstable();
        starts.dedup();
        let mut carver = Carver {
            decider: self,
            view,
            access,
            budget,
            seen: HashSet::new(),
            carved: Carved::default(),
        };
        for start in starts {
            carver.visit(start);
        }
        let Carved { granted, unlisted } = carver.carved;
        Carved { granted: outermost(granted), unlisted }
    }
}

struct Carver<'a> {
    decider: &'a Decider,
    view: &'a dyn FsView,
    access: Access,
    budget: &'a mut usize,
    seen: HashSet<String>,
    carved: Carved,
}

impl Carver<'_> {
    /// Grants `start`, or what may be granted below it.
    fn visit(&mut self, start: &str) {
        // Paths, and whether only a directory or a program is worth a grant there.
        let mut todo = vec![(start.to_owned(), false)];
        while let Some((path, in_large)) = todo.pop() {
            let allowed = |carver: &Self| {
                let verdict = carver.decider.decide(carver.access, path.as_bytes());
                verdict.is_allowed()
            };
            if !self.seen.insert(path.clone()) || !allowed(self) {
                continue;
            }
            let kind = self.view.kind(&path);
            match (self.below(path.as_bytes()), kind) {
                (_, Kind::Absent | Kind::Symlink(_) | Kind::SymlinkNotUtf8) => {}
                (Below::Nothing, Kind::File { executable: false, .. } | Kind::Other)
                    if in_large => {}
                (Below::Nothing, _) => self.carved.granted.push(path),
                (Below::Literals, Kind::Dir) => {
                    let most = match self.access {
                        Access::Read => MAX_LISTED,
                        Access::Write => MAX_ENTRIES,
                    };
                    match self.view.list(&path, most.min(*self.budget)) {
                        Some(names) => {
                            *self.budget -= names.len();
                            let large = names.len() > MAX_ENTRIES;
                            todo.extend(names.iter().map(|name| (join(&path, name), large)));
                        }
                        None => self.carved.unlisted.push(path),
                    }
                }
                (Below::Literals | Below::Glob, _) => {}
            }
        }
    }

    /// What denials lie strictly below an allowed path.
    fn below(&self, path: &[u8]) -> Below {
        let denies = |rule: &Rule| rule.access == self.access && rule.effect == Effect::Deny;
        let mut below = match self.decider.index.any_below(&self.decider.rules, path, denies) {
            Some(_) => Below::Literals,
            None => Below::Nothing,
        };
        for (rule, glob, _) in self.decider.globs(path) {
            if !denies(rule) {
                continue;
            }
            match glob.reach(path) {
                Reach::Dead | Reach::Matched(_) => {}
                // A denying glob has no effect at and below /proc.
                Reach::Above if is_within(glob.anchor().as_bytes(), b"/proc") => {}
                Reach::Above => below = Below::Literals,
                Reach::Live(_) => return Below::Glob,
            }
        }
        below
    }
}

/// Drops the paths that lie within another of them.
fn outermost(mut paths: Vec<String>) -> Vec<String> {
    // Component by component: no byte of a name sorts before its end.
    let ends = |byte| if byte == b'/' { 0 } else { byte };
    paths.sort_unstable_by(|a, b| a.bytes().map(ends).cmp(b.bytes().map(ends)));
    paths.dedup();
    let mut kept: Vec<String> = Vec::with_capacity(paths.len());
    for path in paths {
        let covered = kept.last().is_some_and(|last| is_below(path.as_bytes(), last.as_bytes()));
        if !covered {
            kept.push(path);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::MemoryTree;
    use super::super::testing::decider;
    use super::*;

    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new();
        tree.dir("/w/src")
            .dir("/w/.git/hooks")
            .file("/w/.git/config", "")
            .file("/w/file", "")
            .link("/w/link", "/etc")
            .file("/home/u/.ssh/key", "")
            .dir("/home/u/work")
            .dir("/home/v")
            .dir("/proc")
            .dir("/etc");
        tree
    }

    fn carve(rules: &str, access: Access) -> Vec<String> {
        let tree = tree();
        let mut granted = decider(rules, &tree).carve(&tree, access, &mut 1000).granted;
        granted.retain(|path| !path.starts_with("/dev"));
        granted
    }

    #[test]
    fn subtrees_are_granted_around_denials() {
        let cases: &[(&str, &[&str])] = &[
            (r#""allowWrite": ["."]"#, &["/w"]),
            (r#""allowWrite": [".", "src"]"#, &["/w"]),
            (r#""allowWrite": [".", "absent", "/w/../etc"]"#, &["/etc", "/w"]),
            (
                r#""allowWrite": ["."], "denyWrite": [".git/hooks"]"#,
                &["/w/.git/config", "/w/file", "/w/src"],
            ),
            (
                r#""allowWrite": ["."], "denyWrite": [".git/new"]"#,
                &["/w/.git/config", "/w/.git/hooks", "/w/file", "/w/src"],
            ),
            (
                r#""allowWrite": [".", ".git/hooks"], "denyWrite": [".git"]"#,
                &["/w/.git/hooks", "/w/file", "/w/src"],
            ),
            (r#""allowWrite": ["."], "denyWrite": ["**/.env"]"#, &[]),
            (r#""allowWrite": ["."], "denyWrite": ["src/**/.env"]"#, &["/w/.git", "/w/file"]),
            (r#""allowWrite": [".", ".git/hooks"], "denyWrite": ["**/.git"]"#, &["/w/.git/hooks"]),
            (r#""allowWrite": ["."], "denyWriteAlways": ["."]"#, &[]),
            (r#""allowWrite": ["*"]"#, &[]),
        ];
        for (rules, expected) in cases {
            assert_eq!(carve(rules, Access::Write), *expected, "{rules}");
        }
    }

    #[test]
    fn reading_is_granted_whole_or_around_denials() {
        let cases: &[(&str, &[&str])] = &[
            (r#""denyWrite": ["/etc"]"#, &["/"]),
            (r#""denyRead": ["~/.ssh"]"#, &["/etc", "/home/u/work", "/home/v", "/proc", "/w"]),
            (
                r#""denyRead": ["~/.ssh"], "allowRead": ["~/.ssh/key"]"#,
                &["/etc", "/home/u/.ssh/key", "/home/u/work", "/home/v", "/proc", "/w"],
            ),
            (r#""denyRead": ["/"], "allowRead": ["/etc", "."]"#, &["/etc", "/w"]),
            (r#""denyRead": ["/**/key"]"#, &["/proc"]),
            (r#""denyRead": ["**/key"]"#, &["/etc", "/home", "/proc"]),
        ];
        for (rules, expected) in cases {
            assert_eq!(carve(rules, Access::Read), *expected, "{rules}");
        }
    }

    #[test]
    fn large_directories_and_spent_budgets_are_left_to_the_broker() {
        let mut tree = MemoryTree::new();
        for i in 0..=MAX_ENTRIES {
            tree.dir(&format!("/w/large/{i}"));
        }
        tree.dir("/w/small");
        let rules = r#""allowWrite": ["."], "denyWrite": ["large/no", "deep/er"]"#;
        let decider = decider(rules, &tree);
        let mut budget = 100;
        let carved = decider.carve(&tree, Access::Write, &mut budget);
        assert_eq!(
            (carved.granted, carved.unlisted),
            (vec!["/w/small".into()], vec!["/w/large".into()])
        );
        assert_eq!(budget, 98);
        let carved = decider.carve(&tree, Access::Write, &mut 1);
        assert_eq!((carved.granted, carved.unlisted), (vec![], vec!["/w".into()]));
    }

    #[test]
    fn of_a_large_directory_only_directories_and_programs_are_read_through_the_kernel() {
        let mut tree = MemoryTree::new();
        for i in 0..=MAX_ENTRIES {
            tree.file(&format!("/etc/{i}"), "");
        }
        tree.dir("/etc/ssl").file("/etc/shadow", "");
        tree.add("/etc/rmt", Kind::File { links: 1, executable: true }, b"");
        let carved = |tree: &MemoryTree| {
            decider(r#""denyRead": ["/etc/shadow"]"#, tree).carve(tree, Access::Read, &mut 4000)
        };
        let found = carved(&tree);
        assert_eq!(found.granted, ["/etc/rmt", "/etc/ssl"]);
        assert_eq!(found.unlisted, [""; 0]);
        for i in 0..=MAX_LISTED {
            tree.file(&format!("/etc/more{i}"), "");
        }
        let found = carved(&tree);
        assert_eq!(found.granted, [""; 0]);
        assert_eq!(found.unlisted, ["/etc"]);
    }
}
