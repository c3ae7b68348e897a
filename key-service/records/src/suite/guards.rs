//! Commits compare their guards, and take effect as a whole or not at all.

use super::{SET, Subject, absent, name, record, seen};
use crate::records::{
    Answer, Committed, Index, Log, Name, Order, Question, Record, Revision, Set, Space, Write,
};

const INDEX: Index = Index(1);
const LOG: Log = Log(1);

/// Returns the number of entries in the index and of values in the log.
async fn entries_and_values(subject: &Subject) -> (usize, usize) {
    let order = Order::Ascending;
    let entries = Question::Entries { index: INDEX, from: Vec::new(), to: None, order, limit: 100 };
    let values = Question::Values { log: LOG, from: 0, to: u64::MAX, order, limit: 100 };
    match subject.records.read(&subject.space, vec![entries, values]).await.unwrap().as_slice() {
        [Answer::Entries(entries), Answer::Values(values)] => (entries.len(), values.len()),
        other => panic!("{other:?}"),
    }
}

fn append(first: u64) -> Write {
    Write::Append { log: LOG, first, values: vec![b"value".to_vec()], kept: 100 }
}

pub(super) async fn a_commit_writes_everything(subject: &Subject) {
    let [kept, removed] = ["kept", "removed"].map(name);
    let old = record("old");
    subject.write(&[Write::Put(removed.clone(), old.clone()), Write::Enter(INDEX, b"old".to_vec())]).await;
    let new = record("new");
    let writes = [
        append(1),
        Write::Put(kept.clone(), new.clone()),
        Write::Remove(removed.clone()),
        Write::Leave(INDEX, b"old".to_vec()),
        Write::Enter(INDEX, b"a".to_vec()),
        Write::Enter(INDEX, b"b".to_vec()),
    ];
    let guards = [seen(&removed, &old), absent(&kept)];
    assert_eq!(subject.commit(&guards, &writes).await, Committed::Written);
    assert_eq!(subject.look_up(&[removed, kept]).await, [None, Some(new)]);
    assert_eq!(entries_and_values(subject).await, (2, 1));
}

pub(super) async fn each_guard_that_does_not_hold_is_answered_with_the_record_and_nothing_is_written(
    subject: &Subject,
) {
    let [same, changed, removed, appeared] = ["same", "changed", "removed", "appeared"].map(name);
    let [first, second] = [record("first"), record("second")];
    let put = |name: &Name, record: &Record| Write::Put(name.clone(), record.clone());
    subject.write(&[put(&same, &first), put(&changed, &first), put(&removed, &first)]).await;
    let guards = [seen(&same, &first), seen(&changed, &first), seen(&removed, &first), absent(&appeared)];
    assert_eq!(subject.commit(&guards, &[]).await, Committed::Written);
    subject.write(&[put(&changed, &second), Write::Remove(removed.clone()), put(&appeared, &second)]).await;

    let before = subject.look_up(&[same.clone(), changed.clone(), removed.clone(), appeared.clone()]).await;
    let present = [None, Some(Some(second.clone())), Some(None), Some(Some(second))];
    let writes = [append(1), put(&same, &record("never")), Write::Enter(INDEX, b"never".to_vec())];
    for chosen in 1..16_usize {
        let places = || (0..4).filter(|place| chosen >> place & 1 == 1);
        let asked: Vec<_> = places().map(|place| guards[place].clone()).collect();
        let stale: Vec<_> =
            places().enumerate().filter_map(|(at, place)| Some((at, present[place].clone()?))).collect();
        if stale.is_empty() {
            continue;
        }
        assert_eq!(subject.commit(&asked, &writes).await, Committed::Conflict(stale.clone()), "{chosen}");
        assert_eq!(subject.commit(&asked, &[]).await, Committed::Conflict(stale), "{chosen}");
    }
    assert_eq!(subject.look_up(&[same, changed, removed, appeared]).await, before);
    assert_eq!(entries_and_values(subject).await, (0, 0));
}

