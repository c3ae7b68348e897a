//! Cases about rotations of keys: which credentials can spend, and what repeating a rotation does.

use std::{sync::Arc, time::Duration};

use shared::{
    ids::{KeyId, Principal},
    time::Timestamp,
    wire::Noun,
};

use crate::{
    store::{Credential, Error, Ledger as _, Made, Store},
    suite::{
        Subject, act, after, capture, digest, hold, make_key, nanos, new_group, new_key,
        nouns::{keys::attempt, steps::kept},
        open_account, open_account_with, spend,
    },
};
use domain::{
    event::{Act, EventKind},
    governed,
    key::{ApiKey, KeyPatch, NewCredential},
    ledger::{
        BoundsPatch, Command, Outcome, Refused,
        histories::{START, account, generation, group, key},
    },
};

/// Length of a grace period in seconds.
const GRACE: u64 = 10;

/// Returns a named credential for the first key of the first account.
fn credential(name: &str, grace: u64) -> NewCredential {
    NewCredential {
        account: account(1),
        key: key(1),
        digest: digest(name),
        hint: format!("fg_api_{name}…"),
        grace: Duration::from_secs(grace),
        is_forced: false,
    }
}

async fn rotate(store: &Store, new: NewCredential, now: Timestamp) -> ApiKey {
    match store.rotate_key(new, None, &act(now)).await.unwrap() {
        Made::New(key) => key,
        other => panic!("not rotated: {other:?}"),
    }
}

/// Returns which of the first key's first five credentials can spend.
async fn accepted(store: &Store, now: Timestamp) -> Vec<u64> {
    let checks = (0..5).map(|credential| Command::Check { key: key(1), credential }).collect();
    let outcomes = store.execute(account(1), checks, now).await.unwrap();
    let allowed = |outcome: &Result<Outcome, Refused>| match outcome {
        Ok(Outcome::Allowed { .. }) => true,
        Err(Refused::UnknownKey) => false,
        other => panic!("{other:?}"),
    };
    (0..).zip(&outcomes).filter(|(_, outcome)| allowed(outcome)).map(|(credential, _)| credential).collect()
}

/// Creates the first key of the first account, which has credit. The key is in a group with a parent if `is_grouped`.
async fn open(subject: &mut impl Subject, is_grouped: bool) {
    let store = &**subject.store();
    open_account_with(store, 1, 1_000).await;
    let mut new = new_key(account(1), 1);
    if is_grouped {
        store.create_group(new_group(account(1), 1), None, &act(START)).await.unwrap();
        new.key.spend.group = Some(group(1));
    }
    store.create_key(new, None, &act(START)).await.unwrap();
}

pub(crate) async fn both_credentials_spend_until_the_grace_is_over(subject: &mut impl Subject) {
    both_spend(subject, false).await;
}

pub(crate) async fn both_credentials_of_a_grouped_key_spend_until_the_grace_is_over(
    subject: &mut impl Subject,
) {
    both_spend(subject, true).await;
}

