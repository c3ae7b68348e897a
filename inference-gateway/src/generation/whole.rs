//! A whole answer: read to its end, billed, and only then given out.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use shared::error::{ApiError, Code};
use tokio::time::timeout;

use super::{Begun, Job, Story, head};
use crate::{
    domain::{
        answer::{Completion, Reported},
        routing::Outcome,
    },
    http::App,
    meter::Meter,
    upstream::{MAX_ANSWER_BYTES, Running},
};

/// How long an answer that has begun may take to arrive: upstreams generate before they begin.
const BODY_DEADLINE: Duration = Duration::from_mins(2);

/// The answer to the client; the hold is settled by then.
pub(super) async fn run(
    app: &App,
    job: &Job,
    mut meter: Meter,
    begun: Begun,
    story: &mut Story,
) -> Result<Response, ApiError> {
    let Begun { lease, granted: _, max_tokens, running, body } = begun;
    let read = tokio::select! {
        read = read(body) => read,
        never = lease.keep() => match never {},
        () = app.cut.cancelled() => Err("cut off, since the gateway stops".to_owned()),
    };
    let completion = match read.as_ref().map(|body| Completion::read(body)) {
        Ok(Ok(completion)) => completion,
        Ok(Err(nonsense)) => return broken(meter, running, &nonsense.to_string()).await,
        Err(e) => return broken(meter, running, e).await,
    };
    let of_first = job.forward.n > 1 && running.upstream().tells_usage_of_first_choice();
    running.tell(Outcome::Served);
    drop(running);
    let reported = if of_first { completion.usage_of_all() } else { completion.usage };
    let reported = reported.filter(|reported| job.forward.plausible.allows(reported.tokens));
    let estimated = of_first || reported.is_none();
    let usage = reported.unwrap_or_else(|| {
        let tally = job.tally().with(completion.text_bytes, job.forward.n, None);
        Reported { tokens: tally.usage(), reasoning: 0 }
    });
    if estimated {
        tracing::warn!(generation = %job.id, "the upstream did not report all of the usage, or an impossible one; billing an estimate");
        metrics::counter!("gateway_usage_estimates_total").increment(1);
    }
    meter.record(usage.tokens, estimated);
    story.usage = usage.tokens;
    story.charge = meter.capture().await;
    let cost = story.charge.map(|charge| charge.charged);
    let body = completion.write(job.generation(), usage, cost);
    let mut response = head(job, max_tokens, Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn read(body: Incoming) -> Result<Bytes, String> {
    match timeout(BODY_DEADLINE, Limited::new(body, MAX_ANSWER_BYTES).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("the answer did not arrive in time".into()),
    }
}

/// A whole answer that fails costs nothing.
async fn broken(meter: Meter, running: Running, reason: &str) -> Result<Response, ApiError> {
    tracing::warn!(reason, "an upstream's answer is unusable");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "answer").increment(1);
    running.tell(Outcome::Failed);
    drop(running);
    meter.release().await;
    Err(ApiError::new(Code::UpstreamError, "The model failed to answer."))
}
