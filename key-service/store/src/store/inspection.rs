//! What an operator inspects: the audit of the books, the store's free space, and single records.

pub(super) mod audit;
pub(super) mod capacity;
pub(crate) mod show;
