//! The gateway's own settings.

use std::{net::SocketAddr, time::Duration};

use clap::Args;

/// The gateway's own settings.
#[derive(Args, Clone, Debug)]
#[group(id = "gateway")] // `faregate` has both services' options
pub struct Options {
    /// The public address
    #[arg(long, env = "FAREGATE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// The largest body of a chat request, in MiB
    #[arg(long, env = "FAREGATE_MAX_BODY_MIB", value_name = "MIB", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_body_mib: u32,

    /// Chat requests in flight at once; a further one is told to come back
    #[arg(long, env = "FAREGATE_MAX_IN_FLIGHT", value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_in_flight: u32,

    /// Seconds that running requests may take to finish once the gateway is to stop
    #[arg(long, env = "FAREGATE_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub drain_seconds: u64,
}

impl Options {
    /// The largest body of a chat request, in bytes.
    pub fn max_body_bytes(&self) -> usize {
        usize::try_from(self.max_body_mib).unwrap_or(usize::MAX).saturating_mul(1 << 20)
    }

    /// How long running requests may take to finish once the gateway is to stop.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}
