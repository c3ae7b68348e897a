//! Moving in: keys and groups of another gateway, joined with the keys and groups of a store.

pub mod litellm;
mod report;
mod values;

use std::collections::HashMap;

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

pub use self::{
    report::{Report, ReportLine},
    values::Row,
};
use domain::{
    digest::{Digest, ForeignKey},
    event::EventKind,
    group::{BadGroup, Group, GroupPatch},
    key::{ApiKey, KeyPatch},
};

/// Keys and groups of another gateway, as read.
#[derive(Debug, Default)]
pub struct Draft {
    /// Groups with distinct external ids.
    pub groups: Vec<DraftGroup>,
    /// Keys with distinct plaintexts.
    pub keys: Vec<DraftKey>,
}

/// A group of another gateway.
#[derive(Debug)]
pub struct DraftGroup {
    /// Place in the export, for messages.
    pub place: String,
    /// Amount spent before.
    pub used: NanoUsd,
    /// Settings, with the external id.
    pub settings: GroupPatch,
}

/// A key of another gateway.
#[derive(Debug)]
pub struct DraftKey {
    /// Place in the export, for messages.
    pub place: String,
    /// The credential.
    pub foreign: ForeignKey,
    /// Part of the plaintext that may be shown, if known.
    pub hint: Option<String>,
    /// The key does not work any more.
    pub is_revoked: bool,
    /// Amount spent before.
    pub used: NanoUsd,
    /// Settings without a group.
    pub settings: KeyPatch,
    /// External id of the key's group.
    pub group: Option<String>,
}

/// A row that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Place in the export.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

/// An import for a store. The `used` of its keys and groups is their opening balance.
#[derive(Clone, Debug)]
pub struct Import {
    /// Account that gets keys and groups.
    pub account: AccountId,
    /// Groups, each with an external id.
    pub groups: Vec<Group>,
    /// Keys.
    pub keys: Vec<ImportedKey>,
    /// Bound on the number of the account's keys, revoked and imported keys included.
    pub most_keys: u64,
    /// Bound on the number of the account's groups, archived and imported groups included.
    pub most_groups: u64,
}

/// A key of an import.
#[derive(Clone, Debug)]
pub struct ImportedKey {
    /// The key, without a group.
    pub key: ApiKey,
    /// Digest that finds the key.
    pub digest: Digest,
    /// External id of the key's group.
    pub group: Option<String>,
}

/// The owner of a digest in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestOwner {
    /// Nothing has the digest.
    None,
    /// An import that was interrupted reserved the digest for a key of this id, which was not made.
    Reserved(KeyId),
    /// A key of the account.
    Key,
    /// Another account, or a management key.
    Other,
}

/// Parts of an account that an import meets.
#[derive(Debug, Default)]
pub struct Present {
    /// Number of the account's keys.
    pub keys: u64,
    /// Number of the account's groups.
    pub groups: u64,
    /// The owner of each imported key's digest.
    pub owners: Vec<DigestOwner>,
    /// Groups by the external ids that the import names; false for a group that takes no keys.
    pub named: HashMap<String, (GroupId, Result<(), BadGroup>)>,
}

/// Keys and groups that an import makes.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Groups to be made.
    pub groups: Vec<Group>,
    /// Keys to be made, with digests, in groups.
    pub keys: Vec<(ApiKey, Digest)>,
    /// Places in the import of the groups that exist, and stay as they are.
    pub existing_groups: Vec<usize>,
    /// Places in the import of the keys that exist, and stay as they are.
    pub existing_keys: Vec<usize>,
}

/// Reason why nothing is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportRefused {
    /// The key at this place of the import belongs to another account.
    Taken(usize),
    /// The group of the key at this place takes no keys.
    BadGroup(usize, BadGroup),
    /// The account would pass the bound on keys.
    TooManyKeys,
    /// The account would pass the bound on groups.
    TooManyGroups,
    /// The store is nearly full.
    StoreFull,
}

