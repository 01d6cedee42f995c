//! HTTP/1: requests with a whole URL are passed on, CONNECT opens a tunnel.
//!
//! hyper reads and writes every message anew, so that nothing which is read in two ways gets through: the
//! length of a body is what was read of it, and headers about one connection end here.

use super::waiting::Place;
use super::{Asker, Asking, Failed, GREETING, Gate, first, tunnel};
use crate::linux::net::Unlisted;
use crate::policy::{Host, host};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;

type Body = Either<Incoming, Full<Bytes>>;
/// A refusal, as the client reads it.
type Refusal = (StatusCode, String);

/// Headers about a connection, besides those that `Connection` names (RFC 9110, 7.6.1).
const OF_CONNECTIONS: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHORIZATION,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
];

/// Serves the request of a connection, which has `place` until it has come. There is one in each: another would
/// need a connection to its host of its own, too.
///
/// # Errors
///
/// As either end has seen.
pub async fn serve(gate: Arc<Gate>, client: TcpStream, task: i32, place: Place) -> io::Result<()> {
    let place = Mutex::new(Some(place));
    // hyper does not read while a request is answered, so it does not see that a client goes which waits.
    let watched = match gate.unlisted == Unlisted::Asked {
        true => Some(TcpStream::from_std(client.as_fd().try_clone_to_owned()?.into())?),
        false => None,
    };
    let watched = Arc::new(watched);
    let service = service_fn(move |request| {
        place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (gate, watched) = (Arc::clone(&gate), Arc::clone(&watched));
        async move {
            let waiting = Option::as_ref(&watched).map(Asking::Watched);
            Ok::<_, Infallible>(answer(&gate, task, request, waiting).await)
        }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING)
        // Who has said all may end that way, and waits for the answer.
        .half_close(true)
        .max_buf_size(first::MOST)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades()
        .await
        .map_err(io::Error::other)
}

async fn answer(
    gate: &Arc<Gate>,
    task: i32,
    request: Request<Incoming>,
    waiting: Option<Asking<'_>>,
) -> Response<Body> {
    let by = |protocol| Asker { task, protocol };
    let result = match *request.method() {
        Method::CONNECT => connect(gate, by("connect"), request, waiting).await,
        _ => forward(gate, by("http"), request, waiting).await.map(last),
    };
    result.unwrap_or_else(|(status, text)| {
        let mut response = Response::new(Either::Right(Full::from(format!("{text}\n"))));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        last(response)
    })
}

/// Says that nothing follows in this connection.
fn last(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Opens a tunnel.
async fn connect(
    gate: &Arc<Gate>,
    asker: Asker,
    request: Request<Incoming>,
    waiting: Option<Asking<'_>>,
) -> Result<Response<Body>, Refusal> {
    let (host, port) = target(gate, asker, &request, None)?;
    let server = gate.open(asker, (&host, port), waiting).await.map_err(refusal)?;
    let gate = Arc::clone(gate);
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
        let (client, said) = (parts.io.into_inner(), parts.read_buf.to_vec());
        // Either end has seen what went wrong.
        let _ = tunnel::run(&gate, asker, (client, server), said, (&host, port)).await;
    });
    Ok(Response::new(Either::Right(Full::default())))
}

/// Passes a request on.
async fn forward(
    gate: &Arc<Gate>,
    asker: Asker,
    request: Request<Incoming>,
    waiting: Option<Asking<'_>>,
) -> Result<Response<Body>, Refusal> {
    if request.uri().scheme_str() != Some("http") {
        let text =
            "landstrip: this is a proxy: a request needs the whole URL, with http://, or CONNECT";
        return Err((StatusCode::BAD_REQUEST, text.to_owned()));
    }
    let (host, port) = target(gate, asker, &request, Some(80))?;
    let (server, proxy) =
        gate.open_for_http(asker, (&host, port), waiting).await.map_err(refusal)?;
    let (mut parts, body) = request.into_parts();
    remove_those_of_connections(&mut parts.headers);
    // What follows from the body that was read.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    let authority = if port == 80 { host.to_string() } else { host.with_port(port) };
    let value = HeaderValue::from_str(&authority).map_err(|_| bad("the host is no header"))?;
    parts.headers.insert(header::HOST, value);
    match proxy.map(|proxy| proxy.authorization()) {
        None => {
            let path = parts.uri.path_and_query().cloned();
            parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        // That proxy needs the whole URL, too.
        Some(authorization) => {
            if let Some(value) = authorization.and_then(|text| HeaderValue::from_str(&text).ok()) {
                parts.headers.insert(header::PROXY_AUTHORIZATION, value);
            }
        }
    }
    parts.version = Version::HTTP_11;
    let unreachable = |error: hyper::Error| {
        (StatusCode::BAD_GATEWAY, format!("landstrip: {}: {error}", host.with_port(port)))
    };
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .handshake(TokioIo::new(server))
        .await
        .map_err(unreachable)?;
    tokio::spawn(connection);
    let answer = sender.send_request(Request::from_parts(parts, body)).await;
    let (mut parts, body) = answer.map_err(unreachable)?.into_parts();
    remove_those_of_connections(&mut parts.headers);
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.version = Version::HTTP_11;
    Ok(Response::from_parts(parts, Either::Left(body)))
}

fn bad(text: &str) -> Refusal {
    (StatusCode::BAD_REQUEST, format!("landstrip: {text}"))
}

fn refusal(failed: Failed) -> Refusal {
    match failed {
        Failed::Denied(text) => (StatusCode::FORBIDDEN, text),
        Failed::Unreachable(text) => (StatusCode::BAD_GATEWAY, format!("landstrip: {text}")),
    }
}

/// The host and port that a request is for; `usual` is the port where it names none.
fn target(
    gate: &Gate,
    asker: Asker,
    request: &Request<Incoming>,
    usual: Option<u16>,
) -> Result<(Host, u16), Refusal> {
    let authority = request.uri().authority().ok_or_else(|| bad("the request names no host"))?;
    let read = |authority: &Authority| -> Result<(Host, Option<u16>), String> {
        if authority.as_str().contains('@') {
            return Err("a user before the host is not understood".to_owned());
        }
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host).unwrap_or_default() {
            "" => None,
            text => {
                let port = text.strip_prefix(':').and_then(host::port);
                Some(port.ok_or("ports are 1 to 65535, in digits alone")?)
            }
        };
        Ok((Host::parse(host)?, port))
    };
    let refused = |text: &str, why: &str| {
        let port = usual.unwrap_or_default();
        refusal(gate.refuse_text(asker, text, port, why))
    };
    let (host, port) = read(authority).map_err(|why| refused(authority.as_str(), &why))?;
    let port = port.or(usual).ok_or_else(|| bad("the request names no port"))?;
    let mut said = request.headers().get_all(header::HOST).iter();
    if let Some(value) = said.next() {
        let value = value.to_str().unwrap_or_default();
        let other = value.parse().map_err(|_| "it is no host".to_owned());
        let other = other.and_then(|authority: Authority| read(&authority));
        let same = other
            .is_ok_and(|(other, its)| other == host && its.or(usual).is_none_or(|its| its == port));
        if !same || said.next().is_some() {
            let why = format!("its header Host names {value:?} instead, or more than one host");
            return Err(refusal(gate.refuse_other(asker, (&host, port), &why)));
        }
    }
    Ok((host, port))
}

fn remove_those_of_connections(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTIONS) {
        headers.remove(name);
    }
}
