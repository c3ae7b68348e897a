//! What goes wrong on purpose, and in whose words.

pub(crate) mod cut;
pub(crate) mod fault;
pub(crate) mod too_long;
pub(crate) mod vendor_error;
