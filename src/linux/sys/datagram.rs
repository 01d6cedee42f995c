//! Datagrams that are answered from the address which they were sent to.

use super::{Errno, check};
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for one control message of either family.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Has [`receive`] learn where a datagram was sent to, and lets [`send`] send from there: `IP_PKTINFO` of
/// ip(7), `IPV6_RECVPKTINFO` and `IPV6_FREEBIND` of ipv6(7).
///
/// # Errors
///
/// As setsockopt(2).
pub fn by_destination(socket: BorrowedFd<'_>, six: bool) -> Result<(), Errno> {
    const IPV6_FREEBIND: c_int = 78;
    let set = |level, option| {
        let on: c_int = 1;
        // SAFETY: the kernel reads one int.
        check(i64::from(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        }))
        .map(|_| ())
    };
    if !six {
        return set(libc::IPPROTO_IP, libc::IP_PKTINFO);
    }
    set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
    // An address that is only a route's is one that IPv6 takes for foreign.
    set(libc::IPPROTO_IPV6, IPV6_FREEBIND)
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// How many bytes it has; what found no room in the buffer is lost.
    pub length: usize,
    /// Where it comes from.
    pub from: SocketAddr,
    /// The address that it was sent to.
    pub to: IpAddr,
}

/// Takes the next datagram, of those that are there.
///
/// # Errors
///
/// As recvmsg(2): `EAGAIN` where there is none. `EPROTO` for one of which the kernel does not say where it
/// was sent to.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Datagram, Errno> {
    let mut control = Control([0; 64]);
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a header of zeros is an empty one. What it points to lives over the call, and the lengths are
    // those of what it points to.
    let (header, length) = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = size_of_val(&name) as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of_val(&control) as _;
        let length =
            check(libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) as i64)?;
        (header, length)
    };
    // SAFETY: the kernel wrote an address of the socket's family there; any bytes are one.
    let name = unsafe { name.assume_init() };
    let from = address(&name).ok_or(Errno::PROTO)?;
    // SAFETY: the header is as the kernel left it, and so its control messages are whole; each is read as the
    // type that its level and type say, without relying on alignment.
    let to = unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const header);
        let mut found = None;
        while let Some(message) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    found = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    found = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const header, at);
        }
        found
    };
    Ok(Datagram { length, from, to: to.ok_or(Errno::PROTO)? })
}

/// Sends `bytes` to `to`, from the address `from`, which is of the same family.
///
/// # Errors
///
/// As sendmsg(2): `EAGAIN` where there is no room.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    from: IpAddr,
) -> Result<(), Errno> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros are a value of these types. The header points to what lives over the call, with its
    // lengths, and the control message has room for what is written to it. The kernel only reads.
    unsafe {
        let (mut four, mut six): (libc::sockaddr_in, libc::sockaddr_in6) = zeroed();
        let mut header: libc::msghdr = zeroed();
        match to {
            SocketAddr::V4(to) => {
                four.sin_family = libc::AF_INET as libc::sa_family_t;
                four.sin_port = to.port().to_be();
                four.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
                header.msg_name = (&raw mut four).cast();
                header.msg_namelen = size_of_val(&four) as libc::socklen_t;
            }
            SocketAddr::V6(to) => {
                six.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                six.sin6_port = to.port().to_be();
                six.sin6_addr.s6_addr = to.ip().octets();
                six.sin6_scope_id = to.scope_id();
                header.msg_name = (&raw mut six).cast();
                header.msg_namelen = size_of_val(&six) as libc::socklen_t;
            }
        }
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast::<c_void>();
        header.msg_controllen = size_of_val(&control) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        let length = match from {
            IpAddr::V4(from) => {
                let mut info: libc::in_pktinfo = zeroed();
                info.ipi_spec_dst.s_addr = u32::from_ne_bytes(from.octets());
                ((*message).cmsg_level, (*message).cmsg_type) =
                    (libc::IPPROTO_IP, libc::IP_PKTINFO);
                libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().write_unaligned(info);
                size_of_val(&info)
            }
            IpAddr::V6(from) => {
                let mut info: libc::in6_pktinfo = zeroed();
                info.ipi6_addr.s6_addr = from.octets();
                ((*message).cmsg_level, (*message).cmsg_type) =
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
                libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().write_unaligned(info);
                size_of_val(&info)
            }
        };
        (*message).cmsg_len = libc::CMSG_LEN(length as u32) as _;
        header.msg_controllen = libc::CMSG_SPACE(length as u32) as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        check(libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) as i64).map(|_| ())
    }
}

/// The internet address in a `struct sockaddr_storage`.
fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is larger, and aligned for every address; any bytes are one.
            let four = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(four.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(six.sin6_addr.s6_addr), u16::from_be(six.sin6_port));
            Some(SocketAddrV6::new(ip, port, 0, six.sin6_scope_id).into())
        }
        _ => None,
    }
}
