//! Objects that can be read but not changed through the management API: money, sums of usage, bills.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    call::generation::{FinishReason, ModelApi},
    ids::{DepositId, EventId, GenerationId, GroupId, KeyId, RefusalId, RequestId},
    money::NanoUsd,
    timing::time::Timestamp,
};

/// Money of an account.
#[derive(JsonSchema, Serialize)]
pub struct Credits {
    /// `credits`
    #[schemars(extend("const" = "credits"))]
    pub object: &'static str,
    /// Prepaid credit left, including held amounts.
    pub credit: NanoUsd,
    /// Part of the credit that requests in flight hold.
    pub held: NanoUsd,
    /// Sum of all deposits.
    pub total_deposited: NanoUsd,
    /// Sum of all refunds.
    pub total_refunded: NanoUsd,
    /// Sum of all charges.
    pub total_used: NanoUsd,
}

/// A payment or a refund, as it took effect.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Payment")]
pub struct PaymentObject<'a> {
    /// The deposit, as events name it.
    pub id: DepositId,
    /// `payment` or `refund`
    #[schemars(extend("enum" = ["payment", "refund"]))]
    pub object: &'static str,
    /// Your own id of the payment or refund.
    pub payment_id: &'a str,
    /// Amount that was asked for.
    pub amount: NanoUsd,
    /// Amount that the refund took. Only refunds have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<NanoUsd>,
    /// Part of `amount` that could not be taken. It is no debt. Only refunds have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<NanoUsd>,
    /// The payment that was refunded, if the request named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<&'a str>,
    /// Note for people.
    pub note: &'a str,
    /// The group whose limit changed, if any.
    pub group_id: Option<GroupId>,
    /// The account's credit just after it.
    pub credit_after: Option<NanoUsd>,
    /// The group's limit just after it.
    pub group_limit_after: Option<NanoUsd>,
    /// Time at which it took effect.
    pub created_at: Timestamp,
}

/// Sums of usage. They cover all keys, groups, models, users, upstreams and times, except as far as the object names
/// some.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "UsageLine")]
pub struct UsageObject<'a> {
    /// The day in UTC, where usage is grouped by day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// The beginning of the hour in UTC, where usage is grouped by hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour: Option<String>,
    /// The key, where usage is grouped by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    /// The group that the keys were in, where usage is grouped by group; null for keys without a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<Option<GroupId>>,
    /// The top-level group that the keys were in, where usage is grouped by top-level group; null for keys without a
    /// group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_group_id: Option<Option<GroupId>>,
    /// The model, where usage is grouped by model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
    /// The user that callers named, where usage is grouped by user; null for requests without a user, and for
    /// `other_users`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Option<&'a str>>,
    /// True for the sum of all further users of a day. Only about the first 200 users have sums of their own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub other_users: bool,
    /// The upstream that answered, where usage is grouped by upstream; null for bills that name none, and for `others`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Option<&'a str>>,
    /// True for the sum of everything that has no sum of its own: it is not among the `top`, or (by upstream) not among
    /// the latest 50,000 bills.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
    /// Billed requests.
    pub requests: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were read from a cache.
    pub cached_tokens: u64,
    /// Tokens of answers.
    pub completion_tokens: u64,
    /// Amount charged. It is below zero on a day on which corrections gave back more than was billed.
    pub cost: NanoUsd,
}

/// A list of sums of usage.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "UsageList")]
pub struct UsageList<'a> {
    /// `list`
    #[schemars(extend("const" = "list"))]
    pub object: &'static str,
    /// The sums.
    pub data: Vec<UsageObject<'a>>,
    /// Always false: the list is whole.
    pub has_more: bool,
}

