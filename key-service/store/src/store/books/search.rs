//! Searches of the journal that read only a limited part of it. Each entry has the number of the previous entry of its
//! key and of its groups. A search for the entries of a key or a group follows these numbers. Other searches read all
//! entries in order.

use std::collections::HashMap;

use key_service_ledger::{StoreError, names, stored::Balance};
use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    data::{Found, JournalEntry},
    store::{
        base::Store,
        books::runs::{CLOSE, Run},
    },
};
use domain::{
    ledger::{self, CLOCK_LEAD, Ending, MOST_LEAD, Record},
    search::EntrySearch,
};

/// Default maximum number of records that are read for a page of matches.
const MOST_READ: usize = 4_000;
/// Maximum number of journal entries that are read for a page of matches: about 10 ms of work.
const MOST_ENTRIES: usize = 2_000;
/// Number of records read at a time.
pub const READ_AT_ONCE: usize = 500;
/// Maximum number of entries to read to find a generation's bill: more than a busy account writes in a minute.
const LOOKED_THROUGH: usize = 50_000;
/// Maximum number of runs of the journal that are searched for a generation's bill.
const MOST_RUNS: usize = 8;
/// If linked entries are at most this far apart, whole ranges of entries are read at a time.
const CLOSE_BY: usize = 20;
/// Following a link costs a round trip. In the same time, this many entries could be read.
const STEP: usize = 20;

/// A running search. It reads the records after a position, until it has `limit` matches or has read too many records.
#[derive(Debug)]
pub struct Scan<T, C> {
    found: Vec<T>,
    limit: usize,
    /// After reading this many records, the search pauses.
    most: usize,
    /// Position of the last record that was read.
    place: Option<C>,
    read: usize,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    /// All records have been read.
    NothingLeft,
    /// Further records may still match.
    Paused,
}

impl<T, C: Copy> Scan<T, C> {
    /// Begins a search after the position `after`.
    pub fn new(after: Option<C>, limit: usize) -> Self {
        Self { found: Vec::new(), limit, most: MOST_READ, place: after, read: 0, ended: None }
    }

    /// Sets how many records are read before the search pauses.
    #[must_use]
    pub fn reading(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Returns whether more records must be read.
    pub fn goes_on(&self) -> bool {
        self.ended.is_none()
    }

    /// Returns the position after which to read.
    pub fn place(&self) -> Option<C> {
        self.place
    }

    /// Adds the records that come after the position. Each has its own position and, if it matches, the match. If there
    /// are fewer than `asked`, they are the last records.
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
        } else if self.read >= self.most {
            self.ended = Some(Ended::Paused);
        }
    }

    /// Returns the page of matches.
    pub fn page(self) -> Found<T, C> {
        let next = match self.ended {
            Some(Ended::NothingLeft) => None,
            Some(Ended::Paused) | None => self.place,
        };
        Found { found: self.found, next }
    }
}

/// Finds entries of the journal, newest first. Reads only a limited part of the journal.
pub(crate) async fn entries(
    store: &Store,
    account: AccountId,
    search: &EntrySearch,
    before: Option<u64>,
    limit: usize,
) -> Result<Found<JournalEntry, u64>, StoreError> {
    let mut scan = Scan::new(before, limit).reading(MOST_ENTRIES);
    let mut run = Run::before(store, account, before).await?;
    loop {
        search_run(store, account, search, run, &mut scan).await?;
        match run.earlier(store, account).await? {
            Some(earlier) if scan.leaves(run) => run = earlier,
            Some(_) | None => return Ok(scan.page()),
        }
    }
}

/// Searches the entries of a run that come before the scan's position.
async fn search_run(
    store: &Store,
    account: AccountId,
    search: &EntrySearch,
    run: Run,
    scan: &mut Scan<JournalEntry, u64>,
) -> Result<(), StoreError> {
    if let Some(ends) = search.ends {
        let end = run.end_before(store, account, ends.plus(store.disorder(account, ends).await?)).await?;
        scan.place = Some(scan.place.map_or(end, |place| place.min(end)));
    }
    let earliest = match search.earliest() {
        Some(begins) => Some(begins.minus(store.disorder(account, begins).await?)),
        None => None,
    };
    let chain = Chain::of(search);
    // One entry more than fits on the page is read, to see whether there are more.
    let mut at_once = READ_AT_ONCE.min(scan.limit.saturating_add(1));
    if let Some(chain) = chain
        && let Some(next) = chain.next(store, account, scan.place).await?
    {
        scan.go_to(next);
        at_once = CLOSE_BY;
    }
    while scan.goes_on() {
        let mut entries = store.latest_entries(account, scan.place(), at_once).await?;
        let step = chain.and_then(|chain| entries.iter().rev().find_map(|entry| chain.step(entry)));
        // Within a run, entries only get older. So after an entry that is too old, no other entry can match.
        let is_past = |entry: &JournalEntry| {
            entry.number < run.first || earliest.is_some_and(|begins| entry.entry.settlement.at < begins)
        };
        entries.truncate(entries.iter().position(is_past).unwrap_or(entries.len()));
        let matching = |entry: JournalEntry| {
            let is_match = search.matches(&entry.entry.settlement);
            (entry.number, is_match.then_some(entry))
        };
        scan.add(entries.into_iter().map(matching), at_once);
        at_once = match step {
            Some(ChainStep { to, length }) => {
                scan.go_to(to);
                if length > CLOSE_BY as u64 { 1 } else { CLOSE_BY }
            }
            None => READ_AT_ONCE.min(2 * at_once),
        };
    }
    Ok(())
}

