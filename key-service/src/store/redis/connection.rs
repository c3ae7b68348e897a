//! A connection to one server or to all masters of a cluster: many calls share it.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisFuture, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo},
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use tokio::sync::Mutex;

use super::settings::{Address, at_once};

/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(1);
/// How long a server may take to answer; longer means that the connection is dead. Scripts take a millisecond. Less than
/// callers have patience, or they would leave before anyone notices.
const ANSWERING: Duration = Duration::from_secs(1);
/// How often a call follows a cluster that moves under it.
const REDIRECTIONS: u32 = 8;

/// Where connections come from.
pub(super) enum Source {
    One(Box<Client>),
    /// Asked for the master on every connection.
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    /// Heals by itself.
    Cluster(ClusterConnection),
}

impl Source {
    pub(super) fn new(address: &Address) -> RedisResult<Self> {
        if address.is_tls() {
            // Whoever installed one first has it; they are all the same.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        match address.clone() {
            Address::One(info) => Ok(Self::One(Box::new(Client::open(info)?))),
            Address::Sentinel { sentinels, service, master } => {
                let sign_in = SentinelNodeConnectionInfo::default()
                    .set_redis_connection_info(master.redis_settings().clone())
                    .set_tcp_settings(at_once());
                let sign_in =
                    if address.is_tls() { sign_in.set_tls_mode(redis::TlsMode::Secure) } else { sign_in };
                let client =
                    SentinelClient::build(sentinels, service, Some(sign_in), SentinelServerType::Master)?;
                Ok(Self::Sentinel(Box::new(Mutex::new(client))))
            }
            Address::Cluster(nodes) => {
                let builder = ClusterClient::builder(nodes)
                    .retries(REDIRECTIONS)
                    .tcp_settings(at_once())
                    .connection_timeout(CONNECTING)
                    .response_timeout(ANSWERING)
                    .overall_response_timeout(Some(ANSWERING));
                Ok(Self::Cluster(Box::new(builder.build()?)))
            }
        }
    }

    pub(super) async fn connect(&self) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTING))
            .set_response_timeout(Some(ANSWERING));
        Ok(match self {
            Self::One(client) => {
                Connection::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Sentinel(client) => {
                Connection::One(client.lock().await.get_async_connection_with_config(&config).await?)
            }
            Self::Cluster(client) => Connection::Cluster(client.get_async_connection().await?),
        })
    }
}

impl Connection {
    /// Asks every master; one answer each.
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
