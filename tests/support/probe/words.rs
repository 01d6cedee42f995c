//! The words that are more than one system call. Paths and text run to the end of the operation.
//!
//! | word | result |
//! |---|---|
//! | `cat P`, `put P TEXT`, `ls P`, `to P` | contents; create or truncate and write; sorted names; link target |
//! | `stat P`, `lstat P` | type mode uid gid size links |
//! | `text $fd`, `getcwd`, `fds` | contents from offset 0; the directory; open descriptors |
//! | `set N`, `secret`, `mem $a N` | keeps a number; keeps the address of a buffer; its text |
//! | `hold ARG`, `poke $a ARG` | keeps the address of an argument; writes another one over it |
//! | `await` | reads standard input to its end |
//! | `sh TEXT`, `bash TEXT`, `run PROG ARGS` | exit status and standard output |
//! | `do OP ; OP` | one after another, up to the first that fails |
//! | `retry OP` | until it does not give EINTR |
//! | `child OP`, `vchild OP`, `thread OP` | OP in a forked, vforked child, in a thread |
//! | `clone FLAGS`, `clone3 FLAGS` | a child with those flags that ends at once |
//! | `loop N OP`, `threads T N OP` | how often each result came; `{i}` is the turn |
//! | `bg NAME OP`, `join NAME` | OP in a thread; its result, and what it kept |
//! | `timer USEC [MODE [$fd]]`, `ticked` | SIGALRM every USEC (0: stop), `norestart` or not, `posix` or \
//!   `posix-thread` by timer_create(2), each handled by a byte to $fd; whether one was handled |
//! | `rlimit NAME:N` | soft limit |
//! | `socketpair A B TYPE`, `pipe A B` | keeps two descriptors |
//! | `sendmsg $fd ADDRESS TEXT`, `sendmmsg ...` | one message to an address |
//! | `fetch HOST:PORT` | a connection by name, as this program's C library finds it; what comes back for a request |
//! | `handle H M P`, `pvw PID ADDR TEXT` | keeps a file handle; process_vm_writev |
//! | `nodump $fd` | sets FS_NODUMP_FL beside the flags that are there, by FS_IOC_SETFLAGS |
//! | `int80 P FLAGS MODE`, `x32 CALL ARGS` | a call through another entry |
//! | `nest` | a seccomp filter and a Landlock domain of one's own |
//! | `name $fd`, `peer $fd` | the socket's own address, and that of the other end |
//! | `race-string`, `race-new`, `race-how`, `race-connect`, `race-link`, `race-exchange`, `race-move` | see [`crate::race`] |
//! | `race-address`, `race-way`, `race-fd` | see [`crate::race_sockets`] |
//! | `noise MS` | random calls for so long, see [`crate::noise`] |

