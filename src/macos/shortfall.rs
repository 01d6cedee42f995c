//! What of a policy the sandbox of macOS cannot hold.

use crate::cli::Failure;
use crate::policy::{Origin, ResolvedPolicy};
use crate::trap::Code;

/// Refuses a policy that cannot be held whole, unless `accept` names what is missing.
///
/// # Errors
///
/// `POLICY_SHORTFALL` with the line of the policy.
pub fn refuse(policy: &ResolvedPolicy, accept: &[String]) -> Result<(), Failure> {
    match shortfalls(policy).into_iter().find(|(name, ..)| !accept.iter().any(|one| one == name)) {
        None => Ok(()),
        Some((name, message, origin)) => {
            let message = format!("{message} (to run without it: --accept {name})");
            Err(Failure {
                file: Some(origin.file.clone()),
                line: Some(origin.line),
                key: Some(origin.key.clone()),
                ..Failure::new(Code::ShortfallRefused, message)
            })
        }
    }
}

fn shortfalls(policy: &ResolvedPolicy) -> Vec<(&'static str, &'static str, &Origin)> {
    let mut found = Vec::new();
    let limits = &policy.limits;
    for limit in [&limits.memory, &limits.pids, &limits.cpu, &limits.time].into_iter().flatten() {
        let message = "macOS has no ceiling on all processes of a run together";
        found.push(("limits", message, &limit.origin));
    }
    let network = &policy.network;
    let hosts = [&network.allowed_domains, &network.denied_domains].into_iter().flatten().flatten();
    for origin in hosts.map(|host| &host.origin).chain(network.vain_list()) {
        let message = "hosts are not told apart here: use a proxy and `network.httpProxyPort`";
        found.push(("domains", message, origin));
    }
    for linked in &policy.linked {
        let message = "the file has other names, and the sandbox of macOS knows a file by its name";
        found.push(("hard-links", message, &linked.origin));
    }
    found
}
