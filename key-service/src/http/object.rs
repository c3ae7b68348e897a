//! The API key as clients see it.

use serde::Serialize;
use shared::{
    ids::KeyId,
    money::NanoUsd,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use crate::domain::key::ApiKey;

/// Every member is always present, null where there is nothing to say; `key` alone appears once, when the key is made.
#[derive(Serialize)]
pub(super) struct KeyObject<'a> {
    id: KeyId,
    object: &'static str,
    label: &'a str,
    key_hint: &'a str,
    status: &'static str,
    limit: Option<NanoUsd>,
    used: NanoUsd,
    limit_remaining: Option<NanoUsd>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    /// The plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> KeyObject<'a> {
    /// The key as it is now.
    pub(super) fn of(key: &'a ApiKey, now: Timestamp) -> Self {
        let spend = &key.spend;
        Self {
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
    pub(super) fn with_plaintext(self, plaintext: &'a SecretString) -> Self {
        Self { key: Some(plaintext.expose_secret()), ..self }
    }
}
