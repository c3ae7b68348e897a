//! Accounts, and the owners of credentials.

use futures_util::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, RedisResult, cmd, pipe};
use shared::{ids::AccountId, rpc::Principal, time::Timestamp};

use super::{
    Redis,
    records::{FUNDS, Fields, FundsRecord, damaged},
    script::Arguments,
};
use crate::store::{self, AccountSummary, NewAccount};
use domain::digest::Digest;

/// Number of accounts read at once.
const ASKED_AT_ONCE: usize = 64;
/// Hashes read per round trip: half a millisecond of Redis.
const HASHES_AT_ONCE: usize = 200;

impl Redis {
    /// Creates the account first, then lists it by name. After an interruption, a taken name belongs to an existing
    /// account, and an unlisted account was never returned to a caller.
    pub(super) async fn make_account(&self, new: &NewAccount) -> RedisResult<bool> {
        let id = new.id.to_string();
        if self.find_account(&new.name).await?.is_some_and(|owner| owner != new.id) {
            return Ok(false);
        }
        let create = Arguments::keys([self.key_space.account(new.id)]);
        let create =
            create.with(new.name.as_str()).with(new.created_at.millis().to_string()).with(FundsRecord::NEW);
        self.client.run::<()>(&self.scripts.create_account, &create).await?;
        self.confirm_account(new.id).await?;
        let list = Arguments::keys([self.key_space.account_names(), self.key_space.accounts()]);
        let owner: String = self
            .client
            .run(&self.scripts.list_account, &list.with(new.name.as_str()).with(id.as_str()))
            .await?;
        if owner != id {
            // Another account took the name in between.
            self.client.ask::<()>(cmd("DEL").arg(self.key_space.account(new.id))).await?;
            return Ok(false);
        }
        self.confirm(cmd("ZADD").arg(self.key_space.accounts()).arg("0").arg(id)).await?;
        Ok(true)
    }

    pub(super) async fn all_accounts(&self) -> RedisResult<Vec<AccountSummary>> {
        let ids: Vec<String> =
            self.client.ask(cmd("ZRANGE").arg(self.key_space.accounts()).arg("0").arg("-1")).await?;
        let accounts = ids.into_iter().map(|id| async move {
            let id: AccountId = id.parse().map_err(|_| damaged("an account's id"))?;
            let mut question = cmd("HMGET");
            question.arg(self.key_space.account(id)).arg(&["name", "created_at", "keys", FUNDS]);
            summary(id, self.client.ask(&question).await?)
        });
        stream::iter(accounts).buffered(ASKED_AT_ONCE).try_collect().await
    }

    /// Finds the account of this name in the index of names.
    pub(super) async fn find_account(&self, name: &str) -> RedisResult<Option<AccountId>> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.account_names()).arg(name);
        let id: Option<String> = self.client.ask(&question).await?;
        id.map(|id| id.parse().map_err(|_| damaged("the account of a name"))).transpose()
    }

    pub(super) async fn read_funds(&self, account: AccountId) -> RedisResult<Option<store::Funds>> {
        let mut question = cmd("HMGET");
        question.arg(self.key_space.account(account)).arg(&["name", FUNDS]);
        let (name, funds): (Option<String>, Option<Vec<u8>>) = self.client.ask(&question).await?;
        let Some((name, funds)) = name.zip(funds) else { return Ok(None) };
        let FundsRecord { credit, held, .. } = FundsRecord::read(&funds)?;
        Ok(Some(store::Funds { name, credit, held }))
    }

    /// Writes the mapping from a digest to an owner. The account's part is written before, so that every credential
    /// found has a record.
    pub(super) async fn put_credential(&self, digest: &Digest, owner: Principal) -> RedisResult<()> {
        let owner = match owner {
            Principal::ApiKey(account, key) => format!("{account} {key}"),
            Principal::ManagementKey(account, key) => format!("{account} {key}"),
        };
        let mut put = cmd("SET");
        put.arg(self.key_space.credential(digest)).arg(owner);
        self.client.ask::<()>(&put).await?;
        self.confirm(&put).await
    }

    pub(super) async fn owner(&self, digest: &Digest) -> RedisResult<Option<Principal>> {
        let owner: Option<String> =
            self.client.ask(cmd("GET").arg(self.key_space.credential(digest))).await?;
        owner.map(|owner| parse_owner(&owner).ok_or_else(|| damaged("a credential"))).transpose()
    }

    /// Reads hashes of the same slot, some hundred in a round trip.
    pub(super) async fn read_hashes(&self, names: &[String]) -> RedisResult<Vec<Fields>> {
        let mut hashes = Vec::with_capacity(names.len());
        for some in names.chunks(HASHES_AT_ONCE) {
            let mut read = pipe();
            for name in some {
                read.cmd("HGETALL").arg(name);
            }
            hashes.extend(self.client.ask_all::<Vec<Fields>>(&read).await?);
        }
        Ok(hashes)
    }

    /// Waits until the writes to the account are durable.
    pub(super) async fn confirm_account(&self, account: AccountId) -> RedisResult<()> {
        self.confirm(cmd("SET").arg(self.key_space.barrier(account)).arg("")).await
    }

    /// Waits until earlier writes to the slot of this write are durable; repeats this write to do so.
    pub(super) async fn confirm(&self, write: &Cmd) -> RedisResult<()> {
        self.durability.pass(&self.client, write).await
    }
}

fn parse_owner(text: &str) -> Option<Principal> {
    let (account, key) = text.split_once(' ')?;
    let account = account.parse().ok()?;
    let api_key = || key.parse().ok().map(|key| Principal::ApiKey(account, key));
    api_key().or_else(|| key.parse().ok().map(|key| Principal::ManagementKey(account, key)))
}

/// Name, time, number of keys and funds.
type AccountFields = (Option<String>, Option<i64>, Option<u64>, Option<Vec<u8>>);

fn summary(id: AccountId, fields: AccountFields) -> RedisResult<AccountSummary> {
    let (Some(name), Some(created_at), Some(keys), Some(funds)) = fields else {
        return Err(damaged("an account"));
    };
    let FundsRecord { credit, held, .. } = FundsRecord::read(&funds)?;
    let created_at = Timestamp::from_millis(created_at);
    Ok(AccountSummary { id, name, credit, held, keys, created_at })
}
