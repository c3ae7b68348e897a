//! API keys and idempotency keys.

use std::collections::HashSet;

use async_trait::async_trait;
use redis::{Value, cmd, pipe};
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    rpc::Principal,
    time::Timestamp,
};

use super::{
    Redis,
    records::{self, KEY_TEXTS, KeyTexts, Scanned, amount, damaged},
};
use crate::store::{Created, Idempotency, Keys, Order, Page, StoreError, Updated};
use domain::key::{ApiKey, KeyNotChanged, KeyPatch, NewKey};

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
    ) -> Result<Created, StoreError> {
        let mut arguments = self.key_arguments(account);
        arguments.key(self.key_space.keys(account));
        arguments.key(self.key_space.key(account, key.id));
        // Without an attempt the script leaves the idempotency record alone.
        let name = idempotency.as_ref().map_or(digest, |attempt| attempt.key);
        arguments.key(self.key_space.promise(account, &name));
        let arguments = arguments.with(*key.id.as_bytes()).with(key.id.to_string());
        let arguments = arguments.with(records::write_spend(&key.spend)).with(most.to_string());
        let arguments = arguments.with_all(idempotency_record(idempotency.as_ref()).into());
        let arguments = arguments.with_all(records::write_key(&key));
        let answer: Option<Vec<String>> = self.client.run(&self.scripts.create_key, &arguments).await?;
        let Some(answer) = answer else { return Err(StoreError::no_account(account)) };
        let created = async |id: &str| {
            let id = id.parse().map_err(|_| damaged("an idempotency record"))?;
            self.key(account, id).await?.ok_or_else(|| damaged("an idempotency record"))
        };
        Ok(match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["new", id] => {
                let created = created(id).await?;
                self.confirm_account(account).await?;
                self.put_credential(&digest, Principal::ApiKey(account, key.id)).await?;
                Created::New(created)
            }
            ["replayed", id] => Created::Replayed(created(id).await?),
            ["reused"] => Created::Reused,
            ["full"] => Created::TooMany,
            _ => return Err(damaged("the answer to a creation")),
        })
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let mut read = pipe();
        read.cmd("HGET").arg(self.key_space.account(account)).arg(id.as_bytes());
        read.cmd("HMGET").arg(self.key_space.key(account, id)).arg(&KEY_TEXTS);
        let (spend, texts): Found = self.client.ask_all(&read).await?;
        records::read_key(id, texts, spend.as_deref())
    }

    /// Reads a page in parts; each part of the index and of the keys takes a round trip.
    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        if let Some((_, now)) = page.status {
            self.list_statuses(account, now).await?;
        }
        let is_wanted = |key: &ApiKey| page.status.is_none_or(|(status, now)| key.status(now) == status);
        let (mut keys, mut after) = (Vec::new(), page.after);
        while keys.len() < page.limit {
            let wanted = (page.limit - keys.len()).min(READ_AT_ONCE);
            let ids = self.key_ids(account, Page { after, limit: wanted, ..page }).await?;
            keys.extend(self.keys_of(account, &ids).await?.into_iter().filter(is_wanted));
            after = ids.last().copied();
            if ids.len() < wanted {
                break;
            }
        }
        Ok(keys)
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
            let is_of = |record: &[u8]| records::read_hold(record).is_some_and(|(payer, _)| payer == key);
            holds.extend(
                found.into_iter().filter(|(_, record)| is_of(record)).map(|(generation, _)| generation),
            );
            if next == "0" {
                return Ok(holds.len() as u64);
            }
            cursor = next;
        }
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        KeyPatch { label, bounds, expires_at, .. }: KeyPatch,
        _now: Timestamp,
    ) -> Result<Updated, StoreError> {
        let limit = bounds.limit.map(|limit| ("limit", limit.map(amount)));
        let expires_at = expires_at.map(|at| ("expires_at", at.map(Timestamp::millis)));
        let settings: Vec<_> = limit.into_iter().chain(expires_at).collect();
        let texts = label.map(|label| vec!["label".to_owned(), label]).unwrap_or_default();
        Ok(match self.change_key(account, id, &settings, texts).await? {
            None => Updated::NotFound,
            Some((false, _)) => Updated::NotChanged(KeyNotChanged::Revoked),
            Some((true, key)) => Updated::Key(key),
        })
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, StoreError> {
        let revoked = [("revoked_at", Some(now.millis()))];
        Ok(self.change_key(account, id, &revoked, Vec::new()).await?.map(|(_, key)| key))
    }
}

impl crate::store::Groups for Redis {}

impl Redis {
    /// Changes settings in the record of a key, and texts, unless the key is revoked. Returns whether the key was
    /// changed, and the result.
    async fn change_key(
        &self,
        account: AccountId,
        id: KeyId,
        settings: &[(&str, Option<i64>)],
        texts: Vec<String>,
    ) -> Result<Option<(bool, ApiKey)>, StoreError> {
        let mut arguments = self.key_arguments(account);
        arguments.key(self.key_space.key(account, id));
        let mut arguments = arguments.with(*id.as_bytes()).with(id.to_string());
        arguments.value(settings.len().to_string());
        for (name, value) in settings {
            arguments = arguments.with(*name).with(records::write_setting(*value));
        }
        let arguments = arguments.with_all(texts);
        let found: Option<(bool, Vec<u8>, KeyTexts)> =
            self.client.run(&self.scripts.update_key, &arguments).await?;
        let Some((is_changed, spend, texts)) = found else { return Ok(None) };
        self.confirm_account(account).await?;
        Ok(records::read_key(id, texts, Some(&spend))?.map(|key| (is_changed, key)))
    }

    /// Reads keys in the order of these ids, without those that do not exist.
    async fn keys_of(&self, account: AccountId, ids: &[KeyId]) -> Result<Vec<ApiKey>, StoreError> {
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

    /// Reads the ids of a page. All ids have the same score, so that they sort by themselves.
    pub(super) async fn key_ids(&self, account: AccountId, page: Page) -> Result<Vec<KeyId>, StoreError> {
        let behind = page.after.map(|id| format!("({id}"));
        let mut question = cmd("ZRANGE");
        question.arg(match page.status {
            None => self.key_space.keys(account),
            Some((status, _)) => self.key_space.keys_of(account, status),
        });
        match page.order {
            Order::Ascending => {
                question.arg(behind.as_deref().unwrap_or("-")).arg("+").arg("BYLEX");
            }
            Order::Descending => {
                question.arg(behind.as_deref().unwrap_or("+")).arg("-").arg("BYLEX").arg("REV");
            }
        }
        question.arg("LIMIT").arg("0").arg(page.limit);
        let ids: Vec<String> = self.client.ask(&question).await?;
        ids.iter().map(|id| id.parse().map_err(|_| damaged("a key's id"))).collect()
    }
}

/// The request, the time, and the end of the idempotency key: by the caller's clock, and as a lifetime for Redis. Empty
/// without an idempotency key.
fn idempotency_record(attempt: Option<&Idempotency>) -> [String; 4] {
    let Some(Idempotency { key: _, request, now, expires_at }) = attempt else { return Default::default() };
    let life = expires_at.millis().saturating_sub(now.millis()).max(1);
    let request = hex::encode(request.as_bytes());
    [request, now.millis().to_string(), expires_at.millis().to_string(), life.to_string()]
}
