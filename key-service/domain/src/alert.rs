//! Alerts: rules about an account, and where their messages go.

mod address;
mod channel;
mod rule;

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    ids::{AccountId, AlertId, GroupId, KeyId},
    secret::SecretString,
    time::Timestamp,
    wire::{AlertField, Kept, Value},
};

pub use address::{AlertAddress, AlertDestination, Sealed};
pub use channel::{AlertFault, Channel};
pub use rule::Rule;

use crate::{
    event::{Event, EventKind},
    settings::{Patch, keep},
    webhook::{Delivery, DeliveryOutcome, ReceiverAnswer},
};

/// Usual number of hours during which an alert sends no second message about the same subject.
const USUAL_INTERVAL_HOURS: u64 = 24;
/// Maximum number of subjects that an alert reports within its interval. It also limits the number of messages.
pub const MAX_REPORTED: usize = 50;
/// Maximum number of pending messages of an alert. Later messages are dropped.
pub const MAX_PENDING_MESSAGES: usize = 64;
/// Time between two checks of the sums for an alert. It limits how late a message about sums can be.
const LOOK_AT_SUMS_EVERY: Duration = Duration::from_mins(5);
/// Minimum time between two tests of an account's alerts, so that nobody floods a mailbox with tests.
pub const BETWEEN_TESTS: Duration = Duration::from_mins(1);
/// Statuses of a mail server that refuses the sign-in. They are about the operator's settings and not about the mail.
const REFUSED_SIGN_INS: [u16; 4] = [530, 534, 535, 538];
/// Length of a week, after which a weekly report is due again.
const WEEK: Duration = Duration::from_hours(7 * 24);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Ids sort by time of creation.
    pub id: AlertId,
    pub label: String,
    pub rule: Rule,
    /// Percent, times or days, depending on the rule; `None` for the usual number.
    pub threshold: Option<u64>,
    /// The key or group that the alert is about; `None` for the whole account.
    pub about: Option<AlertSubject>,
    pub channel: Channel,
    pub address: AlertAddress,
    /// Hours without a second message about the same subject; `None` for the usual number.
    pub interval_hours: Option<u64>,
    pub enabled: bool,
    pub created_at: Timestamp,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum AlertSubject {
    #[n(0)]
    Key(#[n(0)] KeyId),
    #[n(1)]
    Group(#[n(0)] GroupId),
    #[n(2)]
    Account(#[n(0)] AccountId),
}

/// A subject that was reported, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ReportedSubject {
    #[n(0)]
    pub subject: AlertSubject,
    #[n(1)]
    pub at: Timestamp,
}

/// An alert with what it has considered and reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAlert {
    pub alert: Alert,
    /// Number of the last event considered.
    pub cursor: u64,
    /// When sums were last considered.
    pub looked_at: Option<Timestamp>,
    /// Subjects that were reported within the interval, at most [`MAX_REPORTED`].
    pub reported: Vec<ReportedSubject>,
}

/// Settings of an alert as a request gives them: `None` keeps a setting, inner `None` clears it.
#[derive(Clone, Debug, Default)]
pub struct AlertPatch {
    pub label: Option<String>,
    pub rule: Option<Rule>,
    pub threshold: Option<Option<u64>>,
    /// Id of a key or a group, unchecked.
    pub about: Option<Option<String>>,
    pub channel: Option<Channel>,
    pub to: Option<SecretString>,
    pub interval_hours: Option<Option<u64>>,
    pub enabled: Option<bool>,
}

/// A checked change of an alert.
#[derive(Clone, Debug, Default)]
pub struct AlertChange {
    pub label: Option<String>,
    pub threshold: Option<Option<u64>>,
    pub about: Option<Option<AlertSubject>>,
    pub address: Option<AlertAddress>,
    pub interval_hours: Option<Option<u64>>,
    pub enabled: Option<bool>,
}

/// What happens to a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    Sent,
    /// Another attempt is due at this time.
    Again(Timestamp),
    /// The message is given up.
    Dropped,
}

impl Patch for AlertPatch {
    type Field = AlertField;

