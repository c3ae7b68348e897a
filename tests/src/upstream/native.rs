//! OpenAI's Responses API and Anthropic's Messages API. This upstream is as strict as the vendors' own servers.

use std::{future::pending, io, sync::atomic::Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Response, StatusCode, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::{
    faults::{
        cut::{cut, sleep_ms},
        fault::{Fault, Shape},
        vendor_error::VendorError,
    },
    record::{Api, End, Generation, Running},
    reply::{Body, json_response, respond, whole_text},
    script::{Script, Usage},
    state::State,
};
use crate::upstream::state::take_time_to_count;

mod check;
mod error;
mod messages;
mod response_object;
mod responses;
mod signature;
mod stream;
#[cfg(test)]
mod tests;
mod vendor_words;
mod writer;

use crate::upstream::prompts::{
    plan::{CacheWrites, NativePlan},
    prompt::Prompt,
};
use check::Purpose;
use error::{ApiError, with_vendor_headers};
use writer::AnswerWriter;

/// A request that arrived.
pub(super) struct Arrived {
    /// Path and query of the request.
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Answers a request for a generation.
pub(super) async fn generate(api: Api, arrived: Arrived, state: &State) -> io::Result<Response<Body>> {
    Ok(with_vendor_headers(api, generated(api, arrived, state).await?))
}

async fn generated(api: Api, arrived: Arrived, state: &State) -> io::Result<Response<Body>> {
    let prompt = match read(api, Purpose::Generate, &arrived, state) {
        Ok(prompt) => prompt,
        Err(error) => return Ok(error.response(api)),
    };
    let mut script = script_of(&prompt, state);
    let prompt_tokens = prompt.tokens(&script);
    if let Some(window) = script.context.filter(|window| prompt_tokens >= *window) {
        return Ok(ApiError::prompt_too_long(api, prompt_tokens, window).response(api));
    }
    if let Fault::ErrorOfHead { status } = script.fault
        && (arrived.uri.query().is_some() || arrived.headers.contains_key("anthropic-beta"))
    {
        script.fault = Fault::Error { status, shape: Shape::Nested };
    }
    let serial = state.answers.fetch_add(1, Ordering::Relaxed);
    let mut writes = CacheWrites::default();
    if script.caches {
        (script.cached_tokens, writes) = cached(&prompt, prompt_tokens, &script, state);
    }
    let plan = NativePlan::new(prompt, script, writes, serial);
    let of = (plan.script.tag.as_str(), plan.served(0));
    let running = Running::start(state.records.as_ref(), of, || Generation {
        api,
        path: arrived.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        tag: plan.script.tag.clone(),
        script: plan.script.clone(),
        headers: arrived.headers,
        body: arrived.body.clone(),
        streamed: plan.prompt.streams(),
        served: Usage::default(),
        ended: None,
    });
    sleep_ms(plan.script.head_after_ms).await;
    if let Some(error) = plan.script.says_error {
        running.end(End::Failed);
        return Ok(vendor_error(api, error, plan.prompt.model()));
    }
    match plan.script.fault {
        Fault::CutBeforeHead => {
            running.end(End::Failed);
            Err(cut())
        }
        Fault::StallBeforeHead => pending().await,
        Fault::Error { status, shape } => {
            running.end(End::Failed);
            Ok(ApiError::of_status(status, shape).response(api))
        }
        _ => Ok(answered(api, plan, running)),
    }
}

fn answered(api: Api, plan: NativePlan, running: Running) -> Response<Body> {
    let mut writer: Box<dyn AnswerWriter> = match api {
        Api::Messages => Box::<messages::MessagesWriter>::default(),
        Api::Responses | Api::Chat => Box::<responses::ResponsesWriter>::default(),
    };
    if plan.prompt.streams() {
        let frames =
            stream::pieces(plan, writer, running).map(|piece| piece.map(|text| Frame::data(text.into())));
        return respond(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync());
    }
    for index in 0..plan.length {
        let _ = writer.token(&plan, index);
    }
    let _ = writer.close(&plan);
    let generated = (0..plan.length).map(|index| plan.script.weight(plan.script.token(index))).sum();
    running.serve(plan.served(generated));
    let mut whole = writer.whole(&plan, generated);
    if plan.script.unknown_events {
        whole[writer::UNKNOWN_MEMBER] = true.into();
    }
    whole_text(&plan.text(&whole), &plan.script, running)
}

/// Returns how many prompt tokens were cached before, and how many become cached now.
fn cached(prompt: &Prompt, total: u64, script: &Script, state: &State) -> (u64, CacheWrites) {
    let minimum = script.cache_minimum;
    if prompt.api == Api::Messages {
        return state.breakpoints.read(prompt, total, minimum);
    }
    let salt = format!("{} {}", prompt.model(), prompt.body["prompt_cache_key"]);
    let cached = state.cache.read(&salt, &prompt.text()).min(total);
    (if cached < minimum { 0 } else { cached }, CacheWrites::default())
}

/// Returns the script of a request, for the current state of the upstream.
fn script_of(prompt: &Prompt, state: &State) -> Script {
    let mut script = prompt.script().unwrap_or_else(|| state.default_script());
    if script.faults > 0 && state.earlier(&script.tag) >= script.faults {
        script = script.recovered();
    }
    script
}

/// Returns an error response worded as the API's vendor words it.
pub(super) fn vendor_error(api: Api, error: VendorError, model: &str) -> Response<Body> {
    with_vendor_headers(api, ApiError::of_vendor(api, error, model).response(api))
}

/// Responds with the number of tokens in a prompt.
pub(super) async fn count(api: Api, arrived: Arrived, state: &State) -> Response<Body> {
    state.token_counts.fetch_add(1, Ordering::Relaxed);
    let prompt = match read(api, Purpose::Count, &arrived, state) {
        Ok(prompt) => prompt,
        Err(error) => return error.response(api),
    };
    let script = script_of(&prompt, state);
    take_time_to_count(state, &script).await;
    if script.count_status > 0 {
        return ApiError::of_status(script.count_status, Shape::Nested).response(api);
    }
    let tokens = prompt.tokens(&script);
    let counted = match api {
        Api::Messages => json!({"input_tokens": tokens}),
        Api::Responses | Api::Chat => json!({"object": "response.input_tokens", "input_tokens": tokens}),
    };
    json_response(StatusCode::OK, &counted.to_string())
}

/// Reads and checks a request.
fn read(api: Api, purpose: Purpose, arrived: &Arrived, state: &State) -> Result<Prompt, ApiError> {
    check::credential(api, &arrived.headers, state.key.lock().unwrap().as_deref())?;
    let body = match serde_json::from_slice(&arrived.body) {
        Ok(body @ Value::Object(_)) => body,
        Ok(_) => return Err(ApiError::invalid("the body is no object", None)),
        Err(e) => return Err(ApiError::invalid(&format!("the body is no JSON: {e}"), None)),
    };
    let prompt = Prompt { api, body };
    check::check(&prompt, purpose, &arrived.headers)?;
    Ok(prompt)
}
