//! Which subtrees the kernel holds by itself.

use crate::policy::{Access, Decider};
use rustix::fs::FileType;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A set of subtrees that Landlock grants whole.
///
/// A Landlock rule is about an object, not about its name, so it says nothing about another object
/// that takes the name: then the kernel would refuse what it is believed to hold.
pub struct Held {
    tops: HashMap<Box<[u8]>, Top>,
    /// Bytes of the longest path among them.
    longest: usize,
    /// There is more in it than devices.
    of_use: bool,
    /// The start directory lies in it, or some of it in the start directory.
    near: bool,
}

/// The top of a subtree.
struct Top {
    /// What stood at the name, where it could be replaced at any time.
    identity: Option<Identity>,
    /// The broker has since removed or moved it for the target.
    gone: AtomicBool,
}

/// Device and inode.
type Identity = (u64, u64);

impl Held {
    /// The set of `subtrees`, absolute canonical paths, as they are now; `cwd` is where the target starts.
    ///
    /// In a directory that the target may write, editors replace files all the time: files there are
    /// not relied upon, and directories are compared at each use.
    pub fn new(subtrees: &[String], cwd: &str, decider: &Decider) -> Held {
        let entry = |path: &String| {
            let parent = match path.rfind('/') {
                Some(0) | None => "/",
                Some(at) => &path[..at],
            };
            let mut identity = None;
            if path != "/" && decider.decide(Access::Write, parent.as_bytes()).is_allowed() {
                let stat = rustix::fs::lstat(path.as_str()).ok()?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                    return None;
                }
                identity = Some((stat.st_dev, stat.st_ino));
            }
            Some((path.as_bytes().into(), Top { identity, gone: AtomicBool::new(false) }))
        };
        let tops: HashMap<Box<[u8]>, Top> = subtrees.iter().filter_map(entry).collect();
        let longest = tops.keys().map(|path| path.len()).max().unwrap_or(0);
        let of_use = subtrees.iter().any(|top| !top.starts_with("/dev/"));
        let near = subtrees.iter().any(|top| is_within(top, cwd) || is_within(cwd, top));
        Held { tops, longest, of_use, near }
    }

    /// Whether a path is likely to lie in it, `relative` or absolute.
    pub fn is_of_use(&self, relative: bool) -> bool {
        if relative { self.near } else { self.of_use }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tops.is_empty()
    }

    /// Whether `path`, absolute and canonical, lies in one of them.
    pub fn covers(&self, path: &[u8]) -> bool {
        !self.tops.is_empty()
            && (self.is_top(path)
                || (0..path.len().min(self.longest + 1))
                    .rev()
                    .filter(|&at| path[at] == b'/')
                    .any(|at| self.is_top(if at == 0 { b"/" } else { &path[..at] })))
    }

    fn is_top(&self, path: &[u8]) -> bool {
        self.tops.get(path).is_some_and(|top| {
            !top.gone.load(Ordering::Acquire)
                && top.identity.is_none_or(|then| identity(path) == Some(then))
        })
    }

    /// Notes that the broker takes `path` away for the target.
    pub fn forget(&self, path: &[u8]) {
        if let Some(top) = self.tops.get(path) {
            top.gone.store(true, Ordering::Release);
        }
    }
}

fn is_within(path: &str, top: &str) -> bool {
    crate::policy::path::is_within(path.as_bytes(), top.as_bytes())
}

fn identity(path: &[u8]) -> Option<Identity> {
    rustix::fs::lstat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subtree_covers_itself_and_what_is_below() {
        let held =
            Held::new(&["/usr/bin".into(), "/etc".into()], "/", &Decider::of_rules(Vec::new()));
        for (path, want) in [
            ("/usr/bin", true),
            ("/usr/bin/c/d", true),
            ("/usr", false),
            ("/usr/binx", false),
            ("/etc/x", true),
            ("/", false),
        ] {
            assert_eq!(held.covers(path.as_bytes()), want, "{path}");
        }
        let none = Decider::of_rules(Vec::new());
        assert!(Held::new(&["/".into()], "/", &none).covers(b"/x/y"));
        assert!(!Held::new(&[], "/", &none).covers(b"/"));
    }

    #[test]
    fn what_was_put_in_the_place_of_a_grant_is_not_covered() {
        use crate::policy::{Effect, Origin, Pattern, Rule};
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().to_str().unwrap().to_owned();
        let top = format!("{root}/top");
        std::fs::create_dir(&top).unwrap();
        let rule = Rule {
            access: Access::Write,
            effect: Effect::Allow,
            always: false,
            pattern: Pattern::Subtree(root.clone()),
            text: ".".into(),
            origin: Origin::built_in("test"),
        };
        let held = Held::new(std::slice::from_ref(&top), &root, &Decider::of_rules(vec![rule]));
        let below = format!("{top}/file");
        assert!(held.covers(below.as_bytes()));
        std::fs::rename(&top, format!("{root}/old")).unwrap();
        std::fs::create_dir(&top).unwrap();
        assert!(!held.covers(below.as_bytes()));
    }

    #[test]
    fn what_the_broker_took_away_is_not_covered() {
        let held = Held::new(&["/usr/bin".into()], "/", &Decider::of_rules(Vec::new()));
        held.forget(b"/usr");
        assert!(held.covers(b"/usr/bin/x"));
        held.forget(b"/usr/bin");
        assert!(!held.covers(b"/usr/bin/x"));
    }
}
