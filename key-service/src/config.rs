//! Settings that only the key-service has.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, builder::TypedValueParser as _};
use http::Uri;
use shared::{
    clock::Clock,
    network::Network,
    secret::{ExposeSecret, SecretString},
    served::ServedHosts,
};
use shared_config::{ConfigError, Pem, checked_token, either, parse_secret};
use shared_door::tls::validity::{self, Decisive};

use crate::mail_options::MailOptions;
use domain::digest::{Pepper, Peppers};
use key_service_management::MAX_KEYS_PER_ACCOUNT;
use key_service_records::{
    Records,
    redis::{Address, Certificates, Redis, Settings},
    sqlite::Sqlite,
};
use key_service_store::store::{EventBounds, Store, StoreRetention};

#[derive(Args, Clone, Debug)]
#[group(id = "key-service")] // `faregate` has both services' options
pub struct Options {
    /// Address of the management API and the dashboard
    #[arg(long, env = "FAREGATE_KEY_HTTP_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub key_http_listen: SocketAddr,

    /// Address of the gRPC port, which gateways call
    #[arg(long, env = "FAREGATE_KEY_GRPC_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    pub key_grpc_listen: SocketAddr,

    /// URL of the store for keys and money: sqlite:FILE, memory:, redis://…, redis+cluster://… or redis+sentinel://…
    /// [default: faregate.db in the data directory]
    #[arg(long, env = "FAREGATE_STORE", value_name = "URL", hide_env_values = true, global = true, value_parser = parse_secret)]
    pub store: Option<SecretString>,

    /// File with the URL of the store, for a URL that contains a password
    #[arg(long, env = "FAREGATE_STORE_FILE", value_name = "FILE", global = true)]
    pub store_file: Option<PathBuf>,