impl<T> Scan<T, u64> {
    /// Moves the position from a finished run to the entries before this run. Returns whether the search continues.
    fn leaves(&mut self, run: Run) -> bool {
        match self.ended {
            Some(Ended::NothingLeft) => {
                self.place = Some(self.place.map_or(run.first, |place| place.min(run.first)));
                self.read += STEP;
                self.ended = (self.read >= self.most).then_some(Ended::Paused);
                self.goes_on()
            }
            Some(Ended::Paused) | None => false,
        }
    }

    /// Skips to the entry with this number, because no entry in between matches. Zero ends the search.
    fn go_to(&mut self, next: u64) {
        let is_full = self.found.len() == self.limit;
        match self.ended {
            Some(Ended::NothingLeft) => {}
            // The records after the last match have not been checked yet, so none of these records may be skipped.
            Some(Ended::Paused) if is_full => {}
            Some(Ended::Paused) | None if next == 0 => self.ended = Some(Ended::NothingLeft),
            Some(Ended::Paused) | None => {
                self.place = Some(next + 1);
                self.read += STEP;
                self.ended = self.ended.or(is_full.then_some(Ended::Paused));
            }
        }
    }
}

/// A step from an entry to the previous entry in its chain.
struct ChainStep {
    /// Number of the previous entry, or zero if there is none.
    to: u64,
    length: u64,
}

/// The entries of a key or a group, linked from new to old: each contains the number of the previous entry in the
/// chain.
#[derive(Clone, Copy)]
enum Chain {
    Key(KeyId),
    Group(GroupId),
}

impl Chain {
    /// Returns the chain that contains all matches of a search, if there is one.
    fn of(search: &EntrySearch) -> Option<Self> {
        let group = search.group.or(search.within);
        search.key.map(Self::Key).or(group.map(Self::Group))
    }

    /// Returns the number of the previous entry in the chain, or zero if there is none. `None` if this entry is not in
    /// the chain.
    fn before(self, JournalEntry { entry, before, .. }: &JournalEntry) -> Option<u64> {
        let payer = &entry.settlement.payer;
        match self {
            Self::Key(key) => (payer.key == key).then_some(before.key),
            Self::Group(group) => {
                let mut of_groups = payer.groups.iter().zip(before.groups);
                of_groups.find_map(|(of, before)| (*of == Some(group)).then_some(before))
            }
        }
    }

    fn step(self, entry: &JournalEntry) -> Option<ChainStep> {
        self.before(entry).map(|to| ChainStep { to, length: entry.number.saturating_sub(to) })
    }

    /// Returns the number of the chain's next older entry after a position, or zero if there is none. `None` if no
    /// entry of the chain is at the position.
    async fn next(
        self,
        store: &Store,
        account: AccountId,
        place: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let last = match self.last(store, account).await {
            // If the record is damaged, pages still show what can be read.
            Err(StoreError::Damaged(_)) => return Ok(None),
            last => last?,
        };
        let Some(place) = place.filter(|place| *place <= last) else { return Ok(Some(last)) };
        let at_place = store.latest_entries(account, Some(place.saturating_add(1)), 2).await?;
        let next = |entry: &JournalEntry| {
            let before = self.before(entry)?;
            Some(if entry.number < place { entry.number } else { before })
        };
        Ok(at_place.iter().find_map(next))
    }

    /// Returns the number of the chain's last entry, or zero if it has none.
    async fn last(self, store: &Store, account: AccountId) -> Result<u64, StoreError> {
        let space = names::space(account);
        Ok(match self {
            Self::Key(id) => {
                let key = store.read().get::<Balance<ledger::Key>>(&space, names::key(id)).await?;
                key.map_or(0, |key| key.last_entry)
            }
            Self::Group(id) => {
                let group = store.read().get::<Balance<ledger::Group>>(&space, names::group(id)).await?;
                group.map_or(0, |group| group.last_entry)
            }
        })
    }
}

