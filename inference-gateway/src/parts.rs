//! The parts of a gateway. All workers share `Core`; each worker has its own instances of the other parts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admission::Admission;
use holds::{Holds, KeyServiceHealth, Peer, Spool, connect};
use http::Uri;
use shared::{clock::Clock, key::Prefix};
use shared_client::dial::Dial;
use shared_config::{ConfigError, internal_token::InternalToken};
use shared_door::{
    serve::Handler,
    tls::{PublicTls, Tls},
};
use shared_rpc::{KeyService, PresentToken};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Endpoint;
use upstreams::{OfferedModels, UpstreamClient};

use crate::{
    config::Options,
    generation::Generator,
    http::{App, Management, routes},
    sizes::Sizes,
};

pub struct GatewayParts {
    pub clock: Arc<dyn Clock>,
    pub models: Arc<OfferedModels>,
    pub prefix: Prefix,
    pub key_services: KeyServices,
    /// Token with which the services authenticate to each other.
    pub internal_token: InternalToken,
    /// Addresses of the key-services' HTTP listeners; never empty.
    pub key_service_http: Vec<Uri>,
    /// TLS of the public port, if configured.
    pub public_tls: Option<PublicTls>,
    /// TLS to the key-services, if used.
    pub tls: Option<Tls>,
    pub sizes: Sizes,
    /// Cancelled when `/health` must report that the gateway is stopping.
    pub stopping: CancellationToken,
    /// Directory for the spool of captures, if any.
    pub data_dir: Option<PathBuf>,
}

/// The key-services that authorize and bill.
pub enum KeyServices {
    /// The key-services are other processes, which are called over gRPC at these addresses. The list is never empty.
    Remote(Vec<Uri>),
    /// The key-service is in this process, and is called directly.
    Local(Arc<dyn KeyService>),
}

/// Parts shared by a gateway's workers.
pub(crate) struct Core {
    options: Options,
    clock: Arc<dyn Clock>,
    models: Arc<OfferedModels>,
    prefix: Prefix,
    peers: Vec<Peer>,
    health: Arc<KeyServiceHealth>,
    management: Arc<Management>,
    admission: Admission,
    stopping: CancellationToken,
    /// In a simulation, this makes all connections, instead of TCP.
    dial: Option<Arc<dyn Dial>>,
    pub(crate) spool: Option<Spool>,
    /// Cancelled when new requests are no longer accepted.
    pub(crate) draining: CancellationToken,
    /// Cancelled when running requests must end.
    pub(crate) cut: CancellationToken,
    /// Cancelled when connections must close.
    pub(crate) close: CancellationToken,
    pub(crate) running: TaskTracker,
    pub(crate) settling: TaskTracker,
}

impl Core {
    /// Opens the spool, but starts nothing. With `dial`, which only a simulation has, the spool has no thread.
    pub(crate) fn new(
        options: &Options,
        parts: GatewayParts,
        dial: Option<Arc<dyn Dial>>,
    ) -> Result<Self, ConfigError> {
        let (token, tls) = (parts.internal_token, parts.tls.as_ref());
        let peers = peers(parts.key_services, &token, tls, dial.as_ref())?;
        let health = Arc::new(KeyServiceHealth::new(peers.len()));
        let management = Arc::new(management(parts.key_service_http, &health, tls, token)?);
        let spool = open_spool(parts.data_dir.as_deref(), &parts.clock, dial.is_none())?;
        let [draining, cut, close] = [(); 3].map(|()| CancellationToken::new());
        Ok(Self {
            options: options.clone(),
            clock: parts.clock,
            models: parts.models,
            prefix: parts.prefix,
            peers,
            health,
            management,
            admission: Admission::new(&parts.sizes.admission),
            stopping: parts.stopping,
            dial,
            spool,
            draining,
            cut,
            close,
            running: TaskTracker::new(),
            settling: TaskTracker::new(),
        })
    }

