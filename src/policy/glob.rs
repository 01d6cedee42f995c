//! Globs: one dialect, matched a component at a time.
//!
//! - `*` and `?` stay within a component; `**` as a whole component crosses any number of them,
//!   and at the end of a pattern at least one. Elsewhere `**` means `*`.
//! - `[abc]`, `[a-c]`, `[!a]` (also `[^a]`): one character. `?` and classes take one UTF-8
//!   character, or one byte where the name is not UTF-8 there.
//! - `{a,b}`: either; nests, and may hold `/`. Expanded before anything else, see [`expand`].
//! - `\` takes the next character as it is. A leading dot is matched like any other character.
//!
//! A glob is a nondeterministic automaton over components whose set of states is one `u64`: state
//! `i` means that the first `i` parts have been matched, state `n` that all have. The automaton
//! answers more than "does it match": which names could still lead to a match, which is what
//! carving and renames of directories need.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::component::{Part, Sieve};
use super::path::depth;

/// The longest pattern accepted, in bytes.
pub const MAX_GLOB_BYTES: usize = 1024;
/// The most components after the literal head of a pattern.
pub const MAX_GLOB_PARTS: usize = 60;
/// The most patterns that the braces of one entry may expand to.
pub const MAX_EXPANSIONS: usize = 256;
/// The most pairs of braces in one entry.
const MAX_BRACES: usize = 16;

/// A set of automaton states.
pub(crate) type States = u64;

/// The compiled components of a pattern.
#[derive(Debug, PartialEq)]
struct Body {
    text: String,
    parts: Vec<Part>,
    /// The states whose part is `**`.
    crossing: States,
    /// The states whose part is a `*` right after `**`, or after other such parts: together they
    /// match at any depth from some on.
    loose: States,
    /// The names that every match holds.
    needs: Sieve,
}

/// A compiled glob: a literal head, and components matched below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Glob {
    anchor: String,
    anchor_depth: usize,
    body: Arc<Body>,
}

/// The serialized form of a glob.
#[derive(Serialize, Deserialize)]
struct Written {
    anchor: String,
    pattern: String,
}

impl From<Glob> for Written {
    fn from(glob: Glob) -> Self {
        Self { anchor: glob.anchor, pattern: glob.body.text.clone() }
    }
}

impl TryFrom<Written> for Glob {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        Self::new(&written.anchor, &written.pattern)
    }
}

/// How far a path leads into a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Neither the path nor anything below it matches.
    Dead,
    /// The path lies strictly above the glob's literal head.
    Above,
    /// The path does not match; something below it may.
    Live(States),
    /// The path or an ancestor matches; the number is the depth of the shallowest that does.
    Matched(usize),
}

impl Glob {
    /// Compiles `pattern`, which holds no braces, to be matched below `anchor`, an absolute
    /// normalized path.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the pattern.
    pub fn new(anchor: &str, pattern: &str) -> Result<Self, String> {
        let parts = parts(pattern)?;
        let (mut crossing, mut loose, mut after_cross): (States, States, bool) = (0, 0, false);
        for (i, part) in parts.iter().enumerate() {
            match part {
                Part::Cross => crossing |= 1 << i,
                Part::Any if after_cross => loose |= 1 << i,
                _ => {}
            }
            after_cross = (crossing | loose) & 1 << i != 0;
        }
        let mut needs = Sieve::default();
        parts.iter().for_each(|part| needs.need(part));
        Ok(Self {
            anchor: anchor.to_owned(),
            anchor_depth: depth(anchor.as_bytes()),
            body: Arc::new(Body { text: pattern.to_owned(), parts, crossing, loose, needs }),
        })
    }

    /// The same pattern below another anchor.
    pub(crate) fn anchored(&self, anchor: &str) -> Self {
        Self {
            anchor: anchor.to_owned(),
            anchor_depth: depth(anchor.as_bytes()),
            body: Arc::clone(&self.body),
        }
    }

    /// The literal directory below which the pattern is matched.
    pub fn anchor(&self) -> &str {
        &self.anchor
    }

    /// The pattern below the anchor.
    pub fn pattern(&self) -> &str {
        &self.body.text
    }

