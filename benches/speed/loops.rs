//! What a system call costs inside: loops that time themselves in the sandbox.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use crate::contender::{Contender, Job};
use crate::inner::{REFUSED_READ, REFUSED_WRITE};
use crate::lab::Lab;
use crate::measure::{Goal, Group, Lane, Row, Spec, Unit};

const OPEN: &str = "open+close to read, reads unrestricted";
const OPEN_WORKSPACE: &str = "open+close to read, @workspace";
const OPEN_AGENT: &str = "open+close to read, @agent";
const OPEN_KERNEL: &str = "open+close to read, denyRead of a path";
const OPEN_BESIDE: &str = "open+close to read, denyRead of a path in the workspace";
const OPEN_FRESH: &str = "open+close to read, made after launch beside a denyRead";
const OPEN_GLOB: &str = "open+close to read, denyRead of a glob";
const OPEN_RELATIVE: &str = "open+close to read, denyRead of a glob, relative path";
const DENIED: &str = "open refused by denyRead";
const WRITE: &str = "open+close to write, @workspace";
const CHURN: &str = "create+close+unlink, @workspace";
const CHURN_GLOB: &str = "create+close+unlink, deny glob";
const ONE_WRITER: &str = "create+close+unlink, deny glob, one process";
const FOUR_WRITERS: &str = "create+close+unlink, deny glob, four at once on two cores";

const CONNECT_TCP: &str = "connect on loopback, allowLocalBinding";
const CONNECT_UNIX: &str = "connect to a Unix socket of its own";

const MICROSECOND: f64 = 1e3;

/// Operations in a loop: long enough that the first ones do not show, short enough that a loop
/// fits between two interruptions.
const OPS: &str = "5000";

/// Loops of one system call, or of the few that belong together.
pub fn group() -> Group {
    let alone = |name, build| Spec { name, beside: None, build };
    Group {
        rounds: 30,
        rival: Contender::Bare,
        specs: vec![
            alone(OPEN, open),
            alone(OPEN_WORKSPACE, open_workspace),
            alone(OPEN_AGENT, open_agent),
            alone(OPEN_KERNEL, open_kernel),
            alone(OPEN_BESIDE, open_beside),
            alone(OPEN_FRESH, open_fresh),
            alone(OPEN_GLOB, open_glob),
            alone(OPEN_RELATIVE, open_relative),
            alone(DENIED, denied),
            alone(WRITE, write),
            alone(CHURN, churn),
            alone(CHURN_GLOB, churn_glob),
            alone(CONNECT_TCP, connect_tcp),
            alone(CONNECT_UNIX, connect_unix),
            alone(ONE_WRITER, one_writer),
            Spec { name: FOUR_WRITERS, beside: Some(ONE_WRITER), build: four_writers },
        ],
    }
}

fn row(lab: &Lab, name: &'static str, job: &Job, goals: Vec<Goal>) -> Row {
    Row { name, unit: Unit::Micros, lanes: lab.reported(job), goals }
}

/// A workspace with `plain/file` to open and `secret/key` to deny.
fn workspace(lab: &Lab, name: &str) -> io::Result<PathBuf> {
    let dir = lab.workspace(name)?;
    for file in ["plain/file", "secret/key"] {
        let path = dir.join(file);
        fs::create_dir_all(dir.join(file.split('/').next().unwrap_or_default()))?;
        fs::write(path, "text\n")?;
    }
    Ok(dir)
}

/// A policy of `filesystem` alone, in a file named `name`.
fn only(lab: &Lab, name: &str, filesystem: serde_json::Value) -> io::Result<[PathBuf; 1]> {
    Ok([lab.policy(name, &json!({ "filesystem": filesystem }))?])
}

/// By an absolute path: a relative one takes two system calls more, see [`open_relative`].
fn open_file(lab: &Lab, dir: &Path) -> Job {
    let file = dir.join("plain/file").into_os_string();
    lab.inner(dir, ["open-read".into(), file, OPS.into()]).writable(dir)
}

