//! Copies everything from one backend to another, and compares both. Neither backend may be in use during the copy.
//!
//! Records keep their revisions, and logs keep their numbers. If the target has only a part of the source, an earlier
//! copy was interrupted, and this copy completes it. A target with anything else is left unchanged.

mod error;
mod pages;
mod target;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashSet},
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::{StreamExt, TryStreamExt, stream};

pub use self::error::CopyError;
use self::{
    error::no_answer,
    pages::{CopiedPage, Pages},
    target::Target,
};
use crate::records::{Answer, Durability, Name, Place, Question, Records, Set, Space, Term};

/// Number of places that are copied or compared at the same time. This is enough to make up for round trips, and lets
/// SQLite put several commits into one transaction.
const PLACES_AT_ONCE: usize = 16;
/// Number of spaces that wait for durability together. In Redis, a wait takes most of a second and serves all of these
/// spaces.
const SETTLED_AT_ONCE: usize = 512;

/// Counts of what was copied and then found equal in both backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Number of sets, indexes and logs.
    pub places: u64,
    pub records: u64,
    pub entries: u64,
    pub values: u64,
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub phase: Phase,
    /// Counts of what this phase has done so far.
    pub done: Copied,
    /// Total number of places.
    pub places: u64,
}

/// Phases of a copy, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Copying,
    /// Reads everything from both backends and compares it.
    Comparing,
}

struct Pair<'a> {
    from: &'a Arc<dyn Records>,
    to: &'a Arc<dyn Records>,
    counts: CopiedCounts,
}

/// The counts so far. Several places update them at the same time.
#[derive(Default)]
struct CopiedCounts {
    places: AtomicU64,
    records: AtomicU64,
    entries: AtomicU64,
    values: AtomicU64,
}

