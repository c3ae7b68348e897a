use std::{net::SocketAddr, time::Duration};

use clap::{Args, ValueEnum, builder::TypedValueParser as _};

/// What the public address serves to operators. Each setting includes what the previous setting serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum PublicOperator {
    Off,
    Pages,
    All,
}

/// The gateway's own settings.
#[derive(Args, Clone, Debug)]
#[group(id = "gateway")] // `faregate` has both services' options
pub struct Options {
    /// Address of the public port
    #[arg(long, env = "FAREGATE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// Maximum size of a chat request's body, in MiB
    #[arg(long, env = "FAREGATE_MAX_BODY_MIB", value_name = "MIB", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_body_mib: u32,

    /// Memory for prompts, in MiB. A prompt counts twice until it is read and checked. Requests for which no memory is
    /// left get 503 with `Retry-After` [default: half of the memory that the process may use, at most 1024]
    #[arg(long, env = "FAREGATE_MAX_PROMPTS_MIB", value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_prompts_mib: Option<u32>,

    /// Memory for large answers, in MiB; one account may use half of it. An answer that gets no memory within ten
    /// seconds is billed but not delivered. An answer that is not streamed counts twice until it is rewritten. An
    /// answer of at most 64 KiB does not count [default: a quarter of the memory that the process may use, at most 1024]
    #[arg(long, env = "FAREGATE_MAX_ANSWERS_MIB", value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    pub max_answers_mib: Option<u32>,

    /// Maximum number of chat requests in flight; further requests get 503 with `Retry-After` [default: 4096, or a
    /// quarter of the limit of open files if that is less]
    #[arg(long, env = "FAREGATE_MAX_IN_FLIGHT", value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_in_flight: Option<u32>,

    /// Maximum number of an account's chat requests in flight; further requests get 503 with `Retry-After` [default:
    /// three quarters of FAREGATE_MAX_IN_FLIGHT]
    #[arg(long, env = "FAREGATE_MAX_IN_FLIGHT_PER_ACCOUNT", value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_in_flight_per_account: Option<u32>,

    /// Seconds a client may stop reading before its stream is ended
    #[arg(long = "client-stall-seconds", env = "FAREGATE_CLIENT_STALL_SECONDS", value_name = "SECONDS",
          default_value = "60", value_parser = clap::value_parser!(u64).range(1..=3600).map(Duration::from_secs))]
    pub client_stall: Duration,

    /// Seconds an upstream may take to begin an answer before the client gets 504. An answer that is not streamed may
    /// take up to three times as long in all; if its client leaves, it may take this many more seconds. It is billed
    /// when it ends
    #[arg(long = "answer-seconds", env = "FAREGATE_ANSWER_SECONDS", value_name = "SECONDS",
          default_value = "600", value_parser = clap::value_parser!(u64).range(1..=86_400).map(Duration::from_secs))]
    pub answer_deadline: Duration,

    /// Seconds an upstream may send nothing during a stream, or after the first byte of any other answer. Comments and
    /// incomplete events do not count as sent
    #[arg(long = "upstream-silence-seconds", env = "FAREGATE_UPSTREAM_SILENCE_SECONDS", value_name = "SECONDS",
          default_value = "120", value_parser = clap::value_parser!(u64).range(1..=3600).map(Duration::from_secs))]
    pub upstream_silence: Duration,

    /// Trust X-Forwarded-For, -Proto and -Host. Set this only behind a proxy that sets them: otherwise clients can
    /// choose the address that the dashboard sees
    #[arg(long, env = "FAREGATE_TRUST_PROXY")]
    pub trust_proxy: bool,

    /// What the public address serves to operators: nothing (off), the pages at /operator (pages), or also the API at
    /// /v1/operator (all). The key-service's HTTP port always serves both
    #[arg(long, env = "FAREGATE_PUBLIC_OPERATOR", value_name = "WHAT", value_enum, default_value = "pages")]
    pub public_operator: PublicOperator,

    /// Threads that serve requests [default: the number of cores]
    #[arg(long, env = "FAREGATE_WORKERS", value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Seconds that running requests may take to finish during a shutdown
    #[arg(long = "drain-seconds", env = "FAREGATE_DRAIN_SECONDS", value_name = "SECONDS",
          default_value = "30", value_parser = clap::value_parser!(u64).range(0..=3600).map(Duration::from_secs))]
    pub drain: Duration,
}

impl Options {
    pub(crate) fn max_body_bytes(&self) -> usize {
        usize::try_from(self.max_body_mib).unwrap_or(usize::MAX).saturating_mul(1 << 20)
    }

    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.workers.map_or_else(cores, usize::from)
    }
}
