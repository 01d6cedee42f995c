//! Unix sockets: those that the run bound, and those outside that a line of the policy opens.

use super::diag;
use super::names::NEEDS_DIRECTORY;
use super::report::Refusal;
use super::resolve::{Last, Object, fd_name, file_type};
use super::task::Task;
use super::{Answer, Broker, Errno};
use crate::linux::sys::socket;
use crate::policy::{Access, Closed, Endpoints, Passage, Use};
use crate::trap::Operation;
use rustix::fs::{AtFlags, FileType, ResolveFlags, StatxFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most addresses that living sockets of a run may have.
const LIMIT: usize = 16 * 1024;

/// Unix sockets that the run bound: their addresses, and the inode numbers of the sockets themselves.
#[derive(Default)]
pub struct Bound(Mutex<HashMap<Name, u64>>);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Name {
    /// Device, inode and time of birth: an inode number alone may come back.
    Inode(u64, u64, i64, u32),
    Abstract(Vec<u8>),
}

impl Bound {
    fn names(&self) -> MutexGuard<'_, HashMap<Name, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, name: &Name) -> bool {
        self.names().contains_key(name)
    }

    fn insert(&self, name: Name, socket: &OwnedFd) -> Result<(), Errno> {
        let number = rustix::fs::fstat(socket)?.st_ino;
        self.names().insert(name, number);
        Ok(())
    }

    /// Forgets sockets that are closed, if there are too many.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` when too many are left.
    fn make_room(&self, broker: &Broker) -> Result<(), Errno> {
        let mut names = self.names();
        if names.len() < LIMIT {
            return Ok(());
        }
        let mut alive = HashSet::new();
        broker.find_line("self/net/unix", |line| {
            alive.extend(line.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok()));
            false
        })?;
        names.retain(|_, number| alive.contains(number));
        if names.len() < LIMIT { Ok(()) } else { Err(Errno::NOBUFS) }
    }

    /// Whether the run bound the abstract `name`, with its leading NUL.
    pub fn owns_abstract(&self, name: &[u8]) -> bool {
        self.contains(&Name::Abstract(name.to_vec()))
    }

    /// Whether the run bound the socket `name` in `directory`, or the object itself where it is empty.
    pub fn owns(&self, directory: impl AsFd, name: &[u8]) -> Result<bool, Errno> {
        Ok(self.contains(&inode(directory, name)?))
    }
}

