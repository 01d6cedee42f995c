//! The helper's loop: one thread that serves all sockets.

use super::channel::{Channel, Refused};
use super::proxy::{Gate, dns};
use super::{Domains, Offer, Role, relay};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long nothing is accepted after that failed: for want of descriptors or memory, mostly.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves `offers` until the other end of `control` closes; `maker` makes sockets in the run's network
/// namespace.
///
/// # Errors
///
/// As epoll_create(2) and its like.
pub fn serve(
    offers: Vec<Offer>,
    maker: Option<OwnedFd>,
    domains: Option<Domains>,
    control: OwnedFd,
) -> io::Result<()> {
    let maker = maker.map(Arc::new);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let channel = Arc::new(Channel::new(control)?);
        let gate = domains.map(|domains| Arc::new(Gate::new(domains, Arc::clone(&channel))));
        for Offer { socket, role } in offers {
            match role {
                Role::Host(port) => {
                    let listener = listener(socket)?;
                    let full = full(&channel, port);
                    let serve = move |stream, _| relay::to_host(stream, port);
                    tokio::spawn(accept(listener, full, serve));
                }
                Role::Proxy => {
                    let listener = listener(socket)?;
                    let full = full(&channel, listener.local_addr()?.port());
                    let gate = gate.clone().ok_or(io::ErrorKind::InvalidInput)?;
                    tokio::spawn(accept(listener, full, move |stream, from| {
                        Arc::clone(&gate).serve(stream, from)
                    }));
                }
                Role::Names => {
                    let gate = gate.clone().ok_or(io::ErrorKind::InvalidInput)?;
                    tokio::spawn(dns::serve(gate, socket));
                }
                Role::Run(port) => {
                    let listener = listener(socket)?;
                    let full = full(&channel, port);
                    let maker = maker.clone().ok_or(io::ErrorKind::InvalidInput)?;
                    tokio::spawn(accept(listener, full, move |stream, _| {
                        let maker = Arc::clone(&maker);
                        async move { relay::to_run(stream, port, maker.as_fd()).await }
                    }));
                }
            }
        }
        channel.until_closed().await;
        Ok(())
    })
}

/// The connections that are served now.
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// Most connections at once, however many descriptors there are: what one takes of memory is bounded, and so
/// is what all do.
const MOST: usize = 16 * 1024;

/// How many there may be: each has two descriptors. What else is needed is for the helper itself, and pipes,
/// without which a connection is slower.
fn most() -> usize {
    const OTHERS: u64 = 192;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(OTHERS) / 2).unwrap_or(usize::MAX).clamp(1, MOST)
}

/// Tells that a connection to `port` is refused for want of room.
fn full(channel: &Arc<Channel>, port: u16) -> impl Fn() + use<> {
    let channel = Arc::clone(channel);
    move || {
        let most = most();
        channel.tell(Refused {
            task: 0,
            asked_from: 0,
            protocol: "tcp".to_owned(),
            host: "localhost".to_owned(),
            port,
            entry: None,
            message: Some(format!(
                "{most} connections are served already, as many as there can be by RLIMIT_NOFILE, and at most {MOST}"
            )),
            unlisted: false,
        });
    }
}

/// A listening socket, as tokio has it.
fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves each connection that `listener` accepts, at the same time; `full` is called where one finds no room.
async fn accept<F>(
    listener: TcpListener,
    full: impl Fn(),
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            // Rather than to let it hang in the queue.
            Ok((stream, _)) if SERVED.load(Ordering::Relaxed) >= most() => {
                relay::reset(&stream);
                full();
            }
            Ok((stream, from)) => {
                let served = serve(stream, from);
                SERVED.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    // Either end has seen what went wrong.
                    let _ = served.await;
                    SERVED.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
