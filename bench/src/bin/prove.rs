//! Causes faults in the real programs under load, and prints whether their books still agree afterwards.

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
    /// Maximum duration of the run in minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed of the first round, which decides its faults and requests; each further round uses the next number
    #[arg(long, default_value_t = 20_261_126)]
    seed: u64,
    /// Number of clients, each of which sends one request after the other
    #[arg(long, default_value_t = 192)]
    clients: usize,
    /// Directory with another version of the programs; every second process runs that version
    #[arg(long)]
    beside: Option<PathBuf>,
    /// Installations to use in the rounds, one after the other
    #[arg(long, value_delimiter = ',')]
    stages: Vec<Stage>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Flags { minutes, seed, clients, beside, stages } = Flags::parse();
    // If the limit on open files cannot be raised, fewer clients can connect at once.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    silence_damaged_scripts();
    let plan = Plan { lasts: Duration::from_secs_f64(minutes * 60.0), seed, clients, beside, stages };
    // If standard output is closed, only the exit status reports the outcome.
    let report = run(&plan, |line| drop(writeln!(stdout(), "{line}"))).await;
    let _ = writeln!(stdout(), "\n{report}");
    if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Hides the panics with which the scripted upstream reacts to scripts that garbage has damaged. Only the gateway's
/// answers matter there.
fn silence_damaged_scripts() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if !said.starts_with("a script cannot be read") {
            usual(panic);
        }
    }));
}
