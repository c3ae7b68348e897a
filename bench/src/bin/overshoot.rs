//! Prints a table that shows how far several gateways exceed small caps under the same load.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use bench::overshoot::{Gateway, Outcome, run, table};
use clap::{Parser, ValueEnum};

/// Sends the streams of tenants with small caps through three replicas, with and without kills, and compares what the
/// upstream generated for each tenant with its cap.
#[derive(Parser)]
struct Flags {
    /// Run only Faregate, once
    #[arg(long)]
    quick: bool,
    /// Systems to run [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Gateway>,
    /// Number of runs of each kind
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Seed of the first run; each further run uses the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Flags { quick, only, runs, seed } = Flags::parse();
    // If the limit on open files cannot be raised, fewer streams are open at once.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let (gateways, runs) = match (quick, only.is_empty()) {
        (true, _) => (vec![Gateway::Faregate], 1),
        (false, true) => (Gateway::value_variants().to_vec(), runs),
        (false, false) => (only, runs),
    };
    let (mut outcomes, mut failures): (Vec<Outcome>, Vec<String>) = (Vec::new(), Vec::new());
    for gateway in gateways {
        for with_kills in [false, true] {
            for number in 0..runs {
                match run(gateway, with_kills, seed + u64::from(number)).await {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(why) => failures.push(format!("{gateway:?} cannot run here: {why}")),
                }
                // If standard output is closed, only the exit status reports the outcome.
                let _ = writeln!(
                    stdout(),
                    "{gateway:?}, run {number} {}",
                    if with_kills { "with kills" } else { "" }
                );
            }
        }
    }
    let _ = writeln!(stdout(), "\n{}{}", table(&outcomes), failures.join("\n"));
    let holds = outcomes.iter().all(|outcome| !outcome.is_ours_over());
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
