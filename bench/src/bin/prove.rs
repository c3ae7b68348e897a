//! Causes faults under load on the real programs, and prints what their books show afterwards.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use bench::prove::{Plan, Stage, run};
use clap::Parser;

/// Kills, stops and starves the programs in this program's directory while clients send requests, then checks the books
/// and prints a table.
#[derive(Parser)]
struct Flags {
    /// Minutes that the run may take
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed for faults and requests; each round uses the next number
    #[arg(long, default_value_t = 20_261_126)]
    seed: u64,
    /// Number of clients, each of which sends one request after the other
    #[arg(long, default_value_t = 192)]
    clients: usize,
    /// Directory with another version of the programs, which every second process runs
    #[arg(long)]
    beside: Option<PathBuf>,
    /// Installations to use for the rounds, in turn
    #[arg(long, value_delimiter = ',')]
    stages: Vec<Stage>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Flags { minutes, seed, clients, beside, stages } = Flags::parse();
    // If the limit cannot be raised, fewer clients can connect at once.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    silence_damaged_scripts();
    let plan = Plan { lasts: Duration::from_secs_f64(minutes * 60.0), seed, clients, beside, stages };
    // If standard output is closed, the status alone reports the outcome.
    let report = run(&plan, |line| drop(writeln!(stdout(), "{line}"))).await;
    let _ = writeln!(stdout(), "\n{report}");
    if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Hides panics of the scripted upstream about scripts that garbage has damaged, since only the gateway's answers
/// matter there.
fn silence_damaged_scripts() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if !said.starts_with("a script cannot be read") {
            usual(panic);
        }
    }));
}
