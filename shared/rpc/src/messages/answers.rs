//! Converts answers to messages and back.

use std::{sync::Arc, time::Duration};

use shared::{
    ids::Principal,
    money::NanoUsd,
    rates::{RateLimit, RateStatus},
    refusal::{Denial, Refusal},
    time::millis,
};
use tonic::Code;

use super::usage::{cost_message, read_cost};
use crate::{
    contract::{
        Answer, Authorize, Call, CallFailure, Captured, Charge, Extended, Extension, Grant, HoldRef,
        Identity, UpstreamCost,
    },
    refusal::{denial_messages, read_denial, read_refusal},
    v1::{self, answer},
};

impl Answer {
    pub fn to_message(&self) -> answer::Response {
        match self {
            Self::Authenticated(result) => answer::Response::Authenticate(authenticated(result.as_ref())),
            Self::Authorized(result) => answer::Response::Authorize(authorized(result.as_ref())),
            Self::Extended(extended) => answer::Response::Extend((*extended).into()),
            Self::Captured(captured) => answer::Response::Capture((*captured).into()),
            Self::Released => answer::Response::Release(v1::ReleaseResponse {}),
        }
    }

    /// Reads the answer to `call` from a message, which must be of the same kind.
    pub fn from_message(response: answer::Response, call: &Call) -> Result<Self, CallFailure> {
        match (response, call) {
            (answer::Response::Failure(v1::Failure { code, message }), _) => {
                Err(CallFailure { code: Code::from(code), message })
            }
            (answer::Response::Authenticate(r), Call::Authenticate { .. }) => read_authenticated(r),
            (answer::Response::Authorize(r), Call::Authorize(asked)) => read_authorized(r, asked),
            (answer::Response::Extend(r), Call::Extend(_)) => read_extended(r),
            (answer::Response::Capture(r), Call::Capture(_)) => read_captured(r),
            (answer::Response::Release(v1::ReleaseResponse {}), Call::Release(_)) => Ok(Self::Released),
            _ => Err(unfit()),
        }
    }
}

fn authenticated(result: Result<&Identity, &Denial>) -> v1::AuthenticateResponse {
    use v1::authenticate_response::Result as Wire;
    let (result, refusal_detail) = match result {
        Ok(Identity { principal, models }) => {
            let (account_id, key_id) = match principal {
                Principal::ApiKey(account, key) => (account.to_string(), key.to_string()),
                Principal::ManagementKey(account, key) => (account.to_string(), key.to_string()),
                Principal::OperatorKey(account, key) => (account.to_string(), key.to_string()),
            };
            let models = models.clone().map(|ids| v1::ModelList { ids });
            (Wire::Principal(v1::Principal { account_id, key_id, models }), None)
        }
        Err(denial) => {
            let (refusal, detail) = denial_messages(denial);
            (Wire::Refusal(refusal), detail)
        }
    };
    v1::AuthenticateResponse { result: Some(result), refusal_detail }
}

fn authorized(result: Result<&Grant, &Denial>) -> v1::AuthorizeResponse {
    use v1::authorize_response::Result as Wire;
    let (result, refusal_detail) = match result {
        Ok(grant) => (
            Wire::Grant(v1::Grant {
                account_id: grant.hold.account.to_string(),
                key_id: grant.hold.key.to_string(),
                output_tokens: grant.output_tokens,
                lease_ms: millis(grant.lease),
                price: Some(grant.hold.price.as_ref().into()),
                rates: grant.rates.as_deref().map(v1::RateStatus::from),
                upstream_costs: grant.upstream_costs.iter().map(|cost| cost_message(cost.as_ref())).collect(),
            }),
            None,
        ),
        Err(denial) => {
            let (refusal, detail) = denial_messages(denial);
            (Wire::Refusal(refusal), detail)
        }
    };
    v1::AuthorizeResponse { result: Some(result), refusal_detail }
}

impl From<&RateStatus> for v1::RateStatus {
    fn from(rates: &RateStatus) -> Self {
        let limit = |RateLimit { limit, remaining, reset }| v1::RateLimit {
            limit,
            remaining,
            reset_ms: millis(reset),
        };
        Self { requests: rates.requests.map(limit), tokens: rates.tokens.map(limit) }
    }
}

impl From<v1::RateStatus> for RateStatus {
    fn from(v1::RateStatus { requests, tokens }: v1::RateStatus) -> Self {
        let limit = |v1::RateLimit { limit, remaining, reset_ms }| RateLimit {
            limit,
            remaining,
            reset: Duration::from_millis(reset_ms),
        };
        Self { requests: requests.map(limit), tokens: tokens.map(limit) }
    }
}