    /// The components of the pattern.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.body.parts
    }

    /// Whether the pattern matches at any depth below its anchor.
    pub(crate) fn starts_crossing(&self) -> bool {
        self.body.crossing & 1 != 0
    }

    /// Whether a path with these names may match.
    pub(crate) fn may_match(&self, names: &Sieve) -> bool {
        self.body.needs.may_match(names)
    }

    /// Whether `path` or an ancestor of it matches. `path` is absolute and normalized.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.may_match(&Sieve::of_path(path)) && matches!(self.reach(path), Reach::Matched(_))
    }

    /// The states held at the anchor.
    fn start(&self) -> States {
        self.close(1)
    }

    /// `**` also matches no component at all: whoever is before it is also after it.
    fn close(&self, states: States) -> States {
        states | (states & self.body.crossing) << 1
    }

    /// The state in which the whole pattern has been matched.
    fn accepting(&self) -> States {
        1 << self.body.parts.len()
    }

    /// The states that `name` leads to from these, but for those that `**` keeps.
    fn moved(&self, states: States, name: &[u8]) -> States {
        let mut next = 0;
        let mut rest = states & !self.body.crossing & !self.accepting();
        while rest != 0 {
            let i = rest.trailing_zeros();
            rest &= rest - 1;
            if self.body.parts[i as usize].matches(name) {
                next |= 1 << (i + 1);
            }
        }
        next
    }

    /// The states after one more component.
    fn step(&self, states: States, name: &[u8]) -> States {
        self.close(states & self.body.crossing | self.moved(states, name))
    }

    /// How far `path`, absolute and normalized, leads into the glob.
    pub(crate) fn reach(&self, path: &[u8]) -> Reach {
        let anchor = self.anchor.as_bytes();
        let rest = if anchor == b"/" {
            &path[1..]
        } else if let Some(rest) = path.strip_prefix(anchor) {
            match rest.split_first() {
                None => rest,
                Some((b'/', rest)) => rest,
                Some(_) => return Reach::Dead,
            }
        } else if super::path::is_below(anchor, path) {
            return Reach::Above;
        } else {
            return Reach::Dead;
        };
        let accepting = self.accepting();
        let mut states = self.start();
        let mut at = self.anchor_depth;
        for name in rest.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            states = self.step(states, name);
            at += 1;
            if states & accepting != 0 {
                return Reach::Matched(at);
            }
            if states == 0 {
                return Reach::Dead;
            }
        }
        Reach::Live(states)
    }

    /// Whether the glob spells out the last name of `path` as that of a directory in which something
    /// may match.
    pub(crate) fn names_directory(&self, path: &[u8]) -> bool {
        let Reach::Live(states) = self.reach(super::path::parent(path)) else { return false };
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let last = self.body.parts.len() - 1;
        self.body.parts[..last].iter().enumerate().any(|(i, part)| {
            states & 1 << i != 0 && matches!(part, Part::Name(text) if **text == *name)
        })
    }

    /// Whether the last name of `path` is on the way to a match: a symbolic link of that name
    /// would make the match mean something else. Names that `**` would take as well do not count.
    pub(crate) fn progresses_at(&self, path: &[u8]) -> bool {
        let dir = super::path::parent(path);
        match self.reach(dir) {
            Reach::Above => matches!(self.reach(path), Reach::Above | Reach::Live(_)),
            Reach::Live(states) => {
                let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
                self.moved(states & !self.body.loose, name) & !self.accepting() != 0
            }
            Reach::Dead | Reach::Matched(_) => false,
        }
    }
}

/// Says what is wrong with `pattern`, as [`Glob::new`] would.
///
/// # Errors
///
/// The same.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    parts(pattern).map(drop)
}

/// Compiles the components of a pattern.
fn parts(pattern: &str) -> Result<Vec<Part>, String> {
    let mut parts: Vec<Part> = Vec::with_capacity(pattern.split('/').count() + 1);
    for name in pattern.split('/') {
        match name {
            "" | "." => {}
            ".." => return Err("`..` cannot follow a wildcard".to_owned()),
            "**" if parts.last() == Some(&Part::Cross) => {}
            _ => parts.push(Part::compile(name)?),
        }
    }
    if parts.last() == Some(&Part::Cross) {
        parts.push(Part::Any);
    }
    if parts.len() > MAX_GLOB_PARTS {
        return Err(format!(
            "has more than {MAX_GLOB_PARTS} components from the first wildcard on"
        ));
    }
    Ok(parts)
}

