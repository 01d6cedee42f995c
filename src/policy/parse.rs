//! Parses a policy document.

use super::document::{AppContainerMode, Document, Entry, Ignored, Paths, Spelling};
use super::error::{self, PolicyError};
use super::glob;
use super::host;
use super::keys::{self, SECTIONS, Slot, Target, Unit};
use super::node::{self, Node, Value, shown};
use super::path::check_typed;
use super::rule::{Located, Origin};
use std::fmt::Write as _;

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, RFC 8259.
    Json,
    /// YAML 1.2, core schema, without anchors, aliases and tags.
    Yaml,
}

/// The most patterns that the globs of one document may expand to.
pub const MAX_PATTERNS: usize = 20_000;

/// Parses one document. `name` is what origins and errors call the file.
///
/// # Errors
///
/// The first thing that is wrong, with its line and key: the syntax, a limit of the document (4
/// MiB, 64 levels, 200,010 values, 20,000 expanded globs), an unknown key, a wrong type, a path, glob, host or number
/// that cannot be right.
pub fn parse(name: &str, bytes: &[u8], format: Format) -> Result<Document, PolicyError> {
    let root = node::text(bytes).and_then(|text| match format {
        Format::Json => node::json(text),
        Format::Yaml => node::yaml(text),
    });
    let root = root.map_err(|problem| PolicyError {
        code: error::PARSE_FAILED,
        file: Some(name.to_owned()),
        line: problem.line,
        key: problem.key.filter(|key| !key.is_empty()),
        message: problem.message,
    })?;
    let mut reader = Reader { file: name, doc: Document::default(), patterns: 0 };
    reader.document(root)?;
    Ok(reader.doc)
}

type Result<T, E = PolicyError> = std::result::Result<T, E>;

struct Reader<'a> {
    file: &'a str,
    doc: Document,
    /// How many patterns the globs so far expand to.
    patterns: usize,
}

impl Reader<'_> {
    fn origin(&self, line: u32, key: impl Into<String>) -> Origin {
        Origin { file: self.file.to_owned(), line, key: key.into() }
    }

    fn document(&mut self, root: Node) -> Result<()> {
        let origin = self.origin(root.line, "");
        let Value::Map(entries) = root.value else {
            return Err(wrong_type(&origin, "an object", &root.value));
        };
        for (name, node) in entries {
            if !SECTIONS.contains(&name.text.as_str()) {
                self.key("", &name.text, name.line, node)?;
                continue;
            }
            let origin = self.origin(name.line, name.text.as_str());
            let Value::Map(entries) = node.value else {
                return Err(wrong_type(&origin, "an object", &node.value));
            };
            for (key, node) in entries {
                self.key(&name.text, &key.text, key.line, node)?;
            }
        }
        Ok(())
    }

    fn key(&mut self, section: &str, name: &str, line: u32, node: Node) -> Result<()> {
        let Some(key) = keys::find(section, name) else {
            let origin = self.origin(line, keys::join(section, &shown(name).replace('"', "")));
            let mut message = format!("unknown key {}", shown(name));
            if let Some(nearest) = keys::nearest(section, name) {
                message.push_str(&format!("; did you mean `{nearest}`?"));
            }
            return Err(PolicyError::at(error::PARSE_FAILED, &origin, message));
        };
        let origin = self.origin(line, key.path());
        match key.target {
            Target::Refused(reason) => {
                let message = format!("the key `{name}` cannot be honoured: {reason}");
                Err(PolicyError::at(error::PARSE_FAILED, &origin, message))
            }
            Target::Ignored(reason) => {
                let reason = reason.to_owned();
                self.doc.ignored.push(Ignored { origin, reason });
                Ok(())
            }
            Target::Kept(slot) => {
                // Scalars say the line of their value, which may not be that of the key.
                let at = Origin { line: node.line, ..origin.clone() };
                match slot(&mut self.doc) {
                    Slot::Paths(list) => *list = paths(node, &origin, &mut self.patterns)?,
                    Slot::Hosts(list) => *list = Some(strings(node, &origin, host::check)?),
                    Slot::Services(list) => *list = strings(node, &origin, service)?,
                    Slot::Flag(flag) => match node.value {
                        Value::Bool(value) => *flag = Some(Located::new(value, at)),
                        other => return Err(wrong_type(&at, "true or false", &other)),
                    },
                    Slot::Port(port) => {
                        let value = self::port(&node, &at)?;
                        *port = Some(Located::new(value, at).typed_as(typed(&node)));
                    }
                    Slot::Ports(list) => *list = ports(node, &origin)?,
                    Slot::Amount(amount, unit) => {
                        let value = self::amount(&node, &at, unit)?;
                        *amount = Some(Located::new(value, at).typed_as(typed(&node)));
                    }
                    Slot::Tag(tag) => *tag = Some(Located::new(self::tag(&node, &at)?, at)),
                    Slot::Container(mode) => {
                        *mode = Some(Located::new(container(&node, &at)?, at));
                    }
                }
                Ok(())
            }
        }
    }
}

