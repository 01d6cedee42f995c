//! An executable's own policy, which may only tighten the policy of the run.
//!
//! A program in a writable directory can be replaced, and its attached policy with it; so that
//! policy is never believed when it asks for more. Its denials are added. Its grants must lie
//! within those of the run and then take their place; a grant of the run that its denials cover is
//! dropped. Anything that asks for more than the run has refuses the run.

use super::decide::{Decider, Verdict};
use super::document::AppContainerMode;
use super::error::{self, PolicyError};
use super::glob::{Glob, Reach};
use super::host;
use super::path::is_within;
use super::resolved::{Network, ResolvedPolicy};
use super::rule::{Access, Effect, Located, Origin, Pattern, Rule};

/// Merges the policy of an executable, resolved with
/// [`resolve_executable`](super::resolve_executable), into that of the run.
///
/// # Errors
///
/// `POLICY_NOT_TIGHTER`, with the entry that asks for more than `base` allows.
pub fn tighten(base: ResolvedPolicy, exe: ResolvedPolicy) -> Result<ResolvedPolicy, PolicyError> {
    let mut out = base;
    out.rules = rules(std::mem::take(&mut out.rules), exe.rules)?;
    out.network = network(out.network, exe.network)?;

    let (limits, own) = (&mut out.limits, exe.limits);
    least(&mut limits.memory, own.memory);
    least(&mut limits.pids, own.pids);
    least(&mut limits.cpu, own.cpu);
    least(&mut limits.time, own.time);

    let services = &mut out.macos.allow_mach_lookup;
    subset(
        services,
        exe.macos.allow_mach_lookup,
        |wide, narrow| match wide.strip_suffix('*') {
            Some(start) => narrow.starts_with(start),
            None => wide == narrow,
        },
    )?;

    let (windows, own) = (&mut out.windows, exe.windows);
    flag(&mut windows.allow_loopback, own.allow_loopback)?;
    if let Some(mode) = own.app_container_mode {
        let held = windows.app_container_mode.as_ref().map(|mode| mode.value);
        let widens = mode.value == AppContainerMode::Standard
            && held.unwrap_or_default() == AppContainerMode::Lpac;
        if widens {
            return Err(wider(&mode.origin, "a standard AppContainer"));
        }
        windows.app_container_mode = Some(mode);
    }

    out.linked.extend(exe.linked);
    out.ignored.extend(exe.ignored);
    Ok(out)
}

fn wider(origin: &Origin, what: &str) -> PolicyError {
    let message = format!(
        "asks for {what}, which the policy of the run does not give; a policy attached to an \
         executable may only tighten"
    );
    PolicyError::at(error::NOT_TIGHTER, origin, message)
}

fn grants(rule: &Rule, access: Access) -> bool {
    rule.effect == Effect::Allow && rule.access == access
}

fn rules(base: Vec<Rule>, exe: Vec<Rule>) -> Result<Vec<Rule>, PolicyError> {
    let run = Decider::of_rules(base);
    let exe: Vec<Rule> = exe
        .into_iter()
        .filter(|rule| !rule.origin.is_built_in())
        .collect();
    for rule in exe.iter().filter(|rule| rule.effect == Effect::Allow) {
        if !run.gives(rule) {
            return Err(wider(&rule.origin, &format!("{:?}", rule.text)));
        }
    }
    let names_writable = exe.iter().any(|rule| grants(rule, Access::Write));
    let own = Decider::of_rules(exe);
    let mut out: Vec<Rule> = Vec::with_capacity(run.rules.len() + own.rules.len());
    for rule in &run.rules {
        let replaced = grants(rule, Access::Write) && names_writable && !rule.origin.is_built_in();
        if rule.effect == Effect::Deny || !replaced && !own.closes(rule) {
            out.push(rule.clone());
        }
    }
    out.extend(own.rules.iter().cloned());
    Ok(out)
}

impl Decider {
    /// Whether everything that a granting rule opens is open here already. A glob is only believed
    /// where nothing is denied below its anchor: it could reach into that denial.
    fn gives(&self, rule: &Rule) -> bool {
        let denied = |own: &Rule| own.access == rule.access && own.effect == Effect::Deny;
        match &rule.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => {
                self.decide(rule.access, path.as_bytes()).is_allowed()
            }
            Pattern::Glob(glob) => {
                let anchor = glob.anchor().as_bytes();
                let reaches =
                    |other: &Glob| matches!(other.reach(anchor), Reach::Above | Reach::Live(_));
                self.decide(rule.access, anchor).is_allowed()
                    && self.index.any_below(&self.rules, anchor, denied).is_none()
                    && !self
                        .globs(anchor)
                        .any(|(own, other, _)| denied(own) && reaches(other))
            }
        }
    }

    /// Whether a denial here covers what a granting rule opens.
    fn closes(&self, rule: &Rule) -> bool {
        let top = match &rule.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => path.as_str(),
            Pattern::Glob(glob) => glob.anchor(),
        };
        matches!(
            self.decide(rule.access, top.as_bytes()),
            Verdict::Deny { rule: Some(_), .. }
        )
    }
}

