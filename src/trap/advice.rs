//! Which entry of a policy would allow what was denied, if one would.
//!
//! A suggestion is a promise: with that entry added and nothing else changed, the same call passes. So
//! whoever refuses a call says all that stands against it, and where an entry would not do, the record
//! says why instead.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::{Grant, Operation};
use crate::plan::TEMPORARY;
use crate::policy::endpoint::{Line, has_host_ports};
use crate::policy::path::{MAX_PATH_BYTES, is_within};
use crate::policy::{
    Access, Closed, Decider, Effect, FsView, Pattern, ResolvedPolicy, Rule, Use, Verdict,
    git_dir_rules, host,
};

/// A denial by the rules about paths.
#[derive(Clone, Copy, Debug)]
pub struct Denied<'a> {
    /// What was tried.
    pub operation: Operation,
    /// The path that is denied, absolute and free of links.
    pub path: &'a [u8],
    /// The rule that denies it; none where nothing allows it.
    pub rule: Option<&'a Rule>,
    /// What else the call needs and the policy denies.
    pub others: &'a [(Access, Vec<u8>)],
    /// The path is that of a symbolic link, or will be.
    pub link: bool,
}

/// Why no entry of a policy allows what was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The rule is in a tier that nothing re-opens.
    Always,
    /// The rule is about this very path, where denying wins.
    Named,
    /// The path is that of a link on the way to what the rule denies.
    OnTheWay,
    /// The path is that of a link, and an entry means what a link leads to.
    Link,
    /// The path cannot be written in a policy.
    NotText,
    /// The path names a process by its number.
    Process,
    /// The path lies in the temporary directory of the run.
    Temporary,
    /// It is open in every run as it is, and may not be changed.
    BuiltIn,
    /// It is closed in every run that does not name it.
    Unnamed,
    /// The policy that is attached to the program decides.
    Attached,
    /// One entry is not enough: these are needed besides.
    More(Vec<(Access, String)>),
    /// Loopback is open for TCP, and can be for nothing else.
    LoopbackOnly,
    /// The socket is as good as the host: whoever wants that names it unprompted.
    Daemon,
    /// The host is in the list that wins over every other.
    DeniedHost,
    /// Hosts are listed, and opening the whole network beside a list of hosts is refused.
    Listed,
    /// No list of hosts can name this: an address of one interface, or port 0.
    NotHost,
    /// It is on loopback, and which port is meant is not said.
    NoPort,
    /// Ports of the host are at other addresses of loopback, and hosts cannot be listed beside a proxy's port.
    BesideProxy,
    /// UDP, for which hosts cannot be told apart: it is opened for the sake of a few names.
    Names,
    /// UDP, where names are looked up by a proxy.
    NamesByProxy,
}

