//! The calls between the services as checked types. Only [`crate::messages`] and the two gRPC edges use generated
//! messages.

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
    /// Returns the owner of a credential that may spend.
    Authenticate {
        /// The plaintext of a key.
        credential: String,
        /// The class of key that the route needs.
        required: Class,
    },
    /// Authenticates an API key, and opens a hold.
    Authorize(Authorize),
    /// Renews the lease of a hold, reports progress, and requests more output tokens.
    Extend(Extend),
    /// Bills a generation and releases the rest of the hold.
    Capture(Capture),
    /// Releases a hold whose generation cost nothing.
    Release(Release),
}

impl Call {
    /// Returns the name of the method in spans.
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Authenticate { .. } => "keyservice.v1.KeyService/Authenticate",
            Self::Authorize(_) => "keyservice.v1.KeyService/Authorize",
            Self::Extend(_) => "keyservice.v1.KeyService/Extend",
            Self::Capture(_) => "keyservice.v1.KeyService/Capture",
            Self::Release(_) => "keyservice.v1.KeyService/Release",
        }
    }

    /// Returns the account of the call, if it names one.
    pub const fn account(&self) -> Option<AccountId> {
        match self {
            Self::Extend(extend) => Some(extend.hold.account),
            Self::Capture(capture) => Some(capture.hold.account),
            Self::Release(Release::Hold(hold)) => Some(hold.account),
            Self::Release(Release::Unknown { .. }) | Self::Authenticate { .. } | Self::Authorize(_) => None,
        }
    }

    /// Returns the credential of the call, if it names no account.
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
    /// Span of the call; the store's spans are its children.
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
    /// Id of the generation. It makes all later calls about the hold idempotent.
    pub generation: GenerationId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Tokens of the prompt: an exact number, or an upper bound.
    pub prompt_tokens: u64,
    pub images: u64,
    /// Whether an earlier hold of the same request was released, so the request rate already counts it.
    pub readmitted: bool,
    /// Prompt tokens that count for the token rate, if they differ from `prompt_tokens`.
    pub rated_tokens: Option<u64>,
    /// Whether nothing is generated: the request counts for the rates, and its hold is free of charge.
    pub is_free: bool,
    /// Output tokens wanted, over all choices.
    pub output_tokens: u64,
    /// Smallest grant worth having. If other holds leave less, the request is refused with `spend_reserved`.
    pub enough_output_tokens: u64,
    /// Smallest possible grant. If less is left even without other holds, the request cannot be served.
    pub least_output_tokens: u64,
    /// Latest instant at which the call may take effect; `None` for no bound.
    pub valid_until: Option<Instant>,
    /// How the client made the request; `None` if the gateway's version does not report it.
    pub origin: Option<Arc<Origin>>,
    /// `prompt_tokens` is an upper bound that the caller can replace with an exact count. If it would take more than a
    /// quarter of what is available, the request is refused with `spend_reserved`.
    pub can_count: bool,
}

/// A hold, with its prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRef {
    pub generation: GenerationId,
    pub account: AccountId,
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Prices when the hold was opened.
    pub price: Arc<Price>,
    /// Position, from 1, of the serving upstream among the model's upstreams in the catalogue; 0 before one is chosen.
    pub upstream: u32,
    pub upstream_cost: UpstreamCost,
}

/// The operator's cost at the upstream that serves a hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpstreamCost {
    /// The current catalogue's cost, because no upstream is chosen or because a version without costs granted the hold.
    #[default]
    OfCatalogue,
    /// The catalogue's cost when the hold was opened; `None` if it was not known.
    OfHold(Option<Arc<Price>>),
}

/// A request to extend a hold.
#[derive(Clone, Debug)]
pub struct Extend {
    pub hold: HoldRef,
    /// Tokens used so far. They are billed if the hold expires.
    pub usage: Usage,
    /// Tokens of the prompt: the most exact number so far.
    pub prompt_tokens: u64,
    pub images: u64,
    /// Output tokens wanted in total. An extension never lowers a hold.
    pub output_tokens: u64,
    /// Kept with the bill if the hold expires; `None` if the gateway's version does not report it.
    pub course: Option<Arc<Course>>,
}

/// A request to bill a generation.
#[derive(Clone, Debug)]
pub struct Capture {
    pub hold: HoldRef,
    pub usage: Usage,
    /// The part of the usage to charge, if the upstream continued after its stream was cut; the rest is shortfall.
    /// `None` charges all of it.
    pub charged: Option<Usage>,
    pub estimated: bool,
    /// Kept with the bill; `None` if the gateway's version does not report it.
    pub course: Option<Arc<Course>>,
}

#[derive(Clone, Debug)]
pub enum Release {
    /// A hold that was granted.
    Hold(HoldRef),
    /// A hold that an authorization with an unknown outcome may have opened.
    Unknown {
        /// The credential that the authorization presented.
        credential: String,
        /// The generation of the hold.
        generation: GenerationId,
    },
}

/// The answer to a [`Call`] of the same kind.
#[derive(Clone, Debug)]
pub enum Answer {
    Authenticated(Result<Identity, Denial>),
    Authorized(Result<Grant, Denial>),
    Extended(Extended),
    Captured(Captured),
    Released,
}

/// The owner of an accepted credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the credential.
    pub principal: Principal,
    /// Ids of the models that an API key may use; `None` for all.
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
    /// Output tokens covered, over all choices.
    pub output_tokens: u64,
    /// How long the hold lives without an extension.
    pub lease: Duration,
    /// State of the key's and groups' rates; `None` if they have none.
    pub rates: Option<Box<RateStatus>>,
    /// The operator's cost at each of the model's upstreams, in the catalogue's order; `None` if unknown. The list is
    /// empty if the key-service's version does not report costs.
    pub upstream_costs: Vec<Option<Arc<Price>>>,
}

/// The outcome of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    Open(Extension),
    /// The hold expired, or was resolved.
    Gone,
}

/// A hold that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Output tokens covered in total.
    pub output_tokens: u64,
    /// How long the hold lives without another extension.
    pub lease: Duration,
    /// Why nothing more is granted and a stream must end: the key was revoked or disabled, or a group archived.
    pub revoked_by: Option<Refusal>,
}

/// The outcome of a capture.
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
    /// Part of the cost that could not be billed.
    pub shortfall: NanoUsd,
}

/// Failure of a call. Unless the code says otherwise, the outcome is unknown and the same call may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code:?})")]
pub struct CallFailure {
    pub code: Code,
    /// The reason, for the log.
    pub message: String,
}

impl CallFailure {
    /// Returns the name of the code in spans.
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

    /// Returns whether the fault is the key-service's, not the caller's.
    pub const fn is_servers(&self) -> bool {
        !matches!(self.code, Code::InvalidArgument | Code::FailedPrecondition | Code::Unauthenticated)
    }
}

/// Receives the answer to the call at an index.
pub type TakeAnswer<'a> = dyn Fn(usize, Result<Answer, CallFailure>) + Send + Sync + 'a;

/// The key-service's interface, also for a gateway in the same process.
#[async_trait::async_trait]
pub trait KeyService: Send + Sync {
    /// Answers every call once, as soon as its answer is known, so that a slow call delays others by milliseconds at
    /// most.
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
