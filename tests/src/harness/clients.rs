//! Clients of the programs, and a browser.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod dialect;
pub(crate) mod events;
