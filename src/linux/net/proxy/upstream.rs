//! The proxies that this host goes out by, as the launcher's environment names them.

use crate::policy::{Host, host};
use std::io;
use std::net::{SocketAddr, TcpStream as Blocking, ToSocketAddrs};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a proxy has to be there at the launch.
const THERE: Duration = Duration::from_secs(5);
/// The longest head of an answer, in bytes.
const HEAD: usize = 16 << 10;

/// Which proxy is for which connection.
#[derive(Debug, Default)]
pub struct Upstream {
    /// For port 80.
    http: Option<Proxy>,
    /// For every other port.
    https: Option<Proxy>,
    /// Hosts without one, and those below them; `*` is every host.
    without: Vec<String>,
}

/// One proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    name: String,
    address: SocketAddr,
    /// User and password.
    login: Option<String>,
    socks: bool,
}

impl Upstream {
    /// From the variables of an environment; each proxy has to be there.
    ///
    /// # Errors
    ///
    /// The variable, and what is wrong with its value.
    pub fn new(variable: impl Fn(&str) -> Option<String>) -> Result<Upstream, String> {
        let said = |name: &str| {
            let value = |name: &str| variable(name).filter(|value| !value.is_empty());
            let upper = name.to_ascii_uppercase();
            value(name)
                .map(|text| (name.to_owned(), text))
                .or_else(|| Some((upper.clone(), value(&upper)?)))
        };
        let proxy = |name| {
            let found = said(name).or_else(|| said("all_proxy"));
            let read = |(name, text): (String, String)| {
                Proxy::new(&text).map_err(|why| format!("{name}: {why}"))
            };
            found.map(read).transpose()
        };
        let without = said("no_proxy").map(|(_, text)| text).unwrap_or_default();
        let without = without.split([',', ' ']).map(|host| {
            let host = host.trim().trim_start_matches("*.").trim_start_matches('.');
            host.to_ascii_lowercase()
        });
        Ok(Upstream {
            http: proxy("http_proxy")?,
            https: proxy("https_proxy")?,
            without: without.filter(|host| !host.is_empty()).collect(),
        })
    }

    /// The proxy for connections to `host` at `port`. What is on this host needs none.
    pub fn of(&self, host: &Host, port: u16) -> Option<&Proxy> {
        let text = host.to_string();
        let bare = text.trim_matches(['[', ']']);
        let local = match host {
            Host::Address(address) => address.is_loopback(),
            name => name.is_local_name(),
        };
        let is_without = |entry: &String| {
            let below = bare.strip_suffix(entry.as_str()).is_some_and(|rest| rest.ends_with('.'));
            entry == "*" || entry == bare || below
        };
        if local || self.without.iter().any(is_without) {
            return None;
        }
        if port == 80 { self.http.as_ref() } else { self.https.as_ref() }
    }
}

