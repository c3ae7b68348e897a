//! The gRPC contract from a gateway's side, over a real connection.

use std::time::Duration;

use async_trait::async_trait;
use shared::{
    clock::System,
    ids::{AccountId, GenerationId, KeyId, Principal},
    money::NanoUsd,
    rates::{RateBound, RateLimit, RateStatus, TokenRoom},
    refusal::{Denial, DenialDetail, Refusal},
    time::Timestamp,
};
use shared_catalog::{Price, Rates};
use shared_rpc::{
    Authorize, Captured, Charge, Extended, Extension, Grant, HoldRef, Identity, Release, TakeAnswer,
    UpstreamCost,
    v1::{key_service_client::KeyServiceClient, key_service_server::KeyServiceServer},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    time::timeout,
};
use tonic::transport::{Channel, Server, server::TcpIncoming};

use super::*;

/// A service with a fixed answer for each kind of call. It refuses late authorizations. It answers authorizations for
/// the model `away`, and later calls in the same frame, only when a test allows it.
#[derive(Clone, Default)]
struct Clerk {
    ends: watch::Sender<bool>,
    /// Number of frames whose calls were all answered.
    handled: watch::Sender<usize>,
}

fn hold() -> HoldRef {
    let now = Timestamp::from_millis(1_795_140_665_000);
    let nanos = NanoUsd::from_nanos;
    HoldRef {
        generation: GenerationId::new(now, [1; 10]),
        account: AccountId::new(now, [2; 10]),
        key: KeyId::new(now, [3; 10]),
        model: "Model Flash".into(),
        price: Arc::new(Price::flat(Rates::of_three(nanos(1), nanos(2), nanos(3)))),
        upstream: 0,
        upstream_cost: UpstreamCost::OfCatalogue,
    }
}

const LEASE: Duration = Duration::from_secs(30);

const RATES: RateStatus = RateStatus {
    requests: None,
    tokens: Some(RateLimit { limit: 600, remaining: 0, reset: Duration::from_millis(60_001) }),
};

/// Returns the identity of a key that may use only one model.
fn identity() -> Identity {
    let principal = Principal::ApiKey(hold().account, hold().key);
    Identity { principal, models: Some(vec!["Model Flash".into()]) }
}

/// Returns a refusal with details.
fn denial() -> Denial {
    let retry_after = Some(Duration::from_millis(1_200));
    let token_room = Some(TokenRoom { limit: 50, remaining: 7 });
    let rate = Some(RateBound::Tokens);
    let detail = DenialDetail { rate, token_room, retry_after, ..DenialDetail::default() };
    Denial::new(Refusal::RateLimitExceeded, detail)
}

#[async_trait]
impl KeyService for Clerk {
    async fn handle(&self, calls: Vec<TracedCall>, reply: &TakeAnswer<'_>) {
        let answer = |TracedCall { call, .. }| match call {
            Call::Authenticate { credential, .. } if credential == "good" => {
                Ok(Answer::Authenticated(Ok(identity())))
            }
            Call::Authenticate { .. } => Ok(Answer::Authenticated(Err(Refusal::InvalidApiKey.into()))),
            Call::Authorize(a) if a.model == "fast" => Ok(Answer::Authorized(Err(denial()))),
            Call::Authorize(a) if a.valid_until.is_some_and(|until| until < Instant::now()) => {
                Err(CallFailure { code: Code::DeadlineExceeded, message: "too late".into() })
            }
            Call::Authorize(a) => {
                let upstream_costs = vec![None, Some(hold().price)];
                let hold = HoldRef { generation: a.generation, model: a.model, ..hold() };
                Ok(Answer::Authorized(Ok(Grant {
                    hold,
                    output_tokens: a.output_tokens,
                    lease: LEASE,
                    rates: Some(Box::new(RATES)),
                    upstream_costs,
                })))
            }
            Call::Extend(e) => Ok(Answer::Extended(Extended::Open(Extension {
                output_tokens: e.output_tokens,
                lease: LEASE,
                revoked_by: Some(Refusal::GroupArchived),
            }))),
            Call::Capture(c) => {
                let charged = NanoUsd::from_nanos(c.usage.completion.cast_signed());
                Ok(Answer::Captured(Captured::Billed(Charge { charged, shortfall: NanoUsd::ZERO })))
            }
            Call::Release(Release::Hold(_)) => Ok(Answer::Released),
            Call::Release(Release::Unknown { .. }) => {
                Err(CallFailure { code: Code::Unavailable, message: "the store is away".into() })
            }
        };
        for (place, call) in calls.into_iter().enumerate() {
            if matches!(&call.call, Call::Authorize(a) if a.model == "away") {
                let mut ends = self.ends.subscribe();
                // Other calls are answered meanwhile.
                ends.wait_for(|has_ended| *has_ended).await.unwrap();
            }
            reply(place, answer(call));
        }
        self.handled.send_modify(|handled| *handled += 1);
    }
}

