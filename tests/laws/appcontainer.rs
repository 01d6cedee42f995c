//! Entries of access control lists mean what the policy means, and are taken back whole: on a model of a file
//! system whose lists inherit as MS-DTYP, 2.5.3.4 has it.

use std::collections::{BTreeMap, BTreeSet};

use landstrip::lower::appcontainer::journal::{Journal, Step};
use landstrip::lower::appcontainer::{Ace, Change, Dacl, Plan, command, dacl, plan};
use landstrip::policy::{Access, Decider, FsView, Kind, MemoryTree};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::{cases, filesystem, is_within, path, probes, resolved, tree};

/// The run's container, that of another run, the user, and every container.
const CONTAINER: &[u8] = b"\x01\x02\0\0\0\0\0\x0f\x02\0\0\0\x09\0\0\0";
const OTHER: &[u8] = b"\x01\x02\0\0\0\0\0\x0f\x02\0\0\0\x08\0\0\0";
const USER: &[u8] = b"\x01\x01\0\0\0\0\0\x05\x12\0\0\0";
const PACKAGES: &[u8] = b"\x01\x02\0\0\0\0\0\x0f\x02\0\0\0\x01\0\0\0";

// winnt.h: FILE_READ_DATA, FILE_WRITE_DATA, DELETE, FILE_DELETE_CHILD, WRITE_DAC and WRITE_OWNER.
const READ: u32 = 0x1;
const WRITE: u32 = 0x2;
const DELETE: u32 = 0x1_0000;
const NEVER: u32 = 0x40 | 0x4_0000 | 0x8_0000;

/// What is stated at each object, and whether it is protected.
type Lists = BTreeMap<String, (bool, Vec<Ace>)>;

/// The lists of all files of a tree; `odd` ones state something, and some of these are protected.
fn lists(tree: &MemoryTree, odd: &[String]) -> Lists {
    let all = dacl::OBJECT_INHERIT | dacl::CONTAINER_INHERIT;
    let list = |path: &str| {
        let mut aces = Vec::new();
        if path == "/" {
            aces = vec![Ace::allow(0x1f_01ff, all, USER), Ace::allow(READ, all, PACKAGES)];
        }
        if odd.iter().any(|odd| odd == path) {
            aces.push(Ace {
                kind: dacl::DENIED,
                ..Ace::allow(WRITE, 0, b"\x01\x01\0\0\0\0\0\x01\0\0\0\0")
            });
            // The same as what is inherited.
            aces.push(Ace::allow(0x1f_01ff, all, USER));
        }
        (path.len() % 3 == 2 && !aces.is_empty(), aces)
    };
    tree.paths().map(|path| (path.to_owned(), list(path))).collect()
}

/// The list that an object has.
fn list(lists: &Lists, path: &str) -> Dacl {
    let (protected, mut aces) = lists.get(path).cloned().unwrap_or_default();
    if !protected && path != "/" {
        let above = &path[..path.rfind('/').unwrap().max(1)];
        let directory =
            lists.range(format!("{path}/")..).next().is_some_and(|(name, _)| is_within(name, path));
        let handed = list(lists, above).aces.into_iter().filter_map(|ace| {
            let (files, directories) =
                (ace.flags & dacl::OBJECT_INHERIT != 0, ace.flags & dacl::CONTAINER_INHERIT != 0);
            let flags = match (directory, directories, files) {
                (true, true, _) => ace.flags & !dacl::INHERIT_ONLY,
                (true, false, true) => ace.flags | dacl::INHERIT_ONLY,
                (false, _, true) => 0,
                _ => return None,
            };
            Some(Ace { flags: flags | dacl::INHERITED, ..ace })
        });
        aces.extend(handed);
    }
    Dacl { protected, revision: 2, aces }
}

fn set(lists: &mut Lists, path: &str, list: Dacl) {
    let stated = list.aces.into_iter().filter(|ace| ace.flags & dacl::INHERITED == 0).collect();
    lists.insert(path.to_owned(), (list.protected, stated));
}

/// As a launch does it: what is below first.
fn apply(lists: &mut Lists, plan: &Plan, sid: &[u8]) -> Vec<Step> {
    let mut done = Vec::new();
    for entry in plan.entries.iter().rev() {
        let before = list(lists, &entry.path);
        let change = before.change(entry.block);
        set(lists, &entry.path, before.granted(&change, &entry.aces(sid)));
        done.push(Step { path: entry.path.clone(), block: entry.block, change });
    }
    done
}

