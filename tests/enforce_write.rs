//! Attacks on the writing rules. Each is first shown to work where nothing stops it.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::Bed;
use support::attack::{Attack, Stage, attacks};
use support::mutations::{MUTATIONS, SETUP};
use support::tree::{Detail, difference, tree};

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op)
}

fn allow_in() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

#[test]
fn nothing_outside_the_allowed_directory_changes() {
    let stage = Stage {
        policy: allow_in(),
        setup: SETUP,
        guarded: &["{out}"],
        target: "{out}",
        words: &[],
    };
    attacks(&stage, MUTATIONS);
}

#[test]
fn nothing_changes_under_an_empty_policy() {
    let stage =
        Stage { policy: json!({}), setup: SETUP, guarded: &["{out}"], target: "{out}", words: &[] };
    // Those that write into {in} first get nowhere here.
    let table: Vec<Attack> =
        MUTATIONS.iter().filter(|a| a.name != "linkat of an unnamed file").copied().collect();
    attacks(&stage, &table);
}

#[test]
fn a_denied_directory_inside_an_allowed_one_stays_as_it_is() {
    let setup = [&["mkdirat AT_FDCWD \"{T} 0755"], SETUP].concat();
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["{in}/deny"]}});
    let stage =
        Stage { policy, setup: &setup, guarded: &["{in}/deny"], target: "{in}/deny", words: &[] };
    attacks(&stage, MUTATIONS);
}

#[test]
fn a_directory_denied_by_a_glob_stays_as_it_is() {
    let setup = [&["mkdirat AT_FDCWD \"{T} 0755"], SETUP].concat();
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/den[xy]"]}});
    let stage =
        Stage { policy, setup: &setup, guarded: &["{in}/deny"], target: "{in}/deny", words: &[] };
    attacks(&stage, MUTATIONS);
}

#[test]
fn deny_write_always_beats_a_more_specific_grant() {
    let setup = [&["mkdirat AT_FDCWD \"{T} 0755"], SETUP].concat();
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}", "{in}/deny", "{in}/deny/f"],
        "denyWriteAlways": ["{in}/deny"],
    }});
    let stage =
        Stage { policy, setup: &setup, guarded: &["{in}/deny"], target: "{in}/deny", words: &[] };
    attacks(&stage, MUTATIONS);
}

