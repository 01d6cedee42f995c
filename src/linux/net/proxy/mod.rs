//! The domain proxy: HTTP, CONNECT and SOCKS on one port, and one decision for all of them.
//!
//! Every way to a host ends in [`Gate::open`]: it decides on the name, looks it up once, decides on each
//! address, and connects to one that passed. Nothing is asked of DNS about a name that may not be reached.

mod first;
mod http;
mod names;
mod socks;
mod tunnel;
mod upstream;
mod waiting;

use super::channel::{Channel, Client, Purpose, Refused};
use crate::policy::endpoint::host_line;
use crate::policy::{Host, Hosts, Located, Reachable, Unreachable};
pub use names::Resolver;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
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
    upstream: Upstream,
    channel: Arc<Channel>,
    waiting: Arc<Waiting>,
}

impl Gate {
    /// A gate that holds `hosts`.
    pub fn new(
        hosts: Hosts,
        resolver: Resolver,
        upstream: Upstream,
        channel: Arc<Channel>,
    ) -> Gate {
        Gate { hosts, resolver, upstream, channel, waiting: Arc::default() }
    }

    /// Serves a connection from `from`, if it is one of the run.
    ///
    /// # Errors
    ///
    /// As either end has seen.
    pub async fn serve(self: Arc<Gate>, client: TcpStream, from: SocketAddr) -> io::Result<()> {
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
            Purpose::Address(to) => {
                let asker = Asker { task, protocol: "tcp" };
                let host = Host::Address(to.ip().to_canonical());
                match self.open(asker, &host, to.port()).await {
                    Ok(server) => {
                        tunnel::run(&self, asker, (client, server), Vec::new(), (&host, to.port()))
                            .await
                    }
                    Err(_) => {
                        super::relay::reset(&client);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Connects to `host` at `port`, if it may be reached.
    ///
    /// # Errors
    ///
    /// Why not; a denial is on record then.
    pub async fn open(&self, asker: Asker, host: &Host, port: u16) -> Result<TcpStream, Failed> {
        let entry = self.decide(asker, host, port)?;
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
        host: &Host,
        port: u16,
    ) -> Result<(TcpStream, Option<&Proxy>), Failed> {
        let Some(proxy) = self.upstream.of(host, port).filter(|proxy| proxy.is_http()) else {
            return Ok((self.open(asker, host, port).await?, None));
        };
        self.decide(asker, host, port)?;
        let connected = proxy
            .connect()
            .await
            .map_err(|error| Failed::Unreachable(format!("{}: {error}", proxy.describe())))?;
        Ok((connected, Some(proxy)))
    }

    /// Decides about the host by what it is called.
    fn decide(&self, asker: Asker, host: &Host, port: u16) -> Result<&Located<String>, Failed> {
        match self.hosts.decide(host, Some(port)) {
            Reachable::Yes(entry) => Ok(entry),
            Reachable::No(why, entry) => {
                let unlisted = why == Unreachable::Unlisted;
                let text = if unlisted { "no entry allows it" } else { "an entry denies it" };
                Err(self.refuse(asker, (host, port), entry, unlisted, None, text))
            }
        }
    }

    /// The addresses of the host that a connection may go to.
    async fn addresses(
        &self,
        asker: Asker,
        host: &Host,
        port: u16,
        entry: &Located<String>,
    ) -> Result<Vec<SocketAddr>, Failed> {
        let found = match host {
            Host::Address(address) => return Ok(vec![(*address, port).into()]),
            Host::Name(name) => self.resolver.look_up(name).await,
        };
        let found = found.map_err(|error| Failed::Unreachable(format!("{host}: {error}")))?;
        if found.is_empty() {
            return Err(Failed::Unreachable(format!("{host}: no such host")));
        }
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
        let text = message.clone();
        Err(self.refuse(asker, (host, port), entry, false, Some(message), &text))
    }

    /// Puts a refusal on record.
    fn refuse(
        &self,
        asker: Asker,
        (host, port): (&Host, u16),
        entry: Option<&Located<String>>,
        unlisted: bool,
        message: Option<String>,
        why: &str,
    ) -> Failed {
        let entry = entry.map(|entry| {
            let line = host_line(entry);
            (line.origin.clone(), line.value.to_string())
        });
        self.channel.tell(&Refused {
            task: asker.task,
            protocol: asker.protocol.to_owned(),
            host: host.to_string(),
            port,
            entry,
            message,
            unlisted,
        });
        Failed::Denied(format!("landstrip: {} is denied: {why}", host.with_port(port)))
    }

    /// Puts on record that what a client says in a connection to `host` names another host.
    fn refuse_other(&self, asker: Asker, to: (&Host, u16), says: &str) -> Failed {
        self.refuse(asker, to, None, false, Some(says.to_owned()), says)
    }

    /// Puts on record that a request names no host: its text is shown in place of one.
    fn refuse_text(&self, asker: Asker, text: &str, port: u16, why: &str) -> Failed {
        let shown: String = text.chars().take(255).collect();
        self.channel.tell(&Refused {
            task: asker.task,
            protocol: asker.protocol.to_owned(),
            host: shown.clone(),
            port,
            entry: None,
            message: Some(why.to_owned()),
            unlisted: false,
        });
        Failed::Denied(format!("landstrip: {shown:?} is denied: {why}"))
    }
}
