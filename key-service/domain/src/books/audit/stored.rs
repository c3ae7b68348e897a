//! Records and index entries that a store must have because other records need them.

use std::fmt;

use shared::ids::{DepositId, GenerationId};

use crate::books::audit::owner::BudgetOwner;

/// A record or index entry that must exist. Other records imply what it must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The account's entry in the index of names.
    AccountName,
    AccountMoney,
    AccountProfile,
    /// The account's entry in the index of external ids.
    ExternalId,
    /// The account's entry in the index of accounts with open holds.
    Holder,
    Money(BudgetOwner),
    Profile(BudgetOwner),
    /// The entries of a key or group in an index.
    Listed(BudgetOwner, Listing),
    /// The remembered bill of a generation, which prevents billing it again.
    Bill(GenerationId),
    /// A deposit, compared with its index entry and its payment.
    Deposit(DepositId),
    /// The deposit that the account's record names as the last.
    LastDeposit,
    /// The event with this number, and its index entries.
    Event(u64),
    /// The record of the threshold that the event with this number reports.
    Threshold(u64),
}

/// An index of keys or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listing {
    /// All keys or all groups.
    All,
    /// Keys by status, and keys that expire.
    Status,
    /// The keys of each group, or the child groups of each group.
    Parent,
    /// Keys by spend.
    Spend,
}

impl Listing {
    const fn as_str(self) -> &'static str {
        match self {
            Self::All => "the list of all",
            Self::Status => "the lists by status and expiry",
            Self::Parent => "the lists of groups",
            Self::Spend => "the list by spend",
        }
    }
}

impl Stored {
    /// Returns the key or group to which the record belongs.
    pub const fn owner(&self) -> Option<BudgetOwner> {
        match self {
            Self::Money(of) | Self::Profile(of) | Self::Listed(of, _) => Some(*of),
            Self::AccountName
            | Self::AccountMoney
            | Self::AccountProfile
            | Self::ExternalId
            | Self::Holder
            | Self::Bill(_)
            | Self::Deposit(_)
            | Self::LastDeposit
            | Self::Event(_)
            | Self::Threshold(_) => None,
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AccountName => f.write_str("the account's entry in the index of names"),
            Self::AccountMoney => f.write_str("the account's record of money"),
            Self::AccountProfile => f.write_str("the account's profile"),
            Self::ExternalId => f.write_str("the account's entry in the index of external ids"),
            Self::Holder => f.write_str("the account's entry in the index of accounts with open holds"),
            Self::Money(of) => write!(f, "the record of money of {of}"),
            Self::Profile(of) => write!(f, "the profile of {of}"),
            Self::Listed(of, listing) => write!(f, "the entry of {of} in {}", listing.as_str()),
            Self::Bill(generation) => write!(f, "the remembered bill of {generation}"),
            Self::Deposit(deposit) => write!(f, "the record of {deposit}"),
            Self::LastDeposit => f.write_str("the account's last deposit"),
            Self::Event(number) => write!(f, "an index entry of event {number}"),
            Self::Threshold(number) => write!(f, "the threshold of event {number}"),
        }
    }
}
