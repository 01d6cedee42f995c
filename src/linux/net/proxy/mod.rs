//! The domain proxy: HTTP, CONNECT and SOCKS on one port, and one decision for all of them.
//!
//! Every way to a host ends in [`Gate::open`]: it decides on the name, looks it up once, decides on each
//! address, and connects to one that passed. Nothing is asked of DNS about a name that may not be reached.

pub mod dns;
mod first;
mod http;
mod names;
mod socks;
mod synthetic;
mod tunnel;
mod upstream;
mod waiting;

use super::channel::{Channel, Client, Purpose, Reached, Refused};
use super::{Domains, Unlisted};
use crate::policy::endpoint::host_line;
use crate::policy::{Host, Hosts, Located, Origin, Reachable, Unreachable};
pub use names::{Local, Places, Resolver};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use upstream::Proxy;
pub use upstream::Upstream;
use waiting::Waiting;

/// How long one address has for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a client has for its first byte, and for a greeting.
const GREETING: Duration = Duration::from_secs(30);

/// Who asks, and how.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Its thread.
    pub task: i32,
    /// The protocol's name in records.
    pub protocol: &'static str,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Failed {
    /// The policy denies it; in words.
    Denied(String),
    /// The host has no address, or none answers.
    Unreachable(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Denied(why) | Failed::Unreachable(why) => f.write_str(why),
        }
    }
}

/// What the proxy works from.
pub struct Gate {
    hosts: Hosts,
    resolver: Resolver,
    places: Places,
    upstream: Upstream,
    unlisted: Unlisted,
    names: dns::Names,
    ports: Vec<u16>,
    channel: Arc<Channel>,
    waiting: Arc<Waiting>,
}

/// A client that waits for an answer about its host.
pub enum Asking<'a> {
    /// One of which nobody else reads; what it says meanwhile is kept.
    Read(&'a mut TcpStream, &'a mut Vec<u8>),
    /// One of which somebody else reads.
    Watched(&'a TcpStream),
}

impl Gate {
    /// A gate that holds what `domains` say.
    pub fn new(domains: Domains, channel: Arc<Channel>) -> Gate {
        let Domains { hosts, resolver, places, upstream, unlisted, ports } = domains;
        Gate {
            hosts,
            resolver,
            places,
            upstream,
            unlisted,
            names: dns::Names::default(),
            ports,
            channel,
            waiting: Arc::default(),
        }
    }

    /// Serves a connection from `from`, if it is one of the run.
    ///
    /// # Errors
    ///
    /// As either end has seen.
    pub async fn serve(self: Arc<Gate>, mut client: TcpStream, from: SocketAddr) -> io::Result<()> {
        let Some(Client { task, to, .. }) = self.channel.announced(from) else {
            return Ok(());
        };
        client.set_nodelay(true)?;
        match to {
            Purpose::Proxy => {
                let (place, lost) = self.waiting.enter();
                let serve = async {
                    let mut byte = [0];
                    let peeked = timeout(GREETING, client.peek(&mut byte)).await??;
                    match (peeked, byte[0]) {
                        (0, _) => Ok(()),
                        (_, socks::VERSION) => socks::serve(&self, client, task, place).await,
                        _ => http::serve(Arc::clone(&self), client, task, place).await,
                    }
                };
                tokio::select! {
                    served = serve => served,
                    () = lost.wait() => Ok(()),
                }
            }
            Purpose::Address(at) | Purpose::Opened(at) => {
                let asker = Asker { task, protocol: "tcp" };
                let host = match self.names.synthetic.name(at.ip()) {
                    Some(name) => Host::Name(name),
                    None => self.host_at(at),
                };
                let (to_host, mut said) = ((&host, at.port()), Vec::new());
                let opened = match to {
                    Purpose::Opened(_) => self.reach(asker, to_host, None).await,
                    _ => {
                        self.open(asker, to_host, Some(Asking::Read(&mut client, &mut said))).await
                    }
                };
                match opened {
                    Ok(server) => tunnel::run(&self, asker, (client, server), said, to_host).await,
                    Err(failed) => {
                        // Nothing else tells the program why.
                        if let Failed::Unreachable(why) = failed {
                            let why = format!("it is not reached: {why}");
                            self.refuse_because(asker, to_host, None, &why);
                        }
                        super::relay::reset(&client);
                        Ok(())
                    }
                }
            }
            Purpose::Names => dns::serve_stream(&self, client).await,
            Purpose::Host(port) => {
                super::relay::reset(&client);
                match self.ports.contains(&port) {
                    true => super::relay::to_host(client, port).await,
                    false => Ok(()),
                }
            }
        }
    }

