//! Sets can be dropped as a whole and are read page by page.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{SET, Subject, absent, name, record, seen};
use crate::records::{Answer, Committed, Name, Question, Record, Set, Write};

/// Number of records in a commit, few enough for every backend.
const CHUNK: usize = 200;

async fn pages(subject: &Subject, set: Set) -> BTreeMap<Vec<u8>, Record> {
    let (mut all, mut cursor) = (BTreeMap::new(), None);
    loop {
        let Answer::Set(page, next) = subject.ask(Question::Set(set, cursor)).await else { panic!() };
        all.extend(page);
        cursor = next;
        if cursor.is_none() {
            return all;
        }
    }
}

async fn filled(subject: &Subject, set: Set, count: u32) -> BTreeMap<Vec<u8>, Record> {
    let all: BTreeMap<_, _> = (0..count).map(|n| (n.to_be_bytes().to_vec(), record(n.to_string()))).collect();
    let puts: Vec<_> = all
        .iter()
        .map(|(key, record)| Write::Put(Name { set, key: key[..].into() }, record.clone()))
        .collect();
    for chunk in puts.chunks(CHUNK) {
        subject.write(chunk).await;
    }
    all
}

pub(super) async fn a_set_is_dropped_and_its_other_parts_stay(subject: &Subject) {
    let parts = [0, 1, 2, u32::MAX].map(|part| Set { table: 4, part });
    let other = Set { table: 5, part: 1 };
    let mut kept = BTreeMap::new();
    for set in parts.into_iter().chain([other]) {
        kept.insert(set, filled(subject, set, 20).await);
    }
    subject.write(&[Write::Drop(parts[1]), Write::Put(name("beside"), record(""))]).await;
    kept.insert(parts[1], BTreeMap::new());
    for (set, records) in kept {
        assert_eq!(pages(subject, set).await, records, "{set:?}");
    }
    assert!(subject.look_up(&[name("beside")]).await[0].is_some());
    subject.write(&[Write::Drop(Set { table: 200, part: 7 })]).await;
}

pub(super) async fn a_guard_after_a_drop_sees_no_record(subject: &Subject) {
    let (there, one) = (record("there"), name("one"));
    let put = [Write::Put(one.clone(), there.clone())];
    for _ in 0..2 {
        assert_eq!(subject.commit(&[absent(&one)], &put).await, Committed::Written);
        let drop = [Write::Drop(SET)];
        assert_eq!(subject.commit(&[seen(&one, &there)], &drop).await, Committed::Written);
        assert_eq!(subject.commit(&[seen(&one, &there)], &put).await, Committed::Conflict(vec![(0, None)]));
    }
}

pub(super) async fn pages_of_a_set_have_each_record(subject: &Subject) {
    assert_eq!(pages(subject, SET).await, BTreeMap::new());
    for (part, count) in [(1, 1), (2, 7), (3, 500), (4, 501), (5, 1_300)] {
        let set = Set { table: 1, part };
        let all = filled(subject, set, count).await;
        assert!(pages(subject, set).await == all, "{count}");
    }
}

pub(super) async fn pages_of_a_set_have_what_stays_while_others_write(subject: &Subject) {
    let stays = filled(subject, SET, 1_200).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (subject, is_over) = (subject.clone(), Arc::clone(&is_over));
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let moving: Vec<_> =
                    (0..50_u32).map(|n| name([&n.to_be_bytes()[..], b"m"].concat())).collect();
                let put = |name: &Name| Write::Put(name.clone(), record("moves"));
                subject.write(&moving.iter().map(put).collect::<Vec<_>>()).await;
                subject.write(&moving.into_iter().map(Write::Remove).collect::<Vec<_>>()).await;
            }
        }
    });
    for _ in 0..20 {
        let found = pages(subject, SET).await;
        assert!(stays.iter().all(|(key, record)| found.get(key) == Some(record)));
    }
    is_over.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(pages(subject, SET).await == stays);
}
