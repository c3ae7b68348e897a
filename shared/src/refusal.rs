//! Reasons for refusing a request, from the key-service over gRPC to the client.

use crate::error::{ApiError, Code};

/// Reason why a request was refused. Nothing changed. The names are wire format: add, never rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The API key does not exist, or was revoked.
    InvalidApiKey,
    /// The management key does not exist, or was revoked.
    InvalidManagementKey,
    /// The API key's `expires_at` has passed.
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
            Self::KeyExpired => "The API key has expired.",
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

/// Conversion to an error of the public API.
impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), refusal.message())
    }
}

impl ApiError {
    /// The error for a model that is not in the catalogue.
    pub fn model_not_found(valid_models: Vec<String>) -> Self {
        Self { valid_models, ..Self::at(Code::ModelNotFound, "model", Refusal::ModelNotFound.message()) }
    }
}
