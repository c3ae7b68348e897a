//! A whole answer: read to its end, billed, and only then delivered.

mod understood;

use std::time::Duration;

use answer::{AnswerReader, Nonsense, Reported, Settled};
use bytes::{Bytes, BytesMut};
use holds::OpenHold;
use hyper::body::{Body, Incoming};
use metering::{FoldEnd, FoldMeter, UsageCounter};
use routing::AttemptOutcome;
use shared::error::{ApiError, Code};
use tokio::time::{Instant, sleep_until, timeout};
use upstream_error::UpstreamError;
use upstreams::{OK, Running, UpstreamFailure, next_bytes, of_event};

use self::understood::NotUnderstood;
use super::{
    answer_permit::AnswerPermit,
    dispatch::{Begun, Reached, WHOLE_ANSWER},
    generator::Generator,
    job::{AnswerBody, Job, Started},
    log::GenerationLog,
};
use crate::client::Client;

/// Size of the largest answer that is delivered, however large the budget is. Of a larger answer, only the usage is
/// read.
const MAX_ANSWER_BYTES: u64 = 256 << 20;
/// Number of bytes at the beginning, and at the end, of a larger answer that are searched for usage.
const USAGE_WITHIN: usize = 64 << 10;

/// Copies of an answer in memory: the upstream's and the client's.
const COPIES: u64 = 2;

/// The body of an upstream's answer.
enum Read {
    Whole(Bytes),
    /// A folded stream, with its meter.
    Folded(Bytes, Box<FoldMeter>),
    NotKept(NotKept),
    Failed(UpstreamFailure),
}

/// Deadline of a whole answer. It becomes shorter once the client has left.
pub(super) struct Deadline {
    at: Instant,
    /// The client waiting for the answer.
    pub(super) client: Client,
    after_client: Duration,
}

impl Deadline {
    /// Starts the deadline now. An answer must end within `WHOLE_ANSWER` times `to_begin`, and within `to_begin` once
    /// its client has left.
    pub(super) fn new(client: &Client, to_begin: Duration) -> Self {
        let at = Instant::now() + WHOLE_ANSWER * to_begin;
        Self { at, client: client.clone(), after_client: to_begin }
    }

    pub(super) async fn passed(&self) {
        let left = async { sleep_until(self.client.left().await + self.after_client).await };
        tokio::select! {
            biased;
            () = sleep_until(self.at) => {}
            () = left => {}
        }
    }
}

/// Limits for reading an answer.
#[derive(Clone, Copy)]
struct ReadBounds {
    /// Largest answer to keep, in bytes.
    largest: u64,
    /// How long the upstream may be silent after the first byte. Until the first byte, it may be silent for the whole
    /// time of the generation.
    silence: Duration,
}

impl ReadBounds {
    fn of(generator: &Generator) -> Self {
        let largest = MAX_ANSWER_BYTES.min(generator.admission.largest_answer() as u64 / COPIES);
        Self { largest, silence: generator.upstream_silence }
    }
}

/// An answer that was read to its end but not kept.
struct NotKept {
    reason: Reason,
    length: u64,
    /// The first and the last bytes of the answer. One of the two contains the usage.
    start: Bytes,
    end: Bytes,
    /// The meter of a folded stream.
    folded: Option<Box<FoldMeter>>,
}

/// Reason why an answer is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The answer is larger than allowed.
    TooLarge,
    /// Other answers use the memory.
    NoRoom,
    /// The answer has more calls than may be delivered, or longer ids or names.
    Calls,
    /// The answer is nested more deeply than clients can be expected to read.
    Nested,
}

impl Reason {
    fn error(self) -> ApiError {
        let message = match self {
            Self::TooLarge => {
                "The model's answer is too large to be delivered. It was generated and is billed."
            }
            Self::Calls => {
                "The model's answer has too many tool calls, or tool names that are too long, to be delivered. It was generated and is billed."
            }
            Self::Nested => {
                "The model's answer is nested too deeply to be delivered. It was generated and is billed."
            }
            Self::NoRoom => {
                "This gateway has no memory for an answer of this size at the moment. It was generated and is billed; a \
                 stream needs less room."
            }
        };
        let mut error = ApiError::new(Code::UpstreamError, message);
        // If the client retried, it would pay twice.
        error.final_answer = true;
        error
    }

    /// Logs that an answer is not delivered. Returns the error for its client.
    fn refused(self, job: &Job, bytes: u64) -> ApiError {
        tracing::warn!(generation = %job.id, bytes, reason = self.kind(), "an upstream's answer cannot be delivered; it is billed");
        metrics::counter!("gateway_answers_not_given_out_total", "reason" => self.kind()).increment(1);
        self.error()
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NoRoom => "no_room",
            Self::Calls => "calls",
            Self::Nested => "nested",
        }
    }
}

