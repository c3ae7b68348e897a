//! The running gateway, and its shutdown, during which it refuses new requests, finishes running requests within a time
//! limit, and delivers captures.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use holds::{KeyServiceHealth, Keys, connect};
use http::Uri;
use shared::{clock::System, key::Class};
use shared_config::internal_token::InternalToken;
use shared_door::{
    serve::{Port, PublicListener, Worker, serve_on},
    tls::{PublicTls, Tls},
};
use shared_process::probe::Readiness;
use tokio::{
    task::JoinHandle,
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Options,
    parts::{Core, GatewayParts, KeyServices, peers},
    workers::WorkerThread,
};

/// How long generations may take to end after they are cut, including their settlements.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(10);
/// Interval of the readiness check for the metrics, shorter than most scrape intervals.
const LOOK_AT_READINESS: Duration = Duration::from_secs(5);
/// How long a key-service may take to answer one call, including the connection, TLS and the token.
const REACHED_WITHIN: Duration = Duration::from_secs(5);
/// How long idle connections may take to close.
const CLOSING: Duration = Duration::from_secs(2);

/// What is needed to hand over a socket that another process continues to serve.
struct HandOver {
    /// Cancelled when connections are no longer accepted.
    closed: CancellationToken,
    /// Tracks accepted connections whose first request has not arrived yet.
    arriving: TaskTracker,
}

pub struct RunningGateway {
    pub public: SocketAddr,
    keys: Keys,
    drain: Duration,
    /// For a socket that is handed over to another process: the gateway stops accepting connections before it refuses
    /// requests. `None` if connections are accepted to the end, although their requests are refused.
    hand_over: Option<HandOver>,
    /// Cancelled when new requests are no longer accepted.
    draining: CancellationToken,
    /// Cancelled when running requests must end.
    cut: CancellationToken,
    /// Cancelled when connections must close.
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
        let GatewayParts { public_tls, stopping, sizes, .. } = &parts;
        let (public_tls, stopping, bounds) = (public_tls.clone(), stopping.clone(), sizes.bounds);
        let core = Core::new(options, parts, None)?;
        let workers = (0..options.workers()).map(WorkerThread::start).collect::<io::Result<Vec<_>>>()?;
        let (mut generators, mut serving) = (Vec::new(), Vec::new());
        for worker in &workers {
            // Tasks spawned here run on the worker.
            let _entered = worker.runtime.enter();
            let (generator, handler) = core.worker();
            if generators.is_empty() {
                generator.holds.settle_spooled();
            }
            generators.push(generator);
            serving.push(Worker { runtime: worker.runtime.clone(), handler });
        }
        let (public, keys) = (listener.local_addr()?, generators[0].keys.clone());
        let Core { draining, cut, close, running, settling, .. } = core;
        tokio::spawn(show_readiness(keys.clone(), stopping.clone(), close.clone()));
        // On a socket of its own, a gateway tells clients with new connections that it is stopping. On a shared socket,
        // another process can serve them.
        let closed = if is_handed_over { CancellationToken::new() } else { close.clone() };
        let port = Port {
            tls: public_tls.as_ref().map(PublicTls::port),
            leaving: stopping,
            closed: closed.clone(),
            drain: CLOSING,
            ..Port::new(listener, bounds)
        };
        let hand_over = is_handed_over.then(|| HandOver { closed, arriving: port.arriving.clone() });
        let serving = tokio::spawn(serve_on(port, serving, close.clone()));
        let drain = options.drain;
        Ok(Self { public, keys, drain, hand_over, draining, cut, close, running, settling, serving, workers })
    }

    /// Reports ready while a key-service answers.
    pub fn readiness(&self) -> Readiness {
        let keys = self.keys.clone();
        Arc::new(move || {
            let keys = keys.clone();
            Box::pin(async move { is_ready(&keys).await.map(|()| None) })
        })
    }

    /// Refuses new requests, finishes running requests within the configured time or cuts them, and delivers the
    /// remaining settlements.
    pub async fn stop(self) -> io::Result<()> {
        let Self { drain, hand_over, draining, cut, close, running, settling, serving, workers, .. } = self;
        if let Some(HandOver { closed, arriving }) = hand_over {
            closed.cancel();
            // The deadline for the first head limits this wait.
            arriving.wait().await;
        }
        draining.cancel();
        running.close();
        if timeout(drain, running.wait()).await.is_err() {
            tracing::warn!(requests = running.len(), "ending requests that did not finish in time");
            cut.cancel();
            if timeout(LAST_SETTLEMENTS, running.wait()).await.is_err() {
                tracing::error!(requests = running.len(), "requests did not end; their holds will expire");
            }
        }
        settling.close();
        if timeout(LAST_SETTLEMENTS, settling.wait()).await.is_err() {
            tracing::error!(
                settlements = settling.len(),
                "stopping with undelivered settlements; captures in the spool are delivered after the next start, and \
                 other holds expire"
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

/// Fails unless a key-service answers. The credential does not matter, since any answer shows that the key-service is
/// running.
async fn is_ready(keys: &Keys) -> Result<(), String> {
    let answered = keys.authenticate("", Class::Api).await;
    answered.map(drop).map_err(|_| "no key-service answers".to_owned())
}

/// Reports in the metrics whether the gateway is ready, until `close`.
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

/// Checks that one key-service answers calls with this token, or returns why not.
pub async fn reach(address: Uri, token: &InternalToken, tls: Option<&Tls>) -> Result<(), String> {
    let peers = peers(KeyServices::Remote(vec![address]), token, tls, None).map_err(|e| e.to_string())?;
    let keys = connect(peers, &Arc::new(KeyServiceHealth::new(1)), Arc::new(System));
    match timeout(REACHED_WITHIN, is_ready(&keys)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err("it does not answer".to_owned()),
    }
}
