//! The journal, the counters, and the audit of both: in a read transaction, of a single moment, and concurrent with all
//! other work.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
};

use super::{
    Sqlite,
    file::{OpenError, open_reader},
    tables::{
        accounts, budgets, holds, id as column_id,
        journal::{self, COLUMNS},
        rows, spend, usage,
    },
};
use crate::store::{
    Books, Deposit, Found, JournalEntry, JournalPage, SpendLine, StoreError, UsageLine, search::numbers,
};
use domain::{
    audit::{Audit, Auditor},
    search::EntrySearch,
    usage::{Day, Margin},
};

#[async_trait]
impl Books for Sqlite {
    async fn journal(&self, account: AccountId, after: u64, limit: usize) -> Result<JournalPage, StoreError> {
        let work = move |connection: &Connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM journal WHERE account = ?1 AND number > ?2 ORDER BY number LIMIT ?3"
            );
            let row = params![account.as_bytes(), journal::number(after), rows(limit)];
            connection.prepare_cached(&sql)?.query_map(row, journal::entry_from)?.collect()
        };
        Ok(JournalPage { entries: self.read(work).await?, gone_until: 0 })
    }

    async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM journal WHERE account = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3"
            );
            let row = params![account.as_bytes(), journal::number(before.unwrap_or(u64::MAX)), rows(limit)];
            connection.prepare_cached(&sql)?.query_map(row, journal::entry_from)?.collect()
        };
        self.read(work).await
    }

    async fn find_entries(
        &self,
        account: AccountId,
        search: EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        let (floor, end) = numbers(self, account, &search, before).await?;
        let range = (floor, end.unwrap_or(u64::MAX));
        self.read(move |connection| journal::find(connection, account, &search, range, limit)).await
    }

    async fn entry_of(
        &self,
        account: AccountId,
        generation: GenerationId,
    ) -> Result<Option<JournalEntry>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM journal INDEXED BY journal_by_generation
                 WHERE account = ?1 AND generation = ?2 ORDER BY number DESC LIMIT 1"
            );
            let row = [account.as_bytes(), generation.as_bytes()];
            connection.prepare_cached(&sql)?.query_row(row, journal::entry_from).optional()
        };
        self.read(work).await
    }

    async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT id, amount, credit, note, at, payment_id FROM deposits
                 WHERE account = ?1 ORDER BY at DESC, id DESC LIMIT ?2";
            let deposit = |row: &Row<'_>| {
                let id = column_id(row, 0, DepositId::from_slice)?;
                Ok(Deposit { id, deposited: holds::deposited(row, 1)? })
            };
            let row = params![account.as_bytes(), rows(limit)];
            connection.prepare_cached(sql)?.query_map(row, deposit)?.collect()
        };
        self.read(work).await
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        let keys = keys.map(<[KeyId]>::to_vec);
        self.read(move |connection| usage::list(connection, account, &days, keys.as_deref())).await
    }

    async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError> {
        self.read(move |connection| spend::list(connection, account, &days)).await
    }

    async fn margins_by_model(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<String, Margin>, StoreError> {
        self.read(move |connection| spend::by_model(connection, account, &days)).await
    }

    async fn margins_by_group(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<Option<GroupId>, Margin>, StoreError> {
        self.read(move |connection| spend::by_group(connection, account, &days)).await
    }

    fn counters_kept(&self) -> Option<u32> {
        None
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        audited(self, account).await
    }
}

/// Audits a file on a separate connection and thread, since a long journal would block the readers. Until the end of the
/// audit the write-ahead log only grows. `None` if the account does not exist.
async fn audited(store: &Sqlite, account: AccountId) -> Result<Option<Audit>, StoreError> {
    let Some(file) = store.writer.file() else {
        return store.read(move |connection| audit(connection, account)).await;
    };
    let path = file.path().to_owned();
    let audited = tokio::task::spawn_blocking(move || {
        let connection = open_reader(&path).map_err(|e: OpenError| StoreError::Unavailable(e.to_string()))?;
        let moment = connection.unchecked_transaction();
        moment.and_then(|moment| audit(&moment, account)).map_err(|e| StoreError::from(&e))
    });
    audited.await.map_err(|e| StoreError::Unavailable(e.to_string()))?
}

fn audit(moment: &Connection, account: AccountId) -> rusqlite::Result<Option<Audit>> {
    let Some(books) = accounts::books(moment, account)? else { return Ok(None) };
    let mut auditor = Auditor::new(true);
    journal::audit(moment, account, &mut auditor)?;
    let held = holds::held_by_keys(moment, account)?;
    budgets::each_key(moment, account, |id, key, opening| {
        auditor.key(id, key, opening, held.get(&id).copied().unwrap_or_default());
    })?;
    let held_by_groups = holds::held_by_groups(moment, account)?;
    budgets::each_group(moment, account, |id, group, opening| {
        auditor.group(id, group, opening, held_by_groups.get(&id).copied().unwrap_or_default());
    })?;
    let held = NanoUsd::from_nanos(held.values().map(|held| held.nanos()).sum());
    let deposits = holds::deposits(moment, account)?;
    Ok(Some(auditor.account(books.money, held, deposits.into_iter())))
}
