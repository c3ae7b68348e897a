//! Cases about API keys: created once, listed, changed, revoked.

use std::{sync::Arc, time::Duration};

use shared::{
    ids::{AccountId, KeyId},
    time::Timestamp,
    wire::Noun,
};

use crate::{
    store::{Idempotency, KeyName, Ledger as _, Made, Order, Page, Store},
    suite::{
        Subject, act, after, capture, digest, hold, make_key, nanos, new_key, open_account, open_account_with,
    },
};
use domain::{
    governed::Refused,
    key::{ApiKey, KeyPatch, NewKey, Status},
    ledger::{
        self, BoundsPatch,
        histories::{START, account, generation, key},
    },
};

/// Returns an idempotency key with a lifetime of 24 hours.
pub(crate) fn attempt(key: &str, request: &str, now: Timestamp) -> Idempotency {
    let expires_at = now.plus(Duration::from_hours(24));
    Idempotency { key: digest(key), request: digest(request), now, expires_at }
}

async fn ids(store: &Store, account: AccountId, page: Page) -> Vec<KeyId> {
    store.keys(account, page).await.unwrap().into_iter().map(|key| key.id).collect()
}

async fn count(store: &Store, account: AccountId) -> usize {
    ids(store, account, Page { after: None, order: Order::Ascending, status: None, limit: usize::MAX })
        .await
        .len()
}

pub(crate) async fn a_key_comes_back_as_it_was_made(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let mut bounded = new_key(account, 1);
    bounded.key.label = "Zoë’s 🔑 \u{0} \"quoted\"".into();
    bounded.key.spend = ledger::Key {
        budget: ledger::Budget { limit: Some(nanos(25)), ..ledger::Budget::default() },
        expires_at: Some(Timestamp::from_millis(-1)),
        ..ledger::Key::default()
    };
    let unbounded = new_key(account, 2);
    for new in [&bounded, &unbounded] {
        let created = subject.store().create_key(new.clone(), None, &act(START)).await.unwrap();
        assert_eq!(created, Made::New(new.key.clone()));
    }
    subject.interrupt().await;
    for new in [bounded, unbounded] {
        assert_eq!(subject.store().key(account, new.key.id).await.unwrap(), Some(new.key));
    }
    assert_eq!(subject.store().key(account, key(3)).await.unwrap(), None);
}

pub(crate) async fn keys_are_listed_in_the_order_of_their_ids(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    for n in [4, 1, 3, 0, 2] {
        make_key(store, mine, n, None).await;
        make_key(store, theirs, n + 10, None).await;
    }
    store.revoke_key(mine, key(2), &act(START)).await.unwrap();
    subject.interrupt().await;
    let page = |after: Option<u8>, order, limit| Page { after: after.map(key), order, status: None, limit };
    let cases: [(Page, &[u8]); 11] = [
        (page(None, Order::Ascending, 9), &[0, 1, 2, 3, 4]),
        (page(None, Order::Descending, 9), &[4, 3, 2, 1, 0]),
        (page(None, Order::Ascending, 2), &[0, 1]),
        (page(Some(1), Order::Ascending, 2), &[2, 3]),
        (page(Some(3), Order::Ascending, 2), &[4]),
        (page(Some(4), Order::Ascending, 2), &[]),
        (page(None, Order::Descending, 2), &[4, 3]),
        (page(Some(3), Order::Descending, 2), &[2, 1]),
        (page(Some(1), Order::Descending, usize::MAX), &[0]),
        (page(Some(0), Order::Descending, 2), &[]),
        (page(None, Order::Ascending, 0), &[]),
    ];
    for (page, expected) in cases {
        let expected: Vec<_> = expected.iter().copied().map(key).collect();
        assert_eq!(ids(subject.store(), mine, page).await, expected, "{page:?}");
    }
    assert_eq!(count(subject.store(), account(9)).await, 0);
}

