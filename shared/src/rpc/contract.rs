//! The calls between the services as checked types, and their conversions to and from protobuf messages.
//!
//! Both services use these types; only this module and the two gRPC edges see generated messages.

use std::{str::FromStr, time::Duration};

use tokio::time::Instant;
use tonic::Code;

use super::v1::{self, answer, call, release_request};
use crate::{
    catalog::Price,
    ids::{AccountId, GenerationId, KeyId, ManagementKeyId},
    key::Class,
    money::NanoUsd,
    refusal::Refusal,
    tokens::Usage,
};

/// One call of a gateway.
#[derive(Clone, Debug)]
pub enum Call {
    /// Returns the owner of a credential, if it may spend.
    Authenticate {
        /// The plaintext of a key.
        credential: String,
        /// The class that the route needs.
        required: Class,
    },
    /// Authenticates an API key, and opens a hold.
    Authorize(Authorize),
    /// Renews the lease of a hold, reports progress, and requests more output tokens.
    Extend(Extend),
    /// Bills a generation and releases the rest of its hold.
    Capture(Capture),
    /// Releases a hold: the generation cost nothing.
    Release(Release),
}

/// A request to open a hold.
#[derive(Clone, Debug)]
pub struct Authorize {
    /// The plaintext of an API key.
    pub credential: String,
    /// The generation; the idempotency id of all later calls about the hold.
    pub generation: GenerationId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Tokens of the prompt: exact, or a bound that cannot be too low.
    pub prompt_tokens: u64,
    /// Output tokens wanted, over all choices.
    pub output_tokens: u64,
    /// Smallest useful grant: if other holds leave less than this, the request is refused with `spend_reserved`.
    pub enough_output_tokens: u64,
    /// Smallest possible grant: if less than this is left, the request cannot be served at all.
    pub least_output_tokens: u64,
    /// Latest instant at which the call takes effect; `None` is no bound.
    pub valid_until: Option<Instant>,
}

/// Reference to a hold, with the prices that it was opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRef {
    /// The generation.
    pub generation: GenerationId,
    /// The account that pays.
    pub account: AccountId,
    /// The key that pays.
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Prices per million tokens.
    pub price: Price,
}

/// A request to extend a hold.
#[derive(Clone, Debug)]
pub struct Extend {
    /// The hold.
    pub hold: HoldRef,
    /// Tokens used so far: billed if the hold expires.
    pub usage: Usage,
    /// Tokens of the prompt: the most exact number known so far.
    pub prompt_tokens: u64,
    /// Output tokens wanted in total. Never lowers a hold.
    pub output_tokens: u64,
}

/// A request to bill a generation.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The hold.
    pub hold: HoldRef,
    /// Final usage in tokens.
    pub usage: Usage,
    /// True if the usage is an estimate.
    pub estimated: bool,
}

/// The hold to release.
#[derive(Clone, Debug)]
pub enum Release {
    /// A hold that was granted.
    Hold(HoldRef),
    /// A hold that an authorization of unknown outcome may have opened.
    Unknown {
        /// The credential that the authorization presented.
        credential: String,
        /// Its generation.
        generation: GenerationId,
    },
}

/// The answer to a [`Call`] of the same kind.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The owner of the credential.
    Authenticated(Result<Principal, Refusal>),
    /// The open hold.
    Authorized(Result<Grant, Refusal>),
    /// The hold after the extension.
    Extended(Extended),
    /// The bill.
    Captured(Captured),
    /// Nothing is held.
    Released,
}

/// The owner of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// An API key of the account.
    ApiKey(AccountId, KeyId),
    /// A management key of the account.
    ManagementKey(AccountId, ManagementKeyId),
}

impl Principal {
    /// The account.
    pub const fn account(self) -> AccountId {
        match self {
            Self::ApiKey(account, _) | Self::ManagementKey(account, _) => account,
        }
    }
}

/// An open hold.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The hold, for all later calls about it.
    pub hold: HoldRef,
    /// Output tokens covered, over all choices.
    pub output_tokens: u64,
    /// Lifetime of the hold unless it is extended.
    pub lease: Duration,
}

/// The outcome of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// The hold is open.
    Open(Extension),
    /// The hold expired, or was resolved.
    Gone,
}

/// A hold that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Output tokens covered in total.
    pub output_tokens: u64,
    /// Lifetime of the hold unless it is extended again.
    pub lease: Duration,
    /// The key was revoked: no more is granted, and a stream must end.
    pub revoked: bool,
}

/// The outcome of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// The generation is billed.
    Billed(Charge),
    /// The key does not exist, or the generation belongs to another key. Nothing was billed.
    Gone,
}

