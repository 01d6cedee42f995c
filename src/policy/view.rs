//! The filesystem as the policy engine sees it.

use std::collections::BTreeMap;

/// What a name is, without following it when it is a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing has this name, or it cannot be looked up.
    Absent,
    /// A directory.
    Dir,
    /// A regular file.
    File {
        /// Its number of hard links.
        links: u64,
        /// Whether someone may execute it.
        executable: bool,
    },
    /// A symbolic link and what it holds.
    Symlink(String),
    /// A symbolic link that holds bytes which are not UTF-8.
    SymlinkNotUtf8,
    /// A device, a FIFO or a socket.
    Other,
}

/// Read access to the names of a host, a root directory or a test's tree.
///
/// Paths are absolute. No method follows a symbolic link in the last component, and callers only
/// ask about paths whose other components they found to be no links.
pub trait FsView {
    /// What `path` is.
    fn kind(&self, path: &str) -> Kind;
    /// The names in a directory, in any order, without `.` and `..`; names that are not UTF-8 are
    /// left out. `None`: more than `limit` names, or it cannot be listed.
    fn list(&self, dir: &str, limit: usize) -> Option<Vec<String>>;
    /// The content of a regular file. `None`: larger than `limit` bytes, or it cannot be read.
    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>>;
}

/// A tree in memory, for tests and for resolving policies without a host.
#[derive(Clone, Debug, Default)]
pub struct MemoryTree {
    nodes: BTreeMap<String, (Kind, Vec<u8>)>,
}

impl MemoryTree {
    /// A tree that holds only `/`.
    pub fn new() -> Self {
        let mut tree = Self::default();
        tree.nodes.insert("/".to_owned(), (Kind::Dir, Vec::new()));
        tree
    }

    /// Adds a node of any kind, and its missing parents as directories.
    pub fn add(&mut self, path: &str, kind: Kind, content: &[u8]) -> &mut Self {
        for (at, _) in path.match_indices('/').skip(1) {
            self.nodes.entry(path[..at].to_owned()).or_insert((Kind::Dir, Vec::new()));
        }
        self.nodes.insert(path.to_owned(), (kind, content.to_vec()));
        self
    }

    /// Adds a directory.
    pub fn dir(&mut self, path: &str) -> &mut Self {
        self.add(path, Kind::Dir, b"")
    }

    /// Adds a regular file with one link.
    pub fn file(&mut self, path: &str, content: &str) -> &mut Self {
        let kind = Kind::File { links: 1, executable: false };
        self.add(path, kind, content.as_bytes())
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> &mut Self {
        self.add(path, Kind::Symlink(target.to_owned()), b"")
    }

    /// Every path of the tree, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }
}

impl FsView for MemoryTree {
    fn kind(&self, path: &str) -> Kind {
        self.nodes.get(path).map_or(Kind::Absent, |(kind, _)| kind.clone())
    }

    fn list(&self, dir: &str, limit: usize) -> Option<Vec<String>> {
        if self.kind(dir) != Kind::Dir {
            return None;
        }
        let prefix = if dir == "/" { "/".to_owned() } else { format!("{dir}/") };
        let names: Vec<String> = self
            .nodes
            .range(prefix.clone()..)
            .map_while(|(path, _)| path.strip_prefix(&prefix))
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .take(limit + 1)
            .map(str::to_owned)
            .collect();
        (names.len() <= limit).then_some(names)
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        match self.nodes.get(path)? {
            (Kind::File { .. }, content) if content.len() <= limit => Some(content.clone()),
            _ => None,
        }
    }
}
