//! Deliberate faults, and how vendors word them.

pub(crate) mod cut;
pub(crate) mod fault;
pub(crate) mod too_long;
pub(crate) mod vendor_error;
