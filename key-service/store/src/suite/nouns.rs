//! Cases about accounts, keys, groups, members, webhooks, alerts and events.

pub(crate) mod accounts;
pub(crate) mod alerts;
pub(crate) mod claims;
pub(crate) mod events;
pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod listing;
pub(crate) mod members;
pub(crate) mod moving;
pub(crate) mod rotation;
pub(crate) mod standing;
pub(crate) mod steps;
pub(crate) mod webhooks;
