//! Cases about webhooks, their deliveries, and the latest attempts.

use std::{collections::HashSet, time::Duration};

use futures_util::future::join_all;
use shared::{
    ids::{AccountId, EventId, WebhookId},
    time::Timestamp,
    wire::Noun,
};

use crate::{
    store::{Error, Made, Store, StoreError},
    suite::{Subject, act, after, digest, new_key, nouns::keys, open_account},
};
use domain::{
    event::EventKind,
    governed::Refused,
    ledger::histories::{START, account},
    webhook::{
        Attempt, Delivery, DisabledReason, KEPT_ATTEMPTS, MAX_PENDING_DELIVERIES, ReceiverAnswer,
        StoredWebhook, Webhook, WebhookPatch, WebhookUrl,
    },
};

/// Maximum number of webhooks: more than a test creates.
const MANY: u64 = 100;

fn webhook(n: u8) -> StoredWebhook {
    let webhook = Webhook {
        id: WebhookId::new(after(n.into()), [n; 10]),
        url: WebhookUrl::parse(&format!("https://example.com/{n}")).unwrap(),
        types: n.is_multiple_of(2).then(|| vec!["key.created".to_owned(), "key.revoked".to_owned()]),
        secret: digest(&format!("secret {n}")),
        created_at: after(n.into()),
        disabled: None,
    };
    StoredWebhook { webhook, cursor: 7 }
}

async fn make(store: &Store, account: AccountId, n: u8) -> StoredWebhook {
    assert_eq!(store.create_webhook(account, webhook(n), MANY, None).await, Ok(new(n)));
    webhook(n)
}

/// Returns the expected answer to a request that creates a webhook.
fn new(n: u8) -> Made<Webhook> {
    Made::New(webhook(n).webhook)
}

fn delivery(number: u64) -> Delivery {
    let event = EventId::new(after(number), [9; 10]);
    Delivery::new(event, Some(number), "key.created".into(), format!("{{\"number\":{number}}}"), START)
}

fn attempt(of: &Delivery, status: u16) -> Attempt {
    let (event, kind, at) = (of.event, of.kind.clone(), START);
    Attempt { event, kind, at, milliseconds: 12, answer: ReceiverAnswer::Status(status) }
}

/// Adds the deliveries of these events, as if they had just been considered.
async fn add(store: &Store, account: AccountId, seen: &mut StoredWebhook, numbers: &[u64]) {
    let cursor = numbers.iter().copied().max().unwrap();
    let deliveries = numbers.iter().map(|n| delivery(*n)).collect();
    assert!(store.fan_out(account, seen.clone(), cursor, deliveries).await.unwrap());
    seen.cursor = cursor;
}

async fn claim(store: &Store, account: AccountId, id: WebhookId, now: Timestamp) -> Vec<Delivery> {
    let until = now.plus(std::time::Duration::from_secs(30));
    store.claim_deliveries(account, id, now, until, 100).await.unwrap()
}

fn end(reason: Option<DisabledReason>) -> WebhookPatch {
    WebhookPatch { disabled: Some(reason), ..WebhookPatch::default() }
}

