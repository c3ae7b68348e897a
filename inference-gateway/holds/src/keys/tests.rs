//! Sessions with simulated key-services that answer, hang, fail and disconnect as a test demands.

mod slow;

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::{Stream, StreamExt, future::join_all, stream};
use shared::{
    clock::System,
    ids::{AccountId, GenerationId, KeyId},
};
use shared_config::internal_token::{InternalToken, InternalTokens};
use shared_door::admission::{Owner, Quota};
use shared_rpc::{
    PresentToken,
    v1::{
        self, answer, call,
        key_service_server::{KeyService, KeyServiceServer},
        release_request::Target,
    },
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::Instant};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Endpoint, Server},
};

use super::*;
use crate::{HeldRequest, Holds};

/// The open holds, shared by all key-services of a test.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    fn open(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    async fn comes_to(&self, holds: usize) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.open() != holds {
            assert!(Instant::now() < deadline, "{} holds are open, not {holds}", self.open());
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A key-service that a test controls.
#[derive(Clone)]
struct Fake {
    ledger: Ledger,
    account: String,
    key: String,
    /// If true, calls wait. Afterwards they are executed, unless it is too late.
    hangs: watch::Sender<bool>,
    /// If true, calls are executed, but answered as failed.
    fails: Arc<AtomicBool>,
    refuses: Arc<AtomicBool>,
    frames: Arc<AtomicUsize>,
    /// Decides when and how each call is answered, instead of all the above.
    script: Option<slow::Script>,
}

impl Fake {
    fn new(ledger: &Ledger) -> Self {
        Self {
            ledger: ledger.clone(),
            account: AccountId::generate(&System).to_string(),
            key: KeyId::generate(&System).to_string(),
            hangs: watch::Sender::new(false),
            fails: Arc::default(),
            refuses: Arc::default(),
            frames: Arc::default(),
            script: None,
        }
    }

    fn frames(&self) -> usize {
        self.frames.load(Ordering::SeqCst)
    }

    /// Serves on a separate port until the task is aborted.
    async fn serve(&self) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder().add_service(KeyServiceServer::new(self.clone()));
        let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
        (address, tokio::spawn(async move { serving.await.unwrap() }))
    }

    fn carry_out(&self, request: call::Request, clock_ms: u64) -> answer::Response {
        let done = match request {
            call::Request::Authorize(asked) if asked.valid_until_ms < clock_ms => {
                let code = Code::DeadlineExceeded as i32;
                return answer::Response::Failure(v1::Failure { code, message: "too late".into() });
            }
            call::Request::Authorize(_) if self.refuses.load(Ordering::SeqCst) => {
                let refusal = v1::Refusal::SpendReserved.into();
                let result = Some(v1::authorize_response::Result::Refusal(refusal));
                answer::Response::Authorize(v1::AuthorizeResponse { result, refusal_detail: None })
            }
            call::Request::Authorize(asked) => {
                let mut holds = self.ledger.0.lock().unwrap();
                if !holds.contains(&asked.generation_id) {
                    holds.push(asked.generation_id);
                }
                let (account_id, key_id) = (self.account.clone(), self.key.clone());
                let price = Some(v1::Price { input: 1, cached_input: 1, output: 1, ..v1::Price::default() });
                let grant = v1::Grant {
                    account_id,
                    key_id,
                    output_tokens: 10,
                    lease_ms: 30_000,
                    price,
                    ..v1::Grant::default()
                };
                let result = Some(v1::authorize_response::Result::Grant(grant));
                answer::Response::Authorize(v1::AuthorizeResponse { result, refusal_detail: None })
            }
            call::Request::Release(v1::ReleaseRequest { target }) => {
                let released = match target.unwrap() {
                    Target::Hold(hold) => hold.generation_id,
                    Target::Unknown(unknown) => unknown.generation_id,
                };
                self.ledger.0.lock().unwrap().retain(|id| *id != released);
                answer::Response::Release(v1::ReleaseResponse {})
            }
            call::Request::Authenticate(_) => {
                let principal = v1::Principal {
                    account_id: self.account.clone(),
                    key_id: self.key.clone(),
                    models: None,
                };
                let result = Some(v1::authenticate_response::Result::Principal(principal));
                answer::Response::Authenticate(v1::AuthenticateResponse { result, refusal_detail: None })
            }
            call::Request::Extend(_) | call::Request::Capture(_) => unreachable!("not asked here"),
        };
        if self.fails.load(Ordering::SeqCst) {
            let failure = v1::Failure { code: Code::Unavailable as i32, message: "the store is away".into() };
            return answer::Response::Failure(failure);
        }
        done
    }
}

