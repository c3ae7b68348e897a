//! Alerts of accounts. Their messages wait in the queues that webhooks have too.

use ::records::Write;
use key_service_ledger::{
    Change, StoreError, names,
    names::RecordName,
    stored::{AlertRecord, IdList, LastAlertTest, PendingDeliveries},
    view::View,
};
use shared::{
    ids::{AccountId, AlertId},
    time::Timestamp,
    wire::Noun,
};

use crate::{
    data::Idempotency,
    error::Error,
    store::{
        accounts::insert_id,
        base::Store,
        idempotency::OnceRequest,
        layout,
        webhooks::records::{attempts, delivery, pending, unreadable, write_delivery, write_pending},
    },
};
use domain::{
    alert::{Alert, AlertAddress, AlertChange, BETWEEN_TESTS, MAX_PENDING_MESSAGES, StoredAlert},
    event::Event,
    governed::{Made, Refused},
    webhook::Delivery,
};

/// What an alert reports: an event, and a message unless the event itself is the message.
#[derive(Clone, Debug)]
pub struct Raised {
    pub event: Event,
    pub message: Option<Delivery>,
}

/// Outcome of [`Store::raise_alert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaiseOutcome {
    Kept,
    /// The event is kept, and the message is dropped because too many wait.
    QueueFull,
    /// The alert has changed since it was read, or the account is suspended or closed, so nothing is kept.
    Changed,
}

/// How an alert is tested: by an event for the account's webhooks, or by a message.
#[derive(Clone, Debug)]
pub enum AlertTest {
    Event(Event),
    Message(Delivery),
}

/// Outcome of [`Store::test_alert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertTestOutcome {
    Kept,
    /// Nothing is kept, because too many messages wait.
    QueueFull,
    /// Nothing is kept, because an alert of the account was tested less than [`BETWEEN_TESTS`] ago.
    TestedLately,
}

impl Store {
    /// Creates an alert in an existing account with fewer than `most` alerts, unless the idempotency key is in use;
    /// repeating this changes nothing. Earlier events are not reported.
    pub async fn create_alert(
        &self,
        account: AccountId,
        new: Alert,
        most: u64,
        idempotency: Option<Idempotency>,
    ) -> Result<Made<Alert>, Error<Refused>> {
        // The account is listed first: a listed account may have no alerts, but an account with alerts must be listed.
        self.list_webhook_account(account).await?;
        let attempt = OnceRequest { account, makes: *new.id.as_bytes(), idempotency };
        self.make_once(attempt, made, |change| create(change, account, &new, most)).await
    }

    /// Lists the account's alerts, oldest first.
    pub async fn alerts(&self, account: AccountId) -> Result<Vec<StoredAlert>, StoreError> {
        let space = layout::space(account);
        let listed = self.read().get::<IdList<AlertId>>(&space, list()).await?.unwrap_or_default();
        let names = listed.ids.iter().map(|id| alert(*id)).collect();
        let found = self.read().get_all(&space, names).await?;
        // An alert removed in the meantime is absent.
        let found = listed.ids.into_iter().zip(found);
        Ok(found.filter_map(|(id, found)| Some(read_alert(id, found?))).collect())
    }

    /// Changes an alert. Once it is enabled again, it considers only later events.
    pub async fn update_alert(
        &self,
        account: AccountId,
        id: AlertId,
        patch: &AlertChange,
    ) -> Result<Alert, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let last = last_event(change)?;
                let before = found(change, id)?;
                let is_enabled = patch.enabled == Some(true) && !before.alert.enabled;
                let cursor = if is_enabled { last } else { before.cursor };
                let after = StoredAlert { alert: before.alert.with(patch), cursor, ..before };
                change.put(&alert(id), write_alert(&after));
                Ok(after.alert)
            })
            .await
    }

    /// Removes an alert with its messages and attempts, and returns it.
    pub async fn delete_alert(&self, account: AccountId, id: AlertId) -> Result<Alert, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let waiting = change.get::<PendingDeliveries>(&pending(id))?.unwrap_or_default();
                let mut listed = change.get::<IdList<AlertId>>(&list())?.unwrap_or_default();
                let before = found(change, id)?;
                listed.ids.retain(|other| *other != id);
                change.put(&list(), listed);
                change.remove(&alert(id));
                change.remove(&attempts(id));
                for waiting in &waiting.deliveries {
                    change.write(Write::Remove(delivery(id, waiting.event).into()));
                }
                change.remove(&pending(id));
                Ok(before.alert)
            })
            .await
    }

    /// Remembers what has been considered for an alert, unless the alert has changed since `seen`. So if two
    /// key-services consider the same events, only one of them reports the events. Returns whether this was remembered.
    pub async fn consider_alert(
        &self,
        account: AccountId,
        seen: &StoredAlert,
        after: &StoredAlert,
    ) -> Result<bool, StoreError> {
        let id = seen.alert.id;
        self.note(&layout::space(account), |view| {
            let is_unchanged = is_unchanged(view, seen)?;
            if is_unchanged {
                view.put(&alert(id), write_alert(after));
            }
            Ok(is_unchanged)
        })
        .await
    }

    /// Remembers what has been considered for an alert, and writes what it reports. A suspended or closed account
    /// reports nothing.
    pub async fn raise_alert(
        &self,
        account: AccountId,
        seen: &StoredAlert,
        after: &StoredAlert,
        raised: &Raised,
    ) -> Result<RaiseOutcome, StoreError> {
        let id = seen.alert.id;
        self.lanes
            .change(account, |change| {
                let waiting = change.get::<PendingDeliveries>(&pending(id))?;
                let is_active = change.account()?.is_some_and(|account| account.standing.is_none());
                if !is_unchanged(change, seen)? || !is_active {
                    return Ok(RaiseOutcome::Changed);
                }
                change.put(&alert(id), write_alert(after));
                change.event(raised.event.clone());
                let Some(message) = &raised.message else { return Ok(RaiseOutcome::Kept) };
                let is_queued = queue(change, id, waiting.unwrap_or_default(), message);
                Ok(if is_queued { RaiseOutcome::Kept } else { RaiseOutcome::QueueFull })
            })
            .await
    }

    /// Tests an alert, and remembers that an alert of the account was tested.
    pub async fn test_alert(
        &self,
        account: AccountId,
        id: AlertId,
        test: &AlertTest,
        at: Timestamp,
    ) -> Result<AlertTestOutcome, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let waiting = change.get::<PendingDeliveries>(&pending(id))?;
                let last = change.get::<LastAlertTest>(&last_test())?;
                found(change, id)?;
                if last.is_some_and(|last| last.at.plus(BETWEEN_TESTS) > at) {
                    return Ok(AlertTestOutcome::TestedLately);
                }
                match test {
                    AlertTest::Event(event) => change.event(event.clone()),
                    AlertTest::Message(message) => {
                        if !queue(change, id, waiting.unwrap_or_default(), message) {
                            return Ok(AlertTestOutcome::QueueFull);
                        }
                    }
                }
                change.put(&last_test(), LastAlertTest { at });
                Ok(AlertTestOutcome::Kept)
            })
            .await
    }
}

