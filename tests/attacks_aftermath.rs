//! Attacks on what the launcher does at the end of a run, outside of every domain.
#![cfg(target_os = "linux")]

mod support;

use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::Bed;

/// A user without privileges: for root, permissions of its own stop nothing.
const USER: u32 = 65534;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("stat").permissions().mode() & 0o7777
}

/// The temporary directory is emptied by the launcher, outside of every domain. A link that cannot be
/// removed, in a directory that the run made read-only, must not be followed by a chmod.
#[test]
fn emptying_the_temporary_directory_follows_no_link() {
    let bed = Bed::new(&[]);
    let root = rustix::process::getuid().is_root();
    let (inside, victim) = (bed.root().join("in"), bed.root().join("out/victim"));
    std::fs::write(&victim, "x").expect("write");
    if root {
        for path in [&bed.root(), &inside, &bed.root().join("out"), &victim] {
            std::os::unix::fs::chown(path, Some(USER), Some(USER)).expect("chown");
        }
    }
    std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o604)).expect("chmod");
    let uid = format!("uid={USER}");
    let options: &[&str] = if root { &[&uid] } else { &[] };
    let script = "ln -s {out}/victim $TMPDIR/link && chmod 500 $TMPDIR && echo $TMPDIR";
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}});
    let run = bed.launch(&policy, options, &["sh", "-c", script]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let temporary = Path::new(run.last());
    let left = temporary.exists();
    if left {
        std::fs::set_permissions(temporary, PermissionsExt::from_mode(0o700)).expect("chmod");
        std::fs::remove_dir_all(temporary).expect("remove");
    }
    assert_eq!(mode(&victim), 0o604, "the launcher changed a file outside");
    assert!(!left, "{} was left behind", temporary.display());
}

/// A file in /dev/shm goes under each of its names.
#[test]
fn no_name_of_a_shared_memory_file_stays() {
    let bed = Bed::new(&[]);
    let names =
        ["a", "b", "c"].map(|n| format!("/dev/shm/landstrip-test-{}-{n}", std::process::id()));
    let script = format!(
        "echo x > {0} && ln {0} {1} && ln {0} {2} && echo made",
        names[0], names[1], names[2]
    );
    let run = bed.launch(&json!({}), &[], &["sh", "-c", &script]);
    let left: Vec<&String> = names.iter().filter(|n| std::fs::remove_file(n).is_ok()).collect();
    assert_eq!(run.last(), "made", "{run:?}");
    assert!(left.is_empty(), "left behind: {left:?}");
}