#[tonic::async_trait]
impl KeyService for Fake {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<v1::SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if let Some(script) = &self.script {
            return Ok(Response::new(script.session(request.into_inner())));
        }
        let state = (request.into_inner(), self.clone(), Instant::now());
        let frames = stream::unfold(state, async |(mut frames, fake, opened)| {
            let frame = frames.message().await.ok()??;
            fake.frames.fetch_add(1, Ordering::SeqCst);
            fake.hangs.subscribe().wait_for(|hangs| !hangs).await.unwrap();
            let clock_ms = u64::try_from(opened.elapsed().as_millis()).unwrap();
            let answer = |call: v1::Call| v1::Answer {
                id: call.id,
                response: Some(fake.carry_out(call.request.unwrap(), clock_ms)),
            };
            let answers = frame.calls.into_iter().map(answer).collect();
            Some((Ok(v1::SessionResponse { answers, clock_ms, instance: 0 }), (frames, fake, opened)))
        });
        let first = v1::SessionResponse { answers: Vec::new(), clock_ms: 0, instance: 0 };
        Ok(Response::new(stream::iter([Ok(first)]).chain(frames).boxed()))
    }

    async fn authenticate(
        &self,
        _: Request<v1::AuthenticateRequest>,
    ) -> Result<Response<v1::AuthenticateResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn authorize(
        &self,
        _: Request<v1::AuthorizeRequest>,
    ) -> Result<Response<v1::AuthorizeResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn extend(&self, _: Request<v1::ExtendRequest>) -> Result<Response<v1::ExtendResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn capture(&self, _: Request<v1::CaptureRequest>) -> Result<Response<v1::CaptureResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn release(&self, _: Request<v1::ReleaseRequest>) -> Result<Response<v1::ReleaseResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Returns a handle on sessions with these key-services. The first one is preferred.
async fn keys(fakes: &[&Fake]) -> (Keys, Vec<JoinHandle<()>>) {
    let (keys, _, serving) = keys_and_holds(fakes).await;
    (keys, serving)
}

/// Returns a handle on sessions, and the holds whose heartbeat releases orphans.
async fn keys_and_holds(fakes: &[&Fake]) -> (Keys, Holds, Vec<JoinHandle<()>>) {
    let token = PresentToken(InternalToken::new(
        InternalTokens::new("a-token-between-services".into(), None).unwrap(),
    ));
    let (mut peers, mut serving) = (Vec::new(), Vec::new());
    for fake in fakes {
        let (address, server) = fake.serve().await;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        peers.push(Peer::remote(endpoint, None, token.clone(), None));
        serving.push(server);
    }
    let keys = connect(peers, &Arc::new(KeyServiceHealth::new(fakes.len())), Arc::new(System));
    let holds = Holds::new(keys.clone(), None, TaskTracker::new());
    tokio::spawn(holds.clone().heartbeat(CancellationToken::new()));
    // All sessions are open by then.
    while keys.0.queue.idle() < fakes.len() {
        sleep(Duration::from_millis(5)).await;
    }
    (keys, holds, serving)
}

fn ask() -> Authorize {
    Authorize {
        images: 0,
        readmitted: false,
        rated_tokens: None,
        can_count: false,
        is_free: false,
        credential: "fg_api_x".into(),
        generation: GenerationId::generate(&System),
        model: "Model Flash".into(),
        prompt_tokens: 10,
        output_tokens: 10,
        enough_output_tokens: 1,
        least_output_tokens: 1,
        valid_until: None,
        origin: None,
    }
}

#[tokio::test]
async fn a_silent_key_service_is_left_for_another_within_a_second() {
    let ledger = Ledger::default();
    let (silent, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, _serving) = keys(&[&silent, &other]).await;
    silent.hangs.send_replace(true);
    let began = Instant::now();
    let first = keys.authorize(ask()).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "after {:?}", began.elapsed());
    let began = Instant::now();
    let second = keys.authorize(ask()).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_millis(200), "once its silence is known, no call waits for it");
    assert_eq!(ledger.open(), 2);

    silent.hangs.send_replace(false);
    for grant in [first, second] {
        keys.release(Release::Hold(grant.hold)).await.unwrap();
    }
    ledger.comes_to(0).await;
}

#[tokio::test]
async fn a_hold_that_a_late_copy_opens_again_after_its_release_is_released_once_more() {
    let ledger = Ledger::default();
    let (silent, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, _serving) = keys(&[&silent, &other]).await;
    silent.hangs.send_replace(true);
    let grant = keys.authorize(ask()).await.unwrap().unwrap();
    keys.release(Release::Hold(grant.hold)).await.unwrap();
    assert_eq!(ledger.open(), 0);
    // Heartbeats have passed by now. None of them may have released the doubtful copy.
    sleep(AUTHORIZE_DEADLINE / 2).await;
    silent.hangs.send_replace(false);
    ledger.comes_to(1).await;
    ledger.comes_to(0).await;
}

