//! Serves HTTP on a connection, and closes the connection if its client does not do something in time.

use std::{convert::Infallible, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use ::http::{HeaderValue, Request, Uri, Version, header, uri::PathAndQuery};
use axum::{body::Body, response::Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use shared_client::{
    fair_read::{CountedReads, FairRead},
    watched_stream::WatchedStream,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    arrival::{CarriedBy, OverTls, PeerAddress},
    body::{BodyOptions, Responses, Unread, WatchedBody},
    bounds::Bounds,
    connection::{Connection, Overdue},
    progress::ProgressReport,
    tls::PortTls,
    workers::Workers,
};

/// Maximum time that closing an idle connection may take. During this time, a request that is already on its way is
/// still answered.
const GOODBYE: Duration = Duration::from_secs(2);
/// Number of bytes that a client may send on an HTTP/2 stream, and on a whole connection, before the server reads them.
/// They stay in memory. With 128 KiB per round trip and round trips of 25 ms, a client can send five megabytes per
/// second.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Number of bytes of an answer that an HTTP/2 stream buffers for the client, in addition to one piece. Each full piece
/// in the buffer counts as load.
const SEND_BUFFER: usize = 64 << 10;

/// State that all connections of a port share.
pub(super) struct Server {
    bounds: Bounds,
    tls: Option<PortTls>,
    http: auto::Builder<TokioExecutor>,
    pub(super) workers: Arc<Workers>,
    ends: Ends,
}

/// Signals that make connections end.
pub(super) struct Ends {
    /// Cancelled when each connection should be closed after its next answer.
    pub(super) leaving: CancellationToken,
    /// Cancelled when each connection should be closed as soon as it is idle.
    pub(super) shutdown: CancellationToken,
}

impl Server {
    pub(super) fn new(bounds: Bounds, tls: Option<PortTls>, workers: Arc<Workers>, ends: Ends) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head.max(bounds.idle))
            .max_buf_size(bounds.head_bytes as usize);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(bounds.ping)
            .keep_alive_timeout(bounds.ping)
            .max_concurrent_streams(bounds.streams)
            .max_header_list_size(bounds.head_bytes)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER);
        Self { bounds, tls, http, workers, ends }
    }
}

pub(super) async fn serve_connection(
    server: &Arc<Server>,
    stream: TcpStream,
    connection: &Arc<Connection>,
    worker: usize,
) {
    // Without TCP_NODELAY, a small write may wait 40 ms until the client acknowledges the previous write.
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "cannot set TCP_NODELAY");
    }
    let peer = stream.peer_addr().ok().map(|address| PeerAddress(address.ip()));
    let report = ProgressReport(connection.clone());
    let stream = WatchedStream::new(FairRead::new(stream, CountedReads), report);
    let peer = ConnectionPeer { address: peer, over_tls: server.tls.is_some() };
    let Some(tls) = &server.tls else { return serve_http(server, stream, peer, connection, worker).await };
    // The time for the first head begins when the connection is opened, so the TLS handshake does not extend it.
    let handshake = timeout(server.bounds.head, tls.acceptor().accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = connection.evicted.notified() => return,
    };
    match shaken {
        // The task for TLS is boxed separately, so that connections without TLS reserve no memory for it.
        Ok(Ok(stream)) => Box::pin(serve_http(server, stream, peer, connection, worker)).await,
        Ok(Err(e)) if tls.among_services => {
            tracing::warn!(error = %e, "the TLS handshake of a service failed");
        }
        Ok(Err(e)) => tracing::debug!(error = %e, "a client's TLS handshake failed"),
        Err(_) => tracing::debug!("a client's TLS handshake timed out"),
    }
}

/// What is known about the other end of a connection. It is attached to each request.
#[derive(Clone, Copy)]
struct ConnectionPeer {
    address: Option<PeerAddress>,
    over_tls: bool,
}

