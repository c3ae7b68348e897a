//! Accounts: their list, the page of each, a new one, and more credit.

pub(crate) mod account;
pub(crate) mod accounts;
pub(crate) mod credit;
pub(crate) mod credit_form;
pub(crate) mod new_account;