/// What is allowed works exactly as bare: under Landlock alone, and where the broker acts.
fn allowed_as_bare(policy: &Value, target: &str, first: &[&str]) {
    let put =
        |ops: &[&str]| -> Vec<String> { ops.iter().map(|op| op.replace("{T}", target)).collect() };
    let setup: Vec<String> = [put(first), put(SETUP)].concat();
    let setup: Vec<&str> = setup.iter().map(String::as_str).collect();
    let mut failures = Vec::new();
    for case in MUTATIONS.iter().filter(|c| support::have::have(c.name, c.needs)) {
        let ops = [put(case.prepare), put(&[case.op])].concat();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        let bed = Bed::new(&setup);
        let bare = bed.bare(&ops);
        let wanted = tree(&bed.root().join("in"), Detail::Result);
        bed.reset(&setup);
        let boxed = bed.boxed(policy, &ops);
        if case.is_closed() {
            if !case.error.split('|').any(|error| error == boxed.last()) {
                failures.push(format!("{}: {} instead of {}", case.name, boxed.last(), case.error));
            }
            continue;
        }
        if boxed.lines != bare.lines {
            let (got, want) = (boxed.lines, bare.lines);
            failures.push(format!("{}: {got:?} instead of {want:?} {}", case.name, boxed.stderr));
            continue;
        }
        let other = difference(&wanted, &tree(&bed.root().join("in"), Detail::Result));
        if !other.is_empty() {
            failures.push(format!("{}: bare -> sandboxed: {}", case.name, other.join("; ")));
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn everything_works_inside_the_allowed_directory() {
    allowed_as_bare(&allow_in(), "{in}", &[]);
}

#[test]
fn everything_works_beside_a_deny_glob() {
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/*.denied"]}});
    allowed_as_bare(&policy, "{in}", &[]);
}

#[test]
fn everything_works_where_a_deny_is_opened_again() {
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}", "{in}/deny/again"], "denyWrite": ["{in}/deny"],
    }});
    let first = ["mkdirat AT_FDCWD \"{in}/deny 0755", "mkdirat AT_FDCWD \"{in}/deny/again 0755"];
    // The table moves files between {in} and {T}; both are writable.
    allowed_as_bare(&policy, "{in}/deny/again", &first);
}

/// Other names of a file outside.
const NAMES: &[Attack] = &[
    at("through a link to the directory", "openat AT_FDCWD \"{in}/to/new O_WRONLY|O_CREAT 0644")
        .before(&["symlinkat \"{T} AT_FDCWD \"{in}/to"]),
    at("through a link made in the run", "put {in}/to hacked")
        .prepare(&["symlinkat \"{T}/f AT_FDCWD \"{in}/to"]),
    at("through two links", "truncate \"{in}/two 0")
        .prepare(&["symlinkat \"{T}/f AT_FDCWD \"{in}/one", "symlinkat \"one AT_FDCWD \"{in}/two"]),
    at("through a relative link", "put {in}/to hacked")
        .before(&["symlinkat \"../out/f AT_FDCWD \"{in}/to"]),
    at("creating through a dangling link", "openat AT_FDCWD \"{in}/to O_WRONLY|O_CREAT 0644")
        .prepare(&["symlinkat \"{T}/new AT_FDCWD \"{in}/to"]),
    at("mkdir below a link", "mkdirat AT_FDCWD \"{in}/to/new 0755")
        .prepare(&["symlinkat \"{T} AT_FDCWD \"{in}/to"]),
    at("/proc/self/fd of a place", "put /proc/self/fd/{r} hacked")
        .prepare(&["r=openat AT_FDCWD \"{T}/f O_PATH 0"]),
    at("/proc/self/fd, opened for reading", "put /proc/self/fd/{r} hacked")
        .prepare(&["r=openat AT_FDCWD \"{T}/f O_RDONLY 0"]),
    at("/proc/thread-self/fd", "truncate \"/proc/thread-self/fd/{r} 0")
        .prepare(&["r=openat AT_FDCWD \"{T}/f O_RDONLY 0"]),
    at("/proc/PID/fd", "truncate \"/proc/{pid}/fd/{r} 0")
        .prepare(&["r=openat AT_FDCWD \"{T}/f O_RDONLY 0"]),
    at("/dev/fd", "put /dev/fd/{r} hacked").prepare(&["r=openat AT_FDCWD \"{T}/f O_PATH 0"]),
    at("/proc/self/fd of the directory", "mkdirat AT_FDCWD \"/proc/self/fd/{r}/new 0755")
        .prepare(&["r=openat AT_FDCWD \"{T} O_PATH 0"]),
    at("/proc/self/cwd", "put /proc/self/cwd/new hacked").prepare(&["chdir \"{T}"]),
    at("/proc/self/cwd and up", "put /proc/self/cwd/../out/f hacked"),
    at("/proc/self/root", "put /proc/self/root/{T}/f hacked"),
    at("/proc/PID/root of oneself", "put /proc/{pid}/root/{T}/f hacked"),
    at("dots", "put {in}/../out/f hacked"),
    at("dots below", "put {in}/dir/../../out/./f hacked"),
    at("many slashes", "put ///{T}////f hacked"),
    at("relative", "openat AT_FDCWD \"../out/f O_WRONLY|O_TRUNC 0"),
    at("relative after chdir", "mkdirat AT_FDCWD \"new 0755").prepare(&["chdir \"{T}"]),
    at("relative after fchdir", "mkdirat AT_FDCWD \"new 0755")
        .prepare(&["t=openat AT_FDCWD \"{T} O_PATH 0", "fchdir $t"]),
    at("relative, in a thread", "thread mkdirat AT_FDCWD \"new 0755").prepare(&["chdir \"{T}"]),
    at("up from a descriptor", "mkdirat $t \"../new 0755")
        .prepare(&["t=openat AT_FDCWD \"{T}/d O_PATH 0"]),
    at("descriptor of a link", "openat $t \"new O_WRONLY|O_CREAT 0644")
        .prepare(&["symlinkat \"{T} AT_FDCWD \"{in}/to", "t=openat AT_FDCWD \"{in}/to O_PATH 0"]),
    at("empty path of a directory", "fchownat $t \" {uid} {gid} AT_EMPTY_PATH")
        .prepare(&["t=openat AT_FDCWD \"{T} O_PATH 0"]),
    at("a directory that was moved in", "mkdirat $t \"new 0755")
        .prepare(&["t=openat AT_FDCWD \"{T}/d O_PATH 0"]),
];

#[test]
fn other_names_do_not_open_what_is_outside() {
    let stage = Stage {
        policy: allow_in(),
        setup: SETUP,
        guarded: &["{out}"],
        target: "{out}",
        words: &[],
    };
    attacks(&stage, NAMES);
}

#[test]
fn a_child_is_held_like_its_parent() {
    let table = &[
        at("shell", "sh echo hacked > {T}/f").error("ok 2").prepare(&[]),
        at("shell, new file", "sh echo x > {T}/new").error("ok 2"),
        at("program", "run /usr/bin/touch {T}/new").error("ok 1"),
        at("forked", "child mkdirat AT_FDCWD \"{T}/new 0755").error("ok child EACCES"),
        at("vforked", "vchild mkdirat AT_FDCWD \"{T}/new 0755").error("ok child EACCES"),
        at("in a thread", "thread mkdirat AT_FDCWD \"{T}/new 0755"),
        at("grandchild", "sh sh -c 'mkdir {T}/new' & wait $!").error("ok 1"),
    ];
    let stage = Stage {
        policy: allow_in(),
        setup: SETUP,
        guarded: &["{out}"],
        target: "{out}",
        words: &[],
    };
    attacks(&stage, table);
}

/// What `denied_names` makes before a run.
const DENIED: &[&str] = &[
    "put {in}/file.txt text",
    "put {in}/.env secret",
    "mkdirat AT_FDCWD \"{in}/a 0755",
    "mkdirat AT_FDCWD \"{in}/a/b 0755",
    "mkdirat AT_FDCWD \"{in}/a/b/deny 0755",
    "put {in}/a/b/deny/f text",
    "put {in}/a/b/free text",
    "mkdirat AT_FDCWD \"{in}/secrets 0755",
    "put {in}/secrets/k.pem key",
    "put {in}/secrets/k.txt text",
    "mkdirat AT_FDCWD \"{in}/x 0755",
    "put {in}/x/plain text",
    "mkdirat AT_FDCWD \"{in}/x/b 0755",
    "mkdirat AT_FDCWD \"{in}/x/b/deny 0755",
    "put {in}/x/k.pem theirs",
    "mkdirat AT_FDCWD \"{in}/x/q 0755",
    "put {in}/x/q/later theirs",
    "mkdirat AT_FDCWD \"{in}/empty 0755",
    "put {in}/mine mine",
];

fn denied_policy() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": [
        "{in}/file.txt", "{in}/later", "{in}/a/b/deny", "{in}/p/q/later",
        "**/.env", "secrets/*.pem", "**/*.key",
    ]}})
}

