//! The running gateway, and its end: nothing new, running requests finish within a bound, captures are delivered.

use std::{collections::HashMap, io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use http::Uri;
use shared::{
    catalog::Catalog,
    clock::Clock,
    config::ConfigError,
    key::Prefix,
    rpc::{PresentToken, tls::Tls},
    secret::SecretString,
    serve::{bind, serve},
    telemetry::Readiness,
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Endpoint;

use crate::{
    config::Options,
    http::{App, Management, router},
    keys::{Endpoints, connect},
    room::Rooms,
    settler::Settler,
    upstream::{Pool, http_client},
};

/// How long generations that had to be cut may take to end, and what is owed to be delivered.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long open connections may take to close once nothing runs on them.
const CLOSING: Duration = Duration::from_secs(2);

/// What the gateway is made of.
pub struct Parts {
    /// Time and chance.
    pub clock: Arc<dyn Clock>,
    /// The models.
    pub catalog: Arc<Catalog>,
    /// What every key starts with.
    pub prefix: Prefix,
    /// What calls between the services carry.
    pub internal_token: SecretString,
    /// Where key-services speak gRPC; at least one.
    pub key_services: Vec<Uri>,
    /// Where key-services speak HTTP; at least one.
    pub key_service_http: Vec<Uri>,
    /// How it is spoken to them, if it is TLS.
    pub tls: Option<Tls>,
    /// Where the built-in model listens, if it runs.
    pub builtin: Option<Uri>,
}

/// A running gateway.
pub struct Server {
    /// The public address.
    pub public: SocketAddr,
    app: Arc<App>,
    drain: Duration,
    close: CancellationToken,
    serving: JoinHandle<()>,
    settling: JoinHandle<()>,
}

impl Server {
    /// Binds the public address and serves until [`Server::stop`].
    pub async fn start(options: &Options, parts: Parts) -> anyhow::Result<Self> {
        let listener = bind("FAREGATE_LISTEN", options.listen).await?;
        let token = PresentToken::new(&parts.internal_token);
        let token = token.context("FAREGATE_INTERNAL_TOKEN: has characters that a header cannot carry")?;
        let tls = parts.tls.as_ref();
        for uri in &parts.key_service_http {
            check_scheme("FAREGATE_KEY_SERVICE_HTTP_URL", uri, tls)?;
        }
        let addresses = parts.key_services.into_iter().map(|uri| endpoint(uri, tls));
        let keys = connect(Endpoints { addresses: addresses.collect::<Result<_, _>>()?, token });
        let (settler, settling) = Settler::start(keys.clone(), options.max_in_flight as usize);
        let client = http_client();
        let mut pools = HashMap::new();
        for model in &parts.catalog.models {
            pools.insert(model.id.clone(), Pool::new(model, &client, parts.builtin.as_ref())?);
        }
        let app = Arc::new(App {
            clock: parts.clock,
            keys,
            settler,
            catalog: parts.catalog,
            pools,
            prefix: parts.prefix,
            max_body: options.max_body_bytes(),
            rooms: Rooms::new(options.max_prompts_bytes()?),
            management: Management::new(parts.key_service_http, tls),
            generations: TaskTracker::new(),
            draining: CancellationToken::new(),
            cut: CancellationToken::new(),
        });
        let close = CancellationToken::new();
        let public = listener.local_addr()?;
        let serving = tokio::spawn(serve(listener, router(app.clone()), close.clone(), CLOSING));
        Ok(Self { public, app, drain: options.drain(), close, serving, settling })
    }

    /// Ready while a key-service answers.
    pub fn readiness(&self) -> Readiness {
        let keys = self.app.keys.clone();
        Arc::new(move || {
            let keys = keys.clone();
            // What is asked does not matter: nobody has this credential.
            Box::pin(async move { keys.authenticate("").await.is_ok() })
        })
    }

    /// Refuses what comes, lets what runs finish within the configured bound, then cuts it, and delivers what is owed.
    pub async fn stop(self) -> io::Result<()> {
        let Self { public: _, app, drain, close, serving, settling } = self;
        app.draining.cancel();
        app.generations.close();
        if timeout(drain, app.generations.wait()).await.is_err() {
            tracing::warn!(generations = app.generations.len(), "cutting what did not finish in time");
            app.cut.cancel();
            // Those that do not end even now are dropped with the runtime; their meters settle on the way.
            let _ = timeout(LAST_WORDS, app.generations.wait()).await;
        }
        close.cancel();
        serving.await?;
        drop(app);
        if timeout(LAST_WORDS, settling).await.is_err() {
            tracing::error!("stopping before everything was delivered; open holds will expire");
        }
        Ok(())
    }
}

/// Where a key-service speaks gRPC, and how.
fn endpoint(uri: Uri, tls: Option<&Tls>) -> Result<Endpoint, ConfigError> {
    const SETTING: &str = "FAREGATE_KEY_SERVICE_URL";
    check_scheme(SETTING, &uri, tls)?;
    let endpoint = Endpoint::from(uri);
    match tls {
        Some(tls) => endpoint.tls_config(tls.grpc_client()).map_err(|e| ConfigError::new(SETTING, e)),
        None => Ok(endpoint),
    }
}

/// An address that says otherwise than the settings of TLS is a mistake: calls would be refused, or not be secret.
fn check_scheme(setting: &'static str, uri: &Uri, tls: Option<&Tls>) -> Result<(), ConfigError> {
    let reason = match (tls, uri.scheme_str()) {
        (Some(_), Some("https")) | (None, Some("http")) => return Ok(()),
        (Some(_), _) => "must begin with https://, since FAREGATE_INTERNAL_TLS_CA is set",
        (None, Some("https")) => "begins with https://, so FAREGATE_INTERNAL_TLS_CA must be set",
        (None, _) => "must begin with http://",
    };
    Err(ConfigError::new(setting, format!("{uri} {reason}")))
}
