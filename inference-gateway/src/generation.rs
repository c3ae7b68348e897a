//! A chat request: authorized, sent to an upstream, metered on the way back, and settled.
//!
//! A generation runs within its client's connection. If the client leaves, the generation continues in the background:
//! a whole answer to its end, a stream until it is settled.

mod answer_permit;
mod authorize;
mod dispatch;
mod generator;
mod job;
mod log;
mod model_names;
mod oddities;
mod streamed;
mod whole;

use std::sync::Arc;

use holds::{HoldStatus, OpenHold};
use shared::{
    error::{ApiError, Code},
    refusal::Refusal,
    tokens::{Usage, UsageDetails},
};
use shared_catalog::LeftBeforeHead;
use upstreams::{Running, UpstreamFailure};

use crate::client::Client;
use authorize::Authorized;
use dispatch::{Begun, Route};
pub(crate) use generator::Generator;
pub(crate) use job::{AnswerBody, Job, Started};
use log::GenerationLog;

impl Generator {
    /// Runs a generation until its answer begins or, for a whole answer, until it ends.
    pub(crate) async fn run(self: Arc<Self>, mut job: Job, client: Client) -> Result<Started, ApiError> {
        let mut log = GenerationLog::begin(&job);
        let deadline = whole::Deadline::new(&client, self.answer_deadline);
        let started = match self.begin(&mut job, &deadline, &mut log).await {
            Ok(begun) if job.forward.stream => {
                return Ok(streamed::start(&self, job, begun, client, log));
            }
            Ok(begun) => {
                job.forget_prompt();
                whole::run(&self, &job, begun, &deadline, &mut log).await
            }
            Err(error) => Err(error),
        };
        // If the client left, that stays the logged outcome, whatever error follows.
        if let Err(error) = &started
            && log.outcome.is_empty()
        {
            log.outcome = error.code.as_str();
            log.fail(error);
        }
        log.write(&job);
        started.map(|started| Started { body: started.body.keeping(&mut job.admitted), ..started })
    }

    /// Authorizes the generation and gets an upstream to answer.
    async fn begin(
        &self,
        job: &mut Job,
        deadline: &whole::Deadline,
        log: &mut GenerationLog,
    ) -> Result<Begun, ApiError> {
        let models = job.models.clone();
        let pool = models.pool(&job.model).ok_or_else(ApiError::internal)?;
        let Authorized { hold, asked, counted_by } = self.authorize(job, pool).await?;
        log.begin_inference(job);
        let mut route = Route { counted_by, asked: None, asked_kind: None, inference: log.inference.clone() };
        log.generation = hold.generation();
        log.key = Some(hold.key());
        let job = &*job;
        let reached = tokio::select! {
            biased;
            reached = self.reach(pool, job, &hold, asked, &mut route) => reached,
            refusal = revoked(&hold), if job.forward.stream => {
                hold.release().await;
                return Err(refusal.into());
            }
            () = self.cut.cancelled() => Err(UpstreamFailure::Broken("cut off, since the gateway is stopping".into())),
            () = deadline.passed(), if !job.forward.stream => Err(UpstreamFailure::Timeout),
            _ = deadline.client.left(), if job.forward.stream => {
                log.asked = route.asked_kind;
                Box::pin(self.settle_left_before_head(route.asked, job, hold, log)).await;
                // Nobody reads this error.
                return Err(ApiError::new(Code::UpstreamError, "The client left."));
            }
        };
        log.asked = route.asked_kind;
        match reached {
            Ok(reached) => {
                log.reached(reached.running.upstream());
                Ok(Begun { hold, reached })
            }
            Err(failure) => {
                tracing::warn!(generation = %job.id, model = job.model, %failure, "the upstream did not answer");
                metrics::counter!("gateway_upstream_errors_total", "kind" => failure.kind()).increment(1);
                hold.release().await;
                Err(failure.into())
            }
        }
    }

    /// Settles a stream whose client left before the upstream answered. Depending on `left_before_head` of the upstream
    /// that was asked, the stream is free or its prompt is charged. If no upstream was asked, it is free.
    async fn settle_left_before_head(
        &self,
        asked: Option<Running>,
        job: &Job,
        hold: OpenHold,
        log: &mut GenerationLog,
    ) {
        metrics::counter!("gateway_client_disconnects_total").increment(1);
        log.outcome = "client_gone";
        let charged =
            asked.filter(|running| running.upstream().entry.left_before_head == LeftBeforeHead::Prompt);
        let Some(running) = charged else { return hold.release().await };
        let exact = self.count_exactly(&running, job).await;
        let prompt = exact.unwrap_or(job.forward.prompt_estimate);
        let details = UsageDetails { images: job.forward.images, ..UsageDetails::default() };
        log.end_inference(Usage { details, ..Usage::of(prompt, 0, 0) });
        log.charge = hold.capture(log.usage, exact.is_none()).await;
    }
}

/// Waits until the hold's key is revoked or its group archived.
async fn revoked(hold: &OpenHold) -> Refusal {
    loop {
        if let HoldStatus::Revoked(refusal) = hold.status() {
            return refusal;
        }
        hold.changed().await;
    }
}
