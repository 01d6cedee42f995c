//! The terminal of a container.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::Process;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::ioctl_tiocsctty;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::channel::send_descriptor;
use super::sys::process::become_standard;
use super::{Context, Error, Result};

/// What `runc` calls it in the message: the name of the master.
const NAME: &[u8] = b"/dev/ptmx";
/// The device number of `ptmx`, of both kinds.
const PTMX: (u32, u32) = (5, 2);

/// A new terminal.
pub struct Console {
    master: OwnedFd,
    /// The end of the container.
    pub slave: OwnedFd,
}

/// Opens a terminal of the devpts that is mounted here, in the container.
///
/// # Errors
///
/// Where there is none, or `/dev/ptmx` is something else.
pub fn make(process: &Process) -> Result<Console> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = match open("/dev/pts/ptmx", flags, Mode::empty()) {
        // Its mode keeps users out, where `/dev/ptmx` is the host's device.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS) => {
            open("/dev/ptmx", flags, Mode::empty()).context("terminal: open /dev/ptmx")?
        }
        result => result.context("terminal: open /dev/pts/ptmx")?,
    };
    let stat = fstat(&master).context("terminal: stat")?;
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if !FileType::from_raw_mode(stat.st_mode).is_char_device() || device != PTMX {
        return Err(Error::new("terminal: /dev/ptmx is no terminal multiplexer"));
    }
    unlockpt(&master).context("terminal: unlockpt")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags).context("terminal: TIOCGPTPEER")?;
    if let Some(size) = process.console_size() {
        let cells = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let size = Winsize {
            ws_row: cells(size.height()),
            ws_col: cells(size.width()),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).context("process.consoleSize")?;
    }
    Ok(Console { master, slave })
}

impl Console {
    /// Hands the master over to whoever listens at the other end of `socket`, and makes the slave the
    /// standard streams and the controlling terminal. The process leads a session without one.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn take(self, socket: BorrowedFd<'_>) -> Result<()> {
        send_descriptor(socket, NAME, self.master.as_fd()).context("console socket")?;
        ioctl_tiocsctty(&self.slave).context("terminal: TIOCSCTTY")?;
        for number in 0..3 {
            become_standard(self.slave.as_fd(), number).context("terminal: dup2")?;
        }
        Ok(())
    }
}