async fn both_spend(subject: &mut impl Subject, is_grouped: bool) {
    open(subject, is_grouped).await;
    assert_eq!(accepted(subject.store(), START).await, [0]);
    let before = subject.store().key(account(1), key(1)).await.unwrap().unwrap();
    let key_after = rotate(subject.store(), credential("a", GRACE), START).await;
    let mut expected = before;
    expected.hint = "fg_api_a…".into();
    expected.spend.rotation = key_after.spend.rotation;
    assert_eq!(key_after, expected);
    assert_eq!(key_after.previous_expires_at(START), Some(after(GRACE)));
    subject.interrupt().await;
    let store = &**subject.store();
    assert_eq!(store.key(account(1), key(1)).await.unwrap(), Some(key_after));
    let found = store.find_credential(digest("a")).await.unwrap();
    assert_eq!(found, Some(Credential { owner: Principal::ApiKey(account(1), key(1)), number: 1 }));
    // Bills and changes of settings do not affect the rotation.
    let bill = vec![hold(key(1), generation(1), 50, 7), capture(key(1), generation(1), 20)];
    store.execute(account(1), bill, START).await.unwrap();
    let patch = KeyPatch { bounds: BoundsPatch::of_limit(Some(nanos(500))), ..KeyPatch::default() };
    store.update_key(account(1), key(1), patch, &act(START)).await.unwrap();
    assert_eq!(accepted(store, START).await, [0, 1]);
    let last = after(GRACE).minus(Duration::from_millis(1));
    assert_eq!(accepted(store, last).await, [0, 1]);
    assert_eq!(accepted(store, after(GRACE)).await, [1]);
    // A rotation changes neither settings nor what was billed.
    let rotated = rotate(store, credential("b", 0), after(GRACE)).await;
    assert_eq!((rotated.spend.budget.used, rotated.spend.budget.limit), (nanos(20), Some(nanos(500))));
    assert_eq!(accepted(store, after(GRACE)).await, [2]);
    store.revoke_key(account(1), key(1), &act(after(GRACE))).await.unwrap();
    let checks = [1, 2].map(|credential| Command::Check { key: key(1), credential });
    let refused = [Err(Refused::UnknownKey), Err(Refused::Revoked)];
    assert_eq!(store.execute(account(1), checks.into(), after(GRACE)).await.unwrap(), refused);
}

pub(crate) async fn a_rotated_key_that_moves_keeps_its_credentials(subject: &mut impl Subject) {
    open(subject, false).await;
    let store = &**subject.store();
    store.create_group(new_group(account(1), 1), None, &act(START)).await.unwrap();
    rotate(store, credential("a", GRACE), START).await;
    for (to, credentials) in [(Some(group(1)), vec![0, 1]), (None, vec![1, 2])] {
        let patch = KeyPatch { group: Some(to), ..KeyPatch::default() };
        store.update_key(account(1), key(1), patch, &act(START)).await.unwrap();
        assert_eq!(accepted(store, START).await, credentials);
        let again = NewCredential { is_forced: true, ..credential("b", GRACE) };
        assert_eq!(rotate(store, again, START).await.spend.group, to);
        assert_eq!(accepted(store, START).await, [1, 2], "the same rotation once more changes nothing");
    }
}

pub(crate) async fn a_credential_that_was_admitted_goes_on(subject: &mut impl Subject) {
    open(subject, false).await;
    let store = &**subject.store();
    let opened = hold(key(1), generation(1), 50, 7);
    store.execute(account(1), vec![opened.clone()], START).await.unwrap();
    rotate(store, credential("a", 0), START).await;
    let commands = vec![opened, hold(key(1), generation(2), 50, 7), capture(key(1), generation(1), 40)];
    let outcomes = store.execute(account(1), commands, START).await.unwrap();
    assert!(matches!(outcomes[0], Ok(Outcome::Held { .. })), "{outcomes:?}");
    assert_eq!(outcomes[1], Err(Refused::UnknownKey));
    assert!(matches!(outcomes[2], Ok(Outcome::Captured(_))), "{outcomes:?}");
    assert_eq!(spend(store, account(1), key(1)).await.budget.used, nanos(40));
}

pub(crate) async fn what_cannot_be_rotated_stays_as_it_is(subject: &mut impl Subject) {
    open(subject, false).await;
    let store = &**subject.store();
    let refused = async |name: &str, is_forced, now| {
        let new = NewCredential { is_forced, ..credential(name, GRACE) };
        let before = store.key(account(1), key(1)).await.unwrap();
        let once = attempt(&format!("{name} {is_forced}"), "a", now);
        let rotated = store.rotate_key(new, Some(once), &act(now)).await;
        let Err(Error::Refused(reason)) = rotated else { panic!("{name}: {rotated:?}") };
        assert_eq!(store.key(account(1), key(1)).await.unwrap(), before);
        assert_eq!(store.find_credential(digest(name)).await.unwrap(), None);
        reason
    };
    rotate(store, credential("a", GRACE), START).await;
    assert_eq!(refused("b", false, after(GRACE - 1)).await, governed::Refused::RotationInProgress);
    let forced = NewCredential { is_forced: true, ..credential("c", GRACE) };
    rotate(store, forced, after(GRACE - 1)).await;
    assert_eq!(accepted(store, after(GRACE - 1)).await, [1, 2]);
    let short_lived = KeyPatch { expires_at: Some(Some(after(99))), ..KeyPatch::default() };
    store.update_key(account(1), key(1), short_lived, &act(START)).await.unwrap();
    assert_eq!(refused("d", true, after(99)).await, governed::Refused::KeyExpired);
    store.revoke_key(account(1), key(1), &act(after(50))).await.unwrap();
    assert_eq!(refused("e", true, after(51)).await, governed::Refused::KeyRevoked);
    for stranger in [
        NewCredential { key: key(2), ..credential("f", 0) },
        NewCredential { account: account(2), ..credential("f", 0) },
    ] {
        let unknown = governed::Refused::NotFound(Noun::Key);
        assert_eq!(store.rotate_key(stranger, None, &act(START)).await, Err(unknown.into()));
    }
}