/// Expands braces: `a{b,c/d}` gives `ab` and `ac/d`.
///
/// # Errors
///
/// Says what is wrong: an unclosed brace, more than 16 pairs, or more than
/// [`MAX_EXPANSIONS`] results.
pub fn expand(pattern: &str) -> Result<Vec<Cow<'_, str>>, String> {
    if !pattern.contains('{') {
        return Ok(vec![Cow::Borrowed(pattern)]);
    }
    let mut todo = vec![(pattern.to_owned(), 0)];
    let mut done = Vec::new();
    while let Some((text, braces)) = todo.pop() {
        let Some((open, commas, close)) = first_braces(&text)? else {
            done.push(Cow::Owned(text));
            continue;
        };
        if braces == MAX_BRACES {
            return Err(format!("has more than {MAX_BRACES} pairs of braces"));
        }
        if todo.len() + done.len() + commas.len() + 1 > MAX_EXPANSIONS {
            return Err(format!("its braces expand to more than {MAX_EXPANSIONS} patterns"));
        }
        let mut ends = commas;
        ends.push(close);
        // Pushed in reverse, so that results come out in the order of the alternatives.
        for i in (0..ends.len()).rev() {
            let from = if i == 0 { open } else { ends[i - 1] } + 1;
            let alternative = [&text[..open], &text[from..ends[i]], &text[close + 1..]].concat();
            todo.push((alternative, braces + 1));
        }
    }
    Ok(done)
}

/// The byte positions of the first brace, of its commas, and of the brace that closes it.
fn first_braces(text: &str) -> Result<Option<(usize, Vec<usize>, usize)>, String> {
    let bytes = text.as_bytes();
    let (mut open, mut level, mut commas) = (0, 0u32, Vec::new());
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 1,
            b'[' => i = super::component::class_end(bytes, i).unwrap_or(i),
            b'{' => {
                level += 1;
                if level == 1 {
                    open = i;
                }
            }
            b',' if level == 1 => commas.push(i),
            b'}' if level == 1 => return Ok(Some((open, commas, i))),
            b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        i += 1;
    }
    if level > 0 {
        return Err("`{` is not closed".to_owned());
    }
    Ok(None)
}