use crate::args::{self, Call, errno, fail, fill, leak, number};
use crate::{Outcome, Vars, abi, noise, race, race_sockets, running, spawn};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Runs `word` if it is one of ours.
pub fn word(word: &str, rest: &str, vars: &mut Vars, keep: Option<&str>) -> Option<Outcome> {
    if let Some(outcome) = running::word(word, rest, vars, keep) {
        return Some(outcome);
    }
    let text = fill(rest, vars);
    let done = |_: ()| String::new();
    Some(match word {
        "cat" => io(std::fs::read(&text).map(|b| String::from_utf8_lossy(&b).into_owned())),
        "put" => {
            let (path, contents) = text.split_once(' ').unwrap_or((&text, ""));
            io(std::fs::write(path, contents).map(done))
        }
        "ls" => io(names(&text)),
        "to" => io(std::fs::read_link(&text).map(|p| p.display().to_string())),
        "stat" => io(std::fs::metadata(&text).map(|m| facts(&m))),
        "lstat" => io(std::fs::symlink_metadata(&text).map(|m| facts(&m))),
        "getcwd" => io(std::env::current_dir().map(|p| p.display().to_string())),
        "fds" => io(open_descriptors()),
        "text" => io(contents(number(rest, vars))),
        "set" => {
            let value = number(rest, vars);
            vars.insert(keep.unwrap_or("it").into(), value);
            Ok(String::new())
        }
        "secret" => {
            let address = leak(b"untouched".to_vec(), &mut 0);
            vars.insert(keep.unwrap_or("it").into(), address);
            Ok(address.to_string())
        }
        "mem" => Ok(memory(rest, vars)),
        "hold" => {
            let address = args::value(rest, vars, &mut 0);
            vars.insert(keep.unwrap_or("it").into(), address);
            Ok(String::new())
        }
        "poke" => {
            let (address, arg) = rest.split_once(' ').unwrap_or_else(|| fail("poke $a ARG"));
            let mut size = 0;
            let from = args::value(arg, vars, &mut size);
            // SAFETY: the script names a buffer that it made with `hold`, of this size or longer; what
            // reads it meanwhile is the kernel or the sandbox.
            unsafe { std::ptr::copy(from as *const u8, number(address, vars) as *mut u8, size) };
            Ok(String::new())
        }
        "await" => io(std::io::stdin().read_to_end(&mut Vec::new()).map(|_| String::new())),
        "sh" | "bash" => io(shell(word, &text)),
        "run" => io(program(&text)),
        "rlimit" => {
            spawn::limit(&text, false);
            Ok(String::new())
        }
        "socketpair" | "pipe" => pair(word, rest, vars),
        "sendmsg" | "sendmmsg" => send(word, rest, vars),
        "fetch" => io(fetch(&text)),
        "handle" => handle(rest, vars),
        "pvw" => vm_write(rest, vars),
        "nodump" => nodump(number(rest, vars)),
        "int80" => {
            let [path, flags, mode] = three(rest, vars);
            abi::int80_open(&format!("{path}\0"), number(&flags, vars), number(&mode, vars))
        }
        "nest" => abi::nest(),
        "x32" => {
            let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            abi::x32(Call::parse(word, rest, vars))
        }
        "race-string" => race::string(rest, vars),
        "race-new" => race::new(rest, vars),
        "race-how" => race::how(&text, vars),
        "race-connect" => race::connect(&text, vars),
        "race-address" => race_sockets::address(&text, vars),
        "race-way" => race_sockets::way(&text, vars),
        "race-bind" => race_sockets::bind(&text, vars),
        "race-fd" => race_sockets::descriptor(&text, vars),
        "name" => race_sockets::name(number(rest, vars), false),
        "peer" => race_sockets::name(number(rest, vars), true),
        "race-link" => race::link(&text, vars),
        "race-exchange" => race::exchange(&text, vars),
        "race-move" => race::moving(&text, vars),
        "noise" => noise::noise(&text),
        _ => return None,
    })
}

fn io(result: std::io::Result<String>) -> Outcome {
    result.map_err(|e| e.raw_os_error().unwrap_or(-1))
}

fn three(rest: &str, vars: &Vars) -> [String; 3] {
    let mut parts = rest.splitn(3, ' ');
    [(); 3].map(|()| fill(parts.next().unwrap_or_else(|| fail("three words needed")), vars))
}

fn names(path: &str) -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join(","))
}

fn facts(m: &std::fs::Metadata) -> String {
    let size = if m.is_dir() { 0 } else { m.size() };
    format!("{:o} {} {} {size} {}", m.mode(), m.uid(), m.gid(), m.nlink())
}

/// Probed one by one: `/proc` may be masked, and listing it opens a descriptor.
fn open_descriptors() -> std::io::Result<String> {
    // SAFETY: F_GETFD only reads the table.
    let open = (0..1024).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1);
    Ok(open.map(|fd| fd.to_string()).collect::<Vec<_>>().join(","))
}

fn contents(fd: i64) -> std::io::Result<String> {
    use std::os::fd::FromRawFd;
    // SAFETY: the script names a descriptor that it keeps; ManuallyDrop leaves it open.
    let file = unsafe { std::mem::ManuallyDrop::new(std::fs::File::from_raw_fd(fd as i32)) };
    let mut buffer = vec![0; 4096];
    let size = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

fn memory(rest: &str, vars: &Vars) -> String {
    let (address, size) = rest.split_once(' ').unwrap_or((rest, "9"));
    let (address, size) = (number(address, vars), number(size, vars));
    // SAFETY: the script names a buffer that it made with `secret`; volatile, since another
    // process may have written there.
    let read = |i| unsafe { std::ptr::read_volatile((address + i) as *const u8) };
    (0..size).map(|i| read(i) as char).collect()
}

fn shell(name: &str, text: &str) -> std::io::Result<String> {
    let output = std::process::Command::new(format!("/bin/{name}")).args(["-c", text]).output()?;
    Ok(finished(&output))
}

fn program(text: &str) -> std::io::Result<String> {
    let mut words = text.split(' ');
    let name = words.next().unwrap_or_default();
    Ok(finished(&std::process::Command::new(name).args(words).output()?))
}

fn finished(output: &std::process::Output) -> String {
    use std::os::unix::process::ExitStatusExt;
    let status = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => code.to_string(),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    };
    format!("{status} {}", String::from_utf8_lossy(&output.stdout).trim_end()).trim_end().into()
}

