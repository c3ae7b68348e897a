//! Connections to other servers, and clients that pool such connections.

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

/// A client for http and https. It keeps a pool of connections, which `C` makes. Cheap to clone.
pub type HttpClient<B, C = HttpConnector> = Client<Connecting<C, <C as Service<Uri>>::Response>, B>;
/// Makes the connections of a client's pool.
type Connecting<C, S> =
    MapResponse<HttpsConnector<C>, fn(MaybeHttpsStream<S>) -> Bounded<TokioIo<MaybeHttpsStream<S>>>>;
/// A connection that limits what an answer may send up to its final head, and that reads fairly.
type Bounded<S> = TokioIo<FinalHead<FairRead<S>>>;

/// Connects to a server over http or https. Cheap to clone.
#[derive(Clone)]
pub enum Connector {
    /// Connects directly to the server.
    Direct(HttpsConnector<HttpConnector>),
    /// Connects to the server through a proxy, with the method CONNECT.
    Tunnelled(HttpsConnector<Tunnel<HttpConnector>>),
}

/// Settings in which clients differ.
pub struct ClientSettings {
    /// Certificate authorities to trust, and the certificate to present; `None` trusts the public authorities.
    pub tls: Option<ClientConfig>,
    pub connect_deadline: Duration,
    /// How long an idle connection is kept.
    pub idle: Duration,
    /// Maximum number of idle connections that are kept for each server.
    pub idle_connections: usize,
}

/// Makes a client that must connect within a deadline and that sends small packets without delay.
pub fn http_client<B>(settings: ClientSettings) -> HttpClient<B>
where
    B: Body<Data: Send> + Send,
{
    http_client_over(tcp(settings.connect_deadline), settings)
}

/// Makes a connector that must connect within `deadline`. It goes through `proxy` if there is one. `tls` contains the
/// authorities to trust; `None` trusts the public ones.
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

/// Opens an HTTP/1 connection to a server; `origin` contains the server's scheme and authority. The connection runs in
/// a task of its own.
pub async fn connect<B>(
    connector: &Connector,
    origin: Uri,
) -> Result<SendRequest<B>, Box<dyn Error + Send + Sync>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    // TLS and plain connections have different types of task, so that connections without TLS reserve no memory for
    // TLS.
    let stream = match connector {
        Connector::Direct(direct) => direct.clone().oneshot(origin).await?,
        Connector::Tunnelled(tunnelled) => tunnelled.clone().oneshot(origin).await?,
    };
    match stream {
        MaybeHttpsStream::Http(stream) => handshake(stream.into_inner()).await,
        MaybeHttpsStream::Https(stream) => handshake(stream.into_inner()).await,
    }
}

/// Opens an HTTP/1 connection over `stream`. The connection runs in a task of its own.
pub async fn handshake<B, S>(stream: S) -> Result<SendRequest<B>, Box<dyn Error + Send + Sync>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (requests, connection) = http1::handshake(bounded(stream)).await?;
    // The result may be ignored, because an error of the connection also reaches its request. The task is the
    // connection itself: an async block around it would need twice the memory.
    tokio::spawn(connection);
    Ok(requests)
}

/// Makes a connector that sends small packets without delay.
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

/// Makes a client whose connections come from `tcp`. `tcp` must enforce its own deadline.
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
