//! A key-service. It is the real spending service with real gRPC, but its store consists of the shared maps, and its
//! network is simulated.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::middleware;
use domain::digest::{Pepper, Peppers};
use http::Request;
use hyper::{body::Incoming, server::conn::http2};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use key_service_credentials::Credentials;
use key_service_management::Management;
use key_service_spending::{
    grpc::{Grpc, deadline::drop_late_calls},
    held_money,
    service::Service,
    sweeper,
};
use key_service_store::store::{EVENTS_KEPT, EventBounds, Store, StoreRetention};
use parking_lot::Mutex;
use shared::{clock::Clock, key::Prefix};
use shared_catalog::Catalog;
use shared_config::current::Current;
use shared_rpc::{
    Answer, Authorize, Call, CallFailure, KeyService, RequireToken, TakeAnswer, TracedCall,
    v1::key_service_server::KeyServiceServer,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::service::{Routes, interceptor::InterceptedService};
use tower::ServiceExt;

use crate::{
    chance::{clock::ProcessClock, dice::Dice},
    keys::RunKey,
    services::{
        call_times::{CallTimes, TimedLedger},
        gateway::{LEASE, internal_token},
        network::Network,
        process::{Process, TasksOf},
        store::{SharedMaps, WayToMaps},
    },
    trace::{Trace, tell},
};

/// A running key-service.
pub(crate) struct SimulatedKeyService {
    pub(crate) process: Arc<Process>,
    /// The owners' use cases. They run in the process of the key-service.
    pub(crate) management: Arc<Management>,
}

/// The use cases of owners, with a connection to the maps.
pub(crate) struct UseCases {
    pub(crate) store: Arc<Store>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) management: Arc<Management>,
}

impl UseCases {
    pub(crate) fn over(records: Arc<dyn key_service_records::Records>, clock: Arc<dyn Clock>) -> Self {
        let kept = StoreRetention::all(EventBounds::with_life(EVENTS_KEPT));
        let store = Arc::new(Store::new(records, clock.clone(), kept));
        let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
        let prefix = Prefix::parse("fg").unwrap();
        let credentials = Arc::new(Credentials::new(store.clone(), peppers, prefix));
        let management = Arc::new(Management::new(store.clone(), clock, credentials.clone()));
        Self { store, credentials, management }
    }
}

/// Starts a key-service at a place.
pub(crate) fn start(
    place: &str,
    (network, maps): (&Arc<Network>, &Arc<SharedMaps>),
    (clock, mut dice): (Arc<ProcessClock>, Dice),
    (catalog, keys): (Arc<Current<Catalog>>, Arc<Mutex<Vec<RunKey>>>),
) -> SimulatedKeyService {
    let process = Process::new(place);
    let call_times = Arc::new(CallTimes::default());
    let way = WayToMaps {
        shared: maps.clone(),
        process: process.clone(),
        call_times: call_times.clone(),
        dice: Mutex::new(dice.fork()),
    };
    let UseCases { store, credentials, management } = UseCases::over(Arc::new(way), clock.clone());
    let shutdown = CancellationToken::new();
    let ledger = Arc::new(TimedLedger { store: store.clone(), times: call_times });
    let service = Service::new(ledger.clone(), clock.clone(), credentials, catalog, LEASE);
    let refusals = service.refusals();
    let service = Told { service, trace: network.trace.clone(), place: place.to_owned(), keys };
    let grpc = KeyServiceServer::new(Grpc::new(Arc::new(service), shutdown.clone(), &*clock));
    let routes = Routes::new(InterceptedService::new(grpc, RequireToken(internal_token())))
        .into_axum_router()
        .layer(middleware::from_fn(drop_late_calls));
    process.spawn(refusals.run(store.clone(), shutdown.clone()));
    process.spawn(held_money::show(store, shutdown.clone()));
    process.spawn(sweeper::run(ledger, clock, LEASE, shutdown));
    let (mut connections, of_process) = (network.listen(place), process.clone());
    process.spawn(async move {
        while let Some(wire) = connections.recv().await {
            let routes =
                routes.clone().map_request(|request: Request<Incoming>| request.map(axum::body::Body::new));
            let serving = http2::Builder::new(TasksOf(of_process.clone()))
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(wire), TowerToHyperService::new(routes));
            // If the peer is gone, the connection ends with an error.
            of_process.spawn(async move { drop(serving.await) });
        }
    });
    SimulatedKeyService { process, management }
}

/// A key-service that records its calls and its answers.
struct Told {
    service: Service,
    trace: Arc<Trace>,
    place: String,
    keys: Arc<Mutex<Vec<RunKey>>>,
}

