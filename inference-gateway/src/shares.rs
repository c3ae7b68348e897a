//! Shares of accounts in common resources: no single account takes everything.

use shared::{
    ids::AccountId,
    shares::{self, Shares},
};

/// The shares that accounts have taken.
pub(crate) type AccountShares = Shares<AccountId>;

/// A unit of an account's share, given back when dropped.
pub(crate) type Unit = shares::Unit<AccountId>;