/// The text of a number, or of a string that stands for one.
fn typed(node: &Node) -> &str {
    match (&node.typed, &node.value) {
        (Some(text), _) | (None, Value::String(text)) => text,
        _ => "",
    }
}

fn wrong_type(origin: &Origin, wanted: &str, found: &Value) -> PolicyError {
    let mut message = format!("must be {wanted}, not {}", found.describe());
    if let (Value::String(text), "true or false") = (found, wanted) {
        // YAML 1.1 took these words for booleans, and many still write them.
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => {
                message.push_str(&format!("; {} is text: write `true`", shown(text)));
            }
            "false" | "no" | "off" | "n" => {
                message.push_str(&format!("; {} is text: write `false`", shown(text)));
            }
            _ => {}
        }
    }
    if matches!(found, Value::Null) && wanted.contains("path") {
        message.push_str("; in YAML a lone `~` is null, the home directory is `\"~\"`");
    }
    PolicyError::at(error::PARSE_FAILED, origin, message)
}

/// The elements of a list, each with its place; a block's lines count as elements.
fn elements(node: Node, origin: &Origin, wanted: &str) -> Result<Vec<(Node, Origin)>> {
    let elements: Vec<Node> = match node.value {
        Value::List(list) => list,
        Value::Block(text) => text
            .lines()
            .zip(node.line + 1..)
            .map(|(line, number)| (line.trim(), number))
            .filter(|(line, _)| !line.is_empty())
            .map(|(text, line)| Node { line, value: Value::String(text.to_owned()), typed: None })
            .collect(),
        other => return Err(wrong_type(origin, wanted, &other)),
    };
    Ok(elements
        .into_iter()
        .enumerate()
        .map(|(i, node)| {
            let origin =
                Origin { file: origin.file.clone(), line: node.line, key: indexed(&origin.key, i) };
            (node, origin)
        })
        .collect())
}

/// The key path of an element.
fn indexed(key: &str, at: usize) -> String {
    let mut indexed = String::with_capacity(key.len() + 8);
    // Writing to a string does not fail.
    let _ = write!(indexed, "{key}[{at}]");
    indexed
}

/// The longest tag, in bytes.
const MAX_TAG_BYTES: usize = 64;

