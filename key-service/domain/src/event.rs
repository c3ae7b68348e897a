//! Events: they report changes to an account, and thresholds that bills have crossed.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::{
    ids::{AlertId, EventId, GroupId, KeyId, ManagementKeyId, MemberId, OperatorKeyId, WebhookId},
    money::NanoUsd,
    time::Timestamp,
    wire::{ActorObject, EventObject},
};

mod changes;
mod payments;
mod threshold;

use self::{changes::json, threshold::usd};
pub use self::{
    changes::{Change, MAX_CHANGE_BYTES},
    payments::{PaymentMade, RefundMade},
    threshold::{MoneyBound, Threshold},
};

/// Who makes a change to an account and when, with randomness for the ids of the events that report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    pub actor: Actor,
    pub at: Timestamp,
    /// Random bytes for the ids of the act's events.
    pub chance: [u8; 10],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A program that uses a management key.
    ManagementKey { id: ManagementKeyId, name: String },
    /// A member of the account, using the dashboard.
    Member { id: MemberId, name: String },
    /// An operator, using a command or `/operator`.
    Operator {
        /// Name of the user who ran the command on the server, or of the operator who signed in.
        name: String,
    },
    /// A program with an operator key.
    OperatorKey { id: OperatorKeyId, name: String },
    /// The service itself.
    System,
}

/// An event. It has the same id wherever it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    /// Time of the change, or of the bill that crossed the threshold.
    pub at: Timestamp,
    pub actor: Actor,
    /// The key that the event is about.
    pub key: Option<KeyId>,
    /// The group that the event is about, or the group of the key that the event is about.
    pub group: Option<GroupId>,
    pub kind: EventKind,
}

/// Defines the kinds of events, each with its name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $details:tt = $name:literal,)+) => {
        /// Type and details of an event. The names are wire format: add, never rename.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "type", content = "data")]
        pub enum EventKind { $($(#[$doc])* #[serde(rename = $name)] $kind $details),+ }

        impl EventKind {
            pub const fn as_str(&self) -> &'static str {
                match self { $(Self::$kind { .. } => $name),+ }
            }
        }
    };
}