/// Splits an expanded pattern into its literal head, unescaped, and the rest from the first
/// component with a wildcard on. The rest is empty when there is none.
pub(crate) fn split_head(pattern: &str) -> (String, &str) {
    let mut at = 0;
    for name in pattern.split_inclusive('/') {
        let mut bytes = name.bytes();
        while let Some(b) = bytes.next() {
            match b {
                b'\\' => drop(bytes.next()),
                b'*' | b'?' | b'[' => return (unescape(&pattern[..at]), &pattern[at..]),
                _ => {}
            }
        }
        at += name.len();
    }
    (unescape(pattern), "")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_the_dialect_says() {
        let cases: &[(&str, &str, bool)] = &[
            ("*.pem", "/w/a.pem", true),
            ("*.pem", "/w/.pem", true),
            ("*.pem", "/w/d/a.pem", false),
            ("*.pem", "/w/a.pem/below", true),
            ("**/.env", "/w/.env", true),
            ("**/.env", "/w/a/b/.env", true),
            ("**/.env", "/w/a/b.env", false),
            ("**/.env", "/other/.env", false),
            ("a/**", "/w/a", false),
            ("a/**", "/w/a/b", true),
            ("a/**/b", "/w/a/b", true),
            ("a/**/b", "/w/a/x/y/b", true),
            ("a/**/b", "/w/x/b", false),
            ("**/**/a", "/w/a", true),
            ("a**c", "/w/abc", true),
            ("a**c", "/w/a/c", false),
            ("?", "/w/é", true),
            ("?", "/w/ab", false),
            ("[a-c]x", "/w/bx", true),
            ("[!a-c]x", "/w/bx", false),
            ("[!a-c]x", "/w/dx", true),
            ("[]x]", "/w/]", true),
            ("[a-]", "/w/-", true),
            (r"\*", "/w/*", true),
            (r"\*", "/w/a", false),
            ("*??", "/w/😀", false),
            ("*a*b*c", "/w/xxaxxbxxc", true),
            ("*a*b*c", "/w/xxaxxbxx", false),
            (".*", "/w/.git", true),
            ("*/./b//", "/w/a/b", true),
        ];
        for (pattern, path, expected) in cases {
            let glob = Glob::new("/w", pattern).unwrap();
            assert_eq!(glob.matches(path.as_bytes()), *expected, "{pattern} on {path}");
        }
        let question = Glob::new("/", "?").unwrap();
        assert!(question.matches(b"/\xff"), "one byte that is no UTF-8");
        assert!(!question.matches(b"/\xff\xff"));
    }

    #[test]
    fn reach_tells_what_lies_ahead() {
        let glob = Glob::new("/w", "**/.git/hooks").unwrap();
        assert_eq!(glob.reach(b"/"), Reach::Above);
        assert_eq!(glob.reach(b"/x"), Reach::Dead);
        assert_eq!(glob.reach(b"/w/a"), glob.reach(b"/w/a/b/c"));
        assert_ne!(glob.reach(b"/w/a"), glob.reach(b"/w/a/.git"));
        assert_eq!(glob.reach(b"/w/a/.git/hooks/x"), Reach::Matched(4));
        assert!(glob.progresses_at(b"/w/a/.git"));
        assert!(!glob.progresses_at(b"/w/a/src"));
        assert!(!glob.progresses_at(b"/w/a/.git/hooks"));
        assert!(Glob::new("/w", "**/a/*/b").unwrap().progresses_at(b"/w/a/a/a"));
        assert!(!Glob::new("/w", "**/*/b").unwrap().progresses_at(b"/w/a/a"));
        assert!(glob.progresses_at(b"/w"), "the anchor is on the way");
        let finite = Glob::new("/w", "*/x").unwrap();
        assert!(finite.progresses_at(b"/w/a"));
        assert_eq!(finite.reach(b"/w/a/b"), Reach::Dead);
    }

    #[test]
    fn braces_expand_in_order() {
        let cases: &[(&str, &[&str])] = &[
            ("a", &["a"]),
            ("{a,b}", &["a", "b"]),
            ("x{a,b{c,d}}y", &["xay", "xbcy", "xbdy"]),
            ("{,a/}b", &["b", "a/b"]),
            ("{a}", &["a"]),
            (r"\{a,b}", &[r"\{a,b}"]),
            ("[{]{a,b}", &["[{]a", "[{]b"]),
        ];
        for (pattern, expected) in cases {
            assert_eq!(expand(pattern).unwrap(), *expected, "{pattern}");
        }
        assert!(expand("{a,b").is_err());
        assert!(expand(&"{a,b}".repeat(9)).unwrap_err().contains("256"));
        assert!(expand(&"{a}".repeat(17)).unwrap_err().contains("16"));
    }

    #[test]
    fn heads_are_split_before_the_first_wildcard() {
        let cases = [
            ("/etc/*.d/x", "/etc/", "*.d/x"),
            ("**/x", "", "**/x"),
            ("/*", "/", "*"),
            (r"a\*/b?", "a*/", "b?"),
            ("plain/path", "plain/path", ""),
        ];
        for (pattern, head, tail) in cases {
            assert_eq!(split_head(pattern), (head.to_owned(), tail), "{pattern}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for pattern in ["[a", "a[", "[c-a]", "*/../x", "x\\", &"*/".repeat(61)] {
            assert!(Glob::new("/", pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn serialized_globs_come_back() {
        let glob = Glob::new("/w", "**/[a-c]*.pem").unwrap();
        let text = serde_json::to_string(&glob).unwrap();
        assert_eq!(text, r#"{"anchor":"/w","pattern":"**/[a-c]*.pem"}"#);
        assert_eq!(serde_json::from_str::<Glob>(&text).unwrap(), glob);
    }
}
