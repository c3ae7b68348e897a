//! What happened, one by one: events, bills and refusals, found by filters and words, a page at a time.

pub mod events;
pub mod generations;
pub mod reached;
pub mod reading;
pub mod refusals;
pub mod requests;
