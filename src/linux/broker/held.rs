//! Which subtrees the kernel holds by itself.

use crate::policy::{Access, Decider};
use std::collections::HashMap;

/// A set of subtrees that Landlock grants whole.
///
/// A Landlock rule is about an object, not about its name. Where the target could put another object
/// in its place, the object is compared before the kernel is relied upon.
pub struct Held(HashMap<Box<[u8]>, Option<Identity>>);

/// Device and inode.
type Identity = (u64, u64);

impl Held {
    /// The set of `subtrees`, absolute canonical paths, as they are now.
    pub fn new(subtrees: &[String], decider: &Decider) -> Held {
        let entry = |path: &String| {
            let parent = match path.rfind('/') {
                Some(0) | None => "/",
                Some(at) => &path[..at],
            };
            let replaceable = path != "/"
                && (decider.decide(Access::Write, parent.as_bytes()).is_allowed()
                    || decider.decide(Access::Write, path.as_bytes()).is_allowed());
            let identity = if replaceable { Some(identity(path.as_bytes())?) } else { None };
            Some((path.as_bytes().into(), identity))
        };
        Held(subtrees.iter().filter_map(entry).collect())
    }

    /// Whether `path`, absolute and canonical, lies in one of them.
    pub fn covers(&self, path: &[u8]) -> bool {
        let is_top = |top: &[u8]| match self.0.get(top) {
            None => false,
            Some(None) => true,
            Some(Some(then)) => identity(top) == Some(*then),
        };
        if self.0.is_empty() {
            return false;
        }
        is_top(path)
            || (0..path.len())
                .rev()
                .filter(|&at| path[at] == b'/')
                .any(|at| is_top(if at == 0 { b"/" } else { &path[..at] }))
    }
}

fn identity(path: &[u8]) -> Option<Identity> {
    rustix::fs::lstat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subtree_covers_itself_and_what_is_below() {
        let held = Held::new(&["/usr/bin".into(), "/etc".into()], &Decider::of_rules(Vec::new()));
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
        assert!(Held::new(&["/".into()], &none).covers(b"/x/y"));
        assert!(!Held::new(&[], &none).covers(b"/"));
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
        let held = Held::new(std::slice::from_ref(&top), &Decider::of_rules(vec![rule]));
        let below = format!("{top}/file");
        assert!(held.covers(below.as_bytes()));
        std::fs::rename(&top, format!("{root}/old")).unwrap();
        std::fs::create_dir(&top).unwrap();
        assert!(!held.covers(below.as_bytes()));
    }
}
