//! TCP sockets: tied to loopback wherever the network is not open.
//!
//! A socket that may only reach loopback is bound to a loopback address before anything else is done
//! with it. That is for good: the kernel keeps the address over disconnecting and listening, and lets
//! no packet from it leave through another interface. So no order of calls, in however many threads,
//! makes it listen on other addresses or reach them.

use super::hosts::is_udp;
use super::network::Address;
use super::task::Task;
use super::{Answer, Errno};
use crate::linux::net::channel::Purpose;
use crate::linux::sys::socket;
use crate::policy::endpoint::{Reach, reach};
use crate::policy::{Closed, Passage, Use};
use crate::trap::Operation;
use rustix::net::sockopt::{ipv6_v6only, socket_domain, socket_protocol};
use rustix::net::{AddressFamily, getsockname, ipproto, listen};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

impl Task<'_> {
    pub(super) fn connect_internet(
        &self,
        copy: &OwnedFd,
        address: &Address,
    ) -> Result<Answer, Errno> {
        // Disconnects; the socket stays where it is tied.
        if address.family() == libc::AF_UNSPEC {
            return Ok(socket::connect(copy, address.bytes()).into());
        }
        let address_to = address.internet().ok_or(Errno::INVAL)?;
        let to = address_to.ip();
        // The proxy makes connections, and no host is reached by datagrams.
        let udp = is_udp(copy)?;
        let for_names = udp && self.broker.is_for_names(address_to);
        let by_proxy = self.broker.by_proxy(address_to).filter(|_| !udp);
        let passage = match by_proxy {
            None if !for_names => {
                self.broker.endpoints.internet(Use::Connect, to, address_to.port())
            }
            _ => Passage::Open(None),
        };
        let target = || address_to.to_string();
        let what = (Operation::Connect, Use::Connect);
        let fenced = !self.broker.endpoints.is_open();
        let own = self.is_in_namespace(copy)?;
        // First, since no answer changes it.
        if fenced && let Some(answer) = self.refuse_protocol(copy, Operation::Connect, target)? {
            return Ok(answer);
        }
        let names = self.broker.answers_names();
        if udp && names && !for_names {
            let line = match passage {
                Passage::Closed(_, line) => Some(line),
                Passage::Open(_) => self.broker.names.as_ref().map(|_| None),
            };
            if let Some(line) = line {
                let why = Err("no host is reached by UDP".into());
                return Ok(self.refuse_network(what.0, target(), (why, None), line, None));
            }
        }
        if let Some(answer) = self.refused_endpoint(what, passage, target, b"") {
            return Ok(answer);
        }
        self.may_act()?;
        // What an answer opened, there is no other way to.
        let opened = names && !passage.is_open();
        let opened = self.broker.network.as_deref().filter(|_| opened);
        let opened = opened.map(|control| (control, Purpose::Opened(address_to)));
        if let Some(by_proxy) = by_proxy.or(opened) {
            return self.connect_to_proxy(copy, by_proxy, address_to.is_ipv6());
        }
        if fenced && !own {
            // As the kernel answers, for TCP.
            match socket_domain(copy)? {
                AddressFamily::INET6 if address.bytes().len() < 24 => return Err(Errno::INVAL),
                AddressFamily::INET6 if to.is_ipv4() => return Err(Errno::AFNOSUPPORT),
                AddressFamily::INET if to.is_ipv6() => return Err(Errno::AFNOSUPPORT),
                // An answer opened it. What is tied by now does not get there.
                _ if reach(to) == Reach::Outside => {}
                _ => tie(copy, loopback_beside(to))?,
            }
        }
        let answer = self.connect_waiting(copy, address.bytes())?;
        if for_names {
            self.note_asker(copy);
        }
        Ok(answer)
    }

    pub(super) fn bind_internet(&self, copy: &OwnedFd, address: &Address) -> Result<Answer, Errno> {
        let endpoints = &self.broker.endpoints;
        if endpoints.is_open() {
            self.may_act()?;
            return Ok(socket::bind(copy, address.bytes()).into());
        }
        let bound = bind_address(copy, address)?;
        let (to, port) = (bound.ip(), bound.port());
        let target = || bound.to_string();
        let own = self.is_in_namespace(copy)?;
        let udp = is_udp(copy)?;
        // As a resolver does before it asks.
        let asks = own
            && self.broker.answers_names()
            && (reach(to), port) == (Reach::Unspecified, 0)
            && udp;
        let passage = match asks {
            true => Passage::Open(None),
            false => endpoints.internet(Use::Bind, to, port),
        };
        let what = (Operation::Bind, Use::Bind);
        if let Some(answer) = self.refuse_protocol(copy, Operation::Bind, target)? {
            return Ok(answer);
        }
        if udp && self.broker.names.is_some() && !asks {
            let why = Err("in a container, UDP is there to ask name servers alone".into());
            let line = endpoints.network_line();
            return Ok(self.refuse_network(what.0, target(), (why, None), line, None));
        }
        if let Some(answer) = self.refused_endpoint(what, passage, target, b"") {
            return Ok(answer);
        }
        self.may_act()?;
        if asks {
            let answer = socket::bind(copy, address.bytes());
            self.note_asker(copy);
            return Ok(answer.into());
        }
        if reach(to) == Reach::Unspecified && !own && !self.is_of_container(copy) {
            // Every address of this host, as far as this run goes, is loopback.
            let any = loopback_of(copy, to.is_ipv6())?;
            return Ok(rustix::net::bind(copy, &SocketAddr::new(any, port)).into());
        }
        Ok(socket::bind(copy, address.bytes()).into())
    }

    pub(super) fn listen_internet(&self, copy: &OwnedFd) -> Result<Answer, Errno> {
        let own = name_of(copy)?;
        if self.is_in_namespace(copy)? {
            let passage = self.broker.endpoints.internet(Use::Bind, own.ip(), own.port());
            return self.listen_if(passage, copy, own);
        }
        // Bound elsewhere: because an answer said so, or by whoever gave it to the run. Or to every address of
        // the container: what no bind(2) asked for is tied to loopback before it has a port.
        let everywhere = || own.port() != 0 && self.is_of_container(copy);
        if reach(own.ip()) == Reach::Outside
            || reach(own.ip()) == Reach::Unspecified && everywhere()
        {
            let passage = self.broker.endpoints.internet(Use::Bind, own.ip(), own.port());
            return self.listen_if(passage, copy, own);
        }
        // A port alone says nothing: of a socket that was disconnected, the last one shows.
        let bound = Some(own).filter(|own| reach(own.ip()) == Reach::Loopback && own.port() != 0);
        let at = bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let passage = self.broker.endpoints.internet(Use::Bind, at.ip(), at.port());
        let target = || bound.map_or("a free port".to_owned(), |own| own.to_string());
        let what = (Operation::Listen, Use::Bind);
        if let Some(answer) = self.refuse_protocol(copy, Operation::Listen, target)? {
            return Ok(answer);
        }
        if let Some(answer) = self.refused_endpoint(what, passage, target, b"") {
            return Ok(answer);
        }
        self.may_act()?;
        let six = socket_domain(copy)? == AddressFamily::INET6;
        tie(copy, loopback_of(copy, six)?)?;
        let own = name_of(copy)?;
        if reach(own.ip()) != Reach::Loopback {
            // It was bound to all addresses before, or to another one just now.
            let line = self.broker.endpoints.network_line();
            return self.listen_if(Passage::Closed(Closed::Network, line), copy, own);
        }
        Ok(listen(copy, self.int(1)).into())
    }

    /// Lets a socket listen that is bound to `own`, if that is open.
    fn listen_if(
        &self,
        passage: Passage<'_>,
        copy: &OwnedFd,
        own: SocketAddr,
    ) -> Result<Answer, Errno> {
        let target = || own.to_string();
        let what = (Operation::Listen, Use::Bind);
        if let Some(answer) = self.refuse_protocol(copy, Operation::Listen, target)? {
            return Ok(answer);
        }
        if let Some(answer) = self.refused_endpoint(what, passage, target, b"") {
            return Ok(answer);
        }
        self.may_act()?;
        Ok(listen(copy, self.int(1)).into())
    }

    /// Whether `socket` is in a network namespace of the run's own, where there is nothing else to be reached.
    ///
    /// # Errors
    ///
    /// `EACCES` for one that was given to a run which has such a namespace: an address means something else
    /// to it.
    fn is_in_namespace(&self, socket: &OwnedFd) -> Result<bool, Errno> {
        match self.broker.namespace_of(is_udp(socket)?) {
            None => Ok(false),
            Some(namespace) if namespace.has(socket) => Ok(true),
            Some(_) => Err(Errno::ACCESS),
        }
    }

    /// Whether `socket` is in the network namespace of the container: one that was given to it may not be.
    fn is_of_container(&self, socket: &OwnedFd) -> bool {
        let own = self.broker.own_network;
        own.is_some_and(|own| socket::namespace_cookie(socket) == Ok(own))
    }

    /// Refuses every protocol but TCP: no other one is held to an address. Such a socket cannot be made
    /// inside, but for UDP in a network namespace, and may have been given to the run.
    fn refuse_protocol(
        &self,
        copy: &OwnedFd,
        operation: Operation,
        target: impl FnOnce() -> String,
    ) -> Result<Option<Answer>, Errno> {
        let protocol = socket_protocol(copy)?;
        let udp = self.broker.namespace_of(true).is_some() && protocol == Some(ipproto::UDP);
        if protocol == Some(ipproto::TCP) || udp {
            return Ok(None);
        }
        let line = self.broker.endpoints.network_line();
        let grant = self.broker.adviser.beyond_tcp(line).map_err(|obstacle| obstacle.why());
        let message = Some("only TCP can be kept on loopback");
        Ok(Some(self.refuse_network(operation, target(), (grant, None), line, message)))
    }
}

