//! Tests of alerts: what is reported, how often, and what becomes of messages that cannot be sent.

mod mail;

use serde_json::Value;
use shared::{
    clock::{Clock as _, random_bytes},
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    secret::SecretString,
};

use super::*;
use crate::{AlertParts, Alerts, Dispatcher, Mailer};
use domain::{
    alert::{Alert, AlertFault, AlertPatch, Channel, Rule},
    event::{Actor, EventKind},
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
    ledger::{BoundsPatch, StandingAct},
    webhook::{AddressRefused, Attempt},
};
use key_service_management::{Error, Refused, governed::Governed as _, testing::Office};
use key_service_records::{Commit, Name, Record, Records as _, Revision, Set, Space, Write};
use key_service_store::store::{Ledger as _, suite};

const USD: i64 = 1_000_000_000;
const PUBLIC_URL: &str = "https://models.example.com/";
/// Number of the set that contains the queues of deliveries.
const QUEUES: u8 = 13;

/// An account whose alerts are considered.
struct Desk {
    office: Office,
    account: AccountId,
    dispatcher: Arc<Dispatcher>,
}

impl Desk {
    async fn open(mailer: Option<Mailer>) -> Self {
        Self::with(Sender::new(&[]), mailer).await
    }

    async fn with(sender: Sender, mailer: Option<Mailer>) -> Self {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let dispatcher = dispatcher(&office, sender, mailer);
        Self { office, account, dispatcher }
    }

    async fn alert(&self, rule: Rule, channel: Channel, to: &str) -> Alert {
        self.try_alert(rule, channel, to).await.unwrap()
    }

    async fn try_alert(&self, rule: Rule, channel: Channel, to: &str) -> Result<Alert, Error<Refused>> {
        let patch = AlertPatch {
            label: Some("Budgets".into()),
            rule: Some(rule),
            channel: Some(channel),
            to: Some(SecretString::from(to)),
            ..AlertPatch::default()
        };
        let by = self.office.management.by(self.account, Actor::System);
        Ok(Alert::create(by, patch, None).await?.made.into_inner())
    }

    /// Creates a key that has spent a dollar.
    async fn key(&self, label: &str, group: Option<shared::ids::GroupId>) -> KeyId {
        let patch = KeyPatch { label: Some(label.into()), group: Some(group), ..KeyPatch::default() };
        let by = self.office.management.by(self.account, Actor::System);
        let key = ApiKey::create(by, patch, None).await.unwrap().made.into_inner().id;
        self.spend(key, USD).await;
        key
    }

    async fn spend(&self, key: KeyId, nanos: i64) {
        let now = self.office.clock.now();
        let generation = GenerationId::new(now, random_bytes(&*self.office.clock));
        let commands = vec![suite::hold(key, generation, nanos, 10), suite::capture(key, generation, nanos)];
        let outcomes = self.office.store.execute(self.account, commands, now).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }

    /// Sets a limit below what the key has spent, and removes it again. If no limit had this amount before, this causes
    /// an event for each threshold.
    async fn exceed(&self, key: KeyId, nanos: i64) {
        for limit in [Some(NanoUsd::from_nanos(nanos)), None] {
            let bounds = BoundsPatch { limit: Some(limit), ..BoundsPatch::default() };
            let by = self.office.management.by(self.account, Actor::System);
            ApiKey::update(by, key, KeyPatch { bounds, ..KeyPatch::default() }).await.unwrap();
        }
    }

    async fn stand(&self, to: StandingAct) {
        self.office.management.change_standing(self.account, to, Actor::System).await.unwrap();
    }

    /// Advances the clock, and lets the dispatcher do what is due.
    async fn pass(&self, time: Duration) {
        self.office.clock.set(&self.office.clock.now().plus(time).to_string());
        settle(&self.dispatcher).await;
    }

    async fn messages(&self, alert: &Alert) -> Vec<Attempt> {
        self.office.management.messages(self.account, alert.id).await.unwrap()
    }

