//! Holds the parser to the fixture documents, and the JSON Schema to the parser.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::keys::{KEYS, SECTIONS, Target};
use super::node::{self, Node, Value};
use super::{Format, parse, shipped};

struct Case {
    name: String,
    bytes: Vec<u8>,
    format: Format,
    verdict: Json,
}

fn cases() -> Vec<Case> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/policy");
    let mut cases: Vec<Case> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| {
            let dir = entry.unwrap().path();
            let (file, format) = if dir.join("policy.json").exists() {
                ("policy.json", Format::Json)
            } else {
                ("policy.yaml", Format::Yaml)
            };
            let verdict = fs::read(dir.join("verdict.json")).unwrap();
            Case {
                name: dir.file_name().unwrap().to_str().unwrap().to_owned(),
                bytes: fs::read(dir.join(file)).unwrap(),
                format,
                verdict: serde_json::from_slice(&verdict).unwrap(),
            }
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 100, "the fixtures are there");
    cases
}

#[test]
fn documents_get_their_verdict() {
    for case in cases() {
        let name = &case.name;
        let expected = &case.verdict;
        match parse("policy", &case.bytes, case.format) {
            Ok(_) => assert_eq!(expected["valid"], true, "{name} is accepted"),
            Err(error) => {
                assert_eq!(expected["valid"], false, "{name} is refused: {error}");
                assert_eq!(error.code, expected["code"], "{name}: {error}");
                assert_eq!(error.file.as_deref(), Some("policy"), "{name}");
                if expected["line"].is_u64() {
                    assert_eq!(json!(error.line), expected["line"], "{name}: {error}");
                }
                assert_eq!(json!(error.key), expected["key"], "{name}: {error}");
                if let Some(words) = expected["says"].as_str() {
                    assert!(error.message.contains(words), "{name}: {error}");
                }
                assert!(error.message.len() < 5000, "{name}: a message is no dump");
            }
        }
    }
}

/// The JSON that a tree stands for; a literal block is the list of its lines.
fn as_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Integer(value) => i64::try_from(*value).map_or(json!(*value as f64), |v| json!(v)),
        Value::Float(value) => json!(value),
        Value::String(text) => json!(text),
        Value::Block(text) => text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| json!(line))
            .collect(),
        Value::List(list) => list.iter().map(as_json).collect(),
        Value::Map(entries) => Json::Object(
            entries.iter().map(|(name, node)| (name.text.clone(), as_json(node))).collect(),
        ),
    }
}

#[test]
fn schema_and_parser_agree() {
    let schema: Json = serde_json::from_str(shipped::SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let mut compared = 0;
    for case in cases() {
        let tree = node::text(&case.bytes).and_then(|text| match case.format {
            Format::Json => node::json(text),
            Format::Yaml => node::yaml(text),
        });
        // A schema speaks about documents that are well formed.
        let Ok(tree) = tree else { continue };
        let verdict = parse("policy", &case.bytes, case.format).is_ok();
        let beyond = case.verdict["beyondSchema"].is_string();
        assert_eq!(schema.is_valid(&as_json(&tree)), verdict || beyond, "{}", case.name);
        compared += 1;
    }
    assert!(compared > 60, "most fixtures are well formed: {compared}");
}

#[test]
fn schema_holds_the_keys_of_the_table() {
    let schema: Json = serde_json::from_str(shipped::SCHEMA).unwrap();
    let mut listed = 0;
    for key in KEYS {
        let properties = match key.section {
            "" => &schema["properties"],
            section => &schema["properties"][section]["properties"],
        };
        let property = &properties[key.name];
        let description = property["description"].as_str().unwrap_or_default();
        let refused = property["not"] == json!({});
        match key.target {
            Target::Kept(_) => assert!(!refused && !description.is_empty(), "{}", key.path()),
            Target::Ignored(_) => assert!(!refused && property.is_object(), "{}", key.path()),
            Target::Refused(reason) => {
                assert!(refused && description.contains(reason), "{}", key.path());
            }
        }
        listed += 1;
    }
    let count = |value: &Json| value.as_object().map_or(0, |map| map.len());
    let sections: usize =
        SECTIONS.iter().map(|section| count(&schema["properties"][section]["properties"])).sum();
    let top = count(&schema["properties"]) - SECTIONS.len();
    assert_eq!(listed, sections + top, "no key is only in the schema");
}
