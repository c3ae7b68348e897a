//! Webhooks, their deliveries, and the last attempts.
//!
//! A change is computed from what was read, and written unless the webhook has changed since.

use async_trait::async_trait;
use redis::cmd;
use shared::{
    ids::{AccountId, EventId, WebhookId},
    time::Timestamp,
};

use super::{Redis, idempotency::idempotency_record, key_space::PARTS, records::damaged, script::Arguments};
use crate::store::{Idempotency, StoreError, WebhookCreated, Webhooks, webhook_records};
use domain::{
    event::Act,
    webhook::{
        Attempt, Delivery, KEPT_ATTEMPTS, MAX_PENDING_DELIVERIES, StoredWebhook, Webhook, WebhookPatch,
    },
};

/// A webhook, and the texts of which it was read.
struct Read {
    stored: StoredWebhook,
    texts: Vec<String>,
}

#[async_trait]
impl Webhooks for Redis {
    /// Lists the account first: an account in the index may be without webhooks.
    async fn create_webhook(
        &self,
        account: AccountId,
        StoredWebhook { webhook, cursor }: StoredWebhook,
        most: u64,
        idempotency: Option<Idempotency>,
    ) -> Result<WebhookCreated, StoreError> {
        let mut list = cmd("SADD");
        list.arg(self.key_space.webhook_accounts_of(account)).arg(account.to_string());
        self.client.ask::<()>(&list).await?;
        self.confirm(&list).await?;
        let arguments = Arguments::keys([
            self.key_space.account(account),
            self.key_space.webhooks(account),
            self.key_space.webhook(account, webhook.id),
            self.idempotency_name(account, idempotency.as_ref()),
        ]);
        let arguments = arguments.with(webhook.id.to_string()).with(most.to_string());
        let arguments = arguments.with_all(idempotency_record(idempotency.as_ref()).into());
        let fields = ["record".to_owned(), webhook_records::webhook(&webhook)];
        let fields = fields.into_iter().chain(["cursor".to_owned(), cursor.to_string()]);
        let arguments = arguments.with_all(fields.collect());
        let answer: Option<Vec<String>> = self.client.run(&self.scripts.create_webhook, &arguments).await?;
        let answer = answer.ok_or_else(|| StoreError::no_account(account))?;
        match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["new", _] => {
                self.confirm_account(account).await?;
                Ok(WebhookCreated::New)
            }
            ["replayed", id] => {
                Ok(WebhookCreated::Replayed(id.parse().map_err(|_| damaged("an idempotency record"))?))
            }
            ["reused"] => Ok(WebhookCreated::Reused),
            ["full"] => Ok(WebhookCreated::TooMany),
            _ => Err(damaged("the answer to a creation")),
        }
    }

    async fn webhooks(&self, account: AccountId) -> Result<Vec<StoredWebhook>, StoreError> {
        let ids: Vec<WebhookId> = self.listed(self.key_space.webhooks(account)).await?;
        let names: Vec<String> = ids.iter().map(|id| self.key_space.webhook(account, *id)).collect();
        let mut webhooks = Vec::with_capacity(ids.len());
        for (id, fields) in ids.into_iter().zip(self.read_hashes(&names).await?) {
            // A webhook without fields was removed in between.
            if let (Some(record), Some(cursor)) = (fields.get("record"), fields.get("cursor")) {
                webhooks.push(stored(id, record, cursor)?);
            }
        }
        Ok(webhooks)
    }

    async fn update_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        patch: WebhookPatch,
        act: &Act,
    ) -> Result<Option<Webhook>, StoreError> {
        let mut turn = self.turn(id.as_bytes()).await?;
        loop {
            turn.attempt().await?;
            let Some(Read { stored, texts }) = self.read_webhook(account, id).await? else { return Ok(None) };
            let pending = self.pending(account, id).await?;
            let after = stored.clone().with(&patch, pending.iter(), act.at);
            let drops = if after.webhook.disabled.is_some() { "1" } else { "" };
            let arguments = self.webhook_arguments(account, id).with_all(texts);
            let arguments = arguments.with(webhook_records::webhook(&after.webhook));
            let arguments = arguments.with(after.cursor.to_string()).with(drops);
            let arguments = arguments.with(MAX_PENDING_DELIVERIES.to_string()).with("");
            let end = after.webhook.end_since(&stored.webhook).map(|end| act.event(0, None, None, end));
            let arguments = self.with_event(arguments, account, end.as_ref());
            if self.client.run::<bool>(&self.scripts.change_webhook, &arguments).await? {
                self.confirm_account(account).await?;
                return Ok(Some(after.webhook));
            }
        }
    }

    async fn delete_webhook(&self, account: AccountId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        let mut turn = self.turn(id.as_bytes()).await?;
        loop {
            turn.attempt().await?;
            let Some(Read { stored, texts }) = self.read_webhook(account, id).await? else { return Ok(None) };
            let mut arguments = self.webhook_arguments(account, id).with_all(texts).with(id.to_string());
            arguments.key(self.key_space.attempts_of(account, id));
            arguments.key(self.key_space.webhooks(account));
            let arguments = self.with_event(arguments, account, None);
            if self.client.run::<bool>(&self.scripts.change_webhook, &arguments).await? {
                self.confirm_account(account).await?;
                return Ok(Some(stored.webhook));
            }
        }
    }

    async fn accounts_with_webhooks(&self) -> Result<Vec<AccountId>, StoreError> {
        let mut accounts = Vec::new();
        for part in 0..PARTS {
            let listed: Vec<String> =
                self.client.ask(cmd("SMEMBERS").arg(self.key_space.webhook_accounts(part))).await?;
            for account in listed {
                accounts.push(account.parse().map_err(|_| damaged("the accounts with webhooks"))?);
            }
        }
        Ok(accounts)
    }

    async fn fan_out(
        &self,
        account: AccountId,
        seen: StoredWebhook,
        cursor: u64,
        deliveries: Vec<Delivery>,
    ) -> Result<bool, StoreError> {
        let id = seen.webhook.id;
        let read = self.read_webhook(account, id).await?.filter(|read| read.stored == seen);
        let Some(Read { texts, .. }) = read else { return Ok(false) };
        let now = deliveries.first().map_or(0, |delivery| delivery.created_at.millis());
        let record = texts.first().cloned().unwrap_or_default();
        let mut arguments = self.webhook_arguments(account, id).with_all(texts).with(record);
        for value in [cursor.to_string(), String::new(), MAX_PENDING_DELIVERIES.to_string(), now.to_string()]
        {
            arguments.value(value);
        }
        for delivery in &deliveries {
            arguments.value(delivery.event.to_string());
            arguments.value(written(delivery));
        }
        let arguments = self.with_event(arguments, account, None);
        Ok(self.client.run(&self.scripts.change_webhook, &arguments).await?)
    }

    async fn claim_deliveries(
        &self,
        account: AccountId,
        id: WebhookId,
        (now, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let arguments = Arguments::keys([
            self.key_space.deliveries(account, id),
            self.key_space.delivery_times(account, id),
        ]);
        let arguments = arguments.with(now.millis().to_string()).with(until.millis().to_string());
        let claimed: Vec<(String, String)> =
            self.client.run(&self.scripts.claim_deliveries, &arguments.with(limit.to_string())).await?;
        claimed.iter().map(|(event, record)| delivery(event, record)).collect()
    }

    async fn finish_delivery(
        &self,
        account: AccountId,
        id: WebhookId,
        claimed: Delivery,
        (attempt, next): (Attempt, Option<Timestamp>),
    ) -> Result<bool, StoreError> {
        let arguments = Arguments::keys([
            self.key_space.deliveries(account, id),
            self.key_space.delivery_times(account, id),
            self.key_space.attempts_of(account, id),
        ]);
        let next = next.map(|next| next.millis().to_string()).unwrap_or_default();
        let arguments = arguments.with(claimed.event.to_string()).with(written(&claimed)).with(next);
        let arguments = arguments.with(webhook_records::attempt(&attempt)).with(KEPT_ATTEMPTS.to_string());
        Ok(self.client.run(&self.scripts.finish_delivery, &arguments).await?)
    }

    async fn attempts(&self, account: AccountId, id: WebhookId) -> Result<Vec<Attempt>, StoreError> {
        let mut question = cmd("LRANGE");
        question.arg(self.key_space.attempts_of(account, id)).arg("0").arg("-1");
        let records: Vec<String> = self.client.ask(&question).await?;
        let attempt =
            |record: &String| webhook_records::read_attempt(record).ok_or_else(|| damaged("an attempt"));
        records.iter().map(attempt).collect()
    }
}

