//! Stored records of alerts. Their messages are kept like the deliveries of webhooks.

use domain::alert::{AlertSubject, Channel, ReportedSubject, Rule, Sealed};
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::time::Timestamp;

use crate::stored::secret::hidden;

/// An alert. Set `alerts`, name `a` and the alert's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AlertRecord {
    #[n(0)]
    pub label: String,
    #[n(1)]
    pub rule: Rule,
    /// Percent, times or days; absent for the usual number.
    #[n(2)]
    pub threshold: Option<u64>,
    /// The key or group that the alert is about; absent for the whole account.
    #[n(3)]
    pub about: Option<AlertSubject>,
    #[n(4)]
    pub channel: Channel,
    /// What may be shown of the address.
    #[n(5)]
    pub shown: String,
    /// The address, sealed with the pepper.
    #[n(6)]
    #[serde(serialize_with = "hidden")]
    pub sealed: Sealed,
    /// Hours without a second message about the same subject; absent for the usual number.
    #[n(7)]
    pub interval_hours: Option<u64>,
    #[n(8)]
    pub enabled: bool,
    #[n(9)]
    pub created_at: Timestamp,
    /// Number of the last event considered for the alert.
    #[n(10)]
    pub cursor: u64,
    /// When sums were last considered.
    #[n(11)]
    pub looked_at: Option<Timestamp>,
    /// Subjects that were reported within the interval, at most 50.
    #[n(12)]
    pub reported: Vec<ReportedSubject>,
}

/// When an alert of the account was last tested. Set `alerts`, name `t`. It outlives the alert, so that nobody sends
/// more tests by creating alerts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct LastAlertTest {
    #[n(0)]
    pub at: Timestamp,
}
