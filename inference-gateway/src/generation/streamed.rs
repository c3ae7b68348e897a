//! A streamed answer: rewritten as it comes, its tokens counted beside it, its hold extended ahead of need.

use std::{
    future::{Future, pending},
    pin::Pin,
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header},
    response::Response,
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::body::Incoming;
use shared::{
    error::{ApiError, Code},
    refusal::Refusal,
};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;

use super::{Begun, Job, Reply, Story, allowance::Allowance, head, lease::Lease, tally::Tally};
use crate::{
    domain::{
        answer::{Event, Reported, Rewriter},
        complaint::Complaint,
        routing::Outcome,
        sse::Decoder,
    },
    http::App,
    keys::{Extension, Unavailable},
    meter::Meter,
    upstream::{Failure, Running, next_bytes, of_event},
};

/// Writes that wait for the client's connection; while they do, nothing more is read from the upstream.
const WRITES: usize = 4;
/// How often a stream looks at the time.
const TICK: Duration = Duration::from_secs(1);
/// Silence towards the client is bridged this often, so that proxies on the way do not give up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// An upstream that is silent for so long has failed.
const SILENCE: Duration = Duration::from_mins(2);
/// How long a stream that needs an extension waits for a key-service that is away.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last bytes may wait for a client that does not read; its charge is captured by then.
const LAST_WRITE: Duration = Duration::from_secs(30);

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// How a stream ends.
enum Ending {
    /// Its upstream finished it.
    Complete,
    /// Nothing more could be granted.
    GrantUsedUp,
    /// Nobody reads it any more.
    ClientGone,
    /// Something broke on the way.
    Failed(ApiError),
}

/// Answers with the stream, and sees it to its end.
pub(super) async fn run(
    app: &App,
    job: &mut Job,
    meter: Meter,
    begun: Begun,
    reply: Reply,
    story: &mut Story,
) {
    let Begun { lease, granted, max_tokens, running, body } = begun;
    if !running.upstream().counts() {
        job.forget_prompt();
    }
    let (client, writes) = mpsc::channel(WRITES);
    let allowance = Allowance::new(granted, job.wanted());
    let mut stream = Stream {
        meter,
        lease,
        allowance,
        tally: job.tally(),
        decoder: Decoder::default(),
        rewriter: Rewriter::new(job.generation(), job.forward.include_usage),
        upstream_model: running.upstream().model.clone(),
        reasoning: 0,
        out: BytesMut::new(),
        held: None,
        starved: None,
        extension: None,
        reported: Instant::now(),
        heard: Instant::now(),
        written: Instant::now(),
        first_token: None,
    };
    // Nobody listens where the client has gone; the stream notices that by itself.
    let _ = reply.send(Ok(response(job, max_tokens, writes)));
    let ending = stream.pump(app, job, body, &client).await;
    // The upstream's connection is closed here: it stops generating.
    stream.end(ending, app, job, running, &client, story).await;
}