impl Redis {
    async fn read_webhook(&self, account: AccountId, id: WebhookId) -> Result<Option<Read>, StoreError> {
        let mut question = cmd("HMGET");
        question.arg(self.key_space.webhook(account, id)).arg(&["record", "cursor"]);
        let (record, cursor): (Option<String>, Option<String>) = self.client.ask(&question).await?;
        let Some((record, cursor)) = record.zip(cursor) else { return Ok(None) };
        Ok(Some(Read { stored: stored(id, &record, &cursor)?, texts: vec![record, cursor] }))
    }

    /// Deliveries of a webhook, due or not.
    async fn pending(&self, account: AccountId, id: WebhookId) -> Result<Vec<Delivery>, StoreError> {
        let mut question = cmd("HGETALL");
        question.arg(self.key_space.deliveries(account, id));
        let pending: Vec<(String, String)> = self.client.ask(&question).await?;
        pending.iter().map(|(event, record)| delivery(event, record)).collect()
    }

    /// Names for `scripts/change_webhook.lua`.
    fn webhook_arguments(&self, account: AccountId, id: WebhookId) -> Arguments {
        Arguments::keys([
            self.key_space.webhook(account, id),
            self.key_space.deliveries(account, id),
            self.key_space.delivery_times(account, id),
        ])
    }
}

fn stored(id: WebhookId, record: &str, cursor: &str) -> Result<StoredWebhook, StoreError> {
    let webhook = webhook_records::read_webhook(id, record).zip(cursor.parse().ok());
    let (webhook, cursor) = webhook.ok_or_else(|| damaged("a webhook"))?;
    Ok(StoredWebhook { webhook, cursor })
}

/// A delivery as the scripts know it: the number of attempts, and the record.
fn written(delivery: &Delivery) -> String {
    format!("{} {}", delivery.attempts, webhook_records::delivery(delivery))
}

fn delivery(event: &str, record: &str) -> Result<Delivery, StoreError> {
    let read = || {
        let event: EventId = event.parse().ok()?;
        let (attempts, record) = record.split_once(' ')?;
        webhook_records::read_delivery(event, attempts.parse().ok()?, record)
    };
    read().ok_or_else(|| damaged("a delivery"))
}