fn pair(word: &str, rest: &str, vars: &mut Vars) -> Outcome {
    let mut names = rest.split(' ');
    let (a, b) = (names.next().unwrap_or("a"), names.next().unwrap_or("b"));
    let mut ends = [0_i32; 2];
    // SAFETY: `ends` has room for the two descriptors.
    let result = unsafe {
        if word == "pipe" {
            libc::pipe(ends.as_mut_ptr())
        } else {
            let kind = number(names.next().unwrap_or("SOCK_STREAM"), vars) as i32;
            libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
        }
    };
    if result == -1 {
        return Err(errno());
    }
    vars.insert(a.into(), ends[0].into());
    vars.insert(b.into(), ends[1].into());
    Ok(String::new())
}

fn handle(rest: &str, vars: &mut Vars) -> Outcome {
    let [name, mount, path] = three(rest, vars);
    let buffer = leak(vec![0; 136], &mut 0);
    // SAFETY: struct file_handle starts with its capacity in bytes; the buffer holds 8 + 128.
    unsafe { (buffer as *mut u32).write(128) };
    let call = format!("AT_FDCWD \"{path} {buffer} buf:8 0");
    Call::parse("name_to_handle_at", &call, vars).make()?;
    let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
    let call = format!("AT_FDCWD \"{parent} O_RDONLY|O_DIRECTORY 0");
    let parent = Call::parse("openat", &call, vars).make()?;
    vars.insert(name, buffer);
    vars.insert(mount, parent);
    Ok(String::new())
}

fn send(word: &str, rest: &str, vars: &Vars) -> Outcome {
    let [fd, address, text] = three(rest, vars);
    let (mut size, mut length) = (0, 0);
    let name = args::value(&address, vars, &mut size);
    let data = leak(text.into_bytes(), &mut length);
    // SAFETY: all zero is a valid msghdr; the buffers live as long as the process.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let mut vector = libc::iovec { iov_base: data as *mut _, iov_len: length };
    message.msg_hdr.msg_name = name as *mut _;
    message.msg_hdr.msg_namelen = size as u32;
    message.msg_hdr.msg_iov = &raw mut vector;
    message.msg_hdr.msg_iovlen = 1;
    let pointer = &raw mut message as i64; // a mmsghdr starts with its msghdr
    let call = if word == "sendmsg" {
        Call { number: libc::SYS_sendmsg, args: [number(&fd, vars), pointer, 0, 0, 0, 0] }
    } else {
        Call { number: libc::SYS_sendmmsg, args: [number(&fd, vars), pointer, 1, 0, 0, 0] }
    };
    call.make().map(|_| String::new())
}

fn nodump(fd: i64) -> Outcome {
    let mut flags: libc::c_long = 0;
    // SAFETY: both requests take a pointer to a long (ioctl_iflags(2)).
    let get = unsafe { libc::ioctl(fd as i32, libc::FS_IOC_GETFLAGS, &raw mut flags) };
    if get == -1 {
        return Err(errno());
    }
    flags |= 0x40;
    let call = format!("{fd} FS_IOC_SETFLAGS i:{flags}");
    Call::parse("ioctl", &call, &Vars::new()).make().map(|_| String::new())
}

fn vm_write(rest: &str, vars: &Vars) -> Outcome {
    let [pid, address, text] = three(rest, vars);
    let (pid, address) = (number(&pid, vars), number(&address, vars));
    let mut size = 0;
    let ours = leak(text.into_bytes(), &mut size);
    let vector = |at: i64| leak([at.to_ne_bytes(), (size as i64).to_ne_bytes()].concat(), &mut 0);
    let call = args::Call {
        number: libc::SYS_process_vm_writev,
        args: [pid, vector(ours), 1, vector(address), 1, 0],
    };
    call.make().map(|_| String::new())
}

fn fetch(host: &str) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(host)?;
    stream.write_all(format!("GET /x HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
