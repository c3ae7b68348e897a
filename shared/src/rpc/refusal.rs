//! Refusals in gRPC messages.

use super::v1;
use crate::refusal::Refusal;

/// The message of a refusal.
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
            Refusal::GroupArchived => Self::GroupArchived,
            Refusal::GroupLimitReached => Self::GroupLimitReached,
            Refusal::ModelNotAllowed => Self::ModelNotAllowed,
            Refusal::RateLimitExceeded => Self::RateLimitExceeded,
        }
    }
}

/// The refusal of a message; `None` for a refusal known only to a newer key-service.
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
            v1::Refusal::GroupArchived => Refusal::GroupArchived,
            v1::Refusal::GroupLimitReached => Refusal::GroupLimitReached,
            v1::Refusal::ModelNotAllowed => Refusal::ModelNotAllowed,
            v1::Refusal::RateLimitExceeded => Refusal::RateLimitExceeded,
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
