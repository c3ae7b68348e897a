//! Imports of keys and groups.
//!
//! Digests lie in other slots than the account, and the keys are too many for one script. So an import is planned first;
//! then each digest is reserved for the id of its key, then groups are made, and at last the keys, some in each script. All
//! of it may be repeated. A digest that is reserved for a key that does not exist is refused like an unknown one, and the
//! same import makes the key under that very id.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeFrom,
};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, future::try_join_all, stream};
use redis::{Cmd, cmd, pipe};
use shared::{
    ids::{AccountId, KeyId},
    rpc::Principal,
};

use super::{
    Redis,
    accounts::parse_credential,
    records::{self, damaged},
};
use crate::store::{Credential, Credentials, GroupCreated, Groups, Imports, StoreError};
use domain::{
    digest::Digest,
    event::{Act, Event},
    group::NewGroup,
    key::ApiKey,
    moving::{Import, ImportRefused, Owner, Plan, Present, events_of},
};

/// Digests looked up or reserved at once.
const ASKED_AT_ONCE: usize = 64;
/// Reservations that wait for the disk together; half of those that may wait.
const CONFIRMED_TOGETHER: usize = 2048;
/// Keys looked for in a round trip.
const FOUND_AT_ONCE: usize = 500;
/// Keys written by a script: a millisecond of Redis.
const WRITTEN_AT_ONCE: usize = 50;

#[async_trait]
impl Imports for Redis {
    async fn import(
        &self,
        import: Import,
        is_dry_run: bool,
        act: &Act,
    ) -> Result<Result<Plan, ImportRefused>, StoreError> {
        let account = import.account;
        let present = self.present(&import).await?;
        let mut plan = match import.plan(&present) {
            Ok(plan) if !is_dry_run => plan,
            decided => return Ok(decided),
        };
        if !self.reserve(account, &mut plan.keys).await? {
            // The digest was free when the import was planned: the next attempt names its key.
            return Err(StoreError::Busy("another account imports the same key"));
        }
        let mut moved = HashMap::new();
        for (n, group) in (0..).zip(&plan.groups) {
            let used = group.spend.budget.used.nanos().to_string();
            let mut put = cmd("HSET");
            put.arg(self.key_space.account(account))
                .arg(records::opening_field(&records::group_field(group.id)))
                .arg(used);
            self.client.ask::<()>(&put).await?;
            let new = NewGroup { account, group: group.clone(), most: u64::MAX >> 11 };
            match self.create_group(new, None, &act.clone().nth(n)).await? {
                GroupCreated::New(_) => {}
                // Another caller made the group since the import was planned.
                GroupCreated::Existing(existing) => drop(moved.insert(group.id, existing.id)),
                GroupCreated::BadParent(_)
                | GroupCreated::TooMany
                | GroupCreated::Replayed(_)
                | GroupCreated::Reused => return Err(damaged("a group")),
            }
        }
        for (key, _) in &mut plan.keys {
            key.spend.group = key.spend.group.map(|group| *moved.get(&group).unwrap_or(&group));
        }
        let mut numbers = u32::try_from(plan.groups.len()).unwrap_or(u32::MAX)..;
        for some in plan.keys.chunks(WRITTEN_AT_ONCE) {
            self.write_keys(account, some, act, &mut numbers).await?;
        }
        self.confirm_account(account).await?;
        Ok(Ok(plan))
    }
}

impl Redis {
    async fn present(&self, import: &Import) -> Result<Present, StoreError> {
        let account = import.account;
        let mut counts = pipe();
        counts.cmd("HGET").arg(self.key_space.account(account)).arg("keys");
        counts.cmd("ZCARD").arg(self.key_space.groups(account));
        let (keys, groups): (Option<u64>, u64) = self.client.ask_all(&counts).await?;
        let keys = keys.ok_or_else(|| StoreError::no_account(account))?;
        let mut named = HashMap::new();
        let distinct: HashSet<&str> = import.group_names().collect();
        for name in distinct {
            if let Some(group) = self.group_with_external_id(account, name).await? {
                let judged = self.takes_keys(account, Some(group.id)).await?;
                named.insert(name.to_owned(), (group.id, judged.of));
            }
        }
        let digests: Vec<Digest> = import.keys.iter().map(|imported| imported.digest).collect();
        let owners = stream::iter(digests).map(|digest| self.find_credential(digest));
        let owners: Vec<Option<Credential>> = owners.buffered(ASKED_AT_ONCE).try_collect().await?;
        let owners: Vec<Option<Principal>> =
            owners.iter().map(|found| found.map(|found| found.owner)).collect();
        let own = |owner: &Option<Principal>| match owner {
            Some(Principal::ApiKey(of, key)) if *of == account => Some(*key),
            Some(Principal::ApiKey(..) | Principal::ManagementKey(..)) | None => None,
        };
        let ids: Vec<KeyId> = owners.iter().filter_map(own).collect();
        let made = self.made(account, &ids).await?;
        let owner = |owner: &Option<Principal>| match (owner, own(owner)) {
            (None, _) => Owner::None,
            (Some(_), None) => Owner::Other,
            (Some(_), Some(key)) if made.contains(&key) => Owner::Key,
            (Some(_), Some(key)) => Owner::Reserved(key),
        };
        Ok(Present { keys, groups, owners: owners.iter().map(owner).collect(), named })
    }

