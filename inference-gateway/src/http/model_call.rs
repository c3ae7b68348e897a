//! A model call in any dialect. Checks run in a fixed order: credential, key, body, model, money. The first failure is
//! returned.

use std::sync::Arc;

use admission::{grow_to, parses_slowly, take_bytes};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use request::{Forward, Request};
use shared::{
    error::{ApiError, Code},
    ids::GenerationId,
};
use shared_catalog::Catalog;
use shared_door::{
    admission::Permit,
    http::{ClientRequestId, content_length, read_body_within, require_json},
    serve::Unread,
};
use tokio::time::{Instant, timeout};
use upstreams::{Models, PassedHead};

use super::{
    app::{App, Call},
    caller::{authenticate, credential},
    dialect::Dialect,
    observe::AlreadyLogged,
    rate_headers,
};
use crate::{
    client::{Client, RunToEnd},
    generation::{AnswerBody, Job, Started},
};

/// Largest body that is read before its sender is authenticated, since reading it costs no more than authentication.
/// Larger bodies, bodies of unknown size, and bodies beyond the budget of unauthenticated callers are read only after
/// authentication.
const SMALL_BODY: u64 = 64 << 10;

/// Response header with the generation's id, which is also the billing id.
pub(super) const X_GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");
/// Response header with the value to which `max_tokens` was lowered, because of the model's limit or because no more
/// can be paid for.
pub(super) const X_MAX_TOKENS: HeaderName = HeaderName::from_static("x-max-tokens");

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Response header with the names of offered tools that were dropped, because no upstream supports them.
pub(super) const X_DROPPED_TOOLS: HeaderName = HeaderName::from_static("x-dropped-tools");
/// Response header with the names of request members that no upstream gets.
pub(super) const X_DROPPED_MEMBERS: HeaderName = HeaderName::from_static("x-dropped-members");

/// `POST` on the route of a dialect.
pub(super) async fn create(app: Arc<App>, dialect: Dialect, call: Call) -> Result<Response, ApiError> {
    let caller = call.caller();
    let (request, span, (parts, body)) = (call.id, call.span, call.request.into_parts());
    let credential = credential(&app, &parts.headers, &caller).await?;
    let mut permit = app.generator.admission.small_body();
    let small = small_length(&parts.headers).is_some_and(|length| permit.try_grow(2 * length));
    if !small {
        permit = match authenticate(&app, &credential, &caller).await {
            Ok(identity) => app.generator.admission.prompt(identity.account()),
            Err(refusal) => return Ok(unread(refusal)),
        };
    }
    let parse = move |body: &Bytes, catalog: &Catalog| dialect.parse(body, catalog);
    let checked = check(&app, &parts.headers, body, parse, small, &mut permit).await;
    let checked = checked.and_then(|checked| Ok((checked, PassedHead::of(&parts)?)));
    let (Checked { models, model, alias, mut forward }, passed) = match checked {
        Ok(checked) => checked,
        Err(fault) if !small && fault.code == Code::Overloaded => return Ok(unread(fault)),
        Err(fault) if !small => return Err(fault),
        Err(fault) => {
            authenticate(&app, &credential, &caller).await?;
            return Err(fault);
        }
    };
    let admitted = app.generator.admission.admit(caller, permit).await?;
    let id = GenerationId::generate(&*app.generator.clock);
    let (created, stream) = (app.generator.clock.now().seconds(), forward.stream);
    let client_request = ClientRequestId::read(&parts.headers);
    let session = ClientRequestId::read_session(&parts.headers);
    let dropped = [
        (X_DROPPED_TOOLS, forward.dropped_tools.take()),
        (X_DROPPED_MEMBERS, forward.dropped_members.take()),
    ];
    let job = Job {
        id,
        request,
        span,
        client_request,
        session,
        created,
        accepted: Instant::now(),
        credential,
        models,
        model,
        alias,
        forward,
        passed,
        admitted,
    };
    let client = Client::default();
    let running = app.generator.clone().run(job, client.clone());
    let mut running = RunToEnd::new(running, client, &app.generator.running);
    // The upstream's own deadline bounds the time until a stream begins. After this deadline, a whole answer continues
    // in the background and is billed at its end.
    let started = if stream {
        running.await
    } else if let Ok(started) = timeout(app.generator.answer_deadline, &mut running).await {
        started
    } else {
        running.run_in_background();
        Err(late())
    };
    let stream = started.as_ref().ok().and_then(|started| started.body.stream());
    let mut response = started.map_or_else(IntoResponse::into_response, respond);
    name_dropped(dropped, response.headers_mut());
    // A stream ends and is billed if its client reads nothing for this long.
    response.extensions_mut().insert(Unread { bound: app.generator.client_stall, stream });
    response.extensions_mut().insert(AlreadyLogged);
    Ok(response)
}