pub(crate) async fn webhooks_are_listed_oldest_first_and_leave_nothing_behind(subject: &mut impl Subject) {
    let (one, other) = (open_account(subject.store(), 1).await, open_account(subject.store(), 2).await);
    let store = &**subject.store();
    assert_eq!(store.accounts_with_webhooks().await.unwrap(), []);
    for n in [2, 1, 3, 1] {
        make(store, one, n).await;
    }
    assert_eq!(store.webhooks(one).await.unwrap(), [1, 2, 3].map(webhook));
    assert_eq!(store.webhooks(other).await.unwrap(), []);
    assert_eq!(store.accounts_with_webhooks().await.unwrap(), [one]);
    let mut second = webhook(2);
    let id = second.webhook.id;
    add(store, one, &mut second, &[8]).await;
    let claimed = claim(store, one, id, START).await.remove(0);
    assert!(
        store.finish_delivery(one, id, claimed.clone(), &attempt(&claimed, 500), Some(START)).await.unwrap()
    );
    assert_eq!(store.delete_webhook(other, id).await, Err(Refused::NotFound(Noun::Webhook).into()));
    subject.interrupt().await;
    let store = &**subject.store();
    assert_eq!(store.delete_webhook(one, id).await, Ok(second.webhook));
    assert_eq!(store.delete_webhook(one, id).await, Err(Refused::NotFound(Noun::Webhook).into()));
    assert_eq!(store.webhooks(one).await.unwrap(), [1, 3].map(webhook));
    make(store, one, 2).await;
    assert_eq!(store.attempts(one, id).await.unwrap(), []);
    assert_eq!(claim(store, one, id, after(100)).await, []);
    let orphan = store.create_webhook(account(9), webhook(4), MANY, None).await;
    assert!(matches!(orphan, Err(Error::Store(StoreError::Conflict(_)))), "{orphan:?}");
}

pub(crate) async fn an_account_has_no_more_webhooks_than_it_may(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let store = subject.store();
    let too_many = Err(Refused::TooMany(Noun::Webhook, 2).into());
    for (n, expected) in [(1, Ok(new(1))), (2, Ok(new(2))), (3, too_many), (1, Ok(new(1)))] {
        assert_eq!(store.create_webhook(account, webhook(n), 2, None).await, expected, "{n}");
    }
    store.delete_webhook(account, webhook(1).webhook.id).await.unwrap();
    assert_eq!(store.create_webhook(account, webhook(3), 2, None).await, Ok(new(3)));
}

pub(crate) async fn an_idempotency_key_makes_one_webhook_until_it_ends(subject: &mut impl Subject) {
    let (mine, theirs) = (open_account(subject.store(), 1).await, open_account(subject.store(), 2).await);
    let create = async |store: &Store, account, n, request: &str, at| {
        let attempt = keys::attempt("once", request, at);
        store.create_webhook(account, webhook(n), MANY, Some(attempt)).await
    };
    let first = webhook(1).webhook.id;
    let store = subject.store();
    assert_eq!(create(store, mine, 1, "a", START).await, Ok(new(1)));
    assert_eq!(create(store, mine, 1, "a", after(1)).await, Ok(new(1)), "the call is repeated");
    assert_eq!(create(store, mine, 2, "a", after(1)).await, Ok(Made::Replayed(webhook(1).webhook)));
    let reused = Error::Refused(Refused::IdempotencyKeyReused);
    assert_eq!(create(store, mine, 2, "b", after(1)).await, Err(reused.clone()));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(create(store, theirs, 2, "b", after(1)).await, Ok(new(2)), "accounts are independent");
    assert_eq!(store.webhooks(mine).await.unwrap().len(), 1);
    store.delete_webhook(mine, first).await.unwrap();
    let removed = Err(Refused::NotFound(Noun::Webhook).into());
    assert_eq!(create(store, mine, 2, "a", after(2)).await, removed);
    assert_eq!(store.webhooks(mine).await.unwrap(), []);
    let other =
        store.create_key(new_key(mine, 1), Some(keys::attempt("once", "c", after(2))), &act(START)).await;
    assert_eq!(other.unwrap_err(), reused, "an account's idempotency keys cover all its objects");
    let ended = START.plus(Duration::from_hours(24));
    assert_eq!(create(store, mine, 2, "b", ended).await, Ok(new(2)));
}