/// The amounts of a bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Amount billed.
    pub charged: NanoUsd,
    /// Part of the cost that could not be billed.
    pub shortfall: NanoUsd,
}

/// CallFailure of a call. Unless the code means otherwise, its outcome is unknown and the same call may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code:?})")]
pub struct CallFailure {
    /// The gRPC code.
    pub code: Code,
    /// The reason, for the log.
    pub message: String,
}

/// The interface of the key-service, also for a gateway in the same process.
#[async_trait::async_trait]
pub trait KeyService: Send + Sync {
    /// Answers every call, in the order of the calls.
    async fn handle(&self, calls: Vec<Call>) -> Vec<Result<Answer, CallFailure>>;
}

/// A message has a field that is missing or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {problem}")]
pub struct Malformed {
    /// The field's path.
    pub field: &'static str,
    /// The fault.
    pub problem: String,
}

/// The clock of one session: milliseconds since the key-service opened it. Deadlines are sent on this clock, so that
/// the clocks of two machines are never compared.
#[derive(Clone, Copy, Debug)]
pub struct SessionClock {
    opened: Instant,
}

impl SessionClock {
    /// The clock of a session that is opened at this instant.
    pub const fn starting(now: Instant) -> Self {
        Self { opened: now }
    }

    /// The peer's clock, which read `clock_ms` in a frame that arrived at this instant. The frame's delay puts it
    /// behind the real one, so that deadlines converted with it come early.
    pub fn observed(now: Instant, clock_ms: u64) -> Self {
        Self { opened: now.checked_sub(Duration::from_millis(clock_ms)).unwrap_or(now) }
    }

    /// The better one of two observations: the one with the shorter delay.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { opened: self.opened.min(other.opened) }
    }

    /// An instant on this clock.
    pub fn millis(&self, at: Instant) -> u64 {
        millis(at.saturating_duration_since(self.opened))
    }

    fn instant(&self, clock_ms: u64) -> Option<Instant> {
        self.opened.checked_add(Duration::from_millis(clock_ms))
    }
}

