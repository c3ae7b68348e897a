//! One chat request, from its authorization to its settlement.
//!
//! A generation runs in a task of its own: a client that leaves cannot interrupt it between opening a hold and taking
//! on the obligation to resolve it.

mod allowance;
mod lease;
mod streamed;
mod tally;
mod whole;

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::HeaderValue, response::Response};
use hyper::body::Incoming;
use shared::{
    error::ApiError,
    ids::{AccountId, GenerationId, KeyId, RequestId},
    money::NanoUsd,
    refusal::Refusal,
    tokens::Usage,
};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    domain::{
        affinity::{affinity, cache_salt},
        answer,
        chat::Forward,
        routing::Outcome,
    },
    http::{App, X_GENERATION_ID, X_MAX_TOKENS},
    keys::{Ask, Charge, Extension, Grant},
    meter::Meter,
    room::Room,
    settler::Slot,
    upstream::{Counted, Failure, Pool, Running},
};
use lease::Lease;
use tally::Tally;

/// Output tokens that a stream holds at first, and by which it extends: some tens of seconds of generation, and little
/// enough that an idle rest of it keeps nobody else waiting for long.
const GRANT_TOKENS: u64 = 1024;
/// With what is left held by others, a stream shorter than this is not worth beginning.
const ENOUGH_STREAMED: u64 = 64;
/// The same for a whole answer, which cannot be extended.
const ENOUGH_WHOLE: u64 = 512;

/// A checked request.
pub struct Job {
    /// The generation.
    pub id: GenerationId,
    /// The HTTP request, for the log.
    pub request: RequestId,
    /// When it came, in seconds since 1970.
    pub created: i64,
    /// The presented key.
    pub credential: String,
    /// The model's id.
    pub model: String,
    /// What goes to the upstream, and what of it matters here.
    pub forward: Forward,
    /// What it takes of the memory for prompts.
    pub room: Room,
}

impl Job {
    /// Output tokens wanted of all choices together.
    fn wanted(&self) -> u64 {
        self.forward.max_tokens.saturating_mul(self.forward.n)
    }

    /// Lets go of the prompt: an upstream has read it, and nobody has to count it any more.
    fn forget_prompt(&mut self) {
        self.forward.forget_prompt();
        self.room.shrink_to(0);
    }

    /// What every object of the answer says of itself.
    fn generation(&self) -> answer::Generation<'_> {
        answer::Generation { id: self.id, created: self.created, model: &self.model }
    }

    /// The tally of an answer that has not begun.
    fn tally(&self) -> Tally {
        Tally::new(self.forward.prompt_estimate, self.wanted(), self.forward.plausible)
    }
}

/// Where the response is waited for.
pub type Reply = oneshot::Sender<Result<Response, ApiError>>;

/// What a generation is doing, told once in the log.
struct Story {
    began: Instant,
    key: Option<KeyId>,
    usage: Usage,
    charge: Option<Charge>,
    first_token: Option<Duration>,
    ending: &'static str,
}

/// Runs the generation. `reply` hears of the response as soon as its head is known; for a stream that is long before
/// its end.
pub async fn run(app: Arc<App>, mut job: Job, slot: Slot, mut reply: Reply) {
    let mut story = Story {
        began: Instant::now(),
        key: None,
        usage: Usage::default(),
        charge: None,
        first_token: None,
        ending: "",
    };
    match begin(&app, &job, slot, &mut reply, &mut story).await {
        Err(error) => {
            story.ending = error.code.as_str();
            // Nobody listens where the client has gone.
            let _ = reply.send(Err(error));
        }
        Ok(None) => story.ending = "client_gone",
        Ok(Some((meter, begun))) if job.forward.stream => {
            streamed::run(&app, &mut job, meter, begun, reply, &mut story).await;
        }
        Ok(Some((meter, begun))) => {
            job.forget_prompt();
            let answered = whole::run(&app, &job, meter, begun, &mut story).await;
            story.ending = answered.as_ref().map_or_else(|e| e.code.as_str(), |_| "ok");
            let _ = reply.send(answered);
        }
    }
    count_generation(&job, &story);
    tell(&job, &story);
}

/// A generation whose upstream has answered 200.
struct Begun {
    lease: Lease,
    /// Output tokens covered by the hold, over all choices.
    granted: u64,
    /// What the upstream was told that each choice may have.
    max_tokens: u64,
    running: Running,
    body: Incoming,
}