impl Obstacle {
    /// In words, for the `message` of a record.
    #[must_use]
    pub fn why(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Obstacle::Always => "no other rule and no answer opens what this list denies",
            Obstacle::Named => "the rule names this very path, where denying wins",
            Obstacle::OnTheWay => "the rule denies something that this link leads to",
            Obstacle::Link => {
                "an entry for a link means what it leads to: only one for the directory that holds \
                    it would allow this"
            }
            Obstacle::NotText => "a path that is too long or not UTF-8 cannot stand in a policy",
            Obstacle::Process => "the path holds the number of a process, another one each time",
            Obstacle::Temporary => "the temporary directory has another name in each run",
            Obstacle::BuiltIn => "what is open in every run can be used, and not changed",
            Obstacle::Unnamed => {
                "it is as good as the host: only an entry with its own path opens it"
            }
            Obstacle::Attached => {
                "the policy attached to the program decides, and may only tighten"
            }
            Obstacle::LoopbackOnly => "only TCP can be kept on loopback",
            Obstacle::DeniedHost => "what `deniedDomains` names, no entry opens",
            Obstacle::Listed => {
                "hosts are listed, and `allowNetwork` beside `allowedDomains` or `deniedDomains` is refused"
            }
            Obstacle::NotHost => "no entry of `allowedDomains` can name this address and port",
            Obstacle::NoPort => {
                "no port is named: `hostPorts` opens ports of the host one by one, and \
                    `allowLocalBinding` those that the run serves itself"
            }
            Obstacle::BesideProxy => {
                "`hostPorts` is about 127.0.0.1 and ::1, and another address cannot be listed beside \
                    a proxy's port"
            }
            Obstacle::Names => {
                "without UDP no name is looked up: list the hosts that are needed in \
                    network.allowedDomains, whose names are answered then; network.allowNetwork \
                    opens UDP, and everything else"
            }
            Obstacle::NamesByProxy => {
                "no host is reached by UDP: the proxy looks names up, for programs that it is named \
                    to (HTTPS_PROXY)"
            }
            Obstacle::Daemon => "this socket is as good as the host: only its own path opens it",
            Obstacle::More(others) => {
                let word = |access: &Access| match access {
                    Access::Read => "reading",
                    Access::Write => "writing",
                };
                let others: Vec<_> = others
                    .iter()
                    .map(|(access, path)| format!("{} {path}", word(access)))
                    .collect();
                let others = others.join(" and ");
                return format!("one entry is not enough: the call also needs {others}").into();
            }
        })
    }
}

/// Finds the entry that would allow what the policy of a run denies.
#[derive(Debug, Default)]
pub struct Adviser {
    /// What `filesystem.gitDir` would add.
    git_dir: Vec<Rule>,
    with_git_dir: OnceLock<Decider>,
    /// What the policy attached to the program says about paths, if there is one.
    own: Option<Decider>,
    /// It lists what may be written.
    own_writes: bool,
    /// It says something about the network.
    own_network: bool,
    /// It lists Unix sockets.
    own_sockets: bool,
    /// Loopback, or some port of it, is open.
    loopback: bool,
    /// Hosts are listed.
    hosts: bool,
    /// Ports of proxies are named, beside which no list of hosts is held.
    proxies: bool,
    /// It is about a program of a container.
    container: bool,
}

impl Adviser {
    /// An adviser about `policy`, resolved against `view`.
    #[must_use]
    pub fn new(policy: &ResolvedPolicy, view: &dyn FsView) -> Adviser {
        let network = &policy.network;
        let attached = policy.rules.iter().filter(|rule| rule.origin.is_attached());
        let attached: Vec<Rule> = attached.cloned().collect();
        let allows = |rule: &Rule| rule.access == Access::Write && rule.effect == Effect::Allow;
        let said = [&network.allow_local_binding, &network.allow_all_unix_sockets];
        let said = said.into_iter().flatten().map(|said| &said.origin);
        let domains = [&network.allowed_domains, &network.denied_domains];
        let domains = domains.into_iter().flatten().flatten().map(|domain| &domain.origin);
        let ports = network.host_ports().chain(&network.expose).map(|port| &port.origin);
        Adviser {
            git_dir: git_dir_rules(policy, view),
            with_git_dir: OnceLock::new(),
            own_writes: attached.iter().any(allows),
            own: (!attached.is_empty()).then(|| Decider::of_rules(attached)),
            own_network: (said.chain(&network.allow_network_origin).chain(domains).chain(ports))
                .any(|origin| origin.is_attached()),
            own_sockets: network.allow_unix_sockets.iter().any(|rule| rule.origin.is_attached()),
            loopback: network.allow_local_binding.as_ref().is_some_and(|local| local.value)
                || network.host_ports().chain(&network.expose).next().is_some(),
            hosts: network.lists_hosts(),
            proxies: network.proxies().next().is_some(),
            container: false,
        }
    }

    /// The same about a program of a container, where loopback is the container's, and where hosts and ports
    /// of the host are opened by what the operator says.
    #[must_use]
    pub fn in_container(self, container: bool) -> Adviser {
        Adviser { container, ..self }
    }

