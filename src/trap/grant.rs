//! The grant that would allow what was denied.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Operation, Reason};
use crate::policy::Closed;

/// A policy entry: adding it would allow the operation.
///
/// It is written as an object with one key, the key being a field of the policy's `filesystem` or
/// `network` section.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The section of the policy, `filesystem` or `network`.
    pub section: &'static str,
    /// The field in that section, for example `allowWrite`.
    pub key: &'static str,
    /// What to put there.
    pub value: GrantValue,
}

/// The value of a [`Grant`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GrantValue {
    /// A path, host or other text, to be appended to a list.
    Entry(String),
    /// A path that would be read as a glob or refused if it were written as plain text: it is
    /// appended as `{"literal": path}`.
    Literal(String),
    /// The field is a switch, to be set to `true`.
    True,
}

impl Grant {
    /// A grant of one path in a list field of `filesystem`, or of `network` for sockets.
    #[must_use]
    pub fn path(section: &'static str, key: &'static str, path: &str) -> Grant {
        // What the policy language gives a meaning of its own within an entry.
        let special = |c: char| matches!(c, '*' | '?' | '[' | '{' | '$' | '\\' | '~');
        let blank = path.trim() != path || path.chars().any(char::is_control);
        let value = if blank || path.contains(special) {
            GrantValue::Literal(path.to_owned())
        } else {
            GrantValue::Entry(path.to_owned())
        };
        Grant { section, key, value }
    }

    /// A grant that sets a switch of `network`.
    #[must_use]
    pub fn switch(key: &'static str) -> Grant {
        Grant { section: "network", key, value: GrantValue::True }
    }

    /// The smallest policy document that holds this grant, as JSON on one line.
    #[must_use]
    pub fn document(&self) -> String {
        let value = match &self.value {
            GrantValue::Entry(text) => serde_json::json!([text]),
            GrantValue::Literal(path) => serde_json::json!([{ "literal": path }]),
            GrantValue::True => serde_json::Value::Bool(true),
        };
        serde_json::json!({ self.section: { self.key: value } }).to_string()
    }

    pub(super) fn stored_bytes(&self) -> usize {
        match &self.value {
            GrantValue::Entry(text) | GrantValue::Literal(text) => text.len(),
            GrantValue::True => 0,
        }
    }
}

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match &self.value {
            GrantValue::Entry(text) => map.serialize_entry(self.key, text)?,
            GrantValue::Literal(path) => {
                map.serialize_entry(
                    self.key,
                    &std::collections::BTreeMap::from([("literal", path)]),
                )?;
            }
            GrantValue::True => map.serialize_entry(self.key, &true)?,
        }
        map.end()
    }
}

/// What stands against an operation on a path: the deny rule that matched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Against {
    /// The rule is in a tier that nothing re-opens.
    pub always: bool,
    /// The rule is a literal that names exactly this path, not one above it.
    pub names_it: bool,
}

/// The grant that would allow `operation` on `path`, or `None` where no grant can.
///
/// `against` is the deny rule that matched, `None` for [`Reason::AllowMiss`]. A more specific rule
/// wins, so an entry for the path itself re-opens what a rule above it, or a glob, denies. Where a
/// literal denies this very path, `allowRead` wins and `allowWrite` does not. A path that is not
/// absolute, or that had to be converted to UTF-8 with replacement characters, cannot be granted.
#[must_use]
pub fn suggest(operation: Operation, path: &str, against: Option<Against>) -> Option<Grant> {
    let reading = match operation {
        Operation::Read | Operation::Execute => true,
        Operation::Write => false,
        _ => return None,
    };
    if !path.starts_with('/') || path.contains('\u{fffd}') {
        return None;
    }
    if let Some(rule) = against
        && (rule.always || (rule.names_it && !reading))
    {
        return None;
    }
    Some(Grant::path("filesystem", if reading { "allowRead" } else { "allowWrite" }, path))
}

/// The grant that would open an endpoint that is `closed`; `path` is that of a Unix socket.
///
/// None is suggested for a socket that is as good as the host: whoever wants that names it unprompted.
#[must_use]
pub fn suggest_endpoint(closed: Closed, path: &str) -> Option<Grant> {
    match closed {
        Closed::Network => Some(Grant::switch("allowNetwork")),
        Closed::Loopback => Some(Grant::switch("allowLocalBinding")),
        Closed::Unlisted if path.starts_with('/') && !path.contains('\u{fffd}') => {
            Some(Grant::path("network", "allowUnixSockets", path))
        }
        Closed::Unlisted | Closed::Daemon => None,
    }
}

impl Against {
    /// The reason that a record gives for a decision against this rule, or against none.
    #[must_use]
    pub fn reason(against: Option<Against>) -> Reason {
        if against.is_some() { Reason::DenyMatch } else { Reason::AllowMiss }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOVE: Against = Against { always: false, names_it: false };
    const EXACT: Against = Against { always: false, names_it: true };
    const ALWAYS: Against = Against { always: true, names_it: false };

    #[test]
    fn a_grant_is_suggested_only_where_it_would_work() {
        for (operation, path, against, expected) in [
            (Operation::Write, "/a", None, Some("allowWrite")),
            (Operation::Write, "/a", Some(ABOVE), Some("allowWrite")),
            (Operation::Write, "/a", Some(EXACT), None),
            (Operation::Write, "/a", Some(ALWAYS), None),
            (Operation::Read, "/a", Some(ABOVE), Some("allowRead")),
            (Operation::Read, "/a", Some(EXACT), Some("allowRead")),
            (Operation::Read, "/a", Some(ALWAYS), None),
            (Operation::Execute, "/a", Some(EXACT), Some("allowRead")),
            (Operation::Write, "a", None, None),
            (Operation::Write, "/a\u{fffd}", None, None),
            (Operation::Connect, "/a", None, None),
        ] {
            let grant = suggest(operation, path, against);
            assert_eq!(grant.map(|g| g.key), expected, "{operation:?} {path} {against:?}");
        }
    }

    #[test]
    fn a_path_that_reads_as_a_glob_is_granted_as_a_literal() {
        for path in ["/a*", "/a?", "/[a]", "/{a,b}", "/$HOME", "/a\\b", "/~", "/a\nb", "/a "] {
            let grant = Grant::path("filesystem", "allowWrite", path);
            assert_eq!(grant.value, GrantValue::Literal(path.to_owned()), "{path}");
            let json = serde_json::to_value(&grant).unwrap();
            assert_eq!(json, serde_json::json!({"allowWrite": {"literal": path}}));
        }
        let plain = Grant::path("filesystem", "allowWrite", "/repo/out");
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"allowWrite":"/repo/out"}"#);
        assert_eq!(plain.document(), r#"{"filesystem":{"allowWrite":["/repo/out"]}}"#);
        let switch = Grant::switch("allowNetwork");
        assert_eq!(switch.document(), r#"{"network":{"allowNetwork":true}}"#);
    }
}
