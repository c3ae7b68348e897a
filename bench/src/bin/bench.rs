//! CPU per request and per streamed chunk of the real programs, beside a bare proxy, in one run.

use std::net::SocketAddr;

use bench::measure::{Plan, prompts, proxy, replicas, run, train};
use clap::{Parser, Subcommand};
use tokio::net::TcpListener;

/// Measures `faregate`, and the services over Redis, in front of a scripted upstream. Everything runs on the loopback, in processes of its own.
#[derive(Parser)]
struct Flags {
    /// A run of about a minute; its figures are rough
    #[arg(long)]
    quick: bool,
    /// Seconds of each measurement
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: Option<u32>,
    /// Measurements of each kind, in turn; their medians are reported
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: Option<u32>,
    /// Requests that a gateway serves before its memory is looked at
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    requests: Option<u32>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Memory that long prompts take
    Prompts,
    /// Cost of awaiting a replica of Redis
    Replicas,
    /// No figures: work of every kind, of which programs built for it write a profile (`make pgo`)
    Train,
    /// A proxy to compare with
    #[command(hide = true)]
    Proxy {
        /// Address to which the requests go
        upstream: SocketAddr,
        /// Hash keys, read models and usage, and add up tokens
        #[arg(long)]
        metering: bool,
    },
}

fn main() -> std::io::Result<()> {
    let flags = Flags::parse();
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
        Some(Part::Train) => {
            generator(train::run());
            Ok(())
        }
        None => {
            let plan = if flags.quick { Plan::QUICK } else { Plan::FULL };
            let plan = Plan {
                seconds: flags.seconds.unwrap_or(plan.seconds),
                rounds: flags.rounds.unwrap_or(plan.rounds),
                requests: flags.requests.unwrap_or(plan.requests),
                ..plan
            };
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

/// Runs the load beside the proxy that leads to the master.
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
