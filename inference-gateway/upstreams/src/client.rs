//! A worker's client for upstreams: HTTP/1 with persistent connections.
//!
//! A request passes through no task or queue other than those of its connection. The pool of a general-purpose client
//! would add some.

use std::{
    collections::VecDeque,
    error::Error,
    mem,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::{Bytes, buf::Chain};
use foldhash::HashMap;
use http::{HeaderValue, Request, Response, Uri, header, uri::Scheme};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use parking_lot::Mutex;
use shared::secret::ExposeSecret;
use shared_catalog::Access;
use shared_client::{Connector, dial::Dial, handshake, upstream_access::upstream_connector};
use shared_config::ConfigError;
use tokio::{
    select,
    sync::oneshot,
    time::{sleep, timeout},
};

/// Maximum time to reach a server or its proxy.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum time until a connection is usable: TCP, the proxy's tunnel and TLS.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of idle connections to a server.
const IDLE_CONNECTIONS: usize = 1024;
/// Time between two rounds of pruning. Each round closes the connections that have been idle since the previous round.
const PRUNE_EVERY: Duration = Duration::from_secs(45);

type Body = Full<Chain<Bytes, Bytes>>;

/// A server, as the client reaches it.
pub(crate) struct Server {
    origin: Uri,
    /// Key for the server's connections: its scheme, its authority and, if it is not reached directly, how it is
    /// reached.
    name: Arc<str>,
    /// Value of `Host`, without the scheme's default port.
    host: HeaderValue,
    /// Connector to the server, through its proxy if it has one, with the certificate authorities to trust.
    connector: Connector,
}

/// A client of upstreams. Cheap to clone.
#[derive(Clone)]
pub struct UpstreamClient(Arc<OpenConnections>);

struct OpenConnections {
    idle: Mutex<IdleConnections>,
    /// Makes connections, instead of TCP.
    dial: Option<Arc<dyn Dial>>,
}

#[derive(Default)]
struct IdleConnections {
    by_server: HashMap<Arc<str>, ServerConnections>,
    /// Rounds of pruning so far.
    rounds: u64,
    has_pruner: bool,
}

#[derive(Default)]
struct ServerConnections {
    idle: Vec<Idle>,
    /// Requests that wait for a connection, the oldest first.
    waiting: VecDeque<oneshot::Sender<SendRequest<Body>>>,
}

struct Idle {
    connection: SendRequest<Body>,
    /// Number of pruning rounds that had ended when the connection became idle.
    since: u64,
}

/// Why the head of an answer did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("no connection")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    #[error("the connection broke")]
    Request(#[source] hyper::Error),
}

impl Server {
    pub(crate) fn of(url: &Uri, access: &Access) -> Result<Self, ConfigError> {
        let invalid = |e: &dyn Error| ConfigError::new("FAREGATE_MODELS", format!("{url}: {e}"));
        let is_https = url.scheme() == Some(&Scheme::HTTPS);
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let origin = format!("{}://{authority}", if is_https { "https" } else { "http" });
        let mut name = origin.clone();
        if let Some(file) = &access.ca_file {
            name = format!("{name} trusting {}", file.display());
        }
        if let Some(proxy) = &access.proxy {
            name = format!("{name} by {}", proxy.expose_secret());
        }
        let host = url.host().unwrap_or_default();
        let host = match url.port_u16() {
            Some(port) if port != own_port(url) => format!("{host}:{port}"),
            Some(_) | None => host.to_owned(),
        };
        Ok(Self {
            origin: origin.parse().map_err(|e| invalid(&e))?,
            name: name.into(),
            host: HeaderValue::try_from(host).map_err(|e| invalid(&e))?,
            connector: upstream_connector(url, access, CONNECT_DEADLINE)?,
        })
    }

    pub(crate) fn address(&self) -> (&str, u16) {
        (self.origin.host().unwrap_or_default(), self.origin.port_u16().unwrap_or(own_port(&self.origin)))
    }

    /// Returns the host, with the port if the URL has one.
    pub(crate) fn authority(&self) -> &str {
        self.origin.authority().map_or("", |authority| authority.as_str())
    }
}

/// Returns the default port of a URL's scheme.
fn own_port(url: &Uri) -> u16 {
    if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 }
}

impl UpstreamClient {
    /// Makes a client without connections. It connects by TCP, or with `dial`.
    pub fn new(dial: Option<Arc<dyn Dial>>) -> Self {
        Self(Arc::new(OpenConnections { idle: Mutex::default(), dial }))
    }

