//! Laws of the policy engine, on random policies, trees and paths.

use globset::GlobBuilder;
use landstrip::policy::glob::expand;
use landstrip::policy::{
    Access, Decider, Document, Effect, Format, FsView, Glob, Kind, MemoryTree, Pattern, Place,
    Policy, Reason, ResolvedPolicy, Verdict, merge, parse, resolve, resolve_executable, tighten,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const BOTH: [Access; 2] = [Access::Read, Access::Write];

/// So many random cases a law, or as many as PROPTEST_CASES says. No file is written on failure:
/// the smallest failing case is in the message, and belongs in a unit test.
fn cases(count: u32) -> ProptestConfig {
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

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", ".x"]).prop_map(str::to_owned)
}

/// A path below `/w`, or another absolute one.
fn path() -> impl Strategy<Value = String> {
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

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => path(),
        1 => prop::collection::vec(name(), 1..3).prop_map(|names| names.join("/")),
        1 => Just(".".to_owned()),
    ]
}

fn glob() -> impl Strategy<Value = String> {
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

fn entries(globs: u32) -> impl Strategy<Value = Vec<Value>> {
    let entry = prop_oneof![
        4 => literal().prop_map(|text| json!(text)),
        globs => glob().prop_map(|text| json!(text)),
        1 => path().prop_map(|text| json!({ "literal": text })),
    ];
    prop::collection::vec(entry, 0..4)
}

/// A policy document about `filesystem`; `globs` is how often entries are globs.
fn filesystem(globs: u32) -> impl Strategy<Value = Value> {
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
fn document() -> impl Strategy<Value = Value> {
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
            set("limits", "pids", numbers[1].map(Value::from));
            set("limits", "cpu", numbers[2].map(Value::from));
            set("ripgrep", "command", numbers[3].map(Value::from));
            doc
        },
    )
}

/// A tree of directories, files and symbolic links.
fn tree() -> impl Strategy<Value = MemoryTree> {
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

fn parsed(file: &str, doc: &Value) -> Document {
    parse(file, doc.to_string().as_bytes(), Format::Json).expect("generated documents are valid")
}

fn place(tree: &MemoryTree) -> Place<'_> {
    Place {
        cwd: "/w",
        home: None,
        view: tree,
    }
}

/// The resolved policy, but for documents that lead into a loop of links.
fn resolved(doc: &Value, tree: &MemoryTree) -> Option<ResolvedPolicy> {
    resolve(&merge(vec![parsed("p", doc)]), &place(tree)).ok()
}

/// The paths of a tree, and names that could come to be beside and below them.
fn probes(tree: &MemoryTree) -> Vec<String> {
    let mut probes = Vec::new();
    for path in tree.paths() {
        let dir = path.trim_end_matches('/');
        for below in ["", "/a", "/b", "/new", "/.x", "/a/b", "/b/c/a"] {
            let probe = format!("{dir}{below}");
            probes.push(if probe.is_empty() {
                "/".to_owned()
            } else {
                probe
            });
        }
    }
    probes
}

