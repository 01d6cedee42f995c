//! What the program under test does: one thing, and tells by its exit code how that went.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// It was denied.
pub const DENIED: u32 = 5;
/// Something else went wrong.
pub const FAILED: u32 = 9;

/// Does what the words say; `None` where they say nothing.
pub fn main(args: &[OsString]) -> Option<ExitCode> {
    let word = args.get(1)?.to_str()?.strip_prefix("child-")?;
    let file = || Path::new(&args[2]);
    let done = match word {
        "arguments" => write_arguments(file(), &args[3..]),
        "exit" => {
            let code: u32 = args[2].to_str().and_then(|code| code.parse().ok()).unwrap_or(FAILED);
            std::process::exit(code.cast_signed());
        }
        "wait" => wait(),
        "hold" => hold(file()),
        "leave" => leave(file()),
        "read" => fs::read(file()).map(drop),
        "list" => fs::read_dir(file()).map(drop),
        "write" => fs::write(file(), "written"),
        "append" => OpenOptions::new().append(true).open(file()).map(drop),
        "delete" => fs::remove_file(file()),
        "remove" => fs::remove_dir(file()),
        "make" => fs::create_dir(file()),
        "move" => fs::rename(file(), &args[3]),
        "link" => fs::hard_link(file(), &args[3]),
        "connect" => TcpStream::connect(("127.0.0.1", port(&args[2]))).map(drop),
        "listen" => TcpListener::bind("127.0.0.1:0").map(drop),
        "start" => Command::new(&args[2]).args(&args[3..]).status().map(drop),
        "temporary" => fs::write(std::env::temp_dir().join("file"), "text"),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            ExitCode::from(DENIED as u8)
        }
        Err(error) => {
            eprintln!("{word}: {error}");
            ExitCode::from(FAILED as u8)
        }
    })
}

fn port(text: &OsString) -> u16 {
    text.to_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A line for each argument, in units of UTF-16.
fn write_arguments(file: &Path, arguments: &[OsString]) -> io::Result<()> {
    let line = |argument: &OsString| format!("{:?}\n", argument.encode_wide().collect::<Vec<_>>());
    fs::write(file, arguments.iter().map(line).collect::<String>())
}

/// Waits for ever, for who has our standard input never writes there.
fn wait() -> io::Result<()> {
    loop {
        std::thread::park();
    }
}

/// Opens the file so that nobody else can, says so, and waits.
fn hold(file: &Path) -> io::Result<()> {
    let _file =
        OpenOptions::new().write(true).create(true).truncate(false).share_mode(0).open(file)?;
    println!("held");
    io::stdout().flush()?;
    wait()
}

/// Starts a process that holds the file, and ends before it.
fn leave(file: &Path) -> io::Result<()> {
    let mut held = Command::new(std::env::current_exe()?)
        .arg("child-hold")
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(held.stdout.take().expect("it is piped")).read_line(&mut line)?;
    if line.trim() == "held" { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