    /// The entry that would allow what `decider`, which decides for the run, denies.
    ///
    /// # Errors
    ///
    /// Why none does.
    pub fn path(&self, decider: &Decider, denied: &Denied<'_>) -> Result<Grant, Obstacle> {
        let access = match denied.operation {
            Operation::Write => Access::Write,
            _ => Access::Read,
        };
        let text = std::str::from_utf8(denied.path).map_err(|_| Obstacle::NotText)?;
        if !text.starts_with('/') || text.len() > MAX_PATH_BYTES {
            return Err(Obstacle::NotText);
        }
        if decider.decide(access, denied.path).is_allowed() {
            return Err(Obstacle::BuiltIn);
        }
        if self.is_attached(access, denied.path) {
            return Err(Obstacle::Attached);
        }
        if access == Access::Write && self.by_git_dir(decider, denied) {
            return Ok(Grant::git_dir());
        }
        if let Some(obstacle) = obstacle(decider, access, text, denied) {
            return Err(obstacle);
        }
        let key = if access == Access::Read { "allowRead" } else { "allowWrite" };
        Ok(Grant::path("filesystem", key, text))
    }

    /// The entry that would open an endpoint that is `closed` for `using`, by `line` where one says so; `path`
    /// is that of a Unix socket, or the host and port.
    ///
    /// # Errors
    ///
    /// Why none does.
    pub fn endpoint(
        &self,
        (using, closed): (Use, Closed),
        line: Option<Line<'_>>,
        path: &str,
    ) -> Result<Grant, Obstacle> {
        let connects = using == Use::Connect && !self.container;
        let attached = line.is_some_and(|line| line.origin.is_attached());
        match closed {
            Closed::Daemon => Err(Obstacle::Daemon),
            Closed::Unlisted if attached || self.own_sockets => Err(Obstacle::Attached),
            Closed::Network | Closed::Loopback | Closed::Host if attached || self.own_network => {
                Err(Obstacle::Attached)
            }
            // The line is an entry where one denies, and else that of the network as a whole.
            Closed::Host if line.is_some_and(|line| line.is_entry()) => Err(Obstacle::DeniedHost),
            Closed::Host => listable(path),
            Closed::Network if connects && !self.proxies => {
                listable(path).or_else(|_| self.whole_network())
            }
            Closed::Network => self.whole_network(),
            // In a namespace of the run's own, which the switch brings, is nothing of the host.
            Closed::Loopback if connects => self.on_host(path),
            Closed::Loopback => Ok(Grant::switch("allowLocalBinding")),
            Closed::Unlisted if path.starts_with('/') && !path.contains('\u{fffd}') => {
                Ok(Grant::path("network", "allowUnixSockets", path))
            }
            Closed::Unlisted => Err(Obstacle::NotText),
        }
    }

    /// The entry that opens everything.
    fn whole_network(&self) -> Result<Grant, Obstacle> {
        match self.hosts {
            true => Err(Obstacle::Listed),
            false => Ok(Grant::switch("allowNetwork")),
        }
    }

    /// The entry that would open a server on the host's loopback, by its address and port.
    fn on_host(&self, target: &str) -> Result<Grant, Obstacle> {
        match host::address(target) {
            (Some(address), Some(port)) if has_host_ports(address) => Ok(Grant::host_port(port)),
            (Some(_), None) => Err(Obstacle::NoPort),
            _ if self.proxies => Err(Obstacle::BesideProxy),
            _ => listable(target),
        }
    }

    /// Why no entry allows a UDP socket, which `line` closes, where one does: the one that would opens the
    /// whole network, and names are nearly always all that is wanted.
    #[must_use]
    pub fn udp(&self, line: Option<Line<'_>>) -> Obstacle {
        match () {
            () if self.own_network || line.is_some_and(|line| line.origin.is_attached()) => {
                Obstacle::Attached
            }
            () if self.hosts || self.proxies => Obstacle::NamesByProxy,
            () => Obstacle::Names,
        }
    }

