//! A streamed answer. It is metered and rewritten as it passes through. Its hold is extended before more tokens are
//! needed, and it is billed before the last event is sent.

mod deadlines;
mod end;
mod extension;
mod silence;
mod stream;

use std::{
    pin::{Pin, pin},
    sync::Arc,
};

use answer::{AnswerReader, StreamWriter};
use bytes::Bytes;
use holds::HoldStatus;
use hyper::body::Incoming;
use metering::{GrantedTokens, PaceMeter, StreamMeter};
use shared::error::{ApiError, Code};
use shared_catalog::LeftMidStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use upstreams::next_bytes;

use super::{
    answer_permit::AnswerPermit,
    dispatch::{Begun, Reached},
    generator::Generator,
    job::{AnswerBody, Job, Started},
    log::GenerationLog,
};
use crate::client::{Client, StreamBody};
use deadlines::{CATCH_UP_BOUND, CATCH_UP_BOUND_OF_LOST, CAUGHT_UP_AFTER, Deadlines, ReadingOn, StreamState};
use end::End;
use extension::in_flight;
use stream::Stream;

/// Maximum number of bytes that are read only to count an upstream's output, once its client is no longer served. It is
/// enough for an event for each token of the longest answer.
const MOST_COUNTED_BYTES: usize = 32 << 20;
/// Maximum number of bytes kept for a client that reads nothing: a few thousand tokens, or what most models generate in
/// a minute.
const MOST_UNREAD_BYTES: usize = 1 << 20;
/// More is read for a client that reads nothing only if there is room for this many bytes: enough for a large piece
/// from an upstream.
const PIECE_BYTES: usize = 64 << 10;

/// Starts the answer with the stream.
pub(super) fn start(
    generator: &Arc<Generator>,
    mut job: Job,
    begun: Begun,
    client: Client,
    log: GenerationLog,
) -> Started {
    let Begun { mut hold, reached: Reached { max_tokens, running, body, folded: _ } } = begun;
    if !running.upstream().counts_late(&job.forward) {
        job.forget_prompt();
    }
    // If the prompt was counted for the hold, that count is better than the estimate.
    job.forward.prompt_estimate = job.forward.prompt_estimate.min(hold.prompt_tokens());
    let wanted = max_tokens.saturating_mul(job.forward.n);
    let form = running.upstream().form(&job.forward);
    let meter = StreamMeter::new(
        AnswerReader::new(form.api()).of_choices(job.forward.n),
        StreamWriter::new(
            job.generation(running.upstream().signs_as),
            &job.forward.reply,
            hold.prompt_tokens(),
            form.is_passed(),
        ),
        job.usage_counter(max_tokens, &running),
        GrantedTokens::new(hold.output_tokens(), wanted),
        job.forward.n,
    );
    let (id, lowered) = (job.id, job.lowered(max_tokens));
    let memory = AnswerPermit::new(generator.admission.answers(), hold.account());
    let rates = hold.take_rates();
    let (now, pace) = (Instant::now(), PaceMeter::new(job.forward.n));
    let body = StreamBody::new(client, &generator.running, |pipe| {
        let mut stream = Stream {
            generator: generator.clone(),
            job,
            hold,
            meter,
            running,
            log,
            pipe,
            memory,
            extending: None,
            deadlines: Deadlines::new(generator.upstream_silence, generator.client_stall, now),
            began: now,
            pace,
            signs: 0,
        };
        async move {
            let end = stream.carry(body).await;
            // The upstream's connection is closed by now, so the upstream stops generating. The end is boxed, so that
            // open streams do not reserve memory for it.
            Box::pin(stream.end(end)).await;
        }
    });
    Started { id, max_tokens: lowered, rates, body: AnswerBody::Stream(body) }
}

impl Stream {
    /// Runs the stream to its end. Also counts the rest of the upstream's output.
    async fn carry(&mut self, mut upstream: Incoming) -> End {
        let end = self.carry_to_end(&mut upstream).await;
        match end {
            End::Complete => {}
            End::ClientGone => self.count_rest(&mut upstream, self.deadlines.left_at()).await,
            End::GrantUsedUp | End::Failed(_) => self.count_rest(&mut upstream, None).await,
        }
        end
    }

