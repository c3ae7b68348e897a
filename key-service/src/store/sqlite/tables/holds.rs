//! Records under idempotency ids: open holds, settlements and deposits.

use std::collections::HashMap;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{damaged, details, id as column_id, journal, money, payer, progress, rows, time, tokens};
use crate::store::{
    Cursor, DueHold, DueHolds, HoldIndex, Ledger, Outcomes, Skew, StoreError,
    sqlite::{Sqlite, file},
};
use domain::{
    ledger::{Command, Counted, Deposited, Hold, Payer, Progress, Record, RecordId},
    payment::{Payment, PaymentId},
};

/// Number of due holds on a page.
const DUE_AT_ONCE: usize = 512;

#[async_trait]
impl Ledger for Sqlite {
    fn system(&self) -> &'static str {
        "sqlite"
    }

    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        self.writer.execute(account, commands, now).await
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        match self.read(holders).await {
            Ok(accounts) => HoldIndex { accounts, missing: None },
            Err(unavailable) => HoldIndex { accounts: Vec::new(), missing: Some(unavailable) },
        }
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        let behind = after.and_then(|Cursor(last)| last.parse().ok());
        let holds = self.read(move |connection| due(connection, account, behind, DUE_AT_ONCE)).await?;
        let full = holds.len() == DUE_AT_ONCE;
        let next = holds.last().filter(|_| full).map(|hold| Cursor(hold.generation.to_string()));
        Ok(DueHolds { holds, next })
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(None)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.writer.check_file()?;
        self.read(file::check_version).await?
    }
}

/// The record under the id.
pub(crate) fn record(connection: &Connection, account: AccountId, id: RecordId) -> rusqlite::Result<Record> {
    match id {
        RecordId::Deposit(id) => {
            Ok(deposit(connection, account, id)?.map_or(Record::None, Record::Deposited))
        }
        RecordId::Generation(id) => Ok(match hold(connection, account, id)? {
            Some(hold) => Record::Open(hold),
            None => journal::settlement(connection, account, id)?.map_or(Record::None, Record::Closed),
        }),
    }
}

/// Replaces the record under the id. Settlements are stored in the journal only.
pub(crate) fn put(
    connection: &Connection,
    account: AccountId,
    id: RecordId,
    record: &Record,
    now: Timestamp,
) -> rusqlite::Result<()> {
    match (id, record) {
        (RecordId::Generation(id), Record::Open(hold)) => put_hold(connection, account, id, hold),
        (RecordId::Generation(id), Record::None | Record::Closed(_)) => delete_hold(connection, account, id),
        (RecordId::Deposit(id), Record::Deposited(deposited)) => {
            put_deposit(connection, account, id, deposited, now)
        }
        // The ledger records deposits under deposit ids only, and never removes a deposit.
        (RecordId::Generation(_), Record::Deposited(_))
        | (RecordId::Deposit(_), Record::None | Record::Open(_) | Record::Closed(_)) => Ok(()),
    }
}

/// Holds of the account whose lease has run out, behind a generation in the order of generations.
fn due(
    connection: &Connection,
    account: AccountId,
    behind: Option<GenerationId>,
    limit: usize,
) -> rusqlite::Result<Vec<DueHold>> {
    let sql = "SELECT key, generation FROM holds
               WHERE account = ?1 AND generation > ?2
                 AND lease_until <= (SELECT tick FROM accounts WHERE id = ?1)
               ORDER BY generation LIMIT ?3";
    let due_hold = |row: &Row<'_>| {
        Ok(DueHold {
            key: column_id(row, 0, KeyId::from_slice)?,
            generation: column_id(row, 1, GenerationId::from_slice)?,
        })
    };
    // A shorter value sorts before every id.
    let behind = behind.as_ref().map_or(&[][..], |id| id.as_bytes());
    connection
        .prepare_cached(sql)?
        .query_map(params![account.as_bytes(), behind, rows(limit)], due_hold)?
        .collect()
}

/// The accounts with open holds, by a look-up for each account, independent of the number of holds.
fn holders(connection: &Connection) -> rusqlite::Result<Vec<AccountId>> {
    let sql = "WITH RECURSIVE holders (account) AS (
                   SELECT min(account) FROM holds
                   UNION ALL
                   SELECT (SELECT min(account) FROM holds WHERE holds.account > holders.account)
                   FROM holders WHERE account IS NOT NULL)
               SELECT account FROM holders WHERE account IS NOT NULL";
    let holder = |row: &Row<'_>| column_id(row, 0, AccountId::from_slice);
    connection.prepare_cached(sql)?.query_map([], holder)?.collect()
}

/// Sums of open holds, by key.
pub(crate) fn held_by_keys(
    connection: &Connection,
    account: AccountId,
) -> rusqlite::Result<HashMap<KeyId, NanoUsd>> {
    let sql = "SELECT key, sum(amount) FROM holds WHERE account = ?1 GROUP BY key";
    let held = |row: &Row<'_>| Ok((column_id(row, 0, KeyId::from_slice)?, money(row, 1)?));
    connection.prepare_cached(sql)?.query_map([account.as_bytes()], held)?.collect()
}

