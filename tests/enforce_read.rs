//! Attacks on the reading rules. Each is first shown to work where nothing stops it.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::Bed;
use support::attack::{Attack, Stage, attacks};

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).quiet()
}

const SETUP: &[&str] = &[
    "mkdirat AT_FDCWD \"{in}/a 0755",
    "mkdirat AT_FDCWD \"{in}/a/hid 0755",
    "mkdirat AT_FDCWD \"{in}/a/hid/open 0755",
    "put {in}/a/hid/f secret",
    "put {in}/a/hid/open/f public",
    "sh cp /bin/true {in}/a/hid/prog",
    "put {in}/file.txt secret",
    "put {in}/.env secret",
    "put {in}/plain public",
    "mkdirat AT_FDCWD \"{in}/x 0755",
    "put {in}/x/plain public",
    "put {in}/x/.env secret",
    "put {out}/f public",
];

fn policy() -> Value {
    json!({"filesystem": {
        "allowWrite": ["{in}"],
        "denyRead": ["{in}/a/hid", "{in}/file.txt", "{in}/later", "**/.env"],
        "allowRead": ["{in}/a/hid/open"],
    }})
}

const READS: &[Attack] = &[
    at("open", "open \"{in}/a/hid/f O_RDONLY 0").needs(&["x86_64"]),
    at("openat", "openat AT_FDCWD \"{in}/a/hid/f O_RDONLY 0"),
    at("openat to read and write", "openat AT_FDCWD \"{in}/a/hid/f O_RDWR 0"),
    at("openat relative", "openat AT_FDCWD \"a/hid/f O_RDONLY 0"),
    at("openat2", "openat2 AT_FDCWD \"{in}/a/hid/f how:O_RDONLY,0,0 24"),
    at("openat2 beneath", "openat2 $d \"hid/f how:O_RDONLY,0,RESOLVE_BENEATH 24")
        .prepare(&["d=openat AT_FDCWD \"{in}/a O_PATH 0"]),
    at("by a descriptor inside", "openat $d \"f O_RDONLY 0")
        .prepare(&["d=openat AT_FDCWD \"{in}/a/hid O_PATH 0"]),
    at("after chdir", "openat AT_FDCWD \"f O_RDONLY 0").prepare(&["chdir \"{in}/a/hid"]),
    at("up from the open part", "cat {in}/a/hid/open/../f"),
    at("a denied file", "cat {in}/file.txt"),
    at("a file that a glob denies", "cat {in}/.env"),
    at("a file that a glob denies, deeper", "cat {in}/x/.env"),
    at("list the directory", "ls {in}/a/hid"),
    at("open the directory", "openat AT_FDCWD \"{in}/a/hid O_RDONLY|O_DIRECTORY 0"),
    at("through a link", "cat {in}/soft").prepare(&["symlinkat \"a/hid/f AT_FDCWD \"{in}/soft"]),
    at("through a link to the directory", "cat {in}/soft/f")
        .prepare(&["symlinkat \"a/hid AT_FDCWD \"{in}/soft"]),
    at("through a link, globbed", "cat {in}/soft")
        .prepare(&["symlinkat \"x/.env AT_FDCWD \"{in}/soft"]),
    at("/proc/self/root", "cat /proc/self/root/{in}/a/hid/f"),
    at("/proc/self/cwd", "cat /proc/self/cwd/a/hid/f"),
    at("/proc/self/fd of a place", "cat /proc/self/fd/{r}")
        .prepare(&["r=openat AT_FDCWD \"{in}/a/hid/f O_PATH 0"]),
    at("/dev/fd of a place, globbed", "cat /dev/fd/{r}")
        .prepare(&["r=openat AT_FDCWD \"{in}/.env O_PATH 0"]),
    at("a hard link made before", "cat {in}/hard")
        .before(&["linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/hard 0"]),
    at("a hard link made before, elsewhere", "cat {out}/hard")
        .before(&["linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{out}/hard 0"]),
    at("execute", "run {in}/a/hid/prog"),
    at("execute by descriptor", "child execveat $x \" 0 0 AT_EMPTY_PATH")
        .prepare(&["x=openat AT_FDCWD \"{in}/a/hid/prog O_PATH 0"])
        .error("ok child EACCES"),
    at("execute through a link", "run {in}/soft")
        .prepare(&["symlinkat \"a/hid/prog AT_FDCWD \"{in}/soft"]),
    at("execute as an interpreter", "run {in}/script")
        .before(&["put {in}/script #!{in}/a/hid/prog", "fchmodat AT_FDCWD \"{in}/script 0755 0"]),
    at("execute as an interpreter of what cannot be read", "run {in}/script")
        .before(&["put {in}/script #!{in}/a/hid/prog", "fchmodat AT_FDCWD \"{in}/script 0111 0"]),
    // The name takes the other one's room.
    at("execute as an ELF interpreter", "run {in}/elf")
        .before(&[
            "sh cp /lib64/ld-linux-x86-64.so.2 {in}/a/hid/ld && cp /bin/true {in}/elf",
            "sh LC_ALL=C sed -i s,/lib64/ld-linux-x86-64.so.2,a/hid////////////////////ld, {in}/elf",
        ])
        .needs(&["x86_64", "/lib64/ld-linux-x86-64.so.2"]),
    at("shell", "sh cat {in}/a/hid/f").works("ok 0").error("ok 1"),
    at("forked", "child openat AT_FDCWD \"{in}/.env O_RDONLY 0")
        .works("ok child ok")
        .error("ok child EACCES"),
    at("a file that appears", "cat {in}/later").before(&["put {in}/later secret"]),
    // By handle, which needs CAP_DAC_READ_SEARCH.
    at("by handle", "open_by_handle_at $m $h O_RDONLY")
        .prepare(&["handle h m {in}/plain"])
        .needs(&["root"])
        .error("EPERM|EACCES|ENOSYS"),
];