/// Reads and bills the answer that a hold was opened for.
pub(super) async fn run(
    generator: &Generator,
    job: &Job,
    begun: Begun,
    deadline: &Deadline,
    log: &mut GenerationLog,
) -> Result<Started, ApiError> {
    let Begun { mut hold, reached: Reached { max_tokens, running, body, folded } } = begun;
    let mut memory = AnswerPermit::new(generator.admission.answers(), hold.account());
    let reading = async {
        let bounds = ReadBounds::of(generator);
        if folded {
            let meter = fold_meter(job, max_tokens, &running);
            let read = read_folded(body, meter, bounds, &mut memory).await;
            let upstream = running.upstream();
            return read
                .unwrap_or_else(|error| Read::Failed(of_event(&error, &upstream.entry, &job.forward)));
        }
        read(body, bounds, &mut memory).await
    };
    let read = in_time(generator, deadline, reading).await;
    let (body, folded) = match read {
        Read::Whole(body) => (body, None),
        Read::Folded(body, meter) => (body, Some(meter)),
        Read::NotKept(answer) => return Box::pin(not_kept(job, hold, running, &answer, log)).await,
        Read::Failed(failure) => return Box::pin(failed(job, hold, running, failure)).await,
    };
    let server = running.upstream().signs_as;
    let mut unusual = None;
    let completion = match understood::read(job, &running, &body, folded.is_some(), &mut unusual) {
        Ok(completion) => completion,
        Err(NotUnderstood::Beyond) => {
            let (length, within) = (body.len() as u64, body.len().min(USAGE_WITHIN));
            let (start, end) = (body.slice(..within), body.slice(body.len() - within..));
            let answer = NotKept { reason: Reason::Calls, length, start, end, folded };
            return Box::pin(not_kept(job, hold, running, &answer, log)).await;
        }
        Err(NotUnderstood::Failed(failure)) => return Box::pin(failed(job, hold, running, failure)).await,
    };
    let of_whole;
    let (counter, unknown_finish) = if let Some(meter) = &folded {
        (meter.counter(), meter.unknown_finish())
    } else {
        of_whole = job.usage_counter(max_tokens, &running).with_answer(&completion);
        (&of_whole, completion.unknown_finish)
    };
    job.check_answer(counter, unknown_finish, &running, &hold);
    let odd = folded.as_ref().map_or(completion.odd, |meter| meter.oddities());
    job.note_oddities(odd, counter, &running);
    log.finished(&completion.finish_reasons);
    hold.finished(&completion.finish_reasons);
    let rates = hold.take_rates();
    bill(job, hold, running, counter, log).await;
    let cost = log.charge.map(|charge| charge.charged);
    if completion.is_too_deep() {
        return Err(Reason::Nested.refused(job, body.len() as u64));
    }
    log.outcome = OK;
    let settled = Settled { usage: log.usage, cost, completed: generator.clock.now().seconds() };
    let written = completion.write(job.generation(server), &job.forward.reply, settled);
    drop(completion);
    drop(body);
    let body = AnswerBody::Whole(memory.leave_with(written));
    Ok(Started { id: job.id, max_tokens: job.lowered(max_tokens), rates, body })
}

/// Reads an answer until its deadline, or until the gateway stops.
async fn in_time(generator: &Generator, deadline: &Deadline, reading: impl Future<Output = Read>) -> Read {
    tokio::select! {
        biased;
        read = reading => read,
        () = deadline.passed() => Read::Failed(UpstreamFailure::Timeout),
        () = generator.cut.cancelled() => {
            Read::Failed(UpstreamFailure::Broken("cut off, since the gateway is stopping".to_owned()))
        }
    }
}

/// Makes the meter of a folded stream.
fn fold_meter(job: &Job, max_tokens: u64, running: &Running) -> Box<FoldMeter> {
    let reader = AnswerReader::new(running.upstream().form(&job.forward).api()).of_choices(job.forward.n);
    Box::new(FoldMeter::new(reader, job.usage_counter(max_tokens, running), job.forward.n))
}

async fn bill(job: &Job, hold: OpenHold, running: Running, counter: &UsageCounter, log: &mut GenerationLog) {
    if counter.is_estimate() {
        tracing::warn!(generation = %job.id, "the upstream did not report all of the usage; billing an estimate");
        metrics::counter!("gateway_usage_estimates_total").increment(1);
    }
    running.note(AttemptOutcome::Served);
    drop(running);
    log.end_inference(counter.usage());
    log.charge = hold.capture(log.usage, counter.is_estimate()).await;
}

