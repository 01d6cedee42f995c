//! Programs that find hosts by name and know no proxy, and where their connections come out.

use super::have::have;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The interpreter for which Debian has packages.
pub const PYTHON: &str = "/usr/bin/python3";

/// Where connections go out by: a proxy that leads every host to `port` of loopback. What it was asked for comes
/// out of the channel.
pub fn upstream(port: u16) -> (String, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || lead(client, port, &sender));
        }
    });
    (url, receiver)
}

fn lead(mut client: TcpStream, port: u16, told: &Sender<String>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        // The first that comes is a look whether it is there.
        if !matches!(client.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let _ = told.send(head.split_whitespace().nth(1).unwrap_or_default().to_owned());
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), server.try_clone()) else { return };
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Write);
}

/// Connects to each host and port in its arguments, in every way, and prints what the server says.
pub const CONNECT: &str = r#"
import select, socket, sys
def talk(s):
    s.settimeout(20)
    s.sendall(b'GET /x HTTP/1.0\r\n\r\n')
    got = b''
    while True:
        more = s.recv(99)
        if not more: return got.split()[-1].decode()
        got += more
def waiting(family, address):
    s = socket.socket(family)
    s.setblocking(False)
    s.connect_ex(address)
    select.select([], [s], [], 20)
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error: raise OSError(error, '')
    s.setblocking(True)
    return s
def blocking(family, address):
    s = socket.socket(family)
    s.connect(address)
    return s
def mapped(family, address):
    if family != socket.AF_INET: return None
    return blocking(socket.AF_INET6, ('::ffff:' + address[0],) + address[1:])
for host in sys.argv[1:]:
    name, port = host.rsplit(':', 1)
    try: found = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)
    except OSError as e: print(host, type(e).__name__, e.errno); continue
    for family, _, _, _, address in found:
        for way in blocking, waiting, mapped:
            try:
                s = way(family, address)
                if s: print(name, family.name, way.__name__, talk(s))
            except OSError as e: print(name, family.name, way.__name__, e.errno)
"#;

/// Asks what its arguments say, by UDP and TCP, of several servers, and prints code and addresses.
pub const ASK: &str = r#"
import socket, struct
def name(text): return b''.join(bytes([len(l)]) + l for l in text.split(b'.') if l) + b'\0'
def question(text, kind=1, cls=1, flags=0x100, more=b'', counts=(1, 0, 0, 0)):
    return struct.pack('!6H', 7, flags, *counts) + name(text) + struct.pack('!2H', kind, cls) + more
def show(a):
    i, flags, *counts = struct.unpack('!6H', a[:12])
    assert i == 7 and flags & 0x8000, a
    data, rest = [], a
    for size in (4, 16):
        at = rest.find(struct.pack('!3HIH', 0xc00c, 1 if size == 4 else 28, 1, 60, size))
        if at >= 0:
            part = rest[at + 12:at + 12 + size]
            data.append(socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, part))
    return ' '.join([str(flags & 15), str(counts[1]), *data])
def udp(q, server=('203.0.113.53', 53), family=socket.AF_INET, connect=True):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(20)
    if connect:
        s.connect(server); s.send(q)
        return s.recv(4096)
    s.bind(('', 0)); s.sendto(q, server)
    answer, source = s.recvfrom(4096)
    assert source[:2] == server, source
    return answer
def tcp(*qs):
    s = socket.create_connection(('203.0.113.53', 53)); s.settimeout(20)
    out = []
    for q in qs:
        s.sendall(struct.pack('!H', len(q)) + q)
        n = struct.unpack('!H', s.recv(2, socket.MSG_WAITALL))[0]
        out.append(s.recv(n, socket.MSG_WAITALL))
    return out
"#;

/// Put after [`ASK`]: asks about `listed.example` of whichever name server, in whichever way.
pub const ANYWHERE: &str = r#"
q = question(b'listed.example')
for server in ('203.0.113.53', 53), ('127.0.0.53', 53), ('10.255.255.53', 53):
    print(show(udp(q, server)), show(udp(q, server, connect=False)))
if socket.has_ipv6:
    for server in ('2001:db8::53', 53), ('::1', 53):
        for connect in True, False:
            try: print(show(udp(q, server, socket.AF_INET6, connect)))
            except OSError as e: print(e.errno)
print([show(a) for a in tcp(q, question(b'other.example'))])
"#;

/// The address that stands for the name which is asked about first, as [`ASK`] shows it.
pub const FIRST: &str = "0 1 198.18.0.1";

/// What [`ANYWHERE`] prints.
pub fn answered_anywhere() -> Vec<String> {
    let mut lines = vec![format!("{FIRST} {FIRST}"); 3];
    if have("questions by IPv6", &["ipv6"]) {
        lines.extend([FIRST; 4].map(str::to_owned));
    }
    lines.push(format!("['{FIRST}', '3 0']"));
    lines
}
