//! Answers in messages.

use std::{sync::Arc, time::Duration};

use tonic::Code;

use super::millis;
use crate::{
    money::NanoUsd,
    refusal::Refusal,
    rpc::{
        Answer, Authorize, Call, CallFailure, Captured, Charge, Extended, Extension, Grant, HoldRef,
        Principal,
        v1::{self, answer},
    },
};

impl Answer {
    /// The message.
    pub fn to_message(&self) -> answer::Response {
        match self {
            Self::Authenticated(result) => answer::Response::Authenticate(authenticated(*result)),
            Self::Authorized(result) => answer::Response::Authorize(authorized(result.as_ref())),
            Self::Extended(extended) => answer::Response::Extend((*extended).into()),
            Self::Captured(captured) => answer::Response::Capture((*captured).into()),
            Self::Released => answer::Response::Release(v1::ReleaseResponse {}),
        }
    }

    /// Reads the answer to `call` from a message.
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

fn authenticated(result: Result<Principal, Refusal>) -> v1::AuthenticateResponse {
    use v1::authenticate_response::Result as Wire;
    let result = match result {
        Ok(principal) => {
            let (account_id, key_id) = match principal {
                Principal::ApiKey(account, key) => (account.to_string(), key.to_string()),
                Principal::ManagementKey(account, key) => (account.to_string(), key.to_string()),
            };
            Wire::Principal(v1::Principal { account_id, key_id })
        }
        Err(refusal) => Wire::Refusal(v1::Refusal::from(refusal).into()),
    };
    v1::AuthenticateResponse { result: Some(result) }
}

fn authorized(result: Result<&Grant, &Refusal>) -> v1::AuthorizeResponse {
    use v1::authorize_response::Result as Wire;
    let result = match result {
        Ok(grant) => Wire::Grant(v1::Grant {
            account_id: grant.hold.account.to_string(),
            key_id: grant.hold.key.to_string(),
            output_tokens: grant.output_tokens,
            lease_ms: millis(grant.lease),
            price: Some(grant.hold.price.as_ref().into()),
        }),
        Err(refusal) => Wire::Refusal(v1::Refusal::from(*refusal).into()),
    };
    v1::AuthorizeResponse { result: Some(result) }
}

impl From<Extended> for v1::ExtendResponse {
    fn from(extended: Extended) -> Self {
        use v1::extend_response::Result as Wire;
        let result = match extended {
            Extended::Open(Extension { output_tokens, lease, revoked }) => {
                Wire::Extension(v1::Extension { output_tokens, lease_ms: millis(lease), revoked })
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
        Wire::Principal(v1::Principal { account_id, key_id }) => {
            let account = account_id.parse().map_err(|_| unfit())?;
            let api = key_id.parse().map(|key| Principal::ApiKey(account, key));
            Ok(api
                .or_else(|_| key_id.parse().map(|key| Principal::ManagementKey(account, key)))
                .map_err(|_| unfit())?)
        }
        Wire::Refusal(refusal) => Err(read_refusal(refusal)?),
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
            },
            output_tokens: grant.output_tokens,
            lease: Duration::from_millis(grant.lease_ms),
        }),
        Wire::Refusal(refusal) => Err(read_refusal(refusal)?),
    };
    Ok(Answer::Authorized(result))
}

fn read_extended(r: v1::ExtendResponse) -> Result<Answer, CallFailure> {
    use v1::extend_response::Result as Wire;
    Ok(Answer::Extended(match r.result.ok_or_else(unfit)? {
        Wire::Extension(v1::Extension { output_tokens, lease_ms, revoked }) => {
            Extended::Open(Extension { output_tokens, lease: Duration::from_millis(lease_ms), revoked })
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

/// Reads a refusal. A refusal known only to a newer key-service cannot be reported to a client, so it is a failure.
fn read_refusal(refusal: i32) -> Result<Refusal, CallFailure> {
    v1::Refusal::try_from(refusal).ok().and_then(Option::<Refusal>::from).ok_or_else(unfit)
}

fn unfit() -> CallFailure {
    CallFailure { code: Code::Internal, message: "the answer does not fit the call".into() }
}
