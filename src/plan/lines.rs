//! Who holds which line of a policy, and what nobody holds.

use super::{
    HostSupport, IOCTL_ABI, OLDEST_ABI, Plan, SCOPED_ABI, TCP_ABI, TERMINALS, TRUNCATE_ABI, limits,
};
use crate::policy::host;
use crate::policy::path::{is_below, is_within};
use crate::policy::{Access, Daemons, Effect, Network, Origin, Pattern, ResolvedPolicy, Rule};
use serde::Serialize;
use std::collections::BTreeSet;

/// A mechanism that holds a line of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// Landlock, in the kernel.
    Landlock,
    /// The broker does the operation itself, after deciding.
    Broker,
    /// Landlock for what a whole subtree can be granted, the broker for the rest.
    LandlockAndBroker,
    /// A network namespace, in which there is nothing else, and the broker for what is open in it.
    NamespaceAndBroker,
    /// The seccomp filter.
    Seccomp,
    /// A cgroup of version 2.
    CgroupV2,
    /// A cgroup of version 1.
    CgroupV1,
    /// The launcher, which ends the run.
    Launcher,
    /// The built-in proxy, which alone can be connected to.
    Proxy,
}

impl Holder {
    /// The name for a person.
    pub const fn name(self) -> &'static str {
        match self {
            Holder::Landlock => "Landlock",
            Holder::Broker => "the broker",
            Holder::LandlockAndBroker => "Landlock and broker",
            Holder::NamespaceAndBroker => "namespace and broker",
            Holder::Seccomp => "seccomp",
            Holder::CgroupV2 => "cgroup v2",
            Holder::CgroupV1 => "cgroup v1",
            Holder::Launcher => "the launcher",
            Holder::Proxy => "the built-in proxy",
        }
    }
}

/// One line of the policy and who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The line.
    pub origin: Origin,
    /// The line as typed.
    pub text: String,
    /// Who holds it.
    pub held_by: Holder,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// The shortfall of a kernel without scopes.
pub(super) const SIGNALS: &str = "signals";
/// The shortfall of one that holds no requests on devices.
pub(super) const DEVICES: &str = "devices";

/// The shortfalls about Unix sockets.
pub(super) const SOCKETS: &str = "unix-sockets";

/// The names of the shortfalls that can be accepted.
pub const ACCEPTABLE: [&str; 9] = [
    SIGNALS,
    DEVICES,
    "nested",
    "proxy-port",
    "local-ports",
    "domains",
    "local-binding",
    SOCKETS,
    "limits",
];

/// Something that no mechanism of this host holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// Its name, for `--accept`.
    pub name: &'static str,
    /// What is not held, and why.
    pub message: String,
    /// The line of the policy, where one is about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Whether `--accept` takes it.
    pub acceptable: bool,
}