    fn set(&mut self, field: AlertField, value: Value) -> bool {
        match field {
            AlertField::Label => keep(&mut self.label, value),
            AlertField::Rule => {
                self.rule = String::from_value(value).and_then(|name| Rule::parse(&name));
                self.rule.is_some()
            }
            AlertField::Threshold => keep(&mut self.threshold, value),
            AlertField::About => keep(&mut self.about, value),
            AlertField::Channel => {
                self.channel = String::from_value(value).and_then(|name| Channel::parse(&name));
                self.channel.is_some()
            }
            AlertField::To => {
                self.to = String::from_value(value).map(SecretString::from);
                self.to.is_some()
            }
            AlertField::IntervalHours => keep(&mut self.interval_hours, value),
            AlertField::Enabled => keep(&mut self.enabled, value),
            AlertField::CreatedAt => false,
        }
    }
}

impl Alert {
    /// Returns the value of a field. The secret part of an address is left out.
    pub fn value(&self, field: AlertField) -> Value {
        match field {
            AlertField::Label => self.label.to_value(),
            AlertField::Rule => self.rule.as_str().to_owned().to_value(),
            AlertField::Threshold => self.threshold().to_value(),
            AlertField::About => self.about.map(|about| about.to_string()).to_value(),
            AlertField::Channel => self.channel.as_str().to_owned().to_value(),
            AlertField::To => self.address.shown.to_value(),
            AlertField::IntervalHours => self.interval_hours().to_value(),
            AlertField::Enabled => self.enabled.to_value(),
            AlertField::CreatedAt => self.created_at.to_value(),
        }
    }

    /// Returns the threshold in force.
    pub fn threshold(&self) -> Option<u64> {
        self.threshold.or(self.rule.usual())
    }

    /// Returns the interval in force, in hours.
    pub fn interval_hours(&self) -> u64 {
        self.interval_hours.unwrap_or(USUAL_INTERVAL_HOURS)
    }

    /// Returns when a subject that was reported at this time may be reported again. A weekly report is due each Monday,
    /// whatever the interval.
    fn again(&self, at: Timestamp) -> Timestamp {
        match self.rule {
            Rule::WeeklyReport => monday(at).plus(WEEK),
            Rule::SpendJump | Rule::LimitShare | Rule::Refused | Rule::CreditDays => {
                at.plus(Duration::from_hours(self.interval_hours()))
            }
        }
    }

    /// Returns what an event is about, if the alert reports the event.
    pub fn reports(&self, event: &Event, account: AccountId) -> Option<AlertSubject> {
        let percent = event.kind.threshold().map(|threshold| u64::from(threshold.percent));
        let is_reported = match &event.kind {
            EventKind::KeyThresholdReached(_) | EventKind::GroupThresholdReached(_) => {
                self.rule == Rule::LimitShare && percent == self.threshold()
            }
            EventKind::KeyLimitReached(_)
            | EventKind::GroupLimitReached(_)
            | EventKind::CreditExhausted(_) => self.rule == Rule::Refused,
            EventKind::CreditThresholdReached(_)
            | EventKind::AccountCreated { .. }
            | EventKind::AccountUpdated { .. }
            | EventKind::AccountSuspended { .. }
            | EventKind::AccountRestored {}
            | EventKind::AccountClosed {}
            | EventKind::KeyCreated { .. }
            | EventKind::KeyUpdated { .. }
            | EventKind::KeyRotated { .. }
            | EventKind::KeyRevoked {}
            | EventKind::GroupCreated { .. }
            | EventKind::GroupUpdated { .. }
            | EventKind::GroupArchived {}
            | EventKind::GroupPaid(_)
            | EventKind::GroupRefunded(_)
            | EventKind::CreditAdded(_)
            | EventKind::CreditRefunded(_)
            | EventKind::ManagementKeyCreated { .. }
            | EventKind::ManagementKeyRevoked { .. }
            | EventKind::MemberInvited { .. }
            | EventKind::MemberRoleChanged { .. }
            | EventKind::MemberRemoved { .. }
            | EventKind::MemberSignedIn { .. }
            | EventKind::MemberSecondFactorEnabled { .. }
            | EventKind::MemberSecondFactorRemoved { .. }
            | EventKind::WebhookDisabled { .. }
            | EventKind::AlertRaised { .. }
            | EventKind::OperatorKeyCreated { .. }
            | EventKind::OperatorKeyRotated { .. }
            | EventKind::OperatorKeyRevoked { .. } => false,
        };
        let of_group = event.group.map(AlertSubject::Group);
        let subject = event.key.map(AlertSubject::Key).or(of_group).unwrap_or(AlertSubject::Account(account));
        let is_about = self.about.is_none_or(|about| about == subject || Some(about) == of_group);
        (is_reported && is_about).then_some(subject)
    }

