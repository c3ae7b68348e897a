//! Records of webhooks, of their deliveries and of attempts, as JSON in every store.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shared::{
    ids::{EventId, WebhookId},
    time::Timestamp,
};

use domain::{
    digest::Digest,
    webhook::{Answer, Attempt, Delivery, DisabledReason, Webhook, WebhookUrl},
};

#[derive(Serialize, Deserialize)]
struct WebhookRecord {
    url: String,
    types: Option<Vec<String>>,
    secret: String,
    created_at: i64,
    disabled: Option<(i64, String)>,
}

#[derive(Serialize, Deserialize)]
struct DeliveryRecord {
    number: Option<u64>,
    kind: String,
    body: String,
    created_at: i64,
}

#[derive(Serialize, Deserialize)]
struct AttemptRecord {
    event: EventId,
    kind: String,
    at: i64,
    milliseconds: u64,
    status: Option<u16>,
    reason: Option<String>,
}

/// Writes what a store keeps of a webhook beside its id and its cursor.
pub(super) fn webhook(webhook: &Webhook) -> String {
    let Webhook { id: _, url, types, secret, created_at, disabled } = webhook;
    json(&WebhookRecord {
        url: url.as_str().to_owned(),
        types: types.clone(),
        secret: hex::encode(secret.as_bytes()),
        created_at: created_at.millis(),
        disabled: disabled.map(|(at, reason)| (at.millis(), reason.as_str().to_owned())),
    })
}

pub(super) fn read_webhook(id: WebhookId, record: &str) -> Option<Webhook> {
    let WebhookRecord { url, types, secret, created_at, disabled } = read(record)?;
    let mut digest = [0; 32];
    hex::decode_to_slice(secret, &mut digest).ok()?;
    let disabled = match disabled {
        Some((at, reason)) => Some((Timestamp::from_millis(at), DisabledReason::parse(&reason)?)),
        None => None,
    };
    Some(Webhook {
        id,
        url: WebhookUrl::stored(&url).ok()?,
        types,
        secret: Digest::from_bytes(digest),
        created_at: Timestamp::from_millis(created_at),
        disabled,
    })
}

/// Writes what a store keeps of a delivery beside its event and the number of attempts.
pub(super) fn delivery(delivery: &Delivery) -> String {
    let Delivery { event: _, number, kind, body, created_at, attempts: _ } = delivery;
    let (kind, body) = (kind.clone(), body.clone());
    json(&DeliveryRecord { number: *number, kind, body, created_at: created_at.millis() })
}

pub(super) fn read_delivery(event: EventId, attempts: u32, record: &str) -> Option<Delivery> {
    let DeliveryRecord { number, kind, body, created_at } = read(record)?;
    Some(Delivery { event, number, kind, body, created_at: Timestamp::from_millis(created_at), attempts })
}

pub(super) fn attempt(attempt: &Attempt) -> String {
    let Attempt { event, kind, at, milliseconds, answer } = attempt;
    let (status, reason) = match answer {
        Answer::Status(status) => (Some(*status), None),
        Answer::None(reason) => (None, Some(reason.clone())),
    };
    let (event, kind, milliseconds) = (*event, kind.clone(), *milliseconds);
    json(&AttemptRecord { event, kind, at: at.millis(), milliseconds, status, reason })
}

pub(super) fn read_attempt(record: &str) -> Option<Attempt> {
    let AttemptRecord { event, kind, at, milliseconds, status, reason } = read(record)?;
    let answer = status.map(Answer::Status).or(reason.map(Answer::None))?;
    Some(Attempt { event, kind, at: Timestamp::from_millis(at), milliseconds, answer })
}

/// Writes a record. Texts, numbers and lists of them always can be.
fn json(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

fn read<T: DeserializeOwned>(record: &str) -> Option<T> {
    serde_json::from_str(record).ok()
}