    /// The host that is meant by an address: where that is not listed itself, one whose name hosts(5) has it for.
    fn host_at(&self, at: SocketAddr) -> Host {
        let (address, port) = (at.ip().to_canonical(), Some(at.port()));
        let itself = Host::Address(address);
        match (self.hosts.decide(&itself, port), self.places.get(&address)) {
            (Reachable::No(Unreachable::Unlisted, _), Some(names)) => {
                let is_open = |name: &&Host| self.is_open(name, at.port());
                names.iter().find(is_open).or(names.first()).cloned().unwrap_or(itself)
            }
            _ => itself,
        }
    }

    fn is_open(&self, host: &Host, port: u16) -> bool {
        matches!(self.hosts.decide(host, Some(port)), Reachable::Yes(_))
    }

    /// Whether hosts(5) has both names for one address: who may reach both at `port` may call the one by the other.
    fn are_one(&self, port: u16, names: [&Host; 2]) -> bool {
        names.into_iter().all(|name| self.is_open(name, port))
            && self.places.values().any(|of| names.into_iter().all(|name| of.contains(name)))
    }

    /// Connects to `host` at `port`, if it may be reached. A client that is `waiting` and goes away ends a
    /// question about it.
    ///
    /// # Errors
    ///
    /// Why not; a denial is on record then.
    pub async fn open(
        &self,
        asker: Asker,
        to: (&Host, u16),
        waiting: Option<Asking<'_>>,
    ) -> Result<TcpStream, Failed> {
        let entry = self.decide(asker, to, waiting).await?;
        self.reach(asker, to, entry).await
    }

