//! Commands of an operator, which every program with a store runs in the same way.

use std::{io, net::SocketAddr, process::ExitCode, sync::Arc};

use shared::clock::{Clock, System};
use shared_config::{Common, current::Current};
use shared_process::doctor::DoctorOptions;
use shared_rpc::spool_list::list_spool;

use crate::{
    backup,
    config::Options,
    installation::{Installation, InstallationParts},
    transfer,
};
use domain::digest::Peppers;
use key_service_cli::OperatorCommand;

/// Settings of a program that commands of an operator need.
pub struct Operator<'a> {
    pub common: &'a Common,
    pub options: &'a Options,
    /// Address of the running program's admin port.
    pub admin_listen: SocketAddr,
}

impl Operator<'_> {
    /// Carries out a command. The peppers are requested only by commands that need them, and `default_url` only if no
    /// address for clients is configured. `examine` is the program's own `doctor`.
    pub async fn carry_out(
        &self,
        command: OperatorCommand,
        peppers: impl FnOnce() -> anyhow::Result<Peppers>,
        default_url: impl FnOnce() -> String,
        examine: impl AsyncFnOnce(DoctorOptions) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let Self { common, options, admin_listen } = *self;
        let (clock, out): (Arc<dyn Clock>, _) = (Arc::new(System), &mut io::stdout());
        match command {
            OperatorCommand::Doctor(asked) => return examine(asked).await,
            OperatorCommand::Spool(command) => list_spool(&command, out)?,
            OperatorCommand::LogLevel(command) => command.run(&options.admin(admin_listen), out).await?,
            OperatorCommand::Catalogue(command) => key_service_cli::catalogue(&command, common, out).await?,
            OperatorCommand::Restore(place) => backup::restore(&place, options, clock, out).await?,
            OperatorCommand::Backup(place) => {
                backup::backup(&place, common, options, peppers()?, clock, out).await?;
            }
            OperatorCommand::Store(command) => transfer::run(&command, options, clock, out).await?,
            OperatorCommand::Stored(command) => {
                let catalog = command.names_models().then(|| common.catalog()).transpose()?;
                let catalog = catalog.map(|catalog| Arc::new(Current::new(catalog)));
                let parts = InstallationParts { peppers: peppers()?, clock, catalog };
                let installation = Installation::open(common, options, parts, &command).await?;
                let public_url = installation.public_url(default_url);
                installation.run(command, &public_url).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