    /// Decides what to do after an attempt to send a message. `chance` is random, for jitter. A message that the
    /// receiver refuses permanently is not sent again.
    pub fn outcome(
        &self,
        message: &Delivery,
        answer: &ReceiverAnswer,
        now: Timestamp,
        chance: u16,
    ) -> MessageOutcome {
        let is_for_good = match (self.channel, answer) {
            (Channel::Email, ReceiverAnswer::Status(status)) => {
                *status >= 500 && !REFUSED_SIGN_INS.contains(status)
            }
            (Channel::Slack | Channel::Teams | Channel::Webhook, ReceiverAnswer::Status(status)) => {
                (400..500).contains(status) && ![408, 429].contains(status)
            }
            (_, ReceiverAnswer::None(_)) => false,
        };
        if is_for_good {
            return MessageOutcome::Dropped;
        }
        match message.outcome(answer, now, chance) {
            DeliveryOutcome::Done if !matches!(answer, ReceiverAnswer::Status(200..=299)) => {
                MessageOutcome::Dropped
            }
            DeliveryOutcome::Done => MessageOutcome::Sent,
            DeliveryOutcome::Again(at) => MessageOutcome::Again(at),
            DeliveryOutcome::Disable(_) => MessageOutcome::Dropped,
        }
    }

    #[must_use]
    pub fn with(mut self, change: &AlertChange) -> Self {
        let AlertChange { label, threshold, about, address, interval_hours, enabled } = change.clone();
        self.label = label.unwrap_or(self.label);
        self.threshold = threshold.unwrap_or(self.threshold);
        self.about = about.unwrap_or(self.about);
        self.address = address.unwrap_or(self.address);
        self.interval_hours = interval_hours.unwrap_or(self.interval_hours);
        self.enabled = enabled.unwrap_or(self.enabled);
        self
    }
}

impl std::fmt::Display for AlertSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(id) => id.fmt(f),
            Self::Group(id) => id.fmt(f),
            Self::Account(id) => id.fmt(f),
        }
    }
}

impl AlertSubject {
    /// Parses the id of a key or a group.
    pub fn parse(text: &str) -> Option<Self> {
        let key = text.parse().ok().map(Self::Key);
        key.or_else(|| text.parse().ok().map(Self::Group))
    }
}

impl StoredAlert {
    /// Returns whether some events up to this number have not been considered yet.
    pub fn is_behind(&self, last: u64) -> bool {
        self.alert.enabled && self.alert.rule.is_of_events() && self.cursor < last
    }

    /// Returns whether sums are to be considered now. A weekly report needs a Monday since the alert was created. A
    /// rule about the whole account has nothing to look for until the account may be reported again.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let is_time = self.looked_at.is_none_or(|last| last.plus(LOOK_AT_SUMS_EVERY) <= now);
        let is_of_now = match self.alert.rule {
            Rule::SpendJump | Rule::CreditDays => true,
            Rule::WeeklyReport => monday(now) > self.alert.created_at,
            Rule::LimitShare | Rule::Refused => false,
        };
        let is_reported = self.alert.rule.is_of_account()
            && self.reported.iter().any(|reported| self.alert.again(reported.at) > now);
        self.alert.enabled && is_time && is_of_now && !is_reported
    }

    /// Keeps the subjects that may be reported now, each once, and remembers them: at most [`MAX_REPORTED`] within the
    /// alert's interval.
    pub fn report(&mut self, subjects: &mut Vec<AlertSubject>, now: Timestamp) {
        let alert = &self.alert;
        self.reported.retain(|reported| alert.again(reported.at) > now);
        subjects.retain(|subject| {
            if self.reported.iter().any(|reported| reported.subject == *subject) {
                return false;
            }
            let has_room = self.reported.len() < MAX_REPORTED;
            if has_room {
                self.reported.push(ReportedSubject { subject: *subject, at: now });
            }
            has_room
        });
    }
}

/// Returns the beginning of the week, which is a Monday in UTC.
pub fn monday(at: Timestamp) -> Timestamp {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    // The first day of 1970 was a Thursday.
    let days = at.millis().div_euclid(DAY);
    Timestamp::from_millis((days - (days + 3).rem_euclid(7)) * DAY)
}

#[cfg(test)]
mod tests;
