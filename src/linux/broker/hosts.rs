//! Connections that the domain proxy makes: led to it, and its refusals asked about or written down.

use super::internet::{FOUR, MAPPED, SIX, name_of};
use super::query::NO_LONGER;
use super::report::process_of;
use super::task::Task;
use super::{Answer, Broker, Errno};
use crate::linux::namespace::Namespace;
use crate::linux::net::channel::{Client, Control, DNS, Purpose, Reached, Refused, Said};
use crate::policy::endpoint::{Line, Reach, Value, has_host_ports, reach};
use crate::policy::hosts::synthetic;
use crate::policy::{Closed, Use};
use crate::trap::{Code, Denial, Kind, Operation, Reason, RuleRef, State, Trap};
use rustix::net::sockopt::{ipv6_v6only, socket_domain, socket_protocol};
use rustix::net::{AddressFamily, bind, ipproto};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

/// The port of name servers.
const NAMES: u16 = 53;
/// The port of loopback to which musl's getaddrinfo(3) connects a datagram socket, to see whether there is such a
/// family of addresses (`AI_ADDRCONFIG`).
const LOOKED_AT: u16 = 65535;

/// Which thread asks about names from which port: what the helper is asked, it knows no thread of.
#[derive(Default)]
pub struct Askers(Mutex<HashMap<u16, i32>>);

impl Askers {
    fn note(&self, port: u16, task: i32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(port, task);
    }

    fn of(&self, port: u16) -> Option<i32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&port).copied()
    }
}

impl Broker {
    /// The network namespace of the run's in which its sockets are, those of UDP or of TCP, if there is one.
    pub(super) fn namespace_of(&self, udp: bool) -> Option<&Namespace> {
        self.namespace.as_ref().or(self.names.as_ref().filter(|_| udp))
    }

    /// Whether questions about names are answered in the run: then whatever is sent by UDP leads back to it.
    pub(super) fn answers_names(&self) -> bool {
        self.namespace_of(true).is_some()
            && self.endpoints.lists_hosts()
            && !self.endpoints.is_open()
    }

    /// Whether a datagram socket may be connected to `to`, which leads to whoever answers questions about names,
    /// or nowhere: a program that looks a name up does both, the latter to see which address suits best.
    pub(super) fn is_for_names(&self, to: SocketAddr) -> bool {
        let (ip, port) = (to.ip(), to.port());
        let looks = port == LOOKED_AT && reach(ip) == Reach::Loopback;
        self.answers_names() && (port == NAMES || looks || synthetic(ip).is_some())
    }

    /// The proxy, and what a connection to `to` is to it, if it is for the proxy to make.
    pub(super) fn by_proxy(&self, to: SocketAddr) -> Option<(&Control, Purpose)> {
        let control = self.network.as_deref()?;
        let (ip, port) = (to.ip().to_canonical(), to.port());
        let own = ip == Ipv4Addr::LOCALHOST && port == control.port()
            || ip == Ipv6Addr::LOCALHOST && Some(port) == control.port_of_six();
        if own && (self.endpoints.lists_hosts() || self.learner.is_some()) {
            return Some((control, Purpose::Proxy));
        }
        let purpose = match self.endpoints.listed(ip, port) {
            Some(listed) => Some(Purpose::Address(to)).filter(|_| listed.is_open()),
            None if has_host_ports(ip) && control.is_host(port) => Some(Purpose::Host(port)),
            // What a listed name has in hosts(5), the proxy goes on with by name.
            None if reach(ip) == Reach::Outside && control.is_place(ip) => {
                Some(Purpose::Address(to)).filter(|_| self.endpoints.lists_hosts())
            }
            None if !self.answers_names() => None,
            None if synthetic(ip).is_some() => Some(Purpose::Address(to)),
            None => Some(Purpose::Names).filter(|_| port == NAMES),
        };
        purpose.map(|purpose| (control, purpose))
    }

    /// Does as the helper says.
    fn heard(&self, control: &Control, said: Said) {
        let (question, refused) = match said {
            Said::Refused(refused) => return self.reporter.record(&self.denial_by_proxy(refused)),
            Said::Reached(Reached { task, host, port }) => {
                if let Some(learner) = &self.learner {
                    learner.reached(&host, port, &process_of(&self.proc, task));
                }
                return;
            }
            Said::Asked(question, refused) => (question, refused),
            Said::Over(question) => {
                if let Some(queries) = &self.queries {
                    queries.hosts.forget(self, question);
                }
                return;
            }
        };
        let denial = self.denial_by_proxy(refused);
        let allowed = match &self.queries {
            Some(queries) => queries.ask_for_host(self, question, &denial),
            None => Some(false),
        };
        if let Some(allowed) = allowed {
            control.answer(question, allowed);
        }
    }