fn response(job: &Job, max_tokens: u64, writes: mpsc::Receiver<Bytes>) -> Response {
    let body = Body::from_stream(ReceiverStream::new(writes).map(Ok::<_, std::convert::Infallible>));
    let mut response = head(job, max_tokens, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// An extension under way: what was asked, and what came of it.
type Extending = Pin<Box<dyn Future<Output = (u64, Result<Extension, Unavailable>)> + Send>>;

struct Stream {
    meter: Meter,
    lease: Lease,
    allowance: Allowance,
    tally: Tally,
    decoder: Decoder,
    rewriter: Rewriter,
    /// The name that the upstream knows the model by.
    upstream_model: String,
    /// Tokens of reasoning inside those generated, as the upstream last said.
    reasoning: u64,
    /// Rewritten, and not yet handed to the client's connection.
    out: BytesMut,
    /// An event that the grant does not cover.
    held: Option<Bytes>,
    /// Since when the stream stands still for want of a grant.
    starved: Option<Instant>,
    extension: Option<Extending>,
    /// When the key-service last was told what was used.
    reported: Instant,
    /// When the upstream was last heard.
    heard: Instant,
    /// When the client was last written to.
    written: Instant,
    first_token: Option<Instant>,
}

impl Stream {
    /// Carries the stream until something ends it.
    async fn pump(
        &mut self,
        app: &App,
        job: &mut Job,
        mut upstream: Incoming,
        client: &mpsc::Sender<Bytes>,
    ) -> Ending {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let reading = self.out.is_empty() && self.starved.is_none();
            let ending = tokio::select! {
                biased;
                () = client.closed() => Some(Ending::ClientGone),
                Ok(place) = client.reserve(), if !self.out.is_empty() => {
                    place.send(self.out.split().freeze());
                    self.written = Instant::now();
                    None
                }
                (asked, answer) = under_way(&mut self.extension) => {
                    self.extension = None;
                    self.extended(asked, answer)
                }
                piece = next_bytes(&mut upstream), if reading => {
                    self.heard = Instant::now();
                    match piece {
                        Some(Ok(piece)) => {
                            self.decoder.push(piece);
                            self.rewrite()
                        }
                        Some(Err(e)) => Some(self.upstream_ended(&e.to_string())),
                        None => Some(self.upstream_ended("it ended without a finish reason")),
                    }
                }
                now = ticks.tick() => self.tick(now, reading),
                () = app.cut.cancelled() => {
                    let message = "This gateway is shutting down.";
                    Some(Ending::Failed(ApiError::new(Code::ServiceUnavailable, message)))
                }
            };
            if let Some(ending) = ending {
                return ending;
            }
            if self.tally.prompt().is_some() {
                job.forget_prompt();
            }
        }
    }

    /// Rewrites every event that has come and is covered by the grant.
    fn rewrite(&mut self) -> Option<Ending> {
        loop {
            let data = match self.held.take() {
                Some(held) => held,
                None => match self.decoder.next_data() {
                    Some(Ok(data)) => data,
                    Some(Err(e)) => return Some(failed(&e.to_string())),
                    None => break,
                },
            };
            let chunk = match Event::read(&data) {
                Ok(Event::Chunk(chunk)) => chunk,
                Ok(Event::Done) => return Some(self.upstream_ended("it was done without a finish reason")),
                Ok(Event::Failed(complaint)) => return Some(self.complained(&complaint)),
                Err(nonsense) => return Some(failed(&nonsense.to_string())),
            };
            let tally = self.tally.with_chunk(&chunk);
            if chunk.has_output() && !self.may_deliver(&tally) {
                if self.allowance.complete() {
                    return Some(Ending::GrantUsedUp);
                }
                self.held = Some(data);
                self.starved.get_or_insert_with(Instant::now);
                break;
            }
            self.rewriter.chunk(&chunk, &mut self.out);
            self.tally = tally;
            self.reasoning = chunk.usage.map_or(self.reasoning, |reported| reported.reasoning);
            if chunk.has_output() {
                self.first_token.get_or_insert_with(Instant::now);
            }
            // Before its first token a stream costs nothing.
            if self.first_token.is_some() {
                self.meter.record(tally.usage(), tally.estimated());
            }
        }
        self.ask();
        None
    }

    /// Whether what the stream would have used by then is covered. A mere estimate does not end a stream whose upstream
    /// was told how much it may generate.
    fn may_deliver(&self, tally: &Tally) -> bool {
        self.allowance.covers(tally.completion()) || (self.allowance.complete() && tally.estimated())
    }

    /// The upstream says nothing more. With every choice finished, nothing is missing that the client could see.
    fn upstream_ended(&self, how: &str) -> Ending {
        if self.rewriter.is_finished() { Ending::Complete } else { failed(how) }
    }

    /// The upstream says that it failed. Before the first word that may be the request's fault, which some servers find
    /// only once they have begun to answer. What is said may quote the prompt, and is kept out of the log.
    fn complained(&self, complaint: &Complaint) -> Ending {
        match of_event(complaint, &self.upstream_model) {
            Failure::Refused(error) if self.first_token.is_none() => Ending::Failed(error),
            failure => failed(&format!("it said that it failed ({})", failure.kind())),
        }
    }

    /// Asks for more where it is due, unless an extension is under way.
    fn ask(&mut self) {
        if let Some(total) = self.allowance.ask(self.tally.completion(), self.starved.is_some()) {
            self.extend(total);
        }
    }

    fn extend(&mut self, total: u64) {
        if self.extension.is_some() {
            return;
        }
        self.reported = Instant::now();
        let (lease, usage) = (self.lease.clone(), self.meter.usage());
        let prompt = self.tally.prompt().unwrap_or(self.lease.prompt_tokens());
        self.extension = Some(Box::pin(async move { (total, lease.extend(usage, prompt, total).await) }));
    }

    fn extended(&mut self, asked: u64, answer: Result<Extension, Unavailable>) -> Option<Ending> {
        match answer {
            Ok(Extension::Open { revoked: true, .. }) => Some(Ending::Failed(Refusal::InvalidApiKey.into())),
            Ok(Extension::Open { output_tokens, revoked: false }) => {
                if asked > self.allowance.granted() {
                    self.allowance.extended(output_tokens, asked);
                    self.starved?;
                    self.starved = None;
                    let ending = self.rewrite();
                    // Still not covered: that was all there is.
                    return ending.or_else(|| self.starved.map(|_| Ending::GrantUsedUp));
                }
                self.ask();
                None
            }
            Ok(Extension::Gone) => {
                tracing::warn!("a stream's hold is not open any more");
                Some(Ending::Failed(ApiError::service_unavailable()))
            }
            Err(e) => {
                tracing::warn!(error = %e, "a hold was not extended; trying again");
                let waited = self.starved.map(|since| since.elapsed());
                waited.filter(|w| *w >= PATIENCE).map(|_| Ending::Failed(ApiError::service_unavailable()))
            }
        }
    }

    fn tick(&mut self, now: Instant, reading: bool) -> Option<Ending> {
        if !reading {
            // Silence is counted only while the upstream is listened to.
            self.heard = now;
        }
        if now.duration_since(self.heard) >= SILENCE {
            return Some(Ending::Failed(ApiError::new(Code::UpstreamTimeout, "The model fell silent.")));
        }
        if now.duration_since(self.written) >= KEEP_ALIVE && self.out.is_empty() {
            self.out.extend_from_slice(b": keep-alive\n\n");
        }
        if self.starved.is_some() {
            self.ask();
        } else if now.duration_since(self.reported) >= self.lease.every_of_stream() {
            self.extend(self.allowance.granted());
        }
        None
    }

    /// Settles the stream and writes its end.
    async fn end(
        mut self,
        ending: Ending,
        app: &App,
        job: &Job,
        running: Running,
        client: &mpsc::Sender<Bytes>,
        story: &mut Story,
    ) {
        let began = self.first_token.is_some();
        if self.tally.disbelieved() {
            tracing::warn!(generation = %job.id, "the upstream reported an impossible usage; billing without it");
        }
        if !matches!(ending, Ending::Failed(_)) {
            // An estimate of the prompt is replaced where somebody can count it.
            if self.tally.prompt().is_none()
                && let Some(exact) = super::count_exactly(&running, job).await
            {
                self.tally = self.tally.with_prompt(exact);
            }
            // Also where not one token was generated: the prompt was read.
            self.meter.record(self.tally.usage(), self.tally.estimated());
        }
        match &ending {
            Ending::Complete => running.tell(Outcome::Served),
            Ending::Failed(e) if matches!(e.code, Code::UpstreamError | Code::UpstreamTimeout) => {
                running.tell(Outcome::Failed);
            }
            Ending::Failed(_) | Ending::GrantUsedUp | Ending::ClientGone => {}
        }
        drop(running);
        story.usage = self.meter.usage();
        story.first_token = self.first_token.map(|at| at.duration_since(story.began));
        match ending {
            Ending::ClientGone => {
                metrics::counter!("gateway_client_disconnects_total").increment(1);
                story.ending = "client_gone";
                story.charge = self.meter.capture().await;
            }
            Ending::Complete | Ending::GrantUsedUp => {
                story.ending = if matches!(ending, Ending::Complete) { "ok" } else { "grant_used_up" };
                self.rewriter.cut(&mut self.out);
                story.charge = self.meter.capture().await;
                let cost = story.charge.map(|charge| charge.charged);
                let tokens = self.tally.usage();
                let usage = Reported { tokens, reasoning: self.reasoning.min(tokens.completion) };
                self.rewriter.done(usage, cost, &mut self.out);
                write_last(client, self.out, app).await;
            }
            Ending::Failed(error) => {
                story.ending = error.code.as_str();
                story.charge = if began { self.meter.capture().await } else { self.meter.release().await };
                Rewriter::error(&error, &mut self.out);
                write_last(client, self.out, app).await;
            }
        }
    }
}

/// The extension that is under way; never, if there is none.
async fn under_way(extension: &mut Option<Extending>) -> (u64, Result<Extension, Unavailable>) {
    match extension {
        Some(extension) => extension.await,
        None => pending().await,
    }
}

async fn write_last(client: &mpsc::Sender<Bytes>, out: BytesMut, app: &App) {
    tokio::select! {
        // A client that does not read, or has gone, misses the end; it was charged for what it got.
        _ = timeout(LAST_WRITE, client.send(out.freeze())) => {}
        () = app.cut.cancelled() => {}
    }
}

fn failed(reason: &str) -> Ending {
    tracing::warn!(reason, "an upstream failed during generation");
    metrics::counter!("gateway_upstream_errors_total", "kind" => "mid_stream").increment(1);
    Ending::Failed(ApiError::new(Code::UpstreamError, "The model failed during generation."))
}
