//! What an operator looks at: whether the books add up, how full the store is, and single records.

pub(super) mod audit;
pub(super) mod capacity;
pub(crate) mod show;