impl From<Extended> for v1::ExtendResponse {
    fn from(extended: Extended) -> Self {
        use v1::extend_response::Result as Wire;
        let result = match extended {
            Extended::Open(Extension { output_tokens, lease, revoked_by }) => {
                // The flag `revoked` already means the most common reason, and every gateway understands it.
                let reason = revoked_by.filter(|refusal| *refusal != Refusal::InvalidApiKey);
                Wire::Extension(v1::Extension {
                    output_tokens,
                    lease_ms: millis(lease),
                    revoked: revoked_by.is_some(),
                    revoked_by: reason.map_or(v1::Refusal::Unspecified, v1::Refusal::from).into(),
                })
            }
            Extended::Gone => Wire::Gone(v1::HoldGone {}),
        };
        Self { result: Some(result) }
    }
}

impl From<Captured> for v1::CaptureResponse {
    fn from(captured: Captured) -> Self {
        use v1::capture_response::Result as Wire;
        let result = match captured {
            Captured::Billed(Charge { charged, shortfall }) => Wire::Captured(v1::Captured {
                charged_nano_usd: charged.nanos(),
                shortfall_nano_usd: shortfall.nanos(),
            }),
            Captured::Gone => Wire::Gone(v1::HoldGone {}),
        };
        Self { result: Some(result) }
    }
}

fn read_authenticated(r: v1::AuthenticateResponse) -> Result<Answer, CallFailure> {
    use v1::authenticate_response::Result as Wire;
    let result = match r.result.ok_or_else(unfit)? {
        Wire::Principal(v1::Principal { account_id, key_id, models }) => {
            let account = account_id.parse().map_err(|_| unfit())?;
            let api = key_id.parse().map(|key| Principal::ApiKey(account, key));
            let principal = api
                .or_else(|_| key_id.parse().map(|key| Principal::ManagementKey(account, key)))
                .or_else(|_| key_id.parse().map(|key| Principal::OperatorKey(account, key)))
                .map_err(|_| unfit())?;
            Ok(Identity { principal, models: models.map(|models| models.ids) })
        }
        Wire::Refusal(refusal) => Err(denial(refusal, r.refusal_detail)?),
    };
    Ok(Answer::Authenticated(result))
}

fn read_authorized(r: v1::AuthorizeResponse, asked: &Authorize) -> Result<Answer, CallFailure> {
    use v1::authorize_response::Result as Wire;
    let result = match r.result.ok_or_else(unfit)? {
        Wire::Grant(grant) => Ok(Grant {
            hold: HoldRef {
                generation: asked.generation,
                account: grant.account_id.parse().map_err(|_| unfit())?,
                key: grant.key_id.parse().map_err(|_| unfit())?,
                model: asked.model.clone(),
                price: Arc::new(grant.price.and_then(|price| price.try_into().ok()).ok_or_else(unfit)?),
                upstream: 0,
                upstream_cost: UpstreamCost::OfCatalogue,
            },
            output_tokens: grant.output_tokens,
            lease: Duration::from_millis(grant.lease_ms),
            rates: grant.rates.map(|rates| Box::new(rates.into())),
            upstream_costs: grant
                .upstream_costs
                .into_iter()
                .map(|cost| read_cost(cost).map_err(|_| unfit()))
                .collect::<Result<_, _>>()?,
        }),
        Wire::Refusal(refusal) => Err(denial(refusal, r.refusal_detail)?),
    };
    Ok(Answer::Authorized(result))
}

fn read_extended(r: v1::ExtendResponse) -> Result<Answer, CallFailure> {
    use v1::extend_response::Result as Wire;
    Ok(Answer::Extended(match r.result.ok_or_else(unfit)? {
        Wire::Extension(v1::Extension { output_tokens, lease_ms, revoked, revoked_by }) => {
            let revoked_by = revoked.then(|| read_refusal(revoked_by).unwrap_or(Refusal::InvalidApiKey));
            Extended::Open(Extension { output_tokens, lease: Duration::from_millis(lease_ms), revoked_by })
        }
        Wire::Gone(v1::HoldGone {}) => Extended::Gone,
    }))
}

fn read_captured(r: v1::CaptureResponse) -> Result<Answer, CallFailure> {
    use v1::capture_response::Result as Wire;
    Ok(Answer::Captured(match r.result.ok_or_else(unfit)? {
        Wire::Captured(v1::Captured { charged_nano_usd, shortfall_nano_usd }) => Captured::Billed(Charge {
            charged: NanoUsd::from_nanos(charged_nano_usd),
            shortfall: NanoUsd::from_nanos(shortfall_nano_usd),
        }),
        Wire::Gone(v1::HoldGone {}) => Captured::Gone,
    }))
}

/// Reads a denial. A newer key-service may send a refusal that is unknown here. It cannot be reported to a client, so
/// the call fails.
fn denial(refusal: i32, detail: Option<v1::RefusalDetail>) -> Result<Denial, CallFailure> {
    read_denial(refusal, detail).ok_or_else(unfit)
}

fn unfit() -> CallFailure {
    CallFailure { code: Code::Internal, message: "the answer does not match the call".into() }
}
