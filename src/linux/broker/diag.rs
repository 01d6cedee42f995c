//! What the kernel says of a socket itself, and not of a name that may by now be another socket's.

use super::{Broker, Errno};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

/// `SOCK_DIAG_BY_FAMILY`, linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `UDIAG_SHOW_VFS`, linux/unix_diag.h.
const SHOW_VFS: u32 = 2;
/// `UNIX_DIAG_VFS`, linux/unix_diag.h.
const VFS: u16 = 1;
/// `sizeof(struct nlmsghdr)` and of `struct unix_diag_msg`.
const HEADER: usize = 16;

/// The low half of the inode number of the file that the Unix socket `socket` is bound to, sock_diag(7).
/// The kernel says no more of it.
///
/// # Errors
///
/// `ENOENT` for a socket that is bound to no file; as socket(2), sendmsg(2) and recvmsg(2), and as the
/// kernel answers, where it has no sock_diag for Unix sockets (`CONFIG_UNIX_DIAG`) or may not be asked.
pub fn bound_inode(socket: &OwnedFd) -> Result<u32, Errno> {
    let number = rustix::fs::fstat(socket)?.st_ino as u32;
    // The number of a socket comes back after 2^32 of them, the cookie never does.
    let cookie = sockopt::socket_cookie(socket)?;
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&kernel, &question(number, cookie), SendFlags::empty())?;
    let mut answer = [0; 256];
    // The kernel answers before send returns.
    let (_, length) = recv(&kernel, &mut answer, RecvFlags::DONTWAIT)?;
    vfs_inode(&answer[..length.min(answer.len())])
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
fn question(number: u32, cookie: u64) -> Vec<u8> {
    const LENGTH: u32 = 40;
    let mut bytes = Vec::with_capacity(LENGTH as usize);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and port.
    bytes.extend([0; 8]);
    bytes.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    for word in [u32::MAX, number, SHOW_VFS, cookie as u32, (cookie >> 32) as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// The inode in the `struct unix_diag_vfs` of an answer.
fn vfs_inode(answer: &[u8]) -> Result<u32, Errno> {
    let half = |at: usize| -> Option<u16> {
        Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?))
    };
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?))
    };
    match half(4) {
        Some(BY_FAMILY) => {}
        Some(kind) if kind == libc::NLMSG_ERROR as u16 => {
            let code = word(HEADER).map_or(libc::EIO, |code| (code as i32).wrapping_neg());
            return Err(Errno::from_raw_os_error(if code > 0 { code } else { libc::EIO }));
        }
        _ => return Err(Errno::IO),
    }
    // Attributes of `struct nlattr`: length with these four bytes, type, payload, padding to four.
    let mut at = 2 * HEADER;
    while let (Some(length @ 4..), Some(kind)) = (half(at), half(at + 2)) {
        if kind == VFS {
            return word(at + 4).ok_or(Errno::IO);
        }
        at += usize::from(length).next_multiple_of(4);
    }
    Err(Errno::NOENT)
}

impl Broker {
    /// The first line of a table of procfs, proc_pid_net(5), that `wanted` is true for.
    ///
    /// # Errors
    ///
    /// As open(2) and read(2).
    pub(super) fn find_line(
        &self,
        table: &str,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<Option<String>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.proc, table, flags, Mode::empty())?;
        let (mut lines, mut line) = (BufReader::new(std::fs::File::from(file)), Vec::new());
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).map_err(|_| Errno::IO)? == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&line);
            if wanted(&text) {
                return Ok(Some(text.into_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn answers_are_taken_apart() {
        let message =
            |kind: u16, rest: &[u8]| [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10], rest].concat();
        let attribute = |kind: u16, payload: &[u8]| {
            let length = 4 + payload.len() as u16;
            let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), payload].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let vfs = attribute(VFS, &[&77u32.to_ne_bytes()[..], &[0; 4]].concat());
        let (other, none) = (attribute(6, &[1]), [0; HEADER]);
        let good = message(BY_FAMILY, &[&none[..], &other, &vfs].concat());
        assert_eq!(vfs_inode(&good), Ok(77));
        assert_eq!(vfs_inode(&good[..good.len() - 8]), Err(Errno::IO));
        assert_eq!(vfs_inode(&message(BY_FAMILY, &none)), Err(Errno::NOENT));
        let error = (-libc::ESTALE).to_ne_bytes();
        assert_eq!(vfs_inode(&message(2, &error)), Err(Errno::STALE));
        for bad in [message(2, &[]), message(2, &[0; 4]), message(9, &none), vec![], vec![0; 5]] {
            assert_eq!(vfs_inode(&bad), Err(Errno::IO), "{bad:?}");
        }
    }

    #[test]
    fn a_socket_knows_its_file_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let first: OwnedFd = UnixListener::bind(&one).unwrap().into();
        let second: OwnedFd = UnixListener::bind(&two).unwrap().into();
        let inode = |path| std::fs::symlink_metadata(path).unwrap().ino() as u32;
        let (first_inode, second_inode) = (inode(&one), inode(&two));
        std::fs::rename(&two, &one).unwrap();
        assert_eq!(bound_inode(&first), Ok(first_inode));
        assert_eq!(bound_inode(&second), Ok(second_inode));
        assert_ne!(first_inode, second_inode);
        let (pair, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(bound_inode(&pair.into()), Err(Errno::NOENT));
    }
}
