//! Contract of a store, independent of its implementation: one trait per noun.

mod data;
mod latency;
mod records;
pub(crate) mod redis;
mod refused;
pub(crate) mod search;
mod sign_in;
pub(crate) mod sqlite;
#[cfg(test)]
pub(crate) mod suite;
mod webhook_records;

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use async_trait::async_trait;
use shared::{
    ids::{AccountId, EventId, GenerationId, GroupId, KeyId, ManagementKeyId, MemberId, WebhookId},
    time::Timestamp,
};

pub(crate) use self::data::{
    AccountSummary, Created, Credential, Cursor, Deposit, DueHold, DueHolds, EventSlice, EventsPage,
    ExpiringRecord, Found, Funds, GroupCreated, GroupPage, GroupUpdated, HoldIndex, Idempotency,
    JournalEntry, JournalPage, KeyName, ManagementKey, MemberCreated, NewAccount, NewManagementKey,
    NumberedEvent, Order, Page, RecordKind, Rotated, Skew, SpendLine, StoreError, Updated, UsageLine,
    WebhookCreated,
};
pub(crate) use self::refused::{Hour, REFUSED_KEPT_DAYS, RefusedCalls, RefusedLine};
use domain::{
    audit::Audit,
    digest::Digest,
    event::{Act, EventSearch},
    group::{Group, GroupPatch, NewGroup},
    key::{ApiKey, KeyPatch, NewCredential, NewKey},
    ledger::{Command, Outcome, Refused},
    member::{Member, MemberChange},
    moving::{Import, ImportRefused, Plan},
    search::EntrySearch,
    second_factor::SecondFactor,
    usage::{Day, Margin},
    webhook::{Attempt, Delivery, StoredWebhook, Webhook, WebhookPatch},
};

/// Life of events unless configured otherwise: a year, and time to read what it began with.
pub(crate) const EVENTS_KEPT: Duration = Duration::from_hours(400 * 24);

/// Events that an account keeps: a hundred acts a day for longer than [`EVENTS_KEPT`], and with indexes some 40 MB of Redis.
const MAX_EVENTS: u64 = 100_000;
/// Bytes of events that an account keeps, without indexes: 670 for each of [`MAX_EVENTS`], which is more than most acts write.
const MAX_EVENT_BYTES: u64 = 64 << 20;

/// Bounds of the events that an account keeps. The oldest are dropped first; the latest always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventBounds {
    /// Life of an event.
    pub(crate) life: Duration,
    /// Number of events.
    pub(crate) count: u64,
    /// Bytes of the events, as the store writes each.
    pub(crate) bytes: u64,
}

impl EventBounds {
    /// The bounds with this life of events.
    pub(crate) const fn with_life(life: Duration) -> Self {
        Self { life, count: MAX_EVENTS, bytes: MAX_EVENT_BYTES }
    }
}

/// The complete store. Every method of these traits is atomic: a call takes effect completely or not at all, and
/// concurrent calls take effect in some order. Acknowledged changes survive a crash of this process and of the machine
/// (a store in memory excepted). After [`StoreError::Unavailable`] the outcome is unknown, and the same call may be made
/// again; after every other error nothing changed.
///
/// A call with an [`Act`] governs an account. If the call changes something, the event of the change is written with the
/// change: both take effect, or none does. A repetition that changes nothing leaves no event.
pub trait Store:
    Ledger
    + Credentials
    + Keys
    + Groups
    + Imports
    + Webhooks
    + Accounts
    + Members
    + Expiring
    + Books
    + Events
    + RefusedCalls
    + Capacity
{
}

impl<S> Store for S where
    S: Ledger
        + Credentials
        + Keys
        + Groups
        + Imports
        + Webhooks
        + Accounts
        + Members
        + Expiring
        + Books
        + Events
        + RefusedCalls
        + Capacity
{
}