fn is_within(path: &str, dir: &str) -> bool {
    path == dir || path.starts_with(&format!("{}/", dir.trim_end_matches('/')))
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn merging_is_associative(a in document(), b in document(), c in document()) {
        let (a, b, c) = (parsed("a", &a), parsed("b", &b), parsed("c", &c));
        let all = merge(vec![a.clone(), b.clone(), c.clone()]);
        let left = merge(vec![merge(vec![a.clone(), b.clone()]), c.clone()]);
        let right = merge(vec![a, merge(vec![b, c])]);
        prop_assert_eq!(&all, &left);
        prop_assert_eq!(&all, &right);
    }

    #[test]
    fn merging_a_document_again_changes_nothing(a in document()) {
        let a = parsed("a", &a);
        prop_assert_eq!(merge(vec![a.clone(), a.clone()]), merge(vec![a]));
    }

    #[test]
    fn no_later_document_takes_back_a_denial(a in document(), b in document()) {
        let lists = |policy: &Policy| {
            let fs = &policy.filesystem;
            let lists = [&fs.deny_write, &fs.deny_write_always, &fs.deny_read, &fs.deny_read_always];
            lists.map(|list| list.iter().map(|entry| entry.value.clone()).collect::<Vec<_>>())
        };
        let (a, b) = (parsed("a", &a), parsed("b", &b));
        let merged = merge(vec![a.clone(), b]);
        for (before, after) in lists(&a).iter().zip(lists(&merged)) {
            prop_assert!(before.iter().all(|entry| after.contains(entry)));
        }
    }

    #[test]
    fn a_kernel_grant_never_opens_what_is_denied(
        doc in filesystem(1), tree in tree(), budget in 0usize..200,
    ) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let decider = Decider::new(&policy);
        for access in BOTH {
            let mut left = budget;
            let granted = decider.carve(&tree, access, &mut left);
            prop_assert!(left <= budget);
            for (i, top) in granted.iter().enumerate() {
                prop_assert!(!matches!(tree.kind(top), Kind::Absent | Kind::Symlink(_)), "{top}");
                for other in &granted[i + 1..] {
                    prop_assert!(!is_within(top, other) && !is_within(other, top));
                }
            }
            for probe in probes(&tree) {
                let by_kernel = granted.iter().any(|top| is_within(&probe, top));
                let verdict = decider.decide(access, probe.as_bytes());
                prop_assert!(!by_kernel || verdict.is_allowed(), "{access:?} {probe} {verdict:?}");
            }
        }
    }

    #[test]
    fn without_globs_the_kernel_is_granted_all_it_can_be(doc in filesystem(0), tree in tree()) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let decider = Decider::new(&policy);
        for access in BOTH {
            let granted = decider.carve(&tree, access, &mut 10_000);
            for path in tree.paths().filter(|path| !matches!(tree.kind(path), Kind::Symlink(_))) {
                let denied_below = policy.rules.iter().any(|rule| {
                    rule.access == access && rule.effect == Effect::Deny && match &rule.pattern {
                        Pattern::Subtree(deny) | Pattern::Name(deny) => {
                            deny != path && is_within(deny, path)
                        }
                        Pattern::Glob(_) => true,
                    }
                });
                let whole = decider.decide(access, path.as_bytes()).is_allowed() && !denied_below;
                let by_kernel = granted.iter().any(|top| is_within(path, top));
                prop_assert_eq!(by_kernel, whole, "{:?} {} of {:?}", access, path, granted);
            }
        }
    }

    #[test]
    fn a_directory_that_may_move_keeps_its_verdicts(
        doc in filesystem(2), from in path(), to in path(),
        below in prop::collection::vec(prop::collection::vec(name(), 0..4), 1..20),
    ) {
        let tree = MemoryTree::new();
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let decider = Decider::new(&policy);
        if decider.directory_move(from.as_bytes(), to.as_bytes()).is_some() {
            return Ok(());
        }
        for names in below {
            let at = |dir: &str| match names.len() {
                0 => dir.to_owned(),
                _ => format!("{}/{}", dir.trim_end_matches('/'), names.join("/")),
            };
            for access in BOTH {
                let before = decider.decide(access, at(&from).as_bytes());
                let after = decider.decide(access, at(&to).as_bytes());
                prop_assert_eq!(before.is_allowed(), after.is_allowed(), "{:?}", names);
            }
        }
    }

    #[test]
    fn a_tightened_policy_allows_no_more_than_either(
        base in filesystem(1), exe in filesystem(1), tree in tree(),
    ) {
        let Some(base) = resolved(&base, &tree) else { return Ok(()) };
        let exe = merge(vec![parsed("exe", &exe)]);
        let Ok(exe) = resolve_executable(&exe, &place(&tree), &base) else { return Ok(()) };
        let Ok(both) = tighten(base.clone(), exe.clone()) else { return Ok(()) };
        let says_writable = exe.rules.iter().any(|rule| {
            rule.effect == Effect::Allow && rule.access == Access::Write && !rule.origin.is_built_in()
        });
        let [base, exe, both] = [base, exe, both].map(|policy| Decider::new(&policy));
        for probe in probes(&tree) {
            for access in BOTH {
                if !both.decide(access, probe.as_bytes()).is_allowed() {
                    continue;
                }
                let run = base.decide(access, probe.as_bytes());
                prop_assert!(run.is_allowed(), "{access:?} {probe}: the run says {run:?}");
                let own = exe.decide(access, probe.as_bytes());
                let silent = matches!(own, Verdict::Deny { reason: Reason::AllowMiss, .. });
                prop_assert!(
                    own.is_allowed() || silent && !says_writable,
                    "{access:?} {probe}: the executable says {own:?}"
                );
            }
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Json, Format::Yaml] {
            let _ = parse("p", &bytes, format);
        }
    }

    #[test]
    fn no_damaged_document_makes_the_parser_panic(
        doc in document(), at in any::<prop::sample::Index>(), with in "[\\PC\n\t{}\\[\\]:,\"'&*!|>~-]{0,3}",
    ) {
        let mut text = doc.to_string();
        let mut at = at.index(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.insert_str(at, &with);
        for format in [Format::Json, Format::Yaml] {
            if let Ok(doc) = parse("p", text.as_bytes(), format) {
                let _ = resolve(&merge(vec![doc]), &place(&MemoryTree::new()));
            }
        }
    }
}

// Globs against two other matchers: a naive one, and globset.

