//! The key-service as a process of its own.

use std::{io::Write, net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use http::Uri;
use key_service::{
    cli,
    config::Options,
    credentials::Credentials,
    first_run::FirstRun,
    management::Management,
    readiness,
    server::{Parts, Server},
};
use mimalloc::MiMalloc;
use shared::{
    clock::{Clock, System},
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

/// Ports that share the connections: management and gRPC.
const PORTS: usize = 2;
/// Open files of the store: a cluster's connections, or the files of SQLite.
const STORE_FILES: usize = 256;
/// The address that clients use where no setting names it: that of a gateway on this machine.
const DEFAULT_PUBLIC: &str = "http://127.0.0.1:8080";

/// Decides who may spend and remembers what was spent.
#[derive(Parser)]
#[command(name = "key-service", version)]
struct Arguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    internal_tls: tls::Options,

    #[command(flatten)]
    process: process::Options,

    /// Where metrics and probes are served; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9091")]
    admin_listen: SocketAddr,

    /// Where there is no account yet, make one with credit and a management key, and print how to use them
    #[arg(long, env = "FAREGATE_FIRST_RUN")]
    first_run: bool,

    #[command(subcommand)]
    command: Option<cli::Command>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (arguments, exposed) = config::parse();
    exit(run(arguments, &exposed).await)
}

async fn run(arguments: Arguments, exposed: &ExposedSecrets) -> anyhow::Result<()> {
    let Arguments { common, options, internal_tls, process, admin_listen, first_run, command } = arguments;
    if common.health {
        return Ok(probe(admin_listen, READY).await?);
    }
    common.start_log()?;
    exposed.warn();
    if let Some(cli::Command::Spool(command)) = command {
        return cli::spool(&command, &mut std::io::stdout());
    }
    let peppers = options.peppers()?.context("FAREGATE_PEPPER or FAREGATE_PEPPER_FILE must be set")?;
    let clock: Arc<dyn Clock> = Arc::new(System);
    let store = options.open_store(&clock).await?;
    let credentials = Arc::new(Credentials::new(store.clone(), peppers, common.key_prefix.clone()));
    let management = Management::new(store.clone(), clock.clone(), credentials.clone())
        .with_max_keys(options.max_keys_per_account);
    let public = options.public_url.as_ref().map_or_else(|| DEFAULT_PUBLIC.to_owned(), Uri::to_string);
    if let Some(command) = command {
        return cli::run(command, &management, &public, &mut std::io::stdout()).await;
    }

    let process = process.start();
    let metrics = telemetry::metrics()?;
    let token = common.internal_token()?;
    let internal_token =
        token.context("FAREGATE_INTERNAL_TOKEN or FAREGATE_INTERNAL_TOKEN_FILE must be set")?;
    let tls = internal_tls.open()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let catalog = Arc::new(common.catalog()?);
    let admin = bind("FAREGATE_ADMIN_LISTEN", admin_listen).await?;
    let admin_at = admin.local_addr()?;
    let admin = Port::new(admin, process.connections.admin_bounds());

    let shutdown = CancellationToken::new();
    let ready = readiness(store.clone(), clock.clone(), shutdown.clone());
    let bounds = process.connections.bounds(process.connections(PORTS, STORE_FILES)?);
    let parts = Parts { store, clock, credentials, catalog: catalog.clone(), internal_token, tls, bounds };
    let server = Server::start(&options, parts, shutdown.clone()).await?;
    let admin = tokio::spawn(serve(admin, telemetry::admin_router(metrics, ready), shutdown.clone()));
    let first = if first_run { FirstRun::prepare(&management).await? } else { None };
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening key-http {scheme}://{}", server.http)?;
    writeln!(out, "listening key-grpc {scheme}://{}", server.grpc)?;
    writeln!(out, "listening admin http://{admin_at}")?;
    if let Some(first) = first {
        first.print(&mut out, &public, &catalog)?;
    }
    drop(out);

    until_signalled().await;
    tracing::info!("draining");
    shutdown.cancel();
    server.stopped().await;
    admin.await.context("the admin server")
}
