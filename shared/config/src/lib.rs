//! Settings of both services. Each setting has a flag and an environment variable. A program with an invalid setting
//! does not start, and its error names the setting.

use std::{
    convert::Infallible,
    fmt::Display,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, builder::TypedValueParser as _};
use shared::{
    bounded_file,
    key::Prefix,
    secret::{self, ExposeSecret, SecretString},
    served::Host,
};
use shared_catalog::Catalog;

use crate::internal_token::InternalTokens;

pub mod current;
mod exposed;
pub mod internal_token;

pub use exposed::{ExposedSecrets, parse};

const DEFAULT_MODELS: &str = "config/models.toml";
/// The catalogue that is used if there is no catalogue file.
const BUILT_IN_MODELS: &str = include_str!("../../../config/models.toml");

/// Maximum size of a catalogue in bytes: enough for thousands of models.
const MAX_CATALOG: usize = 16 << 20;
/// Maximum size of a PEM file in bytes. A system's complete list of certificate authorities is several times smaller.
const MAX_PEM: usize = 4 << 20;
const MIN_TOKEN_BYTES: usize = 16;

/// Settings of both services.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Catalogue of models [default: config/models.toml, or a built-in copy]
    #[arg(long, env = "FAREGATE_MODELS", value_name = "FILE")]
    pub models: Option<PathBuf>,

    /// Token that authenticates calls between the services
    #[arg(long, env = "FAREGATE_INTERNAL_TOKEN", value_name = "TOKEN", hide_env_values = true, value_parser = parse_secret)]
    pub internal_token: Option<SecretString>,

    /// File with the internal token
    #[arg(long, env = "FAREGATE_INTERNAL_TOKEN_FILE", value_name = "FILE")]
    pub internal_token_file: Option<PathBuf>,

    /// Prefix of every key: 1 to 16 characters a-z0-9
    #[arg(long, env = "FAREGATE_KEY_PREFIX", value_name = "PREFIX", default_value = "fg", value_parser = parse_prefix)]
    pub key_prefix: Prefix,

    /// Host names that the admin port accepts besides localhost and its own addresses, separated by commas; for example
    /// a container's name
    #[arg(long, env = "FAREGATE_ADMIN_HOSTS", value_name = "HOSTS", value_delimiter = ',')]
    pub admin_hosts: Vec<Host>,

    /// Seconds between the signal to stop and the shutdown. Requests are still accepted but probes fail, so that load
    /// balancers stop sending requests first
    #[arg(long = "drain-pause-seconds", env = "FAREGATE_DRAIN_PAUSE_SECONDS", value_name = "SECONDS", default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=3600).map(u64::from).map(Duration::from_secs))]
    pub drain_pause: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct ConfigError {
    setting: &'static str,
    reason: String,
}

impl ConfigError {
    /// Makes an error about a setting; `setting` is the name of its environment variable.
    pub fn new(setting: &'static str, reason: impl Display) -> Self {
        Self { setting, reason: format!("{reason}") }
    }
}

impl Common {
    pub fn catalog(&self) -> Result<Catalog, ConfigError> {
        let default = Path::new(DEFAULT_MODELS);
        let path = self.models.as_deref().or_else(|| default.exists().then_some(default));
        let (text, name) = match path {
            None => (BUILT_IN_MODELS.to_owned(), "the built-in catalogue".to_owned()),
            Some(path) => {
                let name = path.display().to_string();
                let text = bounded_file::read_text(path, MAX_CATALOG);
                (
                    text.map_err(|e| {
                        ConfigError::new("FAREGATE_MODELS", format!("cannot read {name}: {e}"))
                    })?,
                    name,
                )
            }
        };
        Catalog::parse(&text, &name).map_err(|e| ConfigError::new("FAREGATE_MODELS", e))
    }

    /// Returns the internal token of a service that requires one.
    pub fn required_internal_token(&self) -> Result<SecretString, ConfigError> {
        let unset = || {
            ConfigError::new("FAREGATE_INTERNAL_TOKEN", "must be set, unless FAREGATE_INTERNAL_TOKEN_FILE is")
        };
        self.internal_token()?.ok_or_else(unset)
    }

    /// Returns the internal token, if one is configured.
    pub fn internal_token(&self) -> Result<Option<SecretString>, ConfigError> {
        let token = either(
            ("FAREGATE_INTERNAL_TOKEN", self.internal_token.as_ref()),
            ("FAREGATE_INTERNAL_TOKEN_FILE", self.internal_token_file.as_deref()),
        )?;
        token.map(checked_token).transpose()
    }
}

pub fn internal_tokens(
    current: SecretString,
    previous: Option<SecretString>,
) -> Result<InternalTokens, ConfigError> {
    InternalTokens::new(current, previous).ok_or_else(|| {
        ConfigError::new("FAREGATE_INTERNAL_TOKEN", "has characters that a header cannot carry")
    })
}

