//! The device `lo` of a network namespace, and routes to it, by rtnetlink(7).
//!
//! Made of system calls alone: the maker uses it, which shares the launcher's memory.

use super::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::os::fd::OwnedFd;

/// `lo` is the first device of every namespace (`LOOPBACK_IFINDEX`, include/net/flow.h).
const LO: u32 = 1;
/// `struct nlmsghdr` of netlink(7).
const HEAD: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;

/// A way to change the network namespace that this thread is in.
pub struct Routes(OwnedFd);

impl Routes {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// As socket(2).
    pub fn new() -> Result<Routes, Errno> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        socket_with(AddressFamily::NETLINK, kind, flags, None).map(Routes)
    }

    /// Brings `lo` up.
    ///
    /// # Errors
    ///
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn loopback_up(&self) -> Result<(), Errno> {
        // `struct ifinfomsg`: family and type, index, flags, and which of them change.
        let up = (libc::IFF_UP as u32).to_ne_bytes();
        self.ask(RTM_NEWLINK, 0, [[0; 4], LO.to_ne_bytes(), up, up])
    }

    /// Makes every address of `family` one of this host: `local default dev lo`.
    ///
    /// # Errors
    ///
    /// `EPERM` without CAP_NET_ADMIN, `ENETDOWN` while `lo` is not up, another one where there is no such
    /// family.
    pub fn all_local(&self, family: AddressFamily) -> Result<(), Errno> {
        const RT_TABLE_LOCAL: u8 = 255;
        const RTPROT_BOOT: u8 = 3;
        const RT_SCOPE_HOST: u8 = 254;
        const RTN_LOCAL: u8 = 2;
        const RTA_OIF: u16 = 4;
        // `struct rtmsg`, and an attribute: length, type, value.
        let [length, kind] = [8u16, RTA_OIF].map(u16::to_ne_bytes);
        let body = [
            [family.as_raw() as u8, 0, 0, 0],
            [RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL],
            [0; 4],
            [length[0], length[1], kind[0], kind[1]],
            LO.to_ne_bytes(),
        ];
        self.ask(RTM_NEWROUTE, NLM_F_CREATE, body)
    }

    /// Sends a request and waits for what became of it.
    fn ask<const N: usize>(&self, kind: u16, flags: u16, body: [[u8; 4]; N]) -> Result<(), Errno> {
        let mut message = [0; 64];
        let length = HEAD + size_of_val(&body);
        let [low, high] = [kind, NLM_F_REQUEST | NLM_F_ACK | flags].map(u16::to_ne_bytes);
        message[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        message[4..8].copy_from_slice(&[low[0], low[1], high[0], high[1]]);
        message[HEAD..length].copy_from_slice(body.as_flattened());
        send(&self.0, &message[..length], SendFlags::empty())?;
        // `struct nlmsgerr`: 0 or the negative error, and what it is about.
        let mut answer = [0; 256];
        let (got, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        match answer[..got].get(HEAD..).and_then(|rest| rest.first_chunk()) {
            Some(code) if *code == [0; 4] => Ok(()),
            Some(code) => Err(Errno::from_raw_os_error(-i32::from_ne_bytes(*code))),
            None => Err(Errno::PROTO),
        }
    }
}
