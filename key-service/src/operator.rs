//! The operator's commands, which run in the same way in every program with a store.

use std::{io, process::ExitCode, sync::Arc};

use anyhow::Context;
use shared::{
    clock::{Clock, System},
    private_files,
};
use shared_config::current::Current;
use shared_process::{ServiceOptions, doctor::DoctorOptions};
use shared_rpc::spool_list::list_spool;

use crate::{
    backup,
    config::Options,
    installation::{Installation, InstallationParts},
    transfer,
};
use domain::digest::Peppers;
use key_service_cli::{Command, OperatorCommand, StoreCommand};

/// The program's settings that the operator's commands need.
pub struct Operator<'a> {
    pub service: &'a ServiceOptions,
    pub options: &'a Options,
    /// Name of the program, for messages.
    pub program: &'static str,
}

/// Which peppers a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeppersFor {
    /// The command may begin an installation, so it may make missing peppers.
    NewInstallation,
    /// The command needs an existing installation, and makes nothing.
    Installation,
}

impl PeppersFor {
    const fn of(command: &Command) -> Self {
        if command.begins_installation() { Self::NewInstallation } else { Self::Installation }
    }
}

impl Operator<'_> {
    /// Runs a command. `peppers` is called only for commands that need them, and `default_url` only if no address for
    /// clients is configured. `examine` is the program's `doctor`.
    ///
    /// Only `accounts create` makes an installation. Every other command that needs one fails if there is none, and
    /// creates nothing.
    pub async fn carry_out(
        &self,
        command: OperatorCommand,
        peppers: impl FnOnce(PeppersFor) -> anyhow::Result<Peppers>,
        default_url: impl FnOnce() -> String,
        examine: impl AsyncFnOnce(DoctorOptions) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let Self { service, options, program } = *self;
        let common = &service.common;
        let (clock, out): (Arc<dyn Clock>, _) = (Arc::new(System), &mut io::stdout());
        match command {
            OperatorCommand::Doctor(asked) => return examine(asked).await,
            OperatorCommand::Spool(command) => list_spool(&command, out)?,
            OperatorCommand::LogLevel(command) => {
                command.run(&service.admin(Some(&options.data_dir)), out).await?;
            }
            OperatorCommand::Catalogue(command) => key_service_cli::catalogue(&command, common, out).await?,
            OperatorCommand::Restore(place) => backup::restore(&place, options, clock, out).await?,
            OperatorCommand::Backup(place) => {
                options.check_installed(program)?;
                let peppers = peppers(PeppersFor::Installation)?;
                backup::backup(&place, common, options, peppers, clock, out).await?;
            }
            OperatorCommand::Store(StoreCommand::Copy(stores)) => {
                transfer::copy(&stores, options, &clock, out).await?;
            }
            OperatorCommand::Store(StoreCommand::Show(asked)) => {
                options.check_installed(program)?;
                transfer::show(&asked, options, &clock, out).await?;
            }
            OperatorCommand::Stored(command) => {
                if !command.begins_installation() {
                    options.check_installed(program)?;
                } else if options.sqlite_file()?.is_some() {
                    let folder = &options.data_dir;
                    private_files::create_folder(folder)
                        .with_context(|| format!("FAREGATE_DATA_DIR: cannot make {}", folder.display()))?;
                }
                let catalog = command.names_models().then(|| common.catalog()).transpose()?;
                let catalog = catalog.map(|catalog| Arc::new(Current::new(catalog)));
                let peppers = peppers(PeppersFor::of(&command))?;
                let parts = InstallationParts { peppers, clock, catalog };
                let opened = Installation::open(common, options, parts, &command).await?;
                let installation = opened.ok_or_else(|| options.no_installation(program))?;
                let public_url = installation.public_url(default_url);
                installation.run(command, &public_url).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests;
