//! The calls between the services, as types that can only have valid values. The generated messages are used only in
//! [`crate::messages`] and at both ends of gRPC.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::{
    generation::{Course, Origin},
    ids::{AccountId, GenerationId, KeyId, Principal},
    key::Class,
    money::NanoUsd,
    rates::RateStatus,
    refusal::{Denial, Refusal},
    tokens::Usage,
};
use shared_catalog::Price;
use shared_observe::traces::Span;
use tokio::time::Instant;
use tonic::Code;

#[derive(Clone, Debug)]
pub enum Call {
    /// Returns the owner of a credential, if the credential is accepted.
    Authenticate {
        /// The plaintext of a key.
        credential: String,
        /// The class of key that the route requires.
        required: Class,
    },
    /// Authenticates an API key, and opens a hold.
    Authorize(Authorize),
    /// Renews the lease of a hold, reports progress, and asks for more output tokens.
    Extend(Extend),
    /// Bills a generation, and releases what is left of its hold.
    Capture(Capture),
    /// Releases a hold whose generation cost nothing.
    Release(Release),
}

impl Call {
    /// Returns the name of the method, as spans show it.
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Authenticate { .. } => "keyservice.v1.KeyService/Authenticate",
            Self::Authorize(_) => "keyservice.v1.KeyService/Authorize",
            Self::Extend(_) => "keyservice.v1.KeyService/Extend",
            Self::Capture(_) => "keyservice.v1.KeyService/Capture",
            Self::Release(_) => "keyservice.v1.KeyService/Release",
        }
    }

    /// Returns the account that the call is about, if the call contains it.
    pub const fn account(&self) -> Option<AccountId> {
        match self {
            Self::Extend(extend) => Some(extend.hold.account),
            Self::Capture(capture) => Some(capture.hold.account),
            Self::Release(Release::Hold(hold)) => Some(hold.account),
            Self::Release(Release::Unknown { .. }) | Self::Authenticate { .. } | Self::Authorize(_) => None,
        }
    }

    /// Returns the credential in the call, if the call does not contain an account.
    pub fn credential(&self) -> Option<&str> {
        match self {
            Self::Authenticate { credential, .. } | Self::Release(Release::Unknown { credential, .. }) => {
                Some(credential)
            }
            Self::Authorize(authorize) => Some(&authorize.credential),
            Self::Extend(_) | Self::Capture(_) | Self::Release(Release::Hold(_)) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct TracedCall {
    pub call: Call,
    /// Span of the call. The spans of the store's work become its children.
    pub span: Span,
}

impl From<Call> for TracedCall {
    fn from(call: Call) -> Self {
        Self { call, span: Span::default() }
    }
}

/// A request to open a hold.
#[derive(Clone, Debug)]
pub struct Authorize {
    /// The plaintext of an API key.
    pub credential: String,
    /// Id of the generation. Because of it, all later calls about the hold are idempotent.
    pub generation: GenerationId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Number of tokens in the prompt: the exact number, or an upper bound.
    pub prompt_tokens: u64,
    pub images: u64,
    /// Whether the same request had a hold before, which was released. If so, the rate limit has already counted the
    /// request.
    pub readmitted: bool,
    /// Number of prompt tokens that count against the token rate, if it differs from `prompt_tokens`.
    pub rated_tokens: Option<u64>,
    /// Whether the request generates nothing. It then counts against the rate limits, and its hold costs nothing.
    pub is_free: bool,
    /// Number of output tokens that the request may need, for all choices together.
    pub output_tokens: u64,
    /// Smallest number of output tokens for which the request should start. If other holds leave fewer, the request is
    /// refused with `spend_reserved`.
    pub enough_output_tokens: u64,
    /// Smallest number of output tokens with which the request can be served. If fewer are left even without other
    /// holds, the request is refused.
    pub least_output_tokens: u64,
    /// Last instant at which the call may take effect; `None` if there is no limit.
    pub valid_until: Option<Instant>,
    /// How the client made the request; `None` if the gateway's version does not report it.
    pub origin: Option<Arc<Origin>>,
    /// Whether `prompt_tokens` is an upper bound that the caller can replace with an exact number. If that bound would
    /// take more than a quarter of what is left to spend, the request is refused with `spend_reserved`.
    pub can_count: bool,
}

/// A hold, and the prices at which it is billed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRef {
    pub generation: GenerationId,
    pub account: AccountId,
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// The prices at the time when the hold was opened.
    pub price: Arc<Price>,
    /// Position, from 1, of the upstream that serves the request, among the model's upstreams in the catalogue; 0 until
    /// an upstream is chosen.
    pub upstream: u32,
    pub upstream_cost: UpstreamCost,
}

/// What the upstream that serves a hold charges the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpstreamCost {
    /// The cost in the current catalogue. This is used if no upstream is chosen, or if the hold was granted by a
    /// version that does not know costs.
    #[default]
    OfCatalogue,
    /// The cost in the catalogue at the time when the hold was opened; `None` if the catalogue did not state it.
    OfHold(Option<Arc<Price>>),
}

