//! Types of requests to the store and of what it returns.

use key_service_ledger::StoreError;
pub use key_service_ledger::{journal::JournalEntry, stored::Credential};
use shared::{
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId, ManagementKeyId, MemberId, OperatorKeyId},
    money::NanoUsd,
    time::Timestamp,
};

use domain::{
    access::{Access, OperatorRights},
    digest::Digest,
    event::{Event, EventKind},
    governed::IdempotencyKeyReused,
    key::Status,
    ledger::{AccountStatus, Deposited, Payer, Standing},
    settings::AccountLabels,
    usage::{Counts, Day, DayTotal},
};

#[derive(Clone, Debug, Default)]
pub struct HoldIndex {
    pub accounts: Vec<AccountId>,
    /// Why the list may be incomplete: a part of the store could not be reached. `None` if the list is complete.
    pub missing: Option<StoreError>,
}

/// One page of an account's due holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueHolds {
    pub holds: Vec<DueHold>,
    /// Cursor of the next page; `None` after the last page.
    pub next: Option<Cursor>,
}

/// Position in a listing of due holds. Only the store that created the cursor can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A hold whose lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueHold {
    pub key: KeyId,
    pub generation: GenerationId,
}

/// By how much our clock is ahead of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Milliseconds; negative if our clock is behind.
    pub millis: i64,
}

#[derive(Clone, Debug)]
pub struct NewAccount {
    pub id: AccountId,
    pub name: String,
    pub created_at: Timestamp,
}

/// Account with its money and the number of its API keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSummary {
    pub id: AccountId,
    pub name: String,
    pub credit: NanoUsd,
    /// Part of the credit that open holds reserve.
    pub held: NanoUsd,
    /// Number of API keys ever created, including revoked keys.
    pub keys: u64,
    /// Number of groups ever created, including archived ones.
    pub groups: u64,
    pub labels: AccountLabels,
    /// Whether the account is suspended or closed; `None` while it is active.
    pub standing: Option<Standing>,
    pub created_at: Timestamp,
}

impl AccountSummary {
    pub const fn status(&self) -> AccountStatus {
        AccountStatus::of(self.standing.as_ref())
    }
}

/// Name and money of an account, and the numbers of its API keys and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Funds {
    pub name: String,
    pub credit: NanoUsd,
    /// Part of the credit that open holds reserve.
    pub held: NanoUsd,
    /// Number of API keys ever created, including revoked keys.
    pub keys: u64,
    /// Number of groups ever created, including archived groups.
    pub groups: u64,
    /// Whether calls were refused today (a day in UTC).
    pub has_refused: bool,
    /// Whether the account is suspended or closed; `None` while it is active.
    pub standing: Option<Standing>,
    /// Why the account is suspended.
    pub suspended_reason: Option<String>,
}

impl Funds {
    pub const fn status(&self) -> AccountStatus {
        AccountStatus::of(self.standing.as_ref())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// The id contains the time of the deposit, unless it is derived from a payment's id.
    pub id: DepositId,
    /// The deposit's amount, the credit after it, its note and its payment.
    pub deposited: Deposited,
}

impl Deposit {
    pub fn at(&self) -> Timestamp {
        self.deposited.payment.as_ref().map_or_else(|| self.id.created_at(), |payment| payment.at)
    }
}

#[derive(Clone, Debug)]
pub struct NewManagementKey {
    pub account: AccountId,
    pub key: ManagementKey,
    pub digest: Digest,
    /// Maximum number of management keys in the account, including revoked keys.
    pub most: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementKey {
    pub id: ManagementKeyId,
    /// Name chosen by the owner.
    pub name: String,
    /// Part of the plaintext that may be shown.
    pub hint: String,
    pub access: Access,
    pub created_at: Timestamp,
    /// When the key expires, if ever.
    pub expires_at: Option<Timestamp>,
    /// When the key was last used, as recorded at most once a minute.
    pub last_used_at: Option<Timestamp>,
    /// Time of revocation, if any.
    pub revoked_at: Option<Timestamp>,
}

impl ManagementKey {
    /// Returns the current status of the key, according to the same rules as for API keys.
    pub fn status(&self, now: Timestamp) -> Status {
        status(self.revoked_at, self.expires_at, now)
    }

    /// Returns the event that reports the key's creation and its rights.
    pub fn creation(&self) -> EventKind {
        EventKind::ManagementKeyCreated {
            management_key_id: self.id,
            name: self.name.clone(),
            scope: Some(self.access.scope.as_str().to_owned()),
            group_id: self.access.group,
            expires_at: self.expires_at,
        }
    }
}

/// Why a management key was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagementKeyNotMade {
    /// The idempotency key was used with a different request.
    Reused,
    /// The account has the maximum number of management keys.
    TooMany,
}

impl From<IdempotencyKeyReused> for ManagementKeyNotMade {
    fn from(_: IdempotencyKeyReused) -> Self {
        Self::Reused
    }
}

/// An operator key to be made.
#[derive(Clone, Debug)]
pub struct NewOperatorKey {
    pub key: OperatorKey,
    pub digest: Digest,
    /// Maximum number of operator keys, including revoked keys.
    pub most: u64,
}

/// A key of the operators, for the operator API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorKey {
    pub id: OperatorKeyId,
    /// Name, chosen by an operator.
    pub name: String,
    /// Part of the plaintext that may be shown.
    pub hint: String,
    pub rights: OperatorRights,
    pub created_at: Timestamp,
    /// Expiry that the key was created with, if any.
    pub expires_at: Option<Timestamp>,
    /// Last recorded use. The actual last use was at most a minute later.
    pub last_used_at: Option<Timestamp>,
    /// Time of revocation, if any.
    pub revoked_at: Option<Timestamp>,
    /// Time from which the key is refused because another key replaced it, if any.
    pub ends_at: Option<Timestamp>,
}

