//! How long a launch takes, and that neither the tree nor the number of rules matters.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::contender::{Contender, Job};
use crate::lab::Lab;
use crate::measure::{Goal, Group, Row, Spec, Unit};

const EMPTY: &str = "launch, empty directory";
const SIBLINGS: &str = "launch, a deny beside 100,000 siblings";
const GLOBS: &str = "launch, 40 deny globs";
const BELOW: &str = "launch, 300,000 files below";
const BELOW_GLOBS: &str = "launch, 300,000 files below, 40 deny globs";
const NETWORK: &str = "launch, relay and domain proxy";
const AGENT: &str = "launch, @agent";

const MILLISECOND: f64 = 1e6;

/// `/bin/true`, started and waited for.
pub fn group() -> Group {
    let beside = |name, build| Spec { name, beside: Some(EMPTY), build };
    Group {
        rounds: 100,
        rival: Contender::Bare,
        specs: vec![
            Spec { name: EMPTY, beside: None, build: empty },
            beside(SIBLINGS, siblings),
            beside(GLOBS, globs),
            beside(BELOW, below),
            beside(BELOW_GLOBS, below_globs),
            beside(NETWORK, network),
            beside(AGENT, agent),
        ],
    }
}

fn row(lab: &Lab, name: &'static str, job: &Job, goals: Vec<Goal>) -> Row {
    Row { name, unit: Unit::Millis, lanes: lab.wall(job, || Ok(())), goals }
}

/// The figure for every row but the first.
fn like_empty() -> Vec<Goal> {
    vec![Goal::OverRow(EMPTY, 0.2 * MILLISECOND)]
}

fn job(cwd: &Path) -> Job {
    Job::new(cwd, ["/bin/true"])
}

fn empty(lab: &Lab) -> io::Result<Row> {
    let job = job(&lab.workspace("launch-empty")?);
    let goals = vec![Goal::OverBare(1.2 * MILLISECOND), Goal::UnderBubblewrap];
    Ok(row(lab, EMPTY, &job, goals))
}

fn siblings(lab: &Lab) -> io::Result<Row> {
    let dir = lab.siblings()?;
    let deny = lab
        .policy("launch-siblings", &json!({"filesystem": {"denyWrite": [dir.join("f050000")]}}))?;
    let job = job(dir).under(["@workspace".into(), deny.into_os_string()]);
    Ok(row(lab, SIBLINGS, &job, like_empty()))
}

/// `@workspace` and a file with 40 globs.
fn with_globs(lab: &Lab, name: &str, cwd: &Path) -> io::Result<Job> {
    let globs: Vec<_> =
        (0..40).map(|number| json!({"glob": format!("**/secret{number}.*")})).collect();
    let deny = lab.policy(name, &json!({"filesystem": {"denyWrite": globs}}))?;
    Ok(job(cwd).under(["@workspace".into(), deny.into_os_string()]).without_bubblewrap())
}

fn globs(lab: &Lab) -> io::Result<Row> {
    let job = with_globs(lab, "launch-globs", &lab.workspace("launch-globs")?)?;
    Ok(row(lab, GLOBS, &job, like_empty()))
}

fn below(lab: &Lab) -> io::Result<Row> {
    Ok(row(lab, BELOW, &job(lab.below()?), like_empty()))
}

fn below_globs(lab: &Lab) -> io::Result<Row> {
    let job = with_globs(lab, "launch-below-globs", lab.below()?)?;
    Ok(row(lab, BELOW_GLOBS, &job, like_empty()))
}

fn network(lab: &Lab) -> io::Result<Row> {
    let network = json!({"hostPorts": [9], "allowedDomains": ["example.com"]});
    let policy = lab.policy("launch-network", &json!({"network": network}))?;
    let job = job(&lab.workspace("launch-network")?)
        .under(["@workspace".into(), policy.into_os_string()])
        .without_bubblewrap();
    Ok(row(lab, NETWORK, &job, vec![Goal::OverRow(EMPTY, 4.0 * MILLISECOND)]))
}

fn agent(lab: &Lab) -> io::Result<Row> {
    let job = job(&lab.workspace("launch-agent")?).under(["@agent"]).without_bubblewrap();
    Ok(row(lab, AGENT, &job, Vec::new()))
}
