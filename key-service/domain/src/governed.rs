//! Results of requests about keys, groups, webhooks and alerts: what was created, or why the request was refused.

pub mod payments;
pub mod registry;

use shared::{
    error::{ApiError, Code},
    money::NanoUsd,
    wire::{MAX_METADATA, MAX_RAISE, Noun},
};

use crate::{
    alert::AlertFault,
    ledger::{BadRaise, RaiseFault},
    webhook::AddressRefused,
};

/// Result of a request that creates an object or its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<T> {
    New(T),
    /// The object existed already and stays unchanged.
    Existing(T),
    /// An earlier attempt with the same idempotency key created the object. This is the object's current state.
    Replayed(T),
}

impl<T> Made<T> {
    pub fn into_inner(self) -> T {
        let (Self::New(object) | Self::Existing(object) | Self::Replayed(object)) = self;
        object
    }
}

/// The idempotency key was used with a different request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKeyReused;

impl From<IdempotencyKeyReused> for Refused {
    fn from(_: IdempotencyKeyReused) -> Self {
        Self::IdempotencyKeyReused
    }
}

/// Reason why a key, group, webhook or alert was not created, changed or found. Every interface shows the same
/// sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The account does not have the object.
    NotFound(Noun),
    /// A revoked key cannot be changed.
    KeyRevoked,
    /// An expired key cannot be rotated.
    KeyExpired,
    /// The plaintext from before the last rotation still works.
    RotationInProgress,
    /// An archived group cannot be changed.
    GroupArchived,
    /// Only payments and refunds change the limit of a wallet, given here.
    LimitIsPaid(NanoUsd),
    /// The metadata would have too many names.
    TooMuchMetadata,
    /// The setting with this name refers to a group that cannot be used.
    BadGroup(&'static str, BadGroup),
    /// A limit cannot be raised this way.
    BadRaise(BadRaise),
    /// An alert cannot have a setting.
    BadAlert(AlertFault),
    /// The account tested an alert less than a minute ago.
    TestedLately,
    /// The URL leads to an address that may not be connected to.
    Address(AddressRefused),
    /// The account already has the maximum number of these objects.
    TooMany(Noun, u64),
    /// The idempotency key was used with a different request.
    IdempotencyKeyReused,
}

/// Why a key or a child group cannot be put into a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadGroup {
    /// The account does not have the group.
    Unknown,
    /// The group, or the parent, is archived.
    Archived,
    /// The parent itself has a parent, but groups have only two levels.
    TooDeep,
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
                "The plaintext from before the last rotation works until `previous_key_expires_at`; send \
                 `\"force\": true` to end it now.",
            ),
            Refused::GroupArchived => Self::new(Code::ArchivedGroup, "An archived group cannot be changed."),
            Refused::LimitIsPaid(limit) => {
                let message =
                    format!("The group's `limit` is {limit} USD and changes only by payments and refunds.");
                Self::at(Code::GroupLimitIsPaid, "limit", message)
            }
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
            Refused::TestedLately => Self {
                retry_after: Some(60),
                ..Self::new(Code::RateLimitExceeded, "The account tested an alert within the last minute.")
            },
            Refused::BadAlert(fault) => {
                let param = fault.param();
                Self::at(Code::InvalidValue, param, format!("`{param}` {fault}."))
            }
            Refused::Address(refused) => {
                Self::at(Code::InvalidValue, "url", format!("`url` cannot be used: {refused}."))
            }
            Refused::TooMany(noun, most) => {
                let (code, all) = noun.row().too_many;
                Self::new(code, format!("The account already has the maximum of {most} {all}."))
            }
            Refused::IdempotencyKeyReused => Self::new(
                Code::IdempotencyKeyReuse,
                "This Idempotency-Key was used with a different request; choose a new one.",
            ),
        }
    }
}

/// Returns the error for a raise that conflicts with the limit or has an invalid time.
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

/// Returns the error for a group that the account does not have, or a text that is not an id.
pub fn unknown_group(param: &str) -> ApiError {
    let message = format!("`{param}` must be the id of a group of the account.");
    ApiError::at(Code::InvalidValue, param, message)
}
