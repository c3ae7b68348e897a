//! The profile of a key: everything that spending does not read.

use domain::{key::ApiKey, ledger};
use key_service_ledger::stored::{KeyProfile, Rotated};
use shared::{ids::KeyId, money::NanoUsd};

/// Builds a key's profile, with the amount spent before the key was created and the credentials from its rotations.
pub(crate) fn profile_of(key: &ApiKey, opening: NanoUsd, rotated: Vec<Rotated>) -> KeyProfile {
    let ApiKey { id: _, label, hint, created_at, metadata, spend: _ } = key.clone();
    KeyProfile { label, hint, created_at, metadata, opening, rotated }
}

pub(crate) fn api_key(id: KeyId, spend: ledger::Key, profile: &KeyProfile) -> ApiKey {
    let KeyProfile { label, hint, created_at, metadata, opening: _, rotated: _ } = profile.clone();
    ApiKey { id, label, hint, created_at, metadata, spend }
}
