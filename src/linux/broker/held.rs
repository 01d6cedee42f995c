//! Which subtrees the kernel holds by itself.

use std::collections::HashSet;

/// A set of subtrees.
pub struct Held(HashSet<Box<[u8]>>);

impl Held {
    /// The set of `subtrees`, absolute canonical paths.
    pub fn new(subtrees: &[String]) -> Held {
        Held(subtrees.iter().map(|path| path.as_bytes().into()).collect())
    }

    /// Whether `path`, absolute and canonical, lies in one of them.
    pub fn covers(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        self.0.contains(path)
            || (0..path.len())
                .rev()
                .filter(|&at| path[at] == b'/')
                .any(|at| {
                    self.0
                        .contains(if at == 0 { &b"/"[..] } else { &path[..at] })
                })
    }
}

#[cfg(test)]
mod tests {
    use super::Held;

    #[test]
    fn a_subtree_covers_itself_and_what_is_below() {
        let held = Held::new(&["/a/b".into(), "/c".into()]);
        for (path, want) in [
            ("/a/b", true),
            ("/a/b/c/d", true),
            ("/a", false),
            ("/a/bc", false),
            ("/c/x", true),
            ("/", false),
        ] {
            assert_eq!(held.covers(path.as_bytes()), want, "{path}");
        }
        assert!(Held::new(&["/".into()]).covers(b"/x/y"));
        assert!(!Held::new(&[]).covers(b"/"));
    }
}
