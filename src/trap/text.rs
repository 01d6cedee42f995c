//! Records as one line of text for a person.

use std::fmt::{self, Write};

use super::{Denial, Kind, LimitReached, Mechanism, Trap};

/// Shows text that the program or a file chose, safe for a terminal and on one line: control
/// characters, and the format characters that reorder a line, appear as escapes.
#[must_use]
pub fn printable(text: &str) -> impl fmt::Display + '_ {
    Printable(text)
}

struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            // UAX #9: marks, embeddings, overrides and isolates; U+2028 and U+2029 break lines.
            let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c.is_control() || reorders {
                write!(out, "{}", c.escape_default())?;
            } else {
                out.write_char(c)?;
            }
        }
        Ok(())
    }
}

pub(super) fn trap_line(trap: &Trap) -> String {
    match trap {
        Trap::Denial(denial) => denial_line(denial, 1),
        Trap::Limit(limit) => limit_line(limit),
        Trap::Launch { program, message, .. } => {
            format!("landstrip: cannot run {}: {}\n", printable(program), printable(message))
        }
        Trap::Control { message, .. } => {
            format!("landstrip: an answer was ignored: {}\n", printable(message))
        }
        Trap::Usage { message } => usage(message),
        Trap::Internal { code, mechanism, message, file, line, key } => {
            let mut text = "landstrip: ".to_owned();
            if let Some(file) = file {
                push(&mut text, format_args!("{}", printable(file)));
                if let Some(line) = line {
                    push(&mut text, format_args!(":{line}"));
                }
                text.push_str(": ");
            }
            if let Some(key) = key {
                push(&mut text, format_args!("{}: ", printable(key)));
            }
            if let Some(mechanism) = mechanism {
                push(&mut text, format_args!("{}: ", mechanism_name(*mechanism)));
            }
            push(&mut text, format_args!("{} ({})\n", printable(message), code.as_str()));
            text
        }
    }
}

/// The one message that has several lines: what is wrong, a hint, and the usage.
fn usage(message: &str) -> String {
    let mut text = "landstrip: ".to_owned();
    for line in message.lines() {
        push(&mut text, format_args!("{}\n", printable(line)));
    }
    text
}

/// A ceiling that was reached, and the line that sets it.
pub(super) fn limit_line(limit: &LimitReached) -> String {
    let rule = &limit.rule;
    let (file, key, text) = (printable(&rule.file), printable(&rule.key), printable(&rule.text));
    let line = rule.line;
    let message = limit.resource.message(limit.count);
    format!("landstrip: {key} {text} by {file}:{line} was reached: {message}\n")
}

/// One denial: what was denied, by which rule, and the grant that would allow it.
pub(super) fn denial_line(denial: &Denial, count: u64) -> String {
    let mut text = "landstrip: denied ".to_owned();
    text.push_str(match denial.kind {
        Kind::Ipc => "ipc ",
        _ => "",
    });
    text.push_str(denial.operation.as_str());
    if let Some(what) = denial.path.as_ref().or(denial.target.as_ref()) {
        push(&mut text, format_args!(" {}", printable(what)));
    }
    if let (Some(_), Some(target)) = (&denial.path, &denial.target) {
        push(&mut text, format_args!(" ({})", printable(target)));
    }
    if let (Some(old), Some(new), Some(call)) = (&denial.old_path, &denial.new_path, denial.syscall)
    {
        let (old, new) = (printable(old), printable(new));
        push(&mut text, format_args!(" ({call} of {old} to {new})"));
    }
    if count > 1 {
        push(&mut text, format_args!(" ({count} times)"));
    }
    match (&denial.rule, denial.reason) {
        (Some(rule), _) => {
            push(&mut text, format_args!(" by {}", printable(&rule.file)));
            if rule.line > 0 {
                push(&mut text, format_args!(":{}", rule.line));
            }
            let (key, entry) = (printable(&rule.key), printable(&rule.text));
            push(&mut text, format_args!(" {key} \"{entry}\""));
        }
        (None, Some(super::Reason::AllowMiss)) => text.push_str(": no rule allows it"),
        (None, _) => {}
    }
    if let Some(message) = &denial.message {
        push(&mut text, format_args!(": {}", printable(message)));
    }
    if let Some(grant) = &denial.suggested_grant {
        push(&mut text, format_args!("; allow it with {}", printable(&grant.document())));
    }
    text.push('\n');
    text
}

pub(super) fn omitted_line(count: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("landstrip: {count} more denial{plural} not listed\n")
}

fn mechanism_name(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Landlock => "Landlock",
        Mechanism::Seccomp => "seccomp",
        Mechanism::Proxy => "the domain proxy",
        Mechanism::Cgroup => "cgroup",
        Mechanism::Seatbelt => "Seatbelt",
        Mechanism::Appcontainer => "AppContainer",
        Mechanism::Windowsuser => "restricted user",
    }
}

/// Appends to a string, which cannot fail.
fn push(text: &mut String, what: fmt::Arguments<'_>) {
    let _infallible = text.write_fmt(what);
}