pub(crate) async fn a_cursor_need_not_exist(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for n in [10, 30] {
        make_key(store, account, n, None).await;
    }
    let page = |order| Page { after: Some(key(20)), order, status: None, limit: 9 };
    assert_eq!(ids(store, account, page(Order::Ascending)).await, [key(30)]);
    assert_eq!(ids(store, account, page(Order::Descending)).await, [key(10)]);
}

pub(crate) async fn keys_of_a_status_are_listed_as_of_now(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for n in 0..6 {
        make_key(store, account, n, None).await;
    }
    let until = |at| KeyPatch { expires_at: Some(at), ..KeyPatch::default() };
    for (n, at) in [(1, after(10)), (2, after(10)), (3, after(20)), (4, after(10))] {
        store.update_key(account, key(n), until(Some(at)), &act(START)).await.unwrap();
    }
    for n in [0, 4] {
        store.revoke_key(account, key(n), &act(START)).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    let of = async |status, now, order| {
        ids(store, account, Page { after: None, order, status: Some((status, now)), limit: 9 }).await
    };
    let (active, expired, revoked) = (Status::Active, Status::Expired, Status::Revoked);
    assert_eq!(of(active, after(9), Order::Ascending).await, [1, 2, 3, 5].map(key));
    assert_eq!(of(expired, after(9), Order::Ascending).await, []);
    assert_eq!(of(revoked, after(9), Order::Descending).await, [4, 0].map(key));
    assert_eq!(of(active, after(10), Order::Descending).await, [5, 3].map(key));
    assert_eq!(of(expired, after(10), Order::Descending).await, [2, 1].map(key));
    // A later expiry revives a key, but a revocation is permanent.
    store.update_key(account, key(1), until(None), &act(START)).await.unwrap();
    store.revoke_key(account, key(2), &act(after(11))).await.unwrap();
    assert_eq!(of(active, after(20), Order::Ascending).await, [1, 5].map(key));
    assert_eq!(of(expired, after(20), Order::Ascending).await, [key(3)]);
    assert_eq!(of(revoked, after(20), Order::Ascending).await, [0, 2, 4].map(key));
    let second =
        Page { after: Some(key(0)), order: Order::Ascending, status: Some((revoked, after(20))), limit: 1 };
    assert_eq!(ids(store, account, second).await, [key(2)]);
}

pub(crate) async fn a_disabled_key_is_listed_as_such_until_it_is_enabled_again(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for n in 0..4 {
        make_key(store, account, n, None).await;
    }
    let disabled = |disabled| KeyPatch { disabled: Some(disabled), ..KeyPatch::default() };
    let until = |at| KeyPatch { expires_at: Some(Some(at)), ..KeyPatch::default() };
    store.update_key(account, key(1), until(after(10)), &act(START)).await.unwrap();
    for n in 1..4 {
        store.update_key(account, key(n), disabled(true), &act(START)).await.unwrap();
    }
    store.revoke_key(account, key(3), &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let listed = async |now, expected: [&[u8]; 4]| {
        for (status, expected) in Status::ALL.into_iter().zip(expected) {
            let page = Page { after: None, order: Order::Ascending, status: Some((status, now)), limit: 9 };
            let expected: Vec<_> = expected.iter().copied().map(key).collect();
            assert_eq!(ids(store, account, page).await, expected, "{status:?}");
        }
    };
    listed(after(9), [&[0], &[1, 2], &[], &[3]]).await;
    listed(after(10), [&[0], &[1, 2], &[], &[3]]).await;
    // A later expiry does not enable a key, and an enabled key may still be expired.
    store.update_key(account, key(2), until(after(20)), &act(after(10))).await.unwrap();
    listed(after(20), [&[0], &[1, 2], &[], &[3]]).await;
    for n in [1, 2] {
        let enabled = store.update_key(account, key(n), disabled(false), &act(after(11))).await.unwrap();
        assert!(!enabled.spend.disabled);
    }
    listed(after(11), [&[0, 2], &[], &[1], &[3]]).await;
    store.update_key(account, key(1), disabled(true), &act(after(11))).await.unwrap();
    listed(after(20), [&[0], &[1], &[2], &[3]]).await;
}

pub(crate) async fn names_of_keys_are_listed_as_the_keys_are(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for n in 0..4 {
        make_key(store, account, n, None).await;
    }
    store.revoke_key(account, key(1), &act(START)).await.unwrap();
    let label = KeyPatch { label: Some("Käse".into()), ..KeyPatch::default() };
    store.update_key(account, key(2), label, &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    for (order, status) in [
        (Order::Ascending, None),
        (Order::Descending, Some((Status::Active, after(1)))),
        (Order::Ascending, Some((Status::Revoked, after(1)))),
    ] {
        for (from, limit) in [(None, 9), (Some(key(2)), 9), (None, 2)] {
            let page = Page { after: from, order, status, limit };
            let keys = store.keys(account, page).await.unwrap().into_iter();
            let keys: Vec<_> =
                keys.map(|ApiKey { id, label, hint, .. }| KeyName { id, label, hint }).collect();
            assert_eq!(store.key_names(account, page).await.unwrap(), keys);
        }
    }
}

pub(crate) async fn keys_that_spent_most_come_first(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) =
        (open_account_with(store, 1, 10_000).await, open_account_with(store, 2, 10_000).await);
    for (n, spent) in [(1, 50), (2, 0), (3, 700), (4, 50), (5, 9)] {
        let key = make_key(store, mine, n, None).await;
        if spent > 0 {
            let commands = vec![hold(key, generation(n), 1_000, 7), capture(key, generation(n), spent)];
            store.execute(mine, commands, START).await.unwrap();
        }
    }
    let other = make_key(store, theirs, 6, None).await;
    let commands = vec![hold(other, generation(6), 1_000, 7), capture(other, generation(6), 99)];
    store.execute(theirs, commands, START).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let top = async |account, after: Option<u8>, limit| -> Vec<KeyId> {
        let keys = store.top_spending(account, after.map(key), limit).await.unwrap();
        keys.into_iter().map(|key| key.id).collect()
    };
    assert_eq!(top(mine, None, 9).await, [3, 4, 1, 5].map(key), "equal keys are listed newest first");
    assert_eq!(top(mine, None, 2).await, [3, 4].map(key));
    assert_eq!(top(mine, Some(4), 9).await, [1, 5].map(key));
    assert_eq!(top(mine, Some(5), 9).await, []);
    assert_eq!(top(theirs, None, 9).await, [key(6)]);
    assert_eq!(top(account(9), None, 9).await, []);
    // A correction moves a key in the list; a revoked key stays listed.
    store.execute(mine, vec![capture(key(5), generation(50), 800)], START).await.unwrap();
    store.revoke_key(mine, key(3), &act(START)).await.unwrap();
    assert_eq!(top(mine, None, 9).await, [5, 3, 4, 1].map(key));
    assert_eq!(top(mine, Some(5), 1).await, [key(3)]);
    let first = store.top_spending(mine, None, 1).await.unwrap().remove(0);
    assert_eq!(Some(first), store.key(mine, key(5)).await.unwrap());
}

pub(crate) async fn a_patch_changes_what_it_names(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let id = make_key(store, account, 1, Some(100)).await;
    let commands =
        vec![crate::suite::hold(id, generation(1), 50, 7), crate::suite::capture(id, generation(1), 20)];
    store.execute(account, commands, after(7)).await.unwrap();
    let mut key = store.key(account, id).await.unwrap().unwrap();
    assert_eq!((key.spend.budget.used, key.spend.last_used_at), (nanos(20), Some(after(7))));

    let set = KeyPatch {
        label: Some("New".into()),
        bounds: BoundsPatch::of_limit(Some(nanos(5))),
        expires_at: Some(Some(after(9))),
        ..KeyPatch::default()
    };
    key.label = "New".into();
    (key.spend.budget.limit, key.spend.expires_at) = (Some(nanos(5)), Some(after(9)));
    assert_eq!(store.update_key(account, id, set, &act(START)).await, Ok(key.clone()));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.update_key(account, id, KeyPatch::default(), &act(START)).await, Ok(key.clone()));

    let clear =
        KeyPatch { bounds: BoundsPatch::of_limit(None), expires_at: Some(None), ..KeyPatch::default() };
    (key.spend.budget.limit, key.spend.expires_at) = (None, None);
    assert_eq!(store.update_key(account, id, clear, &act(START)).await, Ok(key.clone()));
    assert_eq!(store.key(account, id).await.unwrap(), Some(key));
}

pub(crate) async fn a_revoked_key_stays_as_it_is(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    let id = make_key(store, account, 1, None).await;
    let revoked = store.revoke_key(account, id, &act(after(5))).await.unwrap();
    assert_eq!(revoked.spend.revoked_at, Some(after(5)));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.revoke_key(account, id, &act(after(6))).await, Ok(revoked.clone()));
    let patch = KeyPatch { label: Some("Back".into()), ..KeyPatch::default() };
    assert_eq!(store.update_key(account, id, patch, &act(START)).await, Err(Refused::KeyRevoked.into()));
    assert_eq!(store.key(account, id).await.unwrap(), Some(revoked));
}

