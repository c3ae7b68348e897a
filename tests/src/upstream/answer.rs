//! Answers one request as its script demands.

use std::{future::pending, io, sync::Arc, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;
use tokio::time::sleep;

use super::{
    State, cut,
    record::{End, Generation, Running},
    render::{self, Events},
    request::{Asked, StreamOptions},
    script::{Fault, Script, Style, Told, Usage},
};

/// Time for a few small writes to leave the machine's buffers.
const LEAVING: Duration = Duration::from_millis(20);

/// Pause between the comments of an upstream that has nothing else to send.
const COMMENTS_EVERY: Duration = Duration::from_millis(100);

/// Error of vLLM for a request that exceeds its context.
const TOO_LONG: &str = r#"{"error":{"message":"This model's maximum context length is 100 tokens. However, your request has too many.","type":"BadRequestError","param":"input_tokens","code":400}}"#;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers one request; an error cuts the connection.
pub(super) async fn answer(request: Request<Incoming>, state: Arc<State>) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let Parts { method, uri, headers, .. } = head;
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match (&method, uri.path()) {
        (&Method::POST, "/v1/chat/completions") => chat(headers, body, &state).await,
        (&Method::POST, "/tokenize" | "/v1/tokenize" | "/v1/chat/completions/input_tokens") => {
            Ok(tokenize(&body, uri.path().ends_with("input_tokens"), &state).await)
        }
        (&Method::GET, "/health" | "/v1/health") => Ok(json_response(StatusCode::OK, r#"{"status":"ok"}"#)),
        (&Method::GET, "/v1/models") => Ok(json_response(
            StatusCode::OK,
            r#"{"object":"list","data":[{"id":"scripted","object":"model"}]}"#,
        )),
        _ => Ok(json_response(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#)),
    }
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
    if !asked.fits(&script) {
        return Ok(json_response(StatusCode::BAD_REQUEST, TOO_LONG));
    }
    let plan = Plan::new(&asked, script);
    let running = Running::start(state.records.as_ref(), || Generation {
        tag: plan.script.tag.clone(),
        script: plan.script.clone(),
        headers,
        body: body.clone(),
        streamed: asked.stream,
        served: Usage::default(),
        reported: None,
        ended: None,
    });
    sleep_ms(plan.script.head_after_ms).await;
    match plan.script.fault {
        Fault::CutBeforeHead => {
            running.end(End::Failed);
            Err(cut())
        }
        Fault::StallBeforeHead => pending().await,
        Fault::Error { status, shape } => {
            running.end(End::Failed);
            let status = StatusCode::from_u16(status).expect("a script's status is one");
            Ok(json_response(status, &shape.body(status.as_u16())))
        }
        _ if asked.stream => Ok(streamed(plan, running)),
        _ => Ok(whole(&plan, running)),
    }
}

/// Planned generation for one request.
struct Plan {
    script: Script,
    model: String,
    options: StreamOptions,
    timings_per_token: bool,
    choices: u64,
    alternatives: Option<u64>,
    /// Number of tokens of each choice.
    length: u64,
    prompt: u64,
    finish: String,
}

impl Plan {
    fn new(asked: &Asked<'_>, mut script: Script) -> Self {
        let (length, shortened) = asked.length(&script);
        if script.event_tokens > 1 {
            // The last event may be shorter.
            script.completion_tokens = script.completion_tokens.min(length);
        }
        let honest = match (shortened, script.tool_calls) {
            (true, _) => "length",
            (false, 0) => "stop",
            (false, _) => "tool_calls",
        };
        Self {
            model: asked.model.clone().into_owned(),
            options: asked.stream_options,
            timings_per_token: asked.timings_per_token,
            choices: asked.choices(),
            alternatives: asked.alternatives(),
            length,
            prompt: asked.prompt_tokens(&script),
            finish: script.finish_reason.clone().unwrap_or_else(|| honest.into()),
            script,
        }
    }

    fn served(&self, completion: u64) -> Usage {
        Usage { prompt: self.prompt, cached: self.script.cached_tokens, completion }
    }

    /// Usage to report for this many generated tokens.
    fn told(&self, completion: u64) -> Option<Usage> {
        match self.script.told {
            Told::Truth => Some(self.served(completion)),
            Told::Nothing => None,
            Told::Lie(usage) => Some(usage),
        }
    }
}

fn whole(plan: &Plan, running: Running) -> Response<Body> {
    let script = &plan.script;
    let generated = plan.length * plan.choices;
    let finish = (script.fault != Fault::NoFinishReason).then_some(plan.finish.as_str());
    let told = plan.told(generated);
    let text = render::whole(&plan.model, script, plan.length, plan.choices, plan.alternatives, finish, told);
    running.serve(plan.served(generated), told);
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

/// Cuts the connection after earlier output has left: bytes still in a buffer would be cut too.
async fn cut_later() -> io::Result<Bytes> {
    sleep(LEAVING).await;
    Err(cut())
}

fn streamed(plan: Plan, running: Running) -> Response<Body> {
    let events = Events::new(&plan.model, plan.script.style, plan.alternatives);
    let steps = steps(&plan);
    let state = Streaming { plan, events, running, steps, generated: 0 };
    let frames = stream::unfold(state, async |mut state| {
        let piece = state.next().await?;
        Some((piece.map(|text| Frame::data(Bytes::from(text))), state))
    });
    respond(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

/// One step of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Role { choice: u64 },
    Token { choice: u64, index: u64 },
    Fault,
    Finish { choice: u64 },
    Usage,
    Done,
}

/// All steps of a stream, faults included.
fn steps(plan: &Plan) -> Box<dyn Iterator<Item = Step> + Send> {
    let (choices, length, fault) = (plan.choices, plan.length, plan.script.fault);
    let (style, told) = (plan.script.style, plan.script.told);
    let roles = (0..choices).filter(move |_| !style.no_role).map(|choice| Step::Role { choice });
    let tokens = move |indices: std::ops::Range<u64>| {
        indices.flat_map(move |index| (0..choices).map(move |choice| Step::Token { choice, index }))
    };
    if let Some(after) = fault.after() {
        return Box::new(roles.chain(tokens(0..after.min(length))).chain([Step::Fault]));
    }
    let finishes = (0..choices)
        .filter(move |_| !(style.text_on_finish && length > 0) && fault != Fault::NoFinishReason)
        .map(|choice| Step::Finish { choice });
    let usage = (plan.options.include_usage && told != Told::Nothing).then_some(Step::Usage);
    let tail = match fault {
        Fault::CutBeforeUsage => vec![Step::Fault],
        Fault::NoDone => usage.into_iter().collect(),
        Fault::StallBeforeDone => usage.into_iter().chain([Step::Fault]).collect(),
        _ => usage.into_iter().chain([Step::Done]).collect(),
    };
    Box::new(roles.chain(tokens(0..length)).chain(finishes).chain(tail))
}

/// A stream in progress.
struct Streaming {
    plan: Plan,
    events: Events,
    running: Running,
    steps: Box<dyn Iterator<Item = Step> + Send>,
    generated: u64,
}

impl Streaming {
    /// Next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            let Some(step) = self.steps.next() else {
                self.running.end(End::Finished);
                return None;
            };
            let piece = self.step(step).await?;
            // An empty piece would end the body.
            if piece.as_ref().is_ok_and(String::is_empty) {
                continue;
            }
            return Some(piece);
        }
    }

    /// Performs one step; returns an empty piece if it sends nothing.
    async fn step(&mut self, step: Step) -> Option<io::Result<String>> {
        match step {
            Step::Role { choice } => Some(Ok(self.events.role(choice, &self.plan.script, self.continuous()))),
            Step::Token { choice, index } => Some(Ok(self.token(choice, index).await)),
            Step::Fault => self.fault().await,
            Step::Finish { choice } => {
                let Plan { script, finish, .. } = &self.plan;
                Some(Ok(self.events.finish(choice, script, finish, self.continuous())))
            }
            Step::Usage => {
                let told = self.plan.told(self.generated)?;
                self.running.serve(self.plan.served(self.generated), Some(told));
                Some(Ok(self.events.usage(&self.plan.script, told)))
            }
            Step::Done => {
                self.running.end(End::Finished);
                Some(Ok(self.events.data("[DONE]")))
            }
        }
    }

    async fn token(&mut self, choice: u64, index: u64) -> String {
        if choice == 0 && index > 0 {
            sleep_ms(self.plan.script.pace_ms).await;
        }
        self.generated += self.plan.script.weight(self.plan.script.token(index));
        let told = self.continuous();
        self.running.serve(self.plan.served(self.generated), told);
        let style = self.plan.script.style;
        let last = style.text_on_finish && index + 1 == self.plan.length;
        let finish = last.then_some(self.plan.finish.as_str());
        let event = self.events.token(choice, &self.plan.script, index, finish, told);
        if style.comments { format!("{}{event}", self.events.comment()) } else { event }
    }

    async fn fault(&mut self) -> Option<io::Result<String>> {
        self.steps = Box::new(std::iter::empty());
        match self.plan.script.fault {
            Fault::Stall { .. } => pending().await,
            Fault::Comments { .. } => {
                self.steps = Box::new(std::iter::once(Step::Fault));
                sleep(COMMENTS_EVERY).await;
                Some(Ok(self.events.comment()))
            }
            Fault::StallBeforeDone => {
                self.running.end(End::Finished);
                pending().await
            }
            Fault::Nonsense { .. } => {
                self.running.end(End::Failed);
                Some(Ok(self.events.data("<html>this is no event</html>")))
            }
            Fault::ErrorEvent { shape, .. } => {
                self.running.end(End::Failed);
                let (error, done) = (self.events.data(&shape.body(500)), self.events.data("[DONE]"));
                Some(Ok(format!("{error}{done}")))
            }
            Fault::End { .. } => {
                self.running.end(End::Failed);
                None
            }
            _ => {
                let cut = cut_later().await;
                self.running.end(End::Failed);
                Some(cut.map(|_: Bytes| String::new()))
            }
        }
    }

    /// Usage to report in an ordinary chunk.
    fn continuous(&self) -> Option<Usage> {
        let Plan { options, timings_per_token, script, .. } = &self.plan;
        let wanted = match script.style {
            Style { timings: true, .. } => *timings_per_token,
            Style { usage_at_end_only, .. } => options.continuous_usage_stats && !usage_at_end_only,
        };
        if wanted { self.plan.told(self.generated) } else { None }
    }
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

async fn sleep_ms(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}
