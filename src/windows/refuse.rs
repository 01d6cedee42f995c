//! Refusing what an AppContainer cannot hold.

use crate::cli::{Failure, HostFiles};
use crate::lower::appcontainer::{self, Plan};
use crate::policy::ResolvedPolicy;

/// The plan for `policy` on this machine.
#[must_use]
pub fn plan(policy: &ResolvedPolicy) -> Plan {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    appcontainer::plan(policy, &HostFiles, u32::try_from(processors).unwrap_or(u32::MAX))
}

/// Refuses a plan that does not hold its policy whole, unless `accept` names what is missing.
///
/// # Errors
///
/// The first shortfall that is not accepted, with the line of the policy.
pub fn refuse(plan: &Plan, accept: &[String]) -> Result<(), Failure> {
    let accepted = |name: &str| accept.iter().any(|one| one == name);
    let Some(shortfall) = plan.shortfalls.iter().find(|one| !one.name.is_some_and(accepted)) else {
        return Ok(());
    };
    let message = match shortfall.name {
        Some(name) => format!("{} (to run without it: --accept {name})", shortfall.message),
        None => shortfall.message.to_owned(),
    };
    let origin = shortfall.origin.as_ref();
    Err(Failure {
        file: origin.map(|origin| origin.file.clone()),
        line: origin.map(|origin| origin.line).filter(|line| *line > 0),
        key: origin.map(|origin| origin.key.clone()),
        ..Failure::new(shortfall.code, message)
    })
}