    /// Sends a request and returns the head of the answer. The request's URI is only a path.
    pub(crate) async fn request(
        &self,
        server: &Server,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        request.headers_mut().insert(header::HOST, server.host.clone());
        loop {
            let (mut connection, is_new) = match self.0.take(&server.name) {
                Some(idle) => (idle, false),
                None => self.connection(server).await?,
            };
            match connection.try_send_request(request).await {
                Ok(response) => {
                    self.keep(server, connection);
                    return Ok(response);
                }
                Err(mut failure) => match failure.take_message() {
                    // The server closed an idle connection before the request was written, so it is sent on another
                    // connection.
                    Some(unsent) if !is_new => request = unsent,
                    Some(_) | None => return Err(SendError::Request(failure.into_error())),
                },
            }
        }
    }

    /// Opens a connection, unless another connection becomes idle first. Returns the connection, and whether it is new.
    async fn connection(&self, server: &Server) -> Result<(SendRequest<Body>, bool), SendError> {
        let returned = self.0.wait(server.name.clone());
        let (connector, origin) = (server.connector.clone(), server.origin.clone());
        let dialled = self.0.dial.as_ref().map(|dial| dial.dial(&origin));
        let mut connecting = Box::pin(async move {
            let connecting = async {
                match dialled {
                    Some(dialled) => handshake(dialled.await?).await,
                    None => shared_client::connect(&connector, origin).await,
                }
            };
            timeout(HANDSHAKE_DEADLINE, connecting).await.map_err(|_| "no connection in time")?
        });
        select! {
            biased;
            Ok(connection) = returned => {
                let (connections, name) = (self.0.clone(), server.name.clone());
                // The new connection is kept for a later request.
                tokio::spawn(async move {
                    if let Ok(connection) = connecting.await {
                        connections.put(name, connection);
                    }
                });
                Ok((connection, false))
            }
            connected = &mut connecting => Ok((connected.map_err(SendError::Connect)?, true)),
        }
    }

    /// Keeps a connection for reuse once its answer has ended.
    fn keep(&self, server: &Server, mut connection: SendRequest<Body>) {
        if connection.is_ready() {
            return self.0.put(server.name.clone(), connection);
        }
        let (connections, name) = (self.0.clone(), server.name.clone());
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                connections.put(name, connection);
            }
        });
    }
}

impl OpenConnections {
    /// Takes the idle connection that was used last.
    fn take(&self, server: &str) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock();
        let connections = &mut idle.by_server.get_mut(server)?.idle;
        while let Some(Idle { connection, .. }) = connections.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Waits for the next connection that becomes idle.
    fn wait(&self, server: Arc<str>) -> oneshot::Receiver<SendRequest<Body>> {
        let (request, returned) = oneshot::channel();
        let mut idle = self.idle.lock();
        let waiting = &mut idle.by_server.entry(server).or_default().waiting;
        while waiting.front().is_some_and(oneshot::Sender::is_closed) {
            waiting.pop_front();
        }
        waiting.push_back(request);
        returned
    }

    /// Hands a connection to the request that has waited longest, or keeps it.
    fn put(self: &Arc<Self>, server: Arc<str>, mut connection: SendRequest<Body>) {
        let mut idle = self.idle.lock();
        let since = idle.rounds;
        let connections = idle.by_server.entry(server).or_default();
        while let Some(request) = connections.waiting.pop_front() {
            match request.send(connection) {
                Ok(()) => return,
                Err(unused) => connection = unused,
            }
        }
        if connections.idle.len() < IDLE_CONNECTIONS {
            connections.idle.push(Idle { connection, since });
        }
        if !mem::replace(&mut idle.has_pruner, true) {
            tokio::spawn(prune(Arc::downgrade(self)));
        }
    }
}

/// Closes connections that stay idle, for as long as the client exists.
async fn prune(connections: Weak<OpenConnections>) {
    loop {
        sleep(PRUNE_EVERY).await;
        let Some(connections) = connections.upgrade() else { return };
        let mut idle = connections.idle.lock();
        let round = idle.rounds;
        idle.by_server.retain(|_, ServerConnections { idle, waiting }| {
            idle.retain(|idle| idle.since == round && idle.connection.is_ready());
            waiting.retain(|request| !request.is_closed());
            !idle.is_empty() || !waiting.is_empty()
        });
        idle.rounds += 1;
        if idle.by_server.is_empty() {
            idle.has_pruner = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
