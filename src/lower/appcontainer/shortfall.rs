//! What of a policy an AppContainer cannot hold.

use serde::Serialize;

use super::path::is_volume;
use crate::policy::{Access, Decider, Effect, Located, Origin, Pattern, ResolvedPolicy, Rule};
use crate::trap::Code;

/// Something that is not held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// What `--accept` calls it; `None` where it cannot be accepted.
    pub name: Option<&'static str>,
    /// The code of the refusal.
    pub code: Code,
    /// What is not held, and what to do about it.
    pub message: &'static str,
    /// The line of the policy, where it is one.
    pub origin: Option<Origin>,
}

impl Shortfall {
    pub(super) fn acceptable(
        name: &'static str,
        message: &'static str,
        origin: &Origin,
    ) -> Shortfall {
        let origin = Some(origin.clone());
        Shortfall { name: Some(name), code: Code::ShortfallRefused, message, origin }
    }

    fn refused(code: Code, message: &'static str, origin: Option<&Origin>) -> Shortfall {
        Shortfall { name: None, code, message, origin: origin.cloned() }
    }
}

/// The shortfalls that follow from the policy alone; those of absent paths are found with the entries.
/// `decider` knows the literal rules.
pub fn of_policy(policy: &ResolvedPolicy, decider: &Decider) -> Vec<Shortfall> {
    let mut found = Vec::new();
    if decider.decide(Access::Read, b"/").is_allowed() {
        let message = "an AppContainer reads what it is granted and nothing else: deny reading of \"/\", \
            and list in `allowRead` what may be read";
        let rule = policy.rules.iter().find(|rule| allows(rule) && rule.place() == "/");
        let origin = rule.filter(|rule| rule.access == Access::Read).map(|rule| &rule.origin);
        found.push(Shortfall::refused(Code::PolicyUnrestrictedRead, message, origin));
    }
    for rule in &policy.rules {
        found.extend(of_rule(rule));
    }
    of_network(policy, &mut found);
    if let Some(pids) = &policy.limits.pids {
        let message = "a job counts processes; their threads are not counted";
        found.push(Shortfall::acceptable("limits", message, &pids.origin));
    }
    found
}

fn allows(rule: &Rule) -> bool {
    rule.effect == Effect::Allow && !rule.origin.is_built_in()
}

fn of_rule(rule: &Rule) -> Option<Shortfall> {
    let place = rule.place();
    if matches!(rule.pattern, Pattern::Glob(_)) {
        let message = "an access control list knows objects, and no patterns of names";
        return Some(Shortfall::acceptable("globs", message, &rule.origin));
    }
    if !allows(rule) {
        return None;
    }
    // Reading of "/" has a code of its own.
    if is_volume(place) && (place, rule.access) != ("/", Access::Read) {
        let message = "a drive as a whole is not granted: name directories on it";
        return Some(Shortfall::refused(Code::ShortfallRefused, message, Some(&rule.origin)));
    }
    place.starts_with("/UNC/").then(|| {
        let message = "an AppContainer cannot be granted what lies on another machine";
        Shortfall::refused(Code::ShortfallRefused, message, Some(&rule.origin))
    })
}

fn of_network(policy: &ResolvedPolicy, found: &mut Vec<Shortfall>) {
    let network = &policy.network;
    let set = |flag: &Option<Located<bool>>| flag.as_ref().is_some_and(|flag| flag.value);
    let hosts = [&network.allowed_domains, &network.denied_domains].into_iter().flatten().flatten();
    for origin in hosts.map(|host| &host.origin).chain(network.vain_list()) {
        let message = "hosts are not told apart here";
        found.push(Shortfall::acceptable("domains", message, origin));
    }
    if !set(&network.allow_all_unix_sockets)
        && let Some(socket) = network.allow_unix_sockets.first()
    {
        let message = "Unix sockets are not told apart here";
        let code = Code::PolicyUnixSocketUnsupported;
        found.push(Shortfall::refused(code, message, Some(&socket.origin)));
    }
    if network.allow_network || set(&policy.windows.allow_loopback) {
        return;
    }
    for port in network.host_ports().chain(&network.expose) {
        let message = "an AppContainer reaches the host's loopback as a whole, or not at all: see \
            `windows.allowLoopback`";
        found.push(Shortfall::acceptable("loopback", message, &port.origin));
    }
    if let Some(local) = network.allow_local_binding.as_ref().filter(|local| local.value) {
        let message = "an AppContainer has no loopback to bind without `windows.allowLoopback`";
        let code = Code::PolicyTcpBindUnsupported;
        found.push(Shortfall::refused(code, message, Some(&local.origin)));
    }
}
