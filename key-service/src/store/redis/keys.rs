//! API keys, and the promises to make them only once.

use std::fmt::Write;

use redis::{RedisResult, Value, cmd, pipe};
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{
    Redis,
    fields::{self, Fields, damaged},
    script::Arguments,
};
use crate::{
    domain::key::{AlreadyRevoked, ApiKey, KeyPatch, NewKey},
    store::{Created, Idempotency, Order, Owner, Page},
};

/// Keys read in one round trip of a listing: some hundred kilobytes, a millisecond of Redis.
const READ_AT_ONCE: usize = 500;

impl Redis {
    /// `None` where there is no such account.
    pub(super) async fn make_key(
        &self,
        NewKey { account, key, digest }: &NewKey,
        attempt: Option<&Idempotency>,
    ) -> RedisResult<Option<Created>> {
        let name = attempt.map_or("", |attempt| &attempt.key);
        let mut arguments = Arguments::keys([
            self.names.account(*account),
            self.names.keys(*account),
            self.names.key(*account, key.id),
            self.names.promise(*account, name),
        ]);
        arguments.value(key.id.to_string());
        for part in attempt.map(promise).unwrap_or_default() {
            arguments.value(part);
        }
        fields::write_key(&mut arguments, key);
        let answer: Option<Vec<String>> = self.link.run(&self.scripts.create_key, &arguments).await?;
        let Some(answer) = answer else { return Ok(None) };
        let made = async |id: &str| {
            let id = id.parse().map_err(|_| damaged("a promise"))?;
            self.read_key(*account, id).await?.ok_or_else(|| damaged("a promise"))
        };
        Ok(Some(match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["new", id] => {
                let made = made(id).await?;
                self.confirm_account(*account).await?;
                self.put_credential(digest, Owner::ApiKey(*account, key.id)).await?;
                Created::New(made)
            }
            ["replayed", id] => Created::Replayed(made(id).await?),
            ["reused"] => Created::Reused,
            _ => return Err(damaged("the answer to a creation")),
        }))
    }

    pub(super) async fn read_key(&self, account: AccountId, id: KeyId) -> RedisResult<Option<ApiKey>> {
        let fields: Fields = self.link.ask(cmd("HGETALL").arg(self.names.key(account, id))).await?;
        fields::read_key(id, &fields)
    }

    /// Reads a page a part at a time, each part of the index and of the keys in a round trip.
    pub(super) async fn read_keys(&self, account: AccountId, page: Page) -> RedisResult<Vec<ApiKey>> {
        let (mut keys, mut after) = (Vec::new(), page.after);
        while keys.len() < page.limit {
            let wanted = (page.limit - keys.len()).min(READ_AT_ONCE);
            let ids = self.key_ids(account, Page { after, limit: wanted, ..page }).await?;
            if ids.is_empty() {
                break;
            }
            let mut read = pipe();
            for id in &ids {
                read.cmd("HGETALL").arg(self.names.key(account, *id));
            }
            let all: Vec<Fields> = self.link.ask_all(&read).await?;
            for (id, fields) in ids.iter().zip(all) {
                keys.extend(fields::read_key(*id, &fields)?);
            }
            after = ids.last().copied();
            if ids.len() < wanted {
                break;
            }
        }
        Ok(keys)
    }

    /// Ids sort by themselves: all have the same score.
    pub(super) async fn key_ids(&self, account: AccountId, page: Page) -> RedisResult<Vec<KeyId>> {
        let behind = page.after.map(|id| format!("({id}"));
        let mut question = cmd("ZRANGE");
        question.arg(self.names.keys(account));
        match page.order {
            Order::Ascending => {
                question.arg(behind.as_deref().unwrap_or("-")).arg("+").arg("BYLEX");
            }
            Order::Descending => {
                question.arg(behind.as_deref().unwrap_or("+")).arg("-").arg("BYLEX").arg("REV");
            }
        }
        question.arg("LIMIT").arg("0").arg(page.limit);
        let ids: Vec<String> = self.link.ask(&question).await?;
        ids.iter().map(|id| id.parse().map_err(|_| damaged("a key's id"))).collect()
    }

    pub(super) async fn change_key(
        &self,
        account: AccountId,
        id: KeyId,
        KeyPatch { label, limit, expires_at }: &KeyPatch,
    ) -> RedisResult<Option<Result<ApiKey, AlreadyRevoked>>> {
        let changes = [
            ("label", label.as_ref().map(|label| Some(label.clone()))),
            ("limit", limit.map(|limit| limit.map(|n: NanoUsd| n.nanos().to_string()))),
            ("expires_at", expires_at.map(|at| at.map(|at: Timestamp| at.millis().to_string()))),
        ];
        let (mut set, mut cleared) = (Vec::new(), Vec::new());
        for (name, change) in changes {
            match change {
                None => {}
                Some(None) => cleared.push(name.to_owned()),
                Some(Some(value)) => set.push((name.to_owned(), value)),
            }
        }
        let mut arguments = Arguments::keys([self.names.key(account, id)]).with(set.len().to_string());
        for text in set.into_iter().flat_map(|(name, value)| [name, value]).chain(cleared) {
            arguments.value(text);
        }
        match self.link.run(&self.scripts.update_key, &arguments).await? {
            Value::SimpleString(_) => Ok(Some(Err(AlreadyRevoked))),
            answer => {
                self.confirm_account(account).await?;
                Ok(fields::read_key(id, &redis::from_redis_value(answer)?)?.map(Ok))
            }
        }
    }

    pub(super) async fn end_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> RedisResult<Option<ApiKey>> {
        let arguments = Arguments::keys([self.names.key(account, id)]).with(now.millis().to_string());
        let key: Fields = self.link.run(&self.scripts.revoke, &arguments).await?;
        self.confirm_account(account).await?;
        fields::read_key(id, &key)
    }
}

/// The request, the time, and when the promise ends: by the caller's clock, and for Redis, which then forgets it.
fn promise(attempt: &Idempotency) -> [String; 4] {
    let lives = attempt.expires_at.millis().saturating_sub(attempt.now.millis()).max(1);
    let mut request = String::new();
    for byte in attempt.request.as_bytes() {
        // Writing to a string cannot fail.
        let _ = write!(request, "{byte:02x}");
    }
    [request, attempt.now.millis().to_string(), attempt.expires_at.millis().to_string(), lives.to_string()]
}
