//! Answers to questions about names (DNS, RFC 1035), for programs that know no proxy.
//!
//! A name that may be reached is answered with synthetic addresses, any other one does not exist. Nothing is asked of anybody: a name is looked up when it is connected to.

use super::synthetic::Synthetic;
use super::{Asker, Gate};
use crate::linux::net::Unlisted;
use crate::linux::net::channel::{DNS, Refused};
use crate::linux::sys::datagram;
use crate::policy::hosts::LOCALHOST;
use crate::policy::{Host, Reachable, Unreachable};
use simple_dns::rdata::{A, AAAA, OPT, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE,
};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long an answer counts, in seconds. An address means its name for longer.
const TTL: u32 = 60;
/// The longest question that is read, in bytes, and what is said of that where a client asks (RFC 6891).
const LONGEST: u16 = 1232;
/// How long a refusal stays told: resolvers ask for each kind of address, and again.
const TOLD: Duration = Duration::from_secs(1);
/// Most names of which that is known.
const MOST_TOLD: usize = 1024;
/// How long a connection has for its next question.
const IDLE: Duration = Duration::from_secs(30);

/// What was answered so far.
#[derive(Default)]
pub struct Names {
    /// The addresses that stand for names.
    pub synthetic: Synthetic,
    /// Names whose refusal was told, and when.
    told: Mutex<HashMap<String, Instant>>,
}

impl Names {
    /// Whether it is time to tell of `name`, which counts as told then.
    fn is_news(&self, name: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if told.get(name).is_some_and(|since| now.duration_since(*since) < TOLD) {
            return false;
        }
        if told.len() >= MOST_TOLD {
            told.clear();
        }
        told.insert(name.to_owned(), now);
        true
    }
}

/// Answers what arrives on `socket`, of [`Role::Names`](crate::linux::net::Role::Names), from the address that was asked.
///
/// # Errors
///
/// As epoll_ctl(2).
pub async fn serve(gate: Arc<Gate>, socket: OwnedFd) -> io::Result<()> {
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    let mut buffer = [0; LONGEST as usize];
    loop {
        let receive = || Ok(datagram::receive(socket.as_fd(), &mut buffer)?);
        let Ok(got) = socket.async_io(Interest::READABLE, receive).await else { continue };
        if let Some(answer) = answer(&gate, &buffer[..got.length], got.from.port()) {
            // Who asks so much that there is no room asks again.
            let _ = datagram::send(socket.as_fd(), &answer, got.from, got.to);
        }
    }
}

/// Answers what comes over a connection, one question after the other.
///
/// # Errors
///
/// As the client has seen.
pub async fn serve_stream(gate: &Gate, mut client: TcpStream) -> io::Result<()> {
    let from = client.peer_addr()?.port();
    loop {
        let length = timeout(IDLE, client.read_u16()).await??;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut question = vec![0; length.into()];
        timeout(IDLE, client.read_exact(&mut question)).await??;
        let Some(answer) = answer(gate, &question, from) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        client.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
    }
}

/// The answer to a message that came from the port `from`; none to what is no question.
fn answer(gate: &Gate, message: &[u8], from: u16) -> Option<Vec<u8>> {
    let head = message.first_chunk::<12>()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    const RESPONSE: u16 = 1 << 15;
    if word(2) & RESPONSE != 0 {
        return None;
    }
    // One question, and at most what is said about the message itself. Looked at first: room is made for as
    // many as a message claims to have.
    let usual = [word(4), word(6), word(8)] == [1, 0, 0] && word(10) <= 2;
    let asked = Some(message).filter(|_| usual).and_then(|message| Packet::parse(message).ok());
    let mut reply = Packet::new_reply(word(0));
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    let code = match &asked {
        None => RCODE::FormatError,
        Some(asked) => {
            *reply.opcode_mut() = asked.opcode();
            if asked.has_flags(PacketFlag::RECURSION_DESIRED) {
                reply.set_flags(PacketFlag::RECURSION_DESIRED);
            }
            if asked.opt().is_some() {
                let opt = OPT { opt_codes: Vec::new(), udp_packet_size: LONGEST, version: 0 };
                *reply.opt_mut() = Some(opt);
            }
            fill(gate, asked, &mut reply, from)
        }
    };
    *reply.rcode_mut() = code;
    reply.build_bytes_vec_compressed().ok()
}