/// Takes back what is due while others rely on what they hold, and returns the rest.
fn take_back(lists: &mut Lists, done: Vec<Step>, sid: &[u8], held: &BTreeSet<String>) -> Vec<Step> {
    let mut left = Vec::new();
    for step in done.into_iter().rev() {
        let (change, whole) = Journal::due(&step, held);
        let now = list(lists, &step.path);
        set(lists, &step.path, now.taken_back(&change, sid));
        if !whole {
            left.push(step);
        }
    }
    left.reverse();
    left
}

/// What a run's container may do to an object.
fn granted(lists: &Lists, path: &str, sid: &[u8]) -> u32 {
    let counts = |ace: &&Ace| ace.sid() == Some(sid) && ace.flags & dacl::INHERIT_ONLY == 0;
    list(lists, path).aces.iter().filter(counts).filter_map(Ace::mask).fold(0, |all, one| all | one)
}

fn holds(plan: &Plan, name: &str) -> bool {
    plan.shortfalls.iter().all(|shortfall| shortfall.name != Some(name))
}

fn refused(plan: &Plan) -> bool {
    plan.shortfalls.iter().any(|shortfall| shortfall.name.is_none())
}

/// Splits a command line as the C library of Microsoft documents it.
fn split(line: &str) -> Vec<String> {
    let (name, mut rest) = line.strip_prefix('"').unwrap().split_once('"').unwrap();
    let mut words = vec![name.to_owned()];
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return words;
        }
        let (mut word, mut quoted) = (String::new(), false);
        loop {
            let backslashes = rest.len() - rest.trim_start_matches('\\').len();
            rest = &rest[backslashes..];
            let quote = rest.starts_with('"');
            word.extend(std::iter::repeat_n(
                '\\',
                if quote { backslashes / 2 } else { backslashes },
            ));
            match rest.chars().next() {
                None => break,
                Some('"') if backslashes % 2 == 1 => word.push('"'),
                Some('"') if quoted && rest[1..].starts_with('"') => {
                    word.push('"');
                    rest = &rest[1..];
                }
                Some('"') => quoted = !quoted,
                Some(' ' | '\t') if !quoted => break,
                Some(c) => word.push(c),
            }
            rest = &rest[rest.chars().next().unwrap().len_utf8()..];
        }
        words.push(word);
    }
}

