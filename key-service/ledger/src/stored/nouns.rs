//! Stored records of the nouns, beside their money. Unless a comment says otherwise, they are in the space of the
//! account.

use std::collections::BTreeMap;

use domain::{
    access::Access,
    digest::Digest,
    group::KeyDefaults,
    member::{MadeLink, PasswordHash, Role},
    second_factor::SecondFactor,
    webhook::{Attempt, DisabledReason, WebhookUrl},
};
use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};
use shared::{
    ids::{AccountId, EventId, GroupId, MemberId, Principal},
    money::NanoUsd,
    time::Timestamp,
};

/// Shows only whether a secret, or a hash of one, exists.
fn hidden<T, S: Serializer>(_: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("hidden")
}

/// Data of an account other than money. Set `profiles`, name `a`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountProfile {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub created_at: Timestamp,
    /// Number of API keys ever made.
    #[n(2)]
    pub keys: u64,
    /// Number of groups ever made.
    #[n(3)]
    pub groups: u64,
}

/// The account that has a name. Space `accounts/…`, set `account names`, name: the account's name. It is written before
/// the account, which begins with its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountName {
    #[n(0)]
    pub account: AccountId,
    #[n(1)]
    pub created_at: Timestamp,
}

/// Ids in their order, which is that of their times. They are of an account's management keys, members or webhooks (sets
/// of these names, name `l`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct IdList<T> {
    #[n(0)]
    pub ids: Vec<T>,
}

impl<T> Default for IdList<T> {
    fn default() -> Self {
        Self { ids: Vec::new() }
    }
}

/// Data of a key other than money. Set `profiles`, name `k` and the key's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct KeyProfile {
    #[n(0)]
    pub label: String,
    /// Part of the plaintext that may be shown.
    #[n(1)]
    pub hint: String,
    #[n(2)]
    pub created_at: Timestamp,
    #[n(3)]
    pub metadata: BTreeMap<String, String>,
    /// Amount spent before the key was made, with which its `used` began.
    #[n(4)]
    pub opening: NanoUsd,
    /// Credentials that rotations have made, except those forgotten since.
    #[n(5)]
    pub rotated: Vec<Rotated>,
}

/// A credential that a rotation has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Rotated {
    /// Number of the credential among those of the key, whose first one has zero.
    #[n(0)]
    pub number: u64,
    #[n(1)]
    #[serde(serialize_with = "hidden")]
    pub digest: Digest,
}

/// Data of a group other than money. Set `profiles`, name `g` and the group's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct GroupProfile {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub external_id: Option<String>,
    #[n(2)]
    pub metadata: BTreeMap<String, String>,
    /// Settings of keys that are made in the group.
    #[n(3)]
    pub key_defaults: KeyDefaults,
    #[n(4)]
    pub created_at: Timestamp,
    /// Number of keys in the group, revoked keys included.
    #[n(5)]
    pub keys: u64,
    /// Number of groups whose parent is this group.
    #[n(6)]
    pub children: u64,
    /// Amount spent before the group was made, with which its `used` began.
    #[n(7)]
    pub opening: NanoUsd,
}

/// The group of an external id. Set `external_ids`, name: the external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ExternalId {
    #[n(0)]
    pub group: GroupId,
}

/// Owner of a credential. Set `credentials`, name: the digest. Space: the part of the credentials with that digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Credential {
    #[n(0)]
    pub owner: Principal,
    /// Number of the credential among those of the key ([`domain::ledger::Rotation`]).
    #[n(1)]
    pub number: u64,
}

impl Credential {
    /// The credential that a key is made with.
    pub const fn first(owner: Principal) -> Self {
        Self { owner, number: 0 }
    }
}

/// Result of the request with an idempotency key. Set `idempotency`, name: the digest of the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct IdempotencyKey {
    #[n(0)]
    #[serde(serialize_with = "hidden")]
    pub request: Digest,
    /// Id of the object that was made or changed.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub made: [u8; 16],
    /// Time from which the idempotency key may be used again.
    #[n(2)]
    pub expires_at: Timestamp,
}

/// Peppers that the credentials were made with. Set `installation`, name `p`, space `installation`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PepperRecord {
    #[n(0)]
    #[serde(serialize_with = "hidden")]
    pub record: String,
}

/// A management key. Set `management keys`, name `k` and the id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ManagementKeyRecord {
    #[n(0)]
    pub name: String,
    /// Part of the plaintext that may be shown.
    #[n(1)]
    pub hint: String,
    #[n(2)]
    pub access: Access,
    #[n(3)]
    pub created_at: Timestamp,
    #[n(4)]
    pub expires_at: Option<Timestamp>,
    /// Last recorded use. The last use was within a minute of it.
    #[n(5)]
    pub last_used_at: Option<Timestamp>,
    #[n(6)]
    pub revoked_at: Option<Timestamp>,
}

/// The account of a management key. Space `management-keys/…`, set `management key owners`, name: the key's id. It is
/// written before the key, so a key with this id may not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ManagementKeyOwner {
    #[n(0)]
    pub account: AccountId,
}