/// Puts the question and what is known into the reply.
fn fill<'a>(gate: &Gate, asked: &Packet<'a>, reply: &mut Packet<'a>, from: u16) -> RCODE {
    let [question] = asked.questions.as_slice() else { return RCODE::FormatError };
    // As it was asked, letter by letter: some resolvers look.
    reply.questions.push(question.clone());
    if asked.opcode() != OPCODE::StandardQuery {
        return RCODE::NotImplemented;
    }
    if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
        return RCODE::Refused;
    }
    let addresses = match look_up(gate, &question.qname, from) {
        Ok(addresses) => addresses,
        Err(code) => return code,
    };
    for address in addresses {
        let (kind, data) = match address {
            IpAddr::V4(four) => (TYPE::A, RData::A(A::from(four))),
            IpAddr::V6(six) => (TYPE::AAAA, RData::AAAA(AAAA::from(six))),
        };
        if matches!(question.qtype, QTYPE::ANY) || question.qtype == QTYPE::TYPE(kind) {
            let name = question.qname.clone();
            reply.answers.push(ResourceRecord::new(name, CLASS::IN, TTL, data));
        }
    }
    RCODE::NoError
}

/// The addresses that stand for a name; none for one that is about a host without being one. An error for a
/// name that is not to be found, which is put on record.
fn look_up(gate: &Gate, name: &Name<'_>, from: u16) -> Result<Vec<IpAddr>, RCODE> {
    const NO: RCODE = RCODE::NameError;
    let labels: Vec<&[u8]> = name.get_labels().iter().map(AsRef::as_ref).collect();
    // Services at a host, RFC 2782.
    let services = labels.iter().take_while(|label| label.starts_with(b"_")).count();
    let (labels, is_service) = (&labels[services..], services > 0);
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let plain = |label: &&[u8]| label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    // Names of addresses: no host.
    if labels.last().is_some_and(|last| last.eq_ignore_ascii_case(b"arpa")) {
        return Err(NO);
    }
    // A dot within a label would read as one between two.
    let text = String::from_utf8_lossy(&labels.join(&b'.')).to_ascii_lowercase();
    let host = match Host::parse(&text) {
        Ok(host @ Host::Name(_)) if labels.iter().all(plain) => host,
        found => {
            let why = found.err().unwrap_or_else(|| "it is not the name of a host".to_owned());
            tell(gate, &text, from, || gate.unread(ASKER, &text, 0, Some(&why)));
            return Err(NO);
        }
    };
    // What is listed there is led to the proxy by its address, RFC 6761.
    if text == "localhost" {
        return Ok(if is_service { Vec::new() } else { LOCALHOST.to_vec() });
    }
    if let Reachable::No(why, entry) = gate.hosts.decide(&host, None) {
        // A resolver that tries `example.com.search.example` first asks for `example.com` next.
        let searched = gate.resolver.searched(&text).and_then(|name| Host::parse(name).ok());
        if gate.resolver.is_own(&text) {
            return Err(NO);
        }
        if let Some(name) = &searched
            && matches!(gate.hosts.decide(name, None), Reachable::Yes(_))
        {
            return Err(NO);
        }
        // Else whoever can be asked is, when it is connected to.
        if gate.unlisted != Unlisted::Asked || searched.is_some() {
            let unlisted = why == Unreachable::Unlisted;
            tell(gate, &text, from, || gate.refused(ASKER, (&host, 0), entry, unlisted));
            return Err(NO);
        }
    }
    if is_service {
        return Ok(Vec::new());
    }
    let is_listed = |address| {
        let listed = gate.hosts.decide(&Host::Address(address), None);
        !matches!(listed, Reachable::No(Unreachable::Unlisted, _))
    };
    let addresses = gate.names.synthetic.addresses(&text, is_listed);
    addresses.map(|both| both.to_vec()).ok_or(RCODE::ServerFailure)
}

