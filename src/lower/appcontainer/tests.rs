//! Golden plans: a change of what a policy means shows in them. To write them anew:
//! `LANDSTRIP_BLESS=1 cargo test --lib appcontainer`, and read the difference.

use std::fs;
use std::path::Path;

use super::{Change, journal, path, plan};
use crate::plan::with_temporary;
use crate::policy::{Format, MemoryTree, Place, merge, parse, resolve};

fn tree() -> MemoryTree {
    let mut tree = MemoryTree::new();
    tree.dir("/C:/Users/u/.ssh")
        .file("/C:/Users/u/.ssh/known_hosts", "")
        .dir("/C:/Users/u/Temp/run");
    tree.dir("/C:/w/.git/hooks").dir("/C:/w/src").file("/C:/w/.env", "").dir("/D:/tools");
    // As the host's view tells of other spellings.
    tree.link("/C:/W", "./w").link("/C:/w/SRC", "./src");
    tree
}

#[test]
fn plans_are_as_they_were() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/appcontainer");
    let mut seen = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(name) = name.strip_suffix(".policy.json") else { continue };
        let mut document = parse("p", &fs::read(&path).unwrap(), Format::Json).unwrap();
        path::rewrite(&mut document).unwrap();
        let tree = tree();
        let place = Place { cwd: "/C:/w", home: Some("/C:/Users/u"), view: &tree };
        let policy = resolve(&merge(vec![document]), &place).unwrap();
        let plan = plan(&with_temporary(policy, "/C:/Users/u/Temp/run"), &tree, 4);
        let text = serde_json::to_string_pretty(&plan).unwrap() + "\n";
        let golden = directory.join(format!("{name}.plan.json"));
        if std::env::var_os("LANDSTRIP_BLESS").is_some() {
            fs::write(&golden, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&golden).unwrap(), text, "{}", golden.display());
        seen += 1;
    }
    assert!(seen > 5, "the fixtures are there");
}

#[test]
fn a_journal_says_what_was_announced_whole() {
    let header = journal::Header::new("landstrip.1", true, "/C:/t");
    let inherited = vec![super::Ace::allow(
        0x1f01ff,
        super::dacl::INHERITED,
        &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0],
    )];
    let steps = [
        journal::Step { path: "/C:/w".into(), block: false, change: Change::default() },
        journal::Step {
            path: "/C:/w/é\"".into(),
            block: true,
            change: Change { blocked: true, inherited },
        },
    ];
    let text = header.line() + &steps[0].line() + &steps[1].line();
    let whole = journal::parse(&text).unwrap().unwrap();
    assert_eq!((&whole.header, &whole.steps[..]), (&header, &steps[..]));
    // Cut off anywhere, it says less, and nothing else.
    for (end, _) in text.char_indices() {
        match journal::parse(&text[..end]) {
            Ok(None) => assert!(end < header.line().len()),
            Ok(Some(cut)) => assert!(steps.starts_with(&cut.steps) && cut.header == header),
            Err(line) => panic!("line {line} of a journal cut at {end}"),
        }
    }
    for (text, line) in [
        ("{}\n", 1),
        (&*text.replace("\"version\":1", "\"version\":2"), 1),
        (&*text.replace("blocked", "x"), 2),
    ] {
        assert_eq!(journal::parse(text), Err(line), "{text}");
    }
}

#[test]
fn what_another_run_relies_on_is_left_to_later() {
    let change = Change { blocked: true, inherited: Vec::new() };
    let step = journal::Step { path: "/C:/w/x".into(), block: true, change: change.clone() };
    let due = |held: &[&str]| {
        let held = held.iter().map(|path| (*path).to_owned()).collect();
        let (change, whole) = journal::Journal::due(&step, &held);
        (change.into_owned(), whole)
    };
    assert_eq!(due(&["/C:/w"]), (change, true));
    assert_eq!(due(&["/C:/w/x"]), (Change::default(), false));
    let other = journal::Step { path: "/C:/w".into(), block: false, change: Change::default() };
    let header = journal::Header::new("landstrip.1", false, "/C:/t");
    let held = journal::Journal { header, steps: vec![other, step.clone()] }.held();
    assert_eq!(held.collect::<Vec<_>>(), ["/C:/w/x"]);
}
