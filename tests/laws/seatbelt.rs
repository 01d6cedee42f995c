//! A sandbox profile means what the policy means: read back by a reader of this file's own, and held
//! against `decide()`.

use std::cell::RefCell;
use std::collections::HashMap;

use landstrip::lower::seatbelt::{Run, profile};
use landstrip::policy::{Access, Decider, Effect, MemoryTree, Pattern, ResolvedPolicy};
use proptest::prelude::*;
use regex::bytes::Regex;
use serde_json::json;

use super::arbitrary::{BOTH, cases, filesystem, is_within, parsed, place, probes, resolved, tree};

/// A list of Scheme's notation.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Word(String),
    Text(String),
    List(Vec<Item>),
}

impl Item {
    fn list(&self) -> &[Item] {
        match self {
            Item::List(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    fn word(&self) -> &str {
        match self {
            Item::Word(word) => word,
            other => panic!("not a word: {other:?}"),
        }
    }

    fn text(&self) -> &str {
        match self {
            Item::Text(text) => text,
            other => panic!("not a string: {other:?}"),
        }
    }
}

fn read(text: &str) -> Vec<Item> {
    let mut open = vec![Vec::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '(' => open.push(Vec::new()),
            ')' => {
                let list = open.pop().unwrap();
                open.last_mut().expect("as many opened as closed").push(Item::List(list));
            }
            '"' => {
                let mut string = String::new();
                loop {
                    match chars.next().expect("the string is closed") {
                        '"' => break,
                        '\\' => string.push(chars.next().unwrap()),
                        c => string.push(c),
                    }
                }
                open.last_mut().unwrap().push(Item::Text(string));
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()\"".contains(*c)) {
                    word.push(c);
                }
                open.last_mut().unwrap().push(Item::Word(word));
            }
        }
    }
    assert_eq!(open.len(), 1, "as many opened as closed");
    open.remove(0)
}

thread_local! {
    /// The expressions of one profile are asked about many paths.
    static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
}

/// A file that something is done to.
struct File<'a> {
    path: &'a str,
    kind: &'a str,
}

/// Whether the file matches; what is no filter of files does not.
fn matches(filter: &Item, file: &File) -> bool {
    let [head, rest @ ..] = filter.list() else { panic!("an empty filter") };
    match head.word() {
        "require-all" => rest.iter().all(|filter| matches(filter, file)),
        "require-any" => rest.iter().any(|filter| matches(filter, file)),
        "require-not" => !matches(&rest[0], file),
        "subpath" => is_within(file.path, rest[0].text()),
        "literal" => file.path == rest[0].text(),
        "vnode-type" => rest[0].word() == file.kind,
        "regex" => {
            let pattern = format!("(?s-u){}", rest[0].text());
            COMPILED.with_borrow_mut(|compiled| {
                let regex = compiled
                    .entry(pattern)
                    .or_insert_with_key(|pattern| Regex::new(pattern).expect(pattern));
                regex.is_match(file.path.as_bytes())
            })
        }
        _ => false,
    }
}

/// What the profile says of an operation: the last rule that matches counts.
fn allows(profile: &[Item], operation: &str, file: &File) -> bool {
    let speaks = |item: &Item| match item {
        Item::Word(word) => {
            word == operation
                || word == "default"
                || word.strip_suffix('*').is_some_and(|start| operation.starts_with(start))
        }
        _ => false,
    };
    let last = profile.iter().rev().map(Item::list).find(|rule| {
        let filters: Vec<&Item> = rule
            .iter()
            .filter(|item| matches!(item, Item::List(_)) && item.list()[0].word() != "with")
            .collect();
        rule.iter().any(speaks)
            && (filters.is_empty() || filters.iter().any(|filter| matches(filter, file)))
    });
    last.expect("there is a default")[0].word() == "allow"
}

fn operation(access: Access) -> &'static str {
    match access {
        Access::Read => "file-read-data",
        Access::Write => "file-write-data",
    }
}

fn lowered(policy: &ResolvedPolicy) -> Vec<Item> {
    read(&profile(policy, Run::default()))
}

