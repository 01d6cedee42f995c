//! Addresses and servers of this host.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, UdpSocket};
use std::thread;

/// Addresses of this host that other hosts can reach; connecting a datagram socket sends nothing.
pub fn outside_addresses() -> Vec<IpAddr> {
    let routes = [("0.0.0.0:0", "198.51.100.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let find = |(any, to): (&str, &str)| -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    let found: Vec<IpAddr> = routes.into_iter().filter_map(|route| find(route).ok()).collect();
    if found.is_empty() {
        let _ = writeln!(std::io::stderr(), "skipped: outside addresses: this host has none");
    }
    found
}

/// A server that accepts, and closes what it accepted, until the test ends.
pub fn server(ip: IpAddr) -> u16 {
    let listener = TcpListener::bind((ip, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    thread::spawn(move || listener.incoming().for_each(drop));
    port
}

/// A server on the host's loopback that answers every request with `answer`, by HTTP, until the test ends.
pub fn answering(answer: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let port = listener.local_addr().expect("address").port();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                if client.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                    let length = answer.len();
                    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    let _ = client.write_all((head + answer).as_bytes());
                    let _ = client.shutdown(Shutdown::Write);
                    // What comes after that is no reason for a reset, which takes an answer with it.
                    let _ = std::io::copy(&mut client, &mut std::io::sink());
                }
            });
        }
    });
    port
}