pub(crate) async fn a_change_of_a_webhook_changes_what_it_names(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let id = make(subject.store(), account, 1).await.webhook.id;
    let url = WebhookUrl::parse("http://127.0.0.1:9/").unwrap();
    let patch = WebhookPatch {
        url: Some(url.clone()),
        types: Some(Some(vec!["key.rotated".into()])),
        disabled: Some(Some(DisabledReason::Owner)),
    };
    let expected = Webhook {
        url,
        types: patch.types.clone().flatten(),
        disabled: Some((after(9), DisabledReason::Owner)),
        ..webhook(1).webhook
    };
    let changed = subject.store().update_webhook(account, id, patch, &act(after(9))).await.unwrap();
    assert_eq!(changed, expected);
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.webhooks(account).await.unwrap(), [StoredWebhook { webhook: expected, cursor: 7 }]);
    let types = WebhookPatch { types: Some(None), ..end(None) };
    let changed = store.update_webhook(account, id, types, &act(after(10))).await.unwrap();
    assert_eq!((changed.types, changed.disabled), (None, None));
    assert_eq!(
        store.update_webhook(account, webhook(2).webhook.id, end(None), &act(START)).await,
        Err(Refused::NotFound(Noun::Webhook).into())
    );
}

pub(crate) async fn a_cursor_moves_together_with_the_deliveries(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let mut seen = make(subject.store(), account, 1).await;
    let id = seen.webhook.id;
    let stale = seen.clone();
    add(subject.store(), account, &mut seen, &[8, 9]).await;
    let store = subject.store();
    assert!(!store.fan_out(account, stale, 10, vec![delivery(10)]).await.unwrap(), "another call came first");
    let changed =
        StoredWebhook { webhook: Webhook { types: Some(Vec::new()), ..seen.webhook.clone() }, cursor: 9 };
    assert!(!store.fan_out(account, changed, 10, vec![delivery(10)]).await.unwrap(), "it was changed");
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.webhooks(account).await.unwrap(), [seen.clone()]);
    let free = u64::try_from(MAX_PENDING_DELIVERIES).unwrap() - 2;
    let too_many: Vec<_> = (10..=10 + free).map(delivery).collect();
    assert!(!store.fan_out(account, seen.clone(), 300, too_many[..].to_vec()).await.unwrap(), "no room");
    assert!(store.fan_out(account, seen, 299, too_many[1..].to_vec()).await.unwrap());
    let all = store.claim_deliveries(account, id, START, after(30), 1000).await.unwrap();
    assert_eq!(all.len(), MAX_PENDING_DELIVERIES);
}

pub(crate) async fn a_delivery_is_claimed_once_until_it_falls_due_again(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let mut seen = make(subject.store(), account, 1).await;
    let id = seen.webhook.id;
    add(subject.store(), account, &mut seen, &(8..58).collect::<Vec<_>>()).await;
    let store = subject.store();
    let claims = (0..10).map(|_| store.claim_deliveries(account, id, START, after(30), 7));
    let claimed: Vec<_> = join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
    let events: HashSet<_> = claimed.iter().map(|delivery| delivery.event).collect();
    assert_eq!((claimed.len(), events.len()), (50, 50), "each delivery is claimed once, and none is left");
    let expected = Delivery { attempts: 1, ..delivery(8) };
    assert!(claimed.contains(&expected), "{expected:?}");
    assert_eq!(claim(store, account, id, after(29)).await, []);
    subject.interrupt().await;
    let again = claim(subject.store(), account, id, after(30)).await;
    assert_eq!(again.len(), 50);
    assert!(again.iter().all(|delivery| delivery.attempts == 2));
}

