use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use shared_config::{Common, ConfigError};
use shared_door::limits::LimitOptions;
use shared_observe::log::{self, LogFormat};

use super::{admin_call::AdminPort, probe::READY};

#[derive(Args, Clone, Debug)]
pub struct Basics {
    /// Format of log lines
    #[arg(long, env = "FAREGATE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Filter of log lines, in the syntax of RUST_LOG
    #[arg(long, env = "FAREGATE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,

    /// Instead of serving, ask the process that runs with these settings whether it is ready, and exit with 0 if it is
    #[arg(long)]
    pub(crate) health: bool,
}

impl Basics {
    pub(crate) fn start_log(&self) -> Result<(), ConfigError> {
        log::start(self.log_format, &self.log).map_err(|e| ConfigError::new("FAREGATE_LOG", e))
    }
}

/// Settings of every service.
#[derive(Args, Clone, Debug)]
pub struct ServiceOptions {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    basics: Basics,

    #[command(flatten)]
    pub limits: LimitOptions,

    /// Address for metrics and probes; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,
}

impl ServiceOptions {
    /// Returns the settings that `main` needs from a [`CommandLine`](super::CommandLine).
    pub const fn basics(&self) -> (&Basics, SocketAddr, &'static str) {
        (&self.basics, self.admin_listen, READY)
    }

    /// Returns the admin port of the process with this data directory.
    pub fn admin(&self, data_dir: Option<&Path>) -> AdminPort {
        AdminPort { listen: self.admin_listen, data_dir: data_dir.map(PathBuf::from) }
    }
}
