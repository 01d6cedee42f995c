//! The grant that would allow what was denied.

use serde::ser::{Serialize, SerializeMap, Serializer};

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
    /// A port, to be appended to a list.
    Port(u16),
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

    /// A grant of one host, at one port where `host` ends in it.
    #[must_use]
    pub fn host(host: &str) -> Grant {
        let value = GrantValue::Entry(host.to_owned());
        Grant { section: "network", key: "allowedDomains", value }
    }

    /// A grant of one port of the host's loopback.
    #[must_use]
    pub fn host_port(port: u16) -> Grant {
        Grant { section: "network", key: "hostPorts", value: GrantValue::Port(port) }
    }

    /// A grant that sets a switch of `network`.
    #[must_use]
    pub fn switch(key: &'static str) -> Grant {
        Grant { section: "network", key, value: GrantValue::True }
    }

    /// A grant of what ordinary commands write in the repository of a linked git worktree.
    #[must_use]
    pub fn git_dir() -> Grant {
        Grant { section: "filesystem", key: "gitDir", value: GrantValue::True }
    }

    /// The smallest policy document that holds this grant, as JSON on one line.
    #[must_use]
    pub fn document(&self) -> String {
        let value = match &self.value {
            GrantValue::Entry(text) => serde_json::json!([text]),
            GrantValue::Literal(path) => serde_json::json!([{ "literal": path }]),
            GrantValue::Port(port) => serde_json::json!([port]),
            GrantValue::True => serde_json::Value::Bool(true),
        };
        serde_json::json!({ self.section: { self.key: value } }).to_string()
    }

    pub(super) fn stored_bytes(&self) -> usize {
        match &self.value {
            GrantValue::Entry(text) | GrantValue::Literal(text) => text.len(),
            GrantValue::Port(_) | GrantValue::True => 0,
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
            GrantValue::Port(port) => map.serialize_entry(self.key, port)?,
            GrantValue::True => map.serialize_entry(self.key, &true)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let port = Grant::host_port(5432);
        assert_eq!(serde_json::to_string(&port).unwrap(), r#"{"hostPorts":5432}"#);
        assert_eq!(port.document(), r#"{"network":{"hostPorts":[5432]}}"#);
        let switch = Grant::switch("allowNetwork");
        assert_eq!(switch.document(), r#"{"network":{"allowNetwork":true}}"#);
    }
}