/// Creates an alert in an account with fewer than `most` others; repeating this changes nothing.
fn create(
    change: &mut Change<'_>,
    account: AccountId,
    new: &Alert,
    most: u64,
) -> Result<Made<Alert>, Error<Refused>> {
    if change.account()?.is_none() {
        return Err(StoreError::no_account(account).into());
    }
    let (id, cursor) = (new.id, last_event(change)?);
    let mut listed = change.get::<IdList<AlertId>>(&list())?.unwrap_or_default();
    let others = listed.ids.iter().filter(|other| **other != id).count();
    if others as u64 >= most {
        return Err(Refused::TooMany(Noun::Alert, most).into());
    }
    if others == listed.ids.len() {
        insert_id(&mut listed, id);
        change.put(&list(), listed);
        change.presume_absent(&alert(id));
        let stored = StoredAlert { alert: new.clone(), cursor, looked_at: None, reported: Vec::new() };
        change.put(&alert(id), write_alert(&stored));
    }
    Ok(Made::New(new.clone()))
}

/// Finds the alert that a request created. It may have been removed since; repeating the request does not create
/// another.
fn made(change: &mut Change<'_>, id: [u8; 16]) -> Result<Alert, Error<Refused>> {
    let id = AlertId::from_slice(&id).ok_or_else(|| unreadable("an idempotency key"))?;
    Ok(found(change, id)?.alert)
}

fn found(change: &mut Change<'_>, id: AlertId) -> Result<StoredAlert, Error<Refused>> {
    let found = change.get::<AlertRecord>(&alert(id))?;
    Ok(read_alert(id, found.ok_or(Refused::NotFound(Noun::Alert))?))
}

fn last_event(change: &mut Change<'_>) -> Result<u64, StoreError> {
    Ok(change.get(&names::account())?.map_or(0, |account| account.events))
}

fn is_unchanged(view: &mut View, seen: &StoredAlert) -> Result<bool, StoreError> {
    let found = view.get::<AlertRecord>(&alert(seen.alert.id))?;
    Ok(found.is_some_and(|found| read_alert(seen.alert.id, found) == *seen))
}

/// Adds a message that is due at once, unless too many wait. Returns whether it is added.
fn queue(view: &mut View, id: AlertId, mut waiting: PendingDeliveries, message: &Delivery) -> bool {
    if waiting.deliveries.len() >= MAX_PENDING_MESSAGES {
        return false;
    }
    waiting.deliveries.push(write_pending(message));
    let name = delivery(id, message.event);
    view.presume_absent(&name);
    view.put(&name, write_delivery(message));
    view.put(&pending(id), waiting);
    true
}

fn write_alert(StoredAlert { alert, cursor, looked_at, reported }: &StoredAlert) -> AlertRecord {
    let Alert { id: _, label, rule, threshold, about, channel, address, .. } = alert.clone();
    let AlertAddress { shown, sealed } = address;
    let Alert { interval_hours, enabled, created_at, .. } = *alert;
    let (cursor, looked_at, reported) = (*cursor, *looked_at, reported.clone());
    AlertRecord {
        label,
        rule,
        threshold,
        about,
        channel,
        shown,
        sealed,
        interval_hours,
        enabled,
        created_at,
        cursor,
        looked_at,
        reported,
    }
}

fn read_alert(id: AlertId, record: AlertRecord) -> StoredAlert {
    let AlertRecord {
        label, rule, threshold, about, channel, shown, sealed, interval_hours, enabled, ..
    } = record;
    let (created_at, cursor, looked_at) = (record.created_at, record.cursor, record.looked_at);
    let address = AlertAddress { shown, sealed };
    let alert =
        Alert { id, label, rule, threshold, about, channel, address, interval_hours, enabled, created_at };
    StoredAlert { alert, cursor, looked_at, reported: record.reported }
}

/// Names the list of an account's alerts.
fn list() -> RecordName<IdList<AlertId>> {
    layout::name(layout::ALERTS, *b"l")
}

fn alert(id: AlertId) -> RecordName<AlertRecord> {
    layout::name(layout::ALERTS, layout::tagged(b'a', id.as_bytes()))
}

/// Names the record of the account's last test of an alert.
fn last_test() -> RecordName<LastAlertTest> {
    layout::name(layout::ALERTS, *b"t")
}
