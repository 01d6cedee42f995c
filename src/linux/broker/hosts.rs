//! Connections that the domain proxy makes: led to it, and its refusals written down.

use super::internet::{FOUR, MAPPED, SIX, name_of};
use super::report::process_of;
use super::task::Task;
use super::{Answer, Broker, Errno};
use crate::linux::net::channel::{Client, Control, Purpose, Refused};
use crate::policy::endpoint::{Line, Value};
use crate::policy::{Closed, Passage};
use crate::trap::{Code, Denial, Kind, Operation, Reason, RuleRef, State, Trap};
use rustix::net::sockopt::{ipv6_v6only, socket_domain};
use rustix::net::{AddressFamily, bind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

impl Broker {
    /// The proxy, and what a connection to `to` is to it, if it is for the proxy to make.
    pub(super) fn by_proxy(&self, to: SocketAddr) -> Option<(&Control, Purpose)> {
        let control = self.network.as_deref()?;
        let (ip, port) = (to.ip().to_canonical(), to.port());
        let own = ip == Ipv4Addr::LOCALHOST && port == control.port()
            || ip == Ipv6Addr::LOCALHOST && Some(port) == control.port_of_six();
        if own {
            return Some((control, Purpose::Proxy));
        }
        let listed = self.endpoints.listed(ip, port);
        listed.filter(Passage::is_open).map(|_| (control, Purpose::Address(to)))
    }

    /// Writes down what the proxy refused.
    fn refused_by_proxy(&self, refused: Refused) {
        let Refused { task, protocol, host, port, entry, message, unlisted } = refused;
        let target = format!("{host}:{port}");
        let line = entry.as_ref().map(|(origin, text)| Line { origin, value: Value::Text(text) });
        let advice = match unlisted {
            true => Some(self.adviser.endpoint(Closed::Host, None, &target)),
            false => line.map(|line| self.adviser.endpoint(Closed::Host, Some(line), &target)),
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
        self.reporter.record(&Denial {
            kind: Kind::Network,
            operation: Operation::Connect,
            path: None,
            requested_path: None,
            old_path: None,
            new_path: None,
            target: Some(target),
            syscall: "connect",
            errno: "EACCES",
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
        });
    }
}

/// Starts the thread that writes down what the proxy refuses, until the helper has ended. A helper that ends
/// before the run does is told of, and nobody else can take its place at its port.
///
/// # Errors
///
/// As pthread_create(3).
pub fn follow(broker: &Arc<Broker>) -> std::io::Result<Option<JoinHandle<()>>> {
    let Some(control) = broker.network.clone() else { return Ok(None) };
    let broker = Arc::clone(broker);
    let follow = move || {
        while let Some(refused) = control.next() {
            broker.refused_by_proxy(refused);
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
    /// Connects `copy`, a TCP socket, to the proxy, which is told what the connection is for.
    pub(super) fn connect_to_proxy(
        &self,
        copy: &OwnedFd,
        (control, to): (&Control, Purpose),
    ) -> Result<Answer, Errno> {
        // A name of its own before it is connected, so that it can be announced.
        let (from, address) = match socket_domain(copy)? {
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
        let from = SocketAddr::new(own.ip().to_canonical(), own.port());
        control.announce(&Client { from, task: self.tid(), to })?;
        self.connect_waiting(copy, &raw(address))
    }
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
