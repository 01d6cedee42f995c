//! A network namespace, and the process in it that makes sockets there.

use super::domain::close_all_but;
use super::identity::set_capabilities;
use super::route::Routes;
use super::{Errno, last_errno, restrict_self};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, Protocol, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socket_with, socketpair,
};
use rustix::thread::UnshareFlags;
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Room for the maker's frames.
const STACK: usize = 32 * 1024;

/// What a socket is asked for by: family, type with flags, and protocol, as socket(2) takes them.
type Request = [u32; 3];

/// Starts the maker: a process in a network namespace of its own, which makes sockets there for whoever has
/// one of the two descriptors that are returned, and ends when nobody has. Where this user may make no
/// network namespace, it has a user namespace, too, which nobody else is in. The device `lo` is up in there;
/// with `all_local`, every address is one of it.
///
/// It shares this process's memory, as the watcher does and for its reason, so it makes system calls and
/// nothing else. It is in the Landlock domain of `ruleset`: whoever made it do something else would reach no file.
///
/// # Errors
///
/// As unshare(2): `EPERM` and `ENOSPC` where a host forbids namespaces.
pub fn start_maker(all_local: bool, ruleset: BorrowedFd<'_>) -> Result<[OwnedFd; 2], Errno> {
    let flags = SocketFlags::CLOEXEC;
    let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let ((first, its_first), (second, its_second)) = (pair()?, pair()?);
    // Stack and argument live as long as the maker does, so they are leaked.
    let stack = Box::leak(vec![0u8; STACK].into_boxed_slice());
    let channels = [its_first.as_raw_fd(), its_second.as_raw_fd()];
    let work = Box::leak(Box::new(Work { channels, all_local, ruleset: ruleset.as_raw_fd() }));
    // SAFETY: `maker_main` runs on a stack of its own, and nobody else uses its argument. It has a copy of
    // the table of descriptors, and so of the two in there.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len() & !15);
        // Without a signal at its end: who waits for children does not wait for this one.
        libc::clone(maker_main, top.cast(), libc::CLONE_VM, (&raw mut *work).cast())
    };
    if pid < 0 {
        return Err(last_errno());
    }
    drop((its_first, its_second));
    receive(first.as_fd()).and_then(|(errno, _)| answered(errno))?;
    Ok([first, second])
}

/// Makes a socket in the namespace of the maker behind `channel`: `request` has what socket(2) takes.
/// Nobody else may be asking on this channel meanwhile.
///
/// # Errors
///
/// As socket(2); `EPIPE` when the maker is gone.
pub fn make_socket(channel: BorrowedFd<'_>, request: Request) -> Result<OwnedFd, Errno> {
    let mut bytes = [0; size_of::<Request>()];
    for (to, word) in bytes.chunks_exact_mut(size_of::<u32>()).zip(request) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    rustix::net::send(channel, &bytes, SendFlags::NOSIGNAL)?;
    match receive(channel)? {
        (0, Some(socket)) => Ok(socket),
        (errno, _) => answered(errno).and(Err(Errno::PIPE)),
    }
}

fn answered(errno: i32) -> Result<(), Errno> {
    if errno == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(errno)) }
}

