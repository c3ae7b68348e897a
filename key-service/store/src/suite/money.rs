//! Cases about money: holds, bills, limits and counters.

pub(crate) mod books;
pub(crate) mod budgets;
pub(crate) mod clocks;
pub(crate) mod deposits;
pub(crate) mod leases;
pub(crate) mod margins;
pub(crate) mod requests;
pub(crate) mod spending;
mod sweeps;
mod torn;
