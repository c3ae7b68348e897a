//! Converts refusals to gRPC messages and back.

use std::time::Duration;

use shared::{
    rates::{RateBound, TokenRoom},
    refusal::{Denial, DenialDetail, Refusal},
    time::{Timestamp, millis},
};

use crate::v1;

macro_rules! messages {
    ($($name:ident)+) => {
        impl From<Refusal> for v1::Refusal {
            fn from(refusal: Refusal) -> Self {
                match refusal { $(Refusal::$name => Self::$name),+ }
            }
        }

        /// Reads a refusal; `None` if a newer key-service sent one that is unknown here.
        impl From<v1::Refusal> for Option<Refusal> {
            fn from(refusal: v1::Refusal) -> Self {
                match refusal {
                    v1::Refusal::Unspecified => None,
                    $(v1::Refusal::$name => Some(Refusal::$name)),+
                }
            }
        }
    };
}

messages! {
    InvalidApiKey InvalidManagementKey KeyExpired ManagementKeyNotAllowed ManagementKeyRequired KeyLimitReached
    InsufficientCredits SpendReserved ModelNotFound GroupArchived GroupLimitReached ModelNotAllowed RateLimitExceeded
    KeyDisabled InvalidOperatorKey OperatorKeyNotAllowed OperatorKeyRequired AccountSuspended AccountClosed
}

/// Writes a denial as two messages: the refusal, and its details if it has any.
pub(super) fn denial_messages(Denial { refusal, detail }: &Denial) -> (i32, Option<v1::RefusalDetail>) {
    let detail = detail.as_ref().map(|detail| v1::RefusalDetail {
        resets_at_ms: detail.resets_at.map(Timestamp::millis),
        retry_after_ms: detail.retry_after.map(millis),
        rate: detail.rate.map_or(v1::RateBound::Unspecified, v1::RateBound::from).into(),
        models: detail.models.clone(),
        token_room: detail
            .token_room
            .map(|TokenRoom { limit, remaining }| v1::TokenRoom { limit, remaining }),
    });
    (v1::Refusal::from(*refusal).into(), detail)
}

/// Reads a denial; `None` if a newer key-service sent a refusal that is unknown here. Unknown details are left out.
pub(super) fn read_denial(refusal: i32, detail: Option<v1::RefusalDetail>) -> Option<Denial> {
    let refusal = read_refusal(refusal)?;
    let detail = detail.map(|detail| DenialDetail {
        resets_at: detail.resets_at_ms.map(Timestamp::from_millis),
        retry_after: detail.retry_after_ms.map(Duration::from_millis),
        rate: read_rate_bound(detail.rate()),
        token_room: detail
            .token_room
            .map(|v1::TokenRoom { limit, remaining }| TokenRoom { limit, remaining }),
        models: detail.models,
    });
    Some(Denial::new(refusal, detail.unwrap_or_default()))
}

/// Reads a refusal; `None` if a newer key-service sent one that is unknown here.
pub(super) fn read_refusal(refusal: i32) -> Option<Refusal> {
    v1::Refusal::try_from(refusal).ok().and_then(Option::<Refusal>::from)
}

impl From<RateBound> for v1::RateBound {
    fn from(bound: RateBound) -> Self {
        match bound {
            RateBound::InFlight => Self::InFlight,
            RateBound::Requests => Self::Requests,
            RateBound::Tokens => Self::Tokens,
        }
    }
}

const fn read_rate_bound(bound: v1::RateBound) -> Option<RateBound> {
    match bound {
        v1::RateBound::Unspecified => None,
        v1::RateBound::InFlight => Some(RateBound::InFlight),
        v1::RateBound::Requests => Some(RateBound::Requests),
        v1::RateBound::Tokens => Some(RateBound::Tokens),
    }
}

#[cfg(test)]
mod tests {
    use shared::error::ApiError;

    use super::*;

