//! Prepaid API keys for language models, in one program: gateway, key-service, embedded store and demo model.

mod secrets;
mod welcome;

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use clap::Parser;
use http::Uri;
use inference_gateway::{
    server::{KeyServices, Parts as GatewayParts, Server as Gateway},
    sizes::Sizes,
};
use key_service::{
    cli,
    credentials::Credentials,
    first_run::FirstRun,
    management::Management,
    readiness,
    server::{Parts as KeyServiceParts, Server as KeyService},
};
use mimalloc::MiMalloc;
use shared::{
    catalog::{Catalog, UpstreamKind},
    clock::{Clock, System},
    config::{self, Common, ExposedSecrets},
    probe::{READY, probe},
    process::{self, Process},
    serve::{Port, bind, exit, serve, until_signalled},
    telemetry,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Requests that the demo model holds at once. One more is refused and may be sent again later.
const DEMO_REQUESTS: usize = 64;
/// Connections to the demo model, of which each request has one; idle ones may be as many.
const DEMO_CONNECTIONS: usize = 2 * DEMO_REQUESTS;
/// Ports that share the connections: the public one, and those of the key-service with all that they are called by.
const PORTS: usize = 2;
/// Open files beside connections of clients: the store's, and both ends of those to the demo model.
const OTHER_FILES: usize = 64 + 2 * DEMO_CONNECTIONS;
/// Tokens of earlier prompts that the demo model keeps at hand: some 40 MB.
const DEMO_CACHED_TOKENS: usize = 16_384;

/// Prepaid API keys for language models. Without a command, serves.
#[derive(Parser)]
#[command(name = "faregate", version)]
struct Arguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    gateway: inference_gateway::config::Options,

    #[command(flatten)]
    key_service: key_service::config::Options,

    #[command(flatten)]
    process: process::Options,

    /// Where metrics and probes are served; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,

    #[command(subcommand)]
    command: Option<cli::Command>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let (arguments, exposed) = config::parse();
    exit(run(arguments, &exposed).await)
}

async fn run(arguments: Arguments, exposed: &ExposedSecrets) -> anyhow::Result<()> {
    let Arguments { common, gateway, key_service, process, admin_listen, command } = arguments;
    if common.health {
        return Ok(probe(admin_listen, READY).await?);
    }
    common.start_log()?;
    exposed.warn();
    if let Some(cli::Command::Spool(command)) = command {
        return cli::spool(&command, &mut std::io::stdout());
    }
    let clock: Arc<dyn Clock> = Arc::new(System);
    let secrets = secrets::open(&common, &key_service, &*clock)?;
    let store = key_service.open_store(&clock).await?;
    let credentials = Arc::new(Credentials::new(store.clone(), secrets.peppers, common.key_prefix.clone()));
    let management = Management::new(store.clone(), clock.clone(), credentials.clone())
        .with_max_keys(key_service.max_keys_per_account);
    let public = |listen: SocketAddr| {
        let default = || format!("http://{listen}");
        key_service.public_url.as_ref().map_or_else(default, Uri::to_string)
    };
    if let Some(command) = command {
        return cli::run(command, &management, &public(gateway.listen), &mut std::io::stdout()).await;
    }

    let process = process.start();
    let sizes = Sizes::of(&gateway, &process, PORTS, OTHER_FILES)?;
    let metrics = telemetry::metrics()?;
    let catalog = Arc::new(common.catalog()?);
    let admin = bind("FAREGATE_ADMIN_LISTEN", admin_listen).await?;
    let admin_at = admin.local_addr()?;
    let admin = Port::new(admin, process.connections.admin_bounds());
    let builtin = start_builtin(&catalog, &clock, &process).await?;

    let shutdown = CancellationToken::new();
    let admin_router =
        telemetry::admin_router(metrics, readiness(store.clone(), clock.clone(), shutdown.clone()));
    tokio::spawn(serve(admin, admin_router, shutdown.clone()));
    let parts = KeyServiceParts {
        store,
        clock: clock.clone(),
        credentials,
        catalog: catalog.clone(),
        internal_token: secrets.internal_token,
        tls: None,
        // Half of a port's share, for both.
        bounds: process.connections.bounds(sizes.bounds.connections / 4),
    };
    let data_dir = key_service.data_dir.clone();
    let running = KeyService::start(&key_service, parts, shutdown.clone()).await?;
    let parts = GatewayParts {
        clock,
        catalog: catalog.clone(),
        prefix: common.key_prefix.clone(),
        key_services: KeyServices::Local(running.service.clone()),
        key_service_http: vec![loopback(running.http)?],
        tls: None,
        builtin,
        sizes,
        data_dir: Some(data_dir),
    };
    let gateway = Gateway::start(&gateway, parts).await?;
    let first = FirstRun::prepare(&management).await?;
    let addresses = welcome::Addresses {
        public: gateway.public,
        admin: admin_at,
        key_http: running.http,
        key_grpc: running.grpc,
    };
    let public = public(addresses.public);
    welcome::print(&mut std::io::stdout().lock(), &addresses, &public, &catalog, first.as_ref())?;

    until_signalled().await;
    tracing::info!("draining; running requests may finish");
    gateway.stop().await?;
    shutdown.cancel();
    running.stopped().await;
    Ok(())
}

/// Starts the demo model, on a port of its own, if the catalogue wants it.
async fn start_builtin(
    catalog: &Catalog,
    clock: &Arc<dyn Clock>,
    process: &Process,
) -> anyhow::Result<Option<Uri>> {
    let wanted = catalog.models.iter().flat_map(|m| &m.upstreams).any(|u| u.kind == UpstreamKind::Builtin);
    if !wanted {
        return Ok(None);
    }
    let engine = local_model::Engine::start(
        local_model::Model::shipped()?,
        local_model::Options {
            clock: clock.clone(),
            max_requests: DEMO_REQUESTS,
            max_cached_tokens: DEMO_CACHED_TOKENS,
        },
    )?;
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    // It ends with the process: the requests that it serves have drained by then.
    let port = Port::new(listener, process.connections.open_bounds(DEMO_CONNECTIONS));
    tokio::spawn(serve(port, local_model::router(engine), CancellationToken::new()));
    Ok(Some(format!("http://{address}/v1").parse()?))
}

/// Loopback address by which one part of this process reaches another, also where it listens on every address.
fn loopback(address: SocketAddr) -> anyhow::Result<Uri> {
    let host = match address {
        SocketAddr::V4(a) if a.ip().is_unspecified() => "127.0.0.1".to_owned(),
        SocketAddr::V6(a) if a.ip().is_unspecified() => "[::1]".to_owned(),
        SocketAddr::V4(a) => a.ip().to_string(),
        SocketAddr::V6(a) => format!("[{}]", a.ip()),
    };
    Ok(format!("http://{host}:{}", address.port()).parse()?)
}
