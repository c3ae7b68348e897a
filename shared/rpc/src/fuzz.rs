//! Fuzz targets for the calls between the services, and for the spool.

use std::fs;

use prost::Message;
use shared::{
    ids::{AccountId, GenerationId, KeyId, RequestId},
    time::Timestamp,
};
use shared_fuzz::{Examples, Input, fuzz};
use tokio::time::Instant;

use crate::{
    Answer, Call, SessionClock,
    spool::{self, SpoolContents, SpoolLine},
    v1::{self, answer, call, capture_response, extend_response, release_request},
};

const USAGE: v1::Usage =
    v1::Usage { prompt_tokens: 12, cached_tokens: 4, completion_tokens: 5, details: None };

fn ids() -> (GenerationId, AccountId, KeyId) {
    let at = Timestamp::from_millis(1_795_140_665_000);
    (GenerationId::new(at, [1; 10]), AccountId::new(at, [2; 10]), KeyId::new(at, [3; 10]))
}

fn price() -> v1::Price {
    let rates = v1::Price { input: 1, cached_input: 1, output: 2, further: None };
    let tier = v1::PriceTier { above: 9, rates: Some(rates.clone()) };
    let further =
        v1::FurtherPrices { cache_write: Some(3), tiers: vec![tier], ..v1::FurtherPrices::default() };
    v1::Price { further: Some(Box::new(further)), ..rates }
}

fn hold() -> v1::HoldRef {
    let (generation, account, key) = ids();
    v1::HoldRef {
        generation_id: generation.to_string(),
        account_id: account.to_string(),
        key_id: key.to_string(),
        model: "Model Flash".into(),
        price: Some(price()),
        upstream: 1,
        upstream_cost: Some(v1::UpstreamCost { price: Some(price()) }),
    }
}

fn calls() -> Vec<Vec<u8>> {
    let request = RequestId::new(Timestamp::from_millis(1_795_140_665_000), [4; 10]);
    let origin =
        v1::Origin { api: 1, stream: true, user: "ann".into(), request_id: request.as_bytes().to_vec() };
    let authorize = v1::AuthorizeRequest {
        credential: "fg_api_x".into(),
        generation_id: ids().0.to_string(),
        model: "Model Flash".into(),
        prompt_tokens: 12,
        rated_tokens: Some(9),
        can_count: true,
        output_tokens: 1024,
        enough_output_tokens: 64,
        least_output_tokens: 1,
        valid_until_ms: 3000,
        origin: Some(origin),
        ..v1::AuthorizeRequest::default()
    };
    let authenticate = v1::AuthenticateRequest { credential: "fg_mgmt_x".into(), required_class: 2 };
    let usage = Some(USAGE);
    let course = Some(v1::Course {
        upstream: "127.0.0.1:8000".into(),
        authorized_ms: Some(1),
        first_token_ms: Some(40),
        latency_ms: Some(900),
        finish_reason: 1,
        least_cost_nano_usd: Some(3),
    });
    let extend = v1::ExtendRequest {
        hold: Some(hold()),
        usage,
        prompt_tokens: 12,
        images: 1,
        output_tokens: 2048,
        course: course.clone(),
    };
    let capture = v1::CaptureRequest { hold: Some(hold()), usage, estimated: true, charged: usage, course };
    let unknown = v1::UnknownHold { credential: "fg_api_x".into(), generation_id: ids().0.to_string() };
    let release = |target| call::Request::Release(v1::ReleaseRequest { target: Some(target) });
    let requests = [
        call::Request::Authenticate(authenticate),
        call::Request::Authorize(authorize),
        call::Request::Extend(extend),
        call::Request::Capture(capture),
        release(release_request::Target::Hold(hold())),
        release(release_request::Target::Unknown(unknown)),
    ];
    let call = |request| v1::Call { id: 7, traceparent: String::new(), request: Some(request) };
    requests.map(|request| call(request).encode_to_vec()).into()
}

/// A call that is written as a message and read again is the same call.
#[test]
fn calls_of_gateways() {
    let clock = SessionClock::starting(Instant::now());
    fuzz(&Examples::of(calls()), |input: &Input| {
        let Ok(message) = v1::Call::decode(input.bytes()) else { return };
        let Ok(call) = Call::from_message(message.request, clock) else { return };
        let written = call.to_message(clock);
        let again = Call::from_message(Some(written.clone()), clock).unwrap();
        assert_eq!(again.to_message(clock), written);
        assert_eq!((again.account(), again.credential()), (call.account(), call.credential()));
    });
}

