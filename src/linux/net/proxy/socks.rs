//! SOCKS5 (RFC 1928), CONNECT alone and without authentication: who may use the proxy is known already.

use super::waiting::Place;
use super::{Asker, Asking, Failed, GREETING, Gate, tunnel};
use crate::policy::Host;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The first byte of all that a client says.
pub const VERSION: u8 = 5;

/// Replies of RFC 1928.
const DONE: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_COMMAND: u8 = 7;
const NO_ADDRESS: u8 = 8;

const CONNECT: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;

/// Serves one client, which has `place` until it has said what it wants.
///
/// # Errors
///
/// As either end has seen; `InvalidData` for what is no SOCKS5.
pub async fn serve(gate: &Gate, mut client: TcpStream, task: i32, place: Place) -> io::Result<()> {
    let asker = Asker { task, protocol: "socks5" };
    let asked = timeout(GREETING, request(&mut client)).await??;
    drop(place);
    let (host, port) = match asked {
        Ok(asked) => asked,
        Err(code) => return reply(&mut client, code).await,
    };
    let host = match Host::parse(&host) {
        Ok(host) => host,
        Err(why) => {
            gate.refuse_text(asker, &host, port, &why);
            return reply(&mut client, NOT_ALLOWED).await;
        }
    };
    let mut said = Vec::new();
    match gate.open(asker, (&host, port), Some(Asking::Read(&mut client, &mut said))).await {
        Ok(server) => {
            reply(&mut client, DONE).await?;
            tunnel::run(gate, asker, (client, server), said, (&host, port)).await
        }
        Err(Failed::Denied(_)) => reply(&mut client, NOT_ALLOWED).await,
        Err(Failed::Unreachable(_)) => reply(&mut client, UNREACHABLE).await,
    }
}

/// Reads the greeting and the request; the code to answer where it asks for something else.
async fn request(client: &mut TcpStream) -> io::Result<Result<(String, u16), u8>> {
    let no_socks = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = [0; 2];
    client.read_exact(&mut head).await?;
    let mut methods = vec![0; head[1].into()];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(no_socks());
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [VERSION, command, 0, kind] = head else { return Err(no_socks()) };
    let host = match kind {
        1 => {
            let mut four = [0; 4];
            client.read_exact(&mut four).await?;
            Ipv4Addr::from(four).to_string()
        }
        3 => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        4 => {
            let mut six = [0; 16];
            client.read_exact(&mut six).await?;
            Ipv6Addr::from(six).to_string()
        }
        _ => return Ok(Err(NO_ADDRESS)),
    };
    let port = client.read_u16().await?;
    Ok(if command == CONNECT { Ok((host, port)) } else { Err(NO_COMMAND) })
}

/// Answers. The address that it names is nobody's: the connection is made elsewhere.
async fn reply(client: &mut TcpStream, code: u8) -> io::Result<()> {
    client.write_all(&[VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]).await
}
