//! Cases about alerts and their messages.

use shared::{ids::AlertId, wire::Noun};

use crate::{
    store::{AlertTest, AlertTestOutcome, Error, EventSlice, Made, RaiseOutcome, Raised},
    suite::{Subject, act, after, open_account},
};
use domain::{
    alert::{
        Alert, AlertAddress, AlertChange, AlertSubject, BETWEEN_TESTS, Channel, MAX_PENDING_MESSAGES,
        ReportedSubject, Rule, Sealed, StoredAlert,
    },
    digest::Pepper,
    event::{EventKind, EventSearch},
    governed::Refused,
    ledger::{
        StandingAct,
        histories::{START, key},
    },
    webhook::Delivery,
};

/// Maximum number of alerts: more than a test creates.
const MANY: u64 = 100;

fn alert(n: u8) -> Alert {
    let id = AlertId::new(after(n.into()), [n; 10]);
    let sealed = Sealed::new(&Pepper::new([7; 32]), id, &"https://example.com/x".into(), [n; 12]);
    Alert {
        id,
        label: format!("alert {n}"),
        rule: Rule::Refused,
        threshold: Some(80).filter(|_| n.is_multiple_of(2)),
        about: Some(AlertSubject::Key(key(n))).filter(|_| n.is_multiple_of(2)),
        channel: Channel::Slack,
        address: AlertAddress { shown: "https://example.com/…".into(), sealed },
        interval_hours: None,
        enabled: true,
        created_at: after(n.into()),
    }
}

fn raised(seen: &StoredAlert, n: u8) -> Raised {
    let kind = EventKind::AlertRaised {
        alert_id: seen.alert.id,
        label: String::new(),
        rule: "refused".into(),
        title: "a key is refused".into(),
        text: "Raise the limit.".into(),
        url: None,
    };
    let event = act(after(n.into())).nth(n.into()).event(0, None, None, kind);
    let message = Delivery::new(event.id, Some(0), "refused".into(), "{}".into(), START);
    Raised { event, message: Some(message) }
}

pub(crate) async fn alerts_are_listed_oldest_first_changed_and_leave_nothing_behind(
    subject: &mut impl Subject,
) {
    let (store, account) = (subject.store(), open_account(subject.store(), 1).await);
    for n in [2, 1] {
        assert_eq!(store.create_alert(account, alert(n), MANY, None).await, Ok(Made::New(alert(n))));
    }
    let stored = store.alerts(account).await.unwrap();
    assert_eq!(stored.iter().map(|stored| &stored.alert).collect::<Vec<_>>(), [&alert(1), &alert(2)]);
    let too_many = store.create_alert(account, alert(3), 2, None).await;
    assert_eq!(too_many, Err(Error::Refused(Refused::TooMany(Noun::Alert, 2))));
    let change = AlertChange { label: Some("other".into()), enabled: Some(false), ..AlertChange::default() };
    let changed = store.update_alert(account, alert(1).id, &change).await.unwrap();
    assert_eq!(changed, Alert { label: "other".into(), enabled: false, ..alert(1) });
    assert!(store.accounts_with_webhooks().await.unwrap().contains(&account));
    for n in [1, 2] {
        store.delete_alert(account, alert(n).id).await.unwrap();
        let gone = store.delete_alert(account, alert(n).id).await;
        assert_eq!(gone, Err(Error::Refused(Refused::NotFound(Noun::Alert))));
    }
    assert_eq!(store.alerts(account).await.unwrap(), []);
}

pub(crate) async fn an_alert_is_raised_once_by_those_who_read_it_at_the_same_time(
    subject: &mut impl Subject,
) {
    let (store, account) = (subject.store(), open_account(subject.store(), 1).await);
    store.create_alert(account, alert(1), MANY, None).await.unwrap();
    let seen = store.alerts(account).await.unwrap().remove(0);
    let mut after = StoredAlert { cursor: seen.cursor + 3, ..seen.clone() };
    after.reported.push(ReportedSubject { subject: AlertSubject::Key(key(1)), at: START });
    let first = store.raise_alert(account, &seen, &after, &raised(&seen, 1)).await;
    assert_eq!(first, Ok(RaiseOutcome::Kept));
    let second = store.raise_alert(account, &seen, &after, &raised(&seen, 2)).await;
    assert_eq!(second, Ok(RaiseOutcome::Changed));
    assert_eq!(store.consider_alert(account, &seen, &seen).await, Ok(false));
    assert_eq!(store.consider_alert(account, &after, &after).await, Ok(true));
    assert_eq!(store.alerts(account).await.unwrap(), [after]);
    let search = EventSearch { kind: Some("alert.raised"), ..EventSearch::default() };
    let events = store.events(account, search, EventSlice::latest(9)).await.unwrap().found;
    assert_eq!(events.len(), 1);
    let claimed = store.claim_deliveries(account, alert(1).id, START, START, 9).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!((claimed[0].event, claimed[0].body.as_str()), (events[0].event.id, "{}"));
}

