use super::*;
use crate::{
    digest::{Pepper, Peppers},
    event::{Act, Actor, MoneyBound, Threshold},
    ledger::histories::{START, account, key},
};
use shared::{ids::EventId, money::NanoUsd, secret::ExposeSecret as _};

const SECRET_URL: &str = "https://hooks.slack.com/services/T0/B0/secret";

fn id() -> AlertId {
    AlertId::new(START, [9; 10])
}

fn alert(rule: Rule) -> Alert {
    let pepper = Pepper::new([7; 32]);
    let sealed = Sealed::new(&pepper, id(), &SECRET_URL.into(), [1; 12]);
    Alert {
        id: id(),
        label: "Budgets".into(),
        rule,
        threshold: None,
        about: None,
        channel: Channel::Slack,
        address: AlertAddress { shown: "https://hooks.slack.com/…".into(), sealed },
        interval_hours: None,
        enabled: true,
        created_at: START,
    }
}

fn stored(rule: Rule) -> StoredAlert {
    StoredAlert { alert: alert(rule), cursor: 0, looked_at: None, reported: Vec::new() }
}

fn group() -> GroupId {
    GroupId::new(START, [5; 10])
}

fn event(n: u8, kind: EventKind) -> Event {
    Act { actor: Actor::System, at: START, chance: [n; 10] }.event(0, Some(key(n)), Some(group()), kind)
}

fn threshold(percent: u8) -> Threshold {
    let amount = NanoUsd::from_usd(5);
    Threshold { bound: MoneyBound::Day, percent, amount, used: amount }
}

#[test]
fn ten_thousand_events_report_a_subject_once_in_its_interval() {
    let mut stored = stored(Rule::Refused);
    let mut reported = 0;
    for second in 0..10_000_u64 {
        let now = START.plus(Duration::from_millis(second * 6));
        let reached = event(1, EventKind::KeyLimitReached(threshold(100)));
        let mut subjects = vec![stored.alert.reports(&reached, account(1)).unwrap()];
        stored.report(&mut subjects, now);
        reported += subjects.len();
    }
    assert_eq!((reported, stored.reported.len()), (1, 1));
    let mut subjects = vec![AlertSubject::Key(key(1))];
    stored.report(&mut subjects, START.plus(Duration::from_hours(24) - Duration::from_millis(1)));
    assert_eq!(subjects, []);
    let mut subjects = vec![AlertSubject::Key(key(1)), AlertSubject::Key(key(1))];
    stored.report(&mut subjects, START.plus(Duration::from_hours(24)));
    assert_eq!(subjects, [AlertSubject::Key(key(1))], "each once");
}

#[test]
fn an_alert_reports_a_bounded_number_of_subjects_within_its_interval() {
    let mut stored = stored(Rule::Refused);
    let mut subjects: Vec<AlertSubject> = (0..200).map(|n| AlertSubject::Key(key(n))).collect();
    stored.report(&mut subjects, START);
    assert_eq!((subjects.len(), stored.reported.len()), (MAX_REPORTED, MAX_REPORTED));
    let mut more = vec![AlertSubject::Key(key(201))];
    stored.report(&mut more, START.plus(Duration::from_hours(24)));
    assert_eq!((more.len(), stored.reported.len()), (1, 1), "the interval has ended");
}

#[test]
fn a_rule_reports_its_events_about_its_subject() {
    let (near, reached) = (EventKind::KeyThresholdReached, EventKind::KeyLimitReached);
    let reports = |alert: &Alert, kind| alert.reports(&event(1, kind), account(1));
    let share = alert(Rule::LimitShare);
    assert_eq!(reports(&share, near(threshold(80))), Some(AlertSubject::Key(key(1))));
    for other in [near(threshold(50)), near(threshold(95)), reached(threshold(100)), EventKind::KeyRevoked {}]
    {
        assert_eq!(reports(&share, other), None);
    }
    let refused = alert(Rule::Refused);
    assert_eq!(reports(&refused, reached(threshold(100))), Some(AlertSubject::Key(key(1))));
    assert_eq!(reports(&refused, near(threshold(80))), None);
    let about = |about| Alert { about: Some(about), ..alert(Rule::LimitShare) };
    for (about, is_reported) in [
        (about(AlertSubject::Key(key(1))), true),
        (about(AlertSubject::Key(key(2))), false),
        (about(AlertSubject::Group(group())), true),
        (about(AlertSubject::Group(GroupId::new(START, [6; 10]))), false),
    ] {
        assert_eq!(reports(&about, near(threshold(80))).is_some(), is_reported, "{:?}", about.about);
    }
    let of_account = Event { key: None, group: None, ..event(1, EventKind::CreditExhausted(threshold(0))) };
    assert_eq!(refused.reports(&of_account, account(1)), Some(AlertSubject::Account(account(1))));
}

#[test]
fn sums_are_looked_at_every_five_minutes_and_a_week_is_reported_on_mondays() {
    let now = Timestamp::parse("2026-11-25T10:00:00Z").unwrap();
    assert_eq!(monday(now), Timestamp::parse("2026-11-23T00:00:00Z").unwrap());
    assert_eq!(monday(monday(now)), monday(now));
    let looked = |rule, at| StoredAlert { looked_at: Some(at), ..stored(rule) };
    assert!(stored(Rule::CreditDays).is_due(START) && !stored(Rule::Refused).is_due(START));
    let soon = looked(Rule::SpendJump, now);
    assert!(
        !soon.is_due(now.plus(Duration::from_secs(299))) && soon.is_due(now.plus(Duration::from_mins(5)))
    );
    let mut weekly = stored(Rule::WeeklyReport);
    weekly.alert.created_at = now;
    assert!(!weekly.is_due(now), "there was no Monday yet");
    let next = monday(now).plus(WEEK);
    for (at, count) in [(next, 1), (next.plus(Duration::from_hours(100)), 0), (next.plus(WEEK), 1)] {
        assert_eq!(weekly.is_due(at), count == 1, "{at}");
        let mut subjects = vec![AlertSubject::Account(account(1))];
        weekly.report(&mut subjects, at);
        assert_eq!(subjects.len(), count, "{at}");
    }
}

