//! A learned policy as a document that a person reads.

use super::{Evidence, Learned};
use crate::policy::{Entry, Format, Spelling};
use serde_json::{Value, json};

/// What a learned policy says beside what was learned.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The command that was learned from, for the comment at the top.
    pub command: &'a str,
    /// It stands alone, and so says that there is no network. One that extends others must not: the
    /// later word counts.
    pub alone: bool,
}

/// The widest line of a list.
const WIDTH: usize = 100;
/// Programs named in a comment, and things not granted.
const NAMED: usize = 3;
const LISTED: usize = 20;

/// A line or a list of a section: its key, and entries with the evidence for each.
enum Item<'a> {
    Entries(&'static str, Vec<(Value, Option<&'a Evidence>)>),
    Switch(&'static str, bool, Option<&'a Evidence>),
}

/// The document. In YAML each rule carries its evidence as a comment; JSON has none.
#[must_use]
pub fn document(learned: &Learned, frame: &Frame<'_>, format: Format) -> String {
    let sections = [("filesystem", filesystem(learned)), ("network", network(learned, frame))];
    let sections: Vec<_> = sections.into_iter().filter(|(_, items)| !items.is_empty()).collect();
    match format {
        Format::Json => as_json(&sections),
        Format::Yaml => as_yaml(&sections, learned, frame),
    }
}

fn filesystem(learned: &Learned) -> Vec<Item<'_>> {
    let list = |texts: Vec<String>| texts.into_iter().map(|text| (json!(text), None)).collect();
    let mut items = vec![Item::Entries("allowWrite", entries(&learned.writes))];
    if let Some(evidence) = &learned.git_dir {
        items.push(Item::Switch("gitDir", true, Some(evidence)));
    }
    let deny_write = learned.deny_write();
    if !deny_write.is_empty() {
        items.push(Item::Entries("denyWrite", list(deny_write)));
    }
    items.push(Item::Entries("denyRead", list(super::secrets())));
    items
}

fn network<'a>(learned: &'a Learned, frame: &Frame<'_>) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    if frame.alone && !learned.switches.iter().any(|(key, _)| *key == "allowNetwork") {
        items.push(Item::Switch("allowNetwork", false, None));
    }
    items.extend(learned.switches.iter().map(|(key, e)| Item::Switch(key, true, Some(e))));
    if !learned.ports.is_empty() {
        let ports = learned.ports.iter().map(|(port, e)| (json!(port), Some(e)));
        items.push(Item::Entries("hostPorts", ports.collect()));
    }
    if !learned.hosts.is_empty() {
        let hosts = learned.hosts.iter().map(|(host, e)| (json!(host), Some(e)));
        items.push(Item::Entries("allowedDomains", hosts.collect()));
    }
    if !learned.unix.is_empty() {
        items.push(Item::Entries("allowUnixSockets", entries(&learned.unix)));
    }
    items
}

fn entries(learned: &[(Entry, Evidence)]) -> Vec<(Value, Option<&Evidence>)> {
    learned.iter().map(|(entry, evidence)| (value(entry), Some(evidence))).collect()
}

fn value(entry: &Entry) -> Value {
    match entry.spelling {
        Spelling::Plain => json!(entry.text),
        Spelling::Literal => json!({ "literal": entry.text }),
        Spelling::Glob => json!({ "glob": entry.text }),
    }
}

fn as_json(sections: &[(&str, Vec<Item<'_>>)]) -> String {
    let sections: Vec<String> = sections
        .iter()
        .map(|(name, items)| {
            let items: Vec<String> = items
                .iter()
                .map(|item| match item {
                    Item::Switch(key, value, _) => format!("    \"{key}\": {value}"),
                    Item::Entries(key, entries) => format!("    \"{key}\": {}", list(entries, 4)),
                })
                .collect();
            format!("  \"{name}\": {{\n{}\n  }}", items.join(",\n"))
        })
        .collect();
    format!("{{\n{}\n}}\n", sections.join(",\n"))
}

/// A list on as few lines as it takes, of which each but the first starts two further in than
/// `indent`. Both languages read it.
fn list(entries: &[(Value, Option<&Evidence>)], indent: usize) -> String {
    if entries.is_empty() {
        return "[]".to_owned();
    }
    let start = format!("\n{:1$}", "", indent + 2);
    let mut out = "[".to_owned();
    let mut room = 0;
    for (nth, (value, _)) in entries.iter().enumerate() {
        let text = format!("{value}{}", if nth + 1 < entries.len() { "," } else { "" });
        let length = text.chars().count() + 1;
        if length > room {
            out.push_str(&start);
            room = WIDTH - indent - 2;
        } else {
            out.push(' ');
        }
        out.push_str(&text);
        room = room.saturating_sub(length);
    }
    out.push_str(&format!("\n{:1$}]", "", indent));
    out
}

fn as_yaml(sections: &[(&str, Vec<Item<'_>>)], learned: &Learned, frame: &Frame<'_>) -> String {
    let mut out = format!("# Learned from: {}\n", plain(frame.command));
    for (name, items) in sections {
        out.push_str(&format!("{name}:\n"));
        for item in items {
            match item {
                Item::Switch(key, value, evidence) => {
                    let comment = evidence.map(|e| format!(" # {}", said(e))).unwrap_or_default();
                    out.push_str(&format!("  {key}: {value}{comment}\n"));
                }
                Item::Entries(key, entries) if entries.iter().any(|(_, e)| e.is_some()) => {
                    out.push_str(&format!("  {key}:\n"));
                    for (value, evidence) in entries {
                        let comment = evidence.map(said).unwrap_or_default();
                        out.push_str(&format!("    - {value} # {comment}\n"));
                    }
                }
                Item::Entries(key, entries) => {
                    // Everything in a list stands further in than its key, its end too.
                    out.push_str(&format!("  {key}: {}\n", list(entries, 4)));
                }
            }
        }
    }
    let refused = refused(learned);
    if !refused.is_empty() {
        out.push_str("# Not granted:\n");
        for line in refused {
            out.push_str(&format!("#   {line}\n"));
        }
    }
    out
}

/// What was done and is not granted, a line each.
#[must_use]
pub fn refused(learned: &Learned) -> Vec<String> {
    let line = |(path, why, evidence): &(String, super::Why, Evidence)| {
        format!("{} ({}): {}", plain(path), by(evidence), why.as_str())
    };
    let mut lines: Vec<String> = learned.refused.iter().take(LISTED).map(line).collect();
    let more = learned.refused.len().saturating_sub(LISTED) as u64 + learned.omitted;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn said(evidence: &Evidence) -> String {
    let times = if evidence.count == 1 { "once" } else { "times" };
    let count = if evidence.count == 1 { String::new() } else { format!("{} ", evidence.count) };
    format!("{count}{times} {}, such as {}", by(evidence), plain(&evidence.example))
}

fn by(evidence: &Evidence) -> String {
    let names: Vec<String> = evidence.by.iter().take(NAMED).map(|name| plain(name)).collect();
    let more = if evidence.by.len() > NAMED { " and others" } else { "" };
    format!("by {}{more}", names.join(", "))
}

/// Text that stays within its comment and cannot steer a terminal, cut where it is long.
#[must_use]
pub fn plain(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut out = String::new();
    for c in text.chars().take(LONGEST) {
        // Line and paragraph separators, and what changes the direction, print as nothing else.
        let special = c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c) || c == '\u{feff}';
        if special { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}