/// Money of accounts and keys, with the holds on that money.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Name of the database in spans.
    fn system(&self) -> &'static str;

    /// Applies commands in their order to one account by [`domain::ledger::apply`]; one outcome each. Commands for an
    /// account that does not exist are refused with [`Refused::UnknownKey`], commands whose record cannot be read with
    /// [`Refused::Damaged`].
    ///
    /// A [`Command::Tick`] takes the way of every other command, even as a mere question: an answer proves that a lease
    /// could have been renewed.
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError>;

    /// Lists the accounts with open holds. Accounts whose last hold was resolved may be listed for a while.
    async fn accounts_with_holds(&self) -> HoldIndex;

    /// Open holds of the account whose lease has run out (`lease_until <= tick`), page by page in any order: the first
    /// page, or the one behind a page's `next`. A hold that is due before the first page is read is on one of the pages.
    /// A hold that cannot be read counts as due.
    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError>;

    /// Our clock minus the store's; `None` where the store has no clock of its own. Fails while the store still loads
    /// its data.
    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError>;

    /// Succeeds if the store answers and has loaded its data.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Credentials by digest.
#[async_trait]
pub trait Credentials: Send + Sync + 'static {
    /// Finds the credential with this digest. Owner and number never change, so that callers may cache them. A credential
    /// of a revoked key is found as well. One that a rotation ended is refused by the ledger; the next rotation of the key
    /// forgets it, unless it is the first.
    async fn find_credential(&self, digest: Digest) -> Result<Option<Credential>, StoreError>;

    /// The record of the peppers that credentials were made with ([`domain::pepper_record`]), if there is one.
    async fn pepper_record(&self) -> Result<Option<String>, StoreError>;

    /// Replaces the record of peppers, unless it is no longer as `seen`. Returns whether it did.
    async fn replace_pepper_record(&self, seen: Option<String>, record: String) -> Result<bool, StoreError>;
}

/// API keys.
#[async_trait]
pub trait Keys: Send + Sync + 'static {
    /// Creates an API key of an existing account, unless its idempotency key was used within its time to live, its group
    /// takes no keys ([`domain::group::takes_keys`]), or the account is at its bound of keys.
    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Created, StoreError>;

    /// Finds an API key of the account.
    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError>;

    /// Lists API keys of the account in the order of ids, starting behind `page.after`. A page with fewer keys than its
    /// limit is the last one.
    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError>;

    /// Lists the texts of API keys that people search for, like [`Self::keys`].
    async fn key_names(&self, account: AccountId, page: Page) -> Result<Vec<KeyName>, StoreError> {
        let name = |ApiKey { id, label, hint, .. }| KeyName { id, label, hint };
        Ok(self.keys(account, page).await?.into_iter().map(name).collect())
    }

    /// Lists API keys of the account that have spent money, largest spend first, of equal ones the newest first,
    /// starting behind the present place of key `after`. A page with fewer keys than `limit` is the last one.
    async fn top_spending(
        &self,
        account: AccountId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError>;

    /// Number of open holds of a key: its requests in flight.
    async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError>;

    /// Changes an API key by [`ApiKey::updated`], unless the patch names a group that takes no keys.
    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        act: &Act,
    ) -> Result<Updated, StoreError>;

    /// Gives an API key a new credential by [`ApiKey::rotated`], unless the idempotency key was used within its time to
    /// live. A call that is repeated with the same digest changes nothing.
    async fn rotate_key(
        &self,
        new: NewCredential,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Rotated, StoreError>;

    /// Revokes an API key and returns the result; repeating it changes nothing. `None` where the account does not have
    /// the key.
    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<Option<ApiKey>, StoreError>;
}