const DENIED_NAMES: &[Attack] = &[
    // A file denied by name.
    at("the file", "put {in}/file.txt hacked"),
    at("the file, relative", "openat AT_FDCWD \"./file.txt O_RDWR|O_TRUNC 0"),
    at("unlink it", "unlinkat AT_FDCWD \"{in}/file.txt 0"),
    at("rename it", "renameat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/gone"),
    at("rename over it", "renameat AT_FDCWD \"{in}/mine AT_FDCWD \"{in}/file.txt"),
    at("exchange it", "renameat2 AT_FDCWD \"{in}/mine AT_FDCWD \"{in}/file.txt RENAME_EXCHANGE"),
    at(
        "exchange it, from it",
        "renameat2 AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/mine RENAME_EXCHANGE",
    ),
    at("link it", "linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/hard 0"),
    at("a hard link made before", "put {in}/hard hacked")
        .before(&["linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/hard 0"]),
    at("mode of a hard link made before", "fchmodat AT_FDCWD \"{in}/hard 0600 0")
        .before(&["linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/hard 0"]),
    at("truncate a hard link made before", "truncate \"{in}/x/hard 0")
        .before(&["linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/x/hard 0"]),
    at("through a link", "put {in}/soft hacked")
        .prepare(&["symlinkat \"file.txt AT_FDCWD \"{in}/soft"]),
    at("chmod it", "fchmodat AT_FDCWD \"{in}/file.txt 0777 0"),
    // Names that do not exist yet.
    at("create a denied name", "openat AT_FDCWD \"{in}/later O_WRONLY|O_CREAT 0644"),
    at("mkdir a denied name", "mkdirat AT_FDCWD \"{in}/later 0755"),
    at("symlink a denied name", "symlinkat \"mine AT_FDCWD \"{in}/later"),
    at("link a denied name", "linkat AT_FDCWD \"{in}/mine AT_FDCWD \"{in}/later 0"),
    at("mknod a denied name", "mknodat AT_FDCWD \"{in}/later S_IFREG|0644 0"),
    at("rename to a denied name", "renameat AT_FDCWD \"{in}/mine AT_FDCWD \"{in}/later"),
    at("rename a directory to a denied name", "renameat AT_FDCWD \"{in}/x AT_FDCWD \"{in}/later"),
    at("through a link to a denied name", "openat AT_FDCWD \"{in}/soft O_WRONLY|O_CREAT 0644")
        .prepare(&["symlinkat \"later AT_FDCWD \"{in}/soft"]),
    at("below a missing directory", "openat AT_FDCWD \"{in}/p/q/later O_WRONLY|O_CREAT 0644")
        .prepare(&["mkdirat AT_FDCWD \"{in}/p 0755", "mkdirat AT_FDCWD \"{in}/p/q 0755"]),
    at("move a tree that holds a denied name", "renameat AT_FDCWD \"{in}/x AT_FDCWD \"{in}/p"),
    at("move a tree over an empty ancestor", "renameat AT_FDCWD \"{in}/x AT_FDCWD \"{in}/p")
        .prepare(&["mkdirat AT_FDCWD \"{in}/p 0755"]),
    at("a link at a missing ancestor", "symlinkat \"x AT_FDCWD \"{in}/p"),
    // Ancestors of a denied directory.
    at("rename the denied directory", "renameat AT_FDCWD \"{in}/a/b/deny AT_FDCWD \"{in}/a/b/gone"),
    at("rename its parent", "renameat AT_FDCWD \"{in}/a/b AT_FDCWD \"{in}/a/gone"),
    at("rename its grandparent", "renameat AT_FDCWD \"{in}/a AT_FDCWD \"{in}/gone"),
    at("move its parent elsewhere", "renameat AT_FDCWD \"{in}/a/b AT_FDCWD \"{in}/empty/b"),
    at("exchange its grandparent", "renameat2 AT_FDCWD \"{in}/a AT_FDCWD \"{in}/x RENAME_EXCHANGE"),
    at(
        "exchange with its grandparent",
        "renameat2 AT_FDCWD \"{in}/x AT_FDCWD \"{in}/a RENAME_EXCHANGE",
    ),
    at(
        "exchange its parent with a file",
        "renameat2 AT_FDCWD \"{in}/a/b AT_FDCWD \"{in}/mine RENAME_EXCHANGE",
    ),
    at("rename an ancestor through a link", "renameat AT_FDCWD \"{in}/soft/b AT_FDCWD \"{in}/gone")
        .prepare(&["symlinkat \"a AT_FDCWD \"{in}/soft"]),
    at("rename an ancestor by descriptor", "renameat $d \"a $d \"gone")
        .prepare(&["d=openat AT_FDCWD \"{in} O_PATH 0"]),
    at("a descriptor inside it", "openat $d \"f O_WRONLY|O_TRUNC 0")
        .prepare(&["d=openat AT_FDCWD \"{in}/a/b/deny O_PATH 0"]),
    at("a descriptor of its parent", "openat $d \"deny/f O_WRONLY|O_TRUNC 0")
        .prepare(&["d=openat AT_FDCWD \"{in}/a/b O_PATH 0"]),
    // Globs.
    at("a name that a glob denies", "put {in}/.env hacked"),
    at("create it deeper", "put {in}/x/q/.env hacked"),
    at("create it in a new directory", "put {in}/n/.env hacked")
        .prepare(&["mkdirat AT_FDCWD \"{in}/n 0755"]),
    at("mkdir it", "mkdirat AT_FDCWD \"{in}/x/.env 0755"),
    at("rename to it", "renameat AT_FDCWD \"{in}/mine AT_FDCWD \"{in}/x/.env"),
    at("link to it", "linkat AT_FDCWD \"{in}/mine AT_FDCWD \"{in}/x/.env 0"),
    at("symlink as it", "symlinkat \"mine AT_FDCWD \"{in}/x/.env"),
    at("rename it away", "renameat AT_FDCWD \"{in}/.env AT_FDCWD \"{in}/env"),
    at("link it away", "linkat AT_FDCWD \"{in}/.env AT_FDCWD \"{in}/env 0"),
    at("unlink what a glob denies", "unlinkat AT_FDCWD \"{in}/.env 0"),
    at("through a link, globbed", "put {in}/soft hacked")
        .prepare(&["symlinkat \".env AT_FDCWD \"{in}/soft"]),
    at("an anchored glob", "put {in}/secrets/k.pem hacked"),
    at("an anchored glob, new file", "put {in}/secrets/n.pem hacked"),
    at(
        "an anchored glob, ancestor renamed",
        "renameat AT_FDCWD \"{in}/secrets AT_FDCWD \"{in}/gone",
    ),
    at("an anchored glob, tree moved in", "renameat AT_FDCWD \"{in}/x AT_FDCWD \"{in}/secrets")
        .before(&["renameat AT_FDCWD \"{in}/secrets AT_FDCWD \"{root}/aside"]),
    at("chmod what a glob denies", "fchmodat AT_FDCWD \"{in}/.env 0777 0"),
    at("fchmod what a glob denies", "fchmod $r 0777")
        .prepare(&["r=openat AT_FDCWD \"{in}/.env O_RDONLY 0"]),
    at("by /proc what a glob denies", "put /proc/self/fd/{r} hacked")
        .prepare(&["r=openat AT_FDCWD \"{in}/.env O_RDONLY 0"]),
    at(
        "unnamed file, linked as a denied name",
        "linkat AT_FDCWD \"/proc/self/fd/{u} AT_FDCWD \"{in}/a.key AT_SYMLINK_FOLLOW",
    )
    .prepare(&["u=openat AT_FDCWD \"{in} O_TMPFILE|O_RDWR 0600"])
    .needs(&["tmpfile"]),
    at("bind a socket at a denied name", "bind $s un:{in}/later #")
        .prepare(&["s=socket AF_UNIX SOCK_STREAM 0"]),
];

