//! Attacks on what passes between customers and vendors: members of bodies, and answers.

pub mod answers;
pub mod members;
