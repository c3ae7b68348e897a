//! Connections to other servers, and clients over them.

use std::{error::Error, time::Duration};

use http::Uri;
use hyper::{
    body::Body,
    client::conn::http1::{self, SendRequest},
    rt::{Read, Write},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::{
            Client,
            connect::{Connection, HttpConnector, proxy::Tunnel},
        },
        proxy::matcher::Intercept,
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::{Service, ServiceExt, util::MapResponse};

use crate::{
    fair_read::{CountedReads, FairRead},
    final_head::{FinalHead, Heads},
};

/// A client for http and https, with a pool of the connections that `C` makes. Cheap to clone.
pub type HttpClient<B, C = HttpConnector> = Client<Connecting<C, <C as Service<Uri>>::Response>, B>;
/// Connector of a client with a pool.
type Connecting<C, S> =
    MapResponse<HttpsConnector<C>, fn(MaybeHttpsStream<S>) -> Bounded<TokioIo<MaybeHttpsStream<S>>>>;
/// A connection with bounds on answers up to their final heads, and with fair reads.
type Bounded<S> = TokioIo<FinalHead<FairRead<S>>>;

/// Connects to a server over http or https. Cheap to clone.
#[derive(Clone)]
pub enum Connector {
    /// Connects to the server itself.
    Direct(HttpsConnector<HttpConnector>),
    /// Connects through a proxy with CONNECT.
    Tunnelled(HttpsConnector<Tunnel<HttpConnector>>),
}

/// Settings that differ between clients.
pub struct ClientSettings {
    /// Certificates to trust and to present; `None` trusts the public authorities.
    pub tls: Option<ClientConfig>,
    /// Timeout for connecting.
    pub connect_deadline: Duration,
    /// How long an idle connection is kept.
    pub idle: Duration,
    /// Idle connections kept for a server.
    pub idle_connections: usize,
}

/// Makes a client that connects within a deadline and sends small packets at once.
pub fn http_client<B>(settings: ClientSettings) -> HttpClient<B>
where
    B: Body<Data: Send> + Send,
{
    http_client_over(tcp(settings.connect_deadline), settings)
}

/// Makes a connector that connects within `deadline`, through `proxy` if there is one. `tls` contains the authorities
/// to trust; `None` trusts the public ones.
pub(super) fn connector(
    deadline: Duration,
    tls: Option<ClientConfig>,
    proxy: Option<&Intercept>,
) -> Connector {
    let tcp = tcp(deadline);
    let Some(proxy) = proxy else { return Connector::Direct(https(tcp, tls)) };
    let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    let tunnel = match proxy.basic_auth() {
        Some(password) => tunnel.with_auth(password.clone()),
        None => tunnel,
    };
    Connector::Tunnelled(https(tunnel, tls))
}

/// Opens an HTTP/1 connection to a server; `origin` has its scheme and authority. A task runs the connection.
pub async fn connect<B>(
    connector: &Connector,
    origin: Uri,
) -> Result<SendRequest<B>, Box<dyn Error + Send + Sync>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    // Each branch has its own type of task, so that connections without TLS reserve no memory for it.
    let stream = match connector {
        Connector::Direct(direct) => direct.clone().oneshot(origin).await?,
        Connector::Tunnelled(tunnelled) => tunnelled.clone().oneshot(origin).await?,
    };
    match stream {
        MaybeHttpsStream::Http(stream) => handshake(stream.into_inner()).await,
        MaybeHttpsStream::Https(stream) => handshake(stream.into_inner()).await,
    }
}

/// Opens an HTTP/1 connection over `stream`. The connection runs in a task.
pub async fn handshake<B, S>(stream: S) -> Result<SendRequest<B>, Box<dyn Error + Send + Sync>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (requests, connection) = http1::handshake(bounded(stream)).await?;
    // An error of the connection also reaches its request. The task is the connection itself: an async block around it
    // would be twice as large.
    tokio::spawn(connection);
    Ok(requests)
}

/// Makes a connector that sends small packets at once.
fn tcp(deadline: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(deadline));
    tcp.enforce_http(false);
    tcp
}

pub(crate) fn https<C>(tcp: C, tls: Option<ClientConfig>) -> HttpsConnector<C> {
    let builder = HttpsConnectorBuilder::new();
    let builder = match tls {
        Some(tls) => builder.with_tls_config(tls),
        None => builder.with_webpki_roots(),
    };
    builder.https_or_http().enable_http1().wrap_connector(tcp)
}

/// Makes a client over connections from `tcp`, which enforces its own deadline.
pub fn http_client_over<B, C>(tcp: C, settings: ClientSettings) -> HttpClient<B, C>
where
    B: Body<Data: Send> + Send,
    C: Service<Uri, Error: Into<Box<dyn Error + Send + Sync>>, Future: Send> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle)
        .pool_max_idle_per_host(settings.idle_connections)
        .build(https(tcp, settings.tls).map_response(pooled as fn(_) -> _))
}

fn pooled<S>(stream: MaybeHttpsStream<S>) -> Bounded<TokioIo<MaybeHttpsStream<S>>> {
    bounded(TokioIo::new(stream))
}

fn bounded<S>(stream: S) -> Bounded<S> {
    TokioIo::new(FinalHead::new(FairRead::new(stream, CountedReads), Heads::default()))
}
