//! Starts and stops the servers and tasks of the key-service.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::middleware;
use shared::{clock::Clock, served::ServedHosts};
use shared_catalog::Catalog;
use shared_config::{Common, current::Current, internal_token::InternalToken};
use shared_door::{
    serve::{Bounds, DRAIN, Port, bind, serve},
    tls::Tls,
};
use shared_process::{Process, Serving, starting::Starting};
use shared_rpc::{KeyService, RequireToken, v1::key_service_server::KeyServiceServer};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::{Routes, interceptor::InterceptedService};

use crate::{
    config::Options,
    installation::{Installation, InstallationParts},
};
use domain::digest::Peppers;
use key_service_deliveries::{AlertParts, Alerts, Dispatcher, Sender};
use key_service_operator::ProgramFacts;
use key_service_page::app::Site;
use key_service_spending::{
    grpc::{Grpc, deadline::drop_late_calls},
    held_money,
    service::Service,
    sweeper,
};

pub struct KeyServiceParts {
    pub clock: Arc<dyn Clock>,
    pub peppers: Peppers,
    pub catalog: Arc<Current<Catalog>>,
    pub internal_token: InternalToken,
    /// TLS settings of both listeners, if TLS is configured.
    pub tls: Option<Tls>,
    /// Whether clients use TLS even if the public address does not say so.
    pub clients_use_tls: bool,
    /// Limits on the connections of each listener.
    pub bounds: Bounds,
}

pub struct RunningKeyService {
    /// Address of the management API and the dashboard.
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    /// Service for a gateway in the same process.
    pub service: Arc<dyn KeyService>,
    pub installation: Installation,
    starting: Starting,
    /// Ends the servers and tasks when cancelled.
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl RunningKeyService {
    /// Answers probes at once, waits for the store, and then serves until the process stops. Returns `None` if the
    /// process stops before the store answers.
    pub async fn start(
        process: Process,
        common: &Common,
        options: &Options,
        parts: KeyServiceParts,
    ) -> anyhow::Result<Option<(Serving, Self)>> {
        let (starting, shutdown) = (Starting::new("starting"), process.shutdown.clone());
        let program =
            ProgramFacts { version: shared_process::version(), metrics: Arc::new(process.metrics_reader()) };
        let mut process = process.serve(starting.readiness())?;
        let (peppers, clock, catalog) =
            (parts.peppers.clone(), parts.clock.clone(), Some(parts.catalog.clone()));
        let of_installation = InstallationParts { peppers, clock, catalog };
        let installation = tokio::select! {
            opened = Installation::open_when_up(common, options, of_installation, &starting) => opened?,
            () = process.stop.arrival() => return Ok(None),
        };
        let KeyServiceParts { bounds, catalog, internal_token, tls, clients_use_tls, .. } = parts;
        let Installation { store, clock, credentials, management, .. } = installation.clone();
        let mailer = options.mail.mailer()?;
        let http_listener = bind("FAREGATE_KEY_HTTP_LISTEN", options.key_http_listen)?;
        let grpc_listener = bind("FAREGATE_KEY_GRPC_LISTEN", options.key_grpc_listen)?;
        let (http_at, grpc_at) = (http_listener.local_addr()?, grpc_listener.local_addr()?);

        let lease = options.hold_lease;
        let service = Service::new(store.clone(), clock.clone(), credentials.clone(), catalog.clone(), lease);
        let (refusals, upstream_bills) = (service.refusals(), service.upstream_bills());
        let service: Arc<dyn KeyService> = Arc::new(service);
        let grpc = KeyServiceServer::new(Grpc::new(service.clone(), shutdown.clone(), &*clock));
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<KeyServiceServer<Grpc>>().await;
        let grpc = Routes::new(health_service)
            .add_service(InterceptedService::new(grpc, RequireToken(internal_token.clone())))
            .into_axum_router()
            .layer(middleware::from_fn(drop_late_calls));
        let is_https = |url: &axum::http::Uri| url.scheme_str() == Some("https");
        let public_url = options.public_url.as_ref();
        let site = Site {
            behind_tls: clients_use_tls || public_url.is_some_and(is_https),
            hosts: public_url.and_then(ServedHosts::of_site),
        };
        let dashboard = key_service_dashboard::router(management.clone(), catalog.clone(), site.clone());
        let operator = key_service_operator::router(management.clone(), catalog.clone(), site, program);
        let sender = Sender::new(&options.webhook_networks);
        let parts = AlertParts::new(&store, &clock, &credentials, &management);
        let alerts = Alerts::new(parts, public_url.map(ToString::to_string), mailer);
        let dispatcher = Dispatcher::new(store.clone(), clock.clone(), credentials.clone(), sender);
        let dispatcher = dispatcher.with_alerts(alerts);
        let app = key_service_http::router(
            management,
            clock.clone(),
            internal_token,
            options.public_url.clone(),
            dashboard.merge(operator),
        );

        let tasks = TaskTracker::new();
        tasks.spawn(refusals.run(store.clone(), shutdown.clone()));
        tasks.spawn(upstream_bills.run(store.clone(), shutdown.clone()));
        tasks.spawn(held_money::show(store.clone(), shutdown.clone()));
        tasks.spawn(sweeper::run(store, clock, lease, shutdown.clone()));
        tasks.spawn(Arc::new(dispatcher).run(shutdown.clone()));
        let mut http_port = Port::new(http_listener, bounds);
        http_port.tls = tls.as_ref().map(Tls::port);
        let mut grpc_port = Port::new(grpc_listener, bounds);
        grpc_port.tls = tls.as_ref().map(Tls::grpc_port);
        tasks.spawn(serve(http_port, app, shutdown.clone()));
        tasks.spawn(serve(grpc_port, grpc, shutdown.clone()));
        tasks.close();
        let (http, grpc) = (http_at, grpc_at);
        Ok(Some((process, Self { http, grpc, service, installation, starting, shutdown, tasks })))
    }

    /// Makes readiness depend on the store from now on.
    pub fn started(&self) {
        self.starting.started(self.installation.readiness(self.shutdown.clone()));
    }

    /// Ends the servers and tasks, and waits until they have ended or a deadline has passed.
    pub async fn stop(self) {
        self.shutdown.cancel();
        if timeout(DRAIN + Duration::from_secs(1), self.tasks.wait()).await.is_err() {
            tracing::warn!("the key-service did not stop in time; its remaining tasks are abandoned");
        }
    }
}
