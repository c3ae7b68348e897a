//! Folders of backups, as `backup` and `restore` take them.

use std::path::PathBuf;

use clap::Args;

/// Where a backup goes.
#[derive(Args, Clone, Debug)]
pub struct BackupTo {
    /// The folder of the backup; made if it is missing. An earlier backup in it is replaced once the new one is proven
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// Where a backup comes from.
#[derive(Args, Clone, Debug)]
pub struct RestoreFrom {
    /// The folder that `backup` wrote to
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}
