//! Messages to calls, and answers to messages.

use std::{str::FromStr, time::Duration};

use shared::{key::Class, refusal::Refusal, rpc::v1, tokens::Usage};
use tonic::{Response, Status};

use super::{answer, call, invalid};
use crate::{
    service::{Answer, Authorize, Call, Charge, Extension, Grant, HoldRef},
    store::Owner,
};

pub(super) fn call(request: Option<call::Request>) -> Result<Call, Status> {
    match request {
        Some(call::Request::Authenticate(r)) => authenticate(r),
        Some(call::Request::Authorize(r)) => authorize(r),
        Some(call::Request::Extend(r)) => extend(r),
        Some(call::Request::Capture(r)) => capture(r),
        Some(call::Request::Release(r)) => release(r),
        None => Err(invalid("request", "is missing")),
    }
}

pub(super) fn authenticate(r: v1::AuthenticateRequest) -> Result<Call, Status> {
    let required = match r.required_class() {
        v1::CredentialClass::Api => Class::Api,
        v1::CredentialClass::Management => Class::Management,
        v1::CredentialClass::Unspecified => return Err(invalid("required_class", "is missing or unknown")),
    };
    Ok(Call::Authenticate { credential: r.credential, required })
}

pub(super) fn authorize(r: v1::AuthorizeRequest) -> Result<Call, Status> {
    Ok(Call::Authorize(Authorize {
        credential: r.credential,
        generation: id("generation_id", &r.generation_id)?,
        model: r.model,
        prompt_tokens: r.prompt_tokens,
        output_tokens: r.output_tokens,
        enough_output_tokens: r.enough_output_tokens,
        least_output_tokens: r.least_output_tokens,
    }))
}

pub(super) fn extend(r: v1::ExtendRequest) -> Result<Call, Status> {
    Ok(Call::Extend {
        hold: hold(r.hold)?,
        usage: usage(r.usage)?,
        prompt_tokens: r.prompt_tokens,
        output_tokens: r.output_tokens,
    })
}

pub(super) fn capture(r: v1::CaptureRequest) -> Result<Call, Status> {
    Ok(Call::Capture { hold: hold(r.hold)?, usage: usage(r.usage)?, estimated: r.estimated })
}

pub(super) fn release(r: v1::ReleaseRequest) -> Result<Call, Status> {
    Ok(Call::Release { hold: hold(r.hold)? })
}

fn hold(hold: Option<v1::HoldRef>) -> Result<HoldRef, Status> {
    let hold = hold.ok_or_else(|| invalid("hold", "is missing"))?;
    Ok(HoldRef {
        account: id("hold.account_id", &hold.account_id)?,
        key: id("hold.key_id", &hold.key_id)?,
        generation: id("hold.generation_id", &hold.generation_id)?,
        model: hold.model,
    })
}

fn usage(usage: Option<v1::Usage>) -> Result<Usage, Status> {
    usage.map(Usage::from).ok_or_else(|| invalid("usage", "is missing"))
}

fn id<T: FromStr<Err: ToString>>(field: &str, text: &str) -> Result<T, Status> {
    text.parse().map_err(|e: T::Err| invalid(field, &e.to_string()))
}

impl From<Answer> for answer::Response {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Authenticated(result) => Self::Authenticate(authenticated(result)),
            Answer::Authorized(result) => Self::Authorize(authorized(result)),
            Answer::Extended(extension) => Self::Extend(extended(extension)),
            Answer::Captured(charge) => Self::Capture(captured(charge)),
            Answer::Released => Self::Release(v1::ReleaseResponse {}),
        }
    }
}

/// The answer to a unary call.
pub(super) fn reply<T: FromAnswer>(answer: Answer) -> Result<Response<T>, Status> {
    let response =
        T::pick(answer.into()).ok_or_else(|| Status::internal("the answer is to another question"))?;
    Ok(Response::new(response))
}

/// The response message of a unary method.
pub(super) trait FromAnswer: Sized {
    fn pick(response: answer::Response) -> Option<Self>;
}

macro_rules! from_answer {
    ($($variant:ident: $message:ty),+) => {$(
        impl FromAnswer for $message {
            fn pick(response: answer::Response) -> Option<Self> {
                if let answer::Response::$variant(message) = response { Some(message) } else { None }
            }
        }
    )+};
}

from_answer! {
    Authenticate: v1::AuthenticateResponse,
    Authorize: v1::AuthorizeResponse,
    Extend: v1::ExtendResponse,
    Capture: v1::CaptureResponse,
    Release: v1::ReleaseResponse
}

fn authenticated(result: Result<Owner, Refusal>) -> v1::AuthenticateResponse {
    use v1::authenticate_response::Result as Wire;
    let result = match result {
        Ok(owner) => {
            let (account_id, key_id) = match owner {
                Owner::ApiKey(account, key) => (account.to_string(), key.to_string()),
                Owner::ManagementKey(account, key) => (account.to_string(), key.to_string()),
            };
            Wire::Principal(v1::Principal { account_id, key_id })
        }
        Err(refusal) => Wire::Refusal(v1::Refusal::from(refusal).into()),
    };
    v1::AuthenticateResponse { result: Some(result) }
}

fn authorized(result: Result<Grant, Refusal>) -> v1::AuthorizeResponse {
    use v1::authorize_response::Result as Wire;
    let result = match result {
        Ok(grant) => Wire::Grant(v1::Grant {
            account_id: grant.account.to_string(),
            key_id: grant.key.to_string(),
            output_tokens: grant.output_tokens,
            lease_ms: millis(grant.lease),
        }),
        Err(refusal) => Wire::Refusal(v1::Refusal::from(refusal).into()),
    };
    v1::AuthorizeResponse { result: Some(result) }
}

fn extended(extension: Option<Extension>) -> v1::ExtendResponse {
    use v1::extend_response::Result as Wire;
    let result = match extension {
        Some(Extension { output_tokens, lease, revoked }) => {
            Wire::Extension(v1::Extension { output_tokens, lease_ms: millis(lease), revoked })
        }
        None => Wire::Gone(v1::HoldGone {}),
    };
    v1::ExtendResponse { result: Some(result) }
}

fn captured(charge: Option<Charge>) -> v1::CaptureResponse {
    use v1::capture_response::Result as Wire;
    let result = match charge {
        Some(Charge { charged, shortfall }) => Wire::Captured(v1::Captured {
            charged_nano_usd: charged.nanos(),
            shortfall_nano_usd: shortfall.nanos(),
        }),
        None => Wire::Gone(v1::HoldGone {}),
    };
    v1::CaptureResponse { result: Some(result) }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
