//! A streamed answer: metered and rewritten as it comes, its hold extended ahead of need, billed before its end leaves.

mod deadlines;
mod end;
mod extension;

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use hyper::body::Incoming;
use shared::error::{ApiError, Code};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::{AnswerBody, Generator, Job, Started, dispatch::Reached, log::GenerationLog, room::AnswerRoom};
use crate::{
    client::{Client, Pipe, StreamBody},
    domain::{
        answer::Rewriter,
        metering::{GrantedTokens, StreamEnd, StreamMeter},
    },
    hold::{HoldStatus, OpenHold},
    upstream::{Running, next_bytes},
};
use deadlines::Deadlines;
use end::End;
use extension::{Extending, in_flight};

/// After a hold was lost: how long the upstream may be silent, and how long it is read in all, to count what it had generated.
const COUNT_REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// A stream that runs.
struct Stream {
    generator: Arc<Generator>,
    job: Job,
    hold: OpenHold,
    meter: StreamMeter,
    running: Running,
    log: GenerationLog,
    pipe: Pipe,
    /// Memory for an event that is large, or does not end.
    room: AnswerRoom,
    extending: Option<Extending>,
    deadlines: Deadlines,
}

/// Begins the answer with the stream.
pub(super) fn start(
    generator: &Arc<Generator>,
    mut job: Job,
    hold: OpenHold,
    reached: Reached,
    client: Client,
    log: GenerationLog,
) -> Started {
    let Reached { max_tokens, running, body } = reached;
    if !running.upstream().counts(&job.forward) {
        job.forget_prompt();
    }
    let wanted = max_tokens.saturating_mul(job.forward.n);
    let meter = StreamMeter::new(
        Rewriter::new(job.generation(), job.forward.include_usage),
        job.usage_counter(max_tokens, &running),
        GrantedTokens::new(hold.output_tokens(), wanted),
    );
    let lowered = job.lowered(max_tokens);
    let watch = hold.heartbeat_watch();
    let room = AnswerRoom::new(&generator.answers, hold.account());
    let now = Instant::now();
    let body = StreamBody::new(client, &generator.running, |pipe| {
        let mut stream = Stream {
            generator: generator.clone(),
            job,
            hold,
            meter,
            running,
            log,
            pipe,
            room,
            extending: None,
            deadlines: Deadlines::new(generator.upstream_silence, now),
        };
        async move {
            let end = stream.carry(body).await;
            // The upstream's connection is closed by now: it stops generating. The end needs memory of its own, which every
            // open stream would keep otherwise.
            Box::pin(stream.end(end)).await;
        }
    });
    let stall = body.stall_watch(generator.client_stall);
    watch.set(move |now| stall.check(now));
    Started { max_tokens: lowered, body: AnswerBody::Stream(body) }
}

impl Stream {
    /// Carries the stream until something ends it.
    async fn carry(&mut self, mut upstream: Incoming) -> End {
        let (generator, pipe) = (self.generator.clone(), self.pipe.clone());
        let mut alarm = Box::pin(sleep_until(self.next_deadline()));
        // These wait across the events of the stream: to wait anew for each would cost more than to carry it.
        let (mut left, mut cut) = (pin!(pipe.left()), pin!(generator.cut.cancelled()));
        let mut changed = pin!(self.hold.changed());
        loop {
            let lapsed = self.stand_still_if_blocked();
            if !lapsed && self.pipe.is_writable() {
                self.write();
            }
            let writing = self.meter.has_output() && !lapsed;
            let flowing = !self.meter.has_output() && !self.deadlines.is_blocked();
            let due = self.next_deadline();
            if due < alarm.deadline() {
                alarm.as_mut().reset(due);
            }
            let end = tokio::select! {
                biased;
                () = left.as_mut() => Some(End::ClientGone),
                () = self.pipe.writable(), if writing => None,
                (asked, answer) = in_flight(&mut self.extending) => {
                    self.extending = None;
                    self.extended(asked, &answer)
                }
                () = changed.as_mut() => {
                    changed.set(self.hold.changed());
                    self.standing_changed()
                }
                piece = next_bytes(&mut upstream), if flowing => self.read(piece),
                () = alarm.as_mut() => self.alarm(&mut alarm, flowing),
                () = cut.as_mut() => {
                    Some(End::Failed(ApiError::new(Code::ServiceUnavailable, "This gateway is shutting down.")))
                }
            };
            if let Some(end) = end {
                if self.hold.standing() == HoldStatus::Gone {
                    self.count_rest(&mut upstream).await;
                }
                return end;
            }
        }
    }