/// The shortfalls of `policy` on this host.
pub(super) fn shortfalls(policy: &ResolvedPolicy, host: HostSupport) -> Vec<Shortfall> {
    let mut found = Vec::new();
    let mut add = |name, message: &str, origin: Option<&Origin>, acceptable| {
        let message = message.to_owned();
        found.push(Shortfall { name, message, origin: origin.cloned(), acceptable });
    };
    if host.landlock_abi < OLDEST_ABI {
        let message = "there is no Landlock of ABI 2 or later: it takes Linux 5.19 with \
            CONFIG_SECURITY_LANDLOCK, `landlock` in the boot parameter lsm=, and, in a container, a \
            seccomp profile that allows landlock_create_ruleset";
        add("landlock", message, None, false);
    } else {
        if host.landlock_abi < SCOPED_ABI && host.nested {
            let message = "inside another run signals are held by Landlock alone, which needs ABI 6 (Linux \
                6.12): the program could signal the other processes of the outer run, its own launcher among them";
            add(SIGNALS, message, None, true);
        }
        if host.landlock_abi < IOCTL_ABI
            && let Some((message, origin)) = open_devices(policy, host)
        {
            add(DEVICES, message, origin, true);
        }
    }
    if (OLDEST_ABI..SCOPED_ABI).contains(&host.landlock_abi)
        && let Some(all) = policy.network.allow_all_unix_sockets.as_ref().filter(|all| all.value)
    {
        let message = "Landlock before ABI 6 (Linux 6.12) cannot keep abstract sockets inside: a datagram \
            socket, which this line opens, sends to those of processes outside";
        add(SOCKETS, message, Some(&all.origin), true);
    }
    if host.landlock_abi < TCP_ABI && !policy.network.allow_network && host.nested {
        let message = "inside another run no internet socket is made, but one that is handed in is held by \
            Landlock alone, which needs ABI 4 (Linux 6.7): the outer run decides what it connects to";
        add("nested", message, policy.network.allow_network_origin.as_ref(), true);
    }
    if host.landlock_abi < TRUNCATE_ABI && host.nested {
        let message = "inside another run truncation is held by Landlock alone, which needs ABI 3 (Linux \
            6.2): files that the outer run may write can be emptied";
        add("nested", message, None, true);
    }
    let network = &policy.network;
    if let Some(origin) = network.vain_list() {
        let message =
            "a list of hosts is held where the network is closed, and `allowNetwork` opens it";
        add("domains", message, Some(origin), false);
    }
    let listed =
        [&network.allowed_domains, &network.denied_domains].into_iter().flatten().flatten();
    if let Some(host) = listed.into_iter().find(|_| !network.allow_network)
        && network.proxies().next().is_some()
    {
        let message = "a list of hosts is held by the built-in proxy, and the one at `httpProxyPort` \
            or `socksProxyPort` leads around it; a proxy that connections are to go out by is taken \
            from the environment of the launcher (HTTPS_PROXY)";
        add("domains", message, Some(&host.origin), true);
    }
    if host.nested {
        let outer =
            "inside another run there is no way to the built-in proxy, so this opens nothing";
        for domain in network.allowed_domains.iter().flatten() {
            add("domains", outer, Some(&domain.origin), true);
        }
    }
    if host.nested && !network.allow_network {
        // Without a broker of ours, nobody looks at an address; Landlock refuses them all.
        let alone = "inside another run nothing is granted by this line: only a broker can";
        for port in network.proxies() {
            add("proxy-port", alone, Some(&port.origin), true);
        }
        for port in network.host_ports.iter().chain(&network.expose) {
            add("local-ports", alone, Some(&port.origin), true);
        }
        if let Some(local) = network.allow_local_binding.as_ref().filter(|local| local.value) {
            add("local-binding", alone, Some(&local.origin), true);
        }
    }
    if host.nested {
        let outer =
            "inside another run no Unix socket is connected to: only a broker can say which";
        for rule in &network.allow_unix_sockets {
            add(SOCKETS, outer, Some(&rule.origin), true);
        }
        if let Some(all) = network.allow_all_unix_sockets.as_ref().filter(|all| all.value) {
            add(SOCKETS, outer, Some(&all.origin), true);
        }
    }
    found.extend(limits::shortfalls(&policy.limits, host));
    found
}

