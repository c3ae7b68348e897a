//! Converts webhooks, deliveries and attempts to messages and back. `None` means that no program writes such a message.

use ::records::Name;
use key_service_ledger::{
    StoreError,
    messages::{self, PendingDelivery, WebhookEnd, WebhookTypes, delivery_attempt},
};
use shared::{
    ids::{EventId, WebhookId},
    time::Timestamp,
};

use crate::store::layout;
use domain::{
    digest::Digest,
    webhook::{Attempt, Delivery, DisabledReason, ReceiverAnswer, StoredWebhook, Webhook, WebhookUrl},
};

const fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn write_webhook(StoredWebhook { webhook, cursor }: &StoredWebhook) -> messages::Webhook {
    let Webhook { id: _, url, types, secret, created_at, disabled } = webhook;
    messages::Webhook {
        url: url.as_str().to_owned(),
        types: types.clone().map(|types| WebhookTypes { types }),
        secret: secret.as_bytes().to_vec(),
        created_at: created_at.millis(),
        end: disabled.map(|(at, reason)| WebhookEnd { at: at.millis(), reason: reason.as_str().to_owned() }),
        cursor: *cursor,
    }
}

pub(super) fn read_webhook(id: WebhookId, webhook: messages::Webhook) -> Option<StoredWebhook> {
    let messages::Webhook { url, types, secret, created_at, end, cursor } = webhook;
    let disabled = match end {
        Some(WebhookEnd { at, reason }) => Some((time(at), DisabledReason::parse(&reason)?)),
        None => None,
    };
    let webhook = Webhook {
        id,
        url: WebhookUrl::stored(&url).ok()?,
        types: types.map(|WebhookTypes { types }| types),
        secret: Digest::from_bytes(secret.try_into().ok()?),
        created_at: time(created_at),
        disabled,
    };
    Some(StoredWebhook { webhook, cursor })
}

/// A waiting delivery, due at once.
pub(super) fn write_pending(delivery: &Delivery) -> PendingDelivery {
    let Delivery { event, number, kind: _, body: _, created_at, attempts } = delivery;
    let (event, due_at) = (event.as_bytes().to_vec(), created_at.millis());
    PendingDelivery { event, number: *number, due_at, attempts: *attempts }
}

/// A waiting delivery, without its content.
pub(super) fn read_pending(waiting: &PendingDelivery) -> Option<Delivery> {
    let nothing = messages::Delivery::default();
    read_delivery(waiting, nothing)
}

pub(super) fn write_delivery(delivery: &Delivery) -> messages::Delivery {
    let Delivery { event: _, number: _, kind, body, created_at, attempts: _ } = delivery;
    messages::Delivery { kind: kind.clone(), body: body.clone(), created_at: created_at.millis() }
}

pub(super) fn read_delivery(waiting: &PendingDelivery, sent: messages::Delivery) -> Option<Delivery> {
    let (event, created_at) = (EventId::from_slice(&waiting.event)?, time(sent.created_at));
    let (number, attempts) = (waiting.number, waiting.attempts);
    Some(Delivery { event, number, kind: sent.kind, body: sent.body, created_at, attempts })
}

pub(super) fn write_attempt(attempt: &Attempt) -> messages::DeliveryAttempt {
    let Attempt { event, kind, at, milliseconds, answer } = attempt;
    let answer = match answer {
        ReceiverAnswer::Status(status) => delivery_attempt::Answer::Status(u32::from(*status)),
        ReceiverAnswer::None(reason) => delivery_attempt::Answer::Reason(reason.clone()),
    };
    messages::DeliveryAttempt {
        event: event.as_bytes().to_vec(),
        kind: kind.clone(),
        at: at.millis(),
        milliseconds: *milliseconds,
        answer: Some(answer),
    }
}

pub(super) fn read_attempt(attempt: messages::DeliveryAttempt) -> Option<Attempt> {
    let messages::DeliveryAttempt { event, kind, at, milliseconds, answer } = attempt;
    let answer = match answer? {
        delivery_attempt::Answer::Status(status) => ReceiverAnswer::Status(status.try_into().ok()?),
        delivery_attempt::Answer::Reason(reason) => ReceiverAnswer::None(reason),
    };
    Some(Attempt { event: EventId::from_slice(&event)?, kind, at: time(at), milliseconds, answer })
}

pub(crate) fn read(id: WebhookId, webhook: messages::Webhook) -> Result<StoredWebhook, StoreError> {
    read_webhook(id, webhook).ok_or_else(|| unreadable(id))
}

/// The list of an account's webhooks.
pub(crate) fn list() -> Name {
    layout::name(layout::WEBHOOKS, *b"l")
}

pub(crate) fn webhook(id: WebhookId) -> Name {
    layout::name(layout::WEBHOOKS, layout::tagged(b'w', id.as_bytes()))
}

/// A webhook's waiting deliveries.
pub(crate) fn pending(id: WebhookId) -> Name {
    layout::name(layout::WEBHOOKS, layout::tagged(b'p', id.as_bytes()))
}

/// The last attempts of a webhook.
pub(crate) fn attempts(id: WebhookId) -> Name {
    layout::name(layout::WEBHOOKS, layout::tagged(b'a', id.as_bytes()))
}

/// The content of an event's delivery.
pub(crate) fn delivery(id: WebhookId, event: &[u8]) -> Name {
    layout::name(layout::DELIVERIES, [id.as_bytes(), event].concat())
}

pub(crate) fn unreadable(what: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}

#[cfg(test)]
mod fuzz;
