//! How messages are sent, and why an alert cannot have a setting.

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::{
    alert::rule::Rule,
    webhook::{AddressRefused, BadUrl},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Channel {
    /// An event to the account's webhooks.
    #[n(0)]
    Webhook,
    #[n(1)]
    Email,
    #[n(2)]
    Slack,
    #[n(3)]
    Teams,
}

shared::names! { Channel: Webhook = "webhook", Email = "email", Slack = "slack", Teams = "teams" }

/// Why an alert cannot have a setting. In a message, the text follows the setting's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertFault {
    #[error("must be an email address, such as ops@example.com")]
    NoEmail,
    #[error("must be empty for the channel `webhook`, which sends to the account's webhooks")]
    NeedsNone,
    #[error("{0}")]
    Url(BadUrl),
    #[error("cannot be used: {0}")]
    Refused(AddressRefused),
    #[error("cannot be `email`, because the operator has not set up a mail server")]
    NoMailServer,
    #[error("must be {}", .0.thresholds())]
    Threshold(Rule),
    #[error("must be the id of a key or a group of the account, or null")]
    Unknown,
    #[error("must be null, because the rule is about the whole account")]
    WholeAccount,
}

impl AlertFault {
    /// Returns the name of the setting.
    pub const fn param(self) -> &'static str {
        match self {
            Self::NoEmail | Self::NeedsNone | Self::Url(_) | Self::Refused(_) => "to",
            Self::NoMailServer => "channel",
            Self::Threshold(_) => "threshold",
            Self::Unknown | Self::WholeAccount => "about",
        }
    }
}
