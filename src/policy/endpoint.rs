//! The one meaning of the `network` section: which addresses may be connected to and bound, and which
//! Unix sockets may be connected to.

use std::fmt;
use std::net::IpAddr;

use super::daemon::Daemons;
use super::decide::Decider;
use super::hosts::{Host, Hosts, LOCALHOST, Reachable, Unreachable};
use super::resolved::Network;
use super::rule::{Access, Located, Origin, Pattern, Rule};

/// What is done with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Connecting to it.
    Connect,
    /// Binding a socket to it, or listening on it.
    Bind,
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To this host and no other: `127.0.0.0/8` and `::1`, also in the form `::ffff:127.0.0.1`.
    Loopback,
    /// `0.0.0.0` or `::`: bound, every address of this host; connected to, loopback (ip(7)).
    Unspecified,
    /// Anywhere else, addresses of this host's other interfaces included.
    Outside,
}

/// Where `address` leads.
pub fn reach(address: IpAddr) -> Reach {
    // `::ffff:1.2.3.4` is what the kernel takes it for, 1.2.3.4. No other form is: packets for
    // `::127.0.0.1` or a translator's prefix are routed like any other.
    let address = address.to_canonical();
    if address.is_loopback() {
        Reach::Loopback
    } else if address.is_unspecified() {
        Reach::Unspecified
    } else {
        Reach::Outside
    }
}

/// Whether ports of the host's loopback, those of proxies among them, are reached at `address`: 127.0.0.1 and
/// ::1, also as the address that stands for all (ip(7)). They are what is served in a network namespace of the
/// run's own, and a policy means the same without one.
pub fn has_host_ports(address: IpAddr) -> bool {
    let address = address.to_canonical();
    LOCALHOST.contains(&address) || address.is_unspecified()
}

/// Why an endpoint is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is not on loopback, and the network is not open.
    Network,
    /// It is on loopback, which is not open, or not at this port.
    Loopback,
    /// It is a host, and the policy lists hosts: another one, or one that is denied.
    Host,
    /// It is a Unix socket that no line opens.
    Unlisted,
    /// It is a Unix socket as good as the host, which only its own path opens.
    Daemon,
}

/// A line of a policy, as it was typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line<'a> {
    /// Where it stands.
    pub origin: &'a Origin,
    /// What it says.
    pub value: Value<'a>,
}

