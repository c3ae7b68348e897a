//! HTTP clients of upstreams and of key-services, all built alike.

use std::time::Duration;

use hyper::body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;

/// A client, http and https, with a pool of connections. Cheap to clone.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Settings in which clients differ.
pub(crate) struct ClientSettings {
    /// Certificates to trust and to show; `None` trusts the authorities of the web.
    pub(crate) tls: Option<ClientConfig>,
    /// Longest time to make a connection.
    pub(crate) connect_deadline: Duration,
    /// Longest time that an idle connection is kept.
    pub(crate) idle: Duration,
    /// Idle connections kept for a server.
    pub(crate) idle_connections: usize,
}

/// Makes a client that connects within a bound and sends small packets at once.
pub(crate) fn http_client<B>(settings: ClientSettings) -> HttpClient<B>
where
    B: Body<Data: Send> + Send,
{
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(settings.connect_deadline));
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new();
    let builder = match settings.tls {
        Some(tls) => builder.with_tls_config(tls),
        None => builder.with_webpki_roots(),
    };
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(settings.idle)
        .pool_max_idle_per_host(settings.idle_connections)
        .build(builder.https_or_http().enable_http1().wrap_connector(tcp))
}
