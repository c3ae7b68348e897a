//! Exact counts of a prompt's tokens, from servers that can count.

use std::time::Duration;

use admission::Admission;
use http::{StatusCode, uri::PathAndQuery};
use http_body_util::{BodyExt, Limited};
use request::{Forward, ProgressReports, UpstreamParams};
use serde::Deserialize;
use shared_door::admission::Owner;
use shared_observe::traces::Span;
use tokio::time::{Instant, timeout};
use upstream_error::{UpstreamError, Verdict};

use crate::{
    client::UpstreamClient,
    failure,
    passed_head::PassedHead,
    upstream::{Upstream, UpstreamRequest},
};

/// Maximum time for an exact count, including the wait for a permit. The wait is acceptable, because the request would
/// otherwise be refused.
const COUNT_DEADLINE: Duration = Duration::from_secs(10);
/// Largest answer to a request for a count, in bytes.
const MAX_COUNT_BYTES: usize = 1 << 20;

/// How to ask an upstream to count a prompt.
pub struct CountTerms<'t> {
    pub owner: Owner,
    /// Query and headers for a body that is passed on.
    pub passed: &'t PassedHead,
    /// The gateway's quotas. The body that asks for the count uses some of them.
    pub admission: &'t Admission,
}

/// Exact count of a prompt's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptCount {
    pub tokens: u64,
    /// Whether the count includes the tokens of images.
    pub with_images: bool,
}

impl PromptCount {
    /// Returns the number of tokens in the request. It is exact, except that images left out of the count are added at
    /// their upper bound.
    pub fn bound(self, forward: &Forward) -> u64 {
        let images = if self.with_images { 0 } else { forward.image_tokens };
        self.tokens.saturating_add(images).saturating_add(forward.uncounted)
    }
}

/// Why a prompt was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCounted {
    /// The upstream can never count this prompt.
    Unsupported,
    /// The upstream could not be reached, failed, or did not answer in time. This may last for some time.
    Away,
    /// The upstream is busy at the moment.
    Busy,
}

impl Upstream {
    /// Counts the exact tokens of the request's prompt, if this upstream can. Only a few prompts are counted at once.
    /// If more are waiting, accounts take turns.
    pub async fn count(
        &self,
        client: &UpstreamClient,
        forward: &Forward,
        terms: CountTerms<'_>,
    ) -> Result<PromptCount, NotCounted> {
        let counter = self.counter(forward).ok_or(NotCounted::Unsupported)?;
        let deadline = Instant::now() + COUNT_DEADLINE;
        let _permit = self.counting.wait(terms.owner, 1, deadline).await.ok_or(NotCounted::Busy)?;
        let answer = timeout(COUNT_DEADLINE, self.ask_count(client, counter, forward, terms)).await;
        let tokens = answer.map_err(|_| NotCounted::Away)??;
        Ok(PromptCount { tokens, with_images: self.dialect(forward).counter.counts_images() })
    }

    async fn ask_count(
        &self,
        client: &UpstreamClient,
        counter: &PathAndQuery,
        forward: &Forward,
        terms: CountTerms<'_>,
    ) -> Result<u64, NotCounted> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(alias = "input_tokens")]
            count: u64,
        }
        let form = self.form(forward);
        let params = UpstreamParams {
            form,
            account: None,
            model: &self.entry.model,
            limit_param: self.entry.limit_param,
            max_tokens: None,
            progress: ProgressReports::None,
            cache_salt: None,
            folded: false,
            refused: self.refused(),
        };
        let traceparent = Span::current().traceparent();
        let body = terms.admission.count_body(terms.owner, forward.count_body(params));
        let body = body.await.map_err(|_| NotCounted::Busy)?;
        let passed = form.is_passed().then_some(terms.passed);
        let question = UpstreamRequest { path: counter, passed, deadline: COUNT_DEADLINE, traceparent };
        let response = self.ask(client, question, || body.clone()).await;
        let response = response.map_err(|_| NotCounted::Away)?;
        let status = response.status();
        if status != StatusCode::OK {
            let (error, _) = failure::read_error(response).await;
            return Err(not_counted(&error, status.as_u16()));
        }
        let body = Limited::new(response.into_body(), MAX_COUNT_BYTES).collect().await;
        let body = body.map_err(|_| NotCounted::Away)?.to_bytes();
        serde_json::from_slice::<Answer>(&body)
            .map(|answer| answer.count)
            .map_err(|_| NotCounted::Unsupported)
    }
}

/// Returns why an upstream answered a count with an error.
fn not_counted(error: &UpstreamError, status: u16) -> NotCounted {
    match error.verdict(status) {
        Verdict::Overloaded => NotCounted::Busy,
        Verdict::Timeout => NotCounted::Away,
        Verdict::Broken if status >= 500 && status != StatusCode::NOT_IMPLEMENTED.as_u16() => {
            NotCounted::Away
        }
        Verdict::Broken | Verdict::TooLong | Verdict::Invalid(_) | Verdict::TooLarge => {
            NotCounted::Unsupported
        }
    }
}
