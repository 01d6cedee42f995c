//! Looking names up, from what was read before the helper gave up files: `/etc/hosts`, and the servers in
//! `/etc/resolv.conf`.

use crate::policy::{Host, Hosts, Reachable};
use serde::{Deserialize, Serialize};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long a server has for an answer.
const ANSWER: Duration = Duration::from_secs(3);
/// How often all of them are asked.
const TRIES: usize = 2;
/// Most servers that are asked, as resolv.conf(5) has it.
const SERVERS: usize = 3;
/// Most names that are remembered.
const REMEMBERED: usize = 1024;
/// How long a name is remembered at most.
const LONG: Duration = Duration::from_secs(60);

/// The file that resolvers go by.
const RESOLV: &str = "/etc/resolv.conf";
/// Most bytes of it that are read in a container, and most domains that it names.
const LONGEST: u64 = 64 << 10;
const SEARCHED: usize = 64;

/// Names of hosts by address.
pub type Places = HashMap<IpAddr, BTreeSet<Host>>;

/// What the names that programs look up are made of, where these run.
#[derive(Default, Serialize, Deserialize)]
pub struct Local {
    /// What the host, or the container, calls itself.
    own: String,
    /// What is put after names.
    search: Vec<String>,
}

impl Local {
    /// In a container that this process is in. The file may be the image's: what is none, or cannot be read, says
    /// nothing.
    pub fn inside() -> Local {
        let read = || -> io::Result<Vec<u8>> {
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            let file = File::options().read(true).custom_flags(flags).open(RESOLV)?;
            let mut text = Vec::new();
            if file.metadata()?.is_file() {
                file.take(LONGEST).read_to_end(&mut text)?;
            }
            Ok(text)
        };
        Local::of(&String::from_utf8_lossy(&read().unwrap_or_default()))
    }

    /// The same with the text of resolv.conf(5).
    fn of(resolv: &str) -> Local {
        let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        Local { own, search: search(resolv) }
    }
}

/// Looks names up.
#[derive(Default)]
pub struct Resolver {
    hosts: HashMap<String, Vec<IpAddr>>,
    servers: Vec<SocketAddr>,
    local: Local,
    known: Mutex<HashMap<String, (Instant, Vec<IpAddr>)>>,
}

impl Resolver {
    /// From what this host says; what cannot be read says nothing.
    pub fn of_host() -> Resolver {
        let read = |path| std::fs::read(path).unwrap_or_default();
        let (hosts, resolv) = (read("/etc/hosts"), read(RESOLV));
        let resolv = String::from_utf8_lossy(&resolv);
        Resolver::new(&String::from_utf8_lossy(&hosts), &resolv).for_programs(Local::of(&resolv))
    }

    /// From the texts of both files, hosts(5) and resolv.conf(5).
    pub fn new(hosts: &str, resolv: &str) -> Resolver {
        let mut known: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for line in hosts.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            for name in words {
                known.entry(name.to_ascii_lowercase()).or_default().push(address);
            }
        }
        let server = |line: &str| {
            let mut words = line.split_whitespace();
            let is_one = words.next() == Some("nameserver");
            // A scope has to be known here to be used, and link-local servers are rare.
            let address = words.next().filter(|_| is_one)?.parse::<IpAddr>().ok()?;
            Some(SocketAddr::new(address, 53))
        };
        let mut servers: Vec<_> = resolv.lines().filter_map(server).take(SERVERS).collect();
        if servers.is_empty() {
            servers.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        let local = Local { search: search(resolv), ..Local::default() };
        Resolver { hosts: known, servers, local, ..Resolver::default() }
    }

    /// The same for programs that run elsewhere.
    pub fn for_programs(self, local: Local) -> Resolver {
        Resolver { local, ..self }
    }

    /// The addresses that hosts(5) has for names which `hosts` allow, with those names.
    pub fn places(&self, hosts: &Hosts) -> Places {
        let mut places = Places::new();
        for (name, addresses) in &self.hosts {
            let Ok(host) = Host::parse(name) else { continue };
            if !matches!(hosts.decide(&host, None), Reachable::Yes(_)) {
                continue;
            }
            for address in addresses {
                places.entry(address.to_canonical()).or_default().insert(host.clone());
            }
        }
        places
    }

    /// Whether it is what this host calls itself, which many a program looks up.
    pub fn is_own(&self, name: &str) -> bool {
        name == self.local.own
    }

