//! The secrets of an installation: configured, or made on the first run and kept beside the data.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use key_service::{config::Options, operator::PeppersFor};
use key_service_domain::digest::{Pepper, Peppers};
use shared::{
    clock::{Clock, random_bytes},
    private_files,
    secret::{self, SecretString},
};
use shared_config::{Common, ConfigError, checked_token, internal_token::InternalTokens};

/// Name of the file of the pepper in the data directory.
const PEPPER: &str = "pepper";

/// Secrets that only the services share.
pub(crate) struct Secrets {
    /// Peppers for the hashes of keys.
    pub(crate) peppers: Peppers,
    /// Token for calls between the services.
    pub(crate) internal_token: InternalTokens,
}

/// Takes the configured secrets. Those that are missing are read from the data directory, or made there.
pub(crate) fn open(common: &Common, options: &Options, clock: &dyn Clock) -> anyhow::Result<Secrets> {
    let folder = Folder::create(&options.data_dir)?;
    let peppers = if let Some(peppers) = found_peppers(options)? {
        peppers
    } else {
        folder.secret(PEPPER, clock)?;
        found_peppers(options)?.context("`pepper` is gone from the data directory")?
    };
    let internal_token = match common.internal_token()? {
        Some(token) => token,
        None => checked_token(folder.secret("internal-token", clock)?)
            .context("`internal-token` in the data directory")?,
    };
    let internal_token = shared_config::internal_tokens(internal_token, options.previous_internal_token()?)?;
    Ok(Secrets { peppers, internal_token })
}

/// Takes the peppers for a command. They are made only for a command that may begin an installation.
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
                "FAREGATE_PEPPER: there is no file `{PEPPER}` in {}. Name the data directory of the installation with \
                 --data-dir, or set FAREGATE_PEPPER or FAREGATE_PEPPER_FILE",
                options.data_dir.display()
            )
        }),
    }
}

/// Finds the peppers that are configured or stored; `None` if the first start makes one.
pub(crate) fn found_peppers(options: &Options) -> Result<Option<Peppers>, ConfigError> {
    if let Some(peppers) = options.peppers()? {
        return Ok(Some(peppers));
    }
    if options.shares_store()? {
        // Other processes would not know keys hashed with a pepper that only this one has.
        let reason =
            "must be set, or FAREGATE_PEPPER_FILE, the same in all processes over this FAREGATE_STORE";
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

struct Folder(PathBuf);

impl Folder {
    /// Creates the folder, for its owner alone, unless it exists.
    fn create(path: &Path) -> anyhow::Result<Self> {
        let made = private_files::create_folder(path);
        made.with_context(|| format!("FAREGATE_DATA_DIR: cannot make {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }

    /// Reads the secret in this file. If it is missing, it is made of 256 random bits, and only the owner can read it.
    fn secret(&self, name: &str, clock: &dyn Clock) -> anyhow::Result<SecretString> {
        let path = self.0.join(name);
        if !path.exists() {
            let draft = path.with_extension(format!("{}.tmp", hex::encode(random_bytes::<8>(clock))));
            publish(&path, &draft, &hex::encode(random_bytes::<32>(clock)))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        secret::read_file(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Writes a file as a whole or not at all, and never over another, so that two first runs at once end with one secret.
/// The draft's name is random, so that the draft of a dead process is in nobody's way.
fn publish(path: &Path, draft: &Path, text: &str) -> io::Result<()> {
    let mut file = private_files::options().write(true).create_new(true).open(draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    let published = fs::hard_link(draft, path);
    fs::remove_file(draft)?;
    match published {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        published => published,
    }
}

#[cfg(test)]
mod tests {
    use shared::{clock::System, secret::ExposeSecret};

    use super::*;

    #[test]
    fn a_draft_that_a_dead_process_left_is_in_the_way_of_no_start() {
        let place = std::env::temp_dir()
            .join(format!("faregate-secrets-{}", hex::encode(random_bytes::<8>(&System))));
        let folder = Folder::create(&place).unwrap();
        fs::write(place.join(format!("pepper.{}.tmp", std::process::id())), "half").unwrap();
        let secret = folder.secret("pepper", &System).unwrap();
        assert_eq!(secret.expose_secret().len(), 64);
        assert_eq!(folder.secret("pepper", &System).unwrap().expose_secret(), secret.expose_secret());
        fs::remove_dir_all(place).unwrap();
    }
}
