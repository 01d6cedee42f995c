//! The policies that come with the program, named with an `@`.

/// The JSON Schema of a policy document.
pub const SCHEMA: &str = include_str!("../../config/policy.schema.json");

/// A shipped policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name, with the `@`.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// The document, JSON.
    pub text: &'static str,
}

/// Every shipped policy.
pub const ALL: &[Shipped] = &[
    Shipped {
        name: "@workspace",
        summary: "the start directory may be written; no network",
        text: include_str!("../../config/policies/workspace.json"),
    },
    Shipped {
        name: "@agent",
        summary: "@workspace, but for what the host later runs; credentials unreadable",
        text: include_str!("../../config/policies/agent.json"),
    },
    Shipped {
        name: "@secrets",
        summary: "credentials unreadable; to be added to another policy",
        text: include_str!("../../config/policies/secrets.json"),
    },
    Shipped {
        name: "@readonly",
        summary: "nothing may be written; no network",
        text: include_str!("../../config/policies/readonly.json"),
    },
];

/// Entries of a list of strings in the section `filesystem` of a shipped policy.
///
/// # Panics
///
/// Where there is no such policy or list: a test asks for all that are used.
pub(crate) fn list(name: &str, key: &str) -> Vec<String> {
    let text = find(name).expect("a shipped policy").text;
    let document: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let list = document["filesystem"][key].as_array().expect("a list");
    list.iter().filter_map(|entry| entry.as_str()).map(str::to_owned).collect()
}

/// The shipped policy of this name, which starts with `@`.
pub fn find(name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|shipped| shipped.name == name)
}

/// The shipped policy that `name`, with or without the `@`, was probably meant to be.
pub fn nearest(name: &str) -> Option<&'static str> {
    let asked = name.trim_start_matches('@').to_lowercase();
    // A longer name is a path, whose distance takes long to tell.
    let short = asked.len() <= 16 && !asked.contains('/');
    let distance = |known: &str| strsim::osa_distance(&asked, known.trim_start_matches('@'));
    let near = ALL.iter().filter(|_| short).map(|shipped| (distance(shipped.name), shipped.name));
    near.filter(|(distance, _)| *distance <= 2).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::{Format, merge, parse};
    use super::*;

    #[test]
    fn every_shipped_policy_parses_and_ignores_nothing() {
        for shipped in ALL {
            let doc = parse(shipped.name, shipped.text.as_bytes(), Format::Json).unwrap();
            assert_eq!(doc.ignored, [], "{}", shipped.name);
            assert_eq!(find(shipped.name), Some(shipped));
        }
    }

    #[test]
    fn agent_hides_every_secret() {
        let read = |name: &str| {
            let text = find(name).unwrap().text;
            let doc = parse(name, text.as_bytes(), Format::Json).unwrap();
            let list = merge(vec![doc]).filesystem.deny_read;
            list.into_iter().map(|entry| entry.value).collect::<Vec<_>>()
        };
        assert_eq!(read("@agent"), read("@secrets"));
    }
}
