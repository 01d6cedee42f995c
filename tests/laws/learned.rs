//! What is learned allows what was done, grants nothing that is never to be granted, is short, and
//! does not depend on the order of things nor on being learned twice.

use super::arbitrary::cases;
use landstrip::learn::{
    Change, Learned, MOST_ENTRIES, Notes, OPEN, Places, Why, print::Frame, print::document,
};
use landstrip::policy::{
    Access, Daemons, Decider, Format, MemoryTree, Place, ResolvedPolicy, merge, parse, resolve,
    shipped,
};
use proptest::prelude::*;

const CWD: &str = "/home/u/work/w";
const HOME: &str = "/home/u";

fn resolved(documents: &[(&str, &str, Format)]) -> ResolvedPolicy {
    let parsed = documents.iter().map(|(name, text, format)| {
        parse(name, text.as_bytes(), *format).unwrap_or_else(|error| panic!("{error}\n{text}"))
    });
    let tree = MemoryTree::new();
    let place = Place { cwd: CWD, home: Some(HOME), view: &tree };
    resolve(&merge(parsed.collect()), &place).unwrap()
}

fn guard() -> ResolvedPolicy {
    let agent = shipped::find("@agent").unwrap().text;
    resolved(&[("@agent", agent, Format::Json), ("open", OPEN, Format::Json)])
}

fn learned(done: &[(String, Change)], base: Option<&Decider>, tree: &MemoryTree) -> Learned {
    let mut notes = Notes::new(Places::new(CWD, HOME, Decider::new(&guard())), Daemons::default());
    for (path, change) in done {
        let known =
            base.is_some_and(|base| base.decide(Access::Write, path.as_bytes()).is_allowed());
        if !known {
            notes.wrote(path.as_bytes(), *change, "tool");
        }
    }
    notes.finish(tree)
}

fn text(learned: &Learned, format: Format) -> String {
    let frame = Frame { command: "x\ny", alone: true };
    document(learned, &frame, format)
}

/// Absolute paths in the places that differ.
fn path() -> impl Strategy<Value = String> {
    let top = prop::sample::select(vec![
        "",
        "/etc",
        "/tmp",
        "/var/tmp",
        "/mnt/data",
        "/srv",
        "/dev",
        CWD,
        "/home/u/work",
        HOME,
        "/home/u/.cargo",
        "/home/u/.cargo/registry",
        "/home/u/.cache",
        "/home/u/.config",
        "/home/u/.local/share",
        "/home/u/.ssh",
        "/home/v",
        "/run/user/7",
        "/home/u/go",
    ]);
    let name = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "d",
        "tool",
        ".tool",
        ".git",
        "hooks",
        "config",
        "modules",
        "worktrees",
        ".bashrc",
        ".envrc",
        "bin",
        "t.1",
        "t.22",
        "x-9",
        "*",
        "[a]",
        "$HOME",
        "~",
        "é",
        "a\nb",
        "a b",
        "#",
        "{a,b}",
        "\u{7f}",
    ]);
    (top, prop::collection::vec(name, 1..5))
        .prop_map(|(top, names)| format!("{top}/{}", names.join("/")))
}

fn change() -> impl Strategy<Value = Change> {
    use Change::{Directory, File, MadeDirectory, MadeFile};
    prop::sample::select(vec![File, Directory, MadeFile, MadeDirectory])
}

