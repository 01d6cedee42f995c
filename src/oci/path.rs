//! Paths as text.

use std::path::{Component, Path, PathBuf};

/// The path without `.`, `..`, and its leading slashes, by its text alone; empty for the root itself.
#[must_use]
pub fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_by_their_text() {
        for (path, expected) in [
            ("/", ""),
            ("/a/b", "a/b"),
            ("a//./b/", "a/b"),
            ("/a/../../b", "b"),
            ("/proc/./sys/../sys", "proc/sys"),
            ("../../x", "x"),
            ("/a/../../b/..", ""),
            ("..", ""),
        ] {
            assert_eq!(clean(Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
