//! API keys: how they are created, updated, rotated, revived after their expiry, and revoked.

use std::time::Duration;

use shared::{
    ids::{AccountId, GroupId, KeyId},
    time::Timestamp,
    wire::{Kept, KeyField, Value},
};

use crate::{
    credentials::digest::Digest,
    event::EventKind,
    governed::Refused,
    ledger::{self, Rotation},
    settings::{Metadata, MetadataPatch, fields},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Ids sort by time of creation.
    pub id: KeyId,
    /// Name chosen by the owner.
    pub label: String,
    /// Part of the plaintext that may be shown.
    pub hint: String,
    pub created_at: Timestamp,
    pub metadata: Metadata,
    pub spend: ledger::Key,
}

#[derive(Clone, Debug)]
pub struct NewKey {
    pub account: AccountId,
    /// The key as it is before its first use.
    pub key: ApiKey,
    pub digest: Digest,
    /// Maximum number of keys in the account, including revoked keys and the new key.
    pub most: u64,
}

/// Status of a key. It is computed whenever the key is read, and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Active,
    /// Disabled by its owner, who can enable it again.
    Disabled,
    /// Past its expiry. The owner can revive the key by setting a later expiry.
    Expired,
    Revoked,
}

shared::names! { Status: Active = "active", Disabled = "disabled", Expired = "expired", Revoked = "revoked" }

/// How long before its expiry a key counts as expiring soon: from then on, its owner has a week to postpone the expiry.
pub const SOON: Duration = Duration::from_hours(7 * 24);

/// A condition of an active key that its owner should look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A limit of the key or of its groups is reached, so requests are refused.
    LimitReached,
    /// The key expires within a week.
    ExpiresSoon,
    /// A limit is reached, the key expires within a week, or the key has used four fifths of a limit.
    Trouble,
}

// Most urgent first.
shared::names! {
    Condition: LimitReached = "limit_reached", ExpiresSoon = "expires_soon", Trouble = "trouble",
}

/// What is wrong with a key, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTrouble {
    /// The key cannot spend, because a limit of the key or of its groups is reached.
    Limited,
    /// The key is revoked, disabled or expired, but programs still make calls with it.
    Ended,
    Expiring,
    /// The key has used four fifths of a limit.
    Nearly,
}

/// A new credential of a key.
#[derive(Clone, Debug)]
pub struct NewCredential {
    pub account: AccountId,
    pub key: KeyId,
    pub digest: Digest,
    /// Part of the plaintext that may be shown.
    pub hint: String,
    /// How long the previous credential is accepted after the rotation.
    pub grace: Duration,
    /// Whether to end the grace period of an earlier rotation if it is still running. Otherwise a rotation during that
    /// period is refused.
    pub is_forced: bool,
}

fields! {
    ApiKey, KeyField, KeyPatch
    settings {
        Label = label: String, label;
        /// The new expiry; `None` removes the expiry.
        ExpiresAt = expires_at: Option<Timestamp>, spend.expires_at;
        /// Whether to refuse the key until it is enabled again.
        Disabled = disabled: bool, spend.disabled;
        GroupId = group: Option<GroupId>, spend.group;
    }
    merged {
        Metadata = metadata: MetadataPatch;
    }
    answered(key, now) {
        KeyHint = key.hint;
        Status = key.status(now).as_str().to_owned();
        CreatedAt = key.created_at;
        LastUsedAt = key.spend.last_used_at.map(Timestamp::to_whole_seconds);
        RevokedAt = key.spend.revoked_at;
        PreviousKeyExpiresAt = key.previous_expires_at(now);
    }
}

impl ApiKey {
    /// Returns a key without settings, before its first use.
    pub fn new(id: KeyId, hint: String, created_at: Timestamp) -> Self {
        let (label, metadata, spend) = (String::new(), Metadata::new(), ledger::Key::default());
        Self { id, label, hint, created_at, metadata, spend }
    }

    /// Returns the status at this time. Revoked takes precedence over disabled, and disabled over expired.
    pub fn status(&self, now: Timestamp) -> Status {
        match self.spend {
            ledger::Key { revoked_at: Some(_), .. } => Status::Revoked,
            ledger::Key { disabled: true, .. } => Status::Disabled,
            ledger::Key { .. } if self.has_expired(now) => Status::Expired,
            ledger::Key { .. } => Status::Active,
        }
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.spend.expires_at.is_some_and(|at| at <= now)
    }

    fn expires_soon(&self, now: Timestamp) -> bool {
        self.spend.expires_at.is_some_and(|at| at <= now.plus(SOON))
    }

    /// Returns whether the key is active and in this condition. `is_limited` says whether a limit of the key or of its
    /// groups is reached. The key's own fields cannot show that: a limit also counts as reached if what is left of it
    /// is too little for any request.
    pub fn is_in(&self, condition: Condition, is_limited: bool, now: Timestamp) -> bool {
        let is_so = match condition {
            Condition::LimitReached => is_limited,
            Condition::ExpiresSoon => self.expires_soon(now),
            Condition::Trouble => {
                is_limited || self.expires_soon(now) || self.spend.budget.is_nearly_used(now)
            }
        };
        is_so && self.status(now) == Status::Active
    }

    /// Returns the event for the key's creation.
    pub fn creation(&self, now: Timestamp) -> EventKind {
        let blank = Self::new(self.id, String::new(), self.created_at);
        EventKind::KeyCreated { changes: self.changes_since(&blank, now) }
    }

