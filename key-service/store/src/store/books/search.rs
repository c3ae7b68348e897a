//! Searches without an index, which read a bounded part.

use key_service_ledger::{StoreError, codec, messages, names};
use shared::{
    ids::{AccountId, GenerationId},
    time::Timestamp,
};

use crate::{
    data::{Found, JournalEntry},
    store::base::Store,
};
use domain::{
    ledger::{CLOCK_LEAD, Ending, Record},
    search::EntrySearch,
};

/// Most records that a page reads in search of matches: some 20 ms of work.
const MAX_READ: usize = 4_000;
/// Number of records read at a time.
pub const READ_AT_ONCE: usize = 500;
/// Entries searched for a generation's bill: those of a busy account in more than a minute.
const LOOKED_THROUGH: usize = 50_000;
/// Number of entries within which an instant is not located more exactly.
const CLOSE: u64 = 64;

/// A running search. It reads records after a place, until `limit` of them match or 4,000 were read.
#[derive(Debug)]
pub struct Scan<T, C> {
    found: Vec<T>,
    limit: usize,
    /// Place of the last record that was read.
    place: Option<C>,
    read: usize,
    ended: Option<Ended>,
}

/// Reason for the end of a search.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// All records were read, so that none is left.
    NothingLeft,
    /// Further records may still match.
    Paused,
}

impl<T, C: Copy> Scan<T, C> {
    /// Begins a search after the place `after`.
    pub fn new(after: Option<C>, limit: usize) -> Self {
        Self { found: Vec::new(), limit, place: after, read: 0, ended: None }
    }

    /// Returns whether to read further records.
    pub fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// Place after which to read.
    pub fn place(&self) -> Option<C> {
        self.place
    }

    /// Adds the records after the place, each with its own place, and with a match if it is one. Fewer records than
    /// `asked` are the last ones.
    pub fn add(&mut self, records: impl ExactSizeIterator<Item = (C, Option<T>)>, asked: usize) {
        let were_last = records.len() < asked;
        self.read += records.len();
        for (place, matching) in records {
            if self.found.len() == self.limit {
                self.ended = Some(Ended::Paused);
                return;
            }
            self.place = Some(place);
            self.found.extend(matching);
        }
        if were_last {
            self.ended = Some(Ended::NothingLeft);
        } else if self.read >= MAX_READ {
            self.ended = Some(Ended::Paused);
        }
    }

    /// The page that was found.
    pub fn page(self) -> Found<T, C> {
        let next = match self.ended {
            Some(Ended::NothingLeft) => None,
            Some(Ended::Paused) | None => self.place,
        };
        Found { found: self.found, next }
    }
}

/// Finds entries of the journal, newest first, by reading a bounded part.
pub(crate) async fn entries(
    store: &Store,
    account: AccountId,
    search: &EntrySearch,
    before: Option<u64>,
    limit: usize,
) -> Result<Found<JournalEntry, u64>, StoreError> {
    let (_, end) = numbers(store, account, search, before).await?;
    let mut scan = Scan::new(end, limit);
    while scan.goes_on() {
        let mut entries = store.latest_entries(account, scan.place(), READ_AT_ONCE).await?;
        if let Some(begins) = search.earliest() {
            // Entries only get older: after the first that is too old, no wanted one follows.
            let is_past = |entry: &JournalEntry| entry.entry.settlement.at < begins;
            entries.truncate(entries.iter().position(is_past).unwrap_or(entries.len()));
        }
        let matching = |entry: JournalEntry| {
            let is_match = search.matches(&entry.entry.settlement);
            (entry.number, is_match.then_some(entry))
        };
        scan.add(entries.into_iter().map(matching), READ_AT_ONCE);
    }
    Ok(scan.page())
}

/// Finds numbers between which all entries of the wanted time before a number lie, with some others around them.
async fn numbers(
    store: &Store,
    account: AccountId,
    search: &EntrySearch,
    before: Option<u64>,
) -> Result<(u64, Option<u64>), StoreError> {
    let floor = match search.begins {
        Some(begins) => end_before(store, account, begins).await?.saturating_sub(CLOSE + 1),
        None => 0,
    };
    let end = match search.ends {
        Some(ends) => Some(end_before(store, account, ends).await?),
        None => None,
    };
    Ok((floor, before.into_iter().chain(end).min()))
}

/// Finds the last entry of a generation among those billed after its creation.
pub(crate) async fn entry_of(
    store: &Store,
    account: AccountId,
    generation: GenerationId,
) -> Result<Option<JournalEntry>, StoreError> {
    // A remembered bill tells its time. The clock of the gateway that made the id may be ahead of ours.
    let billed_at = store.billed_at(account, generation).await?;
    let begins = billed_at.unwrap_or(generation.created_at()).minus(CLOCK_LEAD);
    let mut after = end_before(store, account, begins).await?.saturating_sub(CLOSE + 1);
    let mut found = None;
    for _ in 0..LOOKED_THROUGH / READ_AT_ONCE {
        let entries = store.journal(account, after, READ_AT_ONCE).await?.entries;
        let was_last = entries.len() < READ_AT_ONCE;
        after = entries.last().map_or(after, |entry| entry.number);
        found = entries.into_iter().rfind(|entry| entry.generation == generation).or(found);
        if was_last || found.as_ref().is_some_and(is_final) {
            break;
        }
    }
    Ok(found)
}

/// Returns whether no later entry can correct this one.
fn is_final(entry: &JournalEntry) -> bool {
    entry.entry.settlement.ending == Ending::Captured
}

/// Finds the number of an entry close after the last entry before a time, by halving, since entries are in the order of
/// time.
async fn end_before(store: &Store, account: AccountId, end: Timestamp) -> Result<u64, StoreError> {
    let Some(newest) = store.latest_entries(account, None, 1).await?.pop() else { return Ok(1) };
    let (mut is_before, mut is_behind) = (0, newest.number + 1);
    while is_behind - is_before > CLOSE {
        let middle = u64::midpoint(is_before, is_behind);
        match store.latest_entries(account, Some(middle + 1), 1).await?.pop() {
            Some(entry) if entry.entry.settlement.at >= end => is_behind = entry.number,
            Some(_) | None => is_before = middle,
        }
    }
    Ok(is_behind)
}

impl Store {
    /// Returns the time of a generation's last bill, while it is remembered and can be read.
    async fn billed_at(
        &self,
        account: AccountId,
        generation: GenerationId,
    ) -> Result<Option<Timestamp>, StoreError> {
        let names = vec![names::generation(generation), names::expired(generation)];
        let found = match self.get_all::<messages::Generation>(&names::space(account), names).await {
            Err(StoreError::Damaged(_)) => Vec::new(),
            found => found?,
        };
        let bill = |found| match codec::read_generation(found) {
            Some(Record::Closed(bill)) => Some(bill.at),
            Some(Record::None | Record::Open(_) | Record::Deposited(_)) | None => None,
        };
        Ok(found.into_iter().flatten().filter_map(bill).max())
    }
}
