//! The key-service's own settings.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use shared::{
    config::{ConfigError, either, parse_secret},
    digest::{Pepper, Peppers},
    secret::SecretString,
};

use crate::store::{Store, memory::Memory, sqlite::Sqlite};

/// The key-service's own settings.
#[derive(Args, Clone, Debug)]
#[group(id = "key-service")] // `faregate` has both services' options
pub struct Options {
    /// Where the key-service serves the management API
    #[arg(long, env = "FAREGATE_KEY_HTTP_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub key_http_listen: SocketAddr,

    /// Where the key-service serves gRPC
    #[arg(long, env = "FAREGATE_KEY_GRPC_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    pub key_grpc_listen: SocketAddr,

    /// Where keys and money are kept: sqlite:FILE or memory: [default: faregate.db in the data directory]
    #[arg(long, env = "FAREGATE_STORE", value_name = "URL", global = true)]
    pub store: Option<String>,

    /// The folder for all that is kept
    #[arg(long, env = "FAREGATE_DATA_DIR", value_name = "DIR", default_value = "./data", global = true)]
    pub data_dir: PathBuf,

    /// The secret that keys are hashed with: 64 hexadecimal digits
    #[arg(long, env = "FAREGATE_PEPPER", value_name = "HEX", hide_env_values = true, value_parser = parse_secret)]
    pub pepper: Option<SecretString>,

    /// A file that holds the pepper
    #[arg(long, env = "FAREGATE_PEPPER_FILE", value_name = "FILE")]
    pub pepper_file: Option<PathBuf>,

    /// During a rotation, the pepper before: keys made with it are still found
    #[arg(long, env = "FAREGATE_PREVIOUS_PEPPER", value_name = "HEX", hide_env_values = true, value_parser = parse_secret)]
    pub previous_pepper: Option<SecretString>,

    /// A file that holds the pepper before
    #[arg(long, env = "FAREGATE_PREVIOUS_PEPPER_FILE", value_name = "FILE")]
    pub previous_pepper_file: Option<PathBuf>,

    /// Seconds that a hold outlives the last word of its gateway (running requests renew it)
    #[arg(long, env = "FAREGATE_HOLD_LEASE_SECONDS", value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(3..=3600))]
    pub hold_lease_seconds: u64,
}

impl Options {
    /// How long a hold lives unless it is extended.
    pub fn hold_lease(&self) -> Duration {
        Duration::from_secs(self.hold_lease_seconds)
    }

    /// The peppers, if one is configured.
    pub fn peppers(&self) -> Result<Option<Peppers>, ConfigError> {
        let current = pepper(
            ("FAREGATE_PEPPER", self.pepper.as_ref()),
            ("FAREGATE_PEPPER_FILE", self.pepper_file.as_deref()),
        )?;
        let previous = pepper(
            ("FAREGATE_PREVIOUS_PEPPER", self.previous_pepper.as_ref()),
            ("FAREGATE_PREVIOUS_PEPPER_FILE", self.previous_pepper_file.as_deref()),
        )?;
        Ok(current.map(|current| Peppers { current, previous }))
    }

    /// Opens the configured store.
    pub fn open_store(&self) -> Result<Arc<dyn Store>, ConfigError> {
        let default = || format!("sqlite:{}", self.data_dir.join("faregate.db").display());
        let url = self.store.clone().unwrap_or_else(default);
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Arc::new(Memory::new())),
            Some(("sqlite", path)) if !path.is_empty() => {
                let store = Sqlite::open(Path::new(path));
                // With the chain of its causes: what the system says of the file is what the operator needs.
                Ok(Arc::new(store.map_err(|e| {
                    ConfigError::new("FAREGATE_STORE", format!("{:#}", anyhow::Error::from(e)))
                })?))
            }
            _ => Err(ConfigError::new(
                "FAREGATE_STORE",
                format!("\"{url}\" is neither sqlite:FILE nor memory:"),
            )),
        }
    }
}

fn pepper(
    value: (&'static str, Option<&SecretString>),
    file: (&'static str, Option<&Path>),
) -> Result<Option<Pepper>, ConfigError> {
    let setting = if value.1.is_some() { value.0 } else { file.0 };
    let Some(hex) = either(value, file)? else { return Ok(None) };
    let pepper =
        Pepper::from_hex(&hex).ok_or_else(|| ConfigError::new(setting, "must be 64 hexadecimal digits"))?;
    Ok(Some(pepper))
}
