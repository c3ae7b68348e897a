//! Lists of events, bills and refusals, searched by filters and words, a page at a time.

pub mod events;
pub mod generations;
pub mod reached;
pub mod reading;
pub mod refusals;
pub mod requests;