    /// Returns denials with this refusal, with each kind of details that it may have.
    fn denials(refusal: Refusal) -> Vec<Denial> {
        let detail = DenialDetail::default();
        let seconds = |seconds| Some(Duration::from_millis(seconds));
        let details = match refusal {
            Refusal::KeyLimitReached | Refusal::GroupLimitReached => {
                vec![DenialDetail { resets_at: Timestamp::parse("2026-11-24T00:00:00Z"), ..detail }]
            }
            Refusal::ModelNotAllowed => vec![DenialDetail { models: vec!["a".into(), "b".into()], ..detail }],
            Refusal::RateLimitExceeded => [RateBound::InFlight, RateBound::Requests, RateBound::Tokens]
                .map(|rate| DenialDetail {
                    rate: Some(rate),
                    token_room: (rate == RateBound::Tokens).then_some(TokenRoom { limit: 50, remaining: 7 }),
                    retry_after: seconds(1_200),
                    ..detail.clone()
                })
                .into(),
            Refusal::InvalidApiKey
            | Refusal::InvalidManagementKey
            | Refusal::InvalidOperatorKey
            | Refusal::OperatorKeyNotAllowed
            | Refusal::OperatorKeyRequired
            | Refusal::AccountSuspended
            | Refusal::AccountClosed
            | Refusal::KeyDisabled
            | Refusal::KeyExpired
            | Refusal::ManagementKeyNotAllowed
            | Refusal::ManagementKeyRequired
            | Refusal::InsufficientCredits
            | Refusal::SpendReserved
            | Refusal::ModelNotFound
            | Refusal::GroupArchived => Vec::new(),
        };
        let detailed = details.into_iter().map(|detail| Denial::new(refusal, detail));
        std::iter::once(refusal.into()).chain(detailed).collect()
    }

    #[test]
    fn every_refusal_survives_the_way_over_grpc_with_its_details_and_has_a_name_of_its_own() {
        for &refusal in Refusal::ALL {
            for denial in denials(refusal) {
                let (wire, detail) = denial_messages(&denial);
                assert_eq!(read_denial(wire, detail), Some(denial));
            }
            assert_eq!(
                v1::Refusal::from(refusal).as_str_name(),
                format!("REFUSAL_{}", refusal.code().as_str().to_uppercase())
            );
        }
        assert_eq!(read_denial(i32::MAX, None), None);
        assert_eq!(read_denial(0, None), None);
    }

    #[test]
    fn every_refusal_is_answered_over_http_with_its_details() {
        for &refusal in Refusal::ALL {
            for denial in denials(refusal) {
                let error = ApiError::from(denial.clone());
                let json: serde_json::Value = serde_json::from_str(&error.to_json()).unwrap();
                let json = &json["error"];
                assert_eq!(json["code"], refusal.code().as_str());
                let detail = denial.detail.unwrap_or_default();
                let message = json["message"].as_str().unwrap();
                match detail.resets_at {
                    Some(_) => {
                        assert_eq!(json["resets_at"], "2026-11-24T00:00:00Z");
                        assert!(message.contains("2026-11-24T00:00:00Z"), "{message}");
                    }
                    None => assert_eq!(json.get("resets_at"), None),
                }
                match detail.retry_after {
                    Some(_) => {
                        assert_eq!(error.retry_after(), Some(2), "whole seconds, rounded up");
                        assert!(message.contains("try again in 2 s"), "{message}");
                    }
                    None => assert_eq!(error.retry_after(), refusal.code().retry_after()),
                }
                if !detail.models.is_empty() {
                    assert!(message.contains("a, b"), "{message}");
                    assert_eq!(
                        (&json["valid_models"], &json["param"]),
                        (&["a", "b"].into(), &"model".into())
                    );
                }
            }
        }
    }

    #[test]
    fn no_client_is_told_to_sleep_for_long() {
        for (millis, seconds) in [(0, 1), (1, 1), (1_000, 1), (59_001, 60), (3_600_000, 60)] {
            let retry_after = Some(Duration::from_millis(millis));
            let denial =
                Denial::new(Refusal::RateLimitExceeded, DenialDetail { retry_after, ..Default::default() });
            assert_eq!(ApiError::from(denial).retry_after(), Some(seconds), "{millis}");
        }
    }
}
