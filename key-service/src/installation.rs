//! An open installation: its store, and the use cases that commands and the server need.

use std::{io, sync::Arc, time::Duration};

use http::Uri;
use shared::{backoff::Backoff, clock::Clock};
use shared_catalog::Catalog;
use shared_config::{Common, ConfigError, current::Current};
use shared_process::{probe::Readiness, starting::Starting};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{config::Options, readiness::readiness};
use domain::digest::Peppers;
use key_service_cli::Command;
use key_service_credentials::{Credentials, PepperFault};
use key_service_management::Management;
use key_service_store::store::{Ledger as _, MissingServers, Store, StoreError};

/// Pauses between attempts to open a store. They are short enough to notice soon that the store is back, and long
/// enough not to burden the store.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
/// Pause between attempts to compare the peppers while a part of the store is missing.
const PEPPERS_LATER: Duration = Duration::from_secs(5);

/// What is needed in addition to the settings to open an installation.
pub struct InstallationParts {
    pub peppers: Peppers,
    pub clock: Arc<dyn Clock>,
    /// The models with their aliases; `None` for commands that name no models.
    pub catalog: Option<Arc<Current<Catalog>>>,
}

/// An open store with the use cases. A clone of it is cheap.
#[derive(Clone)]
pub struct Installation {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) management: Arc<Management>,
    /// The address that clients use, if configured.
    public_url: Option<Uri>,
    /// Whether the peppers could not be compared yet because a part of the store was missing.
    is_uncompared: bool,
}

impl Installation {
    /// Opens the configured store for a command. Fails if the store cannot be reached. Returns `None` if the command
    /// needs an installation but the store has none.
    pub(crate) async fn open(
        common: &Common,
        options: &Options,
        parts: InstallationParts,
        command: &Command,
    ) -> anyhow::Result<Option<Self>> {
        let store = options.open_store(&parts.clock, command.writes()).await?;
        let opened = Self::over(store, common, options, parts);
        if !command.begins_installation() && opened.is_unused().await? {
            return Ok(None);
        }
        if let Some(cause) = opened.check_peppers().await? {
            tracing::warn!(
                cause,
                "cannot check the pepper against the store yet, since the store does not answer"
            );
        }
        Ok(Some(opened))
    }

    /// Opens the configured store for inspection. Also returns whether it has an installation. If it has, the peppers
    /// have been compared with the store's record.
    pub(crate) async fn open_to_examine(
        common: &Common,
        options: &Options,
        parts: InstallationParts,
    ) -> anyhow::Result<(Self, bool)> {
        let store = options.open_store(&parts.clock, false).await?;
        let opened = Self::over(store, common, options, parts);
        let is_there = !opened.is_unused().await?;
        if is_there {
            opened.check_peppers().await?;
        }
        Ok((opened, is_there))
    }

    /// Opens the configured store to serve. If the store is not up, waits for it, because after a reboot, the store may
    /// start last. Fails at once if waiting cannot help.
    pub async fn open_when_up(
        common: &Common,
        options: &Options,
        parts: InstallationParts,
        starting: &Starting,
    ) -> anyhow::Result<Self> {
        let clock = Arc::clone(&parts.clock);
        let mut wait = Wait { pauses: PAUSES, clock: &*clock, starting, logged: String::new() };
        let store = loop {
            match options.open_store(&clock, true).await {
                Ok(store) => break store,
                Err(e) if e.may_pass => wait.pause(&e.to_string()).await,
                Err(e) => return Err(e.into()),
            }
        };
        let mut opened = Self::over(store, common, options, parts);
        while let Some(cause) = opened.check_peppers().await? {
            if opened.store.ping().await.is_ok_and(|MissingServers(missing)| !missing.is_empty()) {
                tracing::warn!(
                    cause,
                    "a part of the store is missing; the pepper is checked once it is back"
                );
                opened.is_uncompared = true;
                break;
            }
            wait.pause(&cause).await;
        }
        Ok(opened)
    }

