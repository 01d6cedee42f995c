//! Reading a target's memory with process_vm_readv(2).

use super::{Errno, check};

/// Reads up to `buffer.len()` bytes at `address` of thread `tid`; short when a page is missing.
///
/// # Errors
///
/// `EFAULT` when nothing is readable there, `EPERM` when the target may not be inspected.
pub fn read(tid: i32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` covers `buffer`; the remote range is only read, and checked by the kernel.
    check(unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            tid,
            &raw const local,
            1usize,
            &raw const remote,
            1usize,
            0usize,
        )
    })
}

/// Reads exactly `N` bytes.
///
/// # Errors
///
/// As [`read`]; `EFAULT` when fewer are there.
pub fn read_array<const N: usize>(tid: i32, address: u64) -> Result<[u8; N], Errno> {
    let mut buffer = [0; N];
    if read(tid, address, &mut buffer)? < N {
        return Err(Errno::FAULT);
    }
    Ok(buffer)
}

/// Size of the pages that a string read must not cross needlessly. Larger real pages only cost a call.
const PAGE: usize = 4096;

/// Reads a NUL-terminated string of at most `limit` bytes, NUL excluded, into `out`.
///
/// # Errors
///
/// `ENAMETOOLONG` when no NUL stands within `limit` bytes, `EFAULT` as the kernel would.
pub fn read_string(tid: i32, address: u64, limit: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
    out.clear();
    let mut at = address;
    // Most paths are short: the first read stops at 256 bytes or at the page's end.
    let mut step = 256;
    while out.len() <= limit {
        let in_page = PAGE - (at as usize % PAGE);
        let want = step.min(in_page).min(limit + 1 - out.len());
        let start = out.len();
        out.resize(start + want, 0);
        let got = read(tid, at, &mut out[start..])?;
        out.truncate(start + got);
        if let Some(end) = out[start..].iter().position(|&byte| byte == 0) {
            out.truncate(start + end);
            return Ok(());
        }
        if got < want {
            return Err(Errno::FAULT);
        }
        if want == 0 {
            break;
        }
        at = at.wrapping_add(got as u64);
        step = PAGE;
    }
    Err(Errno::NAMETOOLONG)
}