/// A document about files that leaves no reading open at the root.
fn closed(globs: u32) -> impl Strategy<Value = Value> {
    filesystem(globs).prop_map(|mut doc| {
        let denied = doc["filesystem"]["denyRead"].as_array_mut().unwrap();
        denied.push(json!("/"));
        doc
    })
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn what_is_granted_is_what_the_policy_allows(doc in closed(1), tree in tree(), odd in prop::collection::vec(path(), 0..4)) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let plan = plan(&policy, &tree, 1);
        if refused(&plan) || !holds(&plan, "globs") {
            return Ok(());
        }
        let before = lists(&tree, &odd);
        let mut lists = before.clone();
        apply(&mut lists, &plan, CONTAINER);
        let decider = Decider::new(&policy);
        for path in probes(&tree).iter().filter(|path| *path != "/") {
            if matches!(tree.kind(path), Kind::Symlink(_)) {
                continue;
            }
            let mask = granted(&lists, path, CONTAINER);
            prop_assert_eq!(mask & NEVER, 0, "{}", path);
            let exists = tree.kind(path) != Kind::Absent;
            for (access, bit) in [(Access::Read, READ), (Access::Write, WRITE)] {
                let (is, may) = (mask & bit != 0, decider.decide(access, path.as_bytes()).is_allowed());
                if exists || holds(&plan, "absent") {
                    prop_assert!(!is || may, "{:?} {} is open: {:?}", access, path, plan.entries);
                }
                // What had a list of its own, and inherited nothing, is not opened from above.
                let own = before.iter().any(|(name, (protected, _))| *protected && is_within(path, name));
                prop_assert!(!exists || own || is || !may, "{:?} {} is closed: {:?}", access, path, plan.entries);
            }
            // What a rule is about, and the way to it, stays where it is.
            if mask & DELETE != 0 {
                let rule = policy.rules.iter().filter(|rule| !rule.origin.is_built_in())
                    .find(|rule| is_within(rule.place(), path)
 && tree.kind(rule.place()) != Kind::Absent);
                prop_assert!(rule.is_none(), "{} can go: {:?}", path, rule);
            }
        }
    }

    #[test]
    fn what_was_done_is_taken_back(doc in closed(1), tree in tree(), odd in prop::collection::vec(path(), 0..4)) {
        let Some(policy) = resolved(&doc, &tree) else { return Ok(()) };
        let before = lists(&tree, &odd);
        let mut lists = before.clone();
        let mut done = apply(&mut lists, &plan(&policy, &tree, 1), CONTAINER);
        // As after a crash in the middle: the last one was announced, and not done.
        for cut in [done.len() / 2, 0] {
            let left = take_back(&mut lists, done.split_off(cut), CONTAINER, &BTreeSet::new());
            prop_assert_eq!(left, []);
        }
        prop_assert_eq!(lists, before);
    }

    #[test]
    fn runs_that_overlap_keep_their_denials(
        docs in (closed(0), closed(0)), same in any::<bool>(), tree in tree(),
        odd in prop::collection::vec(path(), 0..3),
    ) {
        let other = if same { &docs.0 } else { &docs.1 };
        let (Some(one), Some(two)) = (resolved(&docs.0, &tree), resolved(other, &tree)) else { return Ok(()) };
        let (first, second) = (plan(&one, &tree, 1), plan(&two, &tree, 1));
        let before = lists(&tree, &odd);
        let mut lists = before.clone();
        let first = apply(&mut lists, &first, OTHER);
        let steps = apply(&mut lists, &second, CONTAINER);
        let held = steps.iter().filter(|step| step.block).map(|step| step.path.clone()).collect();
        let left = take_back(&mut lists, first, OTHER, &held);
        let decider = Decider::new(&two);
        for path in probes(&tree).iter().filter(|path| *path != "/" && !refused(&second)) {
            if matches!(tree.kind(path), Kind::Absent | Kind::Symlink(_)) {
                continue;
            }
            for (access, bit) in [(Access::Read, READ), (Access::Write, WRITE)] {
                let is = granted(&lists, path, CONTAINER) & bit != 0;
                prop_assert!(!is || decider.decide(access, path.as_bytes()).is_allowed(), "{:?} {}", access, path);
            }
        }
        prop_assert_eq!(take_back(&mut lists, steps, CONTAINER, &BTreeSet::new()), []);
        prop_assert_eq!(take_back(&mut lists, left, OTHER, &BTreeSet::new()), []);
        prop_assert_eq!(lists, before);
    }

    #[test]
    fn lists_are_read_as_they_were_written(
        aces in prop::collection::vec((any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        change in any::<bool>(), behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let aces: Vec<Ace> = aces.into_iter().map(|(kind, flags, body)| Ace { kind, flags, body }).collect();
        let list = Dacl { protected: false, revision: 4, aces };
        let mut bytes = list.bytes().unwrap();
        bytes.extend(behind);
        prop_assert_eq!(Dacl::parse(&bytes, false), Some(list.clone()));
        let change = list.change(change);
        let text = serde_json::to_string(&change).unwrap();
        prop_assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change);
    }

    #[test]
    fn no_bytes_are_read_beyond_a_list(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Some(list) = Dacl::parse(&bytes, true) {
            let size = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
            prop_assert!(list.bytes().unwrap().len() <= size && size <= bytes.len());
        }
    }

    #[test]
    fn a_command_line_splits_into_what_it_was_made_of(
        words in prop::collection::vec("[a\"\\\\ \t]{0,6}|\\PC{0,6}", 0..5),
    ) {
        let wide = |text: &String| text.encode_utf16().collect::<Vec<u16>>();
        let line = command::line(&wide(&r"C:\a b".to_owned()), &words.iter().map(wide).collect::<Vec<_>>());
        let words: Vec<String> = [r"C:\a b".to_owned()].into_iter().chain(words).collect();
        prop_assert_eq!(split(&String::from_utf16(&line.unwrap()).unwrap()), words);
    }
}

#[test]
fn what_no_command_line_says_is_refused() {
    let wide = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    assert_eq!(command::line(&wide("a\"b"), &[]), None);
    assert_eq!(command::line(&wide("a"), &[wide("b\0c")]), None);
    for (file, batch) in
        [("a.bat", true), (r"C:\a.CMD", true), ("a.cmd. .", true), ("a.exe", false), ("bat", false)]
    {
        assert_eq!(command::is_batch(file), batch, "{file}");
    }
}
