//! Webhooks, their deliveries, and the last attempts.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, EventId, WebhookId},
    time::Timestamp,
};

use super::{
    damaged,
    events::ActLog,
    id as column_id,
    idempotency::{self, Earlier},
    rows,
};
use crate::store::{Idempotency, StoreError, WebhookCreated, Webhooks, sqlite::Sqlite, webhook_records};
use domain::{
    event::Act,
    webhook::{
        Attempt, Delivery, KEPT_ATTEMPTS, MAX_PENDING_DELIVERIES, StoredWebhook, Webhook, WebhookPatch,
    },
};

#[async_trait]
impl Webhooks for Sqlite {
    async fn create_webhook(
        &self,
        account: AccountId,
        new: StoredWebhook,
        most: u64,
        attempt: Option<Idempotency>,
    ) -> Result<WebhookCreated, StoreError> {
        let work = move |connection: &Connection| {
            let StoredWebhook { webhook, cursor } = &new;
            match idempotency::earlier(connection, account, attempt.as_ref(), WebhookId::from_slice)? {
                Some(Earlier::OtherRequest) => return Ok(WebhookCreated::Reused),
                Some(Earlier::Made(id)) if id == webhook.id => return Ok(WebhookCreated::New),
                Some(Earlier::Made(id)) => return Ok(WebhookCreated::Replayed(id)),
                None => {}
            }
            let sql = "SELECT count(*) FROM webhooks WHERE account = ?1 AND id != ?2";
            let row = params![account.as_bytes(), webhook.id.as_bytes()];
            let others: i64 = connection.prepare_cached(sql)?.query_row(row, |row| row.get(0))?;
            if others.unsigned_abs() >= most {
                return Ok(WebhookCreated::TooMany);
            }
            let sql = "INSERT INTO webhooks (account, id, record, cursor) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT DO NOTHING";
            let record = webhook_records::webhook(webhook);
            let row = params![account.as_bytes(), webhook.id.as_bytes(), record, cursor.cast_signed()];
            connection.prepare_cached(sql)?.execute(row)?;
            idempotency::keep(connection, account, attempt.as_ref(), webhook.id.as_bytes())?;
            Ok(WebhookCreated::New)
        };
        self.writer.write(work).await
    }

