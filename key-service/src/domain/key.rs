//! Life of an API key: created, updated, expired, revived, revoked.

use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::digest::Digest;

use super::ledger;

/// An API key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its identifier; keys sort by it in the order of their creation.
    pub id: KeyId,
    /// Its name, chosen by its owner.
    pub label: String,
    /// The part of its plaintext that may be shown.
    pub hint: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its money and its end.
    pub spend: ledger::Key,
}

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its owner.
    pub account: AccountId,
    /// The key, not used yet.
    pub key: ApiKey,
    /// The digest of its plaintext.
    pub digest: Digest,
    /// Keys that the account may have, this one and revoked ones included.
    pub most: u64,
}

/// State of a key, computed on read and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// May be used.
    Active,
    /// Past its expiry; a later expiry revives it.
    Expired,
    /// Revoked for good.
    Revoked,
}

impl Status {
    /// The status as clients read and ask for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }

    /// The status with this name, as clients write it.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Active, Self::Expired, Self::Revoked].into_iter().find(|status| status.as_str() == text)
    }
}

/// A change to a key: outer `None` leaves the field, inner `None` clears it.
#[expect(clippy::option_option, reason = "a patch leaves a field as it is, clears it, or sets it")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatch {
    /// A new label.
    pub label: Option<String>,
    /// A new limit, or none.
    pub limit: Option<Option<NanoUsd>>,
    /// A new expiry, or none.
    pub expires_at: Option<Option<Timestamp>>,
}

/// A revoked key cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyRevoked;

impl ApiKey {
    /// The status at this time. Revoked takes precedence over expired.
    pub fn status(&self, now: Timestamp) -> Status {
        match self.spend {
            ledger::Key { revoked_at: Some(_), .. } => Status::Revoked,
            ledger::Key { expires_at: Some(at), .. } if at <= now => Status::Expired,
            ledger::Key { .. } => Status::Active,
        }
    }

    /// The key with the patch applied, or unchanged where it is revoked.
    pub fn updated(mut self, patch: &KeyPatch) -> Result<Self, AlreadyRevoked> {
        if self.spend.revoked_at.is_some() {
            return Err(AlreadyRevoked);
        }
        if let Some(label) = &patch.label {
            self.label.clone_from(label);
        }
        if let Some(limit) = patch.limit {
            self.spend.limit = limit;
        }
        if let Some(expires_at) = patch.expires_at {
            self.spend.expires_at = expires_at;
        }
        Ok(self)
    }

    /// The key, revoked at this time unless it already was.
    #[must_use]
    pub fn revoked(mut self, now: Timestamp) -> Self {
        self.spend.revoked_at.get_or_insert(now);
        self
    }
}