/// Sums of open holds, by each group that pays.
pub(crate) fn held_by_groups(
    connection: &Connection,
    account: AccountId,
) -> rusqlite::Result<HashMap<GroupId, NanoUsd>> {
    let sql = "SELECT id, sum(amount)
               FROM (SELECT group_id AS id, amount FROM holds WHERE account = ?1
                     UNION ALL SELECT parent, amount FROM holds WHERE account = ?1)
               WHERE id IS NOT NULL GROUP BY id";
    let held = |row: &Row<'_>| Ok((column_id(row, 0, GroupId::from_slice)?, money(row, 1)?));
    connection.prepare_cached(sql)?.query_map([account.as_bytes()], held)?.collect()
}

/// All deposits of the account.
pub(crate) fn deposits(connection: &Connection, account: AccountId) -> rusqlite::Result<Vec<NanoUsd>> {
    let sql = "SELECT amount FROM deposits WHERE account = ?1";
    connection.prepare_cached(sql)?.query_map([account.as_bytes()], |row| money(row, 0))?.collect()
}

fn hold(connection: &Connection, account: AccountId, id: GenerationId) -> rusqlite::Result<Option<Hold>> {
    let sql = "SELECT key, model, group_id, parent, prompt, cached, completion, details, cost, upstream_cost,
                      amount, lease_until, counted, counted_tokens
               FROM holds WHERE account = ?1 AND generation = ?2";
    let hold = |row: &Row<'_>| {
        let levels: u8 = row.get(12)?;
        Ok(Hold {
            payer: payer(row, 0)?,
            amount: money(row, 10)?,
            reported: progress(row, 4)?,
            lease_until: row.get::<_, i64>(11)?.unsigned_abs(),
            counted: Counted { levels: LEVELS.map(|level| levels & level != 0), tokens: tokens(row, 13)? },
        })
    };
    connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], hold).optional()
}

/// Bits of the budgets that count a hold: key, group, parent.
const LEVELS: [u8; 3] = [1, 2, 4];

fn put_hold(
    connection: &Connection,
    account: AccountId,
    id: GenerationId,
    hold: &Hold,
) -> rusqlite::Result<()> {
    // The payer of a generation, and the budgets that count it, never change.
    let sql = "INSERT INTO holds (account, generation, key, model, group_id, parent, counted, amount,
                                  prompt, cached, completion, details, cost, upstream_cost, lease_until, counted_tokens)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
               ON CONFLICT (account, generation) DO UPDATE
               SET amount = ?8, prompt = ?9, cached = ?10, completion = ?11, details = ?12, cost = ?13,
                   upstream_cost = ?14, lease_until = ?15, counted_tokens = ?16";
    let Hold { payer, amount, reported, lease_until, counted: Counted { levels, tokens } } = hold;
    let Payer { key, model, groups: [group, parent] } = payer;
    let Progress { usage, cost, upstream_cost } = reported;
    let counted: u8 = LEVELS.iter().zip(levels).map(|(bit, counts)| bit * u8::from(*counts)).sum();
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        key.as_bytes(),
        model,
        group.as_ref().map(GroupId::as_bytes),
        parent.as_ref().map(GroupId::as_bytes),
        counted,
        amount.nanos(),
        usage.prompt.cast_signed(),
        usage.cached.cast_signed(),
        usage.completion.cast_signed(),
        details(*usage),
        cost.nanos(),
        upstream_cost.map(NanoUsd::nanos),
        lease_until.cast_signed(),
        tokens.cast_signed(),
    ])?;
    Ok(())
}

fn delete_hold(connection: &Connection, account: AccountId, id: GenerationId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM holds WHERE account = ?1 AND generation = ?2";
    connection.prepare_cached(sql)?.execute([account.as_bytes(), id.as_bytes()])?;
    Ok(())
}

fn deposit(
    connection: &Connection,
    account: AccountId,
    id: DepositId,
) -> rusqlite::Result<Option<Deposited>> {
    let sql = "SELECT amount, credit, note, at, payment_id FROM deposits WHERE account = ?1 AND id = ?2";
    let params = [account.as_bytes(), id.as_bytes()];
    connection.prepare_cached(sql)?.query_row(params, |row| deposited(row, 0)).optional()
}

/// A deposit in the columns amount, credit, note, time and payment from a column on.
pub(crate) fn deposited(row: &Row<'_>, first: usize) -> rusqlite::Result<Deposited> {
    let credit: Option<i64> = row.get(first + 1)?;
    let at = time(row, first + 3)?;
    let id = |text: String| {
        PaymentId::parse(&text).ok_or_else(|| damaged(first + 4, Type::Text, "an id of a payment is a line"))
    };
    let id = row.get::<_, Option<String>>(first + 4)?.map(id).transpose()?;
    Ok(Deposited {
        amount: money(row, first)?,
        credit: credit.map(NanoUsd::from_nanos),
        note: row.get(first + 2)?,
        payment: id.map(|id| Payment { id, at }),
    })
}

fn put_deposit(
    connection: &Connection,
    account: AccountId,
    id: DepositId,
    Deposited { amount, credit, note, payment }: &Deposited,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO deposits (account, id, amount, at, credit, note, payment_id)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let (credit, payment_id) =
        (credit.map(NanoUsd::nanos), payment.as_ref().map(|payment| payment.id.as_str()));
    let row =
        params![account.as_bytes(), id.as_bytes(), amount.nanos(), now.millis(), credit, note, payment_id];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}
