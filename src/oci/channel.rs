//! Messages between the runtime and the process that becomes the container's.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, listen, recv, sendmsg, socket_with,
    socketpair,
};

use super::{Context, Error, Result};

/// The longest message: an error text is cut to it.
const LONGEST: usize = 16 * 1024;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// To the container's process: go on.
    Go = b'g',
    /// What went wrong, as text. The last message.
    Failed = b'E',
    /// The container's mounts are made, its root is not entered.
    Built = b'B',
    /// The number that the listener of the filter is going to have.
    Listener = b'L',
    /// All is done but waiting for `start`.
    Ready = b'R',
    /// The number of the process that goes on instead of this one.
    Instead = b'P',
}

impl Tag {
    fn read(byte: u8) -> Option<Tag> {
        [Tag::Go, Tag::Failed, Tag::Built, Tag::Listener, Tag::Ready, Tag::Instead]
            .into_iter()
            .find(|tag| *tag as u8 == byte)
    }
}

/// One end of a connection that keeps messages apart.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two ends.
    ///
    /// # Errors
    ///
    /// As socketpair(2).
    pub fn pair() -> Result<(Channel, Channel)> {
        let kind = SocketType::SEQPACKET;
        let (a, b) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .context("socketpair")?;
        Ok((Channel(a), Channel(b)))
    }

    /// Sends one message.
    ///
    /// # Errors
    ///
    /// Where the other end is gone.
    pub fn send(&self, tag: Tag, content: &[u8]) -> Result<()> {
        let content = &content[..content.len().min(LONGEST)];
        let first = [tag as u8];
        let parts = [IoSlice::new(&first), IoSlice::new(content)];
        let mut nothing = SendAncillaryBuffer::default();
        loop {
            match sendmsg(&self.0, &parts, &mut nothing, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                result => return result.map(|_| ()).context("message"),
            }
        }
    }

    /// Ends this process, which says why.
    pub fn fail(&self, error: &Error) -> ! {
        let _gone = self.send(Tag::Failed, error.to_string().as_bytes());
        super::sys::process::exit(1)
    }

    /// Waits for the next message; `None` where the other end is closed.
    ///
    /// # Errors
    ///
    /// As recv(2); [`Tag::Failed`] is the error that it says.
    pub fn receive(&self) -> Result<Option<(Tag, Vec<u8>)>> {
        let mut buffer = vec![0; LONGEST + 1];
        let length = loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                // The other end closed, and had not read everything.
                Err(Errno::CONNRESET) => return Ok(None),
                result => break result.context("message")?.0,
            }
        };
        let Some(first) = buffer[..length].first() else { return Ok(None) };
        let tag = Tag::read(*first).ok_or_else(|| Error::new("message: unknown"))?;
        let content = buffer[1..length].to_vec();
        match tag {
            Tag::Failed => Err(Error::new(String::from_utf8_lossy(&content))),
            tag => Ok(Some((tag, content))),
        }
    }

    /// Waits for `tag`.
    ///
    /// # Errors
    ///
    /// As [`Channel::receive`]; where the other end is gone, or says something else.
    pub fn expect(&self, tag: Tag) -> Result<Vec<u8>> {
        match self.receive()? {
            Some((got, content)) if got == tag => Ok(content),
            Some((got, _)) => Err(Error::new(format!("message: {got:?} instead of {tag:?}"))),
            None => Err(Error::new("the other side ended")),
        }
    }
}

/// A socket where a container waits for `start`, or for commands that are executed in it.
#[derive(Debug)]
pub struct Door(OwnedFd);

impl Door {
    /// Makes the socket `name` in the directory `dir`, where `backlog` others may wait.
    ///
    /// # Errors
    ///
    /// As bind(2).
    pub fn make(dir: &Path, name: &str, backlog: i32) -> Result<Door> {
        let (socket, address, _dir) = socket_at(dir, name, SocketType::SEQPACKET)?;
        bind(&socket, &address).context(dir.join(name).display())?;
        listen(&socket, backlog).context("listen")?;
        Ok(Door(socket))
    }

    /// Waits for somebody who says start.
    ///
    /// # Errors
    ///
    /// As accept(2).
    pub fn open(&self) -> Result<Channel> {
        loop {
            match accept_with(&self.0, SocketFlags::CLOEXEC) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                result => return result.map(Channel).context("accept"),
            }
        }
    }

    /// Connects to whoever waits at `name` in `dir`; `None` where nobody does.
    ///
    /// # Errors
    ///
    /// As connect(2).
    pub fn knock(dir: &Path, name: &str) -> Result<Option<OwnedFd>> {
        let (socket, address, _dir) = socket_at(dir, name, SocketType::SEQPACKET)?;
        match connect(&socket, &address) {
            Ok(()) => Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(errno) => Err(errno).context(dir.join(name).display()),
        }
    }
}

impl From<Door> for OwnedFd {
    fn from(door: Door) -> OwnedFd {
        door.0
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Channel {
        Channel(socket)
    }
}

/// A socket, and an address for `name` in `dir` that is short however long the path is: an address has room
/// for 107 bytes. The directory stays open as long as the address is used.
///
/// # Errors
///
/// As socket(2) and open(2).
pub fn socket_at(
    dir: &Path,
    name: &str,
    kind: SocketType,
) -> Result<(OwnedFd, SocketAddrUnix, Option<File>)> {
    let socket =
        socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).context("socket")?;
    let whole = dir.join(name);
    if whole.as_os_str().len() < 100 {
        let address = SocketAddrUnix::new(&whole).context(whole.display())?;
        return Ok((socket, address, None));
    }
    let open = File::open(dir).context(dir.display())?;
    let address = SocketAddrUnix::new(through(open.as_fd(), name)).context(whole.display())?;
    Ok((socket, address, Some(open)))
}

/// The path of `name` in the open directory `dir`.
fn through(dir: BorrowedFd<'_>, name: &str) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())
}

/// Connects to the stream socket at `path`, which may be long.
///
/// # Errors
///
/// As connect(2).
pub fn connect_stream(path: &Path) -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .context("socket")?;
    let _open;
    let address = if path.as_os_str().as_bytes().len() < 100 {
        SocketAddrUnix::new(path)
    } else {
        let dir = path.parent().unwrap_or(Path::new("/"));
        _open = File::open(dir).context(dir.display())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        SocketAddrUnix::new(through(_open.as_fd(), &name))
    };
    let address = address.context(path.display())?;
    connect(&socket, &address).context(path.display())?;
    Ok(socket)
}

/// Sends `content` with one descriptor over a stream socket.
///
/// # Errors
///
/// As sendmsg(2); where not all of it was sent.
pub fn send_descriptor(socket: BorrowedFd<'_>, content: &[u8], fd: BorrowedFd<'_>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = loop {
        let parts = [IoSlice::new(content)];
        match sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => break result.context("send a descriptor")?,
        }
    };
    let mut rest = &content[sent..];
    while !rest.is_empty() {
        let sent = rustix::net::send(socket, rest, SendFlags::NOSIGNAL).context("send")?;
        rest = &rest[sent..];
    }
    Ok(())
}
