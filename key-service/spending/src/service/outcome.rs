use std::{sync::Arc, time::Duration};

use shared::{
    generation::Origin,
    ids::Principal,
    money::NanoUsd,
    rates::RateStatus,
    refusal::{Denial, DenialDetail, Refusal},
};
use shared_catalog::Price;
use shared_rpc::{Answer, CallFailure, Captured, Charge, Extended, Extension, Grant, HoldRef, Identity};
use tonic::Code;

use super::refusals::{Refusals, RefusedNow};
use domain::{
    ledger::{Outcome, Refused, Settlement},
    pricing,
};
use key_service_store::store::{Hour, StoreError};

/// What is needed to answer a call after its command to the ledger was executed.
pub(super) enum AnswerContext {
    Principal(Principal),
    /// `is_least` means that the call asked only for its lower bound. `can_count` means that the prompt can be counted
    /// exactly.
    Grant {
        hold: HoldRef,
        /// For each of the model's upstreams, its prices if they are known.
        upstream_costs: Vec<Option<Arc<Price>>>,
        prompt: u64,
        images: u64,
        output: u64,
        is_least: bool,
        can_count: bool,
        origin: Option<Arc<Origin>>,
        lease: Duration,
    },
    Extension {
        price: Arc<Price>,
        prompt: u64,
        images: u64,
        output: u64,
        lease: Duration,
    },
    Charge,
    Release,
}

impl AnswerContext {
    /// Records the call if it was refused.
    pub(super) fn count(&self, outcome: &Result<Outcome, Refused>, refusals: &Refusals, hour: Hour) {
        let refusal = outcome.as_ref().err().map(Refused::refusal);
        match (self, refusal) {
            (Self::Principal(Principal::ApiKey(_, key)), None) => refusals.authenticated(*key),
            (Self::Principal(Principal::ApiKey(account, key)), Some(Some(refusal))) => {
                let counter = (*account, *key, hour, refusal.code().as_str());
                refusals.not_authenticated(&RefusedNow { counter, asked: None });
            }
            (Self::Grant { hold, is_least, .. }, None) => refusals.authorized(hold.key, *is_least),
            (Self::Grant { hold, is_least, can_count, origin, .. }, Some(Some(refusal))) => {
                let counter = (hold.account, hold.key, hour, refusal.code().as_str());
                let refused = RefusedNow { counter, asked: Some((&hold.model, origin.as_ref())) };
                let is_counted = *can_count && refusal == Refusal::SpendReserved;
                refusals.not_authorized(&refused, *is_least, is_counted || lacks_money(refusal));
            }
            (
                Self::Principal(_)
                | Self::Grant { .. }
                | Self::Extension { .. }
                | Self::Charge
                | Self::Release,
                _,
            ) => {}
        }
    }

    pub(super) fn of(self, outcome: Result<Outcome, Refused>) -> Result<Answer, CallFailure> {
        match (self, outcome) {
            (_, Err(Refused::Damaged)) => Err(damaged()),
            (Self::Principal(principal), Ok(Outcome::Allowed { models })) => {
                Ok(Answer::Authenticated(Ok(Identity { principal, models })))
            }
            (Self::Principal(_), Err(e)) => Ok(Answer::Authenticated(Err(denial(e)?))),
            (
                Self::Grant { hold, upstream_costs, prompt, images, output, lease, .. },
                Ok(Outcome::Held { amount, rates }),
            ) => {
                let output_tokens = pricing::covered_output(&hold.price, amount, prompt, images, output);
                let rates = (rates != RateStatus::default()).then(|| Box::new(rates));
                Ok(Answer::Authorized(Ok(Grant { hold, output_tokens, lease, rates, upstream_costs })))
            }
            (Self::Grant { .. }, Ok(Outcome::Gone)) => Err(settled()),
            (Self::Grant { .. }, Err(e)) => Ok(Answer::Authorized(Err(denial(e)?))),
            (
                Self::Extension { price, prompt, images, output, lease },
                Ok(Outcome::Extended { amount, revoked_by }),
            ) => {
                let output_tokens = pricing::covered_output(&price, amount, prompt, images, output);
                Ok(Answer::Extended(Extended::Open(Extension { output_tokens, lease, revoked_by })))
            }
            (Self::Extension { .. }, Ok(Outcome::Gone) | Err(Refused::UnknownKey)) => {
                Ok(Answer::Extended(Extended::Gone))
            }
            (Self::Charge, Ok(Outcome::Captured(settlement))) => {
                count_billed(&settlement);
                if pricing::contradicts(settlement.usage) {
                    metrics::counter!("faregate_usage_contradictions_total").increment(1);
                }
                let (charged, shortfall) = (settlement.charged, settlement.shortfall());
                Ok(Answer::Captured(Captured::Billed(Charge { charged, shortfall })))
            }
            (Self::Charge, Ok(Outcome::Gone) | Err(Refused::UnknownKey)) => {
                Ok(Answer::Captured(Captured::Gone))
            }
            (Self::Release, Ok(Outcome::Released | Outcome::Gone) | Err(Refused::UnknownKey)) => {
                Ok(Answer::Released)
            }
            (_, outcome) => Err(unfit(&format!("the ledger's outcome does not match the call: {outcome:?}"))),
        }
    }
}

