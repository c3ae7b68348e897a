//! Index of the accounts with holds, which misses no hold.
//!
//! A hold and the index lie in different slots, and cannot change together. Instead an account is listed *before* its
//! first hold, and again every minute with holds. An account is forgotten only if it has no holds, and the last
//! listing is so long ago that no later command can still be on its way.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use quick_cache::sync::Cache;
use redis::{RedisResult, cmd};
use shared::{clock::Clock, ids::AccountId, time::Timestamp};
use tokio::time::Instant;

use super::{
    client::Client,
    key_space::{KeySpace, PARTS},
    script::{Arguments, Lua},
};
use crate::store::{HoldIndex, StoreError};
use domain::ledger::Command;

/// Time after which an account that still opens holds is listed again.
const LISTED_FOR: Duration = Duration::from_mins(1);
/// Age of the last listing at which an account without holds is removed: far longer than [`LISTED_FOR`], than calls
/// take, and than clocks may differ.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// Number of accounts for which this process remembers the time of listing; others are listed again.
const REMEMBERED: usize = 65_536;
/// Accounts checked at once for open holds.
const ASKED_AT_ONCE: usize = 64;
/// The index, and a cache of this process's own listings.
pub(super) struct AccountIndex {
    clock: Arc<dyn Clock>,
    listed: Cache<AccountId, Instant>,
    forget: Lua,
}

/// An account with the time of the last listing.
struct Listed {
    account: AccountId,
    at: Timestamp,
}

impl AccountIndex {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let forget = Lua::new(include_str!("scripts/forget_holder.lua"));
        Self { clock, listed: Cache::new(REMEMBERED), forget }
    }

    /// Lists the account if the commands may open holds. Must be called before the commands run.
    pub(super) async fn list(
        &self,
        client: &Client,
        key_space: &KeySpace,
        account: AccountId,
        commands: &[Command],
    ) -> RedisResult<()> {
        if !commands.iter().any(|command| matches!(command, Command::Hold(_))) {
            return Ok(());
        }
        let began = Instant::now();
        if self.listed.get(&account).is_some_and(|at| began.saturating_duration_since(at) < LISTED_FOR) {
            return Ok(());
        }
        // An account that does not exist holds nothing.
        if !client.ask::<bool>(cmd("EXISTS").arg(key_space.account(account))).await? {
            return Ok(());
        }
        let mut list = cmd("ZADD");
        let now = self.clock.now().millis();
        list.arg(key_space.holders_of(account)).arg("GT").arg(now).arg(account.to_string());
        client.ask::<()>(&list).await?;
        self.listed.insert(account, began);
        Ok(())
    }

    /// The listed accounts, from all parts of the index that can be reached.
    pub(super) async fn accounts(&self, client: &Client, key_space: &KeySpace) -> HoldIndex {
        let parts = (0..PARTS).map(|part| listed(client, key_space, part));
        let parts: Vec<_> = stream::iter(parts).buffered(PARTS).collect().await;
        let mut missing = None;
        let mut all = Vec::new();
        for part in parts {
            match part {
                Ok(listed) => all.extend(listed),
                Err(e) => missing = Some(StoreError::from(e)),
            }
        }
        let kept = stream::iter(all).map(|listed| self.keep(client, key_space, listed));
        let kept: Vec<_> = kept.buffer_unordered(ASKED_AT_ONCE).collect().await;
        HoldIndex { accounts: kept.into_iter().flatten().collect(), missing }
    }

    /// Returns an account with holds, or removes the account from the index. An account in an unreachable part of the
    /// store is kept.
    async fn keep(&self, client: &Client, key_space: &KeySpace, listed: Listed) -> Option<AccountId> {
        let Listed { account, at } = listed;
        if at >= self.clock.now().minus(FORGOTTEN_AFTER) {
            return Some(account);
        }
        let mut question = cmd("HLEN");
        question.arg(key_space.holds(account));
        if !matches!(client.ask::<u64>(&question).await, Ok(0)) {
            return Some(account);
        }
        let index = Arguments::keys([key_space.holders_of(account)]);
        let forgotten = index.with(account.to_string()).with(at.millis().to_string());
        match client.run::<bool>(&self.forget, &forgotten).await {
            Ok(true) => None,
            Ok(false) | Err(_) => Some(account),
        }
    }
}

async fn listed(client: &Client, key_space: &KeySpace, part: usize) -> RedisResult<Vec<Listed>> {
    let mut question = cmd("ZRANGE");
    question.arg(key_space.holders(part)).arg("0").arg("-1").arg("WITHSCORES");
    let listed: Vec<(String, i64)> = client.ask(&question).await?;
    let listed = listed.into_iter().filter_map(|(account, at)| {
        Some(Listed { account: account.parse().ok()?, at: Timestamp::from_millis(at) })
    });
    Ok(listed.collect())
}
