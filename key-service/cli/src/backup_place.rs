//! Arguments of `backup` and `restore`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Clone, Debug)]
pub struct BackupTo {
    /// Directory for the backup, created if missing. A previous backup there is replaced once the new backup has
    /// been checked
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct RestoreFrom {
    /// Directory that `backup` wrote to
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}
