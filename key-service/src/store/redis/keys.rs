//! API keys and idempotency keys.

use redis::{RedisResult, Value, cmd, pipe};
use shared::{
    ids::{AccountId, KeyId},
    rpc::Principal,
    time::Timestamp,
};

use super::{
    Redis,
    records::{self, KEY_TEXTS, KeyTexts, amount, damaged, double},
    script::Arguments,
};
use crate::store::{Created, Idempotency, Order, Page, Updated};
use domain::key::{ApiKey, KeyNotChanged, KeyPatch, NewKey, Status};

/// A key in Redis: balances, then texts.
type Found = (Option<Vec<u8>>, KeyTexts);

/// Keys read per round trip of a listing: some hundred kilobytes, a millisecond of Redis.
const READ_AT_ONCE: usize = 500;

impl Redis {
    /// Makes a key; `None` where the account does not exist.
    pub(super) async fn make_key(
        &self,
        NewKey { account, key, digest, most }: &NewKey,
        attempt: Option<&Idempotency>,
    ) -> RedisResult<Option<Created>> {
        // Without an attempt the script leaves the idempotency record alone.
        let name = attempt.map_or(*digest, |attempt| attempt.key);
        let mut arguments = Arguments::keys([
            self.key_space.account(*account),
            self.key_space.keys(*account),
            self.key_space.key(*account, key.id),
            self.key_space.promise(*account, &name),
            self.key_space.keys_of(*account, Status::Active),
            self.key_space.expiring(*account),
        ]);
        arguments.value(key.id.to_string());
        arguments.value(most.to_string());
        for part in attempt.map(promise).unwrap_or_default() {
            arguments.value(part);
        }
        arguments.value(*key.id.as_bytes());
        arguments.value(records::write_spend(&key.spend));
        records::write_key(&mut arguments, key);
        let answer: Option<Vec<String>> = self.client.run(&self.scripts.create_key, &arguments).await?;
        let Some(answer) = answer else { return Ok(None) };
        let made = async |id: &str| {
            let id = id.parse().map_err(|_| damaged("a promise"))?;
            self.read_key(*account, id).await?.ok_or_else(|| damaged("a promise"))
        };
        Ok(Some(match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["new", id] => {
                let made = made(id).await?;
                self.confirm_account(*account).await?;
                self.put_credential(digest, Principal::ApiKey(*account, key.id)).await?;
                Created::New(made)
            }
            ["replayed", id] => Created::Replayed(made(id).await?),
            ["reused"] => Created::Reused,
            ["full"] => Created::TooMany,
            _ => return Err(damaged("the answer to a creation")),
        }))
    }

    pub(super) async fn read_key(&self, account: AccountId, id: KeyId) -> RedisResult<Option<ApiKey>> {
        let mut read = pipe();
        read.cmd("HGET").arg(self.key_space.account(account)).arg(id.as_bytes());
        read.cmd("HMGET").arg(self.key_space.key(account, id)).arg(&KEY_TEXTS);
        let (spend, texts): Found = self.client.ask_all(&read).await?;
        records::read_key(id, texts, spend.as_deref())
    }

    /// Reads a page in parts; each part of the index and of the keys takes a round trip.
    pub(super) async fn read_keys(&self, account: AccountId, page: Page) -> RedisResult<Vec<ApiKey>> {
        if let Some((_, now)) = page.status {
            self.list_statuses(account, now).await?;
        }
        let is_wanted = |key: &ApiKey| page.status.is_none_or(|(status, now)| key.status(now) == status);
        let (mut keys, mut after) = (Vec::new(), page.after);
        while keys.len() < page.limit {
            let wanted = (page.limit - keys.len()).min(READ_AT_ONCE);
            let ids = self.key_ids(account, Page { after, limit: wanted, ..page }).await?;
            if ids.is_empty() {
                break;
            }
            let mut read = pipe();
            let mut balances = cmd("HMGET");
            balances.arg(self.key_space.account(account));
            for id in &ids {
                balances.arg(id.as_bytes());
                read.cmd("HMGET").arg(self.key_space.key(account, *id)).arg(&KEY_TEXTS);
            }
            read.add_command(balances);
            let mut all: Vec<Value> = self.client.ask_all(&read).await?;
            let balances: Vec<Option<Vec<u8>>> =
                redis::from_redis_value(all.pop().ok_or_else(|| damaged("a list of keys"))?)?;
            for ((id, texts), spend) in ids.iter().zip(all).zip(balances) {
                let key = records::read_key(*id, redis::from_redis_value(texts)?, spend.as_deref())?;
                keys.extend(key.filter(is_wanted));
            }
            after = ids.last().copied();
            if ids.len() < wanted {
                break;
            }
        }
        Ok(keys)
    }

    /// Reads the ids of a page. All ids have the same score, so that they sort by themselves.
    pub(super) async fn key_ids(&self, account: AccountId, page: Page) -> RedisResult<Vec<KeyId>> {
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

    pub(super) async fn change_key(
        &self,
        account: AccountId,
        id: KeyId,
        KeyPatch { label, bounds, expires_at, .. }: &KeyPatch,
    ) -> RedisResult<Updated> {
        let limit = bounds.limit.map(|limit| records::write_setting(limit.map(amount)));
        let expires_at = expires_at.map(|at| records::write_setting(at.map(Timestamp::millis)));
        let mut arguments = self.key_arguments(account, id);
        arguments.value(limit.unwrap_or_default());
        arguments.value(expires_at.unwrap_or_default());
        if let Some(label) = label {
            arguments.value(label.as_str());
        }
        match self.client.run(&self.scripts.update_key, &arguments).await? {
            Value::Nil => Ok(Updated::NotFound),
            Value::SimpleString(_) => Ok(Updated::NotChanged(KeyNotChanged::Revoked)),
            answer => {
                self.confirm_account(account).await?;
                let (spend, texts): Found = redis::from_redis_value(answer)?;
                let key = records::read_key(id, texts, spend.as_deref())?;
                Ok(key.map_or(Updated::NotFound, Updated::Key))
            }
        }
    }

    pub(super) async fn end_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> RedisResult<Option<ApiKey>> {
        let arguments = self.key_arguments(account, id).with(double(now.millis()));
        let found: Option<Found> = self.client.run(&self.scripts.revoke_key, &arguments).await?;
        let Some((spend, texts)) = found else { return Ok(None) };
        self.confirm_account(account).await?;
        records::read_key(id, texts, spend.as_deref())
    }

    fn key_arguments(&self, account: AccountId, id: KeyId) -> Arguments {
        let [active, expired, revoked, expiring] = self.status_sets(account);
        let (account, key) = (self.key_space.account(account), self.key_space.key(account, id));
        Arguments::keys([account, key, active, expired, revoked, expiring])
            .with(*id.as_bytes())
            .with(id.to_string())
    }
}

/// The request, the time, and the end of the idempotency key: by the caller's clock, and as a lifetime for Redis.
fn promise(attempt: &Idempotency) -> [String; 4] {
    let lives = attempt.expires_at.millis().saturating_sub(attempt.now.millis()).max(1);
    let request = hex::encode(attempt.request.as_bytes());
    [request, attempt.now.millis().to_string(), attempt.expires_at.millis().to_string(), lives.to_string()]
}