#[tokio::test]
async fn a_copy_that_comes_after_its_deadline_opens_no_hold() {
    let ledger = Ledger::default();
    let (silent, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, _serving) = keys(&[&silent, &other]).await;
    silent.hangs.send_replace(true);
    let grant = keys.authorize(ask()).await.unwrap().unwrap();
    keys.release(Release::Hold(grant.hold)).await.unwrap();
    sleep(AUTHORIZE_DEADLINE).await;
    silent.hangs.send_replace(false);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(ledger.open(), 0);
}

#[tokio::test]
async fn a_running_hold_whose_late_copy_was_granted_goes_on() {
    let ledger = Ledger::default();
    let (silent, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, holds, _serving) = keys_and_holds(&[&silent, &other]).await;
    silent.hangs.send_replace(true);
    let slot = Arc::new(Quota::new(1, 1).empty_permit(Owner::Service));
    let grant = keys.authorize(ask()).await.unwrap().unwrap();
    let now = Instant::now();
    let _running = holds.open(grant, HeldRequest { accepted: now, asked_at: now, prompt_tokens: 10, slot });
    silent.hangs.send_replace(false);
    // By then, a heartbeat has looked at the doubtful copy.
    sleep(AUTHORIZE_DEADLINE + Duration::from_secs(6)).await;
    assert_eq!(ledger.open(), 1);
}

#[tokio::test]
async fn a_late_grant_after_a_refusal_is_released() {
    let ledger = Ledger::default();
    let (silent, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, _serving) = keys(&[&silent, &other]).await;
    silent.hangs.send_replace(true);
    other.refuses.store(true, Ordering::SeqCst);
    assert_eq!(
        keys.authorize(ask()).await.unwrap().unwrap_err(),
        shared::refusal::Refusal::SpendReserved.into()
    );
    other.refuses.store(false, Ordering::SeqCst);
    silent.hangs.send_replace(false);
    sleep(Duration::from_millis(200)).await;
    ledger.comes_to(0).await;
}

#[tokio::test]
async fn a_hold_that_was_opened_although_the_answer_was_a_failure_is_found_or_released() {
    let ledger = Ledger::default();
    let only = Fake::new(&ledger);
    let (keys, _serving) = keys(&[&only]).await;
    only.fails.store(true, Ordering::SeqCst);
    let (found, ()) = tokio::join!(keys.authorize(ask()), async {
        sleep(Duration::from_millis(300)).await;
        only.fails.store(false, Ordering::SeqCst);
    });
    keys.release(Release::Hold(found.unwrap().unwrap().hold)).await.unwrap();
    assert_eq!(ledger.open(), 0, "a hiccup is not felt");

    only.fails.store(true, Ordering::SeqCst);
    let given_up = keys.authorize(ask()).await;
    assert!(matches!(given_up, Err(Unavailable::Failed(_))), "{given_up:?}");
    assert_eq!(ledger.open(), 1);
    only.fails.store(false, Ordering::SeqCst);
    ledger.comes_to(0).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_hold() {
    let ledger = Ledger::default();
    let only = Fake::new(&ledger);
    let (keys, _serving) = keys(&[&only]).await;
    only.hangs.send_replace(true);
    assert!(timeout(Duration::from_millis(100), keys.authorize(ask())).await.is_err());
    only.hangs.send_replace(false);
    sleep(Duration::from_millis(200)).await;
    ledger.comes_to(0).await;
}

#[tokio::test]
async fn a_key_service_without_its_store_is_left_for_one_that_reaches_it() {
    let ledger = Ledger::default();
    let (failing, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, _serving) = keys(&[&failing, &other]).await;
    failing.fails.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        keys.authenticate("x", Class::Api).await.unwrap().unwrap();
    }
    assert!(failing.frames() < 10, "it was asked {} times", failing.frames());
}

#[tokio::test]
async fn calls_of_a_broken_session_are_answered_by_another_at_once() {
    let ledger = Ledger::default();
    let (broken, other) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, mut serving) = keys(&[&broken, &other]).await;
    broken.hangs.send_replace(true);
    let began = Instant::now();
    let asked = tokio::spawn({
        let keys = keys.clone();
        async move { keys.authenticate("x", Class::Api).await }
    });
    while broken.frames() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    // Aborting the server ends all streams as well.
    let server = serving.remove(0);
    server.abort();
    broken.hangs.send_replace(false);
    asked.await.unwrap().unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_millis(450), "after {:?}", began.elapsed());
}

#[tokio::test]
async fn under_load_every_key_service_has_its_share_and_one_serves_an_idle_gateway() {
    let ledger = Ledger::default();
    let (first, second) = (Fake::new(&ledger), Fake::new(&ledger));
    let (keys, _serving) = keys(&[&first, &second]).await;
    for _ in 0..50 {
        keys.authenticate("x", Class::Api).await.unwrap().unwrap();
    }
    assert_eq!((first.frames(), second.frames()), (50, 0));
    let all = join_all((0..2_000).map(|_| keys.authenticate("x", Class::Api))).await;
    assert!(all.into_iter().all(|answer| answer.is_ok()));
    assert!(second.frames() > 0);
}
