//! What the program under test does: one thing, or several, and tells by its exit code how that went.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, ExitCode};
use std::time::SystemTime;

/// The word that says that this program is the one under test.
pub const CHILD: &str = "child";
/// What was done last was denied.
pub const DENIED: i32 = 5;
/// Something else went wrong.
const FAILED: u8 = 9;

/// Does what the words say, which are those behind [`CHILD`].
pub fn main(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut steps = words.split(|word| *word == ";").peekable();
    while let Some(step) = steps.next() {
        let code = match act(step) {
            Ok(code) => code,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => DENIED as u8,
            Err(error) => {
                eprintln!("{}: {error}", step.join(" "));
                FAILED
            }
        };
        match steps.peek() {
            None => return ExitCode::from(code),
            Some(_) if code == 0 => {}
            Some(_) => return ExitCode::from(FAILED),
        }
    }
    ExitCode::from(FAILED)
}

fn act(step: &[&str]) -> io::Result<u8> {
    let done = match *step {
        ["read", file] => fs::read(file).map(drop),
        ["list", directory] => fs::read_dir(directory).map(drop),
        ["write", file] => fs::write(file, "written"),
        ["append", file] => {
            OpenOptions::new().append(true).open(file).and_then(|mut file| file.write_all(b"more"))
        }
        ["truncate", file] => {
            OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(0))
        }
        ["times", file] => {
            let file = OpenOptions::new().write(true).open(file)?;
            file.set_modified(SystemTime::UNIX_EPOCH)
        }
        ["copy", from, to] => fs::read(from).and_then(|bytes| fs::write(to, bytes)),
        ["delete", file] => fs::remove_file(file),
        ["make", directory] => fs::create_dir(directory),
        ["remove", directory] => fs::remove_dir(directory),
        ["move", from, to] => fs::rename(from, to),
        ["link", file, name] => fs::hard_link(file, name),
        ["in", directory, ref rest @ ..] => {
            std::env::set_current_dir(directory)?;
            return act(rest);
        }
        ["start", program, ref words @ ..] => {
            let mut command = Command::new(program);
            if !words.is_empty() {
                command.arg(CHILD).args(words);
            }
            let code = command.status()?.code();
            return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED));
        }
        ["connect", port] => TcpStream::connect(("127.0.0.1", number(port)?)).map(drop),
        ["send", port] => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(b"text", ("127.0.0.1", number(port)?)).map(drop)
        }
        ["listen"] => listen(),
        ["temporary", file] => {
            let directory = std::env::temp_dir();
            fs::write(directory.join("file"), "text")?;
            fs::write(file, directory.to_str().ok_or(io::ErrorKind::InvalidData)?)
        }
        // The code may have 32 bits on Windows.
        ["exit", code] => std::process::exit(code.parse::<u32>().map_or(9, u32::cast_signed)),
        ["wait"] => loop {
            std::thread::park();
        },
        ["echo"] => io::copy(&mut io::stdin(), &mut io::stdout()).map(drop),
        ["leave"] => leave(),
        _ => return system::act(step),
    };
    done.map(|()| 0)
}

fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn listen() -> io::Result<()> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(server.local_addr()?)?;
    server.accept()?.0.write_all(b"text")?;
    let mut text = String::new();
    client.read_to_string(&mut text)?;
    if text == "text" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Starts a process that answers on the standard streams, and ends before it.
fn leave() -> io::Result<()> {
    Command::new(std::env::current_exe()?).args([CHILD, "echo"]).spawn().map(drop)
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    pub fn act(step: &[&str]) -> io::Result<u8> {
        let done = match *step {
            ["symlink", to, name] => symlink(to, name),
            ["mode", file] => {
                std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))
            }
            ["unix", path] => UnixStream::connect(path).map(drop),
            ["signal", process] => {
                // SAFETY: the call takes integers.
                match unsafe { libc::kill(super::number(process)?, libc::SIGTERM) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        done.map(|()| 0)
    }
}

/// What `parts.rs` asks for.
#[cfg(windows)]
mod system {
    use std::fs::{self, OpenOptions};
    use std::io::{self, BufRead, BufReader, Write};
    use std::os::windows::fs::OpenOptionsExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::CHILD;

    pub fn act(step: &[&str]) -> io::Result<u8> {
        let done = match *step {
            ["arguments", file, ref rest @ ..] => write_arguments(Path::new(file), rest),
            ["hold", file] => hold(Path::new(file)),
            ["leave", file] => leave(Path::new(file)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        done.map(|()| 0)
    }

    /// A line for each argument, in units of UTF-16.
    fn write_arguments(file: &Path, arguments: &[&str]) -> io::Result<()> {
        let line = |argument: &&str| format!("{:?}\n", argument.encode_utf16().collect::<Vec<_>>());
        fs::write(file, arguments.iter().map(line).collect::<String>())
    }

    /// Opens the file so that nobody else can, says so, and waits.
    fn hold(file: &Path) -> io::Result<()> {
        let _file =
            OpenOptions::new().write(true).create(true).truncate(false).share_mode(0).open(file)?;
        println!("held");
        io::stdout().flush()?;
        super::act(&["wait"]).map(drop)
    }

    /// Starts a process that holds the file, and ends before it.
    fn leave(file: &Path) -> io::Result<()> {
        let mut held = Command::new(std::env::current_exe()?)
            .args([CHILD, "hold"])
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(held.stdout.take().expect("it is piped")).read_line(&mut line)?;
        if line.trim() == "held" { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