/// Adds the headers that name what was dropped.
fn name_dropped(dropped: [(HeaderName, Option<String>); 2], headers: &mut HeaderMap) {
    for (header, names) in dropped {
        if let Some(Ok(names)) = names.map(HeaderValue::try_from) {
            headers.insert(header, names);
        }
    }
}

/// Returns the length of a body small enough to be read before authentication.
fn small_length(headers: &HeaderMap) -> Option<usize> {
    usize::try_from(content_length(headers).filter(|length| *length <= SMALL_BODY)?).ok()
}

/// A request that was checked.
pub(super) struct Checked {
    /// The models that were current when the request was checked.
    pub(super) models: Arc<Models>,
    pub(super) model: String,
    /// The alias in the request, if it named the model by one.
    alias: Option<String>,
    pub(super) forward: Forward,
}

/// Reads and checks the request. The bytes of the body, and all bytes kept from it, count against the permit, which may
/// already include some of them.
pub(super) async fn check(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    parse: impl FnOnce(&Bytes, &Catalog) -> Result<Request, ApiError> + Send + 'static,
    permitted: bool,
    permit: &mut Permit,
) -> Result<Checked, ApiError> {
    require_json(headers, None)?;
    let mut reserve = |bytes| if permitted { Ok(()) } else { take_bytes(permit, bytes) };
    let body = read_body_within(headers, body, app.max_body, &mut reserve).await?;
    // The body for upstreams is in memory at the same time as the received body.
    reserve(body.len())?;
    let is_slow = parses_slowly(&body);
    let models = app.models.get();
    let check = move |permit: &mut Permit| Checked::new(body, parse, models, permit);
    let checked = if is_slow { app.generator.admission.apart(permit, check).await?? } else { check(permit)? };
    permit.shrink_to(checked.forward.kept_bytes());
    Ok(checked)
}

impl Checked {
    fn new(
        body: Bytes,
        parse: impl FnOnce(&Bytes, &Catalog) -> Result<Request, ApiError>,
        models: Arc<Models>,
        permit: &mut Permit,
    ) -> Result<Self, ApiError> {
        let request = parse(&body, &models.catalog)?;
        grow_to(permit, body.len() + request.kept_bytes())?;
        // The request keeps what it needs from the body, so the rest is freed.
        drop(body);
        let model = models.catalog.model(&request.model);
        let model = model.ok_or_else(|| ApiError::model_not_found(models.catalog.ids()))?;
        let alias = (request.model != model.id).then(|| request.model.clone());
        let forward = request.forward_within(model, &mut |bytes| grow_to(permit, bytes))?;
        grow_to(permit, forward.kept_bytes())?;
        let model = model.id.clone();
        Ok(Self { models, model, alias, forward })
    }
}

/// Makes the response to a generation whose answer begins.
fn respond(Started { id, max_tokens, rates, body }: Started) -> Response {
    let (body, content_type, stream) = match body {
        AnswerBody::Whole(bytes) => (Body::from(bytes), "application/json", false),
        AnswerBody::Stream(stream) => (Body::new(stream), "text/event-stream", true),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if stream {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        headers.insert(X_GENERATION_ID, id);
    }
    if let Some(max_tokens) = max_tokens {
        headers.insert(X_MAX_TOKENS, max_tokens.into());
    }
    if let Some(rates) = rates {
        rate_headers::insert(&rates, headers);
    }
    response
}

/// Answers a request whose body was not read. The connection cannot carry another request.
fn unread(refusal: ApiError) -> Response {
    let mut response = refusal.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Makes the error for a late answer. It asks the client not to retry, since a retry would pay twice.
fn late() -> ApiError {
    let mut error = ApiError::new(Code::UpstreamTimeout, "The model did not answer in time.");
    error.final_answer = true;
    error
}
