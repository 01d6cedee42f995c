//! JSON and YAML as one tree of values with line numbers.
//!
//! JSON is RFC 8259 to the letter: jsonc-parser gives the places, and since it lets through some
//! white space and control characters that the RFC does not, serde_json must accept the text too.
//! YAML is 1.2 with the core schema, restricted to what JSON can say: no anchors, aliases, tags or
//! second documents, and only string keys.

use std::collections::HashSet;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use saphyr_parser::{Event, Parser, ScalarStyle};

/// The largest document, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// The deepest nesting of lists and objects.
pub const MAX_DEPTH: usize = 64;
/// The most values in one document, lists and objects included: 100,000 entries of the form
/// `{"literal": ...}` fit.
pub const MAX_VALUES: usize = 200_010;

/// A value and the line it starts in.
#[derive(Debug)]
pub(crate) struct Node {
    pub line: u32,
    pub value: Value,
    /// A number as it was typed.
    pub typed: Option<String>,
}

/// A value.
#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    String(String),
    /// A YAML literal block (`|`), whose content starts in the line after its own.
    Block(String),
    List(Vec<Node>),
    Map(Vec<(Name, Node)>),
}

/// A key of a map.
#[derive(Debug)]
pub(crate) struct Name {
    pub text: String,
    pub line: u32,
}

/// Why there is no tree.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The line, if it is known.
    pub line: Option<u32>,
    /// The key path, where the document is in order up to there.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    fn new(line: Option<u32>, message: impl Into<String>) -> Problem {
        Problem { line, key: None, message: message.into() }
    }

    fn at(line: u32, key: String, message: impl Into<String>) -> Problem {
        Problem { key: Some(key), ..Problem::new(Some(line), message) }
    }

    /// The same problem, its key path seen from a value above, in which what it starts from is at `path`.
    fn within(self, path: &str) -> Problem {
        let join = |key: String| match path.is_empty() || key.starts_with('[') {
            true => format!("{path}{key}"),
            false => format!("{path}.{key}"),
        };
        Problem { key: self.key.map(join), ..self }
    }
}

/// A name as key paths have it.
fn key_of(name: &str) -> String {
    shown(name).trim_matches('"').to_owned()
}

impl Value {
    /// What a person would call this value.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::String(_) | Self::Block(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }

    fn of_number(text: &str) -> Self {
        if let Ok(integer) = text.parse() {
            return Self::Integer(integer);
        }
        let float: f64 = text.parse().unwrap_or(f64::NAN);
        // 1.0 and 1e3 are integers to JSON Schema; beyond 2^53 a double names no single integer.
        if float.fract() == 0.0 && float.abs() <= (1u64 << 53) as f64 {
            return Self::Integer(float as i128);
        }
        Self::Float(float)
    }
}

/// The text of a document: UTF-8, not too large, without a byte order mark.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() > MAX_BYTES {
        let message = format!("the document is larger than {} MiB", MAX_BYTES >> 20);
        return Err(Problem::new(None, message));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line = 1 + valid.iter().filter(|&&b| b == b'\n').count();
        Problem::new(Some(line as u32), "the text is not UTF-8")
    })?;
    if text.starts_with('\u{feff}') {
        return Err(Problem::new(Some(1), "the text starts with a byte order mark"));
    }
    if text.trim().is_empty() {
        return Err(Problem::new(None, "the document is empty"));
    }
    Ok(text)
}

/// Cuts a text short for a message.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// Parses JSON.
pub(crate) fn json(text: &str) -> Result<Node, Problem> {
    let options = jsonc_parser::ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed =
        jsonc_parser::parse_to_ast(text, &jsonc_parser::CollectOptions::default(), &options)
            .map_err(|error| {
                Problem::new(Some(error.line_display() as u32), error.kind().to_string())
            })?;
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|error| Problem::new(Some(error.line() as u32), error.to_string()))?;
    let Some(value) = parsed.value else {
        return Err(Problem::new(None, "the document is empty"));
    };
    let ends = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut converter = Converter { ends, count: 0 };
    converter.node(value, 0)
}

struct Converter {
    /// The positions of the line ends.
    ends: Vec<usize>,
    count: usize,
}

impl Converter {
    fn line(&self, at: usize) -> u32 {
        1 + self.ends.partition_point(|&end| end < at) as u32
    }