pub(crate) async fn an_alert_of_a_suspended_account_is_not_raised(subject: &mut impl Subject) {
    let (store, account) = (subject.store(), open_account(subject.store(), 1).await);
    store.create_alert(account, alert(1), MANY, None).await.unwrap();
    let seen = store.alerts(account).await.unwrap().remove(0);
    let suspend = StandingAct::Suspend("unpaid".into());
    for (standing, n, expected) in
        [(suspend, 2, RaiseOutcome::Changed), (StandingAct::Restore, 4, RaiseOutcome::Kept)]
    {
        store.change_standing(account, &standing, &act(after(n.into()))).await.unwrap();
        let outcome = store.raise_alert(account, &seen, &seen, &raised(&seen, n + 1)).await;
        assert_eq!(outcome, Ok(expected), "{standing:?}");
    }
}

pub(crate) async fn the_messages_of_an_alert_that_wait_are_bounded(subject: &mut impl Subject) {
    let (store, account) = (subject.store(), open_account(subject.store(), 1).await);
    store.create_alert(account, alert(1), MANY, None).await.unwrap();
    for n in 0..=u8::try_from(MAX_PENDING_MESSAGES).unwrap() {
        let seen = store.alerts(account).await.unwrap().remove(0);
        let after = StoredAlert { cursor: seen.cursor + 1, ..seen.clone() };
        let outcome = store.raise_alert(account, &seen, &after, &raised(&seen, n)).await.unwrap();
        let has_room = usize::from(n) < MAX_PENDING_MESSAGES;
        assert_eq!(outcome, if has_room { RaiseOutcome::Kept } else { RaiseOutcome::QueueFull }, "{n}");
    }
    let claimed = store.claim_deliveries(account, alert(1).id, START, START, 999).await.unwrap();
    assert_eq!(claimed.len(), MAX_PENDING_MESSAGES);
}

pub(crate) async fn an_account_tests_one_alert_a_minute_even_if_it_makes_it_anew(subject: &mut impl Subject) {
    let (one, other) = (open_account(subject.store(), 1).await, open_account(subject.store(), 2).await);
    let store = subject.store();
    let make = async |account, n| store.create_alert(account, alert(n), MANY, None).await.unwrap();
    let test =
        async |account, n: u8, test: AlertTest, at| store.test_alert(account, alert(n).id, &test, at).await;
    let message = |n: u8| {
        let event = act(after(n.into())).nth(n.into()).event(0, None, None, EventKind::KeyRevoked {});
        AlertTest::Message(Delivery::new(event.id, None, "test".into(), String::new(), START))
    };
    for account in [one, other] {
        make(account, 1).await;
    }
    let tested: Result<AlertTestOutcome, Error<Refused>> = Ok(AlertTestOutcome::Kept);
    let lately: Result<AlertTestOutcome, Error<Refused>> = Ok(AlertTestOutcome::TestedLately);
    assert_eq!(test(one, 1, message(1), START).await, tested);
    assert_eq!(test(one, 1, message(2), START).await, lately);
    store.delete_alert(one, alert(1).id).await.unwrap();
    let unknown = Err(Error::Refused(Refused::NotFound(Noun::Alert)));
    assert_eq!(test(one, 1, message(2), START.plus(BETWEEN_TESTS)).await, unknown);
    make(one, 2).await;
    let soon = START.plus(BETWEEN_TESTS / 2);
    assert_eq!(test(one, 2, message(2), soon).await, lately, "another alert of the account");
    let seen = store.alerts(one).await.unwrap().remove(0);
    let event = AlertTest::Event(raised(&seen, 3).event);
    assert_eq!(test(one, 2, event.clone(), soon).await, lately, "to the account's webhooks");
    assert_eq!(test(other, 1, message(1), START).await, tested, "another account");
    assert_eq!(store.claim_deliveries(one, alert(2).id, soon, soon, 9).await, Ok(Vec::new()));
    assert_eq!(test(one, 2, event, START.plus(BETWEEN_TESTS)).await, tested);
    assert_eq!(test(one, 2, message(4), START.plus(BETWEEN_TESTS)).await, lately, "an event is a test too");
    assert_eq!(test(one, 2, message(4), START.plus(BETWEEN_TESTS * 2)).await, tested);
}
