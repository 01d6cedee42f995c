//! The loads that run inside a sandbox, as `speed --inner WHAT ...`.
//!
//! A loop prints the nanoseconds that one of its operations took, on the average, and nothing
//! else. What goes wrong goes to standard error with exit code 1.

use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::least;
use rustix::fs::{CWD, Mode, OFlags, openat, unlink};
use rustix::io::Errno;

/// Names a file that must not open for reading.
pub const REFUSED_READ: &str = "SPEED_REFUSED_READ";
/// Names a file that must not be created.
pub const REFUSED_WRITE: &str = "SPEED_REFUSED_WRITE";

/// Runs the load that `words` name, after a look at what has to be refused.
pub fn main(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match controls().and_then(|()| load(&words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// Tries what the environment says is refused.
fn controls() -> io::Result<()> {
    let create = OFlags::WRONLY | OFlags::CREATE;
    for (access, flags) in [(REFUSED_READ, OFlags::RDONLY), (REFUSED_WRITE, create)] {
        if let Some(path) = std::env::var_os(access) {
            must_fail(&c_string(path)?, flags)?;
        }
    }
    Ok(())
}

/// Opens `path`, which the sandbox has to refuse.
fn must_fail(path: &CStr, flags: OFlags) -> io::Result<()> {
    match openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from(0o644)) {
        // Absent is how a sandbox of mounts refuses.
        Err(Errno::ACCESS | Errno::NOENT | Errno::ROFS) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(io::Error::other(format!("{path:?} was not refused"))),
    }
}

/// The loops take C strings: a loop is its system calls and nothing else.
fn c_string(path: impl Into<OsString>) -> io::Result<CString> {
    Ok(CString::new(path.into().into_encoded_bytes())?)
}

fn load(words: &[&str]) -> io::Result<()> {
    match *words {
        ["open-read", path, count] => number(count).and_then(|n| opens(path, OFlags::RDONLY, n)),
        ["open-write", path, count] => number(count).and_then(|n| opens(path, OFlags::WRONLY, n)),
        ["open-fresh", path, count] => number(count).and_then(|n| open_fresh(path, n)),
        ["open-refused", path, count] => number(count).and_then(|n| refused(path, n)),
        ["churn", dir, count] => number(count).and_then(|n| churn(dir, n)),
        ["churn-on-word", dir, count] => number(count).and_then(|n| churn_on_word(dir, n)),
        ["writers", writers, dir, count] => {
            number(writers).and_then(|writers| self::writers(writers, dir, count))
        }
        ["connect-tcp", count] => number(count).and_then(connect_tcp),
        ["connect-unix", path, count] => number(count).and_then(|n| connect_unix(path, n)),
        ["serve"] => serve(),
        ["relay", port] => least::relay(port),
        ["receive", way, port, count] => {
            connected(way, port).and_then(|stream| receive(stream, number(count)?))
        }
        ["echo", way, port, count] => {
            connected(way, port).and_then(|stream| echo(stream, number(count)?))
        }
        ["least", mode, ref words @ ..] => least::supervise(mode, words),
        ["least-target", mode, ref words @ ..] => least::restrict(mode).and_then(|()| load(words)),
        ["denials", dir, count] => number(count).and_then(|n| denials(dir, n)),
        _ => Err(io::Error::other("no such load")),
    }
}

fn number(word: &str) -> io::Result<u32> {
    word.parse().map_err(io::Error::other)
}

/// Times `count` calls of `operation` and prints the average.
fn timed(count: u32, mut operation: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..count.min(200) {
        operation()?;
    }
    let start = Instant::now();
    for _ in 0..count {
        operation()?;
    }
    report(start, count)
}

/// Prints the nanoseconds since `start`, divided by `count`.
fn report(start: Instant, count: u32) -> io::Result<()> {
    let average = start.elapsed().as_nanos() as f64 / f64::from(count);
    writeln!(io::stdout(), "{average:.1}")
}

/// Opens `path` and closes it.
fn opens(path: &str, flags: OFlags, count: u32) -> io::Result<()> {
    let path = c_string(path)?;
    timed(count, || {
        let file = openat(CWD, path.as_c_str(), flags | OFlags::CLOEXEC, Mode::empty())?;
        drop(black_box(file));
        Ok(())
    })
}

/// Makes the file `path`, so that it is younger than the sandbox, opens and closes it, and removes
/// it again for the next contender.
fn open_fresh(path: &str, count: u32) -> io::Result<()> {
    fs::write(path, "text\n")?;
    opens(path, OFlags::RDONLY, count)?;
    fs::remove_file(path)
}

/// Opens `path`, which has to fail each time.
fn refused(path: &str, count: u32) -> io::Result<()> {
    let path = c_string(path)?;
    timed(count, || must_fail(&path, OFlags::RDONLY))
}

/// Creates a file in `dir`, closes it and removes it.
fn churn(dir: &str, count: u32) -> io::Result<()> {
    let path = Path::new(dir).join(format!("churn{}", std::process::id()));
    let path = c_string(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    timed(count, || {
        drop(openat(CWD, path.as_c_str(), flags, Mode::from(0o644))?);
        unlink(path.as_c_str())?;
        Ok(())
    })
}

/// Says that it is ready, waits for a byte, then does as [`churn`].
fn churn_on_word(dir: &str, count: u32) -> io::Result<()> {
    writeln!(io::stdout(), "ready")?;
    io::stdin().read_exact(&mut [0])?;
    churn(dir, count)
}

/// Runs `writers` processes at once, each in a directory of its own below `dir`, and prints the
/// time until the last has ended, divided by `count`: with one writer, the time of an operation.
fn writers(writers: u32, dir: &str, count: &str) -> io::Result<()> {
    let mut children = Vec::new();
    for writer in 0..writers {
        let own = Path::new(dir).join(writer.to_string());
        fs::create_dir_all(&own)?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--inner", "churn-on-word"])
            .arg(own)
            .arg(count)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        if line != "ready\n" {
            return Err(io::Error::other("a writer did not get ready"));
        }
        children.push((child, stdin, stdout));
    }
    let start = Instant::now();
    for (_, stdin, _) in &mut children {
        stdin.write_all(b"\n")?;
    }
    for (_, _, stdout) in &mut children {
        stdout.read_to_string(&mut String::new())?;
    }
    report(start, number(count)?)?;
    for (mut child, ..) in children {
        if !child.wait()?.success() {
            return Err(io::Error::other("a writer failed"));
        }
    }
    Ok(())
}

/// Connects to itself on loopback and closes both ends: one thread, so that nothing is scheduled.
fn connect_tcp(count: u32) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    timed(count, || {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        // Without it, each connection would keep its port for a minute.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        let (accepted, _) = listener.accept()?;
        drop(stream);
        drop(black_box(accepted));
        Ok(())
    })
}

/// The same with a Unix socket, made at `path` and removed again.
fn connect_unix(path: &str, count: u32) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    timed(count, || {
        let stream = UnixStream::connect(path)?;
        let (accepted, _) = listener.accept()?;
        drop(black_box((stream, accepted)));
        Ok(())
    })?;
    fs::remove_file(path)
}

/// The first word of a client: bytes that nobody takes for HTTP or TLS, and what it wants.
const RECEIVES: [u8; 2] = [0, 1];
const ECHOES: [u8; 2] = [0, 2];

/// What is said and read at a time in bulk, in bytes.
const CHUNK: usize = 256 << 10;

/// Says at which port of loopback it listens, and serves clients of [`receive`] and [`echo`] for ever.
fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let (stream, _) = listener.accept()?;
        // A client that goes is no matter of the server's.
        std::thread::spawn(move || serve_one(stream));
    }
}

