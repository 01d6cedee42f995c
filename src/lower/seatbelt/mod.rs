//! A resolved policy as a sandbox profile of macOS (Seatbelt).
//!
//! The profile closes everything and opens what the policy and every program need. Where it cannot say what
//! the policy does, it says less, never more:
//!
//! - where globs that allow and globs that deny meet, denial wins;
//! - a denial covers both cases of a letter (see `regex`);
//! - hard links and clones are refused, since nothing tells which name of a file a rule is about;
//! - a Unix socket that the run made is known by its place alone, the run's temporary directory;
//! - `localhost` is what the machine's own addresses are called there: more than loopback.
//!
//! Resource limits are not the profile's.

mod base;
mod files;
pub mod log;
mod network;
mod regex;
#[cfg(test)]
mod tests;
mod text;

use crate::plan::with_temporary;
use crate::policy::ResolvedPolicy;
use text::rule;

/// What a profile is made for, beside the policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run<'a> {
    /// The run's private temporary directory.
    pub temporary: Option<&'a str>,
    /// The terminal that the run was started on.
    pub terminal: Option<&'a str>,
    /// What the log says with each denial, in place of `macos.logTag`.
    pub tag: Option<&'a str>,
}

/// The text of the profile that holds `policy`.
#[must_use]
pub fn profile(policy: &ResolvedPolicy, run: Run<'_>) -> String {
    let own = policy.macos.log_tag.as_ref().map(|tag| tag.value.as_str());
    let tag = run.tag.or(own);
    let mut policy = policy.clone();
    if let Some(path) = run.temporary {
        policy = with_temporary(policy, path);
    }
    let mut lines = vec!["(version 1)".to_owned(), rule("deny", "default", &[], tag)];
    lines.extend(base::rules(&policy.macos, run.terminal));
    lines.extend(network::rules(&policy, run.temporary, tag));
    lines.extend(files::rules(&policy, tag));
    lines.join("\n") + "\n"
}