fn inode(directory: impl AsFd, name: &[u8]) -> Result<Name, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(directory, name, flags, StatxFlags::INO | StatxFlags::BTIME)?;
    let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    Ok(Name::Inode(device, stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

/// An address of the Unix family.
pub enum UnixAddress<'a> {
    /// A path, without what follows its NUL.
    Path(&'a [u8]),
    /// An abstract name, with its leading NUL.
    Abstract(&'a [u8]),
    /// No name: connect(2) dissolves a datagram socket's association, bind(2) picks a name.
    Unnamed,
}

/// Takes an address of the Unix family apart.
pub fn unix_address(address: &[u8]) -> UnixAddress<'_> {
    match address.get(2..) {
        None | Some([]) => UnixAddress::Unnamed,
        Some(name @ [0, ..]) => UnixAddress::Abstract(name),
        Some(path) => {
            let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
            UnixAddress::Path(&path[..end])
        }
    }
}

/// `path`, at most 107 bytes, as a Unix socket address.
fn to_unix(path: &[u8]) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend_from_slice(path);
    address.push(0);
    address
}

const OUTSIDE: &str = "abstract sockets of processes outside cannot be allowed";

impl Task<'_> {
    pub(super) fn connect_unix(&self, copy: &OwnedFd, address: &[u8]) -> Result<Answer, Errno> {
        if family(address) != libc::AF_UNIX {
            return Ok(socket::connect(copy, address).into());
        }
        match unix_address(address) {
            UnixAddress::Unnamed => Ok(socket::connect(copy, address).into()),
            UnixAddress::Abstract(name) => {
                self.may_act()?;
                if !self.broker.sockets.contains(&Name::Abstract(name.to_vec())) {
                    let target = format!("@{}", String::from_utf8_lossy(&name[1..]));
                    let why = (Err(OUTSIDE.into()), None);
                    return Ok(self.refuse_network(Operation::Connect, target, why, None, None));
                }
                self.connect_waiting(copy, address)
            }
            UnixAddress::Path(path) => {
                self.may_act()?;
                let object = self.object(libc::AT_FDCWD, path, true, ResolveFlags::empty())?;
                if file_type(&rustix::fs::fstat(&object.fd)?) != FileType::Socket {
                    return Err(Errno::CONNREFUSED);
                }
                if !self.broker.sockets.owns(&object.fd, b"")? {
                    let passage = self.passage(&object)?;
                    let target = || String::from_utf8_lossy(&object.path).into_owned();
                    // The program may be able to move another one to this path.
                    let identity = format!("{:?}", inode(&object.fd, b"")?);
                    let what = (Operation::Connect, Use::Connect);
                    let refused = self.refused_endpoint(what, passage, target, identity.as_bytes());
                    if let Some(answer) = refused {
                        return Ok(answer);
                    }
                }
                let pinned = format!("/proc/self/fd/{}", fd_name(object.fd.as_fd()));
                self.connect_waiting(copy, &to_unix(pinned.as_bytes()))
            }
        }
    }

    pub(super) fn bind_unix(&self, copy: &OwnedFd, address: &[u8]) -> Result<Answer, Errno> {
        let broker = self.broker;
        if family(address) != libc::AF_UNIX {
            return Ok(socket::bind(copy, address).into());
        }
        broker.sockets.make_room(broker)?;
        match unix_address(address) {
            UnixAddress::Unnamed => {
                // The kernel picks an abstract name.
                socket::bind(copy, address)?;
                if let Ok(Some(name)) = socket::own_abstract_name(copy) {
                    broker.sockets.insert(Name::Abstract(name), copy)?;
                }
                Ok(Answer::Value(0))
            }
            UnixAddress::Abstract(name) => {
                socket::bind(copy, address)?;
                broker.sockets.insert(Name::Abstract(name.to_vec()), copy)?;
                Ok(Answer::Value(0))
            }
            UnixAddress::Path(path) => {
                let Last::Spot(spot) = self.spot(libc::AT_FDCWD, path, ResolveFlags::empty())?
                else {
                    return Err(Errno::ADDRINUSE);
                };
                let full = spot.path();
                let verdict = self.decide_change(&full);
                let guard = broker.decider.directory_name(&full).map(|rule| {
                    let refusal = Refusal::new(Access::Write, &full, path, Some(rule));
                    refusal.because(NEEDS_DIRECTORY)
                });
                let refusal = match Refusal::of(&verdict, Access::Write, &full, path) {
                    Some(refusal) => Some(refusal.beside(guard)),
                    None => guard,
                };
                if let Some(mut refusal) = refusal {
                    if spot.stat().is_ok() {
                        return Err(Errno::ADDRINUSE);
                    }
                    let makes = || "binding makes a socket file there".to_owned();
                    refusal.message.get_or_insert_with(makes);
                    return Ok(self.refuse(refusal));
                }
                self.may_act()?;
                self.assume_umask()?;
                // The directory is pinned; its own path would be looked up again, and may be too
                // long. Each worker has a working directory of its own.
                rustix::process::fchdir(&spot.dir)?;
                socket::bind(copy, &to_unix(&spot.name))?;
                // By now, another socket may have been moved to the name. One that is not known to be
                // the run's is as good as one outside.
                if let (Ok(name), Ok(bound)) =
                    (inode(&spot.dir, spot.bare_name()), diag::bound_inode(copy))
                    && matches!(name, Name::Inode(_, number, ..) if number as u32 == bound)
                {
                    broker.sockets.insert(name, copy)?;
                }
                Ok(Answer::Value(0))
            }
        }
    }
}

impl Task<'_> {
    /// Decides about the socket `object`, which the run did not bind.
    fn passage(&self, object: &Object) -> Result<Passage<'_>, Errno> {
        let broker = self.broker;
        let passage = broker.endpoints.socket(&object.path);
        // A mount or a link may give a daemon's socket a name that nobody knows it by.
        if passage.is_open() && !broker.endpoints.names_socket(&object.path) {
            let stat = rustix::fs::fstat(&object.fd)?;
            let inode = (stat.st_dev, stat.st_ino);
            if broker.daemons.contains(&inode) || self.is_new_daemon(inode)? {
                return Ok(Passage::Closed(Closed::Daemon, None));
            }
        }
        Ok(passage)
    }

    /// Whether `inode` is that of a daemon's socket by now: one that started since the launch. Looked
    /// up as the launcher, since the target may be somebody who cannot.
    fn is_new_daemon(&self, inode: (u64, u64)) -> Result<bool, Errno> {
        self.drop_identity();
        let found = daemons(&self.broker.endpoints).any(|daemon| daemon == inode);
        self.assume_identity()?;
        Ok(found)
    }
}

/// Device and inode of the sockets that are as good as the host.
pub fn daemons(endpoints: &Endpoints) -> impl Iterator<Item = (u64, u64)> {
    let paths = endpoints.daemons().paths().into_iter();
    paths.filter_map(|path| {
        let stat = rustix::fs::stat(path.as_str()).ok()?;
        Some((stat.st_dev, stat.st_ino))
    })
}

fn family(address: &[u8]) -> i32 {
    address.first_chunk().map_or(-1, |&bytes| i32::from(u16::from_ne_bytes(bytes)))
}
