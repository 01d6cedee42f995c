//! The journal of a run: what was done to the host, written before it is done.
//!
//! A line of JSON each: who the run is, and then every object whose access control list is changed. A line
//! that was cut off, as by the end of the machine, was followed by nothing that it announced.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::dacl::Change;

const VERSION: u32 = 1;

/// The first line: what there is beside access control lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The form of the journal.
    version: u32,
    /// The name of the AppContainer's profile, from which its SID follows.
    pub profile: String,
    /// The container is exempted from the isolation of loopback.
    pub loopback: bool,
    /// The run's own temporary directory, as a path of policies.
    pub temporary: String,
}

/// A line about one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The object, as a path of policies.
    pub path: String,
    /// The run relies on it to inherit nothing, by this run's doing or another's.
    pub block: bool,
    /// What is done to it.
    pub change: Change,
}

/// A journal that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Who the run was.
    pub header: Header,
    /// What it did, in this order; it is taken back in the opposite one.
    pub steps: Vec<Step>,
}

impl Header {
    /// The first line of a run's journal.
    #[must_use]
    pub fn new(profile: &str, loopback: bool, temporary: &str) -> Header {
        let (profile, temporary) = (profile.to_owned(), temporary.to_owned());
        Header { version: VERSION, profile, loopback, temporary }
    }

    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        line(self)
    }
}

impl Step {
    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        line(self)
    }
}

fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("{text}\n")
}

impl Journal {
    /// What is taken back of a step while other runs rely on the paths in `held` to inherit nothing, and whether
    /// that is all of it. The rest is due when they have ended.
    #[must_use]
    pub fn due<'a>(step: &'a Step, held: &BTreeSet<String>) -> (Cow<'a, Change>, bool) {
        match step.change.blocked && held.contains(&step.path) {
            true => (Cow::Owned(Change::default()), false),
            false => (Cow::Borrowed(&step.change), true),
        }
    }

    /// The paths that the run relies on to inherit nothing.
    pub fn held(self) -> impl Iterator<Item = String> {
        self.steps.into_iter().filter(|step| step.block).map(|step| step.path)
    }
}

/// Reads a journal; `None` where nothing was done yet, because there is not one whole line.
///
/// # Errors
///
/// The line that is no line of a journal, from 1: then nothing can be said of what was done.
pub fn parse(text: &str) -> Result<Option<Journal>, usize> {
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let Some(first) = lines.next() else { return Ok(None) };
    let header: Header = serde_json::from_str(first).map_err(|_| 1usize)?;
    if header.version != VERSION {
        return Err(1);
    }
    let steps = lines.enumerate().map(|(at, line)| serde_json::from_str(line).map_err(|_| at + 2));
    Ok(Some(Journal { header, steps: steps.collect::<Result<_, _>>()? }))
}
