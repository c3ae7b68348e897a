//! Bounds on connections, and the settings that choose them.

use std::time::Duration;

use clap::Args;

/// The connections that are served at least, whatever is left for them: fewer would not be worth starting for.
pub const LEAST_CONNECTIONS: usize = 64;
/// Of these, connections of callers that are not authenticated: more than a gateway opens to pass refusals on.
const LEAST_UNAUTHENTICATED: usize = 32;
/// The connections of a port for probes and metrics: a scraper or two, and an operator.
const ADMIN_CONNECTIONS: usize = 64;

/// Settings of every port that a program listens on.
#[derive(Args, Clone, Debug)]
#[group(id = "connections")]
pub struct ConnectionOptions {
    /// Connections open at once on the main port, a quarter of them by callers that are not authenticated; beyond it the
    /// network address with the most of those loses its oldest one [default: 16384, or what open files and memory allow]
    #[arg(long, env = "FAREGATE_MAX_CONNECTIONS", value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub max_connections: Option<u32>,

    /// Requests at once on one HTTP/2 connection; further ones wait at the client
    #[arg(long, env = "FAREGATE_MAX_STREAMS_PER_CONNECTION", value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_streams_per_connection: u32,

    /// Largest head of a request, in KiB
    #[arg(long, env = "FAREGATE_MAX_HEAD_KIB", value_name = "KIB", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub max_head_kib: u32,

    /// Seconds from a connection's beginning until the whole head of its first request has arrived, and for every later head
    #[arg(long, env = "FAREGATE_HEAD_SECONDS", value_name = "SECONDS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub head_seconds: u64,

    /// Seconds for which a connection may carry no request; longer than a proxy in front keeps idle ones
    #[arg(long, env = "FAREGATE_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub idle_seconds: u64,

    /// Seconds for which a client may take nothing of an answer (of a chat's: FAREGATE_CLIENT_STALL_SECONDS), and after which it
    /// takes 32 KiB a second of one that is not a stream
    #[arg(long, env = "FAREGATE_UNREAD_SECONDS", value_name = "SECONDS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub unread_seconds: u64,

    /// Seconds between pings on an HTTP/2 connection, and for which one may stay unanswered
    #[arg(long, env = "FAREGATE_PING_SECONDS", value_name = "SECONDS", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub ping_seconds: u64,
}

/// Bounds on the connections of one port.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections open at once.
    pub connections: usize,
    /// Of these, connections on which no credential was accepted yet.
    pub unauthenticated: usize,
    /// Requests at once of authenticated callers, beyond what every port takes.
    pub requests: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// Bytes of a request's head.
    pub head_bytes: u32,
    /// From the connection's beginning to the first whole head.
    pub head: Duration,
    /// Without a request.
    pub idle: Duration,
    /// Without progress in writing an answer.
    pub unread: Duration,
    /// Between pings, and until one is answered.
    pub ping: Duration,
}

impl ConnectionOptions {
    /// The bounds of a port with so many connections.
    pub fn bounds(&self, connections: usize) -> Bounds {
        Bounds {
            connections,
            unauthenticated: (connections / 4).max(LEAST_UNAUTHENTICATED),
            requests: 0,
            streams: self.max_streams_per_connection,
            head_bytes: self.max_head_kib.saturating_mul(1 << 10),
            head: Duration::from_secs(self.head_seconds),
            idle: Duration::from_secs(self.idle_seconds),
            unread: Duration::from_secs(self.unread_seconds),
            ping: Duration::from_secs(self.ping_seconds),
        }
    }

    /// The bounds of a port whose callers need no credential.
    pub fn open_bounds(&self, connections: usize) -> Bounds {
        Bounds { unauthenticated: connections, ..self.bounds(connections) }
    }

    /// The bounds of a port for probes and metrics.
    pub fn admin_bounds(&self) -> Bounds {
        self.open_bounds(ADMIN_CONNECTIONS)
    }
}

impl Bounds {
    /// Interval at which a connection that carries requests is looked at: short enough for every bound, and no burden.
    pub(super) fn look_every(&self) -> Duration {
        let shortest = self.head.min(self.idle).min(self.unread);
        (shortest / 4).min(Duration::from_secs(4))
    }
}

impl Default for Bounds {
    /// The defaults of the settings, for so many connections as need no sizing.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: 1024,
            unauthenticated: 1024,
            requests: 0,
            streams: 100,
            head_bytes: 64 << 10,
            head: seconds(20),
            idle: seconds(30),
            unread: seconds(20),
            ping: seconds(15),
        }
    }
}