fn network(base: Network, exe: Network) -> Result<Network, PolicyError> {
    let mut out = base;
    if let Some(origin) = exe.allow_network_origin {
        if exe.allow_network && !out.allow_network {
            return Err(wider(&origin, "the network"));
        }
        out.allow_network = exe.allow_network;
        out.allow_network_origin = Some(origin);
    }
    if let Some(own) = exe.allowed_domains {
        let held = out.allowed_domains.take().unwrap_or_default();
        if out.allow_network {
            // Hosts are only told apart where the network is enforced.
            out.allow_network = false;
        } else if let Some(host) = own.iter().find(|own| {
            !held
                .iter()
                .any(|held| host::covers(&held.value, &own.value))
        }) {
            return Err(wider(&host.origin, &format!("{:?}", host.value)));
        }
        out.allowed_domains = Some(own);
    }
    if let Some(own) = exe.denied_domains {
        out.denied_domains.get_or_insert_default().extend(own);
    }
    port(&out.http_proxy_port, exe.http_proxy_port)?;
    port(&out.socks_proxy_port, exe.socks_proxy_port)?;
    flag(&mut out.allow_local_binding, exe.allow_local_binding)?;

    let all = out
        .allow_all_unix_sockets
        .as_ref()
        .is_some_and(|all| all.value);
    let held = std::mem::take(&mut out.allow_unix_sockets);
    if exe.allow_unix_sockets.is_empty() {
        out.allow_unix_sockets = held;
    } else {
        let within = |own: &Rule| held.iter().any(|held| socket_within(own, held));
        if let Some(socket) = exe
            .allow_unix_sockets
            .iter()
            .find(|own| !all && !within(own))
        {
            return Err(wider(&socket.origin, &format!("{:?}", socket.text)));
        }
        out.allow_unix_sockets = exe.allow_unix_sockets;
        if all {
            out.allow_all_unix_sockets = None;
        }
    }
    flag(&mut out.allow_all_unix_sockets, exe.allow_all_unix_sockets)?;
    Ok(out)
}

/// Whether one socket rule opens nothing that another does not.
fn socket_within(own: &Rule, held: &Rule) -> bool {
    match (&own.pattern, &held.pattern) {
        (Pattern::Subtree(own), Pattern::Subtree(held)) => {
            is_within(own.as_bytes(), held.as_bytes())
        }
        (Pattern::Glob(own), Pattern::Subtree(held)) => {
            is_within(own.anchor().as_bytes(), held.as_bytes())
        }
        (Pattern::Subtree(own), Pattern::Glob(held)) => held.matches(own.as_bytes()),
        (own, held) => own == held,
    }
}

/// A flag that opens something: it can be taken back, not given.
fn flag(base: &mut Option<Located<bool>>, exe: Option<Located<bool>>) -> Result<(), PolicyError> {
    let Some(own) = exe else { return Ok(()) };
    if own.value && !base.as_ref().is_some_and(|held| held.value) {
        let name = own.origin.key.rsplit('.').next().unwrap_or_default();
        return Err(wider(&own.origin, name));
    }
    *base = Some(own);
    Ok(())
}

/// A proxy's port is a way out: it can be named again, not chosen anew.
fn port(base: &Option<Located<u16>>, exe: Option<Located<u16>>) -> Result<(), PolicyError> {
    match exe {
        Some(own) if base.as_ref().map(|held| held.value) != Some(own.value) => {
            Err(wider(&own.origin, &format!("port {}", own.value)))
        }
        _ => Ok(()),
    }
}

/// The lower of two ceilings.
fn least(base: &mut Option<Located<u64>>, exe: Option<Located<u64>>) {
    if let Some(own) = exe
        && base.as_ref().is_none_or(|held| own.value < held.value)
    {
        *base = Some(own);
    }
}

/// A list of grants: entries of the executable must be covered, and then replace the list.
fn subset(
    base: &mut Vec<Located<String>>,
    exe: Vec<Located<String>>,
    covers: fn(&str, &str) -> bool,
) -> Result<(), PolicyError> {
    if exe.is_empty() {
        return Ok(());
    }
    for own in &exe {
        if !base.iter().any(|held| covers(&held.value, &own.value)) {
            return Err(wider(&own.origin, &format!("{:?}", own.value)));
        }
    }
    *base = exe;
    Ok(())
}
