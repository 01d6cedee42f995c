//! What a document says that is not understood.
//!
//! Reading a document into types loses what the types do not hold, and a launch that ignores a part
//! of what it was asked for holds less than it seems to. So what was understood is written out again,
//! and compared with what was given.

use serde_json::Value;

/// The first place where `given` says something else than `understood`, and what is understood
/// there. What is absent, null or an empty list, object or text says nothing.
pub fn difference<'a>(given: &Value, understood: &'a Value) -> Option<(String, Option<&'a Value>)> {
    let mut key = String::new();
    let found = walk(given, understood, &mut key)?;
    Some((key, found))
}

/// `None`: no difference; else `key` names the place.
fn walk<'a>(given: &Value, understood: &'a Value, key: &mut String) -> Option<Option<&'a Value>> {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            for (name, value) in given {
                let length = key.len();
                if !key.is_empty() {
                    key.push('.');
                }
                key.push_str(name);
                let found = match understood.get(name) {
                    Some(other) => walk(value, other, key),
                    None if says_nothing(value) => None,
                    None => Some(None),
                };
                if found.is_some() {
                    return found;
                }
                key.truncate(length);
            }
            None
        }
        (Value::Array(given), Value::Array(understood)) if given.len() == understood.len() => {
            for (at, (value, other)) in given.iter().zip(understood).enumerate() {
                let length = key.len();
                key.push_str(&format!("[{at}]"));
                let found = walk(value, other, key);
                if found.is_some() {
                    return found;
                }
                key.truncate(length);
            }
            None
        }
        _ if given == understood || says_nothing(given) => None,
        _ => Some(Some(understood)),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_given_must_be_understood() {
        let understood = json!({"a": {"b": 1, "list": [{"x": true}]}, "none": null});
        for (given, expected) in [
            (json!({}), None),
            (json!({"a": {"b": 1}, "new": [], "c": null}), None),
            (json!({"a": {"b": 2}}), Some("a.b")),
            (json!({"a": {"c": false}}), Some("a.c")),
            (json!({"a": {"list": [{"x": false}]}}), Some("a.list[0].x")),
            (json!({"a": {"list": [{"x": true, "y": 1}]}}), Some("a.list[0].y")),
            (json!({"a": {"list": [1, 2]}}), Some("a.list")),
            (json!({"a": 1}), Some("a")),
            (json!({"none": 1}), Some("none")),
        ] {
            let found = difference(&given, &understood).map(|(key, _)| key);
            assert_eq!(found.as_deref(), expected, "{given}");
        }
    }
}