/// Attempts to give the hidden files a name that may be read.
const NAMES: &[Attack] = &[
    Attack::new("link it", "linkat AT_FDCWD \"{in}/a/hid/f AT_FDCWD \"{in}/got 0"),
    Attack::new("link a file", "linkat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/got 0"),
    Attack::new("link what a glob denies", "linkat AT_FDCWD \"{in}/.env AT_FDCWD \"{in}/got 0"),
    Attack::new(
        "link by /proc",
        "linkat AT_FDCWD \"/proc/self/fd/{r} AT_FDCWD \"{in}/got AT_SYMLINK_FOLLOW",
    )
    .prepare(&["r=openat AT_FDCWD \"{in}/a/hid/f O_PATH 0"]),
    Attack::new("link by descriptor", "linkat $r \" AT_FDCWD \"{in}/got AT_EMPTY_PATH")
        .prepare(&["r=openat AT_FDCWD \"{in}/a/hid/f O_PATH 0"])
        .needs(&["emptylink"]),
    Attack::new("rename a file", "renameat AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/got"),
    Attack::new("rename it", "renameat AT_FDCWD \"{in}/a/hid/f AT_FDCWD \"{in}/got"),
    Attack::new(
        "rename into the open part",
        "renameat AT_FDCWD \"{in}/a/hid/f AT_FDCWD \"{in}/a/hid/open/got",
    ),
    Attack::new("rename the directory", "renameat AT_FDCWD \"{in}/a/hid AT_FDCWD \"{in}/got"),
    Attack::new("rename its parent", "renameat AT_FDCWD \"{in}/a AT_FDCWD \"{in}/got"),
    Attack::new("rename what a glob denies", "renameat AT_FDCWD \"{in}/.env AT_FDCWD \"{in}/env"),
    Attack::new(
        "exchange",
        "renameat2 AT_FDCWD \"{in}/file.txt AT_FDCWD \"{in}/plain RENAME_EXCHANGE",
    ),
    Attack::new(
        "exchange, the other way",
        "renameat2 AT_FDCWD \"{in}/plain AT_FDCWD \"{in}/file.txt RENAME_EXCHANGE",
    ),
    Attack::new(
        "exchange the parent",
        "renameat2 AT_FDCWD \"{in}/x AT_FDCWD \"{in}/a RENAME_EXCHANGE",
    ),
];

fn stage(policy: Value) -> Stage<'static> {
    Stage { policy, setup: SETUP, guarded: &["{in}", "{out}"], target: "", words: &[] }
}

#[test]
fn hidden_files_are_not_read() {
    attacks(&stage(policy()), READS);
}

/// A denial to write, above, at or below the same place, takes nothing from one to read.
#[test]
fn hidden_files_are_not_read_where_writing_is_denied_too() {
    for closed in [
        json!(["{in}/a", "{in}/x"]),
        json!(["{in}/a/hid/f", "{in}/a/hid/open", "{in}/file.txt", "**/.env"]),
    ] {
        let mut policy = policy();
        policy["filesystem"]["denyWrite"] = closed;
        attacks(&stage(policy), READS);
    }
}

