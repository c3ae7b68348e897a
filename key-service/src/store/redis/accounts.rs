//! Accounts, and whose credential a digest is.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, RedisResult, cmd};
use shared::{digest::Digest, ids::AccountId, money::NanoUsd, time::Timestamp};

use super::{Redis, fields::damaged, script::Arguments};
use crate::store::{AccountSummary, NewAccount, Owner};

/// Accounts that are asked for at once.
const ASKED_AT_ONCE: usize = 64;

impl Redis {
    /// Makes the account first, then lists it under its name: whatever interrupts this, a name that is taken belongs
    /// to an account that there is, and an account that is not listed was never made for anyone.
    pub(super) async fn make_account(&self, new: &NewAccount) -> RedisResult<bool> {
        let id = new.id.to_string();
        let mut question = cmd("HGET");
        question.arg(self.names.account_names()).arg(&new.name);
        let owner: Option<String> = self.link.ask(&question).await?;
        if owner.is_some_and(|owner| owner != id) {
            return Ok(false);
        }
        let create = Arguments::keys([self.names.account(new.id)]);
        let create = create.with(new.name.as_str()).with(new.created_at.millis().to_string());
        self.link.run::<()>(&self.scripts.create_account, &create).await?;
        self.confirm_account(new.id).await?;
        let list = Arguments::keys([self.names.account_names(), self.names.accounts()]);
        let owner: String = self
            .link
            .run(&self.scripts.list_account, &list.with(new.name.as_str()).with(id.as_str()))
            .await?;
        if owner != id {
            // Another account took the name in between.
            self.link.ask::<()>(cmd("DEL").arg(self.names.account(new.id))).await?;
            return Ok(false);
        }
        self.confirm(cmd("ZADD").arg(self.names.accounts()).arg("0").arg(id)).await?;
        Ok(true)
    }

    pub(super) async fn all_accounts(&self) -> RedisResult<Vec<AccountSummary>> {
        let ids: Vec<String> =
            self.link.ask(cmd("ZRANGE").arg(self.names.accounts()).arg("0").arg("-1")).await?;
        let accounts = ids.into_iter().map(|id| async move {
            let id: AccountId = id.parse().map_err(|_| damaged("an account's id"))?;
            let fields: HashMap<String, String> =
                self.link.ask(cmd("HGETALL").arg(self.names.account(id))).await?;
            summary(id, &fields).ok_or_else(|| damaged("an account"))
        });
        stream::iter(accounts).buffered(ASKED_AT_ONCE).try_collect().await
    }

    /// Makes a credential findable. The account's part is written before, so that what is found is there.
    pub(super) async fn put_credential(&self, digest: &Digest, owner: Owner) -> RedisResult<()> {
        let owner = match owner {
            Owner::ApiKey(account, key) => format!("{account} {key}"),
            Owner::ManagementKey(account, key) => format!("{account} {key}"),
        };
        let mut put = cmd("SET");
        put.arg(self.names.credential(digest)).arg(owner);
        self.link.ask::<()>(&put).await?;
        self.confirm(&put).await
    }

    pub(super) async fn owner(&self, digest: &Digest) -> RedisResult<Option<Owner>> {
        let owner: Option<String> = self.link.ask(cmd("GET").arg(self.names.credential(digest))).await?;
        owner.map(|owner| parse_owner(&owner).ok_or_else(|| damaged("a credential"))).transpose()
    }

    /// Waits until what was written to the account will survive.
    pub(super) async fn confirm_account(&self, account: AccountId) -> RedisResult<()> {
        self.confirm(cmd("SET").arg(self.names.barrier(account)).arg("")).await
    }

    /// Waits until whatever was written to the slot of this write will survive; it is written once more for that.
    pub(super) async fn confirm(&self, write: &Cmd) -> RedisResult<()> {
        self.barrier.pass(&self.link, write).await
    }
}

fn parse_owner(text: &str) -> Option<Owner> {
    let (account, key) = text.split_once(' ')?;
    let account = account.parse().ok()?;
    let api_key = || key.parse().ok().map(|key| Owner::ApiKey(account, key));
    api_key().or_else(|| key.parse().ok().map(|key| Owner::ManagementKey(account, key)))
}

fn summary(id: AccountId, fields: &HashMap<String, String>) -> Option<AccountSummary> {
    let number = |name: &str| fields.get(name)?.parse::<i64>().ok();
    Some(AccountSummary {
        id,
        name: fields.get("name")?.clone(),
        credit: NanoUsd::from_nanos(number("credit")?),
        held: NanoUsd::from_nanos(number("held")?),
        keys: number("keys")?.try_into().ok()?,
        created_at: Timestamp::from_millis(number("created_at")?),
    })
}
