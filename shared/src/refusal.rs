//! Reasons for refusing a request, from the key-service over gRPC to the client.

use std::time::Duration;

use crate::{
    error::{ApiError, Code},
    rates::RateBound,
    time::Timestamp,
};

/// Largest `Retry-After` in seconds: SDKs sleep for exactly this time, or give up.
const MOST_RETRY_SECONDS: u32 = 60;

/// Reason why a request was refused. Nothing changed. The names are wire format: add, never rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The API key does not exist, or was revoked.
    InvalidApiKey,
    /// The management key does not exist, or was revoked.
    InvalidManagementKey,
    /// The `expires_at` of the key has passed.
    KeyExpired,
    /// A management key on a model route.
    ManagementKeyNotAllowed,
    /// An API key on a management route.
    ManagementKeyRequired,
    /// The key has spent its limit, or the rest cannot pay for this request.
    KeyLimitReached,
    /// The account's credit is empty, or cannot pay for this request.
    InsufficientCredits,
    /// Requests in flight hold the rest.
    SpendReserved,
    /// The model is not in the catalogue.
    ModelNotFound,
    /// The key's group, or its parent, is archived.
    GroupArchived,
    /// A group of the key has spent its limit, or the rest cannot pay for this request.
    GroupLimitReached,
    /// The key or one of its groups does not allow the model.
    ModelNotAllowed,
    /// A rate, or the number of requests at a time, leaves no room for the request.
    RateLimitExceeded,
}

impl Refusal {
    /// All refusals.
    pub const ALL: [Self; 13] = [
        Self::InvalidApiKey,
        Self::InvalidManagementKey,
        Self::KeyExpired,
        Self::ManagementKeyNotAllowed,
        Self::ManagementKeyRequired,
        Self::KeyLimitReached,
        Self::InsufficientCredits,
        Self::SpendReserved,
        Self::ModelNotFound,
        Self::GroupArchived,
        Self::GroupLimitReached,
        Self::ModelNotAllowed,
        Self::RateLimitExceeded,
    ];

    /// The error code in the public API.
    pub const fn code(self) -> Code {
        match self {
            Self::InvalidApiKey => Code::InvalidApiKey,
            Self::InvalidManagementKey => Code::InvalidManagementKey,
            Self::KeyExpired => Code::KeyExpired,
            Self::ManagementKeyNotAllowed => Code::ManagementKeyNotAllowed,
            Self::ManagementKeyRequired => Code::ManagementKeyRequired,
            Self::KeyLimitReached => Code::KeyLimitReached,
            Self::InsufficientCredits => Code::InsufficientCredits,
            Self::SpendReserved => Code::SpendReserved,
            Self::ModelNotFound => Code::ModelNotFound,
            Self::GroupArchived => Code::GroupArchived,
            Self::GroupLimitReached => Code::GroupLimitReached,
            Self::ModelNotAllowed => Code::ModelNotAllowed,
            Self::RateLimitExceeded => Code::RateLimitExceeded,
        }
    }

    /// The sentence in the public API.
    pub const fn message(self) -> &'static str {
        match self {
            Self::InvalidApiKey => "The API key is unknown or was revoked.",
            Self::InvalidManagementKey => "The management key is unknown or was revoked.",
            Self::KeyExpired => "The key has expired.",
            Self::ManagementKeyNotAllowed => "Management keys cannot make model calls; use an API key.",
            Self::ManagementKeyRequired => "API keys cannot govern keys; use a management key.",
            Self::KeyLimitReached => {
                "The API key has reached its spend limit, or what is left of it cannot pay for this request."
            }
            Self::InsufficientCredits => {
                "The account's credit is used up, or what is left of it cannot pay for this request."
            }
            Self::SpendReserved => {
                "What is left to spend is reserved by requests in flight; try again in 1 s."
            }
            Self::ModelNotFound => "There is no such model.",
            Self::GroupArchived => "The API key's group is archived.",
            Self::GroupLimitReached => {
                "A group of the API key has reached its spend limit, or what is left of it cannot pay for this request."
            }
            Self::ModelNotAllowed => "The API key may not use this model.",
            Self::RateLimitExceeded => "The API key or its group has reached a rate limit; try again later.",
        }
    }
}

/// A refusal with the details for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The refusal.
    pub refusal: Refusal,
    /// The details; `None` for most refusals.
    pub detail: Option<Box<DenialDetail>>,
}

/// Details of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenialDetail {
    /// End of the window of spending that is used up.
    pub resets_at: Option<Timestamp>,
    /// Time after which the request may fit the rates.
    pub retry_after: Option<Duration>,
    /// The bound that leaves no room for the request.
    pub rate: Option<RateBound>,
    /// Models that the key may use.
    pub models: Vec<String>,
}

impl Denial {
    /// A refusal with these details, if there are any.
    pub fn new(refusal: Refusal, detail: DenialDetail) -> Self {
        let detail = (detail != DenialDetail::default()).then(|| Box::new(detail));
        Self { refusal, detail }
    }

    /// The bound that leaves no room for the request, if a rate is the reason.
    pub fn rate(&self) -> Option<RateBound> {
        self.detail.as_ref()?.rate
    }
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, detail: None }
    }
}

/// Conversion to an error of the public API.
impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Denial::from(refusal).into()
    }
}

/// Conversion to an error of the public API, whose message tells the details.
impl From<Denial> for ApiError {
    fn from(Denial { refusal, detail }: Denial) -> Self {
        let mut error = Self::new(refusal.code(), refusal.message());
        error.param = (refusal == Refusal::ModelNotAllowed).then(|| "model".to_owned());
        let Some(detail) = detail else { return error };
        let DenialDetail { resets_at, retry_after, rate, models } = *detail;
        (error.resets_at, error.retry_after) = (resets_at, retry_after.map(retry_seconds));
        if let Some(resets_at) = resets_at {
            error.message = format!("{} It renews at {resets_at}.", error.message).into();
        }
        if let (Some(rate), Some(retry_after)) = (rate, retry_after) {
            let bound = match rate {
                RateBound::InFlight => "as many requests in flight as they may have",
                RateBound::Requests => "used up their requests per minute",
                RateBound::Tokens => "used up their tokens per minute",
            };
            let seconds = whole_seconds(retry_after);
            error.message = format!("The API key or its group has {bound}; try again in {seconds} s.").into();
        }
        if !models.is_empty() {
            error.message = format!("{} It may use: {}.", error.message, models.join(", ")).into();
            error.valid_models = models;
        }
        error
    }
}

/// Whole seconds of a time, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Seconds after which a client is to try again.
fn retry_seconds(time: Duration) -> u32 {
    u32::try_from(whole_seconds(time)).unwrap_or(u32::MAX).clamp(1, MOST_RETRY_SECONDS)
}

impl ApiError {
    /// The error for a model that is not in the catalogue.
    pub fn model_not_found(valid_models: Vec<String>) -> Self {
        Self { valid_models, ..Self::at(Code::ModelNotFound, "model", Refusal::ModelNotFound.message()) }
    }
}
