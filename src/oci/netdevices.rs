//! `linux.netDevices`: devices of the runtime's network namespace that the container gets, by rtnetlink(7).
//!
//! The runtime, which has the rights over both namespaces, moves them; the container's process gives them back the
//! addresses that they lose on the way, and brings them up. They are not taken back: with the namespace, the
//! kernel returns those that are hardware, and the others end.

use std::os::fd::OwnedFd;

use oci_spec::runtime::{LinuxNamespaceType as Kind, Spec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with,
};
use rustix::process::Pid;

use super::{Context, Error, Result};

const KEY: &str = "linux.netDevices";
/// The most bytes of a name: `IFNAMSIZ` less the end.
const LONGEST: usize = 15;
/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `sizeof(struct ifaddrmsg)`.
const ADDRESS: usize = 8;
/// `IFA_F_PERMANENT`, linux/if_addr.h: not of a lease that somebody else renews, or of a router.
const PERMANENT: u32 = 0x80;

/// One device.
pub struct Device {
    /// Its name on the host.
    host: String,
    /// Its name in the container.
    name: String,
    index: u32,
    /// `struct ifaddrmsg` and the attributes of each address.
    addresses: Vec<(Vec<u8>, Attributes)>,
}

type Attributes = Vec<(u16, Vec<u8>)>;

/// Checks names.
///
/// # Errors
///
/// A name that no device can have, one that is given twice, no network namespace.
pub fn check(spec: &Spec) -> Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    let devices = linux.net_devices().iter().flatten();
    let mut names: Vec<&str> = Vec::new();
    for (host, device) in devices {
        let name = device.name().as_deref().filter(|name| !name.is_empty()).unwrap_or(host);
        for name in [host.as_str(), name] {
            let bad = |c: char| c.is_whitespace() || matches!(c, '/' | ':' | '%' | '\0');
            if name.is_empty()
                || name.len() > LONGEST
                || name.contains(bad)
                || name.starts_with('.')
            {
                return Err(Error::new(format!("{KEY}: {name:?} is no name of a device")));
            }
        }
        if names.contains(&name) {
            return Err(Error::new(format!("{KEY}: two devices would be named {name:?}")));
        }
        names.push(name);
    }
    let namespaces = linux.namespaces().iter().flatten();
    let own = namespaces.into_iter().any(|namespace| namespace.typ() == Kind::Network);
    if !names.is_empty() && !own {
        return Err(Error::new(format!("{KEY}: need a network namespace")));
    }
    Ok(())
}

/// Looks the devices of a document up, in the runtime's network namespace.
///
/// # Errors
///
/// The device that does not exist.
pub fn find(spec: &Spec) -> Result<Vec<Device>> {
    let devices = spec.linux().as_ref().and_then(|linux| linux.net_devices().as_ref());
    let Some(devices) = devices.filter(|devices| !devices.is_empty()) else {
        return Ok(Vec::new());
    };
    let kernel = Kernel::open().context(KEY)?;
    let mut found = Vec::new();
    for (host, device) in devices {
        let name = device.name().clone().filter(|name| !name.is_empty());
        let index =
            netdevice::name_to_index(&kernel.0, host).context(format!("{KEY}: {host:?}"))?;
        let addresses = Vec::new();
        let name = name.unwrap_or_else(|| host.clone());
        found.push(Device { host: host.clone(), name, index, addresses });
    }
    kernel.addresses(&mut found).context(format!("{KEY}: addresses"))?;
    found.sort_by(|one, other| one.host.cmp(&other.host));
    Ok(found)
}

/// Moves devices into the network namespace of process `pid`, under the names that they have there.
///
/// # Errors
///
/// The device that cannot be moved, a name that is taken there.
pub fn give(devices: &[Device], pid: Pid) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let inode = |of: &str| {
        let path = format!("/proc/{of}/ns/net");
        rustix::fs::stat(&path).context(path).map(|stat| stat.st_ino)
    };
    if inode("self")? == inode(&pid.as_raw_nonzero().to_string())? {
        return Err(Error::new(format!(
            "{KEY}: the container has the runtime's network namespace"
        )));
    }
    let kernel = Kernel::open().context(KEY)?;
    for device in devices {
        let mut name = device.name.clone().into_bytes();
        name.push(0);
        let target = pid.as_raw_nonzero().get().to_ne_bytes().to_vec();
        let attributes = [(libc::IFLA_NET_NS_PID, target), (libc::IFLA_IFNAME, name)];
        let (host, name) = (&device.host, &device.name);
        kernel
            .ask(libc::RTM_NEWLINK, 0, &link(device.index, 0), &attributes)
            .context(format!("{KEY}: {host:?} to {name:?}"))?;
    }
    Ok(())
}

/// Gives the devices, which are in this process's network namespace by now, their addresses, and brings them up.
///
/// # Errors
///
/// The address that a device cannot have.
pub fn settle(devices: &[Device]) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let kernel = Kernel::open().context(KEY)?;
    for device in devices {
        let about = || format!("{KEY}: {:?}", device.name);
        let index = netdevice::name_to_index(&kernel.0, &device.name).context(about())?;
        for (message, attributes) in &device.addresses {
            let mut message = message.clone();
            message[4..].copy_from_slice(&index.to_ne_bytes());
            let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
            kernel
                .ask(libc::RTM_NEWADDR, flags, &message, attributes)
                .context(format!("{}: addresses", about()))?;
        }
        let up = link(index, libc::IFF_UP.cast_unsigned());
        kernel.ask(libc::RTM_NEWLINK, 0, &up, &[]).context(format!("{}: up", about()))?;
    }
    Ok(())
}