#[test]
fn hidden_files_do_not_get_other_names() {
    attacks(&stage(policy()), NAMES);
}

#[test]
fn hidden_files_are_not_read_where_nothing_may_be_written() {
    let mut policy = policy();
    policy["filesystem"]["allowWrite"] = json!([]);
    let reads: Vec<Attack> = READS
        .iter()
        .filter(|a| !a.prepare.iter().any(|op| op.starts_with("symlinkat")))
        .copied()
        .collect();
    attacks(&stage(policy), &reads);
}

#[test]
fn deny_read_always_is_not_opened_again() {
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}"],
        "denyReadAlways": ["{in}/a/hid"],
        "allowRead": ["{in}/a/hid/open", "{in}/a/hid/f"],
    }});
    attacks(
        &stage(policy),
        &[
            at("the file", "cat {in}/a/hid/f"),
            at("the part that would be opened again", "cat {in}/a/hid/open/f"),
            at("list it", "ls {in}/a/hid/open"),
        ],
    );
}

#[test]
fn what_is_not_hidden_is_read_and_executed() {
    let bed = Bed::new(SETUP);
    let free = [
        ("cat {in}/plain", "ok public"),
        ("cat {in}/a/hid/open/f", "ok public"),
        ("ls {in}/a/hid/open", "ok f"),
        ("ls {in}/a", "ok hid"),
        ("ls {in}/x", "ok .env,plain"),
        ("cat {out}/f", "ok public"),
        ("ls {out}", "ok f"),
        ("put {in}/new text", "ok"),
        ("cat {in}/new", "ok text"),
        ("put {in}/x/new text", "ok"),
        ("cat {in}/x/new", "ok text"),
        ("put {in}/a/new text", "ok"),
        ("cat {in}/a/new", "ok text"),
        ("mkdirat AT_FDCWD \"{in}/a/dir 0755", "ok"),
        ("put {in}/a/dir/f text", "ok"),
        ("cat {in}/a/dir/f", "ok text"),
        ("ls {in}/a/dir", "ok f"),
        ("sh cp /bin/true {in}/prog", "ok 0"),
        ("run {in}/prog", "ok 0"),
        ("sh cp /bin/true {in}/a/prog", "ok 0"),
        ("run {in}/a/prog", "ok 0"),
        ("sh cp /bin/true {in}/a/hid/open/prog", "ok 0"),
        ("run {in}/a/hid/open/prog", "ok 0"),
        ("put {in}/script #!/bin/true", "ok"),
        ("fchmodat AT_FDCWD \"{in}/script 0755 0", "ok"),
        ("run {in}/script", "ok 0"),
        ("renameat AT_FDCWD \"{in}/new AT_FDCWD \"{in}/a/moved", "ok"),
        ("cat {in}/a/moved", "ok text"),
        ("cat {in}/none", "ENOENT"),
        ("cat {in}/none/none", "ENOENT"),
        ("cat {in}/plain/none", "ENOTDIR"),
    ];
    let ops: Vec<&str> = free.iter().map(|(op, _)| *op).collect();
    let run = bed.boxed(&policy(), &ops);
    let wrong: Vec<_> =
        free.iter().zip(&run.lines).filter(|((_, want), got)| want != got).collect();
    assert!(wrong.is_empty() && run.lines.len() == free.len(), "{wrong:#?}\n{}", run.stderr);
}

/// Everything hidden but a list: what a strict policy looks like.
#[test]
fn an_allow_list_hides_the_rest() {
    let probe = support::probe();
    let probe = probe.parent().expect("a directory").display().to_string();
    let policy = json!({"filesystem": {
        "denyRead": ["/"],
        "allowRead": ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc/self",
            "/dev/null", probe, "{in}"],
    }});
    let table = [
        at("a file outside", "cat {out}/f"),
        at("a system file", "cat /etc/passwd"),
        at("a directory outside", "ls {out}"),
        at("the root", "ls /"),
    ];
    attacks(&stage(policy.clone()), &table);
    let bed = Bed::new(SETUP);
    let ops = ["cat {in}/plain", "run /bin/true", "ls {in}/x", "cat {in}/none"];
    let run = bed.boxed(&policy, &ops);
    assert_eq!(run.lines, ["ok public", "ok 0", "ok .env,plain", "ENOENT"], "{}", run.stderr);
}

