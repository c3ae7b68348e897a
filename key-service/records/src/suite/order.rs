use super::{Subject, name, record};
use crate::records::{Answer, Index, Log, Order, Question, Write};

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
    // Another index does not show this entry.
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

/// Returns a write that appends values. Each value is its number as text.
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
    // A log with a lower `kept` than before is shortened.
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

pub(super) async fn a_log_that_is_trimmed_goes_on_behind_its_last_number(subject: &Subject) {
    let trim = |first| Write::Trim { log: LOG, first };
    subject.write(&[trim(5)]).await;
    for first in 1..=6 {
        subject.write(&[append(first, 1, 1_000)]).await;
    }
    subject.write(&[trim(4)]).await;
    assert_eq!(values(subject, (0, u64::MAX), (Order::Ascending, 99)).await, numbered(4..=6));
    subject.write(&[trim(2), append(7, 5, 1_000)]).await;
    assert_eq!(values(subject, (0, u64::MAX), (Order::Ascending, 99)).await, numbered(4..=11));
    // Values of one commit may be kept or dropped together.
    subject.write(&[trim(11), append(12, 1, 1_000)]).await;
    let found = values(subject, (0, u64::MAX), (Order::Ascending, 99)).await;
    let lowest = found[0].0;
    assert!((7..=11).contains(&lowest), "{lowest}");
    assert_eq!(found, numbered(lowest..=12));
    subject.write(&[trim(12)]).await;
    assert_eq!(values(subject, (0, u64::MAX), (Order::Ascending, 99)).await, numbered([12]));
    for first in [11, 12] {
        subject.try_commit(&[], &[append(first, 1, 1_000)]).await.unwrap_err();
    }
    subject.write(&[append(13, 1, 1_000)]).await;
    assert_eq!(values(subject, (0, u64::MAX), (Order::Descending, 9)).await, numbered([13, 12]));
}
