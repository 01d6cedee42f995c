//! The internet of `tests/fixtures/internet.py`: names and servers for clients, in namespaces of their own.

use super::have::have;
use super::{Bed, Run, finish};
use serde_json::{Value, json};
use std::process::Command;

/// The interpreter for which Debian has packages.
pub const PYTHON: &str = "/usr/bin/python3";

/// Whether there can be one here.
pub fn internet(what: &str) -> bool {
    have(what, &["userns", PYTHON, "cmd:curl", "cmd:git", "cmd:ip", "cmd:openssl", "cmd:unshare"])
}

/// `command`, which is of `bed`, in there.
pub fn inside(bed: &Bed, command: &Command) -> Command {
    let place = bed.root().join("net");
    std::fs::create_dir(&place).expect("mkdir net");
    let mut outer = bed.command("unshare".as_ref());
    outer.args(["--map-root-user", "--net", "--mount", "--", PYTHON, "-B"]);
    outer.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/internet.py")).arg(place);
    outer.arg(command.get_program()).args(command.get_args());
    // What this machine goes out by is not there.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_ascii_lowercase().ends_with("_proxy") {
            outer.env_remove(name);
        }
    }
    outer.env("HOME", bed.root().join("in"));
    outer
}

/// A script for a shell, without a sandbox.
pub fn bare(bed: &Bed, script: &str) -> Run {
    let mut command = bed.command("sh".as_ref());
    command.args(["-c", &bed.fill(script)]);
    finish(inside(bed, &command), &bed.root().join("no traps"))
}

/// A script for a shell, in a sandbox with the section `network`.
pub fn boxed(bed: &Bed, network: &Value, script: &str) -> Run {
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}, "network": network});
    let command = bed.sandboxed(&policy, &[], &["sh", "-c", script]);
    finish(inside(bed, &command), &bed.root().join("traps"))
}

/// The lines of a file that the internet wrote: `asked` of DNS, or `served`.
pub fn noted(bed: &Bed, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(bed.root().join("net").join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