/// The bill of a generation.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Generation")]
pub struct BillObject<'a> {
    /// The generation.
    pub id: GenerationId,
    /// `generation`
    #[schemars(extend("const" = "generation"))]
    pub object: &'static str,
    /// The key that paid.
    pub key_id: KeyId,
    /// The group that the key was in.
    pub group_id: Option<GroupId>,
    /// The model.
    pub model: &'a str,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that were read from a cache.
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Cost of the tokens.
    pub cost: NanoUsd,
    /// Amount billed: the cost, or less if the money was used up.
    pub charged: NanoUsd,
    /// Part of the cost that was not billed.
    pub shortfall: NanoUsd,
    /// `captured`, or `expired` if the gateway was lost and its last report was billed.
    #[schemars(extend("enum" = ["captured", "expired"]))]
    pub ending: &'static str,
    /// The tokens are an estimate.
    pub estimated: bool,
    /// API of the call. Null, like the members after it, if the gateway did not report it.
    pub dialect: Option<ModelApi>,
    /// Whether the answer was requested as a stream.
    pub stream: Option<bool>,
    /// The caller's name for its user, cut to 64 characters: `user`, `safety_identifier` or `metadata.user_id`.
    pub user: Option<&'a str>,
    /// Id of the request, which the answer contains as `x-request-id`.
    pub request_id: Option<RequestId>,
    /// Name in the catalogue of the upstream that was asked last.
    pub upstream: Option<&'a str>,
    /// Why the first choice ended.
    pub finish_reason: Option<FinishReason>,
    /// Milliseconds from the start of the request until money was held for it.
    pub authorized_ms: Option<u64>,
    /// Milliseconds from the start of the request to the first token of a stream.
    pub first_token_ms: Option<u64>,
    /// Milliseconds from the start of the request to the end of the answer.
    pub latency_ms: Option<u64>,
    /// Time at which the request began.
    pub created_at: Timestamp,
}

/// A refused call.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Refusal")]
pub struct RefusalObject<'a> {
    /// The refusal.
    pub id: RefusalId,
    /// `refusal`
    #[schemars(extend("const" = "refusal"))]
    pub object: &'static str,
    /// The key.
    pub key_id: KeyId,
    /// Error code in the caller's answer.
    pub reason: &'a str,
    /// The requested model. If the key may not make any calls, this is null, as are all following members except the
    /// time.
    pub model: Option<&'a str>,
    /// API of the call.
    pub dialect: Option<ModelApi>,
    /// Whether the answer was requested as a stream.
    pub stream: Option<bool>,
    /// The name that the caller gave to its user, cut to 64 characters.
    pub user: Option<&'a str>,
    /// Id of the request, which the answer contains as `x-request-id`.
    pub request_id: Option<RequestId>,
    /// Time of the refusal.
    pub created_at: Timestamp,
}

/// Answer to the revocation of a group's keys.
#[derive(JsonSchema, Serialize)]
pub struct RevokedKeys {
    /// The group.
    pub id: GroupId,
    /// `group.revoked_keys`
    #[schemars(extend("const" = "group.revoked_keys"))]
    pub object: &'static str,
    /// Number of keys that this request revoked; keys that were revoked before do not count.
    pub revoked: u64,
}

/// An attempt to deliver an event to a webhook.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "WebhookDelivery")]
pub struct AttemptObject<'a> {
    /// `webhook.delivery`
    #[schemars(extend("const" = "webhook.delivery"))]
    pub object: &'static str,
    /// The event.
    pub event_id: EventId,
    /// Type of the event.
    pub r#type: &'a str,
    /// Time of the attempt.
    pub created_at: Timestamp,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Status of the answer; null if there was no answer.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub error: Option<&'a str>,
}

/// An attempt to send a message of an alert.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "AlertMessage")]
pub struct MessageObject<'a> {
    /// `alert.message`
    #[schemars(extend("const" = "alert.message"))]
    pub object: &'static str,
    /// The event `alert.raised` that the message reports; for a test, an id that only the message has.
    pub event_id: EventId,
    /// Rule of the alert, or `test`.
    pub rule: &'a str,
    /// Time of the attempt.
    pub created_at: Timestamp,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Status of the answer; null if there was no answer.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub error: Option<&'a str>,
}

/// The last attempts to send messages of an alert.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "AlertMessageList")]
pub struct MessageList<'a> {
    /// `list`
    #[schemars(extend("const" = "list"))]
    pub object: &'static str,
    /// The attempts, newest first.
    pub data: Vec<MessageObject<'a>>,
    /// Always false: the list is whole.
    pub has_more: bool,
}

/// The last attempts to deliver events to a webhook.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "WebhookDeliveryList")]
pub struct AttemptList<'a> {
    /// `list`
    #[schemars(extend("const" = "list"))]
    pub object: &'static str,
    /// The attempts, newest first.
    pub data: Vec<AttemptObject<'a>>,
    /// Always false: the list is whole.
    pub has_more: bool,
}

/// Id and name of a key's group, and of the group's parent.
#[derive(JsonSchema, Serialize)]
pub struct OwnGroup {
    /// The group.
    pub id: GroupId,
    /// Its name.
    pub name: String,
    /// The group's parent.
    pub parent: Option<Box<OwnGroup>>,
}
