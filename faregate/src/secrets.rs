//! The installation's secrets: configured, or made on the first run and stored in the data directory.

use std::path::Path;

use anyhow::Context;
use key_service::{config::Options, operator::PeppersFor};
use key_service_domain::digest::{Pepper, Peppers};
use shared::{
    clock::Clock,
    private_files,
    secret::{self, SecretString},
};
use shared_config::{Common, ConfigError, checked_token, internal_token::InternalTokens};

/// File of the pepper in the data directory.
const PEPPER: &str = "pepper";

pub(crate) struct Secrets {
    /// Peppers for the hashes of keys.
    pub(crate) peppers: Peppers,
    /// Token for calls between the services.
    pub(crate) internal_token: InternalTokens,
}

/// Takes the configured secrets. Secrets that are not configured are read from the data directory, or created there.
pub(crate) fn open(common: &Common, options: &Options, clock: &dyn Clock) -> anyhow::Result<Secrets> {
    let folder = &options.data_dir;
    private_files::create_folder(folder)
        .with_context(|| format!("FAREGATE_DATA_DIR: cannot make {}", folder.display()))?;
    let peppers = if let Some(peppers) = found_peppers(options)? {
        peppers
    } else {
        secret_in(folder, PEPPER, clock)?;
        found_peppers(options)?.context("`pepper` is gone from the data directory")?
    };
    let internal_token = match common.internal_token()? {
        Some(token) => token,
        None => checked_token(secret_in(folder, "internal-token", clock)?)
            .context("`internal-token` in the data directory")?,
    };
    let internal_token = shared_config::internal_tokens(internal_token, options.previous_internal_token()?)?;
    Ok(Secrets { peppers, internal_token })
}

/// Takes the peppers for a command. Only a command that may begin an installation creates a missing pepper.
pub(crate) fn peppers(
    of: PeppersFor,
    common: &Common,
    options: &Options,
    clock: &dyn Clock,
) -> anyhow::Result<Peppers> {
    match of {
        PeppersFor::NewInstallation => Ok(open(common, options, clock)?.peppers),
        PeppersFor::Installation => found_peppers(options)?.with_context(|| {
            format!(
                "FAREGATE_PEPPER: there is no file `{PEPPER}` in {}. Name the installation's data directory with \
                 --data-dir, or set FAREGATE_PEPPER or FAREGATE_PEPPER_FILE",
                options.data_dir.display()
            )
        }),
    }
}

/// Finds the configured or stored peppers; `None` if the first start has yet to create one.
pub(crate) fn found_peppers(options: &Options) -> Result<Option<Peppers>, ConfigError> {
    if let Some(peppers) = options.peppers()? {
        return Ok(Some(peppers));
    }
    if options.shares_store()? {
        // Other processes could not find keys that were hashed with a pepper that only this process has.
        let reason = "must be set (or FAREGATE_PEPPER_FILE) to the same value in all processes that use this \
                      FAREGATE_STORE";
        return Err(ConfigError::new("FAREGATE_PEPPER", reason));
    }
    let file = options.data_dir.join(PEPPER);
    if !file.exists() {
        return Ok(None);
    }
    let unfit =
        |reason: String| ConfigError::new("FAREGATE_DATA_DIR", format!("{}: {reason}", file.display()));
    let hex = secret::read_file(&file).map_err(|e| unfit(format!("cannot be read: {e}")))?;
    let current = Pepper::from_hex(&hex).ok_or_else(|| unfit("must hold 64 hexadecimal digits".into()))?;
    Ok(Some(Peppers { current, previous: None }))
}

/// Reads a secret from a file in the data directory, and creates it if it is missing.
fn secret_in(data_dir: &Path, name: &str, clock: &dyn Clock) -> anyhow::Result<SecretString> {
    let path = data_dir.join(name);
    secret::read_or_make(&path, clock).with_context(|| format!("cannot make or read {}", path.display()))
}
