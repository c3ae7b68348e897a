//! What alerts report.

use minicbor::{Decode, Encode};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Rule {
    /// A key spends many times its usual amount.
    #[n(0)]
    SpendJump,
    /// A share of a limit is used.
    #[n(1)]
    LimitShare,
    /// Requests are refused because a limit or the credit is used up.
    #[n(2)]
    Refused,
    /// The credit lasts for only a few days.
    #[n(3)]
    CreditDays,
    /// The spend of the last week, each Monday.
    #[n(4)]
    WeeklyReport,
}

shared::names! {
    Rule: SpendJump = "spend_jump", LimitShare = "limit_share", Refused = "refused", CreditDays = "credit_days",
    WeeklyReport = "weekly_report",
}
impl Rule {
    /// Returns the usual threshold; `None` if the rule has none.
    pub const fn usual(self) -> Option<u64> {
        match self {
            Self::SpendJump => Some(5),
            Self::LimitShare => Some(80),
            Self::CreditDays => Some(7),
            Self::Refused | Self::WeeklyReport => None,
        }
    }

    /// Returns whether the rule can have this threshold. The ledger reports fixed shares of limits, and a spend below
    /// five times the usual amount is no jump.
    pub fn allows(self, threshold: u64) -> bool {
        match self {
            Self::SpendJump => (5..=1_000).contains(&threshold),
            Self::LimitShare => [50, 80, 95].contains(&threshold),
            Self::CreditDays => (1..=365).contains(&threshold),
            Self::Refused | Self::WeeklyReport => false,
        }
    }

    /// Describes the thresholds that the rule can have.
    pub const fn thresholds(self) -> &'static str {
        match self {
            Self::SpendJump => "5 to 1,000 for this rule",
            Self::LimitShare => "50, 80 or 95 for this rule",
            Self::CreditDays => "1 to 365 for this rule",
            Self::Refused | Self::WeeklyReport => "null, because this rule has no threshold",
        }
    }

    /// Returns whether the rule is about the account's events, and not about its sums.
    pub const fn is_of_events(self) -> bool {
        match self {
            Self::LimitShare | Self::Refused => true,
            Self::SpendJump | Self::CreditDays | Self::WeeklyReport => false,
        }
    }

    /// Returns whether the rule is always about the whole account.
    pub const fn is_of_account(self) -> bool {
        match self {
            Self::CreditDays | Self::WeeklyReport => true,
            Self::SpendJump | Self::LimitShare | Self::Refused => false,
        }
    }
}
