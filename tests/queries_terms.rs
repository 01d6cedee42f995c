//! An answer allows what was asked and nothing else, and what cannot be asked about truthfully is not.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::Bed;
use support::client::{go, meanwhile};
use support::tree::{Detail, tree};

/// With a glob, so that the broker does everything: what the kernel could exchange is not moved.
fn allow_in() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/.none"]}})
}

fn path(record: &Value) -> &str {
    record["path"].as_str().expect("a path")
}

/// A call, and what changes of it while it is asked about.
struct Swap {
    name: &'static str,
    /// Done before.
    before: &'static [&'static str],
    /// The call that is asked about.
    call: &'static str,
    /// What another thread does then.
    swap: &'static str,
    /// A field of the record, as a JSON pointer, before and after.
    shown: (&'static str, &'static str, &'static str),
}

const FILES: &[&str] = &[
    "put {out}/f text",
    "fchmodat AT_FDCWD \"{out}/f 0644 0",
    "put {out}/good good",
    "put {out}/evil evil",
    "put {in}/good mine",
    "put {in}/evil mine",
    "mkdirat AT_FDCWD \"{in}/dg 0755",
    "mkdirat AT_FDCWD \"{in}/de 0755",
    "put {in}/dg/x good",
    "put {in}/de/x evil",
    "mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0",
    "mknodat AT_FDCWD \"{in}/on S_IFIFO|0644 0",
];

const SWAPS: &[Swap] = &[
    Swap {
        name: "the path",
        before: &["a=hold \"{out}/good"],
        call: "truncate $a 2",
        swap: "poke $a \"{out}/evil",
        shown: ("/path", "{out}/good", "{out}/evil"),
    },
    Swap {
        name: "the flags of openat2",
        before: &["a=hold how:O_WRONLY|O_TRUNC,0,0"],
        call: "openat2 AT_FDCWD \"{out}/f $a 24",
        swap: "poke $a how:O_RDWR|O_TRUNC,0,0",
        shown: ("/flags/0", "O_WRONLY", "O_RDWR"),
    },
    Swap {
        name: "the mode of openat2",
        before: &["a=hold how:O_WRONLY|O_CREAT,0600,0"],
        call: "openat2 AT_FDCWD \"{out}/new $a 24",
        swap: "poke $a how:O_WRONLY|O_CREAT,0666,0",
        shown: ("/arguments/mode", "0600", "0666"),
    },
    Swap {
        name: "what is moved",
        before: &["a=hold \"{in}/good"],
        call: "renameat2 AT_FDCWD $a AT_FDCWD \"{out}/new 0",
        swap: "poke $a \"{in}/evil",
        shown: ("/old_path", "{in}/good", "{in}/evil"),
    },
    Swap {
        name: "where it is moved to",
        before: &["a=hold \"{in}/good"],
        call: "renameat2 AT_FDCWD \"{out}/f AT_FDCWD $a 0",
        swap: "poke $a \"{in}/evil",
        shown: ("/new_path", "{in}/good", "{in}/evil"),
    },
    Swap {
        name: "the directory of what is moved",
        before: &[
            "d=openat AT_FDCWD \"{in}/dg O_RDONLY|O_DIRECTORY 0",
            "e=openat AT_FDCWD \"{in}/de O_RDONLY|O_DIRECTORY 0",
        ],
        call: "renameat2 $d \"x AT_FDCWD \"{out}/new 0",
        swap: "dup3 $e $d 0",
        shown: ("/old_path", "{in}/dg/x", "{in}/de/x"),
    },
    Swap {
        name: "the working directory",
        before: &["chdir \"{in}/dg"],
        call: "renameat2 AT_FDCWD \"x AT_FDCWD \"{out}/new 0",
        swap: "chdir \"{in}/de",
        shown: ("/old_path", "{in}/dg/x", "{in}/de/x"),
    },
    Swap {
        name: "what is linked",
        before: &["a=hold \"{in}/good"],
        call: "linkat AT_FDCWD $a AT_FDCWD \"{out}/new 0",
        swap: "poke $a \"{in}/evil",
        shown: ("/old_path", "{in}/good", "{in}/evil"),
    },
    Swap {
        name: "the text of a link",
        before: &["a=hold \"good"],
        call: "symlinkat $a AT_FDCWD \"{out}/new",
        swap: "poke $a \"evil",
        shown: ("/arguments/text", "good", "evil"),
    },
    Swap {
        name: "the times",
        before: &["a=hold ts:1,2"],
        call: "utimensat AT_FDCWD \"{out}/f $a 0",
        swap: "poke $a ts:3,4",
        shown: ("/arguments/mtime", "2.000000000", "4.000000000"),
    },
    Swap {
        name: "the name of an attribute",
        before: &["a=hold \"user.good"],
        call: "setxattr \"{out}/f $a bytes:x 1 0",
        swap: "poke $a \"user.evil",
        shown: ("/arguments/attribute", "user.good", "user.evil"),
    },
    Swap {
        name: "the value of an attribute",
        before: &["a=hold bytes:good"],
        call: "setxattr \"{out}/f \"user.a $a 4 0",
        swap: "poke $a bytes:evil",
        // As long as before: it is not shown, and held to all the same.
        shown: ("/arguments/size", "4", "4"),
    },
    Swap {
        name: "the descriptor",
        before: &[
            "d=openat AT_FDCWD \"{out}/good O_RDONLY 0",
            "e=openat AT_FDCWD \"{out}/evil O_RDONLY 0",
        ],
        call: "fchmod $d 0600",
        swap: "dup3 $e $d 0",
        shown: ("/path", "{out}/good", "{out}/evil"),
    },
];