impl Line<'_> {
    /// Whether it is an entry of a list, and not a switch.
    pub fn is_entry(&self) -> bool {
        matches!(self.value, Value::Text(_))
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A switch.
    Flag(bool),
    /// A port.
    Port(u16),
    /// A path, or a port that was typed in another way.
    Text(&'a str),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => flag.fmt(f),
            Value::Port(port) => port.fmt(f),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// The answer about one endpoint, and the line that gave it, if any did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Passage<'a> {
    /// It may be used.
    Open(Option<Line<'a>>),
    /// It may not.
    Closed(Closed, Option<Line<'a>>),
}

impl<'a> Passage<'a> {
    /// Whether it may be used.
    pub fn is_open(&self) -> bool {
        matches!(self, Passage::Open(_))
    }

    /// The line that gave the answer.
    pub fn line(&self) -> Option<Line<'a>> {
        match *self {
            Passage::Open(line) | Passage::Closed(_, line) => line,
        }
    }
}

/// Answers what the `network` section of a policy means. Asking allocates nothing.
#[derive(Debug)]
pub struct Endpoints {
    open: bool,
    open_origin: Option<Origin>,
    local: Option<Located<bool>>,
    ports: Vec<Located<u16>>,
    exposed: Vec<Located<u16>>,
    hosts: Option<Hosts>,
    all_sockets: Option<Located<bool>>,
    sockets: Decider,
    daemons: Daemons,
}

impl Endpoints {
    /// For the section `network`; `daemons` are the sockets that nothing but their own path opens.
    pub fn new(network: &Network, daemons: Daemons) -> Endpoints {
        Endpoints {
            open: network.allow_network,
            open_origin: network.allow_network_origin.clone(),
            local: network.allow_local_binding.clone(),
            ports: network.host_ports().cloned().collect(),
            exposed: network.expose.clone(),
            hosts: Hosts::new(network),
            all_sockets: network.allow_all_unix_sockets.clone(),
            sockets: Decider::of_rules(network.allow_unix_sockets.clone()),
            daemons,
        }
    }

    /// Whether every address may be used.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether all of loopback may be used.
    pub fn is_local(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.value)
    }

    /// The line that opens or closes the network as a whole, if one does.
    pub fn network_line(&self) -> Option<Line<'_>> {
        self.open_origin.as_ref().map(|origin| Line { origin, value: Value::Flag(self.open) })
    }

    /// The sockets that are as good as the host.
    pub fn daemons(&self) -> &Daemons {
        &self.daemons
    }

    /// Decides about an internet address.
    pub fn internet(&self, using: Use, address: IpAddr, port: u16) -> Passage<'_> {
        if self.open {
            return Passage::Open(self.network_line());
        }
        if using == Use::Connect
            && let Some(listed) = self.listed(address, port)
        {
            return listed;
        }
        let unlisted = (using == Use::Connect && self.hosts.is_some()).then_some(Closed::Host);
        if reach(address) == Reach::Outside {
            return Passage::Closed(unlisted.unwrap_or(Closed::Network), self.network_line());
        }
        let local = self.local.as_ref().map(flag);
        if self.is_local() {
            return Passage::Open(local);
        }
        let on_host = using == Use::Connect && has_host_ports(address);
        let connects = self.ports.iter().filter(|_| on_host);
        match connects.chain(&self.exposed).find(|known| known.value == port) {
            Some(known) => {
                let value = known.text.as_deref().map_or(Value::Port(known.value), Value::Text);
                Passage::Open(Some(Line { origin: &known.origin, value }))
            }
            None => {
                let closed = unlisted.unwrap_or(Closed::Loopback);
                Passage::Closed(closed, local.or_else(|| self.network_line()))
            }
        }
    }

    /// What the lists of hosts say about connecting to an address, if they do. Where they open it, the
    /// domain proxy makes the connection.
    pub fn listed(&self, address: IpAddr, port: u16) -> Option<Passage<'_>> {
        if self.open {
            return None;
        }
        let host = Host::Address(address.to_canonical());
        match self.hosts.as_ref()?.decide(&host, Some(port)) {
            Reachable::No(Unreachable::Unlisted, _) => None,
            found => Some(passage(found)),
        }
    }

    /// Decides about a host that is known by its name; without a port, about any.
    pub fn name(&self, name: &Host, port: Option<u16>) -> Passage<'_> {
        match &self.hosts {
            _ if self.open => Passage::Open(self.network_line()),
            Some(hosts) => match hosts.decide(name, port) {
                Reachable::No(Unreachable::Unlisted, _) => {
                    Passage::Closed(Closed::Host, self.network_line())
                }
                found => passage(found),
            },
            None => Passage::Closed(Closed::Network, self.network_line()),
        }
    }

    /// The ports at which the lists open a host, where an entry for each port is all that does.
    pub fn ports_of(&self, host: &Host) -> Vec<u16> {
        match &self.hosts {
            Some(hosts) if !self.open => hosts.ports(host),
            _ => Vec::new(),
        }
    }

    /// Whether the policy says something about hosts.
    pub fn lists_hosts(&self) -> bool {
        self.hosts.is_some()
    }

    /// The ports of loopback that may be connected to although loopback is not open.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().chain(&self.exposed).map(|port| port.value)
    }

    /// Decides about a Unix socket that the run did not bind, by its canonical path.
    pub fn socket(&self, path: &[u8]) -> Passage<'_> {
        let exact = self.sockets.rules().iter().find(|rule| names(rule, path));
        if let Some(rule) = exact {
            return Passage::Open(Some(text(rule)));
        }
        if self.daemons.contains(path) {
            return Passage::Closed(Closed::Daemon, None);
        }
        if self.all_sockets.as_ref().is_some_and(|all| all.value) {
            return Passage::Open(self.all_sockets.as_ref().map(flag));
        }
        let verdict = self.sockets.decide(Access::Write, path);
        match verdict.rule() {
            Some(rule) if verdict.is_allowed() => Passage::Open(Some(text(rule))),
            _ => Passage::Closed(Closed::Unlisted, self.all_sockets.as_ref().map(flag)),
        }
    }

    /// Whether `path` is opened by its own name and not by a directory, a glob or all of them.
    pub fn names_socket(&self, path: &[u8]) -> bool {
        self.sockets.rules().iter().any(|rule| names(rule, path))
    }

    /// Whether places are listed whose sockets may be connected to.
    pub fn lists_sockets(&self) -> bool {
        !self.sockets.rules().is_empty()
    }

    /// Whether any socket of a process outside may be connected to by its path.
    pub fn opens_sockets(&self) -> bool {
        self.lists_sockets() || self.all_sockets.as_ref().is_some_and(|all| all.value)
    }

    /// The line that would open a socket for being moved or linked from `from` to `to`.
    pub fn socket_move(&self, from: &[u8], to: &[u8]) -> Option<&Rule> {
        if !self.lists_sockets() || self.socket(from).is_open() {
            return None;
        }
        let verdict = self.sockets.decide(Access::Write, to);
        verdict.rule().filter(|_| verdict.is_allowed())
    }

    /// The line about sockets that a symbolic link at `path` would lead elsewhere, see
    /// [`Decider::grant_name`].
    pub fn grant_name(&self, path: &[u8]) -> Option<&Rule> {
        self.sockets.grant_name(path)
    }

    /// The line that would open, or close, sockets in a directory that is moved from `from` to `to`.
    pub fn directory_move(&self, from: &[u8], to: &[u8]) -> Option<&Rule> {
        if !self.lists_sockets() {
            return None;
        }
        self.sockets.directory_move(from, to)
    }
}