fn open(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "open")?;
    let policy = only(lab, "open", json!({"allowWrite": ["."]}))?;
    let job = open_file(lab, &dir).at_least("held").under(policy);
    Ok(row(lab, OPEN, &job, vec![Goal::TimesBare(1.10)]))
}

fn open_workspace(lab: &Lab) -> io::Result<Row> {
    let job = open_file(lab, &workspace(lab, "open-workspace")?);
    Ok(row(lab, OPEN_WORKSPACE, &job, Vec::new()))
}

fn open_agent(lab: &Lab) -> io::Result<Row> {
    let job = open_file(lab, &workspace(lab, "open-agent")?).under(["@agent"]);
    Ok(row(lab, OPEN_AGENT, &job, Vec::new()))
}

/// Denied where nothing may be written: Landlock holds the denial, and the broker only reports.
fn open_kernel(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "open-kernel")?;
    let (secret, policy) = secret_outside(lab, "open-kernel")?;
    let job = open_file(lab, &dir)
        .at_least("reported")
        .under(policy)
        .refusing(REFUSED_READ, OUTSIDE_KEY)
        .hiding(&secret);
    Ok(row(lab, OPEN_KERNEL, &job, vec![Goal::AtMost(5.0 * MICROSECOND)]))
}

/// A key beside a workspace, as [`secret_outside`] makes it.
const OUTSIDE_KEY: &str = "../outside/secret/key";

/// A directory outside of every workspace, with a key in it, and a policy that denies to read it.
fn secret_outside(lab: &Lab, name: &str) -> io::Result<(PathBuf, [PathBuf; 1])> {
    let secret = lab.outside().join("secret");
    fs::create_dir_all(&secret)?;
    fs::write(secret.join("key"), "text\n")?;
    let policy = only(lab, name, json!({"allowWrite": ["."], "denyRead": [secret]}))?;
    Ok((secret, policy))
}

/// Denied beside what the run makes, where the broker opens every file, see ARCHITECTURE.md.
fn open_beside(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "open-beside")?;
    let policy = only(lab, "open-beside", json!({"allowWrite": ["."], "denyRead": ["secret"]}))?;
    let job = open_file(lab, &dir)
        .at_least("done")
        .under(policy)
        .refusing(REFUSED_READ, "secret/key")
        .hiding(&dir.join("secret"));
    Ok(row(lab, OPEN_BESIDE, &job, vec![Goal::AtMost(9.0 * MICROSECOND)]))
}

fn open_fresh(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "open-fresh")?;
    let policy = only(lab, "open-fresh", json!({"allowWrite": ["."], "denyRead": ["secret"]}))?;
    let job = lab
        .inner(&dir, ["open-fresh".into(), dir.join("fresh").into_os_string(), OPS.into()])
        .at_least("done")
        .under(policy)
        .refusing(REFUSED_READ, "secret/key")
        .writable(&dir)
        .hiding(&dir.join("secret"));
    Ok(row(lab, OPEN_FRESH, &job, vec![Goal::AtMost(9.0 * MICROSECOND)]))
}

fn open_glob(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "open-glob")?;
    let job = open_file(lab, &dir);
    open_below_glob(lab, OPEN_GLOB, "open-glob", job, vec![Goal::AtMost(9.0 * MICROSECOND)])
}

/// The broker has to find out where the path starts.
fn open_relative(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "open-relative")?;
    let job = lab.inner(&dir, ["open-read", "plain/file", OPS]);
    open_below_glob(lab, OPEN_RELATIVE, "open-relative", job, Vec::new())
}

fn open_below_glob(
    lab: &Lab,
    row_name: &'static str,
    name: &str,
    job: Job,
    goals: Vec<Goal>,
) -> io::Result<Row> {
    let policy = only(lab, name, json!({"allowWrite": ["."], "denyRead": [{"glob": "**/key"}]}))?;
    let job = job
        .at_least("done")
        .under(policy)
        .refusing(REFUSED_READ, "secret/key")
        .without_bubblewrap();
    Ok(row(lab, row_name, &job, goals))
}

