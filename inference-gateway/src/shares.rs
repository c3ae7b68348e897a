//! Shares of accounts in what all of them use together: no single account takes all of it.

use shared::{
    ids::AccountId,
    shares::{self, Shares},
};

/// The shares that accounts have taken.
pub(crate) type AccountShares = Shares<AccountId>;

/// One unit of an account's share, given back when it is dropped.
pub(crate) type Unit = shares::Unit<AccountId>;
