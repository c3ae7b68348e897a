//! Groups of API keys: how they are created, changed and archived.

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    ids::{AccountId, GroupId},
    time::Timestamp,
    wire::{Bound, DefaultField, Fields as _, GroupField, Kept, Value},
};

pub use crate::governed::BadGroup;
use crate::{
    event::EventKind,
    governed::Refused,
    key::KeyPatch,
    ledger::{self, BoundsPatch, Budget},
    settings::{Merge, Metadata, MetadataPatch, fields, keep},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Ids sort by time of creation.
    pub id: GroupId,
    /// Name chosen by the owner.
    pub name: String,
    /// The caller's own id for the group, unique in the account.
    pub external_id: Option<String>,
    pub metadata: Metadata,
    /// Default settings for keys created in the group.
    pub key_defaults: KeyDefaults,
    pub created_at: Timestamp,
    /// Number of keys in the group, including revoked keys; the store counts them.
    pub keys: u64,
    pub spend: ledger::Group,
}

#[derive(Clone, Debug)]
pub struct NewGroup {
    pub account: AccountId,
    pub group: Group,
    /// Maximum number of groups in the account, including archived groups and the new group.
    pub most: u64,
}

/// Default settings for keys that are created in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct KeyDefaults {
    /// Bounds for each key. The budget only holds these bounds; nothing is spent from it.
    #[n(0)]
    pub budget: Budget,
    /// Seconds from a key's creation to its expiry.
    #[n(1)]
    pub expires_in_seconds: Option<u64>,
    #[n(2)]
    pub metadata: Metadata,
}

/// A change of a group's key defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultsPatch {
    /// Whether all earlier defaults are removed before the new defaults are set.
    pub is_cleared: bool,
    pub expires_in_seconds: Option<Option<u64>>,
    pub bounds: BoundsPatch,
    pub metadata: MetadataPatch,
}

fields! {
    Group, GroupField, GroupPatch
    settings {
        Name = name: String, name;
        ExternalId = external_id: Option<String>, external_id;
        /// The new parent; `None` removes the parent.
        ParentId = parent: Option<GroupId>, spend.parent;
    }
    merged {
        /// Default settings for keys that are created in the group from now on.
        KeyDefaults = key_defaults: DefaultsPatch;
        Metadata = metadata: MetadataPatch;
    }
    answered(group, _now) {
        Paid = group.spend.wallet.map(|wallet| wallet.paid);
        Keys = group.keys;
        CreatedAt = group.created_at;
        ArchivedAt = group.spend.archived_at;
    }
}

/// Decides whether keys may be created in a group or moved to it. `group` and `parent` are the account's group and its
/// parent, if they exist.
pub fn takes_keys(group: Option<&ledger::Group>, parent: Option<&ledger::Group>) -> Result<(), BadGroup> {
    let group = group.ok_or(BadGroup::Unknown)?;
    let is_archived = group.archived_at.or(parent.and_then(|parent| parent.archived_at)).is_some();
    if is_archived { Err(BadGroup::Archived) } else { Ok(()) }
}

/// Decides whether group `parent` may become the parent of group `of`. `group` is the account's group with the id
/// `parent`, if there is one.
pub fn may_be_parent(
    parent: GroupId,
    group: Option<&ledger::Group>,
    of: GroupId,
    has_children: bool,
) -> Result<(), BadGroup> {
    match group {
        None => Err(BadGroup::Unknown),
        Some(group) if group.archived_at.is_some() => Err(BadGroup::Archived),
        Some(group) if group.parent.is_some() || has_children || parent == of => Err(BadGroup::TooDeep),
        Some(_) => Ok(()),
    }
}

impl Group {
    pub fn new(id: GroupId, created_at: Timestamp) -> Self {
        Self {
            id,
            name: String::new(),
            external_id: None,
            metadata: Metadata::new(),
            key_defaults: KeyDefaults::default(),
            created_at,
            keys: 0,
            spend: ledger::Group::default(),
        }
    }

    /// Returns the event for the group's creation.
    pub fn creation(&self, now: Timestamp) -> EventKind {
        EventKind::GroupCreated { changes: self.changes_since(&Self::new(self.id, self.created_at), now) }
    }