/// An answer that is written as a message and read again is the same answer.
#[test]
fn answers_of_key_services() {
    use v1::{authenticate_response::Result as Authenticated, authorize_response::Result as Authorized};
    let (_, account, key) = ids();
    let limit = v1::RateLimit { limit: 60, remaining: 7, reset_ms: 900 };
    let grant = v1::Grant {
        account_id: account.to_string(),
        key_id: key.to_string(),
        output_tokens: 1024,
        lease_ms: 30_000,
        price: Some(price()),
        rates: Some(v1::RateStatus { requests: Some(limit), tokens: Some(limit) }),
        upstream_costs: vec![v1::UpstreamCost { price: Some(price()) }, v1::UpstreamCost { price: None }],
    };
    let detail = v1::RefusalDetail {
        resets_at_ms: Some(1),
        retry_after_ms: Some(2),
        rate: 2,
        token_room: Some(v1::TokenRoom { limit: 5, remaining: 3 }),
        models: vec!["m".into()],
    };
    let models = Some(v1::ModelList { ids: vec!["m".into()] });
    let principal = v1::Principal { account_id: account.to_string(), key_id: key.to_string(), models };
    let authenticated = |result, refusal_detail| {
        answer::Response::Authenticate(v1::AuthenticateResponse { result: Some(result), refusal_detail })
    };
    let extension = v1::Extension { output_tokens: 9, lease_ms: 30_000, revoked: true, revoked_by: 14 };
    let captured = v1::Captured { charged_nano_usd: 3, shortfall_nano_usd: 1 };
    let responses = [
        authenticated(Authenticated::Principal(principal), None),
        authenticated(Authenticated::Refusal(6), Some(detail)),
        answer::Response::Authorize(v1::AuthorizeResponse {
            result: Some(Authorized::Grant(grant)),
            refusal_detail: None,
        }),
        answer::Response::Extend(v1::ExtendResponse {
            result: Some(extend_response::Result::Extension(extension)),
        }),
        answer::Response::Capture(v1::CaptureResponse {
            result: Some(capture_response::Result::Captured(captured)),
        }),
        answer::Response::Release(v1::ReleaseResponse {}),
        answer::Response::Failure(v1::Failure { code: 14, message: "away".into() }),
    ];
    let answers = responses.map(|response| v1::Answer { id: 7, response: Some(response) }.encode_to_vec());
    let clock = SessionClock::starting(Instant::now());
    let asked: Vec<Call> = {
        let read =
            |bytes: &[u8]| Call::from_message(v1::Call::decode(bytes).unwrap().request, clock).unwrap();
        calls().iter().map(|bytes| read(bytes)).collect()
    };
    fuzz(&Examples::of(answers), |input: &Input| {
        let Ok(message) = v1::Answer::decode(input.bytes()) else { return };
        for call in &asked {
            let Some(response) = message.response.clone() else { return };
            if let Ok(answer) = Answer::from_message(response, call) {
                let written = answer.to_message();
                let again = Answer::from_message(written.clone(), call).unwrap();
                assert_eq!(again.to_message(), written);
            }
        }
    });
}

/// Whatever the file contains, each of its lines is read as a delivery, kept as damaged, or read as a capture that
/// stays the same when it is written and read again.
#[test]
fn spool() {
    let (generation, account, key) = ids();
    let capture = format!(
        r#"{{"capture":{{"at_ms":7,"generation":"{generation}","account":"{account}","key":"{key}","model":"m \"x\"","price":[1,2,3],"tiers":[{{"above":9,"rates":[1,2,3,null,4]}}],"upstream":1,"upstream_cost":{{"rates":[1,1,1]}},"usage":{{"prompt":1,"cached":0,"completion":2}},"charged":{{"prompt":1,"cached":0,"completion":1}},"estimated":false}}}}"#
    );
    let done = format!(r#"{{"done":"{generation}"}}"#);
    let examples = [format!("{capture}\n"), format!("{capture}\n{done}\n{{\"a\":1}}\n\n{capture}")];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("captures.jsonl");
    fuzz(&Examples::of(examples), |input: &Input| {
        fs::write(&file, input.bytes()).unwrap();
        let SpoolContents { pending, damaged } = spool::read(&file).unwrap();
        let lines = input.bytes().split_inclusive(|byte| *byte == b'\n');
        let is_readable = |line: &&[u8]| serde_json::from_slice::<SpoolLine>(line).is_ok();
        let others = lines.filter(|line| !is_readable(line) && !line.trim_ascii().is_empty());
        assert!(others.eq(damaged.iter().map(Vec::as_slice)));
        let text: String =
            pending.iter().map(|it| SpoolLine::Capture(it.clone()).to_text().unwrap()).collect();
        fs::write(&file, text).unwrap();
        assert_eq!(spool::read(&file).unwrap(), SpoolContents { pending, damaged: Vec::new() });
    });
}
