//! Data of an installation, with the use-cases that the commands and the server need.

use std::{io, sync::Arc};

use http::Uri;
use shared::{
    clock::Clock,
    process::{
        config::{Common, ConfigError},
        telemetry::Readiness,
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{self, Command},
    config::Options,
    credentials::{Credentials, PepperFault},
    management::Management,
    readiness::readiness,
    store::{Store, StoreError},
};
use domain::digest::Peppers;

/// An open store with the use-cases. Cheap to clone.
#[derive(Clone)]
pub struct Installation {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) management: Arc<Management>,
    /// The address that clients use, if configured.
    public_url: Option<Uri>,
}

impl Installation {
    /// Opens the configured store, to serve or for this command.
    pub async fn open(
        common: &Common,
        options: &Options,
        peppers: Peppers,
        clock: Arc<dyn Clock>,
        command: Option<&Command>,
    ) -> anyhow::Result<Self> {
        let store = options.open_store(&clock, command.is_none_or(Command::writes)).await?;
        let credentials = Arc::new(Credentials::new(store.clone(), peppers, common.key_prefix.clone()));
        match credentials.check_peppers(clock.now()).await {
            Ok(()) => {}
            Err(PepperFault::Store(StoreError::Unavailable(cause))) => {
                tracing::warn!(
                    cause,
                    "the pepper was not compared with the store, which does not answer yet"
                );
            }
            Err(PepperFault::Store(e)) => return Err(e.into()),
            Err(wrong @ PepperFault::Wrong) => return Err(ConfigError::new("FAREGATE_PEPPER", wrong).into()),
        }
        let management = Management::new(store.clone(), clock.clone(), credentials.clone())
            .with_max_keys(options.max_keys_per_account)
            .with_webhook_networks(options.webhook_networks.clone());
        let public_url = options.public_url.clone();
        Ok(Self { store, clock, credentials, management: Arc::new(management), public_url })
    }

    /// The use-cases of governing.
    pub fn management(&self) -> &Management {
        &self.management
    }

    /// The address that clients use; `default` if none is configured.
    pub fn public_url(&self, default: impl FnOnce() -> String) -> String {
        self.public_url.as_ref().map_or_else(default, Uri::to_string)
    }

    /// Runs a command of the operator, and writes the result to standard output.
    pub async fn run(&self, command: Command, public_url: &str) -> anyhow::Result<()> {
        cli::run(command, &self.management, public_url, &mut io::stdout()).await
    }

    /// Reports readiness until `shutdown`.
    pub fn readiness(&self, shutdown: CancellationToken) -> Readiness {
        readiness(self.store.clone(), self.clock.clone(), shutdown)
    }
}
