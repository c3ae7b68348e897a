//! Delivers events to webhooks, and messages of alerts. All key-services do so in parallel.
//!
//! Creating deliveries also advances the webhook's cursor, and each attempt is claimed in the store. So two
//! key-services never make the same attempt, and an attempt whose key-service has died becomes due again.

mod alerts;
mod connector;
#[cfg(test)]
mod fuzz;
mod places;
mod sender;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use shared::{
    clock::{Clock, random_bytes},
    ids::{AccountId, WebhookId},
    time::Timestamp,
};
use shared_observe::failure_log::Throttle;
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use alerts::{AlertParts, Alerts, BadMail, Mailer};
use places::Places;
pub use sender::Sender;

use domain::{
    alert::{Alert, Channel, MessageOutcome},
    event::{Act, Actor, EventSearch},
    webhook::{
        Attempt, Delivery, DeliveryOutcome, DisabledReason, ReceiverAnswer, StoredWebhook, Webhook,
        WebhookPatch, end_with_account,
    },
};
use key_service_credentials::Credentials;
use key_service_store::store::{Error, EventSlice, EventsPage, NumberedEvent, QueueId, Store, StoreError};

/// Pause between two checks for events and due deliveries. It limits how late a first attempt can be.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause between two checks for something that alerts report.
const CONSIDER_EVERY: Duration = Duration::from_secs(1);
/// Pause between two checks for webhooks of accounts that were closed a day ago.
const END_EVERY: Duration = Duration::from_mins(1);
/// Number of accounts that are checked at the same time.
const LOOKED_AT_ONCE: usize = 16;
/// Maximum number of an account's events that one check turns into deliveries, so that a busy account leaves time for
/// others.
const EVENTS_AT_ONCE: usize = 64;
/// Time after which a claimed delivery becomes due again: longer than it takes to make an attempt and record its
/// result.
const CLAIMED_FOR: Duration = Duration::from_secs(30);

/// What a delivery is for: a webhook or an alert.
#[derive(Clone)]
enum SendTarget {
    Webhook(Webhook),
    Alert(Alert),
}

impl SendTarget {
    fn queue(&self) -> QueueId {
        match self {
            Self::Webhook(webhook) => webhook.id.into(),
            Self::Alert(alert) => alert.id.into(),
        }
    }
}

pub struct Dispatcher {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    sender: Sender,
    alerts: Option<Alerts>,
    places: Places,
    looks: AtomicUsize,
    warned: Mutex<Throttle<AccountId>>,
    running: TaskTracker,
}

