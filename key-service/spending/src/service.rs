//! The use cases of spending: authenticate, authorize, extend, capture and release. They handle many calls at once.
//!
//! A batch is split by account, and the store is called once for each account. At high load, many calls share one read
//! and one write of a record. A part of the store may be unreachable. So an account waits for other accounts only while
//! their credentials are being looked up, and no longer than `GATHERING`.

mod adding;
mod outcome;
mod refusals;
#[cfg(test)]
mod tests;
mod upstreams;

use std::{collections::BTreeMap, mem, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};
use shared::{
    clock::Clock,
    generation::Course,
    ids::{AccountId, Principal},
    key::Class,
    money::NanoUsd,
    refusal::{Denial, Refusal},
    tokens::Usage,
};
use shared_catalog::{Catalog, Price};
use shared_config::current::Current;
use shared_observe::traces::{KeyValue, Span, SpanKind};
use shared_rpc::{
    Answer, Authorize, Call, CallFailure, Capture, Extend, HoldRef, Identity, KeyService, Release,
    TakeAnswer, TracedCall, UpstreamCost,
};
use tokio::time::{Instant, sleep};
use tonic::Code;

pub(crate) use self::outcome::count_billed;
use self::outcome::{AnswerContext, failure};
pub use self::{refusals::Refusals, upstreams::UpstreamBills};
use domain::{
    lease_clock::LEASE_TICKS,
    ledger::{Command, NewHold, Outcome, Progress},
    pricing,
};
use key_service_credentials::Credentials;
use key_service_store::store::{Credential, Hour, Ledger, StoreError};

/// As long as a prompt can still be counted exactly, its upper bound is good enough only if the money available is at
/// least this many times the cost of the bound.
const BOUND_SHARE: i64 = 4;
/// For how long a call waits for other calls of its batch whose credentials are being looked up.
const GATHERING: Duration = Duration::from_millis(5);

/// Authorizes and bills spending. Share it with an `Arc`.
pub struct Service {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    catalog: Arc<Current<Catalog>>,
    lease: Duration,
    refusals: Arc<Refusals>,
    upstream_bills: Arc<UpstreamBills>,
}

/// What to do with a call: answer it at once, or give a command to the ledger and answer with the context.
#[expect(
    clippy::large_enum_variant,
    reason = "a plan is executed at once; a box would cost each command an allocation"
)]
enum CallPlan {
    Done(Result<Answer, CallFailure>),
    Run { account: AccountId, command: Command, context: AnswerContext },
}

/// Commands for one account. Each has the index of its call, and what is needed to answer the call.
#[derive(Default)]
struct CommandBatch {
    commands: Vec<Command>,
    contexts: Vec<(usize, AnswerContext)>,
    /// Spans of the sampled calls. There are only a few, and often none.
    spans: Vec<Span>,
}