impl CopiedCounts {
    fn add(&self, page: &CopiedPage) {
        let (count, by) = match page {
            CopiedPage::Records(records) => (&self.records, records.len()),
            CopiedPage::Entries(_, entries) => (&self.entries, entries.len()),
            CopiedPage::Values(_, values) => (&self.values, values.len()),
        };
        count.fetch_add(by as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Copied {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Self { places, records, entries, values } = self;
        Copied {
            places: count(places),
            records: count(records),
            entries: count(entries),
            values: count(values),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// A part of the source's place: some of its records, or its first entries or values.
    Beginning,
    Whole,
}

/// Copies everything, compares everything, and returns the counts. Calls `tell` after every few hundred records,
/// entries or values.
pub async fn copy(
    from: &Arc<dyn Records>,
    to: &Arc<dyn Records>,
    tell: impl Fn(Step),
) -> Result<Copied, CopyError> {
    let known: BTreeSet<_> = from.places().await?.into_iter().collect();
    let begun: BTreeSet<_> = to.places().await?.into_iter().collect();
    if let Some((space, place)) = begun.difference(&known).next() {
        return Err(CopyError::NotEmpty(describe(space, *place)));
    }
    let earlier = Pair { from, to, counts: CopiedCounts::default() };
    let told = |_: &CopiedCounts| ();
    earlier.compare(&begun, Extent::Beginning, &told).await.map_err(|error| match error {
        CopyError::Differs(place) => CopyError::NotEmpty(place),
        other @ (CopyError::NotEmpty(_) | CopyError::Unavailable(_) | CopyError::Damaged(_)) => other,
    })?;
    let pair = Pair { from, to, counts: CopiedCounts::default() };
    let places = known.len() as u64;
    let step = |phase, counts: &CopiedCounts| tell(Step { phase, done: counts.get(), places });
    pair.copy(&known, &|counts: &CopiedCounts| step(Phase::Copying, counts)).await?;
    // The terms are read only now, and the comparison then finds everything within these terms. So it does no harm if a
    // connection broke during the copy.
    let terms = terms(to, &known).await;
    let there: BTreeSet<_> = to.places().await?.into_iter().collect();
    if let Some((space, place)) = there.symmetric_difference(&known).next() {
        return Err(CopyError::Differs(describe(space, *place)));
    }
    let pair = Pair { from, to, counts: CopiedCounts::default() };
    pair.compare(&known, Extent::Whole, &|counts: &CopiedCounts| step(Phase::Comparing, counts)).await?;
    settle(to, terms).await?;
    Ok(pair.counts.get())
}

/// Returns the spaces, each with its current term.
async fn terms<'a>(to: &Arc<dyn Records>, known: &'a BTreeSet<(Space, Place)>) -> Vec<(&'a Space, Term)> {
    let spaces: BTreeSet<_> = known.iter().map(|(space, _)| space).collect();
    stream::iter(spaces).then(async |space| (space, to.term(space).await)).collect().await
}

/// Waits until everything written is durable.
async fn settle(to: &Arc<dyn Records>, terms: Vec<(&Space, Term)>) -> Result<(), CopyError> {
    let waits = terms.into_iter().map(|(space, since)| Ok(to.settle(space, Durability::Durable, since)));
    let waits = stream::iter(waits);
    Ok(waits.try_buffer_unordered(SETTLED_AT_ONCE).try_for_each(|()| ready(Ok(()))).await?)
}

impl Pair<'_> {
    async fn copy(
        &self,
        places: &BTreeSet<(Space, Place)>,
        tell: &impl Fn(&CopiedCounts),
    ) -> Result<(), CopyError> {
        let copies = places.iter().map(|(space, place)| self.copy_place(space, *place, tell));
        stream::iter(copies.map(Ok))
            .try_buffer_unordered(PLACES_AT_ONCE)
            .try_for_each(|()| ready(Ok(())))
            .await
    }

    async fn copy_place(
        &self,
        space: &Space,
        place: Place,
        tell: &impl Fn(&CopiedCounts),
    ) -> Result<(), CopyError> {
        let mut target = Target::new(self.to, space);
        let mut pages = Pages::of(place);
        while let Some(page) = pages.next(self.from, space).await? {
            self.counts.add(&page);
            match page {
                CopiedPage::Records(records) => {
                    for (name, record) in records {
                        target.put(name, record).await?;
                    }
                }
                CopiedPage::Entries(index, entries) => {
                    for entry in entries {
                        target.enter(index, entry).await?;
                    }
                }
                CopiedPage::Values(log, values) => target.append(log, values).await?,
            }
            tell(&self.counts);
        }
        self.counts.places.fetch_add(1, Ordering::Relaxed);
        target.flush().await
    }

    async fn compare(
        &self,
        places: &BTreeSet<(Space, Place)>,
        extent: Extent,
        tell: &impl Fn(&CopiedCounts),
    ) -> Result<(), CopyError> {
        let compared = places.iter().map(|(space, place)| self.compare_place(space, *place, extent, tell));
        stream::iter(compared.map(Ok))
            .try_buffer_unordered(PLACES_AT_ONCE)
            .try_for_each(|()| ready(Ok(())))
            .await
    }

    async fn compare_place(
        &self,
        space: &Space,
        place: Place,
        extent: Extent,
        tell: &impl Fn(&CopiedCounts),
    ) -> Result<(), CopyError> {
        let is_same = match place {
            Place::Set(set) => self.compare_records(space, set, extent, tell).await?,
            Place::Index(_) | Place::Log(_) => self.compare_pages(space, place, extent, tell).await?,
        };
        self.counts.places.fetch_add(1, Ordering::Relaxed);
        if is_same { Ok(()) } else { Err(CopyError::Differs(describe(space, place))) }
    }

    /// Returns whether the target has the same entries or values in the same order. For [`Extent::Beginning`], the
    /// target may have only the first entries or values.
    async fn compare_pages(
        &self,
        space: &Space,
        place: Place,
        extent: Extent,
        tell: &impl Fn(&CopiedCounts),
    ) -> Result<bool, CopyError> {
        let (mut ours, mut theirs) = (Pages::of(place), Pages::of(place));
        loop {
            let (ours, theirs) = (ours.next(self.from, space).await?, theirs.next(self.to, space).await?);
            let (Some(ours), Some(theirs)) = (&ours, &theirs) else {
                return Ok(theirs.is_none() && (ours.is_none() || extent == Extent::Beginning));
            };
            if ours != theirs {
                return Ok(extent == Extent::Beginning && ours.begins_with(theirs));
            }
            self.counts.add(ours);
            tell(&self.counts);
        }
    }

    /// Returns whether the target has the same records. A set has no order, so each record of the target is looked up
    /// in the source. Then the numbers of records are compared.
    async fn compare_records(
        &self,
        space: &Space,
        set: Set,
        extent: Extent,
        tell: &impl Fn(&CopiedCounts),
    ) -> Result<bool, CopyError> {
        let (mut pages, mut known) = (Pages::of(Place::Set(set)), HashSet::new());
        while let Some(page) = pages.next(self.to, space).await? {
            let CopiedPage::Records(records) = page else { return Err(no_answer()) };
            let (names, theirs): (Vec<Name>, Vec<_>) = records.into_iter().unzip();
            if names.is_empty() {
                continue;
            }
            let answer = self.from.read(space, vec![Question::Records(names.clone())]).await?.pop();
            let Some(Answer::Records(ours)) = answer else { return Err(no_answer()) };
            if theirs.into_iter().map(Some).ne(ours) {
                return Ok(false);
            }
            let before = known.len();
            known.extend(names.into_iter().map(|name| name.key));
            self.counts.records.fetch_add((known.len() - before) as u64, Ordering::Relaxed);
            tell(&self.counts);
        }
        let there = known.len();
        Ok(extent == Extent::Beginning || there == count_records(self.from, space, set).await?)
    }
}

/// Counts the records. A record that appears on two pages counts once.
async fn count_records(of: &Arc<dyn Records>, space: &Space, set: Set) -> Result<usize, CopyError> {
    let (mut pages, mut known) = (Pages::of(Place::Set(set)), HashSet::new());
    while let Some(page) = pages.next(of, space).await? {
        let CopiedPage::Records(records) = page else { return Err(no_answer()) };
        known.extend(records.into_iter().map(|(name, _)| name.key));
    }
    Ok(known.len())
}

fn describe(space: &Space, place: Place) -> String {
    let space = space.as_str();
    match place {
        Place::Set(Set { table, part: 0 }) => format!("{space}, set {table}"),
        Place::Set(Set { table, part }) => format!("{space}, set {table}, part {part}"),
        Place::Index(index) => format!("{space}, index {}", index.0),
        Place::Log(log) => format!("{space}, log {}", log.0),
    }
}