fn serve_one(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0; 2];
    stream.read_exact(&mut first)?;
    if first == RECEIVES {
        let chunk = vec![7; CHUNK];
        loop {
            stream.write_all(&chunk)?;
        }
    }
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}

/// A connection to `port` of loopback: `direct`, or `connect` by the proxy that the environment names.
fn connected(way: &str, port: &str) -> io::Result<TcpStream> {
    let proxy = std::env::var("HTTP_PROXY").unwrap_or_default();
    let own = proxy.rsplit(':').next().unwrap_or_default();
    let to = if way == "direct" { port } else { own };
    let mut stream = TcpStream::connect(("127.0.0.1", to.parse().map_err(io::Error::other)?))?;
    stream.set_nodelay(true)?;
    if way != "direct" {
        write!(stream, "CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other("the proxy refuses"));
        }
    }
    Ok(stream)
}

/// Reads so many MiB.
fn receive(mut stream: TcpStream, mebibytes: u32) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    stream.write_all(&RECEIVES)?;
    // The server has to begin.
    stream.read_exact(&mut chunk)?;
    let mut left = (mebibytes as usize) << 20;
    let start = Instant::now();
    while left > 0 {
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => left = left.saturating_sub(length),
        }
    }
    report(start, 1)
}

/// Says a byte and waits until it is back.
fn echo(mut stream: TcpStream, count: u32) -> io::Result<()> {
    stream.write_all(&ECHOES)?;
    let mut byte = [7];
    timed(count, || {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)
    })
}

/// Fails to create `count` files in `dir`, says that it is ready, and waits for the end of
/// standard input.
fn denials(dir: &str, count: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE;
    for number in 0..count {
        must_fail(&c_string(format!("{dir}/denied{number:06}"))?, flags)?;
    }
    writeln!(io::stdout(), "ready")?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
