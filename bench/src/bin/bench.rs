//! Measures the real programs' CPU time per request and per streamed chunk, compared with a bare proxy in the same run.

use std::{net::SocketAddr, path::PathBuf};

use bench::measure::{
    Plan,
    beside::{self, Kind},
    prompts, proxy, replicas, run, train,
};
use clap::{Parser, Subcommand, ValueEnum};
use tokio::net::TcpListener;

/// Measures `faregate`, and the services over Redis, in front of a scripted upstream. Everything runs on the loopback,
/// in separate processes.
#[derive(Parser)]
struct Flags {
    /// Run for about a minute, with rough figures
    #[arg(long)]
    quick: bool,
    /// Duration of each measurement in seconds
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: Option<u32>,
    /// Number of measurements of each kind, taken in turn; the medians are reported
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: Option<u32>,
    /// Number of requests that a gateway serves before its memory is measured
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    requests: Option<u32>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Measure the memory that long prompts take
    Prompts,
    /// Measure the cost of waiting for a replica of Redis
    Replicas,
    /// Compare these programs with another build's, such as an earlier commit's, as ratios
    Beside {
        /// Directory with the other build's programs
        folder: PathBuf,
        /// Installations to compare [default: all]
        #[arg(long, value_delimiter = ',')]
        only: Vec<Kind>,
    },
    /// Measure nothing, but do every kind of work, so that programs built for profiling write a profile (`make pgo`)
    Train,
    /// Run an installation of the programs in this program's directory until standard input ends
    #[command(hide = true)]
    Keep {
        kind: Kind,
        /// Address of the upstream
        upstream: SocketAddr,
    },
    /// Run a proxy to compare with
    #[command(hide = true)]
    Proxy {
        /// Address of the upstream
        upstream: SocketAddr,
        /// Hash keys, read models and usage, and add up tokens
        #[arg(long)]
        metering: bool,
    },
}

impl Flags {
    fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        Plan {
            seconds: self.seconds.unwrap_or(plan.seconds),
            rounds: self.rounds.unwrap_or(plan.rounds),
            requests: self.requests.unwrap_or(plan.requests),
            ..plan
        }
    }
}

fn main() -> std::io::Result<()> {
    let flags = Flags::parse();
    let plan = flags.plan();
    match flags.part {
        Some(Part::Proxy { upstream, metering }) => serve(upstream, metering),
        Some(Part::Prompts) => {
            generator(async { println!("{}", prompts::run().await) });
            Ok(())
        }
        Some(Part::Replicas) => {
            beside_a_proxy(async { println!("{}", replicas::run().await) });
            Ok(())
        }
        Some(Part::Beside { folder, only }) => {
            let kinds = if only.is_empty() { Kind::value_variants() } else { &only };
            generator(async { println!("{}", beside::run(&folder, kinds, &plan).await) });
            Ok(())
        }
        Some(Part::Keep { kind, upstream }) => {
            generator(beside::keep(kind, upstream));
            Ok(())
        }
        Some(Part::Train) => {
            generator(train::run());
            Ok(())
        }
        None => {
            generator(async { println!("{}", run(&plan).await) });
            Ok(())
        }
    }
}

/// Runs the load on one thread, so that it takes at most one core from the measured programs.
#[tokio::main(flavor = "current_thread")]
async fn generator(work: impl Future<Output = ()>) {
    work.await;
}

/// Runs the load next to the proxy in front of the master.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn beside_a_proxy(work: impl Future<Output = ()>) {
    work.await;
}

#[tokio::main]
async fn serve(upstream: SocketAddr, metering: bool) -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening proxy http://{}", listener.local_addr()?);
    proxy::serve(listener, upstream, metering).await
}