impl Dispatcher {
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        credentials: Arc<Credentials>,
        sender: Sender,
    ) -> Self {
        let (places, looks, warned) = (Places::default(), AtomicUsize::new(0), Mutex::default());
        let (alerts, running) = (None, TaskTracker::new());
        Self { store, clock, credentials, sender, alerts, places, looks, warned, running }
    }

    /// Considers alerts as well.
    #[must_use]
    pub fn with_alerts(self, alerts: Alerts) -> Self {
        Self { alerts: Some(alerts), ..self }
    }

    /// Delivers events until `shutdown`, then waits for the running attempts.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let looking = async {
            loop {
                self.look().await;
                sleep(LOOK_EVERY).await;
            }
        };
        // Sums may take seconds to read, and must not delay deliveries.
        let considering = async {
            loop {
                self.consider_alerts().await;
                sleep(CONSIDER_EVERY).await;
            }
        };
        let ending = async {
            loop {
                self.end_webhooks().await;
                sleep(END_EVERY).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = looking => {}
            () = considering => {}
            () = ending => {}
        }
        self.running.close();
        self.running.wait().await;
    }

    /// Checks all accounts that have webhooks or alerts, once.
    async fn look(self: &Arc<Self>) {
        match self.store.accounts_with_webhooks().await {
            Ok(accounts) => {
                let look = self.looks.fetch_add(1, Ordering::Relaxed);
                let accounts = self.places.accounts_in_turn(accounts).into_iter();
                let looks = accounts.map(|account| self.look_at(account, look));
                stream::iter(looks).buffer_unordered(LOOKED_AT_ONCE).collect::<()>().await;
            }
            Err(error) => tracing::debug!(%error, "cannot list the accounts with webhooks; trying again"),
        }
    }

    /// Considers the alerts of all accounts, once.
    async fn consider_alerts(&self) {
        let Some(alerts) = &self.alerts else { return };
        let Ok(accounts) = self.store.accounts_with_webhooks().await else { return };
        let looks = accounts.into_iter().map(async |account| {
            if let Err(error) = alerts.consider(account).await
                && self.warned.lock().passes(account, Instant::now())
            {
                tracing::warn!(%account, %error, "cannot consider alerts; trying again");
            }
        });
        stream::iter(looks).buffer_unordered(LOOKED_AT_ONCE).collect::<()>().await;
    }

    /// Disables the webhooks of accounts that were closed a day ago.
    async fn end_webhooks(&self) {
        let Ok(accounts) = self.store.accounts_with_webhooks().await else { return };
        let looks = accounts.into_iter().map(async |account| {
            if let Err(error) = self.end_webhooks_of(account).await
                && self.warned.lock().passes(account, Instant::now())
            {
                tracing::warn!(%account, %error, "cannot disable the webhooks of a closed account; trying again");
            }
        });
        stream::iter(looks).buffer_unordered(LOOKED_AT_ONCE).collect::<()>().await;
    }

    async fn end_webhooks_of(&self, account: AccountId) -> Result<(), StoreError> {
        let closed_at = self.store.standing(account).await?.and_then(|standing| standing.closed_at);
        let now = self.clock.now();
        if !closed_at.is_some_and(|at| end_with_account(at, now)) {
            return Ok(());
        }
        let webhooks = self.store.webhooks(account).await?.into_iter();
        for stored in webhooks.filter(|stored| stored.webhook.disabled.is_none()) {
            self.disable(account, stored.webhook.id, DisabledReason::AccountClosed, now).await?;
        }
        Ok(())
    }

    async fn look_at(self: &Arc<Self>, account: AccountId, look: usize) {
        if let Err(error) = self.deliver(account, look).await
            && self.warned.lock().passes(account, Instant::now())
        {
            tracing::warn!(%account, %error, "cannot deliver events; trying again");
        }
    }

    /// Creates deliveries for some new events, and starts due attempts.
    async fn deliver(self: &Arc<Self>, account: AccountId, look: usize) -> Result<(), StoreError> {
        let webhooks = self.store.webhooks(account).await?;
        let last = self.store.events(account, EventSearch::default(), EventSlice::latest(1)).await?.found;
        let last = last.first().map_or(0, |event| event.number);
        if let Some(after) = page_of_look(&webhooks, last, look) {
            self.fan_out(account, &webhooks, after).await?;
        }
        let mut targets: Vec<SendTarget> =
            webhooks.into_iter().map(|StoredWebhook { webhook, .. }| SendTarget::Webhook(webhook)).collect();
        if self.alerts.is_some() {
            let alerts = self.store.alerts(account).await?.into_iter().map(|stored| stored.alert);
            // An alert whose channel is webhooks is sent to them as an event, so the alert itself has no queue.
            let have_queues = alerts.filter(|alert| alert.channel != Channel::Webhook);
            targets.extend(have_queues.map(SendTarget::Alert));
        }
        let mut targets: HashMap<_, _> = targets.into_iter().map(|target| (target.queue(), target)).collect();
        let mut outcome = Ok(());
        for id in self.places.webhooks_in_turn(account, targets.keys().copied().collect()) {
            // A queue that cannot be read does not hold up the others.
            if let Some(target) = targets.remove(&id)
                && let Err(error) = self.begin_attempts(account, target).await
            {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Creates deliveries from the page of events after `after`, for each webhook whose next event is on that page.
    /// Skips webhooks without room, and webhooks that another key-service has already handled.
    async fn fan_out(
        &self,
        account: AccountId,
        webhooks: &[StoredWebhook],
        after: u64,
    ) -> Result<(), StoreError> {
        let EventsPage { events, gone_until } =
            self.store.events_after(account, after, EVENTS_AT_ONCE).await?;
        let end = events.last().map_or(gone_until, |event| event.number);
        let now = self.clock.now();
        let delivery = |event: &NumberedEvent| {
            let (id, kind) = (event.event.id, event.event.kind.as_str().to_owned());
            Delivery::new(id, Some(event.number), kind, event.event.to_json(), now)
        };
        let page: Vec<Delivery> = events.iter().map(delivery).collect();
        for seen in webhooks.iter().filter(|seen| seen.is_behind(end) && seen.cursor >= after) {
            let is_new = |delivery: &&Delivery| delivery.number > Some(seen.cursor);
            let wanted = page.iter().filter(is_new).filter(|delivery| seen.webhook.wants(&delivery.kind));
            self.store.fan_out(account, seen.clone(), end, wanted.cloned().collect()).await?;
        }
        Ok(())
    }

    async fn begin_attempts(
        self: &Arc<Self>,
        account: AccountId,
        target: SendTarget,
    ) -> Result<(), StoreError> {
        let places = self.places.take(account, target.queue());
        if places.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let until = now.plus(CLAIMED_FOR);
        let claimed = self.store.claim_deliveries(account, target.queue(), now, until, places.len()).await?;
        for (delivery, place) in claimed.into_iter().zip(places) {
            let (dispatcher, target) = (Arc::clone(self), target.clone());
            self.running.spawn(async move {
                if let Err(error) = dispatcher.attempt(account, target, delivery).await {
                    tracing::warn!(%account, %error, "cannot record a delivery's result; it will be sent again");
                }
                drop(place);
            });
        }
        Ok(())
    }

    /// Makes an attempt and records the result.
    async fn attempt(
        &self,
        account: AccountId,
        target: SendTarget,
        delivery: Delivery,
    ) -> Result<(), StoreError> {
        let (at, began) = (self.clock.now(), Instant::now());
        let answer = self.send(&target, &delivery, at).await;
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (event, kind, now) = (delivery.event, delivery.kind.clone(), self.clock.now());
        let (next, ends) = self.next(&target, &delivery, &answer);
        let attempt = Attempt { event, kind, at, milliseconds, answer };
        let is_last = self.store.finish_delivery(account, target.queue(), delivery, &attempt, next).await?;
        match (&target, ends.filter(|_| is_last)) {
            (SendTarget::Webhook(webhook), Some(reason)) => {
                self.disable(account, webhook.id, reason, now).await
            }
            (SendTarget::Webhook(_) | SendTarget::Alert(_), _) => Ok(()),
        }
    }

    async fn disable(
        &self,
        account: AccountId,
        webhook: WebhookId,
        reason: DisabledReason,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let patch = WebhookPatch { disabled: Some(Some(reason)), ..WebhookPatch::default() };
        let act = Act { actor: Actor::System, at: now, chance: random_bytes(&*self.clock) };
        match self.store.update_webhook(account, webhook, patch, &act).await {
            Ok(_) => {
                metrics::counter!("keyservice_webhooks_disabled_total").increment(1);
                tracing::warn!(%account, %webhook, reason = reason.as_str(), "a webhook is disabled");
                Ok(())
            }
            // The webhook was removed in the meantime.
            Err(Error::Refused(_)) => Ok(()),
            Err(Error::Store(cause)) => Err(cause),
        }
    }

    async fn send(&self, target: &SendTarget, delivery: &Delivery, at: Timestamp) -> ReceiverAnswer {
        match (target, &self.alerts) {
            (SendTarget::Webhook(webhook), _) => match self.credentials.secret_of(webhook) {
                Some(secret) => self.sender.send(&webhook.url, &secret, delivery, at).await,
                None => ReceiverAnswer::None("the secret was made with another pepper".into()),
            },
            (SendTarget::Alert(alert), Some(alerts)) => alerts.send(&self.sender, alert, delivery).await,
            (SendTarget::Alert(_), None) => ReceiverAnswer::None("this key-service sends no alerts".into()),
        }
    }

    /// Decides when the next attempt is due after an answer, and whether the webhook is to be disabled.
    fn next(
        &self,
        target: &SendTarget,
        delivery: &Delivery,
        answer: &ReceiverAnswer,
    ) -> (Option<Timestamp>, Option<DisabledReason>) {
        let (now, chance) = (self.clock.now(), u16::from_le_bytes(random_bytes(&*self.clock)));
        match target {
            SendTarget::Webhook(_) => {
                count(answer);
                match delivery.outcome(answer, now, chance) {
                    DeliveryOutcome::Done => (None, None),
                    DeliveryOutcome::Again(next) => (Some(next), None),
                    // If this process dies before it disables the webhook, another attempt makes the decision again.
                    DeliveryOutcome::Disable(reason) => (Some(now.plus(CLAIMED_FOR)), Some(reason)),
                }
            }
            SendTarget::Alert(alert) => {
                alerts::count(alert, answer);
                match alert.outcome(delivery, answer, now, chance) {
                    MessageOutcome::Sent => (None, None),
                    MessageOutcome::Again(next) => (Some(next), None),
                    MessageOutcome::Dropped => {
                        alerts::dropped();
                        (None, None)
                    }
                }
            }
        }
    }
}

/// Returns the number of the event that precedes this check's page. Webhooks that are at different events take turns.
fn page_of_look(webhooks: &[StoredWebhook], last: u64, look: usize) -> Option<u64> {
    let behind = webhooks.iter().filter(|stored| stored.is_behind(last));
    let cursors: BTreeSet<u64> = behind.map(|stored| stored.cursor).collect();
    cursors.iter().nth(look.checked_rem(cursors.len())?).copied()
}

fn count(answer: &ReceiverAnswer) {
    let result = match answer {
        ReceiverAnswer::Status(200..=299) => "delivered",
        ReceiverAnswer::Status(_) => "refused",
        ReceiverAnswer::None(_) => "no_answer",
    };
    metrics::counter!("keyservice_webhook_attempts_total", "result" => result).increment(1);
}
