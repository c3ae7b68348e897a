//! Reasons for refusing a request. The key-service sends them over gRPC, and clients see them.

use std::time::Duration;

use crate::{
    call::rates::{RateBound, TokenRoom},
    error::{ApiError, Code},
    timing::time::Timestamp,
};

/// Largest `Retry-After` in seconds. SDKs wait for exactly the time that they get, or do not retry if it is long.
const MOST_RETRY_SECONDS: u32 = 60;

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident = $message:literal;)+) => {
        /// Reason why a request was refused. A refusal changes nothing. The names are sent and stored: variants may be
        /// added, but never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal { $($(#[$doc])* $variant),+ }

        impl Refusal {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the error code that the public API uses.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$variant),+ }
            }

            /// Returns the sentence that the public API shows.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message),+ }
            }
        }
    };
}

refusals! {
    /// The API key does not exist, or was revoked.
    InvalidApiKey = "The API key is unknown or was revoked.";
    /// The management key does not exist, or was revoked.
    InvalidManagementKey = "The management key is unknown or was revoked.";
    InvalidOperatorKey = "The operator key is unknown or was revoked.";
    AccountSuspended = "The account is suspended. Ask whoever runs this service.";
    AccountClosed = "The account is closed.";
    KeyDisabled = "The API key is disabled. Whoever manages it can enable it again.";
    /// The `expires_at` of the key has passed.
    KeyExpired = "The key has expired.";
    /// A management key was used on a model route.
    ManagementKeyNotAllowed = "Management keys cannot make model calls; use an API key.";
    /// An operator key was used outside the operator API.
    OperatorKeyNotAllowed = "Operator keys work only on /v1/operator; use an API key or a management key.";
    /// An API key or a management key was used in the operator API.
    OperatorKeyRequired = "Only operator keys work on /v1/operator; use an operator key.";
    /// An API key was used on a management route.
    ManagementKeyRequired = "API keys cannot manage keys; use a management key.";
    /// The key has spent its limit, or what is left of it cannot pay for this request.
    KeyLimitReached = "The API key has reached its spend limit, or the rest of the limit cannot pay for this request.";
    /// The account's credit is empty, or cannot pay for this request.
    InsufficientCredits = "The account's credit is used up, or the rest of it cannot pay for this request.";
    /// Requests in flight hold what is left to spend.
    SpendReserved = "Requests in flight have reserved what is left to spend; try again in 1 s.";
    /// The model is not in the catalogue.
    ModelNotFound = "There is no such model.";
    /// The key's group, or its parent, is archived.
    GroupArchived = "The API key's group is archived.";
    /// A group of the key has spent its limit, or what is left of it cannot pay for this request.
    GroupLimitReached = "A group of the API key has reached its spend limit, or the rest of the limit cannot pay for \
                         this request.";
    /// The key or one of its groups does not allow the model.
    ModelNotAllowed = "The API key may not use this model.";
    /// A rate limit, or the limit on requests in flight, is used up.
    RateLimitExceeded = "The API key or its group has reached a rate limit; try again later.";
}

/// A refusal, with the details that its caller may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub refusal: Refusal,
    /// The details; `None` for most refusals.
    pub detail: Option<Box<DenialDetail>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenialDetail {
    /// End of the spending window that is used up.
    pub resets_at: Option<Timestamp>,
    /// Time after which the rate limits may admit the request.
    pub retry_after: Option<Duration>,
    /// The rate limit that is used up.
    pub rate: Option<RateBound>,
    /// Number of tokens that are left, if the rate limit counts tokens.
    pub token_room: Option<TokenRoom>,
    /// Models that the key may use.
    pub models: Vec<String>,
}

impl Denial {
    pub fn new(refusal: Refusal, detail: DenialDetail) -> Self {
        let detail = (detail != DenialDetail::default()).then(|| Box::new(detail));
        Self { refusal, detail }
    }

    /// Returns the kind of rate limit that is used up, if this is why the request was refused.
    pub fn rate(&self) -> Option<RateBound> {
        self.detail.as_ref()?.rate
    }

    /// Returns how many tokens are left, if a token rate is why the request was refused.
    pub fn token_room(&self) -> Option<TokenRoom> {
        self.detail.as_ref()?.token_room
    }
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, detail: None }
    }
}

/// Makes the error that the public API returns.
impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Denial::from(refusal).into()
    }
}

/// Makes the error that the public API returns, with the details in its message.
impl From<Denial> for ApiError {
    fn from(Denial { refusal, detail }: Denial) -> Self {
        let mut error = Self::new(refusal.code(), refusal.message());
        error.param = (refusal == Refusal::ModelNotAllowed).then(|| "model".to_owned());
        let Some(detail) = detail else { return error };
        let DenialDetail { resets_at, retry_after, rate, token_room: _, models } = *detail;
        (error.resets_at, error.retry_after) = (resets_at, retry_after.map(retry_seconds));
        if let Some(resets_at) = resets_at {
            error.message = format!("{} The limit renews at {resets_at}.", error.message).into();
        }
        if let (Some(rate), Some(retry_after)) = (rate, retry_after) {
            let bound = match rate {
                RateBound::InFlight => "the maximum number of requests in flight",
                RateBound::Requests => "used up its requests per minute",
                RateBound::Tokens => "used up its tokens per minute",
            };
            let seconds = whole_seconds(retry_after);
            error.message = format!("The API key or its group has {bound}; try again in {seconds} s.").into();
        }
        if !models.is_empty() {
            error.message = format!("{} The key may use: {}.", error.message, models.join(", ")).into();
            error.valid_models = models;
        }
        error
    }
}

/// Returns a time in whole seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn retry_seconds(time: Duration) -> u32 {
    u32::try_from(whole_seconds(time)).unwrap_or(u32::MAX).clamp(1, MOST_RETRY_SECONDS)
}

impl ApiError {
    /// Returns the error for a model that is not in the catalogue.
    pub fn model_not_found(valid_models: Vec<String>) -> Self {
        Self { valid_models, ..Self::at(Code::ModelNotFound, "model", Refusal::ModelNotFound.message()) }
    }
}
