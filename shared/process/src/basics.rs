use clap::Args;
use shared_config::ConfigError;
use shared_observe::log::{self, LogFormat};

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