    async fn answers(&self, alert: &Alert) -> Vec<ReceiverAnswer> {
        self.messages(alert).await.into_iter().map(|attempt| attempt.answer).collect()
    }
}

fn dispatcher(office: &Office, sender: Sender, mailer: Option<Mailer>) -> Arc<Dispatcher> {
    let clock: Arc<dyn shared::clock::Clock> = office.clock.clone();
    let parts = AlertParts::new(&office.store, &clock, &office.credentials, &office.management);
    let alerts = Alerts::new(parts, Some(PUBLIC_URL.to_owned()), mailer);
    let dispatcher = Dispatcher::new(office.store.clone(), clock, office.credentials.clone(), sender);
    Arc::new(dispatcher.with_alerts(alerts))
}

async fn settle(dispatcher: &Arc<Dispatcher>) {
    dispatcher.consider_alerts().await;
    dispatcher.look().await;
    dispatcher.running.close();
    dispatcher.running.wait().await;
    dispatcher.running.reopen();
}

/// Returns the JSON of each request.
fn bodies(receiver: &Receiver) -> Vec<Value> {
    let body = |request: &String| serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    receiver.requests().iter().map(body).collect()
}

#[tokio::test]
async fn ten_thousand_events_make_one_message_a_rule_and_subject() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(None).await;
    let (one, other) = (desk.key("one", None).await, desk.key("other", None).await);
    for rule in [Rule::Refused, Rule::LimitShare] {
        desk.alert(rule, Channel::Slack, &receiver.url()).await;
    }
    let begin = desk.office.management.last_event(desk.account).await.unwrap();
    // Each round causes six events: two changes of the key, three thresholds, and a reached limit.
    for round in 0..1_700 {
        desk.exceed(one, USD / 2 - round).await;
        if round % 50 == 49 {
            for _ in 0..2 {
                desk.pass(Duration::from_millis(800)).await;
            }
        }
    }
    let events = desk.office.management.last_event(desk.account).await.unwrap() - begin;
    assert!(events >= 10_000, "{events}");
    assert_eq!(bodies(&receiver).len(), 2, "{:?}", bodies(&receiver));
    desk.exceed(other, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(bodies(&receiver).len(), 4, "another subject");
    desk.exceed(one, USD / 4).await;
    desk.pass(Duration::from_hours(24)).await;
    assert_eq!(bodies(&receiver).len(), 6, "the interval has ended");
}

#[tokio::test]
async fn of_two_key_services_one_reports() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(None).await;
    let key = desk.key("one", None).await;
    desk.alert(Rule::Refused, Channel::Slack, &receiver.url()).await;
    let second = dispatcher(&desk.office, Sender::new(&[]), None);
    desk.exceed(key, USD / 2).await;
    for _ in 0..3 {
        tokio::join!(settle(&desk.dispatcher), settle(&second));
    }
    assert_eq!(bodies(&receiver).len(), 1);
}

#[tokio::test]
async fn an_alert_whose_messages_cannot_be_queued_does_not_silence_others() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(None).await;
    let key = desk.key("one", None).await;
    desk.alert(Rule::Refused, Channel::Slack, &receiver.url()).await;
    let damaged = desk.alert(Rule::Refused, Channel::Slack, &receiver.url()).await;
    desk.alert(Rule::Refused, Channel::Slack, &receiver.url()).await;
    let key_of_queue = [&b"p"[..], damaged.id.as_bytes()].concat();
    let queue = Name { set: Set { table: QUEUES, part: 0 }, key: key_of_queue.into() };
    let writes = vec![Write::Put(queue, Record::new(Revision([1; 8]), 1, b"damaged"))];
    let space = Space::new(desk.account.to_string());
    desk.office.records.commit(&space, Commit { guards: Vec::new(), writes }).await.unwrap();
    desk.exceed(key, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(bodies(&receiver).len(), 2);
}

