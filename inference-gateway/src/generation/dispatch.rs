//! Sends a generation to an upstream, and to another if the first could not take it.

use holds::OpenHold;
use http::HeaderValue;
use hyper::body::Incoming;
use routing::{AttemptOutcome, affinity};
use shared_catalog::{ImageUrls, UpstreamApi, UpstreamKind};
use shared_observe::traces::Span;
use shared_rpc::{Extended, Extension};
use upstream_error::RefusedLimit;
use upstreams::{BegunAnswer, NotAnswered, Pool, Running, Terms, UpstreamFailure};

use super::{generator::Generator, job::Job};

/// Timeout of a whole answer, as a multiple of the answer deadline. After one answer deadline, the client gets a 504,
/// but pays for the answer when it ends.
pub(super) const WHOLE_ANSWER: u32 = 3;

/// How often a request is sent again after the upstream refused a part that it can do without.
const MORE_TRIES: usize = 2;

/// A limit is lowered to no fewer tokens than this. With less room, a client that set a limit should learn that its
/// prompt is too long. Agents then shorten the prompt, whereas they would take such a short answer for a complete
/// answer.
const LEAST_ROOM: u64 = 256;

/// A generation whose answer begins, with the hold that pays for it.
pub(super) struct Begun {
    pub(super) hold: OpenHold,
    pub(super) reached: Reached,
}

/// A generation whose upstream has answered 200.
pub(super) struct Reached {
    /// The upstream's output limit for each choice.
    pub(super) max_tokens: u64,
    pub(super) running: Running,
    pub(super) body: Incoming,
    /// Whether a whole answer arrives as a stream.
    pub(super) folded: bool,
}

/// The upstreams that a generation has tried.
#[derive(Default)]
pub(super) struct Route {
    /// The upstream that counted the prompt. It will get the request.
    pub(super) counted_by: Option<Running>,
    /// The upstream that has the request and has not answered yet.
    pub(super) asked: Option<Running>,
    /// The software of the upstream that was asked last.
    pub(super) asked_kind: Option<UpstreamKind>,
    /// The span of the inference, if spans are exported.
    pub(super) inference: Span,
}

impl Route {
    /// Records which upstream is being asked. Telemetry records it too, since the upstream may fail to answer.
    fn ask(&mut self, running: Running) -> &Running {
        let upstream = running.upstream();
        self.asked_kind = Some(upstream.entry.kind);
        upstream.name_in(&self.inference);
        self.asked.insert(running)
    }

    /// Completes the route: the upstream that was asked has answered 200.
    fn answered(&mut self, answered: Answered) -> Result<Reached, UpstreamFailure> {
        let Answered { max_tokens, answering: BegunAnswer { body, folded } } = answered;
        let running = self.asked.take().ok_or_else(|| UpstreamFailure::Broken("it was not asked".into()))?;
        Ok(Reached { max_tokens, running, body, folded })
    }
}

/// An upstream's answer with status 200.
struct Answered {
    /// The upstream's output limit for each choice.
    max_tokens: u64,
    answering: BegunAnswer,
}

/// The limit for a second try, after the upstream refused the first limit.
#[derive(Clone, Copy)]
enum SecondLimit {
    /// The output that fits in the upstream's window.
    Room(u64),
    /// No limit: the upstream generates to the end of its window, which is less than what is held.
    Upstreams,
}

impl Generator {
    /// Extends the hold as far as is useful, and sends the request.
    pub(super) async fn reach(
        &self,
        pool: &Pool,
        job: &Job,
        hold: &OpenHold,
        asked: u64,
        route: &mut Route,
    ) -> Result<Reached, UpstreamFailure> {
        if hold.output_tokens() < asked {
            Box::pin(self.widen(hold, pool, job, asked, &mut route.counted_by)).await;
        }
        // A grant of less than was requested is final, so it becomes the upstream's limit. The upstream then stops by
        // itself.
        let granted = hold.output_tokens();
        let max_tokens = if granted < asked { granted / job.forward.n } else { job.forward.max_tokens };
        self.send(pool, job, hold, max_tokens, route).await
    }

    /// For a hold that covers less output than requested: counts the prompt exactly, since a smaller prompt leaves more
    /// for output, and extends the hold.
    async fn widen(
        &self,
        hold: &OpenHold,
        pool: &Pool,
        job: &Job,
        asked: u64,
        counted_by: &mut Option<Running>,
    ) {
        if counted_by.is_some() {
            return;
        }
        let Some(running) = pool.choose(Some(hold.account()), job.forward.image_urls, None, None) else {
            return;
        };
        let Some(exact) = self.count(&running, job).await.filter(|exact| *exact < hold.prompt_tokens())
        else {
            return;
        };
        match hold.extend(exact, job.forward.images, asked).await {
            Ok(Extended::Open(Extension { .. })) => *counted_by = Some(running),
            Ok(Extended::Gone) | Err(_) => {}
        }
    }