#[test]
fn sums_of_an_account_are_not_looked_at_until_it_may_be_reported_again() {
    let day_later = START.plus(Duration::from_hours(24));
    for (rule, is_of_account) in [(Rule::CreditDays, true), (Rule::SpendJump, false)] {
        let mut stored = stored(rule);
        stored.report(&mut vec![AlertSubject::Account(account(1))], START);
        assert!(stored.is_due(day_later), "{rule:?}");
        assert_eq!(stored.is_due(START.plus(Duration::from_hours(23))), !is_of_account, "{rule:?}");
    }
}

#[test]
fn an_address_is_opened_with_the_pepper_that_sealed_it_and_shown_without_its_secret() {
    let (old, new) = (Pepper::new([7; 32]), Pepper::new([8; 32]));
    let sealed = alert(Rule::Refused).address.sealed;
    let open = |current: &Pepper, previous: Option<&Pepper>, id| {
        let peppers = Peppers { current: current.clone(), previous: previous.cloned() };
        sealed.open(&peppers, id).map(|text| text.expose_secret().to_owned())
    };
    assert_eq!(open(&old, None, id()).as_deref(), Some(SECRET_URL));
    assert_eq!(open(&new, Some(&old), id()).as_deref(), Some(SECRET_URL));
    assert_eq!(open(&new, None, id()), None);
    assert_eq!(open(&old, None, AlertId::new(START, [1; 10])), None, "it belongs to one alert");
    let destination = AlertDestination::parse(Channel::Slack, SECRET_URL).unwrap();
    assert_eq!(destination.shown(), "https://hooks.slack.com/…");
    let debugged = format!("{destination:?} {:?}", alert(Rule::Refused));
    assert!(!debugged.contains("secret"), "{debugged}");
}

#[test]
fn an_address_fits_its_channel() {
    let parse = AlertDestination::parse;
    for good in ["ops@example.com", "a.b+c@mail.example.co.uk", "root@localhost"] {
        assert!(parse(Channel::Email, good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "ops",
        "@example.com",
        "ops@",
        "ops@example.com\r\nBCC: x@example.com",
        "a b@example.com",
        "<ops@example.com>",
        "ops@example.com, x@example.com",
        ".a@example.com",
        "a..b@example.com",
        "ops@[127.0.0.1]",
        "ops@127.0.0.1",
    ] {
        assert_eq!(parse(Channel::Email, bad), Err(AlertFault::NoEmail), "{bad:?}");
    }
    assert_eq!(parse(Channel::Webhook, ""), Ok(AlertDestination::Webhooks));
    assert_eq!(parse(Channel::Webhook, "x"), Err(AlertFault::NeedsNone));
    for channel in [Channel::Slack, Channel::Teams] {
        assert!(parse(channel, SECRET_URL).is_ok());
        for bad in ["", "ops@example.com", "http://hooks.slack.com/x", "ftp://example.com/"] {
            assert!(matches!(parse(channel, bad), Err(AlertFault::Url(_))), "{bad:?}");
        }
    }
}

#[test]
fn a_message_is_repeated_for_a_day_unless_it_is_refused_for_good() {
    let message =
        |number| Delivery::new(EventId::new(START, [1; 10]), number, "refused".into(), String::new(), START);
    let outcome = |channel, answer: ReceiverAnswer, at| {
        let alert = Alert { channel, ..alert(Rule::Refused) };
        alert.outcome(&message(Some(0)), &answer, at, 0)
    };
    let none = || ReceiverAnswer::None("no answer in time".into());
    for (channel, status) in [(Channel::Slack, 200), (Channel::Teams, 202), (Channel::Email, 250)] {
        assert_eq!(outcome(channel, ReceiverAnswer::Status(status), START), MessageOutcome::Sent);
    }
    for (channel, status) in
        [(Channel::Slack, 404), (Channel::Slack, 410), (Channel::Teams, 400), (Channel::Email, 550)]
    {
        assert_eq!(outcome(channel, ReceiverAnswer::Status(status), START), MessageOutcome::Dropped);
    }
    // A mail server that refuses the sign-in says nothing about the mail.
    let sign_ins = [530, 534, 535, 538].map(|status| (Channel::Email, status));
    let busy = [(Channel::Slack, 429), (Channel::Teams, 503), (Channel::Email, 451)];
    for (channel, status) in busy.into_iter().chain(sign_ins) {
        let again = outcome(channel, ReceiverAnswer::Status(status), START);
        assert!(matches!(again, MessageOutcome::Again(at) if at > START), "{status}");
    }
    assert!(matches!(outcome(Channel::Email, none(), START), MessageOutcome::Again(_)));
    let day_later = START.plus(Duration::from_hours(24));
    assert_eq!(outcome(Channel::Email, none(), day_later), MessageOutcome::Dropped);
    let test = alert(Rule::Refused).outcome(&message(None), &none(), START, 0);
    assert_eq!(test, MessageOutcome::Dropped, "a test is sent once");
}
