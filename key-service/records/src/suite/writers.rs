//! Concurrent callers: what they read is consistent, and no write is lost or doubled.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Subject, absent, fresh, name, record, seen};
use crate::records::{Answer, Committed, Guard, Index, Log, Name, Order, Question, Record, Write};

/// Duration of writing, longer on a machine too busy for two writes.
const RUN: Duration = Duration::from_secs(2);
const ACCOUNTS: usize = 4;
const CREDIT: i64 = 1_000_000;
const LOG: Log = Log(1);
const INDEX: Index = Index(1);

fn number_of(record: &Record) -> i64 {
    i64::from_be_bytes(record.message().try_into().unwrap())
}

fn put(name: &Name, number: i64) -> Write {
    Write::Put(name.clone(), Record::new(fresh(), 1, &number.to_be_bytes()))
}

fn account(n: usize) -> Name {
    name(format!("account {n}"))
}

async fn values(subject: &Subject) -> Vec<(u64, Vec<u8>)> {
    let (order, limit) = (Order::Ascending, usize::MAX >> 1);
    match subject.ask(Question::Values { log: LOG, from: 0, to: u64::MAX, order, limit }).await {
        Answer::Values(values) => values,
        other => panic!("{other:?}"),
    }
}

/// Writes numbers until this time, but at least two. Each goes into two records, an index and a log.
async fn write_numbers(subject: Subject, until: Instant) {
    for n in 1_i64.. {
        let entry = |n: i64| n.to_be_bytes().to_vec();
        let append = Write::Append { log: LOG, first: n.unsigned_abs(), values: vec![entry(n)], kept: 1_000 };
        let (left, entered) = (Write::Leave(INDEX, entry(n - 1)), Write::Enter(INDEX, entry(n)));
        subject.write(&[append, put(&name("one"), n), left, put(&name("two"), n), entered]).await;
        if n > 1 && Instant::now() >= until {
            break;
        }
    }
}

pub(super) async fn questions_are_answered_as_of_one_moment(subject: &Subject) {
    let (order, from, to) = (Order::Descending, Vec::new(), None);
    let questions = vec![
        Question::Records(vec![name("one")]),
        Question::Entries { index: INDEX, from, to, order, limit: 5 },
        Question::Values { log: LOG, from: 0, to: u64::MAX, order, limit: 1 },
        Question::Records(vec![name("two")]),
    ];
    let until = Instant::now() + RUN / 2;
    let writing = tokio::spawn(write_numbers(subject.clone(), until));
    let mut highest = 0;
    while highest < 2 || Instant::now() < until {
        let answers = subject.records.read(&subject.space, questions.clone()).await.unwrap();
        let [Answer::Records(one), Answer::Entries(entries), Answer::Values(values), Answer::Records(two)] =
            answers.as_slice()
        else {
            panic!("{answers:?}")
        };
        let Some(n) = one[0].as_ref().map(number_of) else {
            assert_eq!((two.as_slice(), entries.len(), values.len()), (&[None][..], 0, 0));
            continue;
        };
        assert_eq!(two[0].as_ref().map(number_of), Some(n));
        assert_eq!(entries, &[n.to_be_bytes()]);
        assert_eq!(values, &[(n.unsigned_abs(), n.to_be_bytes().to_vec())]);
        assert!(n >= highest);
        highest = n;
    }
    writing.await.unwrap();
}

/// A writer's copies of the records: the accounts, and the number of the log's last value.
struct Copies(Vec<(Name, Record)>);

impl Copies {
    async fn of(subject: &Subject) -> Self {
        let names: Vec<_> = (0..ACCOUNTS).map(account).chain([name("last")]).collect();
        let records = subject.look_up(&names).await;
        Self(names.into_iter().zip(records.into_iter().map(Option::unwrap)).collect())
    }

    /// Transfers money between two accounts and logs it. Returns `false` if another writer was first.
    async fn transfer(&mut self, subject: &Subject, (from, to): (usize, usize), writer: u8) -> bool {
        let places = [from, to, ACCOUNTS];
        let guards: Vec<Guard> = places.iter().map(|n| seen(&self.0[*n].0, &self.0[*n].1)).collect();
        let number = number_of(&self.0[ACCOUNTS].1) + 1;
        let numbers = [number_of(&self.0[from].1) - 7, number_of(&self.0[to].1) + 7, number];
        let first = number.unsigned_abs();
        let mut changes = vec![Write::Append { log: LOG, first, values: vec![vec![writer]], kept: u64::MAX }];
        changes.extend(places.iter().zip(numbers).map(|(n, number)| put(&self.0[*n].0, number)));
        match subject.commit(&guards, &changes).await {
            Committed::Written => {
                for (n, write) in places.iter().zip(changes.into_iter().skip(1)) {
                    let Write::Put(_, record) = write else { panic!() };
                    self.0[*n].1 = record;
                }
                true
            }
            Committed::Conflict(present) => {
                assert!(!present.is_empty());
                for (place, record) in present {
                    self.0[places[place]].1 = record.unwrap();
                }
                false
            }
        }
    }
}

pub(super) async fn two_writers_lose_nothing_and_double_nothing(subject: &Subject) {
    let mut opening: Vec<_> = (0..ACCOUNTS).map(|n| put(&account(n), CREDIT)).collect();
    opening.push(put(&name("last"), 0));
    subject.write(&opening).await;
    let until = Instant::now() + RUN;
    let transfers = |writer: u8| {
        let subject = subject.clone();
        tokio::spawn(async move {
            let (mut copies, mut done) = (Copies::of(&subject).await, 0);
            for n in usize::from(writer).. {
                if done > 0 && Instant::now() >= until {
                    break;
                }
                let (from, to) = (n % ACCOUNTS, (n + 1 + n % 3) % ACCOUNTS);
                done += usize::from(copies.transfer(&subject, (from, to), writer).await);
            }
            done
        })
    };
    let done = join_all((0..2).map(transfers)).await;
    let last = Copies::of(subject).await;
    let sum: i64 = last.0[..ACCOUNTS].iter().map(|(_, record)| number_of(record)).sum();
    assert_eq!(sum, CREDIT * 4);
    let values = values(subject).await;
    assert!(values.iter().map(|(number, _)| *number).eq(1..=values.len() as u64));
    for (writer, done) in (0..).zip(done) {
        let done = done.unwrap();
        assert_eq!(values.iter().filter(|(_, value)| *value == [writer]).count(), done);
    }
}

pub(super) async fn of_rivals_at_once_one_wins(subject: &Subject) {
    for round in 0..20 {
        let prize = name(format!("prize {round}"));
        let rivals: Vec<Record> = (0..16).map(|n| record(format!("rival {n}"))).collect();
        let guards = [absent(&prize)];
        let writes: Vec<_> = rivals.iter().map(|rival| [Write::Put(prize.clone(), rival.clone())]).collect();
        let outcomes = join_all(writes.iter().map(|writes| subject.commit(&guards, writes))).await;
        let winner = subject.look_up(std::slice::from_ref(&prize)).await.remove(0).unwrap();
        for (rival, outcome) in rivals.iter().zip(outcomes) {
            let lost = Committed::Conflict(vec![(0, Some(winner.clone()))]);
            let expected = if *rival == winner { Committed::Written } else { lost };
            assert_eq!(outcome, expected);
        }
    }
}
