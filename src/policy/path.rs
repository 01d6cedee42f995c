//! Path literals: how they are typed, normalized and followed through symbolic links.

use std::collections::HashMap;

use super::error::{self, PolicyError};
use super::rule::Origin;
use super::view::{FsView, Kind};

/// The longest path accepted, in bytes: PATH_MAX of limits.h.
pub const MAX_PATH_BYTES: usize = 4096;
/// The most symbolic links on one path, as path_resolution(7) has it for Linux.
const MAX_LINKS: usize = 40;

/// The number of components; `/` has none.
pub(crate) fn depth(path: &[u8]) -> usize {
    if path == b"/" { 0 } else { path.iter().filter(|&&b| b == b'/').count() }
}

/// Whether `path` lies strictly below `dir`. Both are absolute and normalized.
pub(crate) fn is_below(path: &[u8], dir: &[u8]) -> bool {
    if dir == b"/" {
        return path.len() > 1;
    }
    path.len() > dir.len() && path[dir.len()] == b'/' && path.starts_with(dir)
}

/// Whether `path` is `dir` or lies below it.
pub(crate) fn is_within(path: &[u8], dir: &[u8]) -> bool {
    path == dir || is_below(path, dir)
}

/// The directory that holds `path`; `/` for `/`.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&b| b == b'/') {
        None | Some(0) => b"/",
        Some(at) => &path[..at],
    }
}

/// Appends a name to a directory.
pub(crate) fn join(dir: &str, name: &str) -> String {
    let dir = if dir == "/" { "" } else { dir };
    [dir, "/", name].concat()
}

/// What a literal leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The absolute path without symbolic links, as far as it exists.
    pub path: String,
    /// Every symbolic link met, by its own path.
    pub links: Vec<String>,
    /// The link that the literal itself names, when its last component is one.
    pub last_link: Option<String>,
    /// What is there.
    pub kind: Kind,
}

/// Checks how a path is typed, before any filesystem is looked at. `variables` says whether `$`
/// is suspicious, which it is not where the entry says that it is a literal.
///
/// # Errors
///
/// The code and what is wrong.
pub(crate) fn check_typed(text: &str, variables: bool) -> Result<(), (&'static str, String)> {
    if text.is_empty() {
        return Err((error::EMPTY_PATH, "the path is empty".to_owned()));
    }
    if text.len() > MAX_PATH_BYTES {
        let message = format!("the path is longer than {MAX_PATH_BYTES} bytes");
        return Err((error::PARSE_FAILED, message));
    }
    if text.contains('\0') {
        return Err((error::PARSE_FAILED, "the path holds a NUL character".to_owned()));
    }
    if let Some(rest) = text.strip_prefix('~')
        && !rest.is_empty()
        && !rest.starts_with('/')
    {
        let message = format!(
            "{text:?}: the home directory of another user is not looked up; write the path out, \
             or `./{text}` for a name that starts with `~`"
        );
        return Err((error::PARSE_FAILED, message));
    }
    let names_variable =
        |rest: &str| rest.starts_with(|c: char| c == '{' || c == '_' || c.is_ascii_alphabetic());
    if variables && text.split('$').skip(1).any(names_variable) {
        let message = format!(
            "{text:?}: variables are not expanded; write the path out, or \
             {{\"literal\": ...}} for a name that holds `$`"
        );
        return Err((error::PARSE_FAILED, message));
    }
    Ok(())
}

