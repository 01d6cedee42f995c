//! A policy that may only tighten another: that of an executable the policy of the run, that of a container's
//! document the operator's.
//!
//! A program in a writable directory can be replaced, and its attached policy with it; a document holds what an
//! image says. So such a policy is never believed when it asks for more. Its denials are added. Its grants must lie
//! within those of the run and then take their place; a grant of the run that its denials cover is
//! dropped. Anything that asks for more than the run has refuses the run.

use super::decide::{Decider, Verdict};
use super::document::{AppContainerMode, Limits};
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

    out.limits.tighten(exe.limits);

    let (macos, own) = (&mut out.macos, exe.macos);
    subset(&mut macos.allow_mach_lookup, own.allow_mach_lookup, |wide, narrow| {
        match wide.strip_suffix('*') {
            Some(start) => narrow.starts_with(start),
            None => wide == narrow,
        }
    })?;
    flag(&mut macos.allow_trustd, own.allow_trustd)?;
    flag(&mut macos.allow_apple_events, own.allow_apple_events)?;
    flag(&mut macos.allow_pty, own.allow_pty)?;
    macos.log_tag = macos.log_tag.take().or(own.log_tag);

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
        "asks for {what}, which the policy that it is added to does not give; it may only tighten"
    );
    PolicyError::at(error::NOT_TIGHTER, origin, message)
}

fn grants(rule: &Rule, access: Access) -> bool {
    rule.effect == Effect::Allow && rule.access == access
}

