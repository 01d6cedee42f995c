//! Laws of the policy engine, on random policies, trees and paths.

mod addresses;
mod appcontainer;
mod arbitrary;
mod globs;
mod hosts;
mod learned;
mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp;

use arbitrary::{
    BOTH, cases, document, filesystem, glob, is_within, name, parsed, path, place, probes,
    resolved, tree,
};
use landstrip::policy::{
    Access, Decider, Effect, Format, FsView, Kind, MemoryTree, Pattern, Policy, Reason,
    ResolvedPolicy, Verdict, merge, parse, resolve, resolve_executable, tighten,
};
use proptest::prelude::*;
use serde_json::json;

/// The meaning of rules, spelled out: the deepest of the shallowest matches wins.
fn naive_decision(policy: &ResolvedPolicy, access: Access, path: &str) -> bool {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
    let mut prefixes = vec!["/"];
    prefixes.extend(ends.chain([path.len()]).map(|end| &path[..end]));
    prefixes.dedup();
    let in_proc = is_within(path, "/proc");
    let mut best = None;
    for rule in policy.rules.iter().filter(|rule| rule.access == access) {
        let deny = rule.effect == Effect::Deny;
        let matched = prefixes.iter().position(|prefix| match &rule.pattern {
            Pattern::Subtree(top) => top == prefix,
            Pattern::Name(name) => name == prefix && *prefix == path,
            Pattern::Glob(glob) => !(deny && in_proc) && glob.matches(prefix.as_bytes()),
        });
        let Some(depth) = matched else { continue };
        if rule.always {
            return false;
        }
        let literal = !matches!(rule.pattern, Pattern::Glob(_));
        let preferred = deny == (access == Access::Write);
        best = best.max(Some((depth, literal, preferred, !deny)));
    }
    best.map_or(access == Access::Read, |(.., allowed)| allowed)
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
            let granted = decider.carve(&tree, access, &mut left).granted;
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
            let granted = decider.carve(&tree, access, &mut 10_000).granted;
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
    fn deciding_is_what_the_rules_say(doc in filesystem(2), tree in tree()) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let decider = Decider::new(&policy);
        for probe in probes(&tree) {
            for access in BOTH {
                let verdict = decider.decide(access, probe.as_bytes());
                let expected = naive_decision(&policy, access, &probe);
                prop_assert_eq!(verdict.is_allowed(), expected, "{:?} {} {:?}", access, probe, verdict);
            }
        }
    }

    #[test]
    fn where_a_link_may_be_made_the_name_means_nothing(
        globs in prop::collection::vec(glob(), 1..4), names in prop::collection::vec(name(), 1..4),
        below in prop::collection::vec(prop::collection::vec(name(), 0..3), 1..20),
    ) {
        let doc = json!({ "filesystem": { "allowWrite": ["/"], "denyWrite": globs } });
        let policy = resolved(&doc, &MemoryTree::new()).unwrap();
        let decider = Decider::new(&policy);
        let dir = format!("/w/{}", names[1..].join("/"));
        let dir = dir.trim_end_matches('/');
        let allowed = |path: &str| decider.decide(Access::Write, path.as_bytes()).is_allowed();
        let link = format!("{dir}/{}", names[0]);
        if decider.link_name(link.as_bytes()).is_some() || !allowed(&link) {
            return Ok(());
        }
        // A name that only `*` and `**` match.
        let neutral = format!("{dir}/zzz");
        for names in below {
            let [under, beside] = [&link, &neutral].map(|top| format!("{top}/{}", names.join("/")));
            let [under, beside] = [under, beside].map(|path| allowed(path.trim_end_matches('/')));
            prop_assert_eq!(under, beside, "{} {:?}", link, names);
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
    assert!(!Decider::new(&globs).decide(Access::Write, b"/w/a/n999x").is_allowed());

    let text = list(&|i| format!("/long/enough/to/fill/the/document/{i}"), 300_000).to_string();
    let error = parse("p", text.as_bytes(), Format::Json).unwrap_err();
    assert!(error.message.contains("4 MiB"), "{error}");
    let text = list(&|_| "x".to_owned(), 300_000).to_string();
    let error = parse("p", text.as_bytes(), Format::Json).unwrap_err();
    assert!(error.message.contains("values"), "{error}");
}

#[test]
fn the_engine_is_pure() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // The one test module that reads its fixtures.
        if path.ends_with("fixtures.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for word in [
                "unsafe",
                "target_os",
                "std::fs",
                "std::env",
                "std::process",
                "std::time",
                "std::os",
                "std::io",
                "libc",
                "rustix",
                "nix::",
                "crate::",
            ] {
                assert!(!line.contains(word), "{}: {line}", path.display());
            }
        }
        seen += 1;
    }
    assert!(seen > 15, "the sources are there");
}