/// Groups of API keys.
#[async_trait]
pub trait Groups: Send + Sync + 'static {
    /// Creates a group of an existing account, unless its idempotency key was used within its time to live, a group of the
    /// account has the external id, the parent cannot be one ([`domain::group::may_be_parent`]), or the account is at its
    /// bound of groups.
    async fn create_group(
        &self,
        group: NewGroup,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<GroupCreated, StoreError>;

    /// Finds a group of the account.
    async fn group(&self, account: AccountId, id: GroupId) -> Result<Option<Group>, StoreError>;

    /// Finds a group of the account by the caller's own id, through an index.
    async fn group_with_external_id(
        &self,
        account: AccountId,
        external_id: &str,
    ) -> Result<Option<Group>, StoreError>;

    /// Lists the groups that have this parent, in the order of ids.
    async fn child_groups(&self, account: AccountId, parent: GroupId) -> Result<Vec<GroupId>, StoreError>;

    /// Lists groups of the account in the order of ids, starting behind `page.after`. A page with fewer groups than its
    /// limit is the last one.
    async fn groups(&self, account: AccountId, page: GroupPage) -> Result<Vec<Group>, StoreError>;

    /// Lists keys of a group like [`Keys::keys`], through an index.
    async fn keys_of_group(
        &self,
        account: AccountId,
        group: GroupId,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError>;

    /// Changes a group by [`Group::updated`].
    async fn update_group(
        &self,
        account: AccountId,
        id: GroupId,
        patch: GroupPatch,
        act: &Act,
    ) -> Result<GroupUpdated, StoreError>;

    /// Archives a group and returns the result; repeating it changes nothing. `None` where the account does not have the
    /// group.
    async fn archive_group(
        &self,
        account: AccountId,
        id: GroupId,
        act: &Act,
    ) -> Result<Option<Group>, StoreError>;
}

/// Webhooks of accounts, and the deliveries on their way.
#[async_trait]
pub trait Webhooks: Send + Sync + 'static {
    /// Creates a webhook of an existing account with fewer than `most` webhooks, unless its idempotency key was used within
    /// its time to live; repeating it changes nothing.
    async fn create_webhook(
        &self,
        account: AccountId,
        new: StoredWebhook,
        most: u64,
        idempotency: Option<Idempotency>,
    ) -> Result<WebhookCreated, StoreError>;

    /// The account's webhooks, oldest first.
    async fn webhooks(&self, account: AccountId) -> Result<Vec<StoredWebhook>, StoreError>;

    /// Changes a webhook by [`StoredWebhook::with`]; one that is disabled afterwards has no deliveries left. `None` where
    /// the account does not have the webhook.
    async fn update_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        patch: WebhookPatch,
        act: &Act,
    ) -> Result<Option<Webhook>, StoreError>;

    /// Removes a webhook with its deliveries and attempts, and returns the webhook. `None` where there is none.
    async fn delete_webhook(&self, account: AccountId, id: WebhookId) -> Result<Option<Webhook>, StoreError>;

    /// Lists the accounts that have webhooks. Accounts that had webhooks may be listed too.
    async fn accounts_with_webhooks(&self) -> Result<Vec<AccountId>, StoreError>;

    /// Adds deliveries, due at once, and moves the cursor of their webhook, unless the webhook is no longer as `seen` or
    /// would have more than [`MAX_PENDING_DELIVERIES`](domain::webhook::MAX_PENDING_DELIVERIES). Returns whether it did.
    async fn fan_out(
        &self,
        account: AccountId,
        seen: StoredWebhook,
        cursor: u64,
        deliveries: Vec<Delivery>,
    ) -> Result<bool, StoreError>;

    /// Begins an attempt for each of at most `limit` due deliveries, the longest due first, which fall due again at
    /// `until`. So no two calls return the same attempt, and attempts of a process that died are made again.
    async fn claim_deliveries(
        &self,
        account: AccountId,
        id: WebhookId,
        (now, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// Ends the attempt of a claimed delivery: keeps the attempt among the webhook's last, and makes the delivery due at
    /// `next`, or removes the delivery. `false`, without a change, where another attempt has begun since.
    async fn finish_delivery(
        &self,
        account: AccountId,
        id: WebhookId,
        claimed: Delivery,
        (attempt, next): (Attempt, Option<Timestamp>),
    ) -> Result<bool, StoreError>;

    /// The last attempts of a webhook, newest first.
    async fn attempts(&self, account: AccountId, id: WebhookId) -> Result<Vec<Attempt>, StoreError>;
}

/// Moving in from another gateway.
#[async_trait]
pub trait Imports: Send + Sync + 'static {
    /// Imports keys and groups of another gateway into an existing account, as [`Import::plan`] decides, all or nothing; or
    /// only returns the plan. A repetition changes nothing.
    ///
    /// Over Redis nothing is written unless all of it may be. Then groups and keys are written in parts, which others see
    /// one by one; the same import completes what a call left undone that ended early. Keys and groups that others create
    /// meanwhile may exceed the bounds.
    async fn import(
        &self,
        import: Import,
        is_dry_run: bool,
        act: &Act,
    ) -> Result<Result<Plan, ImportRefused>, StoreError>;
}

