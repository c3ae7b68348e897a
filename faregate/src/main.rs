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
    operator::Operator,
    server::{KeyServiceParts, RunningKeyService},
};
use key_service_cli::{Catalogue, OperatorCommand};
use mimalloc::MiMalloc;
use shared::clock::{Clock, System};
use shared_catalog::{Catalog, UpstreamKind};
use shared_config::{Common, current::Current, internal_token::InternalToken};
use shared_door::{
    limits::Limits,
    serve::{Port, serve},
    tls::{PublicTls, PublicTlsOptions},
};
use shared_observe::metrics::Exported;
use shared_process::{
    Basics, CommandLine, Process, ServiceOptions,
    doctor::{Doctor, DoctorOptions, InternalTokenOf},
    reload_on_hangup,
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

/// Number of requests that the demo model accepts at once. Further requests are refused and can be retried.
const DEMO_REQUESTS: usize = 64;
/// Number of connections to the demo model: one for each request, and as many idle connections.
const DEMO_CONNECTIONS: usize = 2 * DEMO_REQUESTS;
/// Number of ports that share the connections: the public port, and the key-service's ports with all internal callers,
/// which together count as one port.
const PORTS: usize = 2;
/// Number of open files that are not client connections: the store's files, and both ends of the connections to the
/// demo model.
const OTHER_FILES: usize = 64 + 2 * DEMO_CONNECTIONS;

/// Prepaid API keys for language models. Without a command, it serves.
#[derive(Parser)]
#[command(name = "faregate", version = shared_process::version())]
struct FaregateArguments {
    #[command(flatten)]
    service: ServiceOptions,

    #[command(flatten)]
    gateway: inference_gateway::config::Options,

    #[command(flatten)]
    key_service: key_service::config::Options,

    #[command(flatten)]
    public_tls: PublicTlsOptions,

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
    fn basics(&self) -> (&Basics, SocketAddr, &'static str) {
        self.service.basics()
    }
}

// The tasks of the key-service run on one thread, as in a process of their own: they wake each other at every call, and
// with two threads they would do so across cores. The gateway's workers, the embedded store and the demo model have
// threads of their own.
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
    let FaregateArguments { service, gateway, key_service: options, public_tls, .. } = &arguments;
    match command {
        FaregateCommand::Init(options) => init::run(*options, &System).await?,
        FaregateCommand::Upstreams(command) => {
            command.run(&service.admin(Some(&options.data_dir)), &mut io::stdout()).await?;
        }
        FaregateCommand::Operator(command) => {
            let operator = Operator { service, options, program: env!("CARGO_PKG_NAME") };
            let peppers = |of| secrets::peppers(of, &service.common, options, &System);
            let default_url = || format!("{}://{}", public_tls.scheme(), own_address(gateway.listen));
            let examine = async |asked| examine(&arguments, &asked).await;
            let asks = matches!(command, OperatorCommand::Catalogue(Catalogue::Check { ask: true, .. }));
            let done = operator.carry_out(command, peppers, default_url, examine).await;
            if asks {
                let admin = service.admin(Some(&arguments.key_service.data_dir));
                upstream_list::write_odd_answers(&admin, &mut io::stdout()).await?;
            }
            return done;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `doctor`, which makes every check that is made at a start, and reports the results.
async fn examine(arguments: &FaregateArguments, asked: &DoctorOptions) -> anyhow::Result<ExitCode> {
    let FaregateArguments { service, gateway, key_service, public_tls, .. } = arguments;
    let connections = |doctor: &mut Doctor, limits: &mut Limits| {
        limits.over_tls = doctor.public_tls(public_tls).is_some();
        Sizes::of(gateway, limits, PORTS, OTHER_FILES).map(|sizes| sizes.bounds.connections)
    };
    let own = async |doctor: &mut Doctor| {
        let peppers = secrets::found_peppers(key_service);
        key_service::doctor::examine(doctor, &service.common, key_service, peppers, Arc::new(System)).await;
    };
    let token = InternalTokenOf::SettingsOrDataDirectory;
    Ok(Doctor::examine(service, token, asked, connections, own).await?)
}

async fn serve_all(arguments: FaregateArguments) -> anyhow::Result<()> {
    let FaregateArguments { service, gateway, key_service, public_tls, .. } = arguments;
    let clock: Arc<dyn Clock> = Arc::new(System);
    let secrets = secrets::open(&service.common, &key_service, &*clock)?;
    let scheme = public_tls.scheme();
    let mut process = Process::start(&service, Some(&key_service.data_dir), &EXPORTED)?;
    let (common, public_tls) = (service.common, public_tls.open()?);
    process.limits.over_tls = public_tls.is_some();
    let sizes = Sizes::of(&gateway, &process.limits, PORTS, OTHER_FILES)?;
    let (models, catalog) = offer_models(&common, &clock, &process.limits).await?;
    let (offered, priced) = (models.clone(), catalog.clone());
    reload_on_hangup(&common, [public_tls.as_ref().map(PublicTls::rereads)], move |catalog| {
        offered.replace(catalog.clone())?;
        priced.replace(catalog);
        Ok(())
    });
    let internal_token = InternalToken::new(secrets.internal_token);
    process.admin_routes = upstream_list::admin_routes(models.clone(), clock.clone());
    let stopping = process.stopping.clone();
    let parts = KeyServiceParts {
        clock: clock.clone(),
        peppers: secrets.peppers,
        catalog: catalog.clone(),
        internal_token: internal_token.clone(),
        tls: None,
        clients_use_tls: public_tls.is_some(),
        // The key-service's two ports, with all internal callers, together get the share of one port.
        bounds: process.limits.connections.bounds(sizes.bounds.connections / 4),
    };
    let started = RunningKeyService::start(process, &common, &key_service, parts).await?;
    let Some((process, running)) = started else { return Ok(()) };
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
    running.started();
    let installation = &running.installation;
    let first = FirstRun::prepare(installation.management()).await?;
    let public_url = installation.public_url(|| format!("{scheme}://{}", own_address(gateway.public)));
    let addresses = welcome::Addresses::of(scheme, &gateway, &running, process.admin_address);
    let announce = |out: &mut StdoutLock<'_>| {
        welcome::print(out, &addresses, &public_url, &catalog.get(), first.as_ref())
    };
    let drain = async || {
        gateway.stop().await?;
        running.stop().await;
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
    // The demo model ends with the process, once its requests have drained.
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