impl Draft {
    /// Finds keys and groups that appear twice.
    pub fn repeated(&self) -> Vec<Wrong> {
        let mut seen: HashMap<&[u8], &str> = HashMap::new();
        let mut wrong = Vec::new();
        let groups = self.groups.iter().filter_map(|group| {
            Some((group.settings.external_id.as_ref()?.as_deref()?.as_bytes(), &group.place, "group"))
        });
        let keys = self.keys.iter().map(|key| (&key.foreign.as_bytes()[..], &key.place, "key"));
        for (name, place, what) in groups.chain(keys) {
            if let Some(first) = seen.insert(name, place) {
                wrong.push(Wrong {
                    place: place.clone(),
                    reason: format!("is the {what} of {first} once more"),
                });
            }
        }
        wrong
    }
}

impl DraftGroup {
    /// The group under this id.
    pub fn group(&self, id: GroupId, now: Timestamp) -> Group {
        let mut group = Group::new(id, now.to_whole_seconds()).with(&self.settings, now);
        group.spend.budget.used = self.used;
        group
    }
}

impl DraftKey {
    /// The key under this id, without a group.
    pub fn key(&self, id: KeyId, now: Timestamp) -> ApiKey {
        let hint = self.hint.clone().unwrap_or_else(|| self.foreign.hint());
        let mut key = ApiKey::new(id, hint, now.to_whole_seconds()).with(&self.settings, now);
        key.spend.budget.used = self.used;
        if self.is_revoked { key.revoked(now.to_whole_seconds()) } else { key }
    }
}

impl Import {
    /// Decides what the import makes.
    pub fn plan(&self, present: &Present) -> Result<Plan, ImportRefused> {
        let mut plan = Plan::default();
        let mut named: HashMap<&str, (GroupId, Result<(), BadGroup>)> =
            present.named.iter().map(|(name, group)| (name.as_str(), *group)).collect();
        for (at, group) in self.groups.iter().enumerate() {
            let name = group.external_id.as_deref().unwrap_or_default();
            if named.contains_key(name) {
                plan.existing_groups.push(at);
            } else {
                named.insert(name, (group.id, Ok(())));
                plan.groups.push(group.clone());
            }
        }
        for (at, (imported, owner)) in self.keys.iter().zip(&present.owners).enumerate() {
            let mut key = imported.key.clone();
            match owner {
                DigestOwner::None => {}
                DigestOwner::Reserved(id) => key.id = *id,
                DigestOwner::Key => {
                    plan.existing_keys.push(at);
                    continue;
                }
                DigestOwner::Other => return Err(ImportRefused::Taken(at)),
            }
            if let Some(name) = &imported.group {
                let unknown = Err(ImportRefused::BadGroup(at, BadGroup::Unknown));
                let Some((group, judged)) = named.get(name.as_str()) else { return unknown };
                judged.map_err(|bad| ImportRefused::BadGroup(at, bad))?;
                key.spend.group = Some(*group);
            }
            plan.keys.push((key, imported.digest));
        }
        let beyond = |has: u64, made: usize, most: u64| made > 0 && has.saturating_add(made as u64) > most;
        if beyond(present.keys, plan.keys.len(), self.most_keys) {
            return Err(ImportRefused::TooManyKeys);
        }
        if beyond(present.groups, plan.groups.len(), self.most_groups) {
            return Err(ImportRefused::TooManyGroups);
        }
        Ok(plan)
    }

    /// External ids of the groups that the import names.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        let of_groups = self.groups.iter().filter_map(|group| group.external_id.as_deref());
        of_groups.chain(self.keys.iter().filter_map(|key| key.group.as_deref()))
    }
}

impl Plan {
    /// The events of what is made: the key, the group, and the kind of each.
    pub fn events(
        &self,
        at: Timestamp,
    ) -> impl Iterator<Item = ((Option<KeyId>, Option<GroupId>), EventKind)> {
        let groups = self.groups.iter().map(move |group| ((None, Some(group.id)), group.creation(at)));
        groups.chain(self.keys.iter().flat_map(move |(key, _)| events_of(key, at)))
    }
}

/// The events of a key that is made, and revoked with it if it did not work any more.
pub fn events_of(
    key: &ApiKey,
    at: Timestamp,
) -> impl Iterator<Item = ((Option<KeyId>, Option<GroupId>), EventKind)> {
    let subject = (Some(key.id), key.spend.group);
    let revoked = key.spend.revoked_at.map(|_| (subject, EventKind::KeyRevoked {}));
    [(subject, key.creation(at))].into_iter().chain(revoked)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
