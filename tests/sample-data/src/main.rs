//! Fills a data directory with two months of activity, for demonstrations and for tests of the console.

mod chance;
mod office;
mod plan;
mod story;
mod traffic;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use shared::{
    clock::{Clock, System},
    time::Timestamp,
};

/// Fill a new data directory with 62 days of accounts, keys, bills and refused calls
#[derive(Parser)]
struct Arguments {
    /// Data directory to fill; it must not contain a store yet
    #[arg(value_name = "DIR")]
    data_dir: PathBuf,

    /// End of the 62 days, such as 2026-11-28T16:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// Seed of all random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { data_dir, until, seed } = Arguments::parse();
    let until = match until {
        Some(text) => Timestamp::parse(&text).context("--until: give a time such as 2026-11-28T16:00:00Z")?,
        None => System.now(),
    };
    let told = story::tell(&data_dir, until, seed).await?;
    let dir = data_dir.display();
    println!(
        "{dir}: {} bills and {} refused calls, until {until}

faregate --data-dir {dir} --models {dir}/models.toml
faregate sign-in-link --data-dir {dir} --account default",
        told.bills, told.refused
    );
    Ok(())
}
