//! A streamed answer: metered and rewritten as it comes, its hold extended ahead of need, billed before its end leaves.

use std::{
    future::{Future, pending},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use hyper::body::Incoming;
use shared::{
    error::{ApiError, Code},
    refusal::Refusal,
    rpc::{Extended, Extension},
};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::{
    AnswerBody, Generator, Job, Started, dispatch::Reached, log::GenerationLog, model_metrics::OK,
    room::AnswerRoom,
};
use crate::{
    client::{Client, Pipe, StreamBody},
    domain::{
        answer::Rewriter,
        metering::{GrantedTokens, StreamEnd, StreamMeter, UsageCounter},
        routing::AttemptOutcome,
        upstream_error::UpstreamError,
    },
    hold::{HoldStatus, OpenHold},
    keys::Unavailable,
    upstream::{Failure, Running, next_bytes, of_event},
};

/// Silence towards the client is bridged this often, so that proxies on the way do not give up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time that an upstream may take to end a stream whose choices are finished: with its usage reported, and before.
const LINGER: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
/// The time that a stream that needs an extension waits for a key-service that is away.
const EXTENSION_BOUND: Duration = Duration::from_secs(5);
/// The pause before an extension that failed is tried again.
const EXTENSION_PAUSE: Duration = Duration::from_millis(500);
/// After a hold was lost: how long the upstream may be silent, and how long it is read in all, to count what it had generated.
const COUNT_REST: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The time that the last bytes may wait for a client that does not read; its charge is captured by then.
const LAST_WRITE: Duration = Duration::from_secs(30);

/// The end of a stream as its client sees it.
enum End {
    Complete,
    GrantUsedUp,
    ClientGone,
    Failed(ApiError),
}

/// An extension in flight: the tokens asked for, and the answer.
type Extending = Pin<Box<dyn Future<Output = (u64, Result<Extended, Unavailable>)> + Send>>;

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
    /// Since when the stream stands still for want of tokens or of a lease.
    waiting_since: Option<Instant>,
    /// When the upstream last sent something, and the client was last written to.
    read_at: Instant,
    written_at: Instant,
    finished_at: Option<Instant>,
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
        UsageCounter::new(job.forward.prompt_estimate, wanted),
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
            waiting_since: None,
            read_at: now,
            written_at: now,
            finished_at: None,
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
            let lapsed = self.wait_if_blocked();
            if !lapsed && self.pipe.is_writable() {
                self.write();
            }
            let writing = self.meter.has_output() && !lapsed;
            let flowing = !self.meter.has_output() && self.waiting_since.is_none();
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
            self.written_at = Instant::now();
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
            self.read_at = Instant::now();
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
            self.finished_at.get_or_insert(self.read_at);
        }
        self.ask();
        None
    }

    fn understand(&self, end: StreamEnd) -> End {
        match end {
            StreamEnd::Complete => End::Complete,
            StreamEnd::GrantUsedUp => End::GrantUsedUp,
            StreamEnd::Complained(error) => self.complained(&error),
            StreamEnd::Broken(reason) => broken(&reason),
        }
    }

    /// Before the first word an upstream's error may be the request's fault, which some servers find only once they have
    /// begun to answer. Its text may quote the prompt, and is kept out of the log.
    fn complained(&self, error: &UpstreamError) -> End {
        match of_event(error, &self.running.upstream().model) {
            Failure::Refused(error) if !self.meter.has_begun() => End::Failed(error),
            failure => broken(&format!("it reported an error ({})", failure.kind())),
        }
    }

    /// Stands still while an event waits for tokens, or the lease may have run out. Whether it may have.
    fn wait_if_blocked(&mut self) -> bool {
        let now = Instant::now();
        let lapsed = self.hold.is_lapsed(now);
        if self.meter.is_blocked() || lapsed {
            self.waiting_since.get_or_insert(now);
        } else {
            self.waiting_since = None;
        }
        lapsed
    }

    /// Asks for more where it is due, unless an extension is in flight.
    fn ask(&mut self) {
        let Some(total) = self.meter.ask().filter(|_| self.extending.is_none()) else { return };
        let prompt = self.meter.reported_prompt().unwrap_or(self.hold.prompt_tokens());
        let extending = self.hold.extend(prompt, total);
        self.extending = Some(Box::pin(async move { (total, extending.await) }));
    }

    fn extended(&mut self, asked: u64, answer: &Result<Extended, Unavailable>) -> Option<End> {
        match answer {
            Ok(Extended::Open(Extension { revoked: true, .. })) => {
                Some(End::Failed(Refusal::InvalidApiKey.into()))
            }
            Ok(Extended::Open(Extension { output_tokens, revoked: false, .. })) => {
                let end = self.meter.extended(*output_tokens, asked);
                self.metered(end)
            }
            Ok(Extended::Gone) => Some(gone()),
            Err(e) => {
                tracing::warn!(generation = %self.job.id, error = %e, "a hold was not extended; trying again");
                None
            }
        }
    }

    /// The heartbeat brought news of the hold.
    fn standing_changed(&mut self) -> Option<End> {
        match self.hold.standing() {
            HoldStatus::Revoked => Some(End::Failed(Refusal::InvalidApiKey.into())),
            HoldStatus::Gone => Some(gone()),
            HoldStatus::Open => None,
        }
    }

    /// The next time at which something is due if nothing happens before.
    fn next_deadline(&self) -> Instant {
        if self.waiting_since.is_some() && self.extending.is_none() {
            return Instant::now() + EXTENSION_PAUSE;
        }
        self.upstream_deadline().min(self.written_at + KEEP_ALIVE)
    }

    /// The time by which the upstream has to send something, or to end.
    fn upstream_deadline(&self) -> Instant {
        let linger = if self.meter.is_reported() { LINGER.0 } else { LINGER.1 };
        self.finished_at.map_or(self.read_at + self.generator.upstream_silence, |at| at + linger)
    }

    /// Looks at the time. Deadlines move with every event, so the alarm may come early, and is then set anew.
    fn alarm(&mut self, alarm: &mut Pin<Box<Sleep>>, flowing: bool) -> Option<End> {
        let now = Instant::now();
        if !flowing {
            // Silence is counted only while the upstream is listened to.
            self.read_at = now;
        } else if now >= self.upstream_deadline() {
            let silent = || End::Failed(ApiError::new(Code::UpstreamTimeout, "The model fell silent."));
            return Some(self.finished_at.map_or_else(silent, |_| End::Complete));
        }
        if now.duration_since(self.written_at) >= KEEP_ALIVE && !self.meter.has_output() {
            self.meter.keep_alive();
        }
        let waited = self.waiting_since.map(|since| now.duration_since(since));
        if waited.is_some_and(|waited| waited >= EXTENSION_BOUND) && self.extending.is_none() {
            return Some(End::Failed(ApiError::service_unavailable()));
        }
        self.ask();
        alarm.as_mut().reset(self.next_deadline());
        None
    }

    /// Settles the stream and writes its end.
    async fn end(mut self, end: End) {
        if !matches!(end, End::Failed(_)) {
            self.count_prompt().await;
        }
        match &end {
            End::Complete => self.running.note(AttemptOutcome::Served),
            End::Failed(e) if matches!(e.code, Code::UpstreamError | Code::UpstreamTimeout) => {
                self.running.note(AttemptOutcome::Failed);
            }
            End::Failed(_) | End::GrantUsedUp | End::ClientGone => {}
        }
        let (usage, estimated) = self.meter.usage();
        if self.meter.is_reported() {
            self.job.check_report(usage, &self.running);
        }
        let Self { generator, job, hold, mut meter, running, mut log, pipe, mut room, .. } = self;
        meter.forget_incomplete();
        room.hold(meter.held_bytes());
        drop(running);
        let free = matches!(end, End::Failed(_)) && !meter.has_begun();
        if free {
            hold.release().await;
        } else {
            log.usage = usage;
            log.charge = hold.capture(usage, estimated).await;
        }
        log.outcome = match &end {
            End::Complete => OK,
            End::GrantUsedUp => "grant_used_up",
            End::ClientGone => "client_gone",
            End::Failed(error) => error.code.as_str(),
        };
        match &end {
            End::ClientGone => metrics::counter!("gateway_client_disconnects_total").increment(1),
            End::Complete | End::GrantUsedUp => {
                meter.cut();
                meter.finish(log.charge.map(|charge| charge.charged));
            }
            End::Failed(error) => meter.fail(error),
        }
        log.write(&job.model, &generator.metrics);
        if !matches!(end, End::ClientGone) {
            write_last(&generator, &pipe, room.leave_with(meter.take_output())).await;
        }
    }

    /// Replaces an estimate of the prompt where the upstream can count it.
    async fn count_prompt(&mut self) {
        if self.meter.reported_prompt().is_none()
            && let Some(exact) = self.generator.count_exactly(&self.running, &self.job).await
        {
            self.meter.set_prompt(exact);
        }
    }
}

/// The extension in flight; never returns, if there is none.
async fn in_flight(extending: &mut Option<Extending>) -> (u64, Result<Extended, Unavailable>) {
    match extending {
        Some(extending) => extending.await,
        None => pending().await,
    }
}

/// A client that does not read, or has gone, misses the end; it was charged for what it got.
async fn write_last(generator: &Generator, pipe: &Pipe, output: Bytes) {
    tokio::select! {
        written = timeout(LAST_WRITE, pipe.writable()) => {
            if written.is_ok() {
                pipe.put(output);
            }
        }
        () = pipe.left() => {}
        () = generator.cut.cancelled() => {}
    }
}

fn gone() -> End {
    tracing::warn!("a stream's hold expired");
    End::Failed(ApiError::service_unavailable())
}

fn broken(reason: &str) -> End {
    tracing::warn!(reason, "an upstream failed during generation");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "mid_stream").increment(1);
    End::Failed(ApiError::new(Code::UpstreamError, "The model failed during generation."))
}
