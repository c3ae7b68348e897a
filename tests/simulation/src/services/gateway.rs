//! A gateway: the real one, called directly instead of through a port.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use clap::Parser;
use inference_gateway::{
    config::Options,
    parts::{GatewayParts, KeyServices},
    simulated::SimulatedGateway,
    sizes::Sizes,
};
use shared::key::Prefix;
use shared_catalog::Catalog;
use shared_config::internal_token::{InternalToken, InternalTokens};
use shared_door::limits::LimitOptions;
use tokio_util::sync::CancellationToken;
use upstreams::OfferedModels;

use crate::{
    chance::clock::ProcessClock,
    services::{
        network::{Network, NetworkOf},
        process::Process,
    },
};

pub(crate) const LEASE: Duration = Duration::from_secs(12);
/// Token for calls between the services.
const INTERNAL_TOKEN: &str = "a-token-between-the-services";

/// The settings of every gateway.
#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    limits: LimitOptions,
}

pub(crate) fn internal_token() -> InternalToken {
    InternalToken::new(InternalTokens::new(INTERNAL_TOKEN.into(), None).unwrap())
}

/// Returns the options and sizes, which are read once.
fn settings() -> &'static (Options, Sizes) {
    static SETTINGS: OnceLock<(Options, Sizes)> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let arguments = ["gateway", "--memory-mib", "1024", "--max-in-flight", "64", "--workers", "1"];
        let short = ["--answer-seconds", "5", "--upstream-silence-seconds", "4"];
        let Settings { options, limits } = Settings::parse_from(arguments.into_iter().chain(short));
        let sizes = Sizes::of(&options, &limits.raise(), 1, 0).unwrap();
        (options, sizes)
    })
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) process: Arc<Process>,
    pub(crate) gateway: SimulatedGateway,
}

/// Starts a gateway at a place, with a directory for its spool.
pub(crate) fn start(
    place: &str,
    network: &Arc<Network>,
    clock: Arc<ProcessClock>,
    catalog: &Catalog,
    (key_services, data_dir): (&[&str], PathBuf),
) -> Gateway {
    let process = Process::new(place);
    let (options, sizes) = settings();
    let addresses =
        |port: u16| key_services.iter().map(move |host| format!("http://{host}:{port}").parse().unwrap());
    let parts = GatewayParts {
        clock,
        models: Arc::new(OfferedModels::unchecked(catalog.clone(), None).unwrap()),
        prefix: Prefix::parse("fg").unwrap(),
        key_services: KeyServices::Remote(addresses(50051).collect()),
        internal_token: internal_token(),
        key_service_http: addresses(8081).collect(),
        public_tls: None,
        tls: None,
        sizes: *sizes,
        stopping: CancellationToken::new(),
        data_dir: Some(data_dir),
    };
    let dial = Arc::new(NetworkOf { network: network.clone(), process: process.clone() });
    let gateway = SimulatedGateway::start(options, parts, dial).unwrap();
    Gateway { process, gateway }
}
