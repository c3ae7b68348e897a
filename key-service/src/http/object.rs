//! The API key in responses.

use shared::{
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::KeyObject,
};

use domain::key::ApiKey;

/// The key with the current status.
pub(super) fn shown(key: &ApiKey, now: Timestamp) -> KeyObject<'_> {
    let spend = &key.spend;
    KeyObject {
        id: key.id,
        object: "api_key",
        label: &key.label,
        key_hint: &key.hint,
        status: key.status(now).as_str(),
        limit: spend.budget.limit,
        used: spend.budget.used,
        // Below zero where the limit was lowered below the used amount. Neither number is near the ends of an i64.
        limit_remaining: spend.budget.limit.and_then(|limit| limit.checked_sub(spend.budget.used)),
        created_at: key.created_at,
        expires_at: spend.expires_at,
        last_used_at: spend.last_used_at.map(Timestamp::to_whole_seconds),
        revoked_at: spend.revoked_at,
        key: None,
    }
}

/// The key with the plaintext, shown only in the answer to the creation.
pub(super) fn shown_with<'a>(key: &'a ApiKey, plaintext: &'a SecretString, now: Timestamp) -> KeyObject<'a> {
    KeyObject { key: Some(plaintext.expose_secret()), ..shown(key, now) }
}
