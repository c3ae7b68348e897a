//! HTTP server of every port of every program: the only code that decides how connections are served, and when each
//! ends.
//!
//! Every new connection gets a place (`admission`). A connection that sends no head, carries no request, or takes too
//! little of its answers is closed in time, by the progress of requests, not of bytes.

mod admission;
mod bounds;
mod connection;
mod group;
mod http;
mod progress;
mod response;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::http::{Extensions, Request, StatusCode, Version};
use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tower::ServiceExt;

use crate::ids::AccountId;
use admission::Admission;
pub use bounds::{Bounds, ConnectionOptions, LEAST_CONNECTIONS};
use connection::Connection;
pub use group::Network;
use http::{Server, serve_connection};

/// Default time that requests in flight have to finish once a server is to stop.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Pause after the system refuses a connection (too many open files, say), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Length of the system's queue of connections to accept, as far as `net.core.somaxconn` allows. The system ignores
/// connections beyond the queue, and their clients try again after a second.
const BACKLOG: u32 = 4096;

/// A listener on this address, or an error that names the setting. Works inside a runtime.
pub fn bind(setting: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted server need not wait for connections of the process before.
        socket.set_reuseaddr(true)?;
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

/// The network address of a request's client, or of the proxy before us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// A runtime that serves connections, with a handler of requests.
#[derive(Clone)]
pub struct Worker {
    /// The runtime.
    pub runtime: Handle,
    /// The handler.
    pub handler: Handler,
}

/// Handler of requests: cheap to clone, unlike a router, and with a single allocation a request.
#[derive(Clone)]
pub struct Handler(Arc<dyn Fn(Request<Body>) -> Answering + Send + Sync>);

/// An answer to come.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

impl Handler {
    /// A handler that answers as `answer` does.
    pub fn new<F>(answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }

    fn answer(&self, request: Request<Body>) -> Answering {
        (self.0)(request)
    }
}

impl From<Router> for Handler {
    fn from(routes: Router) -> Self {
        Self::new(move |request| {
            let answer = routes.clone().oneshot(request);
            async move {
                let Ok(response) = answer.await;
                response
            }
        })
    }
}

/// Longest time for which a client may take nothing of this response, in place of the port's own bound; an extension
/// of responses.
#[derive(Clone, Copy, Debug)]
pub struct UnreadBound(pub Duration);

/// Connection of a request; an extension of requests.
#[derive(Clone)]
struct CarriedBy(Arc<Connection>);

/// A caller whose credential was accepted, who competes with other callers for places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The holder of a key of this account.
    Account(AccountId),
    /// Another service of the installation.
    Service,
}

/// Trust in the connection of a request. An accepted credential moves the connection among those of authenticated
/// callers. Cheap to clone.
#[derive(Clone)]
pub struct ConnectionTrust(Option<Arc<Connection>>);

impl ConnectionTrust {
    /// The trust in the connection of the request with these extensions.
    pub fn of(request: &Extensions) -> Self {
        Self(request.get().map(|CarriedBy(connection)| connection.clone()))
    }

    /// Notes that a credential of this caller was accepted on the connection.
    pub fn grant(&self, caller: Caller) {
        if let Some(connection) = &self.0 {
            connection.trust(caller);
        }
    }

    /// Network of an unauthenticated caller; `None` for every other caller.
    pub fn stranger(&self) -> Option<Network> {
        self.0
            .as_ref()
            .filter(|connection| connection.caller().is_none())
            .map(|connection| connection.network)
    }

    /// The network that the connection comes from; `None` for requests from inside the process.
    pub fn network(&self) -> Option<Network> {
        self.0.as_ref().map(|connection| connection.network)
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
    let admission = Admission::new(&bounds);
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
        let place = admission.admit(peer.ip());
        let (runtime, worker) = server.workers.join();
        let (server, cut) = (server.clone(), cut.clone());
        let serving = async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            tokio::select! {
                () = serve_connection(&server, stream, &place.0, worker.number) => {}
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

/// The runtimes of a server.
struct Workers {
    workers: Vec<(Worker, AtomicUsize)>,
    turns: AtomicUsize,
}

impl Workers {
    fn new(workers: Vec<Worker>) -> Arc<Self> {
        let workers = workers.into_iter().map(|worker| (worker, AtomicUsize::new(0))).collect();
        Arc::new(Self { workers, turns: AtomicUsize::new(0) })
    }

    /// Runtime with the fewest connections, and a place there for the new connection.
    fn join(self: &Arc<Self>) -> (Handle, WorkerPlace) {
        let connections = |number: &usize| self.workers[*number].1.load(Ordering::Relaxed);
        let number = (0..self.workers.len()).min_by_key(connections).unwrap_or(0);
        let (worker, connections) = &self.workers[number];
        connections.fetch_add(1, Ordering::Relaxed);
        (worker.runtime.clone(), WorkerPlace { workers: self.clone(), number })
    }

    /// Answers a request on the connection's worker, or on the next worker in turn if the connection carries many at
    /// once.
    async fn answer(&self, own: usize, request: Request<Body>) -> Response {
        if request.version() != Version::HTTP_2 || self.workers.len() == 1 {
            return self.workers[own].0.handler.answer(request).await;
        }
        let next = self.turns.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let (worker, _) = &self.workers[next];
        let answer = AbortOnDropHandle::new(worker.runtime.spawn(worker.handler.answer(request)));
        // Panics are caught by the routes; a task that is gone all the same belongs to a runtime that ends.
        answer.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }
}

/// A connection on a worker, counted until the drop.
struct WorkerPlace {
    workers: Arc<Workers>,
    number: usize,
}

impl Drop for WorkerPlace {
    fn drop(&mut self) {
        self.workers.workers[self.number].1.fetch_sub(1, Ordering::Relaxed);
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
