//! The key-service as a separate process.

use std::{
    io::{self, StdoutLock, Write},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use clap::Parser;
use key_service::{
    cli::{self, OperatorCommand},
    config::Options,
    first_run::FirstRun,
    installation::Installation,
    server::{KeyServiceParts, RunningKeyService},
};
use mimalloc::MiMalloc;
use shared::{
    clock::System,
    current::Current,
    process::{
        self, CommandLine, LimitOptions, Process,
        config::{Basics, Common, ConfigError},
        probe::READY,
        telemetry::{Exported, show_catalogue},
        tls::{Tls, TlsOptions},
    },
    spool_list::list_spool,
};
use tokio_util::sync::CancellationToken;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Metrics of the program.
static EXPORTED: Exported = Exported { program: env!("CARGO_PKG_NAME"), families: &[key_service::FAMILIES] };

/// Ports that share the connections: management and gRPC.
const PORTS: usize = 2;
/// Open files of the store: a cluster's connections, or the files of SQLite.
const STORE_FILES: usize = 256;
/// The address for clients if none is configured: that of a gateway on this machine.
const DEFAULT_PUBLIC: &str = "http://127.0.0.1:8080";

/// Decides who may spend and remembers what was spent.
#[derive(Parser)]
#[command(name = "key-service", version)]
struct KeyServiceArguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    internal_tls: TlsOptions,

    #[command(flatten)]
    limits: LimitOptions,

    /// Address for metrics and probes; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9091")]
    admin_listen: SocketAddr,

    /// If there is no account yet, make an account with credit and a management key, and print how to use them
    #[arg(long, env = "FAREGATE_FIRST_RUN")]
    first_run: bool,

    #[command(subcommand)]
    command: Option<OperatorCommand>,
}

impl CommandLine for KeyServiceArguments {
    fn basics(&self) -> &Basics {
        &self.common.basics
    }

    fn ready_at(&self) -> (SocketAddr, &'static str) {
        (self.admin_listen, READY)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    process::main(run).await
}

async fn run(arguments: KeyServiceArguments) -> anyhow::Result<()> {
    let KeyServiceArguments { common, options, internal_tls, limits, admin_listen, first_run, command } =
        arguments;
    let command = match command {
        Some(OperatorCommand::Spool(command)) => return Ok(list_spool(&command, &mut io::stdout())?),
        Some(OperatorCommand::LogLevel(command)) => {
            return Ok(command.run(admin_listen, &mut io::stdout()).await?);
        }
        Some(OperatorCommand::Catalogue(command)) => {
            return cli::catalogue(&command, &common, &mut io::stdout()).await;
        }
        Some(OperatorCommand::Stored(command)) => Some(command),
        None => None,
    };
    let peppers = options.peppers()?.context("FAREGATE_PEPPER or FAREGATE_PEPPER_FILE must be set")?;
    let installation =
        Installation::open(&common, &options, peppers, Arc::new(System), command.as_ref()).await?;
    let public_url = installation.public_url(|| DEFAULT_PUBLIC.to_owned());
    if let Some(command) = command {
        return installation.run(command, &public_url).await;
    }

    let process = Process::start(&common, &limits, admin_listen, &EXPORTED)?;
    let internal_token = common
        .internal_token()?
        .context("FAREGATE_INTERNAL_TOKEN or FAREGATE_INTERNAL_TOKEN_FILE must be set")?;
    let tls = internal_tls.open()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let catalog = common.catalog()?;
    show_catalogue(&catalog);
    let catalog = Arc::new(Current::new(catalog));
    let offered = catalog.clone();
    let certificates = tls.clone();
    process::reload_on_hangup(move || {
        let replace_tls = certificates.as_ref().map(Tls::reread).transpose()?;
        let catalog = common.catalog()?;
        show_catalogue(&catalog);
        offered.replace(catalog);
        if let Some(replace) = replace_tls {
            replace();
        }
        Ok::<_, ConfigError>(())
    });
    let ready = installation.readiness(process.shutdown.clone());
    let bounds = process.limits.connections.bounds(process.limits.connections(PORTS, STORE_FILES)?);
    let parts = KeyServiceParts {
        installation: installation.clone(),
        catalog: catalog.clone(),
        internal_token,
        tls,
        clients_use_tls: false,
        bounds,
    };
    let server = RunningKeyService::start(&options, parts, process.shutdown.clone()).await?;
    let process = process.serve(ready)?;
    let first = if first_run { FirstRun::prepare(installation.management()).await? } else { None };
    let (http, grpc, admin) = (server.http, server.grpc, process.admin_address);
    let announce = |out: &mut StdoutLock<'_>| {
        writeln!(out, "listening key-http {scheme}://{http}")?;
        writeln!(out, "listening key-grpc {scheme}://{grpc}")?;
        writeln!(out, "listening admin http://{admin}")?;
        first.map_or(Ok(()), |first| first.print(out, &public_url, &catalog.get()))
    };
    let drain = async |shutdown: CancellationToken| {
        shutdown.cancel();
        server.stopped().await;
        Ok(())
    };
    Ok(process.until_signalled(announce, drain).await?)
}
