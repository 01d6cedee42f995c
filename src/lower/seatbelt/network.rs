//! The rules about the network and Unix sockets.

use super::text::{quoted, rule};
use crate::policy::{Daemons, Pattern, ResolvedPolicy};

/// The rules; `temporary` is the run's own directory: whatever socket is in there, the run made.
pub fn rules(policy: &ResolvedPolicy, temporary: Option<&str>, tag: Option<&str>) -> Vec<String> {
    let network = &policy.network;
    let mut lines = Vec::new();
    if network.allow_network {
        // `ip` leaves Unix sockets to their own rules.
        lines.push(rule("allow", "network-outbound", &["(remote ip \"*:*\")"], None));
        lines.push(rule("allow", "network-bind network-inbound", &["(local ip \"*:*\")"], None));
        lines.push(rule("allow", "system-socket", &[], None));
        let resolver = "(literal \"/private/var/run/mDNSResponder\")";
        lines.push(rule("allow", "network-outbound", &[resolver], None));
    } else {
        let localhost = |port: &str| quoted(&format!("localhost:{port}"));
        for port in network.host_ports() {
            let remote = format!("(remote tcp {})", localhost(&port.value.to_string()));
            lines.push(rule("allow", "network-outbound", &[&remote], None));
        }
        for port in &network.expose {
            let local = format!("(local tcp {})", localhost(&port.value.to_string()));
            lines.push(rule("allow", "network-bind network-inbound", &[&local], None));
        }
        if network.allow_local_binding.as_ref().is_some_and(|local| local.value) {
            let (remote, local) = ("(remote tcp \"localhost:*\")", "(local tcp \"localhost:*\")");
            lines.push(rule("allow", "network-outbound", &[remote], None));
            lines.push(rule("allow", "network-bind network-inbound", &[local], None));
        }
    }
    let sockets = "network-bind network-outbound";
    let within = |path: &str| format!("(subpath {})", quoted(path));
    if let Some(path) = temporary {
        lines.push(rule("allow", sockets, &[&within(path)], None));
    }
    let all = network.allow_all_unix_sockets.as_ref().is_some_and(|all| all.value);
    if all {
        lines.push(rule("allow", sockets, &["(regex \"^/\")"], None));
    }
    let listed = || {
        network.allow_unix_sockets.iter().filter_map(|rule| match &rule.pattern {
            Pattern::Subtree(path) => Some(path.as_str()),
            _ => None,
        })
    };
    lines.extend(listed().map(|path| rule("allow", sockets, &[&within(path)], None)));
    if all || listed().next().is_some() {
        // As good as the host: only an entry that names one opens it.
        let named = Daemons::NAMES.iter().map(|name| name.replace('.', "\\."));
        let daemons =
            format!("(regex {})", quoted(&format!("/({})$", named.collect::<Vec<_>>().join("|"))));
        lines.push(rule("deny", sockets, &[&daemons], tag));
        let exact = listed()
            .filter(|path| Daemons::NAMES.iter().any(|name| path.ends_with(&format!("/{name}"))));
        lines.extend(
            exact.map(|path| {
                rule("allow", sockets, &[&format!("(literal {})", quoted(path))], None)
            }),
        );
    }
    lines
}