    /// Connects to `host` at `port`, which `entry` or an answer opens.
    async fn reach(
        &self,
        asker: Asker,
        (host, port): (&Host, u16),
        entry: Option<&Located<String>>,
    ) -> Result<TcpStream, Failed> {
        if let Some(upstream) = self.upstream.of(host, port) {
            let connected = timeout(CONNECT, upstream.tunnel(host, port)).await;
            let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            return connected
                .map_err(|error| Failed::Unreachable(format!("{}: {error}", upstream.describe())));
        }
        let addresses = self.addresses(asker, host, port, entry).await?;
        let mut last = String::new();
        for address in addresses {
            match timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(server)) => {
                    let _ = server.set_nodelay(true);
                    return Ok(server);
                }
                Ok(Err(error)) => last = format!("{address}: {error}"),
                Err(_) => last = format!("{address}: no answer"),
            }
        }
        Err(Failed::Unreachable(last))
    }

    /// The same for one request of HTTP. Where that goes out by a proxy which takes such, the connection is
    /// to that proxy.
    ///
    /// # Errors
    ///
    /// As [`Gate::open`].
    async fn open_for_http(
        &self,
        asker: Asker,
        (host, port): (&Host, u16),
        waiting: Option<Asking<'_>>,
    ) -> Result<(TcpStream, Option<&Proxy>), Failed> {
        let Some(proxy) = self.upstream.of(host, port).filter(|proxy| proxy.is_http()) else {
            return Ok((self.open(asker, (host, port), waiting).await?, None));
        };
        self.decide(asker, (host, port), waiting).await?;
        let connected = proxy
            .connect()
            .await
            .map_err(|error| Failed::Unreachable(format!("{}: {error}", proxy.describe())))?;
        Ok((connected, Some(proxy)))
    }

    /// Decides about the host by what it is called; the entry that opens it, or none where an answer does.
    async fn decide(
        &self,
        asker: Asker,
        (host, port): (&Host, u16),
        waiting: Option<Asking<'_>>,
    ) -> Result<Option<&Located<String>>, Failed> {
        let (why, entry) = match self.hosts.decide(host, Some(port)) {
            Reachable::Yes(entry) => return Ok(Some(entry)),
            Reachable::No(why, entry) => (why, entry),
        };
        if self.unlisted == Unlisted::Learned {
            self.channel.tell_of(Reached { task: asker.task, host: host.to_string(), port });
            return Ok(None);
        }
        let unlisted = why == Unreachable::Unlisted;
        let refused = self.refused(asker, (host, port), entry, unlisted);
        if self.unlisted == Unlisted::Asked {
            let answer = self.channel.ask(refused);
            let allowed = match waiting {
                Some(client) => tokio::select! {
                    allowed = answer => allowed,
                    () = gone(client) => false,
                },
                None => answer.await,
            };
            if allowed {
                return Ok(None);
            }
        } else {
            self.channel.tell(refused);
        }
        let why = if unlisted { "no entry allows it" } else { "an entry denies it" };
        Err(Failed::Denied(format!("landstrip: {} is denied: {why}", host.with_port(port))))
    }

    /// The addresses of the host that a connection may go to.
    async fn addresses(
        &self,
        asker: Asker,
        host: &Host,
        port: u16,
        entry: Option<&Located<String>>,
    ) -> Result<Vec<SocketAddr>, Failed> {
        let found = match host {
            Host::Address(address) => return Ok(vec![(*address, port).into()]),
            Host::Name(name) => self.resolver.look_up(name).await,
        };
        let found = found.map_err(|error| Failed::Unreachable(format!("{host}: {error}")))?;
        if found.is_empty() {
            return Err(Failed::Unreachable(format!("{host}: no such host")));
        }
        if self.unlisted == Unlisted::Learned {
            return Ok(found.into_iter().map(|address| (address, port).into()).collect());
        }
        let answered = Located::new(host.to_string(), Origin::built_in("an answer"));
        let entry = entry.unwrap_or(&answered);
        let mut denied = None;
        let mut open = Vec::new();
        for address in found {
            match self.hosts.address(host, port, entry, address) {
                Reachable::Yes(_) => open.push(SocketAddr::new(address, port)),
                Reachable::No(why, entry) => denied = Some((address, why, entry)),
            }
        }
        let Some((address, why, entry)) = denied.filter(|_| open.is_empty()) else {
            return Ok(open);
        };
        let message = match why {
            Unreachable::Special(special) => format!(
                "{host} has the address {address}, {}: it has to be listed itself",
                special.as_str()
            ),
            _ => format!("{host} has the address {address}, which is denied"),
        };
        Err(self.refuse_because(asker, (host, port), entry, &message))
    }

    /// The refusal of a host by the lists: by `entry`, or because it is `unlisted`.
    fn refused(
        &self,
        asker: Asker,
        (host, port): (&Host, u16),
        entry: Option<&Located<String>>,
        unlisted: bool,
    ) -> Refused {
        let entry = entry.map(|entry| {
            let line = host_line(entry);
            (line.origin.clone(), line.value.to_string())
        });
        Refused { entry, unlisted, ..self.unread(asker, &host.to_string(), port, None) }
    }

    /// The refusal of what names no host: its text is shown in place of one.
    fn unread(&self, asker: Asker, text: &str, port: u16, message: Option<&str>) -> Refused {
        Refused {
            task: asker.task,
            asked_from: 0,
            protocol: asker.protocol.to_owned(),
            host: text.chars().take(255).collect(),
            port,
            entry: None,
            message: message.map(str::to_owned),
            unlisted: false,
        }
    }

    /// Puts on record that a connection to `host` is refused for another reason than what it is called.
    fn refuse_because(
        &self,
        asker: Asker,
        (host, port): (&Host, u16),
        entry: Option<&Located<String>>,
        why: &str,
    ) -> Failed {
        let refused = self.refused(asker, (host, port), entry, false);
        self.channel.tell(Refused { message: Some(why.to_owned()), ..refused });
        Failed::Denied(format!("landstrip: {} is denied: {why}", host.with_port(port)))
    }

    /// Puts on record that what a client says in a connection to `host` names another host.
    fn refuse_other(&self, asker: Asker, to: (&Host, u16), says: &str) -> Failed {
        self.refuse_because(asker, to, None, says)
    }

    /// Puts on record that a request names no host: its text is shown in place of one.
    fn refuse_text(&self, asker: Asker, text: &str, port: u16, why: &str) -> Failed {
        let refused = self.unread(asker, text, port, Some(why));
        let shown = refused.host.clone();
        self.channel.tell(refused);
        Failed::Denied(format!("landstrip: {shown:?} is denied: {why}"))
    }
}

/// Waits until a client that waits is gone. Who says no more than that it will say nothing more cannot be told
/// from it.
async fn gone(client: Asking<'_>) {
    match client {
        Asking::Read(client, said) => {
            while said.len() < first::MOST {
                if !matches!(client.read_buf(said).await, Ok(1..)) {
                    return;
                }
            }
        }
        Asking::Watched(client) => {
            if !matches!(client.peek(&mut [0]).await, Ok(1..)) {
                return;
            }
        }
    }
    std::future::pending().await
}
