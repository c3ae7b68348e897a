//! The table of nouns. A noun is a kind of object that owners manage.

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
    /// Path of the list of an account's objects.
    pub path: &'static str,
    /// The part of the account to which the objects belong. It decides which credentials can access them.
    pub reach: Reach,
    /// Error if an object does not exist, and what its message calls the object.
    pub unknown: (Code, &'static str),
    /// Error if an account has too many of these objects, and what its message calls them.
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

/// The part of the account that a route is about. It decides which credentials may use the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Keys and their bills. Management keys may use the route; a group's management key can access only what is in the
    /// group.
    Keys,
    /// The whole account. Management keys that do not belong to a group may use the route.
    Account,
    /// The API key that sends the request. Only it may use the route.
    Holder,
    /// The whole installation, for operator keys.
    Installation,
}