    async fn webhooks(&self, account: AccountId) -> Result<Vec<StoredWebhook>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT id, record, cursor FROM webhooks WHERE account = ?1 ORDER BY id";
            connection.prepare_cached(sql)?.query_map([account.as_bytes()], stored)?.collect()
        };
        self.read(work).await
    }

    async fn update_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        patch: WebhookPatch,
        act: &Act,
    ) -> Result<Option<Webhook>, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let Some(before) = get(connection, account, id)? else { return Ok(None) };
            let waiting = pending(connection, account, id)?;
            let after = before.clone().with(&patch, waiting.iter(), log.act.at);
            let sql = "UPDATE webhooks SET record = ?3, cursor = ?4 WHERE account = ?1 AND id = ?2";
            let record = webhook_records::webhook(&after.webhook);
            let row = params![account.as_bytes(), id.as_bytes(), record, after.cursor.cast_signed()];
            connection.prepare_cached(sql)?.execute(row)?;
            if after.webhook.disabled.is_some() {
                let sql = "DELETE FROM deliveries WHERE account = ?1 AND webhook = ?2";
                connection.prepare_cached(sql)?.execute([account.as_bytes(), id.as_bytes()])?;
            }
            if let Some(end) = after.webhook.end_since(&before.webhook) {
                log.write(connection, account, (None, None), end)?;
            }
            Ok(Some(after.webhook))
        };
        self.govern(act, work).await
    }

    async fn delete_webhook(&self, account: AccountId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        let work = move |connection: &Connection| {
            let deleted = get(connection, account, id)?.map(|stored| stored.webhook);
            let sql = "DELETE FROM webhooks WHERE account = ?1 AND id = ?2";
            connection.prepare_cached(sql)?.execute([account.as_bytes(), id.as_bytes()])?;
            Ok(deleted)
        };
        self.writer.write(work).await
    }

    async fn accounts_with_webhooks(&self) -> Result<Vec<AccountId>, StoreError> {
        let work = |connection: &Connection| {
            let accounts = "SELECT DISTINCT account FROM webhooks";
            let id = |row: &Row<'_>| column_id(row, 0, AccountId::from_slice);
            connection.prepare_cached(accounts)?.query_map([], id)?.collect()
        };
        self.read(work).await
    }

    async fn fan_out(
        &self,
        account: AccountId,
        seen: StoredWebhook,
        cursor: u64,
        deliveries: Vec<Delivery>,
    ) -> Result<bool, StoreError> {
        let work = move |connection: &Connection| {
            let id = seen.webhook.id;
            let waiting = pending(connection, account, id)?.len();
            let is_seen = get(connection, account, id)?.as_ref() == Some(&seen);
            if !is_seen || waiting + deliveries.len() > MAX_PENDING_DELIVERIES {
                return Ok(false);
            }
            let sql = "UPDATE webhooks SET cursor = ?3 WHERE account = ?1 AND id = ?2";
            let row = params![account.as_bytes(), id.as_bytes(), cursor.cast_signed()];
            connection.prepare_cached(sql)?.execute(row)?;
            let sql = "INSERT INTO deliveries (account, webhook, event, attempts, record, due_at)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
            let mut insert = connection.prepare_cached(sql)?;
            for delivery in &deliveries {
                let (event, due_at) = (delivery.event.as_bytes(), delivery.created_at.millis());
                let record = webhook_records::delivery(delivery);
                let (account, id) = (account.as_bytes(), id.as_bytes());
                insert.execute(params![account, id, event, delivery.attempts, record, due_at])?;
            }
            Ok(true)
        };
        self.writer.write(work).await
    }

    async fn claim_deliveries(
        &self,
        account: AccountId,
        id: WebhookId,
        (now, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "UPDATE deliveries SET attempts = attempts + 1, due_at = ?4
                       WHERE account = ?1 AND webhook = ?2 AND event IN
                             (SELECT event FROM deliveries WHERE account = ?1 AND webhook = ?2 AND due_at <= ?3
                              ORDER BY due_at LIMIT ?5)
                       RETURNING event, attempts, record";
            let (account, id) = (account.as_bytes(), id.as_bytes());
            let row = params![account, id, now.millis(), until.millis(), rows(limit)];
            connection.prepare_cached(sql)?.query_map(row, delivery)?.collect()
        };
        self.writer.write(work).await
    }

    async fn finish_delivery(
        &self,
        account: AccountId,
        id: WebhookId,
        claimed: Delivery,
        (attempt, next): (Attempt, Option<Timestamp>),
    ) -> Result<bool, StoreError> {
        let work = move |connection: &Connection| {
            let Delivery { event, attempts, .. } = &claimed;
            let which = "WHERE account = ?1 AND webhook = ?2 AND event = ?3 AND attempts = ?4";
            let sql = match next {
                Some(_) => format!("UPDATE deliveries SET due_at = ?5 {which}"),
                None => format!("DELETE FROM deliveries {which} AND ?5 IS NULL"),
            };
            let (account, id, next) = (account.as_bytes(), id.as_bytes(), next.map(Timestamp::millis));
            let row = params![account, id, event.as_bytes(), attempts, next];
            if connection.prepare_cached(&sql)?.execute(row)? == 0 {
                return Ok(false);
            }
            let sql = "INSERT INTO delivery_attempts (account, webhook, record) VALUES (?1, ?2, ?3)";
            let row = params![account, id, webhook_records::attempt(&attempt)];
            connection.prepare_cached(sql)?.execute(row)?;
            let sql = "DELETE FROM delivery_attempts WHERE number IN
                           (SELECT number FROM delivery_attempts WHERE account = ?1 AND webhook = ?2
                            ORDER BY number DESC LIMIT -1 OFFSET ?3)";
            connection.prepare_cached(sql)?.execute(params![account, id, rows(KEPT_ATTEMPTS)])?;
            Ok(true)
        };
        self.writer.write(work).await
    }

    async fn attempts(&self, account: AccountId, id: WebhookId) -> Result<Vec<Attempt>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT record FROM delivery_attempts WHERE account = ?1 AND webhook = ?2
                       ORDER BY number DESC";
            let attempt = |row: &Row<'_>| {
                webhook_records::read_attempt(row.get_ref(0)?.as_str()?).ok_or_else(|| unreadable(0))
            };
            let row = params![account.as_bytes(), id.as_bytes()];
            connection.prepare_cached(sql)?.query_map(row, attempt)?.collect()
        };
        self.read(work).await
    }
}

fn get(
    connection: &Connection,
    account: AccountId,
    id: WebhookId,
) -> rusqlite::Result<Option<StoredWebhook>> {
    let sql = "SELECT id, record, cursor FROM webhooks WHERE account = ?1 AND id = ?2";
    connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], stored).optional()
}

/// Deliveries of a webhook, due or not.
fn pending(connection: &Connection, account: AccountId, id: WebhookId) -> rusqlite::Result<Vec<Delivery>> {
    let sql = "SELECT event, attempts, record FROM deliveries WHERE account = ?1 AND webhook = ?2";
    connection.prepare_cached(sql)?.query_map([account.as_bytes(), id.as_bytes()], delivery)?.collect()
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredWebhook> {
    let id = column_id(row, 0, WebhookId::from_slice)?;
    let webhook = webhook_records::read_webhook(id, row.get_ref(1)?.as_str()?);
    let cursor = row.get::<_, i64>(2)?.unsigned_abs();
    Ok(StoredWebhook { webhook: webhook.ok_or_else(|| unreadable(1))?, cursor })
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let event = column_id(row, 0, EventId::from_slice)?;
    let delivery = webhook_records::read_delivery(event, row.get(1)?, row.get_ref(2)?.as_str()?);
    delivery.ok_or_else(|| unreadable(2))
}

fn unreadable(column: usize) -> rusqlite::Error {
    damaged(column, Type::Text, "a record of a webhook cannot be read")
}
