//! Refusals about keys, groups and webhooks: a code of the management API, and the sentence that every interface shows.

use domain::{
    group::{BadGroup, GroupNotChanged},
    key::KeyNotChanged,
    ledger::{BadRaise, RaiseFault},
    webhook::AddressRefused,
};
use key_service_store::store::StoreError;
use shared::{
    error::{ApiError, Code},
    wire::{MAX_METADATA, MAX_RAISE, Noun},
};

use crate::error::Error;

/// Reason why a key, group or webhook was not created, changed or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The account does not have the object.
    NotFound(Noun),
    /// A revoked key cannot be changed.
    KeyRevoked,
    /// An expired key cannot be rotated.
    KeyExpired,
    /// The plaintext before the last rotation still works.
    RotationInProgress,
    /// An archived group cannot be changed.
    GroupArchived,
    /// The metadata would have too many names.
    TooMuchMetadata,
    /// The group that a setting names cannot be used there.
    BadGroup(&'static str, BadGroup),
    /// A limit cannot be raised this way.
    BadRaise(BadRaise),
    /// The URL leads to an address that must not be connected.
    Address(AddressRefused),
    /// The account has reached its bound on these objects.
    TooMany(Noun, u64),
    /// The idempotency key was used with a different request.
    IdempotencyKeyReused,
    /// The store is nearly full.
    StoreFull,
}

impl From<KeyNotChanged> for Refused {
    fn from(reason: KeyNotChanged) -> Self {
        match reason {
            KeyNotChanged::Revoked => Self::KeyRevoked,
            KeyNotChanged::TooMuchMetadata => Self::TooMuchMetadata,
            KeyNotChanged::Raise(bad) => Self::BadRaise(bad),
        }
    }
}

impl From<GroupNotChanged> for Refused {
    fn from(reason: GroupNotChanged) -> Self {
        match reason {
            GroupNotChanged::Archived => Self::GroupArchived,
            GroupNotChanged::TooMuchMetadata => Self::TooMuchMetadata,
            GroupNotChanged::Parent(bad) => Self::BadGroup("parent_id", bad),
            GroupNotChanged::Raise(bad) => Self::BadRaise(bad),
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotFound(noun) => {
                let (code, name) = noun.row().unknown;
                Self::new(code, format!("The account has no such {name}."))
            }
            Refused::KeyRevoked => Self::new(Code::KeyRevoked, "A revoked API key cannot be changed."),
            Refused::KeyExpired => Self::new(
                Code::ExpiredKey,
                "An expired API key cannot be rotated; give it a later `expires_at` first.",
            ),
            Refused::RotationInProgress => Self::new(
                Code::RotationInProgress,
                "The key before the last rotation works until `previous_key_expires_at`; send `\"force\": true` to \
                 end it now.",
            ),
            Refused::GroupArchived => Self::new(Code::ArchivedGroup, "An archived group cannot be changed."),
            Refused::TooMuchMetadata => {
                let message = format!("`metadata` would have more than {MAX_METADATA} members.");
                Self::at(Code::ObjectAboveMaxProperties, "metadata", message)
            }
            Refused::BadGroup(param, BadGroup::Unknown) => unknown_group(param),
            Refused::BadGroup(param, BadGroup::Archived) => {
                let message = "The group or its parent is archived, so it accepts no keys and no groups.";
                Self::at(Code::ArchivedGroup, param, message)
            }
            Refused::BadGroup(param, BadGroup::TooDeep) => {
                let message = format!("`{param}` would make three levels: a parent cannot have a parent.");
                Self::at(Code::InvalidValue, param, message)
            }
            Refused::BadRaise(bad) => bad_raise(bad),
            Refused::Address(refused) => {
                Self::at(Code::InvalidValue, "url", format!("`url` cannot be used: {refused}."))
            }
            Refused::TooMany(noun, most) => {
                let (code, all) = noun.row().too_many;
                Self::new(code, format!("The account already has {most} {all}, which is the most."))
            }
            Refused::IdempotencyKeyReused => Self::new(
                Code::IdempotencyKeyReuse,
                "This Idempotency-Key was used with a different request; choose a new one.",
            ),
            Refused::StoreFull => Self::new(
                Code::StoreFull,
                "The store is nearly full. Until its operator enlarges it, you can only revoke, disable, archive \
                 and lower bounds.",
            ),
        }
    }
}

/// The error for a raise that the limit or the time does not allow.
fn bad_raise(BadRaise { window, fault }: BadRaise) -> ApiError {
    let (limit, raise) = match window {
        None => ("limit".to_owned(), "limit_raised".to_owned()),
        Some((at, _)) => (format!("limits[{at}].amount"), format!("limits[{at}].raised")),
    };
    let [amount, until] = ["amount", "until"].map(|member| format!("{raise}.{member}"));
    let (code, param, says) = match fault {
        RaiseFault::NoLimit => (Code::InvalidValue, raise, "needs a `limit` to raise".to_owned()),
        RaiseFault::NotAbove(plain) => {
            (Code::DecimalBelowMinValue, amount, format!("must be above `{limit}`, which is {plain}"))
        }
        RaiseFault::Over => (Code::InvalidValue, until, "must be in the future".to_owned()),
        RaiseFault::TooLong => {
            let days = MAX_RAISE.as_secs() / 86_400;
            (Code::InvalidValue, until, format!("must be at most {days} days ahead"))
        }
    };
    let message = format!("`{param}` {says}.");
    ApiError::at(code, param, message)
}

/// The error for a group that the account does not have, or a text that is not an id.
pub fn unknown_group(param: &str) -> ApiError {
    let message = format!("`{param}` must be the id of a group of the account.");
    ApiError::at(Code::InvalidValue, param, message)
}

/// The error for the client. The cause of a failure goes only to the log.
impl<R: Into<ApiError>> From<Error<R>> for ApiError {
    fn from(error: Error<R>) -> Self {
        match error {
            Error::Refused(reason) => reason.into(),
            Error::Store(cause) => {
                tracing::error!(error = %cause, "a management request failed");
                match cause {
                    StoreError::Unavailable(_) | StoreError::Busy(_) => Self::service_unavailable(),
                    StoreError::Conflict(_) | StoreError::Damaged(_) => Self::internal(),
                }
            }
        }
    }
}
