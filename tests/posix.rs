//! What is allowed behaves as if there were no sandbox: the same results, the same tree.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::Bed;
use support::have::have;
use support::scripts;
use support::tree::{Detail, difference, tree};

/// Runs every script bare and under `policy`, and names each difference.
fn same(policy: &Value) {
    let mut failures = Vec::new();
    for script in scripts::all().filter(|s| have(s.name, s.needs)) {
        let bed = Bed::new(script.setup);
        let bare = bed.bare(script.ops);
        let wanted = tree(&bed.root().join("in"), Detail::Result);
        bed.reset(script.setup);
        let boxed = bed.boxed(policy, script.ops);
        for (i, op) in script.ops.iter().enumerate() {
            let (want, got) = (bare.lines.get(i), boxed.lines.get(i));
            if want != got {
                failures.push(format!("{}: {op}: {got:?} instead of {want:?}", script.name));
            }
        }
        if bare.lines.len() != script.ops.len() {
            failures.push(format!("{}: the script stopped bare: {bare:?}", script.name));
        }
        let tree = tree(&bed.root().join("in"), Detail::Result);
        for line in difference(&wanted, &tree).iter().take(5) {
            failures.push(format!("{}: the tree, bare -> sandboxed: {line}", script.name));
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn where_the_kernel_holds_the_writes() {
    same(&json!({"filesystem": {"allowWrite": ["{in}"]}}));
}

#[test]
fn where_the_broker_opens() {
    same(&json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/*.denied"]}}));
}

#[test]
fn where_the_broker_reads_too() {
    let policy = json!({"filesystem": {
        "allowWrite": ["{in}"], "denyWrite": ["**/*.denied"], "denyRead": ["**/*.hidden"],
    }});
    same(&policy);
}

#[test]
fn where_a_literal_is_denied_beside() {
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["{in}/denied"]}});
    same(&policy);
}

/// A descriptor opened with O_PATH cannot be handed over by the broker, and flags in memory cannot be
/// left to the kernel: callers of openat2 go back to openat, as on an older kernel.
#[test]
fn a_place_is_had_by_openat() {
    let bed = Bed::new(&["put {in}/f x"]);
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}});
    let ops = [
        "openat2 AT_FDCWD \"{in}/f how:O_PATH,0,0 24",
        "p=openat AT_FDCWD \"{in}/f O_PATH 0",
        "text $p",
        "cat /proc/self/fd/{p}",
    ];
    let run = bed.boxed(&policy, &ops);
    assert_eq!(run.lines, ["ENOSYS", "ok", "EBADF", "ok x"], "{}", run.stderr);
}
