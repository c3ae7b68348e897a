//! The all-in-one program: gateway, key-service, embedded store and demo model.

mod init;
mod secrets;
mod welcome;

use std::{
    io::{self, StdoutLock},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};

use clap::{Parser, Subcommand};
use http::Uri;
use inference_gateway::{
    parts::{GatewayParts, KeyServices},
    server::RunningGateway,
    sizes::Sizes,
    upstream_list::{self, UpstreamsCommand},
};
use init::InitOptions;
use key_service::{
    first_run::FirstRun,
    installation::{Installation, InstallationParts},
    operator::Operator,
    server::{KeyServiceParts, RunningKeyService},
};
use key_service_cli::OperatorCommand;
use mimalloc::MiMalloc;
use shared::clock::{Clock, System};
use shared_catalog::{Catalog, UpstreamKind};
use shared_config::{Common, ConfigError, current::Current, internal_token::InternalToken};
use shared_door::{
    limits::{LimitOptions, Limits},
    serve::{Port, serve},
    tls::{PublicTls, PublicTlsOptions},
};
use shared_observe::metrics::Exported;
use shared_process::{
    Basics, CommandLine, Process,
    doctor::{Doctor, DoctorOptions, InternalTokenOf},
    probe::READY,
    starting::Starting,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use upstreams::OfferedModels;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static EXPORTED: Exported = Exported {
    program: env!("CARGO_PKG_NAME"),
    families: &[inference_gateway::FAMILIES, key_service::FAMILIES],
};

/// Requests that the demo model accepts at once. Further requests are refused and can be retried.
const DEMO_REQUESTS: usize = 64;
/// Connections to the demo model: one for each request, and the same number idle.
const DEMO_CONNECTIONS: usize = 2 * DEMO_REQUESTS;
/// Ports that share the connections: the public port, and the key-service's ports together with all internal callers.
const PORTS: usize = 2;
/// Open files besides client connections: the store's files, and both ends of the connections to the demo model.
const OTHER_FILES: usize = 64 + 2 * DEMO_CONNECTIONS;

/// Prepaid API keys for language models. Without a command, serves.
#[derive(Parser)]
#[command(name = "faregate", version = shared_process::version(env!("CARGO_PKG_VERSION"), option_env!("FAREGATE_COMMIT")))]
struct FaregateArguments {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    basics: Basics,

    #[command(flatten)]
    gateway: inference_gateway::config::Options,

    #[command(flatten)]
    key_service: key_service::config::Options,

    #[command(flatten)]
    public_tls: PublicTlsOptions,

    #[command(flatten)]
    limits: LimitOptions,

    /// Address for metrics and probes; never publish it
    #[arg(long, env = "FAREGATE_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,

    #[command(subcommand)]
    command: Option<FaregateCommand>,
}

#[derive(Subcommand)]
enum FaregateCommand {
    /// Write a catalogue for your own model, hosted by a vendor or on your own server
    Init(Box<InitOptions>),
    /// List, drain or restore the upstreams of the running gateway
    #[command(subcommand)]
    Upstreams(UpstreamsCommand),
    #[command(flatten)]
    Operator(OperatorCommand),
}

impl CommandLine for FaregateArguments {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn ready_at(&self) -> (SocketAddr, &'static str) {
        (self.admin_listen, READY)
    }
}

// The key-service's part runs on one thread, as it does in its own process: its tasks wake each other with every call,
// and two threads would do so across cores. Workers of the gateway, the embedded store and the demo model have other
// threads.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    shared_process::main(run).await
}

async fn run(mut arguments: FaregateArguments) -> anyhow::Result<ExitCode> {
    match arguments.command.take() {
        Some(command) => carry_out(arguments, command).await,
        None => serve_all(arguments).await.map(|()| ExitCode::SUCCESS),
    }
}