async fn serve_http<S>(
    server: &Arc<Server>,
    stream: S,
    peer: ConnectionPeer,
    connection: &Arc<Connection>,
    worker: usize,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (responses, left) = (Arc::new(Responses::default()), Arc::new(Notify::new()));
    let service = {
        let (server, connection, responses) = (server.clone(), connection.clone(), responses.clone());
        let left = left.clone();
        service_fn(move |mut request: Request<Incoming>| {
            if let Some(address) = peer.address {
                request.extensions_mut().insert(address);
            }
            if peer.over_tls {
                request.extensions_mut().insert(OverTls);
            }
            let (connection, responses, left) = (connection.clone(), responses.clone(), left.clone());
            let carried = Carried { connection, responses, left, worker };
            answer(server.clone(), carried, request)
        })
    };
    let serving = server.http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    // In this order, it is noticed at once if a write begins to wait.
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => ended,
        () = ending(server, &left) => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = serving => ended,
                _overdue = overdue(connection, &responses, &server.bounds) => return,
            }
        }
        overdue = overdue(connection, &responses, &server.bounds) => {
            tracing::debug!(?overdue, "closing a connection");
            metrics::counter!("http_connections_overdue_total", "what" => overdue.label()).increment(1);
            if overdue != Overdue::Idle {
                return;
            }
            serving.as_mut().graceful_shutdown();
            timeout(GOODBYE, serving).await.unwrap_or(Ok(()))
        }
        () = connection.evicted.notified() => return tracing::debug!("closing a connection to make room for another"),
    };
    if let Err(e) = ended {
        tracing::debug!(error = %e, "a connection ended early");
    }
}

/// Waits until the connection must be closed as soon as it is idle.
async fn ending(server: &Server, left: &Notify) {
    tokio::select! {
        () = server.ends.shutdown.cancelled() => {}
        () = left.notified() => {}
    }
}

/// Waits until the client misses a deadline. Returns what the client did not do in time.
async fn overdue(connection: &Connection, responses: &Responses, bounds: &Bounds) -> Overdue {
    let mut alarm = pin!(sleep_until(Instant::now()));
    poll_fn(|context| {
        loop {
            if !connection.began_to_wait() && alarm.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            match look(connection, responses, bounds, Instant::now()) {
                Ok(next) => alarm.as_mut().reset(next),
                Err(overdue) => return Poll::Ready(overdue),
            }
        }
    })
    .await
}

/// Returns when to check a connection and its responses again, or what the client did not do in time.
fn look(
    connection: &Connection,
    responses: &Responses,
    bounds: &Bounds,
    now: Instant,
) -> Result<Instant, Overdue> {
    let unread = responses.longest_wait(bounds.unread);
    let of_responses = responses.look(now)?;
    let next = connection.look(bounds, unread, now)?;
    Ok(of_responses.map_or(next, |at| next.min(at)))
}

/// The connection on which a request came, and the number of its worker.
struct Carried {
    connection: Arc<Connection>,
    responses: Arc<Responses>,
    /// Notified when the connection should be closed after its present requests.
    left: Arc<Notify>,
    worker: usize,
}

async fn answer(
    server: Arc<Server>,
    carried: Carried,
    request: Request<Incoming>,
) -> Result<Response<WatchedBody>, Infallible> {
    let Carried { connection, responses, left, worker } = carried;
    let mut begun = connection.begin_request(head_bytes(&request));
    let http2 = request.version() == Version::HTTP_2;
    let mut request = normalized(request).map(Body::new);
    request.extensions_mut().insert(CarriedBy(connection));
    if let Some(arrival) = begun.arrival.take() {
        request.extensions_mut().insert(arrival);
    }
    let mut response = server.workers.answer(worker, request).await;
    let unread = response.extensions_mut().remove::<Unread>();
    let unread = unread.unwrap_or(Unread { bound: server.bounds.unread, stream: None });
    if server.ends.leaving.is_cancelled() {
        if http2 {
            left.notify_one();
        } else {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
    Ok(response.map(|body| responses.respond(begun, body, BodyOptions { unread, http2 })))
}

/// Returns how many bytes a request's head occupies in memory.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    target + request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>()
}

/// Removes slashes from the end of a request's path. `NormalizePath` of `tower-http` would also remove them from the
/// start. Then a request for `//dashboard` would bypass a proxy that protects `/dashboard`.
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