/// Why whoever may read a device can control it (ioctl(2)) where Landlock holds no requests, and the line that has it so.
fn open_devices(
    policy: &ResolvedPolicy,
    host: HostSupport,
) -> Option<(&'static str, Option<&Origin>)> {
    if host.nested {
        let message = "inside another run requests on devices are held by Landlock alone, which needs ABI 5 \
            (Linux 6.10): the program could set other terminals of this user, and control devices";
        return Some((message, None));
    }
    if !host.copies_descriptors {
        let message = "Landlock before ABI 5 (Linux 6.10) holds no requests on devices, and the broker cannot \
            either where pidfd_getfd(2) is refused: the program could set other terminals of this user, and \
            control devices that it may read";
        return Some((message, None));
    }
    let within = |rule: &Rule, place: &str| is_within(rule.place().as_bytes(), place.as_bytes());
    // What is mounted in there and holds files is repeated for a rule about something above.
    let is_repeated = |rule: &Rule| {
        let mut rules = policy.rules.iter().filter(|other| other.origin == rule.origin);
        rules.any(|other| !within(other, "/dev"))
    };
    let rule = policy.rules.iter().find(|rule| {
        rule.access == Access::Write
            && rule.effect == Effect::Allow
            && !rule.origin.is_built_in()
            && !matches!(rule.pattern, Pattern::Name(_))
            && within(rule, "/dev")
            && !["/dev/shm", TERMINALS].into_iter().any(|place| within(rule, place))
            && !is_repeated(rule)
    })?;
    let message = "Landlock before ABI 5 (Linux 6.10) cannot hold requests on one device and leave them open on \
        another: beside this one, the program could set other terminals of this user, and control devices that \
        it may read";
    Some((message, Some(&rule.origin)))
}

/// Inside another run there is no broker of ours, so a root that Landlock cannot grant whole is not
/// granted at all.
pub(super) fn not_granted(policy: &ResolvedPolicy, granted: &[String]) -> Option<Shortfall> {
    let lost = |rule: &&Rule| {
        let whole = matches!(&rule.pattern, Pattern::Subtree(path) if granted.contains(path));
        rule.access == Access::Write
            && rule.effect == Effect::Allow
            && !rule.origin.is_built_in()
            && !whole
    };
    let rule = policy.rules.iter().find(lost)?;
    let message = "inside another run only what Landlock can grant whole is granted: nothing, or only \
        a part, can be written here, since something in it is denied";
    Some(Shortfall {
        name: "nested",
        message: message.to_owned(),
        origin: Some(rule.origin.clone()),
        acceptable: true,
    })
}

/// For every line of the plan's policy, who holds it.
pub(super) fn lines(plan: &Plan, daemons: &Daemons) -> Vec<Line> {
    let granted = Granted {
        read: plan.kernel_read.iter().map(String::as_str).collect(),
        write: plan.kernel_write.iter().map(String::as_str).collect(),
    };
    let rules = plan.policy.rules.iter();
    let mut lines: Vec<Line> = rules.map(|rule| line(plan, &granted, rule)).collect();
    let network = &plan.policy.network;
    let mut add = |origin: &Origin, text: &str, held_by, note| {
        lines.push(Line { origin: origin.clone(), text: text.to_owned(), held_by, note });
    };
    if let Some(origin) = &network.allow_network_origin {
        let text = if network.allow_network { "true" } else { "false" };
        add(origin, text, Holder::Seccomp, None);
    }
    // Without a broker, these are what the outer one says, or shortfalls.
    if plan.broker {
        let fence = match plan.namespace {
            true => Holder::NamespaceAndBroker,
            false if plan.host.landlock_abi < TCP_ABI => Holder::Broker,
            false => Holder::LandlockAndBroker,
        };
        let found = if plan.namespace { FOUND } else { NOT_FOUND };
        sockets(network, daemons, (fence, found), &mut add);
    }
    lines.extend(limits::lines(&plan.policy.limits, plan.host));
    lines
}