/// One message of the maker, or of who hands one on: an error's number, 0 for none, and what comes with it.
///
/// # Errors
///
/// As recvmsg(2); `EPIPE` when the other end is gone.
pub fn receive(channel: BorrowedFd<'_>) -> Result<(i32, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut errno = [0; size_of::<i32>()];
    let mut parts = [IoSliceMut::new(&mut errno)];
    let got = recvmsg(channel, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes < errno.len() {
        return Err(Errno::PIPE);
    }
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((i32::from_ne_bytes(errno), socket))
}

/// What the maker is to do.
struct Work {
    channels: [RawFd; 2],
    all_local: bool,
    ruleset: RawFd,
}

extern "C" fn maker_main(argument: *mut c_void) -> c_int {
    // SAFETY: `start_maker` leaked this for us.
    let Work { channels, all_local, ruleset } = unsafe { &*argument.cast::<Work>() };
    // By a way that leaves the errno of the launcher's thread alone. Nothing depends on either.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"sockets");
    // SAFETY: nobody closes these in this process's table while they are used.
    let (ruleset, channels) = unsafe {
        (BorrowedFd::borrow_raw(*ruleset), channels.map(|fd| BorrowedFd::borrow_raw(fd)))
    };
    // Meanwhile the launcher's thread waits, so that the errno is not in use.
    let entered = restrict_self(ruleset).and_then(|()| enter_namespace(*all_local));
    close_all_but(channels[0].as_raw_fd(), channels[1].as_raw_fd());
    // Who cannot answer ends: that, too, is an answer.
    if tell(channels[0], entered.err(), None).is_ok() && entered.is_ok() {
        let mut open = [true; 2];
        while open.contains(&true) && serve(channels, &mut open).is_ok() {}
    }
    // SAFETY: ends this process without running the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

fn enter_namespace(all_local: bool) -> Result<(), Errno> {
    let new = UnshareFlags::NEWNET;
    // SAFETY: the table of descriptors stays as it is, which `unshare_unsafe` warns of.
    let unshare = |flags| unsafe { rustix::thread::unshare_unsafe(flags) };
    unshare(new).or_else(|_| unshare(new | UnshareFlags::NEWUSER))?;
    let routes = Routes::new()?;
    routes.loopback_up()?;
    if all_local {
        routes.all_local(AddressFamily::INET)?;
        // There may be no IPv6.
        let _ = routes.all_local(AddressFamily::INET6);
    }
    drop(routes);
    // Making sockets takes none.
    set_capabilities(0, 0)
}

/// Makes the sockets that are asked for next, by whoever has the other ends of the channels that are `open`.
fn serve(channels: [BorrowedFd<'_>; 2], open: &mut [bool; 2]) -> Result<(), Errno> {
    // One that has ended would wake this forever: the other one is in its place.
    let of = |at: usize| channels[if open[at] { at } else { 1 - at }];
    let wanted = |at: usize| if open[at] { PollFlags::IN } else { PollFlags::empty() };
    let mut polled = [0, 1].map(|at| PollFd::from_borrowed_fd(of(at), wanted(at)));
    match poll(&mut polled, None) {
        Err(Errno::INTR) => return Ok(()),
        result => result?,
    };
    let ready = polled.map(|polled| polled.revents());
    for ((channel, open), ready) in channels.into_iter().zip(open).zip(ready) {
        if !*open {
            continue;
        }
        // What was sent before the end is not waited for.
        if ready.contains(PollFlags::IN) && !ready.contains(PollFlags::HUP) {
            let mut bytes = [0; size_of::<Request>()];
            if rustix::io::read(channel, &mut bytes) != Ok(bytes.len()) {
                continue;
            }
            let word = |at: usize| {
                let start = at * size_of::<u32>();
                bytes[start..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
            };
            let made = make([word(0), word(1), word(2)]);
            let told = match made {
                Ok(socket) => tell(channel, None, Some(socket.as_fd())),
                Err(errno) => tell(channel, Some(errno), None),
            };
            // Who asked may be gone meanwhile.
            if !matches!(told, Ok(()) | Err(Errno::PIPE | Errno::CONNRESET)) {
                return told;
            }
        }
        *open = !ready.contains(PollFlags::HUP);
    }
    Ok(())
}

/// socket(2), by a way that leaves the errno of the launcher's thread alone.
fn make([family, kind, protocol]: Request) -> Result<OwnedFd, Errno> {
    let family = u16::try_from(family).map_err(|_| Errno::AFNOSUPPORT)?;
    let flags = SocketFlags::from_bits_truncate(kind) | SocketFlags::CLOEXEC;
    socket_with(
        AddressFamily::from_raw(family),
        SocketType::from_raw(kind & !flags.bits()),
        flags,
        NonZeroU32::new(protocol).map(Protocol::from_raw),
    )
}

/// The other side of [`receive`].
///
/// # Errors
///
/// As sendmsg(2).
pub fn tell(
    channel: BorrowedFd<'_>,
    error: Option<Errno>,
    socket: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let code = error.map_or(0, Errno::raw_os_error).to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.unwrap_or(channel)];
    if socket.is_some() {
        control.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    sendmsg(channel, &[IoSlice::new(&code)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}