impl Swap {
    /// Runs the call, and `swap` while it is asked about; the first answer is "yes", every later one is
    /// `then`. What the call gave, and the questions.
    fn run(&self, bed: &Bed, swap: &str, then: &str) -> (String, Vec<Value>) {
        let call = format!("bg call {}", self.call);
        let tail = [call.as_str(), "cat {in}/go", swap, "cat {in}/on", "join call"];
        let ops = [self.before, &tail].concat();
        let (run, queries) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
            let first = client.query();
            go(bed, "{in}/go");
            // Whoever waits here has done the swap.
            go(bed, "{in}/on");
            client.answer(&first, "allow");
            let mut queries = vec![first];
            queries.extend(client.answer_all(then));
            queries
        });
        (run.last().to_owned(), queries)
    }
}

#[test]
fn a_call_that_is_another_one_by_then_is_another_question() {
    let mut failures = Vec::new();
    for swap in SWAPS {
        let bed = Bed::new(FILES);
        let out = || tree(&bed.root().join("out"), Detail::Result);
        let before = out();
        let (result, queries) = swap.run(&bed, swap.swap, "deny");
        let (field, first, second) = swap.shown;
        let shown: Vec<_> = queries.iter().map(|q| q.pointer(field).cloned()).collect();
        let expected = [first, second].map(|text| Some(Value::String(bed.fill(text))));
        if result != "EACCES" || out() != before || shown != expected {
            failures.push(format!("{}: {result} {queries:?}", swap.name));
        }
        // The controls: nothing changes, and one answer is enough; or it does and is allowed, too.
        for (done, count) in [("getcwd", 1), (swap.swap, 2)] {
            bed.reset(FILES);
            let (result, queries) = swap.run(&bed, done, "allow");
            if result != "ok" || out() == before || queries.len() != count {
                failures.push(format!("{}: {done}: {result} {queries:?}", swap.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What a client is shown beside the path.
#[test]
fn a_record_names_all_that_a_call_asks_for() {
    let bed = Bed::new(FILES);
    let ops = [
        "openat AT_FDCWD \"{out}/n O_WRONLY|O_CREAT|O_APPEND 0640",
        "mkdirat AT_FDCWD \"{out}/n 0750",
        "mknodat AT_FDCWD \"{out}/n S_IFIFO|0600 0",
        "fchmodat AT_FDCWD \"{out}/f 0711 0",
        "fchownat AT_FDCWD \"{out}/f 12 -1 0",
        "truncate \"{out}/f 7",
        "utimensat AT_FDCWD \"{out}/f ts:now,omit 0",
        "renameat2 AT_FDCWD \"{in}/good AT_FDCWD \"{out}/f RENAME_EXCHANGE",
        "linkat AT_FDCWD \"{in}/good AT_FDCWD \"{out}/n 0",
        "removexattr \"{out}/f \"user.a",
    ];
    let (run, queries) =
        bed.asked_probe(&allow_in(), &[], &ops, |mut client| client.answer_all("deny"));
    assert_eq!(run.lines, ["EACCES"; 10]);
    let expected = [
        json!({"flags": ["O_WRONLY", "O_CREAT", "O_APPEND"], "arguments": {"mode": "0640"}}),
        json!({"arguments": {"mode": "0750"}}),
        json!({"arguments": {"mode": "010600"}}),
        json!({"arguments": {"mode": "0711"}}),
        json!({"arguments": {"owner": "12"}}),
        json!({"arguments": {"size": "7"}}),
        json!({"arguments": {"atime": "now", "mtime": "omit"}}),
        json!({"flags": ["RENAME_EXCHANGE"], "old_path": bed.fill("{in}/good"), "new_path": bed.fill("{out}/f")}),
        json!({"old_path": bed.fill("{in}/good"), "new_path": bed.fill("{out}/n")}),
        json!({"arguments": {"attribute": "user.a"}}),
    ];
    assert_eq!(queries.len(), expected.len(), "{queries:?}");
    for (query, expected) in queries.iter().zip(&expected) {
        for field in ["flags", "arguments", "old_path", "new_path"] {
            assert_eq!(query.get(field), expected.get(field), "{field} of {query}");
        }
    }
}

#[test]
fn the_source_of_a_link_is_not_asked_about() {
    let bed = Bed::new(FILES);
    let ops = [
        "linkat AT_FDCWD \"{out}/f AT_FDCWD \"{in}/l 0",
        "linkat AT_FDCWD \"{out}/f AT_FDCWD \"{out}/l 0",
        // The control: the new name is.
        "linkat AT_FDCWD \"{in}/good AT_FDCWD \"{out}/l 0",
    ];
    let (run, (queries, seen)) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
        (client.answer_all("allow"), client.seen)
    });
    assert_eq!(run.lines, ["EACCES", "EACCES", "ok"]);
    assert_eq!(queries.iter().map(path).collect::<Vec<_>>(), [bed.fill("{out}/l")]);
    // What is refused plainly names both ends as well.
    let [f, l] = [bed.fill("{out}/f"), bed.fill("{in}/l")];
    assert_eq!([&seen[0]["path"], &seen[0]["old_path"], &seen[0]["new_path"]], [&*f, &*f, &*l]);
}

#[test]
fn an_object_that_is_not_at_its_path_is_not_asked_about() {
    let fifo = "mknodat AT_FDCWD \"{in}/go S_IFIFO|0644 0";
    let ops = [
        "d=openat AT_FDCWD \"{out}/f O_RDONLY 0",
        "cat {in}/go",
        "fchmod $d 0600",
        "fsetxattr $d \"user.a bytes:x 1 0",
        "openat AT_FDCWD \"/proc/self/fd/{d} O_WRONLY 0",
    ];
    let moved = |bed: &Bed| {
        std::fs::hard_link(bed.fill("{out}/f"), bed.fill("{root}/kept")).expect("a second name");
        std::fs::remove_file(bed.fill("{out}/f")).expect("remove");
    };
    let removed = |bed: &Bed| std::fs::remove_file(bed.fill("{out}/f")).expect("remove");
    let replaced = |bed: &Bed| {
        std::fs::write(bed.fill("{out}/g"), "other").expect("write");
        std::fs::rename(bed.fill("{out}/g"), bed.fill("{out}/f")).expect("rename");
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&Bed), usize);
    let changes: [Change; 4] = [
        ("removed", &removed, 0),
        ("replaced", &replaced, 0),
        ("known by another name", &moved, 0),
        ("the control", &|_| (), 3),
    ];
    for (name, change, asked) in changes {
        let bed = Bed::new(&["put {out}/f text", fifo]);
        let (run, queries) = bed.asked_probe(&allow_in(), &[], &ops, |mut client| {
            meanwhile(&bed, "{in}/go", || change(&bed));
            client.answer_all("allow")
        });
        assert_eq!(queries.len(), asked, "{name}: {queries:?}");
        let expected = if asked > 0 { "ok" } else { "EACCES" };
        assert_eq!(run.lines[2..], [expected; 3], "{name}");
    }
}

#[test]
fn a_name_that_no_record_can_tell_is_not_asked_about() {
    use std::os::unix::ffi::OsStrExt;
    let bed = Bed::new(&[]);
    let odd = bed.root().join("out").join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::write(&odd, "text").expect("write");
    std::os::unix::fs::symlink(&odd, bed.fill("{in}/odd")).expect("link");
    std::fs::write(bed.fill("{out}/\u{fffd}"), "text").expect("write");
    std::os::unix::fs::symlink(bed.fill("{out}/\u{fffd}"), bed.fill("{in}/even")).expect("link");
    let ops = ["put {in}/odd x", "put {in}/even x"];
    let (run, queries) =
        bed.asked_probe(&allow_in(), &[], &ops, |mut client| client.answer_all("allow"));
    assert_eq!(run.lines, ["EACCES", "ok"]);
    // What looks alike is asked about, and that is all that was allowed.
    assert_eq!(queries.iter().map(path).collect::<Vec<_>>(), [bed.fill("{out}/\u{fffd}")]);
    assert_eq!(std::fs::read(&odd).expect("read"), b"text");
}