impl Call {
    /// The message for a session with this clock.
    pub fn to_message(&self, clock: SessionClock) -> call::Request {
        match self {
            Self::Authenticate { credential, required } => {
                let required_class = match required {
                    Class::Api => v1::CredentialClass::Api,
                    Class::Management => v1::CredentialClass::Management,
                };
                let (credential, required_class) = (credential.clone(), required_class.into());
                call::Request::Authenticate(v1::AuthenticateRequest { credential, required_class })
            }
            Self::Authorize(a) => call::Request::Authorize(v1::AuthorizeRequest {
                credential: a.credential.clone(),
                generation_id: a.generation.to_string(),
                model: a.model.clone(),
                prompt_tokens: a.prompt_tokens,
                output_tokens: a.output_tokens,
                enough_output_tokens: a.enough_output_tokens,
                least_output_tokens: a.least_output_tokens,
                // Zero is no bound; the session's first millisecond is over before a call can arrive.
                valid_until_ms: a.valid_until.map_or(0, |until| clock.millis(until).max(1)),
            }),
            Self::Extend(e) => call::Request::Extend(v1::ExtendRequest {
                hold: Some((&e.hold).into()),
                usage: Some(e.usage.into()),
                prompt_tokens: e.prompt_tokens,
                output_tokens: e.output_tokens,
            }),
            Self::Capture(c) => call::Request::Capture(v1::CaptureRequest {
                hold: Some((&c.hold).into()),
                usage: Some(c.usage.into()),
                estimated: c.estimated,
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

    /// The call of a message that arrived in a session with this clock.
    pub fn from_message(request: Option<call::Request>, clock: SessionClock) -> Result<Self, Malformed> {
        match request {
            Some(call::Request::Authenticate(r)) => r.try_into(),
            Some(call::Request::Authorize(r)) => {
                let valid_until = (r.valid_until_ms > 0).then(|| clock.instant(r.valid_until_ms)).flatten();
                Ok(Self::Authorize(Authorize { valid_until, ..r.try_into()? }))
            }
            Some(call::Request::Extend(r)) => r.try_into(),
            Some(call::Request::Capture(r)) => r.try_into(),
            Some(call::Request::Release(r)) => r.try_into(),
            None => Err(missing("request")),
        }
    }
}

impl TryFrom<v1::AuthenticateRequest> for Call {
    type Error = Malformed;

    fn try_from(r: v1::AuthenticateRequest) -> Result<Self, Malformed> {
        let required = match r.required_class() {
            v1::CredentialClass::Api => Class::Api,
            v1::CredentialClass::Management => Class::Management,
            v1::CredentialClass::Unspecified => return Err(missing("required_class")),
        };
        Ok(Self::Authenticate { credential: r.credential, required })
    }
}

/// Leaves out `valid_until`, which needs a session's clock.
impl TryFrom<v1::AuthorizeRequest> for Authorize {
    type Error = Malformed;

    fn try_from(r: v1::AuthorizeRequest) -> Result<Self, Malformed> {
        Ok(Self {
            credential: r.credential,
            generation: id("generation_id", &r.generation_id)?,
            model: r.model,
            prompt_tokens: r.prompt_tokens,
            output_tokens: r.output_tokens,
            enough_output_tokens: r.enough_output_tokens,
            least_output_tokens: r.least_output_tokens,
            valid_until: None,
        })
    }
}

impl TryFrom<v1::ExtendRequest> for Call {
    type Error = Malformed;

    fn try_from(r: v1::ExtendRequest) -> Result<Self, Malformed> {
        Ok(Self::Extend(Extend {
            hold: hold(r.hold)?,
            usage: usage(r.usage)?,
            prompt_tokens: r.prompt_tokens,
            output_tokens: r.output_tokens,
        }))
    }
}

impl TryFrom<v1::CaptureRequest> for Call {
    type Error = Malformed;

    fn try_from(r: v1::CaptureRequest) -> Result<Self, Malformed> {
        Ok(Self::Capture(Capture { hold: hold(r.hold)?, usage: usage(r.usage)?, estimated: r.estimated }))
    }
}

impl TryFrom<v1::ReleaseRequest> for Call {
    type Error = Malformed;

    fn try_from(r: v1::ReleaseRequest) -> Result<Self, Malformed> {
        let release = match r.target {
            Some(release_request::Target::Hold(named)) => Release::Hold(hold(Some(named))?),
            Some(release_request::Target::Unknown(v1::UnknownHold { credential, generation_id })) => {
                Release::Unknown { credential, generation: id("unknown.generation_id", &generation_id)? }
            }
            None => return Err(missing("target")),
        };
        Ok(Self::Release(release))
    }
}

impl From<&HoldRef> for v1::HoldRef {
    fn from(hold: &HoldRef) -> Self {
        Self {
            generation_id: hold.generation.to_string(),
            account_id: hold.account.to_string(),
            key_id: hold.key.to_string(),
            model: hold.model.clone(),
            price: Some(hold.price.into()),
        }
    }
}

impl From<Price> for v1::Price {
    fn from(price: Price) -> Self {
        let Price { input, cached_input, output } = price;
        Self { input: input.nanos(), cached_input: cached_input.nanos(), output: output.nanos() }
    }
}

impl From<v1::Price> for Price {
    fn from(price: v1::Price) -> Self {
        Self {
            input: NanoUsd::from_nanos(price.input),
            cached_input: NanoUsd::from_nanos(price.cached_input),
            output: NanoUsd::from_nanos(price.output),
        }
    }
}

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

    /// The answer of a message; `call` is the call that it answers.
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
            price: Some(grant.hold.price.into()),
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
                price: grant.price.ok_or_else(unfit)?.into(),
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

/// A refusal that only a newer key-service has cannot be reported to a client, so it is a failure.
fn read_refusal(refusal: i32) -> Result<Refusal, CallFailure> {
    v1::Refusal::try_from(refusal).ok().and_then(Option::<Refusal>::from).ok_or_else(unfit)
}

fn unfit() -> CallFailure {
    CallFailure { code: Code::Internal, message: "the answer does not fit the call".into() }
}

fn hold(hold: Option<v1::HoldRef>) -> Result<HoldRef, Malformed> {
    let hold = hold.ok_or_else(|| missing("hold"))?;
    let price: Price = hold.price.ok_or_else(|| missing("hold.price"))?.into();
    let valid = |price: NanoUsd| (NanoUsd::ZERO..=NanoUsd::MAX).contains(&price);
    if !(valid(price.input) && valid(price.cached_input) && valid(price.output)) {
        return Err(Malformed { field: "hold.price", problem: "is negative or too high".into() });
    }
    Ok(HoldRef {
        generation: id("hold.generation_id", &hold.generation_id)?,
        account: id("hold.account_id", &hold.account_id)?,
        key: id("hold.key_id", &hold.key_id)?,
        model: hold.model,
        price,
    })
}

fn usage(usage: Option<v1::Usage>) -> Result<Usage, Malformed> {
    usage.map(Usage::from).ok_or_else(|| missing("usage"))
}

fn id<T: FromStr<Err: ToString>>(field: &'static str, text: &str) -> Result<T, Malformed> {
    text.parse().map_err(|e: T::Err| Malformed { field, problem: e.to_string() })
}

fn missing(field: &'static str) -> Malformed {
    Malformed { field, problem: "is missing or unknown".into() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
