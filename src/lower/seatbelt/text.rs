//! The text of a profile: a list in Scheme's notation.

/// A string. Between quotes only `"` and `\` mean something else; a line may end inside.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// A rule: the action, the operations, filters of which one has to match, and what the log says of it.
pub fn rule(action: &str, operations: &str, filters: &[&str], message: Option<&str>) -> String {
    let mut out = format!("({action} {operations}");
    for filter in filters {
        out.push(' ');
        out.push_str(filter);
    }
    if let Some(message) = message {
        out.push_str(&format!(" (with message {})", quoted(message)));
    }
    out.push(')');
    out
}
