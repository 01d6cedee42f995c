//! Which key of a document stands at a line and column, for errors that name only those.

/// Where the walk is, from the outside in.
enum Step {
    /// In an object, behind this key; none before the first.
    Key(Option<String>),
    /// In a list, at this place.
    Item(usize),
}

/// The key at `line` and `column` of a JSON text, both from 1 as `serde_json` counts them, like
/// `process.rlimits[0].soft`; empty where it is the document itself. The text has to be JSON up to there.
pub fn key(text: &[u8], line: usize, column: usize) -> String {
    let before: usize = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let end = (before + column).min(text.len());
    let mut steps: Vec<Step> = Vec::new();
    let mut name = String::new();
    let mut at = 0;
    while at < end {
        match text[at] {
            b'"' => {
                let start = at + 1;
                at = start;
                while at < text.len() && text[at] != b'"' {
                    at += 1 + usize::from(text[at] == b'\\');
                }
                let inside = text.get(start..at.min(text.len())).unwrap_or_default();
                name = String::from_utf8_lossy(inside).into_owned();
            }
            b':' => {
                if let Some(Step::Key(key)) = steps.last_mut() {
                    *key = Some(std::mem::take(&mut name));
                }
            }
            b'{' => steps.push(Step::Key(None)),
            b'[' => steps.push(Step::Item(0)),
            b',' if at + 1 < end => match steps.last_mut() {
                Some(Step::Item(place)) => *place += 1,
                Some(Step::Key(key)) => *key = None,
                None => {}
            },
            // What ends just there is what the error is about.
            b'}' | b']' if at + 1 < end => {
                steps.pop();
            }
            _ => {}
        }
        at += 1;
    }
    let mut key = String::new();
    for step in &steps {
        match step {
            Step::Key(Some(name)) => {
                if !key.is_empty() {
                    key.push('.');
                }
                key.push_str(name);
            }
            Step::Key(None) => {}
            Step::Item(place) => key.push_str(&format!("[{place}]")),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Spec;

    #[test]
    fn errors_of_types_lead_to_their_keys() {
        for (text, expected) in [
            (r#"{"ociVersion": 7}"#, "ociVersion"),
            (
                r#"{"ociVersion": "1.0.0", "process": {"user": {"uid": "0", "gid": 0}}}"#,
                "process.user.uid",
            ),
            (r#"{"ociVersion": "1.0.0", "root": {"path": ["x"]}, "hostname": "h"}"#, "root.path"),
            (
                "{\"ociVersion\": \"1.0.0\",\n \"process\": {\"cwd\": \"/\", \"args\": [\"a\", \"b:,\\\"{\",\n 7, \"c\"]}}",
                "process.args[2]",
            ),
            (
                r#"{"ociVersion": "1.0.0", "linux": {"namespaces": [{"type": "pid"}, {"type": "no"}]}}"#,
                "linux.namespaces[1].type",
            ),
            (r#"{"ociVersion": "1.0.0", "mounts": {}}"#, "mounts"),
            (
                r#"{"ociVersion": "1.0.0", "linux": {"uidMappings": [{"hostID": -1}]}}"#,
                "linux.uidMappings[0].hostID",
            ),
        ] {
            let error = serde_json::from_str::<Spec>(text).unwrap_err();
            let found = key(text.as_bytes(), error.line(), error.column());
            assert_eq!(found, expected, "{error}: {text}");
        }
    }

    #[test]
    fn no_place_is_too_far() {
        for text in ["", "\"", "\"\\", "{\"a\": [", "}}]]", ",,:"] {
            for (line, column) in [(0, 0), (1, 1), (1, 99), (9, 9)] {
                let _any = key(text.as_bytes(), line, column);
            }
        }
    }
}
