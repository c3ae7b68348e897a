//! Attacks on what the gateway passes between customers and vendors: members of bodies, and answers.

pub(super) mod answers;
pub(super) mod members;
