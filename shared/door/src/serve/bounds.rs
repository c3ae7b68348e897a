//! The limits on connections, and the settings from which they follow.

use std::time::Duration;

use clap::Args;

/// Minimum number of connections of the main port, even if open files and memory allow fewer: with fewer, a server
/// would be useless.
pub(crate) const LEAST_CONNECTIONS: usize = 64;
/// Minimum number of connections for unauthenticated callers. A gateway that passes on refusals opens fewer.
const LEAST_UNAUTHENTICATED: usize = 32;
/// Maximum number of connections of a port for probes and metrics. It is enough for one or two scrapers and an
/// operator.
const ADMIN_CONNECTIONS: usize = 64;

/// Settings of every port of a program.
#[derive(Args, Clone, Debug)]
#[group(id = "connections")]
pub struct ConnectionOptions {
    /// Maximum number of open connections on the main port. At most a quarter may be unauthenticated: beyond that, the
    /// network address that has the most of these loses its oldest connection [default: 16384, or what open files and
    /// memory allow]
    #[arg(long, env = "FAREGATE_MAX_CONNECTIONS", value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub(crate) max_connections: Option<u32>,

    /// Maximum number of concurrent requests on an HTTP/2 connection; the client has to queue further requests
    #[arg(long, env = "FAREGATE_MAX_STREAMS_PER_CONNECTION", value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_streams_per_connection: u32,

    /// Maximum size of a request's head, in KiB
    #[arg(long, env = "FAREGATE_MAX_HEAD_KIB", value_name = "KIB", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(8..=1024))]
    max_head_kib: u32,

    /// Seconds a client may take to send the head of a request. For the first request, the time counts from the start
    /// of the connection
    #[arg(long, env = "FAREGATE_HEAD_SECONDS", value_name = "SECONDS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    head_seconds: u64,

    /// Seconds after which an idle connection is closed. Set this higher than the idle timeout of a proxy in front
    #[arg(long, env = "FAREGATE_IDLE_SECONDS", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    idle_seconds: u64,

    /// Seconds a client may stop reading an answer (for chats, see FAREGATE_CLIENT_STALL_SECONDS). After this time, an
    /// answer that is not streamed must also be read at 32 KiB per second or faster
    #[arg(long, env = "FAREGATE_UNREAD_SECONDS", value_name = "SECONDS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    unread_seconds: u64,

    /// Seconds between pings on an HTTP/2 connection; a ping must be answered within the same time
    #[arg(long, env = "FAREGATE_PING_SECONDS", value_name = "SECONDS", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    ping_seconds: u64,
}

/// Limits on the connections of a port.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub connections: usize,
    /// Maximum number of connections without an accepted credential.
    pub unauthenticated: usize,
    /// Number of concurrent requests of authenticated callers that the port allows in addition to what every port
    /// allows.
    pub requests: usize,
    pub streams: u32,
    pub head_bytes: u32,
    /// Maximum time until the first head is complete, from the start of the connection.
    pub head: Duration,
    pub idle: Duration,
    /// Maximum time for which a write may make no progress.
    pub unread: Duration,
    /// Time between two pings. A ping must be answered within the same time.
    pub ping: Duration,
}

impl ConnectionOptions {
    /// Returns the limits of a port that may have this number of connections.
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

    /// Returns the limits of a port whose callers need no credential.
    pub fn open_bounds(&self, connections: usize) -> Bounds {
        Bounds { unauthenticated: connections, ..self.bounds(connections) }
    }

    /// Returns the limits of a port for probes and metrics.
    pub fn admin_bounds(&self) -> Bounds {
        self.open_bounds(ADMIN_CONNECTIONS)
    }
}

impl Bounds {
    /// Returns the time between two checks of a connection that carries requests. It is short enough for every limit,
    /// and long enough for checks to cost little.
    pub(super) fn look_every(&self) -> Duration {
        let shortest = self.head.min(self.idle).min(self.unread);
        (shortest / 4).min(Duration::from_secs(4))
    }
}

impl Default for Bounds {
    /// Returns the limits that follow from the settings' defaults. The number of connections is fixed here.
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