    /// Gives the connection what there is for the client.
    fn write(&mut self) {
        if self.meter.has_output() {
            self.pipe.put(self.room.leave_with(self.meter.take_output()));
            self.room.hold(self.meter.held_bytes());
            self.deadlines.wrote(Instant::now());
        }
    }

    /// Counts what the upstream had generated when the hold was found to be lost: a gateway that was frozen has much of it
    /// in its sockets. None of it is delivered.
    async fn count_rest(&mut self, upstream: &mut Incoming) {
        let began = Instant::now();
        while began.elapsed() < COUNT_REST.1
            && let Ok(Some(Ok(piece))) = timeout(COUNT_REST.0, next_bytes(upstream)).await
        {
            self.meter.count_only(piece);
        }
    }

    /// Takes what the upstream sent, or its end.
    fn read(&mut self, piece: Option<Result<Bytes, hyper::Error>>) -> Option<End> {
        let events = self.meter.events();
        let end = match piece {
            Some(Ok(piece)) => self.meter.push(piece),
            Some(Err(e)) => Some(self.meter.upstream_ended(Some(e.to_string()))),
            None => Some(self.meter.upstream_ended(None)),
        };
        // Comments alone, and pieces of an event without end, are silence.
        if self.meter.events() > events {
            self.deadlines.read(Instant::now());
        }
        self.metered(end).or_else(|| self.keep_within_budget())
    }

    /// Holds the memory that the stream takes now. An event that finds no room ends it.
    fn keep_within_budget(&mut self) -> Option<End> {
        if self.room.hold(self.meter.held_bytes()) {
            return None;
        }
        tracing::warn!(generation = %self.job.id, bytes = self.meter.held_bytes(), "a stream finds no room for an event, and ends");
        metrics::counter!("gateway_answers_not_given_out_total", "reason" => "event").increment(1);
        let message = "This gateway has no room for an event of this size at the moment.";
        Some(End::Failed(ApiError::new(Code::Overloaded, message)))
    }

    /// Notes the progress of the meter, asks for more where that is due, and understands its end.
    fn metered(&mut self, end: Option<StreamEnd>) -> Option<End> {
        if self.meter.has_begun() {
            self.log.first_token();
            let (usage, estimated) = self.meter.usage();
            self.hold.record(usage, estimated);
        }
        if self.meter.reported_prompt().is_some() {
            self.job.forget_prompt();
        }
        if let Some(end) = end {
            return Some(self.understand(end));
        }
        if self.meter.is_finished() {
            self.deadlines.finished();
        }
        self.ask();
        None
    }

    /// Looks at the time. Deadlines move with every event, so the alarm may come early, and is then set anew.
    fn alarm(&mut self, alarm: &mut Pin<Box<Sleep>>, flowing: bool) -> Option<End> {
        let now = Instant::now();
        if !flowing {
            // Silence is counted only while the upstream is listened to.
            self.deadlines.read(now);
        } else if self.deadlines.upstream_is_overdue(self.meter.is_reported(), now) {
            let silent = ApiError::new(Code::UpstreamTimeout, "The model fell silent.");
            return Some(if self.deadlines.is_finished() { End::Complete } else { End::Failed(silent) });
        }
        if self.deadlines.keep_alive_is_due(now) && !self.meter.has_output() {
            self.meter.keep_alive();
        }
        if self.deadlines.extension_is_overdue(now) && self.extending.is_none() {
            return Some(End::Failed(ApiError::service_unavailable()));
        }
        self.ask();
        alarm.as_mut().reset(self.next_deadline());
        None
    }

    fn next_deadline(&self) -> Instant {
        self.deadlines.next(self.meter.is_reported(), self.extending.is_some(), Instant::now())
    }

    /// Notes whether the stream stands still: while an event waits for tokens, or the lease may have run out. Returns whether
    /// the lease may have.
    fn stand_still_if_blocked(&mut self) -> bool {
        let now = Instant::now();
        let lapsed = self.hold.is_lapsed(now);
        self.deadlines.set_blocked(self.meter.is_blocked() || lapsed, now);
        lapsed
    }
}
