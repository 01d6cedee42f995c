//! What launcher and helper tell each other: a JSON text a message.
//!
//! The broker makes each connection to the proxy for the program, and says so before: from which port it
//! comes, and what it stands for. So nobody else on this host can use the proxy, and a connection needs to
//! carry nothing about itself. Where somebody can be asked before a host is refused, the helper asks the
//! launcher, and is told the answer.

use crate::linux::sys::Errno;
use crate::policy::Origin;
use rustix::net::{RecvFlags, SendFlags, getsockname, recv, send};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

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
    /// One to this address, or to the host whose name was answered with it.
    Address(SocketAddr),
    /// One to this address, which an answer to a query opened.
    Opened(SocketAddr),
    /// One to a name server.
    Names,
    /// One to this port of the helper's loopback.
    Host(u16),
}

/// What is [asked](Refused::protocol) of name servers.
pub const DNS: &str = "dns";

/// A refusal, for the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The thread that asked, 0 where the helper does not know.
    pub task: i32,
    /// The port that it asked from, where that may tell which thread it is; else 0.
    pub asked_from: u16,
    /// How it asked: `http`, `connect`, `socks5`, `tcp`, `dns`.
    pub protocol: String,
    /// The host, as policies write it.
    pub host: String,
    /// The port; 0 where it is about none.
    pub port: u16,
    /// The entry that decided, and as it was typed.
    pub entry: Option<(Origin, String)>,
    /// What else is to be known.
    pub message: Option<String>,
    /// An entry for the host would allow it.
    pub unlisted: bool,
}

/// A connection to a host that no entry is about, for who learns from the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The thread that asked.
    pub task: i32,
    /// The host, as policies write it.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What the helper says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// Something was refused.
    Refused(Refused),
    /// A host was reached.
    Reached(Reached),
    /// This would be refused: is it to be allowed after all? The number is that of the question.
    Asked(u64, Refused),
    /// Nobody waits for the answer to this question any more.
    Over(u64),
}

/// What the launcher says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Told {
    /// A connection is about to arrive.
    Client(Client),
    /// The answer to a question, by its number.
    Answer(u64, bool),
}

/// The launcher's end.
pub struct Control {
    socket: OwnedFd,
    /// The sockets that the proxy listens on: of IPv4, and of IPv6 where there is one.
    held: Vec<OwnedFd>,
    /// Their ports; 0 for none.
    ports: [u16; 2],
    /// Ports of loopback that are those of the helper's, and not of the program's.
    host: Vec<u16>,
    /// Addresses that stand for names.
    places: HashSet<IpAddr>,
    finished: AtomicBool,
}

impl Control {
    /// An end over `socket`; the proxy, if there is one, listens on `held`, and leads to the ports `host` of its
    /// own loopback, and knows names for the addresses `places`.
    pub fn new(
        socket: OwnedFd,
        held: Vec<OwnedFd>,
        host: Vec<u16>,
        places: HashSet<IpAddr>,
    ) -> Control {
        let mut ports = [0; 2];
        for name in held.iter().filter_map(|socket| getsockname(socket).ok()) {
            if let Ok(name) = SocketAddr::try_from(name) {
                ports[usize::from(name.is_ipv6())] = name.port();
            }
        }
        Control { socket, held, ports, host, places, finished: AtomicBool::new(false) }
    }

    /// Whether this port of loopback is the one of the helper's.
    pub fn is_host(&self, port: u16) -> bool {
        self.host.contains(&port)
    }