/// The internet address of a bind(2); the family may be missing, as Linux lets it (ip(7)).
fn bind_address(copy: &OwnedFd, address: &Address) -> Result<SocketAddr, Errno> {
    if let Some(found) = address.internet() {
        return Ok(found);
    }
    let bytes = address.bytes();
    let four = socket_domain(copy)? == AddressFamily::INET;
    match address.family() {
        libc::AF_UNSPEC if four && bytes.len() >= 16 => {
            if bytes[4..8] != [0; 4] {
                return Err(Errno::AFNOSUPPORT);
            }
            Ok((Ipv4Addr::UNSPECIFIED, u16::from_be_bytes([bytes[2], bytes[3]])).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::INVAL),
        _ if bytes.len() < 16 => Err(Errno::INVAL),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

pub(super) const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(super) const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
pub(super) const MAPPED: IpAddr = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());

/// The loopback address that a connection to `to` comes from.
fn loopback_beside(to: IpAddr) -> IpAddr {
    match (to, to.to_canonical()) {
        (IpAddr::V4(_), _) => FOUR,
        (_, IpAddr::V4(_)) => MAPPED,
        _ => SIX,
    }
}

/// The loopback address that stands for every address of `socket`. A socket for both protocols takes
/// the one of IPv4: more clients ask for 127.0.0.1 by number, and `localhost` is tried at both.
fn loopback_of(socket: &OwnedFd, six: bool) -> Result<IpAddr, Errno> {
    if !six {
        return Ok(FOUR);
    }
    match socket_domain(socket)? {
        AddressFamily::INET6 if !ipv6_v6only(socket)? => Ok(MAPPED),
        _ => Ok(SIX),
    }
}

/// Binds `socket` to the loopback address `to` for good, without a port yet, if it has none.
///
/// # Errors
///
/// As bind(2); `ENETUNREACH` for an address that the socket cannot have.
fn tie(socket: &OwnedFd, to: IpAddr) -> Result<(), Errno> {
    // The port is picked with the connection, by both ends, as without being bound.
    socket::bind_without_port(socket)?;
    match rustix::net::bind(socket, &SocketAddr::new(to, 0)) {
        // It has a port, so it was bound before.
        Err(Errno::INVAL) if name_of(socket)?.port() != 0 => Ok(()),
        Err(Errno::INVAL) => Err(Errno::NETUNREACH),
        result => result,
    }
}

/// The address that `socket` has itself.
pub(super) fn name_of(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_comes_from_the_loopback_that_it_goes_to() {
        for (to, from) in [
            ("127.0.0.2", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::1", "::1"),
            ("::", "::1"),
            ("::ffff:127.0.0.2", "::ffff:127.0.0.1"),
            ("::ffff:0.0.0.0", "::ffff:127.0.0.1"),
        ] {
            assert_eq!(loopback_beside(to.parse().unwrap()).to_string(), from, "{to}");
        }
    }
}
