//! Rules: what a policy says about one path, and where it says so.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::glob::{Glob, Reach};
use super::path::is_within;

/// The file name that [`Origin`] gives to rules that no document states.
pub const BUILT_IN: &str = "built-in";

/// The extended attribute that holds a program's own policy, and how [`Origin`] tells one: its file is
/// the program's with this in brackets behind it.
pub const ATTRIBUTE: &str = "user.landstrip.policy";

/// The key of the built-in denials around the kernel's controls, see
/// [`controls`](crate::plan::controls).
pub const CONTROLS: &str = "controls";

/// The place in a policy that a rule or a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The file as named to [`parse`](super::parse()), or [`BUILT_IN`].
    pub file: String,
    /// The line in that file, from 1; 0 for built-ins.
    pub line: u32,
    /// The key path, like `filesystem.denyWrite[0]`.
    pub key: String,
}

impl Origin {
    /// The origin of a rule that holds in every run; `key` says which.
    pub fn built_in(key: &str) -> Self {
        Self { file: BUILT_IN.to_owned(), line: 0, key: key.to_owned() }
    }

    /// The file of the policy that is attached to `program`, as origins name it.
    pub fn attached(program: &str) -> String {
        format!("{program} ({ATTRIBUTE})")
    }

    /// Whether the policy that is attached to a program says so.
    pub fn is_attached(&self) -> bool {
        let brackets = self.file.strip_suffix(')').and_then(|text| text.strip_suffix(ATTRIBUTE));
        brackets.is_some_and(|text| text.ends_with(" ("))
    }

    /// Whether no document states this rule.
    pub fn is_built_in(&self) -> bool {
        self.file == BUILT_IN && self.line == 0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}", self.key)?;
        }
        Ok(())
    }
}

/// A value together with the place that set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it was set.
    pub origin: Origin,
    /// How it was typed, where that differs from the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl<T> Located<T> {
    /// A value and its place.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin, text: None }
    }
}

impl<T: fmt::Display> Located<T> {
    /// The same, typed as `text`.
    #[must_use]
    pub fn typed_as(self, text: &str) -> Self {
        let text = (self.value.to_string() != text).then(|| text.to_owned());
        Self { text, ..self }
    }

    /// The value as it was typed.
    pub fn typed(&self) -> String {
        self.text.clone().unwrap_or_else(|| self.value.to_string())
    }
}

/// What is done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reading a file's content, listing a directory, executing.
    Read,
    /// Everything that changes a file, a name or their attributes.
    Write,
}

/// What a rule does with what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It grants.
    Allow,
    /// It denies.
    Deny,
}

/// What a rule matches. Paths are absolute, normalized, and free of symbolic links as far as they
/// existed when the policy was resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// This path and everything below it.
    Subtree(String),
    /// Exactly this name and nothing below it: a symbolic link on the way to a denied path, which
    /// may not be unlinked, renamed or replaced. Such rules deny writing, whatever the access of
    /// the entry they come from: reading a link tells nothing, replacing it moves the denied path.
    Name(String),
    /// Whatever the glob matches, and everything below that.
    Glob(Glob),
}

/// One rule of a resolved policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// The access that the rule speaks about.
    pub access: Access,
    /// Whether it grants or denies.
    pub effect: Effect,
    /// A denial that no more specific rule and no answered query re-opens.
    pub always: bool,
    /// What it matches.
    pub pattern: Pattern,
    /// The entry as typed in the policy.
    pub text: String,
    /// Where the policy says so.
    pub origin: Origin,
}

impl Rule {
    /// Whether this denial keeps the kernel's controls from rules that do not name a path among them.
    pub fn guards_controls(&self) -> bool {
        self.effect == Effect::Deny && self.origin.is_built_in() && self.origin.key == CONTROLS
    }

    /// The path that the rule is about, or that everything it can match lies below.
    pub fn place(&self) -> &str {
        match &self.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => path,
            Pattern::Glob(glob) => glob.anchor(),
        }
    }

    /// Whether this denial gives way to a grant of `granted` that was given when the run asked: it does
    /// where it matches that path itself, and not only something below.
    ///
    /// The name of a link on the way to a denied path never does: with another link in its place, the
    /// denial would be about something else.
    pub fn yields_to(&self, granted: &[u8]) -> bool {
        !self.always
            && match &self.pattern {
                Pattern::Subtree(path) => is_within(granted, path.as_bytes()),
                Pattern::Name(_) => false,
                Pattern::Glob(glob) => matches!(glob.reach(granted), Reach::Matched(_)),
            }
    }
}
