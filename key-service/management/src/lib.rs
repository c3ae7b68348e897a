//! Use-cases for accounts and keys. The management API, the dashboard and the command line all call these.

/// Access to the APIs: management keys, operator keys, and the rights of callers.
mod access {
    pub mod governor;
    pub mod management_keys;
    pub mod operator_keys;
}
pub mod accounts;
pub mod agents;
/// Lists of events, bills and refusals, searched by filters and words, a page at a time.
mod history {
    pub mod events;
    pub mod generations;
    pub mod limits;
    pub mod reading;
    pub mod refusals;
    pub mod requests;
}
pub mod installation;
mod management;
pub mod members;
/// Keys, groups, webhooks and alerts, and what their operations and lists share.
mod nouns {
    pub mod alerts;
    pub mod children;
    pub mod governed;
    pub mod groups;
    pub(crate) mod keys;
    pub mod listing;
    mod moving;
    pub mod once;
    pub mod reach;
    pub mod rotation;
    pub mod webhooks;
}
mod reports;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use domain::governed::Refused;
pub use key_service_store::store::Error;

pub use self::{
    access::{governor, management_keys, operator_keys},
    history::{events, generations, limits, reading, refusals, requests},
    management::{MAX_KEYS_PER_ACCOUNT, Management},
    members::operators,
    nouns::{alerts, children, governed, groups, keys::OwnKey, listing, once, reach, rotation, webhooks},
    reports::{
        account_list, books, entries, jumps, local_days, margin, spend, statement, top, trouble, upstreams,
        usage,
    },
};