/// Accounts, and the management keys that govern them.
#[async_trait]
pub trait Accounts: Send + Sync + 'static {
    /// Creates an account without credit. Returns `false` if the name is taken.
    async fn create_account(&self, account: NewAccount) -> Result<bool, StoreError>;

    /// All accounts, oldest first.
    async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError>;

    /// Finds an account by name, through an index.
    async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError>;

    /// Finds name, money and numbers of keys and groups of an account. `None` for an unknown account.
    async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError>;

    /// Creates a management key of an existing account; repeating it changes nothing. `false` where the account is at
    /// its bound of such keys.
    async fn create_management_key(&self, key: NewManagementKey, act: &Act) -> Result<bool, StoreError>;

    /// The account's management keys, oldest first.
    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError>;

    /// Finds a management key of the account.
    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError>;

    /// Records the use of a management key, unless a use within [`domain::access::USE_NOTED_EVERY`] before is recorded.
    /// Returns whether this one was.
    async fn use_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Revokes a management key of any account; repeating it changes nothing. `None` where there is none.
    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        act: &Act,
    ) -> Result<Option<ManagementKey>, StoreError>;
}

/// The people of accounts. Passwords are stored as hashes, secrets of second factors not at all.
#[async_trait]
pub trait Members: Send + Sync + 'static {
    /// Creates a member of an existing account with fewer than `most` members; repeating it changes nothing.
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        act: &Act,
    ) -> Result<MemberCreated, StoreError>;

    /// The account's members, oldest first.
    async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError>;

    /// Finds a member of the account by name, through an index.
    async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError>;

    /// Changes the fields of a member that `change` names. `false` where the account has no such member.
    async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        change: MemberChange,
    ) -> Result<bool, StoreError>;

    /// Replaces the second factor of a member. `false` where it is no longer the one of `member`: of several calls with the same
    /// code, one succeeds. A second factor that comes or goes is an event.
    async fn replace_second_factor(
        &self,
        account: AccountId,
        member: &Member,
        after: Option<SecondFactor>,
        act: &Act,
    ) -> Result<bool, StoreError>;

    /// Removes a member, and voids the member's [`Expiring`] records. `false` where there is none.
    async fn remove_member(&self, account: AccountId, id: MemberId, act: &Act) -> Result<bool, StoreError>;
}

/// Records of members that expire by themselves, and counts of attempts that do.
#[async_trait]
pub trait Expiring: Send + Sync + 'static {
    /// Stores a record until it expires; repeating it changes nothing. A link takes the place of the member's previous
    /// link. A new session is an event: the member signed in.
    async fn put_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        act: &Act,
    ) -> Result<(), StoreError>;

    /// Finds a record that has not expired, with its member.
    async fn record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError>;

    /// Finds a record like [`Self::record`], and removes the record: only one of several calls gets it.
    async fn take_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError>;

    /// Replaces value and expiry of a record. A removed record stays removed.
    async fn replace_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// The member's records that have not expired, in any order.
    async fn records(
        &self,
        account: AccountId,
        kind: RecordKind,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<ExpiringRecord>, StoreError>;

    /// Removes a record; repeating it changes nothing.
    async fn remove_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
    ) -> Result<(), StoreError>;

    /// Counts one more attempt under this name, and returns the count since the first attempt; the count is forgotten
    /// at the `until` of the first.
    async fn count_attempt(&self, name: Digest, now: Timestamp, until: Timestamp) -> Result<u64, StoreError>;

    /// Takes one attempt under this name back, if there is any.
    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError>;

    /// Forgets the attempts under this name.
    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError>;
}

