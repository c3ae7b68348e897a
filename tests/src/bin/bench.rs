//! CPU per request and per streamed chunk: of the real programs, beside a bare proxy and the upstream alone, in one run.

use std::net::SocketAddr;

use clap::{Parser, Subcommand};
use tests::bench::{Plan, keys, memory, proxy, run};
use tokio::net::TcpListener;

/// Measures `faregate`, and the services as processes of their own over Redis, in front of a scripted upstream. Everything runs on the loopback, in processes of its own.
#[derive(Parser)]
struct Flags {
    /// Seconds that each measurement takes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// How often all is measured, in turn; the sums are reported
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Streams open at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    streams: u32,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// The services on Redis with more and more keys, and what a key weighs
    Keys {
        /// Most keys; a million takes some minutes to make
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        most: u32,
    },
    /// What a long prompt and an open stream weigh
    Memory {
        /// Streams open at once
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=4_000))]
        streams: u32,
    },
    /// The bare proxy, as the measurement starts it
    #[command(hide = true)]
    Proxy {
        /// Where the requests go
        upstream: SocketAddr,
    },
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let Flags { seconds, rounds, streams, part } = Flags::parse();
    match part {
        Some(Part::Proxy { upstream }) => {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("listening proxy http://{}", listener.local_addr()?);
            proxy::serve(listener, upstream).await
        }
        Some(Part::Keys { most }) => {
            println!("{}", keys::run(most as usize, seconds).await);
            Ok(())
        }
        Some(Part::Memory { streams }) => {
            println!("{}", memory::run(streams as usize).await);
            Ok(())
        }
        None => {
            println!("{}", run(&Plan { seconds, rounds, streams }).await);
            Ok(())
        }
    }
}