/// The line that an entry of a list of hosts is.
pub fn host_line(entry: &Located<String>) -> Line<'_> {
    let text = entry.text.as_deref().unwrap_or(&entry.value);
    Line { origin: &entry.origin, value: Value::Text(text) }
}

fn passage(found: Reachable<'_>) -> Passage<'_> {
    match found {
        Reachable::Yes(entry) => Passage::Open(Some(host_line(entry))),
        Reachable::No(_, entry) => Passage::Closed(Closed::Host, entry.map(host_line)),
    }
}

fn names(rule: &Rule, path: &[u8]) -> bool {
    matches!(&rule.pattern, Pattern::Subtree(name) if name.as_bytes() == path)
}

fn flag(said: &Located<bool>) -> Line<'_> {
    Line { origin: &said.origin, value: Value::Flag(said.value) }
}

fn text(rule: &Rule) -> Line<'_> {
    Line { origin: &rule.origin, value: Value::Text(&rule.text) }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, MemoryTree, Place, merge, parse, resolve};
    use super::*;

    fn endpoints(network: &str) -> Endpoints {
        let text = format!(r#"{{"network": {network}}}"#);
        let policy = merge(vec![parse("p", text.as_bytes(), Format::Json).unwrap()]);
        let place = Place { cwd: "/w", home: Some("/home/u"), view: &MemoryTree::new() };
        Endpoints::new(&resolve(&policy, &place).unwrap().network, Daemons::default())
    }

    /// The key of the deciding line, with a `!` where it is closed; `-` for the default.
    fn said(passage: Passage<'_>) -> String {
        let key = passage.line().map_or("-".to_owned(), |l| l.origin.key.replace("network.", ""));
        match passage {
            Passage::Open(_) => key,
            Passage::Closed(why, _) => format!("!{key} {why:?}"),
        }
    }

    #[test]
    fn addresses_are_told_apart_by_where_they_lead() {
        for (address, expected) in [
            ("127.0.0.1", Reach::Loopback),
            ("127.255.255.255", Reach::Loopback),
            ("::1", Reach::Loopback),
            ("::ffff:127.0.0.1", Reach::Loopback),
            ("0.0.0.0", Reach::Unspecified),
            ("::", Reach::Unspecified),
            ("::ffff:0.0.0.0", Reach::Unspecified),
            ("0.0.0.1", Reach::Outside),
            ("126.255.255.255", Reach::Outside),
            ("128.0.0.0", Reach::Outside),
            ("::2", Reach::Outside),
            ("::127.0.0.1", Reach::Outside),
            ("64:ff9b::7f00:1", Reach::Outside),
            ("2002:7f00:1::", Reach::Outside),
            ("::ffff:0:127.0.0.1", Reach::Outside),
            ("fe80::1", Reach::Outside),
            ("ff01::1", Reach::Outside),
            ("::ffff:10.0.0.1", Reach::Outside),
            ("255.255.255.255", Reach::Outside),
        ] {
            assert_eq!(reach(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn loopback_opens_by_a_switch_or_a_port() {
        let local = r#"{"allowLocalBinding": true}"#;
        let proxy = r#"{"httpProxyPort": 3128, "socksProxyPort": 1080}"#;
        let ports = r#"{"hostPorts": [5432], "expose": [80, 8080]}"#;
        let hosts = r#"{"allowedDomains": ["1.2.3.4", "localhost:80"], "deniedDomains": ["[::1]:82"],
            "allowLocalBinding": true}"#;
        for (network, using, address, port, expected) in [
            ("{}", Use::Connect, "127.0.0.1", 80, "!- Loopback"),
            ("{}", Use::Connect, "1.2.3.4", 80, "!- Network"),
            (r#"{"allowNetwork": false}"#, Use::Bind, "1.2.3.4", 1, "!allowNetwork Network"),
            (r#"{"allowNetwork": false}"#, Use::Connect, "::1", 1, "!allowNetwork Loopback"),
            (r#"{"allowNetwork": true}"#, Use::Bind, "1.2.3.4", 1, "allowNetwork"),
            (local, Use::Connect, "127.9.9.9", 80, "allowLocalBinding"),
            (local, Use::Connect, "::ffff:127.0.0.1", 80, "allowLocalBinding"),
            (local, Use::Connect, "0.0.0.0", 80, "allowLocalBinding"),
            (local, Use::Bind, "::", 0, "allowLocalBinding"),
            (local, Use::Bind, "192.168.0.1", 0, "!- Network"),
            (local, Use::Connect, "192.168.0.1", 80, "!- Network"),
            (proxy, Use::Connect, "127.0.0.1", 3128, "httpProxyPort"),
            (proxy, Use::Connect, "::1", 1080, "socksProxyPort"),
            (proxy, Use::Connect, "127.0.0.1", 3129, "!- Loopback"),
            (proxy, Use::Connect, "10.0.0.1", 3128, "!- Network"),
            (proxy, Use::Bind, "127.0.0.1", 3128, "!- Loopback"),
            (r#"{"allowLocalBinding": false}"#, Use::Bind, "::1", 1, "!allowLocalBinding Loopback"),
            (ports, Use::Connect, "127.0.0.1", 5432, "hostPorts[0]"),
            (ports, Use::Connect, "0.0.0.0", 5432, "hostPorts[0]"),
            (ports, Use::Connect, "::ffff:127.0.0.1", 5432, "hostPorts[0]"),
            (ports, Use::Connect, "127.0.0.2", 5432, "!- Loopback"),
            (ports, Use::Connect, "::ffff:127.0.0.2", 5432, "!- Loopback"),
            (ports, Use::Connect, "127.0.0.2", 8080, "expose[1]"),
            (ports, Use::Bind, "127.0.0.1", 5432, "!- Loopback"),
            (ports, Use::Bind, "0.0.0.0", 8080, "expose[1]"),
            (ports, Use::Connect, "::1", 8080, "expose[1]"),
            (ports, Use::Connect, "10.0.0.1", 8080, "!- Network"),
            (ports, Use::Bind, "127.0.0.1", 0, "!- Loopback"),
            (hosts, Use::Connect, "::ffff:1.2.3.4", 1, "allowedDomains[0]"),
            (hosts, Use::Bind, "1.2.3.4", 1, "!- Network"),
            (hosts, Use::Connect, "1.2.3.5", 1, "!- Host"),
            (hosts, Use::Connect, "127.0.0.1", 80, "allowedDomains[1]"),
            (hosts, Use::Connect, "127.0.0.1", 81, "allowLocalBinding"),
            (hosts, Use::Connect, "::1", 82, "!deniedDomains[0] Host"),
            (r#"{"deniedDomains": []}"#, Use::Connect, "::1", 1, "!- Host"),
        ] {
            let endpoints = endpoints(network);
            let passage = endpoints.internet(using, address.parse().unwrap(), port);
            assert_eq!(said(passage), expected, "{network} {using:?} {address} {port}");
        }
    }

    #[test]
    fn sockets_open_by_a_list_or_a_switch() {
        let list =
            r#"{"allowUnixSockets": ["run", "/run", "/tmp/ssh-*/agent.*", "/run/docker.sock"]}"#;
        let all = r#"{"allowAllUnixSockets": true, "allowUnixSockets": ["/run/user/7/bus"]}"#;
        for (network, path, expected) in [
            ("{}", "/run/x", "!- Unlisted"),
            (list, "/w/run/a/b", "allowUnixSockets[0]"),
            (list, "/w/runx", "!- Unlisted"),
            (list, "/run/postgresql/s", "allowUnixSockets[1]"),
            (list, "/tmp/ssh-1/agent.2", "allowUnixSockets[2]"),
            (list, "/run/docker.sock", "allowUnixSockets[3]"),
            (list, "/run/dbus/system_bus_socket", "!- Daemon"),
            (list, "/w/run/docker.sock", "!- Daemon"),
            (all, "/anything", "allowAllUnixSockets"),
            (all, "/run/user/7/bus", "allowUnixSockets[0]"),
            (all, "/run/user/8/bus", "!- Daemon"),
        ] {
            assert_eq!(said(endpoints(network).socket(path.as_bytes())), expected, "{path}");
        }
    }

    #[test]
    fn moves_that_would_open_a_socket_are_found() {
        let list = endpoints(r#"{"allowUnixSockets": ["run", "a.sock"]}"#);
        for (from, to, expected) in [
            ("/w/x", "/w/run/x", true),
            ("/w/x", "/w/a.sock", true),
            ("/w/run/x", "/w/a.sock", false),
            ("/w/run/x", "/w/x", false),
            ("/w/x", "/w/y", false),
        ] {
            let found = list.socket_move(from.as_bytes(), to.as_bytes());
            assert_eq!(found.is_some(), expected, "{from} {to}");
        }
        assert!(list.directory_move(b"/w/d", b"/w/run/d").is_some());
        assert!(list.directory_move(b"/w/d", b"/w/e").is_none());
        assert!(endpoints("{}").directory_move(b"/w/d", b"/w/run/d").is_none());
    }
}