/// A request to extend a hold.
#[derive(Clone, Debug)]
pub struct Extend {
    pub hold: HoldRef,
    /// Number of tokens used so far. They are billed if the hold expires.
    pub usage: Usage,
    /// Number of tokens in the prompt, as exact as it is known so far.
    pub prompt_tokens: u64,
    pub images: u64,
    /// Total number of output tokens that the request may need. An extension never makes a hold smaller.
    pub output_tokens: u64,
    /// How the generation has gone so far. It is stored with the bill if the hold expires; `None` if the gateway's
    /// version does not report it.
    pub course: Option<Arc<Course>>,
}

/// A request to bill a generation.
#[derive(Clone, Debug)]
pub struct Capture {
    pub hold: HoldRef,
    pub usage: Usage,
    /// The part of the usage that is charged, if the upstream continued after its stream was cut. The rest becomes
    /// shortfall. If this is `None`, all of the usage is charged.
    pub charged: Option<Usage>,
    pub estimated: bool,
    /// How the generation went. It is stored with the bill; `None` if the gateway's version does not report it.
    pub course: Option<Arc<Course>>,
}

#[derive(Clone, Debug)]
pub enum Release {
    /// A hold that was granted.
    Hold(HoldRef),
    /// A hold that may exist: it was requested by an authorization whose outcome is unknown.
    Unknown {
        /// The credential that the authorization contained.
        credential: String,
        /// The generation for which the hold was requested.
        generation: GenerationId,
    },
}

/// The answer to a [`Call`]. Each kind of call has its kind of answer.
#[derive(Clone, Debug)]
pub enum Answer {
    Authenticated(Result<Identity, Denial>),
    Authorized(Result<Grant, Denial>),
    Extended(Extended),
    Captured(Captured),
    Released,
}

/// Whom an accepted credential belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the credential.
    pub principal: Principal,
    /// Ids of the models that an API key may use; `None` if it may use all models.
    pub models: Option<Vec<String>>,
}

impl Identity {
    pub const fn account(&self) -> AccountId {
        self.principal.account()
    }

    /// Returns whether a key of the caller may use this model.
    pub fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|id| id == model))
    }
}

impl From<Principal> for Identity {
    fn from(principal: Principal) -> Self {
        Self { principal, models: None }
    }
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub hold: HoldRef,
    /// Number of output tokens that the hold covers, for all choices together.
    pub output_tokens: u64,
    /// Time after which the hold expires if it is not extended.
    pub lease: Duration,
    /// State of the rate limits of the key and its groups; `None` if they have no rate limits.
    pub rates: Option<Box<RateStatus>>,
    /// For each of the model's upstreams, in the order of the catalogue, what it charges the operator; `None` if that
    /// is unknown. The list is empty if the key-service's version does not report costs.
    pub upstream_costs: Vec<Option<Arc<Price>>>,
}

/// The result of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    Open(Extension),
    /// The hold has expired, or was captured or released.
    Gone,
}

/// A hold's size and lease after an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Total number of output tokens that the hold covers.
    pub output_tokens: u64,
    /// Time after which the hold expires if it is not extended again.
    pub lease: Duration,
    /// Reason why nothing more is granted and the stream must end: the key was revoked or disabled, or one of its
    /// groups was archived. `None` if the stream may go on.
    pub revoked_by: Option<Refusal>,
}

/// The result of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    Billed(Charge),
    /// The key does not exist, or the generation belongs to another key. Nothing was billed.
    Gone,
}

/// The amounts of a bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub charged: NanoUsd,
    /// The part of the cost that could not be charged.
    pub shortfall: NanoUsd,
}

/// Failure of a call. Unless the code says otherwise, it is unknown whether the call took effect, and the same call may
/// be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code:?})")]
pub struct CallFailure {
    pub code: Code,
    /// The reason, which is logged.
    pub message: String,
}

impl CallFailure {
    /// Returns the name of the code, as spans show it.
    pub const fn status(&self) -> &'static str {
        match self.code {
            Code::Cancelled => "CANCELLED",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
            _ => "UNKNOWN",
        }
    }

    /// Returns whether the key-service is at fault, and not the caller.
    pub const fn is_servers(&self) -> bool {
        !matches!(self.code, Code::InvalidArgument | Code::FailedPrecondition | Code::Unauthenticated)
    }
}

/// Receives an answer, and the index of the call that it answers.
pub type TakeAnswer<'a> = dyn Fn(usize, Result<Answer, CallFailure>) + Send + Sync + 'a;

/// The interface of a key-service. A gateway in the same process uses it too.
#[async_trait::async_trait]
pub trait KeyService: Send + Sync {
    /// Answers every call once, as soon as its answer is known. So a slow call delays other calls by a few milliseconds
    /// at most.
    async fn handle(&self, calls: Vec<TracedCall>, reply: &TakeAnswer<'_>);
}

impl dyn KeyService {
    /// Waits for the answers to all calls, and returns them in the order of the calls.
    pub async fn answers(&self, calls: Vec<TracedCall>) -> Vec<Result<Answer, CallFailure>> {
        let answers = Mutex::new(BTreeMap::new());
        self.handle(calls, &|place, answer| drop(answers.lock().insert(place, answer))).await;
        answers.into_inner().into_values().collect()
    }
}