/// Authorizes the generation and brings it to an upstream. `None`: the client of a stream left before it began.
async fn begin(
    app: &Arc<App>,
    job: &Job,
    slot: Slot,
    reply: &mut Reply,
    story: &mut Story,
) -> Result<Option<(Meter, Begun)>, ApiError> {
    let pool = app.pools.get(&job.model).ok_or_else(ApiError::internal)?;
    let asked = if job.forward.stream { job.wanted().min(GRANT_TOKENS) } else { job.wanted() };
    let grant = authorize(app, job, pool, asked).await?;
    let meter = Meter::new(grant.hold.clone(), slot);
    story.key = Some(grant.key);
    let lease = Lease::new(app.keys.clone(), &grant);
    // Unless it came first, the call of the upstream is dropped here: nobody generates for nothing.
    let reached = tokio::select! {
        reached = reach(pool, job, &grant, lease.clone(), asked) => reached,
        never = lease.keep(), if !job.forward.stream => match never {},
        () = lease.keep_until_revoked(), if job.forward.stream => {
            meter.release().await;
            return Err(Refusal::InvalidApiKey.into());
        }
        () = app.cut.cancelled() => Err(Failure::Broken("cut off, since the gateway stops".into())),
        () = reply.closed(), if job.forward.stream => {
            meter.release().await;
            return Ok(None);
        }
    };
    match reached {
        Ok(begun) => Ok(Some((meter, begun))),
        Err(failure) => {
            tracing::warn!(generation = %job.id, model = job.model, %failure, "the upstream did not answer");
            metrics::counter!("gateway_upstream_errors_total", "kind" => failure.kind()).increment(1);
            meter.release().await;
            Err(failure.into())
        }
    }
}

/// Makes the most of the grant, and sends the request to an upstream.
async fn reach(
    pool: &Pool,
    job: &Job,
    grant: &Grant,
    mut lease: Lease,
    asked: u64,
) -> Result<Begun, Failure> {
    let mut granted = grant.output_tokens;
    if granted < asked {
        granted = widen(&mut lease, pool, job, asked).await.unwrap_or(granted);
    }
    // Still less than was asked for: there is no more to be had, so the upstream is told, and stops by itself.
    let max_tokens = if granted < asked { granted / job.forward.n } else { job.forward.max_tokens };
    let (running, body) = send(pool, job, grant.account, max_tokens).await?;
    Ok(Begun { lease, granted, max_tokens, running, body })
}

/// Opens the hold. Where the prompt's bound cannot be paid but an exact count may be, that is tried before refusing.
async fn authorize(app: &App, job: &Job, pool: &Pool, asked: u64) -> Result<Grant, ApiError> {
    let enough = if job.forward.stream { ENOUGH_STREAMED } else { ENOUGH_WHOLE };
    let ask = Ask {
        credential: job.credential.clone(),
        generation: job.id,
        model: job.model.clone(),
        prompt_tokens: job.forward.prompt_bound,
        output_tokens: asked,
        enough_output_tokens: enough.min(asked),
        least_output_tokens: job.forward.n,
    };
    let refusal = match app.keys.authorize(ask.clone()).await? {
        Ok(grant) => return Ok(grant),
        Err(refusal) => refusal,
    };
    match refusal {
        Refusal::KeyLimitReached | Refusal::InsufficientCredits => {}
        // What others hold comes free again: trying later is better than counting now.
        Refusal::SpendReserved
        | Refusal::InvalidApiKey
        | Refusal::InvalidManagementKey
        | Refusal::KeyExpired
        | Refusal::ManagementKeyNotAllowed
        | Refusal::ManagementKeyRequired
        | Refusal::ModelNotFound => return Err(refusal.into()),
    }
    // A key that has nothing left is refused without troubling the upstream.
    app.keys.authenticate(&job.credential).await??;
    let counter = pool.choose(None, None).ok_or_else(ApiError::internal)?;
    let Some(exact) = count(&counter, job).await.filter(|exact| *exact < job.forward.prompt_bound) else {
        return Err(refusal.into());
    };
    let ask = Ask { prompt_tokens: exact, ..ask };
    Ok(app.keys.authorize(ask).await??)
}

/// A hold that is short covers more output once its prompt is counted exactly. The output tokens that it covers then.
async fn widen(lease: &mut Lease, pool: &Pool, job: &Job, asked: u64) -> Option<u64> {
    let exact = count(&pool.choose(None, None)?, job).await.filter(|exact| *exact < lease.prompt_tokens())?;
    match lease.extend(Usage::default(), exact, asked).await {
        Ok(Extension::Open { output_tokens, revoked: _ }) => {
            lease.cover_prompt(exact);
            Some(output_tokens)
        }
        Ok(Extension::Gone) | Err(_) => None,
    }
}

/// The tokens of the prompt, where the upstream can count them: exact, but for images that it does not count, which are
/// taken as the most that they can be.
async fn count(running: &Running, job: &Job) -> Option<u64> {
    let counted = counted(running, job).await?;
    Some(counted.tokens + if counted.with_images { 0 } else { job.forward.image_tokens })
}