    /// Returns the event for the changes since `before`; `None` if no setting differs.
    pub fn change(&self, before: &Self, now: Timestamp) -> Option<EventKind> {
        let changes = self.changes_since(before, now);
        (!changes.is_empty()).then_some(EventKind::GroupUpdated { changes })
    }

    /// Applies a patch to the group. If the patch sets a parent, `parent` is the result of [`may_be_parent`] for it.
    pub fn updated(
        self,
        patch: &GroupPatch,
        parent: Result<(), BadGroup>,
        now: Timestamp,
    ) -> Result<Self, Refused> {
        if self.spend.archived_at.is_some() {
            return Err(Refused::GroupArchived);
        }
        parent.map_err(|bad| Refused::BadGroup("parent_id", bad))?;
        let defaults = &self.key_defaults.metadata;
        if !patch.metadata.fits(&self.metadata, now) || !patch.key_defaults.metadata.fits(defaults, now) {
            return Err(Refused::TooMuchMetadata);
        }
        if let Some(limit) = self.spend.paid_limit(&patch.bounds) {
            return Err(Refused::LimitIsPaid(limit));
        }
        patch.bounds.judge_raises(&self.spend.budget, now).map_err(Refused::BadRaise)?;
        Ok(self.with(patch, now))
    }

    /// Archives the group at this time, unless it is already archived.
    #[must_use]
    pub fn archived(mut self, now: Timestamp) -> Self {
        self.spend.archived_at.get_or_insert(now.to_whole_seconds());
        self
    }
}

impl KeyDefaults {
    /// Returns the settings that these defaults give a key that is created at this time.
    pub fn settings(&self, now: Timestamp) -> KeyPatch {
        let expires_at = |seconds| now.plus(Duration::from_secs(seconds));
        let metadata = self.metadata.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        KeyPatch {
            expires_at: self.expires_in_seconds.map(expires_at).map(Some),
            bounds: self.budget.settings(),
            metadata: MetadataPatch { is_cleared: false, changes: metadata.collect() },
            ..KeyPatch::default()
        }
    }

    fn value(&self, field: DefaultField) -> Value {
        match field {
            DefaultField::Bound(Bound::Limits) => self.budget.settings().windows.to_value(),
            // Any time will do: defaults have no spend, so no value depends on the time.
            DefaultField::Bound(bound) => self.budget.value(bound, Timestamp::from_millis(0)),
            DefaultField::ExpiresInSeconds => self.expires_in_seconds.to_value(),
            DefaultField::Metadata => MetadataPatch::value_of(&self.metadata),
        }
    }
}

impl DefaultsPatch {
    fn set(&mut self, field: DefaultField, value: Value) -> bool {
        match field {
            DefaultField::Bound(bound) => self.bounds.set(bound, value),
            DefaultField::ExpiresInSeconds => keep(&mut self.expires_in_seconds, value),
            DefaultField::Metadata => {
                MetadataPatch::from_value(value).map(|metadata| self.metadata = metadata).is_some()
            }
        }
    }
}

impl Merge for DefaultsPatch {
    type Kept = KeyDefaults;

    fn from_value(value: Value) -> Option<Self> {
        let mut patch = Self { is_cleared: value == Value::Null, ..Self::default() };
        if !patch.is_cleared {
            let Value::KeyDefaults(settings) = value else { return None };
            if !settings.into_iter().all(|(field, value)| patch.set(field, value)) {
                return None;
            }
        }
        Some(patch)
    }

    fn apply(&self, defaults: &mut KeyDefaults, now: Timestamp) {
        if self.is_cleared {
            *defaults = KeyDefaults::default();
        }
        defaults.budget.update(&self.bounds, now);
        defaults.expires_in_seconds = self.expires_in_seconds.unwrap_or(defaults.expires_in_seconds);
        self.metadata.apply(&mut defaults.metadata, now);
    }

    fn value_of(defaults: &KeyDefaults) -> Value {
        if *defaults == KeyDefaults::default() {
            return Value::Null;
        }
        Value::KeyDefaults(DefaultField::settings().map(|field| (field, defaults.value(field))).collect())
    }
}