/// `struct ifinfomsg`, which brings a device up or down.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for word in [index, flags, libc::IFF_UP.cast_unsigned()] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// A socket to the kernel's rtnetlink.
struct Kernel(OwnedFd);

impl Kernel {
    fn open() -> std::result::Result<Kernel, Errno> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // Protocol 0, which is that of no name: NETLINK_ROUTE.
        socket_with(family, kind, SocketFlags::CLOEXEC, None).map(Kernel)
    }

    fn send(
        &self,
        kind: u16,
        flags: i32,
        body: &[u8],
        attributes: &[(u16, Vec<u8>)],
    ) -> std::result::Result<(), Errno> {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        // Sequence number and port.
        bytes.extend([0; 8]);
        bytes.extend(body);
        for (kind, payload) in attributes {
            bytes.extend((4 + payload.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        send(&self.0, &bytes, SendFlags::empty()).map(|_| ())
    }

    /// Asks for a change, and waits for what the kernel says to it.
    fn ask(
        &self,
        kind: u16,
        flags: i32,
        body: &[u8],
        attributes: &[(u16, Vec<u8>)],
    ) -> std::result::Result<(), Errno> {
        self.send(kind, flags | libc::NLM_F_ACK, body, attributes)?;
        let mut answer = [0; 1024];
        let (_, length) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        match messages(&answer[..length.min(answer.len())]).next() {
            Some((kind, body)) if i32::from(kind) == libc::NLMSG_ERROR => said(body),
            _ => Err(Errno::IO),
        }
    }

    /// Adds to `devices` the addresses that they have: those that reach further than this host, and stay.
    fn addresses(&self, devices: &mut [Device]) -> std::result::Result<(), Errno> {
        self.send(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; ADDRESS], &[])?;
        let mut answer = vec![0; 64 << 10];
        loop {
            let (_, length) = recv(&self.0, &mut answer, RecvFlags::empty())?;
            for (kind, body) in messages(&answer[..length.min(answer.len())]) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return said(body),
                    _ if kind == libc::RTM_NEWADDR => note(devices, body),
                    _ => {}
                }
            }
        }
    }
}

/// What a `struct nlmsgerr` says: nothing for 0.
fn said(body: &[u8]) -> std::result::Result<(), Errno> {
    match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) if code < 0 => Err(Errno::from_raw_os_error(-code)),
        _ => Err(Errno::IO),
    }
}

/// The types and bodies of messages that came together.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    parts(bytes, |part| {
        let length = u32::from_ne_bytes(*part.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(part.get(4..6)?.try_into().ok()?);
        Some((length, kind, HEADER))
    })
}

/// The types and payloads of attributes, `struct rtattr`.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    parts(bytes, |part| {
        let half = |at| Some(u16::from_ne_bytes(part.get(at..at + 2)?.try_into().ok()?));
        Some((usize::from(half(0)?), half(2)?, 4))
    })
}

/// What follows one another, padded to four bytes. `read` gives the length, the type, and where the rest begins.
fn parts(
    mut bytes: &[u8],
    read: impl Fn(&[u8]) -> Option<(usize, u16, usize)>,
) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind, start) = read(bytes)?;
        let rest = bytes.get(start..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, rest))
    })
}

/// Notes an address, where it is one of a device.
fn note(devices: &mut [Device], body: &[u8]) {
    let Some((head, rest)) = body.split_at_checked(ADDRESS) else { return };
    let index = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    let (flags, scope) = (u32::from(head[2]), head[3]);
    let Some(device) = devices.iter_mut().find(|device| device.index == index) else { return };
    let word = |payload: &[u8]| payload.first_chunk().map(|word| u32::from_ne_bytes(*word));
    let long = attributes(rest).find(|(kind, _)| *kind == libc::IFA_FLAGS);
    let flags = long.and_then(|(_, payload)| word(payload)).unwrap_or(flags);
    if scope != libc::RT_SCOPE_UNIVERSE || flags & PERMANENT == 0 {
        return;
    }
    let kept = [libc::IFA_ADDRESS, libc::IFA_LOCAL, libc::IFA_BROADCAST];
    let kept = attributes(rest).filter(|(kind, _)| kept.contains(kind));
    let kept = kept.map(|(kind, payload)| (kind, payload.to_vec())).collect();
    // What the kernel found out about it, it finds out again.
    let head = vec![head[0], head[1], 0, scope, 0, 0, 0, 0];
    device.addresses.push((head, kept));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_apart() {
        let attribute = |kind: u16, payload: &[u8]| {
            let length = 4 + payload.len() as u16;
            let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), payload].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let rest = [attribute(2, &[10, 0, 0, 1]), attribute(3, b"a\0")].concat();
        let head = [2, 24, PERMANENT as u8, 0, 7, 0, 0, 0];
        let device =
            |index| Device { host: "a".into(), name: "b".into(), index, addresses: Vec::new() };
        let mut devices = [device(7u32.to_le()), device(8)];
        note(&mut devices, &[&head[..], &rest].concat());
        assert_eq!(devices[0].addresses[0].1, [(2, vec![10, 0, 0, 1])]);
        assert_eq!(devices[0].addresses[0].0, [2, 24, 0, 0, 0, 0, 0, 0]);
        assert!(devices[1].addresses.is_empty());
        for bad in [&[][..], &[0; 3], &[9, 0, 0, 0], &[255; 40]] {
            assert_eq!(messages(bad).count() + attributes(bad).count(), 0, "{bad:?}");
            note(&mut devices, bad);
        }
        assert_eq!(said(&0i32.to_ne_bytes()), Ok(()));
        assert_eq!(said(&(-libc::EBUSY).to_ne_bytes()), Err(Errno::BUSY));
        assert_eq!(said(&[]), Err(Errno::IO));
    }
}
