//! Accounts with their management keys, and the owners of credentials.

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, RedisResult, cmd, pipe};
use shared::{
    ids::{AccountId, ManagementKeyId},
    rpc::Principal,
    time::Timestamp,
};

use super::{
    Redis,
    durability::Survives,
    records::{self, FUNDS, Fields, FundsRecord, damaged},
    script::Arguments,
};
use crate::store::{
    AccountSummary, Accounts, Credential, Credentials, Funds, ManagementKey, NewAccount, NewManagementKey,
    StoreError,
};
use domain::{
    access::USE_NOTED_EVERY,
    digest::Digest,
    event::{Act, EventKind},
};

/// Number of accounts read at once.
const ASKED_AT_ONCE: usize = 64;
/// Hashes read per round trip: half a millisecond of Redis.
const HASHES_AT_ONCE: usize = 200;

#[async_trait]
impl Credentials for Redis {
    async fn find_credential(&self, digest: Digest) -> Result<Option<Credential>, StoreError> {
        let text: Option<String> =
            self.client.ask(cmd("GET").arg(self.key_space.credential(&digest))).await?;
        text.map(|text| parse_credential(&text).ok_or_else(|| damaged("a credential"))).transpose()
    }

    async fn pepper_record(&self) -> Result<Option<String>, StoreError> {
        Ok(self.client.ask(cmd("GET").arg(self.key_space.pepper_record())).await?)
    }

    async fn replace_pepper_record(&self, seen: Option<String>, record: String) -> Result<bool, StoreError> {
        let arguments = Arguments::keys([self.key_space.pepper_record()]);
        let arguments = arguments.with(seen.unwrap_or_default()).with(record);
        Ok(self.client.run(&self.scripts.replace, &arguments).await?)
    }
}

#[async_trait]
impl Accounts for Redis {
    /// Creates the account first, then lists it by name. After an interruption, a taken name belongs to an existing
    /// account, and an unlisted account was never returned to a caller.
    async fn create_account(&self, new: NewAccount) -> Result<bool, StoreError> {
        let id = new.id.to_string();
        if self.account_named(&new.name).await?.is_some_and(|owner| owner != new.id) {
            return Ok(false);
        }
        let names = [self.key_space.account(new.id), self.key_space.spenders(new.id)];
        let create = Arguments::keys(names.clone());
        let create =
            create.with(new.name.as_str()).with(new.created_at.millis().to_string()).with(FundsRecord::NEW);
        self.client.run::<()>(&self.scripts.create_account, &create).await?;
        self.confirm_account(new.id).await?;
        let list = Arguments::keys([self.key_space.account_names(), self.key_space.accounts()]);
        let list = list.with(new.name).with(id.as_str());
        let owner: String = self.client.run(&self.scripts.list_account, &list).await?;
        if owner != id {
            // Another account took the name in between.
            self.client.ask::<()>(cmd("DEL").arg(&names)).await?;
            return Ok(false);
        }
        self.confirm(cmd("ZADD").arg(self.key_space.accounts()).arg("0").arg(id)).await?;
        Ok(true)
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        let ids: Vec<AccountId> = self.listed(self.key_space.accounts()).await?;
        let accounts = ids.into_iter().map(|id| async move {
            let mut question = cmd("HMGET");
            question.arg(self.key_space.account(id)).arg(&["name", "created_at", "keys", FUNDS]);
            summary(id, self.client.ask(&question).await?)
        });
        stream::iter(accounts).buffered(ASKED_AT_ONCE).try_collect().await
    }

    async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.account_names()).arg(name);
        let id: Option<String> = self.client.ask(&question).await?;
        id.map(|id| id.parse().map_err(|_| damaged("the account of a name"))).transpose()
    }

    async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        let mut read = pipe();
        read.cmd("HMGET").arg(self.key_space.account(account)).arg(&["name", "keys", FUNDS]);
        read.cmd("ZCARD").arg(self.key_space.groups(account));
        let (fields, groups): (FundsFields, u64) = self.client.ask_all(&read).await?;
        let (Some(name), Some(keys), Some(funds)) = fields else { return Ok(None) };
        let FundsRecord { credit, held, .. } = FundsRecord::read(&funds)?;
        Ok(Some(Funds { name, credit, held, keys, groups }))
    }

    async fn create_management_key(
        &self,
        NewManagementKey { account, key, digest, most }: NewManagementKey,
        act: &Act,
    ) -> Result<bool, StoreError> {
        let arguments = Arguments::keys([
            self.key_space.account(account),
            self.key_space.management_keys(account),
            self.key_space.management_key(account, key.id),
        ]);
        let arguments = arguments.with(key.id.to_string()).with(key.name.as_str()).with(most.to_string());
        let arguments = arguments.with_all(records::write_management_key(&key));
        let arguments = self.with_event(arguments, account, Some(&act.event(0, None, None, key.creation())));
        match self.create_listed(account, &arguments).await? {
            Listing::Created => {}
            Listing::Taken => return Err(damaged("the answer to a creation")),
            Listing::Full => return Ok(false),
        }
        let mut put = cmd("SET");
        put.arg(self.key_space.owner(key.id)).arg(account.to_string());
        self.client.ask::<()>(&put).await?;
        self.confirm(&put).await?;
        let owner = Principal::ManagementKey(account, key.id);
        self.put_credential(&digest, Credential::first(owner)).await?;
        Ok(true)
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let ids: Vec<ManagementKeyId> = self.listed(self.key_space.management_keys(account)).await?;
        let names: Vec<String> = ids.iter().map(|id| self.key_space.management_key(account, *id)).collect();
        let keys = ids.iter().zip(self.read_hashes(&names).await?);
        let keys = keys.map(|(id, fields)| records::read_management_key(*id, &fields));
        keys.filter_map(Result::transpose).collect()
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let key: Fields =
            self.client.ask(cmd("HGETALL").arg(self.key_space.management_key(account, id))).await?;
        records::read_management_key(id, &key)
    }

    async fn use_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = Arguments::keys([self.key_space.management_key(account, id)]);
        let key = key.with(now.millis().to_string()).with(USE_NOTED_EVERY.as_millis().to_string());
        let is_noted: bool = self.client.run(&self.scripts.use_management_key, &key).await?;
        if is_noted {
            self.confirm_account(account).await?;
        }
        Ok(is_noted)
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        act: &Act,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let owner: Option<String> = self.client.ask(cmd("GET").arg(self.key_space.owner(id))).await?;
        let Some(owner) = owner else { return Ok(None) };
        let account = owner.parse().map_err(|_| damaged("the owner of a management key"))?;
        let Some(key) = self.management_key(account, id).await? else { return Ok(None) };
        let arguments = Arguments::keys([self.key_space.management_key(account, id)]);
        let arguments = arguments.with(act.at.to_whole_seconds().millis().to_string());
        let revoked = EventKind::ManagementKeyRevoked { management_key_id: id, name: key.name };
        let arguments = self.with_event(arguments, account, Some(&act.event(0, None, None, revoked)));
        let key: Fields = self.client.run(&self.scripts.revoke_management_key, &arguments).await?;
        self.confirm_account(account).await?;
        records::read_management_key(id, &key)
    }
}

