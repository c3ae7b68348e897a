//! Commits with many thousand words take effect as a whole or not at all.

use super::{SET, Subject, absent, name, record, seen};
use crate::records::{Answer, Committed, Guard, Index, Log, Name, Order, Question, Record, Set, Write};

/// Number of records, entries and values in each commit: more words than a Redis script can pass to one command.
const MANY: u64 = 10_000;
const INDEX: Index = Index(1);
const LOG: Log = Log(1);
/// A second log, whose number is checked before anything is written.
const SECOND_LOG: Log = Log(2);

/// Returns names in two sets; only the records of one set are guarded.
fn names() -> (Vec<Name>, Vec<Name>) {
    let guarded = (0..MANY).map(|n| name(n.to_be_bytes())).collect();
    let set = Set { table: SET.table + 1, ..SET };
    (guarded, (0..MANY).map(|n| Name { set, key: n.to_be_bytes()[..].into() }).collect())
}

/// Returns the numbers of existing records, entries and values.
async fn counts(subject: &Subject) -> [usize; 4] {
    let (order, limit) = (Order::Ascending, 3 * usize::try_from(MANY).unwrap());
    let values = |log| Question::Values { log, from: 0, to: u64::MAX, order, limit };
    let (guarded, others) = names();
    let questions = vec![
        Question::Records([guarded, others].concat()),
        Question::Entries { index: INDEX, from: Vec::new(), to: None, order, limit },
        values(LOG),
        values(SECOND_LOG),
    ];
    let answers = subject.records.read(&subject.space, questions).await.unwrap();
    let [Answer::Records(records), Answer::Entries(entries), Answer::Values(values), Answer::Values(second)] =
        answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    assert!(values.iter().map(|(number, _)| *number).eq(1..=values.len() as u64), "the numbers go on");
    [records.iter().flatten().count(), entries.len(), values.len(), second.len()]
}

/// Returns writes to all places, so that a partial write would be noticed anywhere.
fn writes(record: &Record, last: u64) -> Vec<Write> {
    let values = |count| (0..count).map(|n: u64| n.to_be_bytes().to_vec()).collect();
    let append = |log, first, count| Write::Append { log, first, values: values(count), kept: u64::MAX };
    let mut writes = vec![append(LOG, last + 1, MANY), append(SECOND_LOG, last / MANY + 1, 1)];
    let (guarded, others) = names();
    writes.extend([guarded, others].concat().into_iter().map(|name| Write::Put(name, record.clone())));
    writes.extend((0..MANY).map(|n| Write::Enter(INDEX, n.to_be_bytes().to_vec())));
    writes
}

pub(super) async fn a_commit_of_ten_thousand_entries_takes_effect_whole(subject: &Subject) {
    let many = usize::try_from(MANY).unwrap();
    let (guarded, others) = names();
    let guards: Vec<Guard> = guarded.iter().map(absent).collect();
    let there = record("there");
    assert_eq!(subject.commit(&guards, &writes(&there, 0)).await, Committed::Written);
    assert_eq!(counts(subject).await, [2 * many, many, many, 1]);

    let guards: Vec<Guard> = guarded.iter().map(|name| seen(name, &there)).collect();
    let mut removals = vec![Write::Trim { log: LOG, first: MANY }];
    removals.extend([guarded, others].concat().into_iter().map(Write::Remove));
    removals.extend((0..MANY).map(|n| Write::Leave(INDEX, n.to_be_bytes().to_vec())));
    assert_eq!(subject.commit(&guards, &removals).await, Committed::Written);
    let last = Question::Values { log: LOG, from: MANY, to: MANY, order: Order::Ascending, limit: 2 };
    let Answer::Values(values) = subject.ask(last).await else { panic!() };
    assert_eq!(values, [(MANY, (MANY - 1).to_be_bytes().to_vec())]);
    assert_eq!(subject.look_up(&names().0).await.iter().flatten().count(), 0);
}

pub(super) async fn a_commit_of_ten_thousand_entries_that_fails_writes_nothing(subject: &Subject) {
    let (guarded, _) = names();
    let guards: Vec<Guard> = guarded.iter().map(absent).collect();
    let there = record("there");
    // The last guard does not hold.
    let last = guarded.last().unwrap().clone();
    subject.write(&[Write::Put(last.clone(), there.clone())]).await;
    let stale = Committed::Conflict(vec![(guards.len() - 1, Some(there.clone()))]);
    assert_eq!(subject.commit(&guards, &writes(&there, 0)).await, stale);
    assert_eq!(counts(subject).await, [1, 0, 0, 0]);
    subject.write(&[Write::Remove(last)]).await;
    // The second log already has this number.
    let values = vec![vec![1]];
    subject.write(&[Write::Append { log: SECOND_LOG, first: 1, values, kept: u64::MAX }]).await;
    subject.try_commit(&guards, &writes(&there, 0)).await.unwrap_err();
    assert_eq!(counts(subject).await, [0, 0, 0, 1]);
}
