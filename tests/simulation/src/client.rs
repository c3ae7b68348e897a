//! Clients: each sends one request in some dialect, and reads the answer to its end or leaves midway.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shared::{ids::GenerationId, money::NanoUsd};
use tests::{
    harness::{Dialect, nanos},
    upstream::Script,
};
use tokio::time::{Instant, sleep};

use crate::{
    services::gateway::Gateway,
    trace::{Trace, tell},
};

/// A request to be made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Index of the key among the run's keys.
    pub(crate) key: usize,
    pub(crate) model: &'static str,
    pub(crate) dialect: Dialect,
    pub(crate) is_stream: bool,
    /// Whether the request announces the length of its body. If not, its key is checked before the body is read.
    pub(crate) tells_length: bool,
    pub(crate) max_tokens: u64,
    pub(crate) script: Script,
    /// Time after which the client leaves.
    pub(crate) leaves_after: Option<Duration>,
}

/// What a client received.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) sent: Instant,
    pub(crate) status: Option<u16>,
    pub(crate) generation: Option<GenerationId>,
    /// Whether the answer was complete.
    pub(crate) is_complete: bool,
    /// Cost that the answer reports.
    pub(crate) cost: Option<NanoUsd>,
    /// Text of the error, if any.
    pub(crate) says: String,
}

/// Sends a request, and reads as much of the answer as arrives.
pub(crate) async fn ask(gateway: &Gateway, credential: &str, plan: Plan, trace: Arc<Trace>) -> Outcome {
    let (tag, place) = (plan.script.tag.clone(), gateway.process.place.clone());
    let Plan { key, model, dialect, is_stream, script, .. } = &plan;
    let script = script.message();
    tell!(
        trace,
        "client {tag} asks {place} as key {key} for {model} in {dialect:?}, stream {is_stream}: {script}"
    );
    let (process, leaves_after) = (gateway.process.clone(), plan.leaves_after);
    let mut outcome = Outcome {
        plan,
        sent: Instant::now(),
        status: None,
        generation: None,
        is_complete: false,
        cost: None,
        says: String::new(),
    };
    let answer = gateway.gateway.answer(request(credential, &outcome.plan));
    let leaving = async {
        match leaves_after {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let how = tokio::select! {
        biased;
        () = process.ended() => "lost its gateway",
        () = read(answer, &mut outcome) => "was answered",
        () = leaving => "left",
    };
    let Outcome { status, is_complete, cost, generation, says, .. } = &outcome;
    let generation = generation.map(|id| id.to_string()).unwrap_or_default();
    tell!(trace, "client {tag} {how}: {status:?} {generation} complete {is_complete}, cost {cost:?} {says}");
    outcome
}

async fn read(answer: impl Future<Output = Response<Body>>, outcome: &mut Outcome) {
    let answer = answer.await;
    outcome.status = Some(answer.status().as_u16());
    let id = answer.headers().get("x-generation-id").and_then(|id| id.to_str().ok()?.parse().ok());
    outcome.generation = id;
    let (mut body, mut text, mut is_whole) = (answer.into_body(), Vec::new(), true);
    while let Some(frame) = body.frame().await {
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(data)) => text.extend_from_slice(&data),
            Ok(Err(_)) => {}
            Err(_) => is_whole = false,
        }
    }
    let text = String::from_utf8(text).unwrap();
    if outcome.status != Some(200) {
        outcome.says = text;
        return;
    }
    let events: Vec<Value> = if outcome.plan.is_stream {
        text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
    } else {
        serde_json::from_str(&text).into_iter().collect()
    };
    outcome.is_complete = is_whole && is_complete(&text, &events, &outcome.plan);
    let usages = events.iter().flat_map(|event| [&event["usage"], &event["response"]["usage"]]);
    outcome.cost = usages.filter_map(|usage| usage.get("cost")).rfind(|cost| !cost.is_null()).map(nanos);
}

fn is_complete(text: &str, events: &[Value], plan: &Plan) -> bool {
    if !plan.is_stream {
        return events.len() == 1;
    }
    let ends_with =
        |names: &[&str]| events.iter().any(|event| names.iter().any(|name| event["type"] == *name));
    match plan.dialect {
        Dialect::Chat => {
            text.contains("data: [DONE]") && !events.iter().any(|event| event.get("error").is_some())
        }
        Dialect::Responses => ends_with(&["response.completed", "response.incomplete"]),
        Dialect::Messages => ends_with(&["message_stop"]),
    }
}

fn request(credential: &str, plan: &Plan) -> Request<Body> {
    let said = json!([{"role": "user", "content": plan.script.message()}]);
    let mut body = json!({"model": plan.model, "stream": plan.is_stream});
    match plan.dialect {
        Dialect::Chat => {
            body["messages"] = said;
            body["max_tokens"] = plan.max_tokens.into();
            if plan.is_stream {
                body["stream_options"] = json!({"include_usage": true});
            }
        }
        Dialect::Responses => {
            body["input"] = said;
            body["max_output_tokens"] = plan.max_tokens.into();
        }
        Dialect::Messages => {
            body["messages"] = said;
            body["max_tokens"] = plan.max_tokens.into();
        }
    }
    let body = body.to_string();
    let length = plan.tells_length.then_some((header::CONTENT_LENGTH, body.len()));
    let request = Request::post(plan.dialect.path()).header(header::HOST, "gateway");
    let request = length.into_iter().fold(request, |request, (name, length)| request.header(name, length));
    request
        .header(header::AUTHORIZATION, format!("Bearer {credential}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header("anthropic-version", "2023-06-01")
        .body(Body::from(body))
        .unwrap()
}
