//! Stored records of webhooks and their deliveries.

use domain::digest::Digest;
use domain::webhook::Attempt;
use domain::webhook::DisabledReason;
use domain::webhook::WebhookUrl;
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::EventId, time::Timestamp};

use crate::stored::secret::hidden;

/// An account that has or had webhooks or alerts. Space `webhooks/…`, set `webhook accounts`, name: the account's id.
/// It is written before the account's first webhook or alert, and never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct WebhookAccount {}

/// A webhook. Set `webhooks`, name `w` and the webhook's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct WebhookRecord {
    #[n(0)]
    pub url: WebhookUrl,
    /// Types of the events to send; absent for all types.
    #[n(1)]
    pub types: Option<Vec<String>>,
    /// Digest of the secret. It shows which pepper the secret was derived from.
    #[n(2)]
    #[serde(serialize_with = "hidden")]
    pub secret: Digest,
    #[n(3)]
    pub created_at: Timestamp,
    #[cbor(n(4), decode_with = "shared::stored::whole_value::decode")]
    pub disabled: Option<(Timestamp, DisabledReason)>,
    /// Number of the last event for which it was decided whether to send it.
    #[n(5)]
    pub cursor: u64,
}

/// Waiting deliveries of a webhook or an alert, at most 256. Set `webhooks`, name `p` and the id of the webhook or
/// alert. A delivery is added, claimed and ended by writing this record, so no two processes can do this at the same
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PendingDeliveries {
    #[n(0)]
    pub deliveries: Vec<PendingDelivery>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PendingDelivery {
    #[n(0)]
    pub event: EventId,
    /// Number of the event in the account; absent for a test event.
    #[n(1)]
    pub number: Option<u64>,
    /// Time of the next attempt.
    #[n(2)]
    pub due_at: Timestamp,
    #[n(3)]
    pub attempts: u32,
}

/// Content of a delivery, which never changes. Set `deliveries`, name: ids of the webhook or alert and of the event.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct DeliveryContent {
    #[n(0)]
    pub kind: String,
    #[n(1)]
    pub body: String,
    #[n(2)]
    pub created_at: Timestamp,
}

/// Latest attempts of a webhook or an alert, newest first, at most 20. Set `webhooks`, name `a` and its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct DeliveryAttempts {
    #[n(0)]
    pub attempts: Vec<Attempt>,
}