impl Service {
    /// Creates a service that uses this ledger. A hold that is not extended lives for `lease`.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        credentials: Arc<Credentials>,
        catalog: Arc<Current<Catalog>>,
        lease: Duration,
    ) -> Self {
        let refusals = Arc::new(Refusals::new(Arc::clone(&clock)));
        let upstream_bills = Arc::new(UpstreamBills::default());
        Self { ledger, clock, credentials, catalog, lease, refusals, upstream_bills }
    }

    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    pub fn upstream_bills(&self) -> Arc<UpstreamBills> {
        Arc::clone(&self.upstream_bills)
    }

    /// Starts a span for a batch's call to the store. It is a child of the span of one of the batch's calls.
    fn store_span(&self, call: &Span, commands: usize) -> Span {
        call.child(SpanKind::Client, || {
            let size = i64::try_from(commands).unwrap_or(i64::MAX);
            let attributes = vec![
                KeyValue::new("db.system.name", self.ledger.system()),
                KeyValue::new("db.operation.name", "execute"),
                KeyValue::new("db.operation.batch.size", size),
            ];
            ("execute ledger".into(), attributes)
        })
    }

    async fn plan(&self, call: Call) -> CallPlan {
        let planned = match call {
            Call::Authenticate { credential, required } => {
                self.plan_authenticate(&credential, required).await
            }
            Call::Authorize(authorize) => self.plan_authorize(authorize).await,
            Call::Extend(extend) => Ok(self.plan_extend(extend)),
            Call::Capture(capture) => Ok(self.plan_capture(capture)),
            Call::Release(release) => self.plan_release(release).await,
        };
        planned.unwrap_or_else(|unavailable| CallPlan::Done(Err(failure(&unavailable))))
    }

    async fn plan_authenticate(&self, credential: &str, required: Class) -> Result<CallPlan, StoreError> {
        Ok(match (self.credentials.find(credential).await?, required) {
            (Some(Credential { owner: Principal::ApiKey(account, key), number }), Class::Api) => {
                let (command, owner) =
                    (Command::Check { key, credential: number }, Principal::ApiKey(account, key));
                CallPlan::Run { account, command, context: AnswerContext::Principal(owner) }
            }
            (found, required) => {
                let identified = self.credentials.identify(found, required, self.clock.now()).await?;
                let identified = identified.principal().map(Identity::from).map_err(Denial::from);
                CallPlan::Done(Ok(Answer::Authenticated(identified)))
            }
        })
    }

    async fn plan_authorize(&self, a: Authorize) -> Result<CallPlan, StoreError> {
        let (account, key, credential) = match self.credentials.find(&a.credential).await? {
            Some(Credential { owner: Principal::ApiKey(account, key), number }) => (account, key, number),
            other => {
                let identified = self.credentials.identify(other, Class::Api, self.clock.now()).await?;
                let refusal = identified.principal().err().unwrap_or(Refusal::InvalidApiKey);
                return Ok(CallPlan::Done(Ok(Answer::Authorized(Err(refusal.into())))));
            }
        };
        let catalog = self.catalog.get();
        let Some(model) = catalog.model(&a.model) else {
            return Ok(CallPlan::Done(Ok(Answer::Authorized(Err(Refusal::ModelNotFound.into())))));
        };
        if a.valid_until.is_some_and(|until| until < Instant::now()) {
            let message = "the call came after the time until which it may take effect".into();
            return Ok(CallPlan::Done(Err(CallFailure { code: Code::DeadlineExceeded, message })));
        }
        let (price, prompt, images, least) =
            (&model.price, a.prompt_tokens, a.images, a.least_output_tokens.max(1));
        let worst_case = |output| {
            if a.is_free { NanoUsd::ZERO } else { pricing::worst_case(price, prompt, output, images) }
        };
        let output = a.output_tokens.max(least);
        let command = Command::Hold(NewHold {
            key,
            credential,
            generation: a.generation,
            model: model.id.clone(),
            least: worst_case(least),
            enough: worst_case(a.enough_output_tokens.clamp(least, output)),
            most: worst_case(output),
            room_for_bound: if a.can_count { times(worst_case(0), BOUND_SHARE) } else { NanoUsd::ZERO },
            prompt_tokens: a.rated_tokens.unwrap_or(prompt),
            readmitted: a.readmitted,
            lease_ticks: LEASE_TICKS,
            origin: a.origin.clone(),
        });
        let hold = HoldRef {
            generation: a.generation,
            account,
            key,
            model: model.id.clone(),
            price: Arc::clone(price),
            upstream: 0,
            upstream_cost: UpstreamCost::OfCatalogue,
        };
        Ok(CallPlan::Run {
            account,
            command,
            context: AnswerContext::Grant {
                hold,
                upstream_costs: model
                    .upstreams
                    .iter()
                    .map(|upstream| upstream.cost.clone().map(Arc::new))
                    .collect(),
                prompt,
                images,
                output,
                is_least: output == least && !a.is_free,
                can_count: a.can_count,
                origin: a.origin,
                lease: self.lease,
            },
        })
    }

    /// Plans an extension at the hold's prices, even if the catalogue has changed.
    fn plan_extend(&self, extend: Extend) -> CallPlan {
        let Extend { hold, usage, prompt_tokens, images, output_tokens, course } = extend;
        let command = Command::Extend {
            key: hold.key,
            generation: hold.generation,
            most: pricing::worst_case(&hold.price, prompt_tokens, output_tokens, images),
            progress: self.progress(&hold, usage, course),
            lease_ticks: LEASE_TICKS,
        };
        let (price, prompt, output, lease) = (hold.price, prompt_tokens, output_tokens, self.lease);
        let context = AnswerContext::Extension { price, prompt, images, output, lease };
        CallPlan::Run { account: hold.account, command, context }
    }

    fn plan_capture(&self, Capture { hold, usage, charged, estimated, course }: Capture) -> CallPlan {
        let total = self.progress(&hold, usage, course);
        let chargeable = charged.map(|charged| pricing::cost(&hold.price, charged));
        let HoldRef { account, key, generation, model, .. } = hold;
        let command = Command::Capture { key, generation, model, total, chargeable, estimated };
        CallPlan::Run { account, command, context: AnswerContext::Charge }
    }

    /// Prices usage at the hold's prices, and computes its cost at the upstream's prices. If another model answered,
    /// both amounts are at least the cost that the vendor reports.
    fn progress(&self, hold: &HoldRef, usage: Usage, course: Option<Arc<Course>>) -> Progress {
        let cost = match &hold.upstream_cost {
            UpstreamCost::OfHold(cost) => cost.clone(),
            UpstreamCost::OfCatalogue => self.cost_in_catalogue(hold),
        };
        let least = course.as_ref().and_then(|course| course.least_cost_nanos).map(NanoUsd::from_nanos);
        let upstream_cost = cost.map(|cost| pricing::cost(&cost, usage)).max(least);
        let cost = pricing::cost(&hold.price, usage).max(least.unwrap_or(NanoUsd::ZERO));
        let course = course.map(|course| match least {
            Some(_) => Arc::new(Course { least_cost_nanos: None, ..Course::clone(&course) }),
            None => course,
        });
        Progress { usage, cost, upstream_cost, course }
    }

    /// Finds the upstream's prices in the catalogue, for a hold that does not have them.
    fn cost_in_catalogue(&self, hold: &HoldRef) -> Option<Arc<Price>> {
        let place = usize::try_from(hold.upstream).ok().and_then(|place| place.checked_sub(1));
        let catalog = self.catalog.get();
        let model = catalog.model(&hold.model);
        let upstream = model.zip(place).and_then(|(model, place)| model.upstreams.get(place));
        upstream.and_then(|upstream| upstream.cost.clone()).map(Arc::new)
    }

    async fn plan_release(&self, release: Release) -> Result<CallPlan, StoreError> {
        let (account, key, generation) = match release {
            Release::Hold(hold) => (hold.account, hold.key, hold.generation),
            Release::Unknown { credential, generation } => match self.credentials.find(&credential).await? {
                // A rotation may have ended this credential since then, but the hold that it opened continues.
                Some(Credential { owner: Principal::ApiKey(account, key), number: _ }) => {
                    (account, key, generation)
                }
                // Only an API key can have opened a hold.
                Some(Credential { owner: Principal::ManagementKey(..), number: _ }) | None => {
                    return Ok(CallPlan::Done(Ok(Answer::Released)));
                }
            },
        };
        let command = Command::Release { key, generation };
        Ok(CallPlan::Run { account, command, context: AnswerContext::Release })
    }

    /// Executes an account's commands, and answers their calls.
    async fn run(&self, account: AccountId, batch: CommandBatch, reply: &TakeAnswer<'_>) {
        let CommandBatch { commands, contexts, spans } = batch;
        let now = self.clock.now();
        let spans: Vec<_> = spans.iter().map(|span| self.store_span(span, commands.len())).collect();
        match self.ledger.execute(account, commands, now).await {
            Ok(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                for (place, context) in contexts {
                    let Some(outcome) = outcomes.next() else {
                        reply(
                            place,
                            Err(outcome::unfit("the store answered fewer commands than it was given")),
                        );
                        continue;
                    };
                    context.count(&outcome, &self.refusals, Hour::of(now));
                    if let Ok(Outcome::Captured(settlement)) = &outcome {
                        self.upstream_bills.note(settlement, Hour::of(now));
                    }
                    reply(place, context.of(outcome));
                }
            }
            Err(unavailable) => {
                for span in &spans {
                    span.fail("store");
                }
                for (place, _) in contexts {
                    reply(place, Err(failure(&unavailable)));
                }
            }
        }
    }
}

