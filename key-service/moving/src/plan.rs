//! Decides what an import makes, beside what the account has.

use std::collections::HashMap;

use shared::ids::{AccountId, GroupId, KeyId};

use domain::{
    digest::Digest,
    event::{Act, Event, EventKind},
    group::{BadGroup, Group},
    key::ApiKey,
};

/// An import for a store. The `used` of its keys and groups is their opening balance.
#[derive(Clone, Debug)]
pub struct Import {
    /// Account that gets keys and groups.
    pub account: AccountId,
    /// Groups, each with an external id.
    pub groups: Vec<Group>,
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
    /// Groups that do not exist yet.
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
    /// The events of what is made, the `first`th of the act and those after it. A key that did not work any more is
    /// revoked as soon as it is made.
    pub fn events(&self, act: &Act, first: u32) -> impl Iterator<Item = Event> {
        let at = act.at;
        let groups = self.groups.iter().map(move |group| (None, Some(group.id), group.creation(at)));
        let keys = self.keys.iter().flat_map(move |(key, _)| {
            let revoked = key.spend.revoked_at.map(|_| EventKind::KeyRevoked {});
            let kinds = [key.creation(at)].into_iter().chain(revoked);
            kinds.map(move |kind| (Some(key.id), key.spend.group, kind))
        });
        (first..).zip(groups.chain(keys)).map(move |(n, (key, group, kind))| act.event(n, key, group, kind))
    }
}
