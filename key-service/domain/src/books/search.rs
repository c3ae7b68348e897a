//! Filters for searching the journal.

use shared::{
    ids::{GroupId, KeyId, RequestId},
    time::Timestamp,
};

use crate::ledger::{Ending, MOST_LEAD, Settlement};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntrySearch {
    /// Key of the entries; `None` matches any.
    pub key: Option<KeyId>,
    /// Group of the entries, or the parent of their group; `None` matches any.
    pub group: Option<GroupId>,
    /// Group that the reader is limited to, matched like `group`.
    pub within: Option<GroupId>,
    pub model: Option<String>,
    /// Billed at or after this instant; `None` matches from the beginning.
    pub begins: Option<Timestamp>,
    /// Billed before this instant; `None` matches to the end.
    pub ends: Option<Timestamp>,
    /// Outcome of the entries; `None` matches any outcome.
    pub outcome: Option<Outcome>,
    /// Ending of the entries; `None` matches any.
    pub ending: Option<Ending>,
    /// The user that the caller sent; `None` matches any.
    pub user: Option<String>,
    /// The request that was billed; `None` matches any.
    pub request: Option<RequestId>,
    /// Name of the upstream; `None` matches any.
    pub upstream: Option<String>,
}

/// Outcome of a generation, as shown to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Captured,
    Estimated,
    /// Billed from the gateway's last report, since no capture arrived.
    Expired,
    /// Cost more than could be charged.
    Shortfall,
}

shared::names! {
    Outcome: Captured = "captured", Estimated = "estimated", Expired = "expired", Shortfall = "shortfall",
}

impl Outcome {
    /// Returns whether a settlement has this outcome. An estimate with a shortfall has both.
    fn is_of(self, settlement: &Settlement) -> bool {
        match self {
            Self::Captured => settlement.ending == Ending::Captured && !settlement.estimated,
            Self::Estimated => settlement.ending == Ending::Captured && settlement.estimated,
            Self::Expired => settlement.ending == Ending::Expired,
            Self::Shortfall => settlement.cost > settlement.charged && settlement.ending.is_bill(),
        }
    }
}

impl EntrySearch {
    /// Returns an instant before which no entry can match. A request is billed after its id was generated, but the id's
    /// time comes from the gateway's clock, which may be ahead of ours.
    pub fn earliest(&self) -> Option<Timestamp> {
        let began = self.request.map(|request| request.created_at().minus(MOST_LEAD));
        self.begins.max(began)
    }

    /// Returns whether the settlement of an entry matches.
    pub fn matches(&self, settlement: &Settlement) -> bool {
        self.key.is_none_or(|key| key == settlement.payer.key)
            && [self.group, self.within].into_iter().flatten().all(|group| settlement.payer.is_in(group))
            && self.model.as_ref().is_none_or(|model| *model == settlement.payer.model)
            && self.begins.is_none_or(|begins| begins <= settlement.at)
            && self.ends.is_none_or(|ends| settlement.at < ends)
            && self.outcome.is_none_or(|outcome| outcome.is_of(settlement))
            && self.ending.is_none_or(|ending| ending == settlement.ending)
            && self.user.as_deref().is_none_or(|user| settlement.user() == Some(user))
            && self.request.is_none_or(|request| settlement.request() == Some(request))
            && self.upstream.as_deref().is_none_or(|upstream| settlement.upstream() == Some(upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_of_a_request_is_older_than_its_id() {
        let began = Timestamp::from_millis(90_000_000);
        let request = RequestId::new(began, [7; 10]);
        let search = EntrySearch { request: Some(request), ..EntrySearch::default() };
        assert_eq!(search.earliest(), Some(began.minus(MOST_LEAD)));
        let begins = Some(began);
        assert_eq!(EntrySearch { begins, ..search }.earliest(), begins);
        assert_eq!(EntrySearch::default().earliest(), None);
    }
}