#[async_trait]
impl KeyService for Service {
    async fn handle(&self, calls: Vec<TracedCall>, reply: &TakeAnswer<'_>) {
        let plan = async |(place, TracedCall { call, span })| (place, self.plan(call).await, span);
        let mut plans: FuturesUnordered<_> = calls.into_iter().enumerate().map(plan).collect();
        let mut gathered: BTreeMap<AccountId, CommandBatch> = BTreeMap::new();
        let mut runs = FuturesUnordered::new();
        let mut gathering = pin!(sleep(GATHERING));
        let mut is_over = false;
        loop {
            if plans.is_empty() || is_over {
                let batches = mem::take(&mut gathered).into_iter();
                runs.extend(batches.map(|(account, batch)| self.run(account, batch, reply)));
            }
            tokio::select! {
                biased;
                Some((place, plan, span)) = plans.next(), if !plans.is_empty() => match plan {
                    CallPlan::Done(answer) => reply(place, answer),
                    CallPlan::Run { account, command, context } => {
                        let batch = gathered.entry(account).or_default();
                        batch.commands.push(command);
                        batch.contexts.push((place, context));
                        batch.spans.extend(Some(span).filter(Span::is_sampled));
                    }
                },
                Some(()) = runs.next(), if !runs.is_empty() => {}
                () = &mut gathering, if !gathered.is_empty() => is_over = true,
                else => return,
            }
        }
    }
}

fn times(amount: NanoUsd, factor: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos().saturating_mul(factor))
}
