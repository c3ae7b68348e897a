//! Deliveries of events to webhooks, by every key-service side by side.
//!
//! Events become deliveries together with the webhook's cursor, and each attempt is claimed in the store. So no two
//! key-services make the same attempt, and what a dead one had begun falls due again.

mod connector;
mod sender;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use shared::{
    clock::{Clock, random_bytes},
    ids::{AccountId, WebhookId},
};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use sender::Sender;

use crate::{
    credentials::Credentials,
    store::{EventSlice, EventsPage, NumberedEvent, Store, StoreError},
    sweeper::Throttle,
};
use domain::{
    event::{Act, Actor, EventSearch},
    webhook::{Answer, Attempt, Delivery, Outcome, StoredWebhook, Webhook, WebhookPatch},
};

/// Pause between two looks for events and due deliveries. Bounds the time until a first attempt.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Accounts looked at at once.
const LOOKED_AT_ONCE: usize = 16;
/// Events that become deliveries in one step.
const EVENTS_AT_ONCE: usize = 64;
/// Attempts under way in this process: each has a connection of its own.
const MAX_ATTEMPTS: usize = 64;
/// Attempts of one webhook under way in this process, so that slow receivers leave places to others.
const MAX_ATTEMPTS_OF_A_WEBHOOK: usize = 4;
/// Time after which a claimed delivery falls due again: beyond an attempt, and the writing of its end.
const CLAIMED_FOR: Duration = Duration::from_secs(30);

/// Sends the events of all accounts.
pub(crate) struct Dispatcher {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    sender: Sender,
    /// Attempts under way by webhook.
    attempts: Arc<Mutex<HashMap<WebhookId, usize>>>,
    warned: Mutex<Throttle<AccountId>>,
    running: TaskTracker,
}

/// A place for an attempt, given back when dropped.
struct Place {
    attempts: Arc<Mutex<HashMap<WebhookId, usize>>>,
    webhook: WebhookId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut attempts = self.attempts.lock();
        if let Some(count) = attempts.get_mut(&self.webhook) {
            *count -= 1;
        }
        attempts.retain(|_, count| *count > 0);
    }
}