fn rules(base: Vec<Rule>, exe: Vec<Rule>) -> Result<Vec<Rule>, PolicyError> {
    let run = Decider::of_rules(base);
    let exe: Vec<Rule> = exe.into_iter().filter(|rule| !rule.origin.is_built_in()).collect();
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
    /// Whether everything that a granting rule opens is open here already.
    fn gives(&self, rule: &Rule) -> bool {
        match &rule.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => {
                self.decide(rule.access, path.as_bytes()).is_allowed()
            }
            Pattern::Glob(glob) => {
                let anchor = glob.anchor().as_bytes();
                self.decide(rule.access, anchor).is_allowed()
                    && !self.denies_below(rule.access, anchor)
            }
        }
    }

    /// Whether a denial here covers what a granting rule opens, or part of what a glob does.
    fn closes(&self, rule: &Rule) -> bool {
        let (top, is_glob) = match &rule.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => (path.as_bytes(), false),
            Pattern::Glob(glob) => (glob.anchor().as_bytes(), true),
        };
        let denied = matches!(self.decide(rule.access, top), Verdict::Deny { rule: Some(_), .. });
        denied || is_glob && self.denies_below(rule.access, top)
    }

    /// Whether something strictly below `dir` is denied or may come to be: a glob that grants
    /// below `dir` could reach into it.
    fn denies_below(&self, access: Access, dir: &[u8]) -> bool {
        let denies = |rule: &Rule| rule.access == access && rule.effect == Effect::Deny;
        let reaches = |glob: &Glob| matches!(glob.reach(dir), Reach::Above | Reach::Live(_));
        self.index.any_below(&self.rules, dir, denies).is_some()
            || self.globs(dir).any(|(rule, glob, _)| denies(rule) && reaches(glob))
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
        } else if let Some(host) =
            own.iter().find(|own| !held.iter().any(|held| host::covers(&held.value, &own.value)))
        {
            return Err(wider(&host.origin, &format!("{:?}", host.value)));
        }
        out.allowed_domains = Some(own);
    }
    if let Some(own) = exe.denied_domains {
        // They are held where the network is closed; all but these cannot be told apart from it.
        if let Some(host) = own.first().filter(|_| out.allow_network) {
            return Err(PolicyError::at(error::NOT_TIGHTER, &host.origin, OPEN));
        }
        out.denied_domains.get_or_insert_default().extend(own);
    }
    // Opens nothing, either way.
    if exe.proxy_environment.is_some() {
        out.proxy_environment = exe.proxy_environment;
    }
    port(&out.http_proxy_port, exe.http_proxy_port)?;
    port(&out.socks_proxy_port, exe.socks_proxy_port)?;
    listed(&mut out.host_ports, exe.host_ports)?;
    listed(&mut out.expose, exe.expose)?;
    flag(&mut out.allow_local_binding, exe.allow_local_binding)?;

    let all = out.allow_all_unix_sockets.as_ref().is_some_and(|all| all.value);
    let held = std::mem::take(&mut out.allow_unix_sockets);
    if exe.allow_unix_sockets.is_empty() {
        out.allow_unix_sockets = held;
    } else {
        let within = |own: &Rule| held.iter().any(|held| socket_within(own, held));
        if let Some(socket) = exe.allow_unix_sockets.iter().find(|own| !all && !within(own)) {
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

/// Why hosts cannot be denied alone.
const OPEN: &str = "the policy that this is added to opens the network, where hosts are not told apart: list those that \
    may be reached (`allowedDomains`) as well";

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

impl Limits {
    /// The lower of two ceilings each.
    pub fn tighten(&mut self, own: Limits) {
        least(&mut self.memory, own.memory);
        least(&mut self.pids, own.pids);
        least(&mut self.cpu, own.cpu);
        least(&mut self.time, own.time);
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

/// Ports of a list can be named again, and the others go.
fn listed(base: &mut Vec<Located<u16>>, exe: Vec<Located<u16>>) -> Result<(), PolicyError> {
    if exe.is_empty() {
        return Ok(());
    }
    let new = |own: &&Located<u16>| !base.iter().any(|held| held.value == own.value);
    if let Some(own) = exe.iter().find(new) {
        return Err(wider(&own.origin, &format!("port {}", own.value)));
    }
    *base = exe;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::super::testing::resolved;
    use super::super::{MemoryTree, Place, merge, parse, resolve_executable};
    use super::*;

    const BASE: &str = r#"{
        "filesystem": {"allowWrite": [".", "/x"], "denyWrite": ["no", "x/**/y"],
            "denyRead": ["/secret"], "allowRead": ["/secret/open"]},
        "network": {"allowedDomains": ["*.example.com"], "httpProxyPort": 3128,
            "allowLocalBinding": true, "allowUnixSockets": ["/run/a"]},
        "limits": {"memory": 1000, "pids": 10},
        "macos": {"allowMachLookup": ["com.a.*"]}}"#;

    fn try_tighten(base: &str, exe: &str) -> Result<ResolvedPolicy, PolicyError> {
        let tree = MemoryTree::new();
        let base = resolved(base, &tree);
        let place = Place { cwd: "/w", home: None, view: &tree };
        let doc = parse("exe", exe.as_bytes(), super::super::Format::Json)?;
        let exe = resolve_executable(&merge(vec![doc]), &place, &base)?;
        tighten(base, exe)
    }

    fn allowed(policy: &ResolvedPolicy, access: Access, path: &str) -> bool {
        let decider = Decider::new(policy);
        decider.decide(access, path.as_bytes()).is_allowed()
    }

    #[test]
    fn whatever_widens_is_refused() {
        for exe in [
            r#"{"filesystem": {"allowWrite": ["/etc"]}}"#,
            r#"{"filesystem": {"allowWrite": ["/"]}}"#,
            r#"{"filesystem": {"allowWrite": ["no/x"]}}"#,
            r#"{"filesystem": {"allowWrite": ["**/out"]}}"#,
            r#"{"filesystem": {"allowRead": ["/secret"]}}"#,
            r#"{"filesystem": {"allowRead": ["/secret/*"]}}"#,
            r#"{"network": {"allowNetwork": true}}"#,
            r#"{"network": {"allowedDomains": ["example.org"]}}"#,
            r#"{"network": {"socksProxyPort": 1080}}"#,
            r#"{"network": {"httpProxyPort": 3129}}"#,
            r#"{"network": {"allowAllUnixSockets": true}}"#,
            r#"{"network": {"allowUnixSockets": ["/run"]}}"#,
            r#"{"macos": {"allowMachLookup": ["com.*"]}}"#,
            r#"{"windows": {"appContainerMode": "standard"}}"#,
            r#"{"windows": {"allowLoopback": true}}"#,
        ] {
            let error = try_tighten(BASE, exe).unwrap_err();
            assert_eq!(error.code, error::NOT_TIGHTER, "{exe}");
            assert_eq!((error.file.as_deref(), error.line), (Some("exe"), Some(1)), "{exe}");
        }
    }

    #[test]
    fn what_tightens_holds() {
        let policy = try_tighten(
            BASE,
            r#"{"filesystem": {"allowWrite": ["src", "/x/o/*.o"], "denyWrite": ["**/.env"],
                "denyRead": ["/secret/open/deep", "/etc"]},
            "network": {"allowedDomains": ["a.example.com"], "deniedDomains": ["b.example.com"],
                "httpProxyPort": 3128, "allowLocalBinding": false, "allowUnixSockets": ["/run/a/b"]},
            "limits": {"memory": 2000, "pids": 5, "cpu": 1}}"#,
        )
        .unwrap();
        for (access, path, expected) in [
            (Access::Write, "/w/src/a", true),
            (Access::Write, "/w/a", false),
            (Access::Write, "/x/o/a.o", true),
            (Access::Write, "/x/o/.env/a.o", false),
            (Access::Write, "/w/src/.env", false),
            (Access::Write, "/dev/null", true),
            (Access::Read, "/secret/open/a", true),
            (Access::Read, "/secret/open/deep", false),
            (Access::Read, "/etc/x", false),
        ] {
            assert_eq!(allowed(&policy, access, path), expected, "{access:?} {path}");
        }
        let network = &policy.network;
        assert_eq!(network.allowed_domains.as_ref().unwrap().len(), 1);
        assert_eq!(network.denied_domains.as_ref().unwrap().len(), 1);
        assert!(!network.allow_local_binding.as_ref().unwrap().value);
        assert_eq!(network.allow_unix_sockets.len(), 1);
        let limits = &policy.limits;
        assert_eq!(limits.memory.as_ref().unwrap().value, 1000);
        assert_eq!(limits.pids.as_ref().unwrap().value, 5);
        assert_eq!(limits.cpu.as_ref().unwrap().value, 1000);
    }

    #[test]
    fn an_empty_policy_changes_nothing() {
        let base = resolved(BASE, &MemoryTree::new());
        assert_eq!(try_tighten(BASE, "{}").unwrap(), base);
    }

    #[test]
    fn its_denials_are_not_reopened_by_grants_of_the_run() {
        let policy = try_tighten(
            r#"{"filesystem": {"allowWrite": [".", "a/b"], "denyRead": ["/s"],
                "allowRead": ["/s/t/u"]}}"#,
            r#"{"filesystem": {"denyWrite": ["a"], "denyRead": ["/s/t"]}}"#,
        )
        .unwrap();
        assert!(allowed(&policy, Access::Write, "/w/x"));
        assert!(!allowed(&policy, Access::Write, "/w/a/b"));
        assert!(!allowed(&policy, Access::Read, "/s/t/u"));
    }

    #[test]
    fn hosts_narrow_an_open_network() {
        let policy = try_tighten(
            r#"{"network": {"allowNetwork": true}}"#,
            r#"{"network": {"allowedDomains": ["a.com"]}}"#,
        )
        .unwrap();
        assert!(!policy.network.allow_network);
    }
}