/// Checks that a token is too long to guess. With a short or an empty token, everyone on the network could call the
/// services.
pub fn checked_token(token: SecretString) -> Result<SecretString, ConfigError> {
    if token.expose_secret().len() < MIN_TOKEN_BYTES {
        let reason = format!("must have at least {MIN_TOKEN_BYTES} characters");
        return Err(ConfigError::new("FAREGATE_INTERNAL_TOKEN", reason));
    }
    Ok(token)
}

/// Returns a secret that is set directly or through a file. Setting both is an error.
pub fn either(
    (setting, value): (&'static str, Option<&SecretString>),
    (file_setting, file): (&'static str, Option<&Path>),
) -> Result<Option<SecretString>, ConfigError> {
    match (value, file) {
        (Some(_), Some(_)) => {
            Err(ConfigError::new(setting, format!("is set, and so is {file_setting}; set only one of them")))
        }
        (Some(value), None) => Ok(Some(value.clone())),
        (None, Some(path)) => match secret::read_file(path) {
            Ok(secret) => Ok(Some(secret)),
            Err(e) => Err(ConfigError::new(file_setting, format!("cannot read {}: {e}", path.display()))),
        },
        (None, None) => Ok(None),
    }
}

/// Certificates or keys in PEM, with the name of their file and of the setting that contains that name.
#[derive(Clone)]
pub struct Pem {
    setting: &'static str,
    file: String,
    text: SecretString,
}

impl Pem {
    pub fn new(setting: &'static str, file: &str, text: SecretString) -> Self {
        Self { setting, file: file.to_owned(), text }
    }

    pub fn read(setting: &'static str, file: &Path) -> Result<Self, ConfigError> {
        let mut pem = Self::new(setting, &file.display().to_string(), String::new().into());
        pem.text = bounded_file::read_text(file, MAX_PEM).map_err(|e| pem.refused(e))?.into();
        let holds_one = pem.text().lines().any(|line| line.starts_with("-----BEGIN "));
        if holds_one { Ok(pem) } else { Err(pem.refused("is not a PEM file")) }
    }

    pub fn refused(&self, reason: impl Display) -> ConfigError {
        ConfigError::new(self.setting, format!("{}: {reason}", self.file))
    }

    /// Returns the name of the setting that contains the file's name.
    pub const fn setting(&self) -> &'static str {
        self.setting
    }

    pub fn text(&self) -> &str {
        self.text.expose_secret()
    }
}

/// Parses a flag's value as a secret.
pub fn parse_secret(text: &str) -> Result<SecretString, Infallible> {
    Ok(text.into())
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    Prefix::parse(text).ok_or_else(|| "must be 1 to 16 characters a-z0-9".into())
}

/// Reads some settings again, and returns a function that puts them in use. That function is called only if all
/// settings could be read.
pub type Reread = Box<dyn Fn() -> Result<Box<dyn FnOnce()>, ConfigError> + Send + Sync>;

pub fn reread<T: 'static>(
    read: impl Fn() -> Result<T, ConfigError> + Send + Sync + 'static,
    replace: impl Fn(T) + Clone + Send + Sync + 'static,
) -> Reread {
    Box::new(move || {
        let (read, replace) = (read()?, replace.clone());
        Ok(Box::new(move || replace(read)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_empty_or_short_is_refused() {
        for short in ["", "x", "fifteen letters"] {
            assert!(checked_token(short.into()).is_err(), "{short:?}");
        }
        assert!(checked_token("sixteen letters!".into()).is_ok());
    }

    #[test]
    fn a_setting_that_names_a_device_is_refused_by_name() {
        let zero = Path::new("/dev/zero");
        let said = |result: Result<(), ConfigError>| result.unwrap_err().to_string();
        let secret = either(("FAREGATE_PEPPER", None), ("FAREGATE_PEPPER_FILE", Some(zero)));
        let pem = Pem::read("FAREGATE_TLS_CERT", zero);
        for (refused, setting) in
            [(said(secret.map(drop)), "FAREGATE_PEPPER_FILE"), (said(pem.map(drop)), "FAREGATE_TLS_CERT")]
        {
            assert!(refused.starts_with(&format!("{setting}: ")), "{refused}");
            assert!(refused.ends_with("/dev/zero: is neither a file nor a pipe"), "{refused}");
        }
    }

    #[test]
    fn the_built_in_catalogue_offers_flash_and_max() {
        let catalog = Catalog::parse(BUILT_IN_MODELS, "built-in").unwrap();
        assert_eq!(catalog.ids(), ["Model Flash", "Model Max"]);
    }
}