/// The journal, the counters, and the audit of both.
#[async_trait]
pub trait Books: Send + Sync + 'static {
    /// Reads entries of the account's journal after number `after`, in the order of their numbers, at most `limit`.
    /// Entries are only ever appended: a correction has a number of its own.
    async fn journal(&self, account: AccountId, after: u64, limit: usize) -> Result<JournalPage, StoreError>;

    /// Reads the latest entries of the account's journal, or those before number `before`; newest first, at most
    /// `limit`.
    async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError>;

    /// Finds the latest matching entries, or those before number `before`; newest first, at most `limit`. Without an
    /// index, a bounded number of entries is read, and the page may end before it is full.
    async fn find_entries(
        &self,
        account: AccountId,
        search: EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        search::entries(self, account, &search, before, limit).await
    }

    /// Finds the last entry of a generation: its bill. Without an index, a bounded number of entries behind the
    /// generation's time of creation is read.
    async fn entry_of(
        &self,
        account: AccountId,
        generation: GenerationId,
    ) -> Result<Option<JournalEntry>, StoreError> {
        search::entry_of(self, account, generation).await
    }

    /// The account's latest deposits, newest first, at most `limit`.
    async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError>;

    /// Counters of these days, of some keys or of all, in the order of days, keys, models and groups.
    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<UsageLine>, StoreError>;

    /// Sums of the account on these days by model, in the order of days and models.
    async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError>;

    /// Sums of the account over all these days together with the cost to the operator, by model.
    async fn margins_by_model(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<String, Margin>, StoreError>;

    /// Sums as in [`Self::margins_by_model`], by the group that the key was in; `None` stands for keys without a group.
    async fn margins_by_group(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<Option<GroupId>, Margin>, StoreError>;

    /// Days after which the counters of a day are dropped; `None` where they are kept for good.
    fn counters_kept(&self) -> Option<u32>;

    /// Audits the account's books as of one moment, while spending continues. `None` where the account does not exist.
    /// Reads the whole journal in bounded memory.
    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError>;
}

/// Events of accounts, kept within [`EventBounds`].
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Finds matching events. Those of a key or a group are found by an index. Without an index, a bounded number of events
    /// is read, and the page may end before it is full.
    async fn events(
        &self,
        account: AccountId,
        search: EventSearch,
        slice: EventSlice,
    ) -> Result<Found<NumberedEvent, u64>, StoreError>;

    /// Reads events of the account after number `after`, in the order of their numbers, at most `limit`. Numbers count
    /// from one without gaps, in the order in which the events were written.
    async fn events_after(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<EventsPage, StoreError>;

    /// Returns which of these thresholds were told by an event that is kept, by the names under which they are told once.
    async fn are_told(&self, account: AccountId, names: Vec<Vec<u8>>) -> Result<Vec<bool>, StoreError>;

    /// Number of an event that is kept.
    async fn event_number(&self, account: AccountId, id: EventId) -> Result<Option<u64>, StoreError>;
}

/// Free space of the store.
#[async_trait]
pub trait Capacity: Send + Sync + 'static {
    /// Returns whether the remaining space is reserved for holds and captures. The answer may be a second old. Always
    /// `false` for a store that sees no bound.
    async fn is_nearly_full(&self) -> Result<bool, StoreError>;

    /// Share of the room that is used, from 0 to 1: the memory of the fullest server, or the disk. `None` where the store
    /// has no bound.
    async fn used_ratio(&self) -> Result<Option<f64>, StoreError>;

    /// What an answered write may not survive, if anything, and what to do about it.
    async fn persistence_warning(&self) -> Option<&'static str>;

    /// Writes something small everywhere, which changes nothing. Fails where a write is refused, for want of room or for
    /// another reason.
    async fn try_write(&self) -> Result<(), StoreError>;
}

/// Outcomes of commands, in the order of the commands.
pub(crate) type Outcomes = Vec<Result<Outcome, Refused>>;