    /// Prefix of all names in Redis; installations that share a Redis need different prefixes
    #[arg(long, env = "FAREGATE_REDIS_PREFIX", value_name = "PREFIX", default_value = "fg",
          value_parser = parse_redis_prefix, global = true)]
    pub redis_prefix: String,

    /// Journal entries that Redis keeps per account, about 140 bytes each; older entries are dropped
    #[arg(long, env = "FAREGATE_REDIS_JOURNAL_ENTRIES", value_name = "ENTRIES", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1_000..=100_000_000), global = true)]
    pub redis_journal_entries: u32,

    /// Days that Redis keeps usage counters; each key and model used on a day takes about 100 bytes, plus 15 per hour
    /// of use
    #[arg(long, env = "FAREGATE_REDIS_USAGE_DAYS", value_name = "DAYS", default_value_t = 400,
          value_parser = clap::value_parser!(u32).range(1..=36_500), global = true)]
    pub redis_usage_days: u32,

    /// Days to keep an account's events, but at most the last 100,000 events and 64 MiB
    #[arg(long, env = "FAREGATE_EVENT_DAYS", value_name = "DAYS", default_value_t = 400,
          value_parser = clap::value_parser!(u32).range(1..=36_500), global = true)]
    pub event_days: u32,

    /// Accept a Redis without an append-only file, which loses all keys and money when it stops, or a Redis that may
    /// restore half of a change after a crash
    #[arg(long, env = "FAREGATE_REDIS_ALLOW_VOLATILE", global = true)]
    pub redis_allow_volatile: bool,

    /// Number of replicas that must confirm each change of money or keys before the change is answered. With fewer
    /// replicas, nothing is served
    #[arg(long, env = "FAREGATE_REDIS_WAIT_REPLICAS", value_name = "COUNT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=16), global = true)]
    pub redis_wait_replicas: u32,

    /// PEM file with the certificate authority of a rediss:// server [default: the public authorities]
    #[arg(long, env = "FAREGATE_REDIS_TLS_CA", value_name = "FILE", global = true)]
    pub redis_tls_ca: Option<PathBuf>,

    /// PEM file with the client certificate for a rediss:// server
    #[arg(
        long,
        env = "FAREGATE_REDIS_TLS_CERT",
        value_name = "FILE",
        requires = "redis_tls_key",
        global = true
    )]
    pub redis_tls_cert: Option<PathBuf>,

    /// PEM file with that certificate's private key
    #[arg(
        long,
        env = "FAREGATE_REDIS_TLS_KEY",
        value_name = "FILE",
        requires = "redis_tls_cert",
        global = true
    )]
    pub redis_tls_key: Option<PathBuf>,

    /// Data directory: SQLite file, generated secrets, admin token, mark of the last Redis, and the spool of `faregate`
    #[arg(long, env = "FAREGATE_DATA_DIR", value_name = "DIR", default_value = "./data", global = true)]
    pub data_dir: PathBuf,

    /// Secret that keys are hashed with: 64 hexadecimal digits
    #[arg(long, env = "FAREGATE_PEPPER", value_name = "HEX", hide_env_values = true, value_parser = parse_secret)]
    pub pepper: Option<SecretString>,

    /// File with the pepper
    #[arg(long, env = "FAREGATE_PEPPER_FILE", value_name = "FILE")]
    pub pepper_file: Option<PathBuf>,

    /// Previous pepper during a rotation; keys made with it still work
    #[arg(long, env = "FAREGATE_PREVIOUS_PEPPER", value_name = "HEX", hide_env_values = true, value_parser = parse_secret)]
    pub previous_pepper: Option<SecretString>,

    /// File with the previous pepper
    #[arg(long, env = "FAREGATE_PREVIOUS_PEPPER_FILE", value_name = "FILE")]
    pub previous_pepper_file: Option<PathBuf>,

    /// Previous internal token, still accepted during a rotation; empty for none
    #[arg(long, env = "FAREGATE_PREVIOUS_INTERNAL_TOKEN", value_name = "TOKEN", hide_env_values = true, value_parser = parse_secret)]
    pub previous_internal_token: Option<SecretString>,

    /// File with the previous internal token; may be empty
    #[arg(long, env = "FAREGATE_PREVIOUS_INTERNAL_TOKEN_FILE", value_name = "FILE")]
    pub previous_internal_token_file: Option<PathBuf>,

    /// Maximum number of API keys per account, including revoked keys; the same maximum applies to groups
    #[arg(long, env = "FAREGATE_MAX_KEYS_PER_ACCOUNT", value_name = "COUNT", default_value_t = MAX_KEYS_PER_ACCOUNT,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub max_keys_per_account: u64,

    /// Address that clients use, for printed links and commands. With https, cookies require TLS. Pages are served only
    /// at its host, at localhost and at IP addresses [default: the gateway's listen address, with pages at any host]
    #[arg(long, env = "FAREGATE_PUBLIC_URL", value_name = "URL", value_parser = parse_public_url, global = true)]
    pub public_url: Option<Uri>,

    #[command(flatten)]
    pub mail: MailOptions,

    /// Private networks that webhooks and alerts may reach, such as 10.0.0.0/8, separated by commas
    #[arg(long, env = "FAREGATE_WEBHOOK_NETWORKS", value_name = "NETWORKS", value_delimiter = ',')]
    pub webhook_networks: Vec<Network>,

    /// Seconds a hold lives after its gateway last renewed it; it then expires within a sixth of this time plus one
    /// second
    #[arg(long = "hold-lease-seconds", env = "FAREGATE_HOLD_LEASE_SECONDS", value_name = "SECONDS",
          default_value = "30", value_parser = clap::value_parser!(u64).range(3..=3600).map(Duration::from_secs))]
    pub hold_lease: Duration,
}

impl Options {
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

    /// Returns the previous internal token, if there is one.
    pub fn previous_internal_token(&self) -> Result<Option<SecretString>, ConfigError> {
        let previous = either(
            ("FAREGATE_PREVIOUS_INTERNAL_TOKEN", self.previous_internal_token.as_ref()),
            ("FAREGATE_PREVIOUS_INTERNAL_TOKEN_FILE", self.previous_internal_token_file.as_deref()),
        )?;
        previous.filter(|token| !token.expose_secret().is_empty()).map(checked_token).transpose()
    }

    /// Returns whether other processes may use the same store, as with Redis.
    pub fn shares_store(&self) -> Result<bool, ConfigError> {
        let url = self.store_url()?;
        Ok(url.is_some_and(|url| {
            !url.expose_secret().starts_with("sqlite:") && url.expose_secret() != "memory:"
        }))
    }

    fn store_url(&self) -> Result<Option<SecretString>, ConfigError> {
        either(("FAREGATE_STORE", self.store.as_ref()), ("FAREGATE_STORE_FILE", self.store_file.as_deref()))
    }

    /// Returns the store's URL: the configured URL, or the URL of the default file in the data directory.
    fn store_or_default(&self) -> Result<SecretString, ConfigError> {
        let default = || format!("sqlite:{}", self.data_dir.join("faregate.db").display()).into();
        Ok(self.store_url()?.unwrap_or_else(default))
    }

