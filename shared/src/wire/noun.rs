//! The table of nouns: the kinds of objects that owners manage.

use super::path::{ALERTS, GROUPS, KEYS, WEBHOOKS};
use crate::error::Code::{
    self, AlertNotFound, GroupNotFound, KeyNotFound, TooManyAlerts, TooManyGroups, TooManyKeys,
    TooManyWebhooks, WebhookNotFound,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    Key,
    Group,
    Webhook,
    Alert,
}

/// A row of the table of nouns.
#[derive(Clone, Copy)]
pub struct NounRow {
    /// Path of the account's objects.
    pub path: &'static str,
    /// Decides which credentials reach the objects.
    pub reach: Reach,
    /// Error for an unknown object, and the object's name in the message.
    pub unknown: (Code, &'static str),
    /// Error for an account with too many of these objects, and their name in the message.
    pub too_many: (Code, &'static str),
}

impl Noun {
    pub const fn row(self) -> NounRow {
        let (path, reach, unknown, too_many) = match self {
            Self::Key => (
                KEYS,
                Reach::Keys,
                (KeyNotFound, "API key"),
                (TooManyKeys, "API keys, revoked ones included"),
            ),
            Self::Group => (
                GROUPS,
                Reach::Account,
                (GroupNotFound, "group"),
                (TooManyGroups, "groups, archived ones included"),
            ),
            Self::Webhook => {
                (WEBHOOKS, Reach::Account, (WebhookNotFound, "webhook"), (TooManyWebhooks, "webhooks"))
            }
            Self::Alert => (ALERTS, Reach::Account, (AlertNotFound, "alert"), (TooManyAlerts, "alerts")),
        };
        NounRow { path, reach, unknown, too_many }
    }
}

/// Part of the account that a route concerns. It decides which credentials may use the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Keys and their bills, for management keys. A group's management key reaches only what is in the group.
    Keys,
    /// The whole account, for management keys without a group.
    Account,
    /// The API key that sends the request.
    Holder,
}