    /// Converts one value. The recursion is as deep as [`MAX_DEPTH`] lets it be.
    fn node(&mut self, value: ast::Value, depth: usize) -> Result<Node, Problem> {
        let line = self.line(value.range().start);
        admit(&mut self.count, depth, line)?;
        let mut typed = None;
        let value = match value {
            ast::Value::NullKeyword(_) => Value::Null,
            ast::Value::BooleanLit(b) => Value::Bool(b.value),
            ast::Value::NumberLit(n) => {
                typed = Some(n.value.to_owned());
                Value::of_number(n.value)
            }
            ast::Value::StringLit(s) => Value::String(s.value.into_owned()),
            ast::Value::Array(list) => {
                let mut nodes = Vec::with_capacity(list.elements.len());
                for (at, element) in list.elements.into_iter().enumerate() {
                    let node = self.node(element, depth + 1);
                    nodes.push(node.map_err(|problem| problem.within(&format!("[{at}]")))?);
                }
                Value::List(nodes)
            }
            ast::Value::Object(object) => {
                let mut map = Map::default();
                map.entries.reserve_exact(object.properties.len());
                for property in object.properties {
                    let line = self.line(property.range.start);
                    map.name(property.name.into_string(), line)?;
                    let node = self.node(property.value, depth + 1);
                    map.value(node.map_err(|problem| problem.within(&map.key()))?);
                }
                Value::Map(map.entries)
            }
        };
        Ok(Node { line, value, typed })
    }
}

/// Counts a value against the limits.
fn admit(count: &mut usize, depth: usize, line: u32) -> Result<(), Problem> {
    *count += 1;
    if *count > MAX_VALUES {
        let message = format!("the document holds more than {MAX_VALUES} values");
        return Err(Problem::new(Some(line), message));
    }
    if depth > MAX_DEPTH {
        let message = format!("lists and objects are nested more than {MAX_DEPTH} deep");
        return Err(Problem::new(Some(line), message));
    }
    Ok(())
}

/// Up to so many names in a map are compared one by one: most maps have one.
const FEW: usize = 8;

/// A map under construction.
#[derive(Default)]
struct Map {
    entries: Vec<(Name, Node)>,
    /// The names of `entries`, where there are more than a few.
    seen: HashSet<String>,
    pending: Option<Name>,
}

impl Map {
    /// Takes a name.
    fn name(&mut self, text: String, line: u32) -> Result<(), Problem> {
        let names = self.entries.iter().map(|(name, _)| &name.text);
        let twice = if self.entries.len() < FEW {
            { names }.any(|name| *name == text)
        } else {
            if self.seen.is_empty() {
                self.seen.extend(names.cloned());
            }
            !self.seen.insert(text.clone())
        };
        if twice {
            let message = format!("the key {} is there twice", shown(&text));
            return Err(Problem::at(line, key_of(&text), message));
        }
        self.pending = Some(Name { text, line });
        Ok(())
    }

    /// The name whose value comes next, as key paths have it.
    fn key(&self) -> String {
        self.pending.as_ref().map(|name| key_of(&name.text)).unwrap_or_default()
    }

    fn value(&mut self, node: Node) {
        if let Some(name) = self.pending.take() {
            self.entries.push((name, node));
        }
    }
}

/// Parses YAML.
pub(crate) fn yaml(text: &str) -> Result<Node, Problem> {
    let mut builder = Builder::default();
    let mut documents = 0;
    // What is missing at the end is said to stand after a line break that is not there.
    let last = last_line(text);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let mut message = error.info().to_owned();
            if message.contains("anchor") {
                message.push_str("; a value that starts with `*` or `&` must be quoted");
            }
            Problem::new(Some((error.marker().line() as u32).min(last)), message)
        })?;
        let line = (span.start.line() as u32).min(last);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(Problem::new(Some(line), "there is a second document"));
                }
            }
            Event::Alias(_) => {
                let message = "aliases are not read; a value that starts with `*` must be quoted";
                return Err(Problem::at(line, builder.path(), message));
            }
            Event::Scalar(text, style, anchor, tag) => {
                builder.plain(anchor, tag.is_some(), line)?;
                let line = header_line(&text, style, line);
                builder.scalar(&text, style, line)?;
            }
            Event::SequenceStart(anchor, tag) => {
                builder.plain(anchor, tag.is_some(), line)?;
                builder.open(Open::List(Vec::new()), line)?;
            }
            Event::MappingStart(anchor, tag) => {
                builder.plain(anchor, tag.is_some(), line)?;
                builder.open(Open::Map(Map::default()), line)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close(),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => {}
        }
    }
    builder.done.ok_or_else(|| Problem::new(None, "the document is empty"))
}

