//! The backend of tests: maps behind a lock, and calls that fail or wait when a test asks for it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::records::{
    Answer, Commit, Committed, Cursor, Failure, Guard, Index, Log, Name, Order, Question, Record, Records,
    Set, Space, Write,
};

/// Records on a page of a set: few, so that tests see several pages.
const PAGE: usize = 7;

/// Records in memory, which end with the value.
#[derive(Default)]
pub struct Maps {
    spaces: Mutex<BTreeMap<Space, SpaceMaps>>,
    faults: Mutex<VecDeque<Fault>>,
}

/// Something that happens to a call.
#[derive(Debug)]
pub enum Fault {
    /// The call fails, and has no effect.
    Refused(Failure),
    /// The call takes effect, and its answer is lost.
    Lost(Failure),
    /// The call waits before it takes effect, until the sender is used or dropped.
    HeldUp(oneshot::Receiver<()>),
    /// The call takes effect, and its answer waits.
    AnsweredLate(oneshot::Receiver<()>),
}

#[derive(Clone, Default)]
struct SpaceMaps {
    records: BTreeMap<Name, Record>,
    counters: BTreeMap<Name, i64>,
    entries: BTreeMap<Index, BTreeSet<Vec<u8>>>,
    logs: BTreeMap<Log, BTreeMap<u64, Vec<u8>>>,
}

impl Maps {
    /// Lets faults happen to the next calls, reads and commits alike, one fault a call.
    pub fn next_calls(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().extend(faults);
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
            // A copy is changed, so that a commit that fails half-way leaves nothing.
            let mut maps = spaces.get(space).cloned().unwrap_or_default();
            let present = maps.present(&commit.guards);
            if !present.is_empty() {
                return Ok(Committed::Conflict(present));
            }
            let mut sum = None;
            for write in commit.writes {
                sum = maps.write(write)?.or(sum);
            }
            spaces.insert(space.clone(), maps);
            Ok(Committed::Written(sum))
        };
        self.call(write).await
    }
}

impl SpaceMaps {
    /// The records whose guards do not hold.
    fn present(&self, guards: &[Guard]) -> Vec<(usize, Option<Record>)> {
        let present = |guard: &Guard| self.records.get(&guard.name).cloned();
        let places = guards.iter().map(|guard| (guard.seen, present(guard))).enumerate();
        let stale = places.filter(|(_, (seen, record))| record.as_ref().map(Record::revision) != *seen);
        stale.map(|(place, (_, record))| (place, record)).collect()
    }

    fn write(&mut self, write: Write) -> Result<Option<i64>, Failure> {
        match write {
            Write::Append { log, first, values, kept } => self.append(log, (first..).zip(values), kept)?,
            Write::Put(name, record) => drop(self.records.insert(name, record)),
            Write::Remove(name) => drop(self.records.remove(&name)),
            Write::Drop(set) => {
                self.records.retain(|name, _| name.set != set);
                self.counters.retain(|name, _| name.set != set);
            }
            Write::Enter(index, entry) => drop(self.entries.entry(index).or_default().insert(entry)),
            Write::Leave(index, entry) => drop(self.entries.entry(index).or_default().remove(&entry)),
            Write::Add(name, amount) => {
                let counter = self.counters.entry(name).or_default();
                let sum = counter.checked_add(amount);
                *counter = sum.ok_or_else(|| Failure::NotDone("the sum of a counter is too large".into()))?;
                return Ok(sum);
            }
        }
        Ok(None)
    }

    fn append(
        &mut self,
        log: Log,
        values: impl Iterator<Item = (u64, Vec<u8>)>,
        kept: u64,
    ) -> Result<(), Failure> {
        let log = self.logs.entry(log).or_default();
        for (number, value) in values {
            if log.last_key_value().is_some_and(|(last, _)| *last >= number) {
                return Err(Failure::NotDone(format!("the log has had number {number}")));
            }
            log.insert(number, value);
        }
        let last = log.last_key_value().map_or(0, |(last, _)| *last);
        log.retain(|number, _| last - number < kept);
        Ok(())
    }

    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::Records(names) => {
                Answer::Records(names.iter().map(|name| self.records.get(name).cloned()).collect())
            }
            Question::Set(set, after) => self.page(*set, after.as_ref()),
            Question::Entries { index, from, to, order, limit } => {
                let inside = |entry: &&Vec<u8>| *entry >= from && to.as_ref().is_none_or(|to| *entry < to);
                let entries = self.entries.get(index).into_iter().flatten().filter(inside).cloned();
                Answer::Entries(limited(entries, *order, *limit))
            }
            Question::Values { log, from, to, order, limit } => {
                let inside = |(number, _): &(&u64, &Vec<u8>)| (from..=to).contains(number);
                let values = self.logs.get(log).into_iter().flatten().filter(inside);
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
