//! An HTTP server with bounds: slow headers, too many connections and a drain that would not end are cut.

use std::{
    convert::Infallible,
    fmt::Display,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use http::{Request, StatusCode, Uri, Version, uri::PathAndQuery};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tower::ServiceExt;

/// How long requests in flight may take to finish once a server is to stop, where nothing says otherwise.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Connections open at once; a further one waits in the kernel's queue.
const MAX_CONNECTIONS: usize = 16_384;
/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to agree on TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after the system refuses a connection (too many open files, say), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener on this address, or an error that names the setting.
pub async fn bind(setting: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|e| io::Error::new(e.kind(), format!("{setting}: cannot listen on {address}: {e}")))
}

/// How a program ends: what went wrong is told on one line, with the chain of its causes.
pub fn exit(outcome: Result<(), impl Display>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Where standard error is closed, the status alone has to tell.
            let _ = writeln!(io::stderr(), "error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The network address of a request's client, or of the proxy before us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// A runtime that serves connections, and its routes.
#[derive(Clone)]
pub struct Worker {
    /// The runtime.
    pub runtime: Handle,
    /// The routes.
    pub app: Router,
}

/// Serves until `shutdown`, then lets running requests finish for at most `drain`.
///
/// HTTP/1.1 and HTTP/2 without TLS; a slash at the end of a path is ignored.
pub async fn serve(listener: TcpListener, app: Router, shutdown: CancellationToken, drain: Duration) {
    serve_behind(None, listener, app, shutdown, drain).await;
}

/// The same behind TLS, where there is some; then HTTP/1.1 alone.
pub async fn serve_behind(
    tls: Option<TlsAcceptor>,
    listener: TcpListener,
    app: Router,
    shutdown: CancellationToken,
    drain: Duration,
) {
    let worker = Worker { runtime: Handle::current(), app };
    serve_connections(tls, Workers::new(vec![worker]), listener, shutdown, drain).await;
}

/// The same with several runtimes. A connection stays with the one that has the fewest; the requests of an HTTP/2 connection,
/// which may be all there are, are shared out among all.
pub async fn serve_on(
    workers: Vec<Worker>,
    listener: TcpListener,
    shutdown: CancellationToken,
    drain: Duration,
) {
    serve_connections(None, Workers::new(workers), listener, shutdown, drain).await;
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

    /// The number of the one with the fewest connections.
    fn idlest(&self) -> usize {
        let connections = |number: &usize| self.workers[*number].1.load(Ordering::Relaxed);
        (0..self.workers.len()).min_by_key(connections).unwrap_or(0)
    }

    /// Answers a request on the connection's own worker, or on the next one in turn if its connection carries many at once.
    async fn answer(self: Arc<Self>, own: usize, request: Request<Body>) -> Result<Response, Infallible> {
        if request.version() != Version::HTTP_2 || self.workers.len() == 1 {
            return self.workers[own].0.app.clone().oneshot(request).await;
        }
        let next = self.turns.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let (worker, _) = &self.workers[next];
        let answer = AbortOnDropHandle::new(worker.runtime.spawn(worker.app.clone().oneshot(request)));
        // Panics are caught by the routes; a task that is gone all the same belongs to a runtime that ends.
        answer.await.unwrap_or_else(|_| Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()))
    }
}

async fn serve_connections(
    tls: Option<TlsAcceptor>,
    workers: Arc<Workers>,
    listener: TcpListener,
    shutdown: CancellationToken,
    drain: Duration,
) {
    let connections = TaskTracker::new();
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let cut = CancellationToken::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Ok(stream) = stream.into_std() else { continue };
        let number = workers.idlest();
        let runtime = workers.workers[number].0.runtime.clone();
        workers.workers[number].1.fetch_add(1, Ordering::Relaxed);
        let (tls, workers, shutdown, cut) = (tls.clone(), workers.clone(), shutdown.clone(), cut.clone());
        let serving = async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                tokio::select! {
                    () = connection(tls, stream, &workers, number, shutdown) => {}
                    () = cut.cancelled() => {}
                }
            }
            workers.workers[number].1.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
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

/// Returns when the process is asked to stop: Ctrl-C, or SIGTERM.
pub async fn until_signalled() {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(e) => {
            tracing::warn!(error = %e, "SIGTERM cannot be noticed; Ctrl-C can");
            let _ = tokio::signal::ctrl_c().await;
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
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

async fn connection(
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    workers: &Arc<Workers>,
    number: usize,
    shutdown: CancellationToken,
) {
    // Without it a small write may wait 40 ms for the peer's acknowledgement of the one before.
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "cannot set TCP_NODELAY");
    }
    let peer = stream.peer_addr().ok().map(|address| PeerAddress(address.ip()));
    let Some(tls) = tls else { return http(stream, peer, workers, number, shutdown).await };
    match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => http(stream, peer, workers, number, shutdown).await,
        Ok(Err(e)) => tracing::warn!(error = %e, "a client was not let in"),
        Err(_) => tracing::debug!("a client did not agree on TLS in time"),
    }
}

async fn http<S>(
    stream: S,
    peer: Option<PeerAddress>,
    workers: &Arc<Workers>,
    number: usize,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        workers.clone().answer(number, normalized(request).map(Body::new))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "a connection ended early");
    }
}

/// The request without slashes at the end of its path.
fn normalized(mut request: Request<Incoming>) -> Request<Incoming> {
    let path = request.uri().path();
    if path.len() > 1 && path.ends_with('/') {
        let trimmed = match path.trim_end_matches('/') {
            "" => "/",
            trimmed => trimmed,
        };
        let target = match request.uri().query() {
            Some(query) => format!("{trimmed}?{query}"),
            None => trimmed.to_owned(),
        };
        let mut parts = request.uri().clone().into_parts();
        if let Ok(target) = PathAndQuery::try_from(target) {
            parts.path_and_query = Some(target);
        }
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}