/// Runs a command instead of serving.
async fn carry_out(arguments: FaregateArguments, command: FaregateCommand) -> anyhow::Result<ExitCode> {
    let FaregateArguments { common, gateway, key_service, public_tls, admin_listen, .. } = &arguments;
    match command {
        FaregateCommand::Init(options) => init::run(*options, &System).await?,
        FaregateCommand::Upstreams(command) => {
            command.run(&key_service.admin(*admin_listen), &mut io::stdout()).await?;
        }
        FaregateCommand::Operator(command) => {
            let program = env!("CARGO_PKG_NAME");
            let operator = Operator { common, options: key_service, program, admin_listen: *admin_listen };
            let peppers = |of| secrets::peppers(of, common, key_service, &System);
            let default_url = || format!("{}://{}", public_tls.scheme(), own_address(gateway.listen));
            let examine = async |asked| examine(&arguments, &asked).await;
            return operator.carry_out(command, peppers, default_url, examine).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `doctor`: makes every check of a start, and reports the results.
async fn examine(arguments: &FaregateArguments, asked: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let FaregateArguments { common, gateway, key_service, public_tls, limits, .. } = arguments;
    let mut doctor = Doctor::begin(common, InternalTokenOf::SettingsOrDataDirectory);
    let mut limits = limits.raise();
    limits.over_tls = doctor.public_tls(public_tls).is_some();
    let sizes = Sizes::of(gateway, &limits, PORTS, OTHER_FILES);
    doctor.limits(&limits, sizes.map(|sizes| sizes.bounds.connections));
    let catalog = doctor.catalogue(common);
    let peppers = secrets::found_peppers(key_service);
    key_service::doctor::examine(&mut doctor, common, key_service, peppers, Arc::new(System)).await;
    Ok(doctor.finish(catalog.as_ref(), asked, &mut io::stdout()).await?)
}

async fn serve_all(arguments: FaregateArguments) -> anyhow::Result<()> {
    let FaregateArguments { common, gateway, key_service, public_tls, limits, admin_listen, .. } = arguments;
    let clock: Arc<dyn Clock> = Arc::new(System);
    let secrets = secrets::open(&common, &key_service, &*clock)?;
    let scheme = public_tls.scheme();
    let mut process = Process::start(&common, &limits, key_service.admin(admin_listen), &EXPORTED)?;
    let public_tls = public_tls.open()?;
    process.limits.over_tls = public_tls.is_some();
    let sizes = Sizes::of(&gateway, &process.limits, PORTS, OTHER_FILES)?;
    let (models, catalog) = offer_models(&common, &clock, &process.limits).await?;
    reload_on_hangup(common.clone(), models.clone(), catalog.clone(), public_tls.clone());
    let internal_token = InternalToken::new(secrets.internal_token);
    // The key-service's two ports split one port's share.
    let bounds = process.limits.connections.bounds(sizes.bounds.connections / 4);
    let (starting, shutdown, stopping) =
        (Starting::new("starting"), process.shutdown.clone(), process.stopping.clone());
    process.admin_routes = upstream_list::admin_routes(models.clone(), clock.clone());
    let metrics = Arc::new(process.metrics_reader());
    let mut process = process.serve(starting.readiness())?;
    let of_installation =
        InstallationParts { peppers: secrets.peppers, clock: clock.clone(), catalog: Some(catalog.clone()) };
    let opened = Installation::open_when_up(&common, &key_service, of_installation, &starting);
    let installation = tokio::select! {
        opened = opened => opened?,
        () = process.stop.arrival() => return Ok(()),
    };
    let parts = KeyServiceParts {
        installation: installation.clone(),
        catalog: catalog.clone(),
        internal_token: internal_token.clone(),
        tls: None,
        clients_use_tls: public_tls.is_some(),
        bounds,
        metrics,
    };
    let running = RunningKeyService::start(&key_service, parts, shutdown.clone()).await?;
    let parts = GatewayParts {
        clock,
        models,
        prefix: common.key_prefix,
        key_services: KeyServices::Local(running.service.clone()),
        internal_token,
        key_service_http: vec![format!("http://{}", own_address(running.http)).parse()?],
        public_tls,
        tls: None,
        sizes,
        stopping,
        data_dir: Some(key_service.data_dir),
    };
    let gateway = RunningGateway::start(&gateway, parts)?;
    starting.started(installation.readiness(shutdown));
    let first = FirstRun::prepare(installation.management()).await?;
    let addresses = welcome::Addresses::of(scheme, &gateway, &running, process.admin_address);
    let public_url = installation.public_url(|| format!("{scheme}://{}", own_address(gateway.public)));
    let announce = |out: &mut StdoutLock<'_>| {
        welcome::print(out, &addresses, &public_url, &catalog.get(), first.as_ref())
    };
    let drain = async |shutdown: CancellationToken| {
        gateway.stop().await?;
        shutdown.cancel();
        running.stopped().await;
        Ok(())
    };
    Ok(process.until_signalled(announce, drain).await?)
}

/// Reads the catalogue, and starts the demo model if the catalogue names it.
async fn offer_models(
    common: &Common,
    clock: &Arc<dyn Clock>,
    limits: &Limits,
) -> anyhow::Result<(Arc<OfferedModels>, Arc<Current<Catalog>>)> {
    let catalog = common.catalog()?;
    let builtin = start_builtin(&catalog, clock, limits).await?;
    let models = Arc::new(OfferedModels::new(catalog.clone(), builtin)?);
    Ok((models, Arc::new(Current::new(catalog))))
}

/// Reloads the catalogue and the certificate at each SIGHUP.
fn reload_on_hangup(
    settings: Common,
    offered: Arc<OfferedModels>,
    priced: Arc<Current<Catalog>>,
    tls: Option<PublicTls>,
) {
    shared_process::reload_on_hangup(move || {
        let replace_tls = tls.as_ref().map(PublicTls::reread).transpose()?;
        let catalog = settings.catalog()?;
        offered.replace(catalog.clone())?;
        priced.replace(catalog);
        if let Some(replace) = replace_tls {
            replace();
        }
        Ok::<_, ConfigError>(())
    });
}

/// Starts the demo model on its own port, if the catalogue names it.
async fn start_builtin(
    catalog: &Catalog,
    clock: &Arc<dyn Clock>,
    limits: &Limits,
) -> anyhow::Result<Option<Uri>> {
    let wanted = catalog.models.iter().flat_map(|m| &m.upstreams).any(|u| u.kind == UpstreamKind::Builtin);
    if !wanted {
        return Ok(None);
    }
    let engine = local_model::Engine::start(clock.clone(), DEMO_REQUESTS)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    // The demo model ends with the process, when its requests have drained.
    let port = Port::new(listener, limits.connections.open_bounds(DEMO_CONNECTIONS));
    tokio::spawn(serve(port, local_model::router(engine), CancellationToken::new()));
    Ok(Some(format!("http://{address}/v1").parse()?))
}

/// Returns the address at which this machine reaches a listener. For a listener on all addresses, that is the loopback.
fn own_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::own_address;

    #[test]
    fn a_listener_on_every_address_is_reached_at_the_loopback() {
        for (listens, reached) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("192.0.2.7:80", "192.0.2.7:80"),
        ] {
            assert_eq!(own_address(listens.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