/// The lines that a broker of ours holds.
fn sockets(
    network: &Network,
    daemons: &Daemons,
    (fence, found): (Holder, &'static str),
    add: &mut impl FnMut(&Origin, &str, Holder, Option<&'static str>),
) {
    let holder = if network.allow_network { Holder::Seccomp } else { fence };
    for port in network.host_ports().chain(&network.expose) {
        add(&port.origin, &port.typed(), holder, None);
    }
    if let Some(local) = &network.allow_local_binding {
        add(&local.origin, &local.value.to_string(), holder, None);
    }
    for entry in network.allowed_domains.iter().flatten() {
        let named = host::address(&entry.value).0.is_none();
        add(&entry.origin, &entry.typed(), Holder::Proxy, named.then_some(found));
    }
    for entry in network.denied_domains.iter().flatten() {
        add(&entry.origin, &entry.typed(), Holder::Proxy, None);
    }
    if let Some(variables) = &network.proxy_environment {
        add(&variables.origin, &variables.value.to_string(), Holder::Launcher, None);
    }
    for rule in &network.allow_unix_sockets {
        let daemon =
            matches!(&rule.pattern, Pattern::Subtree(path) if daemons.contains(path.as_bytes()));
        add(&rule.origin, &rule.text, Holder::Broker, daemon.then_some(AS_GOOD_AS_THE_HOST));
    }
    if let Some(all) = &network.allow_all_unix_sockets {
        add(&all.origin, &all.value.to_string(), Holder::Broker, None);
    }
}

/// How programs reach a host by its name, where the run has a network namespace.
pub const FOUND: &str = "every program finds the name, also one that heeds no variable for proxies";
/// The same without one.
pub const NOT_FOUND: &str = "only programs that heed the variables for proxies find the name: no network \
    namespace can be had here";

/// What is to be known of a line that names such a socket.
pub const AS_GOOD_AS_THE_HOST: &str = "whoever may connect to this socket can have a process started \
    outside of the sandbox: it is as good as the host";

/// What the kernel grants whole, in order, so that a policy of many lines is looked up quickly.
struct Granted<'a> {
    read: BTreeSet<&'a str>,
    write: BTreeSet<&'a str>,
}

fn line(plan: &Plan, granted: &Granted<'_>, rule: &Rule) -> Line {
    let note = match (&rule.pattern, rule.effect) {
        (Pattern::Glob(_), Effect::Deny) if rule.access == Access::Read => {
            Some("executing a file that matches is refused by name at the time of the call")
        }
        (Pattern::Name(_), _) => Some("the link itself may not be replaced"),
        (_, Effect::Allow) if rule.access == Access::Write => {
            let inside = |guard: &Rule| is_below(guard.place().as_bytes(), rule.place().as_bytes());
            let mut rules = plan.policy.rules.iter().filter(|rule| rule.guards_controls());
            rules.any(inside).then_some(NO_CONTROLS)
        }
        _ => None,
    };
    let (held_by, note) = match holder(granted, rule) {
        held_by if plan.broker => (held_by, note),
        Holder::Broker => (Holder::Landlock, Some(NOT_WHOLE)),
        _ => (Holder::Landlock, note),
    };
    let (origin, text) = (rule.origin.clone(), rule.text.clone());
    Line { origin, text, held_by, note }
}

/// What a rule about something above controls of the kernel leaves alone.
const NO_CONTROLS: &str = "not the controls of the kernel and the devices below (/proc, /sys, /dev): a rule \
    has to name a path among them";

/// Without a broker there are only grants of whole subtrees.
const NOT_WHOLE: &str = "inside another sandbox, nothing is granted by this line";

/// A denial is held by Landlock, since nothing that it denies is ever granted; the broker never opens
/// it and reports. A grant is Landlock's where it was granted whole.
fn holder(granted: &Granted<'_>, rule: &Rule) -> Holder {
    let held = match rule.access {
        Access::Read => &granted.read,
        Access::Write => &granted.write,
    };
    match (&rule.pattern, rule.effect) {
        (_, Effect::Deny) => Holder::LandlockAndBroker,
        (Pattern::Subtree(path), Effect::Allow) if held.contains(path.as_str()) => Holder::Landlock,
        (Pattern::Subtree(path), Effect::Allow) => {
            let below = format!("{}/", path.trim_end_matches('/'));
            match held.range(below.as_str()..).next() {
                Some(grant) if grant.starts_with(&below) => Holder::LandlockAndBroker,
                _ => Holder::Broker,
            }
        }
        (Pattern::Glob(_) | Pattern::Name(_), Effect::Allow) => Holder::Broker,
    }
}