/// Who asks is not known here.
const ASKER: Asker = Asker { task: 0, protocol: DNS };

/// Puts on record that a name is not to be found.
fn tell(gate: &Gate, name: &str, from: u16, refused: impl FnOnce() -> Refused) {
    if gate.names.is_news(name) {
        gate.channel.tell(Refused { asked_from: from, ..refused() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::net::Domains;
    use crate::linux::net::channel::Channel;
    use crate::linux::net::proxy::Resolver;
    use crate::policy::{Hosts, Located, Network, Origin};
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// Does `work` with a gate at which `listed.example` may be reached.
    fn with_gate<T>(work: impl FnOnce(&Gate) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (_ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let listed = Located::new("listed.example".to_owned(), Origin::default());
        let network = Network { allowed_domains: Some(vec![listed]), ..Network::default() };
        let domains = Domains {
            hosts: Hosts::new(&network).unwrap(),
            resolver: Resolver::new("", "search a.example corp.example.\n"),
            ..Domains::default()
        };
        runtime
            .block_on(async { work(&Gate::new(domains, Arc::new(Channel::new(theirs).unwrap()))) })
    }

    fn question(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let name: Vec<u8> =
            labels.iter().flat_map(|label| [&[label.len() as u8], *label].concat()).collect();
        let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        [&head[..], &name, &[0], &kind.to_be_bytes(), &[0, 1]].concat()
    }

    /// The code and the number of answers.
    fn said(answer: Option<Vec<u8>>) -> Option<(u8, u8)> {
        answer.map(|answer| (answer[3] & 15, answer[7]))
    }

    #[test]
    fn a_name_is_what_its_labels_are() {
        with_gate(|gate| {
            for (labels, expected) in [
                (&[b"listed".as_slice(), b"example"][..], (0, 1)),
                (&[b"LISTED", b"Example"], (0, 1)),
                // A dot within a label is none between two.
                (&[b"listed.example"], (3, 0)),
                (&[b"listed", b"example\0"], (3, 0)),
                (&[b"x.listed", b"example"], (3, 0)),
                (&[b"a", b"listed", b"example"], (3, 0)),
                (&[b"_x", b"listed", b"example"], (0, 0)),
                // As a resolver does that tries domains first.
                (&[b"listed", b"example", b"corp", b"example"], (3, 0)),
                (&[b"\xff\xfe"], (3, 0)),
                (&[], (0, 0)),
            ] {
                let answer = answer(gate, &question(labels, 1), 1);
                assert_eq!(said(answer), Some(expected), "{labels:?}");
            }
        });
    }

    proptest! {
        /// Whatever comes: no answer is longer than a datagram that everybody takes, and none answers an answer.
        #[test]
        fn every_message_is_answered_or_not(
            noise in prop::collection::vec(any::<u8>(), 0..80),
            at in 0..40_usize,
            like in any::<bool>(),
        ) {
            let mut message = question(&[b"listed", b"example"], 1);
            if like {
                let end = (at + noise.len()).min(message.len());
                let at = at.min(end);
                message[at..end].copy_from_slice(&noise[..end - at]);
            } else {
                message = noise;
            }
            let answer = with_gate(|gate| answer(gate, &message, 1));
            let asks = message.len() >= 12 && message[2] & 0x80 == 0;
            if let Some(answer) = answer {
                prop_assert!(asks && answer.len() <= 512 && answer[2] & 0x80 != 0);
            }
        }
    }
}