/// The number of the last line. A break is a line feed, a carriage return, or both, YAML 1.2 5.4.
fn last_line(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let breaks = (0..bytes.len()).filter(|&at| {
        bytes[at] == b'\n' || (bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n'))
    });
    breaks.count() as u32 + 1
}

/// The line a scalar starts in. The parser gives that of a block's first line with content; the
/// block starts in the line before its content and the blank lines that lead it.
fn header_line(text: &str, style: ScalarStyle, line: u32) -> u32 {
    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    match text.find(|c| c != '\n') {
        Some(leading) if is_block => line.saturating_sub(leading as u32 + 1),
        _ => line,
    }
}

/// A list or map whose end has not come.
enum Open {
    List(Vec<Node>),
    Map(Map),
}

/// Builds a tree from events, without recursion.
#[derive(Default)]
struct Builder {
    open: Vec<(Open, u32)>,
    done: Option<Node>,
    count: usize,
}

impl Builder {
    /// The key path of what comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for (open, _) in &self.open {
            match open {
                Open::List(list) => path.push_str(&format!("[{}]", list.len())),
                Open::Map(map) if map.pending.is_some() => {
                    let dot = if path.is_empty() { "" } else { "." };
                    path.extend([dot, &map.key()]);
                }
                Open::Map(_) => {}
            }
        }
        path
    }

    /// Refuses what JSON cannot say.
    fn plain(&self, anchor: usize, tagged: bool, line: u32) -> Result<(), Problem> {
        let what = match (anchor, tagged) {
            (0, false) => return Ok(()),
            (0, true) => "tags are not read; a value that starts with `!` must be quoted",
            _ => "anchors are not read; a value that starts with `&` must be quoted",
        };
        Err(Problem::at(line, self.path(), what))
    }

    fn open(&mut self, open: Open, line: u32) -> Result<(), Problem> {
        if self.wants_key() {
            let message = "a key is a list or an object; keys must be strings";
            return Err(Problem::new(Some(line), message));
        }
        admit(&mut self.count, self.open.len(), line)?;
        self.open.push((open, line));
        Ok(())
    }

    fn close(&mut self) {
        if let Some((open, line)) = self.open.pop() {
            let value = match open {
                Open::List(list) => Value::List(list),
                Open::Map(map) => Value::Map(map.entries),
            };
            self.add(Node { line, value, typed: None });
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: u32) -> Result<(), Problem> {
        let value = match style {
            ScalarStyle::Plain => core_schema(text),
            ScalarStyle::Literal => Value::Block(text.to_owned()),
            _ => Value::String(text.to_owned()),
        };
        if self.wants_key() {
            let Value::String(text) = value else {
                let message = format!("the key {} is not a string", shown(text));
                return Err(Problem::new(Some(line), message));
            };
            let named = match self.open.last_mut() {
                Some((Open::Map(map), _)) => map.name(text, line),
                _ => Ok(()),
            };
            return named.map_err(|problem| problem.within(&self.path()));
        }
        admit(&mut self.count, self.open.len(), line)?;
        let number = matches!(value, Value::Integer(_) | Value::Float(_));
        self.add(Node { line, value, typed: number.then(|| text.to_owned()) });
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some((Open::Map(map), _)) if map.pending.is_none())
    }

    fn add(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.done = Some(node),
            Some((Open::List(list), _)) => list.push(node),
            Some((Open::Map(map), _)) => map.value(node),
        }
    }
}

/// The type of a plain scalar, as YAML 1.2.2 section 10.3.2 has it.
fn core_schema(text: &str) -> Value {
    match text {
        "" | "null" | "Null" | "NULL" | "~" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let radix = [("0o", 8), ("0x", 16)].into_iter().find_map(|(prefix, radix)| {
        let digits = text.strip_prefix(prefix)?;
        (!digits.starts_with(['+', '-'])).then(|| i128::from_str_radix(digits, radix).ok())?
    });
    if let Some(integer) = radix {
        return Value::Integer(integer);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Value::Float(f64::NAN);
    }
    // Rust reads the same numbers but for words like `inf` and `nan`, and a lone point.
    let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && text.parse::<f64>().is_ok();
    if numeric { Value::of_number(text) } else { Value::String(text.to_owned()) }
}
