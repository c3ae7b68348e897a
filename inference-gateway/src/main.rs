//! The inference-gateway in its own process.

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
use shared_config::{Common, ConfigError, internal_token::InternalToken};
use shared_door::{
    limits::LimitOptions,
    tls::{PublicTls, PublicTlsOptions, Tls, TlsOptions},
};
use shared_observe::metrics::Exported;
use shared_process::{
    Basics, CommandLine, Process,
    admin_call::AdminPort,
    doctor::{Doctor, DoctorOptions, InternalTokenOf},
    log_level::LogLevel,
    probe::READY,
};
use shared_rpc::spool_list::{SpoolCommand, list_spool};
use upstreams::OfferedModels;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static EXPORTED: Exported =
    Exported { program: env!("CARGO_PKG_NAME"), families: &[inference_gateway::FAMILIES] };

/// Carries requests to a model and answers back, and meters them. Without a command, it serves.
#[derive(Parser)]
#[command(name = "inference-gateway", version = shared_process::version(env!("CARGO_PKG_VERSION"), option_env!("FAREGATE_COMMIT")))]
struct GatewayArguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    basics: Basics,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    public_tls: PublicTlsOptions,

    #[command(flatten)]
    internal_tls: TlsOptions,

    #[command(flatten)]
    limits: LimitOptions,

    /// Addresses of the key-services' gRPC ports; earlier ones are preferred
    #[arg(
        long,
        env = "FAREGATE_KEY_SERVICE_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:50051"
    )]
    key_service_url: Vec<Uri>,

    /// Addresses of the key-services' HTTP ports, in the order of --key-service-url
    #[arg(
        long,
        env = "FAREGATE_KEY_SERVICE_HTTP_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:8081"
    )]
    key_service_http_url: Vec<Uri>,

    /// URL of a `local-model`, with /v1; it serves the catalogue's builtin models
    #[arg(long, env = "FAREGATE_BUILTIN_URL", value_name = "URL")]
    builtin_url: Option<Uri>,

    /// Directory of the spool, which keeps charges that no key-service has confirmed yet. Each gateway needs its own;
    /// without one, these charges are lost if the gateway stops before it can deliver them
    #[arg(long, env = "FAREGATE_DATA_DIR", value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,

    /// Address for metrics and probes; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,

    #[command(subcommand)]
    command: Option<GatewayCommand>,
}

/// Commands of an operator.
#[derive(Subcommand)]
enum GatewayCommand {
    /// Captures that a gateway has not delivered yet
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

impl GatewayArguments {
    fn admin(&self) -> AdminPort {
        AdminPort { listen: self.admin_listen, data_dir: self.data_dir.clone() }
    }
}

impl CommandLine for GatewayArguments {
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

async fn run(arguments: GatewayArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Some(GatewayCommand::Spool(command)) => list_spool(command, &mut io::stdout())?,
        Some(GatewayCommand::Upstreams(command)) => {
            command.run(&arguments.admin(), &mut io::stdout()).await?;
        }
        Some(GatewayCommand::LogLevel(command)) => {
            command.run(&arguments.admin(), &mut io::stdout()).await?;
        }
        Some(GatewayCommand::Doctor(asked)) => return examine(&arguments, asked).await,
        None => serve(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks everything that a start would check, and every server that the gateway calls.
async fn examine(arguments: &GatewayArguments, asked: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let common = &arguments.common;
    let mut doctor = Doctor::begin(common, InternalTokenOf::Settings);
    let mut limits = arguments.limits.raise();
    limits.over_tls = doctor.public_tls(&arguments.public_tls).is_some();
    let sizes = Sizes::of(&arguments.options, &limits, 1, 0);
    doctor.limits(&limits, sizes.map(|sizes| sizes.bounds.connections));
    let tls = doctor.internal_tls(&arguments.internal_tls);
    let tokens =
        common.required_internal_token().and_then(|token| shared_config::internal_tokens(token, None));
    if let (Some(tls), Ok(tokens)) = (tls, tokens) {
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
    }
    let catalog = doctor.catalogue(common);
    Ok(doctor.finish(catalog.as_ref(), asked, &mut io::stdout()).await?)
}

async fn serve(arguments: GatewayArguments) -> anyhow::Result<()> {
    let (common, options) = (&arguments.common, &arguments.options);
    let mut process = Process::start(common, &arguments.limits, arguments.admin(), &EXPORTED)?;
    let (public_tls, tls) = (arguments.public_tls.open()?, arguments.internal_tls.open()?);
    process.limits.over_tls = public_tls.is_some();
    let sizes = Sizes::of(options, &process.limits, 1, 0)?;
    let internal_tokens =
        |common: &Common| shared_config::internal_tokens(common.required_internal_token()?, None);
    let internal_token = InternalToken::new(internal_tokens(common)?);
    let models = Arc::new(OfferedModels::new(common.catalog()?, arguments.builtin_url)?);
    let (offered, settings, public, internal) =
        (models.clone(), common.clone(), public_tls.clone(), tls.clone());
    let token = internal_token.clone();
    shared_process::reload_on_hangup(move || {
        let replace_public = public.as_ref().map(PublicTls::reread).transpose()?;
        let replace_internal = internal.as_ref().map(Tls::reread).transpose()?;
        let tokens = internal_tokens(&settings)?;
        offered.replace(settings.catalog()?)?;
        token.replace(tokens);
        if let Some(replace) = replace_public {
            replace();
        }
        if let Some(replace) = replace_internal {
            replace();
        }
        Ok::<_, ConfigError>(())
    });
    process.admin_routes = upstream_list::admin_routes(models.clone(), Arc::new(System));
    let scheme = arguments.public_tls.scheme();
    let parts = GatewayParts {
        clock: Arc::new(System),
        models,
        prefix: common.key_prefix.clone(),
        key_services: KeyServices::Remote(arguments.key_service_url),
        internal_token,
        key_service_http: arguments.key_service_http_url,
        public_tls,
        tls,
        sizes,
        stopping: process.stopping.clone(),
        data_dir: arguments.data_dir,
    };
    let gateway = RunningGateway::start(options, parts)?;
    let process = process.serve(gateway.readiness())?;
    let (public, admin) = (gateway.public, process.admin_address);
    let announce = |out: &mut StdoutLock<'_>| {
        writeln!(out, "listening public {scheme}://{public}")?;
        writeln!(out, "listening admin http://{admin}")
    };
    Ok(process.until_signalled(announce, async |_| gateway.stop().await).await?)
}