#[test]
fn denied_names_inside_an_allowed_directory_hold() {
    let stage = Stage {
        policy: denied_policy(),
        setup: DENIED,
        guarded: &["{in}"],
        target: "",
        words: &[],
    };
    attacks(&stage, DENIED_NAMES);
}

#[test]
fn names_beside_denied_ones_stay_free() {
    let bed = Bed::new(DENIED);
    let free = [
        "put {in}/file.txt2 x",
        "put {in}/laterer x",
        "put {in}/a/b/free x",
        "put {in}/a/b/denyx x",
        "put {in}/secrets/k.txt x",
        "put {in}/secrets/.env2 x",
        "mkdirat AT_FDCWD \"{in}/secrets/d 0755",
        "put {in}/secrets/d/k.pem x",
        "put {in}/x/secrets.pem x",
        "mkdirat AT_FDCWD \"{in}/p 0755",
        "mkdirat AT_FDCWD \"{in}/p/q 0755",
        "put {in}/p/q/other x",
        "renameat AT_FDCWD \"{in}/p/q/other AT_FDCWD \"{in}/p/other",
        "renameat AT_FDCWD \"{in}/a/b/free AT_FDCWD \"{in}/a/b/free2",
        "unlinkat AT_FDCWD \"{in}/a/b/free2 0",
        "cat {in}/file.txt",
        "cat {in}/.env",
        "cat {in}/a/b/deny/f",
        "ls {in}/a/b/deny",
    ];
    let run = bed.boxed(&denied_policy(), &free);
    let failed: Vec<_> =
        free.iter().zip(&run.lines).filter(|(_, l)| !l.starts_with("ok")).collect();
    assert!(failed.is_empty() && run.lines.len() == free.len(), "{failed:?}\n{run:?}");
}