impl Proxy {
    /// Reads `http://user:password@host:port` or `socks5h://…`, and looks whether somebody listens there.
    fn new(text: &str) -> Result<Proxy, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let socks = match scheme {
            "http" => false,
            "socks5" | "socks5h" => true,
            _ => {
                return Err(format!(
                    "a proxy of the kind {scheme:?} cannot be used, only http and socks5"
                ));
            }
        };
        let rest = rest.trim_end_matches('/');
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login.to_owned()), place),
            None => (None, rest),
        };
        let usual = if socks { 1080 } else { 80 };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, host::port(port)),
            _ => (place, Some(usual)),
        };
        let port = port.ok_or(format!("{place:?} has no port"))?;
        let host = Host::parse(host)?;
        let bare = host.to_string();
        let found = (bare.trim_matches(['[', ']']), port).to_socket_addrs();
        let addresses = found.map_err(|error| format!("{bare}: {error}"))?;
        let mut last = format!("{bare} has no address");
        for address in addresses {
            match Blocking::connect_timeout(&address, THERE) {
                Ok(_) => {
                    return Ok(Proxy { name: host.with_port(port), address, login, socks });
                }
                Err(error) => last = format!("the proxy {address} cannot be reached: {error}"),
            }
        }
        Err(last)
    }

    /// How messages name it.
    pub fn describe(&self) -> String {
        format!("the proxy {}", self.name)
    }

    /// Whether it takes requests with a whole URL.
    pub fn is_http(&self) -> bool {
        !self.socks
    }

    /// The value of `Proxy-Authorization`, if there is a login.
    pub fn authorization(&self) -> Option<String> {
        self.login.as_ref().map(|login| format!("Basic {}", base64(decoded(login).as_slice())))
    }

    /// A connection to the proxy itself.
    ///
    /// # Errors
    ///
    /// As connect(2).
    pub async fn connect(&self) -> io::Result<TcpStream> {
        let server = TcpStream::connect(self.address).await?;
        server.set_nodelay(true)?;
        Ok(server)
    }

    /// A connection to `host` at `port`, which the proxy makes.
    ///
    /// # Errors
    ///
    /// As connect(2), and where the proxy refuses, its words.
    pub async fn tunnel(&self, host: &Host, port: u16) -> io::Result<TcpStream> {
        let mut server = self.connect().await?;
        if self.socks {
            self.by_socks(&mut server, host, port).await?
        } else {
            self.by_connect(&mut server, &host.with_port(port)).await?;
        }
        Ok(server)
    }

    async fn by_connect(&self, server: &mut TcpStream, to: &str) -> io::Result<()> {
        let login = self.authorization();
        let login = login.map_or(String::new(), |text| format!("Proxy-Authorization: {text}\r\n"));
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{login}\r\n");
        server.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        // What follows the head is the server's already.
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
            head.push(server.read_u8().await?);
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {}
            _ => return Err(io::Error::other("it gave no answer of HTTP")),
        }
        match response.code {
            Some(200..=299) => Ok(()),
            code => {
                let (code, reason) =
                    (code.unwrap_or_default(), response.reason.unwrap_or_default());
                Err(io::Error::other(format!("it refuses: {code} {reason}")))
            }
        }
    }

    async fn by_socks(&self, server: &mut TcpStream, host: &Host, port: u16) -> io::Result<()> {
        let login = self.login.as_ref().map(|login| decoded(login));
        let method = if login.is_some() { 2 } else { 0 };
        server.write_all(&[5, 1, method]).await?;
        let mut chosen = [0; 2];
        server.read_exact(&mut chosen).await?;
        if chosen != [5, method] {
            return Err(io::Error::other("it takes no login of this kind"));
        }
        if let Some(login) = login {
            let end = login.iter().position(|byte| *byte == b':').unwrap_or(login.len());
            let (user, password) = (&login[..end], login.get(end + 1..).unwrap_or_default());
            let long =
                |part: &[u8]| [&[part.len().min(255) as u8], &part[..part.len().min(255)]].concat();
            server.write_all(&[vec![1], long(user), long(password)].concat()).await?;
            server.read_exact(&mut chosen).await?;
            if chosen[1] != 0 {
                return Err(io::Error::other("it refuses the login"));
            }
        }
        let text = host.to_string();
        let name = text.trim_matches(['[', ']']).as_bytes();
        let request = [&[5, 1, 0, 3, name.len() as u8], name, &port.to_be_bytes()].concat();
        server.write_all(&request).await?;
        let mut head = [0; 4];
        server.read_exact(&mut head).await?;
        let rest = match head[3] {
            1 => 4,
            4 => 16,
            _ => server.read_u8().await?.into(),
        };
        server.read_exact(&mut vec![0; rest + 2]).await?;
        match head[1] {
            0 => Ok(()),
            code => Err(io::Error::other(format!("it refuses, with code {code} of SOCKS"))),
        }
    }
}

/// Text in which `%41` stands for `A`, as logins in URLs are written.
fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let hex = (*byte == b'%').then(|| after.get(..2)).flatten();
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) => {
                out.push(value);
                rest = &after[2..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - part.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63] as char;
            out.push(if at <= part.len() { letter } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_encoded() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(decoded("a%40b:%zz%4"), b"a@b:%zz%4");
    }

    #[test]
    fn proxies_are_found_by_port_and_host() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://u:p@{}/", listener.local_addr().unwrap());
        let upstream = Upstream::new(|name| match name {
            "https_proxy" => Some(url.clone()),
            "NO_PROXY" => Some(".corp.example, 10.0.0.1".to_owned()),
            _ => None,
        });
        let upstream = upstream.unwrap();
        for (host, port, expected) in [
            ("a.com", 443, true),
            ("a.com", 80, false),
            ("corp.example", 443, false),
            ("x.corp.example", 443, false),
            ("xcorp.example", 443, true),
            ("10.0.0.1", 443, false),
            ("127.0.0.1", 443, false),
            ("localhost", 443, false),
        ] {
            let found = upstream.of(&Host::parse(host).unwrap(), port);
            assert_eq!(found.is_some(), expected, "{host} {port}");
            assert!(found.is_none_or(|proxy| proxy.authorization().unwrap() == "Basic dTpw"));
        }
        for bad in
            ["ftp://a:1", "http://127.0.0.1:0", "http://a b:1", "http://127.0.0.1:99999", ":1"]
        {
            let made = Upstream::new(|name| (name == "HTTP_PROXY").then(|| bad.to_owned()));
            assert!(made.unwrap_err().starts_with("HTTP_PROXY: "), "{bad}");
        }
    }
}
