//! A resolved policy as what an AppContainer of Windows needs. Pure.
//!
//! A program in an AppContainer opens what its user may open *and* the container has been granted. So the
//! policy becomes entries of access control lists for a container that only this run has ([`Entry`], [`Dacl`]),
//! capabilities, and the ceilings of a job object. What these cannot hold is a [`Shortfall`].
//!
//! What Windows grants to every container is read whatever the policy says: its own libraries, and with
//! `standard` rather than LPAC what is granted to `ALL APPLICATION PACKAGES`, such as `Program Files`.

pub mod command;
pub mod dacl;
mod files;
mod job;
pub mod journal;
pub mod path;
mod shortfall;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::policy::{AppContainerMode, Decider, FsView, Pattern, ResolvedPolicy, Rule};
pub use dacl::{Ace, Change, Dacl};
pub use files::{Entry, Rights};
pub use job::Job;
pub use shortfall::Shortfall;

/// A capability of an AppContainer, by the name that Windows has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Capability {
    /// Connections to the internet.
    InternetClient,
    /// The same, and being connected to.
    InternetClientServer,
    /// The same in networks that are private or at home.
    PrivateNetworkClientServer,
}

impl Capability {
    /// The relative identifier of its SID, `S-1-15-3-N` (winnt.h, `SECURITY_CAPABILITY_..`).
    #[must_use]
    pub const fn identifier(self) -> u32 {
        match self {
            Capability::InternetClient => 1,
            Capability::InternetClientServer => 2,
            Capability::PrivateNetworkClientServer => 3,
        }
    }
}

/// What a launch does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Whether the container opts out of what is granted to all of them.
    pub mode: AppContainerMode,
    /// Its capabilities.
    pub capabilities: Vec<Capability>,
    /// All of the host's loopback is opened to it.
    pub loopback: bool,
    /// What is done to files and directories.
    pub entries: Vec<Entry>,
    /// Ceilings.
    pub job: Job,
    /// What is not held.
    pub shortfalls: Vec<Shortfall>,
}

/// The plan for `policy`, which knows of the run's temporary directory, on a machine with so many processors.
#[must_use]
pub fn plan(policy: &ResolvedPolicy, view: &dyn FsView, processors: u32) -> Plan {
    let literal = |rule: &&Rule| {
        let device = rule.origin.is_built_in() && rule.place().starts_with("/dev/");
        !device && !matches!(rule.pattern, Pattern::Glob(_))
    };
    let rules: Vec<Rule> = policy.rules.iter().filter(literal).cloned().collect();
    let decider = Decider::of_rules(rules.clone());
    let mut shortfalls = shortfall::of_policy(policy, &decider);
    let (entries, absent) = files::entries(policy, &rules, &decider, view);
    shortfalls.extend(absent);
    let windows = &policy.windows;
    let capabilities = match policy.network.allow_network {
        true => vec![
            Capability::InternetClient,
            Capability::InternetClientServer,
            Capability::PrivateNetworkClientServer,
        ],
        false => Vec::new(),
    };
    Plan {
        mode: windows.app_container_mode.as_ref().map_or(AppContainerMode::Lpac, |mode| mode.value),
        capabilities,
        loopback: windows.allow_loopback.as_ref().is_some_and(|flag| flag.value),
        entries,
        job: Job::of(&policy.limits, processors),
        shortfalls,
    }
}