pub(crate) async fn an_attempt_that_another_one_followed_ends_nothing(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let mut seen = make(subject.store(), account, 1).await;
    let id = seen.webhook.id;
    add(subject.store(), account, &mut seen, &[8]).await;
    let store = subject.store();
    let first = claim(store, account, id, START).await.remove(0);
    let second = claim(store, account, id, after(30)).await.remove(0);
    for next in [None, Some(START)] {
        assert!(
            !store.finish_delivery(account, id, first.clone(), &attempt(&first, 200), next).await.unwrap()
        );
    }
    assert_eq!(
        (store.attempts(account, id).await.unwrap(), claim(store, account, id, after(59)).await),
        (vec![], vec![])
    );
    let failed = attempt(&second, 503);
    assert!(store.finish_delivery(account, id, second, &failed, Some(after(40))).await.unwrap());
    assert_eq!(claim(store, account, id, after(39)).await, []);
    subject.interrupt().await;
    let store = subject.store();
    let third = claim(store, account, id, after(40)).await.remove(0);
    assert_eq!(third, Delivery { attempts: 3, ..delivery(8) });
    assert!(store.finish_delivery(account, id, third.clone(), &attempt(&third, 204), None).await.unwrap());
    assert!(!store.finish_delivery(account, id, third.clone(), &attempt(&third, 204), None).await.unwrap());
    assert_eq!(claim(store, account, id, after(1000)).await, []);
    assert_eq!(store.attempts(account, id).await.unwrap(), [attempt(&third, 204), attempt(&third, 503)]);
}

pub(crate) async fn the_last_attempts_are_kept(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let mut seen = make(subject.store(), account, 1).await;
    let mut other = make(subject.store(), account, 2).await;
    let (id, other_id) = (seen.webhook.id, other.webhook.id);
    add(subject.store(), account, &mut seen, &[8]).await;
    add(subject.store(), account, &mut other, &[8]).await;
    let store = subject.store();
    let claimed = claim(store, account, other_id, START).await.remove(0);
    let refused = Attempt { answer: ReceiverAnswer::None("no connection".into()), ..attempt(&claimed, 0) };
    assert!(store.finish_delivery(account, other_id, claimed, &refused, None).await.unwrap());
    for n in 0..KEPT_ATTEMPTS + 5 {
        let claimed = claim(store, account, id, START).await.remove(0);
        let answer = attempt(&claimed, u16::try_from(n).unwrap());
        assert!(store.finish_delivery(account, id, claimed, &answer, Some(START)).await.unwrap());
    }
    subject.interrupt().await;
    let kept = subject.store().attempts(account, id).await.unwrap();
    let statuses: Vec<_> = kept.into_iter().map(|attempt| attempt.answer).collect();
    let expected: Vec<_> = (5..25).rev().map(ReceiverAnswer::Status).collect();
    assert_eq!(statuses, expected);
    assert_eq!(subject.store().attempts(account, other_id).await.unwrap(), [refused]);
}

pub(crate) async fn a_disabled_webhook_looks_at_the_events_of_its_deliveries_again(
    subject: &mut impl Subject,
) {
    let account = open_account(subject.store(), 1).await;
    let mut seen = make(subject.store(), account, 1).await;
    let id = seen.webhook.id;
    add(subject.store(), account, &mut seen, &[8, 9, 10]).await;
    let store = subject.store();
    let claimed = claim(store, account, id, START).await;
    let first = claimed.iter().find(|delivery| delivery.number == Some(8)).unwrap().clone();
    assert!(store.finish_delivery(account, id, first.clone(), &attempt(&first, 200), None).await.unwrap());
    store.update_webhook(account, id, end(Some(DisabledReason::Failing)), &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(claim(store, account, id, after(1000)).await, []);
    let ended = store.webhooks(account).await.unwrap().remove(0);
    assert_eq!((ended.cursor, ended.webhook.disabled), (8, Some((START, DisabledReason::Failing))));
    let late = claimed.into_iter().find(|delivery| delivery.number == Some(9)).unwrap();
    assert!(!store.finish_delivery(account, id, late.clone(), &attempt(&late, 200), None).await.unwrap());
    // Disabling again and enabling write no event.
    for again in [Some(DisabledReason::Gone), None] {
        store.update_webhook(account, id, end(again), &act(after(1))).await.unwrap();
    }
    let told = store.events_after(account, 0, 10).await.unwrap().events;
    let url = webhook(1).webhook.url.as_str().to_owned();
    let expected = EventKind::WebhookDisabled { webhook_id: id, url, reason: "failing".into() };
    assert_eq!(told.into_iter().map(|event| event.event.kind).collect::<Vec<_>>(), [expected]);
}
