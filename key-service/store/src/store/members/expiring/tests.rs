//! Checks that expired records and their index entries are removed.

use std::sync::Arc;

use domain::{
    event::Actor,
    ledger::histories::{START, account},
    member::Role,
};
use records::maps::Maps;
use shared::clock::System;

use super::*;
use crate::store::{EVENTS_KEPT, EventBounds, NewAccount, StoreRetention};

fn store() -> Store {
    let kept = StoreRetention::all(EventBounds::with_life(EVENTS_KEPT));
    Store::new(Arc::new(Maps::default()), Arc::new(System), kept)
}

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

fn act(seconds: u64) -> Act {
    Act { actor: Actor::System, at: after(seconds), chance: [0; 10] }
}

fn record(kind: RecordKind, n: u8, member: MemberId, ends: u64) -> ExpiringRecord {
    let name = Digest::of(&[n]);
    ExpiringRecord { kind, name, member, expires_at: after(ends), value: String::new() }
}

/// Counts the entries in the two indexes.
async fn entries(store: &Store) -> [usize; 2] {
    let (space, mut numbers) = (layout::space(account(1)), [0; 2]);
    for (number, index) in numbers.iter_mut().zip([layout::EXPIRING_ENDS, layout::OF_MEMBERS]) {
        let all = store.read().entries(&space, index, (Vec::new(), None), Order::Ascending, 1_000);
        *number = all.await.unwrap().len();
    }
    numbers
}

#[tokio::test]
async fn records_that_have_expired_or_are_replaced_leave_no_entries() {
    let (store, mine) = (store(), account(1));
    let new = NewAccount { id: mine, name: "Acme".into(), created_at: START };
    store.create_account(new).await.unwrap();
    let member = Member {
        id: MemberId::new(START, [1; 10]),
        name: "Ann".into(),
        role: Role::Owner,
        password: None,
        created_at: START,
        last_link: None,
        second_factor: None,
    };
    let id = member.id;
    store.create_member(mine, member, 9, &act(0)).await.unwrap();
    let put = async |kind, n, ends, at| {
        store.put_record(mine, record(kind, n, id, ends), &act(at)).await.unwrap();
    };
    for n in 0..70 {
        put(RecordKind::Session, n, 10, 0).await;
    }
    for (n, left) in [(200, 39), (201, 8), (202, 3)] {
        put(RecordKind::Session, n, 500, 10).await;
        assert_eq!(entries(&store).await, [left; 2]);
    }
    put(RecordKind::Session, 202, 900, 500).await;
    assert_eq!(entries(&store).await, [1; 2], "one that has expired begins anew");
    let links = (0..9).map(|n| put(RecordKind::Link, n, 900, 500));
    futures_util::future::join_all(links).await;
    assert_eq!(entries(&store).await, [2; 2], "a session and the last link");
    store.remove_member(mine, id, &act(500)).await.unwrap();
    assert_eq!(entries(&store).await, [0; 2]);
    let late = store.put_record(mine, record(RecordKind::Session, 1, id, 900), &act(500)).await;
    assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
}

#[tokio::test]
async fn counts_that_have_expired_leave_no_entries() {
    let store = store();
    for seconds in [0, 5] {
        for n in 0..200 {
            let count = store.count_attempt(Digest::of(&[n]), after(seconds), after(seconds + 5)).await;
            assert_eq!(count, Ok(1));
        }
    }
    let counts = async || {
        let mut counts = 0;
        for part in layout::parts("attempts") {
            let range = (Vec::new(), None);
            let all = store.read().entries(&part, layout::ATTEMPT_ENDS, range, Order::Ascending, 1_000);
            counts += all.await.unwrap().len();
        }
        counts
    };
    assert_eq!(counts().await, 200);
    for n in 0..200 {
        store.forget_attempts(Digest::of(&[n])).await.unwrap();
    }
    assert_eq!(counts().await, 0);
}
