//! Settings for Redis: its address, and the requirements that it must meet.

pub(super) mod tls;

use std::{path::PathBuf, time::Duration};

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use shared::secret::SecretString;

use self::tls::Certificates;

/// Default port of a Redis server or cluster node.
const REDIS_PORT: u16 = 6379;
/// Default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Idle time after which a connection is probed.
const QUIET: Duration = Duration::from_secs(5);
const PROBED_EVERY: Duration = Duration::from_secs(1);
/// Number of unanswered probes after which a connection counts as dead.
const PROBES: u32 = 3;
/// How long sent data may stay unacknowledged before a connection counts as dead.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);

/// Settings of the Redis store.
#[derive(Clone, Debug)]
pub struct Settings {
    pub address: Address,
    /// Prefix of all names. Installations that share a Redis have different prefixes.
    pub prefix: String,
    /// Whether to accept a Redis without an append-only file, which loses all data when it stops.
    pub volatile_allowed: bool,
    /// How many replicas must have a change before the change is answered.
    pub wait_replicas: u32,
    /// Certificates for TLS: of the authority that signed the server's certificate, and of this client.
    pub certificates: Certificates,
    /// Directory for a record of when the store was last seen, by which lost data is noticed. `None` if there is to be
    /// no such record.
    pub data_dir: Option<PathBuf>,
    /// Whether to mark the store as seen. A process that writes nothing leaves no mark, but still notices lost data.
    pub is_marked: bool,
}

/// Address of a Redis. It is printed without the password.
#[derive(Clone, Debug)]
pub enum Address {
    One(ConnectionInfo),
    /// The server that the Sentinels report as the service's master.
    Sentinel(Sentinel),
    Cluster(Vec<ConnectionInfo>),
}

/// Addresses of Sentinels, and the master that they watch.
#[derive(Clone, Debug)]
pub struct Sentinel {
    pub addresses: Vec<ConnectionAddr>,
    /// The Sentinels' name for the master.
    pub service: String,
    pub sign_in: SignIn,
    /// Credentials for the master. The host in this value is not used.
    pub master: ConnectionInfo,
}

/// Credentials for Sentinels that use access control.
#[derive(Clone, Debug, Default)]
pub struct SignIn {
    /// User in the Sentinels' access list.
    pub user: Option<String>,
    /// The user's password, or the one that all clients share.
    pub password: Option<SecretString>,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{0}; write sqlite:FILE, memory:, redis://[USER:PASSWORD@]HOST[:PORT][/DB], unix:PATH, \
     redis+cluster://[USER:PASSWORD@]HOST[:PORT],… or redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/SERVICE[/DB]\
     [?sentinel_user=USER&sentinel_password=PASSWORD] (with rediss for TLS)"
)]
pub struct InvalidAddress(String);

impl Address {
    /// Reads a URL. `rediss`, `rediss+cluster` and `rediss+sentinel` use TLS.
    pub fn parse(url: &str) -> Result<Self, InvalidAddress> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| InvalidAddress("no scheme".into()))?;
        match (scheme, rest.strip_prefix("//")) {
            ("redis" | "rediss", _) => Ok(Self::One(info(&with_database(url)?)?)),
            ("unix" | "redis+unix", _) => Ok(Self::One(info(url)?)),
            ("redis+cluster", Some(rest)) => Self::cluster("redis", rest),
            ("rediss+cluster", Some(rest)) => Self::cluster("rediss", rest),
            ("redis+sentinel", Some(rest)) => Self::sentinel("redis", rest),
            ("rediss+sentinel", Some(rest)) => Self::sentinel("rediss", rest),
            _ => Err(InvalidAddress(format!("unknown scheme \"{scheme}\""))),
        }
    }

    /// Returns whether connections are encrypted.
    pub(super) fn is_tls(&self) -> bool {
        let encrypted = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        match self {
            Self::One(info) | Self::Sentinel(Sentinel { master: info, .. }) => encrypted(info),
            Self::Cluster(nodes) => nodes.iter().any(encrypted),
        }
    }

    fn cluster(scheme: &str, rest: &str) -> Result<Self, InvalidAddress> {
        let (user, rest) = split_user(rest);
        let hosts = rest.trim_end_matches('/').split(',');
        Ok(Self::Cluster(
            hosts.map(|host| info(&at(scheme, user, host, REDIS_PORT))).collect::<Result<_, _>>()?,
        ))
    }

    fn sentinel(scheme: &str, rest: &str) -> Result<Self, InvalidAddress> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, rest) = split_user(rest);
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (service, db) = path.split_once('/').unwrap_or((path, "0"));
        if service.is_empty() {
            return Err(InvalidAddress("the service that the Sentinels watch is missing".into()));
        }
        let address = |host| info(&at(scheme, "", host, SENTINEL_PORT)).map(|info| info.addr().clone());
        let master = format!("{}/{db}", at(scheme, user, "localhost", REDIS_PORT));
        Ok(Self::Sentinel(Sentinel {
            addresses: hosts.split(',').map(address).collect::<Result<_, _>>()?,
            service: service.to_owned(),
            sign_in: SignIn::parse(query)?,
            master: info(&master)?,
        }))
    }
}

