//! The inference-gateway as a process of its own.

use std::{
    io::{self, StdoutLock, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::{Parser, Subcommand};
use http::Uri;
use inference_gateway::{
    config::Options,
    parts::{GatewayParts, KeyServices},
    server::{RunningGateway, reach},
    sizes::Sizes,
    upstream_list::{self, UpstreamsCommand},
};
use mimalloc::MiMalloc;
use shared::clock::System;
use shared_config::{
    Common, ConfigError,
    internal_token::{InternalToken, InternalTokens},
    reread,
};
use shared_door::{
    limits::Limits,
    tls::{PublicTls, PublicTlsOptions, Tls, TlsOptions},
};
use shared_observe::metrics::Exported;
use shared_process::{
    Basics, CommandLine, Process, ServiceOptions,
    doctor::{Doctor, DoctorOptions, InternalTokenOf},
    log_level::LogLevel,
    reload_on_hangup,
};
use shared_rpc::spool_list::{SpoolCommand, list_spool};
use upstreams::OfferedModels;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static EXPORTED: Exported =
    Exported { program: env!("CARGO_PKG_NAME"), families: &[inference_gateway::FAMILIES] };

/// Passes requests to models and answers to clients, and counts the tokens of both. Without a command, it serves.
#[derive(Parser)]
#[command(name = "inference-gateway", version = shared_process::version())]
struct GatewayArguments {
    #[command(flatten)]
    service: ServiceOptions,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    public_tls: PublicTlsOptions,

    #[command(flatten)]
    internal_tls: TlsOptions,

    /// Addresses of the key-services' gRPC ports; earlier addresses are preferred
    #[arg(
        long,
        env = "FAREGATE_KEY_SERVICE_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:50051"
    )]
    key_service_url: Vec<Uri>,

    /// Addresses of the key-services' HTTP ports, in the same order as --key-service-url
    #[arg(
        long,
        env = "FAREGATE_KEY_SERVICE_HTTP_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:8081"
    )]
    key_service_http_url: Vec<Uri>,

    /// URL of a `local-model`, including /v1, which serves the catalogue's builtin models
    #[arg(long, env = "FAREGATE_BUILTIN_URL", value_name = "URL")]
    builtin_url: Option<Uri>,

    /// Directory of the spool, which keeps charges that no key-service has confirmed yet. Each gateway needs a separate
    /// directory. Without a directory, these charges are lost if the gateway stops before it can deliver them
    #[arg(long, env = "FAREGATE_DATA_DIR", value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,

    #[command(subcommand)]
    command: Option<GatewayCommand>,
}

/// Commands of an operator.
#[derive(Subcommand)]
enum GatewayCommand {
    /// Charges (captures) that a gateway has not delivered yet
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// List, drain or restore the upstreams of the running gateway
    #[command(subcommand)]
    Upstreams(UpstreamsCommand),
    /// Show or replace the log filter of the running process
    LogLevel(LogLevel),
    /// Check the whole installation and report what works and what to fix
    ///
    /// Checks settings, secrets, limits, certificates, every key-service, the catalogue and every upstream. Changes
    /// nothing. Exit status: 0 if all is well, 1 with warnings, 2 with errors.
    Doctor(DoctorOptions),
}

impl CommandLine for GatewayArguments {
    fn basics(&self) -> (&Basics, SocketAddr, &'static str) {
        self.service.basics()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    shared_process::main(run).await
}

async fn run(arguments: GatewayArguments) -> anyhow::Result<ExitCode> {
    let (admin, out) = (arguments.service.admin(arguments.data_dir.as_deref()), &mut io::stdout());
    match &arguments.command {
        Some(GatewayCommand::Spool(command)) => list_spool(command, out)?,
        Some(GatewayCommand::Upstreams(command)) => command.run(&admin, out).await?,
        Some(GatewayCommand::LogLevel(command)) => command.run(&admin, out).await?,
        Some(GatewayCommand::Doctor(asked)) => return examine(&arguments, asked).await,
        None => serve(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks everything that is checked at a start, and every server that the gateway calls.
async fn examine(arguments: &GatewayArguments, asked: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let GatewayArguments { service, options, public_tls, internal_tls, .. } = arguments;
    let connections = |doctor: &mut Doctor, limits: &mut Limits| {
        limits.over_tls = doctor.public_tls(public_tls).is_some();
        Sizes::of(options, limits, 1, 0).map(|sizes| sizes.bounds.connections)
    };
    let reach_key_services = async |doctor: &mut Doctor| {
        let tls = doctor.internal_tls(internal_tls);
        let (Some(tls), Ok(tokens)) = (tls, internal_tokens(&service.common)) else { return };
        let token = InternalToken::new(tokens);
        for address in &arguments.key_service_url {
            match reach(address.clone(), &token, tls.as_ref()).await {
                Ok(()) => doctor.well("key-service", format!("{address} answers and accepts the token")),
                Err(says) => doctor.fail(
                    "key-service",
                    format!("{address}: {says}"),
                    "check its /readyz and the lines above",
                ),
            }
        }
    };
    let token = InternalTokenOf::Settings;
    Ok(Doctor::examine(service, token, asked, connections, reach_key_services).await?)
}

fn internal_tokens(common: &Common) -> Result<InternalTokens, ConfigError> {
    shared_config::internal_tokens(common.required_internal_token()?, None)
}

async fn serve(arguments: GatewayArguments) -> anyhow::Result<()> {
    let GatewayArguments { service, options, data_dir, .. } = arguments;
    let mut process = Process::start(&service, data_dir.as_deref(), &EXPORTED)?;
    let (public_tls, tls) = (arguments.public_tls.open()?, arguments.internal_tls.open()?);
    process.limits.over_tls = public_tls.is_some();
    let sizes = Sizes::of(&options, &process.limits, 1, 0)?;
    let common = service.common;
    let internal_token = InternalToken::new(internal_tokens(&common)?);
    let models = Arc::new(OfferedModels::new(common.catalog()?, arguments.builtin_url)?);
    let (settings, token, offered) = (common.clone(), internal_token.clone(), models.clone());
    let tokens = reread(move || internal_tokens(&settings), move |tokens| token.replace(tokens));
    let rereads = [public_tls.as_ref().map(PublicTls::rereads), tls.as_ref().map(Tls::rereads), Some(tokens)];
    reload_on_hangup(&common, rereads, move |catalog| offered.replace(catalog));
    process.admin_routes = upstream_list::admin_routes(models.clone(), Arc::new(System));
    let scheme = arguments.public_tls.scheme();
    let parts = GatewayParts {
        clock: Arc::new(System),
        models,
        prefix: common.key_prefix,
        key_services: KeyServices::Remote(arguments.key_service_url),
        internal_token,
        key_service_http: arguments.key_service_http_url,
        public_tls,
        tls,
        sizes,
        stopping: process.stopping.clone(),
        data_dir,
    };
    let gateway = RunningGateway::start(&options, parts)?;
    let process = process.serve(gateway.readiness())?;
    let (public, admin) = (gateway.public, process.admin_address);
    let announce = |out: &mut StdoutLock<'_>| {
        writeln!(out, "listening public {scheme}://{public}")?;
        writeln!(out, "listening admin http://{admin}")
    };
    Ok(process.until_signalled(announce, async || gateway.stop().await).await?)
}
