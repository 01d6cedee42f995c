//! Joining two connections: bytes go from one to the other without being copied, splice(2).

use crate::linux::sys::{Errno, netns};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, Shutdown, SocketType, shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

/// What a pipe holds, in bytes, where the kernel lets it: what moves at a time.
const ROOM: usize = 256 << 10;
/// What is copied at a time where there is no pipe, in bytes.
const COPIED: usize = 4 << 10;
/// Pipes that are kept for the next connection that has something to say.
const KEPT: usize = 64;

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

/// Moves what `from` says to `to`. A pipe is in use only while it holds something, so a connection that is
/// silent takes no more than its two sockets.
async fn pump(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    loop {
        from.readable().await?;
        let Ok(pipe) = Pipe::take() else {
            // No descriptors are left.
            match copy(from, to).await? {
                0 => return end(to),
                _ => continue,
            }
        };
        loop {
            let got = from.try_io(Interest::READABLE, || pipe.fill(from.as_fd()));
            let mut left = match got {
                Ok(0) => {
                    pipe.keep();
                    return end(to);
                }
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            while left > 0 {
                left -= to.async_io(Interest::WRITABLE, || pipe.drain(to.as_fd(), left)).await?;
            }
        }
        pipe.keep();
    }
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
    let mut buffer = vec![0; COPIED];
    let got = match from.try_read(&mut buffer) {
        // Nothing is moved, and it is no end.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(1),
        got => got?,
    };
    let mut left = &buffer[..got];
    while !left.is_empty() {
        let wrote = to.async_io(Interest::WRITABLE, || to.try_write(left)).await?;
        left = &left[wrote..];
    }
    Ok(got)
}

/// A pipe between two sockets.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

thread_local! {
    static EMPTY: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

impl Pipe {
    /// An empty one.
    fn take() -> io::Result<Pipe> {
        if let Some(pipe) = EMPTY.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Of the pipes of one user, only some may be this large.
        let _ = fcntl_setpipe_size(&writer, ROOM);
        Ok(Pipe { reader, writer })
    }

    /// Gives it back, empty as it is. One that is dropped instead takes with it what it holds.
    fn keep(self) {
        EMPTY.with_borrow_mut(|kept| {
            if kept.len() < KEPT {
                kept.push(self);
            }
        });
    }

    fn fill(&self, from: BorrowedFd<'_>) -> io::Result<usize> {
        Ok(splice(from, None, &self.writer, None, ROOM, FLAGS)?)
    }

    fn drain(&self, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
        match splice(&self.reader, None, to, None, length, FLAGS)? {
            // Nothing left, where there was something: it would be asked for forever.
            0 => Err(ErrorKind::WriteZero.into()),
            moved => Ok(moved),
        }
    }
}
