//! Random policies, trees and paths.

use landstrip::policy::{
    Access, Document, Format, FsView, Kind, MemoryTree, Place, ResolvedPolicy, merge, parse,
    resolve,
};
use proptest::prelude::*;
use serde_json::{Value, json};

pub const BOTH: [Access; 2] = [Access::Read, Access::Write];

/// So many random cases a law, or as many as PROPTEST_CASES says. No file is written on failure:
/// the smallest failing case is in the message, and belongs in a unit test.
pub fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: match std::env::var("PROPTEST_CASES") {
            Ok(count) => count.parse().expect("PROPTEST_CASES is a number"),
            Err(_) => count,
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

// Few names, so that rules and paths meet.

pub fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", ".x"]).prop_map(str::to_owned)
}

/// A path below `/w`, or another absolute one.
pub fn path() -> impl Strategy<Value = String> {
    let names = prop::collection::vec(name(), 0..5);
    (any::<bool>(), names).prop_map(|(inside, names)| {
        let top = if inside { "/w/" } else { "/" };
        let path = format!("{top}{}", names.join("/"));
        match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        }
    })
}

pub fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => path(),
        1 => prop::collection::vec(name(), 1..3).prop_map(|names| names.join("/")),
        1 => Just(".".to_owned()),
    ]
}

pub fn glob() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["**", "*", "a", "b", "?", "[ab]", ".*", "{a,b/c}"]);
    let wild = prop::sample::select(vec!["**/a", "*", "?", "**/.x", "*/b", "a*", "**/a/b"]);
    let rest = prop::collection::vec(part, 0..3);
    (prop::option::of(path()), rest, wild).prop_map(|(head, rest, wild)| {
        let mut parts = rest;
        parts.push(wild);
        let pattern = parts.join("/");
        match head.as_deref() {
            None => pattern,
            Some("/") => format!("/{pattern}"),
            Some(head) => format!("{head}/{pattern}"),
        }
    })
}

pub fn entries(globs: u32) -> impl Strategy<Value = Vec<Value>> {
    let entry = prop_oneof![
        4 => literal().prop_map(|text| json!(text)),
        globs => glob().prop_map(|text| json!(text)),
        1 => path().prop_map(|text| json!({ "literal": text })),
    ];
    prop::collection::vec(entry, 0..4)
}

/// A policy document about `filesystem`; `globs` is how often entries are globs.
pub fn filesystem(globs: u32) -> impl Strategy<Value = Value> {
    let list = || entries(globs);
    let always = prop_oneof![3 => Just(Vec::new()), 1 => list()];
    (list(), list(), always.clone(), list(), list(), always).prop_map(
        |(allow_write, deny_write, write_always, allow_read, deny_read, read_always)| {
            json!({ "filesystem": {
                "allowWrite": allow_write, "denyWrite": deny_write,
                "denyWriteAlways": write_always, "allowRead": allow_read,
                "denyRead": deny_read, "denyReadAlways": read_always,
            }})
        },
    )
}

/// A document that also says something about everything that merges by replacing.
pub fn document() -> impl Strategy<Value = Value> {
    let hosts = prop::sample::subsequence(vec!["a.com", "b.com", "*.c.com"], 0..=3);
    let flags = prop::collection::vec(prop::option::of(any::<bool>()), 4);
    let numbers = prop::collection::vec(prop::option::of(1u16..9), 4);
    (filesystem(2), prop::option::of(hosts), flags, numbers).prop_map(
        |(mut doc, hosts, flags, numbers)| {
            let mut set = |section: &str, key: &str, value: Option<Value>| {
                if let Some(value) = value {
                    doc[section][key] = value;
                }
            };
            set("network", "allowedDomains", hosts.map(|hosts| json!(hosts)));
            set("network", "allowNetwork", flags[0].map(Value::from));
            set("network", "allowLocalBinding", flags[1].map(Value::from));
            set("filesystem", "gitDir", flags[2].map(Value::from));
            set("windows", "allowLoopback", flags[3].map(Value::from));
            set("network", "httpProxyPort", numbers[0].map(Value::from));
            set("network", "hostPorts", numbers[0].map(|port| json!([port, 7])));
            set("network", "expose", numbers[1].map(|port| json!([port])));
            set("limits", "pids", numbers[1].map(Value::from));
            set("limits", "cpu", numbers[2].map(Value::from));
            set("ripgrep", "command", numbers[3].map(Value::from));
            doc
        },
    )
}

/// A tree of directories, files and symbolic links.
pub fn tree() -> impl Strategy<Value = MemoryTree> {
    let node = (path(), 0..6, path());
    prop::collection::vec(node, 0..12).prop_map(|nodes| {
        let mut tree = MemoryTree::new();
        tree.dir("/w").dir("/proc");
        for (path, kind, target) in nodes {
            // What is there stays, and nothing is put below a file or a link.
            let parents = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
            let taken = |parent: &str| !matches!(tree.kind(parent), Kind::Absent | Kind::Dir);
            if tree.kind(&path) != Kind::Absent || parents.into_iter().any(taken) {
                continue;
            }
            match kind {
                0 => tree.file(&path, ""),
                1 => tree.link(&path, &target),
                _ => tree.dir(&path),
            };
        }
        tree
    })
}

pub fn parsed(file: &str, doc: &Value) -> Document {
    parse(file, doc.to_string().as_bytes(), Format::Json).expect("generated documents are valid")
}

pub fn place(tree: &MemoryTree) -> Place<'_> {
    Place { cwd: "/w", home: None, view: tree }
}

/// The resolved policy, but for documents that lead into a loop of links.
pub fn resolved(doc: &Value, tree: &MemoryTree) -> Option<ResolvedPolicy> {
    resolve(&merge(vec![parsed("p", doc)]), &place(tree)).ok()
}

/// The paths of a tree, and names that could come to be beside and below them.
pub fn probes(tree: &MemoryTree) -> Vec<String> {
    let mut probes = Vec::new();
    for path in tree.paths() {
        let dir = path.trim_end_matches('/');
        for below in ["", "/a", "/b", "/new", "/.x", "/a/b", "/b/c/a"] {
            let probe = format!("{dir}{below}");
            probes.push(if probe.is_empty() { "/".to_owned() } else { probe });
        }
    }
    probes
}

pub fn is_within(path: &str, dir: &str) -> bool {
    path == dir || path.starts_with(&format!("{}/", dir.trim_end_matches('/')))
}
