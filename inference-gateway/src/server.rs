//! The running gateway and its shutdown: refuses new requests, finishes running requests within a bound, and delivers
//! captures.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::Uri;
use shared::{
    clock::{Clock, System},
    key::{Class, Prefix},
};
use shared_config::{ConfigError, internal_token::InternalToken};
use shared_door::{
    serve::{Port, PublicListener, Worker, serve_on},
    tls::{PublicTls, Tls},
};
use shared_process::probe::Readiness;
use shared_rpc::{KeyService, PresentToken};
use tokio::{
    task::JoinHandle,
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Endpoint;

use crate::{
    admission::Admission,
    config::Options,
    generation::Generator,
    hold::{Holds, Spool},
    http::{App, Management, routes},
    keys::{KeyServiceHealth, Keys, Peers, connect},
    models::OfferedModels,
    sizes::Sizes,
    upstream::UpstreamClient,
    workers::WorkerThread,
};

/// Time for cut generations to end and for settlements to be delivered.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(10);
/// Interval at which the gateway looks whether it is ready, for its metrics: shorter than that of most scrapes.
const LOOK_AT_READINESS: Duration = Duration::from_secs(5);
/// Longest time for a key-service to answer a single question: connecting, TLS and the token included.
const REACHED_WITHIN: Duration = Duration::from_secs(5);
/// Time for idle connections to close.
const CLOSING: Duration = Duration::from_secs(2);

/// Dependencies of a gateway.
pub struct GatewayParts {
    /// Source of time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The models.
    pub models: Arc<OfferedModels>,
    /// The prefix of every key.
    pub prefix: Prefix,
    /// The key-services.
    pub key_services: KeyServices,
    /// Token in the calls between the services.
    pub internal_token: InternalToken,
    /// Addresses of the key-services' HTTP listeners; never empty.
    pub key_service_http: Vec<Uri>,
    /// TLS of the public port, if configured.
    pub public_tls: Option<PublicTls>,
    /// TLS to the key-services, if used.
    pub tls: Option<Tls>,
    /// Sizes of the budgets.
    pub sizes: Sizes,
    /// Cancelled when `/health` is to say that the gateway stops.
    pub stopping: CancellationToken,
    /// Directory for the spool of captures, if any.
    pub data_dir: Option<PathBuf>,
}

/// The key-services that authorize and bill.
pub enum KeyServices {
    /// In other processes, over gRPC, at these addresses; never empty.
    Remote(Vec<Uri>),
    /// In this process.
    Local(Arc<dyn KeyService>),
}

/// End of a socket that another program goes on to serve.
struct HandOver {
    /// Cancelled when no connection is accepted any more.
    closed: CancellationToken,
    /// Accepted connections whose first request has not arrived.
    arriving: TaskTracker,
}

/// A running gateway.
pub struct RunningGateway {
    /// The public address.
    pub public: SocketAddr,
    keys: Keys,
    drain: Duration,
    /// Ends the acceptance of connections before requests are refused; `None` where connections are accepted, and refused, to the end.
    hand_over: Option<HandOver>,
    /// Cancelled when no new requests are accepted.
    draining: CancellationToken,
    /// Cancelled when running requests have to end.
    cut: CancellationToken,
    /// Cancelled when the connections have to close.
    close: CancellationToken,
    running: TaskTracker,
    settling: TaskTracker,
    serving: JoinHandle<()>,
    workers: Vec<WorkerThread>,
}

impl RunningGateway {
    /// Binds the public address and serves until [`RunningGateway::stop`].
    pub fn start(options: &Options, parts: GatewayParts) -> anyhow::Result<Self> {
        let PublicListener { listener, is_handed_over } =
            PublicListener::open("FAREGATE_LISTEN", options.listen)?;
        let peers = peers(parts.key_services, parts.internal_token.clone(), parts.tls.as_ref())?;
        let health = Arc::new(KeyServiceHealth::new(peers.count()));
        let management =
            Arc::new(management(parts.key_service_http, &health, parts.tls.as_ref(), parts.internal_token)?);
        let spool = open_spool(parts.data_dir.as_deref(), &parts.clock)?;
        let admission = Admission::new(&parts.sizes);
        let (running, settling) = (TaskTracker::new(), TaskTracker::new());
        let [draining, cut, close] = [(); 3].map(|()| CancellationToken::new());
        let workers = (0..options.workers()).map(WorkerThread::start).collect::<io::Result<Vec<_>>>()?;
        let (mut generators, mut serving) = (Vec::new(), Vec::new());
        for worker in &workers {
            // Tasks spawned here run on the worker.
            let _entered = worker.runtime.enter();
            let keys = connect(peers.clone(), &health, parts.clock.clone());
            let holds = Holds::new(keys.clone(), spool.clone(), settling.clone());
            tokio::spawn(holds.clone().heartbeat(close.clone()));
            if generators.is_empty() {
                holds.settle_spooled();
            }
            let generator = Arc::new(Generator {
                clock: parts.clock.clone(),
                keys,
                holds,
                http: UpstreamClient::new(),
                running: running.clone(),
                cut: cut.clone(),
                client_stall: options.client_stall(),
                admission: admission.clone(),
                answer_deadline: options.answer_deadline(),
                upstream_silence: options.upstream_silence(),
            });
            generators.push(generator.clone());
            let app = App {
                generator,
                models: parts.models.clone(),
                prefix: parts.prefix.clone(),
                max_body: options.max_body_bytes(),
                management: management.clone(),
                proxy_trusted: options.trust_proxy,
                stopping: parts.stopping.clone(),
                draining: draining.clone(),
            };
            serving.push(Worker { runtime: worker.runtime.clone(), handler: routes(Arc::new(app)) });
        }
        let (public, keys) = (listener.local_addr()?, generators[0].keys.clone());
        tokio::spawn(show_readiness(keys.clone(), parts.stopping.clone(), close.clone()));
        // Connections to a socket of our own are answered that the gateway stops; others may have a better answer.
        let closed = if is_handed_over { CancellationToken::new() } else { close.clone() };
        let port = Port {
            tls: parts.public_tls.as_ref().map(PublicTls::port),
            leaving: parts.stopping,
            closed: closed.clone(),
            drain: CLOSING,
            ..Port::new(listener, parts.sizes.bounds)
        };
        let hand_over = is_handed_over.then(|| HandOver { closed, arriving: port.arriving.clone() });
        let serving = tokio::spawn(serve_on(port, serving, close.clone()));
        let drain = options.drain();
        Ok(Self { public, keys, drain, hand_over, draining, cut, close, running, settling, serving, workers })
    }

    /// Reports readiness while a key-service answers.
    pub fn readiness(&self) -> Readiness {
        let keys = self.keys.clone();
        Arc::new(move || {
            let keys = keys.clone();
            Box::pin(async move { is_ready(&keys).await })
        })
    }

    /// Refuses new requests, finishes running requests within the configured bound or cuts them, and delivers the
    /// remaining settlements.
    pub async fn stop(self) -> io::Result<()> {
        let Self { drain, hand_over, draining, cut, close, running, settling, serving, workers, .. } = self;
        if let Some(HandOver { closed, arriving }) = hand_over {
            closed.cancel();
            // The deadline of a first head bounds the wait.
            arriving.wait().await;
        }
        draining.cancel();
        running.close();
        if timeout(drain, running.wait()).await.is_err() {
            tracing::warn!(requests = running.len(), "cutting what did not finish in time");
            cut.cancel();
            if timeout(LAST_SETTLEMENTS, running.wait()).await.is_err() {
                tracing::error!(requests = running.len(), "requests did not end; their holds will expire");
            }
        }
        settling.close();
        if timeout(LAST_SETTLEMENTS, settling.wait()).await.is_err() {
            tracing::error!(
                settlements = settling.len(),
                "stopping before everything was delivered; captures in the spool follow at the next start, other holds expire"
            );
        }
        close.cancel();
        serving.await?;
        for worker in workers {
            worker.stop();
        }
        Ok(())
    }
}

/// Fails unless a key-service answers. Any credential will do: only the existence of an answer matters.
async fn is_ready(keys: &Keys) -> Result<(), String> {
    let answered = keys.authenticate("", Class::Api).await;
    answered.map(drop).map_err(|_| "no key-service answers".to_owned())
}

/// Shows in the metrics whether the gateway is ready, until `close`.
async fn show_readiness(keys: Keys, stopping: CancellationToken, close: CancellationToken) {
    let (ready, mut ticks) = (metrics::gauge!("gateway_ready"), interval(LOOK_AT_READINESS));
    loop {
        tokio::select! {
            () = close.cancelled() => return,
            () = stopping.cancelled() => break,
            _ = ticks.tick() => {}
        }
        let is_ready = tokio::select! {
            () = stopping.cancelled() => break,
            is_ready = is_ready(&keys) => is_ready,
        };
        ready.set(if is_ready.is_ok() { 1.0 } else { 0.0 });
    }
    ready.set(0.0);
}

/// Asks one key-service whether it answers calls with this token, or says why not.
pub async fn reach(address: Uri, token: InternalToken, tls: Option<&Tls>) -> Result<(), String> {
    let peers = peers(KeyServices::Remote(vec![address]), token, tls).map_err(|e| e.to_string())?;
    let keys = connect(peers, &Arc::new(KeyServiceHealth::new(1)), Arc::new(System));
    match timeout(REACHED_WITHIN, is_ready(&keys)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err("it does not answer".to_owned()),
    }
}

fn peers(key_services: KeyServices, token: InternalToken, tls: Option<&Tls>) -> Result<Peers, ConfigError> {
    Ok(match key_services {
        KeyServices::Local(service) => Peers::Local(service),
        KeyServices::Remote(addresses) => {
            let addresses = addresses.into_iter().map(|uri| {
                check_scheme("FAREGATE_KEY_SERVICE_URL", &uri, tls)?;
                Ok(Endpoint::from(uri))
            });
            let addresses = addresses.collect::<Result<_, ConfigError>>()?;
            Peers::Remote { addresses, tls: tls.cloned(), token: PresentToken(token) }
        }
    })
}

/// Makes the client of the key-services' HTTP. Where an address stands for several key-services, the health of sessions
/// says nothing about HTTP.
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
fn open_spool(directory: Option<&Path>, clock: &Arc<dyn Clock>) -> Result<Option<Spool>, ConfigError> {
    let spool = directory.map(|directory| Spool::open(directory, clock.clone())).transpose();
    spool.map_err(|e| ConfigError::new("FAREGATE_DATA_DIR", e))
}

/// Checks that an address matches the settings of TLS. Otherwise calls would be refused, or be sent unencrypted.
fn check_scheme(setting: &'static str, uri: &Uri, tls: Option<&Tls>) -> Result<(), ConfigError> {
    let reason = match (tls, uri.scheme_str()) {
        (Some(_), Some("https")) | (None, Some("http")) => return Ok(()),
        (Some(_), _) => "must begin with https://, since FAREGATE_INTERNAL_TLS_CA is set",
        (None, Some("https")) => "begins with https://, so FAREGATE_INTERNAL_TLS_CA must be set",
        (None, _) => "must begin with http://",
    };
    Err(ConfigError::new(setting, format!("{uri} {reason}")))
}
