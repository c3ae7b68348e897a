use std::{
    io::{StdoutLock, Write},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use domain::digest::Peppers;
use key_service::{
    config::Options,
    first_run::FirstRun,
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
    reread,
};
use shared_door::{
    limits::Limits,
    tls::{Tls, TlsOptions},
};
use shared_observe::metrics::{Exported, show_catalogue};
use shared_process::{
    Basics, CommandLine, Process, ServiceOptions,
    doctor::{Doctor, DoctorOptions, InternalTokenOf},
    reload_on_hangup,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static EXPORTED: Exported = Exported { program: env!("CARGO_PKG_NAME"), families: &[key_service::FAMILIES] };

/// Number of ports that share the maximum number of connections: management and gRPC.
const PORTS: usize = 2;
/// Number of open files that the store may need: connections to a cluster, or SQLite's files.
const STORE_FILES: usize = 256;
/// Address for clients if none is configured: the default address of a gateway on this machine.
const DEFAULT_PUBLIC: &str = "http://127.0.0.1:8080";

/// Keeps keys and money: decides which requests may spend, and records what they spent. Without a command, it serves.
#[derive(Parser)]
#[command(name = "key-service", version = shared_process::version())]
#[command(mut_arg("admin_listen", |argument| argument.default_value("127.0.0.1:9091")))]
struct KeyServiceArguments {
    #[command(flatten)]
    service: ServiceOptions,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    internal_tls: TlsOptions,

    /// If there is no account yet, create one with credit and a management key, and print how to use them
    #[arg(long, env = "FAREGATE_FIRST_RUN")]
    first_run: bool,

    #[command(subcommand)]
    command: Option<OperatorCommand>,
}

impl CommandLine for KeyServiceArguments {
    fn basics(&self) -> (&Basics, SocketAddr, &'static str) {
        self.service.basics()
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
    let KeyServiceArguments { service, options, .. } = &arguments;
    let operator = Operator { service, options, program: env!("CARGO_PKG_NAME") };
    let peppers = |_: PeppersFor| Ok(required_peppers(options)?);
    let examine = async |asked| examine(&arguments, &asked).await;
    operator.carry_out(command, peppers, || DEFAULT_PUBLIC.to_owned(), examine).await
}

async fn serve(arguments: KeyServiceArguments) -> anyhow::Result<()> {
    let KeyServiceArguments { service, options, internal_tls, first_run, .. } = arguments;
    let peppers = required_peppers(&options)?;
    let process = Process::start(&service, Some(&options.data_dir), &EXPORTED)?;
    let common = service.common;
    let internal_token = InternalToken::new(internal_tokens(&common, &options)?);
    let tls = internal_tls.open()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let catalog = common.catalog()?;
    show_catalogue(catalog.checksum);
    let catalog = Arc::new(Current::new(catalog));
    let (settings, token, offered) =
        ((common.clone(), options.clone()), internal_token.clone(), catalog.clone());
    let tokens =
        reread(move || internal_tokens(&settings.0, &settings.1), move |tokens| token.replace(tokens));
    reload_on_hangup(&common, [tls.as_ref().map(Tls::rereads), Some(tokens)], move |catalog| {
        show_catalogue(catalog.checksum);
        offered.replace(catalog);
        Ok(())
    });
    let bounds = process.limits.connections.bounds(process.limits.connections(PORTS, STORE_FILES)?);
    let parts = KeyServiceParts {
        clock: Arc::new(System),
        peppers,
        catalog: catalog.clone(),
        internal_token,
        tls,
        clients_use_tls: false,
        bounds,
    };
    let started = RunningKeyService::start(process, &common, &options, parts).await?;
    let Some((process, server)) = started else { return Ok(()) };
    server.started();
    let installation = &server.installation;
    let first = if first_run { FirstRun::prepare(installation.management()).await? } else { None };
    let public_url = installation.public_url(|| DEFAULT_PUBLIC.to_owned());
    let (http, grpc, admin) = (server.http, server.grpc, process.admin_address);
    let announce = |out: &mut StdoutLock<'_>| {
        writeln!(out, "listening key-http {scheme}://{http}")?;
        writeln!(out, "listening key-grpc {scheme}://{grpc}")?;
        writeln!(out, "listening admin http://{admin}")?;
        first.map_or(Ok(()), |first| first.print(out, &public_url, &catalog.get()))
    };
    let drain = async || {
        server.stop().await;
        Ok(())
    };
    Ok(process.until_signalled(announce, drain).await?)
}

fn required_peppers(options: &Options) -> Result<Peppers, ConfigError> {
    let unset = || ConfigError::new("FAREGATE_PEPPER", "must be set, unless FAREGATE_PEPPER_FILE is");
    options.peppers()?.ok_or_else(unset)
}

/// Runs `doctor`, which makes every check of a start and reports the results.
async fn examine(arguments: &KeyServiceArguments, asked: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let KeyServiceArguments { service, options, internal_tls, .. } = arguments;
    let connections = |_: &mut Doctor, limits: &mut Limits| limits.connections(PORTS, STORE_FILES);
    let own = async |doctor: &mut Doctor| {
        doctor.internal_tls(internal_tls);
        let peppers = required_peppers(options).map(Some);
        key_service::doctor::examine(doctor, &service.common, options, peppers, Arc::new(System)).await;
    };
    Ok(Doctor::examine(service, InternalTokenOf::Settings, asked, connections, own).await?)
}

fn internal_tokens(common: &Common, options: &Options) -> Result<InternalTokens, ConfigError> {
    shared_config::internal_tokens(common.required_internal_token()?, options.previous_internal_token()?)
}
