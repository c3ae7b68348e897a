//! Answers one request as its script says.

use std::{future::pending, io, sync::Arc, sync::atomic::Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;

use super::{
    chat::{
        plan::{Place, Plan},
        render,
        request::Asked,
        streaming, template,
    },
    faults::{
        cut::{cut, sleep_ms},
        fault::{Fault, Shape},
    },
    native::{self, Arrived},
    record::{Api, End, Generation, Running},
    reply::{Body, json_response, respond, status, whole_text},
    script::Usage,
    state::State,
};
use crate::upstream::state::take_time_to_count;

/// Answers one request; an error cuts the connection.
pub(super) async fn answer(request: Request<Incoming>, state: Arc<State>) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let Parts { method, uri, headers, .. } = head;
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match (&method, uri.path()) {
        (&Method::POST, "/v1/chat/completions") => chat(Arrived { uri, headers, body }, &state).await,
        (&Method::POST, path) if path.ends_with("/responses") => {
            native::generate(Api::Responses, Arrived { uri, headers, body }, &state).await
        }
        (&Method::POST, path) if path.ends_with("/messages") => {
            native::generate(Api::Messages, Arrived { uri, headers, body }, &state).await
        }
        (&Method::POST, path) if path.ends_with("/responses/input_tokens") => {
            Ok(native::count(Api::Responses, Arrived { uri, headers, body }, &state).await)
        }
        (&Method::POST, path) if path.ends_with("/messages/count_tokens") => {
            Ok(native::count(Api::Messages, Arrived { uri, headers, body }, &state).await)
        }
        (&Method::POST, "/v1/embeddings") => Ok(embeddings(&body)),
        (&Method::POST, "/tokenize" | "/v1/tokenize" | "/v1/chat/completions/input_tokens") => {
            Ok(tokenize(&body, uri.path().ends_with("input_tokens"), &state).await)
        }
        (&Method::GET, "/health" | "/v1/health") => Ok(json_response(StatusCode::OK, r#"{"status":"ok"}"#)),
        (&Method::GET, "/v1/models") => Ok(models(state.window())),
        (&Method::GET, "/props") => {
            let props = json!({"default_generation_settings": {"n_ctx": state.window()}, "total_slots": 1});
            Ok(json_response(StatusCode::OK, &props.to_string()))
        }
        _ => Ok(json_response(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#)),
    }
}

/// Returns the models that the tests' catalogues name, as vLLM lists them.
fn models(window: Option<u64>) -> Response<Body> {
    let names = ["model-flash", "model-max", "flash", "embed", "hosted", "marked-up", "later"];
    let model =
        |name: &str| json!({"id": format!("scripted/{name}"), "object": "model", "max_model_len": window});
    let list = json!({"object": "list", "data": names.map(model)});
    json_response(StatusCode::OK, &list.to_string())
}

/// Returns a vector for each prompt of a list. Each prompt counts as ten tokens.
fn embeddings(body: &Bytes) -> Response<Body> {
    let asked: serde_json::Value = serde_json::from_slice(body).expect("the gateway sends JSON");
    assert!(asked.get("max_tokens").is_none() && asked["model"] == "scripted/embed", "{asked}");
    let count = asked["input"].as_array().map_or(1, Vec::len);
    let vectors: Vec<_> = (0..count)
        .map(|index| format!(r#"{{"object":"embedding","index":{index},"embedding":[1.0e-3, -0.50]}}"#))
        .collect();
    let (vectors, tokens) = (vectors.join(", "), 10 * count);
    let text = format!(
        r#"{{"object":"list","data":[{vectors}],"model":"scripted","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#
    );
    json_response(StatusCode::OK, &text)
}

async fn chat(arrived: Arrived, state: &State) -> io::Result<Response<Body>> {
    let Arrived { uri, headers, body } = arrived;
    let asked: Asked<'_> = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(e) => {
            return Ok(json_response(
                StatusCode::UNPROCESSABLE_ENTITY,
                &json!({"detail": e.to_string()}).to_string(),
            ));
        }
    };
    let mut script = asked.script().unwrap_or_else(|| state.default_script());
    if script.faults > 0 && state.earlier(&script.tag) >= script.faults {
        script = script.recovered();
    }
    if script.caches {
        script.cached_tokens = state.cache.read(asked.cache_salt(), asked.messages.get());
    }
    if let Some(message) = asked.too_long(&script) {
        let error = json!({"error": {"message": message, "type": "BadRequestError", "param": "max_tokens", "code": 400}});
        return Ok(json_response(StatusCode::BAD_REQUEST, &error.to_string()));
    }
    let plan = Plan::new(&asked, script);
    let of = (plan.script.tag.as_str(), plan.served(0));
    let running = Running::start(state.records.as_ref(), of, || Generation {
        api: Api::Chat,
        path: uri.path_and_query().map_or_else(String::new, ToString::to_string),
        tag: plan.script.tag.clone(),
        script: plan.script.clone(),
        headers,
        body: body.clone(),
        streamed: asked.stream,
        served: Usage::default(),
        ended: None,
    });
    if let Some(refusal) = template::refusal(&asked, &plan.script) {
        running.end(End::Failed);
        return Ok(json_response(status(template::STATUS), &refusal));
    }
    sleep_ms(plan.script.head_after_ms).await;
    if let Some(error) = plan.script.says_error {
        running.end(End::Failed);
        return Ok(native::vendor_error(Api::Chat, error, &plan.model));
    }
    match plan.script.fault {
        Fault::CutBeforeHead => {
            running.end(End::Failed);
            Err(cut())
        }
        Fault::StallBeforeHead => pending().await,
        Fault::Error { status, shape } => {
            running.end(End::Failed);
            Ok(json_response(self::status(status), &shape.body(status)))
        }
        _ if asked.stream => Ok(streamed(plan, running)),
        _ => Ok(whole(&plan, running)),
    }
}

fn whole(plan: &Plan, running: Running) -> Response<Body> {
    let script = &plan.script;
    let finish = |choice| (script.fault != Fault::NoFinishReason).then(|| plan.finish(choice));
    let choices: Vec<_> =
        (0..).zip(&*plan.lengths).map(|(choice, length)| (*length, finish(choice))).collect();
    let generated = plan.lengths.iter().sum();
    let counted = if script.style.usage_apart { &plan.lengths[..1] } else { &plan.lengths };
    let report = plan.report(counted, Place::End);
    let text = render::whole(&plan.model, script, &choices, plan.alternatives, report.as_deref());
    running.serve(plan.served(generated));
    whole_text(&text, script, running)
}

fn streamed(plan: Plan, running: Running) -> Response<Body> {
    let pieces = streaming::pieces(plan, running);
    let frames = pieces.map(|piece| piece.map(|text| Frame::data(Bytes::from(text))));
    respond(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

/// Returns the exact length of a prompt, in the format of vLLM or of llama.cpp's server.
async fn tokenize(body: &Bytes, input_tokens: bool, state: &State) -> Response<Body> {
    state.token_counts.fetch_add(1, Ordering::Relaxed);
    match serde_json::from_slice::<Asked<'_>>(body) {
        Ok(asked) => {
            let script = asked.script().unwrap_or_else(|| state.default_script());
            take_time_to_count(state, &script).await;
            if script.count_status > 0 {
                return json_response(status(script.count_status), &Shape::Nested.body(script.count_status));
            }
            if let Some(refusal) = template::refusal(&asked, &script) {
                return json_response(status(template::STATUS), &refusal);
            }
            let count = asked.prompt_tokens(&script);
            let counted = if input_tokens {
                json!({"object": "response.input_tokens", "input_tokens": count})
            } else {
                json!({"count": count, "max_model_len": 1_048_576, "tokens": []})
            };
            json_response(StatusCode::OK, &counted.to_string())
        }
        Err(e) => {
            json_response(StatusCode::UNPROCESSABLE_ENTITY, &json!({"detail": e.to_string()}).to_string())
        }
    }
}