    /// Returns the event for the changes since `before`; `None` if no setting differs.
    pub fn change(&self, before: &Self, now: Timestamp) -> Option<EventKind> {
        let changes = self.changes_since(before, now);
        (!changes.is_empty()).then_some(EventKind::KeyUpdated { changes })
    }

    /// Applies a patch to the key.
    pub fn updated(self, patch: &KeyPatch, now: Timestamp) -> Result<Self, Refused> {
        if self.spend.revoked_at.is_some() {
            return Err(Refused::KeyRevoked);
        }
        if !patch.metadata.fits(&self.metadata, now) {
            return Err(Refused::TooMuchMetadata);
        }
        patch.bounds.judge_raises(&self.spend.budget, now).map_err(Refused::BadRaise)?;
        Ok(self.with(patch, now))
    }

    /// Returns when the previous credential expires; `None` if it is no longer accepted.
    pub fn previous_expires_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.spend.rotation.grace(now).filter(|_| self.spend.revoked_at.is_none())
    }

    /// Returns the event for the key's last rotation.
    pub fn rotation_event(&self, now: Timestamp) -> EventKind {
        EventKind::KeyRotated { previous_key_expires_at: self.previous_expires_at(now) }
    }

    /// Gives the key a new credential. The previous credential is accepted during its grace period, and every older
    /// credential is refused. A disabled key can be rotated too, so that a leaked plaintext is replaced before the key
    /// is enabled again.
    pub fn rotated(mut self, new: &NewCredential, now: Timestamp) -> Result<Self, Refused> {
        match self.status(now) {
            Status::Revoked => return Err(Refused::KeyRevoked),
            Status::Expired => return Err(Refused::KeyExpired),
            Status::Disabled if self.has_expired(now) => return Err(Refused::KeyExpired),
            Status::Active | Status::Disabled
                if self.spend.rotation.grace(now).is_some() && !new.is_forced =>
            {
                return Err(Refused::RotationInProgress);
            }
            Status::Active | Status::Disabled => {}
        }
        self.spend.rotation = Rotation {
            current: self.spend.rotation.current + 1,
            previous_until: (!new.grace.is_zero()).then(|| now.plus(new.grace)),
        };
        self.hint.clone_from(&new.hint);
        Ok(self)
    }

    /// Returns what is wrong with the key. `is_limited` says whether a limit of the key or of its groups is reached.
    /// `was_refused` says whether a call with the key was refused today.
    pub fn trouble(&self, is_limited: bool, was_refused: bool, now: Timestamp) -> Option<KeyTrouble> {
        let is_in = |condition| self.is_in(condition, is_limited, now);
        if is_in(Condition::LimitReached) {
            Some(KeyTrouble::Limited)
        } else if was_refused && self.status(now) != Status::Active {
            Some(KeyTrouble::Ended)
        } else if is_in(Condition::ExpiresSoon) {
            Some(KeyTrouble::Expiring)
        } else {
            is_in(Condition::Trouble).then_some(KeyTrouble::Nearly)
        }
    }

    /// Revokes the key at this time, unless it is already revoked.
    #[must_use]
    pub fn revoked(mut self, now: Timestamp) -> Self {
        self.spend.revoked_at.get_or_insert(now.to_whole_seconds());
        self
    }
}

#[cfg(test)]
mod tests {
    use shared::money::NanoUsd;

    use super::*;

    #[test]
    fn an_active_key_with_a_reached_limit_or_little_time_left_is_in_that_condition() {
        let now = Timestamp::from_millis(0);
        let hours = |hours| now.plus(Duration::from_hours(hours));
        let mut key = ApiKey::new(KeyId::new(now, [0; 10]), String::new(), now);
        let is_in =
            |key: &ApiKey, is_limited| Condition::ALL.map(|condition| key.is_in(condition, is_limited, now));
        assert_eq!(is_in(&key, false), [false, false, false]);
        assert_eq!(is_in(&key, true), [true, false, true]);
        key.spend.expires_at = Some(hours(7 * 24));
        assert_eq!(is_in(&key, true), [true, true, true]);
        key.spend.expires_at = Some(hours(7 * 24 + 1));
        assert_eq!(is_in(&key, false), [false, false, false]);
        key.spend.budget.limit = Some(NanoUsd::from_nanos(100));
        for (used, is_nearly) in [(79, false), (80, true)] {
            key.spend.budget.used = NanoUsd::from_nanos(used);
            assert_eq!(is_in(&key, false), [false, false, is_nearly], "{used} of 100 are used");
        }
        assert_eq!(key.trouble(false, true, now), Some(KeyTrouble::Nearly));
        assert_eq!(key.trouble(true, true, now), Some(KeyTrouble::Limited));
        let revoked = key.revoked(now);
        assert_eq!(is_in(&revoked, true), [false; 3], "a revoked key needs no change");
        assert_eq!(revoked.trouble(true, false, now), None);
        assert_eq!(
            revoked.trouble(true, true, now),
            Some(KeyTrouble::Ended),
            "the key is still being called"
        );
    }

    #[test]
    fn revoked_goes_before_disabled_and_disabled_before_expired() {
        let now = Timestamp::from_millis(0);
        let mut key = ApiKey::new(KeyId::new(now, [0; 10]), String::new(), now);
        assert_eq!(key.status(now), Status::Active);
        key.spend.expires_at = Some(now);
        assert_eq!(key.status(now), Status::Expired);
        key.spend.disabled = true;
        assert_eq!(key.status(now), Status::Disabled);
        assert_eq!(key.revoked(now).status(now), Status::Revoked);
    }
}
