//! Alerts: considers an account's events and sums for each alert, and sends the messages.
//!
//! One commit records what has been considered, what was reported, and the message. It fails if the alert has changed
//! since it was read. So a subject is reported once per interval, however many key-services look and however many
//! events there are.

mod chat;
mod findings;
mod mail;
mod message;
mod smtp;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use shared::{
    clock::{Clock, random_bytes},
    ids::AccountId,
};

use crate::sender::Sender;
use domain::{
    alert::{Alert, AlertDestination, AlertSubject, Channel, StoredAlert},
    event::{Act, Actor, Event, EventKind},
    webhook::{Delivery, ReceiverAnswer},
};
use findings::{AlertFinding, Findings};
use key_service_credentials::Credentials;
use key_service_management::Management;
use key_service_store::store::{EventsPage, RaiseOutcome, Raised, Store, StoreError};
use message::AlertMessage;

pub use mail::Mailer;
pub use smtp::BadMail;

/// Maximum number of events that one check considers for an alert, so that a busy account leaves time for others.
const EVENTS_AT_ONCE: usize = 256;

/// Considers alerts and sends their messages.
pub struct Alerts {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    management: Arc<Management>,
    /// Begins the links to pages; `None` if the service does not know its public address.
    public_url: Option<String>,
    mailer: Option<Mailer>,
}

/// One check of an account's alerts. Data that several alerts need is read only once.
struct AccountLook<'a> {
    findings: Findings<'a>,
    /// Pages of events, each under the number of the event before the page.
    pages: HashMap<u64, EventsPage>,
}

/// The services that alerts need.
pub struct AlertParts {
    pub store: Arc<Store>,
    pub clock: Arc<dyn Clock>,
    pub credentials: Arc<Credentials>,
    pub management: Arc<Management>,
}

impl AlertParts {
    pub fn new(
        store: &Arc<Store>,
        clock: &Arc<dyn Clock>,
        credentials: &Arc<Credentials>,
        management: &Arc<Management>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            credentials: Arc::clone(credentials),
            management: Arc::clone(management),
        }
    }
}

impl Alerts {
    pub fn new(parts: AlertParts, public_url: Option<String>, mailer: Option<Mailer>) -> Self {
        let AlertParts { store, clock, credentials, management } = parts;
        Self { store, clock, credentials, management, public_url, mailer }
    }

