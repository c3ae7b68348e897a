//! Deliveries to webhooks, and messages of alerts. Each webhook and alert has a record of its waiting deliveries, which
//! decides who makes the next attempt of which delivery, and when. The content of a delivery is stored separately, and
//! never changes.

use ::records::Space;
use key_service_ledger::{
    StoreError,
    stored::{DeliveryAttempts, DeliveryContent, PendingDeliveries, PendingDelivery},
};
use shared::{ids::AccountId, time::Timestamp};

use crate::store::{
    base::{Store, value},
    layout,
    webhooks::records::{
        QueueId, attempts, delivery, pending, read_delivery, read_webhook, webhook, write_delivery,
        write_pending, write_webhook,
    },
};
use domain::webhook::{Attempt, Delivery, KEPT_ATTEMPTS, MAX_PENDING_DELIVERIES, StoredWebhook};

impl Store {
    /// Adds deliveries that are due at once, and moves the cursor of their webhook. Does nothing if the webhook is
    /// different from `seen` or would have more than [`MAX_PENDING_DELIVERIES`] deliveries. Returns whether the
    /// deliveries were added.
    pub async fn fan_out(
        &self,
        account: AccountId,
        seen: StoredWebhook,
        cursor: u64,
        deliveries: Vec<Delivery>,
    ) -> Result<bool, StoreError> {
        let id = seen.webhook.id;
        let moved = write_webhook(&StoredWebhook { cursor, ..seen.clone() });
        self.note(&layout::space(account), |view| {
            let waiting = view.get::<PendingDeliveries>(&pending(id))?;
            let Some(before) = view.get(&webhook(id))? else { return Ok(false) };
            let mut waiting = waiting.unwrap_or_default();
            let has_room = waiting.deliveries.len() + deliveries.len() <= MAX_PENDING_DELIVERIES;
            if read_webhook(id, before) != seen || !has_room {
                return Ok(false);
            }
            for new in &deliveries {
                // An event is delivered only once, no matter how often it is added.
                if waiting.deliveries.iter().all(|other| other.event != new.event) {
                    waiting.deliveries.push(write_pending(new));
                    let name = delivery(id, new.event);
                    view.presume_absent(&name);
                    view.put(&name, write_delivery(new));
                }
            }
            view.put(&webhook(id), moved.clone());
            view.put(&pending(id), waiting);
            Ok(true)
        })
        .await
    }

    /// Begins attempts for at most `limit` due deliveries. The delivery that has been due for the longest time comes
    /// first. The deliveries are due again at `until`. So no two calls return the same attempt, and if a process dies,
    /// its attempts are repeated.
    pub async fn claim_deliveries(
        &self,
        account: AccountId,
        id: impl Into<QueueId>,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let (space, id) = (layout::space(account), id.into());
        let claimed = self.note(&space, |view| {
            let Some(mut waiting) = view.get::<PendingDeliveries>(&pending(id))? else {
                return Ok(Vec::new());
            };
            let claimed = claim(&mut waiting, now, until, limit);
            view.put(&pending(id), waiting);
            Ok(claimed)
        });
        let claimed = claimed.await?;
        self.with_bodies(&space, id, claimed).await
    }

    /// Ends the attempt of a claimed delivery: adds it to the latest attempts of the webhook or alert, and makes the
    /// delivery due at `next` or removes it. If another attempt has begun in the meantime, returns `false` and changes
    /// nothing.
    pub async fn finish_delivery(
        &self,
        account: AccountId,
        id: impl Into<QueueId>,
        claimed: Delivery,
        attempt: &Attempt,
        next: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let id = id.into();
        let is_claimed = |waiting: &PendingDelivery| {
            waiting.event == claimed.event && waiting.attempts == claimed.attempts
        };
        self.note(&layout::space(account), |view| {
            let before = view.get::<DeliveryAttempts>(&attempts(id))?;
            let mut waiting = view.get::<PendingDeliveries>(&pending(id))?.unwrap_or_default();
            let Some(place) = waiting.deliveries.iter().position(is_claimed) else { return Ok(false) };
            if let Some(next) = next {
                waiting.deliveries[place].due_at = next;
            } else {
                waiting.deliveries.remove(place);
                view.remove(&delivery(id, claimed.event));
            }
            view.put(&pending(id), waiting);
            let mut last = before.unwrap_or_default();
            last.attempts.insert(0, attempt.clone());
            last.attempts.truncate(KEPT_ATTEMPTS);
            view.put(&attempts(id), last);
            Ok(true)
        })
        .await
    }

    /// Lists the latest attempts of a webhook or an alert, newest first.
    pub async fn attempts(
        &self,
        account: AccountId,
        id: impl Into<QueueId>,
    ) -> Result<Vec<Attempt>, StoreError> {
        let last = self.read().get::<DeliveryAttempts>(&layout::space(account), attempts(id)).await?;
        Ok(last.unwrap_or_default().attempts)
    }

    /// Reads the claimed deliveries with their content. A delivery that was dropped in the meantime is left out. A
    /// delivery that cannot be read is left out too, and becomes due again.
    async fn with_bodies(
        &self,
        space: &Space,
        id: QueueId,
        claimed: Vec<PendingDelivery>,
    ) -> Result<Vec<Delivery>, StoreError> {
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        let names = claimed.iter().map(|waiting| delivery(id, waiting.event).into()).collect();
        let found = self.read().records_of(space, names).await?;
        let mut deliveries = Vec::with_capacity(claimed.len());
        for (waiting, found) in claimed.iter().zip(found) {
            let Some(found) = found else { continue };
            match value::<DeliveryContent>(&found) {
                Ok(content) => deliveries.push(read_delivery(waiting, content)),
                Err(_) => {
                    tracing::warn!(queue = %id, "cannot read a delivery; skipping it until it is due again");
                }
            }
        }
        Ok(deliveries)
    }
}

/// Begins attempts for the due deliveries, and returns them.
fn claim(
    waiting: &mut PendingDeliveries,
    now: Timestamp,
    until: Timestamp,
    limit: usize,
) -> Vec<PendingDelivery> {
    let due = waiting.deliveries.iter_mut().filter(|delivery| delivery.due_at <= now);
    let mut due: Vec<&mut PendingDelivery> = due.collect();
    due.sort_by_key(|delivery| delivery.due_at);
    due.truncate(limit);
    for delivery in &mut due {
        delivery.attempts = delivery.attempts.saturating_add(1);
        delivery.due_at = until;
    }
    due.into_iter().map(|delivery| *delivery).collect()
}