/// The refusal itself. Bare has none, and opens the file instead; bubblewrap finds it absent.
fn denied(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "denied")?;
    let (secret, policy) = secret_outside(lab, "denied")?;
    let job = lab
        .inner(&dir, ["open-refused", OUTSIDE_KEY, OPS])
        .under(policy)
        .refusing(REFUSED_READ, OUTSIDE_KEY)
        .hiding(&secret);
    let mut row = row(lab, DENIED, &job, Vec::new());
    row.lanes[0] = None;
    Ok(row)
}

fn write(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "write")?;
    let job = lab
        .inner(&dir, ["open-write".into(), dir.join("plain/file").into_os_string(), OPS.into()])
        .writable(&dir);
    Ok(row(lab, WRITE, &job, Vec::new()))
}

fn churn(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "churn")?;
    let job = lab
        .inner(&dir, ["churn".into(), dir.join("plain").into_os_string(), OPS.into()])
        .writable(&dir);
    Ok(row(lab, CHURN, &job, Vec::new()))
}

/// The broker does each connection on a copy of the socket.
fn connect_tcp(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "connect-tcp")?;
    let policy =
        json!({"filesystem": {"allowWrite": ["."]}, "network": {"allowLocalBinding": true}});
    let job = lab
        .inner(&dir, ["connect-tcp", OPS])
        .under([lab.policy("connect-tcp", &policy)?])
        .without_bubblewrap();
    Ok(row(lab, CONNECT_TCP, &job, vec![Goal::OverBare(30.0 * MICROSECOND)]))
}

fn connect_unix(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "connect-unix")?;
    let job = lab.inner(&dir, ["connect-unix", "socket", OPS]).writable(&dir).without_bubblewrap();
    Ok(row(lab, CONNECT_UNIX, &job, vec![Goal::OverBare(30.0 * MICROSECOND)]))
}

/// `allowWrite` of the workspace and a glob that is denied in it.
fn deny_glob(lab: &Lab, name: &str) -> io::Result<[PathBuf; 1]> {
    let policy = json!({"allowWrite": ["."], "denyWrite": [{"glob": "**/*.pem"}]});
    only(lab, name, policy)
}

fn churn_glob(lab: &Lab) -> io::Result<Row> {
    let dir = workspace(lab, "churn-glob")?;
    let job = lab
        .inner(&dir, ["churn".into(), dir.join("plain").into_os_string(), OPS.into()])
        .at_least("done")
        .under(deny_glob(lab, "churn-glob")?)
        .refusing(REFUSED_WRITE, "plain/x.pem")
        .without_bubblewrap();
    Ok(row(lab, CHURN_GLOB, &job, vec![Goal::AtMost(20.0 * MICROSECOND)]))
}

fn writers(lab: &Lab, name: &'static str, count: &str, goals: Vec<Goal>) -> io::Result<Row> {
    let dir = workspace(lab, &format!("writers-{count}"))?;
    let job = lab
        .inner(
            &dir,
            ["writers".into(), count.into(), dir.join("plain").into_os_string(), OPS.into()],
        )
        .under(deny_glob(lab, &format!("writers-{count}"))?)
        .refusing(REFUSED_WRITE, "plain/x.pem")
        .without_bubblewrap();
    let mut row = row(lab, name, &job, goals);
    row.lanes = row.lanes.map(|lane| lane.map(on_two_cores));
    Ok(row)
}

fn one_writer(lab: &Lab) -> io::Result<Row> {
    writers(lab, ONE_WRITER, "1", Vec::new())
}

fn four_writers(lab: &Lab) -> io::Result<Row> {
    writers(lab, FOUR_WRITERS, "4", vec![Goal::TimesRow(ONE_WRITER, 2.0)])
}

/// Keeps a lane, and all that it starts, on the first two processors that it may use.
fn on_two_cores(mut lane: Lane) -> Lane {
    Box::new(move || {
        let all = sched_getaffinity(None)?;
        let mut two = CpuSet::new();
        (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).take(2).for_each(|cpu| two.set(cpu));
        sched_setaffinity(None, &two)?;
        let result = lane();
        sched_setaffinity(None, &all)?;
        result
    })
}
