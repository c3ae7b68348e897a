//! Accepts the connections of a port, and starts a task for each connection.

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

/// Default time that running requests get to finish during a shutdown.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Pause after the system could not accept a connection, for example because too many files are open. Without this
/// pause, the task would try again in a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Length of the system's queue of connections that wait to be accepted. The system limits this length to
/// `net.core.somaxconn`. When the queue is full, the system drops further connections, and their clients try again
/// after a second.
const BACKLOG: u32 = 4096;
/// Number of bytes of answers that the system buffers for a client; the system doubles this number for its own
/// bookkeeping. The system reports progress only when a third of the buffer is free. If the buffer had megabytes, a
/// client that reads slowly would seem to read nothing for minutes. With this size and round trips of 100 ms, a client
/// can still read two megabytes per second.
const SEND_BUFFER: u32 = 128 << 10;

/// Listens on this address. An error names `setting`. Must be called in a runtime.
pub fn bind(setting: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // With this, a restarted server need not wait until all connections of the previous process are gone.
        socket.set_reuseaddr(true)?;
        // Connections that are accepted inherit this size.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|e| io::Error::new(e.kind(), format!("{setting}: cannot listen on {address}: {e}")))
}

/// The listener of the public port.
pub struct PublicListener {
    pub listener: TcpListener,
    /// True if a service manager passed the socket. Then other processes may accept connections from it too. A
    /// connection that no process accepts stays in the queue.
    pub is_handed_over: bool,
}

impl PublicListener {
    /// Takes the socket that the service manager passed (`LISTEN_FDS`), or listens on this address if it passed none.
    /// Must be called in a runtime.
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

/// A port that serves HTTP/1.1 and HTTP/2. Slashes at the end of a path are ignored.
pub struct Port {
    pub listener: TcpListener,
    /// Limits on each connection, and on all connections together.
    pub bounds: Bounds,
    /// TLS of the port, if it uses TLS. The handshake also agrees on the version of HTTP (ALPN).
    pub tls: Option<PortTls>,
    /// Cancelled when clients should move to other servers. Each connection is then closed after its next answer.
    pub leaving: CancellationToken,
    /// Cancelled when no further connections are accepted: at the shutdown, or before it.
    pub closed: CancellationToken,
    /// Counts connections whose first request has not reached the handler yet. It is closed when no further connections
    /// are accepted.
    pub arriving: TaskTracker,
    /// Time that running requests get to finish during a shutdown.
    pub drain: Duration,
}

impl Port {
    pub fn new(listener: TcpListener, bounds: Bounds) -> Self {
        let [leaving, closed] = [(); 2].map(|()| CancellationToken::new());
        Self { listener, bounds, tls: None, leaving, closed, arriving: TaskTracker::new(), drain: DRAIN }
    }
}

/// Serves until `shutdown`. Then running requests get a limited time to finish.
pub async fn serve(port: Port, app: Router, shutdown: CancellationToken) {
    serve_on(port, vec![Worker { runtime: Handle::current(), handler: app.into() }], shutdown).await;
}

/// Serves on several runtimes until `shutdown`. A new connection goes to the runtime that has the fewest connections,
/// and stays there. One HTTP/2 connection may carry all requests, so the requests of such a connection are spread over
/// all runtimes.
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
