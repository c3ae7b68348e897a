//! Clients of the programs, among them a browser.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod dialect;
pub(crate) mod events;
