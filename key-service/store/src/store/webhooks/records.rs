//! Names, encodes and decodes the stored records of webhooks and deliveries.

use std::fmt;

use domain::webhook::{Delivery, StoredWebhook, Webhook};
use key_service_ledger::{
    StoreError,
    names::RecordName,
    stored::{DeliveryAttempts, DeliveryContent, IdList, PendingDeliveries, PendingDelivery, WebhookRecord},
};
use shared::ids::{AlertId, EventId, WebhookId};

use crate::store::layout;

/// The webhook or alert whose deliveries wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueId {
    Webhook(WebhookId),
    Alert(AlertId),
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Webhook(id) => id.fmt(f),
            Self::Alert(id) => id.fmt(f),
        }
    }
}

impl QueueId {
    fn as_bytes(&self) -> &[u8; 16] {
        match self {
            Self::Webhook(id) => id.as_bytes(),
            Self::Alert(id) => id.as_bytes(),
        }
    }
}

impl From<WebhookId> for QueueId {
    fn from(id: WebhookId) -> Self {
        Self::Webhook(id)
    }
}

impl From<AlertId> for QueueId {
    fn from(id: AlertId) -> Self {
        Self::Alert(id)
    }
}

pub(super) fn write_webhook(StoredWebhook { webhook, cursor }: &StoredWebhook) -> WebhookRecord {
    let Webhook { id: _, url, types, secret, created_at, disabled } = webhook.clone();
    WebhookRecord { url, types, secret, created_at, disabled, cursor: *cursor }
}

pub(super) fn read_webhook(id: WebhookId, webhook: WebhookRecord) -> StoredWebhook {
    let WebhookRecord { url, types, secret, created_at, disabled, cursor } = webhook;
    StoredWebhook { webhook: Webhook { id, url, types, secret, created_at, disabled }, cursor }
}

/// Encodes a waiting delivery, which is due at once.
pub(crate) fn write_pending(delivery: &Delivery) -> PendingDelivery {
    let Delivery { event, number, created_at: due_at, attempts, .. } = *delivery;
    PendingDelivery { event, number, due_at, attempts }
}

/// Decodes a waiting delivery, without its content.
pub(super) fn read_pending(waiting: &PendingDelivery) -> Delivery {
    let (kind, body, created_at) = (String::new(), String::new(), waiting.due_at);
    read_delivery(waiting, DeliveryContent { kind, body, created_at })
}

pub(crate) fn write_delivery(delivery: &Delivery) -> DeliveryContent {
    let Delivery { kind, body, created_at, .. } = delivery.clone();
    DeliveryContent { kind, body, created_at }
}

pub(super) fn read_delivery(waiting: &PendingDelivery, content: DeliveryContent) -> Delivery {
    let PendingDelivery { event, number, attempts, due_at: _ } = *waiting;
    let DeliveryContent { kind, body, created_at } = content;
    Delivery { event, number, kind, body, created_at, attempts }
}

/// Names the list of an account's webhooks.
pub(crate) fn list() -> RecordName<IdList<WebhookId>> {
    layout::name(layout::WEBHOOKS, *b"l")
}

pub(crate) fn webhook(id: WebhookId) -> RecordName<WebhookRecord> {
    layout::name(layout::WEBHOOKS, layout::tagged(b'w', id.as_bytes()))
}

/// Names the waiting deliveries of a webhook or an alert.
pub(crate) fn pending(id: impl Into<QueueId>) -> RecordName<PendingDeliveries> {
    layout::name(layout::WEBHOOKS, layout::tagged(b'p', id.into().as_bytes()))
}

/// Names the latest attempts of a webhook or an alert.
pub(crate) fn attempts(id: impl Into<QueueId>) -> RecordName<DeliveryAttempts> {
    layout::name(layout::WEBHOOKS, layout::tagged(b'a', id.into().as_bytes()))
}

/// Names the content of an event's delivery.
pub(crate) fn delivery(id: impl Into<QueueId>, event: EventId) -> RecordName<DeliveryContent> {
    layout::name(layout::DELIVERIES, [*id.into().as_bytes(), *event.as_bytes()].concat())
}

pub(crate) fn unreadable(what: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}