#[test]
fn races_do_not_read_what_is_hidden() {
    let table = [
        ("path in memory", "race-string 20000 {in}/aaaa {in}/.env openat AT_FDCWD RACE O_RDONLY 0"),
        (
            "path in memory, openat2",
            "race-string 20000 {in}/aaaa {in}/.env openat2 AT_FDCWD RACE how:O_RDONLY,0,0 24",
        ),
        (
            "path in memory, hidden directory",
            "race-string 20000 {in}/a/../plain {in}/a/.//hid/f openat AT_FDCWD RACE O_RDONLY 0",
        ),
        (
            "link to a file",
            "race-link 20000 {in}/sw plain .env {in}/.env openat AT_FDCWD \"{in}/sw O_RDONLY 0",
        ),
        (
            "link to a directory",
            "race-link 20000 {in}/sw x a/hid {in}/a/hid/f openat AT_FDCWD \"{in}/sw/f O_RDONLY 0",
        ),
        (
            "exchange",
            "race-exchange 20000 {in}/x {in}/to {in}/a/hid/f openat AT_FDCWD \"{in}/x/f O_RDONLY 0",
        ),
    ];
    let reached =
        |line: &str| -> Vec<u64> { line.split(' ').filter_map(|n| n.parse().ok()).collect() };
    let setup = [
        SETUP,
        &["put {in}/aaaa public", "put {in}/x/f public", "symlinkat \"a/hid AT_FDCWD \"{in}/to"],
    ]
    .concat();
    let mut failures = Vec::new();
    for (name, op) in table {
        let bed = Bed::new(&setup);
        let won = |run: &support::Run| matches!(reached(run.last())[..], [_, won] if won > 0);
        let bare = || {
            bed.reset(&setup);
            bed.bare(&[op])
        };
        let bare = support::until_won(bare, won);
        if !won(&bare) {
            failures.push(format!("{name}: the control never won: {}", bare.last()));
        }
        bed.reset(&setup);
        let run = bed.boxed(&policy(), &[op]);
        if !matches!(reached(run.last())[..], [tried, 0] if tried > 0) {
            failures.push(format!("{name}: tries and wins {} {}", run.last(), run.stderr));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Reading the disk itself would go around every rule for root.
#[test]
fn devices_do_not_show_hidden_files() {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    if !support::have::have("devices", &["root"]) {
        return;
    }
    let devices = std::fs::read_dir("/dev").expect("/dev").flatten();
    let disk = devices.map(|e| e.path()).find(|path| {
        path.metadata().is_ok_and(|m| m.file_type().is_block_device())
            && std::fs::File::open(path).is_ok()
    });
    let Some(disk) = disk else {
        eprintln!("skipped: no block device that opens");
        return;
    };
    let (path, number) = (disk.display().to_string(), disk.metadata().expect("metadata").rdev());
    let words = [("{disk}", path), ("{number}", number.to_string())];
    let table = [
        at("the disk", "openat AT_FDCWD \"{disk} O_RDONLY 0").error("EACCES|EPERM"),
        at("the disk by a node of one's own", "do mknodat AT_FDCWD \"{in}/node S_IFBLK|0600 {number} ; openat AT_FDCWD \"{in}/node O_RDONLY 0")
            .error("EACCES|EPERM"),
        at("the disk by a node that was there", "openat AT_FDCWD \"{in}/node O_RDONLY 0")
            .before(&["mknodat AT_FDCWD \"{in}/node S_IFBLK|0600 {number}"]),
    ];
    attacks(&Stage { words: &words, ..stage(policy()) }, &table);
}

/// A program that took a seccomp filter and a Landlock domain of its own is held all the same: where
/// Landlock holds the reads, by that; where the broker opens every file, there is no such domain.
#[test]
fn a_program_that_confines_itself_reads_no_more() {
    let nested = |attack: &Attack| {
        let prepare = [attack.prepare, &["nest"]].concat();
        Attack { prepare: Box::leak(prepare.into_boxed_slice()), ..*attack }
    };
    let by_kernel = json!({"filesystem": {
        "denyRead": ["{in}/a/hid", "{in}/file.txt"], "allowRead": ["{in}/a/hid/open"],
    }});
    let aside = ["by handle", "a file that appears", "openat2", "openat2 beneath"];
    let kept = |a: &&Attack| {
        let writes = a.prepare.iter().any(|op| op.starts_with("symlinkat"));
        let by_glob = a.op.contains(".env") || a.prepare.iter().any(|op| op.contains(".env"));
        let linked = a.before.iter().any(|op| op.starts_with("linkat"));
        !aside.contains(&a.name) && !writes && !by_glob && !linked
    };
    let table: Vec<Attack> = READS.iter().filter(kept).map(nested).collect();
    assert!(table.len() > 12, "{} attacks are left", table.len());
    attacks(&stage(by_kernel), &table);
    let run = Bed::new(SETUP).boxed(&policy(), &["nest", "cat {in}/.env", "cat {in}/plain"]);
    assert_eq!(run.lines, ["EOPNOTSUPP", "EACCES", "ok public"], "{}", run.stderr);
}

/// A directory of so many names that only its directories and programs are granted, and one on the way
/// to a denial that does not exist: neither keeps the kernel from holding the reads.
#[test]
fn a_large_directory_is_read_and_executed() {
    const MANY: &[&str] = &[
        "sh for i in $(seq 200); do printf $i > {out}/n$i; done",
        "put {out}/secret secret",
        "mkdirat AT_FDCWD \"{out}/dir 0755",
        "put {out}/dir/f public",
        "symlinkat \"dir/f AT_FDCWD \"{out}/to-dir",
        "symlinkat \"secret AT_FDCWD \"{out}/to-secret",
        "sh cp /bin/true {out}/prog",
        "sh cp /bin/true {out}/dir/prog",
        "put {in}/plain public",
    ];
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}"], "denyRead": ["{out}/secret", "{out}/none/at/all"],
    }});
    let stage =
        Stage { policy: policy.clone(), setup: MANY, guarded: &["{out}"], target: "", words: &[] };
    attacks(
        &stage,
        &[
            at("the file", "cat {out}/secret"),
            at("through a link", "cat {out}/to-secret"),
            at("up from a directory", "cat {out}/dir/../secret"),
            at("by a descriptor", "openat $d \"../secret O_RDONLY 0")
                .prepare(&["d=openat AT_FDCWD \"{out}/dir O_RDONLY|O_DIRECTORY 0"]),
        ],
    );
    let free = [
        ("cat {out}/n7", "ok 7"),
        ("cat {out}/dir/f", "ok public"),
        ("cat {out}/dir/../n7", "ok 7"),
        ("cat {out}/to-dir", "ok public"),
        ("cat {out}/absent", "ENOENT"),
        ("cat {out}/dir/absent", "ENOENT"),
        ("cat {out}/dir/f/absent", "ENOTDIR"),
        ("run {out}/prog", "ok 0"),
        ("run {out}/dir/prog", "ok 0"),
        ("put {out}/n7 text", "EACCES"),
        ("cat {in}/plain", "ok public"),
        ("sh cp /bin/true {in}/prog", "ok 0"),
        ("run {in}/prog", "ok 0"),
    ];
    let ops: Vec<&str> = free.iter().map(|(op, _)| *op).collect();
    let run = Bed::new(MANY).boxed(&policy, &ops);
    let wrong: Vec<_> =
        free.iter().zip(&run.lines).filter(|((_, want), got)| want != got).collect();
    assert!(wrong.is_empty() && run.lines.len() == free.len(), "{wrong:#?}\n{}", run.stderr);
}

