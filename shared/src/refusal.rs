//! Why a request was refused: said by the key-service, carried over gRPC, told to the client.

use crate::{error::Code, rpc::v1};

/// Why a request was refused. Nothing changed. The names are wire format: add, never rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No such API key, or it was revoked.
    InvalidApiKey,
    /// No such management key, or it was revoked.
    InvalidManagementKey,
    /// The API key is past its `expires_at`.
    KeyExpired,
    /// A management key on a model route.
    ManagementKeyNotAllowed,
    /// An API key on a management route.
    ManagementKeyRequired,
    /// The key has spent its limit, or what is left of it cannot pay for this request.
    KeyLimitReached,
    /// The account's credit is empty, or cannot pay for this request.
    InsufficientCredits,
    /// What is left is held by requests in flight.
    SpendReserved,
    /// The catalogue has no such model.
    ModelNotFound,
}

impl Refusal {
    /// Every refusal there is.
    pub const ALL: [Self; 9] = [
        Self::InvalidApiKey,
        Self::InvalidManagementKey,
        Self::KeyExpired,
        Self::ManagementKeyNotAllowed,
        Self::ManagementKeyRequired,
        Self::KeyLimitReached,
        Self::InsufficientCredits,
        Self::SpendReserved,
        Self::ModelNotFound,
    ];

    /// The edge to HTTP: the error code that clients see.
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
        }
    }

    /// The sentence that clients read.
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
                "What is left to spend is reserved by requests in flight; try again shortly."
            }
            Self::ModelNotFound => "There is no such model.",
        }
    }
}

/// The edge to gRPC.
impl From<Refusal> for v1::Refusal {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::InvalidApiKey => Self::InvalidApiKey,
            Refusal::InvalidManagementKey => Self::InvalidManagementKey,
            Refusal::KeyExpired => Self::KeyExpired,
            Refusal::ManagementKeyNotAllowed => Self::ManagementKeyNotAllowed,
            Refusal::ManagementKeyRequired => Self::ManagementKeyRequired,
            Refusal::KeyLimitReached => Self::KeyLimitReached,
            Refusal::InsufficientCredits => Self::InsufficientCredits,
            Refusal::SpendReserved => Self::SpendReserved,
            Refusal::ModelNotFound => Self::ModelNotFound,
        }
    }
}

/// The edge from gRPC; `None` for what a newer key-service may say.
impl From<v1::Refusal> for Option<Refusal> {
    fn from(refusal: v1::Refusal) -> Self {
        Some(match refusal {
            v1::Refusal::Unspecified => return None,
            v1::Refusal::InvalidApiKey => Refusal::InvalidApiKey,
            v1::Refusal::InvalidManagementKey => Refusal::InvalidManagementKey,
            v1::Refusal::KeyExpired => Refusal::KeyExpired,
            v1::Refusal::ManagementKeyNotAllowed => Refusal::ManagementKeyNotAllowed,
            v1::Refusal::ManagementKeyRequired => Refusal::ManagementKeyRequired,
            v1::Refusal::KeyLimitReached => Refusal::KeyLimitReached,
            v1::Refusal::InsufficientCredits => Refusal::InsufficientCredits,
            v1::Refusal::SpendReserved => Refusal::SpendReserved,
            v1::Refusal::ModelNotFound => Refusal::ModelNotFound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_survives_the_way_over_grpc_and_has_a_name_of_its_own() {
        for refusal in Refusal::ALL {
            let wire = i32::from(v1::Refusal::from(refusal));
            assert_eq!(Option::<Refusal>::from(v1::Refusal::try_from(wire).unwrap()), Some(refusal));
            assert_eq!(
                v1::Refusal::from(refusal).as_str_name(),
                format!("REFUSAL_{}", refusal.code().as_str().to_uppercase())
            );
        }
    }
}
