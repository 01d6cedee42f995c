//! System calls with any arguments: the broker answers, and changes nothing that it may not.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use support::tree::{Detail, difference, tree};
use support::{Bed, Run};

const SETUP: &[&str] =
    &["put {out}/f theirs", "put {in}/kept theirs", "mkdirat AT_FDCWD \"{in}/d 0755"];

fn policy() -> Value {
    json!({
        "filesystem": {
            "allowWrite": ["{in}"], "denyWrite": ["{in}/kept", "**/b"], "denyRead": ["{out}", "**/a"],
        },
        "network": {"allowLocalBinding": true},
    })
}

/// Runs some noise, which has to end by itself, and to leave everything as it was that is denied.
fn noise(run: impl FnOnce(&Bed, &[&str]) -> Run) {
    let bed = Bed::new(SETUP);
    let seen = || ["{out}", "{in}/kept"].map(|path| tree(bed.fill(path).as_ref(), Detail::All));
    let old = seen();
    let run = run(&bed, &["noise 1500"]);
    // The run may have closed its own directory to an ordinary user, whom it belongs to.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bed.fill("{in}"), mode).expect("a directory");
    let counts: Vec<u64> = run.last().split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(counts[..], [(1..), (1..)]), "{run:?}");
    assert_eq!(run.code, Some(0), "{run:?}");
    let changed: Vec<_> =
        old.iter().zip(&seen()).flat_map(|(old, new)| difference(old, new)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    assert!(!std::fs::exists(bed.fill("{in}/b")).expect("a name"), "a denied name was made");
}

#[test]
fn whatever_a_call_is_given_it_is_answered() {
    noise(|bed, ops| bed.boxed(&policy(), ops));
}

#[test]
fn whatever_a_call_is_given_it_is_answered_where_no_socket_can_be_copied() {
    let probe = support::probe().display().to_string();
    noise(|bed, ops| bed.launch(&policy(), &["refuse=pidfd_getfd"], &[&[&*probe], ops].concat()));
}

#[test]
fn whatever_a_call_is_given_it_is_asked_about() {
    noise(|bed, ops| {
        let (run, asked) =
            bed.asked_probe(&policy(), &[], ops, |mut client| client.answer_all("deny"));
        assert!(!asked.is_empty(), "nothing was asked");
        run
    });
}