/// Finds a generation's last entry among the entries that were billed after its creation.
pub(crate) async fn entry_of(
    store: &Store,
    account: AccountId,
    generation: GenerationId,
) -> Result<Option<JournalEntry>, StoreError> {
    // A remembered bill includes its time.
    let billed_at = store.billed_at(account, generation).await?;
    let begins = billed_at.unwrap_or(generation.created_at());
    let begins = begins.minus(CLOCK_LEAD.max(store.disorder(account, begins).await?));
    let mut run = Run::before(store, account, None).await?;
    for _ in 0..MOST_RUNS {
        let begin = run.end_before(store, account, begins).await?.saturating_sub(CLOSE + 1);
        let begin = begin.max(run.first - 1);
        let found = match entry_after(store, account, generation, (begin, run.next)).await? {
            // The clock of the gateway that created the id may be ahead of ours, or our clock may have gone back.
            None if billed_at.is_none() && run.next.is_none() => {
                entry_before(store, account, generation, begin + 1).await?
            }
            found => found,
        };
        match run.earlier(store, account).await? {
            Some(earlier) if found.is_none() => run = earlier,
            Some(_) | None => return Ok(found),
        }
    }
    Ok(None)
}

/// Finds a generation's last entry among the entries between two numbers.
async fn entry_after(
    store: &Store,
    account: AccountId,
    generation: GenerationId,
    (mut after, before): (u64, Option<u64>),
) -> Result<Option<JournalEntry>, StoreError> {
    let mut found = None;
    for _ in 0..LOOKED_THROUGH / READ_AT_ONCE {
        let mut entries = store.journal(account, after, READ_AT_ONCE).await?.entries;
        entries.retain(|entry| before.is_none_or(|before| entry.number < before));
        let was_last = entries.len() < READ_AT_ONCE;
        after = entries.last().map_or(after, |entry| entry.number);
        found = entries.into_iter().rfind(|entry| is_bill_of(entry, generation)).or(found);
        if was_last || found.as_ref().is_some_and(is_final) {
            break;
        }
    }
    Ok(found)
}

/// Finds a generation's last entry before a number, among the entries with times near the generation's creation.
async fn entry_before(
    store: &Store,
    account: AccountId,
    generation: GenerationId,
    mut before: u64,
) -> Result<Option<JournalEntry>, StoreError> {
    let begins = generation.created_at().minus(MOST_LEAD);
    for _ in 0..LOOKED_THROUGH / READ_AT_ONCE {
        let entries = store.latest_entries(account, Some(before), READ_AT_ONCE).await?;
        let Some(last) = entries.last() else { return Ok(None) };
        before = last.number;
        let is_past = last.entry.settlement.at < begins;
        let found = entries.into_iter().find(|entry| is_bill_of(entry, generation));
        if found.is_some() || is_past {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns whether an entry is a bill of this generation. A late capture does not count as a bill.
fn is_bill_of(JournalEntry { generation, entry, .. }: &JournalEntry, of: GenerationId) -> bool {
    *generation == of && entry.settlement.ending.is_bill()
}

/// Returns whether no later entry can correct this entry.
fn is_final(entry: &JournalEntry) -> bool {
    entry.entry.settlement.ending == Ending::Captured
}

impl Store {
    /// Returns the numbers of keys' last entries, for keys that have entries.
    pub async fn last_entries(
        &self,
        account: AccountId,
        keys: &[KeyId],
    ) -> Result<HashMap<KeyId, u64>, StoreError> {
        let names = keys.iter().map(|key| names::key(*key)).collect();
        let found = self.read().get_all::<Balance<ledger::Key>>(&names::space(account), names).await?;
        let last = |(id, key): (&KeyId, Option<Balance<ledger::Key>>)| Some((*id, key?.last_entry));
        Ok(keys.iter().zip(found).filter_map(last).collect())
    }

    /// Returns the time of a generation's last bill, if it is remembered and can be read.
    async fn billed_at(
        &self,
        account: AccountId,
        generation: GenerationId,
    ) -> Result<Option<Timestamp>, StoreError> {
        let names = vec![names::generation(generation), names::expired(generation)];
        let found = match self.read().get_all::<Record>(&names::space(account), names).await {
            Err(StoreError::Damaged(_)) => Vec::new(),
            found => found?,
        };
        let bill = |found| match found {
            Record::Closed(bill) => Some(bill.at),
            Record::None | Record::Open(_) | Record::Deposited(_) => None,
        };
        Ok(found.into_iter().flatten().filter_map(bill).max())
    }
}