#[test]
fn a_denied_symlink_is_denied_as_a_name_and_as_its_target() {
    let setup = &[
        "mkdirat AT_FDCWD \"{in}/real 0755",
        "put {in}/real/f text",
        "symlinkat \"real AT_FDCWD \"{in}/link",
    ];
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["{in}/link"]}});
    let stage = Stage { policy, setup, guarded: &["{in}"], target: "", words: &[] };
    attacks(
        &stage,
        &[
            at("unlink the link", "unlinkat AT_FDCWD \"{in}/link 0"),
            at("rename the link", "renameat AT_FDCWD \"{in}/link AT_FDCWD \"{in}/gone"),
            at("write through the link", "put {in}/link/f hacked"),
            at("write the target", "put {in}/real/f hacked"),
            at("rename the target", "renameat AT_FDCWD \"{in}/real AT_FDCWD \"{in}/gone"),
        ],
    );
}

/// A program that took a seccomp filter and a Landlock domain of its own, as a sandbox inside the
/// sandbox does, is held all the same.
#[test]
fn a_program_that_confines_itself_is_held() {
    let nested = |attack: &Attack| {
        let prepare = [attack.prepare, &["nest"]].concat();
        Attack { prepare: Box::leak(prepare.into_boxed_slice()), ..*attack }
            .error("EACCES|EPERM|ENOSYS|EXDEV")
    };
    // Mode 3 gives a descriptor that neither reads nor writes. AT_EMPTY_PATH is for the credentials
    // that opened the descriptor, which the domain replaced.
    let aside = ["open mode 3", "linkat of a descriptor"];
    let both = MUTATIONS.iter().chain(NAMES).filter(|a| !aside.contains(&a.name));
    let mut table: Vec<Attack> = both.map(nested).collect();
    table.push(nested(&at(
        "openat2, cutting only",
        "openat2 AT_FDCWD \"{T}/f how:O_RDONLY|O_TRUNC,0,0 24",
    )));
    let stage = Stage {
        policy: allow_in(),
        setup: SETUP,
        guarded: &["{out}"],
        target: "{out}",
        words: &[],
    };
    attacks(&stage, &table);
    let denied: Vec<Attack> = DENIED_NAMES.iter().map(nested).collect();
    let stage = Stage {
        policy: denied_policy(),
        setup: DENIED,
        guarded: &["{in}"],
        target: "",
        words: &[],
    };
    attacks(&stage, &denied);
}
