//! Accepts the connections of a port, and spawns a task for each.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use listenfd::ListenFd;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    bounds::Bounds,
    http::{Ends, Server, serve_connection},
    register::Register,
    tls::PortTls,
    workers::{Worker, Workers},
};

/// Default time for requests in flight to finish during a shutdown.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Pause after the system refuses a connection, for example with too many open files. It prevents a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Length of the system's queue of connections to accept, at most `net.core.somaxconn`. The system drops connections
/// beyond it, and their clients retry after a second.
const BACKLOG: u32 = 4096;
/// Number of bytes of answers that the system buffers for a client; the system doubles it for its own bookkeeping. It
/// reports progress only when a third is free, so with megabytes, a slow reader would seem to read nothing for minutes.
/// This size still allows two megabytes per second at 100 ms.
const SEND_BUFFER: u32 = 128 << 10;

/// Listens on this address. An error names the setting. Needs a runtime.
pub fn bind(setting: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server need not wait until the previous process's connections are gone.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit the bound.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|e| io::Error::new(e.kind(), format!("{setting}: cannot listen on {address}: {e}")))
}

/// The listener of the public port.
pub struct PublicListener {
    pub listener: TcpListener,
    /// True for a socket that a service manager passed. Other processes may accept its connections too, and connections
    /// that nobody accepts stay queued.
    pub is_handed_over: bool,
}

impl PublicListener {
    /// Takes the socket that the service manager passed (`LISTEN_FDS`), or listens on this address. Needs a runtime.
    pub fn open(setting: &str, address: SocketAddr) -> io::Result<Self> {
        let mut handed_over = ListenFd::from_env();
        let Some(listener) = handed_over.take_tcp_listener(0)? else {
            return Ok(Self { listener: bind(setting, address)?, is_handed_over: false });
        };
        if handed_over.len() > 1 {
            return Err(io::Error::other("LISTEN_FDS: pass only the socket of the public port"));
        }
        listener.set_nonblocking(true)?;
        tracing::info!(address = %listener.local_addr()?, "serving the public port on a socket passed by LISTEN_FDS");
        Ok(Self { listener: TcpListener::from_std(listener)?, is_handed_over: true })
    }
}

/// A port that serves HTTP/1.1 and HTTP/2. A slash at the end of a path is ignored.
pub struct Port {
    pub listener: TcpListener,
    /// Bounds on each connection, and on all together.
    pub bounds: Bounds,
    /// TLS, if any. It negotiates the protocol by ALPN.
    pub tls: Option<PortTls>,
    /// Cancelled when clients should move to other servers: each connection closes with its next answer.
    pub leaving: CancellationToken,
    /// Cancelled when connections are no longer accepted, at the shutdown or earlier.
    pub closed: CancellationToken,
    /// Connections whose first request has not reached the handler. Closed once connections are no longer accepted.
    pub arriving: TaskTracker,
    /// Time for running requests to finish during a shutdown.
    pub drain: Duration,
}

impl Port {
    pub fn new(listener: TcpListener, bounds: Bounds) -> Self {
        let [leaving, closed] = [(); 2].map(|()| CancellationToken::new());
        Self { listener, bounds, tls: None, leaving, closed, arriving: TaskTracker::new(), drain: DRAIN }
    }
}

/// Serves until `shutdown`, then gives running requests a bounded time to finish.
pub async fn serve(port: Port, app: Router, shutdown: CancellationToken) {
    serve_on(port, vec![Worker { runtime: Handle::current(), handler: app.into() }], shutdown).await;
}

/// Serves on several runtimes until `shutdown`. A new connection goes to the runtime with the fewest connections, and
/// stays there. Requests of an HTTP/2 connection, which may be the only one, are spread over all runtimes.
pub async fn serve_on(port: Port, workers: Vec<Worker>, shutdown: CancellationToken) {
    let Port { listener, bounds, tls, leaving, closed, arriving, drain } = port;
    let register = Register::new(&bounds, arriving.clone());
    let ends = Ends { leaving, shutdown: shutdown.clone() };
    let server = Arc::new(Server::new(bounds, tls, Workers::new(workers), ends));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            () = closed.cancelled() => break,
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
    arriving.close();
    shutdown.cancelled().await;
    connections.close();
    if timeout(drain, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "closed connections that did not finish in time");
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
