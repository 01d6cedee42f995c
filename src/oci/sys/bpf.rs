//! bpf(2), for programs that decide which devices a cgroup may use.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

// Commands, types and flags, see linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;
const REPLACE: u32 = 4;

/// By this name we know our own program again.
const NAME: [u8; 16] = *b"landstrip_dev\0\0\0";

/// More programs than a cgroup can have attached.
const MOST: usize = 64;

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The same for `BPF_PROG_ATTACH`.
#[repr(C)]
#[derive(Default)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
    replaced: u32,
}

/// The same for `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    kind: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

/// The same for `BPF_PROG_GET_FD_BY_ID`.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// The same for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
#[derive(Default)]
struct Info {
    fd: u32,
    length: u32,
    info: u64,
}

/// The start of `struct bpf_prog_info`, up to the name.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_length: u32,
    translated_length: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

/// One call. Pointers that are in the attributes stay valid for it: callers keep what they point to.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> Result<i32, Errno> {
    // SAFETY: the kernel reads, and for a query writes, as many bytes as it is told are there; every
    // `T` here is made of integers without gaps, which may hold anything.
    let value = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    if value < 0 {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(value as i32)
}

fn bpf_fd<T>(command: libc::c_int, attributes: &mut T) -> Result<OwnedFd, Errno> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the commands that this is called with return a new descriptor, which is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Loads a program of type `BPF_PROG_TYPE_CGROUP_DEVICE`; the descriptor is close-on-exec.
///
/// # Errors
///
/// `EPERM` without `CAP_BPF` or `CAP_SYS_ADMIN`, or in a user namespace; `EINVAL` for a program that the
/// kernel does not take.
pub fn load_device_program(instructions: &[u64]) -> Result<OwnedFd, Errno> {
    let license = c"Apache-2.0";
    let mut load = Load {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len()).map_err(|_| Errno::TOOBIG)?,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..Load::default()
    };
    load.name = NAME;
    match bpf_fd(PROG_LOAD, &mut load) {
        // Before Linux 5.11 programs count as locked memory, of which the usual limit is too little.
        Err(Errno::PERM) => {
            let free = rustix::process::Rlimit { current: None, maximum: None };
            if rustix::process::setrlimit(rustix::process::Resource::Memlock, free).is_err() {
                return Err(Errno::PERM);
            }
            bpf_fd(PROG_LOAD, &mut load)
        }
        result => result,
    }
}

/// Attaches the program to a cgroup, beside those of others. One that was attached here before is replaced
/// in one step: at no moment is there none.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN` and `CAP_BPF`, or where a cgroup above allows no more programs.
pub fn attach_device_program(cgroup: &OwnedFd, program: &OwnedFd) -> Result<(), Errno> {
    let old = own_program(cgroup)?;
    let mut attach = Attach {
        target: number(cgroup),
        program: number(program),
        kind: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
        replaced: 0,
    };
    if let Some(old) = &old {
        attach.flags |= REPLACE;
        attach.replaced = number(old);
    }
    bpf(PROG_ATTACH, &mut attach).map(|_| ())
}

/// The program that was attached here before.
fn own_program(cgroup: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut ids = [0u32; MOST];
    let mut query = Query {
        target: number(cgroup),
        kind: ATTACH_CGROUP_DEVICE,
        ids: ids.as_mut_ptr() as u64,
        count: MOST as u32,
        ..Query::default()
    };
    bpf(PROG_QUERY, &mut query)?;
    for id in &ids[..MOST.min(query.count as usize)] {
        let found = bpf_fd(PROG_GET_FD_BY_ID, &mut ById { id: *id, ..ById::default() })?;
        let mut program = ProgramInfo::default();
        let mut info = Info {
            fd: number(&found),
            length: size_of::<ProgramInfo>() as u32,
            info: std::ptr::from_mut(&mut program) as u64,
        };
        bpf(OBJ_GET_INFO_BY_FD, &mut info)?;
        if program.name == NAME {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
