//! Use-cases for alerts: create, change, test, remove, and list the latest messages.

use async_trait::async_trait;
use shared::{
    clock::random_bytes,
    ids::{AccountId, AlertId, EventId},
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::{AlertField, AlertObject, Noun, Value},
};

use crate::{
    management::Management,
    nouns::{
        governed::{Acted, Acting, Governed, Issued},
        listing::{Listed, Listing, Paged},
        once::{Once, attempt, digest_of_request},
        reach::AccountReach,
    },
};
use domain::{
    alert::{
        Alert, AlertAddress, AlertChange, AlertDestination, AlertFault, AlertPatch, AlertSubject, Channel,
        Rule,
    },
    event::{Actor, EventKind},
    governed::{Made, Refused},
    webhook::{Attempt, Delivery},
};
use key_service_store::store::{AlertTest, AlertTestOutcome, Error, StoreError};

/// Maximum number of alerts in an account: one for each team and channel, with some to spare.
pub const MAX_ALERTS: u64 = 20;
/// Kind of a test message. Other messages have the name of their alert's rule as their kind.
pub const TEST_MESSAGE: &str = "test";

impl Governed for Alert {
    type Object = AlertObject;
    type Settings = AlertPatch;

    fn value(&self, field: AlertField, _: Timestamp) -> Value {
        self.value(field)
    }

    /// Creates an alert once for each idempotency key. Earlier events are not reported.
    async fn create(
        by: Acting<'_>,
        settings: AlertPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Issued<Self>> {
        let Acting { management, account, actor: _ } = by;
        let now = management.later_than_the_last(management.clock.now());
        let id = AlertId::new(now, random_bytes(&*management.clock));
        Ok(management.make_alert(account, id, settings, idempotency_key).await?.into())
    }

    async fn fetch(by: Acting<'_>, id: AlertId) -> Acted<Self> {
        by.management.alert(by.account, id).await
    }

    async fn update(by: Acting<'_>, id: AlertId, patch: AlertPatch) -> Acted<Self> {
        let Acting { management, account, actor: _ } = by;
        let before = management.alert(account, id).await?;
        if patch.enabled != Some(false) {
            management.check_room_for_secret().await?;
        }
        let of = LastingParts { id, rule: before.rule, channel: before.channel };
        let change = management.checked(account, of, patch).await?;
        management.store.update_alert(account, id, &change).await
    }

    /// Removes an alert and its waiting messages.
    async fn end(Acting { management, account, actor: _ }: Acting<'_>, id: AlertId) -> Acted<Self> {
        management.store.delete_alert(account, id).await
    }
}

/// The parts of an alert that never change.
#[derive(Clone, Copy)]
struct LastingParts {
    id: AlertId,
    rule: Rule,
    channel: Channel,
}

impl Management {
    /// Creates an alert, once for each attempt with the same settings.
    pub async fn create_alert_once(
        &self,
        account: AccountId,
        settings: AlertPatch,
        attempt: &str,
    ) -> Result<Once<Alert>, Error<Refused>> {
        let Some(shown) = self.shown_at(attempt) else { return Ok(Once::Stale) };
        let to = settings.to.as_ref().map_or("", |to| to.expose_secret());
        let bytes = self.bytes_of_attempt("alert", account, attempt, &format!("{settings:?}\0{to}"));
        let id = |at| AlertId::new(at, bytes);
        let alerts = self.store.alerts(account).await?;
        if alerts.iter().any(|stored| stored.alert.id == id(stored.alert.id.created_at())) {
            return Ok(Once::Replayed);
        }
        let made = self.make_alert(account, id(shown), settings, None).await?;
        Ok(Once::New(made.into_inner()))
    }