/// The exact tokens of the prompt, images and all, where the upstream can count them.
async fn count_exactly(running: &Running, job: &Job) -> Option<u64> {
    let counted = counted(running, job).await?;
    (counted.with_images || job.forward.image_tokens == 0).then_some(counted.tokens)
}

async fn counted(running: &Running, job: &Job) -> Option<Counted> {
    let upstream = running.upstream();
    let (head, rest) = job.forward.body(upstream.counting());
    let counted = upstream.count(head, rest).await;
    counted.filter(|counted| counted.tokens <= job.forward.plausible.prompt)
}

/// Sends the request to an upstream, and to another one if the first could not take it.
async fn send(
    pool: &Pool,
    job: &Job,
    account: AccountId,
    max_tokens: u64,
) -> Result<(Running, Incoming), Failure> {
    let affinity = job.forward.opening().map(|opening| affinity(account, opening));
    let salt = cache_salt(account);
    let first = pool.choose(affinity, None).ok_or_else(|| Failure::Unreachable("no upstream".into()))?;
    let failure = match attempt(&first, job, &salt, max_tokens).await {
        Ok(body) => return Ok((first, body)),
        Err(failure) => failure,
    };
    let other = if failure.elsewhere() { pool.choose(affinity, Some(&first)) } else { None };
    drop(first);
    match other {
        Some(other) => attempt(&other, job, &salt, max_tokens).await.map(|body| (other, body)),
        None => Err(failure),
    }
}

async fn attempt(running: &Running, job: &Job, salt: &str, max_tokens: u64) -> Result<Incoming, Failure> {
    let mut answered = ask(running, job, salt, Some(max_tokens)).await;
    // Who names no limit wants what there is room for. The upstream alone knows how much that is, and that it is less than
    // the model's most, which is held.
    let unlimited = !job.forward.limited && max_tokens == job.forward.max_tokens;
    if unlimited && answered.as_ref().is_err_and(Failure::is_too_long) {
        answered = ask(running, job, salt, None).await;
    }
    running.tell(answered.as_ref().map_or_else(Failure::outcome, |_| Outcome::Answered));
    answered
}

async fn ask(running: &Running, job: &Job, salt: &str, max_tokens: Option<u64>) -> Result<Incoming, Failure> {
    let upstream = running.upstream();
    let (head, rest) = job.forward.body(upstream.address(max_tokens, Some(salt)));
    Ok(upstream.send(head, rest).await?.into_body())
}

/// A 200 with what every answer's head says.
fn head(job: &Job, max_tokens: u64, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::try_from(job.id.to_string()) {
        headers.insert(X_GENERATION_ID, id);
    }
    if max_tokens < job.forward.max_tokens {
        headers.insert(X_MAX_TOKENS, max_tokens.into());
    }
    response
}

/// Metrics of a generation, named as the GenAI semantic conventions name them.
fn count_generation(job: &Job, story: &Story) {
    let model = || job.model.clone();
    let took = story.began.elapsed();
    metrics::histogram!("gen_ai_server_request_duration", "model" => model(), "outcome" => story.ending)
        .record(took);
    if let Some(first) = story.first_token {
        metrics::histogram!("gen_ai_server_time_to_first_token", "model" => model()).record(first);
        let rest = u32::try_from(story.usage.completion.saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(each) = took.saturating_sub(first).checked_div(rest) {
            metrics::histogram!("gen_ai_server_time_per_output_token", "model" => model()).record(each);
        }
    }
    let Usage { prompt, cached, completion } = story.usage;
    for (kind, tokens) in [("input", prompt), ("cached_input", cached), ("output", completion)] {
        if tokens > 0 {
            let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
            metrics::histogram!("gen_ai_client_token_usage", "model" => model(), "type" => kind)
                .record(tokens);
        }
    }
}

/// One line a generation, without a word of what was said.
fn tell(job: &Job, story: &Story) {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        request = %job.request,
        generation = %job.id,
        key = story.key.map(tracing::field::display),
        model = job.model,
        stream = job.forward.stream,
        outcome = story.ending,
        prompt_tokens = story.usage.prompt,
        cached_tokens = story.usage.cached,
        completion_tokens = story.usage.completion,
        cost_usd = story.charge.map(|charge| tracing::field::display(charge.charged)),
        shortfall_usd = story.charge.map(|charge| charge.shortfall).filter(|s| *s > NanoUsd::ZERO).map(tracing::field::display),
        first_token_ms = story.first_token.map(millis),
        duration_ms = millis(story.began.elapsed()),
        "chat",
    );
}
