//! The gateway's own settings.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use shared::config::ConfigError;

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

    /// MiB of prompts in memory at once, each counted twice until it was read and checked; a further one is told to come back
    #[arg(long, env = "FAREGATE_MAX_PROMPTS_MIB", value_name = "MIB", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_prompts_mib: u32,

    /// Chat requests in flight at once; a further one is told to come back
    #[arg(long, env = "FAREGATE_MAX_IN_FLIGHT", value_name = "COUNT", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_in_flight: u32,

    /// Seconds for which a client may take nothing of its stream before it counts as gone
    #[arg(long, env = "FAREGATE_CLIENT_STALL_SECONDS", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub client_stall_seconds: u64,

    /// Seconds that an upstream may take to begin its answer; then the client is answered 504. A whole answer goes on for up to
    /// three times as long, and is billed at its end
    #[arg(long, env = "FAREGATE_ANSWER_SECONDS", value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub answer_seconds: u64,

    /// Threads that serve requests [default: one for each core]
    #[arg(long, env = "FAREGATE_WORKERS", value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Seconds that running requests may take to finish once the gateway is to stop
    #[arg(long, env = "FAREGATE_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub drain_seconds: u64,
}

impl Options {
    /// The largest body of a chat request, in bytes.
    pub fn max_body_bytes(&self) -> usize {
        bytes(self.max_body_mib)
    }

    /// Bytes of prompts in memory at once.
    pub fn max_prompts_bytes(&self) -> Result<usize, ConfigError> {
        if self.max_prompts_mib < 2 * self.max_body_mib {
            let reason =
                "is less than twice FAREGATE_MAX_BODY_MIB, so that the largest body would never find room";
            return Err(ConfigError::new("FAREGATE_MAX_PROMPTS_MIB", reason));
        }
        Ok(bytes(self.max_prompts_mib))
    }

    /// Time for which a client may read nothing of its stream before it counts as gone.
    pub fn client_stall(&self) -> Duration {
        Duration::from_secs(self.client_stall_seconds)
    }

    /// Time within which an upstream has to begin its answer.
    pub fn answer_deadline(&self) -> Duration {
        Duration::from_secs(self.answer_seconds)
    }

    /// Number of threads that serve requests.
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.workers.map_or_else(cores, usize::from)
    }

    /// Time for running requests to finish after the gateway was asked to stop.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

fn bytes(mib: u32) -> usize {
    usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1 << 20)
}
