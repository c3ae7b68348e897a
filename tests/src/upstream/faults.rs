//! Faults that are caused on purpose, and the words of vendors' errors.

pub(crate) mod cut;
pub(crate) mod fault;
pub(crate) mod too_long;
pub(crate) mod vendor_error;