    async fn carry_to_end(&mut self, upstream: &mut Incoming) -> End {
        let (generator, pipe) = (self.generator.clone(), self.pipe.clone());
        let mut alarm = Box::pin(sleep_until(self.next_deadline()));
        // These futures are kept from one event to the next, since creating new futures for each event would cost more
        // than the event.
        let (mut left, mut cut) = (pin!(pipe.left()), pin!(generator.cut.cancelled()));
        let mut changed = pin!(self.hold.changed());
        loop {
            let lapsed = self.stand_still_if_blocked();
            self.write(lapsed);
            let writing = self.meter.has_output() && !lapsed;
            let detached = self.pipe.is_detached();
            let flowing = self.listens(detached);
            let due = self.next_deadline();
            if due < alarm.deadline() {
                alarm.as_mut().reset(due);
            }
            let end = tokio::select! {
                biased;
                () = left.as_mut(), if self.deadlines.left_at().is_none() => {
                    self.deadlines.left(Instant::now());
                    None
                }
                () = self.pipe.writable(), if writing => None,
                () = self.pipe.detached(), if writing && !detached => None,
                (asked, answer) = in_flight(&mut self.extending) => {
                    self.extending = None;
                    self.extended(asked, &answer)
                }
                () = changed.as_mut() => {
                    changed.set(self.hold.changed());
                    self.status_changed()
                }
                piece = next_bytes(upstream), if flowing => self.read(piece),
                () = alarm.as_mut() => self.alarm(&mut alarm),
                () = cut.as_mut() => {
                    Some(End::Failed(ApiError::new(Code::ServiceUnavailable, "This gateway is shutting down.")))
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Passes output to the connection, unless the lease may have run out. A client that is gone gets nothing.
    fn write(&mut self, lapsed: bool) {
        if !self.meter.has_output() {
            return;
        }
        if self.deadlines.left_at().is_some() {
            self.meter.output().discard();
        } else if !lapsed && self.pipe.is_writable() {
            self.pipe.put(self.memory.leave_with(self.meter.output().take_piece()));
            self.deadlines.wrote(Instant::now());
        } else {
            return;
        }
        self.memory.hold(self.meter.held_bytes());
    }

    /// Decides whether to read the upstream. While the connection asks for more, nothing is read as long as output
    /// waits for the client. If the stream runs in its own task, its client reads nothing. Since the upstream should
    /// not be stopped for that, reading then continues until a limit is reached.
    fn listens(&mut self, detached: bool) -> bool {
        let (now, blocked) = (Instant::now(), self.deadlines.is_blocked());
        let free = !self.meter.has_output() || self.meter.is_finished();
        let listens = !blocked && (free || (detached && self.has_room_for_more()));
        self.deadlines.set_listening(listens, now);
        self.deadlines.set_full(detached && !blocked && !listens, now);
        listens
    }

    fn has_room_for_more(&mut self) -> bool {
        self.meter.output_bytes() < MOST_UNREAD_BYTES
            && self.memory.hold(self.meter.held_bytes() + PIECE_BYTES)
    }

    /// Counts the rest of the upstream's output without delivering it. This happens when the grant is used up, after an
    /// error, when the client has left, or when the hold was lost while the gateway was frozen. The time limit counts
    /// from `since` or, without it, from now.
    async fn count_rest(&mut self, upstream: &mut Incoming, since: Option<Instant>) {
        let (began, mut bytes) = (since.unwrap_or_else(Instant::now), 0);
        let lost = self.hold.status() == HoldStatus::Gone;
        let bound = if lost { CATCH_UP_BOUND_OF_LOST } else { CATCH_UP_BOUND };
        self.meter.count_received();
        while began.elapsed() < bound
            && bytes < MOST_COUNTED_BYTES
            && self.memory.hold(self.meter.held_bytes())
            && let Ok(Some(Ok(piece))) = timeout(CAUGHT_UP_AFTER, next_bytes(upstream)).await
        {
            bytes += piece.len();
            self.meter.count_only(piece);
        }
        self.record();
    }

    /// Returns why to read the upstream after its client left.
    fn reading_on(&self) -> ReadingOn {
        match self.running.upstream().entry.left_mid_stream {
            LeftMidStream::Finish => ReadingOn::ToTheEnd(self.generator.answer_deadline),
            LeftMidStream::Stop if self.meter.may_be_finished() => ReadingOn::Usage,
            LeftMidStream::Stop => ReadingOn::Received,
        }
    }

    /// Handles the upstream's next bytes, or the end.
    fn read(&mut self, piece: Option<Result<Bytes, hyper::Error>>) -> Option<End> {
        let events = self.meter.events();
        let end = match piece {
            Some(Ok(piece)) => self.meter.push(piece),
            Some(Err(e)) => self.meter.upstream_ended(Some(e.to_string())),
            None => self.meter.upstream_ended(None),
        };
        // Comments and incomplete events do not end a silence.
        if self.meter.events() > events {
            let now = Instant::now();
            self.deadlines.read(now);
            self.hear(now);
        }
        self.metered(end).or_else(|| self.keep_within_budget())
    }

    /// Reserves the memory that the stream needs now. If an event does not fit, the stream ends.
    fn keep_within_budget(&mut self) -> Option<End> {
        if self.memory.hold(self.meter.held_bytes()) {
            return None;
        }
        tracing::warn!(generation = %self.job.id, bytes = self.meter.held_bytes(), "no memory for an event of a stream; ending the stream");
        metrics::counter!("gateway_answers_not_given_out_total", "reason" => "event").increment(1);
        self.meter.give_up();
        let message = "This gateway has no memory for an event of this size at the moment.";
        Some(End::Failed(ApiError::new(Code::Overloaded, message)))
    }

    /// Handles an alarm. Deadlines move with every event, so the alarm may go off too early. It is then set again.
    fn alarm(&mut self, alarm: &mut Pin<Box<Sleep>>) -> Option<End> {
        let now = Instant::now();
        if self.deadlines.reading_on_is_over(self.reading_on(), now) {
            return Some(End::ClientGone);
        }
        if self.deadlines.upstream_is_overdue(self.is_settled(), now) {
            let silent = ApiError::new(Code::UpstreamTimeout, "The model fell silent.");
            return Some(if self.meter.is_complete() { End::Complete } else { End::Failed(silent) });
        }
        if self.deadlines.client_is_overdue(now) {
            return Some(self.unread());
        }
        if self.deadlines.keep_alive_is_due(now) && !self.meter.has_output() {
            self.meter.keep_alive();
        }
        if self.deadlines.extension_is_overdue(now) {
            return Some(End::Failed(ApiError::service_unavailable()));
        }
        self.count_silence(now);
        self.ask();
        alarm.as_mut().reset(self.next_deadline());
        None
    }

    fn next_deadline(&self) -> Instant {
        let now = Instant::now();
        let state = StreamState {
            settled: self.is_settled(),
            silence: self.next_look(now),
            extending: self.extending.is_some(),
            unwritten: self.meter.has_output(),
            reading_on: self.reading_on(),
        };
        self.deadlines.next(state, now)
    }

    /// Returns whether the answer and its usage are complete.
    fn is_settled(&self) -> bool {
        self.meter.is_finished() && self.meter.is_reported()
    }

    /// Notes whether the stream is blocked: an event waits for tokens, or the lease may have run out. The stream also
    /// stops writing, but continues to read, if the upstream was silent for so long that it may have generated more
    /// than the grant. Returns whether the lease may have run out.
    fn stand_still_if_blocked(&mut self) -> bool {
        let now = Instant::now();
        let lapsed = self.hold.is_lapsed(now);
        let blocked = self.meter.is_blocked() || lapsed;
        self.deadlines.set_waiting(blocked, self.meter.is_uncovered(), now);
        lapsed
    }
}
