//! Webhooks: URLs that receive an account's events, and the schedule of delivery attempts.

mod address;
mod signature;

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    backoff::jittered,
    ids::{EventId, WebhookId},
    time::Timestamp,
    wire::{Kept, Value, WebhookField},
};

pub use address::{AddressRefused, BadUrl, Host, WebhookUrl, may_connect};
pub use signature::WebhookSecret;

use crate::{
    credentials::digest::Digest,
    event::EventKind,
    settings::{Patch, keep},
};

/// Pause before the second attempt. Each further pause is twice as long as the previous pause.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// A delivery that has not succeeded this long after its first attempt is abandoned, and the webhook is disabled.
const GIVEN_UP_AFTER: Duration = Duration::from_hours(24);
/// Maximum number of pending deliveries per webhook. Later events wait in the account's log.
pub const MAX_PENDING_DELIVERIES: usize = 256;
/// Number of a webhook's latest attempts that are kept.
pub const KEPT_ATTEMPTS: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Ids sort by time of creation.
    pub id: WebhookId,
    pub url: WebhookUrl,
    /// Types of the events to send; `None` means all types.
    pub types: Option<Vec<String>>,
    /// Digest of the secret. It shows which pepper the secret was derived from.
    pub secret: Digest,
    pub created_at: Timestamp,
    pub disabled: Option<(Timestamp, DisabledReason)>,
}

/// Why a webhook is disabled, so that nothing is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum DisabledReason {
    /// An owner disabled the webhook.
    #[n(0)]
    Owner,
    /// An event could not be delivered for 24 hours.
    #[n(1)]
    Failing,
    #[n(2)]
    Gone,
    /// The account was closed 24 hours ago.
    #[n(3)]
    AccountClosed,
}

/// A webhook, and the number of the last event for which it was decided whether to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWebhook {
    pub webhook: Webhook,
    pub cursor: u64,
}

/// A change to a webhook: `None` keeps a setting, inner `None` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookPatch {
    pub url: Option<WebhookUrl>,
    pub types: Option<Option<Vec<String>>>,
    /// Why the webhook is disabled; inner `None` enables it again.
    pub disabled: Option<Option<DisabledReason>>,
}