/// What each denial is marked with: a word, so that it means nothing else wherever it is printed.
fn tag(node: &Node, origin: &Origin) -> Result<String> {
    let text = match &node.value {
        Value::String(text) => text,
        other => return Err(wrong_type(origin, "a word", other)),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.len() > MAX_TAG_BYTES || !text.chars().all(word) {
        let message = format!(
            "{} is no tag: 1 to {MAX_TAG_BYTES} letters, digits, `.`, `_` and `-`",
            shown(text)
        );
        return Err(PolicyError::at(error::PARSE_FAILED, origin, message));
    }
    Ok(text.clone())
}

fn paths(node: Node, origin: &Origin, patterns: &mut usize) -> Result<Paths> {
    elements(node, origin, "a list of paths")?
        .into_iter()
        .map(|(node, origin)| {
            let entry = entry(node, &origin)?;
            check_entry(&entry, patterns)
                .map_err(|(code, message)| PolicyError::at(code, &origin, message))?;
            Ok(Located::new(entry, origin))
        })
        .collect()
}

/// One entry of a path list.
fn entry(node: Node, origin: &Origin) -> Result<Entry> {
    const WANTED: &str = "a path, or {\"literal\": path} or {\"glob\": pattern}";
    match node.value {
        Value::String(text) => Ok(Entry { text, spelling: Spelling::Plain }),
        Value::Map(mut entries) if entries.len() == 1 => {
            let (name, node) = entries.remove(0);
            let spelling = match name.text.as_str() {
                "literal" => Spelling::Literal,
                "glob" => Spelling::Glob,
                _ => {
                    let message = format!("unknown key {}; must be {WANTED}", shown(&name.text));
                    return Err(PolicyError::at(error::PARSE_FAILED, origin, message));
                }
            };
            match node.value {
                Value::String(text) => Ok(Entry { text, spelling }),
                other => Err(wrong_type(origin, "a path", &other)),
            }
        }
        other => Err(wrong_type(origin, WANTED, &other)),
    }
}

/// Checks what can be known about an entry without a filesystem.
fn check_entry(entry: &Entry, patterns: &mut usize) -> Result<(), (&'static str, String)> {
    check_typed(&entry.text, entry.spelling != Spelling::Literal)?;
    if !entry.is_glob() {
        return Ok(());
    }
    let refuse = |message: String| {
        let message = format!("{}: {message}", shown(&entry.text));
        (error::PARSE_FAILED, message)
    };
    if entry.text.len() > glob::MAX_GLOB_BYTES {
        let message = format!("a glob is longer than {} bytes", glob::MAX_GLOB_BYTES);
        return Err(refuse(message));
    }
    for pattern in glob::expand(&entry.text).map_err(refuse)? {
        let (_, tail) = glob::split_head(&pattern);
        glob::check(tail).map_err(refuse)?;
        *patterns += 1;
        if *patterns > MAX_PATTERNS {
            let message = format!("the globs up to here expand to more than {MAX_PATTERNS}");
            return Err(refuse(message));
        }
    }
    Ok(())
}

/// A list of strings, each checked and normalized.
fn strings(
    node: Node,
    origin: &Origin,
    check: fn(&str) -> Result<String, String>,
) -> Result<Vec<Located<String>>> {
    elements(node, origin, "a list of strings")?
        .into_iter()
        .map(|(node, origin)| {
            let Value::String(text) = node.value else {
                return Err(wrong_type(&origin, "a string", &node.value));
            };
            let checked = check(&text)
                .map_err(|message| PolicyError::at(error::PARSE_FAILED, &origin, message))?;
            Ok(Located::new(checked, origin).typed_as(&text))
        })
        .collect()
}

/// Checks the name of a Mach service; a `*` may only end it.
fn service(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.is_empty() || !name.chars().all(right) {
        return Err(format!(
            "{} is not the name of a Mach service; a `*` may only end it",
            shown(text)
        ));
    }
    Ok(text.to_owned())
}

fn port(node: &Node, origin: &Origin) -> Result<u16> {
    match node.value {
        Value::Integer(value) => match u16::try_from(value) {
            Ok(port) if port > 0 => Ok(port),
            _ => {
                let message = format!("{value} is not a port; ports are 1 to 65535");
                Err(PolicyError::at(error::INVALID_PORT, origin, message))
            }
        },
        Value::Float(value) => {
            let message = format!("{value} is not a port; ports are 1 to 65535");
            Err(PolicyError::at(error::INVALID_PORT, origin, message))
        }
        ref other => Err(wrong_type(origin, "a port", other)),
    }
}

fn ports(node: Node, origin: &Origin) -> Result<Vec<Located<u16>>> {
    let found = elements(node, origin, "a list of ports")?;
    let located = |(node, origin): (Node, Origin)| {
        let value = port(&node, &origin)?;
        Ok(Located::new(value, origin).typed_as(typed(&node)))
    };
    found.into_iter().map(located).collect()
}

fn amount(node: &Node, origin: &Origin, unit: Unit) -> Result<u64> {
    let (wanted, largest) = match unit {
        Unit::Bytes => ("a number of bytes above 0, or a text like \"512M\"", 1 << 62),
        Unit::Count => ("a whole number above 0", 1 << 22),
        Unit::Cpus => ("a number of CPUs, at least 0.001", 1_000_000),
        Unit::Seconds => ("a whole number of seconds above 0", 1 << 31),
    };
    let too_large = || {
        let message = format!("is too large; must be {wanted}");
        PolicyError::at(error::INTEGER_TOO_LARGE, origin, message)
    };
    let wrong = || {
        let message = format!("must be {wanted}");
        PolicyError::at(error::PARSE_FAILED, origin, message)
    };
    let value = match (&node.value, unit) {
        (Value::Integer(value), Unit::Cpus) => value.saturating_mul(1000),
        (Value::Float(value), Unit::Cpus) if *value >= 0.001 => (value * 1000.0).round() as i128,
        (Value::Integer(value), _) => *value,
        (Value::String(text), Unit::Bytes) => suffixed(text).ok_or_else(|| {
            let message = format!("must be {wanted}; {}", unit_hint(text));
            PolicyError::at(error::PARSE_FAILED, origin, message)
        })?,
        // A number in quotes.
        (Value::String(text), _) if text.parse::<f64>().is_ok() => {
            let message = format!("must be {wanted}, without quotes");
            return Err(PolicyError::at(error::PARSE_FAILED, origin, message));
        }
        (Value::Float(value), _) if *value > largest as f64 => return Err(too_large()),
        (Value::Float(_), _) => return Err(wrong()),
        (other, _) => return Err(wrong_type(origin, wanted, other)),
    };
    match u64::try_from(value) {
        Ok(value) if value > largest => Err(too_large()),
        Ok(value) if value > 0 => Ok(value),
        _ if value > 0 => Err(too_large()),
        _ => Err(wrong()),
    }
}

/// A number of bytes with a suffix.
fn suffixed(text: &str) -> Option<i128> {
    let shift = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return None,
    };
    let digits = &text[..text.len() - 1];
    let plain = !digits.is_empty() && digits.len() <= 19 && !digits.starts_with('0');
    if !plain || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse::<i128>().ok()? << shift)
}

/// What an amount of bytes was probably meant to be.
fn unit_hint(text: &str) -> String {
    const UNITS: &str = "the units are K, M, G and T, powers of 1024";
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let letter = text[digits.len()..].trim_start().chars().next().map(|c| c.to_ascii_uppercase());
    let plain = suffixed(&format!("{digits}K")).is_some();
    match letter {
        None if plain => format!("{} has no unit: \"{digits}M\"? {UNITS}", shown(text)),
        Some(unit @ ('K' | 'M' | 'G' | 'T')) if plain => {
            format!("did you mean \"{digits}{unit}\"? {UNITS}")
        }
        _ => UNITS.to_owned(),
    }
}

fn container(node: &Node, origin: &Origin) -> Result<AppContainerMode> {
    match &node.value {
        Value::String(mode) if mode == "lpac" => Ok(AppContainerMode::Lpac),
        Value::String(mode) if mode == "standard" => Ok(AppContainerMode::Standard),
        Value::String(mode) => {
            let message = format!("must be \"lpac\" or \"standard\", not {}", shown(mode));
            Err(PolicyError::at(error::PARSE_FAILED, origin, message))
        }
        other => Err(wrong_type(origin, "\"lpac\" or \"standard\"", other)),
    }
}