    /// Starts a worker on the entered runtime: its sessions, its holds, and a handler of requests.
    pub(crate) fn worker(&self) -> (Arc<Generator>, Handler) {
        let options = &self.options;
        let keys = connect(self.peers.clone(), &self.health, self.clock.clone());
        let holds = Holds::new(keys.clone(), self.spool.clone(), self.settling.clone());
        tokio::spawn(holds.clone().heartbeat(self.close.clone()));
        let generator = Arc::new(Generator {
            clock: self.clock.clone(),
            keys,
            holds,
            http: UpstreamClient::new(self.dial.clone()),
            running: self.running.clone(),
            cut: self.cut.clone(),
            client_stall: options.client_stall,
            admission: self.admission.clone(),
            answer_deadline: options.answer_deadline,
            upstream_silence: options.upstream_silence,
        });
        let app = App {
            generator: generator.clone(),
            models: self.models.clone(),
            prefix: self.prefix.clone(),
            max_body: options.max_body_bytes(),
            management: self.management.clone(),
            proxy_trusted: options.trust_proxy,
            public_operator: options.public_operator,
            stopping: self.stopping.clone(),
            draining: self.draining.clone(),
        };
        (generator, routes(Arc::new(app)))
    }
}

/// Returns the key-services in the form that sessions need.
pub(crate) fn peers(
    key_services: KeyServices,
    token: &InternalToken,
    tls: Option<&Tls>,
    dial: Option<&Arc<dyn Dial>>,
) -> Result<Vec<Peer>, ConfigError> {
    let addresses = match key_services {
        KeyServices::Local(service) => return Ok(vec![Peer::Local(service)]),
        KeyServices::Remote(addresses) => addresses,
    };
    let peers = addresses.into_iter().map(|uri| {
        check_scheme("FAREGATE_KEY_SERVICE_URL", &uri, tls)?;
        let token = PresentToken(token.clone());
        Ok(Peer::remote(Endpoint::from(uri), tls.cloned(), token, dial.cloned()))
    });
    peers.collect()
}

/// Makes the client of the key-services' HTTP. If one address stands for several key-services, the health of the
/// sessions says nothing about their HTTP ports, so the client ignores it.
fn management(
    addresses: Vec<Uri>,
    health: &Arc<KeyServiceHealth>,
    tls: Option<&Tls>,
    token: InternalToken,
) -> Result<Management, ConfigError> {
    for uri in &addresses {
        check_scheme("FAREGATE_KEY_SERVICE_HTTP_URL", uri, tls)?;
    }
    let matching = addresses.len() == health.count();
    let health = if matching { health.clone() } else { Arc::new(KeyServiceHealth::new(addresses.len())) };
    Ok(Management::new(addresses, health, tls, token))
}

/// Opens the spool in this directory, if any.
fn open_spool(
    directory: Option<&Path>,
    clock: &Arc<dyn Clock>,
    has_thread: bool,
) -> Result<Option<Spool>, ConfigError> {
    let open = if has_thread { Spool::open } else { Spool::open_without_thread };
    let spool = directory.map(|directory| open(directory, clock.clone())).transpose();
    spool.map_err(|e| ConfigError::new("FAREGATE_DATA_DIR", e))
}

/// Checks that an address matches the TLS settings. Otherwise calls would be refused, or be sent unencrypted.
fn check_scheme(setting: &'static str, uri: &Uri, tls: Option<&Tls>) -> Result<(), ConfigError> {
    let reason = match (tls, uri.scheme_str()) {
        (Some(_), Some("https")) | (None, Some("http")) => return Ok(()),
        (Some(_), _) => "must begin with https://, since FAREGATE_INTERNAL_TLS_CA is set",
        (None, Some("https")) => "begins with https://, so FAREGATE_INTERNAL_TLS_CA must be set",
        (None, _) => "must begin with http://",
    };
    Err(ConfigError::new(setting, format!("{uri} {reason}")))
}