pub(crate) async fn an_idempotency_key_rotates_once(subject: &mut impl Subject) {
    open(subject, false).await;
    make_key(subject.store(), account(1), 2, None).await;
    let once = |request, now| Some(attempt("once", request, now));
    let made =
        subject.store().rotate_key(credential("a", GRACE), once("a", START), &act(START)).await.unwrap();
    let Made::New(made) = made else { panic!("{made:?}") };
    subject.interrupt().await;
    let store = &**subject.store();
    let again = store.rotate_key(credential("b", GRACE), once("a", after(1)), &act(after(1))).await.unwrap();
    assert_eq!(again, Made::Replayed(made.clone()));
    assert_eq!(store.find_credential(digest("b")).await.unwrap(), None);
    let other = store.rotate_key(credential("b", GRACE), once("b", after(1)), &act(after(1))).await;
    assert_eq!(other, Err(governed::Refused::IdempotencyKeyReused.into()));
    let created =
        store.create_key(new_key(account(1), 3), once("b", after(1)), &act(after(1))).await.unwrap_err();
    let reused = governed::Refused::IdempotencyKeyReused.into();
    assert_eq!(created, reused, "an account's idempotency keys cover all its requests");
    let late = after(86_400);
    let anew = store.rotate_key(credential("b", 0), once("b", late), &act(late)).await.unwrap();
    assert!(matches!(anew, Made::New(key) if key.spend.rotation.current == 2));
}

pub(crate) async fn a_rotation_sent_again_changes_nothing(subject: &mut impl Subject) {
    open(subject, false).await;
    for (name, idempotency) in [("a", None), ("b", Some(attempt("once", "a", START)))] {
        let new = credential(name, 0);
        let first = subject.store().rotate_key(new.clone(), idempotency.clone(), &act(START)).await.unwrap();
        subject.interrupt().await;
        // The same caller repeats the call, having lost the answer but not the plaintext.
        let again = subject.store().rotate_key(new, idempotency, &act(after(1))).await.unwrap();
        assert_eq!(again, first);
        assert!(matches!(first, Made::New(_)));
    }
    let store = &**subject.store();
    assert_eq!(accepted(store, START).await, [2]);
    // This also works after another rotation: the credential keeps its number.
    rotate(store, credential("c", GRACE), START).await;
    rotate(store, credential("b", GRACE), START).await;
    let found = store.find_credential(digest("b")).await.unwrap();
    assert_eq!(found.map(|credential| credential.number), Some(2));
    assert_eq!(accepted(store, START).await, [2, 3]);
    // Nor does a refused repetition take the credential away.
    let again = async |request, now| {
        let once = Some(attempt("once", request, now));
        store.rotate_key(credential("b", 0), once, &act(now)).await
    };
    assert_eq!(again("other", START).await, Err(governed::Refused::IdempotencyKeyReused.into()));
    assert_eq!(store.find_credential(digest("b")).await.unwrap(), found);
    // After two more rotations, the key does not accept the credential again.
    for name in ["d", "e"] {
        rotate(store, credential(name, 0), after(GRACE)).await;
    }
    assert!(matches!(again("a", after(GRACE)).await.unwrap(), Made::Replayed(_)));
    assert_eq!(store.find_credential(digest("b")).await.unwrap(), None);
}