pub(crate) async fn another_accounts_key_is_out_of_reach(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let id = make_key(store, theirs, 1, None).await;
    assert_eq!(store.key(mine, id).await.unwrap(), None);
    assert_eq!(
        store.update_key(mine, id, KeyPatch::default(), &act(START)).await,
        Err(Refused::NotFound(Noun::Key).into())
    );
    assert_eq!(store.revoke_key(mine, id, &act(START)).await, Err(Refused::NotFound(Noun::Key).into()));
    assert_eq!(crate::suite::spend(store, theirs, id).await.revoked_at, None);
}

pub(crate) async fn an_idempotency_key_makes_one_key(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let made = new_key(mine, 1).key;
    let created =
        store.create_key(new_key(mine, 1), Some(attempt("once", "a", START)), &act(START)).await.unwrap();
    assert_eq!(created, Made::New(made.clone()));
    subject.interrupt().await;
    let store = subject.store();
    let created =
        store.create_key(new_key(mine, 2), Some(attempt("once", "a", after(1))), &act(START)).await.unwrap();
    assert_eq!(created, Made::Replayed(made));
    let created = store.create_key(new_key(mine, 3), Some(attempt("once", "b", after(1))), &act(START)).await;
    assert_eq!(created, Err(Refused::IdempotencyKeyReused.into()));
    assert_eq!(count(store, mine).await, 1);
    // A key that was not created has no credential either.
    assert_eq!(store.find_credential(new_key(mine, 2).digest).await.unwrap(), None);

    let other = new_key(theirs, 4);
    let created =
        store.create_key(other.clone(), Some(attempt("once", "a", START)), &act(START)).await.unwrap();
    assert_eq!(created, Made::New(other.key));
}

