//! Counts of refused calls.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use shared::ids::{AccountId, KeyId};

use super::{id as column_id, rows};
use crate::store::{
    Hour, REFUSED_KEPT_DAYS, RefusedCalls, RefusedLine, StoreError, refused::by_reason, sqlite::Sqlite,
};
use domain::usage::Day;

#[async_trait]
impl RefusedCalls for Sqlite {
    async fn add_refused(&self, account: AccountId, lines: Vec<RefusedLine>) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            let sql = "INSERT INTO refused (account, key, hour, reason, count) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT DO UPDATE SET count = count + ?5";
            let mut statement = connection.prepare_cached(sql)?;
            for RefusedLine { key, hour, reason, count } in &lines {
                for key in [&key.as_bytes()[..], &[]] {
                    statement.execute(params![
                        account.as_bytes(),
                        key,
                        hour.0,
                        reason,
                        count.cast_signed()
                    ])?;
                }
            }
            if let Some(last) = lines.iter().map(|line| line.hour.0).max() {
                let sql = "DELETE FROM refused WHERE hour < ?1";
                connection.prepare_cached(sql)?.execute([last - REFUSED_KEPT_DAYS * 24])?;
            }
            Ok(())
        };
        self.writer.write(work).await
    }

    async fn refused(
        &self,
        account: AccountId,
        hours: RangeInclusive<Hour>,
        key: Option<KeyId>,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT reason, count FROM refused
                       WHERE account = ?1 AND key = ?2 AND hour BETWEEN ?3 AND ?4";
            let key = key.as_ref().map_or(&[][..], |key| &key.as_bytes()[..]);
            let row = params![account.as_bytes(), key, hours.start().0, hours.end().0];
            let mut statement = connection.prepare_cached(sql)?;
            let counts =
                statement.query_map(row, |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
            Ok(by_reason(counts.collect::<rusqlite::Result<Vec<_>>>()?.into_iter()))
        };
        self.read(work).await
    }

    async fn refused_keys(
        &self,
        account: AccountId,
        day: Day,
        limit: usize,
    ) -> Result<Vec<(KeyId, u64)>, StoreError> {
        let work = move |connection: &Connection| {
            // The empty key has the counts of all keys.
            let sql = "SELECT key, sum(count) AS all_of FROM refused
                       WHERE account = ?1 AND key > x'' AND hour BETWEEN ?2 AND ?3
                       GROUP BY key ORDER BY all_of DESC LIMIT ?4";
            let first = day.number() * 24;
            let row = params![account.as_bytes(), first, first + 23, rows(limit)];
            let mut statement = connection.prepare_cached(sql)?;
            let key = |row: &Row<'_>| {
                Ok((column_id(row, 0, KeyId::from_slice)?, row.get::<_, i64>(1)?.unsigned_abs()))
            };
            statement.query_map(row, key)?.collect()
        };
        self.read(work).await
    }
}
