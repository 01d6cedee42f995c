//! Answers to queries: what comes back on the trap descriptor, one JSON object a line.
//!
//! ```json
//! {"query_id":"1","action":"allow","scope":"run"}
//! ```

use serde::Deserialize;
use serde_json::Value;

/// What is to become of the operation that a query holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is done.
    Allow,
    /// It fails.
    Deny,
}

/// What an answer is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// This operation.
    #[default]
    Once,
    /// Every operation of the kind on this path, until the run ends.
    Run,
}

/// An answer as it is written. Anything more is a mistake, and no mistake is an "allow".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    query_id: String,
    action: Action,
    #[serde(default)]
    scope: Scope,
}

/// Reads one line, without its newline: the id of the query, and the answer to it.
///
/// A line that cannot be understood denies the query that it names, once; `None` where it names none.
#[must_use]
pub fn parse(line: &[u8]) -> Option<(u64, Action, Scope)> {
    // An array of the values would do for serde.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    match serde_json::from_slice::<Line>(line) {
        Ok(Line { query_id, action, scope }) => Some((id(&query_id)?, action, scope)),
        Err(_) => {
            let value: Value = serde_json::from_slice(line).ok()?;
            Some((id(value.get("query_id")?.as_str()?)?, Action::Deny, Scope::Once))
        }
    }
}

/// A decimal number as records spell it; 0 is no query's.
fn id(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

/// Cuts a stream of bytes into lines, in bounded memory: longer lines are passed over.
#[derive(Debug, Default)]
pub struct Lines {
    /// The begin of a line whose end has not come yet.
    begun: Vec<u8>,
    /// The end of a line that is too long has not come yet.
    skipping: bool,
}

impl Lines {
    /// The longest line, in bytes without the newline. An answer takes less than 100.
    pub const LONGEST: usize = 1024;

    /// Takes the next bytes in, and calls `each` with every line that ends in them.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let ends = parts.peek().is_some();
            if self.begun.len() + part.len() > Self::LONGEST {
                self.skipping = true;
            }
            if self.skipping {
                self.begun.clear();
                self.skipping = !ends;
            } else if !ends {
                self.begun.extend_from_slice(part);
            } else if self.begun.is_empty() {
                each(part);
            } else {
                self.begun.extend_from_slice(part);
                each(&self.begun);
                self.begun.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_object_with_these_fields_and_no_others() {
        use {Action::*, Scope::*};
        for (line, expected) in [
            (r#"{"query_id":"1","action":"allow"}"#, Some((1, Allow, Once))),
            (r#" {"action":"allow","scope":"run","query_id":"12"} "#, Some((12, Allow, Run))),
            (r#"{"query_id":"7","action":"deny","scope":"once"}"#, Some((7, Deny, Once))),
            (r#"{"query_id":"7","action":"deny","scope":"run"}"#, Some((7, Deny, Run))),
            (
                r#"{"query_id":"18446744073709551615","action":"allow"}"#,
                Some((u64::MAX, Allow, Once)),
            ),
            // Named and not understood.
            (r#"{"query_id":"3"}"#, Some((3, Deny, Once))),
            (r#"{"query_id":"3","action":"ALLOW"}"#, Some((3, Deny, Once))),
            (r#"{"query_id":"3","action":"allow","scope":"for ever"}"#, Some((3, Deny, Once))),
            (r#"{"query_id":"3","action":"allow","scope":null}"#, Some((3, Deny, Once))),
            (r#"{"query_id":"3","action":"allow","why":"x"}"#, Some((3, Deny, Once))),
            (r#"{"query_id":"3","action":"deny","action":"allow"}"#, Some((3, Deny, Once))),
            // Naming nothing.
            (r#"{"query_id":3,"action":"allow"}"#, None),
            (r#"{"query_id":"0","action":"allow"}"#, None),
            (r#"{"query_id":"03","action":"allow"}"#, None),
            (r#"{"query_id":"+3","action":"allow"}"#, None),
            (r#"{"query_id":"","action":"allow"}"#, None),
            (r#"{"query_id":"18446744073709551616","action":"allow"}"#, None),
            (r#"{"query_id":"3","action":"allow""#, None),
            (r#"{"query_id":"3","action":"allow"} x"#, None),
            (r#"["3","allow"]"#, None),
            ("yes", None),
            ("", None),
        ] {
            assert_eq!(parse(line.as_bytes()), expected, "{line}");
        }
        assert_eq!(parse(b"\xff\xfe"), None);
    }

    #[test]
    fn lines_are_cut_wherever_the_bytes_are() {
        let long = "x".repeat(Lines::LONGEST);
        let text = format!("one\n\n{long}\n{long}x\ntwo\n{long}{long}{long}\n{long}x\nthree\nhalf");
        for size in [1, 2, 7, 100, 1023, 1024, 1025, text.len()] {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                lines.push(chunk, |line| seen.push(String::from_utf8(line.to_vec()).unwrap()));
                assert!(lines.begun.len() <= Lines::LONGEST);
            }
            assert_eq!(seen, ["one", "", &long, "two", "three"], "in parts of {size}");
        }
    }
}
