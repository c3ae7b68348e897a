//! The table of nouns that owners govern.

use super::path::{GROUPS, KEYS, WEBHOOKS};
use crate::error::Code::{
    self, GroupNotFound, KeyNotFound, TooManyGroups, TooManyKeys, TooManyWebhooks, WebhookNotFound,
};

/// A noun that owners govern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    Key,
    Group,
    Webhook,
}

/// A row of the table of nouns.
#[derive(Clone, Copy)]
pub struct NounRow {
    /// Path of the account's objects.
    pub path: &'static str,
    /// Part of the account that the objects concern.
    pub reach: Reach,
    /// Error for an object that the account does not have, and the object's name.
    pub unknown: (Code, &'static str),
    /// Error for an account that has as many of these as it may have, and their name.
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
        };
        NounRow { path, reach, unknown, too_many }
    }
}

/// Part of the account that a route concerns, which determines the credentials that may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Keys and their bills. Management keys may ask, and those of a group for what is in the group.
    Keys,
    /// The whole account. Management keys that belong to no group may ask.
    Account,
    /// The API key that sends the request.
    Holder,
}
