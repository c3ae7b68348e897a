//! A connection to a server, or to all masters of a cluster, which many calls share.

use std::{error::Error, io, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisFuture,
    RedisResult, ServerErrorKind, TlsCertificates, TlsMode, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
    cmd,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use shared::secret::ExposeSecret;
use tokio::sync::Mutex;

use super::settings::{Address, REDIS_PORT, Sentinel, at_once, tls::Certificates};

/// Longest time for a server to accept a connection.
const CONNECTING: Duration = Duration::from_secs(1);
/// Longest time for a server to answer before the connection counts as dead. Scripts take a millisecond. It is shorter
/// than the deadline of calls, so that callers still learn of the failure.
pub(super) const ANSWERING: Duration = Duration::from_secs(1);
/// Redirections that a call follows while a cluster moves slots.
const REDIRECTIONS: u32 = 8;
/// Shortest and longest pause, in milliseconds, before a call is repeated while a slot moves.
const AGAIN_AFTER: (u64, u64) = (10, 150);

pub(super) enum Source {
    One(Box<Client>),
    /// Sentinels, which are asked for the master at every connection.
    Sentinel(Box<Mutex<SentinelClient>>),
    /// Some of a cluster's nodes, and the certificates for TLS.
    Cluster(Vec<ConnectionInfo>, Option<Box<TlsCertificates>>),
}

/// A connection, shared by all clones.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    /// A connection that reconnects by itself.
    Cluster(ClusterConnection),
}

impl Source {
    pub(super) fn new(address: &Address, certificates: &Certificates) -> RedisResult<Self> {
        if address.is_tls() {
            // An error means that a provider is installed already, and all are the same.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let certificates = certificates.get().filter(|_| address.is_tls());
        match address.clone() {
            Address::One(info) => {
                let client = match certificates {
                    Some(certificates) => Client::build_with_tls(info, certificates)?,
                    None => Client::open(info)?,
                };
                Ok(Self::One(Box::new(client)))
            }
            Address::Sentinel(sentinel) => {
                let client = watched(sentinel, address.is_tls(), certificates)?;
                Ok(Self::Sentinel(Box::new(Mutex::new(client))))
            }
            Address::Cluster(nodes) => Ok(Self::Cluster(nodes, certificates.map(Box::new))),
        }
    }

    /// Opens a connection on which every answer comes within `answering`.
    pub(super) async fn connect(&self, answering: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTING))
            .set_response_timeout(Some(answering));
        Ok(match self {
            Self::One(client) => {
                Connection::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Sentinel(client) => {
                Connection::One(client.lock().await.get_async_connection_with_config(&config).await?)
            }
            Self::Cluster(nodes, certificates) => {
                let mut builder = ClusterClient::builder(nodes.clone())
                    .retries(REDIRECTIONS)
                    .min_retry_wait(AGAIN_AFTER.0)
                    .max_retry_wait(AGAIN_AFTER.1)
                    .tcp_settings(at_once())
                    .connection_timeout(CONNECTING)
                    .response_timeout(answering)
                    .overall_response_timeout(Some(answering));
                if let Some(certificates) = certificates {
                    builder = builder.certs((**certificates).clone());
                }
                Connection::Cluster(builder.build()?.get_async_connection().await?)
            }
        })
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
        .set_client_to_redis_tcp_settings(at_once())
        .set_client_to_sentinel_tcp_settings(at_once())
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

impl Connection {
    /// Asks every master, and returns each answer.
    pub(super) async fn ask_masters(&mut self, command: Cmd) -> RedisResult<Vec<Value>> {
        match self {
            Self::One(connection) => Ok(vec![command.query_async(connection).await?]),
            Self::Cluster(connection) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let answers = connection.route_command(command, masters).await?;
                let answers: Vec<(String, Value)> = redis::from_redis_value(answers)?;
                Ok(answers.into_iter().map(|(_, answer)| answer).collect())
            }
        }
    }
}

impl Connection {
    /// Lists the addresses of all masters, in order. A server that is alone has an empty one.
    pub(super) async fn masters(&mut self) -> RedisResult<Vec<String>> {
        let Self::Cluster(connection) = self else { return Ok(vec![String::new()]) };
        let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let answers = connection.route_command(cmd("PING"), masters).await?;
        let answers: Vec<(String, Value)> = redis::from_redis_value(answers)?;
        let mut masters: Vec<String> = answers.into_iter().map(|(address, _)| address).collect();
        masters.sort();
        Ok(masters)
    }

    /// Asks the master at an address.
    pub(super) async fn ask_at(&mut self, master: &str, command: Cmd) -> RedisResult<Value> {
        match self {
            Self::One(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => {
                let (host, port) = master.rsplit_once(':').unwrap_or((master, ""));
                let (host, port) = (host.to_owned(), port.parse().unwrap_or(REDIS_PORT));
                let master = SingleNodeRoutingInfo::ByAddress { host, port };
                connection.route_command(command, RoutingInfo::SingleNode(master)).await
            }
        }
    }

    /// Asks the master that has a key.
    pub(super) async fn ask_for_key(&mut self, key: &[u8], command: Cmd) -> RedisResult<Value> {
        match self {
            Self::One(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => {
                let master = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
                connection.route_command(command, RoutingInfo::SingleNode(master)).await
            }
        }
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(command),
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

/// Returns whether a Redis answers but is not accepted.
fn is_refused(error: &RedisError) -> bool {
    let mut cause = error.source();
    while let Some(found) = cause {
        // The library keeps causes in an `Arc`, and its error refers to that.
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

/// Error of a Redis that answers but is not accepted.
pub(super) fn refused(why: impl std::error::Error + Send + Sync + 'static) -> RedisError {
    io::Error::new(io::ErrorKind::Unsupported, why).into()
}

/// Returns whether a new connection may help. A cluster's connection recovers by itself.
pub(super) fn is_broken(connection: &Connection, error: &RedisError) -> bool {
    let Connection::One(_) = connection else { return false };
    let moved = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown
        )
    );
    moved || error.is_io_error() || error.is_unrecoverable_error()
}

/// Returns whether another server may be the master by now: the one that was asked has lost its replicas, is a replica, or
/// does not find the other masters.
pub(super) fn may_be_replaced(error: &RedisError) -> bool {
    error.kind() == ErrorKind::ClusterConnectionNotFound
        || matches!(error.code(), Some("NOREPLICAS" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN"))
}

/// Returns whether another attempt to connect may succeed although nobody changes settings, data or credentials. A
/// cluster's first connection gives its cause only in words.
pub(super) fn may_pass(error: &RedisError) -> bool {
    let words = error.detail().unwrap_or_default();
    let is_credential = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        || ["authentication failed", "NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|it| words.contains(it));
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::EmptySentinelList => {
            false
        }
        _ => !is_credential && !is_refused(error),
    }
}