/// Number of bytes of answers that the network buffers while the client reads nothing: about one or two frames.
const WINDOW: u32 = 65_535;

async fn connect() -> KeyServiceClient<Channel> {
    connect_to(Clerk::default()).await
}

async fn connect_to(clerk: Clerk) -> KeyServiceClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let grpc = KeyServiceServer::new(Grpc::new(Arc::new(clerk), CancellationToken::new(), &System));
    tokio::spawn(Server::builder().add_service(grpc).serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    KeyServiceClient::new(endpoint.connect().await.unwrap())
}

fn authorize(valid_until: Option<Instant>) -> Call {
    Call::Authorize(Authorize {
        credential: "good".into(),
        generation: hold().generation,
        model: hold().model,
        prompt_tokens: 1,
        images: 0,
        readmitted: false,
        rated_tokens: None,
        can_count: false,
        is_free: false,
        output_tokens: 77,
        enough_output_tokens: 1,
        least_output_tokens: 1,
        valid_until,
        origin: None,
    })
}

/// Converts a call to the message for its unary method.
macro_rules! message {
    ($call:expr, $kind:ident) => {
        match $call.to_message(SessionClock::starting(Instant::now())) {
            v1::call::Request::$kind(message) => message,
            other => panic!("{other:?}"),
        }
    };
}

/// Parses the response to a call as a gateway does.
fn read(call: &Call, response: answer::Response) -> Answer {
    Answer::from_message(response, call).unwrap()
}

#[tokio::test]
async fn every_unary_call_is_answered() {
    let mut client = connect().await;
    let call = Call::Authenticate { credential: "good".into(), required: shared::key::Class::Api };
    let response = client.authenticate(message!(call, Authenticate)).await.unwrap().into_inner();
    let Answer::Authenticated(Ok(found)) = read(&call, answer::Response::Authenticate(response)) else {
        panic!("authenticated")
    };
    assert_eq!(found, identity());

    let call = authorize(None);
    let response = client.authorize(message!(call, Authorize)).await.unwrap().into_inner();
    let Answer::Authorized(Ok(grant)) = read(&call, answer::Response::Authorize(response)) else {
        panic!("granted")
    };
    assert_eq!((grant.hold, grant.output_tokens, grant.lease), (hold(), 77, LEASE));
    assert_eq!(grant.rates.as_deref(), Some(&RATES));

    let usage = shared::tokens::Usage::of(1, 0, 5);
    let extend = shared_rpc::Extend {
        hold: hold(),
        usage,
        prompt_tokens: 1,
        images: 0,
        output_tokens: 99,
        course: None,
    };
    let call = Call::Extend(extend);
    let response = client.extend(message!(call, Extend)).await.unwrap().into_inner();
    let extended = Extension { output_tokens: 99, lease: LEASE, revoked_by: Some(Refusal::GroupArchived) };
    let answer = read(&call, answer::Response::Extend(response));
    assert!(matches!(answer, Answer::Extended(Extended::Open(e)) if e == extended), "{answer:?}");

    let call = Call::Capture(shared_rpc::Capture {
        hold: hold(),
        usage,
        charged: None,
        estimated: true,
        course: None,
    });
    let response = client.capture(message!(call, Capture)).await.unwrap().into_inner();
    let charge = Charge { charged: NanoUsd::from_nanos(5), shortfall: NanoUsd::ZERO };
    let answer = read(&call, answer::Response::Capture(response));
    assert!(matches!(answer, Answer::Captured(Captured::Billed(c)) if c == charge), "{answer:?}");

    let call = Call::Release(Release::Hold(hold()));
    let response = client.release(message!(call, Release)).await.unwrap().into_inner();
    assert!(matches!(read(&call, answer::Response::Release(response)), Answer::Released));
}

