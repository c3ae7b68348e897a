//! Faults under load on the real programs, and a table of what their books say afterwards.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use bench::prove::{Plan, Stage, run};
use clap::Parser;

/// Kills, stops and starves the programs beside this one while clients send requests, compares the books, and prints a table.
#[derive(Parser)]
struct Flags {
    /// Minutes that the run takes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed of faults and requests; each round has the next one
    #[arg(long, default_value_t = 20_261_126)]
    seed: u64,
    /// Clients that send one request after the other
    #[arg(long, default_value_t = 192)]
    clients: usize,
    /// Folder with another version of the programs, of which every second process is
    #[arg(long)]
    beside: Option<PathBuf>,
    /// Installations of the rounds, in turn
    #[arg(long, value_delimiter = ',')]
    stages: Vec<Stage>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Flags { minutes, seed, clients, beside, stages } = Flags::parse();
    // Where it cannot be raised, fewer clients get through at once.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    silence_damaged_scripts();
    let plan = Plan { lasts: Duration::from_secs_f64(minutes * 60.0), seed, clients, beside, stages };
    // Where standard output is closed, the status alone reports the outcome.
    let report = run(&plan, |line| drop(writeln!(stdout(), "{line}"))).await;
    let _ = writeln!(stdout(), "\n{report}");
    if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Leaves out panics of the scripted upstream about scripts that garbage has damaged: the gateway's answer to these is what counts.
fn silence_damaged_scripts() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if !said.starts_with("a script cannot be read") {
            usual(panic);
        }
    }));
}