#[tokio::test]
async fn slack_and_teams_get_what_happened_and_what_to_do_in_their_form() {
    let (slack, teams) = (Receiver::answers(OK).await, Receiver::answers(OK).await);
    let desk = Desk::open(None).await;
    let key = desk.key("<!channel> [a](https://evil.example)", None).await;
    let alert = desk.alert(Rule::Refused, Channel::Slack, &slack.url()).await;
    desk.alert(Rule::LimitShare, Channel::Teams, &teams.url()).await;
    assert!(!format!("{alert:?}").contains("/hook") && alert.address.shown.ends_with("/…"));
    desk.exceed(key, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    let page = format!("https://models.example.com/dashboard/keys/{key}");
    let [message] = &bodies(&slack)[..] else { panic!("one message: {:?}", bodies(&slack)) };
    let text = message["text"].as_str().unwrap();
    assert_eq!(message.as_object().unwrap().len(), 1);
    assert!(text.starts_with("*Budgets: the API key &lt;!channel&gt; ["), "{text}");
    assert!(
        text.contains("is refused, because its limit of $0.50 is used up*\n$1.00 is used.\nRaise"),
        "{text}"
    );
    assert!(text.ends_with(&format!("<{page}|Open the page>")), "{text}");
    let [message] = &bodies(&teams)[..] else { panic!("one message: {:?}", bodies(&teams)) };
    let (kind, attachment) = (&message["type"], &message["attachments"][0]);
    assert_eq!((kind, message["attachments"].as_array().unwrap().len()), (&"message".into(), 1));
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    let card = &attachment["content"];
    assert_eq!((&card["type"], &card["version"]), (&"AdaptiveCard".into(), &"1.2".into()));
    assert_eq!(
        card["actions"][0],
        serde_json::json!({"type": "Action.OpenUrl", "title": "Open the page", "url": page})
    );
    for part in card["body"].as_array().unwrap() {
        // Text runs in a rich text block do not support Markdown.
        assert_eq!(
            (&part["type"], &part["inlines"][0]["type"]),
            (&"RichTextBlock".into(), &"TextRun".into())
        );
    }
    let title = card["body"][0]["inlines"][0]["text"].as_str().unwrap();
    assert!(title.contains("has used 80 % of its limit of $0.50"), "{title}");
}

#[tokio::test]
async fn an_address_that_leads_inside_is_not_connected() {
    let (sender, _) = looking_up(&["10.0.0.5"], &[]);
    let desk = Desk::with(sender, None).await;
    let key = desk.key("one", None).await;
    for channel in [Channel::Slack, Channel::Teams] {
        let refused = desk.try_alert(Rule::Refused, channel, "https://10.0.0.5/services/x").await;
        let expected = AlertFault::Refused(AddressRefused::NotPublic);
        assert_eq!(refused, Err(Error::Refused(Refused::BadAlert(expected))));
        let alert = desk.alert(Rule::Refused, channel, "https://hooks.example/services/x").await;
        desk.exceed(key, USD / 2 - channel as i64).await;
        desk.pass(Duration::from_secs(1)).await;
        assert_eq!(desk.answers(&alert).await, [no_answer(INSIDE)]);
    }
}

#[tokio::test]
async fn a_week_is_reported_by_team_on_monday_and_little_credit_once_a_day() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(None).await;
    let by = || desk.office.management.by(desk.account, Actor::System);
    let team = GroupPatch { name: Some("Search".into()), ..GroupPatch::default() };
    let team = Group::create(by(), team, None).await.unwrap().made.into_inner().id;
    desk.key("one", Some(team)).await;
    let other = desk.key("other", None).await;
    desk.spend(other, 3 * USD).await;
    desk.alert(Rule::WeeklyReport, Channel::Slack, &receiver.url()).await;
    desk.alert(Rule::CreditDays, Channel::Slack, &receiver.url()).await;
    // The test begins on a Friday, with $10.
    desk.pass(Duration::from_secs(1)).await;
    let texts = || -> Vec<String> {
        bodies(&receiver).iter().map(|body| body["text"].as_str().unwrap().to_owned()).collect()
    };
    let [credit] = &texts()[..] else { panic!("{:?}", texts()) };
    assert!(
        credit.contains("the credit of the account acme lasts for one more day*\n$5.00 is left."),
        "{credit}"
    );
    desk.pass(Duration::from_hours(3 * 24)).await;
    let all = texts();
    let weeks: Vec<&String> = all.iter().filter(|text| text.contains("the account acme spent")).collect();
    let [week] = weeks[..] else { panic!("{all:?}") };
    assert!(week.contains("spent $5.00 from 2026-11-16 to 2026-11-22 (UTC)*"), "{week}");
    assert!(week.contains("\n$4.00: keys without a group\n$1.00: the group Search\n"), "{week}");
    assert!(week.ends_with("<https://models.example.com/dashboard|Open the page>"), "{week}");
}

