//! What launcher and helper tell each other: a JSON text a message.
//!
//! The broker makes each connection to the proxy for the program, and says so before: from which port it
//! comes, and what it stands for. So nobody else on this host can use the proxy, and a connection needs to
//! carry nothing about itself.

use crate::linux::sys::Errno;
use crate::policy::Origin;
use rustix::net::{RecvFlags, SendFlags, getsockname, recv, send};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::net::UnixStream;

/// The longest message, in bytes.
const LONGEST: usize = 8192;
/// Most connections that were announced and have not arrived; older ones are forgotten.
const MOST: usize = 16 * 1024;

/// A connection that is about to arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Where it comes from.
    pub from: SocketAddr,
    /// The thread that makes it.
    pub task: i32,
    /// Where the program means to go.
    pub to: Purpose,
}

/// What a connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// One to the proxy, which says itself where it goes.
    Proxy,
    /// One to this address.
    Address(SocketAddr),
}

/// A refusal, for the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The thread that asked, 0 where nobody knows.
    pub task: i32,
    /// How it asked: `http`, `connect`, `socks5`, `tcp`.
    pub protocol: String,
    /// The host, as policies write it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The entry that decided, and as it was typed.
    pub entry: Option<(Origin, String)>,
    /// What else is to be known.
    pub message: Option<String>,
    /// An entry for the host would allow it.
    pub unlisted: bool,
}

/// The launcher's end.
pub struct Control {
    socket: OwnedFd,
    /// The sockets that the proxy listens on: of IPv4, and of IPv6 where there is one.
    held: Vec<OwnedFd>,
    /// Their ports; 0 for none.
    ports: [u16; 2],
    finished: AtomicBool,
}

impl Control {
    /// An end over `socket`; the proxy, if there is one, listens on `held`.
    pub fn new(socket: OwnedFd, held: Vec<OwnedFd>) -> Control {
        let mut ports = [0; 2];
        for name in held.iter().filter_map(|socket| getsockname(socket).ok()) {
            if let Ok(name) = SocketAddr::try_from(name) {
                ports[usize::from(name.is_ipv6())] = name.port();
            }
        }
        Control { socket, held, ports, finished: AtomicBool::new(false) }
    }

    /// The proxy's port on 127.0.0.1; 0 without a proxy.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The proxy's port on `::1`.
    pub fn port_of_six(&self) -> Option<u16> {
        Some(self.ports[1]).filter(|port| *port != 0)
    }

    /// The proxy's ports.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.into_iter().filter(|port| *port != 0)
    }

    /// Announces a connection.
    ///
    /// # Errors
    ///
    /// `EAGAIN` where the helper is slow, `EPIPE` where it is gone.
    pub fn announce(&self, client: &Client) -> Result<(), Errno> {
        let text = serde_json::to_vec(client).map_err(|_| Errno::INVAL)?;
        send(&self.socket, &text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(|_| ())
    }

    /// Waits for the next refusal; none once the helper is gone.
    pub fn next(&self) -> Option<Refused> {
        let mut text = [0; LONGEST];
        loop {
            match recv(&self.socket, &mut text, RecvFlags::empty()) {
                Ok((0, _)) => return None,
                Ok((length, _)) => match serde_json::from_slice(&text[..length]) {
                    Ok(refused) => return Some(refused),
                    Err(_) => continue,
                },
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
        }
    }

    /// Tells the helper that the run is over. What it has to say still comes.
    pub fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        // It may be gone already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }
}

impl Control {
    /// Refuses connections to the proxy, whose process is gone; whether the run was not over by then.
    pub fn close(&self) -> bool {
        for socket in &self.held {
            // It stays bound.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        !self.finished.load(Ordering::Acquire)
    }
}

/// The helper's end.
pub struct Channel {
    socket: UnixStream,
    announced: Mutex<HashMap<SocketAddr, Client>>,
}

impl Channel {
    /// An end over `socket`; within the runtime.
    ///
    /// # Errors
    ///
    /// As epoll_ctl(2).
    pub fn new(socket: OwnedFd) -> io::Result<Channel> {
        // It keeps messages apart, which reading it like a stream does not change.
        let socket = std::os::unix::net::UnixStream::from(socket);
        Ok(Channel { socket: UnixStream::from_std(socket)?, announced: Mutex::default() })
    }

    /// Reads until the launcher is gone.
    pub async fn until_closed(&self) {
        while self.socket.readable().await.is_ok() && self.drain().is_ok() {}
    }

    /// Takes in what has come; an error once the launcher is gone.
    fn drain(&self) -> io::Result<()> {
        let mut text = [0; LONGEST];
        loop {
            match self.socket.try_read(&mut text) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    if let Ok(client) = serde_json::from_slice::<Client>(&text[..length]) {
                        let mut announced =
                            self.announced.lock().unwrap_or_else(PoisonError::into_inner);
                        if announced.len() >= MOST {
                            announced.clear();
                        }
                        announced.insert(client.from, client);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// What was said about the connection that came from `from`. It was said before.
    pub fn announced(&self, from: SocketAddr) -> Option<Client> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        // The readiness of the socket may not have been seen yet.
        let _ = self.drain();
        self.announced.lock().unwrap_or_else(PoisonError::into_inner).remove(&from)
    }

    /// Tells of a refusal. One that finds no room is lost: the program is refused all the same.
    pub fn tell(&self, refused: &Refused) {
        if let Ok(text) = serde_json::to_vec(refused)
            && text.len() <= LONGEST
        {
            let _ = send(&self.socket, &text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}
