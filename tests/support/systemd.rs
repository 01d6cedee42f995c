//! A systemd that is none, on a message bus that is one: dbus-daemon(1) checks every message, a service of
//! this file takes the name, writes down what it is asked and answers as systemd would. Its reading of
//! messages shares nothing with the runtime's writing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The bus and the service, gone when dropped.
pub struct Systemd {
    daemon: Child,
    /// For `DBUS_SYSTEM_BUS_ADDRESS`.
    pub address: String,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Systemd {
    /// Starts both, with the bus's socket in a directory.
    pub fn start(dir: &Path) -> Systemd {
        let address = format!("unix:path={}/bus", dir.display());
        let mut daemon = Command::new("dbus-daemon")
            .stderr(Stdio::null())
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1", "--address"])
            .arg(&address)
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon");
        let mut line = String::new();
        let out = daemon.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("an address: it listens");
        let calls = Arc::new(Mutex::new(Vec::new()));
        let mut service = Service::connect(&dir.join("bus"), Arc::clone(&calls));
        // Ends with the bus.
        std::thread::spawn(move || while service.serve().is_some() {});
        Systemd { daemon, address, calls }
    }

    /// What it was asked since this was asked before.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().expect("the calls"))
    }
}

struct Service {
    stream: UnixStream,
    serial: u32,
    calls: Arc<Mutex<Vec<String>>>,
    /// A name that is taken until it is reset.
    taken: bool,
}

impl Service {
    fn connect(path: &Path, calls: Arc<Mutex<Vec<String>>>) -> Service {
        let mut stream = UnixStream::connect(path).expect("the bus");
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes()).expect("a line");
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a line");
            line.push(byte[0]);
        }
        assert!(line.starts_with(b"OK "), "{line:?}");
        stream.write_all(b"BEGIN\r\n").expect("a line");
        let mut service = Service { stream, serial: 0, calls, taken: true };
        let bus = [(1, 'o', "/org/freedesktop/DBus"), (6, 's', "org.freedesktop.DBus")];
        service.send(1, &[&bus[..], &[(3, 's', "Hello")]].concat(), "", &[]);
        let mut body = Vec::new();
        text(&mut body, "org.freedesktop.systemd1");
        number(&mut body, 0);
        service.send(1, &[&bus[..], &[(3, 's', "RequestName")]].concat(), "su", &body);
        // The answers to both, and two signals that say the same.
        let mut answers = 0;
        while answers < 2 {
            answers += u32::from(service.receive().expect("an answer").kind == 2);
        }
        service
    }

    fn send(&mut self, kind: u8, fields: &[(u8, char, &str)], signature: &str, body: &[u8]) {
        self.send_reply(kind, None, fields, signature, body);
    }

    fn send_reply(
        &mut self,
        kind: u8,
        to: Option<u32>,
        fields: &[(u8, char, &str)],
        signature: &str,
        body: &[u8],
    ) {
        self.serial += 1;
        let mut bytes = vec![b'l', kind, 0, 1];
        number(&mut bytes, body.len() as u32);
        number(&mut bytes, self.serial);
        let mut list = Vec::new();
        for (code, kind, value) in fields {
            pad(&mut list, 8);
            list.extend([*code, 1, *kind as u8, 0]);
            text(&mut list, value);
        }
        if let Some(serial) = to {
            pad(&mut list, 8);
            list.extend([5, 1, b'u', 0]);
            number(&mut list, serial);
        }
        if !signature.is_empty() {
            pad(&mut list, 8);
            list.extend([8, 1, b'g', 0, signature.len() as u8]);
            list.extend(signature.bytes());
            list.push(0);
        }
        number(&mut bytes, list.len() as u32);
        bytes.extend(list);
        pad(&mut bytes, 8);
        bytes.extend(body);
        self.stream.write_all(&bytes).expect("the bus");
    }

    fn receive(&mut self) -> Option<Message> {
        let mut bytes = vec![0; 16];
        self.stream.read_exact(&mut bytes).ok()?;
        let word = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        let (body, fields) = (word(&bytes, 4) as usize, word(&bytes, 12) as usize);
        let start = (16 + fields).next_multiple_of(8);
        bytes.resize(start + body, 0);
        self.stream.read_exact(&mut bytes[16..]).ok()?;
        let mut message = Message { kind: bytes[1], serial: word(&bytes, 8), ..Message::default() };
        let mut header = Reader { bytes: &bytes, at: 16 };
        let mut types = String::new();
        while header.at < 16 + fields {
            header.pad(8);
            let code = header.take(1)[0];
            let value = header.show(&mut "v");
            match code {
                3 => message.member = value,
                7 => message.sender = value,
                8 => types = value,
                _ => {}
            }
        }
        let mut reader = Reader { bytes: &bytes[start..], at: 0 };
        let mut rest = types.as_str();
        while !rest.is_empty() {
            message.arguments.push(reader.show(&mut rest));
        }
        assert_eq!(reader.at, body, "all of the body is read");
        Some(message)
    }

    /// Answers one call.
    fn serve(&mut self) -> Option<()> {
        let call = self.receive()?;
        if call.kind != 1 {
            return Some(());
        }
        let said = format!("{} {}", call.member, call.arguments.join(" "));
        self.calls.lock().expect("the calls").push(said);
        let to = Some(call.serial);
        let sender = [(6, 's', call.sender.as_str())];
        let unit = call.arguments.first().cloned().unwrap_or_default();
        match call.member.as_str() {
            "StartTransientUnit" if unit.contains("taken") && self.taken => {
                let fields =
                    [&sender[..], &[(4, 's', "org.freedesktop.systemd1.UnitExists")]].concat();
                let mut body = Vec::new();
                text(&mut body, "Unit is there already.");
                self.send_reply(3, to, &fields, "s", &body);
            }
            "StartTransientUnit" | "StopUnit" => {
                let result = if unit.contains("failing") { "failed" } else { "done" };
                // Jobs of others end too, and ours may be over before we are told that it began.
                self.removed("/job/1", "other.service", "failed");
                self.removed("/job/2", &unit, result);
                let mut body = Vec::new();
                text(&mut body, "/job/2");
                self.send_reply(2, to, &sender, "o", &body);
            }
            "Get" => {
                let mut body = vec![1, b's', 0];
                text(&mut body, "/test-landstrip-user");
                self.send_reply(2, to, &sender, "v", &body);
            }
            _ => {
                self.taken &= call.member != "ResetFailedUnit";
                self.send_reply(2, to, &sender, "", &[]);
            }
        }
        Some(())
    }

    fn removed(&mut self, job: &str, unit: &str, result: &str) {
        let fields = [
            (1, 'o', "/org/freedesktop/systemd1"),
            (2, 's', "org.freedesktop.systemd1.Manager"),
            (3, 's', "JobRemoved"),
        ];
        let mut body = Vec::new();
        number(&mut body, 7);
        for value in [job, unit, result] {
            text(&mut body, value);
        }
        self.send(4, &fields, "uoss", &body);
    }
}