/// A member of an account. Set `members`, name `m` and the id. A program that does not know a role refuses to read the
/// record, and so never writes it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct MemberRecord {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub role: Role,
    #[n(2)]
    #[serde(serialize_with = "hidden", skip_serializing_if = "Option::is_none")]
    pub password: Option<PasswordHash>,
    #[n(3)]
    pub created_at: Timestamp,
    /// The last sign-in link that was made.
    #[cbor(n(4), with = "shared::stored::known_value", has_nil)]
    pub last_link: Option<MadeLink>,
    #[n(5)]
    #[serde(serialize_with = "hidden", skip_serializing_if = "Option::is_none")]
    pub second_factor: Option<SecondFactor>,
}

/// The member who has a name. Set `members`, name `n` and the member's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct MemberName {
    #[n(0)]
    pub member: MemberId,
}

/// A sign-in link or a session. Set `expiring`, name `l` or `s` and the digest of the secret.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ExpiringValue {
    #[n(0)]
    pub member: MemberId,
    #[n(1)]
    pub expires_at: Timestamp,
    #[n(2)]
    #[serde(serialize_with = "hidden")]
    pub value: String,
}

/// Link that replaced a member's earlier one, and may itself be gone. Set `expiring`, name `m` and the member's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct LatestLink {
    #[n(0)]
    #[serde(serialize_with = "hidden")]
    pub digest: Digest,
}

/// A count of attempts. Space `attempts/…`, set `attempts`, name: the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Attempts {
    #[n(0)]
    pub count: u64,
    /// Time at which the count is forgotten.
    #[n(1)]
    pub until: Timestamp,
}

/// An account that has webhooks, or had some. Space `webhooks/…`, set `webhook_accounts`, name: the account's id. It is
/// written before the account's first webhook, and never removed.
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
    /// When and why the webhook was disabled, if it is.
    #[cbor(n(4), decode_with = "shared::stored::whole_value::decode")]
    pub disabled: Option<(Timestamp, DisabledReason)>,
    /// Number of the last event considered for the webhook.
    #[n(5)]
    pub cursor: u64,
}

/// Waiting deliveries of a webhook, at most 256. Set `webhooks`, name `p` and the webhook's id. Adding, claiming and
/// ending a delivery all write this record, so that no two processes do so at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PendingDeliveries {
    #[n(0)]
    pub deliveries: Vec<PendingDelivery>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PendingDelivery {
    #[n(0)]
    pub event: EventId,
    /// Number of the event in the account; absent for a test.
    #[n(1)]
    pub number: Option<u64>,
    /// Time of the next attempt.
    #[n(2)]
    pub due_at: Timestamp,
    #[n(3)]
    pub attempts: u32,
}

/// Content of a delivery, which never changes. Set `deliveries`, name: ids of the webhook and of the event.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct DeliveryContent {
    #[n(0)]
    pub kind: String,
    #[n(1)]
    pub body: String,
    #[n(2)]
    pub created_at: Timestamp,
}

/// Last attempts of a webhook, the newest first, at most 20. Set `webhooks`, name `a` and the webhook's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct DeliveryAttempts {
    #[n(0)]
    pub attempts: Vec<Attempt>,
}

/// Refused calls of a day. Set `refused`, part: the day, name: `a` for all keys, `k` and the id for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedDay {
    #[n(0)]
    pub counts: Vec<RefusedCount>,
}

/// Refused calls within an hour for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedCount {
    /// Hour of the day in UTC, from 0 to 23.
    #[n(0)]
    pub hour: u32,
    /// Error code in the public API.
    #[n(1)]
    pub reason: String,
    #[n(2)]
    pub count: u64,
}

/// Days for which counts of refused calls are kept. Set `house`, name `r`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedDays {
    /// Days since 1970, in ascending order.
    #[n(0)]
    pub days: Vec<u32>,
}

/// What is kept of refused calls. Set `house`, name `c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedCalls {
    /// Number of the last one.
    #[n(0)]
    pub last: u64,
}

/// An account that has open holds, or had some. Space `holders/…`, set `holders`, name: the account's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Holder {
    /// Time at which a process listed the account last, before it opened holds.
    #[n(0)]
    pub listed_at: Timestamp,
}

/// Restores of an account from a backup, and losses of the stores that it was copied from. After each, exported entries
/// and events get new, higher numbers. Redis keeps its own losses. Set `house`, name `n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Restores {
    /// Number of the first entry of the journal after each restore.
    #[n(0)]
    pub first_entries: Vec<u64>,
    /// Number of the first event after each restore.
    #[n(1)]
    pub first_events: Vec<u64>,
    /// Epoch of each restore, which is greater than the one before.
    #[n(2)]
    pub epochs: Vec<u64>,
    /// Losses of a store that this one was copied from: the first number that a lost entry may have had.
    #[n(3)]
    pub lost_entries: Vec<u64>,
    /// The same for events.
    #[n(4)]
    pub lost_events: Vec<u64>,
    /// Epoch of each loss.
    #[n(5)]
    pub lost_epochs: Vec<u64>,
}

/// Bills of an upstream in the last hours, of all accounts. Space and set `upstreams`, name: the model's id, a zero
/// byte, and the upstream's name in the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct UpstreamHours {
    /// In ascending order, without hours that are long over.
    #[n(0)]
    pub hours: Vec<UpstreamHour>,
}

/// Bills of an upstream within an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct UpstreamHour {
    /// Hours since 1970.
    #[n(0)]
    pub hour: u32,
    #[n(1)]
    pub bills: u64,
    /// Streams with a first token, by the class of its time.
    #[n(2)]
    pub first_tokens: Vec<u64>,
}
