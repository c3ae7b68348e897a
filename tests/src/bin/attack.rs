//! Attacks on the real programs, on the loopback, within minutes, and a table of how they hold.

use std::process::ExitCode;

use clap::Parser;
use tests::attack::{Plan, run};

/// Attacks `faregate` in front of a scripted upstream, in processes of its own, and prints a table.
#[derive(Parser)]
struct Flags {
    /// Silent sockets that are opened in a row; each is an open file of this program
    #[arg(long, default_value_t = 19_000)]
    sockets: usize,
    /// Connections with twenty stalled bodies each
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Paid requests while nobody reads the metrics
    #[arg(long, default_value_t = 1_000_000)]
    requests: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Flags { sockets, connections, requests } = Flags::parse();
    // Where it cannot be raised, fewer sockets are opened.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
    let most = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(512);
    let plan = Plan { sockets: sockets.min(most), bodies: (connections, 20), requests };
    let report = run(&plan).await;
    print!("{report}");
    if report.held() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
