//! Golden profiles: a change of what a policy means shows in their text. To write them anew:
//! `LANDSTRIP_BLESS=1 cargo test --lib seatbelt`, and read the difference.

use std::fs;
use std::path::Path;

use super::{Run, profile};
use crate::policy::{Format, MemoryTree, Place, merge, parse, resolve};

#[test]
fn profiles_are_as_they_were() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/seatbelt");
    let mut seen = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let document = parse("p", &fs::read(&path).unwrap(), Format::Json).unwrap();
        let mut tree = MemoryTree::new();
        tree.dir("/w/.git").dir("/w/d").dir("/Users/u/.ssh");
        let place = Place { cwd: "/w", home: Some("/Users/u"), view: &tree };
        let policy = resolve(&merge(vec![document]), &place).unwrap();
        let run =
            Run { temporary: Some("/private/tmp/run"), terminal: Some("/dev/ttys001"), tag: None };
        let text = profile(&policy, run);
        let golden = path.with_extension("sb");
        if std::env::var_os("LANDSTRIP_BLESS").is_some() {
            fs::write(&golden, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&golden).unwrap(), text, "{}", golden.display());
        seen += 1;
    }
    assert!(seen > 3, "the fixtures are there");
}
