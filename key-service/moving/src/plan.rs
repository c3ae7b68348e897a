//! Decides what an import creates, given what the account already has.

use std::collections::HashMap;

use shared::ids::{AccountId, GroupId, KeyId};

use domain::{
    digest::Digest,
    event::{Act, Event, EventKind},
    group::{BadGroup, Group},
    key::ApiKey,
};

/// An import into a store. The `used` of keys and groups becomes their opening balance.
#[derive(Clone, Debug)]
pub struct Import {
    /// Account that receives the keys and groups.
    pub account: AccountId,
    /// Groups, each with an external id.
    pub groups: Vec<Group>,
    pub keys: Vec<ImportedKey>,
    /// Maximum number of keys in the account, including revoked and imported keys.
    pub most_keys: u64,
    /// Maximum number of groups in the account, including archived and imported groups.
    pub most_groups: u64,
}

#[derive(Clone, Debug)]
pub struct ImportedKey {
    /// The key, without a group.
    pub key: ApiKey,
    /// Digest by which the key will be found.
    pub digest: Digest,
    /// External id of the key's group.
    pub group: Option<String>,
}

/// What already has a digest in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestOwner {
    None,
    /// The id of a key for which an interrupted import has reserved the digest, without creating the key yet.
    Reserved(KeyId),
    /// A key of this account.
    Key,
    /// A key of another account, or a management key.
    Other,
}

/// The parts of an account that an import must know.
#[derive(Debug, Default)]
pub struct Present {
    /// Number of the account's keys.
    pub keys: u64,
    /// Number of the account's groups.
    pub groups: u64,
    /// For each imported key, the owner of its digest.
    pub owners: Vec<DigestOwner>,
    /// Existing groups, by the external ids that the import uses. An error says why keys cannot be put into the group.
    pub named: HashMap<String, (GroupId, Result<(), BadGroup>)>,
}

/// Keys and groups to create.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Groups that do not exist yet.
    pub groups: Vec<Group>,
    /// Keys to create, with their digests and groups.
    pub keys: Vec<(ApiKey, Digest)>,
    /// Indexes of groups in the import that already exist. They stay unchanged.
    pub existing_groups: Vec<usize>,
    /// Indexes of keys in the import that already exist. They stay unchanged.
    pub existing_keys: Vec<usize>,
}

/// Reason why nothing is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportRefused {
    /// The key at this index of the import exists already, but not as an API key of this account.
    Taken(usize),
    /// The key at this index cannot be put into its group.
    BadGroup(usize, BadGroup),
    /// The account would have too many keys.
    TooManyKeys,
    /// The account would have too many groups.
    TooManyGroups,
}

impl Import {
    /// Decides what the import creates.
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

    /// Lists the external ids of all groups that the import creates or into which it puts keys.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        let of_groups = self.groups.iter().filter_map(|group| group.external_id.as_deref());
        of_groups.chain(self.keys.iter().filter_map(|key| key.group.as_deref()))
    }
}

impl Plan {
    /// Returns the events for everything that is created. They are numbered from `first` on within the act. For a key
    /// that is imported as revoked, there is also an event for its revocation.
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
