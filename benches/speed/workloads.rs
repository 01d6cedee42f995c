//! What people run: git, a C compiler, grep, cargo.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::contender::{Contender, Job, unsuccessful};
use crate::lab::Lab;
use crate::measure::{Build, Goal, Group, Row, Spec, Unit};
use crate::trees;

const GIT: [&str; 2] = ["git status, 2,000 files, @workspace", "git status, 2,000 files, @agent"];
const GITS: [&str; 2] = [
    "git status, 2,000 files, 20 times in one run, @workspace",
    "git status, 2,000 files, 20 times in one run, @agent",
];
const GCC: [&str; 2] = ["50 compiles of a C file, @workspace", "50 compiles of a C file, @agent"];
const GREP: [&str; 2] = ["grep -r, 5,000 files, @workspace", "grep -r, 5,000 files, @agent"];
const CARGO: [&str; 2] =
    ["cargo build, small crate, @workspace", "cargo build, small crate, @agent"];

/// Commands as a person or an agent starts them, the launch included in the time.
pub fn group() -> Group {
    let specs: [(&'static str, Build); 10] = [
        (GIT[0], |lab| git(lab, GIT[0], "@workspace")),
        (GIT[1], |lab| git(lab, GIT[1], "@agent")),
        (GITS[0], |lab| gits(lab, GITS[0], "@workspace")),
        (GITS[1], |lab| gits(lab, GITS[1], "@agent")),
        (GCC[0], |lab| gcc(lab, GCC[0], "@workspace")),
        (GCC[1], |lab| gcc(lab, GCC[1], "@agent")),
        (GREP[0], |lab| grep(lab, GREP[0], "@workspace")),
        (GREP[1], |lab| grep(lab, GREP[1], "@agent")),
        (CARGO[0], |lab| cargo(lab, CARGO[0], "@workspace")),
        (CARGO[1], |lab| cargo(lab, CARGO[1], "@agent")),
    ];
    Group {
        rounds: 10,
        rival: Contender::Bare,
        specs: specs.into_iter().map(|(name, build)| Spec { name, beside: None, build }).collect(),
    }
}

/// A row for `argv` in `dir`, with `dir` as the workspace.
fn row(
    lab: &Lab,
    name: &'static str,
    policy: &str,
    dir: &Path,
    argv: &[&str],
    before: impl Fn() -> io::Result<()> + Clone + 'static,
) -> Row {
    let job = Job::new(dir, argv).under([policy]).writable(dir);
    Row {
        name,
        unit: Unit::Millis,
        lanes: lab.wall(&job, before),
        goals: vec![Goal::TimesBare(1.05)],
    }
}

/// A repository with 2,000 files, all committed.
fn repository(lab: &Lab, name: &str) -> io::Result<std::path::PathBuf> {
    let dir = lab.workspace(name)?;
    trees::sources(&dir, 2_000, 20)?;
    let identity = ["-c", "user.name=speed", "-c", "user.email=speed@example.invalid"];
    for words in
        [&["init", "-q"][..], &["add", "."], &["commit", "-q", "--no-gpg-sign", "-m", "all"]]
    {
        let status = Command::new("git").args(identity).args(words).current_dir(&dir).status()?;
        if !status.success() {
            return Err(unsuccessful(status));
        }
    }
    Ok(dir)
}

fn git(lab: &Lab, name: &'static str, policy: &str) -> io::Result<Row> {
    let dir = repository(lab, &format!("git-{policy}"))?;
    Ok(row(lab, name, policy, &dir, &["git", "status"], || Ok(())))
}

/// Twenty of them inside one launch, so that the launch hardly counts.
fn gits(lab: &Lab, name: &'static str, policy: &str) -> io::Result<Row> {
    let dir = repository(lab, &format!("gits-{policy}"))?;
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do git status || exit 1; done";
    Ok(row(lab, name, policy, &dir, &["sh", "-c", script], || Ok(())))
}

fn gcc(lab: &Lab, name: &'static str, policy: &str) -> io::Result<Row> {
    let dir = lab.workspace(&format!("gcc-{policy}"))?;
    trees::c_file(&dir.join("a.c"))?;
    let script = "i=0; while [ $i -lt 50 ]; do gcc -c a.c -o a$i.o || exit 1; i=$((i+1)); done";
    Ok(row(lab, name, policy, &dir, &["sh", "-c", script], || Ok(())))
}

fn grep(lab: &Lab, name: &'static str, policy: &str) -> io::Result<Row> {
    let dir = lab.workspace(&format!("grep-{policy}"))?;
    trees::sources(&dir, 5_000, 100)?;
    // Nothing matches, so that every file is read; with its output in /dev/null, grep would end at
    // the first match.
    let argv = ["sh", "-c", "! grep -r no_such_value ."];
    Ok(row(lab, name, policy, &dir, &argv, || Ok(())))
}

fn cargo(lab: &Lab, name: &'static str, policy: &str) -> io::Result<Row> {
    let dir = lab.workspace(&format!("cargo-{policy}"))?;
    trees::rust_crate(&dir, 12)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let cargo = cargo.to_str().ok_or_else(|| io::Error::other("CARGO is not UTF-8"))?;
    let target = dir.join("target");
    let before = move || match fs::remove_dir_all(&target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let argv = [cargo, "build", "--offline", "--quiet", "--target-dir", "target"];
    Ok(row(lab, name, policy, &dir, &argv, before))
}
