//! Stored records of refused calls, upstreams, holders and restores.

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::time::Timestamp;

/// Counts of the calls that were refused on a day. Set `refused`, part: the day, name: `a` for all keys, or `k` and the
/// id for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedDay {
    #[n(0)]
    pub counts: Vec<RefusedCount>,
}

/// Number of calls that were refused within an hour for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedCount {
    /// Hour of the day in UTC, from 0 to 23.
    #[n(0)]
    pub hour: u32,
    /// Error code in the public API.
    #[n(1)]
    pub reason: String,
    #[n(2)]
    pub count: u64,
}

/// The days for which counts of refused calls exist. Set `house`, name `r`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedDays {
    /// Days since 1970, in ascending order.
    #[n(0)]
    pub days: Vec<u32>,
}

/// The refused calls that are kept. Set `house`, name `c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct RefusedCalls {
    /// Number of the last refused call.
    #[n(0)]
    pub last: u64,
}

/// An account that has or had open holds. Space `holders/…`, set `holders`, name: the account's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct HolderRecord {
    /// When a process last listed the account, before it opened holds.
    #[n(0)]
    pub listed_at: Timestamp,
}

/// An account's restores from backups, and the losses in stores from which the account was copied. After each restore
/// or loss, exported entries and events get new, higher numbers. Redis itself records its own losses. Set `house`, name
/// `n`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Restores {
    /// Number of the first entry of the journal after each restore.
    #[n(0)]
    pub first_entries: Vec<u64>,
    /// Number of the first event after each restore.
    #[n(1)]
    pub first_events: Vec<u64>,
    /// Epoch of each restore. It is greater than the epoch of the previous restore.
    #[n(2)]
    pub epochs: Vec<u64>,
    /// For each loss in a store from which this store was copied: the first number that a lost entry may have had.
    #[n(3)]
    pub lost_entries: Vec<u64>,
    /// For each loss, the first number that a lost event may have had.
    #[n(4)]
    pub lost_events: Vec<u64>,
    #[n(5)]
    pub lost_epochs: Vec<u64>,
}

/// Counts of an upstream's bills in recent hours, over all accounts. Space and set `upstreams`, name: the model's id, a
/// zero byte, and the upstream's name in the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct UpstreamHours {
    /// Recent hours in ascending order.
    #[n(0)]
    pub hours: Vec<UpstreamHour>,
}

/// Counts of an upstream's bills within one hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct UpstreamHour {
    /// Hours since 1970.
    #[n(0)]
    pub hour: u32,
    #[n(1)]
    pub bills: u64,
    /// Number of streams in each class of times to the first token.
    #[n(2)]
    pub first_tokens: Vec<u64>,
}
