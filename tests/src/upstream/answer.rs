//! Answers one request as its script demands.

use std::{future::pending, io, sync::Arc, sync::atomic::Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;

use super::{
    State,
    cut::{cut, cut_later, sleep_ms},
    plan::{Place, Plan},
    record::{End, Generation, Running},
    render,
    request::Asked,
    script::{Fault, Shape, Usage},
    streaming, template,
};

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers one request; an error cuts the connection.
pub(super) async fn answer(request: Request<Incoming>, state: Arc<State>) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let Parts { method, uri, headers, .. } = head;
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match (&method, uri.path()) {
        (&Method::POST, "/v1/chat/completions") => chat(headers, body, &state).await,
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

/// The models that catalogues of tests name, as vLLM lists them.
fn models(window: Option<u64>) -> Response<Body> {
    let names = ["model-flash", "model-max", "flash", "embed", "hosted", "marked-up", "later"];
    let model =
        |name: &str| json!({"id": format!("scripted/{name}"), "object": "model", "max_model_len": window});
    let list = json!({"object": "list", "data": names.map(model)});
    json_response(StatusCode::OK, &list.to_string())
}

/// A vector for each prompt of a list, each prompt of ten tokens.
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

async fn chat(headers: HeaderMap, body: Bytes, state: &State) -> io::Result<Response<Body>> {
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
        script.fault = Fault::None;
    }
    if script.caches {
        script.cached_tokens = state.cache.read(asked.cache_salt(), asked.messages.get());
    }
    if let Some(message) = asked.too_long(&script) {
        let error = json!({"error": {"message": message, "type": "BadRequestError", "param": "max_tokens", "code": 400}});
        return Ok(json_response(StatusCode::BAD_REQUEST, &error.to_string()));
    }
    let plan = Plan::new(&asked, script);
    let running = Running::start(state.records.as_ref(), || Generation {
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
    let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
    let rest: Option<stream::BoxStream<'static, io::Result<Bytes>>> = match script.fault {
        Fault::Nonsense { .. } => {
            running.end(End::Failed);
            return json_response(StatusCode::OK, "<html>this is no answer</html>");
        }
        Fault::Stall { .. } => Some(stream::pending().boxed()),
        Fault::Cut { .. } | Fault::CutBeforeUsage => Some(stream::once(cut_later()).boxed()),
        Fault::End { .. } => Some(stream::empty().boxed()),
        _ => None,
    };
    let Some(rest) = rest else {
        if script.body_after_ms > 0 {
            return later(text, script.body_after_ms, running);
        }
        running.end(End::Finished);
        return match script.padding_mib {
            0 => json_response(StatusCode::OK, &text),
            mib => padded(&text, mib),
        };
    };
    if !matches!(script.fault, Fault::Stall { .. }) {
        running.end(End::Failed);
    }
    let frames = stream::iter([Ok(half)]).chain(rest).map(move |piece| {
        let _held = &running;
        piece.map(Frame::data)
    });
    respond(StatusCode::OK, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// Answers with the head at once, and the body `ms` milliseconds later.
fn later(text: String, ms: u64, running: Running) -> Response<Body> {
    let body = stream::once(async move {
        sleep_ms(ms).await;
        running.end(End::Finished);
        Ok(Frame::data(Bytes::from(text)))
    });
    respond(StatusCode::OK, "application/json", StreamBody::new(body).boxed_unsync())
}

/// An answer with this many mebibytes of spaces after its first brace.
fn padded(text: &str, mib: usize) -> Response<Body> {
    let blanks = Bytes::from(vec![b' '; 1 << 20]);
    let pieces = std::iter::once(Bytes::copy_from_slice(&text.as_bytes()[..1]))
        .chain(std::iter::repeat_n(blanks, mib))
        .chain([Bytes::copy_from_slice(&text.as_bytes()[1..])]);
    let frames = stream::iter(pieces.map(Frame::data).map(Ok));
    let mut response = respond(StatusCode::OK, "application/json", StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_LENGTH, (text.len() + (mib << 20)).into());
    response
}

fn streamed(plan: Plan, running: Running) -> Response<Body> {
    let pieces = streaming::pieces(plan, running);
    let frames = pieces.map(|piece| piece.map(|text| Frame::data(Bytes::from(text))));
    respond(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

/// Exact length of a prompt, in the format of vLLM or of llama.cpp's server.
async fn tokenize(body: &Bytes, input_tokens: bool, state: &State) -> Response<Body> {
    state.token_counts.fetch_add(1, Ordering::Relaxed);
    match serde_json::from_slice::<Asked<'_>>(body) {
        Ok(asked) => {
            let script = asked.script().unwrap_or_else(|| state.default_script());
            let at_once = state.counting.fetch_add(1, Ordering::Relaxed) + 1;
            state.most_counting.fetch_max(at_once, Ordering::Relaxed);
            sleep_ms(script.count_after_ms).await;
            state.counting.fetch_sub(1, Ordering::Relaxed);
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

fn status(of_script: u16) -> StatusCode {
    StatusCode::from_u16(of_script).expect("a script's status is one")
}

fn json_response(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {});
    respond(status, "application/json", body.boxed_unsync())
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Internal header that clients must never see.
    headers.insert("x-scripted-upstream", HeaderValue::from_static("worker-7.internal"));
    response
}