#[derive(Default)]
struct Message {
    kind: u8,
    serial: u32,
    member: String,
    sender: String,
    arguments: Vec<String>,
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn number(bytes: &mut Vec<u8>, number: u32) {
    pad(bytes, 4);
    bytes.extend(number.to_le_bytes());
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    number(bytes, text.len() as u32);
    bytes.extend(text.bytes());
    bytes.push(0);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn pad(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn word(&mut self) -> u32 {
        self.pad(4);
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn long(&mut self) -> u64 {
        self.pad(8);
        u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    /// One value as text; its type is taken off `types`.
    fn show(&mut self, types: &mut &str) -> String {
        let kind = types.as_bytes()[0];
        *types = &types[1..];
        match kind {
            b'y' => self.take(1)[0].to_string(),
            b'b' => (self.word() == 1).to_string(),
            b'i' => self.word().cast_signed().to_string(),
            b'u' => self.word().to_string(),
            b'x' => self.long().cast_signed().to_string(),
            b't' => format!("{}t", self.long()),
            b's' | b'o' => {
                let length = self.word() as usize;
                let text = std::str::from_utf8(self.take(length)).expect("UTF-8").to_owned();
                assert_eq!(self.take(1), [0]);
                text
            }
            b'g' | b'v' => {
                let length = usize::from(self.take(1)[0]);
                let text = std::str::from_utf8(self.take(length)).expect("UTF-8");
                assert_eq!(self.take(1), [0]);
                match kind {
                    b'g' => text.to_owned(),
                    _ => self.show(&mut &*text),
                }
            }
            b'a' => {
                let length = self.word() as usize;
                if matches!(types.as_bytes()[0], b'(' | b't' | b'x' | b'd') {
                    self.pad(8);
                }
                let end = self.at + length;
                let mut shown = Vec::new();
                let mut after = *types;
                while self.at < end {
                    after = *types;
                    shown.push(self.show(&mut after));
                }
                if length == 0 {
                    // Only arrays of simple things, and empty ones, whose type is skipped by its brackets.
                    let mut depth = 0;
                    loop {
                        let letter = after.as_bytes()[0];
                        after = &after[1..];
                        depth += i32::from(letter == b'(') - i32::from(letter == b')');
                        if depth == 0 && letter != b'a' {
                            break;
                        }
                    }
                }
                *types = after;
                format!("[{}]", shown.join(", "))
            }
            b'(' => {
                self.pad(8);
                let mut shown = Vec::new();
                while !types.starts_with(')') {
                    shown.push(self.show(types));
                }
                *types = &types[1..];
                shown.join("=")
            }
            other => panic!("a type {}", char::from(other)),
        }
    }
}
