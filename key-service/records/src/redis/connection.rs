//! Connections to servers, which many calls share.

use std::{error::Error, io, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    ServerErrorKind, TlsCertificates, TlsMode, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    pipe,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use shared::secret::ExposeSecret;
use tokio::{sync::Mutex, time::timeout};

use super::{
    key_space::PARTS,
    settings::{Address, Sentinel, tcp, tls::Certificates},
};

/// Timeout for a server to accept a connection.
const CONNECTING: Duration = Duration::from_secs(1);
/// Timeout for finding the master and connecting to it.
const FINDING: Duration = Duration::from_secs(3);
/// Timeout for an answer, after which the connection counts as dead. Scripts take a millisecond. It is shorter than a
/// call's deadline, so that callers still learn of the failure.
pub(super) const ANSWERING: Duration = Duration::from_secs(1);

/// A connection. Clones share it.
pub(super) type Connection = MultiplexedConnection;

/// A way to a master.
pub(super) enum Source {
    One(Box<Client>),
    /// Sentinels, which are asked for the master before each connection.
    Sentinel(Box<Mutex<SentinelClient>>),
}

/// The masters that serve a store.
pub(super) enum RedisOrigin {
    One(Source),
    Cluster(Nodes),
}

/// Addresses in a cluster, and how to connect to its nodes.
pub(super) struct Nodes {
    /// Some nodes. All have the same credentials.
    known: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
}

impl RedisOrigin {
    pub(super) fn new(address: &Address, certificates: &Certificates) -> RedisResult<Self> {
        if address.is_tls() {
            // An error means that a provider is already installed; every caller installs the same one.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let certificates = certificates.get().filter(|_| address.is_tls());
        Ok(match address.clone() {
            Address::One(info) => Self::One(Source::to(info, certificates)?),
            Address::Sentinel(sentinel) => {
                let client = watched(sentinel, address.is_tls(), certificates)?;
                Self::One(Source::Sentinel(Box::new(Mutex::new(client))))
            }
            Address::Cluster(known) => Self::Cluster(Nodes { known, certificates }),
        })
    }
}

impl Nodes {
    /// Returns the addresses of the nodes named in the settings.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.known.iter().map(|node| node.addr().to_string()).collect()
    }

    /// Returns the way to the node at an address.
    pub(super) fn source(&self, address: &str) -> RedisResult<Source> {
        let unknown = || RedisError::from((ErrorKind::InvalidClientConfig, "no address of a node"));
        let (host, port) = address.rsplit_once(':').ok_or_else(unknown)?;
        let (host, port) = (host.to_owned(), port.parse().map_err(|_| unknown())?);
        let like = self.known.first().ok_or_else(unknown)?;
        let address = match like.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Source::to(like.clone().set_addr(address), self.certificates.clone())
    }
}

impl Source {
    fn to(info: ConnectionInfo, certificates: Option<TlsCertificates>) -> RedisResult<Self> {
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates)?,
            None => Client::open(info)?,
        };
        Ok(Self::One(Box::new(client)))
    }

    /// Opens a connection with this timeout for each answer.
    pub(super) async fn connect(&self, answering: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTING))
            .set_response_timeout(Some(answering));
        let connected = async {
            match self {
                Self::One(client) => client.get_multiplexed_async_connection_with_config(&config).await,
                Self::Sentinel(client) => client.lock().await.get_async_connection_with_config(&config).await,
            }
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not answer").into();
        timeout(FINDING, connected).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Makes a client that asks Sentinels for the master, and authenticates to both.
fn watched(
    sentinel: Sentinel,
    tls: bool,
    certificates: Option<TlsCertificates>,
) -> RedisResult<SentinelClient> {
    let Sentinel { addresses, service, sign_in, master } = sentinel;
    let mut builder = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp())
        .set_client_to_redis_db(master.redis_settings().db());
    if let Some(user) = master.redis_settings().username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = master.redis_settings().password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = &sign_in.user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &sign_in.password {
        builder = builder.set_client_to_sentinel_password(password.expose_secret());
    }
    if tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    builder.build()
}

/// Asks a server about each part of the store. Skips parts that another server has.
pub(super) async fn ask_parts(
    connection: &Connection,
    question: impl Fn(usize) -> Cmd,
) -> RedisResult<Vec<(usize, Value)>> {
    let mut all = pipe();
    for part in 0..PARTS {
        all.add_command(question(part));
    }
    let answers = connection.clone().req_packed_commands(&all, 0, PARTS).await?;
    let mut here = Vec::with_capacity(PARTS);
    for (part, answer) in answers.into_iter().enumerate() {
        if let Some(answer) = if_here(answer.extract_error())? {
            here.push((part, answer));
        }
    }
    Ok(here)
}

/// Returns the answer if the server has the slot; `None` if it does not.
pub(super) fn if_here<T>(answer: RedisResult<T>) -> RedisResult<Option<T>> {
    use ServerErrorKind::{Ask, ClusterDown, Moved, TryAgain};
    match answer {
        Err(e) if matches!(e.kind(), ErrorKind::Server(Ask | ClusterDown | Moved | TryAgain)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns whether a Redis answers but cannot be accepted.
fn is_refused(error: &RedisError) -> bool {
    let mut cause = error.source();
    while let Some(found) = cause {
        // The library keeps causes in an `Arc`, and the source of its error is that `Arc`.
        let io = match found.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            Some(shared) => shared.downcast_ref::<io::Error>(),
            None => found.downcast_ref(),
        };
        if io.is_some_and(|e| e.kind() == io::ErrorKind::Unsupported) {
            return true;
        }
        cause = found.source();
    }
    false
}

/// Returns the error for a Redis that answers but cannot be accepted.
pub(super) fn refused(why: impl std::error::Error + Send + Sync + 'static) -> RedisError {
    io::Error::new(io::ErrorKind::Unsupported, why).into()
}

/// Returns whether a new connection may help.
pub(super) fn is_broken(error: &RedisError) -> bool {
    let moved = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown
        )
    );
    moved || error.is_io_error() || error.is_unrecoverable_error()
}

/// Returns whether another server may have become the master although this one answers: this one has lost its replicas.
pub(super) fn may_be_replaced(error: &RedisError) -> bool {
    error.code() == Some("NOREPLICAS")
}

/// Returns whether another attempt may succeed without anyone changing settings, data or credentials.
pub(super) fn may_pass(error: &RedisError) -> bool {
    let is_credential = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::EmptySentinelList => {
            false
        }
        _ => !is_credential && !is_refused(error),
    }
}
