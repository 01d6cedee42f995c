//! Joining two connections: bytes go from one to the other without being copied, splice(2), or by few large copies
//! where there is no pipe for that.

use crate::linux::sys::socket::is_at_mark;
use crate::linux::sys::{Errno, netns};
use rustix::net::sockopt::{set_socket_linger, set_socket_oobinline};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketType, recv, send, shutdown,
};
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

/// What moves at a time at most, in bytes; what a pipe holds that has much to move (`pipe-max-size` of proc(5), as it
/// is by default). Less of it makes for more changes between the processes.
const ROOM: usize = 1 << 20;
/// What a pipe usually holds, in bytes: who says less at a time needs no more.
const USUAL: usize = 64 << 10;
/// What is copied at a time where there is no pipe, in bytes; and where much is held already.
const COPIED: [usize; 2] = [256 << 10, 4 << 10];
/// What counts as much: all that was copied and not taken, in bytes.
const MUCH: usize = 16 << 20;
/// Pipes that are kept for the next connection that has something to say. A user has a limit for all pipes
/// (`pipe-user-pages-soft` of proc(5)): 64 of the large ones.
const KEPT: usize = 4;
/// When a pipe is tried again where there was none.
const AGAIN: Duration = Duration::from_secs(1);

/// Both forms of loopback, in the order in which they are tried.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Joins `inner` with a connection to `port` of this process's loopback.
///
/// # Errors
///
/// As connect(2), and as [`join`].
pub async fn to_host(inner: TcpStream, port: u16) -> io::Result<()> {
    to(inner, port, |address| match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    })
    .await
}

/// Joins `outer` with a connection to `port` of loopback in the network namespace of `maker`.
///
/// # Errors
///
/// As socket(2), connect(2), and as [`join`].
pub async fn to_run(outer: TcpStream, port: u16, maker: BorrowedFd<'_>) -> io::Result<()> {
    to(outer, port, |address| {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = SocketType::STREAM.as_raw() | rustix::net::SocketFlags::NONBLOCK.bits();
        let socket = netns::make_socket(maker, [family.as_raw().into(), kind, 0])?;
        Ok(TcpSocket::from_std_stream(std::net::TcpStream::from(socket)))
    })
    .await
}