async fn read(mut body: Incoming, bounds: ReadBounds, memory: &mut AnswerPermit) -> Read {
    let ReadBounds { largest, silence } = bounds;
    let mut first: Option<Bytes> = None;
    let (mut kept, mut length, mut start) = (BytesMut::new(), 0_u64, Bytes::new());
    // If the length is announced, memory for all of it is reserved at once. If answers reserved their memory in parts,
    // they could wait for each other.
    let announced = body.size_hint().exact().unwrap_or(0);
    let mut not_kept = refuse(announced, largest, memory).await;
    let mut next = next_bytes(&mut body).await;
    while let Some(piece) = next {
        let piece = match piece {
            Ok(piece) => piece,
            Err(e) => return Read::Failed(UpstreamFailure::Broken(e.to_string())),
        };
        length += piece.len() as u64;
        if not_kept.is_none() {
            not_kept = refuse(length.max(announced), largest, memory).await;
        }
        // An answer that arrives in one piece is not copied.
        if length == piece.len() as u64 {
            first = Some(piece);
        } else {
            if let Some(first) = first.take() {
                kept.extend_from_slice(&first);
            }
            kept.extend_from_slice(&piece);
        }
        if not_kept.is_some() && kept.len() > 2 * USAGE_WITHIN {
            if start.is_empty() {
                start = Bytes::copy_from_slice(&kept[..USAGE_WITHIN]);
            }
            kept = BytesMut::from(&kept[kept.len() - USAGE_WITHIN..]);
            memory.hold(0);
        }
        let Ok(piece) = timeout(silence, next_bytes(&mut body)).await else {
            return Read::Failed(UpstreamFailure::Timeout);
        };
        next = piece;
    }
    let bytes = first.unwrap_or_else(|| kept.freeze());
    match not_kept {
        None => Read::Whole(bytes),
        Some(reason) => Read::NotKept(NotKept { reason, length, start, end: bytes, folded: None }),
    }
}

/// Reads a stream and folds it into a whole answer. If this fails, the error is the upstream's failure.
async fn read_folded(
    mut body: Incoming,
    mut meter: Box<FoldMeter>,
    bounds: ReadBounds,
    memory: &mut AnswerPermit,
) -> Result<Read, UpstreamError> {
    let ReadBounds { largest, silence } = bounds;
    let (mut not_kept, mut length) = (None, 0_u64);
    let mut next = next_bytes(&mut body).await;
    loop {
        let end = match next {
            Some(Ok(piece)) => {
                length += piece.len() as u64;
                meter.push(piece)
            }
            Some(Err(_)) if meter.is_finished() => Some(FoldEnd::Complete),
            Some(Err(e)) => Some(FoldEnd::Broken(e.to_string())),
            None => Some(meter.upstream_ended()),
        };
        match end {
            None => {}
            Some(FoldEnd::Complete) => break,
            Some(FoldEnd::Complained(error)) => return Err(error),
            Some(FoldEnd::Broken(reason)) => return Ok(Read::Failed(UpstreamFailure::Broken(reason))),
        }
        if not_kept.is_none() {
            not_kept = refuse(meter.held_bytes() as u64, largest, memory).await;
            if not_kept.is_some() {
                meter.forget_texts();
                memory.hold(meter.held_bytes());
            }
        }
        next = match timeout(silence, next_bytes(&mut body)).await {
            Ok(next) => next,
            Err(_) if meter.is_finished() => break,
            Err(_) => return Ok(Read::Failed(UpstreamFailure::Timeout)),
        };
    }
    Ok(match (meter.take_answer(), not_kept) {
        (Some(Ok(answer)), _) => Read::Folded(answer, meter),
        (Some(Err(Nonsense::Choices)), _) => Read::Failed(UpstreamFailure::Empty),
        (Some(Err(nonsense)), _) => Read::Failed(UpstreamFailure::Broken(nonsense.to_string())),
        (None, reason) => {
            let beyond = if meter.is_too_long() { Reason::TooLarge } else { Reason::Calls };
            let (reason, [start, end]) = (reason.unwrap_or(beyond), [Bytes::new(), Bytes::new()]);
            Read::NotKept(NotKept { reason, length, start, end, folded: Some(meter) })
        }
    })
}

/// Returns why an answer of this length is not kept; `None` if it is kept.
async fn refuse(length: u64, largest: u64, memory: &mut AnswerPermit) -> Option<Reason> {
    if length > largest {
        return Some(Reason::TooLarge);
    }
    let bytes = usize::try_from(length * COPIES).unwrap_or(usize::MAX);
    if memory.wait_for(bytes).await { None } else { Some(Reason::NoRoom) }
}

/// Ends a whole answer that failed. It costs nothing.
async fn failed(
    job: &Job,
    hold: OpenHold,
    running: Running,
    failure: UpstreamFailure,
) -> Result<Started, ApiError> {
    tracing::warn!(%failure, "an upstream's answer is unusable");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "answer").increment(1);
    running.note_failure("answer");
    running.note(job.outcome(&failure, &running, hold.account()));
    drop(running);
    hold.release().await;
    Err(failure.into())
}

/// Bills an answer that was generated but is not delivered.
async fn not_kept(
    job: &Job,
    hold: OpenHold,
    running: Running,
    answer: &NotKept,
    log: &mut GenerationLog,
) -> Result<Started, ApiError> {
    let NotKept { reason, length, start, end, folded } = answer;
    let error = reason.refused(job, *length);
    let of_end;
    let counter = if let Some(meter) = folded {
        meter.counter()
    } else {
        let counter = job.usage_counter(hold.output_tokens() / job.forward.n, &running);
        // A client can make the model write a text that looks like usage, so the larger of the two usages counts.
        let [of_start, of_its_end] = [start, end].map(|part| Reported::find_last(part));
        let told = of_its_end.max(of_start);
        of_end = counter.with_end_of_answer(*length, told);
        &of_end
    };
    job.check_answer(counter, None, &running, &hold);
    bill(job, hold, running, counter, log).await;
    Err(error)
}
