//! Converts calls to messages and back.

use std::sync::Arc;

use shared::{generation::Course, key::Class, tokens::Usage};

use super::{
    course::read_origin,
    malformed::{Malformed, id, missing},
    usage::{cost_message, read_cost},
};
use crate::{
    contract::{Authorize, Call, Capture, Extend, HoldRef, Release, UpstreamCost},
    session_clock::SessionClock,
    v1::{self, call, release_request},
};

impl Call {
    /// Writes the message for a session that has this clock.
    pub fn to_message(&self, clock: SessionClock) -> call::Request {
        match self {
            Self::Authenticate { credential, required } => {
                let required_class = match required {
                    Class::Api => v1::CredentialClass::Api,
                    Class::Management => v1::CredentialClass::Management,
                    Class::Operator => v1::CredentialClass::Operator,
                };
                let (credential, required_class) = (credential.clone(), required_class.into());
                call::Request::Authenticate(v1::AuthenticateRequest { credential, required_class })
            }
            Self::Authorize(a) => call::Request::Authorize(v1::AuthorizeRequest {
                credential: a.credential.clone(),
                generation_id: a.generation.to_string(),
                model: a.model.clone(),
                prompt_tokens: a.prompt_tokens,
                images: a.images,
                readmitted: a.readmitted,
                rated_tokens: a.rated_tokens,
                is_free: a.is_free,
                output_tokens: a.output_tokens,
                enough_output_tokens: a.enough_output_tokens,
                least_output_tokens: a.least_output_tokens,
                // Zero means that there is no limit. No call arrives within the first millisecond of a session.
                valid_until_ms: a.valid_until.map_or(0, |until| clock.millis(until).max(1)),
                origin: a.origin.as_deref().map(Into::into),
                can_count: a.can_count,
            }),
            Self::Extend(e) => call::Request::Extend(v1::ExtendRequest {
                hold: Some((&e.hold).into()),
                usage: Some(e.usage.into()),
                prompt_tokens: e.prompt_tokens,
                images: e.images,
                output_tokens: e.output_tokens,
                course: e.course.as_deref().map(Into::into),
            }),
            Self::Capture(c) => call::Request::Capture(v1::CaptureRequest {
                hold: Some((&c.hold).into()),
                usage: Some(c.usage.into()),
                estimated: c.estimated,
                charged: c.charged.map(Into::into),
                course: c.course.as_deref().map(Into::into),
            }),
            Self::Release(release) => {
                let target = match release {
                    Release::Hold(hold) => release_request::Target::Hold(hold.into()),
                    Release::Unknown { credential, generation } => {
                        let (credential, generation_id) = (credential.clone(), generation.to_string());
                        release_request::Target::Unknown(v1::UnknownHold { credential, generation_id })
                    }
                };
                call::Request::Release(v1::ReleaseRequest { target: Some(target) })
            }
        }
    }

    /// Reads the call from a message of a session that has this clock.
    pub fn from_message(request: Option<call::Request>, clock: SessionClock) -> Result<Self, Malformed> {
        Ok(match request.ok_or_else(|| missing("request"))? {
            call::Request::Authenticate(r) => {
                let required = match r.required_class() {
                    v1::CredentialClass::Api => Class::Api,
                    v1::CredentialClass::Management => Class::Management,
                    v1::CredentialClass::Operator => Class::Operator,
                    v1::CredentialClass::Unspecified => return Err(missing("required_class")),
                };
                Self::Authenticate { credential: r.credential, required }
            }
            call::Request::Authorize(r) => Self::Authorize(Authorize {
                credential: r.credential,
                generation: id("generation_id", &r.generation_id)?,
                model: r.model,
                prompt_tokens: r.prompt_tokens,
                images: r.images,
                readmitted: r.readmitted,
                rated_tokens: r.rated_tokens,
                is_free: r.is_free,
                output_tokens: r.output_tokens,
                enough_output_tokens: r.enough_output_tokens,
                least_output_tokens: r.least_output_tokens,
                valid_until: (r.valid_until_ms > 0).then(|| clock.instant(r.valid_until_ms)).flatten(),
                origin: r.origin.as_ref().and_then(read_origin).map(Arc::new),
                can_count: r.can_count,
            }),
            call::Request::Extend(r) => Self::Extend(Extend {
                hold: hold(r.hold)?,
                usage: usage(r.usage)?,
                prompt_tokens: r.prompt_tokens,
                images: r.images,
                output_tokens: r.output_tokens,
                course: r.course.map(Course::from).map(Arc::new),
            }),
            call::Request::Capture(r) => Self::Capture(Capture {
                hold: hold(r.hold)?,
                usage: usage(r.usage)?,
                charged: r.charged.map(Usage::from),
                estimated: r.estimated,
                course: r.course.map(Course::from).map(Arc::new),
            }),
            call::Request::Release(r) => Self::Release(match r.target {
                Some(release_request::Target::Hold(named)) => Release::Hold(hold(Some(named))?),
                Some(release_request::Target::Unknown(v1::UnknownHold { credential, generation_id })) => {
                    Release::Unknown { credential, generation: id("unknown.generation_id", &generation_id)? }
                }
                None => return Err(missing("target")),
            }),
        })
    }
}

impl From<&HoldRef> for v1::HoldRef {
    fn from(hold: &HoldRef) -> Self {
        Self {
            generation_id: hold.generation.to_string(),
            account_id: hold.account.to_string(),
            key_id: hold.key.to_string(),
            model: hold.model.clone(),
            price: Some(hold.price.as_ref().into()),
            upstream: hold.upstream,
            upstream_cost: match &hold.upstream_cost {
                UpstreamCost::OfCatalogue => None,
                UpstreamCost::OfHold(cost) => Some(cost_message(cost.as_ref())),
            },
        }
    }
}

fn hold(hold: Option<v1::HoldRef>) -> Result<HoldRef, Malformed> {
    let hold = hold.ok_or_else(|| missing("hold"))?;
    Ok(HoldRef {
        generation: id("hold.generation_id", &hold.generation_id)?,
        account: id("hold.account_id", &hold.account_id)?,
        key: id("hold.key_id", &hold.key_id)?,
        model: hold.model,
        price: Arc::new(hold.price.ok_or_else(|| missing("hold.price"))?.try_into()?),
        upstream: hold.upstream,
        upstream_cost: match hold.upstream_cost {
            None => UpstreamCost::OfCatalogue,
            Some(cost) => UpstreamCost::OfHold(read_cost(cost)?),
        },
    })
}

fn usage(usage: Option<v1::Usage>) -> Result<Usage, Malformed> {
    usage.map(Usage::from).ok_or_else(|| missing("usage"))
}