/// Result of `scripts/create_listed.lua`.
pub(super) enum Listing {
    Created,
    /// Another record has the name.
    Taken,
    Full,
}

impl Redis {
    /// Creates a record that is listed under an account, and waits until it is durable.
    pub(super) async fn create_listed(
        &self,
        account: AccountId,
        arguments: &Arguments,
    ) -> Result<Listing, StoreError> {
        let answer: Option<String> = self.client.run(&self.scripts.create_listed, arguments).await?;
        match answer.as_deref() {
            Some("created") => {
                self.confirm_account(account).await?;
                Ok(Listing::Created)
            }
            Some("taken") => Ok(Listing::Taken),
            Some("full") => Ok(Listing::Full),
            Some(_) => Err(damaged("the answer to a creation")),
            None => Err(StoreError::no_account(account)),
        }
    }

    /// Reads all ids of a list, in order.
    pub(super) async fn listed<T: std::str::FromStr>(&self, list: String) -> Result<Vec<T>, StoreError> {
        let ids: Vec<String> = self.client.ask(cmd("ZRANGE").arg(&list).arg("0").arg("-1")).await?;
        ids.iter().map(|id| id.parse().map_err(|_| damaged(&list))).collect()
    }

    /// Writes a credential under its digest. The account's part is written before, so that every credential found has a
    /// record.
    pub(super) async fn put_credential(
        &self,
        digest: &Digest,
        Credential { owner, number }: Credential,
    ) -> RedisResult<()> {
        let owner = match owner {
            Principal::ApiKey(account, key) => format!("{account} {key}"),
            Principal::ManagementKey(account, key) => format!("{account} {key}"),
        };
        let text = if number == 0 { owner } else { format!("{owner} {number}") };
        let mut put = cmd("SET");
        put.arg(self.key_space.credential(digest)).arg(text);
        self.client.ask::<()>(&put).await?;
        self.confirm(&put).await
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
        self.durability.pass(&self.client, write, Survives::PowerFailure).await
    }

    /// Waits until the writes to the account are on the replicas that are awaited.
    pub(super) async fn replicate_account(&self, account: AccountId) -> RedisResult<()> {
        let barrier = self.key_space.barrier(account);
        self.durability.pass(&self.client, cmd("SET").arg(barrier).arg(""), Survives::Failover).await
    }
}

/// Reads a credential: the account, the key and, unless it is the key's first, its number.
pub(super) fn parse_credential(text: &str) -> Option<Credential> {
    let mut parts = text.splitn(3, ' ');
    let (account, key) = (parts.next()?.parse().ok()?, parts.next()?);
    let number = parts.next().map_or(Some(0), |number| number.parse().ok())?;
    let api_key = || key.parse().ok().map(|key| Principal::ApiKey(account, key));
    let owner = api_key().or_else(|| key.parse().ok().map(|key| Principal::ManagementKey(account, key)))?;
    Some(Credential { owner, number })
}

/// Name, number of keys and funds.
type FundsFields = (Option<String>, Option<u64>, Option<Vec<u8>>);
/// Name, time, number of keys and funds.
type AccountFields = (Option<String>, Option<i64>, Option<u64>, Option<Vec<u8>>);

fn summary(id: AccountId, fields: AccountFields) -> Result<AccountSummary, StoreError> {
    let (Some(name), Some(created_at), Some(keys), Some(funds)) = fields else {
        return Err(damaged("an account"));
    };
    let FundsRecord { credit, held, .. } = FundsRecord::read(&funds)?;
    let created_at = Timestamp::from_millis(created_at);
    Ok(AccountSummary { id, name, credit, held, keys, created_at })
}
