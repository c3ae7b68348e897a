//! API keys.

use std::{collections::HashSet, fmt::Display, str::FromStr};

use async_trait::async_trait;
use redis::{Value, cmd, pipe};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    rpc::Principal,
    time::Timestamp,
};

use super::{
    Redis,
    groups::{Judged, Revision},
    idempotency::idempotency_record,
    records::{self, KEY_TEXTS, KeyTexts, Scanned, amount, damaged},
    script::Arguments,
};
use crate::store::{
    Created, Credential, Idempotency, KeyName, Keys, Order, Page, Rotated, StoreError, Updated,
};
use domain::{
    event::{Act, Event, EventKind},
    group::BadGroup,
    key::{ApiKey, KeyNotChanged, KeyPatch, NewCredential, NewKey},
    ledger,
};

/// A key in Redis: the ledger's part, then texts.
type Found = (Option<Vec<u8>>, KeyTexts);

/// Keys read per round trip of a listing: some hundred kilobytes, a millisecond of Redis.
const READ_AT_ONCE: usize = 500;

#[async_trait]
impl Keys for Redis {
    async fn create_key(
        &self,
        NewKey { account, key, digest, most }: NewKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Created, StoreError> {
        let event = act.event(0, Some(key.id), key.spend.group, key.creation(act.at));
        let mut turn = self.turn(key.id.as_bytes()).await?;
        loop {
            turn.attempt().await?;
            let judged = self.takes_keys(account, key.spend.group).await?;
            let arguments = self.creation(account, &key, most, idempotency.as_ref(), &judged);
            let arguments = self.with_event(arguments, account, Some(&event));
            let answer: Option<Vec<String>> = self.client.run(&self.scripts.create_key, &arguments).await?;
            let Some(answer) = answer else { return Err(StoreError::no_account(account)) };
            let created = async |id: &str| {
                let id = id.parse().map_err(|_| damaged("an idempotency record"))?;
                self.key(account, id).await?.ok_or_else(|| damaged("an idempotency record"))
            };
            return Ok(match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["new", id] => {
                    let created = created(id).await?;
                    self.confirm_account(account).await?;
                    let owner = Principal::ApiKey(account, key.id);
                    self.put_credential(&digest, Credential::first(owner)).await?;
                    Created::New(created)
                }
                ["replayed", id] => Created::Replayed(created(id).await?),
                ["reused"] => Created::Reused,
                ["full"] => Created::TooMany,
                ["bad_group"] => Created::BadGroup(judged.of.err().unwrap_or(BadGroup::Unknown)),
                ["stale"] => continue,
                _ => return Err(damaged("the answer to a creation")),
            });
        }
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let mut read = pipe();
        read.cmd("HGET").arg(self.key_space.account(account)).arg(id.as_bytes());
        read.cmd("HMGET").arg(self.key_space.key(account, id)).arg(&KEY_TEXTS);
        let (spend, texts): Found = self.client.ask_all(&read).await?;
        records::read_key(id, texts, spend.as_deref())
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        let index = self.index_of(account, page.status).await?;
        self.keys_in_index(account, index, page).await
    }

    async fn key_names(&self, account: AccountId, page: Page) -> Result<Vec<KeyName>, StoreError> {
        self.names_of_keys(account, page).await
    }

    /// Reads the sorted set of keys by spend, which the ledger keeps.
    async fn top_spending(
        &self,
        account: AccountId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let spenders = self.key_space.spenders(account);
        self.list_spenders(account).await?;
        // The first member is the mark of a complete set.
        let mut first = 1;
        if let Some(after) = after {
            let mut place = cmd("ZREVRANK");
            place.arg(&spenders).arg(after.as_bytes());
            first = self.client.ask::<Option<usize>>(&place).await?.map_or(1, |place| place + 1);
        }
        let mut question = cmd("ZRANGE");
        question.arg(&spenders).arg(first).arg(first + limit.max(1) - 1).arg("REV");
        let ids: Vec<Vec<u8>> = self.client.ask(&question).await?;
        let ids = ids.iter().map(|id| KeyId::from_slice(id).ok_or_else(|| damaged("the keys by spend")));
        let keys = self.keys_of(account, &ids.collect::<Result<Vec<_>, _>>()?).await?;
        // A key whose charges were all given back is still in the set.
        Ok(keys.into_iter().filter(|key| key.spend.budget.used > NanoUsd::ZERO).take(limit).collect())
    }

