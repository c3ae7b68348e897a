//! The backend for tests: maps behind a lock. Calls fail or wait when a test asks for it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::records::{
    Answer, Commit, Committed, Cursor, Failure, Guard, Index, Log, Name, Order, Place, Question, Record,
    Records, Set, Space, Write,
};

/// Number of records on a page of a set: few, so that tests see several pages.
const PAGE: usize = 7;

/// In-memory [`Records`], which are dropped with this value.
#[derive(Default)]
pub struct Maps {
    spaces: Mutex<BTreeMap<Space, SpaceMaps>>,
    faults: Mutex<VecDeque<Fault>>,
}

#[derive(Debug)]
pub enum Fault {
    /// The call fails, and has no effect.
    Refused(Failure),
    /// The call takes effect, and its answer is lost.
    Lost(Failure),
    /// The call waits before it takes effect, until the sender sends or is dropped.
    HeldUp(oneshot::Receiver<()>),
    /// The call takes effect, and its answer waits.
    AnsweredLate(oneshot::Receiver<()>),
}

/// Records, entries and logs of a space, as plain maps.
#[derive(Clone, Default)]
pub struct SpaceMaps {
    records: BTreeMap<Name, Record>,
    entries: BTreeMap<Index, BTreeSet<Vec<u8>>>,
    logs: BTreeMap<Log, BTreeMap<u64, Vec<u8>>>,
}

impl Maps {
    /// Injects faults into the next calls, reads and commits alike, one fault per call.
    pub fn next_calls(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().extend(faults);
    }

    /// Returns the number of records in all spaces whose names begin with `spaces`.
    pub fn count_in(&self, spaces: &str) -> usize {
        let all = self.spaces.lock();
        let inside = all.iter().filter(|(space, _)| space.as_str().starts_with(spaces));
        inside.map(|(_, maps)| maps.records.len()).sum()
    }

    async fn call<T: Send>(&self, effect: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        let fault = self.faults.lock().pop_front();
        match fault {
            None => effect(),
            Some(Fault::Refused(failure)) => Err(failure),
            Some(Fault::Lost(failure)) => effect().and(Err(failure)),
            Some(Fault::HeldUp(go_on)) => {
                let _ = go_on.await;
                effect()
            }
            Some(Fault::AnsweredLate(go_on)) => {
                let answer = effect();
                let _ = go_on.await;
                answer
            }
        }
    }
}

#[async_trait]
impl Records for Maps {
    fn system(&self) -> &'static str {
        "maps"
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        let answer = || {
            let spaces = self.spaces.lock();
            let empty = SpaceMaps::default();
            let maps = spaces.get(space).unwrap_or(&empty);
            Ok(questions.iter().map(|question| maps.answer(question)).collect())
        };
        self.call(answer).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        let write = || {
            let mut spaces = self.spaces.lock();
            spaces.entry(space.clone()).or_default().commit(commit)
        };
        self.call(write).await
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        let list = || {
            let spaces = self.spaces.lock();
            let places = spaces
                .iter()
                .flat_map(|(space, maps)| maps.places().into_iter().map(|place| (space.clone(), place)));
            Ok(places.collect())
        };
        self.call(list).await
    }
}

impl SpaceMaps {
    /// Writes everything if every guard holds, and nothing otherwise.
    pub fn commit(&mut self, commit: Commit) -> Result<Committed, Failure> {
        let present = self.present(&commit.guards);
        if !present.is_empty() {
            return Ok(Committed::Conflict(present));
        }
        self.check(&commit.writes)?;
        commit.writes.into_iter().for_each(|write| self.write(write));
        Ok(Committed::Written)
    }

    pub fn record(&self, name: &Name) -> Option<&Record> {
        self.records.get(name)
    }

    /// Lists all records, sorted by name.
    pub fn records(&self) -> impl Iterator<Item = (&Name, &Record)> {
        self.records.iter()
    }

    /// Lists the values of a log, sorted by number.
    pub fn values(&self, log: Log) -> impl Iterator<Item = (u64, &[u8])> {
        self.logs.get(&log).into_iter().flatten().map(|(number, value)| (*number, &value[..]))
    }

    fn places(&self) -> BTreeSet<Place> {
        let sets = self.records.keys().map(|name| Place::Set(name.set));
        let indexes = self.entries.iter().filter(|(_, entries)| !entries.is_empty());
        let logs = self.logs.iter().filter(|(_, values)| !values.is_empty());
        let indexes = indexes.map(|(index, _)| Place::Index(*index));
        sets.chain(indexes).chain(logs.map(|(log, _)| Place::Log(*log))).collect()
    }

    /// Returns the records whose guards do not hold.
    fn present(&self, guards: &[Guard]) -> Vec<(usize, Option<Record>)> {
        let present = |guard: &Guard| self.records.get(&guard.name).cloned();
        let places = guards.iter().map(|guard| (guard.seen, present(guard))).enumerate();
        let stale = places.filter(|(_, (seen, record))| record.as_ref().map(Record::revision) != *seen);
        stale.map(|(place, (_, record))| (place, record)).collect()
    }