pub(crate) async fn a_rotation_leaves_one_event(subject: &mut impl Subject) {
    open(subject, true).await;
    let store = &**subject.store();
    let once = || Some(attempt("once", "a", START));
    let by = |n: u8| Act { chance: [n; 10], ..act(START) };
    for n in 0..2 {
        store.rotate_key(credential("a", GRACE), once(), &by(1)).await.unwrap();
        store.rotate_key(credential("b", GRACE), once(), &by(2 + n)).await.unwrap();
        store.rotate_key(credential("b", GRACE), None, &by(4 + n)).await.unwrap_err();
    }
    store.rotate_key(credential("c", 0), None, &Act { at: after(GRACE), ..by(6) }).await.unwrap();
    let events = kept(store, account(1)).await.into_iter().map(|numbered| numbered.event);
    let rotations: Vec<_> = events.filter(|event| event.kind.as_str() == "key.rotated").collect();
    let rotated = |previous_key_expires_at| EventKind::KeyRotated { previous_key_expires_at };
    let expected = [
        by(1).event(0, Some(key(1)), Some(group(1)), rotated(Some(after(GRACE)))),
        Act { at: after(GRACE), ..by(6) }.event(0, Some(key(1)), Some(group(1)), rotated(None)),
    ];
    assert_eq!(rotations, expected);
}

pub(crate) async fn credentials_that_ended_are_forgotten(subject: &mut impl Subject) {
    open(subject, false).await;
    let store = &**subject.store();
    for name in ["a", "b", "c", "d"] {
        rotate(store, credential(name, 0), START).await;
    }
    let mut numbers = Vec::new();
    for name in ["a", "b", "c", "d"] {
        numbers.push(store.find_credential(digest(name)).await.unwrap().map(|found| found.number));
    }
    assert_eq!(numbers, [None, None, Some(3), Some(4)]);
    let first = store.find_credential(new_key(account(1), 1).digest).await.unwrap();
    assert_eq!(first.map(|found| found.number), Some(0));
}

pub(crate) async fn of_rotations_at_once_each_has_a_number_of_its_own(subject: &mut impl Subject) {
    const RACERS: u64 = 8;
    open(subject, false).await;
    let racers = (0..RACERS).map(|n| {
        let store = Arc::clone(subject.store());
        let new = NewCredential { is_forced: true, ..credential(&format!("racer {n}"), GRACE) };
        tokio::spawn(async move { store.rotate_key(new, None, &act(START)).await })
    });
    for racer in racers.collect::<Vec<_>>() {
        assert!(matches!(racer.await.unwrap().unwrap(), Made::New(_)));
    }
    let store = &**subject.store();
    let mut kept = Vec::new();
    for n in 0..RACERS {
        kept.extend(store.find_credential(digest(&format!("racer {n}"))).await.unwrap());
    }
    kept.sort_by_key(|credential| credential.number);
    let numbers: Vec<u64> = kept.iter().map(|credential| credential.number).collect();
    let accepts = async |id: KeyId| {
        let rotation = spend(store, account(1), id).await.rotation;
        numbers.iter().copied().filter(|number| rotation.accepts(*number, START)).collect::<Vec<_>>()
    };
    assert_eq!(accepts(key(1)).await, [RACERS - 1, RACERS]);
}

pub(crate) async fn of_rotations_at_once_one_begins_the_grace(subject: &mut impl Subject) {
    open_account(subject.store(), 1).await;
    make_key(subject.store(), account(1), 1, None).await;
    let racers = (0..8).map(|n| {
        let store = Arc::clone(subject.store());
        let new = credential(&format!("racer {n}"), GRACE);
        tokio::spawn(async move { store.rotate_key(new, None, &act(START)).await })
    });
    let mut rotated = 0;
    for racer in racers.collect::<Vec<_>>() {
        match racer.await.unwrap() {
            Ok(Made::New(_)) => rotated += 1,
            other => assert_eq!(other, Err(governed::Refused::RotationInProgress.into())),
        }
    }
    assert_eq!(rotated, 1);
}