    async fn make_alert(
        &self,
        account: AccountId,
        id: AlertId,
        settings: AlertPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Made<Alert>> {
        // Settings without a rule or a channel were refused when they were read.
        let missing = || StoreError::Conflict("an alert has no rule or no channel".to_owned());
        let (rule, channel) = settings.rule.zip(settings.channel).ok_or_else(missing)?;
        self.check_room_for_secret().await?;
        // Without an address in the settings, the address is empty, which only some channels allow.
        let to = settings.to.clone().unwrap_or_default();
        let settings = AlertPatch { to: Some(to.clone()), ..settings };
        let change = self.checked(account, LastingParts { id, rule, channel }, settings).await?;
        let address = change.address.clone().ok_or_else(missing)?;
        let now = self.clock.now();
        let blank = Alert {
            id,
            label: String::new(),
            rule,
            threshold: None,
            about: None,
            channel,
            address,
            interval_hours: None,
            enabled: true,
            created_at: now.to_whole_seconds(),
        };
        let alert = blank.with(&change);
        // The digest covers the whole address, not only what is shown of it.
        let request = digest_of_request("alert", |field| match field {
            AlertField::To => Value::Text(to.expose_secret().to_owned()),
            other => alert.value(other),
        });
        let attempt = attempt(idempotency_key, request, now);
        self.store.create_alert(account, alert, MAX_ALERTS, attempt).await
    }

    /// Checks settings of an alert, and seals the address.
    async fn checked(
        &self,
        account: AccountId,
        LastingParts { id, rule, channel }: LastingParts,
        settings: AlertPatch,
    ) -> Acted<AlertChange> {
        let bad = |fault| Error::Refused(Refused::BadAlert(fault));
        let AlertPatch { label, rule: _, threshold, about, channel: _, to, interval_hours, enabled } =
            settings;
        if threshold.flatten().is_some_and(|threshold| !rule.allows(threshold)) {
            return Err(bad(AlertFault::Threshold(rule)));
        }
        let about = match about {
            None => None,
            Some(None) => Some(None),
            Some(Some(_)) if rule.is_of_account() => return Err(bad(AlertFault::WholeAccount)),
            Some(Some(text)) => Some(Some(self.subject(account, &text).await?)),
        };
        let address = to.map(|to| self.address(id, channel, &to)).transpose()?;
        Ok(AlertChange { label, threshold, about, address, interval_hours, enabled })
    }

    /// Finds the key or group that an alert is to be about.
    async fn subject(&self, account: AccountId, text: &str) -> Acted<AlertSubject> {
        let unknown = Error::Refused(Refused::BadAlert(AlertFault::Unknown));
        let Some(subject) = AlertSubject::parse(text) else { return Err(unknown) };
        let whole = AccountReach::whole(account);
        let found = match subject {
            AlertSubject::Key(id) => self.key_in(whole, id).await.map(drop),
            AlertSubject::Group(id) => self.group_in(whole, id).await.map(drop),
            AlertSubject::Account(_) => return Err(unknown),
        };
        match found {
            Ok(()) => Ok(subject),
            Err(Error::Refused(_)) => Err(unknown),
            Err(cause @ Error::Store(_)) => Err(cause),
        }
    }

    fn address(&self, id: AlertId, channel: Channel, to: &SecretString) -> Acted<AlertAddress> {
        let bad = |fault| Error::Refused(Refused::BadAlert(fault));
        let destination = AlertDestination::parse(channel, to.expose_secret()).map_err(bad)?;
        match &destination {
            AlertDestination::Email(_) if !self.sends_mail => return Err(bad(AlertFault::NoMailServer)),
            AlertDestination::Url(url) => self.judge_address(url).map_err(|e| bad(AlertFault::Refused(e)))?,
            AlertDestination::Email(_) | AlertDestination::Webhooks => {}
        }
        Ok(self.credentials.seal(id, &destination, to, random_bytes(&*self.clock)))
    }

    /// Lists the account's alerts, oldest first.
    pub async fn alerts(&self, account: AccountId) -> Result<Vec<Alert>, StoreError> {
        let alerts = self.store.alerts(account).await?;
        Ok(alerts.into_iter().map(|stored| stored.alert).collect())
    }

    /// Finds an alert of the account.
    pub async fn alert(&self, account: AccountId, id: AlertId) -> Result<Alert, Error<Refused>> {
        let alerts = self.alerts(account).await?;
        let found = alerts.into_iter().find(|alert| alert.id == id);
        found.ok_or(Error::Refused(Refused::NotFound(Noun::Alert)))
    }

    /// Queues a test message of an alert, even a disabled one, and returns the alert. The message is sent once. An
    /// account gets at most one test a minute, even if it tests different alerts or recreates an alert.
    pub async fn test_alert(&self, account: AccountId, id: AlertId) -> Result<Alert, Error<Refused>> {
        self.check_room().await?;
        let alert = self.alert(account, id).await?;
        let now = self.clock.now();
        let test = match alert.channel {
            Channel::Webhook => {
                AlertTest::Event(self.act(Actor::System).event(0, None, None, test_of(&alert)))
            }
            Channel::Email | Channel::Slack | Channel::Teams => {
                let event = EventId::new(now, random_bytes(&*self.clock));
                AlertTest::Message(Delivery::new(event, None, TEST_MESSAGE.to_owned(), String::new(), now))
            }
        };
        let busy = |why| Err(Error::Store(StoreError::Busy(why)));
        match self.store.test_alert(account, id, &test, now).await? {
            AlertTestOutcome::Kept => Ok(alert),
            AlertTestOutcome::QueueFull => busy("the alert has too many waiting messages"),
            AlertTestOutcome::TestedLately => Err(Error::Refused(Refused::TestedLately)),
        }
    }

    /// Lists the latest attempts to send messages of an alert, newest first.
    pub async fn messages(&self, account: AccountId, id: AlertId) -> Result<Vec<Attempt>, Error<Refused>> {
        self.alert(account, id).await?;
        Ok(self.store.attempts(account, id).await?)
    }
}

/// Returns the event that tests an alert whose channel is the account's webhooks.
fn test_of(alert: &Alert) -> EventKind {
    EventKind::AlertRaised {
        alert_id: alert.id,
        label: alert.label.clone(),
        rule: TEST_MESSAGE.to_owned(),
        title: "This is a test.".to_owned(),
        text: "There is nothing to do.".to_owned(),
        url: None,
    }
}

#[async_trait]
impl Listed for Alert {
    type Id = AlertId;
    type Filter = ();
    const NAME: &'static str = "an alert";

    fn id(&self) -> AlertId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        listing.page_of(management.alerts(account).await?)
    }
}
