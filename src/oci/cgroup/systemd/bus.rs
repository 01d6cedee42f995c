//! A connection to a message bus: what a client needs that makes a call and waits for a signal.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use super::wire::{self, Call, Message, START, Value};
use crate::oci::{Context, Error, Result};

/// How long systemd may take for what it is asked, as with other runtimes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the bus of the system is, if no variable says otherwise.
const SYSTEM: &str = "unix:path=/run/dbus/system_bus_socket";

/// A connection that has said hello.
pub struct Bus {
    stream: UnixStream,
    serial: u32,
    until: Instant,
    /// Signals that came while an answer was waited for.
    signals: Vec<Message>,
}

/// Why a call failed: the name of the error, empty where it is not one of the other side.
pub struct Refusal {
    /// `org.freedesktop.systemd1.UnitExists` and such.
    pub name: String,
    /// What is printed.
    pub error: Error,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { name: String::new(), error }
    }
}

impl Bus {
    /// Connects to the bus of the system, or to that of the user's session.
    ///
    /// # Errors
    ///
    /// Where there is none, or it does not let us in.
    pub fn connect(session: bool) -> Result<Bus> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let addresses = match session {
            false => variable("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_else(|| SYSTEM.to_owned()),
            true => variable("DBUS_SESSION_BUS_ADDRESS")
                .or_else(|| variable("XDG_RUNTIME_DIR").map(|dir| format!("unix:path={dir}/bus")))
                .ok_or_else(|| {
                    Error::new(
                        "no session bus: DBUS_SESSION_BUS_ADDRESS and XDG_RUNTIME_DIR are unset",
                    )
                })?,
        };
        let what = format!("systemd's bus at {addresses}");
        let stream = open(&addresses).context(&what)?;
        stream.set_read_timeout(Some(PATIENCE)).context(&what)?;
        stream.set_write_timeout(Some(PATIENCE)).context(&what)?;
        let until = Instant::now() + PATIENCE;
        let mut bus = Bus { stream, serial: 0, until, signals: Vec::new() };
        bus.authenticate().context(&what)?;
        bus.call(&bus_call("Hello", &[])).map_err(|refusal| refusal.error).context(&what)?;
        Ok(bus)
    }

    /// The mechanism EXTERNAL without a name: we are who the kernel says, which is also right in a user
    /// namespace, where our number is another one.
    fn authenticate(&mut self) -> std::io::Result<()> {
        self.stream.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\n")?;
        for expected in ["DATA", "OK "] {
            let line = self.line()?;
            if !line.starts_with(expected) {
                return Err(std::io::Error::other(format!("not let in: {line}")));
            }
        }
        self.stream.write_all(b"BEGIN\r\n")
    }

    fn line(&mut self) -> std::io::Result<String> {
        const LONGEST: usize = 512;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") && line.len() < LONGEST {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Calls a method, and waits for its answer.
    ///
    /// # Errors
    ///
    /// As the other side has it, or that the bus is gone.
    pub fn call(&mut self, call: &Call<'_>) -> std::result::Result<Message, Refusal> {
        self.serial += 1;
        let bytes = wire::call(call, self.serial);
        self.stream.write_all(&bytes).context(call.member)?;
        loop {
            let message = self.receive().context(call.member)?;
            match message.kind {
                4 => self.signals.push(message),
                2 if message.reply_to == self.serial => return Ok(message),
                3 if message.reply_to == self.serial => {
                    let text = message.texts().unwrap_or_default().join(" ");
                    let error = Error::new(format!("{}: {}: {text}", call.member, message.error));
                    return Err(Refusal { name: message.error, error });
                }
                _ => {}
            }
        }
    }

    /// Asks for the signals that a rule matches.
    ///
    /// # Errors
    ///
    /// As [`Bus::call`].
    pub fn listen(&mut self, rule: &str) -> Result<()> {
        let call = self.call(&bus_call("AddMatch", &[Value::text(rule)]));
        call.map(|_| ()).map_err(|refusal| refusal.error)
    }

    /// The next signal.
    ///
    /// # Errors
    ///
    /// When the time is over, or the bus is gone.
    pub fn signal(&mut self) -> Result<Message> {
        loop {
            let message = match self.signals.is_empty() {
                false => self.signals.remove(0),
                true => self.receive().context("waiting for systemd")?,
            };
            if message.kind == 4 {
                return Ok(message);
            }
        }
    }

    fn receive(&mut self) -> std::io::Result<Message> {
        if Instant::now() > self.until {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        let nonsense = || std::io::Error::other("the bus does not speak D-Bus");
        let mut start = [0; START];
        self.stream.read_exact(&mut start)?;
        let mut bytes = vec![0; wire::length(&start).ok_or_else(nonsense)?];
        bytes[..START].copy_from_slice(&start);
        self.stream.read_exact(&mut bytes[START..])?;
        Message::parse(&bytes).ok_or_else(nonsense)
    }
}

fn bus_call<'a>(member: &'a str, arguments: &'a [Value]) -> Call<'a> {
    Call {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member,
        arguments,
    }
}

/// Connects to the first address that takes us, see "Server Addresses" in the D-Bus specification.
fn open(addresses: &str) -> std::io::Result<UnixStream> {
    let mut result = Err(std::io::Error::other("no unix socket is named"));
    for address in addresses.split(';') {
        let Some(keys) = address.strip_prefix("unix:") else { continue };
        for (key, value) in keys.split(',').filter_map(|pair| pair.split_once('=')) {
            result = match key {
                "path" => UnixStream::connect(unescape(value)),
                "abstract" => SocketAddr::from_abstract_name(unescape(value))
                    .and_then(|name| UnixStream::connect_addr(&name)),
                _ => continue,
            };
            if result.is_ok() {
                return result;
            }
        }
    }
    result
}

/// `%2c` is a comma.
fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unescaped() {
        assert_eq!(unescape("/run/a%2cb"), "/run/a,b");
        assert_eq!(unescape("/run/bus"), "/run/bus");
        assert_eq!(unescape("%2"), "\u{2}");
    }
}