kinds! {
    /// An operator created the account.
    AccountCreated { name: String } = "account.created",
    /// An operator changed the account's external id or metadata.
    AccountUpdated {
        #[serde(with = "changes")]
        changes: Vec<Change>,
    } = "account.updated",
    /// An operator suspended the account: its keys are refused, and only operators change it.
    AccountSuspended { reason: String } = "account.suspended",
    AccountRestored {} = "account.restored",
    AccountClosed {} = "account.closed",
    KeyCreated {
        /// Settings of the new key; each `before` is empty.
        #[serde(with = "changes")]
        changes: Vec<Change>,
    } = "key.created",
    /// Settings of a key were changed.
    KeyUpdated {
        #[serde(with = "changes")]
        changes: Vec<Change>,
    } = "key.updated",
    /// A key got a new plaintext.
    KeyRotated {
        /// Time until which the previous plaintext works.
        previous_key_expires_at: Option<Timestamp>,
    } = "key.rotated",
    KeyRevoked {} = "key.revoked",
    /// A key has used a certain share of a limit.
    KeyThresholdReached(Threshold) = "key.threshold_reached",
    /// A limit of a key is used up, or what is left of it cannot pay for a request.
    KeyLimitReached(Threshold) = "key.limit_reached",
    GroupCreated {
        /// Settings of the new group; each `before` is empty.
        #[serde(with = "changes")]
        changes: Vec<Change>,
    } = "group.created",
    /// Settings of a group were changed.
    GroupUpdated {
        #[serde(with = "changes")]
        changes: Vec<Change>,
    } = "group.updated",
    GroupArchived {} = "group.archived",
    /// A payment raised the group's limit. The account's credit stayed unchanged.
    GroupPaid(PaymentMade) = "group.paid",
    /// A refund lowered the group's limit. The account's credit stayed unchanged.
    GroupRefunded(RefundMade) = "group.refunded",
    /// A group has used a certain share of a limit.
    GroupThresholdReached(Threshold) = "group.threshold_reached",
    /// A limit of a group is used up, or what is left of it cannot pay for a request.
    GroupLimitReached(Threshold) = "group.limit_reached",
    CreditAdded(PaymentMade) = "credit.added",
    /// Credit was taken back: a refund, a chargeback or a correction.
    CreditRefunded(RefundMade) = "credit.refunded",
    /// Only a certain share of the account's credit is left.
    CreditThresholdReached(Threshold) = "credit.threshold_reached",
    /// The account's credit is used up, or what is left of it cannot pay for a request.
    CreditExhausted(Threshold) = "credit.exhausted",
    /// A management key was created.
    ManagementKeyCreated {
        management_key_id: ManagementKeyId,
        name: String,
        /// Rights of the management key; `None` in events from versions that did not record rights.
        #[serde(default)]
        scope: Option<String>,
        /// The only group that the management key can reach, if any.
        #[serde(default)]
        group_id: Option<GroupId>,
        /// When the management key expires, if ever.
        #[serde(default)]
        expires_at: Option<Timestamp>,
    } = "management_key.created",
    /// A management key was revoked.
    ManagementKeyRevoked { management_key_id: ManagementKeyId, name: String } = "management_key.revoked",
    /// A member was created and got a sign-in link.
    MemberInvited {
        member_id: MemberId,
        name: String,
        role: String,
        /// The group that a lead manages.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_id: Option<GroupId>,
    } = "member.invited",
    /// An owner changed a member's role.
    MemberRoleChanged {
        member_id: MemberId,
        name: String,
        role: String,
        /// The group that a lead manages.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_id: Option<GroupId>,
        previous_role: String,
        /// The group that the member led before the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous_group_id: Option<GroupId>,
    } = "member.role_changed",
    MemberRemoved { member_id: MemberId, name: String } = "member.removed",
    MemberSignedIn { member_id: MemberId } = "member.signed_in",
    /// A member enabled a second factor.
    MemberSecondFactorEnabled { member_id: MemberId, name: String } = "member.second_factor_enabled",
    /// A member's second factor was removed: by the member with a code, by an owner, or by an operator.
    MemberSecondFactorRemoved { member_id: MemberId, name: String } = "member.second_factor_removed",
    /// A webhook was disabled, by an owner or because its deliveries failed.
    WebhookDisabled {
        webhook_id: WebhookId,
        url: String,
        /// Reason, as in the webhook's `disabled_reason`.
        reason: String,
    } = "webhook.disabled",
    /// An alert found something to report.
    AlertRaised {
        alert_id: AlertId,
        /// Name of the alert; may be empty.
        label: String,
        /// Rule of the alert, as in its `rule`.
        rule: String,
        /// What happened, in one sentence.
        title: String,
        /// What happened in detail, and what to do.
        text: String,
        /// Page about it, if the service knows its public address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    } = "alert.raised",
    /// An operator made an operator key.
    OperatorKeyCreated {
        operator_key_id: OperatorKeyId,
        name: String,
        scopes: Vec<String>,
        /// Time from which the key is refused, if any.
        expires_at: Option<Timestamp>,
        /// Networks that the key works from; `None` for any.
        networks: Option<Vec<String>>,
        /// The largest payment that the key may make.
        #[serde(deserialize_with = "usd")]
        max_payment: NanoUsd,
    } = "operator_key.created",
    /// An operator key was replaced by a new one with the same rights.
    OperatorKeyRotated {
        operator_key_id: OperatorKeyId,
        name: String,
        new_operator_key_id: OperatorKeyId,
        /// Time from which the previous key is refused.
        previous_key_expires_at: Timestamp,
    } = "operator_key.rotated",
    OperatorKeyRevoked { operator_key_id: OperatorKeyId, name: String } = "operator_key.revoked",
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSearch {
    /// Type of the events; `None` matches any.
    pub kind: Option<&'static str>,
    /// Key of the events; `None` matches any.
    pub key: Option<KeyId>,
    /// Group of the events; `None` matches any.
    pub group: Option<GroupId>,
    /// Text that the actor's name contains, in lower case; `None` matches any actor.
    pub by: Option<String>,
    /// The groups whose events the reader may see. `None` if the reader may see all events, including those without a
    /// group.
    pub within: Option<Vec<GroupId>>,
}

impl Act {
    /// Returns an act for further events of this change. The returned act's first event is event number `n` of this
    /// act, counted from zero.
    #[must_use]
    pub fn nth(mut self, n: u32) -> Self {
        for (byte, flipped) in self.chance[6..].iter_mut().zip(n.to_be_bytes()) {
            *byte ^= flipped;
        }
        self
    }

    /// Returns the act's event number `n`, counted from zero.
    pub fn event(&self, n: u32, key: Option<KeyId>, group: Option<GroupId>, kind: EventKind) -> Event {
        let Self { actor, at, chance } = self.clone().nth(n);
        Event { id: EventId::new(at, chance), at, actor, key, group, kind }
    }
}

impl Event {
    /// Returns the event as programs get it and as the store keeps it.
    pub fn object(&self) -> EventObject {
        let Self { id, at, actor, key, group, kind } = self;
        let (r#type, data) = kind.parts();
        EventObject {
            id: *id,
            object: "event".into(),
            r#type,
            created_at: *at,
            actor: actor.object(),
            key_id: *key,
            group_id: *group,
            data,
        }
    }

    pub fn to_json(&self) -> String {
        json(&self.object())
    }

    /// Parses an event that [`Self::to_json`] wrote; `None` for anything else.
    pub fn from_json(text: &str) -> Option<Self> {
        let EventObject { id, object: _, r#type, created_at, actor, key_id, group_id, data } =
            serde_json::from_str(text).ok()?;
        let kind = serde_json::from_str(&json(&EventParts { r#type, data })).ok()?;
        Some(Self { id, at: created_at, actor: Actor::read(actor)?, key: key_id, group: group_id, kind })
    }
}

/// Type and data of an event. The type comes first, because it decides how the data is parsed.
#[derive(Serialize, Deserialize)]
struct EventParts {
    r#type: String,
    data: Box<RawValue>,
}

impl EventKind {
    /// Returns the threshold, if the event reports one.
    pub const fn threshold(&self) -> Option<&Threshold> {
        match self {
            Self::KeyThresholdReached(threshold)
            | Self::KeyLimitReached(threshold)
            | Self::GroupThresholdReached(threshold)
            | Self::GroupLimitReached(threshold)
            | Self::CreditThresholdReached(threshold)
            | Self::CreditExhausted(threshold) => Some(threshold),
            Self::AccountCreated { .. }
            | Self::AccountUpdated { .. }
            | Self::AccountSuspended { .. }
            | Self::AccountRestored {}
            | Self::AccountClosed {}
            | Self::KeyCreated { .. }
            | Self::KeyUpdated { .. }
            | Self::KeyRotated { .. }
            | Self::KeyRevoked {}
            | Self::GroupCreated { .. }
            | Self::GroupUpdated { .. }
            | Self::GroupArchived {}
            | Self::GroupPaid(_)
            | Self::GroupRefunded(_)
            | Self::CreditAdded(_)
            | Self::CreditRefunded(_)
            | Self::ManagementKeyCreated { .. }
            | Self::ManagementKeyRevoked { .. }
            | Self::MemberInvited { .. }
            | Self::MemberRoleChanged { .. }
            | Self::MemberRemoved { .. }
            | Self::MemberSignedIn { .. }
            | Self::MemberSecondFactorEnabled { .. }
            | Self::MemberSecondFactorRemoved { .. }
            | Self::WebhookDisabled { .. }
            | Self::AlertRaised { .. }
            | Self::OperatorKeyCreated { .. }
            | Self::OperatorKeyRotated { .. }
            | Self::OperatorKeyRevoked { .. } => None,
        }
    }

    fn parts(&self) -> (String, Box<RawValue>) {
        let EventParts { r#type, data } = read(&json(self));
        (r#type, data)
    }
}

impl EventSearch {
    /// Returns the id of the key that the search names or, without a key, the id of the group.
    pub fn subject(&self) -> Option<&[u8; 16]> {
        let key = self.key.as_ref().map(KeyId::as_bytes);
        key.or(self.group.as_ref().map(GroupId::as_bytes))
    }

    /// Returns whether the search matches every event of its subject. If so, no event that is read has to be filtered
    /// out.
    pub const fn is_whole(&self) -> bool {
        self.kind.is_none() && self.by.is_none() && self.within.is_none()
    }

    /// Returns whether an event matches.
    pub fn matches(&self, event: &Event) -> bool {
        self.kind.is_none_or(|kind| kind == event.kind.as_str())
            && self.key.is_none_or(|key| event.key == Some(key))
            && self.group.is_none_or(|group| event.group == Some(group))
            && self.by.as_ref().is_none_or(|by| event.actor.is_named(by))
            && self
                .within
                .as_ref()
                .is_none_or(|reach| event.group.is_some_and(|group| reach.contains(&group)))
    }
}

impl Actor {
    /// Returns whether the actor's name contains `part`, which is in lower case.
    fn is_named(&self, part: &str) -> bool {
        match self {
            Self::ManagementKey { name, .. }
            | Self::Member { name, .. }
            | Self::Operator { name }
            | Self::OperatorKey { name, .. } => name.to_lowercase().contains(part),
            Self::System => false,
        }
    }

    fn object(&self) -> ActorObject {
        let (r#type, id, name) = match self {
            Self::ManagementKey { id, name } => ("management_key", Some(id.to_string()), Some(name)),
            Self::Member { id, name } => ("member", Some(id.to_string()), Some(name)),
            Self::Operator { name } => ("operator", None, Some(name)),
            Self::OperatorKey { id, name } => ("operator_key", Some(id.to_string()), Some(name)),
            Self::System => ("system", None, None),
        };
        ActorObject { r#type: r#type.into(), id, name: name.cloned() }
    }

    fn read(ActorObject { r#type, id, name }: ActorObject) -> Option<Self> {
        Some(match r#type.as_str() {
            "management_key" => Self::ManagementKey { id: id?.parse().ok()?, name: name? },
            "member" => Self::Member { id: id?.parse().ok()?, name: name? },
            "operator" => Self::Operator { name: name? },
            "operator_key" => Self::OperatorKey { id: id?.parse().ok()?, name: name? },
            "system" => Self::System,
            _ => return None,
        })
    }
}

#[expect(clippy::expect_used, reason = "every kind is written as its type and its data")]
fn read(text: &str) -> EventParts {
    serde_json::from_str(text).expect("a kind has a type and data")
}

#[cfg(test)]
mod tests;
