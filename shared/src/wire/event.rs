//! Events, as the management API, exports and webhooks write them, and as stores keep them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    ids::{EventId, GroupId, KeyId},
    timing::time::Timestamp,
};

/// Types of events. Types may be added, but are never renamed.
pub const EVENT_TYPES: [&str; 32] = [
    "account.created",
    "account.updated",
    "account.suspended",
    "account.restored",
    "account.closed",
    "key.created",
    "key.updated",
    "key.rotated",
    "key.revoked",
    "key.threshold_reached",
    "key.limit_reached",
    "group.created",
    "group.updated",
    "group.archived",
    "group.paid",
    "group.refunded",
    "group.threshold_reached",
    "group.limit_reached",
    "credit.added",
    "credit.refunded",
    "credit.threshold_reached",
    "credit.exhausted",
    "management_key.created",
    "management_key.revoked",
    "member.invited",
    "member.role_changed",
    "member.removed",
    "member.signed_in",
    "member.second_factor_enabled",
    "member.second_factor_removed",
    "webhook.disabled",
    "alert.raised",
];

/// Types of events of the installation, which no account has.
pub const OPERATOR_EVENT_TYPES: [&str; 3] =
    ["operator_key.created", "operator_key.rotated", "operator_key.revoked"];

/// Type of the event that tests a webhook. It is sent only to that webhook, and is not stored.
pub const TEST_EVENT_TYPE: &str = "webhook.test";

/// Returns the types in the order in which the API's description lists them.
fn described_types() -> Vec<&'static str> {
    EVENT_TYPES.into_iter().chain(OPERATOR_EVENT_TYPES).chain([TEST_EVENT_TYPE]).collect()
}

/// A change in the account, or a threshold that was crossed.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Event")]
pub struct EventObject {
    /// The event; the same in every delivery and export.
    pub id: EventId,
    /// `event`
    #[schemars(extend("const" = "event"))]
    pub object: String,
    /// Type of the event. Types are added, and never renamed.
    #[schemars(extend("enum" = described_types()))]
    pub r#type: String,
    /// Time of the change, or of the bill that crossed the threshold.
    pub created_at: Timestamp,
    /// Who acted.
    pub actor: ActorObject,
    /// The key that the event is about, if any.
    pub key_id: Option<KeyId>,
    /// The group that the event is about, or the group of the key, if any.
    pub group_id: Option<GroupId>,
    /// Details, by type: for example `changes` for `key.updated`, each field with its values before and after; or
    /// `deposit_id` and `amount` for `credit.added`, with `note`, `payment_id` and `group_id` if they were given. Refunds
    /// add `shortfall`, the part that could not be taken, and `of`, the payment. A changed value
    /// of more than 1,024 bytes of JSON is `{"cut":true,"bytes":…,"begins":"…"}`: its length, and the first characters
    /// of its JSON.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub data: Box<RawValue>,
}

/// The actor of an event.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Actor")]
pub struct ActorObject {
    /// `management_key`, `member` of the account, `operator` with a command or on a page, `operator_key`, or `system`.
    #[schemars(extend("enum" = ["management_key", "member", "operator", "operator_key", "system"]))]
    pub r#type: String,
    /// Id of the management key, the operator key or the member.
    pub id: Option<String>,
    /// Name at the time of the change.
    pub name: Option<String>,
}