/// What is not closed with reading: names and metadata, as SECURITY.md has it.
#[test]
fn metadata_of_what_may_not_be_read_is_open() {
    let setup = &["mkdirat AT_FDCWD \"{in}/hid 0755", "put {in}/hid/f secret", "put {out}/g text"];
    let xattr = support::have::have("extended attributes", &["xattr"]);
    for hidden in ["{in}/hid", "**/hid"] {
        let bed = Bed::new(setup);
        let mut ops = vec![
            "run /usr/bin/stat -c %s {in}/hid/f",
            "readlinkat AT_FDCWD \"{in}/hid buf:8 8",
            "i=inotify_init1 0",
            "inotify_add_watch $i \"{in}/hid 0xfff",
            "chdir \"{in}/hid",
            "cat {in}/hid/f",
            "cat f",
            "ls {in}/hid",
            "ls .",
        ];
        let mut expected =
            vec!["ok 0 6", "EINVAL", "ok", "ok", "ok", "EACCES", "EACCES", "EACCES", "EACCES"];
        if xattr {
            bed.must(&["setxattr \"{in}/hid/f \"user.a bytes:v 1 0"]);
            ops.insert(0, "getxattr \"{in}/hid/f \"user.a buf:8 8");
            expected.insert(0, "ok");
        }
        let run = bed.boxed(&json!({"filesystem": {"denyRead": [hidden]}}), &ops);
        assert_eq!(run.lines, expected, "{hidden}: {run:?}");
    }
}