async fn to(
    from: TcpStream,
    port: u16,
    socket: impl Fn(SocketAddr) -> io::Result<TcpSocket>,
) -> io::Result<()> {
    let mut last = io::Error::from(ErrorKind::ConnectionRefused);
    for address in LOOPBACK.map(|ip| SocketAddr::new(ip, port)) {
        let connected = match socket(address) {
            Ok(socket) => socket.connect(address).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok(other) => return join(&from, &other).await,
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Moves bytes both ways, until both have ended. What ends one way ends the other connection that way; what
/// breaks one resets the other.
///
/// # Errors
///
/// How one of them broke.
pub async fn join(one: &TcpStream, other: &TcpStream) -> io::Result<()> {
    for stream in [one, other] {
        // What is said in small pieces is not to wait for more of it.
        stream.set_nodelay(true)?;
        keep_urgent(stream)?;
        // Until all is said, an end is none: that of this process, too.
        reset(stream);
    }
    let mut ways = [Some(pin!(pump(one, other))), Some(pin!(pump(other, one)))];
    let result = poll_fn(|context| {
        for way in &mut ways {
            match way.as_mut().map(|way| way.as_mut().poll(context)) {
                Some(Poll::Ready(Ok(()))) => *way = None,
                Some(Poll::Ready(broken)) => return Poll::Ready(broken),
                Some(Poll::Pending) | None => {}
            }
        }
        if ways.iter().all(Option::is_none) { Poll::Ready(Ok(())) } else { Poll::Pending }
    });
    result.await?;
    for stream in [one, other] {
        set_socket_linger(stream, None)?;
    }
    Ok(())
}

/// Makes the end of `stream` a reset, as its peer is to see it.
pub fn reset(stream: &impl AsFd) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

/// Leaves urgent data of TCP (RFC 6093) where it was said: otherwise what reads passes it over.
///
/// # Errors
///
/// As setsockopt(2).
pub fn keep_urgent(stream: &TcpStream) -> io::Result<()> {
    Ok(set_socket_oobinline(stream, true)?)
}

/// Moves what `from` says to `to`. A pipe is in use only while it holds something, so a connection that is
/// silent takes no more than its two sockets.
async fn pump(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    loop {
        from.readable().await?;
        let Ok(mut pipe) = Pipe::take() else {
            // No descriptors are left, or this user has too many pipes.
            match copy(from, to).await? {
                0 => return end(to),
                _ => continue,
            }
        };
        loop {
            let got = match from.try_io(Interest::READABLE, || pipe.fill(from.as_fd())) {
                Ok(Got::Piped(0)) => {
                    pipe.keep();
                    return end(to);
                }
                Ok(Got::Piped(got)) => got,
                Ok(Got::Urgent(byte)) => {
                    say_urgent(to, byte).await?;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let mut left = got;
            while left > 0 {
                left -= to.async_io(Interest::WRITABLE, || pipe.drain(to.as_fd(), left)).await?;
            }
            if got >= USUAL {
                pipe.grow();
                // Others have something to say, too.
                tokio::task::yield_now().await;
            }
        }
        pipe.keep();
    }
}

/// Says what is urgent.
async fn say_urgent(to: &TcpStream, byte: u8) -> io::Result<()> {
    let say = || Ok(send(to, &[byte], SendFlags::OOB | SendFlags::NOSIGNAL)?);
    to.async_io(Interest::WRITABLE, say).await.map(|_| ())
}

/// Ends what is said to `to`, unless it has gone.
fn end(to: &TcpStream) -> io::Result<()> {
    match shutdown(to, Shutdown::Write) {
        Err(Errno::NOTCONN) => Ok(()),
        result => Ok(result?),
    }
}

/// Moves some of what `from` says to `to`, without a pipe: how many bytes, 0 at the end.
async fn copy(from: &TcpStream, to: &TcpStream) -> io::Result<usize> {
    if is_at_mark(from.as_fd()) {
        let mut byte = [0];
        return match from.try_read(&mut byte) {
            Ok(1..) => say_urgent(to, byte[0]).await.map(|()| 1),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(1),
            end => end,
        };
    }
    let moved = BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(COPIED[0], 0);
        let room = COPIED[usize::from(HELD.load(Ordering::Relaxed) >= MUCH)];
        let got = from.try_read(&mut buffer[..room])?;
        let wrote = match to.try_write(&buffer[..got]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            wrote => wrote?,
        };
        io::Result::Ok((got, Held::new(&buffer[wrote..got])))
    });
    let (got, held) = match moved {
        // Nothing is moved, and it is no end.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(1),
        moved => moved?,
    };
    let mut left = held.0.as_slice();
    while !left.is_empty() {
        let wrote = to.async_io(Interest::WRITABLE, || to.try_write(left)).await?;
        left = &left[wrote..];
    }
    Ok(got)
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The size of all that is [`Held`].
static HELD: AtomicUsize = AtomicUsize::new(0);

/// What one connection said, and the other did not take yet.
struct Held(Vec<u8>);

impl Held {
    fn new(bytes: &[u8]) -> Held {
        HELD.fetch_add(bytes.len(), Ordering::Relaxed);
        Held(bytes.to_vec())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// What was read of a connection.
enum Got {
    /// So many bytes, which are in a pipe.
    Piped(usize),
    /// A byte that is urgent.
    Urgent(u8),
}

/// A pipe between two sockets.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    is_large: bool,
}

thread_local! {
    static EMPTY: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
    /// When a new pipe had too little room.
    static SCARCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

impl Pipe {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// As pipe2(2); `ENOBUFS` where this user has so many that a new one has room for two pages, by which bytes would
    /// move more slowly than by copies.
    fn take() -> io::Result<Pipe> {
        if let Some(pipe) = EMPTY.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        if SCARCE.get().is_some_and(|since| since.elapsed() < AGAIN) {
            return Err(Errno::NOBUFS.into());
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if fcntl_getpipe_size(&writer)? < USUAL {
            SCARCE.set(Some(Instant::now()));
            return Err(Errno::NOBUFS.into());
        }
        Ok(Pipe { reader, writer, is_large: false })
    }

    /// Makes room for as much as moves at a time, where the kernel lets it.
    fn grow(&mut self) {
        if !std::mem::replace(&mut self.is_large, true) {
            // Of the pipes of one user, only some may be this large.
            let _ = fcntl_setpipe_size(&self.writer, ROOM);
        }
    }

    /// Gives it back, empty as it is. One that is dropped instead takes with it what it holds.
    fn keep(self) {
        EMPTY.with_borrow_mut(|kept| {
            if kept.len() < KEPT {
                kept.push(self);
            }
        });
    }

    /// Reads of `from`. At urgent data splice(2) stops as if there were nothing, or no more.
    fn fill(&self, from: BorrowedFd<'_>) -> io::Result<Got> {
        let piped = splice(from, None, &self.writer, None, ROOM, FLAGS);
        if !matches!(piped, Ok(0) | Err(Errno::AGAIN)) || !is_at_mark(from) {
            return Ok(Got::Piped(piped?));
        }
        let mut byte = [0];
        Ok(match recv(from, &mut byte, RecvFlags::DONTWAIT)? {
            (0, _) => Got::Piped(0),
            _ => Got::Urgent(byte[0]),
        })
    }

    fn drain(&self, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
        match splice(&self.reader, None, to, None, length, FLAGS)? {
            // Nothing left, where there was something: it would be asked for forever.
            0 => Err(ErrorKind::WriteZero.into()),
            moved => Ok(moved),
        }
    }
}