impl Dispatcher {
    /// A dispatcher of the events in this store.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        credentials: Arc<Credentials>,
        sender: Sender,
    ) -> Self {
        let (attempts, warned) = (Arc::default(), Mutex::default());
        Self { store, clock, credentials, sender, attempts, warned, running: TaskTracker::new() }
    }

    /// Delivers until `shutdown`, and then ends the attempts under way.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let looking = async {
            loop {
                self.look().await;
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = looking => {}
        }
        self.running.close();
        self.running.wait().await;
    }

    /// Looks once at all accounts that have webhooks.
    async fn look(self: &Arc<Self>) {
        match self.store.accounts_with_webhooks().await {
            Ok(accounts) => {
                let looks = accounts.into_iter().map(|account| self.look_at(account));
                stream::iter(looks).buffer_unordered(LOOKED_AT_ONCE).collect::<()>().await;
            }
            Err(error) => tracing::debug!(%error, "cannot list the accounts with webhooks; trying again"),
        }
    }

    async fn look_at(self: &Arc<Self>, account: AccountId) {
        if let Err(error) = self.deliver(account).await
            && self.warned.lock().passes(account, Instant::now())
        {
            tracing::warn!(%account, %error, "cannot deliver events; trying again");
        }
    }

    /// Makes deliveries of new events, and begins the attempts that are due.
    async fn deliver(self: &Arc<Self>, account: AccountId) -> Result<(), StoreError> {
        let webhooks = self.store.webhooks(account).await?;
        let last = self.store.events(account, EventSearch::default(), EventSlice::latest(1)).await?.found;
        let last = last.first().map_or(0, |event| event.number);
        for mut stored in webhooks {
            while stored.webhook.disabled.is_none() && stored.cursor < last {
                match self.fan_out(account, stored.clone()).await? {
                    Some(cursor) => stored.cursor = cursor,
                    None => break,
                }
            }
            self.begin_attempts(account, stored.webhook).await?;
        }
        Ok(())
    }

    /// Makes deliveries of the next events, and returns the cursor behind them. `None` where there is no room, or another
    /// key-service was first.
    async fn fan_out(&self, account: AccountId, seen: StoredWebhook) -> Result<Option<u64>, StoreError> {
        let EventsPage { events, gone_until } =
            self.store.events_after(account, seen.cursor, EVENTS_AT_ONCE).await?;
        let cursor = events.last().map_or(gone_until, |event| event.number).max(seen.cursor);
        let now = self.clock.now();
        let wanted = events.into_iter().filter(|event| seen.webhook.wants(event.event.kind.as_str()));
        let delivery = |event: NumberedEvent| {
            let (id, kind) = (event.event.id, event.event.kind.as_str().to_owned());
            Delivery::new(id, Some(event.number), kind, event.event.to_json(), now)
        };
        let deliveries = wanted.map(delivery).collect();
        let moves = cursor > seen.cursor && self.store.fan_out(account, seen, cursor, deliveries).await?;
        Ok(moves.then_some(cursor))
    }

    async fn begin_attempts(
        self: &Arc<Self>,
        account: AccountId,
        webhook: Webhook,
    ) -> Result<(), StoreError> {
        let places = self.places(webhook.id);
        if places.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let until = now.plus(CLAIMED_FOR);
        let claimed = self.store.claim_deliveries(account, webhook.id, (now, until), places.len()).await?;
        for (delivery, place) in claimed.into_iter().zip(places) {
            let (dispatcher, webhook) = (Arc::clone(self), webhook.clone());
            self.running.spawn(async move {
                if let Err(error) = dispatcher.attempt(account, webhook, delivery).await {
                    tracing::warn!(%account, %error, "the end of a delivery is not written; it is repeated");
                }
                drop(place);
            });
        }
        Ok(())
    }

    /// Takes the places that a webhook may have more.
    fn places(&self, webhook: WebhookId) -> Vec<Place> {
        let mut attempts = self.attempts.lock();
        let free = MAX_ATTEMPTS - attempts.values().sum::<usize>();
        let taken = attempts.entry(webhook).or_default();
        let more = free.min(MAX_ATTEMPTS_OF_A_WEBHOOK - *taken);
        *taken += more;
        (0..more).map(|_| Place { attempts: Arc::clone(&self.attempts), webhook }).collect()
    }

    /// Makes an attempt, and writes what follows.
    async fn attempt(
        &self,
        account: AccountId,
        webhook: Webhook,
        delivery: Delivery,
    ) -> Result<(), StoreError> {
        let (at, began) = (self.clock.now(), Instant::now());
        let answer = match self.credentials.secret_of(&webhook) {
            Some(secret) => self.sender.send(&webhook.url, &secret, &delivery, at).await,
            None => Answer::None("the secret was made with another pepper".into()),
        };
        let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.now();
        let outcome = delivery.outcome(&answer, now, u16::from_le_bytes(random_bytes(&*self.clock)));
        count(&answer);
        let (event, kind) = (delivery.event, delivery.kind.clone());
        let (next, ends) = match outcome {
            Outcome::Done => (None, None),
            Outcome::Again(next) => (Some(next), None),
            // Should this process die before the webhook is disabled, another attempt decides anew.
            Outcome::Disable(reason) => (Some(now.plus(CLAIMED_FOR)), Some(reason)),
        };
        let attempt = Attempt { event, kind, at, milliseconds, answer };
        let is_last = self.store.finish_delivery(account, webhook.id, delivery, (attempt, next)).await?;
        if let Some(reason) = ends.filter(|_| is_last) {
            let patch = WebhookPatch { disabled: Some(Some(reason)), ..WebhookPatch::default() };
            let act = Act { actor: Actor::System, at: now, chance: random_bytes(&*self.clock) };
            self.store.update_webhook(account, webhook.id, patch, &act).await?;
            metrics::counter!("keyservice_webhooks_disabled_total").increment(1);
            tracing::warn!(%account, webhook = %webhook.id, reason = reason.as_str(), "a webhook is disabled");
        }
        Ok(())
    }
}

/// Counts an attempt.
fn count(answer: &Answer) {
    let result = match answer {
        Answer::Status(200..=299) => "delivered",
        Answer::Status(_) => "refused",
        Answer::None(_) => "no_answer",
    };
    metrics::counter!("keyservice_webhook_attempts_total", "result" => result).increment(1);
}