/// Follows literals through the filesystem, asking about each name once.
pub(crate) struct Walker<'a> {
    view: &'a dyn FsView,
    home: Option<&'a str>,
    known: HashMap<String, Kind>,
    /// Where the directories lead that globs are anchored below: each is asked about for every glob.
    bases: HashMap<String, Target>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(view: &'a dyn FsView, home: Option<&'a str>) -> Self {
        Self { view, home, known: HashMap::new(), bases: HashMap::new() }
    }

    /// What `path` is; it has no symbolic link before its last component.
    pub(crate) fn kind(&mut self, path: &str) -> Kind {
        if let Some(kind) = self.known.get(path) {
            return kind.clone();
        }
        let kind = self.view.kind(path);
        self.known.insert(path.to_owned(), kind.clone());
        kind
    }

    /// Reads a small file.
    pub(crate) fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        self.view.read(path, limit)
    }

    /// Follows a literal: `~` is the home directory, a relative path starts at `base`.
    ///
    /// # Errors
    ///
    /// `POLICY_HOME_UNAVAILABLE`, `POLICY_TRAVERSAL_DEPTH`, or `POLICY_PARSE_FAILED` when a link
    /// on the way is not UTF-8.
    pub(crate) fn follow(
        &mut self,
        text: &str,
        base: &str,
        origin: &Origin,
    ) -> Result<Target, PolicyError> {
        if let Some(known) = self.bases.get(base).filter(|_| text.is_empty()) {
            return Ok(known.clone());
        }
        let (start, rest) = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.home.filter(|home| home.starts_with('/'));
                let home = home.ok_or_else(|| {
                    let message = format!("{text:?}: there is no home directory in this run");
                    PolicyError::at(error::HOME_UNAVAILABLE, origin, message)
                })?;
                (home, rest)
            }
            _ if text.starts_with('/') => ("/", text),
            _ => (base, text),
        };
        let mut walk = Walk::default();
        self.walk(&mut walk, start, origin)?;
        self.walk(&mut walk, rest, origin)?;
        let kind = match (walk.path.is_empty(), walk.absent) {
            (true, _) => Kind::Dir,
            (false, Some(_)) => Kind::Absent,
            (false, None) => self.kind(&walk.path),
        };
        if walk.path.is_empty() {
            walk.path.push('/');
        }
        let target = Target { path: walk.path, links: walk.links, last_link: walk.last_link, kind };
        if text.is_empty() {
            self.bases.insert(base.to_owned(), target.clone());
        }
        Ok(target)
    }

    /// Takes the components of `text` one by one, and those of the links they turn out to be.
    fn walk(&mut self, walk: &mut Walk, text: &str, origin: &Origin) -> Result<(), PolicyError> {
        let mut todo: Vec<(String, bool)> = components(text, true).collect();
        while let Some((name, typed)) = todo.pop() {
            if typed {
                walk.last_link = None;
            }
            if name == ".." {
                let up = walk.path.rfind('/').unwrap_or(0);
                walk.path.truncate(up);
                walk.absent = walk.absent.filter(|absent| *absent <= up);
                continue;
            }
            let length = walk.path.len();
            walk.path.push('/');
            walk.path.push_str(&name);
            if walk.absent.is_some() {
                continue;
            }
            match self.kind(&walk.path) {
                Kind::Absent => walk.absent = Some(walk.path.len()),
                Kind::Symlink(target) => {
                    walk.links.push(walk.path.clone());
                    if typed {
                        walk.last_link = Some(walk.path.clone());
                    }
                    if walk.links.len() > MAX_LINKS {
                        let message = format!(
                            "{text:?}: more than {MAX_LINKS} symbolic links on the way, the last \
                             at {:?}",
                            walk.path
                        );
                        return Err(PolicyError::at(error::TRAVERSAL_DEPTH, origin, message));
                    }
                    walk.path.truncate(if target.starts_with('/') { 0 } else { length });
                    todo.extend(components(&target, false));
                }
                Kind::SymlinkNotUtf8 => {
                    let message = format!(
                        "{text:?}: the symbolic link {:?} leads to a path that is not UTF-8",
                        walk.path
                    );
                    return Err(PolicyError::at(error::PARSE_FAILED, origin, message));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Where a walk stands; the empty path is `/`.
#[derive(Default)]
struct Walk {
    path: String,
    /// The length of the first prefix that does not exist: nothing below it is looked up.
    absent: Option<usize>,
    links: Vec<String>,
    last_link: Option<String>,
}

/// The components of a path, last first, without `.` and empty ones.
fn components(text: &str, typed: bool) -> impl Iterator<Item = (String, bool)> + '_ {
    text.rsplit('/')
        .filter(|name| !name.is_empty() && *name != ".")
        .map(move |name| (name.to_owned(), typed))
}

#[cfg(test)]
mod tests {
    use super::super::view::MemoryTree;
    use super::*;

    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new();
        tree.dir("/data/u/.ssh")
            .link("/home/u", "/data/u")
            .link("/data/u/dot", "conf")
            .file("/data/u/conf/rc", "")
            .link("/data/u/rc", "dot/rc")
            .link("/data/u/gone", "nowhere/x")
            .link("/loop", "loop")
            .link("/up", "data/u/..");
        tree
    }

    #[test]
    fn literals_are_followed_like_the_kernel_would() {
        let tree = tree();
        let cases: &[(&str, &str, &[&str], Option<&str>)] = &[
            ("/", "/", &[], None),
            ("~", "/data/u", &["/home/u"], Some("/home/u")),
            ("~/.ssh//.", "/data/u/.ssh", &["/home/u"], None),
            (
                "~/rc",
                "/data/u/conf/rc",
                &["/home/u", "/data/u/rc", "/data/u/dot"],
                Some("/data/u/rc"),
            ),
            ("~/gone", "/data/u/nowhere/x", &["/home/u", "/data/u/gone"], Some("/data/u/gone")),
            ("~/dot/new/file", "/data/u/conf/new/file", &["/home/u", "/data/u/dot"], None),
            ("x", "/start/x", &[], None),
            ("../../..", "/", &[], None),
            ("~/../y", "/data/y", &["/home/u"], None),
            ("/absent/../x", "/x", &[], None),
            ("/up", "/data", &["/up"], Some("/up")),
        ];
        for (text, path, links, last) in cases {
            let mut walker = Walker::new(&tree, Some("/home/u"));
            let target = walker.follow(text, "/start", &Origin::default()).unwrap();
            assert_eq!(target.path, *path, "{text}");
            assert_eq!(target.links, *links, "{text}");
            assert_eq!(target.last_link.as_deref(), *last, "{text}");
        }
    }

    #[test]
    fn loops_and_missing_homes_are_refused() {
        let tree = tree();
        let mut walker = Walker::new(&tree, None);
        let origin = Origin::default();
        let code = |result: Result<Target, PolicyError>| result.unwrap_err().code;
        assert_eq!(code(walker.follow("/loop", "/", &origin)), error::TRAVERSAL_DEPTH);
        assert_eq!(code(walker.follow("~/x", "/", &origin)), error::HOME_UNAVAILABLE);
    }

    #[test]
    fn typing_is_checked() {
        for text in ["", "a\0b", "~root/x", "$HOME/x", "${X}", "a/$b"] {
            assert!(check_typed(text, true).is_err(), "{text:?}");
        }
        for text in ["~", "~/x", "./~x", "a$", "$1", "a b", "*"] {
            assert!(check_typed(text, true).is_ok(), "{text:?}");
        }
        assert!(check_typed("$HOME", false).is_ok());
    }
}