fn pattern() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b",
        "*",
        "?",
        "[ab]",
        "[!a]",
        "[a-b]",
        ".",
        "é",
        "ab",
        "{a,b*}",
        "{a/b,c}",
        "x{a,b{c,d}}",
    ]);
    let component = prop_oneof![
        1 => Just("**".to_owned()),
        4 => prop::collection::vec(piece, 1..4)
            .prop_map(|pieces| pieces.concat())
            // Two stars in a row mean something else to globset.
            .prop_map(|text| text.replace("**", "*"))
            .prop_filter("dots are no names", |text| !matches!(text.as_str(), "." | "..")),
    ];
    prop::collection::vec(component, 1..5)
        .prop_map(|components| components.join("/"))
        .prop_filter("too many braces", |pattern| expand(pattern).is_ok())
}

fn subject() -> impl Strategy<Value = String> {
    let name = "[ab.cdé]{1,4}".prop_filter("dots are no names", |text| text != "." && text != "..");
    prop::collection::vec(name, 1..5).prop_map(|names| names.join("/"))
}

fn ours(pattern: &str, path: &str) -> bool {
    let path = format!("/top/{path}");
    expand(pattern).unwrap().iter().any(|pattern| {
        let glob = Glob::new("/top", pattern).unwrap();
        glob.matches(path.as_bytes())
    })
}

/// Whether `test` holds for the path or one of its ancestors.
fn any_prefix(path: &str, test: impl Fn(&str) -> bool) -> bool {
    let ends = path
        .match_indices('/')
        .map(|(at, _)| at)
        .chain([path.len()]);
    ends.into_iter().any(|end| test(&path[..end]))
}

fn naive_path(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**"], rest) => !rest.is_empty(),
        (["**", after @ ..], rest) => (0..=rest.len()).any(|skip| naive_path(after, &rest[skip..])),
        ([first, after @ ..], [name, rest @ ..]) => {
            let (first, name): (Vec<char>, Vec<char>) =
                (first.chars().collect(), name.chars().collect());
            naive_name(&first, &name) && naive_path(after, rest)
        }
        _ => false,
    }
}

fn naive_name(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        (['*', after @ ..], rest) => (0..=rest.len()).any(|skip| naive_name(after, &rest[skip..])),
        (['?', after @ ..], [_, rest @ ..]) => naive_name(after, rest),
        (['[', inside @ ..], [c, rest @ ..]) => {
            let end = inside.iter().position(|c| *c == ']').unwrap();
            let (negated, set) = match &inside[..end] {
                ['!', set @ ..] => (true, set),
                set => (false, set),
            };
            let within = match set {
                [low, '-', high] => (low..=high).contains(&c),
                set => set.contains(c),
            };
            within != negated && naive_name(&inside[end + 1..], rest)
        }
        ([p, after @ ..], [c, rest @ ..]) => p == c && naive_name(after, rest),
        _ => false,
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn globs_match_like_a_naive_matcher(pattern in pattern(), path in subject()) {
        let naive = expand(&pattern).unwrap().iter().any(|pattern| {
            let parts: Vec<&str> = pattern.split('/').collect();
            any_prefix(&path, |path| naive_path(&parts, &path.split('/').collect::<Vec<_>>()))
        });
        prop_assert_eq!(ours(&pattern, &path), naive);
    }

    #[test]
    fn globs_match_like_globset(pattern in pattern(), path in subject()) {
        // To globset `?` and classes are one byte, to us one character.
        let (pattern, path) = (pattern.replace('é', "e"), path.replace('é', "e"));
        let oracle = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .build()
            .unwrap()
            .compile_matcher();
        let expected = any_prefix(&path, |path| oracle.is_match(path));
        prop_assert_eq!(ours(&pattern, &path), expected);
    }
}

#[test]
fn large_policies_are_answered_or_refused() {
    let tree = MemoryTree::new();
    let list = |entry: &dyn Fn(usize) -> String, count: usize| {
        let entries: Vec<String> = (0..count).map(entry).collect();
        json!({ "filesystem": { "allowWrite": ["."], "denyWrite": entries } })
    };
    let many = resolved(&list(&|i| format!("/d/{}/{i}", i % 300), 90_000), &tree).unwrap();
    let decider = Decider::new(&many);
    assert!(!decider.decide(Access::Write, b"/d/7/7/x").is_allowed());
    assert!(decider.decide(Access::Write, b"/w/x").is_allowed());

    let globs = resolved(&list(&|i| format!("**/n{i}*"), 1_000), &tree).unwrap();
    assert!(
        !Decider::new(&globs)
            .decide(Access::Write, b"/w/a/n999x")
            .is_allowed()
    );

    let text = list(
        &|i| format!("/long/enough/to/fill/the/document/{i}"),
        300_000,
    )
    .to_string();
    let error = parse("p", text.as_bytes(), Format::Json).unwrap_err();
    assert!(error.message.contains("4 MiB"), "{error}");
    let text = list(&|_| "x".to_owned(), 300_000).to_string();
    let error = parse("p", text.as_bytes(), Format::Json).unwrap_err();
    assert!(error.message.contains("values"), "{error}");
}
