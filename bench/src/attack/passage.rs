//! Attacks on what the gateway passes between customers and vendors: members of request bodies, and whole answers.

pub(super) mod answers;
pub(super) mod members;