/// What was done, and what of it is left at the end.
fn done() -> impl Strategy<Value = (Vec<(String, Change)>, MemoryTree)> {
    let one = (path(), change(), any::<bool>());
    prop::collection::vec(one, 0..40).prop_map(|all| {
        let mut tree = MemoryTree::new();
        tree.dir("/tmp").dir("/var/tmp");
        let mut done = Vec::new();
        for (path, change, left) in all {
            if left {
                tree.dir(&path);
            }
            done.push((path, change));
        }
        (done, tree)
    })
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn what_was_done_is_allowed_or_told((done, tree) in done()) {
        let learned = learned(&done, None, &tree);
        for format in [Format::Json, Format::Yaml] {
            let policy = text(&learned, format);
            let decider = Decider::new(&resolved(&[("learned", &policy, format)]));
            let places = Places::new(CWD, HOME, Decider::new(&guard()));
            for (path, _) in &done {
                let told = learned.refused.iter().any(|(name, ..)| *name == places.spell(path));
                let verdict = decider.decide(Access::Write, path.as_bytes());
                prop_assert!(verdict.is_allowed() || told, "{:?} {:?}\n{}", path, verdict, policy);
            }
        }
    }

    #[test]
    fn nothing_is_granted_that_never_is((done, tree) in done(), probe in path()) {
        let policy = text(&learned(&done, None, &tree), Format::Json);
        let decider = Decider::new(&resolved(&[("learned", &policy, Format::Json)]));
        let guard = Decider::new(&guard());
        let paths = done.iter().map(|(path, _)| path.as_str()).chain([
            probe.as_str(), "/", HOME, "/etc", "/home/u/.config", "/home/u/.bashrc",
            "/home/u/.ssh/id", "/home/u/.cargo/bin/x", "/home/u/.cargo/credentials.toml",
            "/home/u/work/w/.git/hooks/x", "/home/u/.config/fish/x", "/usr/bin/x", "/tmp/.git/config",
        ]);
        for path in paths {
            let path = path.as_bytes();
            let allowed = |access| decider.decide(access, path).is_allowed();
            let never = |access| !guard.decide(access, path).is_allowed();
            prop_assert!(!(allowed(Access::Read) && never(Access::Read)), "{:?}", path);
            prop_assert!(!(allowed(Access::Write) && never(Access::Write)), "{:?} {}", path, policy);
        }
        for path in ["/", "/etc", "/etc/x", HOME, "/home/u/.config", "/usr/bin/x", "/home"] {
            let verdict = decider.decide(Access::Write, path.as_bytes());
            prop_assert!(!verdict.is_allowed(), "{} {}", path, policy);
        }
    }

    #[test]
    fn learning_again_learns_nothing_new((done, tree) in done()) {
        let first = learned(&done, None, &tree);
        let policy = text(&first, Format::Json);
        let decider = Decider::new(&resolved(&[("learned", &policy, Format::Json)]));
        let again = learned(&done, Some(&decider), &tree);
        prop_assert!(again.writes.is_empty(), "{:?}\n{}", again.writes, policy);
    }

    #[test]
    fn the_order_does_not_matter((done, tree) in done(), seed in any::<u64>()) {
        let mut other = done.clone();
        let length = other.len() as u64;
        for i in (1..other.len()).rev() {
            other.swap(i, (seed.rotate_left(i as u32) % length.max(1)) as usize % (i + 1));
        }
        let (one, two) = (learned(&done, None, &tree), learned(&other, None, &tree));
        prop_assert_eq!(one, two);
    }
}

#[test]
fn very_many_names_are_few_entries() {
    let tree = MemoryTree::new();
    let name = |n: u32| match n % 5 {
        0 => format!("/mnt/data/{}/{}/f{n}", n % 701, n % 13),
        1 => format!("{HOME}/.cache/tool/{}/{n}", n % 997),
        2 => format!("{CWD}/target/{n}"),
        3 => format!("{HOME}/dotless{n}"),
        _ => format!("/var/lib/thing/{}/{n}.db", n % 99),
    };
    let mut notes = Notes::new(Places::new(CWD, HOME, Decider::new(&guard())), Daemons::default());
    for n in 0..100_000 {
        notes.wrote(name(n).as_bytes(), Change::MadeFile, "tool");
    }
    let learned = notes.finish(&tree);
    let texts: Vec<&str> = learned.writes.iter().map(|(entry, _)| entry.text.as_str()).collect();
    let expected = [".", "/mnt/data", "/var/lib/thing", "~/.cache/tool", "~/dotless[0-9]*"];
    assert_eq!(texts, expected);
    assert!(texts.len() < MOST_ENTRIES);
}

#[test]
fn names_without_pattern_are_told_and_not_listed() {
    let mut notes = Notes::new(Places::new(CWD, HOME, Decider::new(&guard())), Daemons::default());
    // No policy that ships names one of these.
    let letters = |n: u32| {
        format!("{HOME}/{}{}", (b'A' + (n / 26) as u8) as char, (b'a' + (n % 26) as u8) as char)
    };
    for n in 0..600 {
        notes.wrote(letters(n).as_bytes(), Change::MadeFile, "tool");
    }
    let learned = notes.finish(&MemoryTree::new());
    assert_eq!(learned.writes.len(), MOST_ENTRIES);
    let told = learned.refused.iter().filter(|(_, why, _)| *why == Why::TooMany).count();
    assert_eq!(told, 600 - MOST_ENTRIES);
}
