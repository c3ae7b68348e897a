//! Refusals as errors of the management API: a code, and a sentence that the command line says as well.

use domain::group::{BadGroup, GroupNotChanged};
use key_service_store::store::StoreError;
use shared::{
    error::{ApiError, Code},
    refusal::Refusal,
    wire::MAX_METADATA,
};

use crate::{
    Error, KeyRefused,
    groups::GroupRefused,
    webhooks::{MAX_WEBHOOKS, WebhookRefused},
};

impl From<KeyRefused> for ApiError {
    fn from(refused: KeyRefused) -> Self {
        match refused {
            KeyRefused::NotFound => Self::new(Code::KeyNotFound, "The account has no such API key."),
            KeyRefused::Revoked => Self::new(Code::KeyRevoked, "A revoked API key cannot be changed."),
            KeyRefused::Expired => Self::new(
                Code::ExpiredKey,
                "An expired API key cannot be rotated; give it a later `expires_at` first.",
            ),
            KeyRefused::RotationInProgress => Self::new(
                Code::RotationInProgress,
                "The key before the last rotation works until `previous_key_expires_at`; send `\"force\": true` to \
                 end it now.",
            ),
            KeyRefused::TooMuchMetadata => too_much_metadata(),
            KeyRefused::BadGroup(bad) => bad_group("group_id", bad),
            KeyRefused::TooMany { most } => {
                let message =
                    format!("The account has {most} API keys, revoked ones included, and may not have more.");
                Self::new(Code::TooManyKeys, message)
            }
            KeyRefused::IdempotencyKeyReused => idempotency_key_reused(),
            KeyRefused::StoreFull => store_full(),
        }
    }
}

impl From<GroupRefused> for ApiError {
    fn from(refused: GroupRefused) -> Self {
        match refused {
            GroupRefused::NotFound => Self::new(Code::GroupNotFound, "The account has no such group."),
            GroupRefused::NotChanged(GroupNotChanged::Archived) => {
                Self::new(Code::ArchivedGroup, "An archived group cannot be changed.")
            }
            GroupRefused::NotChanged(GroupNotChanged::TooMuchMetadata) => too_much_metadata(),
            GroupRefused::NotChanged(GroupNotChanged::Parent(bad)) => bad_group("parent_id", bad),
            GroupRefused::TooMany { most } => {
                let message =
                    format!("The account has {most} groups, archived ones included, and may not have more.");
                Self::new(Code::TooManyGroups, message)
            }
            GroupRefused::IdempotencyKeyReused => idempotency_key_reused(),
            GroupRefused::StoreFull => store_full(),
        }
    }
}

impl From<WebhookRefused> for ApiError {
    fn from(refused: WebhookRefused) -> Self {
        match refused {
            WebhookRefused::NotFound => Self::new(Code::WebhookNotFound, "The account has no such webhook."),
            WebhookRefused::Address(refused) => {
                Self::at(Code::InvalidValue, "url", format!("`url` cannot be used: {refused}."))
            }
            WebhookRefused::TooMany => {
                let message = format!("The account has {MAX_WEBHOOKS} webhooks, and may not have more.");
                Self::new(Code::TooManyWebhooks, message)
            }
            WebhookRefused::IdempotencyKeyReused => idempotency_key_reused(),
            WebhookRefused::StoreFull => store_full(),
        }
    }
}

fn idempotency_key_reused() -> ApiError {
    let message = "This Idempotency-Key was used with another request; choose a new one.";
    ApiError::new(Code::IdempotencyKeyReuse, message)
}

fn store_full() -> ApiError {
    let message = "The store is nearly full: until its operator enlarges it, things can only be revoked, disabled or \
                   archived, and bounds lowered.";
    ApiError::new(Code::StoreFull, message)
}

fn too_much_metadata() -> ApiError {
    let message = format!("`metadata` would have more than {MAX_METADATA} members.");
    ApiError::at(Code::ObjectAboveMaxProperties, "metadata", message)
}

/// The error for a group that something cannot be in. `param` names it.
pub fn bad_group(param: &str, bad: BadGroup) -> ApiError {
    match bad {
        BadGroup::Unknown => unknown_group(param),
        BadGroup::Archived => {
            let message = "The group, or its parent, is archived: it takes no keys and no groups.";
            ApiError::at(Code::ArchivedGroup, param, message)
        }
        BadGroup::TooDeep => {
            let message = format!("`{param}` would make three levels: a parent has no parent itself.");
            ApiError::at(Code::InvalidValue, param, message)
        }
    }
}

/// The error for a group that the account does not have, or a text that is no id.
pub fn unknown_group(param: &str) -> ApiError {
    let message = format!("`{param}` must be the id of a group of the account.");
    ApiError::at(Code::InvalidValue, param, message)
}

impl From<Error<KeyRefused>> for ApiError {
    fn from(error: Error<KeyRefused>) -> Self {
        client_error(error, Self::from)
    }
}

impl From<Error<GroupRefused>> for ApiError {
    fn from(error: Error<GroupRefused>) -> Self {
        client_error(error, Self::from)
    }
}

impl From<Error<WebhookRefused>> for ApiError {
    fn from(error: Error<WebhookRefused>) -> Self {
        client_error(error, Self::from)
    }
}

impl From<Error<Refusal>> for ApiError {
    fn from(error: Error<Refusal>) -> Self {
        client_error(error, Self::from)
    }
}

/// The error for the client. The cause of a failure goes to the log only.
pub fn client_error<R>(error: Error<R>, refused: impl FnOnce(R) -> ApiError) -> ApiError {
    match error {
        Error::Refused(reason) => refused(reason),
        Error::Store(cause) => {
            tracing::error!(error = %cause, "a management request failed");
            match cause {
                StoreError::Unavailable(_) | StoreError::Busy(_) => ApiError::service_unavailable(),
                StoreError::Conflict(_) | StoreError::Damaged(_) => ApiError::internal(),
            }
        }
    }
}