    /// The keys that exist.
    async fn made(&self, account: AccountId, ids: &[KeyId]) -> Result<HashSet<KeyId>, StoreError> {
        let mut made = HashSet::new();
        for some in ids.chunks(FOUND_AT_ONCE) {
            let mut questions = pipe();
            for id in some {
                questions.cmd("HEXISTS").arg(self.key_space.account(account)).arg(id.as_bytes());
            }
            let found: Vec<bool> = self.client.ask_all(&questions).await?;
            made.extend(some.iter().zip(found).filter(|(_, is_found)| *is_found).map(|(id, _)| *id));
        }
        Ok(made)
    }

    /// Reserves the digests for the ids of their keys, for good. A key whose digest is reserved already gets the reserved
    /// id. Returns `false` where a digest belongs to another account.
    async fn reserve(&self, account: AccountId, keys: &mut [(ApiKey, Digest)]) -> Result<bool, StoreError> {
        let reservations: Vec<Cmd> = keys
            .iter()
            .map(|(key, digest)| {
                let mut put = cmd("SET");
                put.arg(self.key_space.credential(digest))
                    .arg(format!("{account} {}", key.id))
                    .arg("NX")
                    .arg("GET");
                put
            })
            .collect();
        let ask = |put: Cmd| async move { self.client.ask::<Option<String>>(&put).await };
        let reserved = stream::iter(reservations.clone()).map(ask);
        let reserved: Vec<Option<String>> = reserved.buffered(ASKED_AT_ONCE).try_collect().await?;
        for ((key, _), owner) in keys.iter_mut().zip(reserved) {
            match owner
                .map(|owner| parse_credential(&owner).ok_or_else(|| damaged("a credential")))
                .transpose()?
                .map(|found| found.owner)
            {
                None => {}
                Some(Principal::ApiKey(of, id)) if of == account => key.id = id,
                Some(Principal::ApiKey(..) | Principal::ManagementKey(..)) => return Ok(false),
            }
        }
        // A key must not outlive its reservation, or a repetition would make a second key.
        for some in reservations.chunks(CONFIRMED_TOGETHER) {
            let confirm = |put: Cmd| async move { self.confirm(&put).await };
            try_join_all(some.iter().cloned().map(confirm)).await?;
        }
        Ok(true)
    }

    /// Writes keys with their events, whose numbers among those of the act come from `numbers`.
    async fn write_keys(
        &self,
        account: AccountId,
        keys: &[(ApiKey, Digest)],
        act: &Act,
        numbers: &mut RangeFrom<u32>,
    ) -> Result<(), StoreError> {
        let mut arguments = self.key_arguments(account);
        arguments.key(self.key_space.keys(account));
        arguments.key(self.key_space.spenders(account));
        for (key, _) in keys {
            arguments.key(self.key_space.key(account, key.id));
            let none = || self.key_space.account(account);
            arguments.key(key.spend.group.map_or_else(none, |group| self.key_space.keys_in(account, group)));
            arguments.value(*key.id.as_bytes());
            arguments.value(key.id.to_string());
            arguments.value(records::write_spend(&key.spend));
            arguments.value(records::opening_field(key.id.as_bytes()));
            let events = events_of(key, act.at).zip(&mut *numbers);
            let events: Vec<Event> =
                events.map(|(((key, group), kind), n)| act.event(n, key, group, kind)).collect();
            let texts = records::write_key(key);
            arguments = arguments.with((2 * events.len()).to_string()).with(texts.len().to_string());
            for event in events {
                arguments = arguments.with(*event.id.as_bytes()).with(event.to_json());
            }
            arguments = arguments.with_all(texts);
        }
        let arguments = self.with_act(arguments, account, act);
        let answer: Option<String> = self.client.run(&self.scripts.import_keys, &arguments).await?;
        answer.map(drop).ok_or_else(|| StoreError::no_account(account))
    }
}