#[tokio::test]
async fn refusals_are_answers_and_failures_are_statuses_with_a_reason() {
    let mut client = connect().await;
    let call = Call::Authenticate { credential: "bad".into(), required: shared::key::Class::Api };
    let response = client.authenticate(message!(call, Authenticate)).await.unwrap().into_inner();
    let answer = read(&call, answer::Response::Authenticate(response));
    let Answer::Authenticated(Err(refused)) = answer else { panic!("{answer:?}") };
    assert_eq!(refused, Refusal::InvalidApiKey.into());

    let Call::Authorize(call) = authorize(None) else { panic!("an authorization") };
    let call = Call::Authorize(Authorize { model: "fast".into(), ..call });
    let response = client.authorize(message!(call, Authorize)).await.unwrap().into_inner();
    let answer = read(&call, answer::Response::Authorize(response));
    let Answer::Authorized(Err(refused)) = answer else { panic!("{answer:?}") };
    assert_eq!(refused, denial());

    let reason = |status: &Status| status.get_details_error_info().unwrap().reason;
    let unknown = Release::Unknown { credential: "good".into(), generation: hold().generation };
    let status = client.release(message!(Call::Release(unknown), Release)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
    let status = client.capture(v1::CaptureRequest::default()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
    assert!(status.message().starts_with("`hold`"), "{status:?}");
}

/// Opens a session and returns a channel for its frames.
async fn open_session() -> (mpsc::Sender<v1::SessionRequest>, Streaming<v1::SessionResponse>) {
    open_session_with(Clerk::default()).await
}

async fn open_session_with(
    clerk: Clerk,
) -> (mpsc::Sender<v1::SessionRequest>, Streaming<v1::SessionResponse>) {
    let (frames, sent) = mpsc::channel(4);
    let sent = stream::unfold(sent, |mut sent| async move { Some((sent.recv().await?, sent)) });
    let responses = connect_to(clerk).await.session(sent).await.unwrap().into_inner();
    (frames, responses)
}

#[tokio::test]
async fn a_session_begins_with_its_clock_and_refuses_late_copies() {
    let (frames, mut responses) = open_session().await;
    // Read before sending any call.
    let first = responses.message().await.unwrap().unwrap();
    assert_eq!(first.answers, []);
    let clock = SessionClock::observed(Instant::now(), first.clock_ms);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let now = Instant::now();
    let calls = [
        (1, authorize(now.checked_sub(Duration::from_millis(10)))),
        (2, authorize(now.checked_add(Duration::from_mins(1)))),
        (3, authorize(None)),
    ];
    let messages = calls.iter().map(|(id, call)| v1::Call {
        id: *id,
        request: Some(call.to_message(clock)),
        ..v1::Call::default()
    });
    let mut messages: Vec<_> = messages.collect();
    messages.push(v1::Call { id: 4, ..v1::Call::default() });
    frames.send(v1::SessionRequest { calls: messages }).await.unwrap();
    let second = responses.message().await.unwrap().unwrap();
    assert!(second.clock_ms >= first.clock_ms + 20, "{} {}", first.clock_ms, second.clock_ms);
    let code = |id| {
        let answer = second.answers.iter().find(|answer| answer.id == id).unwrap();
        match answer.response.as_ref().unwrap() {
            answer::Response::Failure(failure) => Code::from(failure.code),
            answer::Response::Authorize(_) => Code::Ok,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([1, 2, 3, 4].map(code), [Code::DeadlineExceeded, Code::Ok, Code::Ok, Code::InvalidArgument]);
    drop(frames);
    assert!(responses.message().await.unwrap().is_none());
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_its_session() {
    let (frames, mut responses) = open_session().await;
    responses.message().await.unwrap().unwrap();
    let calls = vec![v1::Call::default(); MAX_FRAME_CALLS + 1];
    frames.send(v1::SessionRequest { calls }).await.unwrap();
    let status = responses.message().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

/// Returns a call with this id that asks to authorize a request for this model.
fn authorize_for(id: u64, model: &str) -> v1::Call {
    let Call::Authorize(call) = authorize(None) else { panic!("an authorization") };
    let call = Call::Authorize(Authorize { model: model.into(), ..call });
    let request = Some(call.to_message(SessionClock::starting(Instant::now())));
    v1::Call { id, request, ..v1::Call::default() }
}

#[tokio::test]
async fn calls_that_wait_hold_up_neither_others_of_their_frames_nor_later_frames() {
    const WAITING: u64 = 200;
    let clerk = Clerk::default();
    let (frames, mut responses) = open_session_with(clerk.clone()).await;
    let waiting = (0..WAITING).map(|id| vec![authorize_for(1_000 + id, "near"), authorize_for(id, "away")]);
    let sent = tokio::spawn({
        let all: Vec<_> = waiting.chain([vec![authorize_for(5_000, "near")]]).collect();
        async move {
            for calls in all {
                frames.send(v1::SessionRequest { calls }).await.unwrap();
            }
            frames
        }
    });
    let mut answered = Vec::new();
    while answered.last() != Some(&5_000) {
        let next = timeout(Duration::from_secs(10), responses.message()).await;
        let response = next.expect("the last frame is read").unwrap().unwrap();
        answered.extend(response.answers.iter().map(|answer| answer.id));
        answered.sort_unstable();
    }
    let near: Vec<_> = (1_000..1_000 + WAITING).chain([5_000]).collect();
    assert_eq!(answered, near);
    clerk.ends.send_replace(true);
    drop(sent.await.unwrap());
    let mut late = Vec::new();
    while let Some(response) = responses.message().await.unwrap() {
        late.extend(response.answers.iter().map(|answer| answer.id));
    }
    late.sort_unstable();
    assert_eq!(late, (0..WAITING).collect::<Vec<_>>(), "every call is answered before the session ends");
}

#[tokio::test]
async fn calls_go_on_while_the_gateway_reads_no_answers() {
    let clerk = Clerk::default();
    let (frames, _unread) = open_session_with(clerk.clone()).await;
    frames.send(v1::SessionRequest { calls: vec![authorize_for(0, "away")] }).await.unwrap();
    let mut handled = clerk.handled.subscribe();
    // Frames are read until unsent answers fill the connection.
    let large = || (1..=MAX_FRAME_CALLS as u64).map(|id| authorize_for(id, "near")).collect();
    let is_read = async |handled: &mut watch::Receiver<usize>| {
        timeout(Duration::from_secs(1), frames.send(v1::SessionRequest { calls: large() })).await.is_ok()
            && timeout(Duration::from_secs(1), handled.changed()).await.is_ok()
    };
    while is_read(&mut handled).await {}
    let before = *handled.borrow_and_update();
    clerk.ends.send_replace(true);
    timeout(Duration::from_secs(10), handled.changed()).await.expect("the first call goes on").unwrap();
    assert_eq!(*handled.borrow(), before + 1);
}
