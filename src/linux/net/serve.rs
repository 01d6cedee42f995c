//! The helper's loop: one thread that serves all sockets.

use super::{Offer, Role};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// How long nothing is accepted after that failed: for want of descriptors or memory, mostly.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves `offers` until the other end of `control` closes.
///
/// # Errors
///
/// As epoll_create(2) and its like.
pub fn serve(offers: Vec<Offer>, control: OwnedFd) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for Offer { socket, role } in offers {
            match role {
                Role::Relay(to) => {
                    let listener = listener(socket)?;
                    tokio::spawn(accept(listener, move |stream, _| relay(stream, to)));
                }
            }
        }
        // It keeps messages apart, which reading it like a stream does not change.
        let control = std::os::unix::net::UnixStream::from(control);
        until_closed(UnixStream::from_std(control)?).await
    })
}

/// A listening socket, as tokio has it.
fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves each connection that `listener` accepts, at the same time.
async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let served = serve(stream, from);
                tokio::spawn(async move {
                    // Either end has seen what went wrong.
                    let _ = served.await;
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Joins `inner` with a connection to `to`.
async fn relay(mut inner: TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut outer = TcpStream::connect(to).await?;
    tokio::io::copy_bidirectional(&mut inner, &mut outer).await.map(|_| ())
}

/// Reads what the launcher says until it is gone.
async fn until_closed(control: UnixStream) -> io::Result<()> {
    let mut message = [0; 64];
    loop {
        control.readable().await?;
        match control.try_read(&mut message) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
