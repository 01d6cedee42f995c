//! The glob matcher against two others: a naive one, and globset.

#[path = "../support/naive.rs"]
mod naive;

use globset::GlobBuilder;
use landstrip::policy::Glob;
use landstrip::policy::glob::expand;
use proptest::prelude::*;

use crate::arbitrary::cases;
use naive::naive_path;

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
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.into_iter().any(|end| test(&path[..end]))
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