    /// Reads all holds of the account, which are as many as requests in flight.
    async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        // A hold may come twice while others are opened.
        let (mut holds, mut cursor) = (HashSet::new(), "0".to_owned());
        loop {
            let (next, found): Scanned = self.client.ask(&self.scan_holds(account, &cursor)).await?;
            let is_of = |record: &[u8]| records::read_hold(record).is_some_and(|hold| hold.key == key);
            holds.extend(
                found.into_iter().filter(|(_, record)| is_of(record)).map(|(generation, _)| generation),
            );
            if next == "0" {
                return Ok(holds.len() as u64);
            }
            cursor = next;
        }
    }

    /// Computes the change from what was read, and writes the change unless the key has another revision by then. What
    /// the ledger changes meanwhile stays.
    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        act: &Act,
    ) -> Result<Updated, StoreError> {
        let mut turn = self.turn(id.as_bytes()).await?;
        loop {
            turn.attempt().await?;
            let Some((key, revision)) = self.key_with_revision(account, id).await? else {
                return Ok(Updated::NotFound);
            };
            let old = key.clone();
            let before = key.spend.group;
            let key = match key.updated(&patch, act.at) {
                Ok(key) => key,
                Err(reason) => return Ok(Updated::NotChanged(reason)),
            };
            let judged = self.takes_keys(account, patch.group.flatten()).await?;
            if let Err(bad) = judged.of {
                return Ok(Updated::BadGroup(bad));
            }
            let ledger::Key { budget, group, rotation, expires_at, .. } = &key.spend;
            let mut change = KeyChange {
                moved: (before != *group).then_some((before, *group)),
                revisions: [
                    revision.number.clone(),
                    patch.group.map(|_| judged.revision).unwrap_or_default(),
                ],
                settings: vec![
                    ("limit", budget.limit.map(amount)),
                    ("expires_at", expires_at.map(Timestamp::millis)),
                ],
                rest: Some(records::write_rest(*group, *rotation, budget.bounds.as_deref())),
                texts: records::write_changed_key(&key),
                event: key.change(&old, act.at).map(|kind| act.event(0, Some(id), *group, kind)),
            };
            if let Some((Some(group), _)) = change.moved {
                change.texts.extend(["past_groups".to_owned(), revision.past_with(group)]);
            }
            match self.change_key(account, id, change, act.at).await? {
                None => return Ok(Updated::NotFound),
                Some((Changed::Revoked, _)) => return Ok(Updated::NotChanged(KeyNotChanged::Revoked)),
                Some((Changed::Now, key)) => return Ok(Updated::Key(key)),
                Some((Changed::Stale, _)) => {}
            }
        }
    }

    async fn rotate_key(
        &self,
        new: NewCredential,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Rotated, StoreError> {
        self.rotate(new, idempotency, act).await
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<Option<ApiKey>, StoreError> {
        let mut turn = self.turn(id.as_bytes()).await?;
        loop {
            turn.attempt().await?;
            let Some((key, revision)) = self.key_with_revision(account, id).await? else { return Ok(None) };
            let change = KeyChange {
                revisions: [revision.number, String::new()],
                settings: vec![("revoked_at", Some(act.at.to_whole_seconds().millis()))],
                event: Some(act.event(0, Some(id), key.spend.group, EventKind::KeyRevoked {})),
                ..KeyChange::default()
            };
            match self.change_key(account, id, change, act.at).await? {
                None => return Ok(None),
                Some((Changed::Now | Changed::Revoked, key)) => return Ok(Some(key)),
                Some((Changed::Stale, _)) => {}
            }
        }
    }
}

/// A change of a key in Redis.
#[derive(Default)]
struct KeyChange {
    /// Groups before and after.
    moved: Option<(Option<GroupId>, Option<GroupId>)>,
    /// Revisions of the key and of the account's groups from which the change was computed; empty for any.
    revisions: [String; 2],
    /// Numbers of the record.
    settings: Vec<(&'static str, Option<i64>)>,
    /// Group, rotation and bounds.
    rest: Option<Vec<u8>>,
    /// Names and values of texts.
    texts: Vec<String>,
    /// Event of the change.
    event: Option<Event>,
}

/// Result of `scripts/update_key.lua`.
enum Changed {
    Now,
    Revoked,
    /// A revision has changed since.
    Stale,
}

impl Redis {
    /// Arguments of a creation.
    fn creation(
        &self,
        account: AccountId,
        key: &ApiKey,
        most: u64,
        attempt: Option<&Idempotency>,
        judged: &Judged,
    ) -> Arguments {
        let mut arguments = self.key_arguments(account);
        arguments.key(self.key_space.keys(account));
        arguments.key(self.key_space.key(account, key.id));
        arguments.key(self.idempotency_name(account, attempt));
        if let Some(group) = key.spend.group {
            arguments.key(self.key_space.keys_in(account, group));
        }
        let arguments = arguments.with(*key.id.as_bytes()).with(key.id.to_string());
        let arguments = arguments.with(records::write_spend(&key.spend)).with(most.to_string());
        let arguments = arguments.with_all(idempotency_record(attempt).into());
        let arguments = arguments.with(judged.revision.as_str()).with(judged.refusal());
        arguments.with_all(records::write_key(key))
    }

    /// Changes a key, unless the key is revoked. Returns the result, and the key.
    async fn change_key(
        &self,
        account: AccountId,
        id: KeyId,
        change: KeyChange,
        now: Timestamp,
    ) -> Result<Option<(Changed, ApiKey)>, StoreError> {
        let KeyChange { moved, revisions, settings, rest, texts, event } = change;
        let mut arguments = self.key_arguments(account);
        arguments.key(self.key_space.key(account, id));
        if let Some((before, after)) = moved {
            for group in [before, after] {
                let none = || self.key_space.account(account);
                arguments.key(group.map_or_else(none, |group| self.key_space.keys_in(account, group)));
            }
        }
        let mut arguments =
            arguments.with(*id.as_bytes()).with(id.to_string()).with(now.millis().to_string());
        arguments = arguments.with_all(revisions.into()).with(settings.len().to_string());
        for (name, value) in settings {
            arguments = arguments.with(name).with(records::write_setting(value));
        }
        if let Some(rest) = rest {
            // Nothing follows the numbers of most keys; a script sees that as no flags.
            arguments.value(if rest.is_empty() { vec![0] } else { rest });
        }
        let arguments = self.with_event(arguments.with_all(texts), account, event.as_ref());
        let found: Option<(String, Vec<u8>, KeyTexts)> =
            self.client.run(&self.scripts.update_key, &arguments).await?;
        let Some((result, spend, texts)) = found else { return Ok(None) };
        self.confirm_account(account).await?;
        let result = match result.as_str() {
            "changed" => Changed::Now,
            "revoked" => Changed::Revoked,
            _ => Changed::Stale,
        };
        Ok(records::read_key(id, texts, Some(&spend))?.map(|key| (result, key)))
    }

    /// Reads a key with its revision.
    pub(super) async fn key_with_revision(
        &self,
        account: AccountId,
        id: KeyId,
    ) -> Result<Option<(ApiKey, Revision)>, StoreError> {
        let name = self.key_space.key(account, id);
        // A change between both readings makes the revision stale.
        let revision = self.revision(&name, "past_groups").await?;
        Ok(self.key(account, id).await?.map(|key| (key, revision)))
    }

    /// Reads keys in the order of these ids, without those that do not exist.
    pub(super) async fn keys_of(&self, account: AccountId, ids: &[KeyId]) -> Result<Vec<ApiKey>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut read = pipe();
        let mut spends = cmd("HMGET");
        spends.arg(self.key_space.account(account));
        for id in ids {
            spends.arg(id.as_bytes());
            read.cmd("HMGET").arg(self.key_space.key(account, *id)).arg(&KEY_TEXTS);
        }
        read.add_command(spends);
        let mut all: Vec<Value> = self.client.ask_all(&read).await?;
        let spends: Vec<Option<Vec<u8>>> =
            redis::from_redis_value(all.pop().ok_or_else(|| damaged("a list of keys"))?)?;
        let keys = ids.iter().zip(all).zip(spends).map(|((id, texts), spend)| {
            records::read_key(*id, redis::from_redis_value(texts)?, spend.as_deref())
        });
        keys.filter_map(Result::transpose).collect()
    }

    /// Reads a page in parts; each part of the index and of the keys takes a round trip.
    pub(super) async fn keys_in_index(
        &self,
        account: AccountId,
        index: String,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let is_wanted = |key: &ApiKey| page.status.is_none_or(|(status, now)| key.status(now) == status);
        let (mut keys, mut after) = (Vec::new(), page.after);
        while keys.len() < page.limit {
            let wanted = (page.limit - keys.len()).min(READ_AT_ONCE);
            let ids = self.ids_behind(&index, after, page.order, wanted).await?;
            keys.extend(self.keys_of(account, &ids).await?.into_iter().filter(is_wanted));
            after = ids.last().copied();
            if ids.len() < wanted {
                break;
            }
        }
        Ok(keys)
    }

    /// Reads ids of a sorted set behind an id. All ids have the same score, so that they sort by themselves.
    pub(super) async fn ids_behind<Id: Display + FromStr>(
        &self,
        index: &str,
        after: Option<Id>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Id>, StoreError> {
        let behind = after.map(|id| format!("({id}"));
        let mut question = cmd("ZRANGE");
        question.arg(index);
        match order {
            Order::Ascending => question.arg(behind.as_deref().unwrap_or("-")).arg("+").arg("BYLEX"),
            Order::Descending => {
                question.arg(behind.as_deref().unwrap_or("+")).arg("-").arg("BYLEX").arg("REV")
            }
        };
        question.arg("LIMIT").arg("0").arg(i64::try_from(limit).unwrap_or(i64::MAX));
        let ids: Vec<String> = self.client.ask(&question).await?;
        ids.iter().map(|id| id.parse().map_err(|_| damaged("an id in a list"))).collect()
    }
}