    /// What the proxy refuses, as a record.
    fn denial_by_proxy(&self, refused: Refused) -> Denial {
        let Refused { task, asked_from, protocol, host, port, entry, message, unlisted } = refused;
        let task = self.askers.of(asked_from).filter(|_| task == 0).unwrap_or(task);
        let target = if port == 0 { host } else { format!("{host}:{port}") };
        let line = entry.as_ref().map(|(origin, text)| Line { origin, value: Value::Text(text) });
        let closed = (Use::Connect, Closed::Host);
        let advice = match unlisted {
            true => Some(self.adviser.endpoint(closed, None, &target)),
            false => line.map(|line| self.adviser.endpoint(closed, Some(line), &target)),
        };
        let (grant, why) = match advice {
            Some(Ok(grant)) => (Some(grant), None),
            Some(Err(obstacle)) => (None, Some(obstacle.why().into_owned())),
            None => (None, None),
        };
        let rule = entry.map(|(origin, text)| RuleRef {
            file: origin.file,
            line: origin.line,
            key: origin.key,
            text,
        });
        Denial {
            kind: Kind::Network,
            operation: if protocol == DNS { Operation::Resolve } else { Operation::Connect },
            path: None,
            requested_path: None,
            old_path: None,
            new_path: None,
            target: Some(target),
            // Its connection stands: the proxy says so in there, or ends it.
            syscall: None,
            errno: None,
            flags: Vec::new(),
            arguments: vec![("protocol", protocol)],
            reason: match (&rule, unlisted) {
                (Some(_), _) => Some(Reason::DenyMatch),
                (None, true) => Some(Reason::AllowMiss),
                (None, false) => None,
            },
            suggested_grant: grant,
            rule,
            process: process_of(&self.proc, task),
            message: message.or(why),
        }
    }
}

/// Starts the thread that hears what the proxy refuses, until the helper has ended. A helper that ends
/// before the run does is told of, and nobody else can take its place at its port.
///
/// # Errors
///
/// As pthread_create(3).
pub fn follow(broker: &Arc<Broker>) -> std::io::Result<Option<JoinHandle<()>>> {
    let Some(control) = broker.network.clone() else { return Ok(None) };
    let broker = Arc::clone(broker);
    let follow = move || {
        while let Some(said) = control.next() {
            broker.heard(&control, said);
        }
        if let Some(queries) = &broker.queries {
            queries.hosts.finish(&broker, NO_LONGER);
        }
        if control.close() {
            let message =
                "the process that serves the proxy has ended: no host is reached any more";
            let trap = Trap::Internal {
                code: Code::SuperviseFailed,
                mechanism: None,
                message: message.to_owned(),
                file: None,
                line: None,
                key: None,
            };
            broker.reporter.stream(&trap.json_line(SystemTime::now(), State::Info, 0));
        }
    };
    thread::Builder::new().stack_size(super::pool::STACK).spawn(follow).map(Some)
}

impl Task<'_> {
    /// Connects `copy`, a TCP socket, to the proxy, which is told what the connection is for. The program's
    /// address is one of IPv6 if `six` says so.
    pub(super) fn connect_to_proxy(
        &self,
        copy: &OwnedFd,
        (control, to): (&Control, Purpose),
        six: bool,
    ) -> Result<Answer, Errno> {
        // A name of its own before it is connected, so that it can be announced.
        let (from, address) = match socket_domain(copy)? {
            // As the kernel answers, for TCP.
            AddressFamily::INET if six => return Err(Errno::AFNOSUPPORT),
            AddressFamily::INET => (FOUR, SocketAddr::new(FOUR, control.port())),
            _ if !ipv6_v6only(copy)? => (MAPPED, SocketAddr::new(MAPPED, control.port())),
            _ => {
                let port = control.port_of_six().ok_or(Errno::NETUNREACH)?;
                (SIX, SocketAddr::new(SIX, port))
            }
        };
        match bind(copy, &SocketAddr::new(from, 0)) {
            // It has one.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        let own = name_of(copy)?;
        // Bound to every address, it comes from the one beside the proxy's.
        let from = if own.ip().to_canonical().is_unspecified() { from } else { own.ip() };
        let from = SocketAddr::new(from.to_canonical(), own.port());
        control.announce(&Client { from, task: self.tid(), to })?;
        self.connect_waiting(copy, &raw(address))
    }

    /// Remembers who may ask about names by `socket`, which has its port now.
    pub(super) fn note_asker(&self, socket: &OwnedFd) {
        if let Ok(own) = name_of(socket) {
            self.broker.askers.note(own.port(), self.tid());
        }
    }
}

/// Whether `socket` is one of UDP.
pub(super) fn is_udp(socket: &OwnedFd) -> Result<bool, Errno> {
    Ok(socket_protocol(socket)? == Some(ipproto::UDP))
}

/// The address as connect(2) takes it: `struct sockaddr_in` or `sockaddr_in6`.
fn raw(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(four) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &four.octets(), &[0; 8]].concat()
        }
        IpAddr::V6(six) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &six.octets(), &[0; 4]].concat()
        }
    }
}
