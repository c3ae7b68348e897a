//! Which accounts may have open holds: an index that no hold can slip past.
//!
//! A hold and the index lie in different slots, so they cannot change together. Instead an account is listed *before*
//! it holds anything, until a while after that hold's lease; and it is forgotten only when it has no holds and that
//! time has long passed, so that nothing sent while it was listed can still be on its way.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use quick_cache::sync::Cache;
use redis::{RedisResult, cmd};
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    time::Timestamp,
};

use super::{
    link::Link,
    names::{Names, PARTS},
    script::{Arguments, Lua},
};
use crate::{domain::ledger::Command, store::DueHold};

/// How long beyond a lease an account is listed, so that not every hold has to list it again.
const LISTED_BEYOND: Duration = Duration::from_mins(1);
/// How long an account without holds stays listed after that: far more than calls take and clocks differ.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// Accounts that this process remembers having listed; others are listed again.
const REMEMBERED: usize = 65_536;
/// Accounts asked for their due holds at once.
const ASKED_AT_ONCE: usize = 64;

/// What this process did to the index.
pub(super) struct Holders {
    listed: Cache<AccountId, Timestamp>,
}

impl Holders {
    pub(super) fn new() -> Self {
        Self { listed: Cache::new(REMEMBERED) }
    }

    /// To be called before the commands run.
    pub(super) async fn list(
        &self,
        link: &Link,
        names: &Names,
        account: AccountId,
        commands: &[Command],
    ) -> RedisResult<()> {
        let Some(lease_until) = commands.iter().filter_map(lease).max() else { return Ok(()) };
        if self.listed.get(&account).is_some_and(|until| until >= lease_until) {
            return Ok(());
        }
        let until = lease_until.plus(LISTED_BEYOND);
        let mut list = cmd("ZADD");
        list.arg(names.holders_of(account)).arg("GT").arg(until.millis()).arg(account.to_string());
        link.ask::<()>(&list).await?;
        self.listed.insert(account, until);
        Ok(())
    }
}

/// Holds whose lease is over, those due longest first, at most `limit`.
pub(super) async fn due(
    link: &Link,
    names: &Names,
    forget: &Lua,
    now: Timestamp,
    limit: usize,
) -> RedisResult<Vec<DueHold>> {
    let parts = (0..PARTS).map(|part| listed(link, names, part));
    let accounts: Vec<_> = stream::iter(parts).buffered(PARTS).try_concat().await?;
    let mut asked = stream::iter(accounts)
        .map(|listed| due_of(link, names, forget, listed, now, limit))
        .buffer_unordered(ASKED_AT_ONCE);
    let mut due: Vec<(Timestamp, DueHold)> = Vec::new();
    while let Some(more) = asked.try_next().await? {
        due.extend(more);
        if due.len() / 2 > limit {
            keep_oldest(&mut due, limit);
        }
    }
    keep_oldest(&mut due, limit);
    Ok(due.into_iter().map(|(_, hold)| hold).collect())
}

fn lease(command: &Command) -> Option<Timestamp> {
    match command {
        Command::Hold { lease_until, .. } | Command::Extend { lease_until, .. } => Some(*lease_until),
        Command::Deposit { .. }
        | Command::Check { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => None,
    }
}

/// An account, and until when it is listed.
struct Listed {
    account: AccountId,
    until: Timestamp,
}

async fn listed(link: &Link, names: &Names, part: usize) -> RedisResult<Vec<Listed>> {
    let mut question = cmd("ZRANGE");
    question.arg(names.holders(part)).arg("0").arg("-1").arg("WITHSCORES");
    let listed: Vec<(String, i64)> = link.ask(&question).await?;
    let listed = listed.into_iter().filter_map(|(account, until)| {
        Some(Listed { account: account.parse().ok()?, until: Timestamp::from_millis(until) })
    });
    Ok(listed.collect())
}

async fn due_of(
    link: &Link,
    names: &Names,
    forget: &Lua,
    Listed { account, until }: Listed,
    now: Timestamp,
    limit: usize,
) -> RedisResult<Vec<(Timestamp, DueHold)>> {
    let (mut question, limit) = (cmd("ZRANGEBYSCORE"), i64::try_from(limit).unwrap_or(i64::MAX));
    question.arg(names.leases(account)).arg("-inf").arg(now.millis()).arg("WITHSCORES");
    question.arg("LIMIT").arg("0").arg(limit);
    let leases: Vec<(String, i64)> = link.ask(&question).await?;
    if leases.is_empty() && until < now.minus(FORGOTTEN_AFTER) {
        forget_if_empty(link, names, forget, account, until).await?;
    }
    let due = leases.into_iter().filter_map(|(lease, until)| {
        let (key, generation) = lease.split_once(' ')?;
        let (key, generation): (KeyId, GenerationId) = (key.parse().ok()?, generation.parse().ok()?);
        Some((Timestamp::from_millis(until), DueHold { account, key, generation }))
    });
    Ok(due.collect())
}

async fn forget_if_empty(
    link: &Link,
    names: &Names,
    forget: &Lua,
    account: AccountId,
    until: Timestamp,
) -> RedisResult<()> {
    let mut question = cmd("ZCARD");
    question.arg(names.leases(account));
    if link.ask::<u64>(&question).await? > 0 {
        return Ok(());
    }
    let index = Arguments::keys([names.holders_of(account)]);
    link.run(forget, &index.with(account.to_string()).with(until.millis().to_string())).await
}

fn keep_oldest(due: &mut Vec<(Timestamp, DueHold)>, limit: usize) {
    due.sort_unstable_by_key(|(lease_until, hold)| (*lease_until, hold.account, hold.generation));
    due.truncate(limit);
}