#[tokio::test]
async fn an_alert_writes_an_event_and_reports_nothing_from_before_it_or_while_it_is_disabled() {
    let desk = Desk::open(None).await;
    let key = desk.key("one", None).await;
    desk.exceed(key, USD / 2).await;
    let alert = desk.alert(Rule::Refused, Channel::Webhook, "").await;
    let by = || desk.office.management.by(desk.account, Actor::System);
    let enabled = |enabled| AlertPatch { enabled: Some(enabled), ..AlertPatch::default() };
    Alert::update(by(), alert.id, enabled(false)).await.unwrap();
    desk.exceed(key, USD / 2 - 1).await;
    desk.pass(Duration::from_secs(1)).await;
    Alert::update(by(), alert.id, enabled(true)).await.unwrap();
    desk.pass(Duration::from_secs(1)).await;
    let raised = async || -> Vec<EventKind> {
        let page = desk.office.store.events_after(desk.account, 0, 1_000).await.unwrap();
        let kinds = page.events.into_iter().map(|numbered| numbered.event.kind);
        kinds.filter(|kind| matches!(kind, EventKind::AlertRaised { .. })).collect()
    };
    assert_eq!(raised().await, []);
    desk.exceed(key, USD / 2 - 2).await;
    desk.pass(Duration::from_secs(1)).await;
    let [EventKind::AlertRaised { alert_id, rule, url, .. }] = &raised().await[..] else {
        panic!("one event")
    };
    let page = format!("https://models.example.com/dashboard/keys/{key}");
    assert_eq!((*alert_id, rule.as_str(), url.as_deref()), (alert.id, "refused", Some(page.as_str())));
}

#[tokio::test]
async fn a_suspended_account_reports_nothing_and_once_it_is_restored_only_what_happens_later() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(None).await;
    let key = desk.key("one", None).await;
    desk.alert(Rule::Refused, Channel::Slack, &receiver.url()).await;
    desk.stand(StandingAct::Suspend("unpaid".into())).await;
    desk.exceed(key, USD / 2).await;
    desk.pass(Duration::from_secs(1)).await;
    desk.stand(StandingAct::Restore).await;
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(bodies(&receiver).len(), 0, "{:?}", bodies(&receiver));
    desk.exceed(key, USD / 4).await;
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(bodies(&receiver).len(), 1, "{:?}", bodies(&receiver));
}

#[tokio::test]
async fn a_closed_account_reports_nothing() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(None).await;
    let key = desk.key("one", None).await;
    desk.alert(Rule::WeeklyReport, Channel::Slack, &receiver.url()).await;
    let credit = desk.office.management.funds(desk.account).await.unwrap().unwrap().credit;
    desk.spend(key, credit.nanos()).await;
    for to in [StandingAct::Suspend("left".into()), StandingAct::Close] {
        desk.stand(to).await;
    }
    // The test begins on a Friday, and weeks are reported on Monday.
    for _ in 0..2 {
        desk.pass(Duration::from_hours(3 * 24)).await;
    }
    assert_eq!(bodies(&receiver).len(), 0, "{:?}", bodies(&receiver));
    let page = desk.office.store.events_after(desk.account, 0, 1_000).await.unwrap();
    let last = page.events.last().map(|numbered| &numbered.event.kind);
    assert_eq!(last, Some(&EventKind::AccountClosed {}));
}
