//! The command that lists a gateway's undelivered captures.

use std::{io::Write, path::PathBuf};

use clap::Subcommand;
use shared::{
    spool::{self, SpooledCapture},
    time::Timestamp,
};

use super::{table, write_json};

/// Commands on the spool of a gateway.
#[derive(Debug, Subcommand)]
pub enum Spool {
    /// List the captures that are not delivered yet, oldest first
    List {
        /// The gateway's data directory
        #[arg(long = "of", env = "FAREGATE_DATA_DIR", value_name = "DIRECTORY", default_value = "./data")]
        data_dir: PathBuf,
        /// As a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on the spool. Needs no store, and the gateway may be running.
pub fn spool(Spool::List { data_dir, json }: &Spool, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let captures = spool::read(&spool::file(data_dir))?.pending;
    if *json {
        return write_json(out, captures.into_iter());
    }
    let row = |capture: SpooledCapture| {
        [
            Timestamp::from_millis(capture.at_ms).to_string(),
            capture.generation.to_string(),
            capture.key.to_string(),
            capture.model,
            capture.usage.prompt.to_string(),
            capture.usage.completion.to_string(),
        ]
    };
    let head = ["WRITTEN", "GENERATION", "KEY", "MODEL", "PROMPT", "COMPLETION"];
    Ok(table::write(out, &head, captures.into_iter().map(row))?)
}