    /// Fails if one of the writes cannot be made, so that no write is made.
    fn check(&self, writes: &[Write]) -> Result<(), Failure> {
        let mut lasts = BTreeMap::new();
        for write in writes {
            match write {
                Write::Append { log, first, values, kept: _ } => {
                    let last = || Some(*self.logs.get(log)?.last_key_value()?.0);
                    if lasts.get(log).copied().or_else(last).is_some_and(|last| last >= *first) {
                        return Err(Failure::NotDone(format!("the log has had number {first}")));
                    }
                    lasts.insert(*log, (first + values.len() as u64).saturating_sub(1));
                }
                Write::Trim { .. }
                | Write::Put(..)
                | Write::Remove(_)
                | Write::Drop(_)
                | Write::Enter(..)
                | Write::Leave(..) => {}
            }
        }
        Ok(())
    }

    /// Makes a write that has been checked.
    fn write(&mut self, write: Write) {
        match write {
            Write::Append { log, first, values, kept } => {
                let log = self.logs.entry(log).or_default();
                log.extend((first..).zip(values));
                let last = log.last_key_value().map_or(0, |(last, _)| *last);
                *log = log.split_off(&(last + 1).saturating_sub(kept));
            }
            Write::Trim { log, first } => {
                if let Some(values) = self.logs.get_mut(&log) {
                    *values = values.split_off(&first);
                }
            }
            Write::Put(name, record) => drop(self.records.insert(name, record)),
            Write::Remove(name) => drop(self.records.remove(&name)),
            Write::Drop(set) => self.records.retain(|name, _| name.set != set),
            Write::Enter(index, entry) => drop(self.entries.entry(index).or_default().insert(entry)),
            Write::Leave(index, entry) => drop(self.entries.entry(index).or_default().remove(&entry)),
        }
    }

    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::Records(names) => {
                Answer::Records(names.iter().map(|name| self.records.get(name).cloned()).collect())
            }
            Question::Set(set, after) => self.page(*set, after.as_ref()),
            Question::Entries { index, from, to, order, limit } => {
                let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to.max(from)));
                let index = self.entries.get(index).into_iter();
                let entries = index.flat_map(|index| index.range::<Vec<u8>, _>((Bound::Included(from), to)));
                Answer::Entries(limited(entries.cloned(), *order, *limit))
            }
            Question::Values { log, from, to, order, limit } => {
                let log = self.logs.get(log).filter(|_| from <= to).into_iter();
                let values = log.flat_map(|log| log.range(from..=to));
                Answer::Values(limited(values.map(|(n, value)| (*n, value.clone())), *order, *limit))
            }
        }
    }

    fn page(&self, set: Set, after: Option<&Cursor>) -> Answer {
        let start = match after {
            None => Bound::Included(Name { set, key: [].into() }),
            Some(Cursor(key)) => Bound::Excluded(Name { set, key: key[..].into() }),
        };
        let mut behind =
            self.records.range((start, Bound::Unbounded)).take_while(|(name, _)| name.set == set);
        let record = |(name, record): (&Name, &Record)| (name.key.to_vec(), record.clone());
        let page: Vec<_> = behind.by_ref().take(PAGE).map(record).collect();
        let is_last = behind.next().is_none();
        let next = page.last().filter(|_| !is_last).map(|(key, _)| Cursor(key.clone()));
        Answer::Set(page, next)
    }
}

fn limited<T>(all: impl DoubleEndedIterator<Item = T>, order: Order, limit: usize) -> Vec<T> {
    match order {
        Order::Ascending => all.take(limit).collect(),
        Order::Descending => all.rev().take(limit).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use futures_util::FutureExt;

    use super::*;
    use crate::suite::{absent, name, record};

    #[tokio::test]
    async fn faults_happen_to_the_next_calls_before_or_after_their_effect() {
        let (maps, space, failure) = (Maps::default(), Space::new("s"), Failure::Unknown("lost".into()));
        let (one, mine) = (name("one"), record("mine"));
        let put =
            || Commit { guards: vec![absent(&one)], writes: vec![Write::Put(one.clone(), mine.clone())] };
        let look_up = || maps.read(&space, vec![Question::Records(slice::from_ref(&one).to_vec())]);
        let found = |record: Option<&Record>| Ok(vec![Answer::Records(vec![record.cloned()])]);

        maps.next_calls([Fault::Refused(failure.clone())]);
        assert_eq!(maps.commit(&space, put()).await, Err(failure.clone()));
        assert_eq!(look_up().await, found(None));

        let (go_on, held_up) = oneshot::channel();
        maps.next_calls([Fault::HeldUp(held_up)]);
        let mut reading = look_up();
        assert!((&mut reading).now_or_never().is_none());
        maps.next_calls([Fault::Lost(failure.clone())]);
        assert_eq!(maps.commit(&space, put()).await, Err(failure));
        drop(go_on);
        assert_eq!(reading.await, found(Some(&mine)));

        let (go_on, late) = oneshot::channel();
        maps.next_calls([Fault::AnsweredLate(late)]);
        let mut again = maps.commit(&space, put());
        assert!((&mut again).now_or_never().is_none());
        maps.commit(&space, Commit { guards: Vec::new(), writes: vec![Write::Remove(one.clone())] })
            .await
            .unwrap();
        drop(go_on);
        assert_eq!(again.await, Ok(Committed::Conflict(vec![(0, Some(mine.clone()))])));
    }
}