/// Returns whether money was lacking, so that the gateway calls a second time for the same request.
fn lacks_money(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::KeyLimitReached | Refusal::GroupLimitReached | Refusal::InsufficientCredits)
}

/// Converts a command's refusal to a denial with details for the caller.
fn denial(refused: Refused) -> Result<Denial, CallFailure> {
    let refusal = refused.refusal().ok_or_else(|| unfit(&format!("{refused:?}")))?;
    metrics::counter!("keyservice_denials_total", "reason" => refusal.code().as_str()).increment(1);
    let none = DenialDetail::default();
    let detail = match refused {
        Refused::LimitReached { level: _, resets_at } => DenialDetail { resets_at, ..none },
        Refused::ModelNotAllowed { models } => DenialDetail { models, ..none },
        Refused::RateLimited { bound, retry_after, token_room } => {
            DenialDetail { rate: Some(bound), retry_after: Some(retry_after), token_room, ..none }
        }
        Refused::UnknownKey
        | Refused::Revoked
        | Refused::KeyDisabled
        | Refused::KeyExpired
        | Refused::GroupArchived
        | Refused::CreditEmpty
        | Refused::Reserved
        | Refused::BadDeposit
        | Refused::DepositDiffers { .. }
        | Refused::Damaged => none,
    };
    Ok(Denial::new(refusal, detail))
}

/// Converts an error of the store to the failure of a call.
pub(super) fn failure(error: &StoreError) -> CallFailure {
    let code = match error {
        StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Full => Code::Unavailable,
        StoreError::Conflict(_) => Code::Internal,
        StoreError::Damaged(_) => Code::DataLoss,
    };
    CallFailure { code, message: error.to_string() }
}

/// Returns the failure for a call that has shown a bug in the key-service.
pub(super) fn unfit(message: &str) -> CallFailure {
    CallFailure { code: Code::Internal, message: message.into() }
}

/// Returns the failure for an unreadable record. The same call fails until an operator repairs the record.
fn damaged() -> CallFailure {
    let message = "the store's record of this generation cannot be read; nothing was changed".into();
    CallFailure { code: Code::DataLoss, message }
}

fn settled() -> CallFailure {
    CallFailure { code: Code::FailedPrecondition, message: "the generation is already settled".into() }
}

/// Adds the bill of a capture or an expiry to the metrics.
pub(crate) fn count_billed(settlement: &Settlement) {
    if !settlement.ending.is_bill() {
        tracing::warn!(
            key = %settlement.payer.key,
            cost = %settlement.cost,
            "a capture came so late that an earlier bill of its generation may have been dropped; it is in the journal, and charges nothing"
        );
        return;
    }
    let count = |nanos: NanoUsd| u64::try_from(nanos.nanos()).unwrap_or(0);
    let (model, shortfall) = (settlement.payer.model.clone(), settlement.shortfall());
    metrics::counter!("keyservice_billed_nanousd_total", "model" => model.clone())
        .increment(count(settlement.charged));
    // The counter is created with zero, so that the first shortfall is visible as an increase.
    metrics::counter!("keyservice_shortfall_nanousd_total", "model" => model).increment(count(shortfall));
}