    /// For each of an account's alerts, considers some new events, and the sums if they are due. An alert that cannot
    /// be considered does not hold up the others; the last failure is returned.
    pub(crate) async fn consider(&self, account: AccountId) -> Result<(), StoreError> {
        let alerts = self.store.alerts(account).await?;
        if alerts.is_empty() {
            return Ok(());
        }
        let last = self.management.last_event(account).await?;
        if self.store.standing(account).await?.is_some() {
            return self.pass_over(account, &alerts, last).await;
        }
        let mut look =
            AccountLook { findings: Findings::new(&self.management, account), pages: HashMap::new() };
        // Sums take longer to read than events.
        let (of_events, of_sums): (Vec<&StoredAlert>, Vec<&StoredAlert>) =
            alerts.iter().partition(|seen| seen.alert.rule.is_of_events());
        let mut outcome = Ok(());
        for seen in of_events.into_iter().chain(of_sums) {
            if let Err(error) = self.consider_one(&mut look, seen, last).await {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Marks the events of a suspended or closed account as considered, so that they are never reported, even after the
    /// account is restored.
    async fn pass_over(
        &self,
        account: AccountId,
        alerts: &[StoredAlert],
        last: u64,
    ) -> Result<(), StoreError> {
        for seen in alerts.iter().filter(|seen| seen.is_behind(last)) {
            let after = StoredAlert { cursor: last, ..seen.clone() };
            self.store.consider_alert(account, seen, &after).await?;
        }
        Ok(())
    }

    async fn consider_one(
        &self,
        AccountLook { findings, pages }: &mut AccountLook<'_>,
        seen: &StoredAlert,
        last: u64,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        if seen.is_behind(last) {
            let page = match pages.entry(seen.cursor) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let account = findings.account;
                    place.insert(self.store.events_after(account, seen.cursor, EVENTS_AT_ONCE).await?)
                }
            };
            self.consider_events(findings, seen, page).await
        } else if seen.is_due(now) {
            let after = StoredAlert { looked_at: Some(now), ..seen.clone() };
            let found = findings.of_sums(&seen.alert, now).await?;
            self.report(findings, seen, after, found).await
        } else {
            Ok(())
        }
    }

    async fn consider_events(
        &self,
        findings: &Findings<'_>,
        seen: &StoredAlert,
        EventsPage { events, gone_until }: &EventsPage,
    ) -> Result<(), StoreError> {
        let end = events.last().map_or(*gone_until, |event| event.number);
        if end <= seen.cursor {
            return Ok(());
        }
        let found = events.iter().filter_map(|numbered| {
            let subject = seen.alert.reports(&numbered.event, findings.account)?;
            Some((subject, AlertFinding::Event(numbered.event.clone())))
        });
        let after = StoredAlert { cursor: end, ..seen.clone() };
        self.report(findings, seen, after, found.collect()).await
    }

    /// Reports what was found about subjects that may be reported now, all in one message.
    async fn report(
        &self,
        findings: &Findings<'_>,
        seen: &StoredAlert,
        mut after: StoredAlert,
        mut found: Vec<(AlertSubject, AlertFinding)>,
    ) -> Result<(), StoreError> {
        let all = found.len();
        let mut subjects: Vec<AlertSubject> = found.iter().map(|(subject, _)| *subject).collect();
        after.report(&mut subjects, self.clock.now());
        let mut left = subjects.clone();
        // The first finding about each subject is reported.
        found.retain(|(subject, _)| {
            let place = left.iter().position(|other| other == subject);
            place.map(|place| left.remove(place)).is_some()
        });
        let left_out = all - found.len();
        let account = findings.account;
        if found.is_empty() {
            if self.store.consider_alert(account, seen, &after).await? {
                suppressed(left_out);
            }
            return Ok(());
        }
        let message = findings.message(&after, &found, self.public_url.as_deref()).await?;
        let raised = self.raised(&seen.alert, &found, &message);
        let outcome = self.store.raise_alert(account, seen, &after, &raised).await?;
        match outcome {
            RaiseOutcome::Kept | RaiseOutcome::QueueFull => {
                let rule = seen.alert.rule.as_str();
                metrics::counter!("keyservice_alerts_raised_total", "rule" => rule).increment(1);
                suppressed(left_out);
            }
            // Another key-service was faster, or an operator has just suspended the account.
            RaiseOutcome::Changed => {}
        }
        if outcome == RaiseOutcome::QueueFull {
            dropped();
        }
        Ok(())
    }

    fn raised(
        &self,
        alert: &Alert,
        found: &[(AlertSubject, AlertFinding)],
        message: &AlertMessage,
    ) -> Raised {
        let now = self.clock.now();
        let act = Act { actor: Actor::System, at: now, chance: random_bytes(&*self.clock) };
        let (key, group) = match found {
            [(AlertSubject::Key(key), finding)] => (Some(*key), finding.group()),
            [(AlertSubject::Group(group), _)] => (None, Some(*group)),
            _ => (None, None),
        };
        let kind = EventKind::AlertRaised {
            alert_id: alert.id,
            label: alert.label.clone(),
            rule: alert.rule.as_str().to_owned(),
            title: message.title.clone(),
            text: message.text(),
            url: message.url.clone(),
        };
        let event: Event = act.event(0, key, group, kind);
        let body = message.to_json();
        let queued = || Delivery::new(event.id, Some(0), alert.rule.as_str().to_owned(), body, now);
        let message = (alert.channel != Channel::Webhook).then(queued);
        Raised { event, message }
    }

    /// Sends a message once.
    pub(crate) async fn send(&self, sender: &Sender, alert: &Alert, delivery: &Delivery) -> ReceiverAnswer {
        let none = |reason: &str| ReceiverAnswer::None(reason.to_owned());
        let Some(destination) = self.credentials.open(alert) else {
            return none("the address was sealed with another pepper; set it again");
        };
        let is_test = delivery.number.is_none();
        let message =
            if is_test { Some(AlertMessage::test(alert)) } else { AlertMessage::from_json(&delivery.body) };
        let Some(message) = message else { return none("the message cannot be read") };
        match (destination, &self.mailer) {
            (AlertDestination::Email(to), Some(mailer)) => mailer.send(&to, delivery.event, &message).await,
            (AlertDestination::Email(_), None) => none("no mail server is set up"),
            (AlertDestination::Url(url), _) => {
                let body = match alert.channel {
                    Channel::Teams => chat::teams(&message),
                    Channel::Slack | Channel::Webhook | Channel::Email => chat::slack(&message),
                };
                sender.post(&url, body).await
            }
            (AlertDestination::Webhooks, _) => none("the account's webhooks get it as an event"),
        }
    }
}

/// Counts a message that will not be delivered.
pub(crate) fn dropped() {
    metrics::counter!("keyservice_alert_messages_dropped_total").increment(1);
}

fn suppressed(count: usize) {
    if count > 0 {
        metrics::counter!("keyservice_alert_findings_suppressed_total").increment(count as u64);
    }
}

/// Counts an attempt.
pub(crate) fn count(alert: &Alert, answer: &ReceiverAnswer) {
    let result = match answer {
        ReceiverAnswer::Status(200..=299) => "sent",
        ReceiverAnswer::Status(_) => "refused",
        ReceiverAnswer::None(_) => "no_answer",
    };
    let channel = alert.channel.as_str();
    metrics::counter!("keyservice_alert_attempts_total", "channel" => channel, "result" => result)
        .increment(1);
}
