//! Webhooks in memory.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use shared::{
    ids::{AccountId, EventId, WebhookId},
    time::Timestamp,
};

use super::Reference;
use crate::store::{Idempotency, StoreError, WebhookCreated, Webhooks};
use domain::{
    event::Act,
    webhook::{
        Attempt, Delivery, KEPT_ATTEMPTS, MAX_PENDING_DELIVERIES, StoredWebhook, Webhook, WebhookPatch,
    },
};

/// A webhook with its deliveries, each with the time at which it is due, and the last attempts.
#[derive(Debug)]
pub(super) struct WebhookBook {
    stored: StoredWebhook,
    deliveries: BTreeMap<EventId, (Delivery, Timestamp)>,
    attempts: VecDeque<Attempt>,
}

impl Reference {
    fn with_webhook<T>(
        &self,
        account: AccountId,
        id: WebhookId,
        work: impl FnOnce(&mut WebhookBook) -> T,
    ) -> Result<Option<T>, StoreError> {
        let mut books = self.books()?;
        let webhook = books.accounts.get_mut(&account).and_then(|book| book.webhooks.get_mut(&id));
        Ok(webhook.map(work))
    }
}

#[async_trait]
impl Webhooks for Reference {
    async fn create_webhook(
        &self,
        account: AccountId,
        stored: StoredWebhook,
        most: u64,
        idempotency: Option<Idempotency>,
    ) -> Result<WebhookCreated, StoreError> {
        let mut books = self.books()?;
        let book = books.account(account)?;
        let id = stored.webhook.id;
        match idempotency.as_ref().and_then(|attempt| book.idempotent(attempt)) {
            Some(Err(())) => return Ok(WebhookCreated::Reused),
            Some(Ok(made)) if made == *id.as_bytes() => return Ok(WebhookCreated::New),
            Some(Ok(made)) => return Ok(WebhookCreated::Replayed(WebhookId::from_slice(&made).unwrap())),
            None => {}
        }
        if book.webhooks.len() as u64 >= most && !book.webhooks.contains_key(&id) {
            return Ok(WebhookCreated::TooMany);
        }
        if let Some(attempt) = &idempotency {
            book.keep_idempotency_record(attempt, id.as_bytes());
        }
        let made = WebhookBook { stored, deliveries: BTreeMap::new(), attempts: VecDeque::new() };
        book.webhooks.entry(id).or_insert(made);
        Ok(WebhookCreated::New)
    }

    async fn webhooks(&self, account: AccountId) -> Result<Vec<StoredWebhook>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        Ok(book.webhooks.values().map(|webhook| webhook.stored.clone()).collect())
    }

    async fn update_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        patch: WebhookPatch,
        act: &Act,
    ) -> Result<Option<Webhook>, StoreError> {
        let mut books = self.books()?;
        let Some(account) = books.accounts.get_mut(&account) else { return Ok(None) };
        let Some(book) = account.webhooks.get_mut(&id) else { return Ok(None) };
        let before = book.stored.webhook.clone();
        let pending = book.deliveries.values().map(|(delivery, _)| delivery);
        book.stored = book.stored.clone().with(&patch, pending, act.at);
        if book.stored.webhook.disabled.is_some() {
            book.deliveries.clear();
        }
        let after = book.stored.webhook.clone();
        if let Some(end) = after.end_since(&before) {
            account.tell(act.event(0, None, None, end));
        }
        Ok(Some(after))
    }

    async fn delete_webhook(&self, account: AccountId, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        let mut books = self.books()?;
        let deleted = books.accounts.get_mut(&account).and_then(|book| book.webhooks.remove(&id));
        Ok(deleted.map(|book| book.stored.webhook))
    }

    async fn accounts_with_webhooks(&self) -> Result<Vec<AccountId>, StoreError> {
        let books = self.books()?;
        let having = books.accounts.iter().filter(|(_, book)| !book.webhooks.is_empty());
        Ok(having.map(|(id, _)| *id).collect())
    }

    async fn fan_out(
        &self,
        account: AccountId,
        seen: StoredWebhook,
        cursor: u64,
        deliveries: Vec<Delivery>,
    ) -> Result<bool, StoreError> {
        let added = self.with_webhook(account, seen.webhook.id, |book| {
            let is_full = book.deliveries.len() + deliveries.len() > MAX_PENDING_DELIVERIES;
            if book.stored != seen || is_full {
                return false;
            }
            book.stored.cursor = cursor;
            for delivery in deliveries {
                let due_at = delivery.created_at;
                book.deliveries.entry(delivery.event).or_insert((delivery, due_at));
            }
            true
        });
        Ok(added?.unwrap_or(false))
    }

    async fn claim_deliveries(
        &self,
        account: AccountId,
        id: WebhookId,
        (now, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let claimed = self.with_webhook(account, id, |book| {
            let mut due: Vec<_> = book.deliveries.values_mut().filter(|(_, due_at)| *due_at <= now).collect();
            due.sort_by_key(|(_, due_at)| *due_at);
            let claim = |(delivery, due_at): &mut (Delivery, Timestamp)| {
                delivery.attempts += 1;
                *due_at = until;
                delivery.clone()
            };
            due.into_iter().take(limit).map(claim).collect()
        });
        Ok(claimed?.unwrap_or_default())
    }

    async fn finish_delivery(
        &self,
        account: AccountId,
        id: WebhookId,
        claimed: Delivery,
        (attempt, next): (Attempt, Option<Timestamp>),
    ) -> Result<bool, StoreError> {
        let finished = self.with_webhook(account, id, |book| {
            let Some((delivery, due_at)) = book.deliveries.get_mut(&claimed.event) else { return false };
            if *delivery != claimed {
                return false;
            }
            match next {
                Some(next) => *due_at = next,
                None => drop(book.deliveries.remove(&claimed.event)),
            }
            book.attempts.push_front(attempt);
            book.attempts.truncate(KEPT_ATTEMPTS);
            true
        });
        Ok(finished?.unwrap_or(false))
    }

    async fn attempts(&self, account: AccountId, id: WebhookId) -> Result<Vec<Attempt>, StoreError> {
        let attempts = self.with_webhook(account, id, |book| book.attempts.iter().cloned().collect());
        Ok(attempts?.unwrap_or_default())
    }
}