pub(super) async fn a_commit_without_writes_is_a_question(subject: &Subject) {
    let (one, two) = (name("one"), name("two"));
    assert_eq!(subject.commit(&[], &[]).await, Committed::Written);
    assert_eq!(subject.commit(&[absent(&one), absent(&two)], &[]).await, Committed::Written);
    let there = record("there");
    subject.write(&[Write::Put(two.clone(), there.clone())]).await;
    let present = Committed::Conflict(vec![(1, Some(there.clone()))]);
    assert_eq!(subject.commit(&[absent(&one), absent(&two)], &[]).await, present);
    assert_eq!(subject.commit(&[absent(&one), seen(&two, &there)], &[]).await, Committed::Written);
}

pub(super) async fn a_commit_sent_twice_finds_its_own_revision(subject: &Subject) {
    let balance = name("balance");
    let mine = record("after");
    let (guards, writes) = ([absent(&balance)], [append(1), Write::Put(balance.clone(), mine.clone())]);
    assert_eq!(subject.commit(&guards, &writes).await, Committed::Written);
    let present = Committed::Conflict(vec![(0, Some(mine.clone()))]);
    assert_eq!(subject.commit(&guards, &writes).await, present);
    let removal = ([seen(&balance, &mine)], [Write::Remove(balance.clone())]);
    assert_eq!(subject.commit(&removal.0, &removal.1).await, Committed::Written);
    assert_eq!(subject.commit(&removal.0, &removal.1).await, Committed::Conflict(vec![(0, None)]));
    assert_eq!(entries_and_values(subject).await, (0, 1));
}

pub(super) async fn names_differ_by_space_set_part_and_key(subject: &Subject) {
    let sets = [SET, Set { table: 2, part: 0 }, Set { table: 1, part: 1 }, Set { table: 1, part: u32::MAX }];
    let names: Vec<_> = sets
        .iter()
        .flat_map(|set| ["k", "k\0", ""].map(|key| Name { set: *set, key: key.as_bytes().into() }))
        .collect();
    for space in ["suite", "suite 2", " "] {
        let there = Subject { space: Space::new(space), ..subject.clone() };
        let guards: Vec<_> = names.iter().map(absent).collect();
        assert_eq!(there.commit(&guards, &[]).await, Committed::Written);
        let records: Vec<_> = names.iter().map(|name| record(format!("{space} {name:?}"))).collect();
        let puts: Vec<_> = names
            .iter()
            .zip(&records)
            .map(|(name, record)| Write::Put(name.clone(), record.clone()))
            .collect();
        there.write(&puts).await;
        let found = there.look_up(&names).await;
        assert_eq!(found.into_iter().collect::<Option<Vec<_>>>().unwrap(), records);
    }
}

pub(super) async fn a_record_may_be_put_and_removed_without_a_guard(subject: &Subject) {
    let (one, two) = (name("one"), name("two"));
    for message in ["short", "longer than before", ""] {
        let there = record(message);
        subject.write(&[Write::Put(one.clone(), there.clone()), Write::Remove(two.clone())]).await;
        assert_eq!(subject.look_up(std::slice::from_ref(&one)).await, [Some(there.clone())]);
        assert_eq!(subject.commit(&[seen(&one, &there), absent(&two)], &[]).await, Committed::Written);
    }
}

pub(super) async fn records_and_names_are_any_bytes(subject: &Subject) {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let names: Vec<_> = bytes.iter().map(|byte| name([*byte, 0, *byte])).chain([name(&bytes)]).collect();
    let revisions = [[0; 8], [0xff; 8], *b"\r\n\0$-1\r\n"];
    for revision in revisions.map(Revision) {
        let there = Record::new(revision, 0xff, &bytes.repeat(3));
        let puts: Vec<_> = names.iter().map(|name| Write::Put(name.clone(), there.clone())).collect();
        subject.write(&puts).await;
        let found = subject.look_up(&names).await;
        assert!(found.iter().all(|found| found.as_ref() == Some(&there)));
        let guards: Vec<_> = names.iter().map(|name| seen(name, &there)).collect();
        assert_eq!(subject.commit(&guards, &[]).await, Committed::Written);
    }
}
