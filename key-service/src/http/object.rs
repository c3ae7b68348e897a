//! The API key as clients see it.

use shared::{
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::KeyObject,
};

use crate::domain::key::ApiKey;

/// The key as it is now.
pub(super) fn shown(key: &ApiKey, now: Timestamp) -> KeyObject<'_> {
    let spend = &key.spend;
    KeyObject {
        id: key.id,
        object: "api_key",
        label: &key.label,
        key_hint: &key.hint,
        status: key.status(now).as_str(),
        limit: spend.limit,
        used: spend.used,
        // Below zero where the limit was lowered under what was used; both are far from the ends of an i64.
        limit_remaining: spend.limit.and_then(|limit| limit.checked_sub(spend.used)),
        created_at: key.created_at,
        expires_at: spend.expires_at,
        last_used_at: spend.last_used_at.map(Timestamp::to_whole_seconds),
        revoked_at: spend.revoked_at,
        key: None,
    }
}

/// The key as its maker sees it, this once.
pub(super) fn shown_with<'a>(key: &'a ApiKey, plaintext: &'a SecretString, now: Timestamp) -> KeyObject<'a> {
    KeyObject { key: Some(plaintext.expose_secret()), ..shown(key, now) }
}
