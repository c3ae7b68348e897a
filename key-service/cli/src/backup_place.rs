//! Arguments of `backup` and `restore`.

use std::path::PathBuf;

use clap::Args;

/// Where a backup goes.
#[derive(Args, Clone, Debug)]
pub struct BackupTo {
    /// Folder for the backup, created if missing. An earlier backup there is replaced once the new one has been checked
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// Where a backup comes from.
#[derive(Args, Clone, Debug)]
pub struct RestoreFrom {
    /// Folder that `backup` wrote to
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}
