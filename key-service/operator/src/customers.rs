//! Accounts: the list, the page of an account, creating one, and adding credit.

pub(crate) mod account;
pub(crate) mod accounts;
pub(crate) mod credit;
pub(crate) mod credit_form;
pub(crate) mod new_account;
