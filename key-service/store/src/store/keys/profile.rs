//! The profile of a key: everything that spending does not read.

use domain::{key::ApiKey, ledger};
use key_service_ledger::messages::{KeyProfile, key_profile::Text};
use shared::{ids::KeyId, time::Timestamp};

/// The profile with the texts of a key.
pub(crate) fn with_texts(profile: KeyProfile, key: &ApiKey) -> KeyProfile {
    let ApiKey { id: _, label, hint, created_at, metadata, spend: _ } = key;
    let text = |(name, value): (&String, &String)| Text { name: name.clone(), value: value.clone() };
    KeyProfile {
        label: label.clone(),
        hint: hint.clone(),
        created_at: created_at.millis(),
        metadata: metadata.iter().map(text).collect(),
        ..profile
    }
}

pub(crate) fn api_key(id: KeyId, spend: ledger::Key, profile: &KeyProfile) -> ApiKey {
    let KeyProfile { label, hint, created_at, metadata, opening: _, rotated: _ } = profile;
    let text = |Text { name, value }: &Text| (name.clone(), value.clone());
    ApiKey {
        id,
        label: label.clone(),
        hint: hint.clone(),
        created_at: Timestamp::from_millis(*created_at),
        metadata: metadata.iter().map(text).collect(),
        spend,
    }
}
