//! Connects to webhook receivers without SSRF or DNS rebinding: it checks every address and connects to exactly the
//! address that it checked.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use shared::network::Network;
use shared_client::fair_read::{CountedReads, FairRead};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tower::Service;

use domain::webhook::{AddressRefused, Host, may_connect};

/// Timeout for connecting to one address, so that the host's other addresses get a try.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);
/// Maximum number of a host's addresses to try.
const TRIED_ADDRESSES: usize = 3;

/// Resolves a host and a port to addresses.
pub(super) type Resolver =
    Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

#[derive(Clone)]
pub(super) struct Connector {
    resolver: Resolver,
    /// Networks that are allowed although they are private.
    allowed: Arc<[Network]>,
}

/// Reason why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConnected {
    /// The URL contains no host that can be resolved.
    #[error("the host's name is malformed")]
    NoHost,
    /// The host has no address.
    #[error("the host's name cannot be resolved")]
    NotResolved,
    /// The host resolves to an address that is not allowed.
    #[error(transparent)]
    Refused(#[from] AddressRefused),
    #[error("cannot connect")]
    Unreachable,
}

impl Connector {
    /// Makes a connector that uses the system's resolver.
    pub(super) fn new(allowed: &[Network]) -> Self {
        let system = |host: String, port| -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
        };
        Self::with_resolver(allowed, Arc::new(system))
    }

    pub(super) fn with_resolver(allowed: &[Network], resolver: Resolver) -> Self {
        Self { resolver, allowed: allowed.into() }
    }

    /// Connects to the URL's host. If any of the host's addresses is refused, connects to none of them.
    async fn connect(self, url: Uri) -> Result<TokioIo<FairRead<TcpStream>>, NotConnected> {
        let host = url.host().and_then(Host::parse).ok_or(NotConnected::NoHost)?;
        let name = match &host {
            Host::Name(name) => name.clone(),
            Host::Literal(address) => address.to_string(),
        };
        let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
        let found = (self.resolver)(name, port).await.map_err(|_| NotConnected::NotResolved)?;
        if found.is_empty() {
            return Err(NotConnected::NotResolved);
        }
        for address in &found {
            may_connect(address.ip(), &host, &self.allowed)?;
        }
        for address in found.into_iter().take(TRIED_ADDRESSES) {
            if let Ok(Ok(stream)) = timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
                // Fair reads are below TLS, because a receiver may send endless TLS messages.
                return Ok(TokioIo::new(FairRead::new(stream, CountedReads)));
            }
        }
        Err(NotConnected::Unreachable)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<FairRead<TcpStream>>;
    type Error = NotConnected;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        Box::pin(self.clone().connect(url))
    }
}