impl SignIn {
    fn parse(query: &str) -> Result<Self, InvalidAddress> {
        let mut sign_in = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "sentinel_user" => sign_in.user = Some(value.into_owned()),
                "sentinel_password" => sign_in.password = Some((&*value).into()),
                _ => return Err(InvalidAddress(format!("unknown parameter \"{name}\""))),
            }
        }
        Ok(sign_in)
    }
}

/// Splits at the last `@` into the credentials (with the `@`) and the rest.
fn split_user(rest: &str) -> (&str, &str) {
    rest.split_at(rest.rfind('@').map_or(0, |at| at + 1))
}

/// Moves the number of the database from the query of an address to its path. Some clients write the number in the
/// query.
fn with_database(url: &str) -> Result<String, InvalidAddress> {
    let Some((address, query)) = url.split_once('?') else { return Ok(url.to_owned()) };
    let named = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "db");
    let Some((_, db)) = named else { return Ok(url.to_owned()) };
    let (scheme, rest) = address.split_once("://").unwrap_or(("redis", address));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.is_empty() && path != db {
        return Err(InvalidAddress("the path and the query name two databases".into()));
    }
    let others = query.split('&').filter(|pair| !pair.starts_with("db="));
    let others: Vec<&str> = others.collect();
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    Ok(format!("{scheme}://{host}/{db}{query}"))
}

fn at(scheme: &str, user: &str, host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    if has_port { format!("{scheme}://{user}{host}") } else { format!("{scheme}://{user}{host}:{port}") }
}

fn info(url: &str) -> Result<ConnectionInfo, InvalidAddress> {
    let info: RedisResult<ConnectionInfo> = url.into_connection_info();
    // The library's messages do not repeat the URL, which may contain a password.
    let info = info.map_err(|e| InvalidAddress(e.to_string()))?;
    Ok(info.set_tcp_settings(tcp()))
}

/// Returns the TCP options for connections. Small writes are sent at once, because waiting for more data would cost 40
/// ms each time. Probes notice if a machine has vanished without closing its connections.
pub(super) fn tcp() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(QUIET).with_interval(PROBED_EVERY).with_retries(PROBES);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED);
    settings
}

#[cfg(test)]
mod tests {
    use shared::secret::ExposeSecret;

    use super::*;

    #[test]
    fn every_kind_of_address_is_read() {
        let address = |url| Address::parse(url).unwrap();
        assert!(
            matches!(address("redis://redis.internal:6380?db=2"), Address::One(i) if i.redis_settings().db() == 2)
        );
        assert!(
            matches!(address("redis://redis.internal/2?db=2&protocol=resp3"), Address::One(i) if i.redis_settings().db() == 2)
        );
        assert!(Address::parse("redis://redis.internal/1?db=2").is_err());
        assert!(
            matches!(address("redis://user:secret@redis.internal/2"), Address::One(i) if i.redis_settings().db() == 2)
        );
        assert!(matches!(address("unix:///run/redis.sock"), Address::One(_)));
        assert!(address("rediss://redis.internal:7000").is_tls());
        let Address::Cluster(nodes) = address("redis+cluster://user:p%40ss@a:7000,b,c:7002") else {
            panic!()
        };
        let hosts: Vec<_> = nodes.iter().map(|n| n.addr().to_string()).collect();
        assert_eq!(hosts, ["a:7000", "b:6379", "c:7002"]);
        assert!(nodes.iter().all(|n| n.redis_settings().password() == Some("p@ss")));
        assert!(address("rediss+cluster://a").is_tls());
        let Address::Sentinel(sentinel) =
            address("redis+sentinel://:pw@a,b:5/main/3?sentinel_user=watch&sentinel_password=p%26w")
        else {
            panic!()
        };
        let hosts: Vec<_> = sentinel.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:26379", "b:5"]);
        assert_eq!(sentinel.service, "main");
        assert_eq!(sentinel.sign_in.user.as_deref(), Some("watch"));
        assert_eq!(sentinel.sign_in.password.unwrap().expose_secret(), "p&w");
        let master = sentinel.master.redis_settings();
        assert_eq!((master.db(), master.password()), (3, Some("pw")));
    }

    #[test]
    fn what_is_no_address_is_refused_without_telling_the_password() {
        for url in [
            "redis:",
            "http://user:secret@h",
            "redis+sentinel://:secret@a,b",
            "redis://:secret@h:port",
            "redis+cluster:secret",
            "redis+sentinel://a/main?password=secret",
        ] {
            let refused = Address::parse(url).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
        let printed = format!("{:?}", Address::parse("redis://user:secret@h").unwrap());
        assert!(!printed.contains("secret"), "{printed}");
    }
}
