//! The nouns, written once over the records of any backend: accounts, keys, groups, members and the rest.
//!
//! Every method is atomic: a call takes effect completely or not at all, and concurrent calls take effect in some
//! order. Acknowledged changes survive a crash of this process and of the machine, except in a store in memory. After
//! [`StoreError::Unavailable`], the outcome is unknown, and the same call may be made again. After every other error,
//! nothing has changed.
//!
//! A call with an [`Act`](domain::event::Act) governs an account. If the call changes something, the event of the change is
//! written with the change: both take effect, or none does. A repetition that changes nothing leaves no event.

mod accounts;
mod audit;
mod books;
mod capacity;
mod credentials;
mod events;
mod groups;
mod idempotency;
mod keys;
pub(crate) mod layout;
mod members;
mod spending;
mod webhooks;

use std::{sync::Arc, time::Duration};

use key_service_ledger::{
    Change, Lanes, Retention,
    view::{self, FORM, View},
};
use prost::Message;
use records::{Answer, Durability, Index, Log, Name, Question, Records, Space};
use shared::{clock::Clock, ids::AccountId};

pub use self::{
    books::{
        refused::{Hour, REFUSED_KEPT_DAYS, RefusedLine},
        refused_calls::REFUSED_CALLS_KEPT,
        search,
        upstreams::UPSTREAM_HOURS,
    },
    capacity::Capacity,
    layout::show::{InvalidObject, ShownObject, ShownRecord},
    members::operators::operators,
    spending::{Ledger, Outcomes},
};
#[cfg(any(test, feature = "testing"))]
pub use crate::suite;
pub use crate::data::{
    AccountSummary, Created, Credential, Cursor, Deposit, DueHold, DueHolds, EventSlice, EventsPage,
    ExpiringRecord, Found, Funds, GroupCreated, GroupPage, GroupUpdated, HoldIndex, Idempotency,
    JournalEntry, JournalPage, KeyName, ManagementKey, MemberCreated, NewAccount, NewManagementKey,
    NumberedEvent, Order, Page, RecordKind, Rotated, Skew, SpendLine, Updated, UsageLine, WebhookCreated,
};
pub use key_service_ledger::{EVENTS_KEPT, EventBounds, StoreError};

/// Life of the bills of expired generations, during which a late capture replaces the bill.
const EXPIRED_KEPT: Duration = Duration::from_hours(30 * 24);

/// Bounds of what a store keeps and never changes.
#[derive(Clone, Copy, Debug)]
pub struct StoreRetention {
    /// Most entries of the journal of an account; `None` for all.
    pub journal_entries: Option<u64>,
    /// Days of the counters of usage; `None` for all.
    pub usage_days: Option<u32>,
    /// Bounds of the events of an account.
    pub events: EventBounds,
}

impl StoreRetention {
    /// Keeps everything but events, which have these bounds.
    pub const fn all(events: EventBounds) -> Self {
        Self { journal_entries: None, usage_days: None, events }
    }
}

pub struct Store {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    kept: StoreRetention,
    lanes: Lanes,
    listings: spending::holders::Listings,
}

impl Store {
    /// Makes a store over these records.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, kept: StoreRetention) -> Self {
        let journal_entries = kept.journal_entries.unwrap_or(u64::MAX);
        let StoreRetention { usage_days, events, .. } = kept;
        let of_ledger = Retention { journal_entries, events, expired: EXPIRED_KEPT, usage_days };
        let lanes = Lanes::new(Arc::clone(&records), Arc::clone(&clock), of_ledger);
        Self { records, clock, kept, lanes, listings: spending::holders::Listings::default() }
    }

    /// Changes an account, as `decide` says, in the account's lane.
    async fn govern<T>(
        &self,
        account: AccountId,
        decide: impl FnMut(&mut Change<'_>) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        self.lanes.change(account, decide).await
    }

    /// Changes records of a space that spending does not read, as `decide` says.
    async fn change<T>(
        &self,
        space: &Space,
        decide: impl FnMut(&mut View) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        view::change(&self.records, &*self.clock, space, decide).await
    }

    /// Changes records as [`Self::change`] does, but does not wait until that is durable. Whatever a server loses of it
    /// does no harm, or is done again.
    async fn note<T>(
        &self,
        space: &Space,
        mut decide: impl FnMut(&mut View) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let note = |view: &mut View| {
            view.survive(Durability::Volatile);
            decide(view)
        };
        self.change(space, note).await
    }

    /// Answers questions about a space as it is at one moment.
    async fn ask(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, StoreError> {
        Ok(self.records.read(space, questions).await?)
    }

    /// Reads the records of these names, with `None` for each that is absent.
    async fn get_all<M: Message + Default>(
        &self,
        space: &Space,
        names: Vec<Name>,
    ) -> Result<Vec<Option<M>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let asked = names.clone();
        let mut answers = self.ask(space, vec![Question::Records(names)]).await?;
        let Some(Answer::Records(records)) = answers.pop() else { return Err(no_answer()) };
        let read = |(name, record): (&Name, &Option<records::Record>)| {
            let read = record.as_ref().map(message).transpose();
            read.inspect_err(|_| view::tell_damage(space, name))
        };
        asked.iter().zip(&records).map(read).collect()
    }

    /// The record of this name.
    async fn get<M: Message + Default>(&self, space: &Space, name: Name) -> Result<Option<M>, StoreError> {
        Ok(self.get_all(space, vec![name]).await?.pop().flatten())
    }

    /// Reads entries of an index from `from` to before `to`, at most `limit`.
    async fn entries(
        &self,
        space: &Space,
        index: Index,
        (from, to): (Vec<u8>, Option<Vec<u8>>),
        (order, limit): (records::Order, usize),
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let question = Question::Entries { index, from, to, order, limit };
        match self.ask(space, vec![question]).await?.pop() {
            Some(Answer::Entries(entries)) => Ok(entries),
            Some(_) | None => Err(no_answer()),
        }
    }

    /// Reads values of a log whose numbers are in a range, at most `limit`.
    async fn values(
        &self,
        space: &Space,
        log: Log,
        (from, to): (u64, u64),
        (order, limit): (records::Order, usize),
    ) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let question = Question::Values { log, from, to, order, limit };
        match self.ask(space, vec![question]).await?.pop() {
            Some(Answer::Values(values)) => Ok(values),
            Some(_) | None => Err(no_answer()),
        }
    }
}

/// The message of a record.
fn message<M: Message + Default>(record: &records::Record) -> Result<M, StoreError> {
    if record.form() > FORM {
        return Err(StoreError::Damaged("a record of a later version".into()));
    }
    M::decode(record.message()).map_err(|e| StoreError::Damaged(e.to_string()))
}

/// Error of an answer that does not fit its question.
fn no_answer() -> StoreError {
    StoreError::Damaged("an answer to another question".into())
}
