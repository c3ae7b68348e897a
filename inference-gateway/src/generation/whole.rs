//! A whole answer: read to its end, billed, and only then given out.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use shared::error::{ApiError, Code};
use tokio::time::timeout;

use super::{AnswerBody, Generator, Job, Started, dispatch::Reached, log::GenerationLog, model_metrics::OK};
use crate::{
    domain::{
        answer::{Completion, Reported},
        metering::UsageCounter,
        routing::AttemptOutcome,
    },
    hold::OpenHold,
    upstream::{Running, next_bytes},
};

/// The time that an answer that has begun may take to arrive: upstreams generate before they begin.
const BODY_DEADLINE: Duration = Duration::from_mins(2);
/// The largest answer that is given out. Of a larger one only the usage is read, which stands at its end.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// Bytes at the end of a larger answer in which its usage is searched.
const USAGE_WITHIN: usize = 64 << 10;

/// The body of an upstream's answer.
enum Read {
    Whole(Bytes),
    /// Too large to be given out: its length and its last bytes.
    TooLarge(u64, Bytes),
    Broken(String),
}

/// Reads and bills the answer.
pub(super) async fn run(
    generator: &Generator,
    job: &Job,
    hold: OpenHold,
    reached: Reached,
    log: &mut GenerationLog,
) -> Result<Started, ApiError> {
    let Reached { max_tokens, running, body } = reached;
    let read = tokio::select! {
        read = read(body) => read,
        () = generator.cut.cancelled() => Read::Broken("cut off, since the gateway stops".to_owned()),
    };
    let body = match read {
        Read::Whole(body) => body,
        Read::TooLarge(length, end) => return too_large(job, hold, running, length, &end, log).await,
        Read::Broken(reason) => return broken(hold, running, &reason).await,
    };
    let completion = match Completion::read(&body) {
        Ok(completion) => completion,
        Err(nonsense) => return broken(hold, running, &nonsense.to_string()).await,
    };
    let (usage, estimated) = usage(job, &completion, &running, max_tokens);
    running.note(AttemptOutcome::Served);
    drop(running);
    log.usage = usage.tokens;
    log.charge = hold.capture(usage.tokens, estimated).await;
    let cost = log.charge.map(|charge| charge.charged);
    log.outcome = OK;
    let body = AnswerBody::Whole(completion.write(job.generation(), usage, cost));
    Ok(Started { max_tokens: job.lowered(max_tokens), body })
}

/// The usage to bill, and whether it is an estimate.
fn usage(job: &Job, completion: &Completion<'_>, running: &Running, max_tokens: u64) -> (Reported, bool) {
    let of_first = job.forward.n > 1 && running.upstream().reports_usage_of_first_choice();
    let reported = if of_first { completion.usage_of_all() } else { completion.usage };
    let usage = reported.unwrap_or_else(|| {
        let most = max_tokens.saturating_mul(job.forward.n);
        let counter = UsageCounter::new(job.forward.prompt_estimate, most);
        let counter = counter.with(completion.text_bytes, job.forward.n, None);
        Reported { tokens: counter.usage(), reasoning: 0 }
    });
    if reported.is_some() {
        job.check_report(usage.tokens, running);
    }
    let estimated = of_first || reported.is_none();
    if estimated {
        estimate_billed(job);
    }
    (usage, estimated)
}

fn estimate_billed(job: &Job) {
    tracing::warn!(generation = %job.id, "the upstream did not report all of the usage; billing an estimate");
    metrics::counter!("gateway_usage_estimates_total").increment(1);
}

async fn read(body: Incoming) -> Read {
    match timeout(BODY_DEADLINE, read_rest(body)).await {
        Ok(read) => read,
        Err(_) => Read::Broken("the answer did not arrive in time".into()),
    }
}

async fn read_rest(mut body: Incoming) -> Read {
    let mut first: Option<Bytes> = None;
    let (mut kept, mut length) = (BytesMut::new(), 0_u64);
    while let Some(piece) = next_bytes(&mut body).await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(e) => return Read::Broken(e.to_string()),
        };
        length += piece.len() as u64;
        // An answer that comes in one piece is not copied.
        if length == piece.len() as u64 {
            first = Some(piece);
            continue;
        }
        if let Some(first) = first.take() {
            kept.extend_from_slice(&first);
        }
        kept.extend_from_slice(&piece);
        if length > MAX_ANSWER_BYTES as u64 && kept.len() > 2 * USAGE_WITHIN {
            kept = BytesMut::from(&kept[kept.len() - USAGE_WITHIN..]);
        }
    }
    let bytes = first.unwrap_or_else(|| kept.freeze());
    if length > MAX_ANSWER_BYTES as u64 { Read::TooLarge(length, bytes) } else { Read::Whole(bytes) }
}

/// A whole answer that fails costs nothing.
async fn broken(hold: OpenHold, running: Running, reason: &str) -> Result<Started, ApiError> {
    tracing::warn!(reason, "an upstream's answer is unusable");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "answer").increment(1);
    running.note(AttemptOutcome::Failed);
    drop(running);
    hold.release().await;
    Err(ApiError::new(Code::UpstreamError, "The model failed to answer."))
}

/// An answer that is too large to be given out was generated all the same, and is billed.
async fn too_large(
    job: &Job,
    hold: OpenHold,
    running: Running,
    length: u64,
    end: &[u8],
    log: &mut GenerationLog,
) -> Result<Started, ApiError> {
    tracing::warn!(generation = %job.id, bytes = length, "an upstream's answer is too large to be given out; it is billed");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "too_large").increment(1);
    let reported = Reported::find_last(end).map(|reported| reported.tokens);
    let counter = UsageCounter::new(job.forward.prompt_estimate, hold.output_tokens()).with(length, 1, None);
    if let Some(usage) = reported {
        job.check_report(usage, &running);
    } else {
        estimate_billed(job);
    }
    running.note(AttemptOutcome::Served);
    drop(running);
    log.usage = reported.unwrap_or_else(|| counter.usage());
    log.charge = hold.capture(log.usage, reported.is_none()).await;
    let mut error = ApiError::new(Code::UpstreamError, "The model's answer is too large.");
    error.final_answer = true;
    Err(error)
}
