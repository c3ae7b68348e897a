//! What a store promises, whatever it is made of.

pub mod memory;
pub mod redis;
pub mod sqlite;
#[cfg(test)]
pub(crate) mod suite;

use std::ops::RangeInclusive;

use async_trait::async_trait;
use shared::{
    digest::Digest,
    ids::{AccountId, GenerationId, KeyId, ManagementKeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::domain::{
    audit::Audit,
    key::{AlreadyRevoked, ApiKey, KeyPatch, NewKey},
    ledger::{Command, Outcome, Refused, Settlement},
    usage::{Counts, Day},
};

/// Keeps accounts, keys, holds and the journal.
///
/// Every method is atomic: it happens whole or not at all, and concurrent calls happen in some order. What was
/// acknowledged survives a crash of this process and of the machine (the memory store excepted). After
/// [`Unavailable`] the outcome is unknown, and the same call may be made again.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies the commands in their order to one account, as [`crate::domain::ledger::apply`] says; one outcome each.
    /// Commands for an account that does not exist are refused with [`Refused::UnknownKey`].
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Unavailable>;

    /// Holds whose lease has run out by `now`, those due longest first, at most `limit`.
    async fn due_holds(&self, now: Timestamp, limit: usize) -> Result<Vec<DueHold>, Unavailable>;

    /// Whose credential has this digest. The answer never changes once there is one, so that callers may cache it;
    /// it says nothing about revocation.
    async fn find_credential(&self, digest: Digest) -> Result<Option<Owner>, Unavailable>;

    /// Makes an account without credit. `false` where the name is taken.
    async fn create_account(&self, account: NewAccount) -> Result<bool, Unavailable>;

    /// All accounts, oldest first.
    async fn accounts(&self) -> Result<Vec<AccountSummary>, Unavailable>;

    /// Makes a management key of an existing account.
    async fn create_management_key(&self, key: NewManagementKey) -> Result<(), Unavailable>;

    /// The account's management keys, oldest first.
    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, Unavailable>;

    /// One management key of the account.
    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, Unavailable>;

    /// Revokes a management key, of whatever account; again is the same. `None` where there is none.
    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, Unavailable>;

    /// Makes an API key of an existing account, unless its idempotency key was used within its time to live.
    async fn create_key(&self, key: NewKey, idempotency: Option<Idempotency>)
    -> Result<Created, Unavailable>;

    /// One API key of the account.
    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, Unavailable>;

    /// API keys of the account in the order of their ids, starting behind `page.after`.
    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, Unavailable>;

    /// Changes an API key and answers what it is then. `None` where the account has no such key.
    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<Option<Result<ApiKey, AlreadyRevoked>>, Unavailable>;

    /// Revokes an API key and answers what it is then; again is the same. `None` where the account has no such key.
    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, Unavailable>;

    /// Entries of the account's journal behind number `after`, in the order of their settlement, at most `limit`. Read
    /// page by page, every generation that is billed before the last page is read is seen; one whose late capture came
    /// meanwhile is seen again under a new number.
    async fn journal(&self, account: AccountId, after: u64, limit: usize)
    -> Result<JournalPage, Unavailable>;

    /// What was counted on these days, of all keys or of one, in the order of days, keys and models.
    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, Unavailable>;

    /// Whether the account's books add up, as of one moment, while others go on spending. `None` where there is no such
    /// account. Reads the whole journal, in memory that does not grow with it.
    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, Unavailable>;

    /// Whether the store answers at all.
    async fn ping(&self) -> Result<(), Unavailable>;
}

/// One answer per command, in the order of the commands.
pub type Outcomes = Vec<Result<Outcome, Refused>>;

/// The store cannot be reached, or did not confirm: the outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the store is unavailable: {0}")]
pub struct Unavailable(pub String);

/// A hold whose lease has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueHold {
    /// The account that pays.
    pub account: AccountId,
    /// The key that pays.
    pub key: KeyId,
    /// The generation.
    pub generation: GenerationId,
}

/// Whose credential it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An API key of the account.
    ApiKey(AccountId, KeyId),
    /// A management key of the account.
    ManagementKey(AccountId, ManagementKeyId),
}

/// An account to be made.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Its identifier.
    pub id: AccountId,
    /// Its name, unique.
    pub name: String,
    /// When it is made.
    pub created_at: Timestamp,
}

/// An account, its money, and how many API keys it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSummary {
    /// Its identifier.
    pub id: AccountId,
    /// Its name, unique.
    pub name: String,
    /// Prepaid credit.
    pub credit: NanoUsd,
    /// The part of it that open holds cover.
    pub held: NanoUsd,
    /// API keys ever made, revoked ones included.
    pub keys: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A management key to be made.
#[derive(Clone, Debug)]
pub struct NewManagementKey {
    /// Who owns it.
    pub account: AccountId,
    /// The key.
    pub key: ManagementKey,
    /// What is stored of its plaintext.
    pub digest: Digest,
}

/// A management key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementKey {
    /// Its identifier.
    pub id: ManagementKeyId,
    /// What its owner calls it.
    pub name: String,
    /// What may be shown of its plaintext.
    pub hint: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
}

/// A promise to make a key only once.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// What the client calls the attempt; unique in its account while it lives.
    pub key: String,
    /// A digest of the request: the same key with another request is a mistake.
    pub request: Digest,
    /// When the attempt happens.
    pub now: Timestamp,
    /// When the promise ends.
    pub expires_at: Timestamp,
}

/// What came of creating a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The key was made.
    New(ApiKey),
    /// The same request made this key before; it is answered as it is now.
    Replayed(ApiKey),
    /// The idempotency key was used with another request.
    Reused,
}

/// A page of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Start behind this key, which need not exist (any more).
    pub after: Option<KeyId>,
    /// Which end comes first.
    pub order: Order,
    /// Most keys to answer.
    pub limit: usize,
}

/// The order of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

/// Some of an account's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPage {
    /// The entries, in the order of their numbers.
    pub entries: Vec<JournalEntry>,
    /// The number up to which the store has dropped entries and kept only their sums by key; zero: none.
    pub gone_until: u64,
}

/// How a generation was billed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its number: later settlements of the account have higher ones. When a capture comes after an expiry, the entry
    /// moves to the end under a new number.
    pub number: u64,
    /// The generation.
    pub generation: GenerationId,
    /// What was billed.
    pub settlement: Settlement,
}

/// What a key used of a model on a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageLine {
    /// The day.
    pub day: Day,
    /// The key.
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// What was counted.
    pub counts: Counts,
}
