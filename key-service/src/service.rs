//! The use-cases of spending: authenticate, authorize, extend, capture, release; many at a time.
//!
//! A batch is grouped by account, and the store is asked once per account: at high load, a record is read and written
//! once for many calls.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use shared::{
    catalog::{Catalog, Price},
    clock::Clock,
    ids::{AccountId, GenerationId, KeyId},
    key::Class,
    money::NanoUsd,
    refusal::Refusal,
    time::Timestamp,
    tokens::Usage,
};

use crate::{
    credentials::Credentials,
    domain::{
        ledger::{Command, Outcome, Progress, Refused},
        pricing,
    },
    store::{Owner, Store, Unavailable},
};

/// Decides who may spend. Cheap to share behind an `Arc`.
pub struct Service {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    catalog: Arc<Catalog>,
    lease: Duration,
}

/// One thing that a gateway asks.
#[derive(Debug)]
pub enum Call {
    /// Who is this, and may it spend?
    Authenticate {
        /// The plaintext of a key.
        credential: String,
        /// What the route needs.
        required: Class,
    },
    /// May it spend this much? Opens a hold.
    Authorize(Authorize),
    /// Renew the lease, record progress, ask for more.
    Extend {
        /// Which hold.
        hold: HoldRef,
        /// Used so far.
        usage: Usage,
        /// Tokens of the prompt, as exactly as known.
        prompt_tokens: u64,
        /// Output tokens wanted in total.
        output_tokens: u64,
    },
    /// Bill it.
    Capture {
        /// Which hold.
        hold: HoldRef,
        /// Used in the end.
        usage: Usage,
        /// Whether that is an estimate.
        estimated: bool,
    },
    /// It cost nothing.
    Release {
        /// Which hold.
        hold: HoldRef,
    },
}

/// A request to open a hold.
#[derive(Debug)]
pub struct Authorize {
    /// The plaintext of an API key.
    pub credential: String,
    /// Chosen by the caller.
    pub generation: GenerationId,
    /// The model's id in the catalogue.
    pub model: String,
    /// A bound on the prompt's tokens that cannot be too low.
    pub prompt_tokens: u64,
    /// Output tokens wanted.
    pub output_tokens: u64,
    /// Fewer than this are not worth having while others hold the rest.
    pub enough_output_tokens: u64,
    /// With fewer than this the request cannot be served at all.
    pub least_output_tokens: u64,
}

/// Which hold is meant.
#[derive(Debug)]
pub struct HoldRef {
    /// The account that pays.
    pub account: AccountId,
    /// The key that pays.
    pub key: KeyId,
    /// The generation.
    pub generation: GenerationId,
    /// The model's id in the catalogue.
    pub model: String,
}

/// The answer to a [`Call`] of the same name.
#[derive(Debug)]
pub enum Answer {
    /// Whose credential it is.
    Authenticated(Result<Owner, Refusal>),
    /// The open hold.
    Authorized(Result<Grant, Refusal>),
    /// The extended hold; `None` if it is not open (any more).
    Extended(Option<Extension>),
    /// What was billed; `None` if no such hold was ever opened.
    Captured(Option<Charge>),
    /// Nothing is held.
    Released,
}

/// An open hold.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The account that pays.
    pub account: AccountId,
    /// The key that pays.
    pub key: KeyId,
    /// Output tokens covered.
    pub output_tokens: u64,
    /// How long the hold lives unless it is extended.
    pub lease: Duration,
}

/// An extended hold.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// Output tokens covered in total.
    pub output_tokens: u64,
    /// How long the hold lives unless it is extended again.
    pub lease: Duration,
    /// The key was revoked in the meantime.
    pub revoked: bool,
}

/// What was billed.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// Billed.
    pub charged: NanoUsd,
    /// Cost beyond what could be billed.
    pub shortfall: NanoUsd,
}

/// A call failed. The outcome is unknown, and the same call may be made again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failed {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] Unavailable),
    /// A hold names a model that the catalogue no longer has, so that it cannot be priced. Its expiry bills what was
    /// reported while the model was known.
    #[error("the catalogue has no model \"{0}\"")]
    UnknownModel(String),
    /// The ledger answered something that does not belong to the question: our bug.
    #[error("the ledger gave an answer that does not fit: {0}")]
    Confused(String),
}

/// What is to be done for a call: nothing more, or a command and what its outcome means.
enum Plan {
    Done(Result<Answer, Failed>),
    Run { account: AccountId, command: Command, meaning: Meaning },
}

