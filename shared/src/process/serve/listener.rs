//! Accepts the connections of a port, and spawns a task for each.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    bounds::Bounds,
    http::{Server, serve_connection},
    register::Register,
    workers::{Worker, Workers},
};

/// Default time that requests in flight have to finish once a server is to stop.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Pause after the system refuses a connection (too many open files, say), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Length of the system's queue of connections to accept, as far as `net.core.somaxconn` allows. The system ignores
/// connections beyond the queue, and their clients try again after a second.
const BACKLOG: u32 = 4096;
/// Bytes of answers that the system keeps for a client, which it doubles for its own bookkeeping. It tells of progress
/// only once a third is free: with buffers of megabytes, a client that takes a little now and then would seem to take
/// nothing for minutes. Two megabytes a second over 100 ms remain.
const SEND_BUFFER: u32 = 128 << 10;

/// A listener on this address, or an error that names the setting. Works inside a runtime.
pub fn bind(setting: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server need not wait for connections of the process before.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit the bound.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|e| io::Error::new(e.kind(), format!("{setting}: cannot listen on {address}: {e}")))
}

/// A port that serves HTTP/1.1 and HTTP/2; a slash at the end of a path is ignored.
pub struct Port {
    /// Listener of the connections.
    pub listener: TcpListener,
    /// The bounds on each, and on all together.
    pub bounds: Bounds,
    /// TLS in front, if any, which announces protocols by ALPN.
    pub tls: Option<TlsAcceptor>,
    /// The time that running requests have to finish once the server is to stop.
    pub drain: Duration,
}

impl Port {
    /// A port without TLS.
    pub const fn new(listener: TcpListener, bounds: Bounds) -> Self {
        Self { listener, bounds, tls: None, drain: DRAIN }
    }
}

/// Serves until `shutdown`, then lets running requests finish for a bound time.
pub async fn serve(port: Port, app: Router, shutdown: CancellationToken) {
    serve_on(port, vec![Worker { runtime: Handle::current(), handler: app.into() }], shutdown).await;
}

/// Serves on several runtimes until `shutdown`. A connection stays with the runtime that has the fewest; the requests
/// of an HTTP/2 connection, perhaps the only connection, go to all runtimes in turn.
pub async fn serve_on(port: Port, workers: Vec<Worker>, shutdown: CancellationToken) {
    let Port { listener, bounds, tls, drain } = port;
    let register = Register::new(&bounds);
    let server = Arc::new(Server::new(bounds, tls, Workers::new(workers), shutdown.clone()));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Ok(stream) = stream.into_std() else { continue };
        let registration = register.admit(peer.ip());
        let (runtime, worker) = server.workers.join();
        let (server, cut) = (server.clone(), cut.clone());
        let serving = async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            tokio::select! {
                () = serve_connection(&server, stream, &registration.0, worker.number) => {}
                () = cut.cancelled() => {}
            }
        };
        connections.spawn_on(serving, &runtime);
    }
    drop(listener);
    connections.close();
    if timeout(drain, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "cut off what did not finish in time");
        cut.cancel();
        connections.wait().await;
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(e) if is_about_the_peer(&e) => {}
            Err(e) => {
                tracing::warn!(error = %e, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_about_the_peer(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
