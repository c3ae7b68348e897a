//! The key-service as a separate process.

use std::{
    io::{self, StdoutLock, Write},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use domain::digest::Peppers;
use key_service::{
    config::Options,
    first_run::FirstRun,
    installation::{Installation, InstallationParts},
    operator::{Operator, PeppersFor},
    server::{KeyServiceParts, RunningKeyService},
};
use key_service_cli::OperatorCommand;
use mimalloc::MiMalloc;
use shared::clock::System;
use shared_config::{
    Common, ConfigError,
    current::Current,
    internal_token::{InternalToken, InternalTokens},
};
use shared_door::{
    limits::LimitOptions,
    tls::{Tls, TlsOptions},
};
use shared_observe::metrics::{Exported, show_catalogue};
use shared_process::{
    Basics, CommandLine, Process,
    doctor::{Doctor, DoctorOptions, InternalTokenOf},
    probe::READY,
    starting::Starting,
};
use tokio_util::sync::CancellationToken;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static EXPORTED: Exported = Exported { program: env!("CARGO_PKG_NAME"), families: &[key_service::FAMILIES] };

/// Ports that share the connections: management and gRPC.
const PORTS: usize = 2;
/// Open files of the store: a cluster's connections, or the files of SQLite.
const STORE_FILES: usize = 256;
/// Address for clients if none is configured: the default address of a gateway on this machine.
const DEFAULT_PUBLIC: &str = "http://127.0.0.1:8080";

/// Keeps keys and money: decides which requests may spend, and records what they spent. Without a command, serves.
#[derive(Parser)]
#[command(name = "key-service", version = key_service::server::version())]
struct KeyServiceArguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    basics: Basics,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    internal_tls: TlsOptions,

    #[command(flatten)]
    limits: LimitOptions,

    /// Address for metrics and probes; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9091")]
    admin_listen: SocketAddr,

    /// If there is no account yet, create one with credit and a management key, and print how to use them
    #[arg(long, env = "FAREGATE_FIRST_RUN")]
    first_run: bool,

    #[command(subcommand)]
    command: Option<OperatorCommand>,
}

impl CommandLine for KeyServiceArguments {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn ready_at(&self) -> (SocketAddr, &'static str) {
        (self.admin_listen, READY)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    shared_process::main(run).await
}

async fn run(mut arguments: KeyServiceArguments) -> anyhow::Result<ExitCode> {
    match arguments.command.take() {
        Some(command) => carry_out(arguments, command).await,
        None => serve(arguments).await.map(|()| ExitCode::SUCCESS),
    }
}

/// Runs a command instead of serving.
async fn carry_out(arguments: KeyServiceArguments, command: OperatorCommand) -> anyhow::Result<ExitCode> {
    let KeyServiceArguments { common, options, admin_listen, .. } = &arguments;
    let operator = Operator { common, options, program: env!("CARGO_PKG_NAME"), admin_listen: *admin_listen };
    let peppers = |_: PeppersFor| Ok(required_peppers(options)?);
    let examine = async |asked| examine(&arguments, &asked).await;
    operator.carry_out(command, peppers, || DEFAULT_PUBLIC.to_owned(), examine).await
}

async fn serve(arguments: KeyServiceArguments) -> anyhow::Result<()> {
    let KeyServiceArguments { common, options, internal_tls, limits, admin_listen, first_run, .. } =
        arguments;
    let peppers = required_peppers(&options)?;
    let clock = Arc::new(System);
    let process = Process::start(&common, &limits, options.admin(admin_listen), &EXPORTED)?;
    let internal_token = InternalToken::new(internal_tokens(&common, &options)?);
    let tls = internal_tls.open()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let catalog = common.catalog()?;
    show_catalogue(catalog.checksum);
    let catalog = Arc::new(Current::new(catalog));
    let (offered, certificates) = (catalog.clone(), tls.clone());
    let (settings, own_settings, token) = (common.clone(), options.clone(), internal_token.clone());
    shared_process::reload_on_hangup(move || {
        let replace_tls = certificates.as_ref().map(Tls::reread).transpose()?;
        let tokens = internal_tokens(&settings, &own_settings)?;
        let catalog = settings.catalog()?;
        show_catalogue(catalog.checksum);
        offered.replace(catalog);
        token.replace(tokens);
        if let Some(replace) = replace_tls {
            replace();
        }
        Ok::<_, ConfigError>(())
    });
    let bounds = process.limits.connections.bounds(process.limits.connections(PORTS, STORE_FILES)?);
    let (starting, shutdown) = (Starting::new("starting"), process.shutdown.clone());
    let metrics = Arc::new(process.metrics_reader());
    let mut process = process.serve(starting.readiness())?;
    let of_installation = InstallationParts { peppers, clock, catalog: Some(catalog.clone()) };
    let opened = Installation::open_when_up(&common, &options, of_installation, &starting);
    let installation = tokio::select! {
        opened = opened => opened?,
        () = process.stop.arrival() => return Ok(()),
    };
    let public_url = installation.public_url(|| DEFAULT_PUBLIC.to_owned());
    let parts = KeyServiceParts {
        installation: installation.clone(),
        catalog: catalog.clone(),
        internal_token,
        tls,
        clients_use_tls: false,
        bounds,
        metrics,
    };
    let server = RunningKeyService::start(&options, parts, shutdown.clone()).await?;
    starting.started(installation.readiness(shutdown));
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

fn required_peppers(options: &Options) -> Result<Peppers, ConfigError> {
    let unset = || ConfigError::new("FAREGATE_PEPPER", "must be set, or FAREGATE_PEPPER_FILE");
    options.peppers()?.ok_or_else(unset)
}

/// Runs `doctor`: makes every check of a start, and reports the results.
async fn examine(arguments: &KeyServiceArguments, asked: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let KeyServiceArguments { common, options, internal_tls, limits, .. } = arguments;
    let mut doctor = Doctor::begin(common, InternalTokenOf::Settings);
    let limits = limits.raise();
    doctor.limits(&limits, limits.connections(PORTS, STORE_FILES));
    let catalog = doctor.catalogue(common);
    doctor.internal_tls(internal_tls);
    let peppers = required_peppers(options).map(Some);
    key_service::doctor::examine(&mut doctor, common, options, peppers, Arc::new(System)).await;
    Ok(doctor.finish(catalog.as_ref(), asked, &mut io::stdout()).await?)
}

fn internal_tokens(common: &Common, options: &Options) -> Result<InternalTokens, ConfigError> {
    shared_config::internal_tokens(common.required_internal_token()?, options.previous_internal_token()?)
}