/// An authorization may still be carried out this long after its deadline. Later, the gateway has released the hold.
const LATE_EXECUTION_WINDOW: Duration = Duration::from_secs(4);

/// Facts about a call that decide which of its possible answers would break a promise.
struct Judged {
    /// Whether the revocation of the call's key had been answered before the call arrived.
    is_revoked: bool,
    /// For an authorization, the time after which no gateway uses the hold.
    released: Option<Instant>,
}

impl Told {
    fn judged(&self, call: &Call) -> Judged {
        let revoked = |credential: &str| {
            let keys = self.keys.lock();
            keys.iter()
                .any(|key| key.credential == credential && key.revoked.is_some_and(|at| at < Instant::now()))
        };
        match call {
            Call::Authenticate { credential, .. } => {
                Judged { is_revoked: revoked(credential), released: None }
            }
            // A copy of an authorization that was granted is granted again, even if the key was revoked meanwhile.
            Call::Authorize(Authorize { valid_until, .. }) => {
                Judged { is_revoked: false, released: valid_until.map(|until| until + LATE_EXECUTION_WINDOW) }
            }
            Call::Extend(_) | Call::Capture(_) | Call::Release(_) => {
                Judged { is_revoked: false, released: None }
            }
        }
    }

    /// If an answer allows what it must not allow, records a broken promise.
    fn judge(&self, name: &str, answer: &Result<Answer, CallFailure>, judged: &Judged) {
        let allows = matches!(answer, Ok(Answer::Authenticated(Ok(_)) | Answer::Authorized(Ok(_))));
        if allows && judged.is_revoked {
            self.trace.break_promise(format!("{} allows {name} after the key's revocation", self.place));
        }
        if allows && judged.released.is_some_and(|released| released < Instant::now()) {
            self.trace.break_promise(format!("{} opens a hold that nobody can use: {name}", self.place));
        }
    }
}

#[async_trait]
impl KeyService for Told {
    async fn handle(&self, calls: Vec<TracedCall>, reply: &TakeAnswer<'_>) {
        let names: Vec<String> = calls.iter().map(|call| words::call(&call.call)).collect();
        let judged: Vec<Judged> = calls.iter().map(|call| self.judged(&call.call)).collect();
        tell!(self.trace, "{} is asked: {}", self.place, names.join("; "));
        let judging = |place: usize, answer: Result<Answer, CallFailure>| {
            let name = &names[place];
            self.judge(name, &answer, &judged[place]);
            tell!(self.trace, "{} answers {name}: {}", self.place, words::answer(&answer));
            reply(place, answer);
        };
        self.service.handle(calls, &judging).await;
    }
}

/// Describes calls and answers in a few words. They contain no times of this machine's clock.
pub(crate) mod words {
    use shared::tokens::Usage;
    use shared_rpc::{Answer, Call, CallFailure, Captured, Extended, Release};

    pub(crate) fn call(call: &Call) -> String {
        match call {
            Call::Authenticate { .. } => "authenticate".to_owned(),
            Call::Authorize(a) => {
                format!("authorize {} for {} + {} tokens", a.generation, a.prompt_tokens, a.output_tokens)
            }
            Call::Extend(e) => {
                let used = usage(e.usage);
                format!("extend {} to {} tokens, used {used}", e.hold.generation, e.output_tokens)
            }
            Call::Capture(c) => format!("capture {} of {}", c.hold.generation, usage(c.usage)),
            Call::Release(Release::Hold(hold)) => format!("release {}", hold.generation),
            Call::Release(Release::Unknown { generation, .. }) => format!("release doubtful {generation}"),
        }
    }

    pub(crate) fn usage(usage: Usage) -> String {
        format!("{} + {} tokens", usage.prompt, usage.completion)
    }

    pub(crate) fn answer(answer: &Result<Answer, CallFailure>) -> String {
        match answer {
            Ok(Answer::Authenticated(Ok(_))) => "known".to_owned(),
            Ok(Answer::Authorized(Ok(grant))) => format!("granted {} tokens", grant.output_tokens),
            Ok(Answer::Authenticated(Err(denial)) | Answer::Authorized(Err(denial))) => {
                format!("refused, {:?}", denial.refusal)
            }
            Ok(Answer::Extended(Extended::Open(extension))) => {
                format!("open with {} tokens, {:?}", extension.output_tokens, extension.revoked_by)
            }
            Ok(Answer::Extended(Extended::Gone)) => "gone".to_owned(),
            Ok(Answer::Captured(Captured::Billed(charge))) => format!("billed {}", charge.charged),
            Ok(Answer::Captured(Captured::Gone)) => "the key is gone".to_owned(),
            Ok(Answer::Released) => "released".to_owned(),
            Err(failure) => format!("failed, {failure}"),
        }
    }
}
