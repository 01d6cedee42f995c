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

/// A line that is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The query that it names, if it does: that is denied, once.
    pub query: Option<u64>,
    /// What is wrong with it.
    pub why: String,
}

impl Mistake {
    /// A line that names no query.
    pub fn of(why: impl Into<String>) -> Mistake {
        Mistake { query: None, why: why.into() }
    }
}

/// What a `query_id` has to look like.
const ID: &str = "query_id is no string of decimal digits as the query has it, for example \"1\"";

/// Reads one line, without its newline: the id of the query, and the answer to it.
///
/// # Errors
///
/// What is wrong with a line that cannot be understood.
pub fn parse(line: &[u8]) -> Result<(u64, Action, Scope), Mistake> {
    // An array of the values would do for serde.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err(Mistake::of("not a JSON object"));
    }
    match serde_json::from_slice::<Line>(line) {
        Ok(Line { query_id, action, scope }) => match id(&query_id) {
            Some(id) => Ok((id, action, scope)),
            None => Err(Mistake::of(ID)),
        },
        Err(error) => {
            let Ok(value) = serde_json::from_slice::<Value>(line) else {
                return Err(Mistake::of(format!("not JSON: {error}")));
            };
            match value.get("query_id") {
                None => Err(Mistake::of("no query_id")),
                Some(named) => match named.as_str().and_then(id) {
                    None => Err(Mistake::of(ID)),
                    query => Err(Mistake { query, why: error.to_string() }),
                },
            }
        }
    }
}

/// A decimal number as records spell it; 0 is no query's.
fn id(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

/// Cuts a stream of bytes into lines, in bounded memory: longer lines are passed over.
#[derive(Debug)]
pub struct Lines {
    longest: usize,
    /// The begin of a line whose end has not come yet.
    begun: Vec<u8>,
    /// The end of a line that is too long has not come yet.
    skipping: bool,
}

impl Default for Lines {
    /// Those of answers.
    fn default() -> Lines {
        Lines::of(Lines::LONGEST)
    }
}

impl Lines {
    /// The longest answer, in bytes without the newline. One takes less than 100.
    pub const LONGEST: usize = 1024;

    /// Lines of so many bytes at most, without the newline.
    #[must_use]
    pub fn of(longest: usize) -> Lines {
        Lines { longest, begun: Vec::new(), skipping: false }
    }

    /// Takes the next bytes in, and calls `each` with every line that ends in them; with none for one
    /// that is too long.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Option<&[u8]>)) {
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let ends = parts.peek().is_some();
            if self.begun.len() + part.len() > self.longest {
                self.skipping = true;
            }
            if self.skipping {
                self.begun.clear();
                self.skipping = !ends;
                if ends {
                    each(None);
                }
            } else if !ends {
                self.begun.extend_from_slice(part);
            } else if self.begun.is_empty() {
                each(Some(part));
            } else {
                self.begun.extend_from_slice(part);
                each(Some(&self.begun));
                self.begun.clear();
            }
        }
    }

    /// Whether the end of a line has not come yet.
    #[must_use]
    pub fn is_half(&self) -> bool {
        self.skipping || !self.begun.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_object_with_these_fields_and_no_others() {
        use {Action::*, Scope::*};
        for (line, expected) in [
            (r#"{"query_id":"1","action":"allow"}"#, (1, Allow, Once)),
            (r#" {"action":"allow","scope":"run","query_id":"12"} "#, (12, Allow, Run)),
            (r#"{"query_id":"7","action":"deny","scope":"once"}"#, (7, Deny, Once)),
            (r#"{"query_id":"7","action":"deny","scope":"run"}"#, (7, Deny, Run)),
            (r#"{"query_id":"18446744073709551615","action":"allow"}"#, (u64::MAX, Allow, Once)),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_mistake_names_its_query_and_says_why() {
        for (line, query, why) in [
            (r#"{"query_id":"3"}"#, Some(3), "missing field `action`"),
            (r#"{"query_id":"3","action":"ALLOW"}"#, Some(3), "unknown variant `ALLOW`"),
            (
                r#"{"query_id":"3","action":"allow","scope":"for ever"}"#,
                Some(3),
                "unknown variant `for ever`",
            ),
            (r#"{"query_id":"3","action":"allow","scope":null}"#, Some(3), "expected"),
            (r#"{"query_id":"3","action":"allow","why":"x"}"#, Some(3), "unknown field `why`"),
            (r#"{"query_id":"3","action":"deny","action":"allow"}"#, Some(3), "duplicate field"),
            (r#"{"action":"allow"}"#, None, "no query_id"),
            (r#"{"query_id":3,"action":"allow"}"#, None, ID),
            (r#"{"query_id":"0","action":"allow"}"#, None, ID),
            (r#"{"query_id":"03","action":"allow"}"#, None, ID),
            (r#"{"query_id":"+3","action":"allow"}"#, None, ID),
            (r#"{"query_id":"","action":"allow"}"#, None, ID),
            (r#"{"query_id":"18446744073709551616","action":"allow"}"#, None, ID),
            (r#"{"query_id":"3","action":"allow""#, None, "not JSON: EOF"),
            (r#"{"query_id":"3","action":"allow"} x"#, None, "not JSON: trailing"),
            (r#"["3","allow"]"#, None, "not a JSON object"),
            ("yes", None, "not a JSON object"),
            ("", None, "not a JSON object"),
        ] {
            let mistake = parse(line.as_bytes()).expect_err(line);
            assert_eq!(mistake.query, query, "{line}");
            assert!(mistake.why.contains(why), "{line}: {}", mistake.why);
        }
        assert!(parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn lines_are_cut_wherever_the_bytes_are() {
        let long = "x".repeat(Lines::LONGEST);
        let text = format!("one\n\n{long}\n{long}x\ntwo\n{long}{long}{long}\n{long}x\nthree\nhalf");
        for size in [1, 2, 7, 100, 1023, 1024, 1025, text.len()] {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                lines.push(chunk, |line| {
                    seen.push(String::from_utf8(line.unwrap_or(b"too long").to_vec()).unwrap());
                });
                assert!(lines.begun.len() <= Lines::LONGEST);
            }
            let cut = "too long";
            let expected = ["one", "", &long, cut, "two", cut, cut, "three"];
            assert_eq!(seen, expected, "in parts of {size}");
            assert!(lines.is_half());
        }
    }
}