    /// Sends the request to the upstream that counted the prompt or, without a count, to the best upstream. Tries
    /// another upstream once if that may help.
    async fn send(
        &self,
        pool: &Pool,
        job: &Job,
        hold: &OpenHold,
        max_tokens: u64,
        route: &mut Route,
    ) -> Result<Reached, UpstreamFailure> {
        let (account, images) = (Some(hold.account()), job.forward.image_urls);
        let affinity = job.forward.prompt_prefix().map(|prefix| affinity(hold.account(), prefix));
        let first = route.counted_by.take().or_else(|| pool.choose(account, images, affinity, None));
        let first = first.ok_or_else(UpstreamFailure::no_upstream)?;
        let traceparent = route.inference.traceparent();
        let traceparent = traceparent.as_ref();
        let asked = route.ask(first);
        let failure = match self.attempt(asked, job, hold, max_tokens, traceparent).await {
            Ok(answered) => return route.answered(answered),
            Err(failure) => failure,
        };
        let first = route.asked.take();
        let other =
            if failure.elsewhere() { pool.choose(account, images, affinity, first.as_ref()) } else { None };
        let (Some(first), Some(other)) = (first, other) else { return Err(failure) };
        let first = first.failed();
        let asked = route.ask(other);
        match self.attempt(asked, job, hold, max_tokens, traceparent).await {
            Ok(answered) => route.answered(answered),
            Err(second) => {
                if second.is_alike(&failure) {
                    asked.excuse_with(&first);
                }
                Err(second)
            }
        }
    }

    async fn attempt(
        &self,
        running: &Running,
        job: &Job,
        hold: &OpenHold,
        max_tokens: u64,
        traceparent: Option<&HeaderValue>,
    ) -> Result<Answered, UpstreamFailure> {
        let (upstream, account) = (running.upstream(), hold.account());
        hold.sent_to(running.place(), upstream.entry.name.clone());
        let deadline =
            if job.forward.stream { self.answer_deadline } else { WHOLE_ANSWER * self.answer_deadline };
        let passed = &job.passed;
        let send = |max_tokens, refused| {
            let traceparent = traceparent.cloned();
            let terms = Terms { account, passed, deadline, traceparent, max_tokens, refused };
            upstream.send(&self.http, &job.forward, terms)
        };
        let first = max_tokens.min(upstream.most_output());
        let known = upstream.refused();
        let (mut limit, mut most, mut refused) = (Some(first), None, known);
        let mut answered = send(limit, refused).await;
        for _ in 0..MORE_TRIES {
            let Err(NotAnswered { limit: refused_limit, member, .. }) = &answered else { break };
            let second = match refused_limit {
                Some(refused) if limit == Some(first) => {
                    Box::pin(self.second_limit(running, job, first, *refused)).await
                }
                Some(_) | None => None,
            };
            let is_new = |member: &_| !refused.contains(*member) && upstream.sends(&job.forward, *member);
            match (second, member.filter(is_new)) {
                (Some(SecondLimit::Room(room)), _) => {
                    most = refused_limit.and_then(RefusedLimit::most).filter(|most| *most == room);
                    limit = Some(room);
                }
                (Some(SecondLimit::Upstreams), _) => limit = None,
                (None, Some(member)) => refused = refused.with(member),
                (None, None) => break,
            }
            answered = send(limit, refused).await;
        }
        // A server may fetch images for a client. What it fetches may change between two tries, so a failure of the
        // first try proves nothing about the server.
        let teaches = job.forward.image_urls == ImageUrls::Data;
        if teaches && answered.is_ok() && (refused != known || most.is_some()) {
            upstream.learn(refused, most);
        }
        let limit = limit.unwrap_or(first);
        let answered = answered.map_err(|not_answered| not_answered.failure);
        if let Some(kind) = answered.as_ref().err().and_then(UpstreamFailure::upstreams_own) {
            running.note_failure(kind);
        }
        running.note(match &answered {
            Ok(_) => AttemptOutcome::Answered,
            Err(failure) => job.outcome(failure, running, account),
        });
        answered.map(|answering| Answered { max_tokens: limit, answering })
    }

    /// Decides the limit for a second try after the first limit was refused; `None` if the refusal is final. Only the
    /// upstream knows how much output has room, which may be less than the catalogue's limit.
    async fn second_limit(
        &self,
        running: &Running,
        job: &Job,
        first: u64,
        refused: RefusedLimit,
    ) -> Option<SecondLimit> {
        // The hold covers all that the model can generate, or more than the upstream's window.
        let is_covered = first == job.forward.max_tokens
            || refused.room_beside(0).is_some_and(|whole_window| whole_window < first);
        let needs_limit = running.upstream().form(&job.forward).api() == UpstreamApi::Messages;
        let may_be_unlimited = !job.forward.limited && is_covered && !needs_limit;
        let room = match refused.room() {
            // The prompt is not counted if the upstream needs no limit, since counting takes time.
            None if !may_be_unlimited && refused.room_beside(0).is_some() => {
                let counted = self.count(running, job).await;
                let bound = job.forward.prompt_bound.saturating_add(running.prompt_overhead());
                refused.room_beside(counted.unwrap_or(bound))
            }
            told => told,
        };
        match room {
            Some(room) if (LEAST_ROOM..first).contains(&room) => Some(SecondLimit::Room(room)),
            Some(_) | None => may_be_unlimited.then_some(SecondLimit::Upstreams),
        }
    }
}