fn grants_by_glob(policy: &ResolvedPolicy) -> bool {
    let glob = |rule: &landstrip::policy::Rule| matches!(rule.pattern, Pattern::Glob(_));
    policy.rules.iter().any(|rule| rule.effect == Effect::Allow && glob(rule))
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_profile_allows_what_the_policy_allows(doc in filesystem(2), tree in tree()) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let (profile, decider) = (lowered(&policy), Decider::new(&policy));
        // Denials by a glob leave /proc out, which is not there on macOS.
        for path in probes(&tree).iter().filter(|path| !is_within(path, "/proc")) {
            for access in BOTH {
                let file = File { path, kind: "REGULAR-FILE" };
                let allowed = allows(&profile, operation(access), &file);
                let expected = decider.decide(access, path.as_bytes()).is_allowed();
                prop_assert!(!allowed || expected, "{:?} {} is open", access, path);
                prop_assert!(
                    allowed || !expected || grants_by_glob(&policy), "{:?} {} is closed", access, path
                );
            }
        }
    }

    #[test]
    fn nothing_that_a_denial_hangs_on_can_be_moved(doc in filesystem(2), tree in tree()) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let (profile, decider) = (lowered(&policy), Decider::new(&policy));
        for path in probes(&tree).iter().filter(|path| !is_within(path, "/proc") && *path != "/") {
            // With a name that no literal and no class of these globs matches.
            let elsewhere = format!("{}/zzz", &path[..path.rfind('/').unwrap()]);
            let directory = File { path, kind: "DIRECTORY" };
            if !allows(&profile, "file-write-unlink", &directory) {
                continue;
            }
            for below in ["", "/a", "/b/c", "/.x"] {
                let [from, to] = [path, &elsewhere].map(|top| format!("{top}{below}"));
                for access in BOTH {
                    let denied = |at: &str| !decider.decide(access, at.as_bytes()).is_allowed();
                    let closed = |at: &str| {
                        !allows(&profile, operation(access), &File { path: at, kind: "REGULAR-FILE" })
                    };
                    prop_assert!(
                        !denied(&from) || closed(&to), "{:?} {} moved to {}", access, from, to
                    );
                }
            }
        }
    }

    #[test]
    fn names_stand_for_themselves(name in "[^/\0]{1,12}", other in "[^/\0]{1,12}", tag in "[a-z]{1,4}") {
        let literal = json!({ "literal": format!("/w/{name}") });
        let doc = json!({
            "filesystem": { "allowWrite": ["/w", "/v"], "denyWrite": [literal] },
            "macos": { "logTag": tag },
        });
        let Ok(policy) = landstrip::policy::resolve(
            &landstrip::policy::merge(vec![parsed("p", &doc)]), &place(&MemoryTree::new()),
        ) else { return Ok(()) };
        let (profile, decider) = (lowered(&policy), Decider::new(&policy));
        for path in [format!("/w/{name}"), format!("/w/{other}"), format!("/w/x{name}"), format!("/v/{name}")] {
            let allowed = allows(&profile, "file-write-data", &File { path: &path, kind: "REGULAR-FILE" });
            let expected = decider.decide(Access::Write, path.as_bytes()).is_allowed();
            prop_assert!(!allowed || expected, "{path:?}");
            // Only the same name in other letters is closed beside it.
            let plain = |text: &str| text.is_ascii() && !text.eq_ignore_ascii_case(&name);
            prop_assert!(allowed || !expected || !name.is_ascii() || !plain(&path[3..]), "{path:?}");
        }
    }
}

#[test]
fn other_spellings_of_a_denied_name_are_denied() {
    let doc = json!({ "filesystem": {
        "allowWrite": ["/w", { "glob": "/v/?[!b]" }],
        "denyWrite": [".git/hooks", "/w/caf\u{e9}", "**/*.Key", "**/[!a]x", "**/q\u{e9}?"],
    }});
    let policy = resolved(&doc, &MemoryTree::new()).unwrap();
    let profile = lowered(&policy);
    for (path, allowed) in [
        ("/w/.GIT/Hooks/pre-commit", false),
        ("/w/.git/hook", true),
        ("/w/cafe\u{301}", false),
        ("/w/CAF\u{c9}", false),
        ("/w/a.KEY", false),
        ("/w/a.ke", true),
        ("/w/AX", false),
        ("/w/bx/c", false),
        ("/w/qe\u{301}z", false),
        ("/w/qez", true),
        ("/v/zz", true),
        ("/v/zb", false),
        ("/v/z\u{e9}", false),
    ] {
        let file = File { path, kind: "REGULAR-FILE" };
        assert_eq!(allows(&profile, "file-write-data", &file), allowed, "{path}");
    }
}