/// The commands of one account, and for each the place of its answer and what its outcome means.
#[derive(Default)]
struct Batch {
    commands: Vec<Command>,
    meanings: Vec<(usize, Meaning)>,
}

/// How an outcome is put into an answer.
enum Meaning {
    Identity(AccountId, KeyId),
    Grant { account: AccountId, key: KeyId, price: Price, prompt: u64, output: u64 },
    Extension { price: Price, prompt: u64, output: u64 },
    Charge { model: String },
    Release,
}

impl Service {
    /// A service over this store; holds live `lease` unless they are extended.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        credentials: Arc<Credentials>,
        catalog: Arc<Catalog>,
        lease: Duration,
    ) -> Self {
        Self { store, clock, credentials, catalog, lease }
    }

    /// Answers every call, in the order of the calls.
    pub async fn handle(&self, calls: Vec<Call>) -> Vec<Result<Answer, Failed>> {
        let now = self.clock.now();
        let plans = join_all(calls.into_iter().map(|call| self.plan(call, now))).await;
        let mut answers: Vec<Option<Result<Answer, Failed>>> = Vec::with_capacity(plans.len());
        let mut accounts: HashMap<AccountId, Batch> = HashMap::new();
        for (at, plan) in plans.into_iter().enumerate() {
            match plan {
                Plan::Done(answer) => answers.push(Some(answer)),
                Plan::Run { account, command, meaning } => {
                    let batch = accounts.entry(account).or_default();
                    batch.commands.push(command);
                    batch.meanings.push((at, meaning));
                    answers.push(None);
                }
            }
        }
        let runs = accounts.into_iter().map(|(account, Batch { commands, meanings })| async move {
            (self.store.execute(account, commands, now).await, meanings)
        });
        for (outcomes, meanings) in join_all(runs).await {
            match outcomes {
                Ok(outcomes) => {
                    for (outcome, (at, meaning)) in outcomes.into_iter().zip(meanings) {
                        answers[at] = Some(self.answer(meaning, outcome));
                    }
                }
                Err(e) => meanings.iter().for_each(|(at, _)| answers[*at] = Some(Err(e.clone().into()))),
            }
        }
        let unanswered =
            || Err(Failed::Confused("the store answered fewer commands than it was given".into()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    async fn plan(&self, call: Call, now: Timestamp) -> Plan {
        let planned = match call {
            Call::Authenticate { credential, required } => {
                self.plan_authenticate(&credential, required).await
            }
            Call::Authorize(authorize) => self.plan_authorize(authorize, now).await,
            Call::Extend { hold, usage, prompt_tokens, output_tokens } => {
                self.plan_extend(&hold, usage, prompt_tokens, output_tokens, now)
            }
            Call::Capture { hold, usage, estimated } => self.plan_capture(hold, usage, estimated),
            Call::Release { hold } => {
                let command = Command::Release { key: hold.key, generation: hold.generation };
                Ok(Plan::Run { account: hold.account, command, meaning: Meaning::Release })
            }
        };
        planned.unwrap_or_else(|failed| Plan::Done(Err(failed)))
    }

    async fn plan_authenticate(&self, credential: &str, required: Class) -> Result<Plan, Failed> {
        Ok(match (self.credentials.find(credential).await?, required) {
            (Some(Owner::ApiKey(account, key)), Class::Api) => Plan::Run {
                account,
                command: Command::Check { key },
                meaning: Meaning::Identity(account, key),
            },
            (owner, required) => {
                Plan::Done(Ok(Answer::Authenticated(self.credentials.identify(owner, required).await?)))
            }
        })
    }

    async fn plan_authorize(&self, a: Authorize, now: Timestamp) -> Result<Plan, Failed> {
        let (account, key) = match self.credentials.find(&a.credential).await? {
            Some(Owner::ApiKey(account, key)) => (account, key),
            other => {
                let refusal = self
                    .credentials
                    .identify(other, Class::Api)
                    .await?
                    .err()
                    .unwrap_or(Refusal::InvalidApiKey);
                return Ok(Plan::Done(Ok(Answer::Authorized(Err(refusal)))));
            }
        };
        let Some(model) = self.catalog.model(&a.model) else {
            return Ok(Plan::Done(Ok(Answer::Authorized(Err(Refusal::ModelNotFound)))));
        };
        let (price, prompt, least) = (model.price, a.prompt_tokens, a.least_output_tokens.max(1));
        let output = a.output_tokens.max(least);
        let command = Command::Hold {
            key,
            generation: a.generation,
            model: a.model,
            least: pricing::worst_case(&price, prompt, least),
            enough: pricing::worst_case(&price, prompt, a.enough_output_tokens.clamp(least, output)),
            most: pricing::worst_case(&price, prompt, output),
            lease_until: now.plus(self.lease),
        };
        Ok(Plan::Run { account, command, meaning: Meaning::Grant { account, key, price, prompt, output } })
    }

    fn plan_extend(
        &self,
        hold: &HoldRef,
        usage: Usage,
        prompt: u64,
        output: u64,
        now: Timestamp,
    ) -> Result<Plan, Failed> {
        let price = self.price(&hold.model)?;
        let command = Command::Extend {
            key: hold.key,
            generation: hold.generation,
            most: pricing::worst_case(&price, prompt, output),
            progress: Progress { usage, cost: pricing::cost(&price, usage) },
            lease_until: now.plus(self.lease),
        };
        Ok(Plan::Run {
            account: hold.account,
            command,
            meaning: Meaning::Extension { price, prompt, output },
        })
    }

    fn plan_capture(&self, hold: HoldRef, usage: Usage, estimated: bool) -> Result<Plan, Failed> {
        let cost = pricing::cost(&self.price(&hold.model)?, usage);
        let HoldRef { account, key, generation, model } = hold;
        let command = Command::Capture { key, generation, total: Progress { usage, cost }, estimated };
        Ok(Plan::Run { account, command, meaning: Meaning::Charge { model } })
    }

    fn price(&self, model: &str) -> Result<Price, Failed> {
        let model = self.catalog.model(model).ok_or_else(|| Failed::UnknownModel(model.to_owned()))?;
        Ok(model.price)
    }

    fn answer(&self, meaning: Meaning, outcome: Result<Outcome, Refused>) -> Result<Answer, Failed> {
        let refused = |refused: Refused| {
            let refusal = refused.refusal().ok_or_else(|| Failed::Confused(format!("{refused:?}")))?;
            metrics::counter!("keyservice_denials_total", "reason" => refusal.code().as_str()).increment(1);
            Ok::<_, Failed>(refusal)
        };
        match (meaning, outcome) {
            (Meaning::Identity(account, key), Ok(Outcome::Allowed)) => {
                Ok(Answer::Authenticated(Ok(Owner::ApiKey(account, key))))
            }
            (Meaning::Identity(..), Err(e)) => Ok(Answer::Authenticated(Err(refused(e)?))),
            (Meaning::Grant { account, key, price, prompt, output }, Ok(Outcome::Held(amount))) => {
                let output_tokens = pricing::covered_output(&price, amount, prompt, output);
                Ok(Answer::Authorized(Ok(Grant { account, key, output_tokens, lease: self.lease })))
            }
            (Meaning::Grant { .. }, Err(e)) => Ok(Answer::Authorized(Err(refused(e)?))),
            (Meaning::Extension { price, prompt, output }, Ok(Outcome::Extended { amount, revoked })) => {
                let output_tokens = pricing::covered_output(&price, amount, prompt, output);
                Ok(Answer::Extended(Some(Extension { output_tokens, lease: self.lease, revoked })))
            }
            (Meaning::Extension { .. }, Ok(Outcome::Gone)) => Ok(Answer::Extended(None)),
            (Meaning::Charge { model }, Ok(Outcome::Captured(settlement))) => {
                let (charged, shortfall) = (settlement.charged, settlement.shortfall());
                count_billed(model, charged, shortfall);
                Ok(Answer::Captured(Some(Charge { charged, shortfall })))
            }
            (Meaning::Charge { .. }, Ok(Outcome::Gone)) => Ok(Answer::Captured(None)),
            (Meaning::Release, Ok(_)) => Ok(Answer::Released),
            (_, outcome) => Err(Failed::Confused(format!("{outcome:?}"))),
        }
    }
}

/// Counts what was billed, however it came to be.
pub(crate) fn count_billed(model: String, charged: NanoUsd, shortfall: NanoUsd) {
    let count = |nanos: NanoUsd| u64::try_from(nanos.nanos()).unwrap_or(0);
    metrics::counter!("keyservice_billed_nanousd_total", "model" => model.clone()).increment(count(charged));
    if shortfall > NanoUsd::ZERO {
        metrics::counter!("keyservice_shortfall_nanousd_total", "model" => model).increment(count(shortfall));
    }
}