    /// Returns the store's SQLite file; `None` for any other store.
    pub fn sqlite_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        let url = self.store_or_default()?;
        Ok(url.expose_secret().strip_prefix("sqlite:").map(PathBuf::from))
    }

    /// Refuses a command if the store's file is missing, because it would be created if it was opened.
    pub(crate) fn check_installed(&self, program: &'static str) -> Result<(), NoInstallation> {
        if self.store_or_default()?.expose_secret() == "memory:" {
            return Err(NoInstallation::InMemory);
        }
        match self.sqlite_file()? {
            // If a file cannot be examined, it cannot be opened either, and that error will say what is wrong.
            Some(file) if matches!(file.try_exists(), Ok(false)) => Err(self.no_installation(program)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the error for a command that needs an installation and found none.
    pub(crate) fn no_installation(&self, program: &'static str) -> NoInstallation {
        let folder = std::env::current_dir().unwrap_or_default();
        match self.store_url() {
            Ok(None) => NoInstallation::NoFile { data_dir: self.data_dir.clone(), folder, program },
            Ok(Some(url)) => {
                let url = url.expose_secret();
                let path = url.strip_prefix("sqlite:");
                let place = path.map_or_else(
                    || format!("the Redis of FAREGATE_STORE with the prefix {:?}", self.redis_prefix),
                    |path| format!("{path} (folder {})", folder.display()),
                );
                NoInstallation::NotInStore { place, program }
            }
            Err(e) => e.into(),
        }
    }

    /// Opens the configured store. `writes` is false for commands that only read.
    pub(crate) async fn open_store(
        &self,
        clock: &Arc<dyn Clock>,
        writes: bool,
    ) -> Result<Arc<Store>, StoreNotOpened> {
        let seen = if writes { Seen::Marked } else { Seen::Compared };
        let backend = self.open_backend(&self.store_or_default()?, clock, seen).await?;
        Ok(self.store_over(&backend, clock))
    }

    pub(crate) fn store_over(&self, backend: &Backend, clock: &Arc<dyn Clock>) -> Arc<Store> {
        let events = EventBounds::with_life(Duration::from_hours(u64::from(self.event_days) * 24));
        let kept = match backend {
            Backend::Sqlite(_) => StoreRetention::all(events),
            Backend::Redis(_) => StoreRetention {
                journal_entries: Some(self.redis_journal_entries.into()),
                usage_days: Some(self.redis_usage_days),
                events,
            },
        };
        Arc::new(Store::new(backend.records(), clock.clone(), kept))
    }

    /// Opens the backend that a URL names.
    pub(crate) async fn open_backend(
        &self,
        url: &SecretString,
        clock: &Arc<dyn Clock>,
        seen: Seen,
    ) -> Result<Backend, StoreNotOpened> {
        let url = url.expose_secret();
        match url.split_once(':') {
            Some(("memory", "")) => {
                Ok(Backend::Sqlite(Arc::new(Sqlite::in_memory().map_err(unusable_store)?)))
            }
            Some(("sqlite", path)) if !path.is_empty() => {
                let opened = Sqlite::open(Path::new(path)).map_err(unusable_store)?;
                Ok(Backend::Sqlite(Arc::new(opened)))
            }
            _ => {
                let settings = Settings {
                    address: Address::parse(url).map_err(unusable_store)?,
                    prefix: self.redis_prefix.clone(),
                    volatile_allowed: self.redis_allow_volatile,
                    wait_replicas: self.redis_wait_replicas,
                    certificates: self.redis_certificates()?,
                    data_dir: (seen != Seen::New).then(|| self.data_dir.clone()),
                    is_marked: seen == Seen::Marked,
                };
                let opened = Redis::open(&settings, clock.clone()).await;
                let redis = opened
                    .map_err(|e| StoreNotOpened { may_pass: e.may_pass(), error: unusable_store(e) })?;
                Ok(Backend::Redis(Arc::new(redis)))
            }
        }
    }
}

/// How to compare an opened Redis with the Redis that the data directory remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It must be the same Redis and must not have lost data. The directory records its current state.
    Marked,
    /// It must be the same Redis and must not have lost data. Nothing is recorded.
    Compared,
    /// It may be another Redis.
    New,
}

pub(crate) enum Backend {
    Sqlite(Arc<Sqlite>),
    Redis(Arc<Redis>),
}

impl Backend {
    pub(crate) fn records(&self) -> Arc<dyn Records> {
        match self {
            Self::Sqlite(sqlite) => sqlite.clone(),
            Self::Redis(redis) => redis.clone(),
        }
    }
}

impl Options {
    fn redis_certificates(&self) -> Result<Certificates, ConfigError> {
        let pem = |setting, file: &Option<PathBuf>| {
            file.as_deref().map(|file| Pem::read(setting, file)).transpose()
        };
        let authority = pem("FAREGATE_REDIS_TLS_CA", &self.redis_tls_ca)?;
        let certificate = pem("FAREGATE_REDIS_TLS_CERT", &self.redis_tls_cert)?;
        let key = pem("FAREGATE_REDIS_TLS_KEY", &self.redis_tls_key)?;
        let bytes = |pem: Option<Pem>| pem.map(|pem| pem.text().as_bytes().to_vec());
        for (pem, decisive) in [(&authority, Decisive::Last), (&certificate, Decisive::First)] {
            if let Some(pem) = pem {
                validity::show(&[(pem, decisive)]);
            }
        }
        let (authority, certificate, key) = (bytes(authority), bytes(certificate), bytes(key));
        Ok(Certificates::new(authority, certificate.zip(key)))
    }
}

/// Reason why there is no installation for a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoInstallation {
    #[error(
        "no installation in {} (folder {}). Run this where `{program}` was started, or name it with --data-dir",
        .data_dir.display(), .folder.display()
    )]
    NoFile { data_dir: PathBuf, folder: PathBuf, program: &'static str },
    #[error("no installation in {place}. Name the store of the running `{program}` in FAREGATE_STORE")]
    NotInStore { place: String, program: &'static str },
    #[error(
        "FAREGATE_STORE: a memory: store exists only inside the running program, so commands cannot read it"
    )]
    InMemory,
    #[error(transparent)]
    Setting(#[from] ConfigError),
}