/// An event that is being delivered to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Id of the event. Receivers use it to recognise repeated deliveries.
    pub event: EventId,
    /// Number of the event in the account; `None` for a test event, which the account does not record.
    pub number: Option<u64>,
    pub kind: String,
    pub body: String,
    pub created_at: Timestamp,
    /// Number of attempts that have begun, including the running attempt. An attempt counts as running until the next
    /// one begins.
    pub attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Attempt {
    #[n(0)]
    pub event: EventId,
    #[n(1)]
    pub kind: String,
    #[n(2)]
    pub at: Timestamp,
    #[n(3)]
    pub milliseconds: u64,
    #[n(4)]
    pub answer: ReceiverAnswer,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum ReceiverAnswer {
    #[n(0)]
    Status(#[n(0)] u16),
    /// Why there was no response.
    #[n(1)]
    None(#[n(0)] String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Nothing more is sent: the event has arrived, or it was a test.
    Done,
    /// Another attempt is due at this time.
    Again(Timestamp),
    Disable(DisabledReason),
}

shared::names! {
    DisabledReason: Owner = "owner", Failing = "failing", Gone = "gone", AccountClosed = "account_closed"
}

impl Patch for WebhookPatch {
    type Field = WebhookField;

    fn set(&mut self, field: WebhookField, value: Value) -> bool {
        match field {
            WebhookField::Url => {
                self.url = String::from_value(value).and_then(|url| WebhookUrl::parse(&url).ok());
                self.url.is_some()
            }
            WebhookField::Types => keep(&mut self.types, value),
            WebhookField::Enabled => {
                let enabled = bool::from_value(value);
                self.disabled = enabled.map(|enabled| (!enabled).then_some(DisabledReason::Owner));
                self.disabled.is_some()
            }
            WebhookField::CreatedAt | WebhookField::DisabledAt | WebhookField::DisabledReason => false,
        }
    }
}

/// Returns whether the webhooks of an account that was closed at this time end now. They work for another day, so that
/// what happened before is delivered.
pub fn end_with_account(closed_at: Timestamp, now: Timestamp) -> bool {
    closed_at.plus(GIVEN_UP_AFTER) <= now
}

impl Webhook {
    pub fn value(&self, field: WebhookField) -> Value {
        match field {
            WebhookField::Url => self.url.as_str().to_owned().to_value(),
            WebhookField::Types => self.types.to_value(),
            WebhookField::Enabled => self.disabled.is_none().to_value(),
            WebhookField::CreatedAt => self.created_at.to_value(),
            WebhookField::DisabledAt => self.disabled.map(|(at, _)| at).to_value(),
            WebhookField::DisabledReason => {
                self.disabled.map(|(_, reason)| reason.as_str().to_owned()).to_value()
            }
        }
    }

    /// Returns whether events of this type are sent to the webhook.
    pub fn wants(&self, kind: &str) -> bool {
        self.types.as_ref().is_none_or(|types| types.iter().any(|wanted| wanted == kind))
    }

    #[must_use]
    pub fn with(mut self, patch: &WebhookPatch, now: Timestamp) -> Self {
        if let Some(url) = &patch.url {
            self.url.clone_from(url);
        }
        if let Some(types) = &patch.types {
            self.types.clone_from(types);
        }
        match patch.disabled {
            Some(Some(reason)) => drop(self.disabled.get_or_insert((now, reason))),
            Some(None) => self.disabled = None,
            None => {}
        }
        self
    }
}

impl Delivery {
    pub fn new(event: EventId, number: Option<u64>, kind: String, body: String, now: Timestamp) -> Self {
        Self { event, number, kind, body, created_at: now, attempts: 0 }
    }

    /// Decides what to do after this answer to the running attempt. `chance` is a random number that varies the pause
    /// before the next attempt.
    pub fn outcome(&self, answer: &ReceiverAnswer, now: Timestamp, chance: u16) -> DeliveryOutcome {
        match answer {
            ReceiverAnswer::Status(200..=299) => DeliveryOutcome::Done,
            ReceiverAnswer::Status(410) => DeliveryOutcome::Disable(DisabledReason::Gone),
            // A test is sent only once: its purpose is to show the answer.
            ReceiverAnswer::Status(_) | ReceiverAnswer::None(_) if self.number.is_none() => {
                DeliveryOutcome::Done
            }
            ReceiverAnswer::Status(_) | ReceiverAnswer::None(_) => {
                let at = now.plus(jittered(step(self.attempts), chance));
                let is_late = at > self.created_at.plus(GIVEN_UP_AFTER);
                if is_late {
                    DeliveryOutcome::Disable(DisabledReason::Failing)
                } else {
                    DeliveryOutcome::Again(at)
                }
            }
        }
    }
}

impl Webhook {
    /// Returns the event that reports that the webhook was disabled, if it was still enabled in `before`.
    pub fn end_since(&self, before: &Self) -> Option<EventKind> {
        let (_, reason) = self.disabled.filter(|_| before.disabled.is_none())?;
        let (url, reason) = (self.url.as_str().to_owned(), reason.as_str().to_owned());
        Some(EventKind::WebhookDisabled { webhook_id: self.id, url, reason })
    }
}

impl StoredWebhook {
    /// Returns whether it must still be decided which of the events up to this number to send.
    pub fn is_behind(&self, last: u64) -> bool {
        self.webhook.disabled.is_none() && self.cursor < last
    }

    /// Applies settings to the webhook. When it is disabled, its pending deliveries are dropped. When it is enabled
    /// again, the events of those deliveries are sent.
    #[must_use]
    pub fn with<'a>(
        self,
        patch: &WebhookPatch,
        pending: impl Iterator<Item = &'a Delivery>,
        now: Timestamp,
    ) -> Self {
        let webhook = self.webhook.with(patch, now);
        let first = pending.filter_map(|delivery| delivery.number).min();
        let before = first.map(|first| first.saturating_sub(1)).filter(|_| webhook.disabled.is_some());
        Self { webhook, cursor: before.map_or(self.cursor, |before| before.min(self.cursor)) }
    }
}

fn step(attempts: u32) -> Duration {
    let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_795_000_000_000);

    fn delivery(number: Option<u64>) -> Delivery {
        Delivery::new(EventId::new(START, [1; 10]), number, "key.created".into(), "{}".into(), START)
    }

    #[test]
    fn pauses_double_from_five_seconds_to_an_hour_and_end_the_webhook_after_a_day() {
        let (mut delivery, mut now, mut pauses) = (delivery(Some(1)), START, Vec::new());
        let reason = loop {
            delivery.attempts += 1;
            match delivery.outcome(&ReceiverAnswer::Status(500), now, u16::MAX) {
                DeliveryOutcome::Again(at) => {
                    pauses.push((at.millis() - now.millis()) / 1000);
                    now = at;
                }
                DeliveryOutcome::Disable(reason) => break reason,
                DeliveryOutcome::Done => panic!("500 is a failure"),
            }
        };
        assert_eq!(reason, DisabledReason::Failing);
        assert_eq!(pauses[..12], [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
        let day = START.plus(GIVEN_UP_AFTER);
        assert!(now <= day && now.plus(LONGEST_PAUSE) > day);
        delivery.attempts = 1;
        let soonest = DeliveryOutcome::Again(START.plus(FIRST_PAUSE / 2));
        assert_eq!(delivery.outcome(&ReceiverAnswer::None("timeout".into()), START, 0), soonest);
        delivery.attempts = u32::MAX;
        assert_eq!(
            delivery.outcome(&ReceiverAnswer::Status(500), START, u16::MAX),
            DeliveryOutcome::Again(START.plus(LONGEST_PAUSE))
        );
    }

    #[test]
    fn an_answer_ends_a_delivery_repeats_it_or_ends_the_webhook() {
        let outcome = |number, status| delivery(number).outcome(&ReceiverAnswer::Status(status), START, 0);
        for status in [200, 204, 299] {
            assert_eq!(outcome(Some(1), status), DeliveryOutcome::Done);
        }
        for status in [199, 300, 301, 307, 400, 404, 409, 429, 500] {
            assert!(matches!(outcome(Some(1), status), DeliveryOutcome::Again(_)), "{status}");
            assert_eq!(outcome(None, status), DeliveryOutcome::Done, "a test is sent once");
        }
        assert_eq!(outcome(Some(1), 410), DeliveryOutcome::Disable(DisabledReason::Gone));
    }

    #[test]
    fn a_webhook_wants_all_types_or_those_it_names() {
        let webhook = Webhook {
            id: WebhookId::new(START, [1; 10]),
            url: WebhookUrl::parse("https://example.com/hook").unwrap(),
            types: None,
            secret: Digest::of(b"secret"),
            created_at: START,
            disabled: None,
        };
        assert!(webhook.wants("key.created"));
        let patch = WebhookPatch { types: Some(Some(vec!["key.revoked".into()])), ..WebhookPatch::default() };
        let some = webhook.clone().with(&patch, START);
        assert!(some.wants("key.revoked") && !some.wants("key.created"));
        let end = |reason| WebhookPatch { disabled: Some(reason), ..WebhookPatch::default() };
        let off = webhook.with(&end(Some(DisabledReason::Owner)), START);
        let again = off.clone().with(&end(Some(DisabledReason::Gone)), START.plus(FIRST_PAUSE));
        assert_eq!((again.disabled, off.disabled), (Some((START, DisabledReason::Owner)), again.disabled));
        let on = off.with(&end(None), START);
        assert_eq!(on.disabled, None);
    }
}
