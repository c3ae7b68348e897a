//! The inference-gateway as a process of its own.

use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use http::Uri;
use inference_gateway::{
    config::Options,
    server::{KeyServices, Parts, Server},
    sizes::Sizes,
};
use mimalloc::MiMalloc;
use shared::{
    clock::System,
    config::{self, Common, ExposedSecrets},
    probe::{READY, probe},
    process,
    rpc::tls,
    serve::{Port, bind, exit, serve, until_signalled},
    telemetry,
};
use tokio_util::sync::CancellationToken;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Carries requests to a model and back, and meters them on the way.
#[derive(Parser)]
#[command(name = "inference-gateway", version)]
struct Arguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    internal_tls: tls::Options,

    #[command(flatten)]
    process: process::Options,

    /// Where key-services speak gRPC; all of them are used, the first ones before others
    #[arg(
        long,
        env = "FAREGATE_KEY_SERVICE_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:50051"
    )]
    key_service_url: Vec<Uri>,

    /// Where key-services speak HTTP
    #[arg(
        long,
        env = "FAREGATE_KEY_SERVICE_HTTP_URL",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:8081"
    )]
    key_service_http_url: Vec<Uri>,

    /// Where a `local-model` serves, with /v1: what the catalogue calls builtin is asked there
    #[arg(long, env = "FAREGATE_BUILTIN_URL", value_name = "URL")]
    builtin_url: Option<Uri>,

    /// The directory of the spool: captures that were not confirmed before their answers left. One gateway each; without
    /// it, a gateway that dies while every key-service is away loses them
    #[arg(long, env = "FAREGATE_DATA_DIR", value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,

    /// Where metrics and probes are served; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (arguments, exposed) = config::parse();
    exit(run(arguments, &exposed).await)
}

async fn run(arguments: Arguments, exposed: &ExposedSecrets) -> anyhow::Result<()> {
    let Arguments {
        common,
        options,
        internal_tls,
        process,
        key_service_url,
        key_service_http_url,
        builtin_url,
        data_dir,
        admin_listen,
    } = arguments;
    if common.health {
        return Ok(probe(admin_listen, READY).await?);
    }
    common.start_log()?;
    exposed.warn();
    let process = process.start();
    let sizes = Sizes::of(&options, &process, 1, 0)?;
    let metrics = telemetry::metrics()?;
    let token = common.internal_token()?;
    let parts = Parts {
        clock: Arc::new(System),
        catalog: Arc::new(common.catalog()?),
        prefix: common.key_prefix.clone(),
        key_services: KeyServices::Remote {
            addresses: key_service_url,
            internal_token: token
                .context("FAREGATE_INTERNAL_TOKEN or FAREGATE_INTERNAL_TOKEN_FILE must be set")?,
        },
        key_service_http: key_service_http_url,
        tls: internal_tls.open()?,
        builtin: builtin_url,
        sizes,
        data_dir,
    };
    let admin = bind("FAREGATE_ADMIN_LISTEN", admin_listen).await?;
    let admin_at = admin.local_addr()?;
    let admin = Port::new(admin, process.connections.admin_bounds());
    let shutdown = CancellationToken::new();
    let server = Server::start(&options, parts).await?;
    let admin_router = telemetry::admin_router(metrics, server.readiness());
    let admin = tokio::spawn(serve(admin, admin_router, shutdown.clone()));
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening public http://{}", server.public)?;
    writeln!(out, "listening admin http://{admin_at}")?;
    drop(out);

    until_signalled().await;
    tracing::info!("draining; running requests may finish");
    server.stop().await?;
    shutdown.cancel();
    admin.await.context("the admin server")
}