    /// The entry that would allow an internet socket of another kind than TCP and UDP, which `line` closes,
    /// where one does. Where a policy opens loopback, opening everything is not what it is after.
    ///
    /// # Errors
    ///
    /// Why none does.
    pub fn beyond_tcp(&self, line: Option<Line<'_>>) -> Result<Grant, Obstacle> {
        match self.loopback {
            true => Err(Obstacle::LoopbackOnly),
            false => self.endpoint((Use::Bind, Closed::Network), line, ""),
        }
    }

    /// The entry that would allow a Unix datagram socket.
    ///
    /// # Errors
    ///
    /// Why none does.
    pub fn unix_datagrams(&self) -> Result<Grant, Obstacle> {
        match self.network_is_attached() {
            true => Err(Obstacle::Attached),
            false => Ok(Grant::switch("allowAllUnixSockets")),
        }
    }

    /// Whether the policy attached to the program says something about the network.
    #[must_use]
    pub fn network_is_attached(&self) -> bool {
        self.own_network || self.own_sockets
    }

    /// Whether an entry in a policy of the run would be overruled by that of the program.
    #[must_use]
    pub fn is_attached(&self, access: Access, path: &[u8]) -> bool {
        let Some(own) = &self.own else { return false };
        match own.decide(access, path) {
            Verdict::Allow(_) => false,
            Verdict::Deny { rule: Some(_), .. } => true,
            // Its list takes the place of that of the run.
            Verdict::Deny { rule: None, .. } => self.own_writes,
        }
    }

    /// Whether `filesystem.gitDir` would allow all that the call needs.
    fn by_git_dir(&self, decider: &Decider, denied: &Denied<'_>) -> bool {
        let concerns = |rule: &Rule| match &rule.pattern {
            Pattern::Subtree(top) => is_within(denied.path, top.as_bytes()),
            _ => false,
        };
        if !self.git_dir.iter().any(concerns) {
            return false;
        }
        let with = self.with_git_dir.get_or_init(|| {
            let rules = decider.rules().iter().chain(&self.git_dir);
            Decider::of_rules(rules.cloned().collect())
        });
        with.decide(Access::Write, denied.path).is_allowed()
            && denied.others.iter().all(|(access, path)| with.decide(*access, path).is_allowed())
    }
}

/// The entry for a host, at a port where it ends in one.
fn listable(target: &str) -> Result<Grant, Obstacle> {
    match host::check(target) {
        Ok(_) => Ok(Grant::host(target)),
        Err(_) => Err(Obstacle::NotHost),
    }
}

/// What keeps an entry for the path itself from being enough.
fn obstacle(
    decider: &Decider,
    access: Access,
    path: &str,
    denied: &Denied<'_>,
) -> Option<Obstacle> {
    if let Some(rule) = denied.rule {
        match &rule.pattern {
            _ if rule.always => return Some(Obstacle::Always),
            // Any entry among controls takes its place.
            _ if rule.guards_controls() => {}
            _ if rule.origin.is_built_in() => return Some(Obstacle::Unnamed),
            Pattern::Name(_) => return Some(Obstacle::OnTheWay),
            Pattern::Subtree(named) if named == path && access == Access::Write => {
                return Some(Obstacle::Named);
            }
            _ => {}
        }
    }
    if denied.link {
        return Some(Obstacle::Link);
    }
    if !denied.others.is_empty() {
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        let others = denied.others.iter().map(|(access, path)| (*access, text(path)));
        return Some(Obstacle::More(others.collect()));
    }
    if names_process(path) {
        return Some(Obstacle::Process);
    }
    let temporary = decider.rules().iter().any(|rule| {
        rule.origin.is_built_in()
            && rule.origin.key == TEMPORARY
            && matches!(&rule.pattern, Pattern::Subtree(top) if is_within(path.as_bytes(), top.as_bytes()))
    });
    temporary.then_some(Obstacle::Temporary)
}

/// Whether `path` lies in the directory of one process in procfs.
fn names_process(path: &str) -> bool {
    let number = path.strip_prefix("/proc/").and_then(|rest| rest.split('/').next());
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}
