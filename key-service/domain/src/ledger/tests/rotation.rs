//! Tests which credentials of rotated keys can spend, and until when.

use super::*;
use crate::{
    credentials::digest::Digest,
    governed,
    key::{ApiKey, NewCredential, Status},
};

const GRACE: Duration = Duration::from_secs(10);

fn credential(grace: Duration, is_forced: bool) -> NewCredential {
    let (account, key, digest) = (account(MINE), key(0), Digest::of(b"new"));
    NewCredential { account, key, digest, hint: "fg_api_new…".into(), grace, is_forced }
}

fn key_of(spend: Key) -> ApiKey {
    ApiKey { spend, ..ApiKey::new(key(0), "fg_api_old…".into(), START) }
}

impl Book {
    fn rotate(&mut self, grace: Duration) {
        let now = self.now;
        self.world.rotate(&credential(grace, false), now);
    }

    /// Returns which of the first five credentials can spend.
    fn accepted(&mut self) -> Vec<u64> {
        let allowed =
            |credential: &u64| match self.run(&Command::Check { key: key(0), credential: *credential }) {
                Ok(Outcome::Allowed { .. }) => true,
                Err(Refused::UnknownKey) => false,
                other => panic!("{other:?}"),
            };
        (0..5).filter(allowed).collect()
    }
}

#[test]
fn both_credentials_spend_until_the_grace_is_over_and_the_older_one_never_again() {
    let mut book = Book::new(1_000, None);
    assert_eq!(book.accepted(), [0]);
    book.rotate(GRACE);
    assert_eq!(book.accepted(), [0, 1]);
    book.now = START.plus(GRACE).minus(Duration::from_millis(1));
    assert_eq!(book.accepted(), [0, 1]);
    book.now = START.plus(GRACE);
    assert_eq!(book.accepted(), [1]);
    book.rotate(Duration::ZERO);
    assert_eq!(book.accepted(), [2]);
    book.rotate(GRACE);
    assert_eq!(book.accepted(), [2, 3]);
}

#[test]
fn a_refused_credential_opens_no_hold_and_what_was_admitted_goes_on() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 100);
    book.rotate(Duration::ZERO);
    assert_eq!(book.hold(2, 100, 100, 100), Err(Refused::UnknownKey));
    // The answer to a hold may have been lost, so the hold is repeated; it is still open.
    book.must_hold(1, 100);
    let extended = Ok(Outcome::Extended { amount: nanos(150), revoked_by: None });
    assert_eq!(book.extend(1, 150, cost(20)), extended);
    assert_eq!(book.capture(1, cost(120)).charged, nanos(120));
}

#[test]
fn a_revocation_ends_both_credentials() {
    let mut book = Book::new(1_000, None);
    book.rotate(GRACE);
    let now = book.now;
    book.world.revoke(account(MINE), key(0), now);
    for credential in [0, 1] {
        assert_eq!(book.run(&Command::Check { key: key(0), credential }), Err(Refused::Revoked));
    }
    assert_eq!(book.run(&Command::Check { key: key(0), credential: 2 }), Err(Refused::UnknownKey));
    assert_eq!(key_of(book.key_mut().clone()).previous_expires_at(now), None);
}

#[test]
fn within_a_grace_only_force_rotates_again_and_ends_the_oldest() {
    let key = key_of(Key::default());
    let once = key.clone().rotated(&credential(GRACE, false), START).unwrap();
    assert_eq!(once.previous_expires_at(START), Some(START.plus(GRACE)));
    assert_eq!((once.id, &*once.hint, once.status(START)), (key.id, "fg_api_new…", Status::Active));
    let last = START.plus(GRACE).minus(Duration::from_millis(1));
    let again = |is_forced, now| once.clone().rotated(&credential(GRACE, is_forced), now);
    assert_eq!(again(false, last), Err(governed::Refused::RotationInProgress));
    assert_eq!(again(false, START.plus(GRACE)).unwrap().spend.rotation.current, 2);
    let forced = again(true, last).unwrap().spend.rotation;
    assert_eq!([0, 1, 2, 3].map(|n| forced.accepts(n, last)), [false, true, true, false]);
    assert_eq!(forced.previous_until, Some(last.plus(GRACE)));
}

#[test]
fn a_rotation_without_grace_has_no_previous_credential() {
    let key = key_of(Key::default()).rotated(&credential(Duration::ZERO, false), START).unwrap();
    assert_eq!(key.spend.rotation.previous_until, None);
    assert_eq!(key.previous_expires_at(START), None);
    assert!(!key.spend.rotation.accepts(0, START.minus(GRACE)), "a clock that steps back revives nothing");
    assert!(!key.spend.rotation.accepts(u64::MAX, START));
}

#[test]
fn a_key_that_has_ended_is_not_rotated() {
    let expired = Key { expires_at: Some(START), ..Key::default() };
    let revoked = Key { revoked_at: Some(START), ..expired.clone() };
    for (spend, reason) in
        [(expired, governed::Refused::KeyExpired), (revoked, governed::Refused::KeyRevoked)]
    {
        for disabled in [false, true] {
            let key = key_of(Key { disabled, ..spend.clone() });
            assert_eq!(key.rotated(&credential(GRACE, true), START), Err(reason), "{disabled}");
        }
    }
}

#[test]
fn a_disabled_key_is_rotated_and_stays_disabled() {
    let disabled = key_of(Key { disabled: true, ..Key::default() });
    let rotated = disabled.rotated(&credential(GRACE, false), START).unwrap();
    assert_eq!((rotated.spend.rotation.current, rotated.spend.disabled), (1, true));
    let again = rotated.rotated(&credential(GRACE, false), START);
    assert_eq!(again, Err(governed::Refused::RotationInProgress));
}
