//! Imports from another gateway.
//!
//! Digests are not stored in the account's space, and there may be too many keys for one commit. So an import has three
//! steps. First, it is planned. Then each digest is reserved for the id of its key. Finally, groups and keys are
//! created in several commits, each of which decides again with the current state. Every step may be repeated. A digest
//! that is reserved for a key that does not exist yet is refused as unknown. If the same import runs later, it creates
//! the key with exactly this id.

use std::collections::{HashMap, HashSet};

use domain::{
    digest::Digest,
    event::Act,
    group::{self, BadGroup},
    key::ApiKey,
    ledger,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use key_service_ledger::{Change, StoreError, names, stored::AccountProfile};
use key_service_moving::{DigestOwner, Import, ImportRefused, Plan, Present};
use shared::ids::{AccountId, GroupId, KeyId, Principal};

use crate::{
    data::Credential,
    error::Error,
    store::{
        base::Store,
        groups,
        keys::stored::{self, insert_key, takes_key},
        layout,
    },
};

/// Number of digests that are looked up or reserved at the same time.
const ASKED_AT_ONCE: usize = 64;
/// Maximum number of keys to look up in one round trip.
const FOUND_AT_ONCE: usize = 500;
/// Maximum number of words that one key or group needs in a commit. A revoked key that is the first key of its group
/// needs the most: guards on the group and its parent, entries in five indexes, two events, and four more events for
/// thresholds.
const MOST_WORDS_EACH: usize = 121;

/// A part of an import: groups and keys that are created in one commit.
struct Part {
    import: Import,
    /// Indexes of the part's groups and keys in the whole import.
    places: (Vec<usize>, Vec<usize>),
    /// Ids for which the keys' digests are reserved.
    reserved: Vec<KeyId>,
}

impl Store {
    /// Imports keys and groups of another gateway into an existing account, as [`Import::plan`] decides. In a dry run,
    /// only returns the plan. Repeating an import changes nothing.
    ///
    /// Nothing is written unless everything may be written. Groups and keys that fit into one commit take effect
    /// together: 16 in Redis, thousands in SQLite. A larger import is written in parts, and others can see the parts
    /// that are finished. If a call ends early, the same import completes it. If others create keys or groups between
    /// the parts, the account may have more than its maximum in the end. If a group is archived between the parts, the
    /// import is refused, but its finished parts stay.
    pub async fn import(
        &self,
        import: Import,
        is_dry_run: bool,
        act: &Act,
    ) -> Result<Plan, Error<ImportRefused>> {
        let plan = import.plan(&self.present(&import).await?).map_err(Error::Refused)?;
        if is_dry_run {
            return Ok(plan);
        }
        let reserved = self.reserve(import.account, &plan.keys).await?;
        let mut made = Plan {
            existing_groups: plan.existing_groups.clone(),
            existing_keys: plan.existing_keys.clone(),
            ..Plan::default()
        };
        let (mut events, most) = (0, self.records.most_words() / MOST_WORDS_EACH);
        for part in parts(&import, &plan, &reserved, most) {
            let made_part =
                self.lanes.change(import.account, |change| make(change, &part, act, events)).await;
            let of_part = made_part.map_err(|error: Error<_>| error.map(|refused| part.refused(refused)))?;
            events += u32::try_from(of_part.events(act, events).count()).unwrap_or(u32::MAX);
            part.add(of_part, &mut made);
        }
        made.existing_groups.sort_unstable();
        made.existing_keys.sort_unstable();
        Ok(made)
    }

    /// Finds out what the account already has of an import.
    async fn present(&self, import: &Import) -> Result<Present, StoreError> {
        let account = import.account;
        let profile =
            self.read().get::<AccountProfile>(&layout::space(account), layout::account_profile()).await?;
        let AccountProfile { keys, groups, .. } = profile.ok_or_else(|| StoreError::no_account(account))?;
        let digests = import.keys.iter().map(|imported| imported.digest).collect();
        let owners: Vec<_> = self.owners(digests).await?;
        let own = |owner: &Option<Principal>| match owner {
            Some(Principal::ApiKey(of, key)) if *of == account => Some(*key),
            Some(Principal::ApiKey(..) | Principal::ManagementKey(..) | Principal::OperatorKey(..))
            | None => None,
        };
        let made = self.made(account, owners.iter().filter_map(own).collect()).await?;
        let owner = |owner: &Option<Principal>| match (owner, own(owner)) {
            (None, _) => DigestOwner::None,
            (Some(_), None) => DigestOwner::Other,
            (Some(_), Some(key)) if made.contains(&key) => DigestOwner::Key,
            (Some(_), Some(key)) => DigestOwner::Reserved(key),
        };
        let named = self.named(import).await?;
        Ok(Present { keys, groups, owners: owners.iter().map(owner).collect(), named })
    }

    /// Finds the groups that the import names, and finds out whether keys can be put into them.
    async fn named(
        &self,
        import: &Import,
    ) -> Result<HashMap<String, (GroupId, Result<(), BadGroup>)>, StoreError> {
        let names: Vec<&str> = import.group_names().collect::<HashSet<_>>().into_iter().collect();
        let ids = self.groups_with_external_ids(import.account, &names).await?;
        let found: Vec<GroupId> = ids.iter().copied().flatten().collect();
        let found = self.groups_by_id(import.account, &found).await?;
        let parents: HashSet<GroupId> = found.iter().filter_map(|group| group.spend.parent).collect();
        let parents = self.groups_by_id(import.account, &parents.into_iter().collect::<Vec<_>>()).await?;
        let known: HashMap<GroupId, &ledger::Group> =
            found.iter().chain(&parents).map(|group| (group.id, &group.spend)).collect();
        let judge = |id: GroupId| {
            let group = known.get(&id).copied();
            let parent = group.and_then(|group| group.parent).and_then(|parent| known.get(&parent).copied());
            (id, group::takes_keys(group, parent))
        };
        let found = names.into_iter().zip(ids);
        Ok(found.filter_map(|(name, id)| Some((name.to_owned(), judge(id?)))).collect())
    }

    async fn made(&self, account: AccountId, ids: Vec<KeyId>) -> Result<HashSet<KeyId>, StoreError> {
        let mut made = HashSet::new();
        for some in ids.chunks(FOUND_AT_ONCE) {
            let names = some.iter().map(|id| names::key(*id).into());
            let found = self.read().records_of(&layout::space(account), names.collect()).await?;
            made.extend(some.iter().zip(found).filter(|(_, found)| found.is_some()).map(|(id, _)| *id));
        }
        Ok(made)
    }

    /// Returns the owners of these digests, in their order.
    async fn owners(&self, digests: Vec<Digest>) -> Result<Vec<Option<Principal>>, StoreError> {
        let found = stream::iter(digests).map(|digest| self.find_credential(digest));
        let found: Vec<Option<Credential>> = found.buffered(ASKED_AT_ONCE).try_collect().await?;
        Ok(found.into_iter().map(|found| found.map(|found| found.owner)).collect())
    }

    /// Permanently reserves the digests for the ids of their keys. Returns the ids for which the digests are reserved.
    /// If an earlier import of the account reserved a digest, this is the earlier id.
    async fn reserve(&self, account: AccountId, keys: &[(ApiKey, Digest)]) -> Result<Vec<KeyId>, StoreError> {
        let credential = |id| Credential::first(Principal::ApiKey(account, id));
        let new: Vec<_> = keys.iter().map(|(key, digest)| (*digest, credential(key.id))).collect();
        let put = |(digest, credential)| async move {
            self.put_credential(&digest, credential).await?;
            Ok::<_, StoreError>(digest)
        };
        let digests: Vec<Digest> = stream::iter(new).map(put).buffered(ASKED_AT_ONCE).try_collect().await?;
        let own = |owner| match owner {
            Some(Principal::ApiKey(of, id)) if of == account => Ok(id),
            // The digest was free when the import was planned. If the import is tried again, it will find the other
            // key.
            Some(Principal::ApiKey(..) | Principal::ManagementKey(..) | Principal::OperatorKey(..))
            | None => Err(StoreError::Busy("another account is importing the same key")),
        };
        self.owners(digests).await?.into_iter().map(own).collect()
    }
}

/// Splits a planned import into parts of at most `most` groups and keys. Groups come first, so that keys find their
/// groups. `reserved` has the ids of the planned keys. If there is only one part, its commit checks the account's
/// maximum numbers of keys and groups. If there are several, only the plan has checked them.
fn parts(import: &Import, plan: &Plan, reserved: &[KeyId], most: usize) -> Vec<Part> {
    /// Position in the import: a group's index, or a key's index and id.
    enum Place {
        Group(usize),
        Key(usize, KeyId),
    }
    let is_new = |existing: &[usize], at: &usize| existing.binary_search(at).is_err();
    let groups = (0..import.groups.len()).filter(|at| is_new(&plan.existing_groups, at)).map(Place::Group);
    let keys = (0..import.keys.len()).filter(|at| is_new(&plan.existing_keys, at));
    let keys = keys.zip(reserved).map(|(at, id)| Place::Key(at, *id));
    let places: Vec<Place> = groups.chain(keys).collect();
    let is_whole = places.len() <= most;
    let bound = |most| if is_whole { most } else { u64::MAX };
    let (most_keys, most_groups) = (bound(import.most_keys), bound(import.most_groups));
    let part = |places: &[Place]| {
        let empty =
            Import { account: import.account, groups: Vec::new(), keys: Vec::new(), most_keys, most_groups };
        let mut part = Part { import: empty, places: (Vec::new(), Vec::new()), reserved: Vec::new() };
        for place in places {
            match place {
                Place::Group(at) => {
                    part.import.groups.push(import.groups[*at].clone());
                    part.places.0.push(*at);
                }
                Place::Key(at, id) => {
                    part.import.keys.push(import.keys[*at].clone());
                    part.places.1.push(*at);
                    part.reserved.push(*id);
                }
            }
        }
        part
    };
    places.chunks(most).map(part).collect()
}

/// Creates a part of an import, completely or not at all. `events` is the number that the part's first event has within
/// the act.
fn make(
    change: &mut Change<'_>,
    Part { import, places: _, reserved }: &Part,
    act: &Act,
    events: u32,
) -> Result<Plan, Error<ImportRefused>> {
    let mut present = Present::default();
    let is_account = change.account()?.is_some();
    let profile = change.get::<AccountProfile>(&layout::account_profile())?;
    (present.keys, present.groups) = profile.map_or((0, 0), |profile| (profile.keys, profile.groups));
    for id in reserved {
        present.owners.push(if change.key(*id)?.is_some() {
            DigestOwner::Key
        } else {
            DigestOwner::Reserved(*id)
        });
    }
    for name in import.group_names() {
        if !present.named.contains_key(name)
            && let Some(id) = groups::with_external_id(change, name)?
        {
            present.named.insert(name.to_owned(), (id, takes_key(change, Some(id))?));
        }
    }
    if !is_account {
        return Err(StoreError::no_account(import.account).into());
    }
    let plan = import.plan(&present).map_err(Error::Refused)?;
    for group in &plan.groups {
        groups::insert_group(change, group)?;
    }
    for (key, _) in &plan.keys {
        insert_key(change, key)?;
    }
    for event in plan.events(act, events) {
        change.event(event);
    }
    for group in &plan.groups {
        groups::tell_passed(change, None, group, act);
    }
    for (key, _) in &plan.keys {
        stored::tell_passed(change, None, key, act);
    }
    Ok(plan)
}

impl Part {
    /// Returns a refusal of this part with the index in the whole import.
    fn refused(&self, refused: ImportRefused) -> ImportRefused {
        let place = |at: usize| self.places.1.get(at).copied().unwrap_or(at);
        match refused {
            ImportRefused::Taken(at) => ImportRefused::Taken(place(at)),
            ImportRefused::BadGroup(at, bad) => ImportRefused::BadGroup(place(at), bad),
            ImportRefused::TooManyKeys | ImportRefused::TooManyGroups => refused,
        }
    }

    /// Adds what this part has created and found to the result of the whole import.
    fn add(&self, part: Plan, whole: &mut Plan) {
        let Plan { groups, keys, existing_groups, existing_keys } = part;
        whole.groups.extend(groups);
        whole.keys.extend(keys);
        let (of_groups, of_keys) = &self.places;
        whole.existing_groups.extend(existing_groups.into_iter().filter_map(|at| of_groups.get(at)));
        whole.existing_keys.extend(existing_keys.into_iter().filter_map(|at| of_keys.get(at)));
    }
}
