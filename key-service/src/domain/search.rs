//! Filters of the journal, as members use them.

use shared::ids::KeyId;

use super::{
    ledger::{Ending, Settlement},
    usage::Day,
};

/// The entries that a member looks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntrySearch {
    /// Only those of this key.
    pub key: Option<KeyId>,
    /// Only those of this model.
    pub model: Option<String>,
    /// Only those of this day.
    pub day: Option<Day>,
    /// Only those of this outcome.
    pub outcome: Option<Outcome>,
}

/// Outcome of a generation, as members distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Billed exactly.
    Captured,
    /// Billed by an estimate.
    Estimated,
    /// Billed by the last report, since its gateway was lost.
    Expired,
    /// Cost more than could be billed.
    Shortfall,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Captured, Self::Estimated, Self::Expired, Self::Shortfall];

    /// The outcome as forms and exports have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Captured => "captured",
            Self::Estimated => "estimated",
            Self::Expired => "expired",
            Self::Shortfall => "shortfall",
        }
    }

    /// The outcome of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }

    /// Returns true if a settlement has this outcome. One may have two: an estimate with a shortfall.
    fn is_of(self, settlement: &Settlement) -> bool {
        match self {
            Self::Captured => settlement.ending == Ending::Captured && !settlement.estimated,
            Self::Estimated => settlement.ending == Ending::Captured && settlement.estimated,
            Self::Expired => settlement.ending == Ending::Expired,
            Self::Shortfall => settlement.cost > settlement.charged,
        }
    }
}

impl EntrySearch {
    /// Returns true if the settlement of an entry is one of those looked for.
    pub fn matches(&self, settlement: &Settlement) -> bool {
        self.key.is_none_or(|key| key == settlement.key)
            && self.model.as_ref().is_none_or(|model| *model == settlement.model)
            && self.day.is_none_or(|day| day == Day::of(settlement.at))
            && self.outcome.is_none_or(|outcome| outcome.is_of(settlement))
    }
}
