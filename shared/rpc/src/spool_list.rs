//! The command that lists a gateway's undelivered captures. All programs that contain a gateway or have a store share
//! it.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Subcommand;
use shared::{table, time::Timestamp};

use crate::spool::{self, SpooledCapture};

/// A command about the spool of a gateway.
#[derive(Debug, Subcommand)]
pub enum SpoolCommand {
    /// List the captures that are not delivered yet, oldest first
    List {
        /// The gateway's data directory
        #[arg(long = "of", env = "FAREGATE_DATA_DIR", value_name = "DIRECTORY", default_value = "./data")]
        data_dir: PathBuf,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command about the spool. It needs no store, and the gateway may be running meanwhile.
pub fn list_spool(
    SpoolCommand::List { data_dir, json }: &SpoolCommand,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let captures = spool::read(&spool::file(data_dir))?.pending;
    if *json {
        writeln!(out, "{}", serde_json::to_string_pretty(&captures)?)?;
        return Ok(());
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
    table::write(out, &head, captures.into_iter().map(row))
}
