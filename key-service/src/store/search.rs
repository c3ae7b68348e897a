//! Search of the journal without an index, by reading a bounded part.

use shared::ids::AccountId;

use super::{Books, FoundEntries, StoreError};
use domain::{search::EntrySearch, usage::Day};

/// Entries that a page reads at most: some ten milliseconds of work.
const MAX_READ: usize = 4_000;
/// Entries read at a time.
const READ_AT_ONCE: usize = 500;
/// Entries among which the beginning of a day is not looked for any further.
const CLOSE: u64 = 64;

/// Reads entries, newest first, until `limit` entries match or [`MAX_READ`] were read.
pub(super) async fn entries<B: Books + ?Sized>(
    books: &B,
    account: AccountId,
    search: &EntrySearch,
    before: Option<u64>,
    limit: usize,
) -> Result<FoundEntries, StoreError> {
    let (mut found, mut read) = (Vec::new(), 0);
    let mut next = match search.day {
        Some(day) => Some(numbers(books, account, day, before).await?.1),
        None => before,
    };
    loop {
        let entries = books.latest_entries(account, next, READ_AT_ONCE).await?;
        let was_last = entries.len() < READ_AT_ONCE;
        read += entries.len();
        for entry in entries {
            // Entries only get older: after the first entry of an earlier day, no entry of the day follows.
            let is_past = search.day.is_some_and(|day| Day::of(entry.entry.settlement.at) < day);
            if is_past {
                return Ok(FoundEntries { entries: found, next: None });
            }
            if found.len() == limit {
                return Ok(FoundEntries { entries: found, next });
            }
            next = Some(entry.number);
            if search.matches(&entry.entry.settlement) {
                found.push(entry);
            }
        }
        if was_last {
            return Ok(FoundEntries { entries: found, next: None });
        }
        if read >= MAX_READ {
            return Ok(FoundEntries { entries: found, next });
        }
    }
}

/// The numbers between which all entries of a day before a number lie, with some others around.
pub(super) async fn numbers<B: Books + ?Sized>(
    books: &B,
    account: AccountId,
    day: Day,
    before: Option<u64>,
) -> Result<(u64, u64), StoreError> {
    let end = end_of(books, account, day).await?;
    let end_before = end_of(books, account, day.plus(-1)).await?;
    Ok((end_before.saturating_sub(CLOSE + 1), before.map_or(end, |before| before.min(end))))
}

/// The number of an entry close behind the last entry of a day, found by halving: entries are in the order of time.
async fn end_of<B: Books + ?Sized>(books: &B, account: AccountId, day: Day) -> Result<u64, StoreError> {
    let Some(newest) = books.latest_entries(account, None, 1).await?.pop() else { return Ok(1) };
    let (mut is_of_it, mut is_behind) = (0, newest.number + 1);
    while is_behind - is_of_it > CLOSE {
        let middle = u64::midpoint(is_of_it, is_behind);
        match books.latest_entries(account, Some(middle + 1), 1).await?.pop() {
            Some(entry) if Day::of(entry.entry.settlement.at) > day => is_behind = entry.number,
            Some(_) | None => is_of_it = middle,
        }
    }
    Ok(is_behind)
}
