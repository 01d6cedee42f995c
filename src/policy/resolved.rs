//! A policy with every path resolved: what the later stages read.

use serde::{Deserialize, Serialize};

use super::document::{Ignored, Limits, Macos, NetworkDocument, Windows};
use super::rule::{Access, Effect, Located, Origin, Pattern, Rule};

/// A policy resolved against one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResolvedPolicy {
    /// The directory that the run starts in, without symbolic links.
    pub cwd: String,
    /// The rules about paths, in the order of the sections and of their entries.
    pub rules: Vec<Rule>,
    /// The rules about the network.
    pub network: Network,
    /// Resource ceilings.
    pub limits: Limits,
    /// What only macOS uses.
    pub macos: Macos,
    /// What only Windows uses.
    pub windows: Windows,
    /// Denied files that have more than one hard link. Their other names are unknown, so a kernel
    /// grant of a whole subtree may hold one of them: for that access nothing may be granted
    /// without asking the broker, which knows the file by its inode.
    pub linked: Vec<Linked>,
    /// What in the policy has no effect, and why that opens nothing.
    pub ignored: Vec<Ignored>,
}

impl ResolvedPolicy {
    /// Whether anything is denied for reading.
    pub fn restricts_reading(&self) -> bool {
        self.rules.iter().any(|rule| rule.access == Access::Read && rule.effect == Effect::Deny)
    }

    /// The directories and files that literal `allowWrite` entries open.
    pub fn write_roots(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(|rule| match &rule.pattern {
            Pattern::Subtree(path)
                if rule.access == Access::Write
                    && rule.effect == Effect::Allow
                    && !rule.origin.is_built_in() =>
            {
                Some(path.as_str())
            }
            _ => None,
        })
    }
}

/// What is said about the network. An absent value keeps its default, which its field names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Whether the network is left alone; unix-socket rules hold all the same.
    pub allow_network: bool,
    /// Where `allow_network` was set, if it was.
    pub allow_network_origin: Option<Origin>,
    /// Hosts that may be reached; `None`: not stated. An empty list means no host.
    pub allowed_domains: Option<Vec<Located<String>>>,
    /// Hosts that may not be reached; `None`: not stated.
    pub denied_domains: Option<Vec<Located<String>>>,
    /// Whether programs are told of the built-in proxy by variables of the environment; true by default.
    pub proxy_environment: Option<Located<bool>>,
    /// The port of an HTTP proxy on the host's loopback.
    pub http_proxy_port: Option<Located<u16>>,
    /// The port of a SOCKS proxy on the host's loopback.
    pub socks_proxy_port: Option<Located<u16>>,
    /// Ports of the host's loopback that may be connected to.
    pub host_ports: Vec<Located<u16>>,
    /// Ports that the program may serve on the host's loopback.
    pub expose: Vec<Located<u16>>,
    /// Whether loopback may be bound and connected to; false by default.
    pub allow_local_binding: Option<Located<bool>>,
    /// Sockets that may be connected to: rules that allow writing, a directory with its subtree.
    pub allow_unix_sockets: Vec<Rule>,
    /// Whether every unix socket may be connected to; false by default.
    pub allow_all_unix_sockets: Option<Located<bool>>,
}

impl Network {
    /// What `said` comes to but for its paths, which have to be looked up where they mean something.
    #[must_use]
    pub fn of(said: &NetworkDocument) -> Network {
        Network {
            allow_network: said.allow_network.as_ref().is_some_and(|said| said.value),
            allow_network_origin: said.allow_network.as_ref().map(|said| said.origin.clone()),
            allowed_domains: said.allowed_domains.clone(),
            denied_domains: said.denied_domains.clone(),
            proxy_environment: said.proxy_environment.clone(),
            http_proxy_port: said.http_proxy_port.clone(),
            socks_proxy_port: said.socks_proxy_port.clone(),
            host_ports: said.host_ports.clone(),
            expose: said.expose.clone(),
            allow_local_binding: said.allow_local_binding.clone(),
            allow_unix_sockets: Vec::new(),
            allow_all_unix_sockets: said.allow_all_unix_sockets.clone(),
        }
    }

    /// Whether the network is closed, and something on loopback open.
    pub fn opens_loopback(&self) -> bool {
        let local = self.allow_local_binding.as_ref().is_some_and(|local| local.value);
        let ports = self.host_ports().next().is_some() || !self.expose.is_empty();
        !self.allow_network && (local || ports)
    }

    /// Whether the network is closed, and some hosts open or named as closed.
    pub fn lists_hosts(&self) -> bool {
        !self.allow_network && (self.allowed_domains.is_some() || self.denied_domains.is_some())
    }

    /// The line that lists hosts although the network is open, where no list holds. An empty list of those that are
    /// allowed has none: then the line that opens the network.
    pub fn vain_list(&self) -> Option<&Origin> {
        let listed = [&self.allowed_domains, &self.denied_domains].into_iter().flatten().flatten();
        let listed = listed.map(|host| &host.origin);
        let empty = self.allowed_domains.as_ref().and(self.allow_network_origin.as_ref());
        listed.chain(empty).next().filter(|_| self.allow_network)
    }

    /// The ports of proxies, which are on the host's loopback, with the lines that say so.
    pub fn proxies(&self) -> impl Iterator<Item = &Located<u16>> {
        [&self.http_proxy_port, &self.socks_proxy_port].into_iter().flatten()
    }

    /// The ports of the host's loopback that may be connected to: those of proxies, and the others.
    pub fn host_ports(&self) -> impl Iterator<Item = &Located<u16>> {
        self.proxies().chain(&self.host_ports)
    }
}

/// A denied file with more than one hard link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    /// The access that is denied.
    pub access: Access,
    /// The file, by the name that the policy gives.
    pub path: String,
    /// The entry that denies it.
    pub origin: Origin,
}