    /// The name that `name` was made of by putting a domain after it that is searched, if it was: one with
    /// several labels is tried so as well.
    pub fn searched<'a>(&self, name: &'a str) -> Option<&'a str> {
        self.local.search.iter().find_map(|domain| {
            let before = name.strip_suffix(domain.as_str())?.strip_suffix('.')?;
            before.contains('.').then_some(before)
        })
    }

    /// The addresses of `name`, which was checked; those of IPv4 first.
    ///
    /// # Errors
    ///
    /// Where no server gives an answer; a name that does not exist has no address.
    pub async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(crate::policy::hosts::LOCALHOST.to_vec());
        }
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.clone());
        }
        let now = Instant::now();
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((until, addresses)) = known().get(name)
            && *until > now
        {
            return Ok(addresses.clone());
        }
        let (four, six) = tokio::join!(self.ask(name, TYPE::A), self.ask(name, TYPE::AAAA));
        // One kind is enough.
        let (four, six) = match (four, six) {
            (Err(error), Err(_)) => return Err(error),
            (four, six) => (four.unwrap_or_default(), six.unwrap_or_default()),
        };
        let ttl = four.1.min(six.1).min(LONG);
        let addresses = [four.0, six.0].concat();
        if !ttl.is_zero() && !addresses.is_empty() {
            let mut known = known();
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(name.to_owned(), (now + ttl, addresses.clone()));
        }
        Ok(addresses)
    }

    /// Asks the servers, one after the other.
    async fn ask(&self, name: &str, kind: TYPE) -> io::Result<Answer> {
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for server in self.servers.iter().cycle().take(self.servers.len() * TRIES) {
            match timeout(ANSWER, ask(*server, name, kind)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
        }
        Err(io::Error::new(last.kind(), format!("no name server answers: {last}")))
    }
}

/// The domains of resolv.conf(5) that are put after names: the last line counts.
fn search(resolv: &str) -> Vec<String> {
    let found = resolv.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| matches!(*word, "search" | "domain"))?;
        let plain = |domain: &str| domain.trim_matches('.').to_ascii_lowercase();
        Some(words.map(plain).filter(|domain| !domain.is_empty()).take(SEARCHED).collect())
    });
    found.unwrap_or_default()
}

/// Addresses, and for how long they count.
type Answer = (Vec<IpAddr>, Duration);

fn invalid<E>(_: E) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Asks one server, by UDP, and again by TCP if the answer has no room.
async fn ask(server: SocketAddr, name: &str, kind: TYPE) -> io::Result<Answer> {
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
    let mut query = Packet::new_query(u16::from_ne_bytes(id));
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let named = Name::new(name).map_err(invalid)?;
    query.questions.push(Question::new(named, kind.into(), CLASS::IN.into(), false));
    let query = query.build_bytes_vec().map_err(invalid)?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A new one each time, so that the port has to be guessed as well; connected, so that others are not
    // heard.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&query).await?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match read(&buffer[..length], &query, kind) {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) if error.kind() == io::ErrorKind::FileTooLarge => break,
            Some(Err(error)) => return Err(error),
            // Not to this question.
            None => {}
        }
    }
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.len()).map_err(invalid)?;
    stream.write_all(&[&length.to_be_bytes()[..], &query].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    read(&answer, &query, kind).unwrap_or(Err(io::ErrorKind::InvalidData.into()))
}

/// Reads an answer; none where it is one to another question. `FileTooLarge` where it was cut.
fn read(answer: &[u8], query: &[u8], kind: TYPE) -> Option<io::Result<Answer>> {
    let asked = Packet::parse(query).ok()?;
    let answer = Packet::parse(answer).ok()?;
    let same = answer.id() == asked.id()
        && answer.has_flags(PacketFlag::RESPONSE)
        && answer.questions.len() == 1
        && answer.questions[0].qtype == asked.questions[0].qtype
        && (answer.questions[0].qname.to_string())
            .eq_ignore_ascii_case(&asked.questions[0].qname.to_string());
    if !same {
        return None;
    }
    if answer.has_flags(PacketFlag::TRUNCATION) {
        return Some(Err(io::ErrorKind::FileTooLarge.into()));
    }
    match answer.rcode() {
        RCODE::NoError | RCODE::NameError => {}
        other => return Some(Err(io::Error::other(format!("{other:?}")))),
    }
    let mut ttl = LONG;
    let mut addresses = Vec::new();
    for record in &answer.answers {
        let address: IpAddr = match (&record.rdata, kind) {
            (RData::A(four), TYPE::A) => Ipv4Addr::from_bits(four.address).into(),
            (RData::AAAA(six), TYPE::AAAA) => Ipv6Addr::from_bits(six.address).into(),
            _ => continue,
        };
        ttl = ttl.min(Duration::from_secs(record.ttl.into()));
        addresses.push(address);
    }
    Some(Ok((addresses, ttl)))
}