/// The error for a store that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct StoreNotOpened {
    error: ConfigError,
    /// Whether the store may become available even if nobody changes settings.
    pub(crate) may_pass: bool,
}

impl From<ConfigError> for StoreNotOpened {
    fn from(error: ConfigError) -> Self {
        Self { error, may_pass: false }
    }
}

/// Writes the error with all its causes, because the operator needs the system's message about the store.
fn unusable_store(error: impl std::error::Error + Send + Sync + 'static) -> ConfigError {
    ConfigError::new("FAREGATE_STORE", format!("{:#}", anyhow::Error::from(error)))
}

/// Parses the address with which links and printed commands begin. Nobody can connect to 0.0.0.0, so it becomes the
/// loopback address.
fn parse_public_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|e| format!("{e}"))?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https")) && ServedHosts::of_site(&url).is_some();
    let Some(host) = url.host().filter(|_| is_web) else {
        return Err("must begin with http:// or https:// and a host".into());
    };
    if host.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "has a port, {host}, in place of the host: write http://127.0.0.1:{host} (with Compose, FAREGATE_PUBLISH=127.0.0.1:{host})"
        ));
    }
    let loopback = match host {
        "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        _ => return Ok(url),
    };
    text.replacen(host, loopback, 1).parse().map_err(|e| format!("{e}"))
}

/// Parses a prefix. Braces would change the slots of a cluster.
fn parse_redis_prefix(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = (1..=32).contains(&text.len()) && text.bytes().all(plain);
    if fits { Ok(text.to_owned()) } else { Err("must be 1 to 32 characters a-zA-Z0-9-_.".into()) }
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

#[cfg(test)]
mod tests {
    use super::parse_public_url;

    #[test]
    fn links_begin_with_an_address_that_a_browser_can_open() {
        let read = |text| parse_public_url(text).map(|url| url.to_string());
        for (given, used) in [
            ("https://models.example.com", "https://models.example.com/"),
            ("http://0.0.0.0:8080", "http://127.0.0.1:8080/"),
            ("http://[::]:8080", "http://[::1]:8080/"),
            ("http://192.0.2.7", "http://192.0.2.7/"),
        ] {
            assert_eq!(read(given).as_deref(), Ok(used));
        }
        let port_alone = read("http://8486").unwrap_err();
        assert!(port_alone.contains("FAREGATE_PUBLISH=127.0.0.1:8486"), "{port_alone}");
        for no_address in ["models.example.com", "ftp://models.example.com", ""] {
            assert!(read(no_address).is_err(), "{no_address}");
        }
    }
}
