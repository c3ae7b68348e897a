//! Indexes and logs are ordered; counters add up.

use super::{Subject, name, record};
use crate::records::{Answer, Committed, Index, Log, Name, Order, Question, Set, Write};

const INDEX: Index = Index(3);
const LOG: Log = Log(2);

async fn entries(
    subject: &Subject,
    from: &[u8],
    to: Option<&[u8]>,
    (order, limit): (Order, usize),
) -> Vec<Vec<u8>> {
    let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
    match subject.ask(Question::Entries { index: INDEX, from, to, order, limit }).await {
        Answer::Entries(entries) => entries,
        other => panic!("{other:?}"),
    }
}

async fn values(
    subject: &Subject,
    (from, to): (u64, u64),
    (order, limit): (Order, usize),
) -> Vec<(u64, Vec<u8>)> {
    match subject.ask(Question::Values { log: LOG, from, to, order, limit }).await {
        Answer::Values(values) => values,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn entries_come_in_the_order_of_their_bytes(subject: &Subject) {
    let mut all: Vec<Vec<u8>> = [
        &b"\0"[..],
        b"\0\0",
        b"\0\xff",
        b"\x01",
        b"[",
        b"(",
        b"+",
        b"-",
        b"a",
        b"a\0",
        b"ab",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\xff\0",
        b"\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    let enter = |entry: &Vec<u8>| Write::Enter(INDEX, entry.clone());
    subject.write(&all.iter().rev().map(enter).collect::<Vec<_>>()).await;
    // Another index shows nothing of this one.
    subject.write(&[Write::Enter(Index(4), b"b".to_vec())]).await;
    all.sort();
    let mut bounds: Vec<Option<&[u8]>> = all.iter().map(|bound| Some(bound.as_slice())).collect();
    bounds.extend([Some(&b""[..]), Some(b"aa"), Some(b"\xff\xff\xff"), None]);
    for from in bounds.iter().flatten() {
        for to in &bounds {
            let inside =
                |entry: &&Vec<u8>| entry.as_slice() >= *from && to.is_none_or(|to| entry.as_slice() < to);
            let expected: Vec<_> = all.iter().filter(inside).cloned().collect();
            let found = entries(subject, from, *to, (Order::Ascending, 100)).await;
            assert_eq!(found, expected, "{from:?} {to:?}");
            let found = entries(subject, from, *to, (Order::Descending, 3)).await;
            let expected: Vec<_> = expected.into_iter().rev().take(3).collect();
            assert_eq!(found, expected, "{from:?} {to:?}");
        }
    }
    assert_eq!(entries(subject, b"", None, (Order::Ascending, 2)).await, all[..2]);
}

pub(super) async fn an_entry_is_there_once(subject: &Subject) {
    let entry = || b"entry".to_vec();
    for _ in 0..2 {
        subject.write(&[Write::Enter(INDEX, entry())]).await;
        assert_eq!(entries(subject, b"", None, (Order::Ascending, 9)).await, [entry()]);
    }
    for _ in 0..2 {
        subject.write(&[Write::Leave(INDEX, entry())]).await;
        assert_eq!(entries(subject, b"", None, (Order::Ascending, 9)).await, Vec::<Vec<u8>>::new());
    }
}

/// Appends values whose text is their number.
fn append(first: u64, count: u64, kept: u64) -> Write {
    let values = (first..first + count).map(|number| number.to_string().into_bytes()).collect();
    Write::Append { log: LOG, first, values, kept }
}

fn numbered(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
    numbers.into_iter().map(|number| (number, number.to_string().into_bytes())).collect()
}

pub(super) async fn values_come_with_their_numbers(subject: &Subject) {
    for (first, count) in [(1, 1), (2, 5), (7, 1), (8, 20)] {
        subject.write(&[append(first, count, 1_000)]).await;
    }
    for (from, to) in [(0, u64::MAX), (1, 27), (3, 3), (4, 9), (27, u64::MAX), (28, 99), (9, 4), (0, 0)] {
        let expected = || numbered((1..=27).filter(|number| (from..=to).contains(number)));
        let up = values(subject, (from, to), (Order::Ascending, 1_000)).await;
        assert_eq!(up, expected(), "{from} {to}");
        let down = values(subject, (from, to), (Order::Descending, 1_000)).await;
        assert_eq!(down, expected().into_iter().rev().collect::<Vec<_>>(), "{from} {to}");
        for limit in 1..5 {
            let up = values(subject, (from, to), (Order::Ascending, limit)).await;
            assert_eq!(up, expected().into_iter().take(limit).collect::<Vec<_>>(), "{from} {to}");
            let down = values(subject, (from, to), (Order::Descending, limit)).await;
            assert_eq!(down, expected().into_iter().rev().take(limit).collect::<Vec<_>>(), "{from} {to}");
        }
    }
}

pub(super) async fn a_log_keeps_its_last_values(subject: &Subject) {
    let (kept, all) = (50, 8_000);
    for first in (0..all).step_by(200) {
        subject.write(&[append(first + 1, 200, kept)]).await;
    }
    let found = values(subject, (0, u64::MAX), (Order::Ascending, 10_000)).await;
    let lowest = found[0].0;
    assert_eq!(found, numbered(lowest..=all));
    assert!((all / 2..=all - kept + 1).contains(&lowest), "{lowest}");
    // A log that is to be shorter than before becomes so.
    for first in all..all + 400 {
        subject.write(&[append(first + 1, 1, 1)]).await;
    }
    let found = values(subject, (0, u64::MAX), (Order::Ascending, 10_000)).await;
    assert!((1..400).contains(&found.len()), "{}", found.len());
}

pub(super) async fn a_number_that_a_log_has_had_is_refused(subject: &Subject) {
    subject.write(&[append(1, 5, 100)]).await;
    for first in [1, 2, 3] {
        let writes = [append(first, 3, 100), Write::Put(name("never"), record(""))];
        subject.try_commit(&[], &writes).await.unwrap_err();
    }
    assert_eq!(values(subject, (0, u64::MAX), (Order::Ascending, 99)).await, numbered(1..=5));
    assert_eq!(subject.look_up(&[name("never")]).await, [None]);
}

fn counter(key: &str) -> Name {
    Name { set: Set { table: 9, part: 3 }, key: key.as_bytes().into() }
}

pub(super) async fn a_counter_answers_its_sum(subject: &Subject) {
    let (mut sum, other) = (0, counter("other"));
    for amount in [1, 41, -50, 0, i64::MAX, 7, i64::MIN] {
        sum += amount;
        let added = subject.commit(&[], &[Write::Add(counter("one"), amount)]).await;
        assert_eq!(added, Committed::Written(Some(sum)));
    }
    assert_eq!(subject.commit(&[], &[Write::Add(other, 3)]).await, Committed::Written(Some(3)));
    subject.write(&[Write::Drop(counter("one").set)]).await;
    assert_eq!(subject.commit(&[], &[Write::Add(counter("one"), 2)]).await, Committed::Written(Some(2)));
}

pub(super) async fn a_counter_that_would_overflow_stays(subject: &Subject) {
    subject.write(&[Write::Add(counter("one"), i64::MAX - 1)]).await;
    subject.try_commit(&[], &[Write::Add(counter("one"), 2)]).await.unwrap_err();
    let sum = Committed::Written(Some(i64::MAX));
    assert_eq!(subject.commit(&[], &[Write::Add(counter("one"), 1)]).await, sum);
}
