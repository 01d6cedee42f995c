//! A connection that was opened for a host: its first bytes must not name another one.

use super::first::{self, First};
use super::{Asker, Gate};
use crate::linux::net::relay;
use crate::policy::{Host, Reachable, Unreachable};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a client has for the rest of what it began to say.
const REST: Duration = Duration::from_secs(10);

/// Joins a client with the server at `to`; `said` is what the client has said already.
///
/// # Errors
///
/// As either end has seen.
pub async fn run(
    gate: &Gate,
    asker: Asker,
    (mut client, mut server): (TcpStream, TcpStream),
    mut said: Vec<u8>,
    to: (&Host, u16),
) -> io::Result<()> {
    relay::keep_urgent(&client)?;
    relay::keep_urgent(&server)?;
    pass_over_blank(&mut said, &mut server).await?;
    let mut settled = first::look(&said);
    // A server may speak first.
    let mut greeting = [0; 4096];
    let mut greets = true;
    let mut unfinished = None;
    while settled == First::More {
        let step = async {
            tokio::select! {
                read = client.read_buf(&mut said) => read.map(|read| (read, true)),
                read = server.read(&mut greeting), if greets => read.map(|read| (read, false)),
            }
        };
        let step = match &mut unfinished {
            None => Some(step.await),
            Some((_place, rest)) => tokio::select! {
                step = step => Some(step),
                () = rest => None,
            },
        };
        let Some(step) = step else {
            gate.refuse_other(asker, to, "its first bytes have no end");
            relay::reset(&client);
            return Ok(());
        };
        let (read, from_client) = step?;
        pass_over_blank(&mut said, &mut server).await?;
        if !said.is_empty() && unfinished.is_none() {
            let (place, lost) = gate.waiting.enter();
            let rest = async {
                let _ = timeout(REST, lost.wait()).await;
            };
            unfinished = Some((place, Box::pin(rest)));
        }
        settled = match (read, from_client) {
            (0, true) => first::look_at_all(&said),
            (_, true) => first::look(&said),
            (0, false) => {
                greets = false;
                client.shutdown().await?;
                First::More
            }
            (_, false) => {
                client.write_all(&greeting[..read]).await?;
                First::More
            }
        };
    }
    let says = match settled {
        First::More | First::Nothing => None,
        First::Bad(why) => Some(why.to_owned()),
        First::Names(name) => disagrees(gate, to, &name),
    };
    if let Some(says) = says {
        gate.refuse_other(asker, to, &says);
        relay::reset(&client);
        return Ok(());
    }
    drop(unfinished);
    server.write_all(&said).await?;
    drop(said);
    relay::join(&client, &server).await
}

/// Passes on what servers pass over before a request: ends of lines.
async fn pass_over_blank(said: &mut Vec<u8>, server: &mut TcpStream) -> io::Result<()> {
    let blank = said.iter().take_while(|byte| b"\r\n".contains(byte)).count();
    if blank > 0 {
        server.write_all(&said[..blank]).await?;
        said.drain(..blank);
    }
    Ok(())
}

/// What is wrong with a connection to `host` in which the client names `name`, if anything.
fn disagrees(gate: &Gate, (host, port): (&Host, u16), name: &str) -> Option<String> {
    let shown: String = name.chars().take(255).collect();
    match (Host::parse(name), host) {
        (Err(_), _) => Some(format!("in it, the client names {shown:?}, which is no host")),
        (Ok(said), host) if said == *host || gate.are_one(port, [&said, host]) => None,
        // Everything at a listed address may be reached, by whatever name it is called.
        (Ok(said), Host::Address(_)) => match gate.hosts.decide(&said, Some(port)) {
            Reachable::No(Unreachable::Denied, _) => {
                Some(format!("in it, the client names {said}, which is denied"))
            }
            _ => None,
        },
        (Ok(said), Host::Name(_)) => Some(format!("in it, the client names {said} instead")),
    }
}