    /// Whether this address, as it is without a form of IPv6 around it, stands for a name.
    pub fn is_place(&self, address: IpAddr) -> bool {
        self.places.contains(&address)
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

    /// Announces a connection. It waits for room, which the helper makes whatever else it does.
    ///
    /// # Errors
    ///
    /// `EPIPE` where the helper is gone, `EINTR` where a signal came meanwhile.
    pub fn announce(&self, client: &Client) -> Result<(), Errno> {
        let client = Told::Client(client.clone());
        let text = serde_json::to_vec(&client).map_err(|_| Errno::INVAL)?;
        send(&self.socket, &text, SendFlags::NOSIGNAL).map(|_| ())
    }

    /// Answers a question of the helper's. It waits for room, which the helper makes whatever else it does.
    pub fn answer(&self, question: u64, allowed: bool) {
        if let Ok(text) = serde_json::to_vec(&Told::Answer(question, allowed)) {
            // Where it is gone, so is who waits.
            let _ = send(&self.socket, &text, SendFlags::NOSIGNAL);
        }
    }

    /// Waits for what the helper says next; none once it is gone.
    pub fn next(&self) -> Option<Said> {
        let mut text = [0; LONGEST];
        loop {
            match recv(&self.socket, &mut text, RecvFlags::empty()) {
                Ok((0, _)) => return None,
                Ok((length, _)) => match serde_json::from_slice(&text[..length]) {
                    Ok(said) => return Some(said),
                    Err(_) => continue,
                },
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
        }
    }

    /// Tells the helper that the run is over. What it has to say still comes. False where it cannot be told: a
    /// container's filter may refuse that. Then it ends with this process.
    pub fn finish(&self) -> bool {
        self.finished.store(true, Ordering::Release);
        let told = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        // It may be gone already.
        matches!(told, Ok(()) | Err(Errno::NOTCONN))
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
    /// Questions without an answer, by number.
    asked: Mutex<HashMap<u64, oneshot::Sender<bool>>>,
    /// The number of the last one.
    last: AtomicU64,
}

/// A question that is asked. Dropped, it says that nobody waits for the answer.
struct Question<'a> {
    channel: &'a Channel,
    number: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if lock(&self.channel.asked).remove(&self.number).is_some() {
            self.channel.say(&Said::Over(self.number));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        Ok(Channel {
            socket: UnixStream::from_std(socket)?,
            announced: Mutex::default(),
            asked: Mutex::default(),
            last: AtomicU64::new(0),
        })
    }

    /// Reads until the launcher is gone.
    pub async fn until_closed(&self) {
        while self.socket.readable().await.is_ok() {
            // Nothing is left then, until it is readable again.
            let drained = || self.drain().and(Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            match self.socket.try_io(Interest::READABLE, drained) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// Takes in what has come, whether or not the runtime has seen it yet; an error once the launcher is gone.
    fn drain(&self) -> io::Result<()> {
        let mut text = [0; LONGEST];
        loop {
            match recv(&self.socket, &mut text, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((length, _)) => match serde_json::from_slice(&text[..length]) {
                    Ok(Told::Client(client)) => {
                        let mut announced = lock(&self.announced);
                        if announced.len() >= MOST {
                            announced.clear();
                        }
                        announced.insert(client.from, client);
                    }
                    Ok(Told::Answer(number, allowed)) => {
                        if let Some(question) = lock(&self.asked).remove(&number) {
                            let _ = question.send(allowed);
                        }
                    }
                    Err(_) => {}
                },
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// What was said about the connection that came from `from`. It was said before.
    pub fn announced(&self, from: SocketAddr) -> Option<Client> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        // What it says of a connection may have come with it, and be looked at later.
        let _ = self.drain();
        lock(&self.announced).remove(&from)
    }

    /// Tells of a refusal. One that finds no room is lost: the program is refused all the same.
    pub fn tell(&self, refused: Refused) {
        self.say(&Said::Refused(refused));
    }

    /// Tells of a host. What finds no room is lost, and so not learned.
    pub fn tell_of(&self, reached: Reached) {
        self.say(&Said::Reached(reached));
    }

    /// Asks whether what would be refused is to be allowed after all, for as long as this is waited for. Where
    /// nobody can be asked any more, the launcher writes the refusal down.
    pub async fn ask(&self, refused: Refused) -> bool {
        let (answer, answered) = oneshot::channel();
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.asked).insert(number, answer);
        let _question = Question { channel: self, number };
        self.say(&Said::Asked(number, refused)) && answered.await.unwrap_or(false)
    }

    /// Whether it was said: there may be no room.
    fn say(&self, said: &Said) -> bool {
        let Ok(text) = serde_json::to_vec(said) else { return false };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        text.len() <= LONGEST && send(&self.socket, &text, flags).is_ok()
    }
}
