//! Use-cases of managing accounts and keys. The management API, the dashboard and the command line all call these.

mod access;
pub mod accounts;
pub mod agents;
mod error;
mod history;
pub mod installation;
mod management;
pub mod members;
mod nouns;
mod reports;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::{
    access::{governor, management_keys, operator_keys},
    error::Error,
    history::{events, generations, reached, reading, refusals, requests},
    management::{MAX_KEYS_PER_ACCOUNT, Management},
    members::operators,
    nouns::{
        children, governed, groups,
        keys::OwnKey,
        listing, once, reach,
        refused::{self, Refused},
        rotation, webhooks,
    },
    reports::{account_list, books, entries, margin, spend, statement, top, trouble, upstreams, usage},
};