    /// Compares the peppers when the missing part of the store is back, because that part may have the record of the
    /// peppers. If the peppers are wrong, the process ends, as it would have done at its start.
    async fn check_peppers_later(self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            sleep(PEPPERS_LATER).await;
            match self.check_peppers().await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(e) => {
                    tracing::error!("stopping: {e:#}");
                    shutdown.cancel();
                }
            }
        }
    }

    fn over(store: Arc<Store>, common: &Common, options: &Options, parts: InstallationParts) -> Self {
        let InstallationParts { peppers, clock, catalog } = parts;
        let credentials = Arc::new(Credentials::new(store.clone(), peppers, common.key_prefix.clone()));
        let management = Management::new(store.clone(), clock.clone(), credentials.clone())
            .with_max_keys(options.max_keys_per_account)
            .with_webhook_networks(options.webhook_networks.clone())
            .with_mail(options.mail.is_set());
        let management = match catalog {
            Some(catalog) => management.with_catalog(catalog),
            None => management,
        };
        let public_url = options.public_url.clone();
        let management = Arc::new(management);
        Self { store, clock, credentials, management, public_url, is_uncompared: false }
    }

    /// Returns whether it is certain that the store has no installation.
    async fn is_unused(&self) -> Result<bool, StoreError> {
        match self.credentials.are_unused().await {
            Err(StoreError::Unavailable(_)) => Ok(false),
            answered => answered,
        }
    }

    /// Compares the peppers with the store's record. If the store does not answer, returns the reason.
    async fn check_peppers(&self) -> anyhow::Result<Option<String>> {
        match self.credentials.check_peppers(self.clock.now()).await {
            Ok(()) => Ok(None),
            Err(PepperFault::Store(StoreError::Unavailable(cause))) => Ok(Some(cause)),
            Err(PepperFault::Store(e)) => Err(e.into()),
            Err(wrong @ PepperFault::Wrong) => Err(ConfigError::new("FAREGATE_PEPPER", wrong).into()),
        }
    }

    pub fn management(&self) -> &Management {
        &self.management
    }

    /// Returns the address that clients use; `default` if none is configured.
    pub fn public_url(&self, default: impl FnOnce() -> String) -> String {
        self.public_url.as_ref().map_or_else(default, Uri::to_string)
    }

    /// Runs an operator's command and writes the result to standard output.
    pub async fn run(&self, command: Command, public_url: &str) -> anyhow::Result<()> {
        key_service_cli::run(command, &self.management, public_url, &mut io::stdout()).await
    }

    /// Audits the books of all accounts. Returns the result as a sentence. If figures are wrong, the error lists them.
    pub(crate) async fn audit(&self) -> anyhow::Result<String> {
        let mut found = Vec::new();
        let audited = key_service_cli::run(Command::audit(), &self.management, "", &mut found).await;
        let found = String::from_utf8_lossy(&found).trim_end().to_owned();
        match audited {
            Ok(()) => Ok(found),
            Err(e) if found.is_empty() => Err(e),
            Err(e) => Err(e.context(found)),
        }
    }

    /// Watches the store until `shutdown`. Cancels `shutdown` if the process must not continue.
    pub fn readiness(&self, shutdown: CancellationToken) -> Readiness {
        if self.is_uncompared {
            tokio::spawn(self.clone().check_peppers_later(shutdown.clone()));
        }
        readiness(self.store.clone(), self.clock.clone(), shutdown)
    }
}

/// A wait for the store. Probes report that the process is waiting, and the log gets one line for each cause.
struct Wait<'a> {
    pauses: Backoff,
    clock: &'a dyn Clock,
    starting: &'a Starting,
    logged: String,
}

impl Wait<'_> {
    async fn pause(&mut self, cause: &str) {
        self.starting.waits(format!("waiting for the store: {cause}"));
        if self.logged != cause {
            tracing::warn!(cause, "waiting for the store");
            cause.clone_into(&mut self.logged);
        }
        sleep(self.pauses.pause(self.clock)).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use domain::digest::Pepper;
    use shared::clock::System;
    use tokio::time::timeout;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: Options,
    }

    #[tokio::test]
    async fn a_process_whose_pepper_proves_wrong_once_the_missing_part_of_the_store_is_back_ends() {
        let Program { common, options } =
            Program::try_parse_from(["program", "--store", "memory:"]).unwrap_or_else(|e| panic!("{e}"));
        let clock: Arc<dyn Clock> = Arc::new(System);
        let store = options.open_store(&clock, true).await.unwrap_or_else(|e| panic!("{e}"));
        let with = |pepper: &str| {
            let peppers =
                Peppers { current: Pepper::from_hex(&pepper.repeat(32).into()).unwrap(), previous: None };
            let parts = InstallationParts { peppers, clock: clock.clone(), catalog: None };
            let opened = Installation::over(store.clone(), &common, &options, parts);
            Installation { is_uncompared: true, ..opened }
        };
        assert_eq!(with("5a").check_peppers().await.unwrap(), None);
        let shutdown = CancellationToken::new();
        let _ready = with("5b").readiness(shutdown.clone());
        timeout(12 * PEPPERS_LATER, shutdown.cancelled()).await.unwrap();
    }
}