impl OperatorKey {
    pub fn status(&self, now: Timestamp) -> Status {
        status(self.revoked_at, self.end(), now)
    }

    /// Returns the time from which the key is refused, if any, unless it is revoked earlier.
    pub fn end(&self) -> Option<Timestamp> {
        self.expires_at.into_iter().chain(self.ends_at).min()
    }

    /// Returns the event that reports the key's creation and its rights.
    pub fn creation(&self) -> EventKind {
        let OperatorRights { scopes, networks, max_payment } = &self.rights;
        EventKind::OperatorKeyCreated {
            operator_key_id: self.id,
            name: self.name.clone(),
            scopes: scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
            expires_at: self.expires_at,
            networks: networks.as_ref().map(|all| all.iter().map(ToString::to_string).collect()),
            max_payment: *max_payment,
        }
    }
}

/// The rotation of an operator key: the new key, and the end of the previous one.
#[derive(Clone, Debug)]
pub struct OperatorRotation {
    pub previous: OperatorKeyId,
    pub new: NewOperatorKey,
    /// Time from which the previous key is refused.
    pub ends_at: Timestamp,
}

/// Answer to the creation or rotation of an operator key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorKeyMade {
    Made,
    /// The maximum number of operator keys is reached.
    TooMany,
    /// No operator key has the id of the previous one, or that key has ended.
    NoPrevious,
}

/// An idempotency key, which makes a request take effect only once.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// Digest of the client's idempotency key, unique in the account until `expires_at`.
    pub key: Digest,
    /// Digest of the request. The same key with a different request is refused.
    pub request: Digest,
    pub now: Timestamp,
    /// When the idempotency key may be used again.
    pub expires_at: Timestamp,
}

/// A member's record that expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringRecord {
    pub kind: RecordKind,
    /// Digest of the secret by which the record is found or, if there is none, of the member's id.
    pub name: Digest,
    /// The member to whom the record belongs. When the member is removed, the record becomes void.
    pub member: MemberId,
    pub expires_at: Timestamp,
    /// Content of the record. The store does not interpret it.
    pub value: String,
}

/// Kind of an expiring record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A sign-in link. A member has only one at a time.
    Link,
    /// A session of a browser.
    Session,
    /// Alarms that a member has muted.
    MutedAlarms,
}

impl RecordKind {
    /// Returns the stored form of the kind, which must never change.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Session => "session",
            Self::MutedAlarms => "muted_alarms",
        }
    }
}

/// Which page of an account's keys to list.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The list begins after this key, which may not exist any more.
    pub after: Option<KeyId>,
    pub order: Order,
    /// Lists only keys that have this status at this time.
    pub status: Option<(Status, Timestamp)>,
    /// Maximum number of keys to return.
    pub limit: usize,
}

/// The searchable texts of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyName {
    pub id: KeyId,
    /// Label chosen by the owner.
    pub label: String,
    /// The part of the plaintext that may be shown: its beginning and its end.
    pub hint: String,
}

/// Which page of an account's groups to list.
#[derive(Clone, Copy, Debug)]
pub struct GroupPage {
    /// The list begins after this group, which may not exist.
    pub after: Option<GroupId>,
    pub order: Order,
    /// Maximum number of groups to return.
    pub limit: usize,
}

/// The groups of an account with the highest usage.
pub struct TopGroups {
    pub ids: Vec<GroupId>,
    /// Whether these are all of the account's groups.
    pub are_all: bool,
}

/// The order of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// A page of an account's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPage {
    /// Entries, sorted by their numbers.
    pub entries: Vec<JournalEntry>,
    /// The store has dropped the entries up to this number; zero if it has dropped none.
    pub gone_until: u64,
}

/// Which of an account's events to read.
#[derive(Clone, Copy, Debug)]
pub struct EventSlice {
    pub order: Order,
    /// The events after the event with this number are read; `None` if the slice begins with the first event.
    pub behind: Option<u64>,
    /// Maximum number of events to return.
    pub limit: usize,
}

impl EventSlice {
    /// Selects the latest events, newest first.
    pub const fn latest(limit: usize) -> Self {
        Self { order: Order::Descending, behind: None, limit }
    }
}

/// A page of an account's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsPage {
    /// Events, sorted by their numbers.
    pub events: Vec<NumberedEvent>,
    /// The store has dropped the events up to this number; zero if it has dropped none.
    pub gone_until: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// Number of the event: one more than that of the account's previous event.
    pub number: u64,
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T, C> {
    /// The matches, in the order of the search.
    pub found: Vec<T>,
    /// Position after which the search can be continued; `None` if everything was read.
    pub next: Option<C>,
}

/// The counters of a payer on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageLine {
    pub day: Day,
    pub payer: Payer,
    pub counts: DayTotal<Counts>,
}

/// Status of a management key or an operator key.
fn status(revoked_at: Option<Timestamp>, expires_at: Option<Timestamp>, now: Timestamp) -> Status {
    if revoked_at.is_some() {
        Status::Revoked
    } else if expires_at.is_some_and(|expires_at| expires_at <= now) {
        Status::Expired
    } else {
        Status::Active
    }
}
