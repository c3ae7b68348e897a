//! Attacks the real programs on the loopback interface for some minutes, and prints how they hold up.

use std::{
    fmt::Display,
    io::{Write, stdin, stdout},
    net::SocketAddr,
    process::ExitCode,
};

use bench::attack::{Part, Plan, run, silent};
use clap::{Parser, ValueEnum};

/// Number of open files that a process needs in addition to a flood's sockets.
const OTHER_FILES: usize = 512;

/// Attacks the programs in this program's folder, in front of a scripted upstream, and prints a table.
#[derive(Parser)]
struct Flags {
    /// Parts to run [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Number of silent sockets to open, over all processes
    #[arg(long, default_value_t = 24_000)]
    sockets: usize,
    /// Number of processes to spread the silent sockets over, since each may open only a limited number of files
    #[arg(long, default_value_t = 4)]
    processes: usize,
    /// Number of connections, each with twenty stalled bodies
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Number of paid requests while nobody reads the metrics; the scripted upstream records at most 200,000
    #[arg(long, default_value_t = 150_000)]
    requests: usize,
    /// Only open silent sockets at this address, print how many there are, and keep them until standard input ends
    #[arg(long, hide = true)]
    flood: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Flags { only, sockets, processes, connections, requests, flood } = Flags::parse();
    // If the limit cannot be raised, fewer sockets are opened.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
    let most = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES);
    if let Some(address) = flood {
        let opened = silent::flood(address, sockets.min(most)).await;
        let shown = writeln!(stdout(), "{}", opened.len());
        // Whatever this returns, the sockets are closed when the process ends.
        let _ = tokio::task::spawn_blocking(|| stdin().read_line(&mut String::new())).await;
        return if shown.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let plan = Plan { sockets, processes: processes.max(1), bodies: (connections, 20), requests };
    let parts = if only.is_empty() { Part::value_variants().to_vec() } else { only };
    let show = |line: &dyn Display| {
        // If standard output is closed, only the exit status reports the outcome.
        let _ = writeln!(stdout(), "{line}");
    };
    let broken = run(&plan, &parts, |row| show(row)).await;
    if broken.is_empty() {
        show(&format_args!("All {} parts hold.", parts.len()));
        return ExitCode::SUCCESS;
    }
    show(&format_args!("{} of {} parts are BROKEN: {broken:?}", broken.len(), parts.len()));
    ExitCode::FAILURE
}