pub(crate) async fn a_replayed_key_is_answered_as_it_is_now(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    store.create_key(new_key(account, 1), Some(attempt("once", "a", START)), &act(START)).await.unwrap();
    let revoked = store.revoke_key(account, key(1), &act(after(1))).await.unwrap();
    let created = store
        .create_key(new_key(account, 2), Some(attempt("once", "a", after(2))), &act(START))
        .await
        .unwrap();
    assert_eq!(created, Made::Replayed(revoked));
}

pub(crate) async fn an_idempotency_key_ends(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    store.create_key(new_key(account, 1), Some(attempt("once", "a", START)), &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let last = after(86_400 - 1);
    let created = store.create_key(new_key(account, 2), Some(attempt("once", "b", last)), &act(START)).await;
    assert_eq!(created, Err(Refused::IdempotencyKeyReused.into()));
    let created = store
        .create_key(new_key(account, 2), Some(attempt("once", "b", after(86_400))), &act(START))
        .await
        .unwrap();
    assert_eq!(created, Made::New(new_key(account, 2).key));
}

pub(crate) async fn old_idempotency_keys_make_room_for_new_ones(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for n in 0..200 {
        let made = attempt(&format!("attempt {n}"), "a", after(n.into()));
        store.create_key(new_key(account, n), Some(made), &act(START)).await.unwrap();
    }
    // All of them have expired by now, and each may be used again, whether removed or not.
    for n in 0..50 {
        let name = format!("attempt {}", 199 - n);
        let created = store
            .create_key(new_key(account, 200 + n), Some(attempt(&name, "b", after(90_000))), &act(START))
            .await;
        assert!(matches!(created.unwrap(), Made::New(_)), "{name}");
    }
}

pub(crate) async fn a_race_for_an_idempotency_key_makes_one_key(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let racers = (0..32).map(|n| {
        let store = Arc::clone(subject.store());
        tokio::spawn(async move {
            store.create_key(new_key(account, n), Some(attempt("once", "a", START)), &act(START)).await
        })
    });
    let (mut new, mut replayed): (Vec<ApiKey>, Vec<ApiKey>) = (Vec::new(), Vec::new());
    for racer in racers.collect::<Vec<_>>() {
        match racer.await.unwrap().unwrap() {
            Made::New(key) => new.push(key),
            Made::Replayed(key) => replayed.push(key),
            Made::Existing(_) => panic!("a key has no other name"),
        }
    }
    assert_eq!((new.len(), replayed.len()), (1, 31));
    assert!(replayed.iter().all(|key| *key == new[0]));
    assert_eq!(count(subject.store(), account).await, 1);
}

pub(crate) async fn a_creation_sent_again_makes_nothing_more(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for idempotency in [None, Some(attempt("once", "a", START))] {
        let new = new_key(account, u8::from(idempotency.is_some()));
        for _ in 0..2 {
            // The same caller repeats the call, having lost the answer but not the plaintext.
            let created = store.create_key(new.clone(), idempotency.clone(), &act(START)).await.unwrap();
            assert_eq!(created, Made::New(new.key.clone()));
        }
    }
    assert_eq!(count(store, account).await, 2);
}

pub(crate) async fn an_account_has_no_more_keys_than_it_may(subject: &mut impl Subject) {
    const MOST: u8 = 3;
    let (mine, theirs) = (open_account(subject.store(), 1).await, open_account(subject.store(), 2).await);
    let new = |account, n| NewKey { most: MOST.into(), ..new_key(account, n) };
    for n in 0..MOST {
        let created = subject
            .store()
            .create_key(new(mine, n), Some(attempt("first", "a", after(n.into()))), &act(START))
            .await;
        // The same idempotency key is used repeatedly: only the first call creates a key.
        assert!(matches!(created.unwrap(), Made::New(_) | Made::Replayed(_)));
        subject.store().create_key(new(mine, n), None, &act(START)).await.unwrap();
    }
    subject.store().revoke_key(mine, key(0), &act(START)).await.unwrap();
    for round in 0..2 {
        let once = attempt(&format!("late {round}"), "a", START);
        for attempt in [None, Some(once)] {
            let created = subject.store().create_key(new(mine, 100), attempt, &act(START)).await;
            assert_eq!(created, Err(Refused::TooMany(Noun::Key, MOST.into()).into()));
        }
        assert_eq!(count(subject.store(), mine).await, usize::from(MOST), "nothing was made");
        // A creation that succeeded earlier still gets its answer.
        let created = subject.store().create_key(new(mine, 1), None, &act(START)).await.unwrap();
        assert!(matches!(created, Made::New(_)));
        let replayed = subject
            .store()
            .create_key(new(mine, 101), Some(attempt("first", "a", after(9))), &act(START))
            .await;
        assert!(matches!(replayed.unwrap(), Made::Replayed(_)));
        subject.interrupt().await;
    }
    assert!(matches!(
        subject.store().create_key(new(theirs, 1), None, &act(START)).await.unwrap(),
        Made::New(_)
    ));
    // A raised limit allows more keys.
    let more = NewKey { most: u64::from(MOST) + 1, ..new_key(mine, 100) };
    assert!(matches!(subject.store().create_key(more, None, &act(START)).await.unwrap(), Made::New(_)));
}
