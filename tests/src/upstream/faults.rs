//! Deliberate faults, and the vendors' words for them.

pub(crate) mod cut;
pub(crate) mod fault;
pub(crate) mod too_long;
pub(crate) mod vendor_error;
