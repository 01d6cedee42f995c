//! The directories that relative globs are anchored below.

use std::collections::HashSet;

/// A directory that globs are anchored below.
pub(crate) struct Anchor {
    pub path: String,
    /// Whether no other anchor lies above: a glob that starts with `**` needs only these.
    pub outermost: bool,
}

/// The anchors for these directories, each once, in order.
pub(crate) fn anchors<'a>(dirs: impl Iterator<Item = &'a str>) -> Vec<Anchor> {
    let mut seen = HashSet::new();
    let dirs: Vec<&str> = dirs.filter(|dir| seen.insert(*dir)).collect();
    let outermost = |dir: &str| {
        let mut above = dir;
        loop {
            above = match above.rfind('/') {
                _ if above == "/" => return true,
                Some(0) => "/",
                Some(at) => &above[..at],
                None => return true,
            };
            if seen.contains(above) {
                return false;
            }
        }
    };
    dirs.iter().map(|dir| Anchor { path: (*dir).to_owned(), outermost: outermost(dir) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_know_which_of_them_are_outermost() {
        let found = anchors(["/w", "/x/y", "/w/a/b", "/wx", "/w", "/x/y/z"].into_iter());
        let found: Vec<(&str, bool)> =
            found.iter().map(|anchor| (anchor.path.as_str(), anchor.outermost)).collect();
        let expected =
            [("/w", true), ("/x/y", true), ("/w/a/b", false), ("/wx", true), ("/x/y/z", false)];
        assert_eq!(found, expected);
        assert!(!anchors(["/", "/w"].into_iter())[1].outermost);
    }
}
