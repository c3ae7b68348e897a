//! The store over its records: what all nouns need to read and to change them.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use key_service_ledger::{
    EventBounds, Lanes, Retention, StoreError,
    view::{self, FORM, View},
};
use prost::Message;
use quick_cache::sync::Cache;
use records::{Answer, Durability, Index, Log, Name, Question, Record, Records, Set, Space};
use shared::{clock::Clock, ids::AccountId};
use tokio::time::Instant;

/// Life of the bills of expired generations, during which a late capture replaces the bill.
const EXPIRED_KEPT: Duration = Duration::from_hours(30 * 24);

/// Accounts whose time of listing a process remembers; others are listed again.
const REMEMBERED: usize = 65_536;
/// Time at which this process last listed each account.
pub(crate) struct Listings(pub(crate) Cache<AccountId, Instant>);

impl Default for Listings {
    fn default() -> Self {
        Self(Cache::new(REMEMBERED))
    }
}

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
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) kept: StoreRetention,
    pub(crate) lanes: Lanes,
    pub(crate) listings: Listings,
}

impl Store {
    /// Makes a store over these records.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, kept: StoreRetention) -> Self {
        let journal_entries = kept.journal_entries.unwrap_or(u64::MAX);
        let StoreRetention { usage_days, events, .. } = kept;
        let of_ledger = Retention { journal_entries, events, expired: EXPIRED_KEPT, usage_days };
        let lanes = Lanes::new(Arc::clone(&records), Arc::clone(&clock), of_ledger);
        Self { records, clock, kept, lanes, listings: Listings::default() }
    }

    /// Changes records of a space that spending does not read, as `decide` says.
    pub(crate) async fn change<T>(
        &self,
        space: &Space,
        decide: impl FnMut(&mut View) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        view::change(&self.records, &*self.clock, space, decide).await
    }

    /// Changes records as [`Self::change`] does, but does not wait until that is durable. Whatever a server loses of it
    /// does no harm, or is done again.
    pub(crate) async fn note<T>(
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
    pub(crate) async fn ask(
        &self,
        space: &Space,
        questions: Vec<Question>,
    ) -> Result<Vec<Answer>, StoreError> {
        Ok(self.records.read(space, questions).await?)
    }

    /// Reads records at one moment, in the order of these names.
    pub(crate) async fn records_of(
        &self,
        space: &Space,
        names: Vec<Name>,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        match self.ask(space, vec![Question::Records(names)]).await?.pop() {
            Some(Answer::Records(records)) => Ok(records),
            Some(_) | None => Err(no_answer()),
        }
    }

    /// Reads all records of a set without parts, page by page, each with its name. A record that is written meanwhile
    /// may come twice.
    pub(crate) async fn all_of_set(
        &self,
        space: &Space,
        table: u8,
    ) -> Result<Vec<(Vec<u8>, Record)>, StoreError> {
        let (mut all, mut place) = (Vec::new(), None);
        loop {
            let page = Question::Set(Set { table, part: 0 }, place);
            let Some(Answer::Set(records, next)) = self.ask(space, vec![page]).await?.pop() else {
                return Err(no_answer());
            };
            all.extend(records);
            if next.is_none() {
                return Ok(all);
            }
            place = next;
        }
    }

    /// Reads the records of these names, with `None` for each that is absent.
    pub(crate) async fn get_all<M: Message + Default>(
        &self,
        space: &Space,
        names: Vec<Name>,
    ) -> Result<Vec<Option<M>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.records_of(space, names.clone()).await?;
        let read = |(name, record): (&Name, &Option<Record>)| {
            let read = record.as_ref().map(message).transpose();
            read.inspect_err(|_| view::tell_damage(space, name))
        };
        names.iter().zip(&records).map(read).collect()
    }

    /// The record of this name.
    pub(crate) async fn get<M: Message + Default>(
        &self,
        space: &Space,
        name: Name,
    ) -> Result<Option<M>, StoreError> {
        Ok(self.get_all(space, vec![name]).await?.pop().flatten())
    }

    /// Reads entries of an index from `from` to before `to`, at most `limit`.
    pub(crate) async fn entries(
        &self,
        space: &Space,
        index: Index,
        (from, to): (Vec<u8>, Option<Vec<u8>>),
        order: records::Order,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let question = Question::Entries { index, from, to, order, limit };
        match self.ask(space, vec![question]).await?.pop() {
            Some(Answer::Entries(entries)) => Ok(entries),
            Some(_) | None => Err(no_answer()),
        }
    }

    /// Reads values of a log whose numbers are in a range, at most `limit`.
    pub(crate) async fn values(
        &self,
        space: &Space,
        log: Log,
        numbers: RangeInclusive<u64>,
        order: records::Order,
        limit: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let (from, to) = numbers.into_inner();
        let question = Question::Values { log, from, to, order, limit };
        match self.ask(space, vec![question]).await?.pop() {
            Some(Answer::Values(values)) => Ok(values),
            Some(_) | None => Err(no_answer()),
        }
    }
}

/// The message of a record.
pub(crate) fn message<M: Message + Default>(record: &Record) -> Result<M, StoreError> {
    if record.form() > FORM {
        return Err(StoreError::Damaged("a record of a later version".into()));
    }
    M::decode(record.message()).map_err(|e| StoreError::Damaged(e.to_string()))
}

/// Error of an answer that does not fit its question.
pub(crate) fn no_answer() -> StoreError {
    StoreError::Damaged("an answer to another question".into())
}

/// Error of a record that no program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}
